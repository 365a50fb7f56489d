// tests/planner/random_problem.h -- joint problems that come from no model: a top level and one or
// two small loops (within each other or one after the other) with random seconds and bytes, small
// enough to count out every plan. Everything that evaluate() knows is in them: both lines of
// overlap, bytes that are held, that run again, that are alive for a moment, pairs that save,
// forbidden pairs, parameters of one site and of two.
#pragma once

#include <functional>
#include <random>
#include <vector>

#include "planner/problem.h"

namespace cad::planner {

class RandomProblem {
 public:
  explicit RandomProblem(uint32_t seed) : random_(seed) {
    problem_.model.overlap = pick({0, 50, 83, 100}) / 100.0;
    problem_.regions.emplace_back();
    states_ = pick({1, 2, 2, 3});
    const int shape = static_cast<int>(random_() % 4);
    int hub = site_with_hub(0, -1);
    if (shape == 3) {
      loop_without_carry();
    } else {
      hub = add_loop(0, hub, shape == 2);
      if (shape == 1) hub = add_loop(0, hub, false);
    }
    const int last = site(0, pick({1, 2}));
    pair(0, hub, last, false);
    shared_parameter(0, last);
  }

  [[nodiscard]] const Problem& problem() const { return problem_; }
  // A parameter that two sites gather: what is alive for a moment at one site is then a sum of
  // parts that labels know apart only as a maximum.
  [[nodiscard]] bool shared() const { return shared_; }

  // Every plan that is no contradiction, one by one; false: more than `most`.
  bool plans(size_t most, std::vector<BodyPlan>& out) const { return bodies(0, most, out); }

 private:
  int pick(std::initializer_list<int> values) {
    return *(values.begin() + random_() % values.size());
  }
  // Eighths, so that sums are exact; often equal, often zero.
  float seconds() { return static_cast<float>(random_() % 3 == 0 ? 0 : random_() % 40) / 8; }
  float bytes() { return static_cast<float>(random_() % 3 == 0 ? 0 : random_() % 24); }

  RegionProblem& region(int r) { return problem_.regions[static_cast<size_t>(r)]; }

  int add(int r, VariableInfo::Kind kind, int choices) {
    VariableInfo v;
    v.kind = kind;
    for (int i = 0; i < choices; ++i) {
      Choice c;
      if (kind == VariableInfo::Kind::kSite) {
        c.terms.compute = seconds();
        c.terms.recompute = seconds();
        c.again = bytes();
        c.saved = bytes();
        c.transient = bytes();
      } else if (kind == VariableInfo::Kind::kHub) {
        c.terms.communicate = seconds();
        c.saved = bytes();
        c.again = bytes() / 2;
      } else {
        c.terms.parameters = seconds();
        c.terms.optimizer = seconds();
        c.parameters = bytes();
        c.gradients = bytes();
        c.optimizer = bytes();
      }
      v.choices.push_back(c);
      v.option.push_back(i);
      v.layout.push_back(i);
    }
    region(r).variables.push_back(std::move(v));
    return static_cast<int>(region(r).variables.size()) - 1;
  }

  // Between a (rows) and b (columns), over classes that some choices share.
  void pair(int r, int a, int b, bool parameter) {
    const auto size = [&](int v) {
      return static_cast<int>(region(r).variables[static_cast<size_t>(v)].choices.size());
    };
    Pair p;
    p.a = a;
    p.b = b;
    p.kind = parameter ? Pair::Kind::kParam : Pair::Kind::kConvert;
    const int rows = 1 + static_cast<int>(random_() % static_cast<uint32_t>(size(a)));
    const int columns = 1 + static_cast<int>(random_() % static_cast<uint32_t>(size(b)));
    for (int i = 0; i < size(a); ++i) p.class_a.push_back(i < rows ? i : i % rows);
    for (int i = 0; i < size(b); ++i) p.class_b.push_back(i < columns ? i : i % columns);
    p.seconds = p.part = p.forward = Table(rows, columns, 0);
    const bool saves = !parameter && random_() % 3 == 0;
    if (saves) p.saved = Table(rows, columns, 0);
    if (parameter) p.alive = Table(rows, columns, 0);
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < columns; ++j) {
        p.seconds(i, j) = i > 0 && random_() % 9 == 0 ? kNever : seconds();
        if (saves) p.saved(i, j) = bytes();
        if (parameter) p.alive(i, j) = bytes();
      }
    }
    region(r).pairs.push_back(std::move(p));
  }

  int site(int r, int choices) {
    const int v = add(r, VariableInfo::Kind::kSite, choices);
    if (random_() % 2 == 0) {
      const int parameter = add(r, VariableInfo::Kind::kParam, pick({1, 2}));
      pair(r, parameter, v, true);
    }
    return v;
  }

  // A site and the hub of its result; `from`: what it reads.
  int site_with_hub(int r, int from) {
    const int v = site(r, pick({1, 2}));
    if (from >= 0) pair(r, from, v, false);
    const int hub = add(r, VariableInfo::Kind::kHub, states_);
    pair(r, v, hub, false);
    return hub;
  }

  // Returns the hub of the carry after the loop.
  int add_loop(int r, int entry, bool nested) {
    const int exit = add(r, VariableInfo::Kind::kHub, states_);
    const auto body = static_cast<int>(problem_.regions.size());
    problem_.regions.emplace_back();
    region(r).children.push_back({body, entry, exit, -1});
    region(body).trips = nested ? 2 : pick({1, 2, 3, 4});
    const int first = add(body, VariableInfo::Kind::kHub, states_);
    region(body).entry = first;
    int at = first;
    if (nested) at = add_loop(body, at, false);
    const int v = site(body, nested ? 1 : pick({1, 2, 3}));
    pair(body, at, v, false);
    region(body).variables.push_back(
        region(body).variables[static_cast<size_t>(first)]);  // the next iteration's entry
    const auto last = static_cast<int>(region(body).variables.size()) - 1;
    region(body).exit = last;
    pair(body, v, last, false);
    if (random_() % 2 == 0) pair(body, at, last, false);  // a residual
    return exit;
  }

  void loop_without_carry() {
    const auto body = static_cast<int>(problem_.regions.size());
    problem_.regions.emplace_back();
    region(0).children.push_back({body, -1, -1, -1});
    region(body).trips = pick({1, 2, 3});
    site(body, pick({2, 3}));
  }

  void shared_parameter(int r, int last) {
    if (random_() % 4 != 0) return;
    shared_ = true;
    const int parameter = add(r, VariableInfo::Kind::kParam, 2);
    pair(r, parameter, 0, true);
    pair(r, parameter, last, true);
  }

  // All choices of a region, and for each all ways through its loops.
  bool bodies(size_t r, size_t most, std::vector<BodyPlan>& out) const {
    const RegionProblem& region = problem_.regions[r];
    std::vector<std::vector<BodyPlan>> inner(region.children.size());
    for (size_t c = 0; c < inner.size(); ++c) {
      if (!bodies(static_cast<size_t>(region.children[c].region), most, inner[c])) return false;
    }
    BodyPlan plan;
    plan.choices.assign(region.variables.size(), 0);
    while (true) {
      std::vector<BodyPlan> done = {plan};
      for (size_t c = 0; c < inner.size(); ++c) {
        std::vector<BodyPlan> next;
        for (const BodyPlan& so_far : done) {
          if (!ways(region.children[c], inner[c], so_far, most, next)) return false;
        }
        done = std::move(next);
      }
      out.insert(out.end(), done.begin(), done.end());
      if (out.size() > most) return false;
      size_t v = 0;
      while (v < plan.choices.size() &&
             ++plan.choices[v] == static_cast<int>(region.variables[v].choices.size()))
        plan.choices[v++] = 0;
      if (v == plan.choices.size()) return true;
    }
  }

  // A plan with every sequence of iterations from the carry before a loop to the one after it.
  bool ways(const RegionProblem::Child& child, const std::vector<BodyPlan>& iterations,
            const BodyPlan& plan, size_t most, std::vector<BodyPlan>& out) const {
    const RegionProblem& r = problem_.regions[static_cast<size_t>(child.region)];
    const auto trips = static_cast<size_t>(r.trips);
    std::vector<Run> runs;
    const auto choice = [](const BodyPlan& p, int v) {
      return v < 0 ? -1 : p.choices[static_cast<size_t>(v)];
    };
    const std::function<bool(int)> extend = [&](int at) {
      if (runs.size() == trips) {
        if (at != choice(plan, child.exit)) return true;
        out.push_back(plan);
        out.back().loops.push_back(runs);
        return out.size() <= most;
      }
      for (const BodyPlan& body : iterations) {
        if (choice(body, r.entry) != at) continue;
        runs.push_back({1, {body}});
        if (!extend(choice(body, r.exit))) return false;
        runs.pop_back();
      }
      return true;
    };
    return extend(choice(plan, child.entry));
  }

  std::mt19937 random_;
  Problem problem_;
  int states_ = 1;
  bool shared_ = false;
};

}  // namespace cad::planner
