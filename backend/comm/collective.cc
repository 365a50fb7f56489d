// backend/comm/collective.cc -- geometry and movement of collectives.
#include "backend/comm/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/half.h"
#include "base/check.h"

namespace cad::backend {

const char* collective_kind_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all-reduce";
    case CollectiveKind::kReduceScatter:
      return "reduce-scatter";
    case CollectiveKind::kAllGather:
      return "all-gather";
    case CollectiveKind::kAllToAll:
      return "all-to-all";
    case CollectiveKind::kPermute:
      return "permute";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "?";
}

int CollectiveCall::index_of(int device) const {
  const auto at = std::lower_bound(members.begin(), members.end(), device);
  return at != members.end() && *at == device ? static_cast<int>(at - members.begin()) : -1;
}

namespace {

int64_t part_elements(const Parts& parts, int64_t Parts::Dim::*extent) {
  int64_t n = 1;
  for (const Parts::Dim& dim : parts.dims) n *= dim.*extent;
  return n;
}

}  // namespace

int64_t CollectiveCall::in_elements() const {
  const AllToAll& x = all_to_all;
  switch (kind) {
    case CollectiveKind::kReduceScatter:
      return outer * inner * size();
    case CollectiveKind::kAllToAll:
      return x.a * x.split * x.b * x.join * x.c * size();
    case CollectiveKind::kPermute:
      return part_elements(parts, &Parts::Dim::in);
    case CollectiveKind::kBarrier:
      return 0;
    default:
      return outer * inner;
  }
}

int64_t CollectiveCall::out_elements() const {
  switch (kind) {
    case CollectiveKind::kReduceScatter:
      return outer * inner;
    case CollectiveKind::kAllGather:
      return outer * inner * size();
    case CollectiveKind::kPermute:
      return part_elements(parts, &Parts::Dim::out);
    default:
      return in_elements();
  }
}

bool CollectiveCall::fits(const CollectiveCall& other) const {
  return kind == other.kind && members == other.members && dtype == other.dtype &&
         reduction == other.reduction && outer == other.outer && inner == other.inner &&
         all_to_all == other.all_to_all && parts == other.parts && axis == other.axis;
}

std::string CollectiveCall::str() const {
  std::string text = collective_kind_name(kind);
  if (!axis.empty()) text += fmt::format(" over `{}`", axis);
  if (kind != CollectiveKind::kBarrier) {
    text += fmt::format(" ({} bytes of {})", in_elements() * ir::dtype_bytes(dtype),
                        ir::dtype_name(dtype));
  }
  return text;
}

int phases(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce ? 2 : 1;
}

namespace {

Piece all_reduce_piece(const CollectiveCall& call, int phase, int from, int to) {
  const int64_t n = call.size(), elements = call.outer * call.inner;
  const int64_t slice = phase == 0 ? to : from;
  Piece p;
  p.from = p.to = elements * slice / n;
  p.run = elements * (slice + 1) / n - p.from;
  if (phase == 0) {
    p.action = Piece::Action::kReduce;
  } else {
    p.from_out = true;
    if (from == to) p.run = 0;
  }
  return p;
}

Piece all_to_all_piece(const CollectiveCall& call, int from, int to) {
  const AllToAll& x = call.all_to_all;
  const int64_t n = call.size();
  Piece p;
  if (!x.join_first) {
    // rows of [join, c]; steps over a and over (split, b)
    p.run = x.join * x.c;
    p.from = to * x.split * x.b * p.run;
    p.to = from * p.run;
    p.count = {x.a, x.split * x.b};
    p.from_step = {n * x.split * x.b * p.run, p.run};
    p.to_step = {x.split * x.b * n * p.run, n * p.run};
  } else {
    // rows of [split, c]; steps over a and over (join, b)
    p.run = x.split * x.c;
    p.from = to * p.run;
    p.to = from * x.join * x.b * p.run;
    p.count = {x.a, x.join * x.b};
    p.from_step = {x.join * x.b * n * p.run, n * p.run};
    p.to_step = {n * x.join * x.b * p.run, p.run};
  }
  return p;
}

// What `to` gets of what `from` has: in every dim the elements of both stretches.
Piece permute_piece(const CollectiveCall& call, int from, int to) {
  Piece p;
  std::vector<Piece::Steps> steps;  // outermost first
  for (const Parts::Dim& dim : call.parts.dims) {
    const Parts::Range& had = dim.had[static_cast<size_t>(from)];
    const Parts::Range& gets = dim.gets[static_cast<size_t>(to)];
    const int64_t begin = std::max(had.begin, gets.begin), end = std::min(had.end, gets.end);
    if (begin >= end) return {};
    p.from = p.from * dim.in + begin - had.begin;
    p.to = p.to * dim.out + begin - gets.begin;
    steps.push_back({end - begin, 1, 1});
  }
  int64_t in = 1, out = 1;
  for (size_t d = steps.size(); d-- > 0;) {
    steps[d].from = in;
    steps[d].to = out;
    in *= call.parts.dims[d].in;
    out *= call.parts.dims[d].out;
  }
  p.run = 1;
  while (!steps.empty() && steps.back().from == p.run && steps.back().to == p.run) {
    p.run *= steps.back().count;
    steps.pop_back();
  }
  for (size_t k = 2; k-- > 0 && !steps.empty();) {
    p.count[k] = steps.back().count;
    p.from_step[k] = steps.back().from;
    p.to_step[k] = steps.back().to;
    steps.pop_back();
  }
  p.outer = std::move(steps);
  return p;
}

// f(offset of a row in the source, in the destination), for all rows in order.
template <class F>
void for_rows(const Piece& p, F&& f) {
  std::vector<int64_t> at(p.outer.size(), 0);
  int64_t from = 0, to = 0;
  while (true) {
    for (int64_t i = 0; i < p.count[0]; ++i) {
      for (int64_t j = 0; j < p.count[1]; ++j)
        f(from + i * p.from_step[0] + j * p.from_step[1], to + i * p.to_step[0] + j * p.to_step[1]);
    }
    size_t k = at.size();
    for (; k > 0; --k) {
      const Piece::Steps& steps = p.outer[k - 1];
      from += steps.from;
      to += steps.to;
      if (++at[k - 1] < steps.count) break;
      from -= steps.count * steps.from;
      to -= steps.count * steps.to;
      at[k - 1] = 0;
    }
    if (k == 0) return;
  }
}

template <class T>
T combine(Reduction reduction, T x, T y) {
  switch (reduction) {
    case Reduction::kMax:
      return x < y || x != x ? (x != x ? x : y) : (y != y ? y : x);
    case Reduction::kMin:
      return y < x || x != x ? (x != x ? x : y) : (y != y ? y : x);
    case Reduction::kSum:
      break;
  }
  return x + y;
}

// Sums are built here a chunk at a time, so that `out` may be one of the sources.
constexpr int64_t kChunk = 2048;

// T: as stored; Sum: as added.
template <class T, class Sum, class Load, class Store>
void reduce_run(Reduction r, const std::vector<const char*>& from, char* to, int64_t n, Load load,
                Store store) {
  Sum sums[kChunk];
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t count = std::min(kChunk, n - begin);
    for (size_t s = 0; s < from.size(); ++s) {
      const T* x = reinterpret_cast<const T*>(from[s]) + begin;
      if (s == 0) {
        for (int64_t i = 0; i < count; ++i) sums[i] = load(x[i]);
      } else if (r == Reduction::kSum) {
        for (int64_t i = 0; i < count; ++i) sums[i] = combine(Reduction::kSum, sums[i], load(x[i]));
      } else {
        for (int64_t i = 0; i < count; ++i) sums[i] = combine(r, sums[i], load(x[i]));
      }
    }
    T* y = reinterpret_cast<T*>(to) + begin;
    for (int64_t i = 0; i < count; ++i) y[i] = store(sums[i]);
  }
}

void reduce_run(const CollectiveCall& call, const std::vector<const char*>& from, char* to,
                int64_t n) {
  const Reduction r = call.reduction;
  switch (call.dtype) {
    case ir::DType::kF32:
      return reduce_run<float, float>(
          r, from, to, n, [](float x) { return x; }, [](float x) { return x; });
    case ir::DType::kBF16:
      return reduce_run<uint16_t, float>(r, from, to, n, bf16_to_float, float_to_bf16);
    case ir::DType::kF16:
      return reduce_run<uint16_t, float>(r, from, to, n, f16_to_float, float_to_f16);
    case ir::DType::kI32:  // wraps
      return reduce_run<int32_t, int64_t>(
          r, from, to, n, [](int32_t x) { return int64_t{x}; },
          [](int64_t x) { return static_cast<int32_t>(static_cast<uint32_t>(x)); });
    case ir::DType::kBool:  // a sum of bools is `or`
      return reduce_run<uint8_t, int>(
          r == Reduction::kMin ? r : Reduction::kMax, from, to, n, [](uint8_t x) { return int{x}; },
          [](int x) { return static_cast<uint8_t>(x); });
  }
}

}  // namespace

Piece piece(const CollectiveCall& call, int phase, int from, int to) {
  Piece p;
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      return all_reduce_piece(call, phase, from, to);
    case CollectiveKind::kReduceScatter:
      p.action = Piece::Action::kReduce;
      p.run = call.inner;
      p.count = {call.outer, 1};
      p.from = to * call.inner;
      p.from_step = {call.size() * call.inner, 0};
      p.to_step = {call.inner, 0};
      return p;
    case CollectiveKind::kAllGather:
      p.run = call.inner;
      p.count = {call.outer, 1};
      p.to = from * call.inner;
      p.from_step = {call.inner, 0};
      p.to_step = {call.size() * call.inner, 0};
      return p;
    case CollectiveKind::kAllToAll:
      return all_to_all_piece(call, from, to);
    case CollectiveKind::kPermute:
      return permute_piece(call, from, to);
    case CollectiveKind::kBarrier:
      break;
  }
  return p;
}

void take_copy(const CollectiveCall& call, const Piece& p, const Source& source, void* out) {
  if (p.elements() == 0) return;
  const int64_t bytes = ir::dtype_bytes(call.dtype);
  const auto* from = static_cast<const char*>(source.data);
  if (!source.packed) from += p.from * bytes;
  char* to = static_cast<char*>(out) + p.to * bytes;
  int64_t row = 0;
  for_rows(p, [&](int64_t in, int64_t at) {
    const char* x = from + (source.packed ? row++ * p.run : in) * bytes;
    char* y = to + at * bytes;
    if (x != y) std::memmove(y, x, static_cast<size_t>(p.run * bytes));
  });
}

void clear_tail(const CollectiveCall& call, int member, void* out) {
  const auto shorter = [&](const Parts::Dim& dim) {
    const Parts::Range& gets = dim.gets[static_cast<size_t>(member)];
    return gets.end - gets.begin < dim.out;
  };
  if (std::none_of(call.parts.dims.begin(), call.parts.dims.end(), shorter)) return;
  std::memset(out, 0, static_cast<size_t>(call.out_elements() * ir::dtype_bytes(call.dtype)));
}

void take_reduced(const CollectiveCall& call, const Piece& p, const std::vector<Source>& sources,
                  void* out) {
  CAD_CHECK(p.count[1] == 1 && p.outer.empty(), "sums have one outer count");
  if (p.elements() == 0) return;
  const int64_t bytes = ir::dtype_bytes(call.dtype);
  std::vector<const char*> from(sources.size());
  for (int64_t i = 0; i < p.count[0]; ++i) {
    for (size_t s = 0; s < sources.size(); ++s) {
      const int64_t at = sources[s].packed ? i * p.run : p.from + i * p.from_step[0];
      from[s] = static_cast<const char*>(sources[s].data) + at * bytes;
    }
    reduce_run(call, from, static_cast<char*>(out) + (p.to + i * p.to_step[0]) * bytes, p.run);
  }
}

void pack(const CollectiveCall& call, const Piece& p, const void* source, void* packed) {
  if (p.elements() == 0) return;
  const int64_t bytes = ir::dtype_bytes(call.dtype);
  const char* from = static_cast<const char*>(source) + p.from * bytes;
  auto* to = static_cast<char*>(packed);
  for_rows(p, [&](int64_t at, int64_t) {
    std::memcpy(to, from + at * bytes, static_cast<size_t>(p.run * bytes));
    to += p.run * bytes;
  });
}

}  // namespace cad::backend
