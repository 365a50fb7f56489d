// tests/ir/mask_tails_test.cc -- what lies beyond a device's own part of a dim never reaches what
// is its own: every op, split along every dim that it may be split along, with NaN in the tails.
// The oracle is the same graph on exactly the device's own elements, without padding. Results and
// gradients; what devices exchange is not looked at here.
#include <set>

#include "ir/autodiff.h"
#include "ir/passes.h"
#include "tests/ir/split_graph.h"
#include "tests/ir/spmd_devices.h"
#include "tests/planner/op_cases.h"

namespace cad::ir {
namespace {

// Padded parts with the worst in the tails: NaN, an id of somebody else's row, true.
Tensor padded(const Graph& g, const Type& type, const Tensor& whole, const std::vector<int>& at,
              const Bindings& bindings) {
  const double tail = is_float(type.dtype) ? NAN : 1;
  return cut(g, type, whole, at, bindings, tail);
}

// The device's own elements and no more.
Tensor trimmed(const Graph& g, const Type& type, const Tensor& whole, const std::vector<int>& at,
               const Bindings& bindings) {
  Tensor own;
  own.dtype = whole.dtype;
  for (DimId d : type.dims) own.extents.push_back(own_extent(g, d, at, bindings));
  for_own(g, type, at, bindings,
          [&](size_t from, size_t) { own.data.push_back(whole.data[from]); });
  return own;
}

// "" when the device's own elements of `part` are those of `own`.
std::string own_difference(const Graph& g, const Type& type, const Tensor& part, const Tensor& own,
                           const std::vector<int>& at, const Bindings& bindings) {
  std::string fault;
  size_t k = 0;
  for_own(g, type, at, bindings, [&](size_t, size_t in_part) {
    const double got = part.data[in_part], want = own.data[k++];
    const bool same = got == want || (std::isnan(got) && std::isnan(want)) ||
                      std::abs(got - want) <= 1e-9 * (1 + std::abs(want));
    if (!same && fault.empty())
      fault = fmt::format("element {}: {} instead of {}", k - 1, got, want);
  });
  if (k != own.data.size()) return fmt::format("{} elements instead of {}", own.data.size(), k);
  return fault;
}

size_t nodes_of(const Graph& g) {
  size_t count = 0;
  for (const Region& region : g.regions) count += region.nodes.size();
  return count;
}

// The sum of all float results times coefficients, as output "loss"; other results as they are.
void add_loss(Bench& t, const std::vector<ValueId>& results) {
  ValueId loss;
  std::vector<ValueId> outputs = results;
  for (ValueId y : results) {
    const Type type = t.g.type(y);
    if (!is_float(type.dtype)) continue;
    std::vector<double> data;
    for (int k = 0; k < 1024; ++k) data.push_back(t.random() - 0.4);
    const ValueId c = t.given("c" + std::to_string(y.index), {DType::kF32, type.dims}, data);
    const ValueId term = t.b.mul(t.b.cast(y, DType::kF32), c);
    const ValueId sum = t.b.sum(term, Dims(t.g.type(term).dims));
    loss = loss.valid() ? t.b.add(loss, sum) : sum;
  }
  for (size_t i = 0; i < outputs.size(); ++i) t.output(outputs[i], fmt::format("y{}", i));
  if (loss.valid()) t.output(loss, "loss");
}

Graph trained(Graph g) {
  const ValueId loss = output_value(g, "loss");
  return loss.valid() ? differentiate(std::move(g), loss) : g;
}

// The bench's graph, split, against its trimmed self on every device. Returns how many devices own
// less than their part of something.
void check(Bench& t, const std::vector<int64_t>& mesh, const Splits& splits) {
  t.fill();
  EvalContext context;
  context.bindings = t.bindings;
  context.seed = 5;
  const Graph split = split_graph(t.g, mesh, splits, t.bindings);
  const Graph plain = trained(split);
  Graph masked = mask_tails(plain);
  ASSERT_TRUE(verify(masked).empty()) << verify(masked)[0];
  masked = run_passes(std::move(masked), passes_after_autodiff());
  for (int64_t device = 0; device < mesh_size(split, (1U << mesh.size()) - 1); ++device) {
    const std::vector<int> at = coordinates_of(split, device);
    Graph exact = split;  // the device's own extents, at the same places of the whole
    for (size_t d = 0; d < exact.dims.size(); ++d)
      exact.dims[d].size = own_extent(split, DimId{static_cast<int32_t>(d)}, at, t.bindings);
    exact = trained(exact);
    std::vector<Tensor> tails, own;
    for (size_t i = 0; i < split.inputs.size(); ++i) {
      const Type& type = split.type(split.inputs[i].value);
      tails.push_back(padded(split, type, t.values[i], at, t.bindings));
      own.push_back(trimmed(split, type, t.values[i], at, t.bindings));
    }
    EvalContext part = context;
    part.coordinates = at;
    const std::vector<Tensor> got = interpret(masked, tails, part);
    const std::vector<Tensor> want = interpret(exact, own, part);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const Type& type = masked.type(masked.regions[0].results[i]);
      EXPECT_EQ(own_difference(masked, type, got[i], want[i], at, t.bindings), "")
          << masked.outputs[i].name << " on device " << device;
    }
  }
}

// Dims that are one loop of the op, by name; empty when a name also stands for something else.
std::set<DimId> dims_of(const Graph& g, const Node& n, const Factor& factor) {
  std::set<DimId> dims;
  for (DimId d : factor.operands) {
    if (d.valid()) dims.insert(d);
  }
  for (const Factor::Result& r : factor.results) {
    if (r.dim.valid()) dims.insert(r.dim);
  }
  for (size_t i = 0; i < n.operands.size(); ++i) {
    for (DimId d : dims) {
      if (g.type(n.operands[i]).has(d) && factor.operands[i] != d) return {};
    }
  }
  for (size_t i = 0; i < n.results.size(); ++i) {
    for (DimId d : dims) {
      if (g.type(n.results[i]).has(d) && factor.results[i].dim != d) return {};
    }
  }
  return dims;
}

// Stretches of the dims are stretches of each other: D = (H, K) split as H is.
bool line_up(const std::set<DimId>& dims, const Graph& g, const Bindings& bindings,
             const std::vector<int64_t>& mesh, const std::vector<int8_t>& axes) {
  Graph scratch = g;
  scratch.mesh = mesh_axes(mesh);
  std::vector<DimId> parts;
  for (DimId d : dims) parts.push_back(add_part(scratch, d, axes, bindings));
  for (int64_t device = 0; device < mesh_size(scratch, (1U << mesh.size()) - 1); ++device) {
    const std::vector<int> at = coordinates_of(scratch, device);
    const auto share = [&](DimId part, bool own) {
      return own ? own_extent(scratch, part, at, bindings) : extent_of(scratch, part, bindings);
    };
    for (const bool own : {false, true}) {
      for (DimId part : parts) {
        const int64_t whole = extent_of(scratch, scratch.dim(part).whole, bindings),
                      first = extent_of(scratch, scratch.dim(parts[0]).whole, bindings);
        if (share(part, own) * first != share(parts[0], own) * whole) return false;
      }
    }
  }
  return true;
}

struct MeshOfTest {
  std::vector<int64_t> sizes;
  std::vector<int8_t> axes;  // that split the dim
};
const std::vector<MeshOfTest> kMeshes{
    {{2}, {0}}, {{4}, {0}}, {{2, 2}, {0, 1}}, {{2, 2}, {1, 0}}, {{3}, {0}}};

TEST(MaskTails, EveryOpAlongEveryDim) {
  size_t count = 0;
  std::set<std::string> uneven;
  for (const planner::OpCase& c : planner::OpCases().all) {
    for (const Bindings& sizes : c.sizes) {
      Bench probe;
      probe.bindings = sizes;
      const Node n = probe.g.node(probe.g.value(c.build(probe)[0]).def);
      // counted within the part; divided by the part's size (none is left after exact_means)
      if (n.op == Op::kIota || n.op == Op::kMean) continue;
      for (const Factor& factor : sharding_rule(probe.g, n).factors) {
        const std::set<DimId> dims = dims_of(probe.g, n, factor);
        // ids into a part are its lowering's business
        const bool looked_up =
            (n.op == Op::kScatterAdd || n.op == Op::kUnselect) && dims.count(n.attrs.dim) != 0;
        if (dims.empty() || factor.kind == Factor::Kind::kLookup || looked_up) continue;
        for (const MeshOfTest& mesh : kMeshes) {
          if (!line_up(dims, probe.g, sizes, mesh.sizes, mesh.axes)) continue;
          Bench t;
          t.bindings = sizes;
          std::vector<ValueId> results = c.build(t);
          if (n.op == Op::kAttention) results.pop_back();  // no gradient flows through lse
          add_loss(t, results);
          Splits splits;
          for (DimId d : dims) splits[t.g.dim(d).name] = mesh.axes;
          SCOPED_TRACE(fmt::format("{} over {} of {} devices", c.name, splits.begin()->first,
                                   mesh.sizes[0]));
          check(t, mesh.sizes, splits);
          if (HasFailure()) return;
          ++count;
          uneven.insert(op_name(n.op));
        }
      }
    }
  }
  EXPECT_GT(count, 1500U);
  EXPECT_GT(uneven.size(), 55U);
}

// Two dims at once, on different axes and on both.
TEST(MaskTails, TwoDimsOfAProduct) {
  for (const Splits& splits : {Splits{{"B", {0}}, {"D", {1}}}, Splits{{"B", {1}}, {"F", {0}}},
                               Splits{{"D", {0}}, {"F", {1}}}, Splits{{"T", {0}}, {"B", {1}}}}) {
    for (const std::vector<int64_t>& mesh : {std::vector<int64_t>{2, 2}, {2, 4}, {3, 2}}) {
      Bench t;
      t.bindings = {{"B", 5}, {"T", 3}, {"D", 7}, {"F", 1}};
      const ValueId x = t.x("x", {"B", "T", "D"}), w = t.x("w", {"D", "F"}), u = t.x("u", {"F"});
      const ValueId y = t.b.make(Op::kContract, {x, w}, over(t.dims({"D"})));
      // log of a sum that the tail makes NaN, a bias, a maximum
      const ValueId z = t.b.add(t.b.unary(Op::kTanh, y), u);
      const ValueId most = t.b.make(Op::kReduceMax, {z}, over(t.dims({"B", "T"})));
      const ValueId lse = t.b.make(Op::kLogSumExp, {z}, over(t.dims({"F", "T"})));
      add_loss(t, {z, most, lse});
      SCOPED_TRACE(splits.begin()->first);
      check(t, mesh, splits);
    }
  }
}

// A loop of blocks: normalisation, attention, a product in a carry; gradients of stacked and of
// shared parameters are sums over the rows of every iteration.
TEST(MaskTails, LoopOfBlocks) {
  for (const int64_t rows : {5, 7, 3, 1}) {
    for (const MeshOfTest& mesh : kMeshes) {
      Bench t;
      t.bindings = {{"B", rows}, {"T", 4}, {"S", 4}, {"D", 3}, {"E", 3}, {"L", 2}};
      const ValueId x = t.x("x", {"B", "T", "D"}), w = t.x("w", {"L", "D", "E"}),
                    gain = t.x("gain", {"D"});
      Loop loop;
      loop.body = t.g.add_region(NodeId{});
      loop.dim = t.dim("L");
      loop.carries = loop.scanned = loop.invariants = 1;
      t.g.add_argument(loop.body, {DType::kI32, {}});
      const ValueId h = t.g.add_argument(loop.body, t.g.type(x));
      const ValueId wi = t.g.add_argument(loop.body, t.type(DType::kF32, {"D", "E"}));
      const ValueId gi = t.g.add_argument(loop.body, t.g.type(gain));
      Builder b(t.g, loop.body);
      const ValueId third = b.constant(1.0 / 3, DType::kF32);
      const ValueId square = b.mul(b.sum(b.mul(h, h), t.dims({"D"})), third);
      const ValueId normal = b.mul(b.mul(h, b.unary(Op::kRsqrt, square)), gi);
      const auto renamed = [&](ValueId v, const char* from, const char* to) {
        Attrs attrs;
        attrs.groups = {{t.dims({from}), t.dims({to})}};
        return b.make(Op::kRename, {v}, attrs);
      };
      Attrs attention;
      attention.dims = t.dims({"T", "S", "D"});
      attention.probs = t.dims({"B", "T", "S"});
      attention.scalar = 0.5;
      attention.causal = true;
      attention.p = 0.2;
      attention.site = "drop";
      const ValueId keys = renamed(normal, "T", "S");
      const ValueId values = renamed(keys, "D", "E");
      const ValueId mixed = b.make_all(Op::kAttention, {normal, keys, values}, attention)[0];
      const ValueId product = b.make(Op::kContract, {normal, wi}, over(t.dims({"D"})));
      const ValueId sum = b.unary(Op::kTanh, b.add(mixed, product));
      t.g.region(loop.body).results = {b.add(h, renamed(sum, "E", "D"))};
      const ValueId out = t.b.repeat(loop, {x, w, gain})[0];
      add_loss(t, {out});
      SCOPED_TRACE(fmt::format("{} rows, {} devices", rows, mesh.sizes[0]));
      check(t, mesh.sizes, {{"B", mesh.axes}});
      if (HasFailure()) return;
    }
  }
}

// Keys and values that lack dims which the queries have: their gradients are sums over these.
TEST(MaskTails, AttentionOfUnlikeOperands) {
  for (const std::string split : {"B", "H", "T", "F"}) {
    for (const MeshOfTest& mesh : kMeshes) {
      for (const bool masked : {false, true}) {
        Bench t;
        t.bindings = {{"B", 5}, {"T", 3}, {"S", 4}, {"H", 3}, {"K", 2}, {"F", 5}};
        Attrs attrs;
        attrs.dims = t.dims({"T", "S", "K"});
        attrs.probs = t.dims({"B", "H", "T", "S"});
        attrs.scalar = 0.7;
        attrs.causal = true;
        attrs.masked = masked;
        attrs.p = 0.25;
        attrs.site = "drop";
        std::vector<ValueId> operands{t.x("q", {"B", "T", "H", "K"}), t.x("k", {"H", "S", "K"}),
                                      t.x("v", {"S", "B", "F"})};
        if (masked) operands.push_back(t.bools("mask", {"H", "S"}));
        add_loss(t, {t.b.make_all(Op::kAttention, operands, attrs)[0]});
        SCOPED_TRACE(fmt::format("{} over {} devices", split, mesh.sizes[0]));
        check(t, mesh.sizes, {{split, mesh.axes}});
        if (HasFailure()) return;
      }
    }
  }
}

TEST(MaskTails, NothingToMask) {
  for (const int64_t rows : {4, 5}) {
    Bench t;
    t.bindings = {{"B", rows}, {"D", 3}};
    const ValueId x = t.x("x", {"B", "D"}), w = t.x("w", {"D"});
    add_loss(t, {t.b.mul(x, w)});
    const Graph g = trained(split_graph(t.g, {2}, {{"B", {0}}}, t.bindings));
    const Graph masked = mask_tails(g);
    EXPECT_EQ(nodes_of(masked) == nodes_of(g), rows == 4);
  }
  // Along other dims than those that are summed over nothing is mixed.
  Bench t;
  t.bindings = {{"B", 5}, {"D", 3}};
  t.output(t.b.sum(t.b.unary(Op::kExp, t.x("x", {"B", "D"})), t.dims({"D"})));
  const Graph g = split_graph(t.g, {2}, {{"B", {0}}}, t.bindings);
  EXPECT_EQ(nodes_of(mask_tails(g)), nodes_of(g));
}

// One mask for every reader of a value.
TEST(MaskTails, ReadersShareAMask) {
  Bench t;
  t.bindings = {{"B", 5}, {"D", 3}};
  const ValueId x = t.x("x", {"B", "D"});
  t.output(t.b.sum(x, t.dims({"B"})), "a");
  t.output(t.b.sum(x, t.dims({"B", "D"})), "b");
  const Graph masked = mask_tails(split_graph(t.g, {2}, {{"B", {0}}}, t.bindings));
  size_t masks = 0;
  for (const Node& n : masked.nodes) masks += n.op == Op::kWhere ? 1 : 0;
  EXPECT_EQ(masks, 1U);
}

}  // namespace
}  // namespace cad::ir
