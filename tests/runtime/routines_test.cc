// Library routines against the interpreter's rules for the same op, and the 16-bit conversions.
#include "backend/cpu/routines.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "backend/cpu/half.h"
#include "backend/cpu/thread_pool.h"
#include "tests/runtime/graphs.h"
#include "tests/runtime/values.h"

namespace cad::backend {
namespace {

using ir::DType;
using testing::GraphMaker;
using testing::Memory;

// Runs the one op of `maker` with the interpreter and with `run`; compares every result.
template <class Run>
void compare(const GraphMaker& maker, const ir::Node& node, int limit, Run&& run) {
  for (const int threads : {1, 2, 3}) {
    std::mt19937 random(static_cast<unsigned>(threads));
    std::vector<ir::Tensor> inputs;
    std::vector<Memory> memory;
    for (const ir::Input& in : maker.graph.inputs) {
      const ir::Type& type = maker.graph.type(in.value);
      inputs.push_back(
          testing::random_tensor(type.dtype, ir::extents_of(maker.graph, type, {}), random, limit));
      memory.push_back(testing::to_memory(inputs.back()));
    }
    ir::EvalContext context;
    context.round = true;
    const std::vector<ir::Tensor> expected = ir::interpret(maker.graph, inputs, context);
    std::vector<Memory> results;
    for (const ir::Tensor& t : expected)
      results.emplace_back(t.data.size() * static_cast<size_t>(ir::dtype_bytes(t.dtype)));
    ThreadPool pool(threads);
    run(node, memory, results, pool);
    for (size_t r = 0; r < expected.size(); ++r) {
      const ir::Tensor got =
          testing::from_memory(results[r], expected[r].dtype, expected[r].extents);
      EXPECT_LE(testing::difference(got, expected[r]), testing::tolerance(expected[r].dtype))
          << "result " << r;
    }
  }
}

const ir::Node& last_node(const GraphMaker& m) {
  return m.graph.nodes.back();
}

void scatter(DType dtype, bool aligned, int64_t rows, int64_t columns) {
  GraphMaker m;
  const ir::DimId v = m.dim("V", rows), b = m.dim("B", 3), t = m.dim("T", 7),
                  d = m.dim("D", columns);
  const ir::ValueId g = m.input("g", dtype, aligned ? std::vector{b, t, d} : std::vector{b, d, t});
  const ir::ValueId ids = m.input("ids", DType::kI32, {b, t});
  ir::Attrs attrs;
  attrs.dim = v;
  attrs.dims = aligned ? std::vector{b, v, d} : std::vector{v, d};
  m.output("out", m.b.make(ir::Op::kScatterAdd, {g, ids}, attrs));
  compare(m, last_node(m), 6, [&](const ir::Node& n, auto& in, auto& out, ThreadPool& pool) {
    const RoutinePlan plan = plan_scatter_add(m.graph, n, {});
    const Memory scratch(static_cast<size_t>(plan.scratch_bytes));
    run_scatter_add(plan, in[0].get(), in[1].template as<int32_t>(), out[0].get(), scratch.get(),
                    false, pool);
  });
}

TEST(Routines, ScatterAdd) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool aligned : {false, true}) {
      for (const int64_t columns : {0, 1, 5, 200}) scatter(dtype, aligned, 5, columns);
      scatter(dtype, aligned, 0, 4);
    }
  }
}

TEST(Routines, TopK) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI32}) {
    for (const int64_t taken : {0, 1, 3, 6}) {
      for (const bool last : {true, false}) {
        GraphMaker m;
        const ir::DimId a = m.dim("A", 5), e = m.dim("E", 6), k = m.dim("K", taken);
        const ir::ValueId x = m.input("x", dtype, last ? std::vector{a, e} : std::vector{e, a});
        ir::Attrs attrs;
        attrs.dim = e;
        attrs.to = k;
        const std::vector<ir::ValueId> made = m.b.make_all(ir::Op::kTopK, {x}, attrs);
        m.output("values", made[0]);
        m.output("indices", made[1]);
        compare(m, last_node(m), 3, [&](const ir::Node& n, auto& in, auto& out, ThreadPool& pool) {
          run_top_k(plan_top_k(m.graph, n, {}), in[0].get(), out[0].get(),
                    out[1].template as<int32_t>(), pool);
        });
      }
    }
  }
}

TEST(Routines, TopKPutsNaNFirst) {
  RoutinePlan plan;
  plan.extent = 4;
  plan.taken = 3;
  const std::vector<float> x{1, NAN, 2, NAN};
  std::vector<float> values(3);
  std::vector<int32_t> indices(3);
  ThreadPool pool(1);
  run_top_k(plan, x.data(), values.data(), indices.data(), pool);
  EXPECT_EQ(indices, (std::vector<int32_t>{1, 3, 2}));
}

TEST(Routines, CumSum) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI32}) {
    for (const bool reverse : {false, true}) {
      for (const int64_t extent : {0, 1, 9}) {
        GraphMaker m;
        const ir::DimId a = m.dim("A", 4), t = m.dim("T", extent), c = m.dim("C", 3);
        ir::Attrs attrs;
        attrs.dim = t;
        attrs.reverse = reverse;
        m.output("out", m.b.make(ir::Op::kCumSum, {m.input("x", dtype, {a, t, c})}, attrs));
        compare(m, last_node(m), 9, [&](const ir::Node& n, auto& in, auto& out, ThreadPool& pool) {
          run_cum_sum(plan_cum_sum(m.graph, n, {}), in[0].get(), out[0].get(), pool);
        });
      }
    }
  }
}

TEST(Routines, Slots) {
  GraphMaker m;
  const ir::DimId t = m.dim("T", 20), a = m.dim("A", 2), e = m.dim("E", 4), s = m.dim("M", 5);
  ir::Attrs attrs;
  attrs.dim = e;
  attrs.to = s;
  attrs.window = a;
  m.output("out", m.b.make(ir::Op::kSlots, {m.input("expert", DType::kI32, {t, a})}, attrs));
  compare(m, last_node(m), 5, [&](const ir::Node& n, auto& in, auto& out, ThreadPool&) {
    const RoutinePlan plan = plan_slots(m.graph, n, {});
    const Memory scratch(static_cast<size_t>(plan.scratch_bytes));
    run_slots(plan, in[0].template as<int32_t>(), out[0].template as<int32_t>(), scratch.get());
  });
}

TEST(Routines, Copies) {
  ThreadPool pool(3);
  std::vector<float> x(50000), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const CopyPlan plan{static_cast<int64_t>(x.size()), DType::kF32};
  run_copy(plan, x.data(), y.data(), false, pool);
  EXPECT_EQ(x, y);
  run_copy(plan, x.data(), y.data(), true, pool);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], 2 * x[i]);
}

TEST(Routines, CountsWhatIsNotFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> x{1, kInf, -kInf, NAN, -kInf};
  const NonFiniteCounts counts = count_non_finite(x.data(), 5, DType::kF32);
  EXPECT_EQ(counts.nan, 1);
  EXPECT_EQ(counts.plus, 1);
  EXPECT_EQ(counts.minus, 2);
}

// Every 16-bit pattern survives the way through f32; what lies between rounds to the nearest, ties
// to even.
TEST(Half, RoundTripsAndRounds) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto b = static_cast<uint16_t>(bits);
    ASSERT_TRUE(std::isnan(bf16_to_float(b)) || float_to_bf16(bf16_to_float(b)) == b) << b;
    ASSERT_TRUE(std::isnan(f16_to_float(b)) || float_to_f16(f16_to_float(b)) == b) << b;
    const auto next = static_cast<uint16_t>(b + 1);
    const float x = f16_to_float(b), y = f16_to_float(next);
    if (!std::isfinite(x) || !std::isfinite(y) || (b & 0x7FFF) == 0x7FFF) continue;
    ASSERT_EQ(float_to_f16((x + y) / 2), (b & 1) == 0 ? b : next) << b;
  }
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(NAN))));
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(NAN))));
  EXPECT_EQ(float_to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_f16(65519.0F), 0x7BFF);
}

}  // namespace
}  // namespace cad::backend
