// planner/chain_model.cc -- needs of decisions, segments that are alike, least memory of each.
#include "planner/chain_model.h"

#include <algorithm>
#include <limits>

namespace cad::planner {
namespace {

std::vector<ChainModel::Unsaved> unsaved_options(const std::vector<StageOption>& options) {
  std::vector<ChainModel::Unsaved> all;
  for (size_t o = 0; o < options.size(); ++o) {
    all.push_back({options[o].forward_tmp, options[o].forward, static_cast<int32_t>(o)});
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.tmp != b.tmp ? a.tmp < b.tmp : a.forward < b.forward;
  });
  std::vector<ChainModel::Unsaved> kept;
  for (const auto& u : all) {
    if (kept.empty() || u.forward < kept.back().forward) kept.push_back(u);
  }
  return kept;
}

// The fastest option, of equals the one that saves least.
int32_t fastest(const std::vector<StageOption>& options) {
  const auto best =
      std::min_element(options.begin(), options.end(), [](const auto& a, const auto& b) {
        const double x = a.forward + a.backward, y = b.forward + b.backward;
        return x != y ? x < y : a.saved < b.saved;
      });
  return static_cast<int32_t>(best - options.begin());
}

}  // namespace

ChainModel::ChainModel(const Chain& chain)
    : chain_(chain), n_(static_cast<int>(chain.stages.size())) {
  base_.push_back(0);
  int64_t saved = 0;
  for (int s = 0; s < n_; ++s) {
    in_.push_back(chain.input_of(s));
    unsaved_.push_back(unsaved_options(options(s)));
    fastest_.push_back(fastest(options(s)));
    const StageOption& best = options(s)[fastest_.back()];
    base_.push_back(base_.back() + (best.forward + best.backward));
    ample_ = std::max(ample_, saved + save_need(s, n_ - 1, best));
    saved += best.saved;
  }
  intern();
}

// Stages are alike when sizes and options are; segments when their first stages are alike and what
// follows is. Equal blocks make O(n) different segments instead of O(n^2), and so do repeated
// patterns of several blocks.
void ChainModel::intern() {
  std::vector<int> kind(n_);
  std::vector<int> first;  // a stage of each kind
  for (int s = 0; s < n_; ++s) {
    size_t k = 0;
    while (k < first.size() &&
           !(in_[first[k]] == in_[s] && chain_.stages[first[k]] == chain_.stages[s])) {
      ++k;
    }
    if (k == first.size()) first.push_back(s);
    kind[s] = static_cast<int>(k);
  }
  const auto n = static_cast<size_t>(n_);
  id_.assign(n * n, -1);
  id_by_end_.assign(n * n, -1);
  struct Longer {
    int kind, id;
  };
  std::vector<std::vector<Longer>> longer;  // by id: the segments that have one stage more in front
  std::vector<int> single(first.size(), -1);
  const auto fresh = [&](int s, int t) {
    segments_.push_back({s, t});
    splits_ += t - s;
    longer.emplace_back();
    return static_cast<int>(segments_.size()) - 1;
  };
  for (int length = 1; length <= n_; ++length) {
    for (int s = 0; s + length <= n_; ++s) {
      const int t = s + length - 1;
      int found = -1;
      if (length == 1) {
        if (single[kind[s]] < 0) single[kind[s]] = fresh(s, t);
        found = single[kind[s]];
      } else {
        const int rest = id(s + 1, t);
        for (const Longer& l : longer[rest]) {
          if (l.kind == kind[s]) found = l.id;
        }
        if (found < 0) {
          found = fresh(s, t);
          longer[rest].push_back({kind[s], found});
        }
      }
      id_[s * n + t] = found;
      id_by_end_[t * n + s] = found;
    }
  }
}

std::vector<int64_t> least_memory(const ChainModel& model) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> least(model.segments().size(), kNone);
  for (size_t i = 0; i < least.size(); ++i) {
    const auto [s, t] = model.segments()[i];
    int64_t best = kNone;
    for (const StageOption& o : model.options(s)) {
      const int64_t rest = s < t ? o.saved + least[model.id(s + 1, t)] : 0;
      best = std::min(best, std::max(model.save_need(s, t, o), rest));
    }
    const int* right = model.ids_from(s);
    const int* left = model.ids_to(t);
    int64_t sweep = 0;
    for (int k = s + 1; k <= t && sweep < best; ++k) {
      sweep = std::max(sweep, model.run_need(s, k - 1, t, model.unsaved(k - 1).front().tmp));
      best = std::min(best, std::max({sweep, model.in(k) + least[left[k]], least[right[k - 1]]}));
    }
    least[i] = best;
  }
  return least;
}

}  // namespace cad::planner
