// planner/segment_bound.cc -- see segment_bound.h. The bound is a concave function of the price and
// of its parts: a search for its top, one of them at a time.
#include "planner/segment_bound.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/segments.h"

namespace cad::planner {

namespace {

class Ascent {
 public:
  Ascent(const Problem& problem, const SegmentBoundStart& start, double budget, double enough,
         int folds)
      : p_(problem),
        start_(start),
        options_(start.options),
        budget_(budget),
        enough_(enough),
        folds_(folds),
        price_(start.near) {}

  double run() {
    constexpr double kEnd = 1.02;  // of prices
    top_ = bound_at(price_, weights_);
    double factor = 4, turn = 0.5;
    while (goes_on() && factor > kEnd) {
      const bool dearer = step_price(factor);
      const bool turned = turn_weights(turn);
      if (dearer || turned) continue;
      factor = std::sqrt(factor);
      turn /= 2;
    }
    return best_;
  }

 private:
  [[nodiscard]] bool goes_on() const { return folds_ > 0 && best_ < enough_; }

  double bound_at(double price, const SegmentWeights& weights) {
    --folds_;
    const SegmentParts divided = segment_parts(p_, budget_, weights, options_.moments);
    options_.price = price;
    options_.segments = &divided.prices;
    const Priced priced(p_, options_);
    options_.segments = nullptr;
    const double floor = options_.moments != nullptr ? 0 : divided.prices.moment * start_.floor;
    const double bound = safe(priced.bound()) - price * (divided.room - floor);
    best_ = std::max(best_, bound);
    return bound;
  }

  // True: it is higher there, where the search goes on.
  bool attempt(double price, const SegmentWeights& weights) {
    if (!goes_on()) return false;
    const double bound = bound_at(price, weights);
    if (bound <= top_) return false;
    top_ = bound;
    price_ = price;
    weights_ = weights;
    return true;
  }

  // Ever longer steps one way, else the other.
  bool step_price(double factor) {
    for (const int sign : {1, -1}) {
      bool better = false;
      for (double f = factor; attempt(sign > 0 ? price_ * f : price_ / f, weights_); f *= f)
        better = true;
      if (better) return true;
    }
    return false;
  }

  // More of one part, the others as they are; or less of it.
  bool turn_weights(double turn) {
    bool better = false;
    for (size_t k = weights_.size(); k-- > 0;) {
      SegmentWeights next = weights_;
      next[k] += turn;
      if (attempt(price_ * (1 + turn), next)) {
        for (double& x : weights_) x /= 1 + turn;
        better = true;
        continue;
      }
      if (weights_[k] == 0) continue;
      next = weights_;
      next[k] = std::max(0.0, next[k] - turn);
      const double sum = std::accumulate(next.begin(), next.end(), 0.0);
      if (sum <= 0 || !attempt(price_ * sum, next)) continue;
      for (double& x : weights_) x /= sum;
      better = true;
    }
    return better;
  }

  const Problem& p_;
  const SegmentBoundStart& start_;
  PriceOptions options_;
  double budget_, enough_;
  int folds_;
  double price_;
  SegmentWeights weights_ = {1, 0, 0, 0, 0};
  double top_ = 0;   // of the place that was reached
  double best_ = 0;  // of all
};

}  // namespace

double segment_bound(const Problem& problem, const SegmentBoundStart& start, double budget,
                     double enough, int folds) {
  return Ascent(problem, start, budget, enough, folds).run();
}

}  // namespace cad::planner
