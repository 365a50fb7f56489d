// planner/chain_model.h -- what the programs over a chain share: the memory that each decision of
// the recurrence needs, and which segments of the chain are alike. A segment (s, t) is the stages
// s..t; its memory m excludes the input of s, which whoever asks for the segment holds, and
// includes the gradient of t's output, which is there before the segment starts.
//
//   C(s, t, m) = min of
//     save s with option o     if m >= save_need(s, t, o):  f + b + C(s+1, t, m - saved)
//     keep s's input, run s..k-1 unsaved, k in s+1..t, if m >= the run_needs:
//                              sum of f + C(k, t, m - in(k)) + C(s, k-1, m)
#pragma once

#include <cstdint>
#include <vector>

#include "planner/chain.h"

namespace cad::planner {

class ChainModel {
 public:
  explicit ChainModel(const Chain& chain);

  // How a stage may run without saving: only pairs that no other option beats, by growing
  // transient and falling time.
  struct Unsaved {
    int64_t tmp = 0;
    double forward = 0;
    int32_t option = 0;
  };

  [[nodiscard]] int stages() const { return static_cast<int>(chain_.stages.size()); }
  [[nodiscard]] int64_t in(int s) const { return in_[s]; }
  [[nodiscard]] int64_t out(int s) const { return chain_.stages[s].output; }
  [[nodiscard]] const std::vector<StageOption>& options(int s) const {
    return chain_.stages[s].options;
  }
  [[nodiscard]] const std::vector<Unsaved>& unsaved(int s) const { return unsaved_[s]; }

  // Memory of a segment (s, t) that saves s with option o: in the forward run, and at the backward.
  [[nodiscard]] int64_t save_need(int s, int t, const StageOption& o) const {
    const int64_t forward = out(t) + o.saved + o.forward_tmp;
    const int64_t backward = in_[s] + out(s) + o.saved + o.backward_tmp;
    return forward > backward ? forward : backward;
  }
  // Memory of a segment (s, t) while stage k, s <= k < t, runs unsaved with a transient of tmp.
  [[nodiscard]] int64_t run_need(int s, int k, int t, int64_t tmp) const {
    return out(t) + (k > s ? in_[k] : 0) + out(k) + tmp;
  }
  // Least time of a segment however much memory there is: every stage once, with its fastest
  // option.
  [[nodiscard]] double base(int s, int t) const { return base_[t + 1] - base_[s]; }
  [[nodiscard]] int32_t fastest_option(int s) const { return fastest_[s]; }
  // Memory with which (0, n-1) takes base(): more is never needed.
  [[nodiscard]] int64_t ample() const { return ample_; }

  // Segments with equal ids have equal C. Ids count from 0 by growing length.
  [[nodiscard]] int id(int s, int t) const { return id_[static_cast<size_t>(s) * n_ + t]; }
  [[nodiscard]] const int* ids_from(int s) const { return &id_[static_cast<size_t>(s) * n_]; }
  [[nodiscard]] const int* ids_to(int t) const { return &id_by_end_[static_cast<size_t>(t) * n_]; }
  struct Segment {
    int s = 0, t = 0;
  };
  [[nodiscard]] const std::vector<Segment>& segments() const { return segments_; }
  [[nodiscard]] double splits() const { return splits_; }  // over all segments

 private:
  void intern();

  Chain chain_;
  int n_ = 0;
  std::vector<int64_t> in_;
  std::vector<std::vector<Unsaved>> unsaved_;
  std::vector<double> base_;  // prefix sums
  std::vector<int32_t> fastest_;
  int64_t ample_ = 0;
  std::vector<int> id_, id_by_end_;
  std::vector<Segment> segments_;
  double splits_ = 0;
};

// Least m of every segment, by id: the recurrence with (min, max) for (min, +). Exact.
std::vector<int64_t> least_memory(const ChainModel& model);

}  // namespace cad::planner
