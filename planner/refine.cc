// planner/refine.cc -- see refine.h.
#include "planner/refine.h"

#include <algorithm>

namespace cad::planner {

namespace {

constexpr size_t kMostSiblings = 40;
constexpr int kMostChanges = 60;

// Runs of which single iterations can be changed: all of a short loop, one of each run of a long
// one.
std::vector<Run> loosened(const std::vector<Run>& runs) {
  int64_t total = 0;
  for (const Run& run : runs) total += run.count;
  std::vector<Run> out;
  for (const Run& run : runs) {
    if (run.count == 1 || run.pattern.size() > 1) {
      out.push_back(run);
    } else if (total <= 12) {
      for (int64_t i = 0; i < run.count; ++i) out.push_back({1, run.pattern});
    } else {
      out.push_back({run.count - 1, run.pattern});
      out.push_back({1, run.pattern});
    }
  }
  return out;
}

// Choices that differ from this one only in what is kept, and other ways to store a parameter.
std::vector<int> siblings(const Problem& p, size_t region, size_t variable, int choice) {
  const RegionProblem& r = p.regions[region];
  const VariableInfo& v = r.variables[variable];
  const auto c = static_cast<size_t>(choice);
  const bool few = v.choices.size() <= kMostSiblings;
  std::vector<int> out;
  const auto index = static_cast<int>(variable);
  if (index == r.entry || index == r.exit) return out;
  for (const RegionProblem::Child& child : r.children) {
    if (child.entry == index || child.exit == index) return out;
  }
  for (size_t i = 0; i < v.choices.size(); ++i) {
    if (i == c) continue;
    if (v.kind == VariableInfo::Kind::kSite  ? v.option[i] == v.option[c]
        : v.kind == VariableInfo::Kind::kHub ? v.layout[i] == v.layout[c]
                                             : v.kind == VariableInfo::Kind::kParam && few)
      out.push_back(static_cast<int>(i));
  }
  return out;
}

// The change of a plan that is worth most: seconds saved a byte more.
struct Change {
  double score = 0;
  int* place = nullptr;
  int choice = 0;
};

// `body`: a part of `plan`, of which it is tried what it may change.
void try_body(const Problem& p, size_t region, BodyPlan& body, const BodyPlan& plan,
              const Evaluation& e, double budget, Change& best) {
  for (size_t v = 0; v < body.choices.size(); ++v) {
    const int old = body.choices[v];
    for (const int other : siblings(p, region, v, old)) {
      body.choices[v] = other;
      const Evaluation changed = evaluate(p, plan);
      if (!changed.valid || changed.peak > budget || changed.seconds >= e.seconds * (1 - 1e-9))
        continue;
      const double score = (e.seconds - changed.seconds) / std::max(changed.peak - e.peak, 1.0);
      if (score > best.score) best = {score, &body.choices[v], other};
    }
    body.choices[v] = old;
  }
}

}  // namespace

BodyPlan refined(const Problem& p, BodyPlan plan, double budget) {
  for (std::vector<Run>& loop : plan.loops) loop = loosened(loop);
  Evaluation e = evaluate(p, plan);
  if (!e.valid || e.peak > budget) return plan;
  for (int round = 0; round < kMostChanges; ++round) {
    Change best;
    try_body(p, 0, plan, plan, e, budget, best);
    for (size_t c = 0; c < plan.loops.size(); ++c) {
      const auto region = static_cast<size_t>(p.regions[0].children[c].region);
      for (Run& run : plan.loops[c]) {
        for (BodyPlan& body : run.pattern) try_body(p, region, body, plan, e, budget, best);
      }
    }
    if (best.place == nullptr) break;
    *best.place = best.choice;
    e = evaluate(p, plan);
  }
  return plan;
}

}  // namespace cad::planner
