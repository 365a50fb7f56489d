// tests/commands/usage_test.cc -- flags, statuses and streams of the commands that need no
// training: usage errors name the flag and suggest one, results go to stdout, messages to stderr.
#include <nlohmann/json.hpp>

#include "tests/commands/command_testing.h"

namespace cad {
namespace {

using nlohmann::json;

TEST_F(Commands, NothingAndHelp) {
  const Output nothing = run("");
  EXPECT_EQ(nothing.status, 2);
  EXPECT_TRUE(contains(nothing.err, "usage: colauto COMMAND"));
  EXPECT_TRUE(nothing.out.empty());
  const Output help = run("--help");
  EXPECT_EQ(help.status, 0);
  EXPECT_TRUE(contains(help.out, "explain"));
  const Output check = run("check --help");
  EXPECT_EQ(check.status, 0);
  EXPECT_LT(check.out.find("colauto check gpt.cad"), check.out.find("--set"));  // examples first
}

TEST_F(Commands, UnknownCommandAndFlag) {
  const Output command = run("chekc x.cad");
  EXPECT_EQ(command.status, 2);
  EXPECT_TRUE(contains(command.err, "did you mean `check`?")) << command.err;
  const Output file = run("gpt.cad");
  EXPECT_EQ(file.status, 2);
  EXPECT_TRUE(contains(file.err, "colauto run gpt.cad")) << file.err;
  const std::string program = write("a.cad", kSmallProgram);
  const Output flag = run("check " + program + " --tpyes");
  EXPECT_EQ(flag.status, 2);
  EXPECT_TRUE(contains(flag.err, "unknown flag `--tpyes`")) << flag.err;
  EXPECT_TRUE(contains(flag.err, "did you mean `--types`?")) << flag.err;
  EXPECT_TRUE(flag.out.empty());
  const Output value = run("check --lerning-rate 0.1 " + program);
  EXPECT_EQ(value.status, 2);
  EXPECT_TRUE(contains(value.err, "`--lerning-rate`")) << value.err;
  EXPECT_TRUE(contains(value.err, "--set lerning_rate=")) << value.err;
  const Output extra = run("check " + program + " b.cad");
  EXPECT_EQ(extra.status, 2);
  EXPECT_TRUE(contains(extra.err, "unexpected argument `b.cad`")) << extra.err;
}

TEST_F(Commands, BadValues) {
  const std::string program = write("a.cad", kSmallProgram);
  for (const std::string flags :
       {"--steps 1e-3x", "--steps nan", "--steps -1", "--steps 1_000", "--steps ''",
        "--steps 3 --steps 4", "--seed x", "--devices 0", "--devices 1 --gpus 1", "--plan", "--set",
        "--set B", "--set =3", "--set B=", "--color sometimes", "--error-format xml",
        "--emit tree"}) {
    const Output output = run("run " + program + " " + flags);
    EXPECT_EQ(output.status, 2) << flags << "\n" << output.err;
    EXPECT_TRUE(contains(output.err, "error[E0503]")) << flags << "\n" << output.err;
    EXPECT_TRUE(contains(output.err, flags.substr(0, flags.find(' ')))) << flags << "\n"
                                                                        << output.err;
    EXPECT_TRUE(output.out.empty()) << flags;
  }
}

TEST_F(Commands, GpusNeedCuda) {
  const Output output = run("run " + write("a.cad", kSmallProgram) + " --gpus 2");
  if (contains(run("version").out, "CUDA  yes")) GTEST_SKIP();
  EXPECT_EQ(output.status, 2);
  EXPECT_TRUE(contains(output.err, "no CUDA support")) << output.err;
  EXPECT_TRUE(contains(output.err, "--devices")) << output.err;
}

TEST_F(Commands, StatusesOfCheck) {
  EXPECT_EQ(run("check " + write("good.cad", kSmallProgram)).status, 0);
  const Output bad = run("check " + write("bad.cad", "dim B\nlet a = (\n"));
  EXPECT_EQ(bad.status, 65);
  EXPECT_TRUE(bad.out.empty());
  EXPECT_EQ(run("check " + write("latin.cad", "dim B # \xE9\n")).status, 65);
  const Output missing = run("check nothing.cad");
  EXPECT_EQ(missing.status, 66);
  EXPECT_TRUE(contains(missing.err, "nothing.cad")) << missing.err;
  EXPECT_EQ(run("check .").status, 66);
  EXPECT_EQ(run("check").status, 2);
}

TEST_F(Commands, StandardInputAsTheProgram) {
  write("good.cad", kSmallProgram);
  write("wide.cad", "let  a=1\n");
  const std::string in = "cd '" + folder_.string() + "' && '" COLAUTO_BINARY "' ";
  EXPECT_EQ(std::system((in + "check - <good.cad >/dev/null").c_str()), 0);
  EXPECT_EQ(std::system((in + "fmt - <wide.cad >formatted.cad").c_str()), 0);
  EXPECT_EQ(read("formatted.cad"), "let a = 1\n");
}

TEST_F(Commands, FormatsOfErrors) {
  write("bad.cad", "dim B\nlet a = (\n");
  const Output brief = run("check bad.cad --error-format=short");
  EXPECT_EQ(brief.err.rfind("bad.cad:2:10: error[E0003]", 0), 0U) << brief.err;
  const Output document = run("check bad.cad --error-format=json");
  const json parsed = json::parse(document.err);
  EXPECT_EQ(parsed["schema"], 1);
  EXPECT_EQ(parsed["diagnostics"][0]["id"], "E0003");
  EXPECT_EQ(parsed["diagnostics"][0]["line"], 2);
  const Output result = run("check bad.cad --json");
  EXPECT_EQ(result.status, 65);
  EXPECT_EQ(json::parse(result.out)["diagnostics"].size(), 1U);
  EXPECT_TRUE(result.err.empty());
  const Output usage = run("check --nope --error-format=json");
  EXPECT_EQ(json::parse(usage.err)["diagnostics"][0]["id"], "E0502");
}

TEST_F(Commands, ColorOnlyWhenAskedForOrOnATerminal) {
  write("bad.cad", "let a = (\n");
  EXPECT_FALSE(contains(run("check bad.cad").err, "\x1b["));
  EXPECT_TRUE(contains(run("check bad.cad --color=always").err, "\x1b["));
  EXPECT_TRUE(
      contains(run("check bad.cad --color=always", "NO_COLOR=1").err, "\x1b["));  // the flag wins
  EXPECT_FALSE(contains(run("check bad.cad --color=never").err, "\x1b["));
}

TEST_F(Commands, CheckShowsTypesAndTrees) {
  write("a.cad", kSmallProgram);
  const Output types = run("check a.cad --types");
  EXPECT_EQ(types.status, 0) << types.err;
  EXPECT_TRUE(contains(types.out, "model Net")) << types.out;
  EXPECT_TRUE(contains(types.out, "param     w")) << types.out;
  EXPECT_TRUE(contains(types.out, "[D]")) << types.out;
  const Output tree = run("check a.cad --emit=ast");
  EXPECT_EQ(tree.out.rfind("(file\n  (dim (B) (D 4))\n", 0), 0U) << tree.out;
  EXPECT_TRUE(contains(run("check a.cad --emit=module").out, "dim D = "));
  const Output graph = run("check a.cad --emit=ir");
  EXPECT_EQ(graph.status, 0) << graph.err;
  EXPECT_TRUE(contains(graph.out, "mul")) << graph.out;
  EXPECT_TRUE(contains(run("check a.cad --timings").err, "total"));
}

TEST_F(Commands, FmtRewritesChecksAndFilters) {
  write("a.cad", "let  a=1\n");
  const Output check = run("fmt --check a.cad");
  EXPECT_EQ(check.status, 1);
  EXPECT_TRUE(contains(check.err, "`a.cad` is not in the one style")) << check.err;
  EXPECT_EQ(read("a.cad"), "let  a=1\n");
  EXPECT_EQ(run("fmt a.cad").status, 0);
  EXPECT_EQ(read("a.cad"), "let a = 1\n");
  EXPECT_EQ(run("fmt --check a.cad").status, 0);
  write("b.cad", "let b = (\n");
  EXPECT_EQ(run("fmt a.cad b.cad").status, 65);
  EXPECT_EQ(read("b.cad"), "let b = (\n");
  EXPECT_EQ(run("fmt nothing.cad").status, 66);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a.cad.tmp"));
  write("crlf.cad", "\xEF\xBB\xBFlet a = 1\r\n");
  EXPECT_EQ(run("fmt --check crlf.cad").status, 1);
  EXPECT_EQ(run("fmt crlf.cad").status, 0);
  EXPECT_EQ(read("crlf.cad"), "let a = 1\n");
}

TEST_F(Commands, ExplainOpsAndVersion) {
  const Output one = run("explain e0003");
  EXPECT_EQ(one.status, 0);
  EXPECT_TRUE(contains(one.out, "E0003: a bracket that is never closed")) << one.out;
  EXPECT_TRUE(contains(one.out, "Wrong:")) << one.out;
  EXPECT_TRUE(contains(run("explain").out, "E0501"));
  const Output unknown = run("explain E9999");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_TRUE(contains(unknown.err, "E9999"));
  EXPECT_TRUE(contains(run("ops").out, "contract"));
  EXPECT_EQ(json::parse(run("ops contract --json").out)["ops"].size(), 1U);
  EXPECT_TRUE(contains(run("ops contrac").err, "did you mean `contract`?"));
  EXPECT_TRUE(contains(run("version").out, "colauto "));
  EXPECT_EQ(run("--version").status, 0);
}

TEST_F(Commands, StandardOutputThatCannotBeWritten) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  const std::string command = "'" COLAUTO_BINARY "' ops >/dev/full 2>/dev/null";
  const int full = std::system(command.c_str());
  EXPECT_TRUE(WIFEXITED(full) && WEXITSTATUS(full) == 1);
  const int closed =
      std::system("bash -c \"set -o pipefail; '" COLAUTO_BINARY "' explain 2>/dev/null | true\"");
  EXPECT_TRUE(WIFEXITED(closed));  // a small text may fit the pipe: any status but a crash of ours
  EXPECT_NE(WEXITSTATUS(closed), 70);
}

}  // namespace
}  // namespace cad
