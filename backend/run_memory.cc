// backend/run_memory.cc -- mmap behind backend/run_memory.h.
#include "backend/run_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "base/check.h"

namespace cad::backend {
namespace {
constexpr int kPoison = 0xC5;
}

RunMemory::~RunMemory() {
  if (mapping_ != nullptr) ::munmap(mapping_, static_cast<size_t>(mapped_));
}

int64_t RunMemory::machine_bytes() {
  int64_t limit = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    int64_t value = 0;
    if (file >> value && value > 0) limit = std::min(limit, value);
  }
  return limit;
}

Status RunMemory::allocate(int64_t persistent_bytes, int64_t region_bytes, int64_t budget,
                           int sharing) {
  CAD_CHECK(mapping_ == nullptr, "run memory is allocated once");
  persistent_ = aligned(persistent_bytes);
  region_ = aligned(region_bytes);
  const int64_t have = machine_bytes() / sharing;
  const std::string of_machine =
      sharing == 1 ? "this machine has" : fmt::format("1/{} of this machine is", sharing);
  const auto too_little = [&](const std::string& whose, int64_t limit, int status) {
    // Sizes that round alike are told apart in bytes.
    const bool alike = bytes_text(bytes()) == bytes_text(limit);
    const auto text = [&](int64_t n) { return alike ? fmt::format("{} B", n) : bytes_text(n); };
    Diagnostic error = make_error(
        DiagId::E0703, fmt::format("the run needs {}, {} {}", text(bytes()), whose, text(limit)),
        status);
    error.note(
        fmt::format("{} bytes: parameters and optimizer {}, gradients and a step's own tensors {}",
                    bytes(), bytes_text(persistent_), bytes_text(region_)));
    error.help(
        "smaller micro-batches with `accumulate` need less: a step's own tensors grow with the "
        "batch");
    return error;
  };
  if (budget > 0 && bytes() > budget) return too_little("the budget is", budget, kExitNoPlan);
  if (bytes() > have) return too_little(of_machine, have, kExitNoPlan);
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t body = std::max<int64_t>((bytes() + page - 1) / page * page, page);
  mapped_ = body + page;
  mapping_ = ::mmap(nullptr, static_cast<size_t>(mapped_), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    return too_little(of_machine, have, kExitRunFailed);
  }
  auto* start = static_cast<std::byte*>(mapping_);
  // The region ends (up to alignment) at the guard page.
  base_ = start + (body - bytes()) / kAlignment * kAlignment;
  ::mprotect(start + body, static_cast<size_t>(page), PROT_NONE);
#ifdef MADV_HUGEPAGE
  ::madvise(start, static_cast<size_t>(body), MADV_HUGEPAGE);
#endif
  return Ok{};
}

void RunMemory::poison_region() {
  std::memset(region(), kPoison, static_cast<size_t>(region_));
}

int64_t RunMemory::touched_bytes() const {
  int64_t at = region_;
  while (at > 0 && region()[at - 1] == static_cast<std::byte>(kPoison)) --at;
  return persistent_ + aligned(at);
}

std::string bytes_text(int64_t bytes) {
  static const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace cad::backend
