// tests/kernels/ops_test.cc -- every op that kernels compute, by dtype, on odd, unit and empty
// shapes, against the reference interpreter.
#include "tests/kernels/kernel_runner.h"

namespace cad::backend {
namespace {

using ir::Attrs;
using ir::DimId;
using ir::DType;
using ir::Op;
using ir::ValueId;

struct Shape {
  int64_t a, b, c;
};
const std::vector<Shape> kShapes = {{3, 5, 37}, {1, 1, 1}, {2, 1, 64},
                                    {0, 4, 3},  {2, 3, 0}, {17, 2, 5}};
const std::vector<DType> kFloats = {DType::kF32, DType::kBF16, DType::kF16};

double factor_of(DType dtype) {
  return dtype == DType::kF32 ? 1 : 2;
}

// All shapes (`few`: the first two); `body` adds nodes and outputs.
template <class F>
void each_shape(F&& body, double factor = 1, bool few = false) {
  for (const Shape& s : few ? std::vector<Shape>(kShapes.begin(), kShapes.begin() + 2) : kShapes) {
    Made m;
    DimId a = m.dim("A", s.a), b = m.dim("B", s.b), c = m.dim("C", s.c);
    body(m, a, b, c);
    check(m, factor);
  }
}

TEST(Ops, UnaryFloat) {
  for (DType dtype : kFloats)
    each_shape(
        [&](Made& m, DimId a, DimId b, DimId c) {
          ValueId x = m.input(dtype, {a, b, c});
          for (Op op : {Op::kNeg, Op::kAbs, Op::kExp, Op::kSin, Op::kCos, Op::kTanh, Op::kErf,
                        Op::kSigmoid, Op::kSoftplus})
            m.output(m.b.unary(op, x));
          ValueId positive = m.b.unary(Op::kAbs, x);
          for (Op op : {Op::kLog, Op::kSqrt, Op::kRsqrt}) m.output(m.b.unary(op, positive));
        },
        factor_of(dtype), dtype != DType::kF32);
}

TEST(Ops, BinaryFloatBroadcasts) {
  for (DType dtype : kFloats)
    each_shape(
        [&](Made& m, DimId a, DimId b, DimId c) {
          ValueId x = m.input(dtype, {a, b, c}), y = m.input(dtype, {c, a}),
                  z = m.input(dtype, {b});
          ValueId away = m.b.add(m.b.unary(Op::kAbs, y), m.b.constant(0.5, dtype));
          for (Op op : {Op::kAdd, Op::kSub, Op::kMul, Op::kMin, Op::kMax})
            m.output(m.b.make(op, {x, y}));
          m.output(m.b.div(x, away));
          m.output(m.b.make(Op::kAdd, {y, z}, over({b, c, a})));
          for (Op op : {Op::kEq, Op::kNe, Op::kLt, Op::kLe, Op::kGt, Op::kGe})
            m.output(m.b.make(op, {z, x}));
        },
        factor_of(dtype), dtype != DType::kF32);
}

TEST(Ops, PowModFloorDiv) {
  each_shape([&](Made& m, DimId a, DimId b, DimId c) {
    ValueId x = m.input(DType::kF32, {a, b, c}), y = m.input(DType::kF32, {c});
    ValueId positive = m.b.add(m.b.unary(Op::kAbs, x), m.b.constant(0.25, DType::kF32));
    m.output(m.b.make(Op::kPow, {positive, y}));
    for (double p : {1.0, 2.0, 3.0, 4.0, -1.0, 0.5})
      m.output(m.b.make(Op::kPow, {positive, m.b.constant(p, DType::kF32)}));
    ValueId k = m.input(DType::kI32, {a, c}, -9, 10), d = m.input(DType::kI32, {c}, -3, 4);
    for (Op op : {Op::kFloorDiv, Op::kMod, Op::kAdd, Op::kSub, Op::kMul, Op::kMin, Op::kMax})
      m.output(m.b.make(op, {k, d}));
    m.output(m.b.unary(Op::kNeg, k));
    m.output(m.b.unary(Op::kAbs, k));
    for (Op op : {Op::kEq, Op::kLt, Op::kGe}) m.output(m.b.make(op, {k, d}));
  });
}

TEST(Ops, BoolWhereCast) {
  each_shape(
      [&](Made& m, DimId a, DimId b, DimId c) {
        ValueId p = m.input(DType::kBool, {a, b, c}), q = m.input(DType::kBool, {c});
        ValueId x = m.input(DType::kF32, {a, b, c}), k = m.input(DType::kI32, {a, b, c});
        m.output(m.b.make(Op::kAnd, {p, q}));
        m.output(m.b.make(Op::kOr, {p, q}));
        m.output(m.b.unary(Op::kNot, p));
        m.output(m.b.where(q, x, m.b.constant(-1.0, DType::kF32)));
        m.output(m.b.where(p, k, m.b.constant(7.0, DType::kI32)));
        for (DType to : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kBool})
          for (ValueId v : {p, x, k}) m.output(m.b.cast(v, to));
      },
      4);
}

TEST(Ops, SpecialNumbers) {
  Made m;
  DimId n = m.dim("N", 20);
  ValueId x = m.input(DType::kF32, {n});
  m.inputs[0].data = {0.0,     -0.0, 1,     -1,  INFINITY, -INFINITY, NAN, 1e-40, -1e-40, 3.4e38,
                      -3.4e38, 88.8, -88.8, 104, -104,     1e-30,     0.5, 2.5e9, -2.5e9, 7};
  for (double& v : m.inputs[0].data) v = static_cast<float>(v);
  for (Op op :
       {Op::kExp, Op::kTanh, Op::kErf, Op::kSigmoid, Op::kSoftplus, Op::kAbs, Op::kNeg, Op::kSqrt})
    m.output(m.b.unary(op, x));
  m.output(m.b.unary(Op::kLog, x));
  m.output(m.b.cast(x, DType::kI32));
  m.output(m.b.cast(x, DType::kBool));
  m.output(m.b.cast(x, DType::kBF16));
  m.output(m.b.cast(x, DType::kF16));
  ValueId y = m.b.make(Op::kFlip, {x}, [&] {
    Attrs a;
    a.dim = n;
    return a;
  }());
  m.output(m.b.make(Op::kMax, {x, y}));
  m.output(m.b.make(Op::kMin, {x, y}));
  m.output(m.b.make(Op::kReduceMax, {x}, over({n})));
  m.output(m.b.make(Op::kEq, {x, y}));
  check(m);
}

TEST(Ops, Reductions) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI32})
    each_shape(
        [&](Made& m, DimId a, DimId b, DimId c) {
          ValueId x = m.input(dtype, {a, b, c});
          for (const std::vector<DimId>& dims :
               std::vector<std::vector<DimId>>{{c}, {b}, {a}, {a, b}, {a, c}, {b, c}, {a, b, c}})
            for (Op op : {Op::kSum, Op::kReduceMax, Op::kReduceMin, Op::kMean})
              m.output(m.b.make(op, {x}, over(dims)));
          for (DimId d : {a, b, c}) m.output(m.b.make(Op::kArgmax, {x}, over({d})));
        },
        factor_of(dtype) * 4, dtype != DType::kF32);
}

TEST(Ops, ReductionsOfBoolAndWeightedMean) {
  each_shape([&](Made& m, DimId a, DimId b, DimId c) {
    ValueId p = m.input(DType::kBool, {a, b, c}), x = m.input(DType::kF32, {a, b, c}),
            w = m.input(DType::kBool, {a, b});
    m.output(m.b.make(Op::kSum, {p}, over({a, c})));
    m.output(m.b.make(Op::kMean, {p}, over({b})));
    m.output(m.b.make(Op::kMean, {x, w}, over({a, b})));
    m.output(m.b.make(Op::kMean, {x, w}, over({a, b, c})));
  });
}

TEST(Ops, SoftmaxAndLogSumExp) {
  for (DType dtype : {DType::kF32, DType::kBF16})
    each_shape(
        [&](Made& m, DimId a, DimId b, DimId c) {
          ValueId x = m.input(dtype, {a, b, c});
          for (size_t i = 0; i < m.inputs[0].data.size(); i += 3) m.inputs[0].data[i] = -INFINITY;
          for (const std::vector<DimId>& dims : std::vector<std::vector<DimId>>{{c}, {b}, {a, c}}) {
            m.output(m.b.make(Op::kSoftmax, {x}, over(dims)));
            m.output(m.b.make(Op::kLogSumExp, {x}, over(dims)));
          }
        },
        factor_of(dtype), dtype != DType::kF32);
}

TEST(Ops, Moves) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI32, DType::kBool})
    for (auto [h, k] : std::vector<std::pair<int64_t, int64_t>>{{3, 8}, {1, 1}, {2, 17}}) {
      Made m;
      DimId a = m.dim("A", 5), h_dim = m.dim("H", h), k_dim = m.dim("K", k), d = m.dim("D", h * k),
            e = m.dim("E", h * k);
      DimId wide = m.dim("W", h * k + 5), both = m.dim("J", 2 * h * k), two = m.dim("N", 2),
            unit = m.dim("U", 1);
      ValueId x = m.input(dtype, {a, d}), y = m.input(dtype, {a, h_dim, k_dim}),
              z = m.input(dtype, {d, a});
      auto op = [&](Op o, std::vector<ValueId> v, auto set) {
        Attrs at;
        set(at);
        ValueId r = m.b.make(o, std::move(v), at);
        m.output(r);
        return r;
      };
      ValueId split = op(Op::kReshape, {x}, [&](Attrs& t) { t.groups = {{{d}, {h_dim, k_dim}}}; });
      op(Op::kReshape, {y}, [&](Attrs& t) { t.groups = {{{h_dim, k_dim}, {d}}}; });
      op(Op::kReshape, {y}, [&](Attrs& t) {
        t.groups = {{{k_dim, h_dim}, {d}}};
      });  // no view: other order
      op(Op::kReshape, {x}, [&](Attrs& t) { t.groups = {{{}, {unit}}}; });
      op(Op::kRename, {x}, [&](Attrs& t) { t.groups = {{{d}, {e}}}; });
      op(Op::kTranspose, {y}, [&](Attrs& t) { t.dims = {k_dim, a, h_dim}; });
      op(Op::kFlip, {x}, [&](Attrs& t) { t.dim = d; });
      ValueId pad = op(Op::kPad, {x}, [&](Attrs& t) {
        t.dim = d;
        t.to = wide;
        t.start = ir::Size(3);
        t.scalar = dtype == DType::kBool ? 1.0 : 2.0;
      });
      op(Op::kSlice, {pad}, [&](Attrs& t) {
        t.dim = wide;
        t.to = e;
        t.start = ir::Size(2);
      });
      op(Op::kConcat, {x, z}, [&](Attrs& t) {
        t.dims = {d, d};
        t.to = both;
      });
      op(Op::kStack, {x, z}, [&](Attrs& t) { t.to = two; });
      op(Op::kBroadcast, {x}, [&](Attrs& t) { t.dims = {d, two, a}; });
      if (dtype == DType::kF32) m.output(m.b.sum(m.b.mul(split, y), {h_dim}));
      check(m);
    }
}

TEST(Ops, GatherSelectUnselect) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI32, DType::kBool})
    each_shape(
        [&](Made& m, DimId a, DimId b, DimId c) {
          DimId v = m.dim("V", 7);
          ValueId table = m.input(dtype, {v, c}), picks = m.input(dtype, {a, v, b}),
                  column = m.input(dtype, {c, v});
          ValueId ids = m.input(DType::kI32, {a, b}, -2, 9),
                  number = m.input(DType::kI32, {}, 0, 9);
          Attrs at;
          at.dim = v;
          m.output(m.b.make(Op::kGather, {table, ids}, at));
          m.output(m.b.make(Op::kGather, {picks, ids}, at));
          m.output(m.b.make(Op::kGather, {column, ids}, at));
          m.output(m.b.make(Op::kSelect, {picks, number}, at));
          ValueId g = m.input(dtype, {a, b});
          at.dims = {a, v, b};
          m.output(m.b.make(Op::kUnselect, {g, number}, at));
        },
        1, dtype != DType::kF32);
}

TEST(Ops, WindowUnwindow) {
  struct Window {
    int64_t y, ky, stride, pad, dilation;
  };
  for (const Window& w : {Window{9, 3, 1, 1, 1}, Window{10, 3, 2, 1, 1}, Window{11, 2, 3, 0, 2},
                          Window{4, 4, 1, 0, 1}, Window{40, 5, 2, 2, 1}})
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kI32}) {
      Made m;
      const int64_t y2 = (w.y + 2 * w.pad - w.dilation * (w.ky - 1) - 1) / w.stride + 1;
      DimId b = m.dim("B", 3), y = m.dim("Y", w.y), c = m.dim("C", 5), to = m.dim("Y2", y2),
            ky = m.dim("KY", w.ky);
      ValueId x = m.input(dtype, {b, y, c}), last = m.input(dtype, {c, y});
      Attrs a;
      a.dim = y;
      a.to = to;
      a.window = ky;
      a.stride = w.stride;
      a.pad = w.pad;
      a.dilation = w.dilation;
      a.scalar = -1.0;
      ValueId windows = m.b.make(Op::kWindow, {x}, a);
      m.output(windows);
      m.output(m.b.make(Op::kReduceMax, {windows}, over({ky})));
      m.output(m.b.make(Op::kWindow, {last}, a));
      a.scalar = 0.0;
      ValueId g = m.input(dtype, {b, to, ky, c});
      m.output(m.b.make(Op::kUnwindow, {g}, a));
      check(m, 2);
    }
}

TEST(Ops, RandomValuesAreTheInterpretersOwn) {
  for (const Shape& s : kShapes)
    for (bool batch_first : {true, false}) {
      Made m;
      DimId a = m.dim("A", s.a), b = m.dim("B", s.b), c = m.dim("C", s.c);
      m.graph.batch_dim = batch_first ? a : b;
      Attrs at;
      at.dims = {a, b, c};
      at.site = "x.noise";
      ValueId number = m.input(DType::kI32, {}, 0, 50), one = m.b.constant(1.0, DType::kF32),
              zero = m.b.constant(0.0, DType::kF32);
      m.output(m.b.make(Op::kUniform, {zero, one, number}, at));
      m.output(m.b.make(Op::kNormal, {one, number}, at));
      m.output(m.b.make(Op::kBernoulli, {m.b.constant(0.3, DType::kF32)}, at));
      Attrs drop;
      drop.scalar = 0.5;
      drop.site = "drop";
      ValueId x = m.b.broadcast(one, {a, b, c});
      m.output(m.b.make(Op::kDropout, {x, number, number}, drop));
      Attrs flip;
      flip.dim = c;
      m.output(m.b.make(Op::kFlip, {m.b.make(Op::kUniform, {zero, one}, at)}, flip));
      check(m, 0);
      const int64_t rows = batch_first ? s.a : s.b;
      check(m, 0, 2 * rows, 5 * rows + 1);
    }
}

TEST(Ops, LargeElementIndicesCarryInto64Bits) {
  Made m;
  DimId b = m.dim("B", 2), c = m.dim("C", 70);
  m.graph.batch_dim = b;
  Attrs at;
  at.dims = {b, c};
  m.output(
      m.b.make(Op::kUniform, {m.b.constant(0.0, DType::kF32), m.b.constant(1.0, DType::kF32)}, at));
  check(m, 0, (int64_t{1} << 32) / 70 - 1, int64_t{1} << 40);
}

}  // namespace
}  // namespace cad::backend
