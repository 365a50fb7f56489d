// tools/published_plans.cc -- see published_plans.h.
#include "tools/published_plans.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/render.h"
#include "frontend/module.h"
#include "frontend/parse.h"
#include "ir/passes.h"
#include "planner/baselines.h"
#include "planner/planner.h"

namespace cad::tools {
namespace {

struct NoFiles : frontend::FileReader {
  Result<std::string> read(const std::string& path) override {
    return make_error(DiagId::E0106, fmt::format("`{}` cannot be imported", path), kExitNoInput);
  }
};

constexpr const char* kModel = R"(
layer Attn(x: [B, T, D]) -> [B, T, D] {{
  param Wq, Wk, Wv : [D, H, K] = normal(0.02)
  param bq, bk, bv : [H, K]    = zeros @no_decay
  param Wo         : [H, K, D] = normal(0.02)
  param bo         : [D]       = zeros
  q = x @[D] Wq + bq
  k = (x @[D] Wk + bk)[T -> S]
  v = (x @[D] Wv + bv)[T -> S]
  p = {0}softmax[S](causal[T, S](q @[K] k / sqrt(K))){1}{2}
  return {0}p @[S] v @[H, K] Wo + bo{1}
}}

layer Mlp(x: [B, T, D]) -> [B, T, D] {{
  param W1 : [D, F] = normal(0.02)
  param b1 : [F]    = zeros
  param W2 : [F, D] = normal(0.02)
  param b2 : [D]    = zeros
  return {0}gelu(x @[D] W1 + b1, tanh: true) @[F] W2 + b2{1}
}}

model Net(tokens: i32[B, T]) -> [B, T, V] {{
  param wte : [V, D] = normal(0.02)
  param wpe : [T, D] = normal(0.02)
  x = wte[V = tokens] + wpe
  repeat L as h {{
    x = x + Attn(LayerNorm[D](x))
    x = x + Mlp(LayerNorm[D](x))
  }}
  return LayerNorm[D](x) @[D] wte
}}

train {{
  data:       synthetic(x: i32[B, T], y: i32[B, T])
  loss:       cross_entropy[V](Net(x), y)
  optimizer:  adamw(lr: 1e-4)
  B:          {3:.0f}
  accumulate: {4:.0f}
  precision:  {5}
  clip:       1.0
  steps:      10
}}
)";

std::vector<planner::Axis> axes_of(const PublishedRun& run) {
  std::vector<planner::Axis> axes;
  const int data = run.gpus / run.tensor;
  if (data > 1 || run.tensor == 1) axes.push_back({"dp", data});
  if (run.tensor > 1) axes.push_back({"tp", run.tensor});
  return axes;
}

// A kernel of a plan's step, and how often it runs.
struct Counted {
  planner::Work work;
  double times = 0, again = 0;  // for itself; as something that runs again
};

// How often a plan runs each kernel that its problem knows: a step's seconds are linear in those of
// kernels, so with one second for some of them and none for the others it says how often these run,
// and halves of them are looked at where that is not zero. Which plan: what evaluates it says.
class Counter {
 public:
  using Evaluate = std::function<planner::Evaluation(const planner::CostModel&)>;
  Counter(const planner::Cluster& cluster, Evaluate evaluate)
      : model_(planner::cost_model(cluster.device)), evaluate_(std::move(evaluate)) {}

  // `fixed`: seconds of what runs again that are no kernel's.
  std::vector<Counted> run(double& fixed) {
    model_.seconds = [this](const planner::Work& work) {
      number_.emplace(key(work), works_.size());
      works_.resize(number_.size(), work);
      return 0.0;
    };
    const planner::Evaluation none = evaluate_(model_);
    collectives_ = {none.compute, none.recompute};
    fixed = none.recompute;
    halve(0, works_.size(), count(0, works_.size()));
    return std::move(found_);
  }

 private:
  using Key = std::array<double, 12>;
  struct Sum {
    double times = 0, again = 0;
    [[nodiscard]] bool none() const { return times + again < 1e-3; }
  };

  static Key key(const planner::Work& w) {
    return {w.matmul_flops,
            w.attention_flops,
            w.other_flops,
            w.draws,
            w.bytes,
            static_cast<double>(w.dtype),
            w.m,
            w.n,
            w.k,
            w.shown,
            w.kernels,
            w.backward ? 1.0 : 0.0};
  }

  // Of the kernels from `begin` to `end`.
  Sum count(size_t begin, size_t end) {
    model_.seconds = [this, begin, end](const planner::Work& work) {
      const size_t n = number_.at(key(work));
      return n >= begin && n < end ? 1.0 : 0.0;
    };
    const planner::Evaluation e = evaluate_(model_);
    return {e.compute - collectives_.times, e.recompute - collectives_.again};
  }

  void halve(size_t begin, size_t end, const Sum& all) {
    if (begin == end || all.none()) return;
    if (end - begin == 1) {
      found_.push_back({works_[begin], all.times, all.again});
      return;
    }
    const size_t middle = begin + (end - begin) / 2;
    const Sum first = count(begin, middle);
    halve(begin, middle, first);
    halve(middle, end, {all.times - first.times, all.again - first.again});
  }

  planner::CostModel model_;
  Evaluate evaluate_;
  std::map<Key, size_t> number_;
  std::vector<planner::Work> works_;
  Sum collectives_;  // seconds without any kernel's
  std::vector<Counted> found_;
};

}  // namespace

std::string program_text(const PublishedRun& run) {
  std::string text = fmt::format(
      "dim B\ndim T = {:.0f}, S = T\ndim V = {:.0f}, D = {:.0f}, L = {:.0f}\n"
      "dim H = {:.0f}, K = D / H, F = 4 * D\n",
      run.sequence, run.vocab, run.hidden, run.layers, run.heads);
  const double data = static_cast<double>(run.gpus) / run.tensor;
  const char* stored = !run.stored_attention ? "" : run.recompute ? " @recompute" : " @keep";
  return text + fmt::format(kModel, run.dropout ? "dropout(" : "", run.dropout ? ", 0.1)" : "",
                            stored, run.micro_batch * data, run.accumulate,
                            run.f16 ? "f16" : "bf16");
}

struct PricedRun::Parts {
  PublishedRun run;
  ir::Graph graph;
  planner::Training training;
  planner::SiteGraph sites;
  std::optional<planner::BodyPlan> plan;
  std::optional<planner::Evaluation> first;  // at any constants
  double first_memory_peak = 0;              // of them
  std::vector<Counted> counted;              // when it has been asked for
  double again_fixed = 0;                    // seconds: collectives that run again

  [[nodiscard]] planner::Problem problem(const planner::Cluster& cluster,
                                         const planner::CostModel& model) const {
    const Result<planner::Mesh> mesh = planner::make_mesh(cluster, axes_of(run));
    CAD_CHECK(mesh.ok(), "{}", mesh.error().message);
    return planner::make_problem(sites, *mesh, training, model);
  }
};

PricedRun::PricedRun(const PublishedRun& run, bool train) : parts_(std::make_unique<Parts>()) {
  Sources sources;
  Diagnostics diagnostics;
  const Result<FileId> file = frontend::load_source(sources, "run.cad", program_text(run));
  CAD_CHECK(file.ok(), "a generated program is no text");
  NoFiles reader;
  const auto module = frontend::check(sources, *file, reader, {}, diagnostics);
  CAD_CHECK(!diagnostics.has_errors(), "{}", render_human(diagnostics, sources));
  const Result<ir::TrainSpec> spec = frontend::lower_train(*module);
  CAD_CHECK(spec.ok(), "{}", spec.error().message);
  parts_->run = run;
  parts_->graph = ir::run_passes(spec->forward, ir::passes_before_autodiff());
  for (ir::Input& input : parts_->graph.inputs) input.frozen = input.frozen || !train;
  parts_->training = planner::training_of(*spec, parts_->graph);
  parts_->sites = planner::find_sites(parts_->graph);
}
PricedRun::~PricedRun() = default;
PricedRun::PricedRun(PricedRun&&) noexcept = default;

planner::Evaluation PricedRun::price(const planner::Cluster& cluster,
                                     const planner::CostConstants& constants) {
  const planner::Problem problem =
      parts_->problem(cluster, planner::cost_model(cluster.device, constants));
  if (!parts_->plan) {
    planner::BaselineResult found =
        planner::baseline(problem, parts_->run.plan, parts_->run.recompute);
    CAD_CHECK(found.plan.has_value(), "{}: {}", parts_->run.plan, found.why);
    parts_->plan = std::move(found.plan);
  }
  const planner::Evaluation priced = planner::evaluate(problem, *parts_->plan);
  CAD_CHECK(priced.valid, "a plan that does not fit its own problem");
  if (!parts_->first) {
    parts_->first = priced;
    parts_->first_memory_peak = constants.memory_peak;
  }
  return priced;
}

planner::Evaluation PricedRun::price_again(const planner::Cluster& cluster,
                                           const planner::CostConstants& constants) {
  if (parts_->counted.empty()) {
    const planner::Evaluation exact = price(cluster, constants);
    parts_->counted = Counter(cluster, [&](const planner::CostModel& model) {
                        return planner::evaluate(parts_->problem(cluster, model), *parts_->plan);
                      }).run(parts_->again_fixed);
    const double found = price_again(cluster, constants).seconds;
    CAD_CHECK(std::abs(found - exact.seconds) <= 1e-4 * exact.seconds,
              "a step of {} s is counted as {} s", exact.seconds, found);
  }
  planner::Evaluation e = *parts_->first;
  e.compute = 0;
  e.recompute = parts_->again_fixed;
  for (const Counted& c : parts_->counted) {
    const double seconds = planner::compute_seconds(cluster.device, c.work, constants);
    e.compute += c.times * seconds;
    e.recompute += c.again * seconds;
  }
  e.optimizer *= parts_->first_memory_peak / constants.memory_peak;
  e.hidden = constants.overlap * std::min(e.parameters, e.compute);
  e.seconds = e.compute + e.recompute + e.communicate + e.parameters - e.hidden + e.optimizer;
  return e;
}

}  // namespace cad::tools
