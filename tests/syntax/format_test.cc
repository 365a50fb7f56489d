// tests/syntax/format_test.cc -- the formatter: the tree and the comments stay, a second time
// changes nothing, and the style is what it should be.
#include <filesystem>

#include "frontend/format.h"
#include "tests/syntax/syntax_testing.h"

namespace cad::frontend {
namespace {

std::string formatted(const std::string& text) {
  const Parsed parsed = parse_text(text);
  EXPECT_FALSE(parsed.diagnostics.has_errors()) << text << parsed.errors();
  return format(parsed.ast, parsed.sources, parsed.file);
}

std::vector<std::string> comments(const Parsed& parsed) {
  std::vector<std::string> list;
  for (const Comment& comment : parsed.ast.comments) {
    std::string text(parsed.sources.text(comment.span));
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.pop_back();
    list.push_back(text);
  }
  return list;
}

void expect_stable(const std::string& text, const std::string& what) {
  const Parsed before = parse_text(text);
  ASSERT_FALSE(before.diagnostics.has_errors()) << what << before.errors();
  const std::string once = format(before.ast, before.sources, before.file);
  const Parsed after = parse_text(once);
  EXPECT_FALSE(after.diagnostics.has_errors()) << what << after.errors() << once;
  EXPECT_EQ(before.printed(), after.printed()) << what;
  EXPECT_EQ(comments(before), comments(after)) << what;
  EXPECT_EQ(once, format(after.ast, after.sources, after.file)) << what;
  EXPECT_EQ(once.find('\r'), std::string::npos) << what;
  EXPECT_EQ(once.find(" \n"), std::string::npos) << what << once;
}

TEST(Format, ProgramsOfTheRepository) {
  int files = 0;
  for (const char* folder : {"examples", "stdlib"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(COLAUTO_SOURCE_DIR) + "/" + folder)) {
      if (entry.path().extension() != ".cad") continue;
      const std::string path = std::string(folder) + "/" + entry.path().filename().string();
      expect_stable(read_repository_file(path), path);
      ++files;
    }
  }
  EXPECT_GT(files, 5);
}

TEST(Format, GptIsInTheStyle) {
  const std::string text = read_repository_file("examples/gpt.cad");
  EXPECT_EQ(formatted(text), text);
}

// Every blank removed or stretched: the same result.
TEST(Format, SpacingOfTheSourceDoesNotMatter) {
  const std::string text = read_repository_file("examples/gpt.cad");
  std::string stretched;
  bool in_string = false;
  bool in_comment = false;
  for (const char c : text) {
    if (c == '"' && !in_comment) in_string = !in_string;
    if (c == '#') in_comment = true;
    if (c == '\n') in_comment = false;
    stretched += c;
    if (c == ' ' && !in_string && !in_comment) stretched += "\t ";
  }
  EXPECT_EQ(formatted(stretched), text);
}

TEST(Format, NastyInputs) {
  const std::vector<std::string> inputs{
      "",
      "\n\n\n",
      "# only a comment",
      "   # indented comment\n\n\n\n# another  \n",
      "dim B,T,\n  S # the last\n",
      "dim\tB\r\ndim T\r\n\r\n\r\ndim S\r\n",
      "dim B\rdim T\r# c\rdim S",
      "let a=-1^-2*- 3\nlet b=not  -a\n",
      "let x = f(\n# first\na, # a\n\n\nb\n# last\n)\n",
      "let x = f(a,\nb)\n",
      "let x = (a,\n  (b,\nc),\n)\n",
      "fn f(x:[B])->[B]{return x}\n",
      "fn f(x: [B]) -> [B] { y = x\n return y }\n",
      "fn f(\n  x: [B],   # one\n  y: [B] = 2,\n) -> ([B],\n [B]) {\n\n\n  # c\n\n  return x,\n    "
      "y\n\n}\n",
      "fn f(x: [B]) -> [B] {\n  y = x\n\n    # why\n\n    |> gelu # first\n  |>relu\n  return y\n  "
      "# end\n}\n",
      "layer L[I->O](x:[..,I])->[..,O]{\nparam W:[I,O]=normal(0.02) @shard(O:tp)@keep\nstate "
      "mu,nu:[O]=zeros\nparam long_name : [I] = zeros # c\n"
      "repeat 2 as h @checkpoint {x=x}\nreturn x@[I]W@[ .. ](x)@[O](x)}\n",
      "train t{data:text(\"a # b\",x:i32[B,T]),B:64,T:32,}\n",
      "train t {\n  B: 64, T: 32,\n  save{to:\"x\",every:3},\n  eval val {\n data: x, # d\n # "
      "own\n every: 3 }\n}\n",
      "mesh m { axes: (data: 2, model: 4) }\ndevice d{memory:80GiB,b:2.0 TB/s}\n",
      "let s = \"caf\xC3\xA9\"   # caf\xC3\xA9\nlet t = 1   # x\n",
      "fn f(x: [B, T]) -> [B] { return x[T=0:8->N][V=ids][(H,K)->D] [ .. ] .a }\n",
      "fn f(x: [B]) -> [B] {\n  return x +\n    y *\n z\n}\n",
      "train {}\ntrain a {\n}\n",
      "import \"a.cad\" as a # x\nimport \"b.cad\"\n",
  };
  for (const std::string& input : inputs) expect_stable(input, "<" + input + ">\n");
}

TEST(Format, Style) {
  EXPECT_EQ(formatted("let  a=1+2*-b^2\n"), "let a = 1 + 2 * -b ^ 2\n");
  EXPECT_EQ(formatted("fn f(x:[B],eps:f32=1e-5)->i32[]{return f ( x )[T->S]}"),
            "fn f(x: [B], eps: f32 = 1e-5) -> i32[] { return f(x)[T -> S] }\n");
  EXPECT_EQ(formatted("let y = a@[K,H](b)"), "let y = a @[K, H] (b)\n");
  EXPECT_EQ(formatted("let y = x[T=0:8->N]"), "let y = x[T = 0 : 8 -> N]\n");
  EXPECT_EQ(formatted("device d { memory: 80GiB }"), "device d { memory: 80 GiB }\n");
  EXPECT_EQ(formatted("dim A\n\n\n\ndim B\n\n"), "dim A\n\ndim B\n");
  EXPECT_EQ(formatted("layer L(x: [B]) -> [B] {\nparam W, V : [B, C] = ones\nparam b : [B] = "
                      "zeros\nreturn x }"),
            "layer L(x: [B]) -> [B] {\n"
            "  param W, V : [B, C] = ones\n"
            "  param b    : [B]    = zeros\n"
            "  return x\n"
            "}\n");
  EXPECT_EQ(
      formatted("train {\nsteps: 3\nB: 64, T: 2,\nsave { to: \"a\", }\neval {\nevery: 3\n}\n}"),
      "train {\n"
      "  steps: 3\n"
      "  B:     64, T: 2\n"
      "  save   { to: \"a\" }\n"
      "  eval {\n"
      "    every: 3\n"
      "  }\n"
      "}\n");
  EXPECT_EQ(formatted("let a = 1 # x\nlet long_name = 22 # y\n"),
            "let a = 1                                    # x\n"
            "let long_name = 22                           # y\n");
  EXPECT_EQ(formatted("let a = f(\nx,\n(1,\n2)\n)\n"), "let a = f(\n  x,\n  (1,\n    2)\n)\n");
}

TEST(Format, FileWithErrorsIsLeftAlone) {
  const std::string text = "let  a = (\nlet b=  2\n";
  const Parsed parsed = parse_text(text);
  EXPECT_TRUE(parsed.diagnostics.has_errors());
  EXPECT_EQ(format(parsed.ast, parsed.sources, parsed.file), text);
}

}  // namespace
}  // namespace cad::frontend
