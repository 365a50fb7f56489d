// tests/commands/run_ends_test.cc -- how a run ends and what its last lines say: signals while it
// evaluates, resumed runs, rows of an evaluation; and what of its flags and files is refused.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/commands/command_testing.h"

namespace cad {
namespace {

// `more`: what the section says beyond its batch size.
std::string program(const std::string& more) {
  return "dim B, D = 4\nmodel Net(x: [B, D]) -> [B, D] {\n  param w : [D] = ones\n  return x * "
         "w\n}\n"
         "train net {\n  data: csv(\"rows.csv\", x: f32[B, D])\n  loss: mean(Net(x) ^ 2)\n"
         "  optimizer: sgd(lr: 0.1)\n  B: 2\n" +
         more + "}\n";
}

class RunEnds : public Commands {
 protected:
  void SetUp() override {
    Commands::SetUp();
    write("rows.csv", "1,2,3,4\n5,6,7,8\n1,0,1,0\n2,2,2,2\n4,3,2,1\n");
  }
};

// An evaluation that would take minutes is left: the step before it is saved.
TEST_F(RunEnds, SignalsCutAnEvaluationShort) {
  write("net.cad", program("  steps: 3\n  eval { data: synthetic(x: f32[B, D]), every: 1, batches: "
                           "20000000 }\n  save { to: \"run\" }\n"));
  for (const char* devices : {"1", "2"}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (::chdir(folder_.c_str()) != 0) ::_exit(99);
      ::execl(COLAUTO_BINARY, "colauto", "run", "net.cad", "--devices", devices, "--overwrite",
              "--log", "log.jsonl", "--quiet", nullptr);
      ::_exit(98);
    }
    for (int i = 0; i < 1200 && !contains(read("log.jsonl"), "\"step\":1,"); ++i) ::usleep(50'000);
    ::usleep(200'000);
    ::kill(child, SIGTERM);
    int raw = 0;
    ::waitpid(child, &raw, 0);
    ASSERT_TRUE(WIFEXITED(raw));
    EXPECT_EQ(WEXITSTATUS(raw), 128 + SIGTERM);
    const std::string log = read("log.jsonl");
    EXPECT_FALSE(contains(log, R"("event":"eval")")) << log;
    EXPECT_TRUE(contains(log, R"("interrupted":"SIGTERM")")) << log;
    EXPECT_TRUE(std::filesystem::exists(folder_ / "run/step-000001/state.json"));
    std::filesystem::remove(folder_ / "log.jsonl");
  }
}

TEST_F(RunEnds, TheLastLineCountsTheStepsOfThisRun) {
  write("net.cad", program("  steps: 6\n  save { to: \"run\" }\n"));
  EXPECT_TRUE(contains(run("run net.cad --steps 3").err, "\n3 steps in "));
  EXPECT_TRUE(contains(run("run net.cad --steps 4 --resume").err, "\n1 step in "));
  const Output none = run("run net.cad --steps 2 --resume");
  EXPECT_EQ(none.status, 0);
  EXPECT_TRUE(contains(none.err, "\nno step made, 4 done before, peak ")) << none.err;
  EXPECT_TRUE(contains(run("run net.cad --overwrite --set B=1").err, ", 1 row a step, "));
}

// `batches` beyond the data do not count rows twice.
TEST_F(RunEnds, EvaluationsCountARowOnce) {
  write("net.cad", program("  steps: 1\n  eval { data: csv(\"rows.csv\", x: f32[B, D]) }\n"));
  const Output once = run("eval net.cad");
  EXPECT_TRUE(contains(once.out, "rows 5 ")) << once.out << once.err;
  for (const char* batches : {"3", "4", "1000000000000"})
    EXPECT_EQ(run(std::string("eval net.cad --set eval.batches=") + batches).out, once.out);
  EXPECT_TRUE(contains(run("eval net.cad --set eval.batches=1").out, "rows 2 "));
}

TEST_F(RunEnds, AMachineThatIsNotThereIsToldOnOneDeviceToo) {
  write("net.cad", program("  steps: 1\n"));
  const Output wrong = run("run net.cad --cluster nobody");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(contains(wrong.err, "error[E0804]")) << wrong.err;
  EXPECT_EQ(run("run net.cad --cluster dgx_a100").status, 0);
}

TEST_F(RunEnds, SaveFlagAndItsSettings) {
  write("net.cad", program("  steps: 3\n"));
  const Output saved = run("run net.cad --save here --set save.every=2");
  EXPECT_EQ(saved.status, 0) << saved.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "here/step-000002"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "here/step-000003"));
  EXPECT_EQ(run("run net.cad --set save.every=2").status, 2);
}

TEST_F(RunEnds, WholeNumbersAreNoWeights) {
  write("net.cad", program("  steps: 1\n"));
  for (const auto& [type, bytes] : std::vector<std::pair<std::string, size_t>>{
           {"I32", 16}, {"I8", 4}, {"U8", 4}, {"BOOL", 4}, {"I64", 32}, {"F32", 16}, {"F16", 8}}) {
    const std::string header = R"({"w":{"dtype":")" + type + R"(","shape":[4],"data_offsets":[0,)" +
                               std::to_string(bytes) + "]}}";
    std::string file(8, '\0');
    const uint64_t length = header.size();
    std::memcpy(file.data(), &length, 8);
    write("w.safetensors", file + header + std::string(bytes, '\0'));
    const Output loaded = run("run net.cad --init w.safetensors");
    EXPECT_EQ(loaded.status, type[0] == 'F' ? 0 : 1) << type;
    EXPECT_EQ(contains(loaded.err, "error[E0611]"), type[0] != 'F') << loaded.err;
  }
}

// Files without an end, or larger than memory, are not read to it.
TEST_F(RunEnds, AProgramHasABound) {
  write("huge.cad", "");
  std::filesystem::resize_file(folder_ / "huge.cad", uintmax_t{1} << 40);
  write("imports.cad", "import \"huge.cad\" as a\n");
  for (const char* file : {"huge.cad", "/dev/zero", "- < /dev/zero", "imports.cad"}) {
    const Output read = run(std::string("check ") + file, kSanitized ? "" : "ulimit -v 4000000; ");
    EXPECT_EQ(read.status, 66) << file << read.err;
    EXPECT_TRUE(contains(read.err, ": it is larger than 16 MiB")) << file << read.err;
  }
}

TEST_F(RunEnds, AProgramBeyondTheMemoryIsNoBug) {
  if (kSanitized) GTEST_SKIP() << "address space is no measure of memory under a sanitizer";
  std::string text = "dim N = 4\nmodel M(x: [N]) -> [N] {\n  return x";
  for (int i = 0; i < 300'000; ++i) text += " + x";
  write("long.cad", text + "\n}\n");
  const Output read = run("check long.cad", "ulimit -v 350000; ");
  EXPECT_EQ(read.status, 1) << read.err;
  EXPECT_TRUE(contains(read.err, "error[E0703]: not enough memory")) << read.err;
}

// Two runs at once would mix their checkpoints: the second one does not start. However the first
// one ends, the folder is free then.
TEST_F(RunEnds, AFolderIsOneRunsAtATime) {
  write("net.cad", program("  steps: 100000000\n  save { every: 1, keep: 2, to: \"here\" }\n"));
  for (const int signal : {SIGKILL, SIGTERM}) {
    const pid_t first = start({COLAUTO_BINARY, "run", "net.cad", "--quiet", "--overwrite"});
    const std::string own = "process " + std::to_string(first) + " on ";
    EXPECT_TRUE(wait_until([&] {
      return contains(read("here/.lock"), own) &&
             std::filesystem::exists(folder_ / "here/model.safetensors");
    }));
    for (const char* flags : {"", "--resume", "--overwrite", "--seed 5 --overwrite"}) {
      const Output second = run(std::string("run net.cad --quiet --steps 3 ") + flags);
      EXPECT_EQ(second.status, 1) << flags;
      EXPECT_TRUE(contains(second.err, "error[E0613]: another run is saving to `here`"))
          << second.err;
      EXPECT_TRUE(contains(second.err, "process " + std::to_string(first))) << second.err;
    }
    EXPECT_EQ(run("run net.cad --quiet --steps 3 --save there --overwrite").status, 0);
    ::kill(first, signal);
    EXPECT_EQ(status_of(first), 128 + signal);
    EXPECT_EQ(std::filesystem::exists(folder_ / "here/.lock"), signal == SIGKILL);
    const Output refused = run("run net.cad --quiet --steps 3");  // its checkpoints are there
    EXPECT_TRUE(contains(refused.err, "holds another run's checkpoints")) << refused.err;
    const Output more =
        run("run net.cad --quiet --resume --save here --set steps=100000000 --dry-run");
    EXPECT_EQ(more.status, 0) << more.err;
  }
  write("net.cad", program("  steps: 3\n  save { every: 1, keep: 2, to: \"here\" }\n"));
  EXPECT_EQ(run("run net.cad --quiet --overwrite").status, 0);
  EXPECT_EQ(run("run net.cad --quiet --resume --steps 3").status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "here/.lock"));
}

// What a terminal would obey is not printed.
TEST_F(RunEnds, FieldsAreShownWithoutControlCharacters) {
  write("net.cad", program("  steps: 1\n"));
  write("rows.csv", "1,2,3,4\n1,\x1b[2J\x07,3,4\n");
  const Output bad = run("run net.cad");
  EXPECT_EQ(bad.status, 1);
  EXPECT_TRUE(contains(bad.err, "line 2: field 2 is `?[2J?`, not a number")) << bad.err;
}

}  // namespace
}  // namespace cad
