// cli/compiled_plan.cc -- see cli/compiled_plan.h.
#include "cli/compiled_plan.h"

#include <algorithm>
#include <utility>

#include "ir/passes.h"
#include "planner/placement.h"

namespace cad::cli {

namespace {

Result<backend::MemoryReport> memory_of(const std::shared_ptr<const backend::DevicePlan>& plan,
                                        const ir::TrainSpec& spec,
                                        const backend::TrainerOptions& of) {
  backend::TrainerOptions options;
  options.layout_only = true;
  options.plan = plan;
  options.threads = of.threads;
  options.evaluate_only = of.evaluate_only;
  options.jit = of.jit;
  CAD_TRY(trainer, backend::Trainer::create(spec, options));
  return trainer->memory();
}

void set_memory(planner::Predicted& predicted, const backend::MemoryReport& memory) {
  const auto bytes = [](int64_t count) { return static_cast<double>(count); };
  predicted.peak_bytes = bytes(memory.total);
  predicted.params_bytes = bytes(memory.parameters);
  predicted.grads_bytes = bytes(memory.gradients);
  predicted.optimizer_bytes = bytes(memory.optimizer + memory.average);
  const double rest = predicted.peak_bytes - predicted.params_bytes - predicted.grads_bytes -
                      predicted.optimizer_bytes;
  predicted.activation_bytes = std::min(predicted.activation_bytes, rest);
  predicted.transient_bytes = rest - predicted.activation_bytes;
}

}  // namespace

std::shared_ptr<const backend::DevicePlan> devices_of(const std::string& name,
                                                      planner::Placement train,
                                                      const ir::Graph& graph,
                                                      const ir::TrainSpec& spec) {
  auto plan = std::make_shared<backend::DevicePlan>();
  plan->name = name;
  plan->train = std::move(train);
  for (const ir::EvalSpec& eval : spec.evals) {
    const ir::Graph forward = ir::run_passes(eval.graph, ir::passes_before_autodiff());
    plan->evals.push_back(planner::placement_for(forward, spec.bindings, graph, plan->train));
  }
  return plan;
}

Result<backend::MemoryReport> memory_within(double most,
                                            std::shared_ptr<const backend::DevicePlan>& plan,
                                            const ir::TrainSpec& spec,
                                            const backend::TrainerOptions& options) {
  CAD_TRY(fast, memory_of(plan, spec, options));
  if (static_cast<double>(fast.total) <= most || plan->train.mesh.devices() == 1) return fast;
  auto lean = std::make_shared<backend::DevicePlan>(*plan);
  lean->lean = true;
  CAD_TRY(memory, memory_of(lean, spec, options));
  if (memory.total >= fast.total) return fast;
  plan = std::move(lean);
  return memory;
}

Result<std::shared_ptr<const backend::DevicePlan>> compile(planner::Planning& planning,
                                                           const std::string& name, double budget,
                                                           const ir::Graph& graph,
                                                           const ir::TrainSpec& spec,
                                                           const backend::TrainerOptions& options) {
  auto devices =
      devices_of(name, planner::placement_of(*planning.problem, planning.body), graph, spec);
  CAD_TRY(memory, memory_within(budget, devices, spec, options));
  set_memory(planning.plan.predicted, memory);
  planning.plan.budget = budget;
  planning.least_peak = planning.plan.predicted.peak_bytes;
  return devices;
}

}  // namespace cad::cli
