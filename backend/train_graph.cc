// backend/train_graph.cc -- see backend/train_graph.h.
#include "backend/train_graph.h"

#include "backend/scalar_input.h"
#include "ir/autodiff.h"

namespace cad::backend {

RunGraph train_step_graph(const ir::TrainSpec& spec, const Parameters& parameters,
                          ir::PassLog* log) {
  ir::Graph g = ir::run_passes(spec.forward, ir::passes_before_autodiff(), log);
  ir::DifferentiateOptions options;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    if (g.inputs[i].kind != ir::InputKind::kParam) continue;
    const int index = parameters.find(g.inputs[i].path);
    const bool trained = index >= 0 && parameters.all()[static_cast<size_t>(index)].trained();
    if (trained) options.wrt.push_back(ir::InputId{static_cast<int32_t>(i)});
  }
  const ir::ValueId loss = ir::output_value(g, "loss");
  if (spec.precision == ir::DType::kF16) {
    options.seed = prepend_scalar_input(g, "loss_scale");  // gradients of loss * loss_scale
  }
  options.save.bindings = spec.bindings;
  // No trained parameter: nothing to differentiate (an empty list would mean all of them).
  if (!options.wrt.empty()) g = ir::differentiate(std::move(g), loss, options);
  return {ir::run_passes(std::move(g), ir::passes_after_autodiff(), log), {}};
}

LoweredRun lower_run(const ir::TrainSpec& spec, const DevicePlan& plan, ir::PassLog* log) {
  LoweredRun run;
  run.mesh = plan.train.mesh;
  const ir::Graph forward = ir::run_passes(spec.forward, ir::passes_before_autodiff(), log);
  std::vector<ir::Graph> evals;
  std::vector<planner::Placement> placements;
  std::set<std::string> several = read_in_several_ways(forward);
  for (size_t i = 0; i < spec.evals.size(); ++i) {
    evals.push_back(ir::run_passes(spec.evals[i].graph, ir::passes_before_autodiff(), log));
    placements.push_back(i < plan.evals.size() ? plan.evals[i]
                                               : planner::placement_for(evals[i], spec.bindings,
                                                                        forward, plan.train));
    several.merge(read_in_several_ways(evals[i]));
  }
  SharedParameters shared;
  place_shared(forward, spec.bindings, plan.train, several, shared);
  for (size_t i = 0; i < evals.size(); ++i)
    place_shared(evals[i], spec.bindings, placements[i], several, shared);
  run.train = lower_forward(forward, spec.bindings, plan.train, shared);
  run.train.late_sums = !plan.lean;
  for (size_t i = 0; i < evals.size(); ++i)
    run.evals.push_back(lower_forward(evals[i], spec.bindings, placements[i], shared));
  return run;
}

RunGraph local_step_graph(const ir::TrainSpec& spec, LocalGraph local, const Parameters& parameters,
                          ir::PassLog* log) {
  std::vector<LocalInput> inputs = local.inputs;
  const auto trained = [&](const LocalTensor& tensor) {
    const int index = parameters.find(tensor.local);
    return index >= 0 && parameters.all()[static_cast<size_t>(index)].trained();
  };
  const char* scale = spec.precision == ir::DType::kF16 ? "loss_scale" : "";
  return {differentiate_local(std::move(local), trained, scale, log), std::move(inputs)};
}

RunGraph local_evaluation_graph(LocalGraph local, ir::PassLog* log) {
  std::vector<LocalInput> inputs = local.inputs;
  return {finish_local(std::move(local), log), std::move(inputs)};
}

}  // namespace cad::backend
