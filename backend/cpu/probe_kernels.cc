// backend/cpu/probe_kernels.cc -- see probe_kernels.h.
#include "backend/cpu/probe_kernels.h"

#include <algorithm>
#include <vector>

#include "backend/compile.h"
#include "backend/cpu/executor.h"
#include "backend/cpu/thread_pool.h"
#include "base/check.h"
#include "ir/builder.h"
#include "ir/cost.h"
#include "planner/compute_cost.h"

namespace cad::backend {
namespace {

using ir::DimId;
using ir::ValueId;

// Rows in the order of a layer's, more than the inner caches hold.
constexpr int64_t kRows = 8, kLength = 256;
// What a causal mask leaves.
constexpr double kCausal = 0.5 * (1 + planner::kCpuAttentionTile / kLength);

// A graph whose inputs are f32 tensors, with memory for them and for its results.
class Bench {
 public:
  Bench() : b(graph, ir::RegionId{0}) {}
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  ir::Graph graph;
  ir::Builder b;

  DimId dim(const char* name, int64_t size) { return graph.add_dim(name, ir::Size(size)); }
  ValueId input(const std::vector<DimId>& dims) {
    ir::Input in;
    in.kind = ir::InputKind::kOther;
    in.path = "x" + std::to_string(graph.inputs.size());
    return b.input(in, {ir::DType::kF32, dims});
  }
  void output(const std::vector<ValueId>& values) {
    for (const ValueId v : values) {
      graph.region(ir::RegionId{0}).results.push_back(v);
      graph.outputs.push_back({"r" + std::to_string(graph.outputs.size())});
    }
  }

  // Median seconds of a run; the outputs hold the values of the last one.
  double seconds(ThreadPool& pool,
                 const std::function<double(const std::function<void()>&)>& median,
                 const std::vector<std::vector<float>>& inputs) {
    CompileOptions options;
    options.threads = pool.size();
    const Program program = compile(graph, {}, options);
    Run run;
    std::vector<std::vector<float>> in = inputs;
    for (size_t i = 0; i < program.inputs().size(); ++i) {
      if (i >= in.size()) in.emplace_back();
      in[i].resize(static_cast<size_t>(program.inputs()[i].bytes / 4), 0.1F);
    }
    results.clear();
    for (const Port& port : program.outputs())
      results.emplace_back(static_cast<size_t>(port.bytes / 4));
    std::vector<float> arena(static_cast<size_t>(program.transient_bytes() / 4 + 32));
    const auto address = reinterpret_cast<uintptr_t>(arena.data());
    run.arena = reinterpret_cast<void*>((address + 63) / 64 * 64);
    for (std::vector<float>& x : in) run.inputs.push_back(x.data());
    for (std::vector<float>& y : results) run.outputs.push_back(y.data());
    return median([&] { (void)execute(program, pool, run); });
  }
  // Of all nodes but inputs.
  [[nodiscard]] ir::OpCost cost() const {
    ir::OpCost sum;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (graph.nodes[n].op != ir::Op::kInput)
        sum += ir::op_cost(graph, ir::NodeId{static_cast<int32_t>(n)});
    }
    return sum;
  }
  [[nodiscard]] std::vector<double> extents() const {
    std::vector<double> out;
    for (const ir::Dim& d : graph.dims)
      out.push_back(static_cast<double>(d.size.evaluate({}).value));
    return out;
  }

  std::vector<std::vector<float>> results;
};

double rate_of(double flops, double seconds) {
  return flops / std::max(seconds, 1e-9);
}

// x / 2 (1 + tanh(0.8 (x + 0.04 x^3)))
double pointwise_rate(ThreadPool& pool,
                      const std::function<double(const std::function<void()>&)>& median) {
  Bench bench;
  const DimId n = bench.dim("N", int64_t{32768} * pool.size());
  const ValueId x = bench.input({n});
  ir::Builder& b = bench.b;
  const auto number = [&](double value) { return b.constant(value, ir::DType::kF32); };
  const ValueId cube = b.mul(b.mul(x, x), b.mul(x, number(0.04)));
  const ValueId inner = b.unary(ir::Op::kTanh, b.mul(b.add(x, cube), number(0.8)));
  bench.output({b.mul(b.mul(x, number(0.5)), b.add(inner, number(1)))});
  const double seconds = bench.seconds(pool, median, {});
  return rate_of(bench.cost().other.at(bench.extents()), seconds);
}

double random_rate(ThreadPool& pool,
                   const std::function<double(const std::function<void()>&)>& median) {
  Bench bench;
  const int64_t elements = int64_t{32768} * pool.size();
  const ValueId x = bench.input({bench.dim("N", elements)});
  ir::Attrs attrs;
  attrs.scalar = 0.1;
  attrs.p = 0.1;
  attrs.site = "probe";
  bench.output({bench.b.make(ir::Op::kDropout, {x}, attrs)});
  return 4 * static_cast<double>(elements) / std::max(bench.seconds(pool, median, {}), 1e-9);
}

}  // namespace

KernelRates measure_kernels(ThreadPool& pool,
                            const std::function<double(const std::function<void()>&)>& median) {
  KernelRates rates;
  rates.pointwise = pointwise_rate(pool, median);
  rates.random = random_rate(pool, median);
  std::vector<std::vector<float>> kept;  // out, lse
  for (const bool backward : {false, true}) {
    Bench bench;
    const DimId rows = bench.dim("B", kRows), heads = bench.dim("H", 6),
                t = bench.dim("T", kLength), s = bench.dim("S", kLength), k = bench.dim("K", 64),
                v = bench.dim("E", 64);
    const ValueId q = bench.input({rows, t, heads, k}), key = bench.input({rows, s, heads, k}),
                  value = bench.input({rows, s, heads, v});
    ir::Attrs attrs;
    attrs.dims = {t, s, k};
    attrs.scalar = 0.125;
    attrs.causal = true;
    attrs.probs = {rows, t, heads, s};
    std::vector<std::vector<float>> inputs;
    if (backward) {
      const ValueId out = bench.input({rows, t, heads, v}), lse = bench.input({rows, t, heads}),
                    g = bench.input({rows, t, heads, v});
      bench.output(bench.b.make_all(ir::Op::kAttentionGrad, {q, key, value, out, lse, g}, attrs));
      const size_t elements = size_t{kRows} * 6 * kLength * 64;
      inputs.assign(3, std::vector<float>(elements, 0.1F));
      inputs.insert(inputs.end(), kept.begin(), kept.end());
    } else {
      bench.output(bench.b.make_all(ir::Op::kAttention, {q, key, value}, attrs));
    }
    double seconds = bench.seconds(pool, median, inputs);
    kept = bench.results;
    const std::vector<double> extents = bench.extents();
    const ir::OpCost cost = bench.cost();
    // its softmax apart, but most of the time is left for the products
    seconds = std::max(seconds - kCausal * cost.other.at(extents) / rates.pointwise, seconds / 3);
    const double rate = rate_of(kCausal * cost.matmul.at(extents), seconds);
    (backward ? rates.attention_grad : rates.attention) = rate;
  }
  return rates;
}

}  // namespace cad::backend
