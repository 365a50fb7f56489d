// planner/evaluate.cc -- what a plan costs by the tables of its problem, and by nothing else: the
// word on every plan that is found, fixed or tried (planner/problem.h).
#include <algorithm>

#include "planner/problem.h"

namespace cad::planner {

namespace {

struct Totals {
  Evaluation sum;
  double worst = 0;    // most that is alive for a moment: again + transient
  double again = 0;    // of it, what runs again: the most of any loop body
  double forward = 0;  // seconds of the forward pass alone
};

void add(Evaluation& to, const Evaluation& from, double times) {
  to.valid = to.valid && from.valid;
  to.compute += times * from.compute;
  to.recompute += times * from.recompute;
  to.communicate += times * from.communicate;
  to.parameters += times * from.parameters;
  to.optimizer += times * from.optimizer;
  to.bytes.parameters += times * from.bytes.parameters;
  to.bytes.gradients += times * from.bytes.gradients;
  to.bytes.optimizer += times * from.bytes.optimizer;
  to.bytes.saved += times * from.bytes.saved;
}

Totals evaluate_region(const Problem& p, int region, const BodyPlan& plan);

// Iterations in order; each one's exit hub is the next one's entry.
void evaluate_loop(const Problem& p, const RegionProblem::Child& child,
                   const std::vector<Run>& runs, int entry_choice, int exit_choice, Totals& into) {
  const RegionProblem& r = p.regions[static_cast<size_t>(child.region)];
  double iterations = 0;
  int at = entry_choice;
  std::vector<double> held, moment;  // by run: until its backward pass; in segments: during it
  for (const Run& run : runs) {
    const auto count = static_cast<double>(run.count);
    const bool again = run.segment > 0;
    held.push_back(0);
    moment.push_back(0);
    double saved = 0, worst = 0;  // of once through the pattern
    for (size_t i = 0; i < run.pattern.size(); ++i) {
      const BodyPlan& body = run.pattern[i];
      if (r.entry >= 0 && body.choices[static_cast<size_t>(r.entry)] != at) into.sum.valid = false;
      at = r.exit >= 0 ? body.choices[static_cast<size_t>(r.exit)] : -1;
      Totals once = evaluate_region(p, child.region, body);
      saved += once.sum.bytes.saved;
      worst = std::max(worst, once.worst);
      into.forward += count * once.forward;
      if (again) {
        once.sum.bytes.saved = 0;
        once.sum.recompute += once.forward;
      } else {
        into.worst = std::max(into.worst, once.worst);
        into.again = std::max(into.again, once.again);
      }
      add(into.sum, once.sum, count);
      iterations += count;
    }
    // back to the start of the pattern, unless it runs once
    if (run.count > 1 && r.entry >= 0 &&
        run.pattern.front().choices[static_cast<size_t>(r.entry)] != at)
      into.sum.valid = false;
    held.back() = count * saved;
    if (!again) continue;
    if (r.entry < 0 || run.pattern.size() != 1 || run.count % run.segment != 0) {
      into.sum.valid = false;
      continue;
    }
    // the carry before each segment is kept; where the body keeps it too, that is the same copy
    const VariableInfo& carry = r.variables[static_cast<size_t>(r.entry)];
    const auto choice = static_cast<size_t>(run.pattern[0].choices[static_cast<size_t>(r.entry)]);
    const auto segment = static_cast<double>(run.segment);
    held.back() = count / segment * static_cast<double>(carry.bytes[choice]);
    into.sum.bytes.saved += held.back();
    moment.back() = segment * saved + worst - static_cast<double>(carry.choices[choice].saved);
  }
  // what later iterations kept is gone when an earlier segment runs again
  double later = 0;
  for (size_t k = runs.size(); k-- > 0;) {
    if (runs[k].segment > 0) into.worst = std::max(into.worst, moment[k] - later);
    later += held[k];
  }
  if (r.entry >= 0 && at != exit_choice) into.sum.valid = false;
  if (iterations != r.trips) into.sum.valid = false;
}

Totals evaluate_region(const Problem& p, int region, const BodyPlan& plan) {
  const RegionProblem& r = p.regions[static_cast<size_t>(region)];
  Totals t;
  Evaluation& e = t.sum;
  double again = 0;
  std::vector<double> transient(r.variables.size(), 0);
  for (size_t v = 0; v < r.variables.size(); ++v) {
    if (static_cast<int>(v) == r.exit) continue;  // the next iteration's entry
    const Choice& c = r.variables[v].choices[static_cast<size_t>(plan.choices[v])];
    e.compute += static_cast<double>(c.terms.compute);
    e.recompute += static_cast<double>(c.terms.recompute);
    e.communicate += static_cast<double>(c.terms.communicate);
    e.parameters += static_cast<double>(c.terms.parameters);
    e.optimizer += static_cast<double>(c.terms.optimizer);
    e.bytes.parameters += static_cast<double>(c.parameters);
    e.bytes.gradients += static_cast<double>(c.gradients);
    e.bytes.optimizer += static_cast<double>(c.optimizer);
    e.bytes.saved += static_cast<double>(c.saved);
    t.forward += static_cast<double>(c.forward);
    transient[v] += static_cast<double>(c.transient);
    if (region == 0)
      transient[v] += static_cast<double>(c.again);
    else
      again += static_cast<double>(c.again);
  }
  for (const Pair& pair : r.pairs) {
    const int i = pair.class_a[static_cast<size_t>(plan.choices[static_cast<size_t>(pair.a)])];
    const int j = pair.class_b[static_cast<size_t>(plan.choices[static_cast<size_t>(pair.b)])];
    const auto seconds = static_cast<double>(pair.seconds(i, j));
    if (pair.seconds(i, j) == kNever) {
      e.valid = false;
      continue;
    }
    const auto part = static_cast<double>(pair.part(i, j));
    t.forward += static_cast<double>(pair.forward(i, j));
    if (pair.kind == Pair::Kind::kParam) {
      e.parameters += seconds;
    } else {
      e.recompute += part;
      e.communicate += seconds - part;
    }
    if (!pair.saved.at.empty()) e.bytes.saved += static_cast<double>(pair.saved(i, j));
    if (!pair.alive.at.empty())
      transient[static_cast<size_t>(pair.b)] += static_cast<double>(pair.alive(i, j));
  }
  // what runs again is there while the loops inside go through their backward pass, too
  for (size_t c = 0; c < r.children.size(); ++c) {
    const RegionProblem::Child& child = r.children[c];
    const auto choice = [&](int v) { return v < 0 ? -1 : plan.choices[static_cast<size_t>(v)]; };
    evaluate_loop(p, child, plan.loops[c], choice(child.entry), choice(child.exit), t);
  }
  t.again += again;
  t.worst += again;
  for (double b : transient) t.worst = std::max(t.worst, again + b);
  return t;
}

}  // namespace

Evaluation evaluate(const Problem& problem, const BodyPlan& plan) {
  Totals t = evaluate_region(problem, 0, plan);
  t.sum.bytes.again = t.again;
  t.sum.transient = t.worst - t.again;
  Evaluation& e = t.sum;
  e.hidden = problem.model.overlap * std::min(e.parameters, e.compute);
  e.seconds = e.compute + e.recompute + e.communicate + e.parameters - e.hidden + e.optimizer;
  t.sum.peak = t.sum.bytes.persistent() + t.sum.bytes.saved + t.worst;
  return t.sum;
}

std::array<double, 2> overlap_lines(const Problem& problem, const Evaluation& e) {
  const double rest = e.recompute + e.communicate + e.optimizer;
  const double seen = 1 - problem.model.overlap;
  return {rest + e.compute + seen * e.parameters, rest + seen * e.compute + e.parameters};
}

}  // namespace cad::planner
