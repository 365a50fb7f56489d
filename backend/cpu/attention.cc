// backend/cpu/attention.cc -- the loops. A group is C queries (gemm_kernels().columns), one a lane:
// its scores stand as [keys][C], so that max, exp and sums go down the rows in vector registers and
// every product takes the block as it is:
//   scores  p [s][c] = k [s][.] q [.][c]                 out [w][c] = v' [w][s] p [s][c]
//   dp [s][c] = v [s][.] g [.][c]        dq [k][c] = k' [k][s] ds [s][c]
//   dv [s][w] += p [s][c] g [c][w]       dk [s][k] += ds [s][c] q [c][k]
#include "backend/cpu/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/attention_scratch.h"
#include "backend/cpu/gemm_kernels.h"
#include "backend/cpu/half.h"
#include "backend/cpu/row_kernels.h"
#include "backend/cpu/thread_pool.h"
#include "base/check.h"
#include "ir/random.h"

namespace cad::backend {

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kMaxColumns = 64;

using Stride = int64_t AttentionDim::*;

// Where one combination of batch indices lies in every operand.
struct Problem {
  int64_t q = 0, k = 0, v = 0, out = 0, lse = 0, mask = 0, g = 0, dq = 0, dk = 0, dv = 0;
  uint64_t element = 0;
};

int64_t probs_stride(const AttentionDim& d, int64_t step_rows) {
  return d.before_rows ? d.probs * step_rows : d.probs;
}

void advance(Problem& at, const std::vector<AttentionDim>& dims, int64_t index,
             const AttentionRun& run) {
  for (size_t n = dims.size(); n-- > 0;) {
    const AttentionDim& d = dims[n];
    const int64_t i = index % d.extent;
    index /= d.extent;
    at.q += i * d.q;
    at.k += i * d.k;
    at.v += i * d.v;
    at.out += i * d.out;
    at.lse += i * d.lse;
    at.mask += i * d.mask;
    at.g += i * d.g;
    at.dq += i * d.dq;
    at.dk += i * d.dk;
    at.dv += i * d.dv;
    at.element += static_cast<uint64_t>((i + (d.is_rows ? run.row_offset : 0)) *
                                        probs_stride(d, run.step_rows));
  }
}

class Worker {
 public:
  Worker(const AttentionPlan& plan, const AttentionRun& run, int thread)
      : plan_(plan),
        run_(run),
        kernels_(gemm_kernels()),
        rows_(row_kernels()),
        s_(plan, static_cast<float*>(run.scratch) + thread * plan.thread_floats),
        depth_(size(plan.q_depth)),
        width_(size(plan.v_width)),
        keys_(plan.s.extent),
        columns_(kernels_.columns) {
    if (plan.p > 0) {
      key_ = ir::stream_key(run.seed, plan.site, run.numbers);
    }
    for (int64_t i = 0; i < keys_; ++i) {
      s_.key_offsets[i] = i * plan.s.k;
      s_.key_offsets[keys_ + i] = i * plan.s.v;
    }
  }

  void pack_keys(const Problem& at);
  void forward(const Problem& at, int64_t first);
  void begin_gradients();
  void backward(const Problem& at, int64_t first);
  void end_gradients(const Problem& at);

 private:
  static int64_t size(const std::vector<int64_t>& v) { return static_cast<int64_t>(v.size()); }
  [[nodiscard]] int64_t wide(int64_t n) const { return (n + columns_ - 1) / columns_ * columns_; }
  // Panels are as wide as they were packed: the rows of a partly needed one are all computed.
  [[nodiscard]] int64_t whole_panels(int64_t keys) const {
    return std::min(keys_, (keys + kernels_.max_rows - 1) / kernels_.max_rows * kernels_.max_rows);
  }
  [[nodiscard]] const void* shifted(const void* p, int64_t elements) const {
    return static_cast<const char*>(p) + elements * ir::dtype_bytes(plan_.dtype);
  }
  // to[at + offsets[i]] = (or +=) from[i * stride] * factor
  void store_line(void* to, int64_t at, const std::vector<int64_t>& offsets, const float* from,
                  int64_t stride, float factor, bool add) const;
  // dst = panels of max_rows lines
  void pack_panels(float* dst, const void* src, int64_t count, const int64_t* lines, int64_t depth,
                   const int64_t* steps) {
    for (int64_t i = 0; i < count; i += kernels_.max_rows) {
      const int n = static_cast<int>(std::min<int64_t>(kernels_.max_rows, count - i));
      kernels_.pack(dst + i * depth, n, src, plan_.dtype, n, lines + i, depth, steps);
    }
  }
  // c [count][C] = a (panels, `stride` floats of depth apiece) b [depth][C]
  void times(const float* a, int64_t count, int64_t panel_depth, int64_t depth, const float* b,
             float* c) {
    for (int64_t i = 0; i < count; i += kernels_.max_rows) {
      const int n = static_cast<int>(std::min<int64_t>(kernels_.max_rows, count - i));
      kernels_.tile(n, depth, a + i * panel_depth, b, c + i * columns_, columns_, false);
    }
  }
  // c [count][wide] += a [count][C] b, b in panels of C columns
  void add_outer(const float* a, int64_t count, const float* b, int64_t columns, float* c) {
    for (int64_t j = 0; j < columns; j += columns_) {
      for (int64_t i = 0; i < count; i += kernels_.max_rows) {
        const int n = static_cast<int>(std::min<int64_t>(kernels_.max_rows, count - i));
        kernels_.tile_of_rows(n, columns_, a + i * columns_, b + j * columns_,
                              c + i * wide(columns) + j, wide(columns), true);
      }
    }
  }
  void pack_query(float* dst, const void* src, int lanes, int64_t stride,
                  const std::vector<int64_t>& offsets, bool scaled);
  void pack_query_rows(float* dst, const void* src, int lanes, int64_t stride,
                       const std::vector<int64_t>& offsets, bool scaled);
  int64_t scores(const Problem& at, int64_t first, int lanes);
  [[nodiscard]] DropStream drop(const Problem& at, int64_t first) const;

  const AttentionPlan& plan_;
  const AttentionRun& run_;
  const GemmKernels& kernels_;
  const RowKernels& rows_;
  AttentionScratch s_;
  int64_t depth_, width_, keys_, columns_;
  uint64_t key_ = 0;
};

void Worker::store_line(void* to, int64_t at, const std::vector<int64_t>& offsets,
                        const float* from, int64_t stride, float factor, bool add) const {
  const int64_t n = size(offsets);
  const int64_t* where = offsets.data();
  if (plan_.dtype == ir::DType::kF32) {
    float* line = static_cast<float*>(to) + at;
    if (add) {
      for (int64_t i = 0; i < n; ++i) line[where[i]] += from[i * stride] * factor;
    } else {
      for (int64_t i = 0; i < n; ++i) line[where[i]] = from[i * stride] * factor;
    }
    return;
  }
  uint16_t* line = static_cast<uint16_t*>(to) + at;
  const bool bf16 = plan_.dtype == ir::DType::kBF16;
  for (int64_t i = 0; i < n; ++i) {
    uint16_t& y = line[where[i]];
    const float before = !add ? 0 : bf16 ? bf16_to_float(y) : f16_to_float(y);
    const float x = from[i * stride] * factor + before;
    y = bf16 ? float_to_bf16(x) : float_to_f16(x);
  }
}

void Worker::pack_keys(const Problem& at) {
  const void* k = shifted(run_.k, at.k);
  const void* v = shifted(run_.v, at.v);
  const int64_t* in_k = s_.key_offsets;
  const int64_t* in_v = s_.key_offsets + keys_;
  pack_panels(s_.k_rows, k, keys_, in_k, depth_, plan_.k_depth.data());
  if (plan_.backward) {
    pack_panels(s_.v_rows, v, keys_, in_v, width_, plan_.v_width.data());
    pack_panels(s_.k_columns, k, depth_, plan_.k_depth.data(), keys_, in_k);
  } else {
    pack_panels(s_.v_columns, v, width_, plan_.v_width.data(), keys_, in_v);
  }
}

// dst [offsets][C]: a lane a query, absent ones 0.
void Worker::pack_query(float* dst, const void* src, int lanes, int64_t stride,
                        const std::vector<int64_t>& offsets, bool scaled) {
  std::array<int64_t, kMaxColumns> lines{};
  for (int j = 0; j < lanes; ++j) lines[static_cast<size_t>(j)] = j * stride;
  kernels_.pack(dst, static_cast<int>(columns_), src, plan_.dtype, lanes, lines.data(),
                size(offsets), offsets.data());
  if (scaled) rows_.scale(dst, size(offsets) * columns_, plan_.scale);
}

// dst: panels [C queries][C offsets]
void Worker::pack_query_rows(float* dst, const void* src, int lanes, int64_t stride,
                             const std::vector<int64_t>& offsets, bool scaled) {
  std::array<int64_t, kMaxColumns> steps{};
  for (int j = 0; j < lanes; ++j) steps[static_cast<size_t>(j)] = j * stride;
  for (int64_t i = 0; i < size(offsets); i += columns_) {
    const int n = static_cast<int>(std::min(columns_, size(offsets) - i));
    float* panel = dst + i * columns_;
    kernels_.pack(panel, static_cast<int>(columns_), src, plan_.dtype, n, offsets.data() + i, lanes,
                  steps.data());
    std::fill(panel + lanes * columns_, panel + columns_ * columns_, 0.0F);
  }
  if (scaled) rows_.scale(dst, wide(size(offsets)) * columns_, plan_.scale);
}

// p = scores of a group, hidden ones -inf; how many keys it looks at.
int64_t Worker::scores(const Problem& at, int64_t first, int lanes) {
  const int64_t query = run_.first_query + first;  // in the whole sequence
  const int64_t keys = plan_.causal ? std::min(keys_, query + lanes) : keys_;
  pack_query(s_.q, shifted(run_.q, at.q + first * plan_.t.q), lanes, plan_.t.q, plan_.q_depth,
             true);
  times(s_.k_rows, whole_panels(keys), depth_, depth_, s_.q, s_.p);
  if (plan_.causal) {
    for (int64_t i = query + 1; i < keys; ++i) std::fill_n(s_.p + i * columns_, i - query, -kInf);
  }
  if (plan_.masked) {
    for (int64_t i = 0; i < keys; ++i) {
      const uint8_t* shown = run_.mask + at.mask + first * plan_.t.mask + i * plan_.s.mask;
      for (int j = 0; j < lanes; ++j) {
        if (shown[j * plan_.t.mask] == 0) s_.p[i * columns_ + j] = -kInf;
      }
    }
  }
  return keys;
}

DropStream Worker::drop(const Problem& at, int64_t first) const {
  DropStream d;
  d.key = key_;
  d.step = static_cast<uint64_t>(run_.step);
  d.lane_stride = static_cast<uint64_t>(probs_stride(plan_.t, run_.step_rows));
  const int64_t query = first + (plan_.t.is_rows ? run_.row_offset : 0);
  d.element = at.element + static_cast<uint64_t>(query) * d.lane_stride;
  d.threshold = static_cast<float>(plan_.p);
  d.kept = plan_.p < 1 ? static_cast<float>(1 / (1 - plan_.p)) : 0.0F;
  return d;
}

void Worker::forward(const Problem& at, int64_t first) {
  const int lanes = static_cast<int>(std::min(columns_, plan_.t.extent - first));
  const int64_t keys = scores(at, first, lanes);
  float* most = s_.lanes;
  float* sums = s_.lanes + columns_;
  std::fill_n(most, columns_, -kInf);
  std::fill_n(sums, columns_, 0.0F);
  rows_.maximum(s_.p, keys, most);
  std::array<float, kMaxColumns> seen{};
  for (int64_t j = 0; j < columns_; ++j) {
    seen[static_cast<size_t>(j)] = most[j];
    if (most[j] == -kInf) most[j] = 0;
  }
  rows_.exponentials(s_.p, keys, most, sums);
  if (plan_.p > 0)
    rows_.dropout(s_.p, keys, drop(at, first),
                  static_cast<uint64_t>(probs_stride(plan_.s, run_.step_rows)));
  times(s_.v_columns, width_, keys_, keys, s_.p, s_.out);
  char* out = static_cast<char*>(run_.out);
  for (int j = 0; j < lanes; ++j) {
    const float factor = sums[j] == 0 ? 0.0F : 1 / sums[j];
    const int64_t base = at.out + (first + j) * plan_.t.out;
    store_line(out, base, plan_.out_width, s_.out + j, columns_, factor, false);
    run_.lse[at.lse + (first + j) * plan_.t.lse] =
        seen[static_cast<size_t>(j)] == -kInf ? -kInf : most[j] + std::log(sums[j]);
  }
}

void Worker::begin_gradients() {
  std::fill_n(s_.dk, keys_ * wide(depth_), 0.0F);
  std::fill_n(s_.dv, keys_ * wide(width_), 0.0F);
}

void Worker::backward(const Problem& at, int64_t first) {
  const int lanes = static_cast<int>(std::min(columns_, plan_.t.extent - first));
  const int64_t keys = scores(at, first, lanes);
  const void* g = shifted(run_.g, at.g + first * plan_.t.g);
  pack_query(s_.g, g, lanes, plan_.t.g, plan_.g_width, false);
  pack_query(s_.out, shifted(run_.out, at.out + first * plan_.t.out), lanes, plan_.t.out,
             plan_.out_width, false);
  pack_query_rows(s_.g_rows, g, lanes, plan_.t.g, plan_.g_width, false);
  pack_query_rows(s_.q_rows, shifted(run_.q, at.q + first * plan_.t.q), lanes, plan_.t.q,
                  plan_.q_depth, true);
  float* lse = s_.lanes;
  float* delta = s_.lanes + columns_;
  rows_.dot(s_.g, s_.out, width_, delta);
  for (int64_t j = 0; j < columns_; ++j) {
    // +inf makes all probabilities 0: of absent lanes and of rows that are hidden altogether.
    lse[j] = j < lanes ? run_.lse[at.lse + (first + j) * plan_.t.lse] : kInf;
    if (lse[j] == -kInf) lse[j] = kInf;
  }
  times(s_.v_rows, whole_panels(keys), width_, width_, s_.g, s_.dp);
  const DropStream d = drop(at, first);
  rows_.gradient(s_.p, s_.dp, keys, lse, delta, plan_.p > 0 ? &d : nullptr,
                 static_cast<uint64_t>(probs_stride(plan_.s, run_.step_rows)));
  add_outer(s_.p, keys, s_.g_rows, width_, s_.dv);
  add_outer(s_.dp, keys, s_.q_rows, depth_, s_.dk);
  times(s_.k_columns, depth_, keys_, keys, s_.dp, s_.dq);
  for (int j = 0; j < lanes; ++j) {
    const int64_t base = at.dq + (first + j) * plan_.t.dq;
    store_line(run_.dq, base, plan_.dq_depth, s_.dq + j, columns_, plan_.scale, false);
  }
}

// dk and dv so far go to memory.
void Worker::end_gradients(const Problem& at) {
  for (int64_t i = 0; i < keys_; ++i) {
    store_line(run_.dk, at.dk + i * plan_.s.dk, plan_.dk_depth, s_.dk + i * wide(depth_), 1, 1,
               plan_.adds);
    store_line(run_.dv, at.dv + i * plan_.s.dv, plan_.dv_width, s_.dv + i * wide(width_), 1, 1,
               plan_.adds);
  }
}

// f(task, thread) for all tasks. The first one of a thread is its own, so that every thread uses
// its scratch; the others are handed out as threads get free.
template <class F>
void share(ThreadPool& pool, const AttentionPlan& plan, F&& f) {
  const int threads = std::min(plan.threads, pool.size());
  if (threads <= 1) {
    for (int64_t i = 0; i < plan.tasks; ++i) f(i, 0);
    return;
  }
  std::atomic<int64_t> next{threads};
  pool.each([&](int thread) {
    if (thread >= threads) return;
    for (int64_t i = thread; i < plan.tasks; i = next.fetch_add(1, std::memory_order_relaxed))
      f(i, thread);
  });
}

}  // namespace

void run_attention(const AttentionPlan& plan, const AttentionRun& run, ThreadPool& pool) {
  const int64_t columns = gemm_kernels().columns;
  CAD_CHECK(columns <= kMaxColumns, "{} lanes", columns);
  const int64_t groups = (plan.t.extent + columns - 1) / columns, parts = plan.parts;
  share(pool, plan, [&](int64_t task, int thread) {
    Worker worker(plan, run, thread);
    Problem at;
    at.element = run.first_element;
    advance(at, plan.own, task / parts % total(plan.own), run);
    advance(at, plan.shared, task / parts / total(plan.own), run);
    worker.pack_keys(at);
    // Of a causal problem the last groups are the largest: parts take every parts-th group.
    for (int64_t group = task % parts; group < groups; group += parts)
      worker.forward(at, group * columns);
  });
}

void run_attention_grad(const AttentionPlan& plan, const AttentionRun& run, ThreadPool& pool) {
  const int64_t columns = gemm_kernels().columns;
  const int64_t groups = (plan.t.extent + columns - 1) / columns;
  const int64_t inner = total(plan.own);
  if (plan.adds || plan.tasks == 0) {
    const auto size = static_cast<size_t>(ir::dtype_bytes(plan.dtype));
    std::memset(run.dk, 0, static_cast<size_t>(plan.k_elements) * size);
    std::memset(run.dv, 0, static_cast<size_t>(plan.v_elements) * size);
  }
  share(pool, plan, [&](int64_t problem, int thread) {
    Worker worker(plan, run, thread);
    Problem shared, last;
    shared.element = run.first_element;
    advance(shared, plan.shared, problem, run);
    for (int64_t i = 0; i < inner; ++i) {
      Problem at = shared;
      advance(at, plan.own, i, run);
      if (i > 0 && plan.adds && (at.k != last.k || at.v != last.v)) worker.end_gradients(last);
      if (i == 0 || at.k != last.k || at.v != last.v) {
        worker.pack_keys(at);
        if (i == 0 || plan.adds) worker.begin_gradients();
      }
      for (int64_t group = 0; group < groups; ++group) worker.backward(at, group * columns);
      last = at;
    }
    worker.end_gradients(last);
  });
}

}  // namespace cad::backend
