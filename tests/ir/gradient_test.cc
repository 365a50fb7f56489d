// tests/ir/gradient_test.cc -- the gradient rule of every op against central differences in f64:
// loss = sum(result * weights), for odd, unit and zero sizes, in f32 and (unrounded) bf16. The last
// test fails when an op with a rule has no case here.
#include <set>

#include "ir/autodiff.h"
#include "tests/ir/ir_testing.h"

namespace cad::ir {
namespace {

struct Case {
  Op op;
  std::string name;
  std::function<std::vector<ValueId>(Bench& t)> build;  // the results whose gradient flows
  std::vector<Bindings> sizes;
};

const std::vector<Bindings> kSizes{{{"B", 3}, {"T", 5}, {"D", 2}},
                                   {{"B", 1}, {"T", 1}, {"D", 1}},
                                   {{"B", 2}, {"T", 0}, {"D", 3}},
                                   {{"B", 0}, {"T", 2}, {"D", 0}}};

using Build = std::function<std::vector<ValueId>(Bench& t)>;

void unary(std::vector<Case>& all, Op op, double lo, double hi) {
  all.push_back({op, op_name(op),
                 [=](Bench& t) -> std::vector<ValueId> {
                   return {t.b.unary(op, t.x("x", {"B", "T"}, lo, hi))};
                 },
                 kSizes});
}

// Both operands full; one broadcast, in another order; both broadcast through attrs.dims.
void binary(std::vector<Case>& all, Op op, double lo, double hi) {
  auto add = [&](const std::string& name, const std::vector<std::string>& a,
                 const std::vector<std::string>& b, const std::vector<std::string>& result) {
    all.push_back({op, std::string(op_name(op)) + "_" + name,
                   [=](Bench& t) -> std::vector<ValueId> {
                     ValueId x = t.x("a", a, lo, hi), y = t.x("b", b, lo, hi);
                     return {t.b.make(op, {x, y}, over(t.dims(result)))};
                   },
                   kSizes});
  };
  add("same", {"B", "T"}, {"B", "T"}, {});
  add("turned", {"B", "T"}, {"T", "B"}, {});
  add("left", {"T"}, {"B", "T", "D"}, {});
  add("right", {"B", "T", "D"}, {"D"}, {});
  add("scalar", {}, {"T"}, {});
  add("outer", {"T"}, {"B"}, {"B", "T"});
}

void pointwise_cases(std::vector<Case>& all) {
  for (Op op : {Op::kAdd, Op::kSub, Op::kMul, Op::kMin, Op::kMax}) binary(all, op, -2, 2);
  binary(all, Op::kDiv, 0.5, 2);
  binary(all, Op::kPow, 0.5, 2);
  binary(all, Op::kMod, 0.7, 3);
  for (Op op : {Op::kNeg, Op::kAbs, Op::kExp, Op::kSin, Op::kCos, Op::kTanh, Op::kErf, Op::kSigmoid,
                Op::kSoftplus}) {
    unary(all, op, -2, 2);
  }
  for (Op op : {Op::kLog, Op::kSqrt, Op::kRsqrt}) unary(all, op, 0.3, 3);
  for (double exponent : {0.0, 1.0, 2.0, 3.0, -0.5}) {
    all.push_back({Op::kPow, fmt::format("pow_{}", exponent),
                   [=](Bench& t) -> std::vector<ValueId> {
                     return {t.b.make(Op::kPow, {t.x("x", {"B", "T"}, 0.5, 2),
                                                 t.b.constant(exponent, t.dtype)})};
                   },
                   kSizes});
  }
  all.push_back({Op::kWhere, "where",
                 [](Bench& t) -> std::vector<ValueId> {
                   ValueId c = t.bools("c", {"T"});
                   return {t.b.where(c, t.x("a", {"B", "T"}), t.x("b", {}))};
                 },
                 kSizes});
  all.push_back({Op::kCast, "cast",
                 [](Bench& t) -> std::vector<ValueId> {
                   ValueId x = t.x("x", {"B", "T"});
                   return {t.b.cast(t.b.cast(t.b.cast(x, DType::kF16), DType::kBF16), DType::kF32)};
                 },
                 kSizes});
  all.push_back({Op::kBroadcast, "broadcast",
                 [](Bench& t) -> std::vector<ValueId> {
                   return {t.b.broadcast(t.x("x", {"T", "B"}), t.dims({"B", "D", "T"}))};
                 },
                 kSizes});
}

void contract_cases(std::vector<Case>& all) {
  auto add = [&](const std::string& name, const std::vector<std::string>& a,
                 const std::vector<std::string>& b, const std::vector<std::string>& summed) {
    all.push_back(
        {Op::kContract,
         "contract_" + name,
         [=](Bench& t) -> std::vector<ValueId> {
           return {t.b.make(Op::kContract, {t.x("a", a), t.x("b", b)}, over(t.dims(summed)))};
         },
         {{{"B", 2}, {"T", 3}, {"D", 5}, {"F", 3}},
          {{"B", 1}, {"T", 1}, {"D", 1}, {"F", 1}},
          {{"B", 2}, {"T", 3}, {"D", 0}, {"F", 2}},
          {{"B", 0}, {"T", 2}, {"D", 2}, {"F", 2}}}});
  };
  add("linear", {"B", "T", "D"}, {"D", "F"}, {"D"});
  add("turned", {"D", "B", "T"}, {"F", "D"}, {"D"});
  add("batched", {"B", "T", "D"}, {"B", "F", "D"}, {"D"});
  add("batch_last", {"T", "D", "B"}, {"F", "B", "D"}, {"D"});
  add("two_dims", {"B", "T", "D"}, {"D", "T", "F"}, {"T", "D"});
  add("outer", {"B", "T"}, {"D"}, {});
  add("dot", {"D"}, {"D"}, {"D"});
  add("same_dims", {"B", "T"}, {"T", "B"}, {"T"});
}

void reduce_cases(std::vector<Case>& all) {
  auto add = [&](Op op, const std::string& name, const std::vector<std::string>& dims) {
    all.push_back({op, std::string(op_name(op)) + "_" + name,
                   [=](Bench& t) -> std::vector<ValueId> {
                     return {t.b.make(op, {t.x("x", {"B", "T", "D"})}, over(t.dims(dims)))};
                   },
                   kSizes});
  };
  for (Op op :
       {Op::kSum, Op::kMean, Op::kReduceMax, Op::kReduceMin, Op::kLogSumExp, Op::kSoftmax}) {
    add(op, "one", {"T"});
    add(op, "two", {"D", "B"});
    add(op, "all", {"B", "T", "D"});
    add(op, "none", {});
  }
  auto weighted = [&](const std::string& name, const std::vector<std::string>& x,
                      const std::vector<std::string>& w, const std::vector<std::string>& dims) {
    all.push_back(
        {Op::kMean, "mean_weighted_" + name,
         [=](Bench& t) -> std::vector<ValueId> {
           return {t.b.make(Op::kMean, {t.x("x", x), t.x("w", w, 0.2, 2)}, over(t.dims(dims)))};
         },
         kSizes});
  };
  weighted("full", {"B", "T"}, {"B", "T"}, {"T", "B"});
  weighted("small", {"B", "T", "D"}, {"T"}, {"T", "B"});
  weighted("large", {"T"}, {"B", "T"}, {"T"});
  weighted("large_lacking", {"T"}, {"B", "T"}, {"B"});
  all.push_back({Op::kMean, "mean_bool_weight",
                 [](Bench& t) -> std::vector<ValueId> {
                   ValueId w = t.bools("w", {"B", "T"});
                   return {t.b.make(Op::kMean, {t.x("x", {"B", "T"}), w}, over(t.dims({"T"})))};
                 },
                 kSizes});
  for (bool reverse : {false, true}) {
    all.push_back({Op::kCumSum, reverse ? "cumsum_reverse" : "cumsum",
                   [=](Bench& t) -> std::vector<ValueId> {
                     Attrs attrs = along(t.dim("T"));
                     attrs.reverse = reverse;
                     return {t.b.make(Op::kCumSum, {t.x("x", {"B", "T", "D"})}, attrs)};
                   },
                   kSizes});
  }
}

void move_cases(std::vector<Case>& all) {
  auto add = [&](Op op, const std::string& name, const Build& build, std::vector<Bindings> sizes) {
    all.push_back({op, std::string(op_name(op)) + "_" + name, build, std::move(sizes)});
  };
  add(Op::kRename, "one",
      [](Bench& t) -> std::vector<ValueId> {
        Attrs attrs;
        attrs.groups = {{t.dims({"T"}), t.dims({"S"})}};
        return {t.b.make(Op::kRename, {t.x("x", {"B", "T"})}, attrs)};
      },
      {{{"B", 2}, {"T", 3}, {"S", 3}}, {{"B", 0}, {"T", 1}, {"S", 1}}});
  add(Op::kRename, "swap",
      [](Bench& t) -> std::vector<ValueId> {
        Attrs attrs;
        attrs.groups = {{t.dims({"T"}), t.dims({"S"})}, {t.dims({"S"}), t.dims({"T"})}};
        return {t.b.make(Op::kRename, {t.x("x", {"S", "B", "T"})}, attrs)};
      },
      {{{"B", 2}, {"T", 3}, {"S", 3}}});
  auto reshape =
      [&](const std::string& name, const std::vector<std::string>& x,
          const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>>& groups,
          std::vector<Bindings> sizes) {
        add(
            Op::kReshape, name,
            [=](Bench& t) -> std::vector<ValueId> {
              Attrs attrs;
              for (const auto& group : groups)
                attrs.groups.push_back({t.dims(group.first), t.dims(group.second)});
              return {t.b.make(Op::kReshape, {t.x("x", x)}, attrs)};
            },
            std::move(sizes));
      };
  const std::vector<Bindings> split{{{"B", 2}, {"D", 6}, {"H", 2}, {"K", 3}, {"U", 1}},
                                    {{"B", 1}, {"D", 0}, {"H", 0}, {"K", 3}, {"U", 1}}};
  reshape("split", {"B", "D"}, {{{"D"}, {"H", "K"}}}, split);
  reshape("merge", {"H", "B", "K"}, {{{"H", "K"}, {"D"}}}, split);
  reshape("merge_turned", {"H", "B", "K"}, {{{"K", "H"}, {"D"}}}, split);
  reshape("unit_new", {"B"}, {{{}, {"U"}}}, split);
  reshape("unit_gone", {"U", "B"}, {{{"U"}, {}}}, split);
  for (Op op : {Op::kSlice, Op::kPad}) {
    add(
        op, "middle",
        [=](Bench& t) -> std::vector<ValueId> {
          Attrs attrs = along(t.dim("T"), t.dim("N"));
          attrs.start = 2;
          attrs.scalar = 0.75;
          return {t.b.make(op, {t.x("x", {"B", "T", "D"})}, attrs)};
        },
        op == Op::kSlice ? std::vector<Bindings>{{{"B", 2}, {"T", 6}, {"D", 2}, {"N", 3}},
                                                 {{"B", 2}, {"T", 2}, {"D", 1}, {"N", 0}}}
                         : std::vector<Bindings>{{{"B", 2}, {"T", 3}, {"D", 2}, {"N", 6}},
                                                 {{"B", 2}, {"T", 0}, {"D", 1}, {"N", 3}}});
  }
  add(Op::kConcat, "three",
      [](Bench& t) -> std::vector<ValueId> {
        Attrs attrs;
        attrs.dims = t.dims({"A", "C", "A"});
        attrs.to = t.dim("E");
        return {t.b.make(Op::kConcat,
                         {t.x("x", {"A", "B"}), t.x("y", {"B", "C"}), t.x("z", {"B", "A"})},
                         attrs)};
      },
      {{{"A", 1}, {"B", 3}, {"C", 2}, {"E", 4}}, {{"A", 0}, {"B", 1}, {"C", 3}, {"E", 3}}});
  add(Op::kStack, "two",
      [](Bench& t) -> std::vector<ValueId> {
        return {t.b.make(Op::kStack, {t.x("x", {"B", "T"}), t.x("y", {"T", "B"})},
                         along({}, t.dim("N")))};
      },
      {{{"B", 2}, {"T", 3}, {"N", 2}}, {{"B", 0}, {"T", 1}, {"N", 2}}});
  add(
      Op::kFlip, "middle",
      [](Bench& t) -> std::vector<ValueId> {
        return {t.b.make(Op::kFlip, {t.x("x", {"B", "T", "D"})}, along(t.dim("T")))};
      },
      kSizes);
  add(
      Op::kTranspose, "turn",
      [](Bench& t) -> std::vector<ValueId> {
        return {
            t.b.make(Op::kTranspose, {t.x("x", {"B", "T", "D"})}, over(t.dims({"D", "B", "T"})))};
      },
      kSizes);
}

void index_cases(std::vector<Case>& all) {
  auto add = [&](Op op, const std::string& name, const Build& build, std::vector<Bindings> sizes) {
    all.push_back({op, std::string(op_name(op)) + "_" + name, build, std::move(sizes)});
  };
  const std::vector<Bindings> vocabulary{{{"V", 4}, {"D", 2}, {"B", 3}, {"T", 2}},
                                         {{"V", 1}, {"D", 1}, {"B", 1}, {"T", 1}},
                                         {{"V", 3}, {"D", 2}, {"B", 0}, {"T", 2}},
                                         {{"V", 0}, {"D", 2}, {"B", 2}, {"T", 2}}};
  auto gather = [&](const std::string& name, const std::vector<std::string>& w,
                    const std::vector<std::string>& ids) {
    add(
        Op::kGather, name,
        [=](Bench& t) -> std::vector<ValueId> {
          return {t.b.make(Op::kGather, {t.x("w", w), t.ids("ids", ids, "V")}, along(t.dim("V")))};
        },
        vocabulary);
  };
  gather("embedding", {"V", "D"}, {"B", "T"});
  gather("pick", {"B", "V", "T"}, {"T", "B"});
  gather("aligned", {"B", "D", "V"}, {"T", "B"});
  gather("own_dim", {"V", "D"}, {"V"});
  add(
      Op::kScatterAdd, "rows",
      [](Bench& t) -> std::vector<ValueId> {
        Attrs attrs = along(t.dim("V"));
        attrs.dims = t.dims({"D", "V", "B"});
        ValueId ids = t.ids("ids", {"T", "B"}, "V");
        return {t.b.make(Op::kScatterAdd, {t.x("g", {"B", "T", "D"}), ids}, attrs)};
      },
      vocabulary);
  for (int at : {1, 7}) {  // 7 is outside
    add(
        Op::kSelect, fmt::format("at_{}", at),
        [=](Bench& t) -> std::vector<ValueId> {
          return {
              t.b.make(Op::kSelect, {t.x("x", {"B", "T", "D"}), t.number(at)}, along(t.dim("T")))};
        },
        kSizes);
    add(
        Op::kUnselect, fmt::format("at_{}", at),
        [=](Bench& t) -> std::vector<ValueId> {
          Attrs attrs = along(t.dim("T"));
          attrs.dims = t.dims({"D", "T", "B"});
          return {t.b.make(Op::kUnselect, {t.x("x", {"B", "D"}), t.number(at)}, attrs)};
        },
        kSizes);
  }
  struct Window {
    int64_t stride, pad, dilation;
    Bindings sizes;
  };
  const Window windows[] = {{1, 1, 1, {{"B", 2}, {"Y", 5}, {"Y2", 5}, {"K", 3}}},
                            {2, 1, 1, {{"B", 2}, {"Y", 7}, {"Y2", 4}, {"K", 3}}},
                            {1, 0, 2, {{"B", 1}, {"Y", 6}, {"Y2", 2}, {"K", 3}}},
                            {3, 0, 1, {{"B", 1}, {"Y", 7}, {"Y2", 3}, {"K", 1}}},
                            {1, 0, 1, {{"B", 0}, {"Y", 1}, {"Y2", 1}, {"K", 1}}}};
  for (const Window& w : windows) {
    const std::string name = fmt::format("{}_{}_{}", w.stride, w.pad, w.dilation);
    auto attrs = [w](Bench& t) {
      Attrs a = along(t.dim("Y"), t.dim("Y2"), t.dim("K"));
      a.stride = w.stride;
      a.pad = w.pad;
      a.dilation = w.dilation;
      a.scalar = 0.5;
      return a;
    };
    add(Op::kWindow, name,
        [=](Bench& t) -> std::vector<ValueId> {
          return {t.b.make(Op::kWindow, {t.x("x", {"B", "Y"})}, attrs(t))};
        },
        {w.sizes});
    add(Op::kUnwindow, name,
        [=](Bench& t) -> std::vector<ValueId> {
          return {t.b.make(Op::kUnwindow, {t.x("x", {"K", "Y2", "B"})}, attrs(t))};
        },
        {w.sizes});
  }
  add(Op::kTopK, "values",
      [](Bench& t) -> std::vector<ValueId> {
        auto results =
            t.b.make_all(Op::kTopK, {t.x("x", {"B", "E", "D"})}, along(t.dim("E"), t.dim("A")));
        return {results[0]};
      },
      {{{"B", 2}, {"E", 5}, {"D", 2}, {"A", 2}},
       {{"B", 1}, {"E", 3}, {"D", 1}, {"A", 3}},
       {{"B", 2}, {"E", 2}, {"D", 2}, {"A", 0}}});
}

void random_and_fused_cases(std::vector<Case>& all) {
  all.push_back({Op::kDropout, "dropout",
                 [](Bench& t) -> std::vector<ValueId> {
                   Attrs attrs;
                   attrs.site = "h.{}.dropout";
                   attrs.scalar = 0.4;
                   return {t.b.make(Op::kDropout, {t.x("x", {"B", "T"}), t.number(2)}, attrs)};
                 },
                 kSizes});
  for (int variant = 0; variant < 8; ++variant) {
    const bool causal = (variant & 1) != 0, masked = (variant & 2) != 0,
               dropped = (variant & 4) != 0;
    all.push_back(
        {Op::kAttention,
         fmt::format("attention_{}", variant),
         [=](Bench& t) -> std::vector<ValueId> {
           Attrs attrs;
           attrs.dims = t.dims({"T", "S", "K"});
           attrs.probs = t.dims({"B", "H", "R", "T", "S"});
           attrs.scalar = 0.7;
           attrs.causal = causal;
           attrs.masked = masked;
           if (dropped) {
             attrs.p = 0.3;
             attrs.site = "drop";
           } else {
             attrs.p = 0.0;
           }
           ValueId q = t.x("q", {"B", "T", "H", "R", "K"}), k = t.x("k", {"B", "S", "H", "K"});
           std::vector<ValueId> operands{q, k, t.x("v", {"B", "S", "H", "F"})};
           if (masked) operands.push_back(t.bools("mask", {"B", "S"}));
           operands.push_back(t.number(1));
           return {t.b.make_all(Op::kAttention, operands, attrs)[0]};
         },
         {{{"B", 2}, {"T", 3}, {"S", 3}, {"H", 1}, {"R", 2}, {"K", 2}, {"F", 3}},
          {{"B", 1}, {"T", 2}, {"S", 0}, {"H", 1}, {"R", 1}, {"K", 1}, {"F", 1}}}});
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  pointwise_cases(all);
  contract_cases(all);
  reduce_cases(all);
  move_cases(all);
  index_cases(all);
  random_and_fused_cases(all);
  return all;
}

// loss = sum over the results of sum(result * weights)
void check(const Case& c, const Bindings& sizes, DType dtype) {
  Bench t;
  t.dtype = dtype;
  t.bindings = sizes;
  ValueId loss = t.b.constant(0.0, DType::kF32);
  std::vector<ValueId> results = c.build(t);
  for (size_t i = 0; i < results.size(); ++i) {
    Type type = t.g.type(results[i]);
    type.dtype = DType::kF32;
    std::vector<double> weights;
    for (int k = 0; k < 512; ++k) weights.push_back(t.random() - 0.4);
    ValueId weighted = t.b.mul(t.b.cast(results[i], DType::kF32),
                               t.given(fmt::format("weights{}", i), type, weights));
    loss = t.b.add(loss, t.b.sum(weighted, type.dims));
  }
  t.output(loss, "loss");
  t.fill();
  EvalContext context;
  context.bindings = sizes;
  const Graph grad = differentiate(t.g, loss);
  for (const std::string& fault : verify(grad)) ADD_FAILURE() << fault;
  const std::vector<Tensor> got = interpret(grad, t.values, context);

  size_t output = 1;
  for (size_t i = 0; i < t.g.inputs.size(); ++i) {
    if (t.g.inputs[i].kind != InputKind::kParam) continue;
    const Tensor& gradient = got.at(output++);
    ASSERT_EQ(gradient.extents, t.values[i].extents);
    for (size_t k = 0; k < gradient.data.size(); ++k) {
      const double eps = 1e-5;
      double value[2];
      for (int side : {0, 1}) {
        std::vector<Tensor> moved = t.values;
        moved[i].data[k] += side == 1 ? eps : -eps;
        value[side] = interpret(t.g, moved, context)[0].data[0];
      }
      const double numeric = (value[1] - value[0]) / (2 * eps);
      ASSERT_NEAR(gradient.data[k], numeric, 1e-7 + 1e-6 * std::abs(numeric))
          << "element " << k << " of " << t.g.inputs[i].path;
    }
  }
  ASSERT_EQ(output, got.size());
}

TEST(Gradient, EveryRuleAgainstCentralDifferences) {
  for (const Case& c : all_cases()) {
    for (const Bindings& sizes : c.sizes) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        std::string at;
        for (const auto& [name, size] : sizes) at += fmt::format(" {}={}", name, size);
        SCOPED_TRACE(c.name + at + " " + dtype_name(dtype));
        check(c, sizes, dtype);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Gradient, EveryOpWithARuleHasACase) {
  std::set<Op> tested;
  for (const Case& c : all_cases()) tested.insert(c.op);
// Collectives need more than one device: op_comm_test.cc.
#define CAD_OP(enumerator, text, family)                                           \
  if (op_info(Op::enumerator).grad != nullptr && #family != std::string("comm")) { \
    EXPECT_EQ(tested.count(Op::enumerator), 1U) << text;                           \
  }
#include "ir/ops.def"
#undef CAD_OP
}

}  // namespace
}  // namespace cad::ir
