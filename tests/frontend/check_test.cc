// tests/frontend/check_test.cc -- what checking accepts and refuses, by small programs: names,
// dims, dtypes, typed bindings, conditions of generic definitions, one root error a statement.
#include "tests/frontend/frontend_testing.h"

namespace cad::frontend {
namespace {

std::string ids(const std::string& text) {
  return checked(text)->ids();
}

TEST(Check, EmptyProgram) {
  EXPECT_EQ(ids(""), "");
}

TEST(Check, OneRootErrorAndNoCascade) {
  // A8: layer 9 of 12 projects to 65; one error, at the addition, with both shapes.
  std::string text = "dim B, D = 64, E = 65\nmodel Net(x: [B, D]) -> [B, D] {\n";
  for (int i = 0; i < 12; ++i)
    text += std::string("  h = Linear[D -> ") + (i == 8 ? "E" : "D") + "](x)\n  x = x + h\n";
  text += "  return x\n}\n";
  auto p = checked(text);
  EXPECT_EQ(p->ids(), "E0203:20");
  EXPECT_NE(p->text().find("`+` cannot combine [B, D] and [B, E]"), std::string::npos) << p->text();
  EXPECT_NE(p->text().find("E = 65, from `Linear` at line 19"), std::string::npos) << p->text();
}

TEST(Check, UseOfAFailedNameIsSilent) {
  EXPECT_EQ(ids("dim B\nfn f(x: [B]) -> [B] {\n  y = x + zzz\n  z = exp(y) * 2\n  w = z @[B] y\n  "
                "return z\n}\n"),
            "E0101:3");
}

TEST(Check, BrokenStatementsSilenceTheirNames) {
  auto p = checked("dim B\nfn f(x: [B]) -> [B] {\n  y = x +\n  return y * 2\n}\n");
  EXPECT_EQ(p->diagnostics.errors(), 1U) << p->text();
}

TEST(Check, TypedBindingBroadcastsOnlyTheTopOfTheExpression) {
  const std::string head = "dim B, T = 4, S = 5\nfn f(a: [T], b: [S]) -> [T, S] {\n";
  EXPECT_EQ(ids(head + "  o: [T, S] = a * b\n  return o\n}\n"), "");
  EXPECT_EQ(ids(head + "  o: [T, S] = -(a - b) * 2 + a\n  return o\n}\n"), "");
  EXPECT_EQ(ids(head + "  o: [T, S] = exp(a * b)\n  return o\n}\n"), "E0203:3");
  EXPECT_EQ(ids(head + "  o: [T, S] = 1\n  return o\n}\n"), "");
  EXPECT_EQ(ids(head + "  return a * b\n}\n"), "E0203:3");
}

TEST(Check, WhereTakesThreeOperandsOfWhichOneHoldsAllDims) {
  EXPECT_EQ(ids("dim B, T = 4, S = 5\nfn f(k: bool[B, S], s: [B, T, S]) -> [B, T, S] { return "
                "where(k, s, -inf) }\n"),
            "");
  EXPECT_EQ(ids("dim B, T = 4, S = 5\nfn f(k: bool[B, S], s: [B, T]) -> [B, T] { return where(k, "
                "s, 0) }\n"),
            "E0203:2");
}

TEST(Check, RationalFunctionsDecideSizes) {
  EXPECT_EQ(ids("dim B, D, H, K = D / H\nfn f(x: [B, D]) -> [B, H, K] { return x[D -> (H, K)] }\n"),
            "");
  EXPECT_EQ(ids("dim B, D, H, K\nfn f(x: [B, D]) -> [B, H, K] { return x[D -> (H, K)] }\n"),
            "E0206:2");
  EXPECT_EQ(ids("dim B, T, N\nfn f(x: [B, T]) -> [B, N] { return x[T -> N] }\n"), "E0206:2");
  EXPECT_EQ(ids("dim B, T, N = T\nfn f(x: [B, T]) -> [B, N] { return x[T -> N] }\n"), "");
}

TEST(Check, ConditionsAreReportedAtTheCallTransitively) {
  const std::string text =
      "dim B, D = 10, E = 12, H = 4, K = 3\n"
      "layer Inner[D, H, K](x: [.., D]) -> [.., H, K] { return x[D -> (H, K)] }\n"
      "layer Outer[N, H, K](x: [.., N]) -> [.., H, K] { return Inner[N, H, K](x + 1) }\n"
      "fn good(x: [B, E]) -> [B] { return sum[E](x) }\n"
      "model Net(x: [B, D], y: [B, E]) -> [B, H, K] {\n"
      "  a = Outer[E, H, K](y)\n"
      "  b = Outer[D, H, K](x)\n"
      "  return a\n}\n";
  auto p = checked(text);
  EXPECT_EQ(p->ids(), "E0218:7") << p->text();
}

TEST(Check, ConstantArgumentsInConditions) {
  auto p = checked(
      "dim B, C = 3, O = 8, Y = 9, X = 9, Y2 = 5, X2 = 4\nmodel Net(x: [B, C, Y, X]) -> [B] {\n"
      "  h = Conv[C -> O, Y -> Y2, X -> X2](x, kernel: 3, stride: 2)\n  return mean[O, Y2, "
      "X2](h)\n}\n");
  EXPECT_EQ(p->ids(), "E0218:3");
  EXPECT_NE(p->text().find("dim X2 = (X + 1)//2"), std::string::npos) << p->text();
}

TEST(Check, FloorDivisionOfFreeDimsWaits) {
  const std::string text =
      "dim B, Y, Y2 = Y // 2\nfn f(x: [B, Y]) -> [B, Y2] { return max_pool[Y -> Y2](x, 2) }\n";
  EXPECT_EQ(ids(text), "");
  EXPECT_EQ(
      ids("dim B, Y, Y2 = Y // 3\nfn f(x: [B, Y]) -> [B, Y2] { return max_pool[Y -> Y2](x, 2) }\n"),
      "");
  EXPECT_EQ(ids("dim B, Y = 8, Y2 = Y // 3\nfn f(x: [B, Y]) -> [B, Y2] { return max_pool[Y -> "
                "Y2](x, 2) }\n"),
            "E0206:2");
}

TEST(Check, ValueMayBeNamedLikeAnOp) {
  EXPECT_EQ(ids("dim B, D\nfn f(x: [B, D]) -> [B] {\n  sum = sum[D](x)\n  max = max[D](x)\n  "
                "return sum + max\n}\n"),
            "");
}

TEST(Check, FileDefinitionHidesTheLibrary) {
  EXPECT_EQ(ids("dim B, D\nlayer Linear(x: [B, D]) -> [B, D] { return x }\nmodel M(x: [B, D]) -> "
                "[B, D] { return Linear(x) }\n"),
            "");
}

TEST(Check, ArgumentOrderOfDimsHasNoMeaning) {
  EXPECT_EQ(ids("dim B, T, D\nfn g(x: [T, B, D]) -> [D, B, T] { return x }\nfn f(x: [B, T, D]) -> "
                "[B, T, D] { return g(x) }\n"),
            "");
}

TEST(Check, CallsMeetSignaturesNotBodies) {
  // The body is wrong once, however often it is called.
  EXPECT_EQ(ids("dim B, D\nfn g(x: [B, D]) -> [B] { return x }\nfn f(x: [B, D]) -> [B] { return "
                "g(x) + g(x) }\n"),
            "E0207:2");
}

TEST(Check, MutualRecursion) {
  EXPECT_EQ(
      ids("dim B\nfn f(x: [B]) -> [B] { return g(x) }\nfn g(x: [B]) -> [B] { return f(x) }\n"),
      "E0105:2");
}

TEST(Check, SetBeatsTheDeclaration) {
  CheckOptions options;
  options.settings = {{"H", "10"}};
  auto p = checked(
      "dim B, D = 768, H = 12, K = D / H\nfn f(x: [B, D]) -> [B, H, K] { return x[D -> (H, K)] }\n",
      {}, options);
  EXPECT_EQ(p->ids(), "E0211:1");
  EXPECT_NE(p->text().find("comes from `--set H=10`"), std::string::npos) << p->text();
}

TEST(Check, ImportsUnifyDimsByNameAndTheImporterWins) {
  const std::string blocks =
      "dim B, D = 16, F = 2 * D\nlayer Up(x: [B, D]) -> [B, F] { return Linear[D -> F](x) }\n";
  auto p = checked(
      "import \"blocks.cad\" as blocks\ndim B, D = 4, F = 2 * D\nmodel Net(x: [B, D]) -> [B, F] { "
      "return blocks.Up(x) }\n",
      {{"blocks.cad", blocks}});
  const ir::Graph g = lowered(*p);
  EXPECT_EQ(p->module->bindings.at("F"), 8);
  EXPECT_EQ(input_paths(g, ir::InputKind::kParam),
            (std::vector<std::string>{"up.linear.W", "up.linear.b"}));
  EXPECT_EQ(checked("import \"blocks.cad\" as blocks\ndim B, D, F\nmodel Net(x: [B, D]) -> [B, F] "
                    "{ return Up(x) }\n",
                    {{"blocks.cad", blocks}})
                ->ids(),
            "E0102:3");
}

TEST(Check, ImportsInACircle) {
  EXPECT_EQ(checked("import \"a.cad\" as a\n", {{"a.cad", "import \"test.cad\" as t\n"}})->ids(),
            "E0106:1");
}

TEST(Check, ACircleOfImportsIsNamed) {
  auto p = checked("import \"a.cad\" as a\n",
                   {{"a.cad", "import \"b.cad\" as b\n"}, {"b.cad", "import \"a.cad\" as a\n"}});
  EXPECT_EQ(p->diagnostics.errors(), 1U) << p->text();
  EXPECT_NE(p->text().find("the circle is `a.cad` -> `b.cad` -> `a.cad`"), std::string::npos)
      << p->text();
  EXPECT_EQ(checked("import \"test.cad\" as t\n")->text().find("the circle is"), std::string::npos);
}

TEST(Check, ImportsOfImports) {
  std::map<std::string, std::string> files;
  for (int i = 0; i < 2000; ++i) {
    files["f" + std::to_string(i) + ".cad"] =
        "import \"f" + std::to_string(i + 1) + ".cad\" as f\n";
  }
  EXPECT_EQ(checked("import \"f0.cad\" as f\n", files)->ids(), "E0106:1");
}

// Every declaration stands on the next one.
std::string chain_of(const std::string& keyword, int length, const std::string& rest,
                     const std::string& last) {
  std::string text;
  for (int i = 0; i < length; ++i) {
    text += keyword + " a" + std::to_string(i) + " = a" + std::to_string(i + 1) + rest + "\n";
  }
  return text + keyword + " a" + std::to_string(length) + last + "\n";
}

TEST(Check, LongChainsOfDeclarations) {
  constexpr int kLong = 20'000;
  const std::string top = "fn f(x: [a0]) -> [a0] { return x }\n";
  auto dims = checked(chain_of("dim", kLong, " + 1", " = 7") + top);
  EXPECT_FALSE(dims->diagnostics.has_errors()) << dims->text();
  EXPECT_EQ(dims->module->bindings.at("a0"), kLong + 7);
  EXPECT_FALSE(checked(chain_of("dim", kLong, " + 1", "") + top)->diagnostics.has_errors());
  auto lets = checked(chain_of("let", kLong, " + 0.5", " = 1"));
  EXPECT_FALSE(lets->diagnostics.has_errors()) << lets->text();
  EXPECT_EQ(lets->module->main().lets.at("a0").scalar.number(), 1 + kLong / 2);
  // A circle is one error, and so is an expression that grows without end.
  EXPECT_EQ(checked(chain_of("dim", kLong, " + 1", " = a0"))->diagnostics.errors(), 1U);
  auto grown = checked(chain_of("dim", kLong, " // 2 + 1", ""));
  EXPECT_EQ(grown->diagnostics.errors(), 1U) << grown->text();
  EXPECT_EQ(grown->ids().substr(0, 5), "E0005");
  auto roots = checked("dim B\n" + chain_of("let", kLong, " ^ 0.5", " = B"));
  EXPECT_EQ(roots->diagnostics.errors(), 1U) << roots->text();
  EXPECT_EQ(roots->ids().substr(0, 5), "E0005");
}

// fns that call each other, with dims of their own: as deep as lowering can go, else one error.
TEST(Check, DeepCalls) {
  const auto calls = [](int depth, const std::string& before, const std::string& after) {
    std::string text = "dim B, D = 4\n";
    for (int i = 0; i < depth; ++i) {
      text += "fn f" + std::to_string(i) + "[E](x: [B, E]) -> [B, E] { return " + before + "f" +
              std::to_string(i + 1) + "[E](x)" + after + " }\n";
    }
    return text + "fn f" + std::to_string(depth) + "[E](x: [B, E]) -> [B, E] { return x }\n" +
           "model M(x: [B, D]) -> [B, D] { return f0[D](x) }\n";
  };
  auto fine = checked(calls(150, "", ""));
  ASSERT_FALSE(fine->diagnostics.has_errors()) << fine->text();
  EXPECT_TRUE(lower_model(*fine->module, false, ir::DType::kF32).ok());
  for (const int depth : {1000, 10'000}) {
    auto deep = checked(calls(depth, "", ""));
    EXPECT_EQ(deep->diagnostics.errors(), 1U) << deep->text();
    EXPECT_EQ(deep->ids().substr(0, 5), "E0005") << deep->text();
  }
  // Deep expressions in deep calls: each is fine, both together are too deep to expand.
  std::string open, close;
  for (int i = 0; i < 300; ++i) open += "exp(", close += ")";
  auto both = checked(calls(3, open, close));
  ASSERT_FALSE(both->diagnostics.has_errors()) << both->text();
  EXPECT_TRUE(lower_model(*both->module, false, ir::DType::kF32).ok());
  auto product = checked(calls(30, open, close));
  ASSERT_FALSE(product->diagnostics.has_errors()) << product->text();
  const Result<ir::Graph> lowered = lower_model(*product->module, false, ir::DType::kF32);
  ASSERT_FALSE(lowered.ok());
  EXPECT_EQ(lowered.error().id, DiagId::E0005);
}

TEST(Check, BindingsAreRecordedWithTheirTypes) {
  auto p = checked(
      "dim B, T = 8, D = 4\nfn f(x: [B, T, D]) -> [B, T] {\n  y = mean[D](x)\n  return y\n}\n");
  const Definition* f = p->module->main().definitions.at("f");
  ASSERT_EQ(f->bindings.size(), 2U);
  EXPECT_EQ(f->bindings[1].name, "y");
  EXPECT_EQ(f->bindings[1].type, "[B, T]");
  EXPECT_EQ(f->bindings[1].sizes, "B, T = 8");
}

TEST(Check, LintsDoNotFail) {
  auto p = checked("dim B, D\nmodel M(x: [B, D]) -> [B, D] { return x + x |> relu }\n");
  EXPECT_EQ(p->ids(), "L0001:2");
  EXPECT_FALSE(p->diagnostics.has_errors());
}

// A1 and A6: long chains and the deepest nesting that the parser takes.
TEST(Check, LongChainsAndDeepNesting) {
  std::string chain = "x";
  for (int i = 0; i < 10000; ++i) chain += " + x";
  EXPECT_EQ(ids("dim B\nfn f(x: [B]) -> [B] { return " + chain + " }\n"), "");
  std::string pipes = "x";
  for (int i = 0; i < 5000; ++i) pipes += " |> exp";
  EXPECT_EQ(ids("dim B\nfn f(x: [B]) -> [B] { return " + pipes + " }\n"), "");
  std::string deep = "x";
  for (int i = 0; i < 900; ++i) deep = "exp(" + deep + ")";
  EXPECT_EQ(ids("dim B\nfn f(x: [B]) -> [B] { return " + deep + " }\n"), "");
}

}  // namespace
}  // namespace cad::frontend
