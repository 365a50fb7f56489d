// ir/simplify.cc -- local identities, one walk in order, so chains collapse as they are met. Only
// what is exact in floating point: x*1, x+0 (up to the sign of zero), casts that undo a widening,
// renames and broadcasts of each other. Constants of rank 0 in f32 or i32 are folded into one
// scalar expression, which is evaluated in double when dims are bound.
#include <algorithm>
#include <cmath>

#include "ir/op_pointwise_value.h"
#include "ir/passes.h"
#include "ir/rewrite.h"

namespace cad::ir {

namespace {

bool is_number(const Scalar* scalar, double wanted) {
  if (scalar == nullptr) return false;
  const auto number = scalar->number();
  return number.has_value() && *number == wanted;
}

// The Scalar function of an op, or nullptr.
const char* scalar_function(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
    case Op::kPow:
    case Op::kNeg:
    case Op::kFloorDiv:
    case Op::kMod:
    case Op::kMin:
    case Op::kMax:
    case Op::kExp:
    case Op::kLog:
    case Op::kSqrt:
    case Op::kRsqrt:
    case Op::kAbs:
    case Op::kSin:
    case Op::kCos:
    case Op::kTanh:
      return op_name(op);
    default:
      return nullptr;
  }
}

bool whole_function(Op op) {
  return op == Op::kAdd || op == Op::kSub || op == Op::kMul || op == Op::kNeg || op == Op::kMin ||
         op == Op::kMax;
}

bool is_comparison(Op op) {
  return op == Op::kEq || op == Op::kNe || op == Op::kLt || op == Op::kLe || op == Op::kGt ||
         op == Op::kGe;
}

// Whether every value of `from` is a value of `to`.
bool widens(DType from, DType to) {
  if (from == to || from == DType::kBool) return true;
  return to == DType::kF32 && (from == DType::kBF16 || from == DType::kF16);
}

class Simplifier {
 public:
  explicit Simplifier(Graph& g) : g_(g), rewriter_(g) {}

  void run() {
    rewriter_.run([this](Builder& b, NodeId id) {
      const Node& node = g_.node(id);
      if (node.op == Op::kRepeat || node.results.size() != 1) return false;
      const ValueId result = node.results[0];
      const ValueId now = simpler(b, node);
      if (!now.valid()) return false;
      rewriter_.replace(result, now);
      return true;
    });
  }

 private:
  // The simpler value of `node`'s only result, or none. `node` dies with the first append.
  ValueId simpler(Builder& b, const Node& node) {
    if (const ValueId folded = fold(b, node); folded.valid()) return folded;
    switch (node.op) {
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
      case Op::kDiv:
        return arithmetic(b, node);
      case Op::kNeg:
        return undo(node, Op::kNeg);
      case Op::kNot:
        return undo(node, Op::kNot);
      case Op::kAnd:
      case Op::kOr:
        return logic(b, node);
      case Op::kWhere:
        return where(b, node);
      case Op::kCast:
        return cast(b, node);
      case Op::kBroadcast:
        return broadcast(b, node);
      case Op::kTranspose:
        return transpose(b, node);
      case Op::kRename:
        return rename(b, node);
      case Op::kReshape:
        return node.attrs.groups.empty() ? node.operands[0] : ValueId{};
      case Op::kSum:
      case Op::kReduceMax:
      case Op::kReduceMin:
        return node.attrs.dims.empty() && same_type(node) ? node.operands[0] : ValueId{};
      case Op::kFlip:
        return undo_same(node);
      default:
        return {};
    }
  }

  [[nodiscard]] const Type& type(ValueId value) const { return g_.type(value); }
  [[nodiscard]] bool same_type(const Node& node) const {
    return type(node.operands[0]) == type(node.results[0]);
  }
  const Scalar* constant(ValueId value) const { return constant_of(g_, value); }

  ValueId fold(Builder& b, const Node& node) {
    const Type& result = type(node.results[0]);
    if (node.operands.empty() || result.rank() != 0) return {};
    std::vector<Scalar> args;
    for (ValueId operand : node.operands) {
      const Node* def = defined_by(g_, operand, Op::kConst);
      if (def == nullptr) return {};
      args.push_back(def->attrs.scalar);
    }
    const DType operand_type = type(node.operands[0]).dtype;
    const bool narrow = operand_type == DType::kBF16 || operand_type == DType::kF16;
    if (result.dtype == DType::kBool && args.size() == 2 && !narrow) {
      const auto x = args[0].number(), y = args[1].number();
      if (!x || !y || !is_comparison(node.op)) return {};
      const double sides[] = {*x, *y};
      return b.constant(Scalar(pointwise_value(node.op, sides, operand_type, DType::kBool)),
                        DType::kBool);
    }
    if (node.op == Op::kCast) {
      const DType to = result.dtype;
      const bool exact = to == DType::kF32 || (to == DType::kI32 && args[0].is_whole());
      return exact && !narrow ? b.constant(args[0], to) : ValueId{};
    }
    const char* function = scalar_function(node.op);
    if (function == nullptr || (result.dtype != DType::kF32 && result.dtype != DType::kI32))
      return {};
    if (result.dtype == DType::kI32 && !whole_function(node.op)) return {};
    if (node.op == Op::kDiv && operand_type != DType::kF32) return {};
    return b.constant(Scalar::call(function, std::move(args)), result.dtype);
  }

  // `value` in place of the node: the same type, broadcast if the node did that.
  ValueId as_result(Builder& b, const Node& node, ValueId value) {
    const Type result = type(node.results[0]);
    if (type(value).dtype != result.dtype) return {};
    return conform(b, value, result);
  }

  ValueId arithmetic(Builder& b, const Node& node) {
    const ValueId x = node.operands[0], y = node.operands[1];
    const Scalar* left = constant(x);
    const Scalar* right = constant(y);
    const bool additive = node.op == Op::kAdd || node.op == Op::kSub;
    if (is_number(right, additive ? 0.0 : 1.0)) return as_result(b, node, x);
    if (node.op == Op::kAdd && is_number(left, 0.0)) return as_result(b, node, y);
    if (node.op == Op::kMul && is_number(left, 1.0)) return as_result(b, node, y);
    return {};
  }

  // op(op(x)) is x.
  ValueId undo(const Node& node, Op op) {
    const Node* inner = defined_by(g_, node.operands[0], op);
    if (inner == nullptr || type(inner->operands[0]) != type(node.results[0])) return {};
    return inner->operands[0];
  }
  ValueId undo_same(const Node& node) {
    const Node* inner = defined_by(g_, node.operands[0], node.op);
    return inner != nullptr && inner->attrs == node.attrs ? inner->operands[0] : ValueId{};
  }

  ValueId logic(Builder& b, const Node& node) {
    const double neutral = node.op == Op::kAnd ? 1.0 : 0.0;
    for (size_t i = 0; i < 2; ++i) {
      const ValueId other = node.operands[1 - i];
      if (is_number(constant(node.operands[i]), neutral)) return as_result(b, node, other);
      if (is_number(constant(node.operands[i]), 1.0 - neutral))
        return as_result(b, node, node.operands[i]);
    }
    return node.operands[0] == node.operands[1] ? as_result(b, node, node.operands[0]) : ValueId{};
  }

  ValueId where(Builder& b, const Node& node) {
    const Scalar* condition = constant(node.operands[0]);
    if (is_number(condition, 1.0)) return as_result(b, node, node.operands[1]);
    if (is_number(condition, 0.0)) return as_result(b, node, node.operands[2]);
    return node.operands[1] == node.operands[2] ? as_result(b, node, node.operands[1]) : ValueId{};
  }

  ValueId cast(Builder& b, const Node& node) {
    if (same_type(node)) return node.operands[0];
    const Node* inner = defined_by(g_, node.operands[0], Op::kCast);
    if (inner == nullptr) return {};
    const DType from = type(inner->operands[0]).dtype;
    const DType middle = type(node.operands[0]).dtype;
    const bool exact = widens(from, middle) && middle != DType::kBool;
    return exact ? conform(b, inner->operands[0], Type(type(node.results[0]))) : ValueId{};
  }

  ValueId broadcast(Builder& b, const Node& node) {
    if (same_type(node)) return node.operands[0];
    for (Op op : {Op::kBroadcast, Op::kTranspose}) {
      const Node* inner = defined_by(g_, node.operands[0], op);
      if (inner != nullptr)
        return b.broadcast(inner->operands[0], std::vector<DimId>(node.attrs.dims));
    }
    return {};
  }

  ValueId transpose(Builder& b, const Node& node) {
    if (same_type(node)) return node.operands[0];
    if (const Node* inner = defined_by(g_, node.operands[0], Op::kTranspose)) {
      return conform(b, inner->operands[0], Type(type(node.results[0])));
    }
    if (const Node* inner = defined_by(g_, node.operands[0], Op::kBroadcast)) {
      return b.broadcast(inner->operands[0], std::vector<DimId>(node.attrs.dims));
    }
    return {};
  }

  // rename(rename(x)): one rename of all dims that changed; none when they are back.
  ValueId rename(Builder& b, const Node& node) {
    ValueId x = node.operands[0];
    const Node* inner = defined_by(g_, x, Op::kRename);
    if (inner != nullptr) x = inner->operands[0];
    const std::vector<DimId> from = type(x).dims, to = type(node.results[0]).dims;
    if (from == to) return x;
    if (const Node* iota = defined_by(g_, x, Op::kIota)) {
      Attrs attrs = iota->attrs;
      attrs.dim = to[0];
      return b.make(Op::kIota, {}, attrs);
    }
    const bool identity_items =
        std::any_of(node.attrs.groups.begin(), node.attrs.groups.end(),
                    [](const DimGroup& item) { return item.from == item.to; });
    if ((inner == nullptr && !identity_items) || from.size() != to.size()) return {};
    Attrs attrs;
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i] != to[i]) attrs.groups.push_back({{from[i]}, {to[i]}});
    }
    return b.make(Op::kRename, {x}, attrs);
  }

  Graph& g_;
  Rewriter rewriter_;
};

}  // namespace

Graph simplify(Graph g) {
  Simplifier(g).run();
  return compact(g);
}

}  // namespace cad::ir
