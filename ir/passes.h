// ir/passes.h -- graph-to-graph passes and the runner that verifies, times and dumps each.
// The list is one array in ir/passes.cc: {name, function, invariant gained}.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/autodiff.h"
#include "ir/graph.h"

namespace cad::ir {

struct Pass {
  const char* name;
  Graph (*run)(Graph);
  const char* gains;  // the invariant that holds after it
};

// Before autodiff: exact means, scans, fused patterns. After: cse, dead code, simplification.
const std::vector<Pass>& passes_before_autodiff();
const std::vector<Pass>& passes_after_autodiff();

struct PassLog {
  struct Entry {
    std::string name;
    double seconds;
    size_t nodes;
  };
  std::vector<Entry> entries;
  std::function<void(const std::string& name, const Graph&)> dump;  // --emit-after=NAME
};
Graph run_passes(Graph g, const std::vector<Pass>& passes, PassLog* log = nullptr);

// A forward graph with output "loss" made ready to train: the passes before autodiff, the gradient
// (outputs "grad:PATH"), the passes after. `options.seed` is not for here (ids change).
Graph training_graph(Graph forward, const DifferentiateOptions& options = {},
                     PassLog* log = nullptr);
// A graph that is only evaluated: the same passes without the gradient.
Graph evaluation_graph(Graph forward, PassLog* log = nullptr);

// Nodes by which a row of the batch depends on others, but for the means and sums that make up the
// loss exactly: with several micro-batches each sees its own rows only.
std::vector<NodeId> row_relations(const Graph& forward);
// The batch dim, its renames, and dims that it was merged into.
std::vector<DimId> batch_dims(const Graph& forward);

// The passes (each in its own file).
Graph exact_means(
    Graph g);  // every kMean is a sum over a count; those of the loss over the whole step
Graph sink_constants(Graph g);   // loops compute constants, positions and causal masks themselves
Graph scan_inputs(Graph g);      // an invariant read only at the loop's number is a scanned operand
Graph raise_attention(Graph g);  // contract-scale-mask-softmax-(dropout)-contract -> kAttention
Graph hoist_sums(Graph g);       // products summed over iterations are one product after the loop
Graph simplify(Graph g);         // folds constants, x*1, casts of casts, renames of renames
Graph eliminate_common(Graph g);  // equal nodes in a region are one
Graph eliminate_dead(Graph g);    // nothing unused is left (also loop carries and collects)
// Of a graph that devices run: keeps what lies beyond a device's own part from mattering.
Graph mask_tails(Graph g);

}  // namespace cad::ir
