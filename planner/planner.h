// planner/planner.h -- the planner's front door: a training step on a machine within a budget, to a
// plan. Tries every mesh, drops those whose bound is above the best plan found, lists the named
// baselines beside it. The mathematics: docs/planner.md.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/training.h"
#include "planner/cluster.h"
#include "planner/plan.h"

namespace cad::planner {

// What the planner needs to know of a train section: bytes of optimizer state, precision, batches.
Training training_of(const ir::TrainSpec& spec, const ir::Graph& graph);
CostModel cost_model(const Device& device, const CostConstants& constants = fitted_constants());

struct PlanRequest {
  const ir::Graph* graph = nullptr;  // forward, of one micro-batch, after passes_before_autodiff()
  Training training;
  Cluster cluster;
  std::vector<Mesh> meshes;   // candidates, all of the same number of devices
  double budget = 0;          // bytes a device
  std::string name = "auto";  // or a baseline
  bool alternatives = true;   // price the baselines too
  double rows = 0;
  bool idle = true;  // one device alone is a candidate too, where that is faster, and for `auto`
  std::vector<Mesh> fewer;           // these, of fewer devices: the others stay idle
  PlanRules rules;                   // of the program; a baseline knows none
  bool try_least = true;             // the least budget that is named is searched for, and does
  bool segments = false;             // loops may run iterations again in segments (Run::segment)
  double proof_s = 2;                // for each of at most three meshes, where the gap is above 1 %
  int64_t proof_work = 500'000'000;  // and by labels before (planner/exact_proof.h), of all meshes
};

struct Planning {
  bool feasible = false;
  Plan plan;                         // without a feasible one: that of the least peak
  std::shared_ptr<SiteGraph> sites;  // what `problem` refers to
  std::shared_ptr<Problem> problem;  // of the plan's mesh
  BodyPlan body;
  double price = 0;       // seconds a byte, at which it was found
  double least_peak = 0;  // bytes: the least budget with a plan, as far as was searched
  std::vector<std::string> impossible;    // ops whose annotations no mesh (so far) can honour
  std::vector<std::string> contributors;  // "parameters 4.0 GB", largest first, of that plan
};
// With the request's rules as they are; plan_by_rules() (planner/plan_rules.h) also gives way where
// they leave no plan, and says what they do.
Planning make_plan(const PlanRequest& request);

// All plans of baselines, or of the one that the request names: of every mesh and order of its
// axes, with and without recomputation, whatever they need; the fastest first. The alternatives of
// each are one row, itself.
std::vector<Planning> baseline_plans(const PlanRequest& request);

}  // namespace cad::planner
