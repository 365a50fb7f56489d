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
  p = softmax[S](causal[T, S](q @[K] k / sqrt(K)))
  return {}p @[S] v @[H, K] Wo + bo{}
}}

layer Mlp(x: [B, T, D]) -> [B, T, D] {{
  param W1 : [D, F] = normal(0.02)
  param b1 : [F]    = zeros
  param W2 : [F, D] = normal(0.02)
  param b2 : [D]    = zeros
  return {}gelu(x @[D] W1 + b1, tanh: true) @[F] W2 + b2{}
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
  B:          {:.0f}
  accumulate: {:.0f}
  precision:  {}
  clip:       1.0
  steps:      10
}}
)";

}  // namespace

std::string program_text(const TransformerRun& run) {
  std::string text = fmt::format(
      "dim B\ndim T = {:.0f}, S = T\ndim V = {:.0f}, D = {:.0f}, L = {:.0f}\n"
      "dim H = {:.0f}, K = D / H, F = 4 * D\n",
      run.sequence, run.vocab, run.hidden, run.layers, run.heads);
  const double data = static_cast<double>(run.gpus) / run.tensor;
  const char* open = run.dropout ? "dropout(" : "";
  const char* close = run.dropout ? ", 0.1)" : "";
  return text + fmt::format(kModel, open, close, open, close, run.micro_batch * data,
                            run.accumulate, run.f16 ? "f16" : "bf16");
}

std::string baseline_name(const TransformerRun& run) {
  if (run.tensor > 1) return run.sequence_parallel ? "megatron-sp" : "megatron";
  if (run.gpus == 1) return "single";
  return run.zero == 0 ? "dp" : fmt::format("zero{}", run.zero);
}

std::optional<PlannedStep> planned_step(const TransformerRun& run, const planner::Cluster& cluster,
                                        std::string& why) {
  Sources sources;
  Diagnostics diagnostics;
  const Result<FileId> file = frontend::load_source(sources, "run.cad", program_text(run));
  CAD_CHECK(file.ok(), "a generated program is no text");
  NoFiles reader;
  const auto module = frontend::check(sources, *file, reader, {}, diagnostics);
  CAD_CHECK(!diagnostics.has_errors(), "{}", render_human(diagnostics, sources));
  const Result<ir::TrainSpec> spec = frontend::lower_train(*module);
  CAD_CHECK(spec.ok(), "{}", spec.error().message);
  const ir::Graph graph = ir::run_passes(spec->forward, ir::passes_before_autodiff());
  std::vector<planner::Axis> axes;
  const int data = run.gpus / run.tensor;
  if (data > 1 || run.tensor == 1) axes.push_back({"dp", data});
  if (run.tensor > 1) axes.push_back({"tp", run.tensor});
  const Result<planner::Mesh> mesh = planner::make_mesh(cluster, axes);
  CAD_CHECK(mesh.ok(), "{}", mesh.error().message);
  const planner::SiteGraph sites = planner::find_sites(graph);
  const planner::Problem problem = planner::make_problem(
      sites, *mesh, planner::training_of(*spec, graph), planner::cost_model(cluster.device));
  const planner::BaselineResult result =
      planner::baseline(problem, baseline_name(run), run.recompute);
  why = result.why;
  if (!result.plan) return std::nullopt;
  return PlannedStep{result.evaluation.seconds, result.evaluation.peak};
}

}  // namespace cad::tools
