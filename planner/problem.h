// planner/problem.h -- the joint problem on one mesh as nodes with choices and pair costs: what
// each site's split is, how each parameter, its gradient and its optimizer state are stored, which
// copy of a shared value is made, what is saved and what runs again. Built from the sites of a
// graph, strategies, conversions and the device; every plan, chosen or fixed, is priced by
// evaluate(). Not here: the search (planner/frontier.h), fixed assignments (planner/baselines.h).
//
//   site       (split, variant): planner/sites.h
//   hub        (layout, copy): the shared copy of a value with several users, of a loop's carry
//   parameter  (storage, gradient, optimizer state): three layouts; ZeRO-1/2/3 are points of it
//   sink       the loss, whole on every device
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/compute_cost.h"
#include "planner/conversion.h"
#include "planner/fold.h"
#include "planner/plan_rules.h"
#include "planner/sites.h"
#include "planner/strategy.h"

namespace cad::planner {

struct Training {
  ir::Bindings bindings;
  std::vector<double> state_bytes;  // optimizer state a parameter element, by input
  bool mixed = false;               // parameters are read in 16 bits
  double micro_batches = 1;
};

struct CostModel {
  std::function<double(const Work&)> seconds;  // of one kernel
  double memory_bandwidth = 1e12;              // for the optimizer's update
  // Part of the parameters' collectives that runs behind compute, at most as long as that compute:
  // planner/compute_cost.h.
  double overlap = 0;
  double attention_tile = 0;  // queries that a causal mask's skipping treats alike
  bool epilogues = true;      // products add biases and the like where they write their results
  bool every_contraction = false;  // leaves no axis unused by a contraction that can use it
};

// Seconds a step, split by what they are spent on. `parameters`: gathering them and reducing their
// gradients, of which some is hidden; see CostModel::overlap.
struct Terms {
  float compute = 0, recompute = 0, communicate = 0, parameters = 0, optimizer = 0;
};

// Bytes a device holds.
struct Bytes {
  double parameters = 0, gradients = 0, optimizer = 0;
  double saved = 0;  // from the forward pass until the backward
  double again = 0;  // alive again while their region's backward runs
  [[nodiscard]] double persistent() const { return parameters + gradients + optimizer; }
};

struct Choice {
  Terms terms;
  float parameters = 0, gradients = 0, optimizer = 0, saved = 0, again = 0, transient = 0;
  float forward = 0;  // seconds of its forward pass alone, collectives included
};

enum class Copy : uint8_t {
  kNone,
  kCopy,
  kVia
};  // of a hub in the backward pass: none, the copy
    // itself is saved, converted again

// A value that one node of a site gives in a layout in which another does not want it.
struct InsideConversion {
  ir::ValueId value;
  Layout from, to;
  int node = 0;  // that wants it: an index into Site::nodes
  bool gradient = false;
};

struct SiteOption {
  std::vector<int8_t> split;                 // by axis: index into VariableInfo::dims, -1 unused
  std::vector<int> inputs, params, outputs;  // layouts: indices of the values' tables
  std::vector<Assignment> assignments;       // by node of the site
  std::vector<Layout> results;               // by node: of its first result
  std::vector<InnerCollective> forward, backward;  // inside the site
  std::vector<int> forward_of;                     // by `forward`: the node that it belongs to
  std::vector<InsideConversion> inside;
  double forward_s = 0, backward_s = 0, forward_comm = 0, backward_comm = 0;
  std::vector<float> again_s;  // by node: seconds when only it runs again, collectives included
};

struct VariableInfo {
  enum class Kind : uint8_t { kSite, kHub, kParam, kSink } kind = Kind::kSite;
  int site = -1;      // kSite
  ir::ValueId value;  // kHub; kParam: as its user sees it
  int param = -1;     // kParam
  const ConversionTable* table = nullptr;
  // kSite: choices are options x variants of the site
  std::vector<SiteOption> options;
  std::vector<ir::DimId> dims;
  std::vector<int> one_of;  // by dim: the index that splits use for it and what it is renamed to
  // by choice
  std::vector<int> option, variant;      // kSite
  std::vector<int> layout;               // kHub: of the copy; kParam: storage
  std::vector<Copy> copy;                // kHub
  std::vector<float> bytes;              // kHub: of a copy in this layout
  std::vector<int> gradient, optimizer;  // kParam: layouts; gradient -1: summed locally
  std::vector<Choice> choices;
  std::string name;
};

// Pair costs. Rows are classes of a's choices, columns of b's.
struct Pair {
  int a = 0, b = 0;  // positions in Region::variables
  std::vector<int32_t> class_a, class_b;
  Table seconds;
  Table part;     // of it: for parameters their gradients' reduction, else what runs again
  Table forward;  // of it: the forward pass alone
  Table saved;    // bytes; empty: none
  Table alive;    // bytes for a moment (gathered parameters, whole gradients); empty: none
  // what it is, for listings
  enum class Kind : uint8_t { kConvert, kParam, kHubToSite, kEqual } kind = Kind::kConvert;
  const ConversionTable* table = nullptr;
  bool gradient = false;
  std::vector<std::pair<int, int>> row, column;  // (layout, availability) of each class
};

struct RegionProblem {
  ir::RegionId region;
  double trips = 1;  // of this loop alone
  std::vector<VariableInfo> variables;
  std::vector<Pair> pairs;
  int entry = -1, exit = -1;  // hubs of the carry, for a body that carries
  struct Child {
    int region = -1;            // index into Problem::regions
    int entry = -1, exit = -1;  // variables of this region
    int loop = -1;              // index into SiteGraph::loops
  };
  std::vector<Child> children;
};

struct Problem {
  const ir::Graph* graph = nullptr;
  const SiteGraph* sites = nullptr;
  Mesh mesh;
  std::unique_ptr<Conversions> conversions;
  Training training;
  CostModel model;
  PlanRules rules;  // what was left out for them: planner/plan_rules.h
  Extents extents;
  std::vector<RegionProblem> regions;  // [0] is the top level
  // Names of ops and parameters whose annotations this mesh cannot honour; nothing can be searched
  // then.
  std::vector<std::string> impossible;
};

Problem make_problem(const SiteGraph& sites, const Mesh& mesh, const Training& training,
                     const CostModel& model, const PlanRules& rules = {});

// Choices of one execution of a region.
struct BodyPlan;
struct Run {
  int64_t count = 1;              // how often the pattern is run through
  std::vector<BodyPlan> pattern;  // one or two iterations
  // > 0: of every `segment` iterations only the carry before them is kept in the forward pass.
  // Before their backward pass they run forward again, keeping what their choices say. `count` is a
  // multiple of it, the pattern one iteration.
  int64_t segment = 0;
};
struct BodyPlan {
  std::vector<int> choices;             // by variable
  std::vector<std::vector<Run>> loops;  // by child
};

struct Evaluation {
  bool valid = true;  // no forbidden pair
  double seconds = 0;
  double compute = 0, recompute = 0, communicate = 0, parameters = 0, optimizer = 0;
  double hidden = 0;  // of `parameters`, behind compute
  Bytes bytes;
  double transient = 0;
  double peak = 0;
};
// From the tables alone: shares nothing with the search.
Evaluation evaluate(const Problem& problem, const BodyPlan& plan);
// Seconds are the larger of two sums: of the parameters' collectives only what overlap leaves of
// them counts, or of compute only what those leave of it.
std::array<double, 2> overlap_lines(const Problem& problem, const Evaluation& e);

}  // namespace cad::planner
