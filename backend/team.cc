// backend/team.cc -- see backend/team.h.
#include "backend/team.h"

#include <cstdio>
#include <numeric>

#include <fmt/format.h>

namespace cad::backend {
namespace {

struct Report {
  int32_t failed = 0;
  char text[508] = {};
};

}  // namespace

void Team::gather(const void* mine, size_t bytes, void* all, const char* what) const {
  CollectiveCall call;
  call.kind = CollectiveKind::kAllGather;
  call.members.resize(static_cast<size_t>(devices()));
  std::iota(call.members.begin(), call.members.end(), 0);
  call.dtype = ir::DType::kBool;  // bytes
  call.inner = static_cast<int64_t>(bytes);
  call.axis = "all devices";
  call.label = what;
  if (!comm_->run(call, mine, all)) throw WorldFailed(comm_->world());
}

Status Team::agree(Status mine, const char* what) const {
  if (comm_ == nullptr) return mine;
  Report report;
  if (!mine.ok()) {
    report.failed = 1;
    std::snprintf(report.text, sizeof report.text, "%s", mine.error().message.c_str());
  }
  const std::vector<Report> all = gather(report, what);
  if (!mine.ok()) return mine;
  for (size_t d = 0; d < all.size(); ++d) {
    if (all[d].failed == 0) continue;
    return make_error(DiagId::E1001,
                      fmt::format("{}, {}: {}", name_of(static_cast<int>(d)), what, all[d].text),
                      kExitRunFailed);
  }
  return Ok{};
}

}  // namespace cad::backend
