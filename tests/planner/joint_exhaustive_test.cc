// tests/planner/joint_exhaustive_test.cc -- what make_plan() gives, against counting out every plan
// of random two-block models on meshes (2), (4) and (2, 2), with budgets from too small to ample.
// Counting shares only the tables of planner/problem.h with the planner: it takes choice after
// choice of sites and hubs, and turns back where what was taken and the least of each that is left
// is no better than the best so far; of a parameter's choices those that are worse in time and in
// memory are left out first.
#include <array>
#include <cmath>
#include <map>
#include <random>

#include "planner/planner.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Seconds are the larger of two sums: of compute and of the parameters' collectives, which run
// beside it, only what the other leaves is counted, in either.
struct Cost {
  std::array<double, 2> seconds = {0, 0};
  double held = 0, moment = 0;
  [[nodiscard]] double step() const { return std::max(seconds[0], seconds[1]); }
};

bool worse(const Cost& a, const Cost& b) {
  return a.seconds[0] >= b.seconds[0] && a.seconds[1] >= b.seconds[1] && a.held >= b.held &&
         a.moment >= b.moment;
}

class Counter {
 public:
  Counter(const Problem& problem, double budget)
      : r_(problem.regions[0]), overlap_(problem.model.overlap), budget_(budget) {
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
    visit(0, {});
    return best_;
  }

 private:
  [[nodiscard]] Cost cost_of(const Choice& c) const {
    const Terms& t = c.terms;
    const double rest = static_cast<double>(t.recompute + t.communicate + t.optimizer);
    Cost cost;
    cost.seconds = {rest + static_cast<double>(t.compute),
                    rest + static_cast<double>(t.parameters)};
    cost.seconds[0] += (1 - overlap_) * static_cast<double>(t.parameters);
    cost.seconds[1] += (1 - overlap_) * static_cast<double>(t.compute);
    cost.held = static_cast<double>(c.parameters) + static_cast<double>(c.gradients) +
                static_cast<double>(c.optimizer) + static_cast<double>(c.saved);
    cost.moment = static_cast<double>(c.transient + c.again);
    return cost;
  }

  // A choice with its parameters' choices: by choice, the costs that no other one beats.
  void make_options(size_t v) {
    const VariableInfo& info = r_.variables[v];
    for (size_t i = 0; i < info.choices.size(); ++i) {
      std::vector<Cost> list = {cost_of(info.choices[i])};
      for (const Pair& pair : r_.pairs) {
        if (pair.kind != Pair::Kind::kParam || static_cast<size_t>(pair.b) != v) continue;
        list = with_parameter(list, pair, i);
      }
      options_[v].push_back(list);
    }
  }

  [[nodiscard]] std::vector<Cost> with_parameter(const std::vector<Cost>& list, const Pair& pair,
                                                 size_t choice) const {
    std::vector<Cost> out;
    const VariableInfo& param = r_.variables[static_cast<size_t>(pair.a)];
    for (const Cost& cost : list) {
      for (size_t k = 0; k < param.choices.size(); ++k) {
        const int row = pair.class_a[k], column = pair.class_b[choice];
        if (pair.seconds(row, column) == kNever) continue;
        const Cost own = cost_of(param.choices[k]);
        const auto gathered = static_cast<double>(pair.seconds(row, column));
        Cost sum = cost;
        sum.seconds[0] += own.seconds[0] + (1 - overlap_) * gathered;
        sum.seconds[1] += own.seconds[1] + gathered;
        sum.held += own.held;
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
      Cost own{{kInfinite, kInfinite}, kInfinite, 0};
      for (const std::vector<Cost>& choice : options_[order_[d]]) {
        for (const Cost& c : choice) {
          own.seconds[0] = std::min(own.seconds[0], c.seconds[0]);
          own.seconds[1] = std::min(own.seconds[1], c.seconds[1]);
          own.held = std::min(own.held, c.held);
        }
      }
      least_[d] = plus(least_[d + 1], own);
    }
  }

  // Of two variables; what is alive for a moment is there at one of them.
  static Cost plus(const Cost& a, const Cost& b) {
    return {{a.seconds[0] + b.seconds[0], a.seconds[1] + b.seconds[1]},
            a.held + b.held,
            std::max(a.moment, b.moment)};
  }

  // What the pairs of a variable with those before it take; false: one of them is forbidden.
  bool joined(size_t v, Cost& more) const {
    for (const Pair* pair : earlier_[v]) {
      const int a = chosen_[static_cast<size_t>(pair->a)],
                b = chosen_[static_cast<size_t>(pair->b)];
      const int row = pair->class_a[static_cast<size_t>(a)];
      const int column = pair->class_b[static_cast<size_t>(b)];
      if (pair->seconds(row, column) == kNever) return false;
      for (double& line : more.seconds) line += static_cast<double>(pair->seconds(row, column));
      if (!pair->saved.at.empty()) more.held += static_cast<double>(pair->saved(row, column));
    }
    return true;
  }

  void visit(size_t depth, const Cost& so_far) {
    const Cost least = plus(so_far, least_[depth]);
    if (least.step() >= best_ || least.held + so_far.moment > budget_) return;
    if (depth == order_.size()) {
      best_ = so_far.step();
      return;
    }
    const size_t v = order_[depth];
    for (size_t i = 0; i < r_.variables[v].choices.size(); ++i) {
      chosen_[v] = static_cast<int>(i);
      Cost more = so_far;
      if (!joined(v, more)) continue;
      for (const Cost& c : options_[v][i]) visit(depth + 1, plus(more, c));
    }
    chosen_[v] = -1;
  }

  const RegionProblem& r_;
  double overlap_, budget_;
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

// Four in ten are of a kind whose collectives of parameters run beside compute; or a CPU.
Cluster random_cluster(std::mt19937& random, int devices) {
  const auto power = [&](int least, unsigned steps) {
    return std::pow(10.0, least + static_cast<int>(random() % steps));
  };
  const double rate = power(9, 4), bandwidth = power(8, 3);
  Cluster c = equal_links(devices, bandwidth, random() % 2 == 0 ? 0 : power(-7, 3), rate);
  c.device.launch_overhead = power(-9, 4);
  if (random() % 10 >= 4) c.device.cpu = CpuRates{rate, rate, rate, rate, rate, 1e6, 4 * rate};
  return c;
}

struct Counts {
  int compared = 0, tight = 0, impossible = 0;
  int large = 0;  // problems of more than a million combinations
  std::map<std::string, int> meshes;
};

// One model on one machine: its plans on these meshes are counted.
class Instance {
 public:
  Instance(const std::string& text, const Cluster& cluster, const std::vector<int>& sizes,
           bool idle)
      : planned_(planned(text)) {
    request_.graph = &planned_->graph;
    request_.training = planned_->training;
    request_.cluster = cluster;
    request_.meshes = {mesh_of(cluster, sizes)};
    request_.idle = idle;
    add(request_.meshes[0]);
    if (idle) add(mesh_of(cluster, {1}));
  }

  [[nodiscard]] double combinations() const {
    double most = 0;
    for (const Problem& problem : problems_)
      most = std::max(most, Counter(problem, kInfinite).combinations());
    return most;
  }
  [[nodiscard]] double counted(double budget) const {
    double best = kInfinite;
    for (const Problem& problem : problems_) best = std::min(best, Counter(problem, budget).run());
    return best;
  }
  [[nodiscard]] Planning made(double budget) {
    request_.budget = budget;
    return make_plan(request_);
  }

 private:
  void add(const Mesh& mesh) {
    problems_.push_back(make_problem(planned_->sites, mesh, planned_->training,
                                     cost_model(request_.cluster.device)));
  }
  std::unique_ptr<Planned> planned_;
  PlanRequest request_;
  std::vector<Problem> problems_;
};

void compare(Instance& instance, std::mt19937& random, Counts& counts) {
  constexpr double kRounding = 2e-5;  // costs are floats
  double ample = 1e15;
  for (int i = 0; i < 4; ++i) {
    const double part = static_cast<double>(random() % 1000) / 1000;
    const double budget =
        i == 0 ? ample : std::floor(ample * (i < 3 ? 0.6 + 0.4 * part : 0.25 + 0.75 * part));
    const Planning got = instance.made(budget);
    const double counted = instance.counted(budget);
    SCOPED_TRACE(counts.compared);
    ++counts.compared;
    EXPECT_EQ(got.feasible, counted < kInfinite);
    if (i == 0) ample = got.plan.predicted.peak_bytes;
    if (!got.feasible) {
      ++counts.impossible;
      EXPECT_GT(got.least_peak, budget);
      continue;
    }
    counts.tight += i > 0 ? 1 : 0;
    EXPECT_NEAR(got.plan.predicted.step_s, counted, kRounding * counted);
    EXPECT_LE(got.plan.predicted.peak_bytes, budget);
    EXPECT_LE(got.plan.solver.bound, counted * (1 + kRounding));
  }
}

TEST(Exhaustive, EqualObjective) {
  std::mt19937 random(7);
  Counts counts;
  for (int model = 0; model < 1000 && counts.compared < 1200; ++model) {
    const std::vector<std::vector<int>> meshes = {{2}, {4}, {2, 2}};
    const std::vector<int>& sizes = meshes[random() % 3];
    const std::string text = random_model(random);
    const Cluster cluster = random_cluster(random, sizes.size() == 2 ? 4 : sizes[0]);
    Instance instance(text, cluster, sizes, random() % 4 == 0);
    const double combinations = instance.combinations();
    if (combinations > 1e8) continue;
    counts.large += combinations > 1e6 ? 1 : 0;
    ++counts.meshes[::testing::PrintToString(sizes)];
    compare(instance, random, counts);
    if (::testing::Test::HasFailure()) FAIL() << text << ::testing::PrintToString(sizes);
  }
  RecordProperty("large", counts.large);
  EXPECT_GE(counts.compared, 1200);
  EXPECT_GE(counts.tight, 400);
  EXPECT_GE(counts.impossible, 300);
  ASSERT_EQ(counts.meshes.size(), 3U);
  for (const auto& [mesh, models] : counts.meshes) EXPECT_GE(models, 50) << mesh;
}

}  // namespace
}  // namespace cad::planner
