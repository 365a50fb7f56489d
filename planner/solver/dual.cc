// planner/solver/dual.cc -- the sweeps. In a pass each node gathers its messages, its least value
// goes to the bound, and it passes on an equal share per chain: 1 / max(edges before, after). The
// remainders are all >= 0, which is why the sum of the subtracted leasts is a bound.
#include "planner/solver/dual.h"

#include <algorithm>

#include "base/check.h"

namespace cad::planner::solver {

Dual::Dual(const Flat& flat) : flat_(flat), price_(flat.rows(), 0.0) {
  size_t at = 0;
  for (const Flat::Edge& e : flat.edges) {
    to_b_.push_back(at);
    at += e.kb;
    to_a_.push_back(at);
    at += e.ka;
  }
  message_.assign(at, 0.0);
  marginal_.assign(flat.unary.size(), 0.0);
  for (int i = 0; i < flat.nodes(); ++i) widest_ = std::max(widest_, flat.choices(i));
  price_unaries();
}

void Dual::price_unaries() {
  priced_ = flat_.unary;
  std::vector<double> sum(price_.size() + 1, 0.0);
  priced_slack_ = 0;
  for (size_t r = 0; r < price_.size(); ++r) {
    sum[r + 1] = sum[r] + price_[r];
    priced_slack_ += price_[r] * static_cast<double>(flat_.slack[r]);
  }
  for (int i = 0; i < flat_.nodes(); ++i) {
    for (int u = flat_.first_use[i]; u < flat_.first_use[i + 1]; ++u) {
      const Flat::Use& use = flat_.uses[u];
      const double price = sum[use.to] - sum[use.from];
      if (price <= 0) continue;
      for (int k = 0; k < flat_.choices(i); ++k)
        priced_[flat_.first[i] + k] += price * static_cast<double>(flat_.use[use.at + k]);
    }
  }
}

void Dual::set_prices(std::vector<double> prices) {
  CAD_CHECK(prices.size() == price_.size(), "{} prices for {} rows", prices.size(), price_.size());
  price_ = std::move(prices);
  price_unaries();
}

void Dual::collect(int i, double* sum) const {
  const int k = flat_.choices(i);
  std::copy_n(priced_.data() + flat_.first[i], k, sum);
  for (int at = flat_.first_forward[i]; at < flat_.first_forward[i + 1]; ++at) {
    const double* message = message_.data() + to_a_[flat_.forward[at]];
    for (int c = 0; c < k; ++c) sum[c] += message[c];
  }
  for (int at = flat_.first_backward[i]; at < flat_.first_backward[i + 1]; ++at) {
    const double* message = message_.data() + to_b_[flat_.backward[at]];
    for (int c = 0; c < k; ++c) sum[c] += message[c];
  }
}

// The message from node i over edge e; returns what was subtracted to make its least value 0.
double Dual::send(int i, int e, bool forward, double share, const double* sum) {
  const Flat::Edge& edge = flat_.edges[e];
  const int mine = flat_.choices(i), theirs = forward ? edge.kb : edge.ka;
  const double* back = message_.data() + (forward ? to_a_[e] : to_b_[e]);
  double* out = message_.data() + (forward ? to_b_[e] : to_a_[e]);
  const double* table = flat_.cost.data() + (forward ? edge.cost : edge.turned);
  std::fill_n(out, theirs, kForbidden);
  for (int k = 0; k < mine; ++k, table += theirs) {
    const double here = share * sum[k] - back[k];
    for (int l = 0; l < theirs; ++l) {
      const double value = here + table[l];
      out[l] = value < out[l] ? value : out[l];
    }
  }
  const double least = *std::min_element(out, out + theirs);
  for (int l = 0; l < theirs; ++l) out[l] -= least;
  return least;
}

double Dual::sweep(bool forward) {
  double bound = flat_.constant - priced_slack_;
  const int n = flat_.nodes();
  for (int step = 0; step < n; ++step) {
    const int i = forward ? step : n - 1 - step;
    double* sum = marginal_.data() + flat_.first[i];
    const int k = flat_.choices(i);
    collect(i, sum);
    const double least = *std::min_element(sum, sum + k);
    bound += least;
    for (int c = 0; c < k; ++c) sum[c] -= least;
    const int after = flat_.first_forward[i + 1] - flat_.first_forward[i];
    const int before = flat_.first_backward[i + 1] - flat_.first_backward[i];
    const double share = 1.0 / std::max(1, std::max(after, before));
    const int* edges = forward ? flat_.forward.data() + flat_.first_forward[i]
                               : flat_.backward.data() + flat_.first_backward[i];
    const int count = forward ? after : before;
    for (int at = 0; at < count; ++at) bound += send(i, edges[at], forward, share, sum);
  }
  return bound_ = bound;
}

void Dual::decode(bool forward, std::vector<int>& choices) const {
  const int n = flat_.nodes();
  choices.assign(n, -1);
  std::vector<double> sum(widest_);
  for (int step = 0; step < n; ++step) {
    const int i = forward ? step : n - 1 - step;
    const int k = flat_.choices(i);
    std::copy_n(priced_.data() + flat_.first[i], k, sum.data());
    const auto add = [&](int e, bool other_is_b) {
      const Flat::Edge& edge = flat_.edges[e];
      const int other = other_is_b ? edge.b : edge.a;
      const double* row;
      if (choices[other] < 0) {
        row = message_.data() + (other_is_b ? to_a_[e] : to_b_[e]);
      } else {
        row = flat_.cost.data() + (other_is_b
                                       ? edge.turned + static_cast<size_t>(choices[other]) * edge.ka
                                       : edge.cost + static_cast<size_t>(choices[other]) * edge.kb);
      }
      for (int c = 0; c < k; ++c) sum[c] += row[c];
    };
    for (int at = flat_.first_forward[i]; at < flat_.first_forward[i + 1]; ++at)
      add(flat_.forward[at], true);
    for (int at = flat_.first_backward[i]; at < flat_.first_backward[i + 1]; ++at)
      add(flat_.backward[at], false);
    choices[i] = static_cast<int>(std::min_element(sum.begin(), sum.begin() + k) - sum.begin());
  }
}

std::vector<char> Dual::hopeless(bool forward, double limit, size_t& count) {
  const double before = bound_;
  sweep(forward);
  std::vector<char> mark(marginal_.size(), 0);
  count = 0;
  for (size_t c = 0; c < marginal_.size(); ++c) {
    mark[c] = before + marginal_[c] > limit;
    count += mark[c];
  }
  return mark;
}

Dual::Terms Dual::terms() {
  const std::vector<double> old = message_;  // messages towards a are those the sweep subtracts
  sweep(false);
  Terms terms;
  terms.node = marginal_;
  terms.pair.resize(flat_.edges.size());
  for (int i = 0; i < flat_.nodes(); ++i) {
    const int after = flat_.first_forward[i + 1] - flat_.first_forward[i];
    const int before = flat_.first_backward[i + 1] - flat_.first_backward[i];
    const double share = 1.0 / std::max(1, std::max(after, before));
    for (int at = flat_.first_backward[i]; at < flat_.first_backward[i + 1]; ++at) {
      const int e = flat_.backward[at];
      const Flat::Edge& edge = flat_.edges[e];
      const double* to_b = message_.data() + to_b_[e];
      const double* to_a = message_.data() + to_a_[e];
      std::vector<double>& pair = terms.pair[e];
      pair.resize(static_cast<size_t>(edge.ka) * edge.kb);
      double least = kForbidden;
      for (int k = 0; k < edge.ka; ++k) {
        for (int l = 0; l < edge.kb; ++l) {
          const size_t c = static_cast<size_t>(k) * edge.kb + l;
          pair[c] =
              share * marginal_[flat_.first[i] + l] - to_b[l] + flat_.cost[edge.cost + c] - to_a[k];
          least = std::min(least, pair[c]);
        }
      }
      for (double& value : pair) value -= least;  // the send()'s subtraction, already in the bound
    }
    for (int c = flat_.first[i]; c < flat_.first[i + 1]; ++c) terms.node[c] *= 1 - share * before;
  }
  return terms;
}

void Dual::take_over(const Dual& other, const Reduced& now, const Reduced& before) {
  std::vector<double> prices(flat_.rows(), 0.0);
  for (int r = 0; r < flat_.rows(); ++r) {
    const std::vector<int64_t>& times = other.flat_.times;
    const auto at = std::lower_bound(times.begin(), times.end(), flat_.times[r]);
    if (at != times.end() && *at == flat_.times[r]) prices[r] = other.price_[at - times.begin()];
  }
  set_prices(std::move(prices));
  std::vector<int> old_index(before.state.size(), -1);
  for (int i = 0; i < other.flat_.nodes(); ++i) old_index[other.flat_.node_of[i]] = i;
  const auto copy = [&](int node, const double* from, double* to) {
    const std::vector<int>& were = before.original[node];
    const std::vector<int>& are = now.original[node];
    size_t at = 0;
    for (size_t k = 0; k < are.size(); ++k) {
      while (were[at] != are[k]) ++at;
      to[k] = from[at];
    }
  };
  for (size_t e = 0; e < flat_.edges.size(); ++e) {
    const Flat::Edge& edge = flat_.edges[e];
    const int a = old_index[flat_.node_of[edge.a]], b = old_index[flat_.node_of[edge.b]];
    if (a < 0 || b < 0) continue;
    const auto& edges = other.flat_.edges;
    const auto at = std::lower_bound(edges.begin(), edges.end(), std::make_pair(a, b),
                                     [](const Flat::Edge& x, const std::pair<int, int>& y) {
                                       return x.a != y.first ? x.a < y.first : x.b < y.second;
                                     });
    if (at == edges.end() || at->a != a || at->b != b) continue;
    const size_t f = at - edges.begin();
    copy(flat_.node_of[edge.b], other.message_.data() + other.to_b_[f], message_.data() + to_b_[e]);
    copy(flat_.node_of[edge.a], other.message_.data() + other.to_a_[f], message_.data() + to_a_[e]);
  }
}

}  // namespace cad::planner::solver
