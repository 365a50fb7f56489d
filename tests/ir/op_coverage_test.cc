// tests/ir/op_coverage_test.cc -- the registry is whole: every op of ops.def has a summary, a shape
// rule, a reference rule, and is named (`Op::kAdd`) in a test of its family beside this file.
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/ir/ir_testing.h"

namespace cad::ir {
namespace {

struct Row {
  Op op;
  const char* enumerator;
};
const Row kRows[] = {
#define CAD_OP(enumerator, text, family) {Op::enumerator, #enumerator},
#include "ir/ops.def"
#undef CAD_OP
};

TEST(Registry, EveryOpIsWhole) {
  std::set<std::string> names;
  for (const Row& row : kRows) {
    const OpInfo& info = op_info(row.op);
    EXPECT_TRUE(names.insert(op_name(row.op)).second) << op_name(row.op);
    EXPECT_GT(std::strlen(info.summary), 3U) << row.enumerator;
    EXPECT_NE(info.shape, nullptr) << row.enumerator;
    EXPECT_EQ(info.eval == nullptr, row.op == Op::kRepeat) << row.enumerator;
    EXPECT_NE(info.cost, nullptr) << row.enumerator;
    EXPECT_EQ(info.sharding == nullptr, row.op == Op::kRepeat) << row.enumerator;
  }
  EXPECT_STREQ(op_family(Op::kAdd), "pointwise");
  EXPECT_STREQ(op_name(Op::kReduceMax), "reduce_max");
}

TEST(Registry, EveryOpHasATest) {
  std::string text;
  for (const char* family : {"pointwise", "reduce", "move", "index", "comm", "other"}) {
    std::ifstream in(std::string(COLAUTO_SOURCE_DIR) + "/tests/ir/op_" + family + "_test.cc");
    ASSERT_TRUE(in.good()) << family;
    std::stringstream all;
    all << in.rdbuf();
    text += all.str();
  }
  // Made by the builder's own functions in these tests.
  const std::set<std::string> by_builder{"kBroadcast", "kCast"};
  for (const Row& row : kRows) {
    if (by_builder.count(row.enumerator) != 0) continue;
    bool found = false;
    const std::string want = std::string("Op::") + row.enumerator;
    for (size_t at = text.find(want); at != std::string::npos && !found;
         at = text.find(want, at + 1)) {
      found = std::isalnum(static_cast<unsigned char>(text[at + want.size()])) == 0;
    }
    EXPECT_TRUE(found) << row.enumerator << " is not tested";
  }
}

// Shape rules read text from files too: wrong counts, dims and ids must be errors, never crashes.
TEST(Registry, RulesSurviveAnyOperands) {
  Bench t;
  t.g.mesh = {{"a", 2}, {"b", 2}};
  std::vector<ValueId> pool{t.x("x", {"A", "B"}), t.x("s", {}), t.number(1), t.bools("c", {"A"}),
                            t.given("ids", t.type(DType::kI32, {"B"}), {})};
  for (const Row& row : kRows) {
    for (int trial = 0; trial < 400; ++trial) {
      std::vector<ValueId> operands(static_cast<size_t>(t.random() * 8));
      for (ValueId& operand : operands) operand = pool[static_cast<size_t>(t.random() * 5)];
      auto any = [&] { return DimId{static_cast<int32_t>(t.random() * 5) - 1}; };
      Attrs attrs;
      for (int n = static_cast<int>(t.random() * 4); n > 0; --n) attrs.dims.push_back(any());
      for (int n = static_cast<int>(t.random() * 4); n > 0; --n) attrs.probs.push_back(any());
      for (int n = static_cast<int>(t.random() * 3); n > 0; --n)
        attrs.groups.push_back({{any()}, {any(), any()}});
      attrs.dim = any();
      attrs.to = any();
      attrs.window = any();
      attrs.input = {static_cast<int32_t>(t.random() * 9) - 1};
      attrs.masked = t.random() < 0.5;
      attrs.axes = static_cast<uint32_t>(t.random() * 9);
      const ShapeResult result = op_info(row.op).shape(t.g, operands, attrs);
      EXPECT_TRUE(!result.errors.empty() || !result.types.empty()) << row.enumerator;
    }
  }
}

}  // namespace
}  // namespace cad::ir
