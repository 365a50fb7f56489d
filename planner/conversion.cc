// planner/conversion.cc -- the steps out of a layout, shortest paths for all pairs of layouts at
// once, and a single path with its steps. See planner/conversion.h for what the steps are.
#include "planner/conversion.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "base/check.h"

namespace cad::planner {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool has(AxisSet set, size_t axis) {
  return (set >> axis & 1) != 0;
}

// The least row of kAxisOrders under which every dim's axes come in the same order.
void make_canonical(Layout& layout) {
  const auto before = [](uint8_t order, int8_t a, int8_t b) {
    for (int8_t axis : kAxisOrders[order]) {
      if (axis == a || axis == b) return axis == a;
    }
    return false;
  };
  for (uint8_t order = 0; order < layout.order; ++order) {
    bool same = true;
    for (int8_t a = 0; a < kMaxAxes; ++a) {
      for (int8_t b = 0; b < a; ++b) {
        const bool shared =
            layout.axis[static_cast<size_t>(a)] >= 0 &&
            layout.axis[static_cast<size_t>(a)] == layout.axis[static_cast<size_t>(b)];
        if (shared && before(order, a, b) != before(layout.order, a, b)) same = false;
      }
    }
    if (same) {
      layout.order = order;
      return;
    }
  }
}

// Whether an order has the axes of `set` last, and the others before them as `like` has them.
bool is_last(uint8_t order, uint8_t like, AxisSet set) {
  const auto& axes = kAxisOrders[order];
  size_t others = 0;
  while (others < axes.size() && !has(set, static_cast<size_t>(axes[others]))) ++others;
  for (size_t k = others; k < axes.size(); ++k) {
    if (!has(set, static_cast<size_t>(axes[k]))) return false;
  }
  size_t at = 0;
  for (int8_t axis : kAxisOrders[like]) {
    if (!has(set, static_cast<size_t>(axis)) && axes[at++] != axis) return false;
  }
  return true;
}

// Whether the axes of `set` are the innermost ones of every dim that they split.
bool innermost(const Layout& layout, AxisSet set) {
  std::array<bool, 128> outside{};  // dims of which an inner axis is not in the set
  const auto& order = kAxisOrders[layout.order];
  for (size_t k = order.size(); k-- > 0;) {
    const auto axis = static_cast<size_t>(order[k]);
    const int8_t dim = layout.axis[axis];
    if (dim < 0) continue;
    if (!has(set, axis)) {
      outside[static_cast<size_t>(dim)] = true;
    } else if (outside[static_cast<size_t>(dim)]) {
      return false;
    }
  }
  return true;
}

// What all steps out of one layout need.
class Stepper {
 public:
  Stepper(std::span<const int64_t> extents, bool may_be_partial, const Mesh& mesh)
      : extents_(extents), may_be_partial_(may_be_partial), mesh_(mesh) {}

  template <class F>  // emit(kind, axes, to)
  void steps(const Layout& from, F&& emit) const {
    const auto count = mesh_.axes.size();
    for (unsigned bits = 1; bits < 1U << count; ++bits) {
      const auto set = static_cast<AxisSet>(bits);
      const int8_t entry = common(from, set);
      if (entry == kMixed) continue;
      const bool single = (bits & (bits - 1)) == 0;
      if (entry == kPartial) {
        emit(Step::Kind::kAllReduce, set, filled(from, set, kReplicated));
        place(from, set, {}, [&](const Layout& to) { emit(Step::Kind::kReduceScatter, set, to); });
      } else if (entry == kReplicated) {
        if (!single) continue;  // free steps one by one reach as far
        place(from, set, {}, [&](const Layout& to) { emit(Step::Kind::kSlice, set, to); });
        if (may_be_partial_) emit(Step::Kind::kKeepOne, set, filled(from, set, kPartial));
      } else if (innermost(from, set)) {
        emit(Step::Kind::kAllGather, set, filled(from, set, kReplicated));
        place(from, set, sources(from, set),
              [&](const Layout& to) { emit(Step::Kind::kAllToAll, set, to); });
        if (single && may_be_partial_) emit(Step::Kind::kPad, set, filled(from, set, kPartial));
      }
    }
    permutes(from, emit);
  }

 private:
  static constexpr int8_t kMixed = -3;
  static constexpr int8_t kSplit = 0;

  // What the axes of the set all are: partial, replicated, split (kSplit); else kMixed.
  int8_t common(const Layout& from, AxisSet set) const {
    int8_t entry = kMixed;
    for (size_t i = 0; i < mesh_.axes.size(); ++i) {
      if (!has(set, i)) continue;
      if (mesh_.axes[i].size == 1) return kMixed;
      const int8_t is = from.axis[i] >= 0 ? kSplit : from.axis[i];
      if (entry != kMixed && is != entry) return kMixed;
      entry = is;
    }
    return entry;
  }

  static Layout filled(Layout layout, AxisSet set, int8_t entry) {
    for (size_t i = 0; i < kMaxAxes; ++i) {
      if (has(set, i)) layout.axis[i] = entry;
    }
    make_canonical(layout);
    return layout;
  }

  static std::array<bool, 128> sources(const Layout& from, AxisSet set) {
    std::array<bool, 128> dims{};
    for (size_t i = 0; i < kMaxAxes; ++i) {
      if (has(set, i)) dims[static_cast<size_t>(from.axis[i])] = true;
    }
    return dims;
  }

  // Every way to let the axes of the set split dims that are not barred, as their innermost axes in
  // any order among themselves. Ways that differ in no dim come once: with the least order.
  template <class F>
  void place(const Layout& from, AxisSet set, const std::array<bool, 128>& barred, F&& emit) const {
    for (uint8_t order = 0; order < kAxisOrders.size(); ++order) {
      if (!is_last(order, from.order, set)) continue;
      Layout to = from;
      to.order = order;
      place_next(to, from.order, set, 0, barred, emit);
    }
  }
  template <class F>
  void place_next(Layout layout, uint8_t like, AxisSet set, size_t axis,
                  const std::array<bool, 128>& barred, F&& emit) const {
    while (axis < kMaxAxes && !has(set, axis)) ++axis;
    if (axis == kMaxAxes) {
      const uint8_t order = layout.order;
      make_canonical(layout);
      for (uint8_t less = 0; less < order; ++less) {
        Layout twin = layout;
        twin.order = less;
        make_canonical(twin);
        if (twin == layout && is_last(less, like, set)) return;
      }
      if (splittable(layout, extents_, mesh_)) emit(static_cast<const Layout&>(layout));
      return;
    }
    for (size_t dim = 0; dim < extents_.size(); ++dim) {
      if (barred[dim]) continue;
      layout.axis[axis] = static_cast<int8_t>(dim);
      place_next(layout, like, set, axis + 1, barred, emit);
    }
  }

  // Another order of the axes on dims that have several.
  template <class F>
  void permutes(const Layout& from, F&& emit) const {
    for (uint8_t order = 0; order < kAxisOrders.size(); ++order) {
      Layout to = from;
      to.order = order;
      make_canonical(to);
      if (to.order != order || to == from) continue;
      AxisSet moved = 0;
      bool fits = splittable(to, extents_, mesh_);
      for (size_t dim = 0; dim < extents_.size() && fits; ++dim) {
        const AxisList a = axes_of(from, static_cast<int>(dim)),
                       b = axes_of(to, static_cast<int>(dim));
        if (a.axes == b.axes) continue;
        for (size_t k = 0; k < static_cast<size_t>(a.count); ++k) {
          if (a.axes[k] != b.axes[k]) {
            moved = static_cast<AxisSet>(moved | 1U << a.axes[k]);
          }
        }
        fits = fits && (alike(a, b) || (even(a, extents_[dim]) && even(b, extents_[dim])));
      }
      if (fits) emit(Step::Kind::kPermute, moved, to);
    }
  }

  // The same sizes in the same order: the same stretches.
  bool alike(const AxisList& a, const AxisList& b) const {
    for (size_t k = 0; k < static_cast<size_t>(a.count); ++k) {
      if (mesh_.axes[static_cast<size_t>(a.axes[k])].size !=
          mesh_.axes[static_cast<size_t>(b.axes[k])].size)
        return false;
    }
    return true;
  }

  // Whether the stretches of a dim are those of one axis of all devices, whatever the order.
  bool even(const AxisList& list, int64_t extent) const {
    int64_t devices = 1, stretch = extent;
    for (size_t k = 0; k < static_cast<size_t>(list.count); ++k) {
      devices *= mesh_.axes[static_cast<size_t>(list.axes[k])].size;
    }
    const int64_t least = (extent + devices - 1) / devices;
    for (size_t k = 0; k < static_cast<size_t>(list.count); ++k) {
      const int64_t size = mesh_.axes[static_cast<size_t>(list.axes[k])].size;
      stretch = (stretch + size - 1) / size;
      devices /= size;
      if (stretch != least * devices) return false;
    }
    return true;
  }

  std::span<const int64_t> extents_;
  bool may_be_partial_;
  const Mesh& mesh_;
};

// Bytes as collective_seconds() takes them, from what a device holds before and after.
double step_bytes(Step::Kind kind, double before, double after) {
  switch (kind) {
    case Step::Kind::kAllGather:
      return after;
    case Step::Kind::kReduceScatter:
    case Step::Kind::kAllReduce:
    case Step::Kind::kPermute:
      return before;
    case Step::Kind::kAllToAll:
      return std::max(before, after);
    default:
      return 0;
  }
}

Layout without_idle_axes(Layout layout, const Mesh& mesh) {
  for (size_t i = 0; i < kMaxAxes; ++i) {
    if (i >= mesh.axes.size() || mesh.axes[i].size == 1) layout.axis[i] = kReplicated;
  }
  make_canonical(layout);
  return layout;
}

}  // namespace

const char* step_name(Step::Kind kind) {
  switch (kind) {
    case Step::Kind::kSlice:
      return "slice";
    case Step::Kind::kPad:
      return "pad";
    case Step::Kind::kKeepOne:
      return "keep one";
    default:
      return collective_name(collective_of(kind));
  }
}

bool is_free(Step::Kind kind) {
  return kind == Step::Kind::kSlice || kind == Step::Kind::kPad || kind == Step::Kind::kKeepOne;
}

Collective collective_of(Step::Kind kind) {
  switch (kind) {
    case Step::Kind::kAllGather:
      return Collective::kAllGather;
    case Step::Kind::kReduceScatter:
      return Collective::kReduceScatter;
    case Step::Kind::kAllReduce:
      return Collective::kAllReduce;
    case Step::Kind::kAllToAll:
      return Collective::kAllToAll;
    case Step::Kind::kPermute:
      return Collective::kPermute;
    default:
      CAD_CHECK(false, "a free step is no collective");
  }
}

std::vector<Step> steps_from(const Layout& from, std::span<const int64_t> extents,
                             double bytes_per_element, bool may_be_partial, const Mesh& mesh) {
  std::vector<Step> result;
  const double before = local_elements(from, extents, mesh) * bytes_per_element;
  Stepper(extents, may_be_partial, mesh)
      .steps(from, [&](Step::Kind kind, AxisSet set, const Layout& to) {
        const double after = local_elements(to, extents, mesh) * bytes_per_element;
        Step step{kind, set, from, to, step_bytes(kind, before, after), 0};
        if (!is_free(kind)) {
          step.seconds = collective_seconds(mesh, set, collective_of(kind), step.bytes);
        }
        result.push_back(step);
      });
  return result;
}

namespace {

// All layouts that a path may stop at, and the steps between them by number.
struct StepGraph {
  struct Edge {
    int from, to;
    double seconds;
  };
  std::vector<Layout> nodes;  // layouts in mesh order first
  std::unordered_map<Layout, int> index;
  std::vector<Edge> edges;

  int number(const Layout& layout) {
    const auto [it, fresh] = index.emplace(layout, static_cast<int>(nodes.size()));
    if (fresh) nodes.push_back(layout);
    return it->second;
  }
};

// Prices of collectives met before: a table asks for few byte counts, and for each many times.
class PriceList {
 public:
  explicit PriceList(const Mesh& mesh) : mesh_(mesh) {}
  double seconds(Step::Kind kind, AxisSet set, double bytes) {
    if (is_free(kind)) return 0;
    auto& known = known_[static_cast<size_t>(kind) * 8 + set];
    for (const auto& [at, price] : known) {
      if (at == bytes) return price;
    }
    const double price = collective_seconds(mesh_, set, collective_of(kind), bytes);
    known.emplace_back(bytes, price);
    return price;
  }

 private:
  const Mesh& mesh_;
  std::array<std::vector<std::pair<double, double>>, 64> known_;
};

StepGraph step_graph(std::vector<Layout> layouts, std::span<const int64_t> extents,
                     double bytes_per_element, bool may_be_partial, const Mesh& mesh) {
  StepGraph graph;
  graph.nodes = std::move(layouts);
  for (size_t i = 0; i < graph.nodes.size(); ++i) graph.index[graph.nodes[i]] = static_cast<int>(i);
  const Stepper stepper(extents, may_be_partial, mesh);
  PriceList prices(mesh);
  std::vector<double> bytes;
  const auto bytes_of = [&](size_t node) {
    while (bytes.size() < graph.nodes.size()) {
      bytes.push_back(local_elements(graph.nodes[bytes.size()], extents, mesh) * bytes_per_element);
    }
    return bytes[node];
  };
  for (size_t from = 0; from < graph.nodes.size(); ++from) {
    const Layout layout = graph.nodes[from];
    stepper.steps(layout, [&](Step::Kind kind, AxisSet set, const Layout& to) {
      const int target = graph.number(to);
      const double v = step_bytes(kind, bytes_of(from), bytes_of(static_cast<size_t>(target)));
      graph.edges.push_back({static_cast<int>(from), target, prices.seconds(kind, set, v)});
    });
  }
  return graph;
}

}  // namespace

// Bellman-Ford for all starts at once: row v holds the seconds from every start to v, and a step
// u -> v is one pass over two rows. Rows that no longer change are not passed on.
ConversionTable::ConversionTable(const Mesh& mesh, std::vector<int64_t> extents,
                                 double bytes_per_element, bool may_be_partial)
    : mesh_(mesh),
      extents_(std::move(extents)),
      bytes_(bytes_per_element),
      may_be_partial_(may_be_partial),
      layouts_(planner::layouts(extents_, mesh, may_be_partial)) {
  const StepGraph graph = step_graph(layouts_, extents_, bytes_, may_be_partial_, mesh_);
  const size_t starts = layouts_.size(), nodes = graph.nodes.size();
  std::vector<double> rows(starts * nodes, kInfinity);
  for (size_t i = 0; i < starts; ++i) rows[i * starts + i] = 0;
  std::vector<char> fresh(nodes, 1), next(nodes, 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (const StepGraph::Edge& edge : graph.edges) {
      if (fresh[static_cast<size_t>(edge.from)] == 0 && next[static_cast<size_t>(edge.from)] == 0)
        continue;
      const double* from = rows.data() + static_cast<size_t>(edge.from) * starts;
      double* to = rows.data() + static_cast<size_t>(edge.to) * starts;
      bool better = false;
      for (size_t s = 0; s < starts; ++s) {
        const double way = from[s] + edge.seconds;
        better |= way < to[s];
        to[s] = way < to[s] ? way : to[s];
      }
      if (better) next[static_cast<size_t>(edge.to)] = 1;
      changed |= better;
    }
    fresh.swap(next);
    std::fill(next.begin(), next.end(), 0);
  }
  seconds_.resize(starts * starts);
  for (size_t to = 0; to < starts; ++to) {
    for (size_t from = 0; from < starts; ++from)
      seconds_[from * starts + to] = rows[to * starts + from];
  }
  for (size_t i = 0; i < starts; ++i) index_[layouts_[i]] = static_cast<int>(i);
  for (const Layout& layout : layouts_) dual_.push_back(index(dual(layout, mesh_)));
}

int ConversionTable::index(const Layout& layout) const {
  const auto it = index_.find(without_idle_axes(layout, mesh_));
  return it == index_.end() ? -1 : it->second;
}

double ConversionTable::seconds(const Layout& from, const Layout& to) const {
  const int a = index(from), b = index(to);
  CAD_CHECK(a >= 0 && b >= 0, "a layout that is none of this tensor");
  return seconds(a, b);
}

double ConversionTable::backward_seconds(int from, int to) const {
  const int a = dual_[static_cast<size_t>(to)], b = dual_[static_cast<size_t>(from)];
  return a < 0 || b < 0 ? kInfinity : seconds(a, b);
}

// Dijkstra; of equally fast paths the one of fewer steps.
std::vector<Step> ConversionTable::path(const Layout& from, const Layout& to) const {
  CAD_CHECK(index(from) >= 0 && index(to) >= 0, "a layout that is none of this tensor");
  const Layout start = without_idle_axes(from, mesh_), goal = without_idle_axes(to, mesh_);
  using Length = std::pair<double, int>;
  struct Reached {
    Length length;
    Step last;
    bool done = false;
  };
  std::unordered_map<Layout, Reached> reached;
  using Item = std::pair<Length, Layout>;
  std::priority_queue<Item, std::vector<Item>, std::greater<>> queue;
  reached[start] = {};
  queue.push({{0, 0}, start});
  while (!queue.empty()) {
    const auto [length, at] = queue.top();
    queue.pop();
    if (at == goal) break;
    if (std::exchange(reached[at].done, true)) continue;
    for (const Step& step : steps_from(at, extents_, bytes_, may_be_partial_, mesh_)) {
      const Length further{length.first + step.seconds, length.second + 1};
      const auto [it, fresh] = reached.try_emplace(step.to);
      if (!fresh && it->second.length <= further) continue;
      it->second.length = further;
      it->second.last = step;
      queue.push({further, step.to});
    }
  }
  std::vector<Step> steps;
  for (Layout at = goal; at != start; at = steps.back().from) steps.push_back(reached.at(at).last);
  std::reverse(steps.begin(), steps.end());
  return steps;
}

const ConversionTable& Conversions::table(const std::vector<int64_t>& extents,
                                          double bytes_per_element, bool may_be_partial) {
  std::unique_ptr<ConversionTable>& entry = tables_[{extents, bytes_per_element, may_be_partial}];
  if (!entry) {
    entry = std::make_unique<ConversionTable>(mesh_, extents, bytes_per_element, may_be_partial);
  }
  return *entry;
}

}  // namespace cad::planner
