// tests/planner/joint_exhaustive_test.cc -- the joint planner against counting out every plan of
// random two-block models on meshes (2), (4) and (2, 2), with budgets from too small to ample.
// Counting shares only the tables of planner/problem.h with the search: it takes choice after
// choice of sites and hubs, and turns back where what was taken and the least of each that is left
// is no better than the best so far; of a parameter's choices those that are worse in time and in
// memory are left out first.
#include <functional>
#include <random>

#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

struct Cost {
  double seconds = 0, held = 0, moment = 0;
};

bool worse(const Cost& a, const Cost& b) {
  return a.seconds >= b.seconds && a.held >= b.held && a.moment >= b.moment;
}

class Counter {
 public:
  Counter(const Problem& problem, double budget) : r_(problem.regions[0]), budget_(budget) {
    for (size_t v = 0; v < r_.variables.size(); ++v) {
      if (r_.variables[v].kind != VariableInfo::Kind::kParam) order_.push_back(v);
    }
    options_.resize(r_.variables.size());
    for (const size_t v : order_) make_options(v);
    make_earlier();
    make_least();
  }

  [[nodiscard]] double combinations() const {
    double n = 1;
    for (const size_t v : order_) n *= static_cast<double>(r_.variables[v].choices.size());
    return n;
  }

  double run() {
    chosen_.assign(r_.variables.size(), -1);
    visit(0, 0, 0, 0);
    return best_;
  }

 private:
  // A choice with its parameters' choices: by choice, the costs that no other one beats.
  void make_options(size_t v) {
    const VariableInfo& info = r_.variables[v];
    for (size_t i = 0; i < info.choices.size(); ++i) {
      const Choice& c = info.choices[i];
      std::vector<Cost> list = {{static_cast<double>(c.terms.compute + c.terms.recompute +
                                                     c.terms.communicate + c.terms.optimizer),
                                 static_cast<double>(c.saved),
                                 static_cast<double>(c.transient + c.again)}};
      for (const Pair& pair : r_.pairs) {
        if (pair.kind != Pair::Kind::kParam || static_cast<size_t>(pair.b) != v) continue;
        list = with_parameter(list, pair, i);
      }
      options_[v].push_back(list);
    }
  }

  std::vector<Cost> with_parameter(const std::vector<Cost>& list, const Pair& pair, size_t choice) {
    std::vector<Cost> out;
    const VariableInfo& param = r_.variables[static_cast<size_t>(pair.a)];
    for (const Cost& cost : list) {
      for (size_t k = 0; k < param.choices.size(); ++k) {
        const int row = pair.class_a[k], column = pair.class_b[choice];
        if (pair.seconds(row, column) == kNever) continue;
        const Choice& c = param.choices[k];
        Cost sum = cost;
        sum.seconds += static_cast<double>(pair.seconds(row, column)) +
                       static_cast<double>(c.terms.parameters) +
                       static_cast<double>(c.terms.optimizer);
        sum.held += static_cast<double>(c.parameters) + static_cast<double>(c.gradients) +
                    static_cast<double>(c.optimizer);
        sum.moment += static_cast<double>(pair.alive(row, column));
        out.push_back(sum);
      }
    }
    std::vector<Cost> kept;
    for (size_t i = 0; i < out.size(); ++i) {
      bool beaten = false;
      for (size_t j = 0; j < out.size() && !beaten; ++j)
        beaten = i != j && worse(out[i], out[j]) && (!worse(out[j], out[i]) || j < i);
      if (!beaten) kept.push_back(out[i]);
    }
    return kept;
  }

  // Pairs of a variable with those that are taken before it.
  void make_earlier() {
    std::vector<size_t> place(r_.variables.size(), 0);
    for (size_t d = 0; d < order_.size(); ++d) place[order_[d]] = d;
    earlier_.resize(r_.variables.size());
    for (const Pair& pair : r_.pairs) {
      if (pair.kind == Pair::Kind::kParam) continue;
      const auto a = static_cast<size_t>(pair.a), b = static_cast<size_t>(pair.b);
      earlier_[place[a] > place[b] ? a : b].push_back(&pair);
    }
  }

  // By depth: what the variables from there on take at least, each by itself.
  void make_least() {
    least_.assign(order_.size() + 1, Cost{});
    for (size_t d = order_.size(); d-- > 0;) {
      Cost own{kInfinite, kInfinite, 0};
      for (const std::vector<Cost>& choice : options_[order_[d]]) {
        for (const Cost& c : choice) {
          own.seconds = std::min(own.seconds, c.seconds);
          own.held = std::min(own.held, c.held);
        }
      }
      least_[d] = {least_[d + 1].seconds + own.seconds, least_[d + 1].held + own.held, 0};
    }
  }

  void visit(size_t depth, double seconds, double held, double moment) {
    const Cost& least = least_[depth];
    if (seconds + least.seconds >= best_ || held + least.held + moment > budget_) return;
    if (depth == order_.size()) {
      best_ = seconds;
      return;
    }
    const size_t v = order_[depth];
    for (size_t i = 0; i < r_.variables[v].choices.size(); ++i) {
      chosen_[v] = static_cast<int>(i);
      double more = 0, saved = 0;
      bool possible = true;
      for (const Pair* pair : earlier_[v]) {
        const int a = chosen_[static_cast<size_t>(pair->a)],
                  b = chosen_[static_cast<size_t>(pair->b)];
        const int row = pair->class_a[static_cast<size_t>(a)];
        const int column = pair->class_b[static_cast<size_t>(b)];
        if (pair->seconds(row, column) == kNever) {
          possible = false;
          break;
        }
        more += static_cast<double>(pair->seconds(row, column));
        if (!pair->saved.at.empty()) saved += static_cast<double>(pair->saved(row, column));
      }
      if (!possible) continue;
      for (const Cost& c : options_[v][i])
        visit(depth + 1, seconds + more + c.seconds, held + saved + c.held,
              std::max(moment, c.moment));
    }
    chosen_[v] = -1;
  }

  const RegionProblem& r_;
  double budget_;
  std::vector<size_t> order_;
  std::vector<std::vector<std::vector<Cost>>> options_;
  std::vector<std::vector<const Pair*>> earlier_;  // by variable
  std::vector<Cost> least_;                        // by depth
  std::vector<int> chosen_;
  double best_ = kInfinite;
};

// Two blocks of one to three ops.
std::string random_model(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<int> values) {
    return *(values.begin() + random() % values.size());
  };
  const int batch = pick({2, 4, 8, 64}), d = pick({4, 8, 32}), f = pick({4, 16, 64});
  std::string text = "dim B, D = " + std::to_string(d) + ", F = " + std::to_string(f) +
                     "\nmodel Net(x: [B, D]) -> [B, D] {\n";
  for (int block = 0; block < 2; ++block) {
    switch (random() % 5) {
      case 0:
        text += "  x = Linear[D -> D](x, bias: false)\n";
        break;
      case 1:
        text += "  x = relu(Linear[D -> D](x, bias: false))\n";
        break;
      case 2:
        text += "  x = Linear[F -> D](relu(Linear[D -> F](x, bias: false)), bias: false)\n";
        break;
      case 3:
        text += "  x = Linear[F -> D](Linear[D -> F](x, bias: false), bias: false)\n";
        break;
      default:
        text += "  x = x + Linear[D -> D](x, bias: false)\n";
        break;
    }
  }
  return text +
         "  return x\n}\ntrain t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n"
         "  loss: mse(Net(x), y)\n  optimizer: adam(lr: 1e-3)\n  B: " +
         std::to_string(batch) + "\n  steps: 1\n}\n";
}

CostModel plain(double rate) {
  CostModel model;
  model.seconds = [rate](const Work& w) {
    return (w.matmul_flops + w.other_flops) / rate + w.bytes / rate;
  };
  model.memory_bandwidth = rate;
  return model;
}

// One model on one mesh, with budgets from ample to too small.
struct Counts {
  int compared = 0, tight = 0, impossible = 0;
  int large = 0;  // problems of more than 300,000 combinations
};

void compare(const Problem& problem, std::mt19937& random, Counts& counts) {
  Search ample(problem);
  ample.be_exact(10);
  const Found first = ample.run(kInfinite);
  EXPECT_NEAR(first.evaluation.seconds, Counter(problem, kInfinite).run(),
              1e-5 * first.evaluation.seconds);
  ++counts.compared;
  for (int i = 0; i < 3; ++i) {
    const double part = static_cast<double>(random() % 1000) / 1000;
    const double budget =
        std::floor(first.evaluation.peak * (i < 2 ? 0.6 + 0.4 * part : 0.25 + 0.75 * part));
    Search search(problem);
    search.be_exact(10);
    const Found found = search.run(budget);
    const double counted = Counter(problem, budget).run();
    ++counts.compared;
    if (counted == kInfinite) {
      ++counts.impossible;
      EXPECT_FALSE(found.feasible) << counts.compared;
      continue;
    }
    ++counts.tight;
    ASSERT_TRUE(found.feasible) << counts.compared;
    EXPECT_NEAR(found.evaluation.seconds, counted, 2e-5 * counted) << counts.compared;
    EXPECT_LE(found.bound, counted * (1 + 1e-5)) << counts.compared;
  }
}

TEST(Exhaustive, EqualObjective) {
  std::mt19937 random(7);
  Counts counts;
  for (int model = 0; model < 600 && counts.compared < 500; ++model) {
    const std::vector<std::vector<int>> meshes = {{2}, {4}, {2, 2}};
    const std::vector<int>& sizes = meshes[random() % 3];
    const int devices = sizes.size() == 2 ? 4 : sizes[0];
    auto p = planned(random_model(random));
    const double rate = std::pow(10.0, static_cast<double>(random() % 4));
    const Problem problem = make_problem(p->sites, mesh_of(equal_links(devices, 1, 1), sizes),
                                         p->training, plain(rate));
    const double combinations = Counter(problem, kInfinite).combinations();
    if (combinations > 1e6) continue;
    counts.large += combinations > 3e5 ? 1 : 0;
    compare(problem, random, counts);
  }
  RecordProperty("large", counts.large);
  EXPECT_GE(counts.compared, 500);
  EXPECT_GE(counts.tight, 70);
  EXPECT_GE(counts.impossible, 30);
}

}  // namespace
}  // namespace cad::planner
