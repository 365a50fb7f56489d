// backend/comm/thread_world.h -- devices that are threads of one process: members of a group meet,
// then read each other's buffers in place. Sums go in the group's order, so equal programs give
// bit-equal results.
#pragma once

#include <set>

#include "backend/comm/world.h"

namespace cad::backend {

class ThreadWorld : public World {
 public:
  // `patience_s`: for devices that are there and do not come; 0: kCommPatience times the time-out.
  explicit ThreadWorld(int devices, double timeout_s = kCommTimeout, double patience_s = 0);
  ~ThreadWorld() override;

  [[nodiscard]] int devices() const override { return devices_; }
  [[nodiscard]] int first_device() const override { return 0; }
  [[nodiscard]] int local_devices() const override { return devices_; }
  using World::run;
  bool run(int device, std::span<const Move> moves, uint64_t sequence) override;
  void enter(int device) override;
  void leave(int device) override;
  void fail(const std::string& why) override;
  [[nodiscard]] std::optional<std::string> failure() const override;

 private:
  struct Meeting;  // of one group
  Meeting& meeting(const std::vector<int>& members);
  // True when all of the group are here. `what` is for the message of a time-out.
  bool meet(Meeting& m, std::unique_lock<std::mutex>& lock, int index, const char* what);
  static bool give_up(Meeting& m, std::unique_lock<std::mutex>& lock);  // false
  [[nodiscard]] bool there(int device) const;

  int devices_;
  double timeout_s_, patience_s_;
  mutable std::mutex mutex_;  // of all that follows
  std::set<int> there_;       // devices whose threads are at work
  std::map<std::vector<int>, std::unique_ptr<Meeting>> meetings_;
  std::optional<std::string> failure_;
};

}  // namespace cad::backend
