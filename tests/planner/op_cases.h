// tests/planner/op_cases.h -- a small graph around every op, for tests that run sharding rules.
// The graph's last node is the op; its operands are inputs (or constants) with generated values.
#pragma once

#include "tests/ir/ir_testing.h"

namespace cad::planner {

struct OpCase {
  std::string name;
  std::function<std::vector<ir::ValueId>(ir::Bench& t)> build;  // the op's results
  std::vector<ir::Bindings> sizes;
};

class OpCases {
 public:
  using Names = std::vector<std::string>;
  using Values = std::vector<ir::ValueId>;
  using Bench = ir::Bench;
  using Op = ir::Op;

  std::vector<OpCase> all;
  OpCases() {
    pointwise();
    reduce();
    move();
    index();
    other();
  }

 private:
  const std::vector<ir::Bindings> kSizes{{{"B", 4}, {"T", 6}, {"D", 2}},
                                         {{"B", 5}, {"T", 3}, {"D", 7}},
                                         {{"B", 1}, {"T", 4}, {"D", 3}}};

  void add(Op op, const std::string& name, std::function<Values(Bench&)> build,
           std::vector<ir::Bindings> sizes) {
    all.push_back({std::string(op_name(op)) + "_" + name, std::move(build), std::move(sizes)});
  }

  void pointwise() {
    for (Op op : {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kFloorDiv, Op::kMod, Op::kPow,
                  Op::kMin, Op::kMax, Op::kEq, Op::kNe, Op::kLt, Op::kLe, Op::kGt, Op::kGe}) {
      const auto two = [&](const std::string& name, const Names& a, const Names& b,
                           const Names& result) {
        add(
            op, name,
            [=](Bench& t) -> Values {
              return t.b.make_all(op, {t.x("a", a, 0.5, 3), t.x("b", b, 0.5, 3)},
                                  over(t.dims(result)));
            },
            kSizes);
      };
      two("same", {"B", "T"}, {"T", "B"}, {});
      two("bias", {"B", "T", "D"}, {"D"}, {});
      two("outer", {"T"}, {"B"}, {"B", "T"});
      two("scalar", {"T", "B"}, {}, {});
    }
    for (Op op : {Op::kNeg, Op::kAbs, Op::kExp, Op::kLog, Op::kSqrt, Op::kRsqrt, Op::kSin, Op::kCos,
                  Op::kTanh, Op::kErf, Op::kSigmoid, Op::kSoftplus, Op::kStop}) {
      add(
          op, "one",
          [=](Bench& t) -> Values {
            return t.b.make_all(op, {t.x("x", {"B", "T"}, 0.5, 3)});
          },
          kSizes);
    }
    for (Op op : {Op::kAnd, Op::kOr}) {
      add(
          op, "two",
          [=](Bench& t) -> Values {
            return t.b.make_all(op, {t.bools("a", {"B", "T"}), t.bools("b", {"T"})});
          },
          kSizes);
    }
    add(
        Op::kNot, "one",
        [](Bench& t) -> Values {
          return t.b.make_all(Op::kNot, {t.bools("a", {"B", "T"})});
        },
        kSizes);
    add(
        Op::kWhere, "three",
        [](Bench& t) -> Values {
          ir::ValueId c = t.bools("c", {"T"});
          return t.b.make_all(Op::kWhere, {c, t.x("a", {"B", "T"}), t.x("b", {})});
        },
        kSizes);
    for (ir::DType to : {ir::DType::kBF16, ir::DType::kI32, ir::DType::kBool}) {
      add(
          Op::kCast, dtype_name(to),
          [=](Bench& t) -> Values {
            ir::Attrs attrs;
            attrs.dtype = to;
            return t.b.make_all(Op::kCast, {t.x("x", {"B", "T"})}, attrs);
          },
          kSizes);
    }
    add(
        Op::kBroadcast, "more",
        [](Bench& t) -> Values {
          return t.b.make_all(Op::kBroadcast, {t.x("x", {"T"})}, over(t.dims({"B", "T", "D"})));
        },
        kSizes);
  }

  void reduce() {
    for (Op op :
         {Op::kSum, Op::kMean, Op::kReduceMax, Op::kReduceMin, Op::kLogSumExp, Op::kSoftmax}) {
      for (const Names& dims : {Names{"T"}, Names{"D", "B"}, Names{}}) {
        add(
            op, std::to_string(dims.size()),
            [=](Bench& t) -> Values {
              return t.b.make_all(op, {t.x("x", {"B", "T", "D"})}, over(t.dims(dims)));
            },
            kSizes);
      }
    }
    add(
        Op::kSum, "bool",
        [](Bench& t) -> Values {
          return t.b.make_all(Op::kSum, {t.bools("x", {"B", "T"})}, over(t.dims({"T"})));
        },
        kSizes);
    add(
        Op::kMean, "bool",
        [](Bench& t) -> Values {
          return t.b.make_all(Op::kMean, {t.bools("x", {"B", "T"})}, over(t.dims({"B"})));
        },
        kSizes);
    const auto weighted = [&](const std::string& name, const Names& x, const Names& w,
                              const Names& dims) {
      add(
          Op::kMean, "weighted_" + name,
          [=](Bench& t) -> Values {
            return t.b.make_all(Op::kMean, {t.x("x", x), t.bools("w", w)}, over(t.dims(dims)));
          },
          kSizes);
    };
    weighted("same", {"B", "T"}, {"T", "B"}, {"B", "T"});
    weighted("small", {"B", "T", "D"}, {"T"}, {"T", "B"});
    weighted("large", {"T"}, {"B", "T"}, {"B"});
    add(
        Op::kArgmax, "one",
        [](Bench& t) -> Values {
          return t.b.make_all(Op::kArgmax, {t.x("x", {"B", "T", "D"})}, over(t.dims({"T"})));
        },
        kSizes);
    for (bool reverse : {false, true}) {
      add(
          Op::kCumSum, reverse ? "reverse" : "forward",
          [=](Bench& t) -> Values {
            ir::Attrs attrs = along(t.dim("T"));
            attrs.reverse = reverse;
            return t.b.make_all(Op::kCumSum, {t.x("x", {"B", "T", "D"})}, attrs);
          },
          kSizes);
    }
    add(
        Op::kStepTotal, "scalar",
        [](Bench& t) -> Values { return t.b.make_all(Op::kStepTotal, {t.x("x", {})}); }, kSizes);
  }

  void move() {
    using Items = std::vector<std::pair<Names, Names>>;
    const auto grouped = [&](Op op, const std::string& name, const Names& x, const Items& items,
                             std::vector<ir::Bindings> sizes) {
      add(
          op, name,
          [=](Bench& t) -> Values {
            ir::Attrs attrs;
            for (const auto& [from, to] : items) attrs.groups.push_back({t.dims(from), t.dims(to)});
            return t.b.make_all(op, {t.x("x", x)}, attrs);
          },
          std::move(sizes));
    };
    grouped(Op::kRename, "one", {"B", "T"}, {{{"T"}, {"S"}}}, {{{"B", 4}, {"T", 5}, {"S", 5}}});
    grouped(Op::kRename, "swap", {"S", "B", "T"}, {{{"T"}, {"S"}}, {{"S"}, {"T"}}},
            {{{"B", 2}, {"T", 5}, {"S", 5}}});
    const std::vector<ir::Bindings> split{{{"B", 3}, {"D", 8}, {"H", 4}, {"K", 2}, {"U", 1}},
                                          {{"B", 2}, {"D", 12}, {"H", 6}, {"K", 2}, {"U", 1}},
                                          {{"B", 2}, {"D", 10}, {"H", 5}, {"K", 2}, {"U", 1}}};
    grouped(Op::kReshape, "split", {"B", "D"}, {{{"D"}, {"H", "K"}}}, split);
    grouped(Op::kReshape, "merge", {"H", "B", "K"}, {{{"H", "K"}, {"D"}}}, split);
    grouped(Op::kReshape, "merge_turned", {"H", "B", "K"}, {{{"K", "H"}, {"D"}}}, split);
    grouped(Op::kReshape, "unit_new", {"B", "D"}, {{{}, {"U"}}}, split);
    grouped(Op::kReshape, "unit_gone", {"U", "B"}, {{{"U"}, {}}}, split);
    for (double fill : {0.0, 0.75}) {
      for (Op op : {Op::kSlice, Op::kPad}) {
        add(
            op, fill == 0 ? "zero" : "filled",
            [=](Bench& t) -> Values {
              ir::Attrs attrs = along(t.dim("T"), t.dim("N"));
              attrs.start = 1;
              attrs.scalar = fill;
              return t.b.make_all(op, {t.x("x", {"B", "T", "D"})}, attrs);
            },
            op == Op::kSlice ? std::vector<ir::Bindings>{{{"B", 4}, {"T", 6}, {"D", 5}, {"N", 4}}}
                             : std::vector<ir::Bindings>{{{"B", 4}, {"T", 4}, {"D", 5}, {"N", 7}}});
      }
    }
    add(Op::kConcat, "three",
        [](Bench& t) -> Values {
          ir::Attrs attrs;
          attrs.dims = t.dims({"A", "C", "A"});
          attrs.to = t.dim("E");
          return t.b.make_all(Op::kConcat,
                              {t.x("x", {"A", "B"}), t.x("y", {"B", "C"}), t.x("z", {"B", "A"})},
                              attrs);
        },
        {{{"A", 4}, {"B", 5}, {"C", 2}, {"E", 10}}});
    add(Op::kStack, "two",
        [](Bench& t) -> Values {
          return t.b.make_all(Op::kStack, {t.x("x", {"B", "T"}), t.x("y", {"T", "B"})},
                              along({}, t.dim("N")));
        },
        {{{"B", 4}, {"T", 3}, {"N", 2}}});
    add(
        Op::kFlip, "one",
        [](Bench& t) -> Values {
          return t.b.make_all(Op::kFlip, {t.x("x", {"B", "T", "D"})}, along(t.dim("T")));
        },
        kSizes);
    add(
        Op::kTranspose, "turn",
        [](Bench& t) -> Values {
          return t.b.make_all(Op::kTranspose, {t.x("x", {"B", "T", "D"})},
                              over(t.dims({"D", "B", "T"})));
        },
        kSizes);
  }

  void index() {
    const std::vector<ir::Bindings> sizes{{{"V", 6}, {"D", 4}, {"B", 3}, {"T", 5}},
                                          {{"V", 5}, {"D", 2}, {"B", 4}, {"T", 2}}};
    const auto gather = [&](const std::string& name, const Names& w, const Names& ids) {
      add(
          Op::kGather, name,
          [=](Bench& t) -> Values {
            return t.b.make_all(Op::kGather, {t.x("w", w), t.ids("ids", ids, "V")},
                                along(t.dim("V")));
          },
          sizes);
    };
    gather("embedding", {"V", "D"}, {"B", "T"});
    gather("pick", {"B", "V", "T"}, {"T", "B"});
    gather("aligned", {"B", "D", "V"}, {"T", "B"});
    gather("own_dim", {"V", "D"}, {"V"});
    add(
        Op::kGather, "integers",
        [](Bench& t) -> Values {
          ir::ValueId w = t.ids("w", {"V", "D"}, "D");
          return t.b.make_all(Op::kGather, {w, t.ids("ids", {"B"}, "V")}, along(t.dim("V")));
        },
        sizes);
    const auto scatter = [&](const std::string& name, const Names& g, const Names& ids,
                             const Names& result) {
      add(
          Op::kScatterAdd, name,
          [=](Bench& t) -> Values {
            ir::Attrs attrs = along(t.dim("V"));
            attrs.dims = t.dims(result);
            return t.b.make_all(Op::kScatterAdd, {t.x("g", g), t.ids("ids", ids, "V")}, attrs);
          },
          sizes);
    };
    scatter("rows", {"B", "T", "D"}, {"T", "B"}, {"D", "V"});
    scatter("aligned", {"B", "T", "D"}, {"T", "B"}, {"D", "V", "B"});
    scatter("own_dim", {"V", "D"}, {"V"}, {"V", "D"});
    for (int at : {1, 3, 9}) {
      add(
          Op::kSelect, std::to_string(at),
          [=](Bench& t) -> Values {
            return t.b.make_all(Op::kSelect, {t.x("x", {"B", "T", "D"}), t.number(at)},
                                along(t.dim("T")));
          },
          kSizes);
      add(
          Op::kUnselect, std::to_string(at),
          [=](Bench& t) -> Values {
            ir::Attrs attrs = along(t.dim("T"));
            attrs.dims = t.dims({"D", "T", "B"});
            return t.b.make_all(Op::kUnselect, {t.x("x", {"B", "D"}), t.number(at)}, attrs);
          },
          kSizes);
    }
    for (double fill : {0.0, 0.5}) {
      const auto attrs = [fill](Bench& t) {
        ir::Attrs a = along(t.dim("Y"), t.dim("Y2"), t.dim("K"));
        a.stride = 2;
        a.pad = 1;
        a.scalar = fill;
        return a;
      };
      const std::vector<ir::Bindings> windows{{{"B", 5}, {"Y", 7}, {"Y2", 4}, {"K", 3}}};
      add(
          Op::kWindow, fill == 0 ? "zero" : "filled",
          [=](Bench& t) -> Values {
            return t.b.make_all(Op::kWindow, {t.x("x", {"B", "Y"})}, attrs(t));
          },
          windows);
      add(
          Op::kUnwindow, fill == 0 ? "zero" : "filled",
          [=](Bench& t) -> Values {
            return t.b.make_all(Op::kUnwindow, {t.x("x", {"K", "Y2", "B"})}, attrs(t));
          },
          windows);
    }
    add(Op::kTopK, "two",
        [](Bench& t) -> Values {
          return t.b.make_all(Op::kTopK, {t.x("x", {"B", "E", "D"})},
                              along(t.dim("E"), t.dim("A")));
        },
        {{{"B", 4}, {"E", 5}, {"D", 3}, {"A", 2}}});
    add(Op::kSlots, "two",
        [](Bench& t) -> Values {
          return t.b.make_all(Op::kSlots, {t.ids("expert", {"B", "T", "A"}, "E")},
                              along(t.dim("E"), t.dim("M"), t.dim("A")));
        },
        {{{"B", 4}, {"T", 3}, {"E", 4}, {"A", 2}, {"M", 3}}});
  }

  void other() {
    add(
        Op::kInput, "param",
        [](Bench& t) -> Values {
          return {t.x("x", {"B", "T"})};
        },
        kSizes);
    add(
        Op::kConst, "number", [](Bench& t) -> Values { return {t.number(7)}; }, kSizes);
    add(
        Op::kIota, "one",
        [](Bench& t) -> Values { return t.b.make_all(Op::kIota, {}, along(t.dim("T"))); }, kSizes);
    const auto contract = [&](const std::string& name, const Names& a, const Names& b,
                              const Names& summed) {
      add(Op::kContract, name,
          [=](Bench& t) -> Values {
            return t.b.make_all(Op::kContract, {t.x("a", a), t.x("b", b)}, over(t.dims(summed)));
          },
          {{{"B", 4}, {"T", 3}, {"D", 5}, {"F", 6}, {"H", 2}}});
    };
    contract("dense", {"B", "T", "D"}, {"D", "F"}, {"D"});
    contract("batched", {"B", "H", "T", "D"}, {"B", "F", "H", "D"}, {"D"});
    contract("two_dims", {"B", "H", "D"}, {"H", "D", "F"}, {"H", "D"});
    contract("outer", {"B"}, {"T"}, {});
    const auto keyed = [](const std::string& site) {
      ir::Attrs attrs;
      attrs.site = site;
      return attrs;
    };
    add(
        Op::kDropout, "half",
        [=](Bench& t) -> Values {
          ir::Attrs attrs = keyed("h.{}.dropout");
          attrs.scalar = 0.5;
          return t.b.make_all(Op::kDropout, {t.x("x", {"B", "T"}), t.number(2)}, attrs);
        },
        kSizes);
    for (Op op : {Op::kNormal, Op::kBernoulli, Op::kUniform}) {
      add(
          op, "drawn",
          [=](Bench& t) -> Values {
            ir::Attrs attrs = keyed("draw");
            attrs.dims = t.dims({"B", "T", "D"});
            Values operands{t.b.constant(0.25, ir::DType::kF32)};
            if (op == Op::kUniform) operands.push_back(t.b.constant(2.0, ir::DType::kF32));
            operands.push_back(t.number(3));
            return t.b.make_all(op, operands, attrs);
          },
          kSizes);
    }
    for (int variant = 0; variant < 8; ++variant) {
      for (bool gradient : {false, true}) {
        add(gradient ? Op::kAttentionGrad : Op::kAttention, std::to_string(variant),
            [=](Bench& t) { return attention(t, variant, gradient); },
            {{{"B", 2}, {"T", 4}, {"S", 4}, {"H", 3}, {"R", 2}, {"K", 2}, {"F", 3}}});
      }
    }
  }

  static Values attention(Bench& t, int variant, bool gradient) {
    ir::Attrs attrs;
    attrs.dims = t.dims({"T", "S", "K"});
    attrs.probs = t.dims({"B", "H", "R", "T", "S"});
    attrs.scalar = 0.7;
    attrs.causal = (variant & 1) != 0;
    attrs.masked = (variant & 2) != 0;
    attrs.p = (variant & 4) != 0 ? 0.3 : 0.0;
    attrs.site = "drop";
    Values operands{t.x("q", {"B", "T", "H", "R", "K"}), t.x("k", {"B", "S", "H", "K"}),
                    t.x("v", {"B", "S", "H", "F"})};
    Values rest;
    if (attrs.masked) rest.push_back(t.bools("mask", {"B", "T", "S"}));
    rest.push_back(t.number(1));
    Values forward = operands;
    forward.insert(forward.end(), rest.begin(), rest.end());
    const Values made = t.b.make_all(Op::kAttention, forward, attrs);
    if (!gradient) return made;
    operands.insert(operands.end(), made.begin(), made.end());
    operands.push_back(t.x("g", {"B", "T", "H", "R", "F"}));
    operands.insert(operands.end(), rest.begin(), rest.end());
    return t.b.make_all(Op::kAttentionGrad, operands, attrs);
  }
};

}  // namespace cad::planner
