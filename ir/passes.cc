// ir/passes.cc -- the pass lists and their runner. A pass that breaks a rule of the verifier is our
// bug and stops the program with the pass's name.
#include "ir/passes.h"

#include <chrono>

#include "base/check.h"
#include "ir/text.h"

namespace cad::ir {

const std::vector<Pass>& passes_before_autodiff() {
  static const std::vector<Pass> kPasses = {
      {"sink_constants", sink_constants, "what depends on no input stands where it is used"},
      {"simplify", simplify, "constants are folded; no node is an identity"},
      {"eliminate_common", eliminate_common, "equal nodes in a region are one"},
      {"exact_means", exact_means, "no `mean` is left; micro-batches' losses add up"},
      {"scan_inputs", scan_inputs, "what a loop reads at its own number is scanned"},
      {"raise_attention", raise_attention, "attention is one node where it can be"},
      {"eliminate_dead", eliminate_dead, "every node leads to an output"},
  };
  return kPasses;
}

const std::vector<Pass>& passes_after_autodiff() {
  static const std::vector<Pass> kPasses = {
      {"simplify", simplify, "constants are folded; no node is an identity"},
      {"eliminate_common", eliminate_common, "equal nodes in a region are one"},
      {"hoist_sums", hoist_sums, "recurrent weights' gradients are one product after the loop"},
      {"simplify", simplify, "constants are folded; no node is an identity"},
      {"eliminate_dead", eliminate_dead, "every node leads to an output"},
  };
  return kPasses;
}

namespace {

size_t nodes_in_regions(const Graph& g) {
  size_t count = 0;
  for (const Region& region : g.regions) count += region.nodes.size();
  return count;
}

void require_valid(const Graph& g, const std::string& after) {
  const std::vector<std::string> faults = verify(g);
  CAD_CHECK(faults.empty(), "{} breaks the graph: {}", after, faults[0]);
}

void record(PassLog* log, const std::string& name, double seconds, const Graph& g) {
  if (log == nullptr) return;
  log->entries.push_back({name, seconds, nodes_in_regions(g)});
  if (log->dump) log->dump(name, g);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Graph run_passes(Graph g, const std::vector<Pass>& passes, PassLog* log) {
  for (const Pass& pass : passes) {
    const auto start = std::chrono::steady_clock::now();
    g = pass.run(std::move(g));
    const double seconds = seconds_since(start);
    require_valid(g, fmt::format("pass `{}`", pass.name));
    record(log, pass.name, seconds, g);
  }
  return g;
}

Graph training_graph(Graph forward, const DifferentiateOptions& options, PassLog* log) {
  require_valid(forward, "lowering");
  Graph g = run_passes(std::move(forward), passes_before_autodiff(), log);
  const auto start = std::chrono::steady_clock::now();
  const ValueId loss = output_value(g, "loss");
  CAD_CHECK(loss.valid(), "a training graph has no output `loss`");
  g = differentiate(std::move(g), loss, options);
  const double seconds = seconds_since(start);
  require_valid(g, "pass `differentiate`");
  record(log, "differentiate", seconds, g);
  return run_passes(std::move(g), passes_after_autodiff(), log);
}

Graph evaluation_graph(Graph forward, PassLog* log) {
  require_valid(forward, "lowering");
  return run_passes(std::move(forward), passes_before_autodiff(), log);
}

}  // namespace cad::ir
