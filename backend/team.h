// backend/team.h -- all devices of a run as one of them sees them: small facts exchanged between
// steps (norms, signals, whether a save worked), so that every device takes the same turn. Alone,
// it costs nothing. What a step itself moves is in its program; how, in backend/comm.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "backend/comm/world.h"
#include "base/result.h"

namespace cad::backend {

class Team {
 public:
  Team() = default;  // one device
  explicit Team(Communicator& comm) : comm_(&comm) {}

  [[nodiscard]] int device() const { return comm_ == nullptr ? 0 : comm_->device(); }
  [[nodiscard]] int devices() const { return comm_ == nullptr ? 1 : comm_->world().devices(); }
  [[nodiscard]] bool first() const { return device() == 0; }
  // The first of its process: what a process does once, it does.
  [[nodiscard]] bool first_here() const {
    return comm_ == nullptr || device() == comm_->world().first_device();
  }
  [[nodiscard]] Communicator* comm() const { return comm_; }
  // "device 3", with several processes "device 3 (rank 1)".
  [[nodiscard]] std::string name_of(int device) const {
    return comm_ == nullptr ? "the device" : comm_->world().name_of(device);
  }

  // The same kind of fact of every device, in device order; all call it in the same order. Throws
  // WorldFailed. `what`: for messages.
  template <class T>
  [[nodiscard]] std::vector<T> gather(const T& mine, const char* what) const {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<size_t>(devices()), mine);
    if (comm_ != nullptr) gather(&mine, sizeof(T), all.data(), what);
    return all;
  }
  // Ok when it went well everywhere. Else the device's own error, or one (E1001) that names the
  // first device where it did not. `what`: "saving", "reading the data".
  [[nodiscard]] Status agree(Status mine, const char* what) const;

 private:
  void gather(const void* mine, size_t bytes, void* all, const char* what) const;
  Communicator* comm_ = nullptr;
};

}  // namespace cad::backend
