// tests/equivalence/device_runs.h -- runs of a small model by whatever placement, on devices that
// are threads or ranks, against the same run on one device: losses of every step, gradients of the
// first and the last one, parameters and states after it, on every device; and its memory.
// Placements: plans.h. The lowering alone, in double: tests/spmd.
#pragma once

#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "backend/comm/thread_world.h"
#include "backend/devices.h"
#include "backend/jit.h"
#include "backend/program_impl.h"
#include "backend/trainer.h"
#include "planner/planner.h"
#include "tests/equivalence/models.h"
#include "tests/frontend/section_program.h"

namespace cad::backend {

constexpr int kSteps = 5;

// By path of the whole: all iterations in a row.
using Tensors = std::map<std::string, std::vector<float>>;

// A model and its run on one device. `sites` refers to `forward`.
struct Reference {
  Reference() = default;
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  std::string name;
  ir::TrainSpec spec;
  ir::Graph forward;  // after passes_before_autodiff()
  planner::Extents extents;
  planner::SiteGraph sites;
  std::shared_ptr<Jit> jit = std::make_shared<Jit>();  // of all runs of the model
  std::vector<double> losses;
  Tensors first_gradients, last_gradients, values;
};

struct DeviceResult {
  std::unique_ptr<Trainer> trainer;  // after the last step
  std::vector<double> losses;
  // By parameter, in the optimizer's layout.
  std::vector<std::vector<float>> first_gradients, last_gradients;
};

inline std::vector<std::vector<float>> gradients_of(const Trainer& trainer) {
  std::vector<std::vector<float>> all;
  for (const Parameter& p : trainer.parameters().all()) {
    const float* from = trainer.gradient(p.local);
    all.emplace_back();
    if (from != nullptr) all.back().assign(from, from + p.iterations * p.optimizer.elements());
  }
  return all;
}

inline Status make_steps(DeviceResult& result) {
  std::vector<Diagnostic> warnings;
  CAD_TRY_VOID(result.trainer->start(warnings));
  for (int i = 0; i < kSteps; ++i) {
    CAD_TRY(report, result.trainer->step());
    result.losses.push_back(report.loss);
    if (i == 0) result.first_gradients = gradients_of(*result.trainer);
  }
  result.last_gradients = gradients_of(*result.trainer);
  return Ok{};
}

// `run`: losses and tensors too.
inline std::unique_ptr<const Reference> reference(const TestModel& model, bool run = true) {
  auto made = std::make_unique<Reference>();
  Reference& r = *made;
  r.name = model.name;
  r.spec = frontend::Program(model.text).lowered();
  r.forward = ir::run_passes(r.spec.forward, ir::passes_before_autodiff());
  r.extents = planner::dim_extents(r.forward, r.spec.bindings);
  r.sites = planner::find_sites(r.forward);
  if (!run) return made;
  TrainerOptions options;
  options.threads = 1;
  options.jit = r.jit;
  auto trainer = Trainer::create(r.spec, options);
  EXPECT_TRUE(trainer.ok()) << trainer.error().message;
  DeviceResult one;
  one.trainer = std::move(*trainer);
  const Status status = make_steps(one);
  EXPECT_TRUE(status.ok()) << status.error().message;
  r.losses = one.losses;
  const auto& parameters = one.trainer->parameters().all();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    if (p.trained()) {
      r.first_gradients[p.path] = one.first_gradients[i];
      r.last_gradients[p.path] = one.last_gradients[i];
    }
    if (p.dtype != ir::DType::kF32) continue;
    const auto* values = reinterpret_cast<const float*>(p.data);
    r.values[p.path].assign(values, values + p.elements());
  }
  return made;
}

// The devices of `world` that this process has, each with its steps made. `what`: for messages.
inline std::vector<DeviceResult> run_devices(const Trainer& compiled, World& world,
                                             const std::string& what) {
  std::vector<DeviceResult> results(static_cast<size_t>(world.local_devices()));
  const DevicesOutcome outcome = run_on_devices(world, 1, [&](Device& device) -> Status {
    DeviceResult& mine = results[static_cast<size_t>(device.number - world.first_device())];
    mine.trainer = compiled.on_device(Team(device.comm), device.pool);
    return make_steps(mine);
  });
  EXPECT_TRUE(outcome.ok()) << what << ": "
                            << (outcome.error ? outcome.error->message
                                              : outcome.failure.value_or(""));
  if (!outcome.ok()) results.clear();
  return results;
}

// f(parameter, number of the iteration, shard, values of the iteration) of gradients or of values.
enum class Kind : uint8_t { kFirstGradient, kLastGradient, kValue };
template <class F>
void each_iteration(const DeviceResult& device, Kind kind, F&& f) {
  const auto& parameters = device.trainer->parameters().all();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    if (kind == Kind::kValue ? p.dtype != ir::DType::kF32 : !p.trained()) continue;
    const Shard& shard = kind == Kind::kValue ? p.storage : p.optimizer;
    const float* at = kind == Kind::kValue           ? reinterpret_cast<const float*>(p.data)
                      : kind == Kind::kFirstGradient ? device.first_gradients[i].data()
                                                     : device.last_gradients[i].data();
    for (const int64_t iteration : p.held) {
      f(p, iteration, shard, at);
      at += shard.elements();
    }
  }
}

// "" when every tensor is there as a whole and within 1e-4 of the other's norm: of an element that
// several devices have, the one that is farthest off counts.
inline std::string difference(const std::vector<DeviceResult>& devices, Kind kind,
                              const Tensors& wanted) {
  std::map<std::string, std::vector<double>> off;
  for (const auto& [path, values] : wanted) off[path].assign(values.size(), INFINITY);
  for (const DeviceResult& device : devices) {
    each_iteration(
        device, kind,
        [&](const Parameter& p, int64_t iteration, const Shard& shard, const float* values) {
          const std::vector<float>& whole = wanted.at(p.path);
          std::vector<double>& worst = off.at(p.path);
          const int64_t start = iteration * shard.whole_elements();
          each_stretch(shard, [&](int64_t here, int64_t there, int64_t count) {
            for (int64_t k = 0; k < count; ++k) {
              const auto at = static_cast<size_t>(start + there + k);
              const double d =
                  std::abs(static_cast<double>(values[here + k]) - static_cast<double>(whole[at]));
              worst[at] = std::isinf(worst[at]) ? d : std::max(worst[at], d);
            }
          });
        });
  }
  for (const auto& [path, values] : wanted) {
    double squares = 0, norm = 0;
    for (const double d : off[path]) squares += d * d;
    for (const float v : values) norm += static_cast<double>(v) * static_cast<double>(v);
    if (!(std::sqrt(squares) <= 1e-4 * std::sqrt(norm)))
      return fmt::format("{}: off by {} of {}", path, std::sqrt(squares), std::sqrt(norm));
  }
  return "";
}

// Everything at once, as test failures.
inline void expect_equal(const std::vector<DeviceResult>& devices, const Reference& one,
                         const std::string& what) {
  for (const DeviceResult& device : devices) {
    ASSERT_EQ(device.losses.size(), one.losses.size()) << what;
    EXPECT_EQ(device.losses, devices[0].losses) << what << ": devices report different losses";
    for (size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(device.losses[i], one.losses[i], 1e-5 * std::abs(one.losses[i]))
          << what << ", step " << i + 1;
    }
    const int64_t predicted = device.trainer->memory().total;
    EXPECT_EQ(device.trainer->touched_bytes(), predicted)
        << what << ": measured and predicted peak";
    const int64_t budget = device.trainer->options().budget;
    EXPECT_TRUE(budget == 0 || predicted <= budget)
        << what << ": " << predicted << " of " << budget;
  }
  EXPECT_EQ(difference(devices, Kind::kFirstGradient, one.first_gradients), "")
      << what << ": gradients of the first step";
  EXPECT_EQ(difference(devices, Kind::kLastGradient, one.last_gradients), "")
      << what << ": gradients of the last step";
  EXPECT_EQ(difference(devices, Kind::kValue, one.values), "") << what << ": updated parameters";
}

// A number that stands for all bits of a device's losses, gradients and values.
inline uint64_t bits_of(const DeviceResult& device) {
  uint64_t hash = 1469598103934665603ULL;  // FNV-1a
  const auto add = [&](const void* bytes, size_t count) {
    for (size_t i = 0; i < count; ++i)
      hash = (hash ^ static_cast<const unsigned char*>(bytes)[i]) * 1099511628211ULL;
  };
  add(device.losses.data(), device.losses.size() * sizeof(double));
  for (const Kind kind : {Kind::kFirstGradient, Kind::kLastGradient, Kind::kValue}) {
    each_iteration(device, kind,
                   [&](const Parameter&, int64_t, const Shard& shard, const float* values) {
                     each_stretch(shard, [&](int64_t here, int64_t, int64_t count) {
                       add(values + here, static_cast<size_t>(count) * sizeof(float));
                     });
                   });
  }
  return hash;
}

// Kinds of collectives in the training program.
inline std::set<std::string> collectives_of(const Trainer& trainer) {
  std::set<std::string> kinds;
  for (const CollectivePlan& plan : trainer.train_program().impl().collectives)
    kinds.insert(collective_kind_name(plan.call.kind));
  return kinds;
}

// Programs for the devices of a placement; nullptr and a failure when there are none.
// `layout_only`: for their memory, not to be run.
inline std::unique_ptr<Trainer> compiled(const Reference& model, const std::string& name,
                                         const planner::Placement& placement, int64_t budget = 0,
                                         bool layout_only = false) {
  auto plan = std::make_shared<DevicePlan>();
  plan->name = name;
  plan->train = placement;
  TrainerOptions options;
  options.threads = 1;
  options.plan = plan;
  options.jit = model.jit;
  options.budget = budget;
  options.sharing = placement.mesh.devices();
  options.layout_only = layout_only;
  auto trainer = Trainer::create(model.spec, options);
  EXPECT_TRUE(trainer.ok()) << name << ": " << trainer.error().message;
  return trainer.ok() ? std::move(*trainer) : nullptr;
}

}  // namespace cad::backend
