// planner/solver/mip_problem.cc -- the program of a reduced problem. Its costs are what the bound
// leaves over: all >= 0, and nothing above the gap to the best known solution is in it, so that
// the numbers are small and most of a large table is gone. Per pair a full local polytope: for
// every choice of an end, the pair's entries with it sum to the choice's column.
#include <algorithm>
#include <cmath>

#include "planner/solver/mip.h"

namespace cad::planner::solver {
namespace {

class Builder {
 public:
  Builder(const Flat& flat, const Dual::Terms& terms, const std::vector<double>& price, double room)
      : f_(flat), terms_(terms), price_(price), room_(room) {
    double largest = 0, whole = 0;
    for (const double term : terms.node)
      if (term <= room && term < kForbidden) largest = std::max(largest, term);
    for (const double cost : flat.unary) whole = std::max(whole, std::abs(cost));
    // terms that are rounding must not be blown up
    const double least = whole > 0 ? 1e-12 * whole : 1;
    unit_ = std::max(room < kForbidden ? room : largest, least);
  }

  // False: more than `most` columns.
  bool build(int64_t most) {
    add_nodes();
    for (size_t e = 0; e < f_.edges.size(); ++e) {
      add_edge(e);
      if (static_cast<int64_t>(program.columns.size()) > most) return false;
    }
    add_memory();
    return true;
  }

  double unit() const { return unit_; }
  Program program;

 private:
  int add_column(double cost, bool whole) {
    program.columns.push_back({cost / unit_, 0, whole ? 1 : kForbidden, whole});
    return static_cast<int>(program.columns.size()) - 1;
  }

  void add_nodes() {
    for (int i = 0; i < f_.nodes(); ++i) {
      Program::Row one;
      for (int c = f_.first[i]; c < f_.first[i + 1]; ++c) {
        one.columns.push_back(add_column(terms_.node[c], true));
        one.values.push_back(1);
      }
      one.least = one.most = 1;
      program.rows.push_back(std::move(one));
    }
  }

  void add_edge(size_t e) {
    const Flat::Edge& edge = f_.edges[e];
    const std::vector<double>& cost = terms_.pair[e];
    if (std::all_of(cost.begin(), cost.end(), [&](double c) { return c <= 1e-12 * unit_; })) return;
    std::vector<Program::Row> of_a(edge.ka), of_b(edge.kb);
    for (int k = 0; k < edge.ka; ++k) {
      for (int l = 0; l < edge.kb; ++l) {
        const double here = cost[static_cast<size_t>(k) * edge.kb + l];
        if (here > room_ || here == kForbidden) continue;
        const int column = add_column(here, false);
        of_a[k].columns.push_back(column);
        of_b[l].columns.push_back(column);
      }
    }
    const auto finish = [&](std::vector<Program::Row>& rows, int node) {
      for (size_t k = 0; k < rows.size(); ++k) {
        rows[k].values.assign(rows[k].columns.size(), 1.0);
        rows[k].columns.push_back(f_.first[node] + static_cast<int>(k));
        rows[k].values.push_back(-1);
        rows[k].least = rows[k].most = 0;
        program.rows.push_back(std::move(rows[k]));
      }
    };
    finish(of_a, edge.a);
    finish(of_b, edge.b);
  }

  void add_memory() {
    const size_t first = program.rows.size();
    for (int r = 0; r < f_.rows(); ++r) {
      const double scale = std::max(1.0, static_cast<double>(f_.slack[r]));
      Program::Row row;
      row.columns.push_back(add_column(price_[r] * scale, false));
      row.values.push_back(1);
      row.least = row.most = static_cast<double>(f_.slack[r]) / scale;
      program.rows.push_back(std::move(row));
    }
    for (int i = 0; i < f_.nodes(); ++i)
      for (int c = f_.first[i]; c < f_.first[i + 1]; ++c) add_uses(first, i, c);
  }

  // Lives of one node may overlap: their uses add in one entry of the row.
  void add_uses(size_t first, int i, int c) {
    for (int u = f_.first_use[i]; u < f_.first_use[i + 1]; ++u) {
      const Flat::Use& use = f_.uses[u];
      const auto bytes = static_cast<double>(f_.use[use.at + (c - f_.first[i])]);
      if (bytes == 0) continue;
      for (int r = use.from; r < use.to; ++r) {
        Program::Row& row = program.rows[first + r];
        const double value = bytes / std::max(1.0, static_cast<double>(f_.slack[r]));
        if (row.columns.back() == c) {
          row.values.back() += value;
        } else {
          row.columns.push_back(c);
          row.values.push_back(value);
        }
      }
    }
  }

  const Flat& f_;
  const Dual::Terms& terms_;
  const std::vector<double>& price_;
  double room_, unit_ = 1;
};

}  // namespace

bool solve_mip(const Reduced& reduced, Ascent& ascent, const Rules& rules, const MipLimits& limits,
               Best& best, MipStats& stats) {
  ascent.back_to_best_prices();
  Dual& dual = ascent.dual();
  const Flat& f = ascent.flat();
  for (int s = 0; s < 3; ++s) {
    dual.sweep(true);
    dual.sweep(false);
  }
  dual.sweep(true);
  const Dual::Terms terms = dual.terms();
  const double limit = rules.limit(best.cost);
  if (dual.bound() > limit) return true;
  Builder builder(f, terms, dual.prices(), limit - dual.bound());
  if (!builder.build(limits.columns)) return false;
  stats.columns = std::max(stats.columns, static_cast<int64_t>(builder.program.columns.size()));
  stats.rows = std::max(stats.rows, static_cast<int64_t>(builder.program.rows.size()));
  const double time = rules.deadline - clock_s();
  if (time <= 0) return false;
  const double cutoff =
      limit < kForbidden ? (limit - dual.bound()) / builder.unit() * (1 + 1e-6) : kForbidden;
  const ProgramResult result = solve_program(builder.program, time, cutoff, limits.work);
  if (result.status == ProgramStatus::kInfeasible) return true;
  if (result.values.empty()) return false;
  std::vector<int> choices(f.nodes());
  for (int i = 0; i < f.nodes(); ++i) {
    const double* values = result.values.data() + f.first[i];
    choices[i] = static_cast<int>(std::max_element(values, values + f.choices(i)) - values);
  }
  const std::vector<int64_t> over = over_use(f, choices);
  const double cost = cost_of(f, choices);
  const bool fits = std::all_of(over.begin(), over.end(), [](int64_t o) { return o <= 0; });
  if (fits && cost < best.cost) {
    best.cost = cost;
    best.choices = expand(reduced, to_live(f, reduced, choices));
  }
  return fits && result.status == ProgramStatus::kOptimal;
}

}  // namespace cad::planner::solver
