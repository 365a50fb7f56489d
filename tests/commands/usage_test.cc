// tests/commands/usage_test.cc -- flags, statuses and streams of the commands that need no
// training: usage errors name the flag and suggest one, results go to stdout, messages to stderr.
#include <tuple>

#include <nlohmann/json.hpp>

#include "tests/commands/command_testing.h"
#include "tests/commands/json_schema.h"

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

TEST_F(Commands, EmptyValuesAreNoDefaults) {
  const std::string program = write("a.cad", kSmallProgram);
  for (const char* flag : {"budget", "mesh", "cluster", "plan", "diff", "svg", "why"}) {
    const Output out = run("plan " + program + " --" + flag + " ''");
    EXPECT_EQ(out.status, 2) << flag;
    EXPECT_TRUE(contains(out.err, std::string("`--") + flag + "` needs a value")) << out.err;
  }
  EXPECT_EQ(run("cost " + program + " --layer ''").status, 2);
  EXPECT_EQ(run("probe -o ''").status, 2);
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

TEST_F(Commands, UnknownModelsAndSections) {
  const std::string program = write("a.cad", std::string(kSmallProgram) +
                                                 "train fit {\n  data: synthetic(x: f32[B, D])\n"
                                                 "  loss: mean(Net(x))\n  optimizer: sgd(lr: 0.1)\n"
                                                 "  B: 4\n  steps: 1\n}\n");
  for (const std::string command :
       {"check", "params", "run", "eval", "predict --in x.npy --out y", "generate"}) {
    const Output model = run(command + " " + program + " --model Nett");
    EXPECT_EQ(model.status, 2) << command << model.err;
    EXPECT_TRUE(contains(model.err, "error[E0121]")) << command << model.err;
    EXPECT_TRUE(contains(model.err, "did you mean `Net`?")) << command << model.err;
    const Output train = run(command + " " + program + " --train fitt");
    EXPECT_EQ(train.status, 2) << command << train.err;
    EXPECT_TRUE(contains(train.err, "error[E0308]")) << command << train.err;
    EXPECT_TRUE(contains(train.err, "did you mean `--train fit`?")) << command << train.err;
  }
  EXPECT_EQ(run("check " + program + " --model Net --train fit").status, 0);
}

TEST_F(Commands, Budgets) {
  const std::string program = write("a.cad", std::string(kSmallProgram) +
                                                 "train {\n  data: synthetic(x: f32[B, D])\n"
                                                 "  loss: mean(Net(x))\n  optimizer: sgd(lr: 0.1)\n"
                                                 "  B: 4\n  steps: 1\n}\n");
  const auto with = [&](const std::string& budget) {
    return run("run " + program + " --budget '" + budget + "'");
  };
  for (const char* fine : {"1MB", "0.5 MiB", "10%", "100%", "1GB", "1TB", "1000000", "1KB",
                           "4096KB", "4096 KiB", "1GiB"})
    EXPECT_EQ(with(fine).status, 0) << fine << with(fine).err;
  for (const char* small : {"0.1KB", "100B", "1"}) {
    EXPECT_EQ(with(small).status, 3) << small << with(small).err;
    EXPECT_TRUE(contains(with(small).err, "error[E0703]")) << with(small).err;
  }
  for (const char* bad : {"200%", "0%", "-1GB", "nan", "1 parsec", "GB", "1e40GB"}) {
    EXPECT_EQ(with(bad).status, 2) << bad << with(bad).err;
    EXPECT_TRUE(contains(with(bad).err, std::string("`--budget ") + bad)) << with(bad).err;
  }
  EXPECT_TRUE(contains(with("8 GIB").err, "did you mean `GiB`?")) << with("8 GIB").err;
}

// One byte under what a run of whole micro-batches needs: sizes that round alike are told apart in
// bytes.
TEST_F(Commands, OneByteUnder) {
  const std::string program =
      write("a.cad",
            "dim B, D = 512\nmodel Net(x: [B, D]) -> [B, D] {\n  param w : [D, D2] = ones\n"
            "  return (x @[D] w)[D2 -> D]\n}\ndim D2 = D\ntrain {\n"
            "  data: synthetic(x: f32[B, D])\n  loss: mean(Net(x))\n  optimizer: sgd(lr: 0.1)\n"
            "  B: 4\n  steps: 1\n}\n");
  const Output plan = run("run " + program + " --dry-run --json");
  ASSERT_EQ(plan.status, 0) << plan.err;
  const int64_t needed = json::parse(plan.out)["predicted_peak_bytes"];
  EXPECT_EQ(run("run " + program + " --budget " + std::to_string(needed)).status, 0);
  const Output under =
      run("run " + program + " --micro-batches 1 --budget " + std::to_string(needed - 1));
  EXPECT_EQ(under.status, 3);
  EXPECT_TRUE(contains(
      under.err, std::to_string(needed) + " B, the budget is " + std::to_string(needed - 1) + " B"))
      << under.err;
}

TEST_F(Commands, FlagsOfGenerate) {
  const std::string program = write("a.cad", kSmallProgram);
  for (const std::string flag :
       {"--temperature nan", "--temperature -1", "--temperature inf", "--temperature x",
        "--top-k 0", "--top-k -1", "--tokens -1", "--seed -1", "--seed x"}) {
    const Output output = run("generate " + program + " " + flag);
    EXPECT_EQ(output.status, 2) << flag << output.err;
    EXPECT_TRUE(contains(output.err, "error[E0503]")) << flag << output.err;
    EXPECT_TRUE(contains(output.err, flag.substr(0, flag.find(' ')))) << flag << output.err;
  }
}

// A seed is at least 0 wherever one is taken; -1 must not become 2^64 - 1.
TEST_F(Commands, NegativeSeeds) {
  const std::string program = write("a.cad", kSmallProgram);
  for (const std::string command : {"run a.cad", "eval a.cad", "predict a.cad --in x=a --out b"}) {
    const Output output = run(command + " --seed -1");
    EXPECT_EQ(output.status, 2) << command << output.err;
    EXPECT_TRUE(contains(output.err, "bad value of `--seed`: `-1` is below 0")) << output.err;
  }
}

// A text that is not UTF-8 has a place, in every format.
TEST_F(Commands, EncodingsHaveAPlace) {
  const std::string text = "dim B\nfn f(x: [B]) -> [B] { return x }\n";
  std::string little = "\xFF\xFE", big = "\xFE\xFF", bare;
  for (const char c : text) {
    little += {c, '\0'};
    big += {'\0', c};
    bare += {c, '\0'};
  }
  const std::vector<std::tuple<std::string, int, int>> cases = {
      {little, 1, 0}, {big, 1, 0}, {bare, 1, 1}, {"dim B\n# caf\xE9\n", 2, 11}};
  for (const auto& [bytes, line, offset] : cases) {
    write("a.cad", bytes);
    const Output human = run("check a.cad");
    EXPECT_EQ(human.status, 65);
    EXPECT_TRUE(contains(human.err, "in line " + std::to_string(line) + ", at byte offset " +
                                        std::to_string(offset)))
        << human.err;
    const Output machine = run("check a.cad --error-format=json");
    const json parsed = json::parse(machine.err)["diagnostics"][0];
    EXPECT_EQ(parsed["id"], "E0016");
    EXPECT_EQ(parsed["file"], "a.cad");
    EXPECT_EQ(parsed["line"], line);
    EXPECT_GE(parsed["column"], 1);
    EXPECT_EQ(contains(human.err, "it looks like UTF-16"), offset < 2) << human.err;
  }
  // Zero bytes alone are no UTF-16: the start of a safetensors file.
  write("a.cad", std::string("h\0\0\0\0\0\0\0{}", 10));
  EXPECT_FALSE(contains(run("check a.cad").err, "UTF-16"));
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
  const Output none = run("check " + write("good.cad", kSmallProgram) + " --error-format=json");
  EXPECT_EQ(none.status, 0);
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(json::parse(none.err)["schema"], 1);
  EXPECT_TRUE(json::parse(none.err)["diagnostics"].empty());
  const Output usage = run("check --nope --error-format=json");
  EXPECT_EQ(json::parse(usage.err)["diagnostics"][0]["id"], "E0502");
}

// Notes are facts, not diagnostics: beside them in JSON, with their place or null (the library).
TEST_F(Commands, NotesInJson) {
  write("rows.cad", R"(dim B, C = 4, E = 2
model Net(x: [B, C]) -> [B, E] {
  h = BatchNorm[C](x)
  return Linear[C -> E](h - mean[B](h))
}
train {
  data: synthetic(x: f32[B, C], y: i32[B])
  loss: cross_entropy[E](Net(x), y)
  optimizer: sgd(lr: 0.1)
  B: 4
  accumulate: 2
  steps: 2
}
)");
  const Output result = run("check rows.cad --json");
  EXPECT_EQ(result.status, 0) << result.out;
  const json document = json::parse(result.out);
  const json schema =
      json::parse(std::ifstream(std::string(COLAUTO_SOURCE_DIR) + "/docs/schema/check.json"));
  EXPECT_TRUE(fits(document, schema, schema)) << result.out;
  EXPECT_TRUE(document["diagnostics"].empty());
  ASSERT_EQ(document["notes"].size(), 2U) << result.out;
  EXPECT_TRUE(document["notes"][0]["line"].is_null());
  EXPECT_TRUE(contains(document["notes"][0]["text"], "`batch_norm` relates rows of the batch"));
  EXPECT_EQ(document["notes"][1]["file"], "rows.cad");
  EXPECT_EQ(document["notes"][1]["line"], 4);
  EXPECT_EQ(json::parse(run("check rows.cad --error-format=json").err)["notes"], document["notes"]);
  EXPECT_TRUE(json::parse(run("check rows.cad --json --set accumulate=1").out)["notes"].empty());
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
  for (const char* same : {"E0003", "E003", "003", "0003", "e3", "3"})
    EXPECT_EQ(run(std::string("explain ") + same).out, one.out) << same;
  EXPECT_TRUE(contains(run("explain l1").out, "L0001: ")) << run("explain l1").err;
  EXPECT_TRUE(contains(run("explain").out, "E0501"));
  const Output unknown = run("explain E9999");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_TRUE(contains(unknown.err, "E9999"));
  EXPECT_TRUE(contains(run("ops").out, "contract"));
  EXPECT_EQ(json::parse(run("ops contract --json").out)["ops"].size(), 1U);
  EXPECT_TRUE(contains(run("ops contrac").err, "did you mean `contract`?"));
  EXPECT_TRUE(contains(run("version").out, "colauto "));
  EXPECT_EQ(json::parse(run("version --json").out)["mpi"],
            contains(run("version").out, "MPI   yes"));
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
