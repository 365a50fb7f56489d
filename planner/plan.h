// planner/plan.h -- a plan as a value: the mesh, a split for every op, a layout for every tensor,
// the conversions between them, what is saved and what runs again, and what all that is predicted
// to cost. It prints (plan_text.h), saves and loads as JSON (plan_json.h), and holds all that
// lowering to a program of one device needs. Names, not numbers of this process: dims and axes by
// name, ops by path and node id of the forward graph after passes_before_autodiff().
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/placement.h"

namespace cad::planner {

constexpr int kPlanSchema = 1;

// Per mesh axis: the dim that it splits, "" replicated, "+" partial.
using NamedLayout = std::vector<std::string>;

struct PlanTensor {
  std::string path;  // of a parameter; of an activation its op's path, then ":name" if it has one
  std::string role;  // "parameter", "gradient", "optimizer", "activation"
  std::vector<std::string> dims;
  NamedLayout layout;
  double bytes = 0;  // on a device; of one iteration
  int body = 0;      // index into Plan::bodies
};

// One collective of one tensor.
struct PlanStep {
  std::string kind;               // "all-gather", ..
  std::vector<std::string> axes;  // by name
  double bytes = 0, seconds = 0;
};

struct PlanOp {
  std::string path, op;
  int node = -1;         // id in the forward graph
  int group = -1;        // ops of one group run as one kernel
  NamedLayout strategy;  // per mesh axis: the dim that the op's loops are split by; "" unused
  std::string saved;     // "saved", "recomputed", "" (not needed in the backward pass)
  int body = 0;
  // Of the whole group, at its last op; of one execution of the body, all micro-batches.
  double forward_s = 0, backward_s = 0, recompute_s = 0;  // without collectives but in recompute_s
  double saved_bytes = 0;                                 // kept for the backward pass
  double transient_bytes = 0;                             // alive while its backward pass runs
  // Inside the group, for one micro-batch: sums of a softmax over a split dim, say.
  std::vector<PlanStep> forward_steps, backward_steps;
};

// Steps from one layout to another; what a lowering inserts between two ops.
struct PlanConversion {
  std::string value, to;  // path of the value, of its user
  std::string phase;      // "forward", "backward", "recompute", "update"
  NamedLayout from_layout, to_layout;
  std::vector<PlanStep> steps;
  double count = 1;  // times a step
  int body = 0;
  bool parameter = false;
  int group = -1;       // of ops, that waits for it; -1: of the update
  bool inside = false;  // between two ops of the group: its recompute_s holds it
  // Where no op waits for it, but a loop's carry is converted: of the body, the number of the loop
  // that starts after it; that of its loops: none does.
  int loop = -1;
};

// One kind of collective, summed up over a training step.
struct PlanCollective {
  std::string kind, axis;  // axes joined by "+"
  std::string phase;
  double bytes = 0;  // of one, on average
  double count = 0;
  double seconds = 0;  // of all
};

// One stretch of a region's iterations with the same choices. Body 0 is the top level.
struct PlanBody {
  std::string path;  // of the loop, "h"; empty: the top level
  int parent = -1;
  int64_t count = 1;       // how often its pattern runs
  int period = 1;          // iterations of the pattern
  int position = 0;        // within the pattern
  int run = 0;             // number of the run within the loop
  int after = 0;           // groups of the parent that run before the loop
  double saved_bytes = 0;  // that no op of the body accounts for: what enters an iteration
  double again_bytes = 0;  // alive while an iteration's backward pass runs
  // > 0: of every so many times through the pattern only the carry before them is kept in the
  // forward pass. They run forward again before their backward pass, and what `ops` calls saved is
  // saved then, until that backward pass is over.
  int64_t segment = 0;
};

struct Predicted {
  double step_s = 0, compute_s = 0, comm_s = 0, exposed_comm_s = 0, recompute_s = 0;
  double optimizer_s = 0;
  double peak_bytes = 0, params_bytes = 0, grads_bytes = 0, optimizer_bytes = 0;
  double activation_bytes = 0;  // saved for the backward pass
  double transient_bytes = 0;   // alive for a moment at the peak
};

struct SolverReport {
  std::string name, status;  // "optimal", "within the gap", "feasible", "fixed", "infeasible"
  double objective = 0, bound = 0, gap = 0, wall_s = 0;
  int64_t columns = 0, rows = 0, meshes = 0, meshes_dropped = 0;
  // The gap, and what it is called, of `objective` over this bound.
  void prove(double seconds);
};

struct Alternative {
  std::string name;  // "dp", "zero2 + recompute"
  std::string mesh;
  bool feasible = false;
  double step_s = 0, peak_bytes = 0;
  std::string why;  // it is not there: "batch 6 does not split over 4"
};

// One row a name, the fastest that fits, or else the one that needs least; those that fit first.
std::vector<Alternative> best_rows(const std::vector<Alternative>& rows);

struct Plan {
  std::string name = "auto";
  std::string cluster;
  int devices = 1;    // that the plan uses
  int offered = 1;    // that were asked for: the rest stays idle
  double budget = 0;  // bytes a device
  double memory = 0;  // of the device
  double rows = 0;    // batch rows of a step
  double micro_batches = 1;
  std::vector<Axis> axes;
  Predicted predicted;
  SolverReport solver;
  std::vector<PlanBody> bodies;
  std::vector<PlanTensor> tensors;
  std::vector<PlanOp> ops;
  std::vector<PlanConversion> conversions;
  std::vector<PlanCollective> collectives;
  std::vector<Alternative> alternatives;
  std::vector<std::string> notes;
  // For running it: of the graph and sizes that the digest stands for (planner/placement_json.h).
  BodyPlacement placement;
  std::string digest;
};

// Everything but solver and alternatives.
Plan describe(const Problem& problem, const BodyPlan& plan);

}  // namespace cad::planner
