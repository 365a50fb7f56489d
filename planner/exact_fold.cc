// planner/exact_fold.cc -- see exact_fold.h: the order of elimination, and numbers in both
// directions. With X, Y the tables from a node to its neighbours a and b, and own what its choices
// cost by a row of each, the message is  M = X^T (own Y)  in min-plus; from what is outside of M
// follows what is outside of own, of X, of Y and of each choice. A missing neighbour is a table of
// one zero.
#include "planner/exact_fold.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace cad::planner {

namespace {

Table turned(const Table& t) {
  Table out(t.columns, t.rows, 0);
  for (int r = 0; r < t.rows; ++r) {
    for (int c = 0; c < t.columns; ++c) out(c, r) = t(r, c);
  }
  return out;
}

// a - b where kNever stays kNever.
float less(float a, float b) {
  return a == kNever || b == kNever ? kNever : a - b;
}

}  // namespace

ExactFold::ExactFold(const ExactRegion& region) : r_(region) {
  for (const ExactFactor& f : region.factors) {
    Shape s{f.a, f.b, f.labels.rows, f.labels.columns, f.class_a, f.class_b, false};
    s.whole = std::any_of(f.labels.cells.begin(), f.labels.cells.end(),
                          [](const Labels& cell) { return cell.size() > 1; });
    if (f.a < 0) constants_.push_back(static_cast<int>(shapes_.size()));
    shapes_.push_back(std::move(s));
  }
  order();
}

void ExactFold::order() {
  used_.assign(shapes_.size(), 0);
  for (const int c : constants_) used_[static_cast<size_t>(c)] = 1;
  std::vector<char> gone(r_.nodes.size(), 0);
  size_t left = r_.nodes.size() - (r_.entry >= 0 ? 2 : 0);
  for (; left > 0; --left) {
    const int node = choose(gone);
    if (node < 0) {
      stuck_ = true;
      return;
    }
    eliminate(node, gone);
  }
  if (r_.entry < 0) return;
  std::vector<int> between;
  for (size_t f = 0; f < shapes_.size(); ++f) {
    if (used_[f] != 0) continue;
    if (shapes_[f].b < 0)
      last_single_[shapes_[f].a == r_.entry ? 0 : 1].push_back(static_cast<int>(f));
    else
      between.push_back(static_cast<int>(f));
  }
  last_ = merged(r_.entry, r_.exit, between);
}

// Of the nodes with at most two neighbours the one whose tables are smallest.
int ExactFold::choose(const std::vector<char>& gone) const {
  std::vector<std::vector<int>> near(r_.nodes.size());
  std::vector<double> size(r_.nodes.size(), 1);
  for (size_t f = 0; f < shapes_.size(); ++f) {
    const Shape& s = shapes_[f];
    if (used_[f] != 0 || s.b < 0) continue;
    for (const auto& [node, other] : {std::pair{s.a, s.b}, {s.b, s.a}}) {
      std::vector<int>& list = near[static_cast<size_t>(node)];
      if (std::find(list.begin(), list.end(), other) == list.end()) list.push_back(other);
      size[static_cast<size_t>(node)] *= static_cast<double>(s.rows) * s.columns;
    }
  }
  int best = -1;
  const auto key = [&](int n) {
    return std::make_pair(near[static_cast<size_t>(n)].size(), size[static_cast<size_t>(n)]);
  };
  for (int n = 0; n < static_cast<int>(r_.nodes.size()); ++n) {
    if (gone[static_cast<size_t>(n)] != 0 || n == r_.entry || n == r_.exit) continue;
    if (near[static_cast<size_t>(n)].size() > 2) continue;
    if (best < 0 || key(n) < key(best)) best = n;
  }
  return best;
}

void ExactFold::eliminate(int node, std::vector<char>& gone) {
  Step step;
  step.node = node;
  std::vector<std::pair<int, std::vector<int>>> near;
  for (size_t f = 0; f < shapes_.size(); ++f) {
    const Shape& s = shapes_[f];
    if (used_[f] != 0 || (s.a != node && s.b != node)) continue;
    used_[f] = 1;
    if (s.b < 0) {
      step.single.push_back(static_cast<int>(f));
      continue;
    }
    const int other = s.a == node ? s.b : s.a;
    auto at =
        std::find_if(near.begin(), near.end(), [&](const auto& n) { return n.first == other; });
    if (at == near.end()) at = near.insert(near.end(), {other, {}});
    at->second.push_back(static_cast<int>(f));
  }
  for (size_t i = 0; i < 2; ++i)
    step.sides[i] =
        i < near.size() ? merged(node, near[i].first, near[i].second) : merged(node, -1, {});
  const Side &x = step.sides[0], &y = step.sides[1];
  shapes_.push_back({x.other, y.other, x.columns, y.columns, x.theirs, y.theirs, true});
  used_.push_back(x.other < 0 ? 1 : 0);
  if (x.other < 0) constants_.push_back(static_cast<int>(shapes_.size()) - 1);
  gone[static_cast<size_t>(node)] = 1;
  steps_.push_back(std::move(step));
}

ExactFold::Side ExactFold::merged(int node, int other, const std::vector<int>& parts) const {
  Side side;
  side.other = other;
  side.parts = parts;
  const auto classes = [&](bool mine, std::vector<int32_t>& by_choice, int& count,
                           std::vector<std::vector<int32_t>>& of_part) {
    const size_t n = choices(mine ? node : other);
    std::map<std::vector<int32_t>, int32_t> number;
    of_part.assign(parts.size(), {});
    for (size_t v = 0; v < n; ++v) {
      std::vector<int32_t> key;
      for (const int p : parts) {
        const Shape& s = shapes_[static_cast<size_t>(p)];
        key.push_back(((s.a == node) == mine ? s.class_a : s.class_b)[v]);
      }
      const auto [at, fresh] = number.emplace(key, static_cast<int32_t>(number.size()));
      by_choice.push_back(at->second);
      for (size_t p = 0; fresh && p < parts.size(); ++p) of_part[p].push_back(key[p]);
    }
    count = std::max<int>(1, static_cast<int>(number.size()));
  };
  for (const int p : parts)
    side.turned.push_back(shapes_[static_cast<size_t>(p)].a == node ? 0 : 1);
  classes(true, side.own, side.rows, side.row_of);
  classes(false, side.theirs, side.columns, side.column_of);
  return side;
}

Table ExactFold::side_value(const Side& side, const std::vector<Table>& factor) const {
  Table out(side.rows, side.columns, 0);
  for (size_t p = 0; p < side.parts.size(); ++p) {
    const Table& t = factor[static_cast<size_t>(side.parts[p])];
    for (int r = 0; r < side.rows; ++r) {
      for (int c = 0; c < side.columns; ++c) {
        const int i = side.row_of[p][static_cast<size_t>(r)];
        const int j = side.column_of[p][static_cast<size_t>(c)];
        out(r, c) += side.turned[p] != 0 ? t(j, i) : t(i, j);
      }
    }
  }
  return out;
}

Scalars ExactFold::inside(const Measure& measure, const Given& given) const {
  Scalars s;
  const auto least = [&](const Labels& list) {
    double best = static_cast<double>(kNever);
    for (const Label& l : list) best = std::min(best, measure.of(l));
    return best;
  };
  for (const ExactFactor& f : r_.factors) {
    Table t(f.labels.rows, f.labels.columns, kNever);
    for (size_t i = 0; i < t.at.size(); ++i) t.at[i] = static_cast<float>(least(f.labels.cells[i]));
    s.factor.push_back(std::move(t));
  }
  for (const auto& [f, numbers] : given) s.factor[static_cast<size_t>(f)] = *numbers;
  std::map<const Labels*, double> known;
  for (const auto& node : r_.nodes) {
    s.node.emplace_back();
    for (const ExactChoice& c : node) {
      double sum = measure.of(c.own);
      for (const Labels* with : c.with) {
        const auto [at, fresh] = known.emplace(with, 0);
        if (fresh) at->second = least(*with);
        sum += at->second;
      }
      s.node.back().push_back(static_cast<float>(sum));
    }
  }
  const auto add_single = [&](int node, const std::vector<int>& single) {
    std::vector<float>& cost = s.node[static_cast<size_t>(node)];
    for (const int f : single) {
      const std::vector<int32_t>& classes = shapes_[static_cast<size_t>(f)].class_a;
      for (size_t v = 0; v < cost.size(); ++v)
        cost[v] += s.factor[static_cast<size_t>(f)](classes[v], 0);
    }
  };
  for (const Step& step : steps_) {
    add_single(step.node, step.single);
    const Side &x = step.sides[0], &y = step.sides[1];
    s.side.push_back({side_value(x, s.factor), side_value(y, s.factor)});
    Table own(x.rows, y.rows, kNever);
    const std::vector<float>& cost = s.node[static_cast<size_t>(step.node)];
    for (size_t v = 0; v < cost.size(); ++v) {
      float& at = own(x.own[v], y.own[v]);
      at = std::min(at, cost[v]);
    }
    s.half.push_back(min_plus(own, s.side.back()[1]));
    s.own.push_back(std::move(own));
    s.factor.push_back(min_plus(turned(s.side.back()[0]), s.half.back()));
  }
  float constant = 0;
  for (const int c : constants_) constant += s.factor[static_cast<size_t>(c)](0, 0);
  if (r_.entry < 0) {
    s.result = Table(1, 1, constant);
    return s;
  }
  add_single(r_.entry, last_single_[0]);
  add_single(r_.exit, last_single_[1]);
  const Table between = side_value(last_, s.factor);
  const std::vector<float>&a = s.node[static_cast<size_t>(r_.entry)],
        &b = s.node[static_cast<size_t>(r_.exit)];
  s.result = Table(static_cast<int>(a.size()), static_cast<int>(b.size()), constant);
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < b.size(); ++j)
      s.result(static_cast<int>(i), static_cast<int>(j)) +=
          a[i] + b[j] + between(last_.own[i], last_.theirs[j]);
  }
  return s;
}

// From what whole plans come to by row and column of a merged table to what is outside its parts.
void ExactFold::spread(const Side& side, const Table& total, Scalars& s) const {
  for (size_t p = 0; p < side.parts.size(); ++p) {
    const auto f = static_cast<size_t>(side.parts[p]);
    if (!shapes_[f].whole) continue;
    Table& rest = s.factor_rest[f];
    rest = Table(shapes_[f].rows, shapes_[f].columns, kNever);
    for (int r = 0; r < side.rows; ++r) {
      for (int c = 0; c < side.columns; ++c) {
        int i = side.row_of[p][static_cast<size_t>(r)];
        int j = side.column_of[p][static_cast<size_t>(c)];
        if (side.turned[p] != 0) std::swap(i, j);
        rest(i, j) = std::min(rest(i, j), less(total(r, c), s.factor[f](i, j)));
      }
    }
  }
}

void ExactFold::spread_single(const std::vector<int>& single, const std::vector<float>& total,
                              Scalars& s) const {
  for (const int part : single) {
    const auto f = static_cast<size_t>(part);
    Table& rest = s.factor_rest[f];
    rest = Table(shapes_[f].rows, 1, kNever);
    for (size_t v = 0; v < total.size(); ++v) {
      const int32_t k = shapes_[f].class_a[v];
      rest(k, 0) = std::min(rest(k, 0), less(total[v], s.factor[f](k, 0)));
    }
  }
}

void ExactFold::last_outside(Scalars& s, const Table& rest) const {
  const auto rows = static_cast<size_t>(s.result.rows),
             columns = static_cast<size_t>(s.result.columns);
  Table total(s.result.rows, s.result.columns, kNever);
  for (size_t i = 0; i < total.at.size(); ++i) {
    total.at[i] = s.result.at[i] + rest.at[i];
    s.least = std::min(s.least, total.at[i]);
  }
  if (r_.entry < 0) return;
  std::vector<float> entry(rows, kNever), exit(columns, kNever);
  Table between(last_.rows, last_.columns, kNever);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      const float t = total(static_cast<int>(i), static_cast<int>(j));
      entry[i] = std::min(entry[i], t);
      exit[j] = std::min(exit[j], t);
      float& b = between(last_.own[i], last_.theirs[j]);
      b = std::min(b, t);
    }
  }
  spread(last_, between, s);
  const Table value = side_value(last_, s.factor);
  s.last_rest = Table(last_.rows, last_.columns, kNever);
  for (size_t i = 0; i < value.at.size(); ++i) s.last_rest.at[i] = less(between.at[i], value.at[i]);
  spread_single(last_single_[0], entry, s);
  spread_single(last_single_[1], exit, s);
  s.total[static_cast<size_t>(r_.entry)] = std::move(entry);
  s.total[static_cast<size_t>(r_.exit)] = std::move(exit);
}

void ExactFold::outside(Scalars& s, const Table& rest) const {
  s.factor_rest.assign(shapes_.size(), Table());
  s.own_rest.assign(steps_.size(), Table());
  s.half_rest.assign(steps_.size(), Table());
  s.side_rest.assign(steps_.size(), {});
  s.total.assign(r_.nodes.size(), {});
  last_outside(s, rest);
  for (const int c : constants_)
    s.factor_rest[static_cast<size_t>(c)] =
        Table(1, 1, less(s.least, s.factor[static_cast<size_t>(c)](0, 0)));
  for (size_t k = steps_.size(); k-- > 0;) {
    const Step& step = steps_[k];
    const Side &x = step.sides[0], &y = step.sides[1];
    const Table &to_x = s.side[k][0], &to_y = s.side[k][1];
    const Table& out = s.factor_rest[r_.factors.size() + k];
    const Table half = min_plus(to_x, out);          // row of X, column of Y
    const Table own = min_plus(half, turned(to_y));  // row of X, row of Y
    Table all_x = min_plus(s.half[k], turned(out));  // row of X, column of X
    Table all_y = min_plus(turned(s.own[k]), half);  // row of Y, column of Y
    s.side_rest[k] = {all_x, all_y};
    for (size_t i = 0; i < all_x.at.size(); ++i) all_x.at[i] += to_x.at[i];
    for (size_t i = 0; i < all_y.at.size(); ++i) all_y.at[i] += to_y.at[i];
    spread(x, all_x, s);
    spread(y, all_y, s);
    std::vector<float> total(choices(step.node));
    for (size_t v = 0; v < total.size(); ++v)
      total[v] = s.node[static_cast<size_t>(step.node)][v] + own(x.own[v], y.own[v]);
    spread_single(step.single, total, s);
    s.total[static_cast<size_t>(step.node)] = std::move(total);
    s.own_rest[k] = own;
    s.half_rest[k] = half;
  }
}

int ExactFold::filters() const {
  size_t n =
      last_.parts.size() + last_single_[0].size() + last_single_[1].size() + constants_.size() + 3;
  for (const Step& step : steps_)
    n += step.sides[0].parts.size() + step.sides[1].parts.size() + step.single.size() + 4 +
         r_.nodes.size() / 4;
  return static_cast<int>(n);
}

}  // namespace cad::planner
