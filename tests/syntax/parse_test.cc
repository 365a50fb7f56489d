// tests/syntax/parse_test.cc -- trees, places, encodings, depth and recovery of the parser.
#include <chrono>

#include "tests/syntax/syntax_testing.h"

namespace cad::frontend {
namespace {

std::string expression(const std::string& text) {
  const Parsed parsed = parse_text("let x = " + text + "\n");
  EXPECT_FALSE(parsed.diagnostics.has_errors()) << text << "\n" << parsed.errors();
  return print_expr(parsed.ast, parsed.ast.items.at(0).value);
}

std::string repeat(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

// ------------------------------------------------------------------------------------- trees

TEST(Parse, Precedence) {
  EXPECT_EQ(expression("-a ^ b ^ c"), "(neg (^ a (^ b c)))");
  EXPECT_EQ(expression("a - b - c"), "(- (- a b) c)");
  EXPECT_EQ(expression("a + b * c"), "(+ a (* b c))");
  EXPECT_EQ(expression("a @[D] b * c @[K, H] d"), "(@[K, H] (* (@[D] a b) c) d)");
  EXPECT_EQ(expression("a // b % c / d"), "(/ (% (// a b) c) d)");
  EXPECT_EQ(expression("not a > b and c or d"), "(or (and (not (> a b)) c) d)");
  EXPECT_EQ(expression("a or b |> f |> g(1)"), "(|> (|> (or a b) f) (call g 1))");
  EXPECT_EQ(expression("-x[D].y(z)"), "(neg (call (. (dims x [D]) y) z))");
  EXPECT_EQ(expression("2 ^ -x"), "(^ 2 (neg x))");
  EXPECT_EQ(expression("a * -b + c"), "(+ (* a (neg b)) c)");
}

TEST(Parse, BracketItems) {
  EXPECT_EQ(expression("x[T -> S, S -> T]"), "(dims x [T -> S, S -> T])");
  EXPECT_EQ(expression("x[D -> (H, K)][(H, K) -> D]"),
            "(dims (dims x [D -> (H, K)]) [(H, K) -> D])");
  EXPECT_EQ(expression("Linear[F -> ()](x)"), "(call (dims Linear [F -> ()]) x)");
  EXPECT_EQ(expression("w[V = ids, T = 0 : N -> N]"), "(dims w [V = ids, T = 0 : N -> N])");
  EXPECT_EQ(expression("mean[..](x, weight: w)"), "(call (dims mean [..]) x weight: w)");
  EXPECT_EQ(expression("a @[..] b"), "(@[..] a b)");
}

TEST(Parse, AtomsAndTuples) {
  EXPECT_EQ(expression("(a)"), "(paren a)");
  EXPECT_EQ(expression("(a,)"), "(tuple a)");
  EXPECT_EQ(expression("(a, b: 2)"), "(tuple a b: 2)");
  EXPECT_EQ(expression("()"), "(tuple)");
  EXPECT_EQ(expression("\"a\\n\\\"\\\\\""), "\"a\\n\\\"\\\\\"");
  EXPECT_EQ(expression("f(80GiB, 300 GB/s, 6e2 us, 2.0TB/s)"),
            "(call f <80 GiB> <300 GB/s> <6e2 us> <2.0 TB/s>)");
  EXPECT_EQ(expression("layer + model + dim"), "(+ (+ layer model) dim)");
}

TEST(Parse, Numbers) {
  const Parsed parsed =
      parse_text("let a = 19_000\nlet b = 6e-4\nlet c = 99999999999999999999\nlet d = 2.50\n");
  const auto& items = parsed.ast.items;
  EXPECT_TRUE(parsed.ast.expr(items[0].value).integer);
  EXPECT_EQ(parsed.ast.expr(items[0].value).whole, 19000);
  EXPECT_EQ(parsed.ast.expr(items[0].value).text, "19_000");
  EXPECT_FALSE(parsed.ast.expr(items[1].value).integer);
  EXPECT_DOUBLE_EQ(parsed.ast.expr(items[1].value).number, 6e-4);
  EXPECT_FALSE(parsed.ast.expr(items[2].value).integer);
  EXPECT_DOUBLE_EQ(parsed.ast.expr(items[2].value).number, 1e20);
  EXPECT_FALSE(parsed.ast.expr(items[3].value).integer);
}

TEST(Parse, StatementsAndItems) {
  const Parsed parsed = parse_text(
      "import \"blocks.cad\" as blocks\n"
      "dim B, T = 8, K = D // H\n"
      "layer Conv[C -> O, Y](x: [.., C, Y], kernel: int = 3) -> ([.., O], f32[]) {\n"
      "  dim KY = kernel\n"
      "  param w, v : [O, C] = kaiming[C]   @shard(O: tp) @keep\n"
      "  state n : f32[] = zeros\n"
      "  use ln = LayerNorm[C]\n"
      "  m: bool[C] = iota[C] >= 2\n"
      "  repeat 4 as layer @checkpoint { x = ln(x) }\n"
      "  y, aux = MoE(x)\n"
      "  return y, aux\n"
      "}\n"
      "mesh m { axes: (data: 2, model: 4), dim: 3\n  shard { B: dp } }\n");
  EXPECT_FALSE(parsed.diagnostics.has_errors()) << parsed.errors();
  EXPECT_EQ(parsed.printed(),
            "(file\n"
            "  (import \"blocks.cad\" as blocks)\n"
            "  (dim (B) (T 8) (K (// D H)))\n"
            "  (layer Conv [C -> O, Y] (x: [.., C, Y]) (kernel: int = 3) -> ([.., O], f32[])\n"
            "    (dim (KY kernel))\n"
            "    (param w v : [O, C] = (dims kaiming [C]) @shard(O: tp) @keep)\n"
            "    (state n : f32[] = zeros)\n"
            "    (use ln = (dims LayerNorm [C]))\n"
            "    (bind m : bool[C] = (>= (dims iota [C]) 2))\n"
            "    (repeat 4 as layer @checkpoint\n"
            "      (bind x = (call ln x)))\n"
            "    (bind y aux = (call MoE x))\n"
            "    (return y aux))\n"
            "  (mesh m\n"
            "    (axes: (tuple data: 2 model: 4))\n"
            "    (dim: 3)\n"
            "    (shard\n"
            "      (B: dp))))\n");
}

// ------------------------------------------------------------------------------------ newlines

TEST(Parse, NewlinesThatDoNotEndAStatement) {
  EXPECT_EQ(expression("f(\n a,\n b\n)"), "(call f a b)");
  EXPECT_EQ(expression("a +\n b"), "(+ a b)");
  EXPECT_EQ(expression("a\n\n  # why\n  |> f"), "(|> a f)");
  EXPECT_EQ(expression("\n a"), "a");
  EXPECT_EQ(expression("not\n a and\n\n # c\n b"), "(and (not a) b)");
  EXPECT_EQ(expression("x[T ->\n S]"), "(dims x [T -> S])");
  const Parsed none = parse_text("let a = 1");
  EXPECT_FALSE(none.diagnostics.has_errors());
  const Parsed two = parse_text("let a = 1\n- 2\n");
  EXPECT_EQ(two.diagnostics.errors(), 1U);
}

TEST(Parse, KeywordsOnlyWhereTheyMayStand) {
  const Parsed parsed = parse_text(
      "fn f(dim: [B], let: f32) -> [B] {\n  return fn(dim) + model\n}\nmesh m { model: 4\n layer: "
      "3 }\n");
  EXPECT_FALSE(parsed.diagnostics.has_errors()) << parsed.errors();
}

// ---------------------------------------------------------------------- encodings and positions

TEST(Positions, SameForEveryLineEndAndTabs) {
  const std::string lf =
      "dim B\n# c\n\nfn f(x: [B]) -> [B] {\n\ty = x\n\n\tz = y + * 2\n\treturn z\n}\n";
  std::string crlf;
  std::string cr;
  std::string mixed;
  int line = 0;
  for (const char c : lf) {
    crlf += c == '\n' ? "\r\n" : std::string(1, c);
    cr += c == '\n' ? '\r' : c;
    mixed += c != '\n' ? std::string(1, c) : line % 3 == 0 ? "\n" : line % 3 == 1 ? "\r\n" : "\r";
    line += c == '\n' ? 1 : 0;
  }
  for (const std::string& text : {lf, crlf, cr, mixed, "\xEF\xBB\xBF" + lf}) {
    const Parsed parsed = parse_text(text);
    ASSERT_EQ(parsed.diagnostics.errors(), 1U) << parsed.errors();
    EXPECT_EQ(parsed.place(0).line, 7);
    EXPECT_EQ(parsed.place(0).column, 10);
    EXPECT_EQ(parsed.ast.items.size(), 2U);
  }
}

TEST(Positions, ColumnsCountCodePoints) {
  const Parsed parsed = parse_text("let a = f(\"\xC3\xA9\xE2\x82\xAC\", $)\n");
  ASSERT_EQ(parsed.diagnostics.errors(), 1U);
  EXPECT_EQ(parsed.place(0).column, 17);
}

TEST(Encoding, InvalidBytesAreNamedWithTheirPlace) {
  for (const std::string bad :
       {"\x85", "\xC0\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xE2\x82"}) {
    const Parsed parsed = parse_text("dim B\r# " + bad + "\n");
    ASSERT_EQ(parsed.diagnostics.errors(), 1U);
    const std::string message = parsed.diagnostics.all()[0].message;
    EXPECT_NE(message.find("line 2, at byte offset 8"), std::string::npos) << message;
    EXPECT_EQ(diag_name(parsed.diagnostics.all()[0].id), std::string("E0016"));
  }
  const Parsed utf16 = parse_text(std::string("d\0i\0m\0 \0B\0", 10));
  EXPECT_NE(utf16.diagnostics.all().at(0).notes.at(0).find("UTF-16"), std::string::npos);
}

TEST(Encoding, OddCharactersAreErrorsAndNeverNames) {
  for (const std::string& text :
       {std::string("let a\0b = 1\n", 12), std::string("let caf\xC3\xA9 = 1\n"),
        std::string("\xEF\xBB\xBF\xEF\xBB\xBFlet a = 1\n")}) {
    const Parsed parsed = parse_text(text);
    ASSERT_EQ(parsed.diagnostics.errors(), 1U) << parsed.errors();
    EXPECT_EQ(diag_name(parsed.diagnostics.all()[0].id), std::string("E0002"));
  }
  EXPECT_FALSE(parse_text("").diagnostics.has_errors());
  EXPECT_FALSE(parse_text("\xEF\xBB\xBF").diagnostics.has_errors());
}

// --------------------------------------------------------------------------------------- depth

TEST(Depth, UpToTheLimitItWorks) {
  const int depth = kMaxNesting - 2;
  for (const std::string& text :
       {repeat("(", depth) + "a" + repeat(")", depth),
        repeat("f(", depth) + "a" + repeat(")", depth),
        repeat("x[", depth) + "a" + repeat("]", depth), repeat("-", depth) + "a",
        repeat("not ", depth) + "a", repeat("a ^ ", depth) + "a"}) {
    const Parsed parsed = parse_text("let x = " + text + "\n");
    EXPECT_FALSE(parsed.diagnostics.has_errors()) << text.substr(0, 8) << parsed.errors();
    EXPECT_FALSE(parsed.printed().empty());
  }
}

TEST(Depth, BeyondItOneErrorAndTheNextItemIsFine) {
  for (const int depth : {1100, 10'000, 200'000}) {
    for (const std::string& text :
         {repeat("(", depth) + "a" + repeat(")", depth), repeat("(", depth),
          repeat("x[", depth) + "a" + repeat("]", depth), repeat("-", depth) + "a",
          repeat("not ", depth) + "a", repeat("a ^ ", depth) + "a", repeat("a + not ", depth) + "a",
          repeat("-(", depth) + "a" + repeat(")", depth)}) {
      const Parsed parsed = parse_text("let x = " + text + "\nlet y = 1\n");
      ASSERT_EQ(parsed.diagnostics.errors(), 1U) << text.substr(0, 8) << depth;
      EXPECT_EQ(diag_name(parsed.diagnostics.all()[0].id), std::string("E0005"));
      EXPECT_EQ(parsed.place(0).line, 1);
      ASSERT_FALSE(parsed.ast.items.empty());
      EXPECT_EQ(parsed.ast.items.back().name.text, "y");
    }
  }
  const std::string blocks = "fn f(x: [B]) -> [B] {\n" + repeat("repeat 2 {\n", 5000) +
                             repeat("}\n", 5000) + "return x\n}\nlet y = 1\n";
  const Parsed parsed = parse_text(blocks);
  EXPECT_EQ(parsed.diagnostics.errors(), 1U);
  EXPECT_EQ(parsed.ast.items.back().name.text, "y");
}

double seconds_to_parse(const std::string& text, size_t expressions) {
  const auto start = std::chrono::steady_clock::now();
  const Parsed parsed = parse_text(text);
  EXPECT_FALSE(parsed.diagnostics.has_errors());
  EXPECT_GE(parsed.ast.exprs.size(), expressions);
  EXPECT_FALSE(parsed.printed().empty());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(Depth, LongChainsAreLinear) {
  std::string sum = "let x = a";
  for (int i = 0; i < 10'000; ++i) sum += " + b" + std::to_string(i) + " * c";
  EXPECT_LT(seconds_to_parse(sum + "\n", 30'000), 10.0);  // generous: other jobs share the machine
  EXPECT_LT(seconds_to_parse("let x = a" + repeat(" |> f", 10'000) + "\n", 20'000), 10.0);
  EXPECT_LT(seconds_to_parse("let x = a" + repeat("(b)[T -> S]", 10'000) + "\n", 30'000), 10.0);
}

// ------------------------------------------------------------------------------------ recovery

TEST(Recovery, OneErrorAStatementAndTheRestParses) {
  const std::string head = "fn f(x: [B]) -> [B] {\n";
  const std::string tail = "\n  z = x + 1\n  return z\n}\ndim Q\n";
  for (const char* statement : {"  y = ",
                                "  y = x +",
                                "  y = (x",
                                "  y = x)",
                                "  y = f(x y)",
                                "  y = x[",
                                "  y = x[]",
                                "  y x",
                                "  y",
                                "  f(x)",
                                "  y = 1 < 2 < 3",
                                "  param : [B]",
                                "  param w [B]",
                                "  param w : ",
                                "  param w : [B",
                                "  use = F",
                                "  use g F",
                                "  y = $",
                                "  y = \"a",
                                "  y = x ** 2",
                                "  dim = 3",
                                "  dim K = ",
                                "  y: [B] x",
                                "  y, = f(x)",
                                "  y = x @[ x",
                                "  y = x @[K]",
                                "  y = x @shard(",
                                "  y = x @",
                                "  repat 2 { x = x }",
                                "  let k = 2",
                                "  y = x.",
                                "  y = .5",
                                "  y = f(a = 1)",
                                "  y = f(,)",
                                "  ) = 3",
                                "  ,",
                                "  y = [B]",
                                "  y = x as z",
                                "  fn g(x: [B]) -> [B] { return x }"}) {
    const Parsed parsed = parse_text(head + statement + tail);
    EXPECT_EQ(parsed.diagnostics.errors(), 1U) << statement << "\n" << parsed.errors();
    EXPECT_EQ(parsed.place(0).line, 2) << statement << "\n" << parsed.errors();
    ASSERT_EQ(parsed.ast.items.size(), 2U) << statement;
    EXPECT_EQ(parsed.ast.items[0].name.text, "f") << statement;
    EXPECT_TRUE(parsed.ast.items[0].broken) << statement;
    EXPECT_FALSE(parsed.ast.defs[0].broken) << statement;
    EXPECT_TRUE(parsed.ast.defs[0].body_broken) << statement;
    EXPECT_EQ(parsed.ast.items[1].binds.at(0).name.text, "Q") << statement;
    // the two statements behind the fault are whole
    const auto& body = parsed.ast.defs[0].body;
    ASSERT_GE(body.size(), 2U) << statement;
    EXPECT_EQ(parsed.ast.stmt(body[body.size() - 2]).names.at(0).text, "z") << statement;
    EXPECT_FALSE(parsed.ast.stmt(body[body.size() - 2]).broken) << statement;
    EXPECT_EQ(parsed.ast.stmt(body.back()).kind, StmtKind::kReturn) << statement;
  }
}

TEST(Recovery, BrokenStatementsKeepTheirNames) {
  const Parsed parsed =
      parse_text("fn f(x: [B]) -> [B] {\n  y, z = x +\n  w = (1\n  return y\n}\n");
  const auto& body = parsed.ast.defs.at(0).body;
  ASSERT_EQ(body.size(), 3U);
  EXPECT_EQ(parsed.ast.stmt(body[0]).names.size(), 2U);
  EXPECT_TRUE(parsed.ast.stmt(body[0]).broken);
  EXPECT_EQ(parsed.ast.stmt(body[1]).names.at(0).text, "w");
  EXPECT_TRUE(parsed.ast.stmt(body[1]).broken);
  EXPECT_FALSE(parsed.ast.stmt(body[2]).broken);
}

TEST(Recovery, HeadersCostOneError) {
  for (const char* header :
       {"fn f(x: [B]) [B] {", "fn f(x: [B]) {", "fn f(x [B]) -> [B] {", "fn f(x: [B] -> [B] {",
        "fn (x: [B]) -> [B] {", "fn f x: [B]) -> [B] {", "fn f[](x: [B]) -> [B] {",
        "fn f[D ->](x: [B]) -> [B] {", "fn f(x: [B]) -> {", "fn f(x: [B]) -> [B]",
        "nf f(x: [B]) -> [B] {", "f(x: [B]) -> [B] {", "fn f(x: [B]) -> [B] = {",
        "fn f(x:) -> [B] {"}) {
    const Parsed parsed = parse_text(std::string(header) + "\n  y = x\n  return y\n}\ndim Q\n");
    EXPECT_EQ(parsed.diagnostics.errors(), 1U) << header << "\n" << parsed.errors();
    EXPECT_EQ(parsed.place(0).line, 1) << header;
    ASSERT_EQ(parsed.ast.items.size(), 2U) << header;
    ASSERT_EQ(parsed.ast.items[0].kind, ItemKind::kDef) << header;
    EXPECT_TRUE(parsed.ast.items[0].broken) << header;
    EXPECT_EQ(parsed.ast.defs[0].body.size(), 2U) << header;
  }
}

TEST(Recovery, SectionsCostOneErrorASetting) {
  for (const char* setting : {"B = 3", "B:", "B 3", ": 3", "B: (1", "B: 1)", "B: f(x y)",
                              "save to: 3", "eval {{ every: 3 }", "B: 80 GIB"}) {
    const Parsed parsed =
        parse_text("train t {\n  steps: 1\n  " + std::string(setting) + "\n  seed: 2\n}\ndim Q\n");
    EXPECT_EQ(parsed.diagnostics.errors(), 1U) << setting << "\n" << parsed.errors();
    EXPECT_EQ(parsed.place(0).line, 3) << setting << parsed.errors();
    ASSERT_EQ(parsed.ast.items.size(), 2U) << setting;
    ASSERT_EQ(parsed.ast.items[0].kind, ItemKind::kSection) << setting;
    const Section& section = parsed.ast.section(parsed.ast.items[0].section);
    EXPECT_EQ(section.entries.front().key.text, "steps") << setting;
    EXPECT_EQ(section.entries.back().key.text, "seed") << setting;
    EXPECT_FALSE(section.entries.back().broken) << setting;
  }
}

TEST(ParseExpression, OneExpressionOrAnError) {
  for (const auto& [text, errors] : std::vector<std::pair<std::string, size_t>>{{"64", 0},
                                                                                {"1 / 2", 0},
                                                                                {"(0.9, 0.95)", 0},
                                                                                {"", 1},
                                                                                {"1e-3x", 1},
                                                                                {"a b", 1},
                                                                                {"(", 1},
                                                                                {"1\n2", 1},
                                                                                {"=", 1}}) {
    Sources sources;
    Diagnostics diagnostics;
    Ast ast;
    const FileId file = sources.add("--set", text);
    const ExprId id = parse_expression(sources, file, ast, diagnostics);
    EXPECT_EQ(diagnostics.errors(), errors) << text << render_short(diagnostics, sources);
    EXPECT_EQ(id.valid(), errors == 0) << text;
  }
}

TEST(LeftSpine, InnermostFirst) {
  const Parsed parsed = parse_text("let x = f(a)[T -> S] + b * c\n");
  const std::vector<ExprId> spine = left_spine(parsed.ast, parsed.ast.items[0].value);
  ASSERT_EQ(spine.size(), 4U);
  EXPECT_EQ(print_expr(parsed.ast, spine[0]), "f");
  EXPECT_EQ(print_expr(parsed.ast, spine[2]), "(dims (call f a) [T -> S])");
  EXPECT_EQ(spine[3], parsed.ast.items[0].value);
}

}  // namespace
}  // namespace cad::frontend
