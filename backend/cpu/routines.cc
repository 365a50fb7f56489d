// backend/cpu/routines.cc -- see the header. Every result element is written by one thread, in a
// fixed order of sums.
#include "backend/cpu/routines.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/half.h"
#include "backend/cpu/thread_pool.h"
#include "base/check.h"
#include "ir/interpreter.h"

namespace cad::backend {

namespace {

constexpr int64_t kGrain = 16384;  // bytes a thread takes at least

int64_t size_of(const ir::Graph& g, ir::DimId dim, const ir::Bindings& bindings) {
  return g.dim(dim).size.evaluate(bindings).value;
}

// Row-major stride of a dim in a dense type; 0 when it is absent.
int64_t stride_in(const ir::Graph& g, const ir::Type& type, ir::DimId dim,
                  const ir::Bindings& bindings) {
  if (!type.has(dim)) return 0;
  int64_t stride = 1;
  for (size_t d = type.rank(); d-- > 0 && type.dims[d] != dim;)
    stride *= size_of(g, type.dims[d], bindings);
  return stride;
}

// f32 or i32 as they are; 16-bit floats through f32.
struct Bf16 {
  uint16_t bits;
  [[nodiscard]] float get() const { return bf16_to_float(bits); }
  static Bf16 of(float x) { return {float_to_bf16(x)}; }
};
struct F16 {
  uint16_t bits;
  [[nodiscard]] float get() const { return f16_to_float(bits); }
  static F16 of(float x) { return {float_to_f16(x)}; }
};
inline float number(float x) {
  return x;
}
inline int32_t number(int32_t x) {
  return x;
}
inline float number(Bf16 x) {
  return x.get();
}
inline float number(F16 x) {
  return x.get();
}
inline void put(float& to, float x) {
  to = x;
}
inline void put(int32_t& to, int32_t x) {
  to = x;
}
inline void put(Bf16& to, float x) {
  to = Bf16::of(x);
}
inline void put(F16& to, float x) {
  to = F16::of(x);
}
inline float sum(float a, float b) {
  return a + b;
}
inline int32_t sum(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

// Top-k's order: NaN counts as the largest.
template <class T>
bool above(T a, T b) {
  const auto x = number(a), y = number(b);
  return x > y || (x != x && y == y);
}

// f(T{}) for the storage type of a dtype.
template <class F>
void with_type(ir::DType dtype, F&& f) {
  switch (dtype) {
    case ir::DType::kF32:
      f(float{});
      break;
    case ir::DType::kBF16:
      f(Bf16{});
      break;
    case ir::DType::kF16:
      f(F16{});
      break;
    case ir::DType::kI32:
      f(int32_t{});
      break;
    case ir::DType::kBool:
      CAD_CHECK(false, "arithmetic on bool");
      break;
  }
}

// [outer, extent, inner] of a dense type around one dim.
void around(const ir::Graph& g, const ir::Type& type, ir::DimId dim, const ir::Bindings& bindings,
            RoutinePlan& plan) {
  plan.dtype = type.dtype;
  const int at = type.position(dim);
  CAD_CHECK(at >= 0, "dim {} is not in {}", dim.index, g.str(type));
  for (int d = 0; d < static_cast<int>(type.rank()); ++d) {
    const int64_t extent = size_of(g, type.dims[static_cast<size_t>(d)], bindings);
    (d < at ? plan.outer : d == at ? plan.extent : plan.inner) *= extent;
  }
}

int64_t total(const std::vector<ScatterDim>& dims) {
  int64_t n = 1;
  for (const ScatterDim& d : dims) n *= d.extent;
  return n;
}

ScatterDim offset_of(const std::vector<ScatterDim>& dims, int64_t index) {
  ScatterDim at{1, 0, 0, 0};
  for (size_t d = dims.size(); d-- > 0;) {
    const int64_t i = index % dims[d].extent;
    index /= dims[d].extent;
    at.g += i * dims[d].g;
    at.ids += i * dims[d].ids;
    at.out += i * dims[d].out;
  }
  return at;
}

}  // namespace

void run_copy(const CopyPlan& plan, const void* from, void* to, bool add, ThreadPool& pool) {
  const int64_t size = ir::dtype_bytes(plan.dtype);
  if (!add) {
    pool.split(plan.elements * size, kGrain, [&](int64_t begin, int64_t end) {
      std::memmove(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                   static_cast<size_t>(end - begin));
    });
    return;
  }
  with_type(plan.dtype, [&](auto type) {
    using T = decltype(type);
    pool.split(plan.elements, kGrain / 4, [&](int64_t begin, int64_t end) {
      const T* x = static_cast<const T*>(from);
      T* y = static_cast<T*>(to);
      for (int64_t i = begin; i < end; ++i) put(y[i], sum(number(y[i]), number(x[i])));
    });
  });
}

RoutinePlan plan_scatter_add(const ir::Graph& g, const ir::Node& node,
                             const ir::Bindings& bindings) {
  RoutinePlan plan;
  const ir::Type &grad = g.type(node.operands[0]), &ids = g.type(node.operands[1]),
                 &out = g.type(node.results[0]);
  plan.dtype = out.dtype;
  plan.rows = size_of(g, node.attrs.dim, bindings);
  plan.row_stride = stride_in(g, out, node.attrs.dim, bindings);
  plan.elements = 1;
  for (const ir::DimId dim : out.dims) {
    const int64_t extent = size_of(g, dim, bindings);
    plan.elements *= extent;
    if (dim == node.attrs.dim) continue;
    plan.kept.push_back({extent, stride_in(g, grad, dim, bindings),
                         stride_in(g, ids, dim, bindings), stride_in(g, out, dim, bindings)});
  }
  for (const ir::DimId dim : ids.dims) {
    if (dim != node.attrs.dim && out.has(dim)) continue;
    plan.summed.push_back({size_of(g, dim, bindings), stride_in(g, grad, dim, bindings),
                           stride_in(g, ids, dim, bindings), 0});
  }
  if (plan.dtype != ir::DType::kF32) plan.scratch_bytes = plan.elements * 4;
  return plan;
}

void run_scatter_add(const RoutinePlan& plan, const void* g, const int32_t* ids, void* out,
                     void* scratch, bool add, ThreadPool& pool) {
  const bool aside = plan.dtype != ir::DType::kF32;  // sums are f32
  float* sums = static_cast<float*>(aside ? scratch : out);
  if (aside || !add) {
    pool.split(plan.elements, kGrain / 4,
               [&](int64_t begin, int64_t end) { std::fill(sums + begin, sums + end, 0.0F); });
  }
  // The last kept dim is a vector when it picks no ids and is dense.
  std::vector<ScatterDim> outer = plan.kept;
  int64_t inner = 1;
  if (!outer.empty() && outer.back().ids == 0 && outer.back().g == 1 && outer.back().out == 1) {
    inner = outer.back().extent;
    outer.pop_back();
  }
  const int64_t columns = total(outer) * inner, count = total(plan.summed);
  with_type(plan.dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (!std::is_same_v<T, int32_t>) {
      const T* from = static_cast<const T*>(g);
      pool.split(columns, 16, [&](int64_t begin, int64_t end) {
        for (int64_t s = 0; s < count; ++s) {
          const ScatterDim source = offset_of(plan.summed, s);
          for (int64_t column = begin; column < end;) {
            const ScatterDim at = offset_of(outer, column / inner);
            const int64_t first = column % inner, length = std::min(inner - first, end - column);
            column += length;
            const int64_t row = ids[source.ids + at.ids];
            if (row < 0 || row >= plan.rows) continue;
            float* to = sums + at.out + row * plan.row_stride + first;
            const T* x = from + source.g + at.g + first;
            for (int64_t i = 0; i < length; ++i) to[i] += number(x[i]);
          }
        }
      });
      if constexpr (!std::is_same_v<T, float>) {
        pool.split(plan.elements, kGrain / 4, [&](int64_t begin, int64_t end) {
          T* to = static_cast<T*>(out);
          for (int64_t i = begin; i < end; ++i) put(to[i], add ? number(to[i]) + sums[i] : sums[i]);
        });
      }
    } else {
      CAD_CHECK(false, "scatter_add of i32");
    }
  });
}

RoutinePlan plan_top_k(const ir::Graph& g, const ir::Node& node, const ir::Bindings& bindings) {
  RoutinePlan plan;
  around(g, g.type(node.operands[0]), node.attrs.dim, bindings, plan);
  plan.taken = size_of(g, node.attrs.to, bindings);
  return plan;
}

void run_top_k(const RoutinePlan& plan, const void* x, void* values, int32_t* indices,
               ThreadPool& pool) {
  with_type(plan.dtype, [&](auto type) {
    using T = decltype(type);
    const int64_t step = plan.inner;
    pool.split(plan.outer * plan.inner, 8, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t o = row / step, i = row % step;
        const T* from = static_cast<const T*>(x) + o * plan.extent * step + i;
        T* top = static_cast<T*>(values) + o * plan.taken * step + i;
        int32_t* where = indices + o * plan.taken * step + i;
        int64_t held = 0;
        for (int64_t e = 0; e < plan.extent; ++e) {
          const T candidate = from[e * step];
          if (plan.taken == 0 || (held == plan.taken && !above(candidate, top[(held - 1) * step])))
            continue;
          int64_t at = held == plan.taken ? held - 1 : held++;
          for (; at > 0 && above(candidate, top[(at - 1) * step]); --at) {
            top[at * step] = top[(at - 1) * step];
            where[at * step] = where[(at - 1) * step];
          }
          top[at * step] = candidate;
          where[at * step] = static_cast<int32_t>(e);
        }
      }
    });
  });
}

RoutinePlan plan_cum_sum(const ir::Graph& g, const ir::Node& node, const ir::Bindings& bindings) {
  RoutinePlan plan;
  around(g, g.type(node.operands[0]), node.attrs.dim, bindings, plan);
  plan.reverse = node.attrs.reverse;
  return plan;
}

void run_cum_sum(const RoutinePlan& plan, const void* x, void* out, ThreadPool& pool) {
  with_type(plan.dtype, [&](auto type) {
    using T = decltype(type);
    const int64_t step = plan.inner;
    pool.split(plan.outer * plan.inner, 8, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        const int64_t start = line / step * plan.extent * step + line % step;
        const T* from = static_cast<const T*>(x) + start;
        T* to = static_cast<T*>(out) + start;
        decltype(number(T{})) running = 0;
        for (int64_t e = 0; e < plan.extent; ++e) {
          const int64_t at = (plan.reverse ? plan.extent - 1 - e : e) * step;
          running = sum(running, number(from[at]));
          put(to[at], running);
        }
      }
    });
  });
}

RoutinePlan plan_slots(const ir::Graph& g, const ir::Node& node, const ir::Bindings& bindings) {
  RoutinePlan plan;
  plan.elements = 1;
  for (const ir::DimId dim : g.type(node.operands[0]).dims)
    plan.elements *= size_of(g, dim, bindings);
  plan.rows = size_of(g, node.attrs.dim, bindings);
  plan.taken = size_of(g, node.attrs.to, bindings);
  plan.scratch_bytes = plan.rows * 4;
  return plan;
}

void run_slots(const RoutinePlan& plan, const int32_t* expert, int32_t* out, void* scratch) {
  auto* used = static_cast<int32_t*>(scratch);
  if (plan.rows > 0) std::memset(used, 0, static_cast<size_t>(plan.rows) * 4);
  for (int64_t i = 0; i < plan.elements; ++i) {
    const int32_t e = expert[i];
    const bool fits = e >= 0 && e < plan.rows && used[e] < plan.taken;
    out[i] = fits ? static_cast<int32_t>(e * plan.taken + used[e]++) : -1;
  }
}

NonFiniteCounts count_non_finite(const void* data, int64_t elements, ir::DType dtype) {
  NonFiniteCounts counts;
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (!std::is_same_v<T, int32_t>) {
      for (int64_t i = 0; i < elements; ++i) {
        const float x = number(static_cast<const T*>(data)[i]);
        if (std::isfinite(x)) continue;
        if (std::isnan(x)) {
          ++counts.nan;
        } else {
          ++(x > 0 ? counts.plus : counts.minus);
        }
      }
    }
  });
  return counts;
}

}  // namespace cad::backend
