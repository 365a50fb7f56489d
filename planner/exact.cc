// planner/exact.cc -- see exact.h. Times are numbered by variable, iteration after iteration: what
// is held is in use all the time, what is alive for a moment at its variable's time, and what runs
// again at all times of its iteration. So the solver's peak is evaluate()'s.
#include "planner/exact.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace cad::planner {

namespace {

class Unroller {
 public:
  explicit Unroller(const Problem& p) : p_(p) {}

  [[nodiscard]] bool possible(size_t most_choices) const {
    size_t total = 0;
    for (size_t r = 0; r < p_.regions.size(); ++r) {
      if (r > 0 && (!p_.regions[r].children.empty() || p_.regions[r].entry < 0)) return false;
      size_t choices = 0;
      for (const VariableInfo& v : p_.regions[r].variables) choices += v.choices.size();
      total += choices * static_cast<size_t>(p_.regions[r].trips);
    }
    return total <= most_choices;
  }

  solver::Problem run(double budget) {
    const RegionProblem& top = p_.regions[0];
    top_ = variables(0);
    for (const RegionProblem::Child& child : top.children) {
      const RegionProblem& r = p_.regions[static_cast<size_t>(child.region)];
      const auto n = static_cast<size_t>(r.trips);
      std::vector<std::vector<int>> copies;
      for (size_t i = 0; i < n; ++i) {
        const int64_t from = time_;
        copies.push_back(variables(static_cast<size_t>(child.region),
                                   i == 0 ? top_[static_cast<size_t>(child.entry)]
                                          : copies.back()[static_cast<size_t>(r.exit)],
                                   i + 1 == n ? top_[static_cast<size_t>(child.exit)] : -1));
        live_again(r, copies.back(), from, time_);
      }
      bodies_.push_back(std::move(copies));
    }
    for (size_t c = 0; c < top.children.size(); ++c) {
      for (const std::vector<int>& copy : bodies_[c])
        pairs(p_.regions[static_cast<size_t>(top.children[c].region)], copy);
    }
    pairs(top, top_);
    for (solver::Node& node : out_.nodes) {
      for (solver::Life& life : node.lives) {
        if (life.to < 0) life.to = std::max<int64_t>(1, time_);
      }
    }
    if (std::isfinite(budget)) out_.budget = static_cast<int64_t>(std::floor(budget));
    return std::move(out_);
  }

  [[nodiscard]] BodyPlan plan(const std::vector<int>& choices) const {
    const auto of = [&](const std::vector<int>& nodes) {
      std::vector<int> list;
      list.reserve(nodes.size());
      for (const int n : nodes) list.push_back(choices[static_cast<size_t>(n)]);
      return list;
    };
    BodyPlan plan;
    plan.choices = of(top_);
    for (const auto& copies : bodies_) {
      std::vector<Run> runs;
      for (const std::vector<int>& copy : copies) {
        BodyPlan body;
        body.choices = of(copy);
        if (!runs.empty() && runs.back().pattern[0].choices == body.choices)
          ++runs.back().count;
        else
          runs.push_back({1, {body}});
      }
      plan.loops.push_back(std::move(runs));
    }
    return plan;
  }

 private:
  static int64_t bytes(double b) { return static_cast<int64_t>(std::ceil(b - 1e-6)); }

  // Nodes of one execution of a region; the carry's hubs may be there already.
  std::vector<int> variables(size_t region, int entry = -1, int exit = -1) {
    const RegionProblem& r = p_.regions[region];
    std::vector<int> nodes;
    for (size_t v = 0; v < r.variables.size(); ++v) {
      const auto index = static_cast<int>(v);
      int node = index == r.entry ? entry : index == r.exit ? exit : -1;
      if (node < 0) {
        node = static_cast<int>(out_.nodes.size());
        out_.nodes.emplace_back();
        out_.nodes.back().cost.assign(r.variables[v].choices.size(), 0);
      }
      if (index != r.exit) pay(out_.nodes[static_cast<size_t>(node)], r.variables[v], region);
      nodes.push_back(node);
      ++time_;
    }
    return nodes;
  }

  void pay(solver::Node& node, const VariableInfo& v, size_t region) {
    solver::Life held{0, -1, {}}, moment{time_, time_ + 1, {}};
    bool any = false;
    for (size_t i = 0; i < v.choices.size(); ++i) {
      const Choice& c = v.choices[i];
      node.cost[i] += static_cast<double>(c.terms.compute) +
                      static_cast<double>(c.terms.recompute) +
                      static_cast<double>(c.terms.communicate) +
                      (1 - p_.model.overlap) * static_cast<double>(c.terms.parameters) +
                      static_cast<double>(c.terms.optimizer);
      held.use.push_back(bytes(static_cast<double>(c.parameters) +
                               static_cast<double>(c.gradients) + static_cast<double>(c.optimizer) +
                               static_cast<double>(c.saved)));
      moment.use.push_back(bytes(static_cast<double>(c.transient) +
                                 (region == 0 ? static_cast<double>(c.again) : 0)));
      any = any || moment.use.back() > 0 || v.kind == VariableInfo::Kind::kSite;
    }
    node.lives.push_back(std::move(held));
    if (any) node.lives.push_back(std::move(moment));
  }

  void live_again(const RegionProblem& r, const std::vector<int>& nodes, int64_t from, int64_t to) {
    for (size_t v = 0; v < r.variables.size(); ++v) {
      if (static_cast<int>(v) == r.exit) continue;
      solver::Life life{from, to, {}};
      bool any = false;
      for (const Choice& c : r.variables[v].choices) {
        life.use.push_back(bytes(static_cast<double>(c.again)));
        any = any || life.use.back() > 0;
      }
      if (any) out_.nodes[static_cast<size_t>(nodes[v])].lives.push_back(std::move(life));
    }
  }

  void pairs(const RegionProblem& r, const std::vector<int>& nodes) {
    for (const Pair& pair : r.pairs) {
      const int a = nodes[static_cast<size_t>(pair.a)], b = nodes[static_cast<size_t>(pair.b)];
      const double weight = pair.kind == Pair::Kind::kParam ? 1 - p_.model.overlap : 1;
      const auto seconds = [&](int i, int j) {
        return pair.seconds(i, j) == kNever ? solver::kForbidden
                                            : weight * static_cast<double>(pair.seconds(i, j));
      };
      const bool memory =
          !pair.saved.at.empty() ||
          std::any_of(pair.alive.at.begin(), pair.alive.at.end(), [](float x) { return x > 0; });
      if (!memory) {
        solver::Edge edge{a, b, {}};
        for (const int32_t i : pair.class_a) {
          for (const int32_t j : pair.class_b) edge.cost.push_back(seconds(i, j));
        }
        out_.edges.push_back(std::move(edge));
        continue;
      }
      with_memory(pair, a, b, time_of(r, nodes, pair.b), seconds);
    }
  }

  // A pair that holds memory becomes a node of its own, whose choices are the pairs of classes.
  template <class Seconds>
  void with_memory(const Pair& pair, int a, int b, int64_t time, const Seconds& seconds) {
    solver::Node node;
    solver::Life held{0, -1, {}}, moment{time, time + 1, {}};
    std::vector<std::pair<int, int>> classes;
    for (int i = 0; i < pair.seconds.rows; ++i) {
      for (int j = 0; j < pair.seconds.columns; ++j) {
        if (pair.seconds(i, j) == kNever) continue;
        classes.emplace_back(i, j);
        node.cost.push_back(seconds(i, j));
        held.use.push_back(pair.saved.at.empty() ? 0
                                                 : bytes(static_cast<double>(pair.saved(i, j))));
        moment.use.push_back(pair.alive.at.empty() ? 0
                                                   : bytes(static_cast<double>(pair.alive(i, j))));
      }
    }
    node.lives = {held, moment};
    const int middle = static_cast<int>(out_.nodes.size());
    out_.nodes.push_back(std::move(node));
    solver::Edge left{a, middle, {}}, right{middle, b, {}};
    for (const int32_t i : pair.class_a) {
      for (const auto& [x, y] : classes) left.cost.push_back(x == i ? 0 : solver::kForbidden);
    }
    for (const auto& [x, y] : classes) {
      for (const int32_t j : pair.class_b) right.cost.push_back(y == j ? 0 : solver::kForbidden);
    }
    out_.edges.push_back(std::move(left));
    out_.edges.push_back(std::move(right));
  }

  // When the variable's own moment is: found from its node's lives, or a time of its own.
  [[nodiscard]] int64_t time_of(const RegionProblem& r, const std::vector<int>& nodes,
                                int variable) const {
    (void)r;
    for (const solver::Life& life :
         out_.nodes[static_cast<size_t>(nodes[static_cast<size_t>(variable)])].lives) {
      if (life.to == life.from + 1) return life.from;
    }
    return time_ - 1;
  }

  const Problem& p_;
  solver::Problem out_;
  int64_t time_ = 0;
  std::vector<int> top_;                               // nodes of the top level
  std::vector<std::vector<std::vector<int>>> bodies_;  // by child, iteration
};

}  // namespace

std::optional<Exact> solve_exactly(const Problem& problem, double budget, double time_s,
                                   size_t most_choices) {
  Unroller unroller(problem);
  if (!unroller.possible(most_choices)) return std::nullopt;
  const solver::Problem unrolled = unroller.run(budget);
  solver::Options options;
  options.time_s = time_s;
  options.gap = 1e-9;
  const solver::Solution solution = solver::solve(unrolled, options);
  Exact out;
  out.status = solution.status;
  out.bound = solution.bound;
  out.columns = solution.columns;
  out.rows = solution.rows;
  if (!solution.choices.empty()) out.plan = unroller.plan(solution.choices);
  return out;
}

}  // namespace cad::planner
