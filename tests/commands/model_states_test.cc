// tests/commands/model_states_test.cc -- bytes of a million parameters' states as the commands name
// them, item by item, beside the figures that follow from their number alone: what `plan` predicts
// for GPUs, what `run` lays out and then holds.
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

// The same of runs: as laid out, and as measured. A matrix that is used twice is held once.
TEST_F(ModelStates, AreHeldItemByItem) {
  struct Row {
    const char* optimizer;
    int uses;
    const char* plan;
    int devices;
    int64_t parameters, gradients, states;
  };
  for (const Row& row : {Row{"adamw(lr: 1e-3)", 1, "single", 1, 4'000'000, 4'000'000, 8'000'000},
                         Row{"adamw(lr: 1e-3)", 1, "dp", 4, 4'000'000, 4'000'000, 8'000'000},
                         Row{"adamw(lr: 1e-3)", 1, "zero3", 4, 1'000'000, 1'000'000, 2'000'000},
                         Row{"adamw(lr: 1e-3)", 2, "dp", 2, 4'000'000, 4'000'000, 8'000'000},
                         Row{"sgd(lr: 1e-3)", 1, "dp", 4, 4'000'000, 4'000'000, 0}}) {
    const std::string what = std::string(row.optimizer) + row.plan + std::to_string(row.uses);
    write("net.cad", million(row.optimizer, "", row.uses));
    const std::string command =
        "run net.cad --devices " + std::to_string(row.devices) + " --plan " + row.plan;
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
    std::filesystem::remove(folder_ / "log.jsonl");
    ASSERT_EQ(run(command + " --quiet --log log.jsonl").status, 0) << what;
    const json end = events("log.jsonl", "end").at(0);
    ASSERT_EQ(end["peak_bytes"].size(), static_cast<size_t>(row.devices));
    for (const json& peak : end["peak_bytes"])
      EXPECT_EQ(peak, laid["predicted_peak_bytes"]) << what;
  }
}

}  // namespace
}  // namespace cad
