// planner/price_model.h -- what plans that are known say of the best prices: a price of memory
// divided among variables' moments (planner/moments.h), and the weight of overlap's two lines. Each
// plan is a linear function of them and bounds from above what folding there gives; where the least
// of these functions is greatest is the next place to fold at (a cutting-plane method).
#pragma once

#include <array>
#include <vector>

#include "planner/moments.h"

namespace cad::planner {

// Seconds a byte of what is held and of one variable's moment.
struct MomentPrice {
  size_t region = 0, variable = 0;
  double price = 0;
};

struct MomentPrices {
  double hide = 0;  // of overlap's two lines: planner/priced.h
  std::vector<MomentPrice> list;
  double bound = 0;  // seconds, that folding there gave for plans without segments
  [[nodiscard]] double sum() const;
};

class PriceModel {
 public:
  // `budget`: bytes; `seconds`: about what a step takes.
  PriceModel(double budget, double seconds) : budget_(budget), seconds_(seconds) {}

  void add(const std::array<double, 2>& lines, double held, Moments moments);
  // The least that the plans allow there.
  [[nodiscard]] double value(const MomentPrices& at) const;
  // Where that is greatest, about: a search from `from` on, over the prices that it lists.
  [[nodiscard]] MomentPrices best(const MomentPrices& from) const;

 private:
  struct Plan {
    std::array<double, 2> lines;
    double held = 0;
    Moments moments;
  };
  [[nodiscard]] double over(const Plan& plan, const MomentPrice& price) const;

  double budget_, seconds_;
  std::vector<Plan> plans_;
};

}  // namespace cad::planner
