// backend/fuse_schedule.cc -- how a LoopProgram runs: the order of its loops, which of them carries
// the lanes, and one of six nests. All choices depend on extents and strides alone, so results do
// not depend on the number of threads. See backend/fuse_schedule.h.
#include "backend/fuse_schedule.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace cad::backend::fuse {

using Role = kernel::LoopDim::Role;
using Kind = kernel::Expr::Kind;

namespace {
constexpr int64_t kChunkElements = 4096;     // of a pointwise item: fits the first-level cache
constexpr int64_t kPartialElements = 16384;  // at least, behind one partial result
constexpr int64_t kMaxPartials = 32;
constexpr int64_t kSmallItem = 1024;  // items smaller than this get several rows

int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}
int64_t ceil_div(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}
}  // namespace

ScheduledKernel schedule(const RegionContext& context, LoopProgram program, int64_t lanes) {
  return Scheduler(context, std::move(program), lanes).run();
}

ScheduledKernel Scheduler::run() {
  reload_stored(c_, p_);
  drop_unused();
  order_loops();
  merge_loops();
  if (!p_.columns.empty()) {
    rows_and_columns_nest();
  } else if (inner_.empty() && p_.reductions.empty()) {
    pointwise_nest();
  } else {
    const bool kept_lanes = [this] {
      if (outer_.empty() || inner_.empty()) return false;
      const double along_inner = unit_weight(inner_.back()),
                   along_outer = unit_weight(outer_.back());
      const int64_t inner = p_.loops[inner_.back()].extent, outer = p_.loops[outer_.back()].extent;
      if (inner < lanes_ / 2 && outer >= lanes_) return true;
      if (outer < lanes_ / 2 && inner >= lanes_) return false;
      return along_outer > along_inner;
    }();
    if (kept_lanes && single_phase_sums() && product(inner_) >= 32)
      streamed_columns_nest();
    else if (kept_lanes)
      lane_per_row_nest();
    else if (single_phase_sums() && product(outer_) < 16 && product(inner_) >= 2 * kPartialElements)
      split_rows_nest();
    else
      row_nest();
  }
  out_.kernel.ints = static_cast<int32_t>(out_.call.ints.size());
  out_.call.scratch_bytes = round_up(out_.call.scratch_bytes, 64);
  find_overwrites();
  estimate();
  name_kernel();
  return std::move(out_);
}

// Keeps the expressions that stores reach; reductions likewise.
void Scheduler::drop_unused() {
  std::vector<char> used(p_.exprs.size(), 0), reduced(p_.reductions.size(), 0);
  std::vector<ExprId> work;
  for (const LoopStore& s : p_.stores) work.push_back(s.expr);
  for (const LoopColumn& c : p_.columns) work.push_back(c.operand);
  while (!work.empty()) {
    ExprId e = work.back();
    work.pop_back();
    if (used[static_cast<size_t>(e)] != 0) continue;
    used[static_cast<size_t>(e)] = 1;
    const LoopExpr& x = p_.exprs[static_cast<size_t>(e)];
    work.insert(work.end(), x.operands.begin(), x.operands.end());
    for (const auto& [d, factor] : x.index.dynamic) work.push_back(d);
    if (x.predicate >= 0) work.push_back(x.predicate);
    if (x.reduction >= 0 && reduced[static_cast<size_t>(x.reduction)] == 0) {
      reduced[static_cast<size_t>(x.reduction)] = 1;
      const LoopReduction& r = p_.reductions[static_cast<size_t>(x.reduction)];
      work.push_back(r.operand);
      if (r.index >= 0) work.push_back(r.index);
    }
  }
  for (size_t e = 0; e < used.size(); ++e)
    if (used[e] == 0) {
      p_.exprs[e] = LoopExpr();  // unreachable: an unused constant
    }
  std::vector<int32_t> renumbered(reduced.size(), -1);
  std::vector<LoopReduction> kept;
  for (size_t r = 0; r < reduced.size(); ++r) {
    if (reduced[r] == 0) continue;
    renumbered[r] = static_cast<int32_t>(kept.size());
    kept.push_back(p_.reductions[r]);
  }
  p_.reductions = std::move(kept);
  for (LoopExpr& e : p_.exprs)
    if (e.reduction >= 0) e.reduction = renumbered[static_cast<size_t>(e.reduction)];
}

template <class F>
void Scheduler::each_affine(F&& f) const {
  for (const LoopExpr& e : p_.exprs) {
    if (e.kind == Kind::kLoad || e.kind == Kind::kIndex || e.kind == Kind::kRandom)
      f(e.index.affine, e.kind == Kind::kLoad ? 1.0 : 0.0);
    if (e.kind == Kind::kRandom) f(e.rows, 0.0);
  }
  for (const LoopStore& s : p_.stores) f(s.address, 2.0);
  for (const LoopColumn& c : p_.columns) f(c.address, 0.0);
}

// Loops with small strides in the heavy accesses go inside.
void Scheduler::order_loops() {
  weight_.assign(p_.loops.size(), 0);
  score_.assign(p_.loops.size(), 0);
  each_affine([this](const Affine& a, double factor) {
    double elements = factor;
    for (size_t l = 0; l < p_.loops.size(); ++l)
      if (a.coef(l) != 0) elements *= static_cast<double>(std::max<int64_t>(1, p_.loops[l].extent));
    for (size_t l = 0; l < p_.loops.size(); ++l) {
      if (a.coef(l) == 0) continue;
      weight_[l] += elements;
      score_[l] += elements * std::log2(1.0 + static_cast<double>(std::abs(a.coef(l))));
    }
  });
  for (size_t l = 0; l < p_.loops.size(); ++l) {
    score_[l] = weight_[l] > 0 ? score_[l] / weight_[l] : 1e9;
    (p_.loops[l].inner ? inner_ : outer_).push_back(l);
  }
  auto slower = [this](size_t a, size_t b) { return score_[a] > score_[b]; };
  std::stable_sort(outer_.begin(), outer_.end(), slower);
  std::stable_sort(inner_.begin(), inner_.end(), slower);
}

bool Scheduler::mergeable(size_t major, size_t minor) const {
  bool fits = true;
  const int64_t extent = p_.loops[minor].extent;
  each_affine(
      [&](const Affine& a, double) { fits = fits && a.coef(major) == a.coef(minor) * extent; });
  return fits;
}

// Neighbours that every access walks as one become one loop.
void Scheduler::merge_loops() {
  for (std::vector<size_t>* loops : {&outer_, &inner_}) {
    for (size_t i = loops->size(); i-- > 1;) {
      size_t major = (*loops)[i - 1], minor = (*loops)[i];
      if (!mergeable(major, minor)) continue;
      p_.loops[minor].extent *= p_.loops[major].extent;
      // what depended on the major loop depends on the minor one (its coefficient is 0 in both,
      // else)
      for (LoopExpr& e : p_.exprs) {
        if ((e.loops >> major & 1) != 0) e.loops |= uint64_t{1} << minor;
        e.loops &= ~(uint64_t{1} << major);
      }
      auto drop = [major](Affine& a) {
        if (major < a.coefs.size()) a.coefs[major] = 0;
      };
      for (LoopExpr& e : p_.exprs) {
        drop(e.index.affine);
        drop(e.rows);
      }
      for (LoopStore& s : p_.stores) drop(s.address);
      for (LoopColumn& c : p_.columns) drop(c.address);
      loops->erase(loops->begin() + static_cast<std::ptrdiff_t>(i) - 1);
    }
  }
}

double Scheduler::unit_weight(size_t loop) const {
  double total = 0;
  each_affine([&](const Affine& a, double factor) {
    if (std::abs(a.coef(loop)) != 1) return;
    double elements = factor;
    for (size_t l = 0; l < p_.loops.size(); ++l)
      if (a.coef(l) != 0) elements *= static_cast<double>(std::max<int64_t>(1, p_.loops[l].extent));
    total += elements;
  });
  return total;
}

int64_t Scheduler::product(const std::vector<size_t>& loops) const {
  int64_t n = 1;
  for (size_t l : loops) n *= p_.loops[l].extent;
  return n;
}

bool Scheduler::single_phase_sums() const {
  for (const LoopReduction& r : p_.reductions)
    if (r.phase != 0 || r.kind == kernel::Reduction::Kind::kArgmax) return false;
  for (const LoopStore& s : p_.stores)
    if (!s.row && p_.exprs[static_cast<size_t>(s.expr)].level != 0) return false;
  return true;
}

// The outer loops as items; the last ones as loops of an item when rows are short.
std::vector<Scheduler::Dim> Scheduler::parallel_dims(const std::vector<size_t>& loops,
                                                     int64_t row) const {
  std::vector<Dim> dims;
  for (size_t l : loops)
    dims.push_back({static_cast<int>(l), Role::kParallel, p_.loops[l].extent, -1, 0, false});
  int64_t items = product(loops);
  for (size_t d = dims.size(); d-- > 0;) {
    const int64_t extent = std::max<int64_t>(1, dims[d].extent);
    if (row >= kSmallItem) break;
    if (d == 0 || items / extent < 32) {
      // rows of one loop in chunks
      const int64_t chunk = std::min(ceil_div(kSmallItem, std::max<int64_t>(1, row)), extent);
      if (chunk <= 1 || extent <= chunk) break;
      dims[d].role = Role::kSequential;
      dims[d].chunk_of = static_cast<int>(d);
      dims[d].chunk = chunk;
      dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(d),
                  Dim{-1, Role::kParallel, ceil_div(extent, chunk), -1, 0, false});
      break;
    }
    dims[d].role = Role::kSequential;
    row *= extent;
    items /= extent;
  }
  return dims;
}

void Scheduler::pointwise_nest() {
  if (outer_.empty()) {
    write_stage({}, false, {});
    return;
  }
  std::vector<size_t> rows(outer_.begin(), outer_.end() - 1);
  const size_t lane = outer_.back();
  const int64_t extent = p_.loops[lane].extent;
  std::vector<Dim> dims = parallel_dims(rows, extent);
  Dim lanes{static_cast<int>(lane), Role::kInner, extent, -1, 0, true};
  const bool few = product(rows) < 32;
  if (extent > 2 * kChunkElements || (few && extent > kSmallItem)) {
    lanes.chunk = kChunkElements;
    if (few && extent <= 16 * kChunkElements) lanes.chunk = kSmallItem;
    size_t at = 0;
    while (at < dims.size() && dims[at].role == Role::kParallel) ++at;
    for (Dim& d : dims)
      if (d.chunk_of >= static_cast<int>(at)) ++d.chunk_of;
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(at),
                Dim{-1, Role::kParallel, ceil_div(extent, lanes.chunk), -1, 0, false});
    lanes.chunk_of = static_cast<int>(at);
  }
  dims.push_back(lanes);
  write_stage(dims, false, {});
}

void Scheduler::row_nest() {
  std::vector<Dim> dims = parallel_dims(outer_, product(inner_));
  for (size_t l : inner_)
    dims.push_back(
        {static_cast<int>(l), Role::kInner, p_.loops[l].extent, -1, 0, l == inner_.back()});
  write_stage(dims, false, {});
}

void Scheduler::lane_per_row_nest() {
  std::vector<Dim> dims;
  for (size_t l : outer_)
    dims.push_back({static_cast<int>(l), Role::kParallel, p_.loops[l].extent, -1, 0, false});
  Dim& last = dims.back();
  last.role = Role::kSequential;
  last.lanes = true;
  const int64_t chunk = lanes_ * 8;
  if (last.extent > chunk) {
    const auto at = static_cast<int>(dims.size()) - 1;
    last.chunk = chunk;
    last.chunk_of = at;
    dims.insert(dims.begin() + at,
                Dim{-1, Role::kParallel, ceil_div(last.extent, chunk), -1, 0, false});
  }
  for (size_t l : inner_)
    dims.push_back({static_cast<int>(l), Role::kInner, p_.loops[l].extent, -1, 0, false});
  write_stage(dims, false, {});
}

namespace {
int64_t chunk_count(int64_t rows, int64_t elements) {
  int64_t count = std::clamp<int64_t>(elements / kPartialElements, 1, kMaxPartials);
  count = std::max<int64_t>(1, std::min(count, rows));
  return rows == 0 ? 1 : ceil_div(rows, ceil_div(rows, count));  // no empty chunk at the end
}
}  // namespace

void Scheduler::split_rows_nest() {
  const int64_t chunks = chunk_count(p_.loops[inner_[0]].extent, product(inner_));
  std::vector<Dim> dims, combine;
  std::vector<int64_t> strides;  // of a partial, per dim of the first stage
  int64_t stride = 1;
  for (size_t i = outer_.size(); i-- > 0;) {
    strides.insert(strides.begin(), stride);
    stride *= p_.loops[outer_[i]].extent;
  }
  for (size_t l : outer_)
    dims.push_back({static_cast<int>(l), Role::kParallel, p_.loops[l].extent, -1, 0, false});
  combine = dims;
  const auto chunk_dim = static_cast<int>(dims.size());
  dims.push_back({-1, Role::kParallel, chunks, -1, 0, false});
  strides.push_back(stride);
  for (size_t i = 0; i < inner_.size(); ++i) {
    Dim d{static_cast<int>(inner_[i]), Role::kInner, p_.loops[inner_[i]].extent, -1, 0,
          i + 1 == inner_.size()};
    if (i == 0) {
      d.chunk_of = chunk_dim;
      d.chunk = ceil_div(d.extent, chunks);
    }
    dims.push_back(d);
    strides.push_back(0);
  }
  write_stage(dims, true, strides);
  combine.push_back({-1, Role::kInner, chunks, -1, 0, true});
  write_combining_stage(combine, static_cast<int>(combine.size()) - 1, chunks);
}

void Scheduler::rows_and_columns_nest() {
  const int64_t rows = outer_.empty() ? 1 : p_.loops[outer_[0]].extent, columns = product(inner_);
  const int64_t chunks = chunk_count(rows, product(outer_) * columns);
  std::vector<Dim> dims = {{-1, Role::kParallel, chunks, -1, 0, false}};
  std::vector<int64_t> strides = {columns};
  for (size_t i = 0; i < outer_.size(); ++i) {
    Dim d{static_cast<int>(outer_[i]), Role::kSequential, p_.loops[outer_[i]].extent, -1, 0, false};
    if (i == 0) {
      d.chunk_of = 0;
      d.chunk = ceil_div(rows, chunks);
    }
    dims.push_back(d);
    strides.push_back(0);
  }
  std::vector<int64_t> dense;
  int64_t stride = 1;
  for (size_t i = inner_.size(); i-- > 0;) {
    dense.insert(dense.begin(), stride);
    stride *= p_.loops[inner_[i]].extent;
  }
  std::vector<Dim> combine;
  for (size_t i = 0; i < inner_.size(); ++i) {
    dims.push_back({static_cast<int>(inner_[i]), Role::kInner, p_.loops[inner_[i]].extent, -1, 0,
                    i + 1 == inner_.size()});
    strides.push_back(dense[i]);
    combine.push_back(
        {static_cast<int>(inner_[i]), Role::kParallel, p_.loops[inner_[i]].extent, -1, 0, false});
  }
  write_rows_stage(dims, strides);
  combine.back().role = Role::kSequential;
  combine.back().lanes = true;
  combine.push_back({-1, Role::kInner, chunks, -1, 0, false});
  outer_.swap(inner_);  // the combining stage keeps what were the inner loops
  write_combining_stage(combine, static_cast<int>(combine.size()) - 1, chunks);
  outer_.swap(inner_);
}

void Scheduler::streamed_columns_nest() {
  // kept loops slower than the reduced ones stay outside
  std::vector<size_t> major, minor;
  for (size_t l : outer_)
    (l != outer_.back() && score_[l] > score_[inner_[0]] ? major : minor).push_back(l);
  const int64_t rows = p_.loops[inner_[0]].extent, columns = product(outer_);
  const int64_t chunks = chunk_count(rows, product(inner_) * product(minor));
  std::map<size_t, int64_t> dense;
  int64_t stride = 1;
  for (size_t i = outer_.size(); i-- > 0;) {
    dense[outer_[i]] = stride;
    stride *= p_.loops[outer_[i]].extent;
  }
  std::vector<Dim> dims;
  std::vector<int64_t> strides;
  for (size_t l : major) {
    dims.push_back({static_cast<int>(l), Role::kParallel, p_.loops[l].extent, -1, 0, false});
    strides.push_back(dense[l]);
  }
  const auto chunk_dim = static_cast<int>(dims.size());
  dims.push_back({-1, Role::kParallel, chunks, -1, 0, false});
  strides.push_back(columns);
  for (size_t i = 0; i < inner_.size(); ++i) {
    Dim d{static_cast<int>(inner_[i]), Role::kSequential, p_.loops[inner_[i]].extent, -1, 0, false};
    if (i == 0) {
      d.chunk_of = chunk_dim;
      d.chunk = ceil_div(rows, chunks);
    }
    dims.push_back(d);
    strides.push_back(0);
  }
  for (size_t l : minor) {
    dims.push_back(
        {static_cast<int>(l), Role::kInner, p_.loops[l].extent, -1, 0, l == minor.back()});
    strides.push_back(dense[l]);
  }
  write_stage(dims, true, strides);

  std::vector<Dim> combine;
  for (size_t l : outer_)
    combine.push_back({static_cast<int>(l), Role::kParallel, p_.loops[l].extent, -1, 0, false});
  combine.back().role = Role::kSequential;
  combine.back().lanes = true;
  const int64_t chunk = lanes_ * 8;
  if (combine.back().extent > chunk) {
    const auto at = static_cast<int>(combine.size()) - 1;
    combine.back().chunk = chunk;
    combine.back().chunk_of = at;
    combine.insert(combine.begin() + at,
                   Dim{-1, Role::kParallel, ceil_div(combine.back().extent, chunk), -1, 0, false});
  }
  combine.push_back({-1, Role::kInner, chunks, -1, 0, false});
  write_combining_stage(combine, static_cast<int>(combine.size()) - 1, chunks);
}

}  // namespace cad::backend::fuse
