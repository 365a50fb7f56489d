// planner/exact_labels.cc -- see exact_labels.h.
#include "planner/exact_labels.h"

#include <algorithm>

namespace cad::planner {

void LabelMaker::add(const Label& label) {
  Candidate c;
  c.label = label;
  c.left = label.from;
  made_.push_back(c);
}

Labels LabelMaker::take(double floor, bool loose) {
  std::sort(made_.begin(), made_.end(), [](const Candidate& a, const Candidate& b) {
    const Label &x = a.label, &y = b.label;
    if (x.held != y.held) return x.held < y.held;
    if (x.hidden_comm != y.hidden_comm) return x.hidden_comm < y.hidden_comm;
    if (x.hidden_compute != y.hidden_compute) return x.hidden_compute < y.hidden_compute;
    if (x.moment != y.moment) return x.moment < y.moment;
    return x.again < y.again;
  });
  Labels kept;
  std::vector<Label> order;  // of `kept`, those that beat others moved towards the front
  for (const Candidate& c : made_) {
    const Label& x = c.label;
    const double moment = std::max(x.moment, floor);
    size_t i = 0;
    for (; i < order.size(); ++i) {
      const Label& y = order[i];
      if (y.hidden_comm <= x.hidden_comm + grain_ &&
          y.hidden_compute <= x.hidden_compute + grain_ && y.moment <= moment &&
          (loose || y.again <= x.again))
        break;
    }
    work_ -= static_cast<int64_t>(i) + 1;
    if (work_ <= 0) break;
    if (i < order.size()) {
      std::swap(order[i], order[i / 2]);
      continue;
    }
    kept.push_back(x);
    kept.back().from = c.kind == Derivation::Kind::kJoin
                           ? derivations_.join(c.left, c.right)
                           : derivations_.add({c.kind, c.left, c.right});
    order.push_back(x);
  }
  made_.clear();
  return kept;
}

}  // namespace cad::planner
