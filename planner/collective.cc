// planner/collective.cc -- see collective.h. A group's levels (pairs < node < network) may be
// walked one by one ("hierarchical": inside, across, inside) or taken together as one flat group
// over the worst of their links; the cheapest way of cutting them is taken.
#include "planner/collective.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace cad::planner {
namespace {

// ceil(log2 n): rounds of recursive halving or doubling (and of Bruck's algorithm, which serves
// sizes that are no power of two with the same rounds and bytes).
int doubling_rounds(int n) {
  int rounds = 0;
  while ((int64_t{1} << rounds) < n) ++rounds;
  return rounds;
}

// Reduce-scatter or all-gather of `bytes` in a flat group of n: either way every device sends
// bytes (n-1)/n, in n-1 messages (ring) or ceil(log2 n) (halving/doubling).
double flat_seconds(int n, const Link& link, double bytes) {
  if (n <= 1) return 0;
  const double moved = bytes * (n - 1) / n / link.bandwidth;
  const double ring = (n - 1) * link.latency + moved;
  const double doubling = doubling_rounds(n) * link.latency + moved;
  return std::min(ring, doubling);
}

// The same over levels[from ..], innermost first. What an inner level of s devices has scattered
// goes on as bytes / s on each of them.
double scatter_seconds(const std::vector<Level>& levels, size_t from, double bytes) {
  if (from == levels.size()) return 0;
  double best = std::numeric_limits<double>::infinity();
  int size = 1;
  Link worst{std::numeric_limits<double>::infinity(), 0};
  for (size_t to = from; to < levels.size(); ++to) {
    size *= levels[to].size;
    worst.bandwidth = std::min(worst.bandwidth, levels[to].link.bandwidth);
    worst.latency = std::max(worst.latency, levels[to].link.latency);
    best = std::min(
        best, flat_seconds(size, worst, bytes) + scatter_seconds(levels, to + 1, bytes / size));
  }
  return best;
}

// Pairwise exchange: n - 1 rounds of bytes / n, each over the link of the level that its partners
// first meet in.
double exchange_seconds(const std::vector<Level>& levels, int n, double bytes) {
  double seconds = 0;
  int inside = 1;
  for (const Level& level : levels) {
    const double rounds = static_cast<double>(inside) * (level.size - 1);
    seconds += rounds * (level.link.latency + bytes / n / level.link.bandwidth);
    inside *= level.size;
  }
  return seconds;
}

double permute_seconds(const std::vector<Level>& levels, double bytes) {
  double seconds = 0;
  for (const Level& level : levels) {
    if (level.size == 1) continue;
    seconds = std::max(seconds, level.link.latency + bytes / level.link.bandwidth);
  }
  return seconds;
}

}  // namespace

const char* collective_name(Collective kind) {
  switch (kind) {
    case Collective::kAllReduce:
      return "all-reduce";
    case Collective::kAllGather:
      return "all-gather";
    case Collective::kReduceScatter:
      return "reduce-scatter";
    case Collective::kAllToAll:
      return "all-to-all";
    case Collective::kPermute:
      return "permute";
  }
  return "";
}

double collective_seconds(const Mesh& mesh, AxisSet set, Collective kind, double bytes) {
  const int n = mesh.size(set);
  if (n == 1) return 0;
  CAD_CHECK(set < mesh.levels.size(), "collective over axes that the mesh lacks");
  const std::vector<Level>& levels = mesh.levels[set];
  switch (kind) {
    case Collective::kAllReduce:
      return 2 * scatter_seconds(levels, 0, bytes);
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return scatter_seconds(levels, 0, bytes);
    case Collective::kAllToAll:
      return exchange_seconds(levels, n, bytes);
    case Collective::kPermute:
      return permute_seconds(levels, bytes);
  }
  return 0;
}

}  // namespace cad::planner
