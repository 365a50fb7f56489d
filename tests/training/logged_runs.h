// tests/training/logged_runs.h -- runs of the whole training loop on threads as devices, by what
// they log: losses, norms, evaluations, how they end. Single steps in memory: device_runs.h.
#pragma once

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "backend/comm/thread_world.h"
#include "backend/train_loop.h"

namespace cad::backend {

struct LoggedRun {
  std::vector<double> losses, norms, evals;
  EndReport end;
};

// `plan` nullptr: one device. Logs to `options.log.file`, in which lines may be already.
inline LoggedRun logged_run(const ir::TrainSpec& spec,
                            const std::shared_ptr<const DevicePlan>& plan,
                            TrainLoopOptions options) {
  options.trainer.plan = plan;
  options.trainer.threads = 1;
  std::unique_ptr<World> world;
  if (plan != nullptr) {
    world = std::make_unique<ThreadWorld>(plan->train.mesh.devices(), 60);
    options.trainer.sharing = world->devices();
  }
  options.world = world.get();
  options.log.quiet = true;
  auto outcome = train(spec, options, [](const std::vector<Diagnostic>&) {});
  LoggedRun run;
  EXPECT_TRUE(outcome.ok()) << options.log.file << ": " << outcome.error().message;
  if (!outcome.ok()) return run;
  run.end = outcome->end;
  std::ifstream log(options.log.file);
  for (std::string line; std::getline(log, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event["event"] == "step") {
      run.losses.push_back(event["loss"]);
      run.norms.push_back(event["grad_norm"]);
    }
    if (event["event"] == "eval") run.evals.push_back(event["loss"]);
  }
  return run;
}

}  // namespace cad::backend
