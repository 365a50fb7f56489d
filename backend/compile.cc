// backend/compile.cc -- the phases of compilation in order, and the graph surgery for step totals.
#include "backend/compile.h"

#include <algorithm>

#include "backend/cpu/thread_pool.h"
#include "backend/program_impl.h"
#include "backend/program_verify.h"
#include "backend/schedule.h"
#include "base/check.h"
#include "ir/interpreter.h"
#include "ir/passes.h"
#include "ir/rewrite.h"

namespace cad::backend {

namespace {

Port port_of(const ir::Graph& g, const std::string& name, ir::ValueId value,
             const ir::Bindings& bindings) {
  Port port;
  port.name = name;
  port.type = g.type(value);
  port.extents = ir::extents_of(g, port.type, bindings);
  port.bytes = ir::dtype_bytes(port.type.dtype);
  for (const int64_t extent : port.extents) port.bytes *= extent;
  return port;
}

std::vector<ir::NodeId> step_totals(const ir::Graph& g) {
  std::vector<ir::NodeId> found;
  for (const ir::NodeId id : g.region(ir::RegionId{0}).nodes) {
    if (g.node(id).op == ir::Op::kStepTotal) found.push_back(id);
  }
  return found;
}

// Inputs that nothing reads are gone, with their nodes.
ir::Graph drop_unused_inputs(ir::Graph g) {
  const std::vector<int32_t> uses = ir::count_uses(g);
  return ir::drop_inputs(std::move(g), [&](const ir::Input& input) {
    return uses[static_cast<size_t>(input.value.index)] > 0;
  });
}

}  // namespace

Program compile(const ir::Graph& graph, const ir::Bindings& bindings,
                const CompileOptions& options) {
  auto impl = std::make_shared<ProgramImpl>();
  impl->graph = graph;
  impl->bindings = bindings;
  const ir::Graph& g = impl->graph;
  for (const ir::Input& input : g.inputs)
    impl->inputs.push_back(port_of(g, input.path, input.value, bindings));
  const std::vector<ir::ValueId>& results = g.region(ir::RegionId{0}).results;
  CAD_CHECK(results.size() == g.outputs.size(), "{} results, {} outputs", results.size(),
            g.outputs.size());
  std::vector<OutputPlace> places(results.size());
  for (size_t o = 0; o < results.size(); ++o) {
    const std::string& name = g.outputs[o].name;
    impl->in_place.push_back(-1);
    impl->outputs.push_back(port_of(g, name, results[o], bindings));
    places[o].accumulate = std::find(options.accumulate.begin(), options.accumulate.end(), name) !=
                           options.accumulate.end();
    for (const auto& [output, input] : options.in_place) {
      if (output != name) continue;
      for (size_t i = 0; i < impl->inputs.size(); ++i) {
        if (impl->inputs[i].name == input) places[o].aliased_input = static_cast<int32_t>(i);
      }
      CAD_CHECK(places[o].aliased_input >= 0, "in_place names no input `{}`", input);
      impl->in_place[o] = places[o].aliased_input;
    }
  }
  if (g.batch_dim.valid())
    impl->batch_rows = g.dim(whole_dim(g, g.batch_dim)).size.evaluate(bindings).value;
  PartitionOptions cut;
  cut.lanes = host_lanes();
  cut.fuse = options.fuse;
  Partition parts = partition(g, bindings, cut);
  const int threads = options.threads > 0 ? options.threads : ThreadPool::available_cores();
  if (options.code) {
    impl->jit = options.jit != nullptr ? options.jit : std::make_shared<Jit>();
    impl->kernels = impl->jit->compile(parts.kernels, ThreadPool::available_cores());
  }
  schedule(*impl, parts, places, threads, options.overlap, options.slack);
  Program program(std::move(impl));
  if (!g.mesh.empty()) {
    const std::vector<std::string> problems = verify(program);
    CAD_CHECK(problems.empty(), "{}\n{}", fmt::join(problems, "\n"), program.str());
  }
  return program;
}

ir::Graph step_total_graph(const ir::Graph& graph) {
  ir::Graph counts = graph;
  ir::Region& top = counts.region(ir::RegionId{0});
  top.results.clear();
  counts.outputs.clear();
  for (const ir::NodeId id : step_totals(graph)) {
    top.results.push_back(graph.node(id).operands[0]);
    counts.outputs.push_back({"step_total:" + std::to_string(counts.outputs.size())});
  }
  return drop_unused_inputs(ir::eliminate_dead(std::move(counts)));
}

ir::Graph supply_step_totals(ir::Graph graph) {
  int64_t number = 0;
  for (const ir::NodeId id : step_totals(graph)) {
    ir::Node& node = graph.node(id);
    ir::Input input;
    input.kind = ir::InputKind::kOther;
    input.path = "step_total:" + std::to_string(number++);
    input.value = node.results[0];
    node.op = ir::Op::kInput;
    node.operands.clear();
    node.attrs = {};
    node.attrs.input = ir::InputId{static_cast<int32_t>(graph.inputs.size())};
    graph.inputs.push_back(std::move(input));
  }
  return ir::eliminate_dead(std::move(graph));
}

}  // namespace cad::backend
