// backend/cpu/gemm.cc -- blocking and threading of the packed product. Each thread owns a
// rectangle of c (of one batch element) and packs what it needs itself: no barriers, no shared
// panels. Blocks: kDepthBlock x kColumnBlock of b (L3), kRowBlock x kDepthBlock of a (L2), tiles of
// gemm_kernels.h (registers).
#include "backend/cpu/gemm.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "backend/cpu/gemm_kernels.h"
#include "backend/cpu/half.h"
#include "backend/cpu/thread_pool.h"
#include "base/check.h"

namespace cad::backend {

namespace {

constexpr int64_t kDepthBlock = 384;
constexpr int64_t kRowBlock = 168;  // a multiple of 14, 6 and 4
constexpr int64_t kColumnBlock = 768;
constexpr int64_t kMaxTile = 14 * 48;

// Packing buffers and offset tables of one thread; made once, a fixed size.
struct Scratch {
  alignas(64) float a[kRowBlock * kDepthBlock + 64];
  alignas(64) float b[kDepthBlock * (kColumnBlock + 64) + 16];
  alignas(64) float tile[kMaxTile];
  int64_t a_rows[kRowBlock], c_rows[kRowBlock];
  int64_t b_columns[kColumnBlock], c_columns[kColumnBlock];
  int64_t a_depth[kDepthBlock], b_depth[kDepthBlock];
  alignas(64) float sums[kRowBlock * kColumnBlock];  // results that are not f32 are gathered here
};

Scratch& scratch() {
  thread_local const std::unique_ptr<Scratch> mine(new Scratch);
  return *mine;
}

// Joins neighbours whose strides are compatible in every operand; drops dims of size 1.
std::vector<GemmDim> join(std::vector<GemmDim> dims, bool by_depth) {
  dims.erase(
      std::remove_if(dims.begin(), dims.end(), [](const GemmDim& d) { return d.extent == 1; }),
      dims.end());
  std::stable_sort(dims.begin(), dims.end(), [&](const GemmDim& x, const GemmDim& y) {
    return by_depth ? x.a > y.a || (x.a == y.a && x.b > y.b) : x.c > y.c;
  });
  std::vector<GemmDim> joined;
  for (const GemmDim& d : dims) {
    if (!joined.empty()) {
      GemmDim& last = joined.back();
      if (last.a == d.a * d.extent && last.b == d.b * d.extent && last.c == d.c * d.extent) {
        last = {last.extent * d.extent, d.a, d.b, d.c};
        continue;
      }
    }
    joined.push_back(d);
  }
  return joined;
}

int64_t product(const std::vector<GemmDim>& dims) {
  int64_t n = 1;
  for (const GemmDim& d : dims) n *= d.extent;
  return n;
}

// Offsets of the count elements from `first` on of a dim group, in two operands at once.
void offsets(const std::vector<GemmDim>& dims, int64_t first, int64_t count, int64_t GemmDim::*x,
             int64_t GemmDim::*y, int64_t* to_x, int64_t* to_y) {
  if (dims.size() <= 1) {
    const int64_t sx = dims.empty() ? 0 : dims[0].*x, sy = dims.empty() ? 0 : dims[0].*y;
    for (int64_t i = 0; i < count; ++i) {
      to_x[i] = (first + i) * sx;
      to_y[i] = (first + i) * sy;
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = first + i, ox = 0, oy = 0;
    for (size_t d = dims.size(); d-- > 0;) {
      const int64_t index = rest % dims[d].extent;
      rest /= dims[d].extent;
      ox += index * (dims[d].*x);
      oy += index * (dims[d].*y);
    }
    to_x[i] = ox;
    to_y[i] = oy;
  }
}

struct Task {
  const GemmPlan& plan;
  const char* a;
  const char* b;
  char* c;
  bool add;
};

// Blocks as even as possible: 400 over blocks of 384 is 2 x 200, not 384 + 16.
int64_t even_block(int64_t n, int64_t most, int64_t unit) {
  const int64_t blocks = (n + most - 1) / most;
  if (blocks <= 1) return std::max<int64_t>(n, 1);
  const int64_t size = (n + blocks - 1) / blocks;
  return std::min((size + unit - 1) / unit * unit, most);
}

bool all_dense(const int64_t* offsets, int count) {
  for (int i = 1; i < count; ++i) {
    if (offsets[i] != offsets[0] + i) return false;
  }
  return true;
}

bool evenly_spaced(const int64_t* offsets, int count) {
  for (int i = 2; i < count; ++i) {
    if (offsets[i] - offsets[i - 1] != offsets[1] - offsets[0]) return false;
  }
  return true;
}

// The tiles of one block of c: rows x columns, depth deep, from packed panels.
void block_f32(Scratch& s, int64_t rows, int64_t columns, int64_t depth, float* c, bool add) {
  const GemmKernels& kernels = gemm_kernels();
  const int width = kernels.columns;
  for (int64_t j = 0; j < columns; j += width) {
    const int n = static_cast<int>(std::min<int64_t>(width, columns - j));
    const bool dense = n == width && all_dense(s.c_columns + j, n);
    for (int64_t i = 0; i < rows; i += kernels.max_rows) {
      const int m = static_cast<int>(std::min<int64_t>(kernels.max_rows, rows - i));
      const float* left = s.a + i * depth;
      const float* right = s.b + j * depth;
      if (dense && evenly_spaced(s.c_rows + i, m)) {
        const int64_t stride = m > 1 ? s.c_rows[i + 1] - s.c_rows[i] : 0;
        kernels.tile(m, depth, left, right, c + s.c_rows[i] + s.c_columns[j], stride, add);
        continue;
      }
      kernels.tile(m, depth, left, right, s.tile, width, false);
      for (int y = 0; y < m; ++y) {
        float* line = c + s.c_rows[i + y];
        const int64_t* to = s.c_columns + j;
        const float* from = s.tile + y * width;
        if (add) {
          for (int x = 0; x < n; ++x) line[to[x]] += from[x];
        } else {
          for (int x = 0; x < n; ++x) line[to[x]] = from[x];
        }
      }
    }
  }
}

// Panels of `width` lines. Dense lines are packed a few steps of the depth at a time over all
// panels, so that a row of the operand is read while it is in cache; other lines panel by panel.
void pack_panels(float* to, int width, bool pad, const void* from, ir::DType type, int64_t lines,
                 const int64_t* at, int64_t depth, const int64_t* steps) {
  constexpr int64_t kSteps = 32;
  const GemmKernels& kernels = gemm_kernels();
  const int64_t chunk = lines > width && all_dense(at, static_cast<int>(lines)) ? kSteps : depth;
  for (int64_t k = 0; k < depth; k += chunk) {
    for (int64_t i = 0; i < lines; i += width) {
      const int n = static_cast<int>(std::min<int64_t>(width, lines - i));
      const int wide = pad ? width : n;
      kernels.pack(to + i * depth + k * wide, wide, from, type, n, at + i,
                   std::min(chunk, depth - k), steps + k);
    }
  }
}

void pack_rows(Scratch& s, const Task& t, const char* a, int64_t rows, int64_t depth) {
  pack_panels(s.a, gemm_kernels().max_rows, false, a, t.plan.a_type, rows, s.a_rows, depth,
              s.a_depth);
}

void pack_columns(Scratch& s, const Task& t, const char* b, int64_t columns, int64_t depth) {
  pack_panels(s.b, gemm_kernels().columns, true, b, t.plan.b_type, columns, s.b_columns, depth,
              s.b_depth);
}

// Rounds a block of f32 sums to c's dtype.
void store_rounded(Scratch& s, const Task& t, char* c, int64_t rows, int64_t columns) {
  uint16_t* out = reinterpret_cast<uint16_t*>(c);
  const bool bf16 = t.plan.c_type == ir::DType::kBF16;
  for (int64_t i = 0; i < rows; ++i) {
    uint16_t* line = out + s.c_rows[i];
    const float* from = s.sums + i * columns;
    for (int64_t j = 0; j < columns; ++j) {
      uint16_t& to = line[s.c_columns[j]];
      if (bf16) {
        to = float_to_bf16(t.add ? from[j] + bf16_to_float(to) : from[j]);
      } else {
        to = float_to_f16(t.add ? from[j] + f16_to_float(to) : from[j]);
      }
    }
  }
}

struct Rectangle {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
};

// Panels of a and b that stay in the caches.
struct Blocks {
  int64_t depth, columns, rows;
};

Blocks blocks_of(const GemmPlan& p, const Rectangle& r) {
  const GemmKernels& kernels = gemm_kernels();
  const int64_t most_rows = kRowBlock / kernels.max_rows * kernels.max_rows;
  return {even_block(p.depth, kDepthBlock, 8), even_block(r.columns, kColumnBlock, kernels.columns),
          even_block(r.rows, most_rows, kernels.max_rows)};
}

void rectangle_f32(const Task& t, const char* a, const char* b, char* c, const Rectangle& r) {
  Scratch& s = scratch();
  const GemmPlan& p = t.plan;
  const auto [depth_block, column_block, row_block] = blocks_of(p, r);
  for (int64_t j = 0; j < r.columns; j += column_block) {
    const int64_t columns = std::min(column_block, r.columns - j);
    offsets(p.n, r.column + j, columns, &GemmDim::b, &GemmDim::c, s.b_columns, s.c_columns);
    for (int64_t k = 0; k < p.depth; k += depth_block) {
      const int64_t depth = std::min(depth_block, p.depth - k);
      offsets(p.k, k, depth, &GemmDim::a, &GemmDim::b, s.a_depth, s.b_depth);
      pack_columns(s, t, b, columns, depth);
      for (int64_t i = 0; i < r.rows; i += row_block) {
        const int64_t rows = std::min(row_block, r.rows - i);
        offsets(p.m, r.row + i, rows, &GemmDim::a, &GemmDim::c, s.a_rows, s.c_rows);
        pack_rows(s, t, a, rows, depth);
        block_f32(s, rows, columns, depth, reinterpret_cast<float*>(c), t.add || k > 0);
      }
    }
  }
}

// c of 16 bits: the depth loop is innermost so that sums stay f32 until they are complete.
void rectangle_rounded(const Task& t, const char* a, const char* b, char* c, const Rectangle& r) {
  Scratch& s = scratch();
  const GemmPlan& p = t.plan;
  const auto [depth_block, column_block, row_block] = blocks_of(p, r);
  const bool one_depth = p.depth <= depth_block;
  int64_t local_rows[kRowBlock], local_columns[kColumnBlock];
  for (int64_t j = 0; j < r.columns; j += column_block) {
    const int64_t columns = std::min(column_block, r.columns - j);
    for (int64_t x = 0; x < columns; ++x) local_columns[x] = x;
    for (int64_t i = 0; i < r.rows; i += row_block) {
      const int64_t rows = std::min(row_block, r.rows - i);
      for (int64_t y = 0; y < rows; ++y) local_rows[y] = y * columns;
      for (int64_t k = 0; k < p.depth; k += depth_block) {
        const int64_t depth = std::min(depth_block, p.depth - k);
        offsets(p.k, k, depth, &GemmDim::a, &GemmDim::b, s.a_depth, s.b_depth);
        offsets(p.n, r.column + j, columns, &GemmDim::b, &GemmDim::c, s.b_columns, s.c_columns);
        if (!one_depth || i == 0) pack_columns(s, t, b, columns, depth);
        offsets(p.m, r.row + i, rows, &GemmDim::a, &GemmDim::c, s.a_rows, s.c_rows);
        pack_rows(s, t, a, rows, depth);
        std::copy(local_rows, local_rows + rows, s.c_rows);
        std::copy(local_columns, local_columns + columns, s.c_columns);
        block_f32(s, rows, columns, depth, s.sums, k > 0);
      }
      offsets(p.m, r.row + i, rows, &GemmDim::a, &GemmDim::c, s.a_rows, s.c_rows);
      offsets(p.n, r.column + j, columns, &GemmDim::b, &GemmDim::c, s.b_columns, s.c_columns);
      store_rounded(s, t, c, rows, columns);
    }
  }
}

int64_t batch_offset(const std::vector<GemmDim>& batch, int64_t index, int64_t GemmDim::*x) {
  int64_t offset = 0;
  for (size_t d = batch.size(); d-- > 0;) {
    offset += index % batch[d].extent * (batch[d].*x);
    index /= batch[d].extent;
  }
  return offset;
}

// i32, and depth 0: plain loops.
template <class T>
void plain_loops(const GemmPlan& p, const T* a, const T* b, T* c, bool add, ThreadPool& pool) {
  pool.split(p.batches * p.rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> ignored(static_cast<size_t>(std::max(p.depth, p.columns)));
    std::vector<int64_t> ka(static_cast<size_t>(p.depth)), kb(ka);
    std::vector<int64_t> nb(static_cast<size_t>(p.columns)), nc(nb);
    offsets(p.k, 0, p.depth, &GemmDim::a, &GemmDim::b, ka.data(), kb.data());
    offsets(p.n, 0, p.columns, &GemmDim::b, &GemmDim::c, nb.data(), nc.data());
    for (int64_t row = begin; row < end; ++row) {
      const int64_t batch = row / p.rows;
      int64_t ma = 0, mc = 0;
      offsets(p.m, row % p.rows, 1, &GemmDim::a, &GemmDim::c, &ma, &mc);
      const T* left = a + batch_offset(p.batch, batch, &GemmDim::a) + ma;
      const T* right = b + batch_offset(p.batch, batch, &GemmDim::b);
      T* to = c + batch_offset(p.batch, batch, &GemmDim::c) + mc;
      for (int64_t j = 0; j < p.columns; ++j) {
        uint32_t sum = 0;  // wraps
        for (int64_t k = 0; k < p.depth; ++k) {
          sum +=
              static_cast<uint32_t>(left[ka[static_cast<size_t>(k)]]) *
              static_cast<uint32_t>(right[kb[static_cast<size_t>(k)] + nb[static_cast<size_t>(j)]]);
        }
        T& out = to[nc[static_cast<size_t>(j)]];
        out = static_cast<T>(add ? static_cast<uint32_t>(out) + sum : sum);
      }
    }
  });
}

// How a rectangle of rows x columns is cut among `parts` threads: least packing a thread.
std::pair<int64_t, int64_t> grid(int64_t rows, int64_t columns, int64_t parts) {
  const GemmKernels& kernels = gemm_kernels();
  std::pair<int64_t, int64_t> best{1, 1};
  double best_cost = -1;
  for (int64_t down = 1; down <= parts; ++down) {
    const int64_t across = parts / down;
    const double m = static_cast<double>((rows + down - 1) / down);
    const double n = static_cast<double>((columns + across - 1) / across);
    const double tiles_m = std::max(m, 1.0 * kernels.max_rows),
                 tiles_n = std::max(n, 1.0 * kernels.columns);
    const double cost = tiles_m * tiles_n + 16 * (tiles_m + tiles_n);
    if (best_cost < 0 || cost < best_cost) {
      best_cost = cost;
      best = {down, across};
    }
  }
  return best;
}

}  // namespace

GemmPlan plan_gemm(std::vector<GemmDim> batch, std::vector<GemmDim> m, std::vector<GemmDim> n,
                   std::vector<GemmDim> k, ir::DType a, ir::DType b, ir::DType c) {
  GemmPlan plan;
  const auto dense = [](const std::vector<GemmDim>& dims) {
    return std::any_of(dims.begin(), dims.end(),
                       [](const GemmDim& d) { return d.c == 1 && d.extent > 1; });
  };
  if (dense(m) && !dense(n)) {
    plan.swapped = true;
    std::swap(m, n);
    std::swap(a, b);
    for (auto* dims : {&batch, &m, &n, &k}) {
      for (GemmDim& d : *dims) std::swap(d.a, d.b);
    }
  }
  plan.a_type = a;
  plan.b_type = b;
  plan.c_type = c;
  plan.batches = product(batch);
  plan.rows = product(m);
  plan.columns = product(n);
  plan.depth = product(k);
  plan.batch = join(std::move(batch), false);
  plan.m = join(std::move(m), false);
  plan.n = join(std::move(n), false);
  plan.k = join(std::move(k), true);
  return plan;
}

void run_gemm(const GemmPlan& p, const void* a, const void* b, void* c, bool add,
              ThreadPool& pool) {
  if (p.batches * p.rows * p.columns == 0) return;
  if (p.swapped) std::swap(a, b);
  if (p.c_type == ir::DType::kI32) {
    plain_loops(p, static_cast<const int32_t*>(a), static_cast<const int32_t*>(b),
                static_cast<int32_t*>(c), add, pool);
    return;
  }
  const Task task{p, static_cast<const char*>(a), static_cast<const char*>(b),
                  static_cast<char*>(c), add};
  const int64_t size_a = ir::dtype_bytes(p.a_type), size_b = ir::dtype_bytes(p.b_type),
                size_c = ir::dtype_bytes(p.c_type);
  // Small problems stay whole; fewer batch elements than threads are cut further.
  const int64_t threads = pool.size();
  const double work = static_cast<double>(p.rows) * static_cast<double>(p.columns) *
                      static_cast<double>(std::max<int64_t>(p.depth, 1));
  const int64_t useful = std::max<int64_t>(1, static_cast<int64_t>(work / 30000));
  const int64_t parts = p.batches >= threads && p.batches % threads == 0 ? 1
                        : p.batches >= 4 * threads                       ? 1
                                                   : std::min(useful, threads);
  const auto [down, across] = grid(p.rows, p.columns, parts);
  const int64_t row_unit = gemm_kernels().max_rows, column_unit = gemm_kernels().columns;
  const int64_t row_units = (p.rows + row_unit - 1) / row_unit;
  const int64_t column_units = (p.columns + column_unit - 1) / column_unit;
  const int64_t down_parts = down, across_parts = across;
  const auto one = [&](int64_t index) {
    const int64_t batch = index / (down_parts * across_parts),
                  part = index % (down_parts * across_parts);
    const int64_t y = part / across_parts, x = part % across_parts;
    const int64_t row = row_units * y / down_parts * row_unit;
    const int64_t row_end = std::min(row_units * (y + 1) / down_parts * row_unit, p.rows);
    const int64_t column = column_units * x / across_parts * column_unit;
    const int64_t column_end =
        std::min(column_units * (x + 1) / across_parts * column_unit, p.columns);
    if (row >= row_end || column >= column_end) return;
    const char* left = task.a + batch_offset(p.batch, batch, &GemmDim::a) * size_a;
    const char* right = task.b + batch_offset(p.batch, batch, &GemmDim::b) * size_b;
    char* to = task.c + batch_offset(p.batch, batch, &GemmDim::c) * size_c;
    const Rectangle r{row, row_end - row, column, column_end - column};
    if (p.c_type == ir::DType::kF32 && p.depth > 0) {
      rectangle_f32(task, left, right, to, r);
    } else if (p.depth > 0) {
      rectangle_rounded(task, left, right, to, r);
    } else if (!add) {
      for (int64_t i = 0; i < r.rows; ++i) {
        for (int64_t j = 0; j < r.columns; ++j) {
          int64_t unused = 0, mc = 0, nc = 0;
          offsets(p.m, row + i, 1, &GemmDim::a, &GemmDim::c, &unused, &mc);
          offsets(p.n, column + j, 1, &GemmDim::b, &GemmDim::c, &unused, &nc);
          std::memset(to + (mc + nc) * size_c, 0, static_cast<size_t>(size_c));
        }
      }
    }
  };
  const int64_t tasks = p.batches * down * across;
  const bool tiny = work * static_cast<double>(p.batches) < 30000;
  if (tiny || tasks == 1) {
    for (int64_t i = 0; i < tasks; ++i) one(i);
  } else if (tasks % threads == 0) {
    pool.split(tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) one(i);
    });
  } else {
    pool.dynamic(tasks, [&](int64_t i, int) { one(i); });
  }
}

void warm_up_gemm(ThreadPool& pool) {
  pool.on_each(
      [](int) { std::memset(static_cast<void*>(scratch().sums), 0, sizeof scratch().sums); });
}

}  // namespace cad::backend
