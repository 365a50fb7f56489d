// cli/repl_time.cc -- `:time`: an expression compiled for this machine and run until its median is
// steady. What it is made of at the prompt is computed once before; only the expression is timed.
#include <algorithm>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "backend/cpu/thread_pool.h"
#include "backend/inference.h"
#include "cli/repl_evaluate.h"
#include "cli/repl_graph.h"
#include "frontend/size_limits.h"
#include "ir/cost.h"

namespace cad::cli {
namespace {

using frontend::SectionValue;
using frontend::SessionBody;

constexpr double kBudgetSeconds = 0.5;
constexpr int kMostRuns = 200;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Statements whose tensors can be inputs of the timed program.
std::set<size_t> given_statements(const Session& session, const frontend::Typed& expression) {
  std::set<size_t> given;
  for (const size_t i : session.needed_by(expression)) {
    const std::vector<BoundValue>& values = session.program().values[i];
    if (std::all_of(values.begin(), values.end(), [](const BoundValue& v) {
          return !v.instance && !v.param && v.kind == SectionValue::Kind::kTensor;
        }))
      given.insert(i);
  }
  return given;
}

Result<std::unique_ptr<backend::Inference>> start(ir::Graph graph, const Session& session,
                                                  int threads) {
  const ir::Bindings& bindings = frontend::bindings(session.module());
  if (auto fault = frontend::size_fault(graph, bindings)) return *fault;
  if (auto fault = free_dim(graph, bindings)) return *fault;
  std::unique_ptr<backend::Inference> inference =
      backend::Inference::create(std::move(graph), bindings, threads);
  std::vector<Diagnostic> warnings;
  CAD_TRY_VOID(inference->start({}, seed_of(session), warnings));
  return inference;
}

struct Costs {
  double flops = 0, bytes = 0;
};

void add_costs(const ir::Graph& g, ir::RegionId id, double times, const ir::Bindings& bindings,
               Costs& costs) {
  for (const ir::NodeId n : g.region(id).nodes) {
    const ir::Node& node = g.node(n);
    if (node.op == ir::Op::kRepeat) {
      const auto count = static_cast<double>(g.dim(node.loop.dim).size.evaluate(bindings).value);
      add_costs(g, node.loop.body, times * count, bindings, costs);
      continue;
    }
    const ir::OpCost cost = ir::op_cost(g, n);
    const auto value = [&](const ir::Amount& size) {
      return size.size(g).evaluate_real(bindings).value_or(0) * times;
    };
    costs.flops += value(cost.matmul) + value(cost.other);
    costs.bytes += value(cost.read) + value(cost.written);
  }
}

// Fills the timed program's inputs from one that computes the statements.
Status fill(backend::Inference& timed, const Session& session, const std::set<size_t>& given,
            int threads) {
  if (given.empty()) return Ok{};
  Diagnostics diagnostics;
  SessionBody body(session.module(), SessionBody::Walk::kLower, diagnostics);
  session.replay(body, {}, [&](size_t i) {
    if (given.count(i) == 0) return;
    for (const BoundValue& v : session.program().values[i]) {
      if (const auto value = body.value(v.name))
        body.output(Session::input_name(i, v.name), value->value);
    }
  });
  CAD_TRY(inference, start(body.take(), session, threads));
  inference->run(seed_of(session));
  for (backend::Inference::Tensor& input : timed.inputs()) {
    for (const backend::Inference::Tensor& output : inference->outputs()) {
      if (output.name != input.name) continue;
      std::memcpy(input.data, output.data,
                  static_cast<size_t>(output.elements() * ir::dtype_bytes(output.dtype)));
    }
  }
  return Ok{};
}

}  // namespace

Result<Timed> time_expression(const Session& session, const frontend::Typed& expression,
                              int threads) {
  Diagnostics diagnostics;
  const std::vector<TypeOf> types = types_of(session, expression, diagnostics);
  if (diagnostics.has_errors()) return diagnostics.all()[0];
  const std::set<size_t> given = given_statements(session, expression);
  SessionBody body(session.module(), SessionBody::Walk::kLower, diagnostics);
  session.replay(body, given);
  const auto values = body.evaluate(expression);
  if (!values) return diagnostics.all()[0];
  for (size_t i = 0; i < values->size(); ++i) {
    if ((*values)[i].kind == SectionValue::Kind::kTensor)
      body.output("result:" + std::to_string(i), (*values)[i].value);
  }
  const ir::Graph graph = body.take();
  if (graph.outputs.empty())
    return make_error(DiagId::E0503, "a constant takes no time: `:time` wants a tensor",
                      kExitUsage);
  CAD_TRY(inference, start(graph, session, threads));
  CAD_TRY_VOID(fill(*inference, session, given, threads));
  const uint64_t seed = seed_of(session);
  inference->run(seed);  // first touch of memory
  std::vector<double> seconds;
  const double begin = now();
  while (seconds.size() < 5 || (now() - begin < kBudgetSeconds && seconds.size() < kMostRuns)) {
    const double before = now();
    inference->run(seed);
    seconds.push_back(now() - before);
  }
  std::sort(seconds.begin(), seconds.end());
  Timed timed;
  timed.seconds = seconds[seconds.size() / 2];
  timed.runs = static_cast<int>(seconds.size());
  timed.threads = threads > 0 ? threads : backend::ThreadPool::available_cores();
  Costs costs;
  add_costs(graph, ir::RegionId{0}, 1, frontend::bindings(session.module()), costs);
  timed.flops = costs.flops;
  timed.bytes = costs.bytes;
  return timed;
}

}  // namespace cad::cli
