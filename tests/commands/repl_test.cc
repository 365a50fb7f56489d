// tests/commands/repl_test.cc -- `colauto repl`. A transcript is the test: every line with a prompt
// is fed in, and the whole must come out again. COLAUTO_UPDATE_GOLDEN=1 rewrites transcripts (from
// their own inputs). Hostile inputs, files and a terminal are further down.
#include <algorithm>
#include <cstdlib>
#include <regex>

#include "tests/commands/command_testing.h"

namespace cad {
namespace {

namespace fs = std::filesystem;

const fs::path kTests = fs::path(COLAUTO_SOURCE_DIR) / "tests" / "commands";

std::string file_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// What stands behind prompts.
std::string inputs_of(const std::string& transcript) {
  std::string text;
  for (const std::string& line : lines_of(transcript)) {
    for (const char* prompt : {"cad> ", "...> "}) {
      if (line.rfind(prompt, 0) == 0) text += line.substr(5) + "\n";
    }
  }
  return text;
}

// Measured times differ from run to run.
std::string without_times(const std::string& text) {
  std::string out;
  for (const std::string& line : lines_of(text)) {
    const bool timed = line.find(" (median of ") != std::string::npos;
    out +=
        timed ? std::regex_replace(line, std::regex("[0-9][0-9.,]* ?(us|ms|s)?"), "#")
              : std::regex_replace(line, std::regex("found in [0-9.e+]+ (us|ms|s)$"), "found in #");
    out += "\n";
  }
  return out;
}

class Repl : public Commands {
 protected:
  void SetUp() override {
    Commands::SetUp();
    write("small.cad", file_text(kTests / "repl_program.cad"));
  }
  // Feeds `input`; the streams come out in `out` as a terminal would show them.
  Output session(const std::string& input, const std::string& arguments = "") const {
    write("input", input);
    const std::string command =
        "cd '" + folder_.string() + "' && XDG_STATE_HOME='" + folder_.string() +
        "' NO_COLOR=1 timeout 120 '" COLAUTO_BINARY "' repl " + arguments + " <input >.out 2>&1";
    const int raw = std::system(command.c_str());
    return {read(".out"), "", WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw)};
  }
  // Its inputs are fed in, and it must come out again.
  void expect_transcript(const fs::path& path, const std::string& arguments) const {
    const Output out = session(inputs_of(file_text(path)), arguments);
    EXPECT_EQ(out.status, 0);
    const std::string text = without_times(out.out);
    if (std::getenv("COLAUTO_UPDATE_GOLDEN") != nullptr) {
      std::ofstream(path, std::ios::binary) << text;
      return;
    }
    EXPECT_EQ(text, file_text(path)) << "COLAUTO_UPDATE_GOLDEN=1 writes " << path;
  }
  static std::string number_after(const std::string& text, const std::string& mark) {
    const size_t at = text.find(mark);
    return at == std::string::npos ? "" : text.substr(at + mark.size(), 12);
  }
};

TEST_F(Repl, ASessionPrintsItsTranscript) {
  expect_transcript(kTests / "repl_session.txt", "small.cad --echo");
}

// Of planning: `:mem`, `:plan` and `:why` of a program that trains, mesh and plan sections typed
// in.
TEST_F(Repl, ASessionOfPlansPrintsItsTranscript) {
  write("net.cad", file_text(kTests / "repl_plan_program.cad"));
  expect_transcript(kTests / "repl_plan_session.txt", "net.cad --echo");
}

// A script whose program is not there does not go on without.
TEST_F(Repl, AScriptNeedsItsFile) {
  const Output none = session("1 + 1\n", "nosuch.cad");
  EXPECT_EQ(none.status, 66);
  EXPECT_NE(none.out.find("error[E0601]"), std::string::npos) << none.out;
  EXPECT_EQ(none.out.find('2'), std::string::npos) << none.out;
  EXPECT_EQ(session("1 + 1\n", ".").status, 66);  // a folder
  EXPECT_EQ(session("1 + 1\n", "small.cad").status, 0);
}

TEST_F(Repl, TheTranscriptUsesEveryCommand) {
  const std::string transcript = file_text(kTests / "repl_session.txt");
  const Output help = session(":help\n");
  size_t commands = 0;
  for (const std::string& line : lines_of(help.out)) {
    if (line.rfind("  :", 0) != 0) continue;
    ++commands;
    const std::string name = line.substr(2, line.find(' ', 2) - 2);
    EXPECT_TRUE(contains(transcript, "cad> " + name)) << name;
    EXPECT_LE(line.size(), 100U);
    const Output one = session(":help " + name.substr(1) + "\n");
    EXPECT_TRUE(contains(one.out, name)) << one.out;
  }
  EXPECT_GE(commands, 13U);
  EXPECT_GE(lines_of(inputs_of(transcript)).size(), 25U);
}

// The lesson's session is one: its blocks, in order, must come out as they stand.
TEST_F(Repl, TheLessonIsTrue) {
  std::string expected;
  bool in_block = false;
  for (const std::string& line :
       lines_of(file_text(fs::path(COLAUTO_SOURCE_DIR) / "docs" / "repl.md"))) {
    if (line.rfind("```", 0) == 0) {
      in_block = line == "```cad-session";
    } else if (in_block) {
      expected += line + "\n";
    }
  }
  ASSERT_FALSE(expected.empty());
  write("gpt.cad", file_text(fs::path(COLAUTO_SOURCE_DIR) / "examples" / "gpt.cad"));
  const Output out = session(inputs_of(expected), "gpt.cad --echo");
  // The first line tells of the program that was loaded.
  EXPECT_EQ(without_times(out.out), without_times(expected));
}

TEST_F(Repl, HostileInputLeavesTheSessionAlive) {
  const std::string alive = "1234 + 4321\n";
  const std::vector<std::string> inputs = {
      std::string(100'000, 'x'),
      std::string(100'000, '('),
      std::string(100'000, ')'),
      "1" + std::string(100'000, '+') + "1",
      std::string("a\0b = 1", 7),
      std::string("\0", 1),
      "\xFF\xFE\x80 + 1",
      "}",
      "x = 1 }",
      "x = 1 }\nlayer y() -> f32[] {",
      ":",
      ": help",
      ":set",
      ":set =",
      ":set B",
      ":set B=-1",
      ":set B=1e99",
      ":load .",
      ":load " + std::string(5000, 'a'),
      ":save /proc/none/file",
      ":ir",
      ":type",
      ":grad",
      ":grad 1",
      ":time 1",
      ":doc",
      ":why",
      "return 1",
      "import \"no.cad\" as no",
      "fn f(x: f32[]) -> f32[] { return g(x) }",
      "fn f(x: f32[]) -> f32[] { return f(x) }",
      "model M() -> f32[] { return M() }",
      "x, y = 1",
      "x: [Q] = 1",
      "repeat 3 { }",
      "\"text\"",
      "@",
      "# only a comment",
      "train { }",
      "dim D = D",
      "normal[D](1.0) @[D] normal[D](1.0) @[D] 3",
  };
  for (const std::string& input : inputs) {
    const Output out = session(input + "\n" + alive + ")))\n" + alive, "small.cad");
    EXPECT_EQ(out.status, 0) << input.substr(0, 80) << out.out.substr(0, 2000);
    // Brackets that stay open swallow what follows.
    const bool open = input[0] == '(' || contains(input, "-> f32[] {\n") || input.back() == '{' ||
                      input[0] == '1';
    if (!open) {
      EXPECT_TRUE(contains(out.out, "\n5555\n") || out.out.rfind("5555", 0) == 0)
          << input.substr(0, 80) << "\n"
          << out.out.substr(0, 2000);
    }
    EXPECT_FALSE(contains(out.out, "internal error")) << input.substr(0, 80) << out.out;
    EXPECT_FALSE(contains(out.out, "ended with signal")) << input.substr(0, 80) << out.out;
  }
}

TEST_F(Repl, TheEndInsideABlockIsTheEnd) {
  const Output out = session("1 + 1\nfn f(x: f32[]) -> f32[] {\n  return x", "small.cad");
  EXPECT_EQ(out.status, 0);
  EXPECT_TRUE(contains(out.out, "\n2\n")) << out.out;
  EXPECT_TRUE(contains(out.out, "error[E0003]")) << out.out;
}

TEST_F(Repl, HugeTensorsAreRefusedWithTheNumber) {
  const Output out = session(
      "dim N = 1_000_000_000\nx = normal[N](1.0)\nsum(x)\ndim M = 2_000_000_000\n"
      "normal[N, M](1.0)\n:type normal[N, M](1.0)\n:time normal[N, M](1.0)\n1 + 1\n");
  EXPECT_EQ(out.status, 0);
  EXPECT_TRUE(contains(out.out, "error[E0513]")) << out.out;
  EXPECT_TRUE(contains(out.out, "would take 2,000,000,001 steps")) << out.out;
  EXPECT_TRUE(contains(out.out, "f32[N = 1000000000, M = 2000000000]")) << out.out;
  EXPECT_TRUE(contains(out.out, "\n2\n")) << out.out;
}

TEST_F(Repl, AnInputWithAnErrorChangesNothing) {
  const Output out = session(
      "let a = 3\nlet a = b\na\nlayer Block(x: [B, T, D]) -> [B, T] { return x }\n:ir Block\n"
      "x = a + 1\nx = zz\nx\n:load small.cad\n:load broken.cad\nscale\n",
      "small.cad");
  EXPECT_TRUE(contains(out.out, "\n3\n")) << out.out;
  EXPECT_TRUE(contains(out.out, "\n4\n")) << out.out;
  EXPECT_TRUE(contains(out.out, "contract")) << out.out;
  EXPECT_TRUE(contains(out.out, "cannot read `broken.cad`")) << out.out;
  EXPECT_TRUE(contains(out.out, "\n0.5\n")) << out.out;
}

TEST_F(Repl, DiagnosticsNameTheInput) {
  const Output out =
      session("1 + 1\nfn g(x: [D]) -> [D] {\n  return x + y\n}\n\n z + 1\n", "small.cad");
  EXPECT_TRUE(contains(out.out, "--> <input 2>:2:14")) << out.out;
  EXPECT_TRUE(contains(out.out, "--> <input 4>:1:2")) << out.out;
  const Output loaded =
      session("dim Q\nlayer Block(x: [B, D]) -> [B, D] { return x }\n", "small.cad");
  EXPECT_TRUE(contains(loaded.out, "--> small.cad:18:")) << loaded.out;
}

TEST_F(Repl, ReloadKeepsWhatWasTyped) {
  write("input", "");
  const std::string change =
      "printf 'dim B, D = 8, T = 4\\nlet scale = 7\\n' > small.cad; sleep 0.1; ";
  // the file changes only when the session has used the old one
  const std::string printed =
      "n=0; until grep -qx 1 .out || [ $n = 600 ]; do sleep 0.1; n=$((n+1)); done; ";
  const Output out =
      session("x = normal[D](1.0)\nlet own = scale * 2\nown\n:reload\nown\n:type x\n", "small.cad");
  EXPECT_TRUE(contains(out.out, "\n1\n")) << out.out;
  std::filesystem::remove(folder_ / ".out");  // of that session: it has the line that is waited for
  const std::string command =
      "cd '" + folder_.string() +
      "' && { echo 'x = normal[D](1.0)'; echo 'let own = scale * 2'; echo own; " + printed +
      change +
      "echo :reload; echo own; echo ':type x'; } | NO_COLOR=1 '" COLAUTO_BINARY
      "' repl small.cad > .out 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string text = read(".out");
  EXPECT_TRUE(contains(text, "\n1\n")) << text;
  EXPECT_TRUE(contains(text, "\n14\n")) << text;
  EXPECT_TRUE(contains(text, "f32[D = 8]")) << text;
}

TEST_F(Repl, ASavedSessionIsAProgramAndLoadsAgain) {
  const Output first = session(
      ":set B=2\nx = normal[B, D](1.0)\ny = Linear[D -> D](x)\nlet scale = 3\n"
      "dim T = 5\nlayer Block(x: [B, T, D]) -> [B, T, D] {\n  return scale * x\n}\nsum(y)\n"
      ":save new.cad\n",
      "small.cad");
  ASSERT_EQ(first.status, 0);
  const std::string saved = read("new.cad");
  EXPECT_TRUE(contains(saved, "# cad> :set B=2\n")) << saved;
  EXPECT_TRUE(contains(saved, "# cad> x = normal[B, D](1.0)\n")) << saved;
  EXPECT_FALSE(contains(saved, "scale = 0.5")) << saved;
  EXPECT_TRUE(contains(saved, "dim") && contains(saved, "S = T")) << saved;
  const Output check = run("check new.cad");
  EXPECT_EQ(check.status, 0) << check.err;
  const Output again = session("sum(y)\n:type normal[T](1.0)\nscale\n:save! new.cad\n", "new.cad");
  EXPECT_TRUE(contains(again.out, "f32[T = 5]")) << again.out;
  EXPECT_TRUE(contains(again.out, "\n3\n")) << again.out;
  // The same sum: draws and initial values are keyed by names.
  const std::vector<std::string> lines = lines_of(first.out);
  ASSERT_GE(lines.size(), 2U);
  EXPECT_TRUE(contains(again.out, "\n" + lines[lines.size() - 2] + "\n")) << first.out << again.out;
  EXPECT_EQ(read("new.cad"), saved);
}

TEST_F(Repl, AFileIsNotOverwrittenAndAFailedSaveLeavesNothing) {
  write("there.cad", "precious");
  const Output out =
      session("dim B = 2\n:save there.cad\n:save no/such/folder/a.cad\n:save b.cad\n");
  EXPECT_TRUE(contains(out.out, "`there.cad` exists already")) << out.out;
  EXPECT_TRUE(contains(out.out, ":save! there.cad")) << out.out;
  EXPECT_TRUE(contains(out.out, "cannot write `no/such/folder/a.cad`")) << out.out;
  EXPECT_EQ(read("there.cad"), "precious");
  EXPECT_EQ(read("b.cad"), "dim B = 2\n");
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_FALSE(contains(entry.path().string(), ".tmp")) << entry.path();
}

TEST_F(Repl, AProgramWithErrorsStartsAnEmptySession) {
  write("bad.cad", "dim D = 4\nfn f(x: [D]) -> [D] { return y }\n");
  const Output out = session("D\n1 + 1\n", "bad.cad");
  EXPECT_EQ(out.status, 0);
  EXPECT_TRUE(contains(out.out, "--> bad.cad:2:")) << out.out;
  EXPECT_TRUE(contains(out.out, "unknown name `D`")) << out.out;
  EXPECT_TRUE(contains(out.out, "\n2\n")) << out.out;
}

TEST_F(Repl, GradientsAreThoseOfCentralDifferences) {
  // d mean((a x)^2) / da = 2 a mean(x^2): checked by the session itself.
  const Output out = session(
      "dim N = 5\nx = f32(iota[N])\nparam a : [N] = constant(3)\n:grad mean((a * x) ^ 2)\n"
      "2 * a * x ^ 2 / N\n");
  const std::vector<std::string> lines = lines_of(out.out);
  const auto by = std::find_if(lines.begin(), lines.end(),
                               [](const std::string& line) { return line.rfind("by a", 0) == 0; });
  ASSERT_NE(by, lines.end()) << out.out;
  ASSERT_GE(lines.size(), 2U);
  EXPECT_EQ(*(by + 1), lines.back()) << out.out;
}

TEST_F(Repl, PipedOutputHasNoPrompts) {
  const Output out = session("1 + 1\n");
  EXPECT_EQ(out.out, "2\n");
}

TEST_F(Repl, EveryBuiltinIsDocumented) {
  // `iota[` completes only what the language knows; the table is asked for each by `:doc`.
  for (const char* name : {"exp", "where", "topk", "conv", "collect", "iota", "dispatch", "adamw",
                           "cosine", "contract", "E0101", "train", "eval", "MoE", ":set"}) {
    const Output out = session(std::string(":doc ") + name + "\n");
    EXPECT_FALSE(contains(out.out, "error") && name[0] != 'E') << out.out;
    EXPECT_GT(lines_of(out.out).size(), 1U) << out.out;
  }
}

// ------------------------------------------------------------------------------- a real terminal

TEST_F(Repl, ATerminalHasCompletionHistoryAndCancel) {
  if (std::system("tmux -V >/dev/null 2>&1") != 0) GTEST_SKIP() << "no tmux";
  const std::string command = "'" + (kTests / "repl_tmux.sh").string() +
                              "' '" COLAUTO_BINARY "' '" + folder_.string() + "' > '" +
                              (folder_ / "tmux.log").string() + "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << read("tmux.log");
}

}  // namespace
}  // namespace cad
