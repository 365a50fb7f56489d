// tests/commands/micro_batches_test.cc -- micro-batches that are read in parts where memory is
// short, as a user meets them: what `plan`, `run` and their JSON say, budgets one after the other,
// saved plans, resuming, --micro-batches, programs that never split. The arithmetic:
// tests/training/split_rows_test.cc.
#include <cmath>

#include <nlohmann/json.hpp>

#include "tests/commands/command_testing.h"
#include "tests/commands/json_schema.h"
#include "tests/commands/run_devices.h"

namespace cad {
namespace {

// A step's memory is mostly what grows with the batch: logits of 16 x 32 rows over 257 words.
const std::string kWide = std::string(kUnevenModel) + R"(train net {
  data:      text("text.txt", x: i32[B, T], y: i32[B, T])
  loss:      cross_entropy[V](Net(x), y)
  optimizer: adamw(lr: 1e-2)
  T: 32, B: 16, steps: 4, seed: 3
  eval { data: text("text.txt"), batches: 2 }
  save { to: "runs/net", every: 2 }
}
)";

class MicroBatches : public RunDevices {
 protected:
  void SetUp() override {
    RunDevices::SetUp();
    write("net.cad", kWide);
  }
  json dry_run(const std::string& flags) const {
    const Output out = run("run net.cad --dry-run --json " + flags);
    EXPECT_EQ(out.status, 0) << flags << out.err;
    return out.status == 0 ? json::parse(out.out) : json();
  }
  static std::string bytes(double count) {
    return " --budget " + std::to_string(static_cast<int64_t>(count)) + "B ";
  }
};

TEST_F(MicroBatches, AreFoundPlannedAndRun) {
  ASSERT_EQ(run("run net.cad --quiet --log whole.jsonl --save whole --plan single").status, 0);
  const json whole = dry_run("");
  EXPECT_EQ(whole["micro_batches"], 1);
  const double rest = whole["step_bytes"];
  const double state = whole["predicted_peak_bytes"].get<double>() - rest;
  for (const char* devices : {"1", "2"}) {
    const std::string budget =
        std::string("--devices ") + devices + bytes(state / std::stod(devices) + 0.3 * rest);
    const Output planned = run("plan net.cad --json " + budget);
    ASSERT_EQ(planned.status, 0) << planned.err;
    const json plan = json::parse(planned.out);
    EXPECT_TRUE(fits_schema(plan, "plan"));
    write("plan.json", planned.out);
    for (const std::string& flags : {budget, budget + "--plan plan.json"}) {
      const Output out = run("run net.cad --log parts.jsonl --save parts --overwrite " + flags);
      ASSERT_EQ(out.status, 0) << flags << out.err;
      expect_close(losses("parts.jsonl"), losses("whole.jsonl"), flags);
      expect_close(losses("parts.jsonl", "eval"), losses("whole.jsonl", "eval"), flags);
      const json start = events("parts.jsonl", "start")[0], end = events("parts.jsonl", "end")[0];
      EXPECT_TRUE(fits_schema(start, "run-log"));
      EXPECT_EQ(start["micro_batches"], plan["micro_batches"]) << flags;
      EXPECT_EQ(events("parts.jsonl", "eval")[0]["rows"], 32);
      expect_peaks(end, std::stoi(devices), flags);
      if (std::string(devices) == "2") continue;
      EXPECT_GT(start["micro_batches"], 1) << flags;
      const std::string text =
          "16 rows a step in " + start["micro_batches"].dump() + " micro-batches of ";
      EXPECT_NE(out.err.find(text), std::string::npos) << out.err;
    }
  }
}

// Resuming does not ask how the rows were read, in either direction.
TEST_F(MicroBatches, CheckpointsDoNotTell) {
  ASSERT_EQ(run("run net.cad --quiet --log whole.jsonl --save whole").status, 0);
  const std::vector<double> whole = losses("whole.jsonl");
  for (const char* first : {"1", "4"}) {
    const std::string then = std::string(first) == "1" ? "4" : "1";
    ASSERT_EQ(run("run net.cad --quiet --overwrite --steps 2 --save parts --micro-batches " +
                  std::string(first))
                  .status,
              0);
    const Output more =
        run("run net.cad --resume --log parts.jsonl --save parts --micro-batches " + then);
    ASSERT_EQ(more.status, 0) << more.err;
    EXPECT_EQ(more.err.find("warning"), std::string::npos) << more.err;
    expect_close(losses("parts.jsonl"), {whole[2], whole[3]}, first);
    std::filesystem::remove(folder_ / "parts.jsonl");
  }
}

TEST_F(MicroBatches, LessMemoryIsNeverFaster) {
  const json whole = dry_run("");
  const double rest = whole["step_bytes"];
  const double state = whole["predicted_peak_bytes"].get<double>() - rest;
  double last = 0;
  std::string most;
  for (const double part : {1.05, 0.8, 0.6, 0.45, 0.3, 0.2, 0.12}) {
    const Output out = run("plan net.cad --devices 1 --json" + bytes(state + part * rest));
    ASSERT_EQ(out.status, 0) << part << out.err;
    const json plan = json::parse(out.out);
    EXPECT_LE(plan["predicted"]["peak_bytes"], state + part * rest);
    EXPECT_GE(plan["predicted"]["step_s"].get<double>(), last) << part;
    last = plan["predicted"]["step_s"];
    most = plan["micro_batches"].dump();
  }
  EXPECT_GT(std::stod(most), 1);
}

// What is named as the least budget counts them, and trains, on one device and on several; from it
// on a little less is told the same.
TEST_F(MicroBatches, TheLeastBudgetTrains) {
  const json whole = dry_run("");
  const double rest = whole["step_bytes"];
  const double state = whole["predicted_peak_bytes"].get<double>() - rest;
  for (const char* devices : {"1", "2", "4"}) {
    const std::string on = std::string("net.cad --devices ") + devices;
    const Output none = run("plan " + on + " --budget 1KiB");
    ASSERT_EQ(none.status, 3);
    const size_t at = none.err.find(" bytes)");
    ASSERT_NE(at, std::string::npos) << none.err;
    const double least = std::stod(none.err.substr(none.err.rfind('(', at) + 1));
    EXPECT_LT(least, state / std::stod(devices) + 0.12 * rest) << none.err;
    const Output just = run("run " + on + " --quiet --steps 1 --overwrite --save least --log " +
                            devices + ".jsonl" + bytes(least));
    EXPECT_EQ(just.status, 0) << devices << just.err;
    const json end = events(std::string(devices) + ".jsonl", "end")[0];
    EXPECT_LE(end["predicted_peak_bytes"].get<double>(), least);
    expect_peaks(end, std::stoi(devices));
  }
}

TEST_F(MicroBatches, AFlagSaysHowMany) {
  EXPECT_EQ(dry_run("--micro-batches 4")["micro_batches"], 4);
  EXPECT_EQ(dry_run("--micro-batches 4 --set accumulate=2")["micro_batches"], 8);
  EXPECT_EQ(dry_run("--micro-batches 2 --devices 2 --plan dp")["micro_batches"], 2);
  const json whole = dry_run("");
  const double peak = whole["predicted_peak_bytes"], rest = whole["step_bytes"];
  const std::string little = bytes(peak - 0.7 * rest) + "--devices 1 ";
  EXPECT_EQ(run("plan net.cad " + little).status, 0);
  EXPECT_EQ(run("plan net.cad --micro-batches 1 --set T=31 --plan single " + little).status, 3);
  const Output text = run("plan net.cad --devices 1 --micro-batches 4");
  EXPECT_NE(text.out.find("4 micro-batches of 4 rows"), std::string::npos) << text.out;
  const auto plan_line = [&](const std::string& flags) {
    const std::string out = run("run net.cad --dry-run " + flags).out;
    const size_t at = out.find("plan        ");
    return at == std::string::npos ? out : out.substr(at + 12, out.find('\n', at) - at - 12);
  };
  EXPECT_EQ(plan_line(""), "one device, nothing is split");
  EXPECT_EQ(plan_line("--micro-batches 4"), "one device, each micro-batch in 4 parts");
  EXPECT_EQ(plan_line("--micro-batches 2 --devices 2 --plan dp"),
            "dp: 2 devices, mesh x=2, each micro-batch in 2 parts");
  const std::string found = plan_line(little);
  EXPECT_EQ(found.rfind("auto: one device, each micro-batch in ", 0), 0U) << found;
  const auto refused = [&](const std::string& flags, const std::string& part) {
    const Output out = run("run net.cad --dry-run " + flags);
    EXPECT_EQ(out.status, 2) << flags << out.err;
    EXPECT_NE(out.err.find(part), std::string::npos) << out.err;
  };
  refused("--micro-batches 3", "16 rows are not so many equal parts");
  refused("--micro-batches 0", "below 1");
}

// Batch norm sees its micro-batch: whatever the budget, that is the program's.
TEST_F(MicroBatches, RowsThatMeetAreNotParted) {
  write("net.cad", R"(dim B, D = 8, F = 64, L = 6
model Net(x: [B, D]) -> [B, D] {
  repeat L as h { x = x + Linear[F -> D](relu(BatchNorm[F](Linear[D -> F](x)))) }
  return x
}
train net {
  data: synthetic(x: f32[B, D], y: f32[B, D])
  loss: mse(Net(x), y)
  optimizer: adam(lr: 1e-3)
  B: 1024, steps: 1, seed: 2
}
)");
  const json whole = dry_run("");
  const double peak = whole["predicted_peak_bytes"], rest = whole["step_bytes"];
  const Output less = run("plan net.cad --json --devices 1" + bytes(peak - 0.3 * rest));
  ASSERT_EQ(less.status, 0) << less.err;
  EXPECT_EQ(json::parse(less.out)["micro_batches"], 1);
  EXPECT_GT(json::parse(less.out)["predicted"]["recompute_s"], 0);
  EXPECT_EQ(run("plan net.cad --devices 1" + bytes(peak - 0.95 * rest)).status, 3);
  const Output asked = run("run net.cad --dry-run --micro-batches 4");
  EXPECT_EQ(asked.status, 2);
  EXPECT_NE(asked.err.find("E0503"), std::string::npos) << asked.err;
}

}  // namespace
}  // namespace cad
