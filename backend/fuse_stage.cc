// backend/fuse_stage.cc -- writes the stages of kernel IR that backend/fuse_schedule.cc decided on,
// interning every integer as a slot, and the facts about the call: items, overwriting, estimates.
#include <algorithm>
#include <set>

#include "backend/fuse_schedule.h"
#include "base/check.h"

namespace cad::backend::fuse {

using kernel::Linear;
using kernel::Slot;
using Role = kernel::LoopDim::Role;
using Kind = kernel::Expr::Kind;

Slot Scheduler::slot(int64_t value) const {
  if (value == 0) return kernel::kZero;
  if (value == 1) return kernel::kOne;
  auto [at, fresh] = slots_.emplace(value, static_cast<Slot>(out_.call.ints.size()));
  if (fresh) out_.call.ints.push_back(value);
  return at->second;
}

Linear Scheduler::linear(const Affine& a, const ShardTerms& shards) const {
  Linear result;
  if (shards.empty()) {
    result.offset = slot(a.constant);
  } else {  // a slot that no other number shares
    result.offset = static_cast<Slot>(out_.call.ints.size());
    out_.call.ints.push_back(a.constant);
    out_.call.device_ints.push_back({result.offset, shards});
  }
  for (const Dim& d : dims_)
    result.strides.push_back(d.loop < 0 ? kernel::kZero
                                        : slot(a.coef(static_cast<size_t>(d.loop))));
  return result;
}

int32_t Scheduler::buffer(ir::ValueId v, bool written) {
  auto [at, fresh] = buffers_.emplace(v, static_cast<int32_t>(out_.kernel.buffers.size()));
  if (fresh) {
    out_.kernel.buffers.push_back({c_.graph->type(v).dtype, written, false, kernel::kZero});
    out_.call.buffers.push_back(v);
  }
  kernel::Buffer& info = out_.kernel.buffers[static_cast<size_t>(at->second)];
  info.written = info.written || written;
  return at->second;
}

kernel::ExprId Scheduler::copy(ExprId id) {
  auto known = copied_.find(id);
  if (known != copied_.end()) return known->second;
  const LoopExpr& e = p_.exprs[static_cast<size_t>(id)];
  kernel::Expr x;
  x.kind = e.kind;
  x.op = e.op;
  x.dtype = e.dtype;
  x.rounds = e.rounds;
  x.value = e.value;
  x.site = e.site;
  for (ExprId o : e.operands) x.operands.push_back(copy(o));
  for (const auto& [d, factor] : e.index.dynamic) x.dynamic.emplace_back(copy(d), slot(factor));
  if (e.predicate >= 0) x.predicate = copy(e.predicate);
  if (e.kind == Kind::kLoad) x.buffer = buffer(e.buffer, false);
  if (e.kind == Kind::kLoad || e.kind == Kind::kIndex || e.kind == Kind::kRandom)
    x.linear = linear(e.index.affine, e.shards);
  if (e.kind == Kind::kRandom) {
    x.rows = linear(e.rows, e.row_shards);
    x.row_stride = slot(e.row_stride);
  }
  if (e.kind == Kind::kReduction) {
    auto [at, fresh] =
        reduction_of_.emplace(e.reduction, static_cast<int32_t>(stage_.reductions.size()));
    if (fresh) {
      const LoopReduction& r = p_.reductions[static_cast<size_t>(e.reduction)];
      kernel::Reduction reduction{r.kind, r.dtype, -1, -1, r.phase};
      if (partials_ != nullptr) {
        kernel::Expr load;
        load.kind = Kind::kLoad;
        load.dtype = r.dtype;
        load.buffer = (*partials_)[static_cast<size_t>(e.reduction)].buffer;
        load.linear = (*partials_)[static_cast<size_t>(e.reduction)].linear;
        stage_.exprs.push_back(load);
        reduction.operand = static_cast<kernel::ExprId>(stage_.exprs.size()) - 1;
      } else {
        // claims its number first: an operand may hold further reductions
        stage_.reductions.push_back(reduction);
        const auto number = static_cast<size_t>(at->second);
        kernel::ExprId operand = copy(r.operand);
        kernel::ExprId index = r.index >= 0 ? copy(r.index) : -1;
        stage_.reductions[number].operand = operand;
        stage_.reductions[number].index = index;
      }
      if (partials_ != nullptr) stage_.reductions.push_back(reduction);
    }
    x.reduction = reduction_of_.at(e.reduction);
  }
  stage_.exprs.push_back(std::move(x));
  return copied_[id] = static_cast<kernel::ExprId>(stage_.exprs.size()) - 1;
}

void Scheduler::add_row_stores() {
  for (const LoopStore& s : p_.stores) {
    if (!s.row) continue;
    kernel::Store store;
    store.expr = copy(s.expr);
    store.buffer = buffer(s.value, true);
    store.linear = linear(s.address);
    store.row = true;
    const int level = partials_ != nullptr ? 1 : p_.exprs[static_cast<size_t>(s.expr)].level;
    store.phase = std::max(0, level - 1);
    stage_.stores.push_back(store);
  }
}

void Scheduler::add_full_stores() {
  for (const LoopStore& s : p_.stores) {
    if (s.row) continue;
    kernel::Store store;
    store.expr = copy(s.expr);
    store.buffer = buffer(s.value, true);
    store.linear = linear(s.address);
    store.phase = p_.exprs[static_cast<size_t>(s.expr)].level;
    stage_.stores.push_back(store);
  }
}

void Scheduler::begin_stage(const std::vector<Dim>& dims) {
  dims_ = dims;
  stage_ = kernel::Stage();
  copied_.clear();
  reduction_of_.clear();
  partials_ = nullptr;
}

int64_t Scheduler::scratch_elements(const std::vector<Dim>& dims,
                                    const std::vector<int64_t>& strides) {
  int64_t elements = 1;
  for (size_t d = 0; d < dims.size(); ++d)
    if (strides[d] != 0) elements *= dims[d].extent;
  return elements;
}

// partial: reductions end as partial results in scratch (`strides` a dim), row stores come later.
void Scheduler::write_stage(const std::vector<Dim>& dims, bool partial,
                            const std::vector<int64_t>& strides) {
  begin_stage(dims);
  add_full_stores();
  if (!partial) {
    add_row_stores();
    finish_stage(dims);
    return;
  }
  const int64_t elements = scratch_elements(dims, strides);
  bool columns = false;
  for (const Dim& d : dims) columns = columns || d.role == Role::kSequential;
  for (const LoopReduction& r : p_.reductions) {
    kernel::Store store;
    store.buffer = add_scratch(r.dtype, elements);
    for (int64_t s : strides) store.linear.strides.push_back(slot(s));
    if (columns) {
      store.expr = copy(r.operand);
      store.accumulate = true;
      store.combine = r.kind;
    } else {
      kernel::Reduction reduction{r.kind, r.dtype, copy(r.operand), -1, 0};
      kernel::Expr result;
      result.kind = Kind::kReduction;
      result.dtype = r.dtype;
      result.reduction = static_cast<int32_t>(stage_.reductions.size());
      stage_.reductions.push_back(reduction);
      stage_.exprs.push_back(result);
      store.expr = static_cast<kernel::ExprId>(stage_.exprs.size()) - 1;
      store.row = true;
    }
    stage_.stores.push_back(store);
  }
  finish_stage(dims);
}

int32_t Scheduler::add_scratch(ir::DType dtype, int64_t elements) {
  scratch_.push_back(static_cast<int32_t>(out_.kernel.buffers.size()));
  out_.kernel.buffers.push_back({dtype, true, true, slot(out_.call.scratch_bytes)});
  out_.call.scratch_bytes += (elements * 4 + 63) / 64 * 64;
  return scratch_.back();
}

// Rows as they are, and each column's part of an item's rows summed in scratch.
void Scheduler::write_rows_stage(const std::vector<Dim>& dims,
                                 const std::vector<int64_t>& strides) {
  begin_stage(dims);
  add_full_stores();
  const int64_t elements = scratch_elements(dims, strides);
  for (const LoopColumn& c : p_.columns) {
    kernel::Store store;
    store.buffer = add_scratch(c.dtype, elements);
    for (int64_t s : strides) store.linear.strides.push_back(slot(s));
    store.expr = copy(c.operand);
    store.phase = p_.exprs[static_cast<size_t>(c.operand)].level;
    store.accumulate = true;
    stage_.stores.push_back(store);
  }
  add_row_stores();
  finish_stage(dims);
}

void Scheduler::write_combining_stage(const std::vector<Dim>& dims, int chunk_dim, int64_t chunks) {
  begin_stage(dims);
  int64_t columns = 1;
  std::map<int, int64_t> dense;
  for (size_t i = outer_.size(); i-- > 0;) {
    dense[static_cast<int>(outer_[i])] = columns;
    columns *= p_.loops[outer_[i]].extent;
  }
  CAD_CHECK(dims[static_cast<size_t>(chunk_dim)].extent == chunks, "partial results miscounted");
  std::vector<Partial> partials;
  for (int32_t buffer : scratch_) {
    Partial partial{buffer, {}};
    for (size_t d = 0; d < dims.size(); ++d) {
      int64_t stride = static_cast<int>(d) == chunk_dim ? columns
                       : dims[d].loop < 0               ? 0
                                                        : dense[dims[d].loop];
      partial.linear.strides.push_back(slot(stride));
    }
    partials.push_back(partial);
  }
  if (p_.columns.empty()) {
    partials_ = &partials;
    add_row_stores();
    partials_ = nullptr;
  }
  for (size_t k = 0; k < p_.columns.size(); ++k) {
    const LoopColumn& c = p_.columns[k];
    kernel::Expr load;
    load.kind = Kind::kLoad;
    load.dtype = c.dtype;
    load.buffer = partials[k].buffer;
    load.linear = partials[k].linear;
    stage_.exprs.push_back(load);
    kernel::Expr total;
    total.kind = Kind::kReduction;
    total.dtype = c.dtype;
    total.reduction = static_cast<int32_t>(k);
    stage_.reductions.push_back({kernel::Reduction::Kind::kSum, c.dtype,
                                 static_cast<kernel::ExprId>(stage_.exprs.size()) - 1, -1, 0});
    stage_.exprs.push_back(total);
    kernel::Store store;
    store.buffer = buffer(c.value, true);
    store.linear = linear(c.address);
    store.expr = static_cast<kernel::ExprId>(stage_.exprs.size()) - 1;
    store.row = true;
    stage_.stores.push_back(store);
  }
  finish_stage(dims);
}

void Scheduler::finish_stage(const std::vector<Dim>& dims) {
  int64_t items = 1, cost = 1;
  for (const Dim& d : dims) {
    stage_.dims.push_back({d.role, slot(d.extent), d.chunk_of, slot(d.chunk), d.lanes});
    if (d.role == Role::kParallel)
      items *= d.extent;
    else
      cost *= d.chunk_of >= 0 ? std::min(d.chunk, d.extent) : d.extent;
  }
  for (const kernel::Reduction& r : stage_.reductions)
    stage_.phases = std::max(stage_.phases, r.phase + 1);
  for (const kernel::Store& s : stage_.stores) stage_.phases = std::max(stage_.phases, s.phase + 1);
  out_.call.items.push_back(items);
  out_.call.item_cost.push_back(std::max<int64_t>(1, cost));
  out_.kernel.stages.push_back(std::move(stage_));
}

// An input may be replaced by an output when it is read at the very element that is written, and
// never in a later phase than the write.
void Scheduler::find_overwrites() {
  std::map<ExprId, int> last_phase;
  auto mark = [&](ExprId root, int phase) {
    std::vector<ExprId> work = {root};
    while (!work.empty()) {
      ExprId e = work.back();
      work.pop_back();
      auto [at, fresh] = last_phase.emplace(e, phase);
      if (!fresh && at->second >= phase) continue;
      at->second = phase;
      const LoopExpr& x = p_.exprs[static_cast<size_t>(e)];
      work.insert(work.end(), x.operands.begin(), x.operands.end());
      for (const auto& [d, factor] : x.index.dynamic) work.push_back(d);
      if (x.predicate >= 0) work.push_back(x.predicate);
    }
  };
  for (const LoopReduction& r : p_.reductions) {
    mark(r.operand, r.phase);
    if (r.index >= 0) mark(r.index, r.phase);
  }
  auto phase_of = [this](const LoopStore& s) {
    const int level = p_.exprs[static_cast<size_t>(s.expr)].level;
    return s.row ? std::max(0, level - 1) : level;
  };
  for (const LoopColumn& c : p_.columns)
    mark(c.operand, p_.exprs[static_cast<size_t>(c.operand)].level);
  for (const LoopStore& s : p_.stores) mark(s.expr, phase_of(s));
  for (const LoopStore& s : p_.stores) {
    std::map<ir::ValueId, bool> fits;
    for (const auto& [id, phase] : last_phase) {
      const LoopExpr& e = p_.exprs[static_cast<size_t>(id)];
      if (e.kind != Kind::kLoad) continue;
      bool good = e.index.dynamic.empty() && e.index.affine == s.address && phase <= phase_of(s) &&
                  ir::dtype_bytes(c_.graph->type(e.buffer).dtype) ==
                      ir::dtype_bytes(c_.graph->type(s.value).dtype);
      auto [at, fresh] = fits.emplace(e.buffer, good);
      at->second = at->second && good;
    }
    for (const LoopStore& other : p_.stores) fits.erase(other.value);
    for (const auto& [input, good] : fits)
      if (good) out_.overwrites.emplace_back(s.value, input);
  }
}

void Scheduler::estimate() {
  auto times = [this](uint64_t loops) {
    double n = 1;
    for (size_t l = 0; l < p_.loops.size(); ++l)
      if ((loops >> l & 1) != 0) n *= static_cast<double>(p_.loops[l].extent);
    return n;
  };
  for (const LoopExpr& e : p_.exprs) {
    if (e.kind == Kind::kLoad)
      out_.call.bytes += times(e.loops) * ir::dtype_bytes(c_.graph->type(e.buffer).dtype);
    else if (e.kind == Kind::kOp)
      out_.call.flops += times(e.loops);
  }
  for (const LoopStore& s : p_.stores)
    out_.call.bytes += static_cast<double>(c_.elements(c_.graph->type(s.value))) *
                       ir::dtype_bytes(c_.graph->type(s.value).dtype);
}

void Scheduler::name_kernel() {
  std::vector<std::string> names;
  auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end() && names.size() < 6)
      names.push_back(name);
  };
  for (const kernel::Stage& stage : out_.kernel.stages)
    for (const kernel::Expr& e : stage.exprs) {
      if (e.kind == Kind::kOp || e.kind == Kind::kRandom) add(ir::op_name(e.op));
      if (e.kind == Kind::kReduction) {
        static constexpr const char* kNames[] = {"sum", "max", "min", "argmax"};
        add(kNames[static_cast<int>(stage.reductions[static_cast<size_t>(e.reduction)].kind)]);
      }
    }
  if (names.empty()) names.emplace_back("copy");
  for (const std::string& name : names)
    out_.kernel.name += (out_.kernel.name.empty() ? "" : "+") + name;
}

}  // namespace cad::backend::fuse
