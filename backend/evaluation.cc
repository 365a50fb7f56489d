// backend/evaluation.cc -- see backend/evaluation.h.
#include "backend/evaluation.h"

#include <fmt/format.h>

#include "backend/comm/agree.h"
#include "backend/devices.h"
#include "ir/text.h"

namespace cad::backend {
namespace {

// What must be the same on all devices.
Status check_equal(const Trainer& trainer) {
  const Team& team = trainer.team();
  if (team.comm() == nullptr) return Ok{};
  std::string program, data;
  for (size_t i = 0; i < trainer.spec().evals.size(); ++i) {
    program += ir::print(trainer.spec().evals[i].graph);
    data += trainer.eval_data(i).fingerprint() + "\n";
  }
  const std::pair<const char*, std::string> facts[] = {
      {"program", program},
      {"plan", trainer.parameters().layouts_text()},
      {"settings", trainer.config_hash()},
      {"data", data}};
  for (const auto& [name, text] : facts) {
    if (const auto difference = agree(*team.comm(), name, text))
      return make_error(DiagId::E1002, *difference, kExitRunFailed);
  }
  return Ok{};
}

Result<Evaluation> evaluate_device(Trainer& trainer) {
  Evaluation out;
  CAD_TRY_VOID(check_equal(trainer));
  CAD_TRY_VOID(trainer.start(out.warnings));
  CAD_TRY_VOID(trainer.check_replicas());
  out.reports = trainer.evaluate_all();
  for (size_t i = 0; i < out.reports.size() && out.finite.ok(); ++i)
    out.finite = trainer.check_finite(i, out.reports[i]);
  return out;
}

}  // namespace

Result<Evaluation> evaluate(std::unique_ptr<Trainer> trainer, World* world) {
  if (world == nullptr) return evaluate_device(*trainer);
  std::vector<std::optional<Result<Evaluation>>> results(
      static_cast<size_t>(world->local_devices()));
  const DevicesOutcome all =
      run_on_devices(*world, trainer->options().threads, [&](Device& device) -> Status {
        const auto own = trainer->on_device(Team(device.comm), device.pool);
        results[static_cast<size_t>(device.number - world->first_device())].emplace(
            evaluate_device(*own));
        return Ok{};
      });
  return first_of(results, all);
}

}  // namespace cad::backend
