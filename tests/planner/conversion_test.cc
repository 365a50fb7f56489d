// tests/planner/conversion_test.cc -- conversions: facts worked out by hand, all pairs of layouts
// against a Bellman-Ford over a step relation written down anew, and every cheapest path carried
// out on simulated devices.
#include <algorithm>
#include <map>
#include <set>

#include "tests/planner/spmd_check.h"

namespace cad::planner {
namespace {

Layout layout_of(std::vector<int> entries) {
  Layout layout;
  for (size_t i = 0; i < entries.size(); ++i) layout.axis[i] = static_cast<int8_t>(entries[i]);
  return layout;
}

constexpr int kX = 0, kY = 1, kZ = 2;

std::set<Layout> reached(const Layout& from, Step::Kind kind, const Mesh& mesh) {
  std::set<Layout> result;
  for (const Step& step : steps_from(from, std::vector<int64_t>{64, 32, 16}, 1, true, mesh)) {
    const bool one_axis = (step.axes & (step.axes - 1)) == 0;
    if (step.kind == kind && one_axis && step.to.order == 0) result.insert(step.to);
  }
  return result;
}

TEST(Conversion, OneStepFromTwoSplitDims) {
  const Mesh mesh = mesh_of({4, 4});
  const Layout from = layout_of({kX, kY});
  EXPECT_EQ(reached(from, Step::Kind::kAllGather, mesh),
            (std::set<Layout>{layout_of({kReplicated, kY}), layout_of({kX, kReplicated})}));
  EXPECT_EQ(reached(from, Step::Kind::kAllToAll, mesh),
            (std::set<Layout>{layout_of({kX, kX}), layout_of({kZ, kY}), layout_of({kX, kZ})}));
  EXPECT_TRUE(reached(from, Step::Kind::kSlice, mesh).empty());
  EXPECT_EQ(reached(layout_of({kX, kReplicated}), Step::Kind::kSlice, mesh),
            (std::set<Layout>{layout_of({kX, kX}), layout_of({kX, kY}), layout_of({kX, kZ})}));
  EXPECT_EQ(
      reached(layout_of({kPartial, kX}), Step::Kind::kReduceScatter, mesh),
      (std::set<Layout>{layout_of({kY, kX}), layout_of({kZ, kX})}));  // [X:10] is out of order
}

// Latency 1 and 1 s an element; an all-gather here as a ring of n - 1 messages.
TEST(Conversion, AllAxesOfADimToAnother) {
  const Mesh mesh = mesh_of({4, 4}, 1, 1);
  const std::vector<int64_t> extents{64, 32, 16};
  const Layout from = layout_of({kY, kY}), to = layout_of({kX, kX});
  const auto find = [&](const Layout& a, const Layout& b) {
    for (const Step& step : steps_from(a, extents, 1, true, mesh)) {
      if (step.to == b) return step;
    }
    ADD_FAILURE() << "no such step";
    return Step{};
  };
  const auto ring = [](const Step& step) { return 3 + step.bytes * 3 / 4; };
  const Step gather = find(from, layout_of({kY, kReplicated}));
  const Step exchange = find(gather.to, layout_of({kX, kReplicated}));
  const Step slice = find(exchange.to, to);
  EXPECT_EQ(gather.kind, Step::Kind::kAllGather);
  EXPECT_EQ(exchange.kind, Step::Kind::kAllToAll);
  EXPECT_EQ(ring(gather) + exchange.seconds + slice.seconds, 12294);
  const Layout via1 = layout_of({kY, kZ}), via2 = layout_of({kX, kZ});
  EXPECT_EQ(find(from, via1).seconds + find(via1, via2).seconds + find(via2, to).seconds, 4617);
  EXPECT_EQ(find(from, to).seconds, 1935);

  const ConversionTable table(mesh, extents, 1, true);
  EXPECT_EQ(table.seconds(from, to), 1935);
  ASSERT_EQ(table.path(from, to).size(), 1U);
  EXPECT_EQ(table.path(from, to)[0].axes, 3);
}

TEST(Conversion, NothingToDoCostsNothing) {
  const Mesh mesh = mesh_of({2, 1, 4});
  const ConversionTable table(mesh, {8, 8}, 4, true);
  EXPECT_EQ(table.layouts().size(), 16U);  // an axis of size 1 is always replicated
  for (size_t i = 0; i < table.layouts().size(); ++i) {
    EXPECT_EQ(table.seconds(static_cast<int>(i), static_cast<int>(i)), 0);
    EXPECT_TRUE(table.path(table.layouts()[i], table.layouts()[i]).empty());
  }
  EXPECT_EQ(table.index(layout_of({kReplicated, kX, kY})), table.index(layout_of({-1, -1, kY})));
  const Mesh one = mesh_of({1});
  EXPECT_EQ(ConversionTable(one, {3}, 4, true).layouts().size(), 1U);
  EXPECT_EQ(ConversionTable(mesh_of({2}), {}, 4, true).layouts().size(), 2U);  // a scalar
}

// V is what a group's members hold together, the other axes' splits apart, rounded up.
TEST(Conversion, BytesAreOfTheFullTensorOfOneGroup) {
  const Mesh mesh = mesh_of({2, 4});
  const std::vector<int64_t> extents{7, 257};
  for (const Step& step : steps_from(layout_of({kX, kY}), extents, 2, true, mesh)) {
    if (step.kind == Step::Kind::kAllGather && step.axes == 2) {
      EXPECT_EQ(step.bytes, 2.0 * 4 * 257);
    }
    if (step.kind == Step::Kind::kAllGather && step.axes == 3) {
      EXPECT_EQ(step.bytes, 2.0 * 7 * 257);
    }
  }
  for (const Step& step : steps_from(layout_of({kPartial, kY}), extents, 2, true, mesh)) {
    if (step.kind == Step::Kind::kAllReduce) {
      EXPECT_EQ(step.bytes, 2.0 * 7 * 65);
    }
    if (step.kind == Step::Kind::kReduceScatter) {
      EXPECT_EQ(step.bytes, 2.0 * 7 * 65);
    }
  }
}

TEST(Conversion, BackwardsAreConversionsOfTheDuals) {
  const Mesh mesh = mesh_of({2, 4});
  const std::vector<int64_t> extents{16, 32, 8};
  std::map<std::pair<Step::Kind, Step::Kind>, int> pairs;
  for (const Layout& from : layouts(extents, mesh, true)) {
    for (const Step& step : steps_from(from, extents, 4, true, mesh)) {
      bool found = false;
      for (const Step& back : steps_from(dual(step.to, mesh), extents, 4, true, mesh)) {
        if (back.to != dual(from, mesh) || back.axes != step.axes) continue;
        found = true;
        ++pairs[{step.kind, back.kind}];
        EXPECT_DOUBLE_EQ(back.seconds, step.seconds);
      }
      EXPECT_TRUE(found) << step_name(step.kind);
    }
  }
  using K = Step::Kind;
  std::set<std::pair<K, K>> kinds;
  for (const auto& [pair, count] : pairs) kinds.insert(pair);
  EXPECT_EQ(kinds, (std::set<std::pair<K, K>>{{K::kAllGather, K::kReduceScatter},
                                              {K::kReduceScatter, K::kAllGather},
                                              {K::kAllReduce, K::kAllReduce},
                                              {K::kAllToAll, K::kAllToAll},
                                              {K::kPermute, K::kPermute},
                                              {K::kSlice, K::kPad},
                                              {K::kPad, K::kSlice},
                                              {K::kKeepOne, K::kKeepOne}}));
  const ConversionTable table(mesh, extents, 4, true);
  const Layout split = layout_of({kX, kReplicated}), whole = layout_of({kReplicated, kReplicated});
  const Layout summands = layout_of({kPartial, kReplicated});
  const auto back = [&](const Layout& a, const Layout& b) {
    return table.backward_seconds(table.index(a), table.index(b));
  };
  EXPECT_EQ(back(whole, split), 0);                            // slice: free
  EXPECT_EQ(back(split, whole), table.seconds(split, whole));  // gathered: reduce-scattered
  EXPECT_EQ(back(summands, whole), table.seconds(summands, whole));
  EXPECT_EQ(dual(whole, mesh), layout_of({kPartial, kPartial}));
}

TEST(Conversion, IntegersAreNeverPartial) {
  const ConversionTable table(mesh_of({2, 2}), {8, 8}, 4, false);
  EXPECT_EQ(table.layouts().size(), 9U);
  EXPECT_EQ(table.index(layout_of({kPartial, kX})), -1);
  EXPECT_TRUE(std::isinf(table.backward_seconds(0, 1)));
}

// --- independent shortest paths
// -------------------------------------------------------------------

// A layout spelled out: for every dim its axes, outermost first; which axes are partial.
struct Spelled {
  std::vector<std::vector<int>> dims;
  std::set<int> partial;
  auto operator<=>(const Spelled&) const = default;
};

class Reference {
 public:
  Reference(const Mesh& mesh, std::vector<int64_t> extents, double bytes, bool may_be_partial)
      : mesh_(mesh), extents_(std::move(extents)), bytes_(bytes), floats_(may_be_partial) {
    Spelled empty;
    empty.dims.resize(extents_.size());
    grow(empty, 0);
    for (size_t u = 0; u < all_.size(); ++u) {
      for (size_t v = 0; v < all_.size(); ++v) {
        const double price = step(all_[u], all_[v]);
        if (price >= 0) edges_.push_back({u, v, price});
      }
    }
  }

  std::vector<double> from(size_t start) const {
    std::vector<double> best(all_.size(), INFINITY);
    best[start] = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [u, v, price] : edges_) {
        if (best[u] + price < best[v]) {
          best[v] = best[u] + price;
          changed = true;
        }
      }
    }
    return best;
  }
  const std::vector<Spelled>& all() const { return all_; }

 private:
  void grow(const Spelled& s, int axis) {  // all orders on all dims
    if (axis == static_cast<int>(mesh_.axes.size())) {
      all_.push_back(s);
      return;
    }
    grow(s, axis + 1);
    if (mesh_.axes[static_cast<size_t>(axis)].size == 1) return;
    if (floats_) {
      Spelled p = s;
      p.partial.insert(axis);
      grow(p, axis + 1);
    }
    for (size_t d = 0; d < s.dims.size(); ++d) {
      for (size_t at = 0; at <= s.dims[d].size(); ++at) {
        Spelled p = s;
        p.dims[d].insert(p.dims[d].begin() + static_cast<ptrdiff_t>(at), axis);
        grow(p, axis + 1);
      }
    }
  }
  int size(int axis) const { return mesh_.axes[static_cast<size_t>(axis)].size; }
  bool fits(const Spelled& s) const {
    for (size_t d = 0; d < s.dims.size(); ++d) {
      int64_t left = extents_[d];
      for (int axis : s.dims[d]) {
        if (left < size(axis)) return false;
        left = (left + size(axis) - 1) / size(axis);
      }
    }
    return true;
  }
  double held(const Spelled& s) const {
    double product = bytes_;
    for (size_t d = 0; d < s.dims.size(); ++d) {
      int64_t left = extents_[d];
      for (int axis : s.dims[d]) left = (left + size(axis) - 1) / size(axis);
      product *= static_cast<double>(left);
    }
    return product;
  }
  // The part of [0, extent) at these coordinates.
  Range part(const Spelled& s, size_t d, const std::vector<int>& at) const {
    std::vector<int> sizes, here;
    for (int axis : s.dims[d]) {
      sizes.push_back(size(axis));
      here.push_back(at[static_cast<size_t>(axis)]);
    }
    return local_range(extents_[d], sizes, here);
  }

  // Price of the single step from a to b; -1: there is none.
  double step(const Spelled& a, const Spelled& b) const {
    if (a == b || !fits(a) || !fits(b)) return -1;
    if (a.partial == b.partial && same_axes(a, b)) return permute(a, b);
    AxisSet set = 0;  // axes that change
    std::set<char> before, after;
    for (int axis = 0; axis < static_cast<int>(mesh_.axes.size()); ++axis) {
      const int from = place(a, axis), to = place(b, axis);
      if (from == to) continue;
      set = static_cast<AxisSet>(set | 1U << axis);
      before.insert(kind(from));
      after.insert(kind(to));
    }
    if (before.size() != 1) return -1;
    // Dims keep their other axes, in order; those that come or go stand last.
    for (size_t d = 0; d < a.dims.size(); ++d) {
      std::vector<int> stay_a, stay_b;
      const bool tail_a = rest(a.dims[d], set, stay_a), tail_b = rest(b.dims[d], set, stay_b);
      if (!tail_a || !tail_b || stay_a != stay_b) return -1;
      if (*before.begin() == 'S' && stay_a.size() < a.dims[d].size() &&
          stay_b.size() < b.dims[d].size())
        return -1;  // no dim both gives and takes
    }
    if (after.size() != 1) return -1;
    const bool single = (set & (set - 1)) == 0;
    const auto cost = [&](Collective c, double v) { return collective_seconds(mesh_, set, c, v); };
    const std::string change{*before.begin(), *after.begin()};
    if (change == "SR") return cost(Collective::kAllGather, held(b));
    if (change == "PS") return cost(Collective::kReduceScatter, held(a));
    if (change == "PR") return cost(Collective::kAllReduce, held(a));
    if (change == "SS") return cost(Collective::kAllToAll, std::max(held(a), held(b)));
    if (change == "RS" || change == "RP" || change == "SP") return single ? 0 : -1;
    return -1;
  }
  static bool rest(const std::vector<int>& axes, AxisSet set, std::vector<int>& stay) {
    bool tail = true, moving = false;
    for (int axis : axes) {
      const bool moves = (set >> axis & 1) != 0;
      if (moving && !moves) tail = false;
      moving |= moves;
      if (!moves) stay.push_back(axis);
    }
    return tail;
  }
  int place(const Spelled& s, int axis) const {  // dim, -1 replicated, -2 partial
    if (s.partial.count(axis) != 0) return -2;
    for (size_t d = 0; d < s.dims.size(); ++d) {
      if (std::count(s.dims[d].begin(), s.dims[d].end(), axis) != 0) return static_cast<int>(d);
    }
    return -1;
  }
  static char kind(int place) { return place == -2 ? 'P' : place == -1 ? 'R' : 'S'; }
  static bool same_axes(const Spelled& a, const Spelled& b) {
    for (size_t d = 0; d < a.dims.size(); ++d) {
      if (std::set<int>(a.dims[d].begin(), a.dims[d].end()) !=
          std::set<int>(b.dims[d].begin(), b.dims[d].end()))
        return false;
    }
    return true;
  }
  // Possible when each device's new part is some device's old part, whole.
  double permute(const Spelled& a, const Spelled& b) const {
    AxisSet set = 0;
    for (size_t d = 0; d < a.dims.size(); ++d) {
      for (size_t k = 0; k < a.dims[d].size(); ++k) {
        if (a.dims[d][k] != b.dims[d][k]) set = static_cast<AxisSet>(set | 1U << a.dims[d][k]);
      }
    }
    for (int device = 0; device < mesh_.devices(); ++device) {
      const std::vector<int> at = coordinates_of(mesh_, device);
      bool found = false;
      for (int other : group_of(mesh_, set, device)) {
        bool all = true;
        for (size_t d = 0; d < a.dims.size(); ++d) {
          const Range want = part(b, d, at), have = part(a, d, coordinates_of(mesh_, other));
          all &= want == have || (want.extent == 0 && have.extent == 0);
        }
        found |= all;
      }
      if (!found) return -1;
    }
    return collective_seconds(mesh_, set, Collective::kPermute, held(a));
  }

  Mesh mesh_;
  std::vector<int64_t> extents_;
  double bytes_;
  bool floats_;
  std::vector<Spelled> all_;
  struct Edge {
    size_t from, to;
    double price;
  };
  std::vector<Edge> edges_;
};

Spelled spelled(const Layout& layout, size_t rank, const Mesh& mesh) {
  Spelled s;
  s.dims.resize(rank);
  for (int axis = 0; axis < static_cast<int>(mesh.axes.size()); ++axis) {  // mesh order
    const int8_t at = layout.axis[static_cast<size_t>(axis)];
    if (at == kPartial) s.partial.insert(axis);
    if (at >= 0) s.dims[static_cast<size_t>(at)].push_back(axis);
  }
  return s;
}

struct Case {
  std::vector<int> mesh;
  std::vector<int64_t> extents;
  double latency;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {{4}, {64, 32}, 1e-5},        {{4}, {5, 257, 7}, 1e-5},    {{2, 2}, {64, 32, 16}, 1e-5},
      {{2, 2}, {5, 7}, 1e-5},       {{2, 4}, {64, 32, 16}, 0},   {{2, 4}, {257, 7, 5}, 1e-5},
      {{2, 4}, {3, 8}, 1e-3},       {{2, 2, 2}, {64, 32}, 1e-5}, {{2, 2, 2}, {5, 7, 257}, 1e-5},
      {{2, 2, 2}, {8, 4, 2}, 1e-9}, {{4, 2}, {16, 12}, 1e-7},    {{3, 2}, {7, 12}, 1e-6}};
  return all;
}

TEST(Conversion, AllPairsAgainstBellmanFord) {
  size_t pairs = 0;
  for (const Case& c : cases()) {
    for (bool floats : {true, false}) {
      const Mesh mesh = mesh_of(c.mesh, c.latency, 1e9);
      const ConversionTable table(mesh, c.extents, 4, floats);
      const Reference reference(mesh, c.extents, 4, floats);
      std::map<Spelled, size_t> number;
      for (size_t i = 0; i < reference.all().size(); ++i) number[reference.all()[i]] = i;
      for (size_t from = 0; from < table.layouts().size(); ++from) {
        const std::vector<double> best =
            reference.from(number.at(spelled(table.layouts()[from], c.extents.size(), mesh)));
        for (size_t to = 0; to < table.layouts().size(); ++to) {
          const double want = best[number.at(spelled(table.layouts()[to], c.extents.size(), mesh))];
          const double got = table.seconds(static_cast<int>(from), static_cast<int>(to));
          ASSERT_TRUE(got == want || std::abs(got - want) <= 1e-12 * want)
              << mesh.str() << ": " << from << " -> " << to << " of "
              << ::testing::PrintToString(c.extents) << ": " << got << " instead of " << want;
          ++pairs;
        }
      }
    }
  }
  EXPECT_GT(pairs, 40000U);
}

TEST(Conversion, EveryPathMovesTheTensor) {
  size_t paths = 0;
  for (const Case& c : cases()) {
    const Mesh mesh = mesh_of(c.mesh, c.latency, 1e9);
    std::vector<int64_t> extents = c.extents;  // large ones would take long and show no more
    for (int64_t& e : extents) e = e > 32 ? 17 + e % 4 : e;
    const ConversionTable table(mesh, extents, 4, true);
    ir::Tensor whole = blank(ir::DType::kF32, everywhere(extents));
    for (size_t k = 0; k < whole.data.size(); ++k)
      whole.data[k] = static_cast<double>(k % 8191) + 1;
    const bool large = table.layouts().size() > 60;
    size_t turn = 0;
    for (const Layout& from : table.layouts()) {
      const Parts start = shard(whole, from, mesh);
      for (const Layout& to : table.layouts()) {
        if (large && ++turn % 13 != 0) continue;
        const std::vector<Step> path = table.path(from, to);
        Parts parts = start;
        double seconds = 0;
        Layout at = from;
        for (const Step& step : path) {
          ASSERT_EQ(step.from, at);
          parts = apply(step, parts, extents, mesh);
          at = step.to;
          seconds += step.seconds;
        }
        ASSERT_EQ(at, to);
        ASSERT_EQ(difference(parts, whole, to, mesh, 1e-6), "") << mesh.str();
        ASSERT_DOUBLE_EQ(seconds, table.seconds(from, to));
        ++paths;
      }
    }
  }
  EXPECT_GT(paths, 4000U);
}

TEST(Conversion, UnevenSizesOnAxesOf2348) {
  for (int64_t size : {5, 7, 257}) {
    for (int axis : {2, 3, 4, 8}) {
      const Mesh mesh = mesh_of({axis});
      const std::vector<int64_t> extents{size, 9};
      const ConversionTable table(mesh, extents, 4, true);
      EXPECT_EQ(table.index(layout_of({kX})) >= 0, size >= axis);
      ir::Tensor whole = blank(ir::DType::kF32, everywhere(extents));
      for (size_t k = 0; k < whole.data.size(); ++k) whole.data[k] = static_cast<double>(k);
      for (const Layout& from : table.layouts()) {
        for (const Layout& to : table.layouts()) {
          Parts parts = shard(whole, from, mesh);
          for (const Step& step : table.path(from, to)) parts = apply(step, parts, extents, mesh);
          ASSERT_EQ(difference(parts, whole, to, mesh), "") << size << " over " << axis;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cad::planner
