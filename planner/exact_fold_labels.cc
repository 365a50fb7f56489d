// planner/exact_fold_labels.cc -- the label sets of exact_fold.h, in the order in which numbers
// were folded. A label goes on only if with the least of all that is outside of it no measure is
// above its limit.
#include <algorithm>

#include "planner/exact_fold.h"

namespace cad::planner {

struct ExactFold::Cell {
  const std::vector<Measure>& measures;
  double budget = 0, floor = 0;

  [[nodiscard]] bool fits(const Label& l) const {
    return l.held + l.again + std::max(l.moment, floor) <= budget;
  }
  // `rest`: by measure, of the place where the label stands.
  [[nodiscard]] bool allows(const Label& l, const std::vector<double>& rest) const {
    if (!fits(l)) return false;
    for (size_t k = 0; k < measures.size(); ++k) {
      if (measures[k].of(l) + rest[k] > measures[k].most) return false;
    }
    return true;
  }
  [[nodiscard]] bool open(const std::vector<double>& rest) const {
    for (size_t k = 0; k < measures.size(); ++k) {
      if (!(rest[k] <= measures[k].most)) return false;
    }
    return true;
  }
};

namespace {

std::vector<double> at(const std::vector<const Table*>& tables, int r, int c) {
  std::vector<double> out;
  out.reserve(tables.size());
  for (const Table* t : tables) out.push_back(static_cast<double>((*t)(r, c)));
  return out;
}

}  // namespace

// `rest`: by measure, a table like the merged one.
LabelTable ExactFold::side_labels(LabelMaker& maker, const Side& side,
                                  const std::vector<LabelTable>& factor,
                                  const std::vector<const Table*>& rest, const Cell& cell) const {
  LabelTable out(side.rows, side.columns);
  for (int r = 0; r < side.rows; ++r) {
    for (int c = 0; c < side.columns; ++c) {
      if (maker.gave_up()) return out;
      Labels& here = out(r, c);
      here = {Label{}};
      if (side.parts.empty()) continue;
      const std::vector<double> outside = at(rest, r, c);
      if (!cell.open(outside)) {
        here.clear();
        continue;
      }
      for (size_t p = 0; p < side.parts.size() && !here.empty(); ++p) {
        int i = side.row_of[p][static_cast<size_t>(r)];
        int j = side.column_of[p][static_cast<size_t>(c)];
        if (side.turned[p] != 0) std::swap(i, j);
        const Labels& part = factor[static_cast<size_t>(side.parts[p])](i, j);
        if (p == 0 && side.parts.size() == 1) {
          here = part;
          break;
        }
        maker.add_joins(here, part, [&](const Label& l) { return cell.allows(l, outside); });
        here = maker.take(cell.floor);
      }
    }
  }
  return out;
}

// By choice: its own labels and the messages to the node alone.
std::vector<Labels> ExactFold::node_labels(LabelMaker& maker, int node,
                                           const std::vector<int>& single,
                                           const std::vector<LabelTable>& factor,
                                           const std::vector<Scalars>& scalars,
                                           const Cell& cell) const {
  const std::vector<ExactChoice>& choices = r_.nodes[static_cast<size_t>(node)];
  std::vector<Labels> out(choices.size());
  for (size_t v = 0; v < choices.size(); ++v) {
    // what is outside of this choice and of the messages to it
    std::vector<double> rest;
    for (const Scalars& s : scalars)
      rest.push_back(static_cast<double>(s.total[static_cast<size_t>(node)][v]) -
                     static_cast<double>(s.node[static_cast<size_t>(node)][v]));
    if (!cell.open(rest)) continue;
    Labels list = {choices[v].own};
    for (const Labels* with : choices[v].with) {
      for (const Label& a : list) {
        for (const Label& b : *with) {
          Label l = at_once(a, b);
          if (!cell.allows(l, rest)) continue;
          l.from = maker.derivations().join(a.from, b.from);
          maker.add(l);
        }
      }
      list = maker.take();
    }
    for (const int f : single) {
      const int32_t k = shapes_[static_cast<size_t>(f)].class_a[v];
      maker.add_joins(list, factor[static_cast<size_t>(f)](k, 0),
                      [&](const Label& l) { return cell.allows(l, rest); });
      list = maker.take(cell.floor);
    }
    out[v] = std::move(list);
    if (maker.gave_up()) break;
  }
  return out;
}

LabelTable ExactFold::labels(LabelMaker& maker, const std::vector<Scalars>& scalars,
                             const std::vector<Measure>& measures, double budget,
                             double floor) const {
  const Cell cell{measures, budget, floor};
  std::vector<LabelTable> factor;
  factor.reserve(shapes_.size());
  for (const ExactFactor& f : r_.factors) factor.push_back(f.labels);
  const auto tables = [&](const auto& of) {
    std::vector<const Table*> out;
    for (const Scalars& s : scalars) out.push_back(&of(s));
    return out;
  };
  const auto product = [&](const LabelTable& a, bool turn, const LabelTable& b,
                           const std::vector<const Table*>& rest) {
    LabelTable out(turn ? a.columns : a.rows, b.columns);
    const int inner = turn ? a.rows : a.columns;
    for (int i = 0; i < out.rows; ++i) {
      for (int j = 0; j < out.columns; ++j) {
        if (maker.gave_up()) return out;
        const std::vector<double> outside = at(rest, i, j);
        if (!cell.open(outside)) continue;
        for (int k = 0; k < inner; ++k) {
          const Labels &x = turn ? a(k, i) : a(i, k), &y = b(k, j);
          if (!x.empty() && !y.empty())
            maker.add_joins(x, y, [&](const Label& l) { return cell.allows(l, outside); });
        }
        out(i, j) = maker.take(cell.floor);
      }
    }
    return out;
  };
  for (size_t k = 0; k < steps_.size(); ++k) {
    const Step& step = steps_[k];
    const Side &x = step.sides[0], &y = step.sides[1];
    const std::vector<Labels> node =
        node_labels(maker, step.node, step.single, factor, scalars, cell);
    LabelTable own(x.rows, y.rows);
    for (size_t v = 0; v < node.size(); ++v) {
      Labels& to = own(x.own[v], y.own[v]);
      to.insert(to.end(), node[v].begin(), node[v].end());
    }
    const auto own_rest = tables([&](const Scalars& s) -> const Table& { return s.own_rest[k]; });
    for (int i = 0; i < own.rows; ++i) {
      for (int j = 0; j < own.columns; ++j) {
        if (own(i, j).empty()) continue;
        const std::vector<double> outside = at(own_rest, i, j);
        for (const Label& l : own(i, j)) {
          if (cell.allows(l, outside)) maker.add(l);
        }
        own(i, j) = maker.take(cell.floor);
      }
    }
    const LabelTable to_y = side_labels(
        maker, y, factor,
        tables([&](const Scalars& s) -> const Table& { return s.side_rest[k][1]; }), cell);
    const LabelTable half = product(
        own, false, to_y, tables([&](const Scalars& s) -> const Table& { return s.half_rest[k]; }));
    const LabelTable to_x = side_labels(
        maker, x, factor,
        tables([&](const Scalars& s) -> const Table& { return s.side_rest[k][0]; }), cell);
    const size_t message = r_.factors.size() + k;
    factor.push_back(product(to_x, true, half, tables([&](const Scalars& s) -> const Table& {
                               return s.factor_rest[message];
                             })));
    if (maker.gave_up()) return LabelTable(1, 1);
  }
  Labels constant = {Label{}};
  const auto fits = [&](const Label& l) { return cell.fits(l); };
  for (const int c : constants_) {
    maker.add_joins(constant, factor[static_cast<size_t>(c)](0, 0), fits);
    constant = maker.take(cell.floor);
  }
  if (r_.entry < 0) {
    LabelTable out(1, 1);
    out.cells[0] = std::move(constant);
    return out;
  }
  const std::vector<Labels> entry =
      node_labels(maker, r_.entry, last_single_[0], factor, scalars, cell);
  const std::vector<Labels> exit =
      node_labels(maker, r_.exit, last_single_[1], factor, scalars, cell);
  const LabelTable between =
      side_labels(maker, last_, factor,
                  tables([](const Scalars& s) -> const Table& { return s.last_rest; }), cell);
  LabelTable out(static_cast<int>(entry.size()), static_cast<int>(exit.size()));
  for (int i = 0; i < out.rows; ++i) {
    for (int j = 0; j < out.columns; ++j) {
      if (maker.gave_up()) return out;
      Labels list = constant;
      const Labels* parts[] = {
          &entry[static_cast<size_t>(i)], &exit[static_cast<size_t>(j)],
          &between(last_.own[static_cast<size_t>(i)], last_.theirs[static_cast<size_t>(j)])};
      for (const Labels* part : parts) {
        maker.add_joins(list, *part, fits);
        list = maker.take(cell.floor);
      }
      out(i, j) = std::move(list);
    }
  }
  return out;
}

}  // namespace cad::planner
