// tests/kernels/fusion_test.cc -- how many kernels well-known compositions become, so that a fusion
// that stops working is seen, and that they compute what the interpreter says.
#include "tests/kernels/kernel_runner.h"

namespace cad::backend {
namespace {

using ir::Attrs;
using ir::DType;
using ir::Op;
using ir::ValueId;

struct Sizes {
  int64_t b, t, d;
};
const std::vector<Sizes> kSizes = {{2, 3, 32}, {1, 1, 1}, {3, 5, 67}, {4, 33, 130}, {2, 0, 8}};

ValueId layer_norm(Made& m, ValueId x, ValueId gain, ValueId bias, ir::DimId d) {
  auto& b = m.b;
  ValueId mean = b.make(Op::kMean, {x}, over({d}));
  ValueId centred = b.sub(x, mean);
  ValueId variance = b.make(Op::kMean, {b.mul(centred, centred)}, over({d}));
  ValueId scale = b.unary(Op::kRsqrt, b.add(variance, b.constant(1e-5, DType::kF32)));
  return b.add(b.mul(b.mul(centred, scale), gain), bias);
}

TEST(Fusion, PointwiseChainIsOneKernel) {
  for (const Sizes& s : kSizes) {
    Made m;
    auto B = m.dim("B", s.b), T = m.dim("T", s.t), D = m.dim("D", s.d);
    ValueId x = m.input(DType::kF32, {B, T, D}), bias = m.input(DType::kF32, {D});
    ValueId h = m.b.add(x, bias);
    ValueId cube = m.b.mul(m.b.mul(h, h), h);
    ValueId inner = m.b.mul(m.b.add(h, m.b.mul(cube, m.b.constant(0.044715, DType::kF32))),
                            m.b.constant(0.7978845608, DType::kF32));
    ValueId gate = m.b.add(m.b.unary(Op::kTanh, inner), m.b.constant(1.0, DType::kF32));
    m.output(m.b.mul(m.b.mul(h, gate), m.b.constant(0.5, DType::kF32)));
    EXPECT_EQ(check(m), 1U);
  }
}

TEST(Fusion, LayerNormIsOneKernel) {
  for (const Sizes& s : kSizes) {
    Made m;
    auto B = m.dim("B", s.b), T = m.dim("T", s.t), D = m.dim("D", s.d);
    ValueId x = m.input(DType::kF32, {B, T, D}), r = m.input(DType::kF32, {B, T, D});
    ValueId gain = m.input(DType::kF32, {D}), bias = m.input(DType::kF32, {D});
    ValueId sum = m.b.add(x, r);
    m.output(layer_norm(m, sum, gain, bias, D));
    m.output(sum);
    EXPECT_EQ(check(m, 4), 1U);
  }
}

TEST(Fusion, SoftmaxIsOneKernel) {
  for (const Sizes& s : kSizes) {
    Made m;
    auto B = m.dim("B", s.b), T = m.dim("T", s.t), D = m.dim("D", s.d);
    ValueId x = m.input(DType::kF32, {B, T, D});
    ValueId scaled = m.b.mul(x, m.b.constant(0.125, DType::kF32));
    m.output(m.b.make(Op::kSoftmax, {scaled}, over({D})));
    m.output(m.b.make(Op::kLogSumExp, {scaled}, over({D})));
    EXPECT_EQ(check(m), 1U);
  }
}

TEST(Fusion, SoftmaxOverAStridedDimRunsRowsInLanes) {
  for (const Sizes& s : kSizes) {
    Made m;
    auto B = m.dim("B", s.b), T = m.dim("T", s.t), D = m.dim("D", s.d);
    ValueId x = m.input(DType::kF32, {B, T, D});
    m.output(m.b.make(Op::kSoftmax, {x}, over({T})));
    EXPECT_EQ(check(m), 1U);
  }
}

TEST(Fusion, BiasGradientJoinsTheActivationsGradient) {
  for (const Sizes& s : {Sizes{2, 3, 32}, Sizes{8, 40, 67}, Sizes{16, 64, 96}}) {
    Made m;
    auto B = m.dim("B", s.b), T = m.dim("T", s.t), D = m.dim("D", s.d);
    ValueId x = m.input(DType::kF32, {B, T, D}), g = m.input(DType::kF32, {B, T, D});
    ValueId zero = m.b.constant(0.0, DType::kF32);
    ValueId dx = m.b.where(m.b.make(Op::kGt, {x, zero}), g, zero);
    m.output(dx);
    m.output(m.b.sum(dx, {B, T}));
    EXPECT_EQ(check(m, 10), 1U);
  }
}

TEST(Fusion, FullReductionIsOneKernelOfTwoStages) {
  for (const Sizes& s : {Sizes{2, 3, 32}, Sizes{1, 1, 1}, Sizes{0, 3, 4}, Sizes{13, 67, 130}}) {
    Made m;
    auto B = m.dim("B", s.b), T = m.dim("T", s.t), D = m.dim("D", s.d);
    ValueId x = m.input(DType::kF32, {B, T, D});
    ValueId norm = m.b.sum(m.b.mul(x, x), {B, T, D});
    m.output(m.b.unary(Op::kSqrt, norm));
    EXPECT_EQ(check(m, 4), 1U);
  }
}

TEST(Fusion, CrossEntropyGradientIsOneKernel) {
  for (const Sizes& s : kSizes) {
    Made m;
    auto B = m.dim("B", s.b), T = m.dim("T", s.t), V = m.dim("V", s.d);
    ValueId z = m.input(DType::kF32, {B, T, V}),
            y = m.input(DType::kI32, {B, T}, -1, static_cast<int>(s.d));
    ValueId lse = m.input(DType::kF32, {B, T});
    ValueId weight = m.b.where(m.b.make(Op::kGe, {y, m.b.constant(0.0, DType::kI32)}),
                               m.b.constant(0.01, DType::kF32), m.b.constant(0.0, DType::kF32));
    ValueId p = m.b.unary(Op::kExp, m.b.sub(z, lse));
    Attrs a;
    a.dim = V;
    ValueId here = m.b.make(Op::kEq, {m.b.make(Op::kIota, {}, a), y}, over({B, T, V}));
    ValueId one = m.b.where(here, m.b.constant(1.0, DType::kF32), m.b.constant(0.0, DType::kF32));
    m.output(m.b.mul(m.b.sub(p, one), weight));
    EXPECT_EQ(check(m, 4), 1U);
  }
}

// dx along rows, the gain's and bias's gradients down columns, all from one reading of g and x.
TEST(Fusion, LayerNormGradientIsOneKernel) {
  for (const Sizes& s :
       {Sizes{4, 33, 130}, Sizes{16, 64, 96}, Sizes{1, 64, 40}, Sizes{300, 1, 7}}) {
    Made m;
    auto B = m.dim("B", s.b), T = m.dim("T", s.t), D = m.dim("D", s.d);
    ValueId g = m.input(DType::kF32, {B, T, D}), centred = m.input(DType::kF32, {B, T, D});
    ValueId scale = m.input(DType::kF32, {B, T}), gain = m.input(DType::kF32, {D});
    ValueId normal = m.b.mul(centred, scale), h = m.b.mul(g, gain);
    ValueId a = m.b.make(Op::kMean, {h}, over({D})),
            c = m.b.make(Op::kMean, {m.b.mul(h, normal)}, over({D}));
    m.output(m.b.mul(m.b.sub(m.b.sub(h, a), m.b.mul(normal, c)), scale));
    m.output(m.b.sum(m.b.mul(g, normal), {B, T}));
    m.output(m.b.sum(g, {B, T}));
    EXPECT_EQ(check(m, 20), 1U);
  }
}

// The column sums may be of what the rows compute: a bias before the norm, a residual after it.
TEST(Fusion, ColumnSumsOfARowResultJoinIt) {
  Made m;
  auto B = m.dim("B", 16), T = m.dim("T", 64), D = m.dim("D", 96);
  ValueId g = m.input(DType::kF32, {B, T, D}), x = m.input(DType::kF32, {B, T, D}),
          r = m.input(DType::kF32, {B, T, D});
  ValueId mean = m.b.make(Op::kMean, {m.b.mul(g, x)}, over({D}));
  ValueId dx = m.b.add(m.b.sub(g, m.b.mul(x, mean)), r);
  m.output(dx);
  m.output(m.b.sum(dx, {B, T}));
  m.output(m.b.sum(m.b.mul(g, x), {B, T}));
  EXPECT_EQ(check(m, 20), 1U);
}

TEST(Fusion, PrintsReadably) {
  Made m;
  auto B = m.dim("B", 40), D = m.dim("D", 96);
  ValueId x = m.input(DType::kF32, {B, D}), gain = m.input(DType::kF32, {D});
  ValueId square = m.b.make(Op::kMean, {m.b.mul(x, x)}, over({D}));
  m.output(m.b.mul(m.b.mul(x, m.b.unary(Op::kRsqrt, square)), gain));
  PartitionOptions options;
  options.lanes = 16;
  Partition cut = partition(m.graph, m.bindings, options);
  ASSERT_EQ(cut.kernels.size(), 1U);
  EXPECT_EQ(cut.kernels[0].str(), R"(buffer b0: f32
buffer b1: f32
buffer b2: f32 out
stage 0
  parallel i0 < n1
  sequential i1 < n2, chunk i0 of n3
  inner i2 < n0, lanes
  %0 = load b0[n0*i1 + i2] : f32
  %1 = mul %0 %0 : f32
  %2 = reduced r0 : f32
  %3 = const 96 : f32
  %4 = div %2 %3 : f32
  %5 = rsqrt %4 : f32
  %6 = mul %0 %5 : f32
  %7 = load b1[i2] : f32
  %8 = mul %6 %7 : f32
  phase 0
    r0 = sum %1 : f32
  phase 1
    b2[n0*i1 + i2] = %8
)");
}

// Few long columns in several phases stay apart: each phase is shared out among threads.
TEST(Fusion, BatchNormOfManyRowsKeepsItsThreads) {
  Made m;
  auto B = m.dim("B", 4096), C = m.dim("C", 16);
  ValueId x = m.input(DType::kF32, {B, C});
  ValueId mean = m.b.make(Op::kMean, {x}, over({B}));
  ValueId centred = m.b.sub(x, mean);
  ValueId variance = m.b.make(Op::kMean, {m.b.mul(centred, centred)}, over({B}));
  m.output(
      m.b.mul(centred, m.b.unary(Op::kRsqrt, m.b.add(variance, m.b.constant(1e-5, DType::kF32)))));
  EXPECT_EQ(check(m, 20), 3U);
  KernelRunner runner(m.graph, m.bindings);
  for (const KernelCall& call : runner.cut().calls) EXPECT_GE(call.items[0], 4);
}

TEST(Fusion, ResidualDropoutNormDrawsOnce) {
  for (const Sizes& s : kSizes) {
    Made m;
    auto B = m.dim("B", s.b), T = m.dim("T", s.t), D = m.dim("D", s.d);
    m.graph.batch_dim = B;
    ValueId x = m.input(DType::kF32, {B, T, D}), h = m.input(DType::kF32, {B, T, D});
    ValueId gain = m.input(DType::kF32, {D}), bias = m.input(DType::kF32, {D});
    Attrs a;
    a.scalar = 0.25;
    a.site = "block.dropout";
    ValueId sum = m.b.add(x, m.b.make(Op::kDropout, {h}, a));
    m.output(sum);
    m.output(layer_norm(m, sum, gain, bias, D));
    EXPECT_EQ(check(m, 4, s.b, 3 * s.b), 1U);
  }
}

}  // namespace
}  // namespace cad::backend
