// planner/price_model.cc -- see price_model.h. The function is concave and piecewise linear, and
// costs next to nothing beside a fold: ever shorter normalised steps along a supergradient, with
// prices in seconds for the whole budget.
#include "planner/price_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cad::planner {

double MomentPrices::sum() const {
  double total = 0;
  for (const MomentPrice& p : list) total += p.price;
  return total;
}

void PriceModel::add(const std::array<double, 2>& lines, double held, Moments moments) {
  plans_.push_back({lines, held, std::move(moments)});
}

double PriceModel::over(const Plan& plan, const MomentPrice& price) const {
  return plan.held + plan.moments[price.region][price.variable] - budget_;
}

double PriceModel::value(const MomentPrices& at) const {
  double least = std::numeric_limits<double>::infinity();
  for (const Plan& plan : plans_) {
    double value = (1 - at.hide) * plan.lines[0] + at.hide * plan.lines[1];
    for (const MomentPrice& p : at.list) value += p.price * over(plan, p);
    least = std::min(least, value);
  }
  return least;
}

MomentPrices PriceModel::best(const MomentPrices& from) const {
  constexpr double kSteps[] = {0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003};
  constexpr int kEach = 60;
  const size_t n = from.list.size();
  const size_t plans = plans_.size();
  // by plan: seconds without prices, change with `hide`, change with each price, in seconds
  std::vector<double> base, turn, slope(plans * n);
  for (size_t i = 0; i < plans; ++i) {
    base.push_back(plans_[i].lines[0]);
    turn.push_back(plans_[i].lines[1] - plans_[i].lines[0]);
    for (size_t k = 0; k < n; ++k) slope[i * n + k] = over(plans_[i], from.list[k]) / budget_;
  }
  std::vector<double> x(n);
  for (size_t k = 0; k < n; ++k) x[k] = from.list[k].price * budget_;
  double hide = from.hide, top = -std::numeric_limits<double>::infinity();
  std::vector<double> best = x;
  double best_hide = hide;
  for (const double step : kSteps) {
    x = best;
    hide = best_hide;
    for (int round = 0; round < kEach; ++round) {
      double least = std::numeric_limits<double>::infinity();
      size_t at = 0;
      for (size_t i = 0; i < plans; ++i) {
        double value = base[i] + hide * turn[i];
        for (size_t k = 0; k < n; ++k) value += x[k] * slope[i * n + k];
        if (value < least) {
          least = value;
          at = i;
        }
      }
      if (least > top) {
        top = least;
        best = x;
        best_hide = hide;
      }
      // what cannot go further down, or up, does not count
      const double more = turn[at] / seconds_;
      const bool turns = !(hide <= 0 && more < 0) && !(hide >= 1 && more > 0);
      double norm = turns ? more * more : 0;
      for (size_t k = 0; k < n; ++k) {
        const double s = slope[at * n + k];
        if (x[k] > 0 || s > 0) norm += s * s;
      }
      if (!(norm > 0)) break;
      const double length = step * seconds_ / std::sqrt(norm);
      if (turns) hide = std::clamp(hide + length * more / seconds_, 0.0, 1.0);
      for (size_t k = 0; k < n; ++k) x[k] = std::max(0.0, x[k] + length * slope[at * n + k]);
    }
  }
  MomentPrices out = from;
  out.hide = best_hide;
  for (size_t k = 0; k < n; ++k) out.list[k].price = best[k] / budget_;
  return out;
}

}  // namespace cad::planner
