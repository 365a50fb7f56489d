// backend/fuse_eval.cc -- the evaluator's frame: loops from the stored values' dims, loads of what
// the group does not compute, stores. See backend/fuse_eval.h.
#include "backend/fuse_eval.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace cad::backend::fuse {

using ir::DimId;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

namespace {

constexpr size_t kMaxLoops = 24;
constexpr size_t kMaxExprs = 1500;

void key_of(const Index& i, std::vector<int64_t>& key) {
  key.push_back(i.affine.constant);
  size_t used = i.affine.coefs.size();
  while (used > 0 && i.affine.coefs[used - 1] == 0) --used;
  key.push_back(static_cast<int64_t>(used));
  key.insert(key.end(), i.affine.coefs.begin(),
             i.affine.coefs.begin() + static_cast<std::ptrdiff_t>(used));
  key.push_back(static_cast<int64_t>(i.dynamic.size()));
  for (const auto& [expr, factor] : i.dynamic) {
    key.push_back(expr);
    key.push_back(factor);
  }
}

int64_t bits_of(double d) {
  int64_t bits = 0;
  std::memcpy(&bits, &d, sizeof bits);
  return bits;
}

}  // namespace

std::optional<LoopProgram> evaluate(const RegionContext& context, const Group& group,
                                    std::string* why) {
  Evaluator evaluator(context, group);
  if (!evaluator.run()) {
    if (why != nullptr) *why = evaluator.why();
    return std::nullopt;
  }
  return evaluator.take();
}

bool Evaluator::run() {
  members_.insert(group_.nodes.begin(), group_.nodes.end());
  stored_.insert(group_.stored.begin(), group_.stored.end());
  for (bool largest_first : {false, true}) {
    factors_.clear();
    for (int tries = 0; tries < 12; ++tries) {
      if (attempt(largest_first)) return true;
      if (!restart_) break;
    }
    if (restart_) why_ = "too many splits of loops";
  }
  return false;
}

void Evaluator::start() {
  p_ = LoopProgram();
  candidates_.clear();
  values_.clear();
  exprs_.clear();
  dim_loops_.clear();
  loop_dim_.clear();
  reduction_outer_.clear();
  settled_.clear();
  inner_fixed_ = failed_ = restart_ = false;
  why_.clear();
}

// From the values that no member reads; or from the largest that is stored, so that sums of columns
// come after the rows that they belong to.
bool Evaluator::attempt(bool largest_first) {
  start();
  std::vector<ValueId> roots = largest_first ? group_.stored : sinks();
  std::stable_sort(roots.begin(), roots.end(), [this](ValueId a, ValueId b) {
    return c_.elements(g_.type(a)) > c_.elements(g_.type(b));
  });
  for (ValueId v : roots) {
    if (candidates_.count(v) != 0 || settled_.count(v) != 0) continue;
    evaluate_sink(v);
    if (failed_ || restart_) return false;
  }
  for (ValueId v : group_.stored) {  // a stored value that only free nodes read
    if (candidates_.count(v) == 0 && settled_.count(v) == 0) evaluate_sink(v);
    if (failed_) return false;
  }
  return check_reductions() && settle_stores();
}

// Stored values that no member reads; the largest lays out the loops.
std::vector<ValueId> Evaluator::sinks() const {
  std::set<ValueId> read, seen;
  std::vector<ValueId> work;
  for (NodeId n : group_.nodes)
    for (ValueId v : g_.node(n).operands) work.push_back(v);
  while (!work.empty()) {
    ValueId v = work.back();
    work.pop_back();
    if (!seen.insert(v).second) continue;
    read.insert(v);
    NodeId def = g_.value(v).def;
    if (!def.valid() || members_.count(def) != 0 || c_.free[static_cast<size_t>(def.index)] == 0)
      continue;
    for (ValueId o : g_.node(def).operands) work.push_back(o);
  }
  std::vector<ValueId> result;
  for (auto v = group_.stored.rbegin(); v != group_.stored.rend(); ++v)
    if (read.count(*v) == 0) result.push_back(*v);
  return result;
}

void Evaluator::evaluate_sink(ValueId v) {
  const ir::Type& type = g_.type(v);
  Indices indices;
  bool first = loop_dim_.empty() && candidates_.empty();
  for (DimId d : type.dims) {
    if (dim_loops_.count(d) == 0) {
      if (!first && c_.extent(d) != 1) {
        fail("the stored values span different loops");
        return;
      }
      add_loops(d, false);
    }
    indices.push_back(loop_index(d));
  }
  if (!column_sink(v, indices)) value(v, indices, -1);
}

// A sum over exactly the outer loops, when reductions over the inner ones stand already.
bool Evaluator::column_sink(ValueId v, const Indices& indices) {
  const NodeId def = g_.value(v).def;
  if (!inner_fixed_ || !p_.has_inner() || !def.valid() || members_.count(def) == 0) return false;
  const ir::Node& n = g_.node(def);
  if (n.op != Op::kSum || !ir::is_float(g_.type(n.operands[0]).dtype)) return false;
  uint64_t reduced = 0, kept = 0;
  for (DimId d : n.attrs.dims) {
    if (dim_loops_.count(d) == 0) return false;
    reduced |= loops_of(loop_index(d));
  }
  for (const Index& i : indices) kept |= loops_of(i);
  const uint64_t all = (uint64_t{1} << p_.loops.size()) - 1;
  if (kept != p_.inner_mask() || reduced != (all & ~kept)) return false;
  Indices rows;
  for (DimId d : g_.type(n.operands[0]).dims) rows.push_back(loop_index(d));
  LoopColumn column;
  column.value = v;
  column.operand = value(n.operands[0], rows, -1);
  if (failed_ || restart_) return true;
  int64_t stride = 1;
  for (size_t d = indices.size(); d-- > 0;) {
    column.address.add(indices[d].affine, stride);
    stride *= c_.extent(g_.type(v).dims[d]);
  }
  p_.columns.push_back(column);
  settled_.insert(v);
  p_.work[def] += 1;
  return true;
}

void Evaluator::add_loops(DimId d, bool inner) {
  std::vector<int64_t>& factors = factors_[d];
  if (factors.empty()) factors.push_back(c_.extent(d));
  std::vector<size_t>& loops = dim_loops_[d];
  for (size_t f = 0; f < factors.size(); ++f) {
    if (factors[f] == 1) continue;
    loops.push_back(p_.loops.size());
    p_.loops.push_back({factors[f], inner});
    loop_dim_.emplace_back(d, f);
  }
  if (p_.loops.size() > kMaxLoops) fail("too many loops");
}

Index Evaluator::loop_index(DimId d) const {
  Index result;
  int64_t stride = 1;
  const std::vector<size_t>& loops = dim_loops_.at(d);
  for (auto l = loops.rbegin(); l != loops.rend(); ++l) {
    if (result.affine.coefs.size() <= *l) result.affine.coefs.resize(*l + 1, 0);
    result.affine.coefs[*l] = stride;
    stride *= p_.loops[*l].extent;
  }
  return result;
}

uint64_t Evaluator::loops_of(const Index& i) const {
  uint64_t mask = 0;
  for (size_t l = 0; l < i.affine.coefs.size(); ++l)
    if (i.affine.coefs[l] != 0) mask |= uint64_t{1} << l;
  for (const auto& [expr, factor] : i.dynamic) mask |= p_.exprs[static_cast<size_t>(expr)].loops;
  return mask;
}

int Evaluator::level_of(const Index& i) const {
  int level = 0;
  for (const auto& [expr, factor] : i.dynamic)
    level = std::max(level, p_.exprs[static_cast<size_t>(expr)].level);
  return level;
}

ExprId Evaluator::fail(const std::string& why) {
  if (!failed_) why_ = why;
  failed_ = true;
  return p_.exprs.empty() ? constant(0, ir::DType::kF32) : 0;
}

ExprId Evaluator::add_expr(LoopExpr e) {
  std::vector<int64_t> key = {static_cast<int64_t>(e.kind),
                              static_cast<int64_t>(e.op),
                              static_cast<int64_t>(e.dtype),
                              static_cast<int64_t>(e.rounds),
                              bits_of(e.value),
                              e.buffer.index,
                              e.predicate,
                              e.reduction,
                              e.row_stride,
                              static_cast<int64_t>(e.site)};
  key.insert(key.end(), e.operands.begin(), e.operands.end());
  key.push_back(-7);
  key_of(e.index, key);
  key_of(Index{e.rows, {}}, key);
  for (const ShardTerms* terms : {&e.shards, &e.row_shards}) {
    key.push_back(static_cast<int64_t>(terms->size()));
    for (const ShardTerm& term : *terms) key.insert(key.end(), {term.dim.index, term.stride});
  }
  auto [at, fresh] = exprs_.emplace(std::move(key), static_cast<ExprId>(p_.exprs.size()));
  if (!fresh) return at->second;
  if (e.kind != kernel::Expr::Kind::kReduction) {
    e.loops = loops_of(e.index) | loops_of(Index{e.rows, {}});
    e.level = level_of(e.index);
  }
  auto depend = [&](ExprId o) {
    e.loops |= p_.exprs[static_cast<size_t>(o)].loops;
    e.level = std::max(e.level, p_.exprs[static_cast<size_t>(o)].level);
  };
  for (ExprId o : e.operands) depend(o);
  if (e.predicate >= 0) depend(e.predicate);
  p_.exprs.push_back(std::move(e));
  if (p_.exprs.size() > kMaxExprs && !failed_) fail("too many expressions");
  return at->second;
}

const Index& Evaluator::DimIndex::at(DimId d) const {
  int position = type->position(d);
  CAD_CHECK(position >= 0, "a kernel node's operand has a dim that its result lacks (dim {})",
            d.index);
  return (*indices)[static_cast<size_t>(position)];
}

Indices Evaluator::operand_indices(ValueId operand, const DimIndex& at) const {
  Indices result;
  for (DimId d : g_.type(operand).dims) result.push_back(at.at(d));
  return result;
}

ExprId Evaluator::operand(const ir::Node& n, size_t i, const DimIndex& at, ExprId predicate) {
  return value(n.operands[i], operand_indices(n.operands[i], at), predicate);
}

bool Evaluator::computed_here(ValueId v) const {
  NodeId def = g_.value(v).def;
  if (!def.valid() || g_.node(def).op == Op::kInput) return false;
  if (members_.count(def) != 0) return true;
  return c_.free[static_cast<size_t>(def.index)] != 0;
}

ExprId Evaluator::value(ValueId v, const Indices& indices, ExprId predicate) {
  if (failed_ || restart_) return p_.exprs.empty() ? constant(0, ir::DType::kF32) : 0;
  std::vector<int64_t> key = {v.index, predicate};
  for (const Index& i : indices) key_of(i, key);
  auto known = values_.find(key);
  if (known != values_.end()) return known->second;

  ExprId result = -1;
  const Layout& layout = (*c_.layouts)[static_cast<size_t>(v.index)];
  const bool view = layout.base.valid() && layout.base != v;
  if (!computed_here(v))
    result = load(v, layout, indices, predicate);
  else if (view && !computed_here(layout.base) && members_.count(g_.value(v).def) == 0)
    result = load(layout.base, layout, indices, predicate);
  else
    result = node_value(g_.value(v).def, indices, predicate);
  if (failed_ || restart_) return result;
  values_[key] = result;

  if (stored_.count(v) != 0 && predicate < 0) {
    Index address;
    int64_t stride = 1;
    const ir::Type& type = g_.type(v);
    for (size_t d = type.rank(); d-- > 0;) {
      address.add(indices[d], stride);
      stride *= c_.extent(type.dims[d]);
    }
    if (address.dynamic.empty()) candidates_[v].push_back({address.affine, result});
  }
  return result;
}

ExprId Evaluator::load(ValueId v, const Layout& layout, const Indices& indices, ExprId predicate) {
  LoopExpr e;
  e.kind = kernel::Expr::Kind::kLoad;
  ir::DType dtype = g_.type(v).dtype;
  e.dtype = ir::is_float(dtype) ? ir::DType::kF32 : dtype;
  e.buffer = layout.base.valid() ? layout.base : v;
  e.predicate = predicate;
  CAD_CHECK(layout.strides.size() == indices.size(), "value {} has no layout", v.index);
  e.index.affine.constant = layout.offset;
  for (size_t d = 0; d < indices.size(); ++d) e.index.add(indices[d], layout.strides[d]);
  return add_expr(std::move(e));
}

ExprId Evaluator::node_value(NodeId id, const Indices& indices, ExprId predicate) {
  const ir::Node& n = g_.node(id);
  const DimIndex at{&g_.type(n.results[0]), &indices};
  const std::string family = ir::op_family(n.op);
  ExprId result = -1;
  if (n.op == Op::kConst) {
    std::optional<double> number = n.attrs.scalar.evaluate(*c_.bindings);
    CAD_CHECK(number.has_value(), "constant `{}` has a free size", n.attrs.scalar.str());
    result = constant(*number, at.type->dtype);
  } else if (n.op == Op::kIota) {
    result = index_value(indices[0]);
  } else if (n.op == Op::kStepTotal || n.op == Op::kAttach) {
    result = operand(n, 0, at, predicate);
  } else if (family == "pointwise") {
    result = pointwise(n, at, predicate);
  } else if (family == "reduce") {
    result = reduce(n, at, predicate);
  } else if (family == "move") {
    result = move(n, at, predicate);
  } else if (family == "random") {
    result = random(n, at, predicate);
  } else {
    switch (n.op) {
      case Op::kGather:
        result = gather(n, at, predicate);
        break;
      case Op::kSelect:
        result = select(n, at, predicate);
        break;
      case Op::kUnselect:
        result = unselect(n, at, predicate);
        break;
      case Op::kWindow:
        result = window(n, at, predicate);
        break;
      case Op::kUnwindow:
        result = unwindow(n, at, predicate);
        break;
      default:
        CAD_CHECK(false, "op `{}` is no part of a kernel", ir::op_name(n.op));
    }
  }
  if (failed_ || restart_ || members_.count(id) == 0) return result;
  double times = 1;
  uint64_t loops = p_.exprs[static_cast<size_t>(result)].loops;
  for (size_t l = 0; l < p_.loops.size(); ++l)
    if ((loops >> l & 1) != 0) times *= static_cast<double>(p_.loops[l].extent);
  p_.work[id] += times / std::max<double>(1, static_cast<double>(c_.elements(*at.type)));
  return result;
}

bool Evaluator::check_reductions() {
  if (restart_) return false;
  uint64_t all = (uint64_t{1} << p_.loops.size()) - 1;
  uint64_t outer = all & ~p_.inner_mask();
  for (uint64_t mask : reduction_outer_)
    if (mask != outer) {
      fail("a reduction would be computed again in another loop");
      return false;
    }
  return true;
}

// Each stored value is written once, where its indices run over all of its elements exactly once:
// sorted by size the strides are those of a mixed-radix number.
bool Evaluator::settle_stores() {
  uint64_t all = (uint64_t{1} << p_.loops.size()) - 1;
  uint64_t outer = all & ~p_.inner_mask();
  for (ValueId v : group_.stored) {
    bool settled = settled_.count(v) != 0;
    if (settled) continue;
    for (const StoreCandidate& candidate : candidates_[v]) {
      uint64_t used = 0;
      int64_t lowest = candidate.address.constant;
      std::vector<std::pair<int64_t, int64_t>> terms;  // |stride|, extent
      for (size_t l = 0; l < p_.loops.size(); ++l) {
        int64_t c = candidate.address.coef(l);
        if (c == 0) continue;
        used |= uint64_t{1} << l;
        if (c < 0) lowest += c * (p_.loops[l].extent - 1);
        terms.emplace_back(std::abs(c), p_.loops[l].extent);
      }
      std::sort(terms.begin(), terms.end());
      int64_t radix = 1;
      bool exact = lowest == 0 && (used == all || used == outer);
      for (const auto& [stride, extent] : terms) {
        exact = exact && stride == radix;
        radix *= extent;
      }
      const int64_t elements =
          c_.elements(g_.type(v));  // of nothing: strides may be 0, and do not matter
      if (elements != 0 && (!exact || radix != elements)) continue;
      const bool row = p_.has_inner() && (used & p_.inner_mask()) == 0;
      Affine address = candidate.address;
      if (elements == 0) address.coefs.assign(p_.loops.size(), 1);
      for (size_t l = 0; elements == 0 && row && l < p_.loops.size(); ++l)
        if (p_.loops[l].inner) address.coefs[l] = 0;
      p_.stores.push_back({v, address, candidate.expr, row});
      settled = true;
      break;
    }
    if (!settled) {
      fail("a stored value is not computed exactly once");
      return false;
    }
  }
  return true;
}

}  // namespace cad::backend::fuse
