// `colauto eval` on several devices, threads and ranks: the metrics of one device; and commands
// that run on one device say so. Evaluations within runs: run_devices_test.cc.
#include "tests/commands/faulty_runs.h"

namespace cad {
namespace {

class EvalDevices : public FaultyRuns {
 protected:
  void SetUp() override {
    FaultyRuns::SetUp();
    std::string program = kProgram;  // batches that do not fill up, a metric beside the loss
    const std::string eval = "eval { data: text(\"text.txt\"), every: 4, batches: 3 }";
    program.replace(program.find(eval), eval.size(),
                    "eval val { data: text(\"text.txt\"), metrics: (acc: "
                    "mean(f32(argmax[V](Net(x)) == y))) }\n"
                    "  eval few { data: text(\"text.txt\"), batches: 2 }");
    write("net.cad", program);
  }
  // The numbers of `eval --json`, by evaluation and metric.
  std::map<std::string, double> values(const Output& output) const {
    std::map<std::string, double> found;
    std::istringstream lines(output.out);
    for (std::string line; std::getline(lines, line);) {
      const json event = json::parse(line);
      for (const char* name : {"loss", "acc", "rows", "step"}) {
        if (event.contains(name))
          found[event["name"].get<std::string>() + "." + name] = event[name];
      }
    }
    return found;
  }
  void expect_equal(const Output& many, const std::map<std::string, double>& one,
                    const std::string& what) const {
    ASSERT_EQ(many.status, 0) << what << many.err;
    const std::map<std::string, double> got = values(many);
    ASSERT_EQ(got.size(), one.size()) << what << many.out;
    for (const auto& [name, value] : one)
      EXPECT_NEAR(got.at(name), value, 1e-5 * std::abs(value)) << what << ": " << name;
  }
};

TEST_F(EvalDevices, MetricsAreThoseOfOneDevice) {
  ASSERT_EQ(run("run net.cad --quiet --steps 4").status, 0);
  const Output alone = run("eval net.cad --json");
  ASSERT_EQ(alone.status, 0) << alone.err;
  const std::map<std::string, double> one = values(alone);
  ASSERT_EQ(one.size(), 7U) << alone.out;
  EXPECT_EQ(one.at("val.step"), 4);
  for (const char* flags : {"--devices 2", "--devices 3 --plan zero3", "--devices 4 --plan dp",
                            "--devices 4 --mesh dp=2,tp=2", "--devices 1 --plan single"}) {
    expect_equal(run(std::string("eval net.cad --json ") + flags), one, flags);
  }
  if (!have_mpi()) return;
  expect_equal(run_mpi(2, "eval net.cad --json --devices 4 --plan zero3"), one, "2 ranks");
  expect_equal(run_mpi(3, "eval net.cad --json"), one, "3 ranks");
  // ranks that differ, and what is not there
  const std::string eval = "eval net.cad --devices 2 --plan dp";
  expect_failed(run_two(eval, eval + " --set B=4"),
                {1, 2, {"error[E1002]: device 0 (rank 0) and device 1 (rank 1)"}});
  EXPECT_EQ(run("eval net.cad --devices 2 --init nobody").status, 66);
  EXPECT_EQ(run("eval net.cad --devices 2 --budget 1KiB").status, 3);
}

TEST_F(EvalDevices, CommandsOfOneDeviceSaySo) {
  for (const char* command : {"generate", "predict"}) {
    const std::string needed = std::string(command) == "predict" ? " --in x=x.npy --out y.npy" : "";
    const Output several = run(std::string(command) + " net.cad --devices 2" + needed);
    EXPECT_EQ(several.status, 2) << several.err;
    EXPECT_TRUE(contains(
        several.err, "error[E0504]: `" + std::string(command) + "` runs on one device, not on 2"))
        << several.err;
    if (!have_mpi()) continue;
    const Output ranks = run_mpi(2, std::string(command) + " net.cad" + needed);
    EXPECT_EQ(ranks.status, 2) << ranks.err;
    EXPECT_TRUE(contains(ranks.err, "runs on one device, not in 2 ranks")) << ranks.err;
  }
  EXPECT_EQ(run("generate net.cad --devices 1 --tokens 2").status, 0);
}

}  // namespace
}  // namespace cad
