// tests/equivalence/plans.h -- placements of a model on a mesh: of every named baseline, with and
// without recomputation, of `auto`, as it likes, under `checkpoint: all` and within a budget, and
// at random.
#pragma once

#include "planner/baselines.h"
#include "tests/equivalence/device_runs.h"
#include "tests/planner/joint_testing.h"
#include "tests/spmd/random_placement.h"

namespace cad::backend {

inline const std::vector<std::vector<int>>& line_meshes() {
  static const std::vector<std::vector<int>> kMeshes = {{1}, {2}, {3}, {4}, {8}};
  return kMeshes;
}
inline const std::vector<std::vector<int>>& grid_meshes() {
  static const std::vector<std::vector<int>> kMeshes = {{2, 2}, {2, 4}, {2, 2, 2}};
  return kMeshes;
}

inline int devices_of(const std::vector<int>& sizes) {
  int devices = 1;
  for (const int size : sizes) devices *= size;
  return devices;
}

class PlansOf {
 public:
  static constexpr double kAmple = 1e15;
  PlansOf(const Reference& model, const std::vector<int>& sizes)
      : model_(model),
        training_(planner::training_of(model.spec, model.forward)),
        // slow devices: it pays to split
        cluster_(planner::equal_links(devices_of(sizes), 1e9, 1e-7, 1e7)),
        mesh_(planner::mesh_of(cluster_, sizes)),
        problem_(planner::make_problem(model.sites, mesh_, training_,
                                       planner::cost_model(cluster_.device), {})) {}

  [[nodiscard]] const planner::Mesh& mesh() const { return mesh_; }

  // `why`: set when the sizes of the model do not allow it.
  std::optional<planner::Placement> baseline(const std::string& name, bool again,
                                             std::string& why) const {
    const bool loops = problem_.regions.size() > 1;
    const planner::BaselineResult result = planner::baseline(problem_, name, again && loops);
    why = result.why;
    if (!result.plan) return std::nullopt;
    planner::Placement placement = planner::placement_of(problem_, *result.plan);
    // The planner recomputes in loops; without any, all is to run again.
    if (again && !loops) {
      for (size_t v = 0; v < model_.forward.values.size(); ++v)
        placement.top.saving[static_cast<int>(v)] = ir::Saving::kRecompute;
    }
    return placement;
  }

  // nullopt: the planner finds none within the budget.
  [[nodiscard]] std::optional<planner::Placement> automatic(
      planner::Checkpointing checkpointing = planner::Checkpointing::kAuto,
      double budget = kAmple) const {
    const planner::Planning planning = plan(checkpointing, budget);
    if (!planning.feasible) return std::nullopt;
    return planner::placement_of(*planning.problem, planning.body);
  }
  // Where memory is scarce loops may run again in segments.
  [[nodiscard]] planner::Planning plan(planner::Checkpointing checkpointing, double budget) const {
    planner::PlanRequest request;
    request.graph = &model_.forward;
    request.training = training_;
    request.cluster = cluster_;
    request.meshes = {mesh_};
    request.budget = budget;
    request.segments = budget < kAmple;
    request.alternatives = false;
    request.idle = false;
    request.proof_s = 0;
    request.rules.checkpointing = checkpointing;
    return planner::make_plan(request);
  }

  [[nodiscard]] planner::Placement random(uint32_t seed) const {
    return RandomPlacement(model_.forward, model_.extents, mesh_, seed).make();
  }

 private:
  const Reference& model_;
  planner::Training training_;
  planner::Cluster cluster_;
  planner::Mesh mesh_;
  planner::Problem problem_;
};

// Bytes that a placement needs on a device.
inline int64_t bytes_of(const Reference& model, const std::string& name,
                        const planner::Placement& placement, int64_t budget = 0) {
  const auto trainer = compiled(model, name, placement, budget, true);
  return trainer == nullptr ? 0 : trainer->memory().total;
}

// A trainer by `auto` that needs no more than so many bytes; the plan is made again as long as its
// program comes out larger. nullptr: no plan does it.
inline std::unique_ptr<Trainer> within_budget(const Reference& model, const PlansOf& plans,
                                              int64_t budget) {
  const std::string name = "auto within a budget";
  double share = 1;
  for (int i = 0; i < 3; ++i) {
    const auto placement =
        plans.automatic(planner::Checkpointing::kAuto, static_cast<double>(budget) * share);
    if (!placement) return nullptr;
    const int64_t bytes = bytes_of(model, name, *placement, budget);
    if (bytes <= budget) return compiled(model, name, *placement, budget);
    share *= 0.98 * static_cast<double>(budget) / static_cast<double>(bytes);
  }
  return nullptr;
}

}  // namespace cad::backend
