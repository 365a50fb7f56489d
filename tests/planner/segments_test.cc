// tests/planner/segments_test.cc -- loops whose iterations run again in segments: their memory and
// time counted step by step by a simulation of its own, budgets that only they can meet, and the
// chain program over the same blocks, which no such plan beats.
#include <algorithm>
#include <cmath>
#include <random>

#include "planner/machines.h"
#include "planner/planner.h"
#include "planner/segments.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Small parameters, large activations, many iterations: the carry counts.
std::string looped(int iterations, int batch) {
  return "dim B, D = 16, F = 32, L = " + std::to_string(iterations) +
         "\nmodel Net(x: [B, D]) -> [B, D] {\n  repeat L as h {\n"
         "    x = x + Linear[F -> D](gelu(Linear[D -> F](x)))\n  }\n  return x\n}\n"
         "train t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
         "  optimizer: adam(lr: 1e-3)\n  B: " +
         std::to_string(batch) + "\n  steps: 1\n}\n";
}

CostModel roofline() {
  CostModel model;
  model.seconds = [](const Work& w) {
    return 1e-6 + (w.matmul_flops + w.other_flops) / 1e12 + w.bytes / 1e12;
  };
  model.memory_bandwidth = 1e12;
  return model;
}

struct Block {
  double saved = 0, moment = 0, forward = 0, backward = 0;
};

Problem problem_of(const Planned& p) {
  return make_problem(p.sites, mesh_of(equal_links(1), {1}), p.training, roofline());
}

// What one iteration takes, from the tables.
Block block_of(const RegionProblem& r, const BodyPlan& body) {
  Block b;
  std::vector<double> moments(r.variables.size(), 0);
  double again = 0;
  for (size_t v = 0; v < r.variables.size(); ++v) {
    if (static_cast<int>(v) == r.exit) continue;
    const Choice& c = r.variables[v].choices[static_cast<size_t>(body.choices[v])];
    b.saved += static_cast<double>(c.saved);
    again += static_cast<double>(c.again);
    moments[v] += static_cast<double>(c.transient);
    b.forward += static_cast<double>(c.forward);
    b.backward += static_cast<double>(c.terms.compute) + static_cast<double>(c.terms.recompute) +
                  static_cast<double>(c.terms.optimizer) - static_cast<double>(c.forward);
  }
  for (const Pair& pair : r.pairs) {
    const int i = pair.class_a[static_cast<size_t>(body.choices[static_cast<size_t>(pair.a)])];
    const int j = pair.class_b[static_cast<size_t>(body.choices[static_cast<size_t>(pair.b)])];
    if (!pair.saved.at.empty()) b.saved += static_cast<double>(pair.saved(i, j));
    if (!pair.alive.at.empty())
      moments[static_cast<size_t>(pair.b)] += static_cast<double>(pair.alive(i, j));
  }
  b.moment = again + *std::max_element(moments.begin(), moments.end());
  return b;
}

double carry_bytes(const RegionProblem& r, const BodyPlan& body) {
  const auto entry = static_cast<size_t>(r.entry);
  return static_cast<double>(r.variables[entry].bytes[static_cast<size_t>(body.choices[entry])]);
}

// Of the loop alone, iteration by iteration.
struct Simulated {
  double seconds = 0, most = 0;  // bytes: during the backward pass
  double held = 0;               // bytes at the end of the forward pass
};
Simulated simulated(const Problem& p, const BodyPlan& plan) {
  const RegionProblem& r = p.regions[1];
  struct Step {
    const planner::Run* run;
    Block block;
    int64_t at;  // within the run
  };
  double held = 0, most = 0, seconds = 0;
  std::vector<Step> steps;
  for (const planner::Run& run : plan.loops[0]) {
    for (int64_t i = 0; i < run.count; ++i) steps.push_back({&run, block_of(r, run.pattern[0]), i});
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    seconds += steps[i].block.forward;
    const planner::Run& run = *steps[i].run;
    const int64_t at = steps[i].at;
    if (run.segment == 0)
      held += steps[i].block.saved;
    else if (at % run.segment == 0)
      held += carry_bytes(r, run.pattern[0]);
  }
  const double all = held;
  for (size_t i = steps.size(); i-- > 0;) {
    const planner::Run& run = *steps[i].run;
    const Block& b = steps[i].block;
    if (run.segment == 0) {
      most = std::max(most, all + b.moment);  // as evaluate() counts: not freed on the way
      held -= b.saved;
      seconds += b.backward;
      continue;
    }
    // the whole segment again
    const auto length = static_cast<size_t>(run.segment);
    const size_t first = i + 1 - length;
    const auto entry = static_cast<size_t>(r.entry);
    const Choice& carry =
        r.variables[entry].choices[static_cast<size_t>(run.pattern[0].choices[entry])];
    most = std::max(most, held + static_cast<double>(length) * b.saved -
                              static_cast<double>(carry.saved) + b.moment);
    seconds += static_cast<double>(length) * (b.forward + b.backward);
    held -= carry_bytes(r, run.pattern[0]);
    i = first;
  }
  return {seconds, most, all};
}

int64_t in_segments(const BodyPlan& plan) {
  int64_t n = 0;
  for (const planner::Run& run : plan.loops[0]) n += run.segment > 0 ? run.count : 0;
  return n;
}

TEST(Segments, CountedStepByStep) {
  auto p = planned(looped(26, 4096));
  const Problem problem = problem_of(*p);
  const RegionProblem& body = problem.regions[1];
  Search search(problem);
  const Found found = search.run(kInfinite);
  ASSERT_TRUE(found.feasible);
  const Evaluation whole = evaluate(problem, found.plan);
  // the longest run of iterations that end as they start
  const std::vector<planner::Run>& runs = found.plan.loops[0];
  size_t longest = 0;
  for (size_t k = 0; k < runs.size(); ++k) {
    if (runs[k].count > runs[longest].count) longest = k;
  }
  const BodyPlan once = runs[longest].pattern[0];
  ASSERT_EQ(runs[longest].pattern.size(), 1u);
  ASSERT_EQ(once.choices[static_cast<size_t>(body.entry)],
            once.choices[static_cast<size_t>(body.exit)]);
  // the top level is the same in all: it is what is left of the whole
  const double top_seconds = whole.seconds - simulated(problem, found.plan).seconds;
  const Block top = block_of(problem.regions[0], found.plan);
  const int64_t n = runs[longest].count;
  ASSERT_GE(n, 20);
  for (int64_t length = 1; length <= n; ++length) {
    BodyPlan plan = found.plan;
    plan.loops[0][longest] = {n, {once}, length};
    const Evaluation e = evaluate(problem, plan);
    ASSERT_EQ(e.valid, n % length == 0) << length;
    if (!e.valid) continue;
    const Simulated loop = simulated(problem, plan);
    EXPECT_NEAR(e.seconds, loop.seconds + top_seconds, 1e-6 * e.seconds) << length;
    // the top level's own moment comes while all that the loop keeps is held
    EXPECT_NEAR(e.peak,
                e.bytes.persistent() + top.saved + std::max(loop.most, loop.held + top.moment),
                1e-6 * e.peak)
        << length;
    EXPECT_LT(e.bytes.saved, whole.bytes.saved) << length;
  }
}

// Less memory than any plan without segments needs.
TEST(Segments, MeetBudgetsThatNothingElseMeets) {
  auto p = planned(looped(64, 8192));
  const Problem problem = problem_of(*p);
  Search search(problem);
  const Found least = search.run(1);
  ASSERT_FALSE(least.feasible);
  const double budget = std::floor(least.least_peak * 0.7);
  PriceOptions options;
  options.price = least.evaluation.seconds / least.evaluation.peak;
  const auto found = with_segments(problem, options, {least.plan}, budget);
  ASSERT_TRUE(found);
  EXPECT_GT(in_segments(found->plan), 0);
  EXPECT_LE(found->evaluation.peak, budget);
}

// Where memory is short a plan with segments is sometimes faster than the best without.
TEST(Segments, SaveTimeWhereMemoryIsShort) {
  auto p = planned(looped(64, 8192));
  const Problem problem = problem_of(*p);
  Search first(problem);
  const double ample = first.run(kInfinite).evaluation.peak;
  int faster = 0;
  for (const double part : {0.5, 0.35, 0.25, 0.2, 0.15, 0.12, 0.1}) {
    const double budget = std::floor(ample * part);
    Search search(problem);
    const Found plain = search.run(budget);
    if (plain.plan.choices.empty()) break;
    PriceOptions options;
    options.price = search.price();
    std::vector<BodyPlan> bases = search.bases();
    bases.push_back(plain.plan);
    const auto found = with_segments(problem, options, bases, budget);
    if (!found || found->evaluation.peak > budget) continue;
    faster += !plain.feasible || found->evaluation.seconds < plain.evaluation.seconds ? 1 : 0;
  }
  EXPECT_GE(faster, 1);
}

// Every plan that has `n` iterations of a run in up to two runs of segments: peak and seconds.
std::vector<std::pair<double, double>> in_runs(const Problem& problem, const BodyPlan& base,
                                               size_t at) {
  std::vector<std::pair<double, double>> all;
  const planner::Run& whole = base.loops[0][at];
  const auto add = [&](int64_t first, int64_t length, int64_t second, int64_t other) {
    BodyPlan plan = base;
    std::vector<planner::Run>& loop = plan.loops[0];
    std::vector<planner::Run> runs = {{first, whole.pattern, length}};
    if (second > 0) runs.push_back({second, whole.pattern, other});
    if (first + second < whole.count) runs.push_back({whole.count - first - second, whole.pattern});
    loop.erase(loop.begin() + static_cast<std::ptrdiff_t>(at));
    loop.insert(loop.begin() + static_cast<std::ptrdiff_t>(at), runs.begin(), runs.end());
    const Evaluation e = evaluate(problem, plan);
    if (e.valid) all.emplace_back(e.peak, e.seconds);
  };
  for (int64_t first = 1; first <= whole.count; ++first) {
    for (int64_t length = 1; length <= first; ++length) {
      if (first % length != 0) continue;
      add(first, length, 0, 0);
      for (int64_t second = 1; first + second <= whole.count; ++second) {
        for (int64_t other = 1; other <= second; ++other) {
          if (second % other == 0) add(first, length, second, other);
        }
      }
    }
  }
  return all;
}

// A plan's own iterations in up to two runs of segments, counted out: what is found from that plan
// within the peak of any of them fits, and is hardly slower than the best.
TEST(Segments, NoSlowerThanItsOwnIterationsInRuns) {
  int compared = 0, met = 0;
  for (const int batch : {512, 4096}) {
    auto p = planned(looped(14, batch));
    const Problem problem = problem_of(*p);
    const RegionProblem& body = problem.regions[1];
    const auto entry = static_cast<size_t>(body.entry), exit = static_cast<size_t>(body.exit);
    Search first(problem);
    const Evaluation ample = first.run(kInfinite).evaluation;
    for (const double part : {1.0, 0.7, 0.5, 0.35}) {
      const Found found = Search(problem).run(std::floor(ample.peak * part));
      const std::vector<planner::Run>& runs = found.plan.loops[0];
      for (size_t at = 0; at < runs.size(); ++at) {
        const std::vector<int>& choices = runs[at].pattern[0].choices;
        if (choices[entry] != choices[exit] || runs[at].count < 4) continue;
        const auto all = in_runs(problem, found.plan, at);
        for (size_t k = 0; k < all.size(); k += 1 + all.size() / 60) {
          const double budget = all[k].first;
          double least = kInfinite;
          for (const auto& [peak, seconds] : all) {
            if (peak <= budget) least = std::min(least, seconds);
          }
          PriceOptions options;
          options.price = ample.seconds / ample.peak;
          const auto segmented = with_segments(problem, options, {found.plan}, budget);
          ASSERT_TRUE(segmented);
          EXPECT_LE(segmented->evaluation.peak, budget);
          EXPECT_LE(segmented->evaluation.seconds, least * 1.05) << budget;
          ++compared;
          met += segmented->evaluation.seconds <= least * (1 + 1e-9) ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GE(compared, 400);
  EXPECT_GE(met, compared * 98 / 100);
}

// Plans for the rungs of the ladder of tighter budgets are candidates of requests for more.
TEST(Segments, LessMemoryIsNotFaster) {
  std::string text = looped(26, 4096);
  const std::string block = "Linear[F -> D](gelu(Linear[D -> F](x)))";
  text.replace(text.find(block), block.size(), "(" + block + " |> dropout(0.1))");
  auto p = planned(text);
  PlanRequest request;
  request.graph = &p->graph;
  request.training = p->training;
  request.cluster = *find_cluster({}, "dgx_a100", 2);
  request.meshes = *meshes(request.cluster, 2);
  request.proof_s = 0;
  request.segments = true;
  double before = kInfinite;
  int plans = 0;
  for (double budget = 6.86e6; budget < 8.6e6; budget *= 1.038) {
    request.budget = budget;
    const Planning planning = make_plan(request);
    ASSERT_TRUE(planning.feasible) << budget;
    EXPECT_LE(planning.plan.predicted.step_s, before * (1 + 1e-6)) << budget;
    before = planning.plan.predicted.step_s;
    plans += in_segments(planning.body) > 0 ? 1 : 0;
  }
  EXPECT_GE(plans, 3);
}

// The bound holds for every plan with segments: of the bodies that are best at many prices, in
// segments of every length over the first iterations of the loop, the rest of it as one body.
TEST(Segments, TheBoundHoldsForThem) {
  auto p = planned(looped(24, 8192));
  const Problem problem = problem_of(*p);
  const RegionProblem& body = problem.regions[1];
  const auto entry = static_cast<size_t>(body.entry), exit = static_cast<size_t>(body.exit);
  Search first(problem);
  const double ample = first.run(kInfinite).evaluation.peak;
  std::vector<BodyPlan> tops;
  std::vector<BodyPlan> bodies;
  for (const double part : {1.0, 0.5, 0.3, 0.2, 0.1, 0.05}) {
    Search search(problem);
    const Found found = search.run(std::floor(ample * part));
    if (found.plan.choices.empty()) continue;
    tops.push_back(found.plan);
    PriceOptions options;
    options.price = search.price();
    options.segment_price = part / 2;
    options.only_segments = true;
    Priced priced(problem, options);
    for (const planner::Run& run : found.plan.loops[0]) {
      if (run.pattern[0].choices[entry] != run.pattern[0].choices[exit]) continue;
      bodies.push_back(run.pattern[0]);
      if (auto again = priced.segment_body(0, run.pattern[0].choices[entry]))
        bodies.push_back(*again);
    }
  }
  ASSERT_GE(tops.size(), 3u);
  ASSERT_GE(bodies.size(), 3u);
  int met = 0;
  std::mt19937 random(5);
  for (const double part : {0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05, 0.03}) {
    const double budget = std::floor(ample * part);
    Search search(problem);
    const Found found = search.run(budget);
    const double bound =
        std::min(found.bound,
                 search.segment_bound(search.line(), search.line().price, budget, kInfinite, 6));
    double fastest = kInfinite;
    for (const BodyPlan& top : tops) {
      for (const BodyPlan& a : bodies) {
        for (const BodyPlan& b : bodies) {
          for (int64_t n = 1; n <= 24; ++n) {
            for (int64_t length = 1; length <= n; ++length) {
              if (n % length != 0) continue;
              BodyPlan plan = top;
              plan.loops[0] = {{n, {a}, length}};
              if (n < 24) plan.loops[0].push_back({24 - n, {b}});
              for (const int64_t more : {0, 1, 2}) {  // a second run of segments, of the rest
                if (more > 0 && (n == 24 || (24 - n) % more != 0)) continue;
                if (n < 24) plan.loops[0][1].segment = more;
                const Evaluation e = evaluate(problem, plan);
                if (!e.valid || e.peak > budget) continue;
                ++met;
                fastest = std::min(fastest, e.seconds);
                ASSERT_GE(e.seconds, bound * (1 - 1e-6)) << part << " " << n << " " << length;
              }
            }
          }
        }
      }
    }
    if (!std::isfinite(fastest)) continue;
    // and at any price, however it is divided
    for (int i = 0; i < 40; ++i) {
      const double price = search.price() * std::exp2(static_cast<double>(random() % 160) / 10 - 8);
      SegmentWeights weights{};
      for (double& x : weights) x = static_cast<double>(random() % 4);
      const SegmentParts parts = segment_parts(problem, budget, weights, nullptr);
      ASSERT_TRUE(parts.possible);
      PriceOptions options;
      options.price = price;
      options.again = 0;
      options.segments = &parts.prices;
      const Priced priced(problem, options);
      EXPECT_LE(priced.value() - price * parts.room, fastest * (1 + 1e-5)) << part << " " << i;
    }
  }
  EXPECT_GE(met, 100);
}

}  // namespace
}  // namespace cad::planner
