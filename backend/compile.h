// backend/compile.h -- graph and bindings in, Program out: partition into steps, layouts, schedule,
// arena. Time does not depend on any loop's trip count. Bindings must bind every dim of the graph.
#pragma once

#include "backend/program.h"
#include "ir/graph.h"

namespace cad::backend {

Program compile(const ir::Graph& graph, const ir::Bindings& bindings,
                const CompileOptions& options = {});

// Micro-batches. The operands of step_total ops (counts, as a rule) as a graph of their own, with
// outputs "step_total:0", "step_total:1", .. in node order and only the inputs it needs. The
// trainer runs it for each micro-batch, adds up, and binds the totals to the inputs of the same
// names that supply_step_totals() gives the main graph. With one micro-batch neither is needed:
// step_total is then the identity.
ir::Graph step_total_graph(const ir::Graph& graph);
ir::Graph supply_step_totals(ir::Graph graph);

}  // namespace cad::backend
