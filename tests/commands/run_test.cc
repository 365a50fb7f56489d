// run, eval, predict, generate and params as a user sees them: streams, files, statuses.
#include <algorithm>
#include <cstring>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/commands/command_testing.h"
#include "tests/commands/json_schema.h"
#include "tests/npy_file.h"

namespace cad {
namespace {

using nlohmann::json;

const char* const kProgram = R"(dim B, T = 8, V = 256, D = 8
model Net(x: i32[B, T]) -> [B, T, V] {
  param e : [V, D] = normal(0.1)
  return e[V = x] @[D] e
}
train net {
  data:      text("text.txt", x: i32[B, T], y: i32[B, T])
  loss:      cross_entropy[V](Net(x), y)
  optimizer: adamw(lr: cosine(1e-2, warmup: 2))
  B: 4, steps: 12, seed: 3
  eval { data: text("text.txt"), every: 6, metrics: (acc: mean(f32(argmax[V](Net(x)) == y))) }
  save { to: "runs/net", every: 5, keep: 2, best: min(loss) }
}
)";

class RunCommand : public Commands {
 protected:
  void SetUp() override {
    Commands::SetUp();
    write("net.cad", kProgram);
    std::string text;
    for (int i = 0; i < 60; ++i) text += "the quick brown fox " + std::to_string(i % 7) + "\n";
    write("text.txt", text);
  }
  std::vector<json> events(const std::string& name) const {
    std::vector<json> list;
    std::istringstream lines(read(name));
    for (std::string line; std::getline(lines, line);) list.push_back(json::parse(line));
    return list;
  }
};

TEST_F(RunCommand, LogFitsItsSchemaAndStreamsAreSeparate) {
  const Output run = this->run("run net.cad --log log.jsonl");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err.find('\r'), std::string::npos);
  EXPECT_TRUE(contains(run.err, "step 12/12  loss ")) << run.err;
  const json schema =
      json::parse(std::ifstream(std::string(COLAUTO_SOURCE_DIR) + "/docs/schema/run-log.json"));
  const std::vector<json> log = events("log.jsonl");
  for (const json& event : log) EXPECT_TRUE(fits(event, schema, schema)) << event;
  EXPECT_FALSE(fits(json::parse(R"({"event":"step","step":1})"), schema, schema));
  EXPECT_FALSE(fits(json::parse(R"({"event":"other"})"), schema, schema));
  EXPECT_EQ(log.front()["event"], "start");
  EXPECT_EQ(log.front()["params"], 2048);
  EXPECT_EQ(log.back()["event"], "end");
  EXPECT_EQ(log.back()["peak_bytes"][0], log.back()["predicted_peak_bytes"]);
  int evals = 0;
  for (const json& event : log) evals += event["event"] == "eval" ? 1 : 0;
  EXPECT_EQ(evals, 2);
  std::set<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "runs/net"))
    folders.insert(entry.path().filename().string());
  EXPECT_EQ(folders,
            (std::set<std::string>{"best", "model.safetensors", "step-000010", "step-000012"}));
}

TEST_F(RunCommand, JsonGoesToStdoutAndQuietIsQuiet) {
  const Output run = this->run("run net.cad --json --quiet --steps 2 --save elsewhere");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(json::parse(run.out.substr(0, run.out.find('\n')))["event"], "start");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "elsewhere/step-000002"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
}

TEST_F(RunCommand, ResumedLossesAreThoseOfOneRun) {
  ASSERT_EQ(run("run net.cad --quiet --log through.jsonl --save through").status, 0);
  ASSERT_EQ(run("run net.cad --quiet --log parts.jsonl --steps 7").status, 0);
  const Output refused = run("run net.cad --quiet");
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.err, "error[E0613]")) << refused.err;
  ASSERT_EQ(run("run net.cad --quiet --log parts.jsonl --resume").status, 0);
  const auto steps = [&](const std::string& name) {
    std::vector<json> list;
    for (json event : events(name)) {
      if (event["event"] != "step") continue;
      event.erase("ms");
      event.erase("tokens_per_s");
      list.push_back(event);
    }
    return list;
  };
  EXPECT_EQ(steps("through.jsonl"), steps("parts.jsonl"));
  EXPECT_EQ(read("through/step-000012/model.safetensors"),
            read("runs/net/step-000012/model.safetensors"));
  EXPECT_EQ(read("through/step-000012/optimizer.safetensors"),
            read("runs/net/step-000012/optimizer.safetensors"));
  ASSERT_EQ(run("run net.cad --quiet --overwrite --steps 3").status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs/net/step-000012"));
}

TEST_F(RunCommand, SignalsFinishTheStepAndSave) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const json end =
        json::parse(interrupted({COLAUTO_BINARY, "run", "net.cad", "--set", "steps=100000000",
                                 "--overwrite", "--log", "log.jsonl", "--quiet"},
                                signal));
    EXPECT_EQ(end["interrupted"], signal == SIGINT ? "SIGINT" : "SIGTERM");
    EXPECT_TRUE(std::filesystem::exists(folder_ / checkpoint_of(end))) << end;
    std::filesystem::remove(folder_ / "log.jsonl");
  }
}

TEST_F(RunCommand, FlagsThatCannotBe) {
  EXPECT_EQ(run("run net.cad --devices 2 --mesh dp=3").status, 2);
  EXPECT_EQ(run("run net.cad --devices 2 --plan nobody").status, 2);
  EXPECT_EQ(run("run net.cad --budget lots").status, 2);
  const Output budget = run("run net.cad --budget 1KiB");
  EXPECT_EQ(budget.status, 3);
  EXPECT_TRUE(contains(budget.err, "error[E0703]: the run needs ")) << budget.err;
  for (const char* flags : {"--log /nowhere/log.jsonl", "--log /nowhere/log.jsonl --dry-run",
                            "--trace /nowhere/trace.json"}) {
    const Output unwritable = run(std::string("run net.cad ") + flags);
    EXPECT_EQ(unwritable.status, 1) << flags;
    EXPECT_TRUE(contains(unwritable.err, "error[E0602]: cannot write `/nowhere/")) << flags;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));  // found before the first step
  const Output both = run("run net.cad --resume --overwrite");
  EXPECT_EQ(both.status, 2);
  EXPECT_TRUE(contains(both.err, "`--resume`") && contains(both.err, "`--overwrite`")) << both.err;
  EXPECT_EQ(run("run net.cad --init nobody.safetensors").status, 66);
}

TEST_F(RunCommand, DryRunStartsNothing) {
  const Output dry = run("run net.cad --dry-run");
  ASSERT_EQ(dry.status, 0) << dry.err;
  EXPECT_EQ(run("run net.cad --dry-run --log log.jsonl").status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "log.jsonl"));
  EXPECT_TRUE(contains(dry.out, "parameters  2048 in 1 tensors")) << dry.out;
  EXPECT_TRUE(contains(dry.out, "steps       12"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
  EXPECT_EQ(json::parse(run("run net.cad --dry-run --json").out)["rows_per_step"], 4);
}

TEST_F(RunCommand, EvalGenerateParams) {
  ASSERT_EQ(run("run net.cad --quiet --log log.jsonl").status, 0);
  json last;
  for (const json& event : events("log.jsonl")) {
    if (event["event"] == "eval") last = event;
  }
  const Output eval = run("eval net.cad --json");
  ASSERT_EQ(eval.status, 0) << eval.err;
  json event = json::parse(eval.out);
  EXPECT_EQ(event["loss"], last["loss"]);
  EXPECT_EQ(event["acc"], last["acc"]);
  EXPECT_EQ(event["rows"], last["rows"]);
  EXPECT_EQ(event["step"], 12);
  EXPECT_EQ(json::parse(run("eval net.cad --json --init runs/net/step-000010").out)["step"], 10);
  const std::string flags = "generate net.cad --prompt 'the ' --tokens 40 --seed 5";
  const Output one = run(flags), two = run(flags), other = run(flags + "1");
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(one.out.size(), 4U + 40 + 1);
  EXPECT_EQ(one.out, two.out);
  EXPECT_NE(one.out, other.out);
  const Output likeliest = run("generate net.cad --tokens 5 --temperature 0 --init runs/net/best");
  EXPECT_EQ(likeliest.status, 0) << likeliest.err;
  const Output params = run("params net.cad --init runs/net");
  EXPECT_EQ(params.out,
            "e     [V, D]  [256, 8]        2048  adamw, decays  file\n2048 parameters\n")
      << params.out;
}

// H15: a weight that is read in two places has one name and is saved under it once. A file that has
// it under another name fills nothing and says so; one that has both fills it from its own name and
// says what is left; a checkpoint without it is none.
TEST_F(RunCommand, ATiedWeightHasOneName) {
  const auto file = [&](const std::vector<std::pair<std::string, float>>& tensors) {
    json header = json::object();
    std::string bytes;
    for (const auto& [name, value] : tensors) {
      const std::vector<float> values(size_t{256} * 8, value);
      const size_t from = bytes.size();
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      header[name] = {
          {"dtype", "F32"}, {"shape", {256, 8}}, {"data_offsets", {from, bytes.size()}}};
    }
    const std::string text = header.dump();
    std::string length(8, '\0');
    const uint64_t size = text.size();
    std::memcpy(length.data(), &size, 8);
    return length + text + bytes;
  };
  ASSERT_EQ(run("run net.cad --quiet --steps 3 --save one").status, 0);
  const std::string saved = read("one/model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, saved.data(), 8);
  const json header = json::parse(saved.substr(8, length));
  EXPECT_EQ(header.size() - header.count("__metadata__"), 1U) << header;
  EXPECT_EQ(header.count("e"), 1U) << header;
  const std::string start = "run net.cad --quiet --overwrite --steps 0 --save n --init ";
  const auto values = [&] {
    const std::string model = read("n/step-000000/model.safetensors");
    return model.substr(model.size() - 256 * 8 * sizeof(float));
  };
  const Output again = run(start + "one");
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.err, "");
  EXPECT_EQ(values(), saved.substr(saved.size() - 256 * 8 * sizeof(float)));
  write("w.safetensors", file({{"head.weight", 2.0F}}));
  const Output other = run(start + "w.safetensors");
  EXPECT_EQ(other.status, 1) << other.err;
  EXPECT_TRUE(contains(other.err, "error[E0612]") && contains(other.err, "`head.weight`") &&
              contains(other.err, "first path is `e`"))
      << other.err;
  write("w.safetensors", file({{"e", 1.0F}, {"head.weight", 2.0F}}));
  const Output both = run(start + "w.safetensors");
  EXPECT_EQ(both.status, 0) << both.err;
  EXPECT_TRUE(contains(both.err, "warning[W0061]") &&
              contains(both.err, "1 of the file are dropped: `head.weight`"))
      << both.err;
  const std::vector<float> ones(size_t{256} * 8, 1.0F);
  EXPECT_TRUE(values() ==
              std::string(reinterpret_cast<const char*>(ones.data()), ones.size() * sizeof(float)));
  write("one/step-000003/model.safetensors", file({{"head.weight", 2.0F}}));
  const Output resumed = run("run net.cad --quiet --resume --save one");
  EXPECT_EQ(resumed.status, 1) << resumed.err;
  EXPECT_TRUE(contains(resumed.err, "error[E0615]") && contains(resumed.err, "has no tensor `e`"))
      << resumed.err;
}

TEST_F(RunCommand, PredictWritesRows) {
  write("linear.cad",
        "dim B, D = 3\nmodel Net(x: [B, D]) -> ([B], [B, D]) {\n  param w : [D] = constant(2)\n  "
        "return x @[D] w, x * w\n}\n");
  std::vector<float> values;
  for (int i = 0; i < 900; ++i) values.push_back(static_cast<float>(i));
  write("x.npy", npy_file({300, 3}, values));
  const Output predict = run("predict linear.cad --in x=x.npy --out sums.npy --out rows.npy");
  ASSERT_EQ(predict.status, 0) << predict.err;
  const std::string sums = read("sums.npy");
  ASSERT_EQ(sums.size(), 128U + 1200);
  float last = 0;
  std::memcpy(&last, sums.data() + sums.size() - 4, 4);
  EXPECT_EQ(last, 2.0F * (897 + 898 + 899));
  EXPECT_TRUE(contains(predict.err, "rows.npy: [300, 3]")) << predict.err;
  EXPECT_EQ(run("predict linear.cad --in y=x.npy --out o.npy").status, 2);
  const Output twice = run("predict linear.cad --in x=x.npy --in x=x.npy --out o.npy");
  EXPECT_EQ(twice.status, 2);
  EXPECT_TRUE(contains(twice.err, "`x` has a file already")) << twice.err;
  const Output nowhere = run("predict linear.cad --in x=x.npy --out /nowhere/o.npy");
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_TRUE(contains(nowhere.err, "error[E0602]")) << nowhere.err;
  EXPECT_EQ(run("predict linear.cad --in x=none.npy --out o.npy").status, 66);
}

}  // namespace
}  // namespace cad
