// tests/frontend/section_settings_test.cc -- `--set`, the dims that a train section binds, and what
// each beats.
#include "tests/frontend/section_program.h"

namespace cad::frontend {
namespace {

const std::string kProgram =
    with_train("  B: 4\n  steps: 10\n  eval { data: text(\"v.txt\"), every: 5 }");

std::string error_of(const std::string& name, const std::string& value) {
  const Program program(kProgram, {{name, value}});
  EXPECT_EQ(program.diagnostics.errors(), 1U) << program.errors();
  if (!program.diagnostics.has_errors()) return "";
  const Diagnostic& d = program.diagnostics.all()[0];
  EXPECT_EQ(d.exit_code, kExitUsage);
  return std::string(diag_name(d.id)) + " " + d.message +
         (d.helps.empty() ? "" : " | " + d.helps[0].text);
}

TEST(Settings, TrainBindsDimsAndSetBeatsIt) {
  const Program plain(kProgram);
  EXPECT_EQ(plain.lowered().bindings.at("B"), 4);
  const Program set(kProgram, {{"B", "6"}, {"T", "1_2"}});
  EXPECT_EQ(set.lowered().bindings.at("B"), 6);
  EXPECT_EQ(set.lowered().bindings.at("T"), 12);
  EXPECT_EQ(set.lowered().bindings.at("S"), 12);
}

TEST(Settings, KeysOfTheSection) {
  const Program program(kProgram,
                        {{"steps", "30"}, {"clip", "0.5"}, {"order", "sequential"}, {"seed", "7"}});
  const ir::TrainSpec spec = program.lowered();
  EXPECT_EQ(spec.steps, 30);
  EXPECT_EQ(spec.clip, 0.5);
  EXPECT_FALSE(spec.shuffled);
  EXPECT_EQ(spec.seed, 7U);
}

TEST(Settings, NestedKeysAndTextsWithoutQuotes) {
  const Program program(kProgram,
                        {{"eval.every", "2"}, {"eval.batches", "3"}, {"save.to", "runs/b"}});
  const ir::TrainSpec spec = program.lowered();
  EXPECT_EQ(spec.evals.at(0).every, 2);
  EXPECT_EQ(spec.evals.at(0).batches, 3);
  EXPECT_EQ(spec.save.to, "runs/b");
}

TEST(Settings, EpochsTakeThePlaceOfSteps) {
  const ir::TrainSpec spec = Program(kProgram, {{"epochs", "2"}}).lowered();
  EXPECT_EQ(spec.steps, 0);
  EXPECT_EQ(spec.epochs, 2.0);
}

TEST(Settings, LetsCanBeSet) {
  const ir::TrainSpec spec = Program(kProgram, {{"rate", "1 / 4"}}).lowered();
  const ir::Graph& g = spec.optimizers.at(0).schedule;
  bool found = false;
  for (const ir::Node& node : g.nodes) {
    found = found || (node.op == ir::Op::kConst && node.attrs.scalar.evaluate({}) == 0.25);
  }
  EXPECT_TRUE(found);
}

TEST(Settings, UnknownNamesGetASuggestion) {
  EXPECT_EQ(error_of("stepps", "3"),
            "E0310 `--set stepps`: no dim, `let` or setting has this name | did you mean `steps`?");
  EXPECT_EQ(error_of("eval.evry", "3"),
            "E0310 `--set eval.evry`: no dim, `let` or setting has this name | did you mean "
            "`eval.every`?");
  EXPECT_EQ(error_of("evil.every", "3"),
            "E0310 `--set evil.every`: there is no section `evil` | did you mean `eval`?");
}

TEST(Settings, ValuesThatCannotBeRead) {
  EXPECT_EQ(error_of("steps", "1e-3x"), "E0311 `--set steps`: `1e-3x` is not understood");
  EXPECT_EQ(error_of("B", "nan"), "E0311 `--set B`: `nan` is not understood");
  EXPECT_EQ(error_of("B", ""), "E0311 `--set B`: the value is empty");
  EXPECT_EQ(error_of("B", "-1"), "E0311 `--set B`: `-1` is below 0");
  EXPECT_EQ(error_of("steps", "0"), "E0304 `steps` wants a whole number, at least 1");
}

TEST(Settings, AliasesAndExpressionsNameWhatToSet) {
  EXPECT_EQ(error_of("S", "16"),
            "E0312 `--set S`: `S` cannot be set, it is `T` | set what it stands for: `--set T=16`");
  EXPECT_EQ(error_of("K", "2"),
            "E0312 `--set K`: `K` cannot be set, it is `D / H` | set `D` or `H` instead");
}

TEST(Settings, TwiceIsAnError) {
  const Program program(kProgram, {{"B", "1"}, {"B", "2"}});
  ASSERT_EQ(program.diagnostics.errors(), 1U);
  EXPECT_EQ(program.diagnostics.all()[0].id, DiagId::E0302);
}

TEST(Settings, SizesAreCheckedAgain) {
  const Program program(kProgram, {{"H", "10"}});
  ASSERT_GE(program.diagnostics.errors(), 1U);
  const Diagnostic& d = program.diagnostics.all()[0];
  EXPECT_NE(d.message.find("16 / 10"), std::string::npos) << d.message;
  bool from = false;
  for (const std::string& note : d.notes)
    from = from || note.find("--set H=10") != std::string::npos;
  EXPECT_TRUE(from);
}

TEST(Settings, TrainSectionByName) {
  const std::string two = with_model(
      "train a { data: synthetic(x: i32[B, T], y: i32[B, T]), loss: cross_entropy[V](Net(x), y), "
      "optimizer: sgd(0.1), B: 2, steps: 1 }\n"
      "train b { data: synthetic(x: i32[B, T], y: i32[B, T]), loss: cross_entropy[V](Net(x), y), "
      "optimizer: sgd(0.1), B: 3, steps: 1 }\n");
  EXPECT_EQ(Program(two).lowered().bindings.at("B"), 3);
  EXPECT_EQ(Program(two, {}, "a").lowered().bindings.at("B"), 2);
  const Program none(two, {}, "aa");
  ASSERT_EQ(none.diagnostics.errors(), 1U) << none.errors();
  EXPECT_EQ(none.diagnostics.all()[0].id, DiagId::E0308);
}

}  // namespace
}  // namespace cad::frontend
