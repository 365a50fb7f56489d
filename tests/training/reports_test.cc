// tests/training/reports_test.cc -- what users of other trainers ran into, as runs with a right
// answer: gains of norms on devices that split tokens, a public user's encoder on several meshes,
// which of two equal norms runs again, evaluations of checkpointed plans.
#include <cmath>
#include <cstring>
#include <mutex>

#include "ir/profile.h"
#include "tests/training/device_runs.h"

namespace cad::backend {
namespace {

// A plan of this name on this mesh with ample memory, or with so much of what it then needs above
// the least.
PlanOfDevices plan_of(const ir::TrainSpec& spec, const std::string& name,
                      const std::vector<int>& sizes, double part = 0) {
  const ir::Graph forward = ir::run_passes(spec.forward, ir::passes_before_autodiff());
  planner::PlanRequest request = request_for(spec, forward, name, sizes);
  planner::Planning planning = planner::make_plan(request);
  if (part > 0) {
    request.budget = 1;
    const double least = planner::make_plan(request).least_peak;
    request.budget = std::ceil(least + part * (planning.plan.predicted.peak_bytes - least));
    planning = planner::make_plan(request);
  }
  EXPECT_TRUE(planning.feasible) << name;
  return plan_from(name, planner::placement_of(*planning.problem, planning.body));
}

// What a device has after some steps.
struct After {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> values;  // by path, as stored on the device
  std::map<std::string, std::vector<float>> gradients;
};

Status make_steps(Trainer& trainer, int steps, After& after) {
  std::vector<Diagnostic> warnings;
  if (Status started = trainer.start(warnings); !started.ok()) return started;
  for (int i = 0; i < steps; ++i) {
    const Result<StepReport> report = trainer.step();
    if (!report.ok()) return report.error();
    after.losses.push_back(report->loss);
  }
  for (const Parameter& p : trainer.parameters().all()) {
    if (p.kind != ir::InputKind::kParam) continue;
    std::vector<float>& list = after.values[p.path];
    const size_t at = list.size();
    list.resize(at + static_cast<size_t>(p.elements()));
    std::memcpy(list.data() + at, p.data, static_cast<size_t>(p.bytes()));
    if (!p.trained() || trainer.devices() > 1) continue;
    const float* gradient = trainer.gradient(p.local);
    after.gradients[p.path].assign(gradient, gradient + p.elements());
  }
  return Ok{};
}

// By device; `plan` nullptr: one.
std::vector<After> trained(const ir::TrainSpec& spec, const std::shared_ptr<const DevicePlan>& plan,
                           int steps) {
  TrainerOptions options;
  options.threads = 1;
  options.plan = plan;
  if (plan == nullptr) {
    auto trainer = Trainer::create(spec, options);
    EXPECT_TRUE(trainer.ok());
    std::vector<After> one(1);
    const Status status = make_steps(**trainer, steps, one[0]);
    EXPECT_TRUE(status.ok());
    return one;
  }
  ThreadWorld world(plan->train.mesh.devices(), 60);
  options.sharing = world.devices();
  auto trainer = Trainer::create(spec, options);
  EXPECT_TRUE(trainer.ok());
  std::vector<After> all(static_cast<size_t>(world.devices()));
  const DevicesOutcome outcome = run_on_devices(world, 1, [&](Device& device) -> Status {
    const auto own = (*trainer)->on_device(Team(device.comm), device.pool);
    return make_steps(*own, steps, all[static_cast<size_t>(device.number)]);
  });
  EXPECT_TRUE(outcome.ok()) << (outcome.error ? outcome.error->message : "");
  return all;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, double relative,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  double difference = 0, norm = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  EXPECT_LE(std::sqrt(difference), relative * std::sqrt(norm)) << what;
}

// A gain's gradient is a sum over tokens, of which each device has some.
TEST(TrainingReports, GainsOfNormsAreTheSameOnEveryDevice) {
  const ir::TrainSpec spec =
      frontend::Program(
          "dim B, T = 8, D = 12\nmodel Net(x: [B, T, D]) -> [B, T, D] {\n"
          "  x = Linear[D -> D](LayerNorm[D](x))\n  return Linear[D -> D](RMSNorm[D](x))\n}\n"
          "train t {\n  data: synthetic(x: f32[B, T, D], y: f32[B, T, D])\n"
          "  loss: mse(Net(x), y)\n  optimizer: adam(lr: 1e-2)\n  B: 4\n  steps: 10\n}\n")
          .lowered();
  const After one = trained(spec, nullptr, 10)[0];
  int gains = 0;
  for (const auto& [name, sizes] : std::vector<std::pair<std::string, std::vector<int>>>{
           {"dp", {2}}, {"dp", {4}}, {"megatron-sp", {2, 2}}, {"megatron-sp", {2}}}) {
    const auto plan = plan_of(spec, name, sizes);
    const std::vector<After> all = trained(spec, plan, 10);
    for (const After& device : all) {
      EXPECT_EQ(device.losses, all[0].losses) << name;
      EXPECT_NEAR(device.losses.back(), one.losses.back(), 1e-5 * one.losses.back()) << name;
      for (const auto& [path, values] : device.values) {
        if (values.size() != 12 || path.find("norm") == std::string::npos) continue;
        ++gains;
        EXPECT_EQ(values, all[0].values.at(path)) << name << " " << path;
        expect_near(values, one.values.at(path), 1e-5, name + " " + path);
      }
    }
  }
  // gain and shift of one norm, gain of the other; split over an axis they have no copies
  EXPECT_GE(gains, (2 + 4) * 3);
}

// What a program costs is counted anew each time: neither steps nor evaluations add to it.
TEST(TrainingReports, AProfileIsTheSameBeforeAndAfterTraining) {
  const ir::TrainSpec spec =
      frontend::Program(
          "dim B, T = 6, S = T, D = 8, H = 2, K = D / H, F = 16\n"
          "model Net(x: [B, T, D]) -> [B, T, D] {\n"
          "  repeat 2 as h { x = EncoderBlock[T -> S, D, H, K, F](x) }\n  return x\n}\n"
          "train t {\n  data: synthetic(x: f32[B, T, D], y: f32[B, T, D])\n"
          "  loss: mse(Net(x), y)\n  optimizer: adam(lr: 0.01)\n  B: 4\n  steps: 4\n"
          "  eval { data: synthetic(x: f32[B, T, D], y: f32[B, T, D]), every: 2, batches: 1 }\n}\n")
          .lowered();
  const auto figures = [&] {
    const ir::Profile p = ir::profile(spec);
    const std::vector<double> extents = p.extents(spec.bindings);
    const ir::Profile::Peak peak = p.peak(extents);
    std::vector<double> list = {peak.bytes, peak.transient};
    for (const ir::Amount& amount :
         {p.total.forward.flops(), p.total.forward.bytes(), p.total.backward.flops(),
          p.total.backward.bytes(), p.total.params, p.total.grad_bytes, p.total.optimizer_bytes,
          p.total.activation_bytes})
      list.push_back(amount.at(extents));
    return list;
  };
  const std::vector<double> before = figures();
  for (const double figure : before) EXPECT_GT(figure, 0);
  TrainerOptions options;
  options.threads = 1;
  auto trainer = Trainer::create(spec, options);
  ASSERT_TRUE(trainer.ok());
  std::vector<Diagnostic> warnings;
  ASSERT_TRUE((*trainer)->start(warnings).ok());
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE((*trainer)->step().ok());
    EXPECT_EQ(figures(), before) << "after step " << round + 1;
    EXPECT_EQ((*trainer)->evaluate(0).rows, 4);
    EXPECT_EQ(figures(), before) << "after evaluation " << round + 1;
  }
}

// Two encoder layers of width 256 and 8 heads, 16 rows of 8, Adam with 0.01.
TEST(TrainingReports, AnEncoderIsTheSameOnAnyMesh) {
  const ir::TrainSpec spec =
      frontend::Program(
          "dim B, T = 8, S = T, D = 256, H = 8, K = D / H, F = 4 * D\n"
          "model Net(x: [B, T, D]) -> [B, T, D] {\n"
          "  repeat 2 as h { x = EncoderBlock[T -> S, D, H, K, F](x) }\n  return x\n}\n"
          "train t {\n  data: synthetic(x: f32[B, T, D], y: f32[B, T, D])\n"
          "  loss: mse(Net(x), y)\n  optimizer: adam(lr: 0.01)\n  B: 16\n  steps: 2\n}\n")
          .lowered();
  const After one = trained(spec, nullptr, 2)[0];
  for (const auto& [name, sizes] :
       std::vector<std::pair<std::string, std::vector<int>>>{{"auto", {1}},
                                                             {"auto", {2}},
                                                             {"auto", {3}},
                                                             {"auto", {4}},
                                                             {"auto", {2, 2}},
                                                             {"megatron", {2, 2}},
                                                             {"zero3", {3}}}) {
    const auto plan = plan_of(spec, name, sizes);
    for (const After& device : trained(spec, plan, 2)) {
      ASSERT_EQ(device.losses.size(), one.losses.size());
      for (size_t i = 0; i < one.losses.size(); ++i)
        EXPECT_NEAR(device.losses[i], one.losses[i], 1e-5 * one.losses[i])
            << name << " on " << plan->train.mesh.str();
    }
  }
}

// Two norms of one shape with weights of their own; what runs again is chosen by name.
TEST(TrainingReports, WhatRunsAgainIsThatBlocksOwn) {
  const auto after = [](const std::string& norms, const std::string& attention,
                        const std::string& mlp) {
    const ir::TrainSpec spec =
        frontend::Program(
            "dim B, T = 6, S = T, D = 8, H = 2, K = D / H, F = 16\n"
            "model Net(x: [B, T, D]) -> [B, T, D] {\n  repeat 2 as h {\n"
            "    param g1, g2 : [D] = normal(1)\n    param b1, b2 : [D] = normal(1)\n"
            "    n = layer_norm[D](x, g1, b1)" +
            norms + "\n    a = Attention[T -> S, D, H, K](n)" + attention +
            "\n    x = x + a\n    m = layer_norm[D](x, g2, b2)" + norms +
            "\n    f = MLP[D -> F](m)" + mlp +
            "\n    x = x + f\n  }\n  return x\n}\n"
            "train t {\n  data: synthetic(x: f32[B, T, D], y: f32[B, T, D])\n"
            "  loss: mse(Net(x), y)\n  optimizer: sgd(lr: 1e-2)\n  B: 3\n  steps: 2\n}\n")
            .lowered();
    return trained(spec, nullptr, 2)[0];
  };
  const After plain = after("", "", "");
  const std::string again = " @recompute";
  int compared = 0;
  for (const After& other :
       {after(again, "", ""), after("", "", again), after("", again, ""),
        after(again, again, again), after("", " @checkpoint", " @checkpoint")}) {
    EXPECT_EQ(other.losses, plain.losses);
    ASSERT_EQ(other.gradients.size(), plain.gradients.size());
    for (const auto& [path, values] : plain.gradients) {
      EXPECT_EQ(other.gradients.at(path), values) << path;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 5 * 12);  // 4 of the norms, 4 of the attention, 4 of the MLP
}

// Nothing is kept for a backward pass that does not come, and nothing runs twice.
TEST(TrainingReports, EvaluationsKnowNothingOfCheckpoints) {
  const auto spec_of = [](const std::string& loop, const std::string& value) {
    return frontend::Program(
               "dim B, D = 64, F = 256\nmodel Net(x: [B, D]) -> [B, D] {\n  repeat 6 as h" + loop +
               " {\n    x = x + Linear[F -> D](gelu(Linear[D -> F](x)))" + value +
               "\n  }\n  return x\n}\ntrain t {\n"
               "  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
               "  optimizer: sgd(lr: 1e-2)\n  B: 32\n  steps: 2\n"
               "  eval { data: synthetic(x: f32[B, D], y: f32[B, D]), every: 1, batches: 1 }\n}\n")
        .lowered();
  };
  struct Evaluated {
    int64_t region = 0;
    double loss = 0;
  };
  const auto evaluated = [](const ir::TrainSpec& spec,
                            const std::shared_ptr<const DevicePlan>& plan) {
    TrainerOptions options;
    options.threads = 1;
    options.evaluate_only = true;
    options.plan = plan;
    auto trainer = Trainer::create(spec, options);
    EXPECT_TRUE(trainer.ok());
    std::vector<Diagnostic> warnings;
    EXPECT_TRUE((*trainer)->start(warnings).ok());
    Evaluated e;
    e.region = (*trainer)->memory().region;
    e.loss = (*trainer)->evaluate(0).values.at(0).second;
    return e;
  };
  const ir::TrainSpec plain = spec_of("", "");
  const Evaluated wanted = evaluated(plain, nullptr);
  for (const ir::TrainSpec& spec : {spec_of(" @checkpoint", ""), spec_of("", " @recompute")}) {
    const Evaluated got = evaluated(spec, nullptr);
    EXPECT_EQ(got.region, wanted.region);
    EXPECT_EQ(got.loss, wanted.loss);
  }
  // a plan for little more than the least memory: nearly everything runs again
  const Evaluated got = evaluated(plain, plan_of(plain, "auto", {1}, 0.02));
  EXPECT_EQ(got.region, wanted.region);
  EXPECT_EQ(got.loss, wanted.loss);
}

}  // namespace
}  // namespace cad::backend
