// backend/fuse_eval_move.cc -- the move family as index maps. See backend/fuse_eval.h.
#include <algorithm>

#include "backend/fuse_eval.h"
#include "base/check.h"

namespace cad::backend::fuse {

using ir::DimId;
using ir::DType;
using ir::Op;

ExprId Evaluator::move(const ir::Node& n, const DimIndex& at, ExprId predicate) {
  const ir::Attrs& a = n.attrs;
  const ir::ValueId x = n.operands[0];
  auto size_of = [this](const ir::Size& s) {
    auto evaluated = s.evaluate(*c_.bindings);
    CAD_CHECK(evaluated.ok(), "size `{}` is not bound", s.str());
    return evaluated.value;
  };
  Indices indices;
  switch (n.op) {
    case Op::kRename: {
      for (DimId d : g_.type(x).dims) {
        DimId to = d;
        for (const ir::DimGroup& group : a.groups)
          if (group.from[0] == d) to = group.to[0];
        indices.push_back(at.at(to));
      }
      return value(x, indices, predicate);
    }
    case Op::kReshape:
      return reshape(n, at, predicate);
    case Op::kTranspose:
      return operand(n, 0, at, predicate);
    case Op::kFlip: {
      indices = operand_indices(x, at);
      int position = g_.type(x).position(a.dim);
      Index flipped;
      flipped.affine.constant = c_.extent(a.dim) - 1;
      flipped.add(indices[static_cast<size_t>(position)], -1);
      indices[static_cast<size_t>(position)] = flipped;
      return value(x, indices, predicate);
    }
    case Op::kSlice:
    case Op::kPad: {
      const int64_t start = size_of(a.start) * (n.op == Op::kSlice ? 1 : -1);
      Index moved = at.at(a.to);
      moved.affine.constant += start;
      for (DimId d : g_.type(x).dims) indices.push_back(d == a.dim ? moved : at.at(d));
      if (n.op == Op::kSlice) return value(x, indices, predicate);
      std::optional<double> fill = a.scalar.evaluate(*c_.bindings);
      CAD_CHECK(fill.has_value(), "pad's value is not bound");
      return guarded(in_range(moved, 0, c_.extent(a.dim)), x, indices, predicate, *fill);
    }
    case Op::kConcat:
      return concat(n, at, predicate);
    case Op::kStack:
      return stack(n, at, predicate);
    default:
      CAD_CHECK(false, "op `{}` is no move", ir::op_name(n.op));
  }
}

ExprId Evaluator::reshape(const ir::Node& n, const DimIndex& at, ExprId predicate) {
  std::map<DimId, Index> from;
  for (const ir::DimGroup& group : n.attrs.groups) {
    // the row-major number of the group's element, then its digits in the other radix
    Index whole;
    int64_t stride = 1;
    for (auto d = group.to.rbegin(); d != group.to.rend(); ++d) {
      whole.add(at.at(*d), stride);
      stride *= c_.extent(*d);
    }
    for (size_t k = group.from.size(); k-- > 0;) {
      DimId d = group.from[k];
      if (k == 0) {
        from[d] = whole;
        break;
      }
      Index quotient, rest;
      divide(whole, c_.extent(d), quotient, rest);
      if (failed_ || restart_) return 0;
      from[d] = rest;
      whole = quotient;
    }
  }
  Indices indices;
  for (DimId d : g_.type(n.operands[0]).dims) {
    auto found = from.find(d);
    indices.push_back(found != from.end() ? found->second : at.at(d));
  }
  return value(n.operands[0], indices, predicate);
}

ExprId Evaluator::concat(const ir::Node& n, const DimIndex& at, ExprId predicate) {
  const ir::Attrs& a = n.attrs;
  const Index& place = at.at(a.to);
  DType dtype = at.type->dtype;
  if (ir::is_float(dtype)) dtype = DType::kF32;
  ExprId result = -1;
  int64_t offset = 0;
  for (size_t i = 0; i < n.operands.size(); ++i) {
    const int64_t extent = c_.extent(a.dims[i]);
    if (extent == 0) continue;
    Index moved = place;
    moved.affine.constant -= offset;
    Indices indices;
    for (DimId d : g_.type(n.operands[i]).dims)
      indices.push_back(d == a.dims[i] ? moved : at.at(d));
    ExprId inside = in_range(moved, 0, extent);
    ExprId part = value(n.operands[i], indices, both(predicate, inside));
    if (failed_ || restart_) return part;
    result = result < 0 || inside < 0 ? part : op(Op::kWhere, {inside, part, result}, dtype);
    offset += extent;
  }
  return result < 0 ? constant(0, dtype) : result;
}

ExprId Evaluator::stack(const ir::Node& n, const DimIndex& at, ExprId predicate) {
  const Index& place = at.at(n.attrs.to);
  DType dtype = at.type->dtype;
  if (ir::is_float(dtype)) dtype = DType::kF32;
  ExprId result = -1;
  for (size_t i = 0; i < n.operands.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    ExprId inside = in_range(place, number, number + 1);
    ExprId part = operand(n, i, at, both(predicate, inside));
    if (failed_ || restart_) return part;
    result = result < 0 || inside < 0 ? part : op(Op::kWhere, {inside, part, result}, dtype);
  }
  return result;
}

}  // namespace cad::backend::fuse
