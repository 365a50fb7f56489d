// tests/commands/model_states_test.cc -- bytes of a million parameters' states as the commands name
// them, item by item, beside the figures that follow from their number alone: what `plan` predicts
// for GPUs, what `run` lays out and then holds; and how far estimates are from what is held.
#include <iomanip>
#include <map>

#include <nlohmann/json.hpp>

#include "tests/commands/run_devices.h"

namespace cad {
namespace {

// A million parameters in `layers` uses of one square matrix.
std::string million(const std::string& optimizer, const std::string& more = "", int uses = 1) {
  std::string text =
      "dim B, D = 1000\nmodel Net(x: [B, D]) -> [B, D] {\n"
      "  use w = Linear[D -> D](bias: false)\n";
  for (int i = 0; i < uses; ++i) text += "  x = w(x)\n";
  return text +
         "  return x\n}\ntrain t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n"
         "  loss: mse(Net(x), y)\n  optimizer: " +
         optimizer + "\n  B: 4, steps: 1\n" + more + "}\n";
}

class ModelStates : public RunDevices {
 protected:
  json document(const std::string& command) const {
    const Output out = run(command + " --json");
    EXPECT_EQ(out.status, 0) << command << "\n" << out.err;
    const json read = json::parse(out.out, nullptr, false);
    return read.is_object() ? read : json::object();
  }
};

// Per device: parameters, gradients, optimizer states. 32 bits: 16 bytes a parameter, or a fourth.
// Where products are of 16 bits what is computed with is a copy of 2 bytes more, and the 32 bits
// lie with the optimizer's states; gradients are summed in 32 bits and have no other copy: 18
// bytes, of which all but the copy is divided. SGD without momentum has no states: 8 bytes.
TEST_F(ModelStates, ArePlannedItemByItem) {
  struct Row {
    const char *optimizer, *more, *plan;
    int devices;
    double parameters, gradients, states;
  };
  for (const Row& row : {Row{"adamw(lr: 1e-3)", "", "single", 1, 4e6, 4e6, 8e6},
                         Row{"adamw(lr: 1e-3)", "", "dp", 4, 4e6, 4e6, 8e6},
                         Row{"adamw(lr: 1e-3)", "", "zero3", 4, 1e6, 1e6, 2e6},
                         Row{"adamw(lr: 1e-3)", "  precision: bf16\n", "single", 1, 6e6, 4e6, 8e6},
                         Row{"adamw(lr: 1e-3)", "  precision: bf16\n", "zero2", 4, 3e6, 1e6, 2e6},
                         Row{"sgd(lr: 1e-3)", "", "single", 1, 4e6, 4e6, 0},
                         Row{"sgd(lr: 1e-3)", "", "dp", 4, 4e6, 4e6, 0}}) {
    const std::string what = std::string(row.optimizer) + row.more + row.plan;
    write("net.cad", million(row.optimizer, row.more));
    const json predicted =
        document("plan net.cad --cluster dgx_a100 --gpus " + std::to_string(row.devices) +
                 " --plan " + row.plan)["predicted"];
    EXPECT_EQ(predicted["params_bytes"], row.parameters) << what;
    EXPECT_EQ(predicted["grads_bytes"], row.gradients) << what;
    EXPECT_EQ(predicted["optimizer_bytes"], row.states) << what;
    EXPECT_EQ(predicted["peak_bytes"], row.parameters + row.gradients + row.states +
                                           predicted["activation_bytes"].get<double>() +
                                           predicted["transient_bytes"].get<double>())
        << what;
    if (row.plan == std::string("zero3")) {
      EXPECT_GE(predicted["transient_bytes"], 4e6) << "the gathered matrix";
    }
  }
}

// The same of runs: as planned for this host, as laid out, and as measured. A matrix that is used
// twice is held once. Here the 32 bits lie with the parameters, and the copy of 16 bits is there
// while it is read.
TEST_F(ModelStates, AreHeldItemByItem) {
  struct Row {
    const char *optimizer, *more;
    int uses;
    const char* plan;
    int devices;
    int64_t parameters, gradients, states;
  };
  const char* const halves = "  precision: bf16\n";
  constexpr int64_t kM = 1'000'000;
  for (const Row& row : {Row{"adamw(lr: 1e-3)", "", 1, "single", 1, 4 * kM, 4 * kM, 8 * kM},
                         Row{"adamw(lr: 1e-3)", "", 1, "dp", 4, 4 * kM, 4 * kM, 8 * kM},
                         Row{"adamw(lr: 1e-3)", "", 1, "zero3", 4, kM, kM, 2 * kM},
                         Row{"adamw(lr: 1e-3)", "", 2, "dp", 2, 4 * kM, 4 * kM, 8 * kM},
                         Row{"adamw(lr: 1e-3)", halves, 1, "single", 1, 4 * kM, 4 * kM, 8 * kM},
                         Row{"adamw(lr: 1e-3)", halves, 1, "zero2", 4, 4 * kM, kM, 2 * kM},
                         Row{"sgd(lr: 1e-3)", "", 1, "dp", 4, 4 * kM, 4 * kM, 0}}) {
    const bool half = row.more == halves;
    const std::string what =
        std::string(row.optimizer) + row.more + row.plan + std::to_string(row.uses);
    write("net.cad", million(row.optimizer, row.more, row.uses));
    const std::string flags =
        " net.cad --devices " + std::to_string(row.devices) + " --plan " + row.plan;
    const std::string command = "run" + flags;
    const json planned = document("plan" + flags)["predicted"];
    EXPECT_EQ(planned["params_bytes"], row.parameters) << what;
    EXPECT_EQ(planned["grads_bytes"], row.gradients) << what;
    EXPECT_EQ(planned["optimizer_bytes"], row.states) << what;
    const json laid = document(command + " --dry-run");
    EXPECT_EQ(laid["params"], 1'000'000) << what;
    EXPECT_EQ(laid["parameter_bytes"], row.parameters) << what;
    EXPECT_EQ(laid["gradient_bytes"], row.gradients) << what;
    EXPECT_EQ(laid["optimizer_bytes"], row.states) << what;
    EXPECT_EQ(laid["predicted_peak_bytes"],
              row.parameters + row.gradients + row.states + laid["step_bytes"].get<int64_t>())
        << what;
    if (row.plan == std::string("zero3")) {
      EXPECT_GE(laid["step_bytes"], 4'000'000) << "the gathered matrix";
    }
    if (half) {
      EXPECT_GE(laid["step_bytes"], 2'000'000) << "the copy that is computed with";
    }
    std::filesystem::remove(folder_ / "log.jsonl");
    ASSERT_EQ(run(command + " --quiet --log log.jsonl").status, 0) << what;
    const json end = events("log.jsonl", "end").at(0);
    ASSERT_EQ(end["peak_bytes"].size(), static_cast<size_t>(row.devices));
    for (const json& peak : end["peak_bytes"])
      EXPECT_EQ(peak, laid["predicted_peak_bytes"]) << what;
  }
}

// Layers whose activations are most of the memory, and layers whose weights are.
std::string layers(int count, int width, int batch) {
  return "dim B, D = " + std::to_string(width) + "\nmodel Net(x: [B, D]) -> [B, D] {\n  repeat " +
         std::to_string(count) +
         " { x = relu(Linear[D -> D](x)) }\n  return x\n}\ntrain t {\n"
         "  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
         "  optimizer: sgd(lr: 1e-3)\n  B: " +
         std::to_string(batch) + ", steps: 1\n}\n";
}

// What `cost` and `plan` say without running anything is within a tenth of what is then held; of
// states in parts it halves with twice the devices.
TEST_F(ModelStates, EstimatesAreWithinATenth) {
  struct Row {
    int count, width, batch;
  };
  for (const Row& row : {Row{8, 64, 4096}, Row{2, 2048, 1}}) {
    write("net.cad", layers(row.count, row.width, row.batch));
    std::map<std::string, double> measured;
    for (const auto& [plan, devices] : std::vector<std::pair<std::string, int>>{
             {"single", 1}, {"dp", 2}, {"zero3", 2}, {"zero3", 4}}) {
      const std::string flags = " --devices " + std::to_string(devices) + " --plan " + plan;
      const std::string what = std::to_string(row.width) + flags;
      const json said = document("plan net.cad" + flags)["predicted"];
      std::filesystem::remove(folder_ / "log.jsonl");
      ASSERT_EQ(run("run net.cad --quiet --log log.jsonl" + flags).status, 0) << what;
      const json peaks = events("log.jsonl", "end").at(0)["peak_bytes"];
      ASSERT_EQ(peaks.size(), static_cast<size_t>(devices)) << what;
      for (const json& peak : peaks) {
        EXPECT_NEAR(said["peak_bytes"], peak.get<double>(), 0.1 * peak.get<double>()) << what;
      }
      measured[plan + std::to_string(devices)] = peaks[0];
      const double states = said["params_bytes"].get<double>() + said["grads_bytes"].get<double>() +
                            said["optimizer_bytes"].get<double>();
      EXPECT_EQ(said["activation_bytes"] > states, row.batch > 1) << what;
    }
    const double cost = document("cost net.cad")["total"]["peak_bytes"];
    EXPECT_NEAR(cost, measured["single1"], 0.1 * measured["single1"]);
    EXPECT_LT(measured["zero34"], 0.75 * measured["zero32"]) << row.width;
  }
}

// Ten rows on four devices are 3, 3, 3 and 1: what is said, and what a budget is of, is one device,
// and never the sum of all.
TEST_F(ModelStates, AreOfOneDevice) {
  write("net.cad", layers(3, 64, 10));
  const std::string command = "run net.cad --devices 4 --plan dp --micro-batches 1";
  const int64_t peak = document(command + " --dry-run")["predicted_peak_bytes"];
  const double even = document(command + " --dry-run --set B=12")["predicted_peak_bytes"];
  EXPECT_NEAR(static_cast<double>(peak), even, 0.005 * even);
  EXPECT_LT(document(command + " --dry-run --set B=8")["predicted_peak_bytes"], peak);
  const Output out = run(command + " --log log.jsonl --budget " + std::to_string(peak) + "B");
  ASSERT_EQ(out.status, 0) << out.err;
  const json end = events("log.jsonl", "end").at(0);
  expect_peaks(end, 4);
  EXPECT_EQ(end["predicted_peak_bytes"], peak);
  std::ostringstream kib;
  kib << std::fixed << std::setprecision(1) << static_cast<double>(peak) / 1024 << " KiB";
  const std::string one = kib.str();
  EXPECT_TRUE(contains(out.err, one + " on each of 4 devices")) << out.err;
  EXPECT_TRUE(contains(out.err, ", peak " + one + "\n")) << out.err;
}

}  // namespace
}  // namespace cad
