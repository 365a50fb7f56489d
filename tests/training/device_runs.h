// tests/training/device_runs.h -- a few steps of a program on threads as devices, in memory:
// losses, gradient norms, evaluations and the weights put together from all devices' blocks. Plans
// are drawn at random from all that are legal, or are baselines by name.
#pragma once

#include <mutex>

#include "backend/comm/thread_world.h"
#include "backend/devices.h"
#include "backend/trainer.h"
#include "planner/planner.h"
#include "tests/planner/joint_testing.h"
#include "tests/spmd/spmd_testing.h"

namespace cad::backend {

struct DeviceRun {
  std::vector<double> losses, norms;
  std::vector<EvalReport> evals;  // after the last step
  std::map<std::string, std::vector<float>> weights, moments;
  std::string error;
};

using PlanOfDevices = std::shared_ptr<const DevicePlan>;

struct RunFiles {
  std::string restore, save;  // folders; empty: no
};

// What this device has of some tensors goes into `whole`.
inline void collect(const std::vector<TensorToWrite>& tensors,
                    std::map<std::string, std::vector<float>>& whole) {
  for (const TensorToWrite& tensor : tensors) {
    int64_t elements = 1;
    for (const int64_t extent : tensor.shape) elements *= extent;
    std::vector<float>& values = whole[tensor.name];
    values.resize(static_cast<size_t>(elements));
    if (tensor.data == nullptr || tensor.type != StoredType::kF32) continue;
    each_stretch(tensor.shard.value_or(whole_shard(tensor.shape)), [&](int64_t here, int64_t there,
                                                                       int64_t count) {
      std::copy_n(static_cast<const float*>(tensor.data) + here, count, values.begin() + there);
    });
  }
}

inline Status run_steps(Trainer& trainer, int steps, const RunFiles& files, DeviceRun& run,
                        std::mutex& mutex) {
  std::vector<Diagnostic> warnings;
  CAD_TRY_VOID(trainer.start(warnings));
  if (!files.restore.empty()) {
    CAD_TRY(checkpoint, find_checkpoint(files.restore));
    CAD_TRY_VOID(trainer.restore(checkpoint));
  }
  std::vector<double> losses, norms;
  for (int i = 0; i < steps; ++i) {
    CAD_TRY(report, trainer.step());
    losses.push_back(report.loss);
    norms.push_back(report.grad_norm);
  }
  // whoever holds the same block holds the same bits, after any number of steps
  CAD_TRY_VOID(trainer.check_replicas());
  std::vector<EvalReport> evals = trainer.evaluate_all();
  const CheckpointContents contents = trainer.contents();
  if (!files.save.empty()) {
    CAD_TRY(folder, CheckpointFolder::open(files.save, CheckpointFolder::Mode::kFresh, 1, 0,
                                           trainer.team()));
    CAD_TRY_VOID(folder.save(contents));
  }
  const std::lock_guard lock(mutex);
  collect(contents.model, run.weights);
  collect(contents.optimizer, run.moments);
  if (!trainer.team().first()) return Ok{};
  run.losses = losses;
  run.norms = norms;
  run.evals = std::move(evals);
  return Ok{};
}

// `plan` nullptr: one device. `given`: of as many devices as the plan, else one is made.
inline DeviceRun run_on(const ir::TrainSpec& spec, const PlanOfDevices& plan, int steps,
                        const RunFiles& files = {}, World* given = nullptr) {
  DeviceRun run;
  std::mutex mutex;
  TrainerOptions options;
  options.plan = plan;
  options.threads = 1;
  const int devices = plan == nullptr ? 1 : plan->train.mesh.devices();
  options.sharing = devices;
  auto trainer = Trainer::create(spec, options);
  if (!trainer.ok()) {
    run.error = trainer.error().message;
    return run;
  }
  if (devices == 1) {
    const Status status = run_steps(**trainer, steps, files, run, mutex);
    if (!status.ok()) run.error = status.error().message;
    return run;
  }
  ThreadWorld threads(devices, 60);
  World& world = given != nullptr ? *given : threads;
  const DevicesOutcome outcome = run_on_devices(world, 1, [&](Device& device) -> Status {
    const auto own = (*trainer)->on_device(Team(device.comm), device.pool);
    return run_steps(*own, steps, files, run, mutex);
  });
  if (!outcome.ok())
    run.error = outcome.error ? outcome.error->message : outcome.failure.value_or("failed");
  return run;
}

inline PlanOfDevices plan_from(const std::string& name, planner::Placement placement) {
  auto plan = std::make_shared<DevicePlan>();
  plan->name = name;
  plan->train = std::move(placement);
  return plan;
}

// For a mesh of these sizes over equal links, with ample memory.
inline planner::PlanRequest request_for(const ir::TrainSpec& spec, const ir::Graph& forward,
                                        const std::string& name, const std::vector<int>& sizes) {
  planner::PlanRequest request;
  request.graph = &forward;
  request.training = planner::training_of(spec, forward);
  request.alternatives = false;
  request.idle = false;
  request.proof_s = 0;
  int devices = 1;
  for (const int size : sizes) devices *= size;
  request.cluster = planner::equal_links(devices, 1e8, 1e-6, 1e9);
  request.meshes = {planner::mesh_of(request.cluster, sizes)};
  request.name = name;
  request.budget = 1e12;
  return request;
}

// nullptr: the plan is none of this mesh.
inline PlanOfDevices named_plan(const ir::TrainSpec& spec, const std::string& name,
                                const std::vector<int>& sizes) {
  const ir::Graph forward = ir::run_passes(spec.forward, ir::passes_before_autodiff());
  const planner::Planning planning = planner::make_plan(request_for(spec, forward, name, sizes));
  if (planning.problem == nullptr || planning.body.choices.empty()) return nullptr;
  return plan_from(name, planner::placement_of(*planning.problem, planning.body));
}

}  // namespace cad::backend
