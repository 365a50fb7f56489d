// ir/op_pointwise_grad.cc -- gradient rules of the pointwise ops. `g` is the result's cotangent,
// `y` the result. Where an operand was broadcast its cotangent is summed back to its dims (sum_to).
// Integers get none.
#include "ir/op_pointwise_grad.h"

#include "ir/op_rules.h"

namespace cad::ir {

namespace {

// A node's parts, copied, since adding nodes moves the arena; and the few words the formulas use.
struct Rule {
  Rule(Builder& builder, NodeId node, Values grads)
      : b(builder), n(builder.graph().node(node)), g(grads[0]), y(n.results[0]) {}

  [[nodiscard]] ValueId x(size_t i) const { return n.operands[i]; }
  [[nodiscard]] bool wanted(size_t i) const { return is_float(b.graph().type(x(i)).dtype); }
  [[nodiscard]] ValueId number(double value) const {
    return b.constant(value, b.graph().type(y).dtype);
  }
  // To operand i's dims; nothing for integers.
  [[nodiscard]] ValueId to(size_t i, ValueId value) const {
    return b.sum_to(value, b.graph().type(x(i)).dims);
  }

  // value where a `cmp` c, else 0, over the result's dims.
  [[nodiscard]] ValueId where(Op cmp, ValueId a, ValueId c, ValueId value) const {
    return b.where(b.make(cmp, {a, c}, over()), value, number(0));
  }
  [[nodiscard]] Attrs over() const {
    Attrs attrs;
    attrs.dims = b.graph().type(y).dims;
    return attrs;
  }

  Builder& b;
  const Node n;
  ValueId g, y;
};

// Most rules: one cotangent an operand, none for integers.
using Formula = ValueId (*)(const Rule& r);
std::vector<ValueId> by_formula(const Rule& r, std::initializer_list<Formula> formulas) {
  std::vector<ValueId> result;
  size_t i = 0;
  for (Formula formula : formulas) {
    result.push_back(r.wanted(i) ? r.to(i, formula(r)) : ValueId{});
    ++i;
  }
  return result;
}

bool is_constant(const Graph& g, ValueId value) {
  const NodeId def = g.value(value).def;
  return def.valid() && g.node(def).op == Op::kConst;
}

}  // namespace

#define CAD_GRAD(name) std::vector<ValueId> name##_grad(Builder& builder, NodeId node, Values grads)

// y = a + b: da = g, db = g
CAD_GRAD(add) {
  return by_formula({builder, node, grads},
                    {[](const Rule& r) { return r.g; }, [](const Rule& r) { return r.g; }});
}

// y = a - b: da = g, db = -g
CAD_GRAD(sub) {
  return by_formula(
      {builder, node, grads},
      {[](const Rule& r) { return r.g; }, [](const Rule& r) { return r.b.unary(Op::kNeg, r.g); }});
}

// y = a * b: da = g * b, db = g * a
CAD_GRAD(mul) {
  return by_formula({builder, node, grads}, {[](const Rule& r) { return r.b.mul(r.g, r.x(1)); },
                                             [](const Rule& r) { return r.b.mul(r.g, r.x(0)); }});
}

// y = a / b: da = g / b, db = -g * y / b
CAD_GRAD(div) {
  return by_formula(
      {builder, node, grads},
      {[](const Rule& r) { return r.b.div(r.g, r.x(1)); },
       [](const Rule& r) { return r.b.unary(Op::kNeg, r.b.div(r.b.mul(r.g, r.y), r.x(1))); }});
}

// y = a - floor(a / b) * b: da = g, db = -g * floor(a / b)
CAD_GRAD(mod) {
  return by_formula({builder, node, grads},
                    {[](const Rule& r) { return r.g; },
                     [](const Rule& r) {
                       ValueId floors = r.b.make(Op::kFloorDiv, {r.x(0), r.x(1)}, r.over());
                       return r.b.unary(Op::kNeg, r.b.mul(r.g, floors));
                     }});
}

// y = a ^ b: da = g * b * a^(b - 1), 0 where b = 0; db = g * y * log(a), 0 where a <= 0.
// A constant exponent, x^2 above all, needs neither guard nor logarithm.
CAD_GRAD(pow) {
  const Rule r(builder, node, grads);
  if (is_constant(builder.graph(), r.x(1))) {
    const Scalar exponent = builder.graph().node(builder.graph().value(r.x(1)).def).attrs.scalar;
    if (!r.wanted(0)) return {{}, {}};
    if (exponent.number() == 0.0) return {r.b.zeros(operand_type(r.b.graph(), r.n, 0)), {}};
    if (exponent.number() == 1.0) return {r.to(0, r.g), {}};
    const DType dtype = r.b.graph().type(r.y).dtype;
    ValueId power = r.x(0);
    if (exponent.number() != 2.0) {
      power =
          r.b.make(Op::kPow, {r.x(0), r.b.constant(Scalar::call("sub", {exponent, 1.0}), dtype)});
    }
    return {r.to(0, r.b.mul(r.b.mul(r.g, power), r.b.constant(exponent, dtype))), {}};
  }
  return by_formula(
      r, {[](const Rule& r) {
            ValueId less = r.b.sub(r.x(1), r.number(1));
            ValueId power = r.b.make(Op::kPow, {r.x(0), less}, r.over());
            return r.where(Op::kNe, r.x(1), r.number(0), r.b.mul(r.b.mul(r.g, r.x(1)), power));
          },
          [](const Rule& r) {
            ValueId log = r.b.unary(Op::kLog, r.x(0));
            return r.where(Op::kGt, r.x(0), r.number(0), r.b.mul(r.b.mul(r.g, r.y), log));
          }});
}

// min, max: to the operand that was taken; a tie is the first's.
CAD_GRAD(min) {
  return by_formula({builder, node, grads},
                    {[](const Rule& r) { return r.where(Op::kLe, r.x(0), r.x(1), r.g); },
                     [](const Rule& r) { return r.where(Op::kGt, r.x(0), r.x(1), r.g); }});
}
CAD_GRAD(max) {
  return by_formula({builder, node, grads},
                    {[](const Rule& r) { return r.where(Op::kGe, r.x(0), r.x(1), r.g); },
                     [](const Rule& r) { return r.where(Op::kLt, r.x(0), r.x(1), r.g); }});
}

// y = -x: -g
CAD_GRAD(neg) {
  return by_formula({builder, node, grads},
                    {[](const Rule& r) { return r.b.unary(Op::kNeg, r.g); }});
}

// y = |x|: g, -g, or 0 at 0
CAD_GRAD(abs) {
  return by_formula({builder, node, grads}, {[](const Rule& r) {
                      ValueId zero = r.number(0);
                      ValueId negative = r.where(Op::kLt, r.x(0), zero, r.b.unary(Op::kNeg, r.g));
                      return r.b.where(r.b.make(Op::kGt, {r.x(0), zero}), r.g, negative);
                    }});
}

// y = e^x: g * y
CAD_GRAD(exp) {
  return by_formula({builder, node, grads}, {[](const Rule& r) { return r.b.mul(r.g, r.y); }});
}

// y = log x: g / x
CAD_GRAD(log) {
  return by_formula({builder, node, grads}, {[](const Rule& r) { return r.b.div(r.g, r.x(0)); }});
}

// y = sqrt x: g / (2 y)
CAD_GRAD(sqrt) {
  return by_formula({builder, node, grads},
                    {[](const Rule& r) { return r.b.div(r.b.mul(r.g, r.number(0.5)), r.y); }});
}

// y = x^-1/2: -g y^3 / 2
CAD_GRAD(rsqrt) {
  return by_formula({builder, node, grads}, {[](const Rule& r) {
                      ValueId cube = r.b.mul(r.b.mul(r.y, r.y), r.y);
                      return r.b.mul(r.b.mul(r.g, r.number(-0.5)), cube);
                    }});
}

// y = sin x: g cos x
CAD_GRAD(sin) {
  return by_formula({builder, node, grads},
                    {[](const Rule& r) { return r.b.mul(r.g, r.b.unary(Op::kCos, r.x(0))); }});
}

// y = cos x: -g sin x
CAD_GRAD(cos) {
  return by_formula({builder, node, grads}, {[](const Rule& r) {
                      return r.b.unary(Op::kNeg, r.b.mul(r.g, r.b.unary(Op::kSin, r.x(0))));
                    }});
}

// y = tanh x: g (1 - y^2)
CAD_GRAD(tanh) {
  return by_formula({builder, node, grads}, {[](const Rule& r) {
                      return r.b.mul(r.g, r.b.sub(r.number(1), r.b.mul(r.y, r.y)));
                    }});
}

// y = erf x: g * 2 / sqrt(pi) * e^(-x^2)
CAD_GRAD(erf) {
  return by_formula({builder, node, grads}, {[](const Rule& r) {
                      ValueId square = r.b.unary(Op::kNeg, r.b.mul(r.x(0), r.x(0)));
                      ValueId slope =
                          r.b.mul(r.b.unary(Op::kExp, square), r.number(1.1283791670955126));
                      return r.b.mul(r.g, slope);
                    }});
}

// y = sigmoid x: g y (1 - y)
CAD_GRAD(sigmoid) {
  return by_formula({builder, node, grads}, {[](const Rule& r) {
                      return r.b.mul(r.g, r.b.mul(r.y, r.b.sub(r.number(1), r.y)));
                    }});
}

// y = log(1 + e^x): g sigmoid x
CAD_GRAD(softplus) {
  return by_formula({builder, node, grads},
                    {[](const Rule& r) { return r.b.mul(r.g, r.b.unary(Op::kSigmoid, r.x(0))); }});
}

// y = where(c, a, b): da = where(c, g, 0), db = where(c, 0, g)
CAD_GRAD(where) {
  const Rule r(builder, node, grads);
  if (!r.wanted(1)) return {{}, {}, {}};
  const ValueId zero = r.number(0);
  return {{}, r.to(1, r.b.where(r.x(0), r.g, zero)), r.to(2, r.b.where(r.x(0), zero, r.g))};
}

// y = cast x: cast back, between floats
CAD_GRAD(cast) {
  const Rule r(builder, node, grads);
  if (!r.wanted(0) || !is_float(r.n.attrs.dtype)) return {{}};
  return {r.to(0, r.b.cast(r.g, operand_type(r.b.graph(), r.n, 0).dtype))};
}

// y = x repeated: g summed
CAD_GRAD(broadcast) {
  return by_formula({builder, node, grads}, {[](const Rule& r) { return r.g; }});
}

#undef CAD_GRAD

}  // namespace cad::ir
