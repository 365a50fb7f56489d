// frontend/lower_train.h -- the parts of a train section as graphs. check_sections() lowers every
// section of a sound program once to find its errors; lower_train() (module.h) lowers the chosen
// one for the trainer. Errors go to `diagnostics`; nullopt then.
#pragma once

#include <optional>

#include "frontend/section_data.h"

namespace cad::frontend {

// Loss of one micro-batch: inputs are data, parameters, states; outputs "loss", "state:PATH".
std::optional<ir::Graph> lower_forward(const Module& module, const TrainUse& train,
                                       Diagnostics& diagnostics);

// Loss and metrics with training = false; exact means as pairs "sum:NAME", "count:NAME" (further
// ones are "sum:NAME#2" ..; the pairs of a name add up), others "value:NAME".
std::optional<ir::EvalSpec> lower_eval(const Module& module, const TrainUse& train,
                                       const EvalUse& eval, Diagnostics& diagnostics);

// Update graphs and the schedule of one optimizer entry.
std::optional<ir::OptimizerEntry> lower_optimizer(const Module& module, const OptimizerUse& use,
                                                  Diagnostics& diagnostics);

// Whether every parameter has an entry and every entry a parameter (E0316, E0317, E0318).
bool check_parameters(const Module& module, const TrainUse& train, const ir::Graph& forward,
                      Diagnostics& diagnostics);

// Adds to every i32 data name the sizes of the dims that its values index in the graph.
void find_id_limits(const ir::Graph& graph, ir::DataSpec& data);

// Splits a rank-0 value of region 0 into exact means over the batch dim, for evaluation; adds the
// outputs of `name`. `row_mask` is a bool over the batch dim.
void output_means(ir::Graph& graph, ir::ValueId value, ir::ValueId row_mask,
                  const std::string& name);

// A section's data with sizes.
ir::DataSpec data_spec(const Module& module, const std::vector<DataUse>& uses);

}  // namespace cad::frontend
