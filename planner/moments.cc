// planner/moments.cc -- see moments.h.
#include "planner/moments.h"

#include <algorithm>
#include <limits>

namespace cad::planner {

namespace {

void add_region(const Problem& p, size_t region, const BodyPlan& plan, double times,
                Moments& into) {
  const RegionProblem& r = p.regions[region];
  std::vector<double> moment(r.variables.size(), 0);
  double again = 0;
  for (size_t v = 0; v < r.variables.size(); ++v) {
    if (static_cast<int>(v) == r.exit) continue;
    const Choice& c = r.variables[v].choices[static_cast<size_t>(plan.choices[v])];
    moment[v] += static_cast<double>(c.transient);
    (region == 0 ? moment[v] : again) += static_cast<double>(c.again);
  }
  for (const Pair& pair : r.pairs) {
    if (pair.alive.at.empty() || pair.b == r.exit) continue;
    const int i = pair.class_a[static_cast<size_t>(plan.choices[static_cast<size_t>(pair.a)])];
    const int j = pair.class_b[static_cast<size_t>(plan.choices[static_cast<size_t>(pair.b)])];
    moment[static_cast<size_t>(pair.b)] += static_cast<double>(pair.alive(i, j));
  }
  for (size_t v = 0; v < moment.size(); ++v) {
    if (static_cast<int>(v) != r.exit) into[region][v] += times * (moment[v] + again);
  }
  for (size_t c = 0; c < r.children.size(); ++c) {
    const auto child = static_cast<size_t>(r.children[c].region);
    for (const Run& run : plan.loops[c]) {
      const double part = times * static_cast<double>(run.count) / p.regions[child].trips;
      for (const BodyPlan& body : run.pattern) add_region(p, child, body, part, into);
    }
  }
}

}  // namespace

Moments mean_moments(const Problem& problem, const BodyPlan& plan) {
  Moments out;
  for (const RegionProblem& r : problem.regions) out.emplace_back(r.variables.size(), 0.0);
  add_region(problem, 0, plan, 1, out);
  return out;
}

double least_moment(const RegionProblem& region) {
  double most = 0;
  for (const VariableInfo& v : region.variables) {
    double least = std::numeric_limits<double>::infinity();
    for (const Choice& c : v.choices) least = std::min(least, static_cast<double>(c.transient));
    most = std::max(most, least);
  }
  return most;
}

}  // namespace cad::planner
