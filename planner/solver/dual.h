// planner/solver/dual.h -- lower bounds. Memory is priced (a price per row), which leaves a problem
// of nodes and pairs; sequential tree-reweighted message passing (TRW-S, Kolmogorov 2006) bounds
// it from below without solving a linear program. The prices climb along a supergradient.
#pragma once

#include "planner/solver/flat.h"

namespace cad::planner::solver {

class Dual {
 public:
  explicit Dual(const Flat& flat);

  // One pass over the nodes in (reverse) order: new messages along (against) the edges. Returns a
  // valid lower bound of the whole problem at the present prices.
  double sweep(bool forward);
  double bound() const { return bound_; }  // of the last sweep

  // Choices by node, taken in order against the messages (cheap, often good; ignores the budget).
  void decode(bool forward, std::vector<int>& choices) const;

  // Marks every choice whose min-marginal exceeds `limit`: no solution with it costs less or equal.
  // Runs one sweep; needs the sweep before it to have gone the other way at the same prices.
  std::vector<char> hopeless(bool forward, double limit, size_t& count);

  const std::vector<double>& prices() const { return price_; }
  void set_prices(std::vector<double> prices);  // cost per byte, >= 0, by row

  // Node terms and pair terms, all >= 0, whose sum plus bound() is the priced problem: for the
  // program. Runs a backward sweep.
  struct Terms {
    std::vector<double> node;               // as Flat::unary
    std::vector<std::vector<double>> pair;  // by edge [ka][kb]
  };
  Terms terms();

  // Messages and prices of another dual whose flat problem had the same nodes before a reduction.
  void take_over(const Dual& other, const Reduced& now, const Reduced& before);

  // Min-marginal of the choices as of the last sweep that touched the node, least = 0.
  const std::vector<double>& marginals() const { return marginal_; }
  const Flat& flat() const { return flat_; }

 private:
  void price_unaries();
  void collect(int i, double* sum) const;  // priced unary + incoming messages
  double send(int i, int e, bool forward, double share, const double* sum);

  const Flat& flat_;
  std::vector<double> price_;
  std::vector<double> priced_;       // unary + price of memory
  std::vector<size_t> to_b_, to_a_;  // message offsets by edge
  std::vector<double> message_;
  std::vector<double> marginal_;
  double priced_slack_ = 0;
  double bound_ = -kForbidden;
  int widest_ = 0;
};

}  // namespace cad::planner::solver
