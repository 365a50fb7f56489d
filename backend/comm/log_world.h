// backend/comm/log_world.h -- a world of one device's making for tests: it notes the collectives
// that the device runs and plays the other members as if they held the same values.
#pragma once

#include "backend/comm/world.h"

namespace cad::backend {

class LogWorld : public World {
 public:
  explicit LogWorld(int devices) : devices_(devices) {}
  [[nodiscard]] int devices() const override { return devices_; }
  [[nodiscard]] int first_device() const override { return 0; }
  [[nodiscard]] int local_devices() const override { return 1; }
  using World::run;
  bool run(int device, std::span<const Move> moves, uint64_t sequence) override;
  void fail(const std::string& why) override;
  [[nodiscard]] std::optional<std::string> failure() const override;
  // "0 all-reduce over `dp` (16384 bytes of f32): gradient of wte", one a collective
  [[nodiscard]] std::vector<std::string> log() const;

 private:
  static void play(int device, const CollectiveCall& call, const void* in, void* out);

  int devices_;
  mutable std::mutex mutex_;
  std::vector<std::string> log_;
  std::optional<std::string> failure_;
};

}  // namespace cad::backend
