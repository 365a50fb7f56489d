// backend/fuse_reload.cc -- a value that an early phase stores is read back by later phases, from
// the cache, instead of being computed again: `x = a + dropout(b)` under a layer norm draws its
// random numbers once. Also the question whether anything costly would still be computed in two
// phases.
#include <algorithm>

#include "backend/fuse.h"

namespace cad::backend::fuse {

using Kind = kernel::Expr::Kind;

namespace {

class Reload {
 public:
  explicit Reload(LoopProgram& p) : p_(p) {
    for (size_t s = 0; s < p_.stores.size(); ++s)
      if (!p_.stores[s].row) stored_.emplace(p_.stores[s].expr, s);
    inner_ = p_.inner_mask();
  }
  ExprId rewritten(ExprId id, int phase) {
    const LoopExpr e = p_.exprs[static_cast<size_t>(id)];
    if ((e.loops & inner_) == 0 || e.kind == Kind::kReduction || e.kind == Kind::kConst) return id;
    auto known = done_.find({id, phase});
    if (known != done_.end()) return known->second;
    auto stored = stored_.find(id);
    if (stored != stored_.end() && e.level < phase && e.kind != Kind::kLoad &&
        e.rounds == ir::DType::kF32) {
      LoopExpr load;
      load.kind = Kind::kLoad;
      load.dtype = e.dtype;
      load.buffer = p_.stores[stored->second].value;
      load.index.affine = p_.stores[stored->second].address;
      load.loops = e.loops;
      for (size_t l = 0; l < p_.loops.size(); ++l)
        if (load.index.affine.coef(l) != 0) load.loops |= uint64_t{1} << l;
      load.level = e.level;
      return done_[{id, phase}] = append(load);
    }
    LoopExpr copy = e;
    bool changed = false;
    auto visit = [&](ExprId& o) {
      ExprId now = rewritten(o, phase);
      changed = changed || now != o;
      o = now;
    };
    for (ExprId& o : copy.operands) visit(o);
    for (auto& [o, factor] : copy.index.dynamic) visit(o);
    if (copy.predicate >= 0) visit(copy.predicate);
    return done_[{id, phase}] = changed ? append(copy) : id;
  }

 private:
  ExprId append(const LoopExpr& e) {
    p_.exprs.push_back(e);
    return static_cast<ExprId>(p_.exprs.size()) - 1;
  }
  LoopProgram& p_;
  uint64_t inner_ = 0;
  std::map<ExprId, size_t> stored_;
  std::map<std::pair<ExprId, int>, ExprId> done_;
};

bool costly(const LoopExpr& e) {
  if (e.kind == Kind::kRandom) return true;
  if (e.kind == Kind::kLoad) return !e.index.dynamic.empty() && e.loops != 0;
  if (e.kind != Kind::kOp) return false;
  switch (e.op) {
    case ir::Op::kLog:
    case ir::Op::kTanh:
    case ir::Op::kErf:
    case ir::Op::kSigmoid:
    case ir::Op::kSoftplus:
    case ir::Op::kSin:
    case ir::Op::kCos:
    case ir::Op::kPow:
      return true;
    default:
      return false;  // exp: softmax computes it twice, which beats storing it
  }
}

}  // namespace

void reload_stored(const RegionContext& context, LoopProgram& program) {
  int phases = 0;
  for (const LoopReduction& r : program.reductions) phases = std::max(phases, r.phase + 1);
  if (phases == 0) return;
  // only what memory holds exactly as registers do
  LoopProgram kept = program;
  kept.stores.clear();
  for (const LoopStore& s : program.stores) {
    const ir::DType dtype = context.graph->type(s.value).dtype;
    if (dtype != ir::DType::kBF16 && dtype != ir::DType::kF16) kept.stores.push_back(s);
  }
  Reload reload(kept);
  for (LoopReduction& r : kept.reductions) {
    r.operand = reload.rewritten(r.operand, r.phase);
    if (r.index >= 0) r.index = reload.rewritten(r.index, r.phase);
  }
  for (LoopColumn& c : kept.columns)
    c.operand = reload.rewritten(c.operand, kept.exprs[static_cast<size_t>(c.operand)].level);
  for (LoopStore& s : program.stores) {
    const int level = kept.exprs[static_cast<size_t>(s.expr)].level;
    if (!s.row) s.expr = reload.rewritten(s.expr, level);
  }
  kept.stores = program.stores;
  program = std::move(kept);
}

bool recomputes(const LoopProgram& program) {
  std::vector<int> phase_of(program.exprs.size(), -1);
  const uint64_t inner = program.inner_mask();
  bool twice = false;
  auto mark = [&](ExprId root, int phase) {
    std::vector<ExprId> work = {root};
    std::vector<char> seen(program.exprs.size(), 0);
    while (!work.empty()) {
      const auto e = static_cast<size_t>(work.back());
      work.pop_back();
      if (seen[e] != 0) continue;
      seen[e] = 1;
      const LoopExpr& x = program.exprs[e];
      if ((x.loops & inner) == 0 || x.kind == Kind::kReduction) continue;
      if (costly(x)) {
        twice = twice || (phase_of[e] >= 0 && phase_of[e] != phase);
        phase_of[e] = phase;
      }
      work.insert(work.end(), x.operands.begin(), x.operands.end());
      for (const auto& [d, factor] : x.index.dynamic) work.push_back(d);
      if (x.predicate >= 0) work.push_back(x.predicate);
    }
  };
  for (const LoopReduction& r : program.reductions) {
    mark(r.operand, r.phase);
    if (r.index >= 0) mark(r.index, r.phase);
  }
  for (const LoopColumn& c : program.columns)
    mark(c.operand, program.exprs[static_cast<size_t>(c.operand)].level);
  for (const LoopStore& s : program.stores)
    if (!s.row) mark(s.expr, program.exprs[static_cast<size_t>(s.expr)].level);
  return twice;
}

bool starves_threads(const LoopProgram& program) {
  bool phases = false;
  for (const LoopReduction& r : program.reductions) phases = phases || r.phase > 0;
  for (const LoopStore& s : program.stores)
    phases = phases || (!s.row && program.exprs[static_cast<size_t>(s.expr)].level > 0);
  if (!phases) return false;
  double outer = 1, inner = 1;
  for (const Loop& l : program.loops) (l.inner ? inner : outer) *= static_cast<double>(l.extent);
  if (outer * inner < 32768) return false;
  if (outer < 8) return true;
  // lanes along the kept loops: every phase walks down the columns again
  double along_outer = 0, along_inner = 0;
  auto weigh = [&](const Affine& a) {
    double elements = 1;
    for (size_t l = 0; l < program.loops.size(); ++l)
      if (a.coef(l) != 0) elements *= static_cast<double>(program.loops[l].extent);
    for (size_t l = 0; l < program.loops.size(); ++l)
      if (std::abs(a.coef(l)) == 1)
        (program.loops[l].inner ? along_inner : along_outer) += elements;
  };
  for (const LoopExpr& e : program.exprs)
    if (e.kind == Kind::kLoad) weigh(e.index.affine);
  for (const LoopStore& s : program.stores) weigh(s.address);
  return along_outer > along_inner && inner >= 512 && outer < 4096;
}

}  // namespace cad::backend::fuse
