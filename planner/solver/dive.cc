// planner/solver/dive.cc -- rounds of fixing. A batch that leaves nothing feasible is undone and
// halved; a single node that does so loses the choice.
#include "planner/solver/dive.h"

#include <algorithm>
#include <numeric>

namespace cad::planner::solver {
namespace {

struct Candidate {
  int node = 0, choice = 0;  // flat
  double doubt = 0;          // low: sure
};

std::vector<Candidate> by_doubt(Ascent& ascent) {
  const Flat& f = ascent.flat();
  std::vector<Candidate> list;
  for (int i = 0; i < f.nodes(); ++i) {
    const double* m = ascent.dual().marginals().data() + f.first[i];
    const int chosen = ascent.decoded()[i];
    double second = kForbidden;
    for (int k = 0; k < f.choices(i); ++k)
      if (k != chosen) second = std::min(second, m[k]);
    list.push_back({i, chosen, m[chosen] - second});
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const Candidate& x, const Candidate& y) { return x.doubt < y.doubt; });
  return list;
}

void keep_only(Reduced& r, int node, int choice) {
  for (size_t k = 0; k < r.unary[node].size(); ++k)
    if (static_cast<int>(k) != choice) r.unary[node][k] = kForbidden;
}

}  // namespace

bool dive(const Reduced& reduced, const Ascent& start, const Rules& rules,
          const DiveOptions& options, Best& best) {
  auto now = std::make_unique<Reduced>(reduced);
  auto ascent = std::make_unique<Ascent>(*now, rules, start, reduced);
  const double cost_before = best.cost;
  double fraction = options.fraction;
  while (now->live_nodes() > 0) {
    ascent->set_step(options.step);
    const Ascent::End end = ascent->run(options.iterations, best);
    if (end == Ascent::End::kClosed || end == Ascent::End::kTime) return best.cost < cost_before;
    const std::vector<Candidate> candidates = by_doubt(*ascent);
    auto next = std::make_unique<Reduced>(*now);
    size_t count =
        std::max<size_t>(1, static_cast<size_t>(fraction * static_cast<double>(candidates.size())));
    for (size_t c = 0; c < count; ++c)
      keep_only(*next, ascent->flat().node_of[candidates[c].node], candidates[c].choice);
    if (!reduce(*next)) {
      if (count > 1) {
        fraction *= 0.3;
        continue;
      }
      next = std::make_unique<Reduced>(*now);
      next->unary[ascent->flat().node_of[candidates[0].node]][candidates[0].choice] = kForbidden;
      if (!reduce(*next)) return best.cost < cost_before;
    } else {
      fraction = std::min(options.fraction, fraction * 1.5);
    }
    auto climbed = std::make_unique<Ascent>(*next, rules, *ascent, *now);
    ascent = std::move(climbed);
    now = std::move(next);
  }
  if (now->constant < best.cost) {
    best.cost = now->constant;
    best.choices = expand(*now, std::vector<int>(now->state.size(), -1));
  }
  return best.cost < cost_before;
}

}  // namespace cad::planner::solver
