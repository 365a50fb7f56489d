// tools/published_plans.cc -- see published_plans.h.
#include "tools/published_plans.h"

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
  const Result<planner::Mesh> mesh = planner::make_mesh(cluster, axes_of(parts_->run));
  CAD_CHECK(mesh.ok(), "{}", mesh.error().message);
  const planner::Problem problem = planner::make_problem(
      parts_->sites, *mesh, parts_->training, planner::cost_model(cluster.device, constants));
  if (!parts_->plan) {
    planner::BaselineResult found =
        planner::baseline(problem, parts_->run.plan, parts_->run.recompute);
    CAD_CHECK(found.plan.has_value(), "{}: {}", parts_->run.plan, found.why);
    parts_->plan = std::move(found.plan);
  }
  const planner::Evaluation priced = planner::evaluate(problem, *parts_->plan);
  CAD_CHECK(priced.valid, "a plan that does not fit its own problem");
  return priced;
}

}  // namespace cad::tools
