// tests/ir/transformer.h -- transformer layers as they are written, in 16 bits with dropout, in a
// loop: what counts of activations are compared with formulas on (tests/ir/profile_test.cc,
// tests/planner/activation_bytes_test.cc).
#pragma once

#include <string>
#include <vector>

#include "tests/ir/pass_test_util.h"

namespace cad::ir {

inline Size symbol(const char* name) {
  return Size::symbol(name);
}

// A pre-norm block in 16 bit with dropout, in a repeat: x + attention(norm(x)), x + mlp(norm(x)).
struct Transformer {
  Program p;
  DimId B = p.dim("B", symbol("b")), T = p.dim("T", symbol("s")), S = p.dim("S", symbol("s")),
        D = p.dim("D", symbol("h")), H = p.dim("H", symbol("a")),
        K = p.dim("K", symbol("h") / symbol("a")), K2 = p.dim("K2", symbol("h") / symbol("a")),
        F = p.dim("F", 4 * symbol("h")), L = p.dim("L", symbol("L"));

  ValueId wide(Builder& b, ValueId x) { return b.cast(x, DType::kF32); }
  ValueId half(Builder& b, ValueId x) { return b.cast(x, DType::kBF16); }
  ValueId norm(Builder& b, ValueId x, ValueId gain) {
    const ValueId f = wide(b, x);
    const ValueId centred = b.sub(f, b.make(Op::kMean, {f}, dims_attr({D})));
    const ValueId variance = b.make(Op::kMean, {b.mul(centred, centred)}, dims_attr({D}));
    const ValueId scaled =
        b.mul(centred, b.unary(Op::kRsqrt, b.add(variance, b.constant(1e-5, DType::kF32))));
    return half(b, b.mul(scaled, gain));
  }
  ValueId dropped(Builder& b, ValueId x, const char* site, ValueId number) {
    Attrs attrs;
    attrs.scalar = 0.1;
    attrs.site = site;
    return b.make(Op::kDropout, {x, number}, attrs);
  }
  ValueId gelu(Builder& b, ValueId x) {
    const auto c = [&](double v) { return b.constant(v, DType::kBF16); };
    const ValueId erf = b.unary(Op::kErf, b.mul(x, c(0.7071067811865475)));
    return b.mul(b.mul(x, c(0.5)), b.add(erf, c(1)));
  }

  Transformer() {
    ValueId x = half(p.b, p.data("x", {B, T, D}));
    Body body(p.g, L);
    x = body.carry(x);
    const auto param = [&](const char* path, std::vector<DimId> dims) {
      dims.insert(dims.begin(), L);
      return body.scan(p.input(std::string("h.{}.") + path, dims));
    };
    const ValueId g1 = param("g1", {D}), g2 = param("g2", {D});
    const ValueId wq = param("wq", {D, H, K}), wk = param("wk", {D, H, K}),
                  wv = param("wv", {D, H, K2}), wo = param("wo", {H, K2, D});
    const ValueId w1 = param("w1", {D, F}), w2 = param("w2", {F, D});
    Builder b = body.builder();
    const ValueId n1 = norm(b, x, g1);
    const ValueId q = contract(b, n1, half(b, wq), {D});
    const ValueId k = renamed(b, contract(b, n1, half(b, wk), {D}), T, S);
    const ValueId v = renamed(b, contract(b, n1, half(b, wv), {D}), T, S);
    const ValueId s = b.mul(contract(b, q, k, {K}), b.constant(0.125, DType::kBF16));
    const ValueId probs = b.make(Op::kSoftmax, {s}, dims_attr({S}));
    ValueId y = contract(b, dropped(b, probs, "p", body.number), v, {S});
    y = contract(b, y, half(b, wo), {H, K2});
    const ValueId x2 = b.add(x, dropped(b, y, "o", body.number));
    const ValueId h = gelu(b, contract(b, norm(b, x2, g2), half(b, w1), {D}));
    const ValueId z = contract(b, h, half(b, w2), {F});
    const ValueId x3 = b.add(x2, dropped(b, z, "m", body.number));
    const ValueId out = body.close(p.b, {x3})[0];
    p.output("loss", p.b.sum(wide(p.b, out), {B, T, D}));
  }
};

}  // namespace cad::ir
