// backend/shard.cc -- see backend/shard.h.
#include "backend/shard.h"

namespace cad::backend {
namespace {

int64_t product(std::span<const int64_t> extents) {
  int64_t n = 1;
  for (const int64_t size : extents) n *= size;
  return n;
}

}  // namespace

int64_t Shard::elements() const {
  return product(padded);
}

int64_t Shard::whole_elements() const {
  return product(whole);
}

int64_t Shard::own_elements() const {
  int64_t n = 1;
  for (const planner::Range& range : own) n *= range.extent;
  return n;
}

bool Shard::is_whole() const {
  return padded == whole && own_elements() == whole_elements();
}

Shard whole_shard(std::vector<int64_t> extents) {
  Shard shard;
  for (const int64_t size : extents) shard.own.push_back({0, size});
  shard.padded = extents;
  shard.whole = std::move(extents);
  return shard;
}

Shard shard_of(const planner::Layout& layout, std::vector<int64_t> extents,
               const planner::Mesh& mesh, std::span<const int> coordinates) {
  Shard shard;
  shard.own = planner::local_ranges(layout, extents, mesh, coordinates);
  for (size_t d = 0; d < extents.size(); ++d)
    shard.padded.push_back(planner::local_extent(layout, static_cast<int>(d), extents[d], mesh));
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    const bool replicated = layout.axis[a] == planner::kReplicated;
    shard.counts = shard.counts && (!replicated || coordinates[a] == 0);
  }
  shard.whole = std::move(extents);
  return shard;
}

}  // namespace cad::backend
