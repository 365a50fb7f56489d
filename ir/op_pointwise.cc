// ir/op_pointwise.cc -- elementwise ops: arithmetic, functions, comparisons, where, cast,
// broadcast. Shape and reference rules here; the gradient rules are in op_pointwise_grad.cc.
//
// (C1) the operand count and dtypes are the op's; all value operands have one dtype.
// (C2) without attrs.dims: one operand's dims contain all others', and are the result's.
// (C3) with attrs.dims: they are the result's, have no dim twice and contain every operand's.
#include <cmath>
#include <limits>

#include "ir/op_pointwise_grad.h"  // defines: gradient rules
#include "ir/op_pointwise_value.h"
#include "ir/op_rules.h"

namespace cad::ir {

using Code = ShapeError::Code;

namespace {

// Result dims by (C2) or (C3); an error lists the dims that stand on one side only.
ShapeResult aligned(const Graph& g, Values operands, const Attrs& attrs, DType result) {
  if (auto wrong = unknown(g, attrs.dims)) return *wrong;
  if (!attrs.dims.empty()) {
    if (auto wrong = repeated(g, attrs.dims)) return *wrong;
    for (size_t i = 0; i < operands.size(); ++i) {
      const Dims extra = without(g.type(operands[i]).dims, attrs.dims);
      if (!extra.empty()) {
        return failed(Code::kNotSubset, static_cast<int>(i), extra,
                      fmt::format("the result's dims lack {}", names(g, extra)));
      }
    }
    return typed(result, attrs.dims);
  }
  Dims all;
  for (ValueId x : operands) all = joined(all, g.type(x).dims);
  for (ValueId x : operands) {
    if (g.type(x).dims.size() == all.size()) return typed(result, g.type(x).dims);
  }
  Dims apart;  // those that some operand lacks, in order
  for (DimId d : all) {
    for (ValueId x : operands) {
      if (!g.type(x).has(d)) {
        apart.push_back(d);
        break;
      }
    }
  }
  return failed(Code::kNotSubset, -1, apart,
                fmt::format("{}'s dims must contain the other{}; {} {} not on every side",
                            operands.size() == 2 ? "one side" : "one operand",
                            operands.size() == 2 ? "'s" : "s'", names(g, apart),
                            apart.size() == 1 ? "is" : "are"));
}

ShapeResult elementwise(const Graph& g, Values operands, const Attrs& attrs,
                        std::initializer_list<Accepts> accepts, bool comparison = false) {
  if (auto wrong = wrong_operands(g, operands, accepts)) return *wrong;
  const DType first = g.type(operands[0]).dtype;
  for (size_t i = 1; i < operands.size(); ++i) {
    const DType other = g.type(operands[i]).dtype;
    if (other != first) {
      return failed(
          Code::kDType, static_cast<int>(i), {},
          fmt::format("the operands are `{}` and `{}`", dtype_name(first), dtype_name(other)));
    }
  }
  return aligned(g, operands, attrs, comparison ? DType::kBool : first);
}

ShapeResult numbers1(const Graph& g, Values v, const Attrs& a) {
  return elementwise(g, v, a, {Accepts::kNumber});
}
ShapeResult floats1(const Graph& g, Values v, const Attrs& a) {
  return elementwise(g, v, a, {Accepts::kFloat});
}
ShapeResult any1(const Graph& g, Values v, const Attrs& a) {
  return elementwise(g, v, a, {Accepts::kAny});
}
ShapeResult bools1(const Graph& g, Values v, const Attrs& a) {
  return elementwise(g, v, a, {Accepts::kBool});
}
ShapeResult numbers2(const Graph& g, Values v, const Attrs& a) {
  return elementwise(g, v, a, {Accepts::kNumber, Accepts::kNumber});
}
ShapeResult floats2(const Graph& g, Values v, const Attrs& a) {
  return elementwise(g, v, a, {Accepts::kFloat, Accepts::kFloat});
}
ShapeResult bools2(const Graph& g, Values v, const Attrs& a) {
  return elementwise(g, v, a, {Accepts::kBool, Accepts::kBool});
}
ShapeResult equality2(const Graph& g, Values v, const Attrs& a) {
  return elementwise(g, v, a, {Accepts::kAny, Accepts::kAny}, true);
}
ShapeResult order2(const Graph& g, Values v, const Attrs& a) {
  return elementwise(g, v, a, {Accepts::kNumber, Accepts::kNumber}, true);
}

ShapeResult where_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kBool, Accepts::kAny, Accepts::kAny}))
    return *wrong;
  const DType a = g.type(operands[1]).dtype, b = g.type(operands[2]).dtype;
  if (a != b) {
    return failed(Code::kDType, 2, {},
                  fmt::format("the branches are `{}` and `{}`", dtype_name(a), dtype_name(b)));
  }
  return aligned(g, operands, attrs, a);
}

ShapeResult cast_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kAny})) return *wrong;
  return aligned(g, operands, attrs, attrs.dtype);
}

// attrs.dims is the result, also when it is empty.
ShapeResult broadcast_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kAny})) return *wrong;
  const Type& x = g.type(operands[0]);
  if (attrs.dims.empty() && !x.dims.empty()) {
    return failed(Code::kNotSubset, 0, x.dims,
                  fmt::format("the result's dims lack {}", names(g, x.dims)));
  }
  return aligned(g, operands, attrs, x.dtype);
}

// NaN on either side is kept; a tie is the first operand's.
double maximum(double a, double b) {
  return a >= b || std::isnan(a) ? a : b;
}
double minimum(double a, double b) {
  return a <= b || std::isnan(a) ? a : b;
}

double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}
double sigmoid(double x) {
  const double e = std::exp(-std::abs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

double floor_divide(double a, double b, DType dtype) {
  if (dtype == DType::kI32 && b == 0) return 0;
  return std::floor(a / b);
}

// To i32: towards zero, out of range to the nearest end, NaN to 0.
double cast_to(double x, DType dtype) {
  if (dtype == DType::kBool) return x != 0 ? 1 : 0;
  if (dtype != DType::kI32) return x;
  if (std::isnan(x)) return 0;
  return std::trunc(std::min(std::max(x, -2147483648.0), 2147483647.0));
}

}  // namespace

double pointwise_value(Op op, const double* x, DType operand, DType result) {
  const double a = x[0], b = x[1];
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return a / b;
    case Op::kFloorDiv:
      return floor_divide(a, b, operand);
    case Op::kMod:
      return a - floor_divide(a, b, operand) * b;
    case Op::kPow:
      return result == DType::kI32 ? cast_to(std::pow(a, b), result) : std::pow(a, b);
    case Op::kMin:
      return minimum(a, b);
    case Op::kMax:
      return maximum(a, b);
    case Op::kNeg:
      return -a;
    case Op::kAbs:
      return std::abs(a);
    case Op::kExp:
      return std::exp(a);
    case Op::kLog:
      return std::log(a);
    case Op::kSqrt:
      return std::sqrt(a);
    case Op::kRsqrt:
      return 1 / std::sqrt(a);
    case Op::kSin:
      return std::sin(a);
    case Op::kCos:
      return std::cos(a);
    case Op::kTanh:
      return std::tanh(a);
    case Op::kErf:
      return std::erf(a);
    case Op::kSigmoid:
      return sigmoid(a);
    case Op::kSoftplus:
      return softplus(a);
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return a != b;
    case Op::kLt:
      return a < b;
    case Op::kLe:
      return a <= b;
    case Op::kGt:
      return a > b;
    case Op::kGe:
      return a >= b;
    case Op::kAnd:
      return a != 0 && b != 0;
    case Op::kOr:
      return a != 0 || b != 0;
    case Op::kNot:
      return a == 0;
    case Op::kWhere:
      return a != 0 ? b : x[2];
    case Op::kCast:
      return cast_to(a, result);
    case Op::kStop:
    case Op::kBroadcast:
      return a;
    default:
      CAD_CHECK(false, "op `{}` is not pointwise", op_name(op));
  }
}

namespace {

std::vector<Tensor> pointwise_eval(const Graph& g, const Node& n, Operands in,
                                   EvalContext& context) {
  const Type& type = result_type(g, n);
  Tensor out = filled(g, type, context.bindings, 0);
  const Axes axes = axes_of(g, type.dims, context.bindings);
  std::vector<Named<const Tensor>> operands;
  for (size_t i = 0; i < in.size(); ++i)
    operands.emplace_back(axes, operand_type(g, n, i).dims, *in[i]);
  const DType operand = operand_type(g, n, 0).dtype;
  size_t at = 0;
  walk(axes, [&](const Index& i) {
    double x[3] = {0, 0, 0};
    for (size_t k = 0; k < operands.size(); ++k) x[k] = operands[k](i);
    out.data[at++] = pointwise_value(n.op, x, operand, type.dtype);
  });
  return {out};
}

}  // namespace

const OpInfo kAddInfo{"a + b",        numbers2,       add_grad,
                      pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kSubInfo{"a - b",        numbers2,       sub_grad,
                      pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kMulInfo{"a * b",        numbers2,       mul_grad,
                      pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kDivInfo{"a / b of floats", floats2,        div_grad,
                      pointwise_eval,    pointwise_cost, pointwise_sharding};
const OpInfo kFloorDivInfo{"a // b, floored", numbers2,       nullptr,
                           pointwise_eval,    pointwise_cost, pointwise_sharding};
const OpInfo kModInfo{"a % b = a - floor(a / b) * b",
                      numbers2,
                      mod_grad,
                      pointwise_eval,
                      pointwise_cost,
                      pointwise_sharding};
const OpInfo kPowInfo{"a ^ b",        numbers2,       pow_grad,
                      pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kMinInfo{
    "the smaller, elementwise", numbers2, min_grad, pointwise_eval, pointwise_cost,
    pointwise_sharding};
const OpInfo kMaxInfo{"the larger, elementwise", numbers2, max_grad, pointwise_eval, pointwise_cost,
                      pointwise_sharding};
const OpInfo kNegInfo{"negative: -x", numbers1,       neg_grad,
                      pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kAbsInfo{"absolute value: |x|", numbers1,       abs_grad,
                      pointwise_eval,        pointwise_cost, pointwise_sharding};
const OpInfo kExpInfo{"exponential: e^x", floats1,        exp_grad,
                      pointwise_eval,     pointwise_cost, pointwise_sharding};
const OpInfo kLogInfo{"natural logarithm", floats1,        log_grad,
                      pointwise_eval,      pointwise_cost, pointwise_sharding};
const OpInfo kSqrtInfo{"square root",  floats1,        sqrt_grad,
                       pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kRsqrtInfo{"1 / sqrt(x)",  floats1,        rsqrt_grad,
                        pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kSinInfo{"sine",         floats1,        sin_grad,
                      pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kCosInfo{"cosine",       floats1,        cos_grad,
                      pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kTanhInfo{"hyperbolic tangent", floats1,        tanh_grad,
                       pointwise_eval,       pointwise_cost, pointwise_sharding};
const OpInfo kErfInfo{"error function", floats1,        erf_grad,
                      pointwise_eval,   pointwise_cost, pointwise_sharding};
const OpInfo kSigmoidInfo{"1 / (1 + e^-x)", floats1,        sigmoid_grad,
                          pointwise_eval,   pointwise_cost, pointwise_sharding};
const OpInfo kSoftplusInfo{"log(1 + e^x)", floats1,        softplus_grad,
                           pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kEqInfo{"a == b",       equality2,      nullptr,
                     pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kNeInfo{"a != b",       equality2,      nullptr,
                     pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kLtInfo{"a < b", order2, nullptr, pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kLeInfo{"a <= b", order2, nullptr, pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kGtInfo{"a > b", order2, nullptr, pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kGeInfo{"a >= b", order2, nullptr, pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kAndInfo{"a and b",      bools2,         nullptr,
                      pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kOrInfo{"a or b", bools2, nullptr, pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kNotInfo{"not a", bools1, nullptr, pointwise_eval, pointwise_cost, pointwise_sharding};
const OpInfo kWhereInfo{
    "a where c holds, else b", where_shape, where_grad, pointwise_eval, pointwise_cost,
    pointwise_sharding};
const OpInfo kCastInfo{"to another dtype", cast_shape,     cast_grad,
                       pointwise_eval,     pointwise_cost, pointwise_sharding};
const OpInfo kStopInfo{"identity without gradient", any1, nullptr, pointwise_eval, free_cost,
                       pointwise_sharding};
const OpInfo kBroadcastInfo{"repeated along further dims",
                            broadcast_shape,
                            broadcast_grad,
                            pointwise_eval,
                            free_cost,
                            pointwise_sharding};

}  // namespace cad::ir
