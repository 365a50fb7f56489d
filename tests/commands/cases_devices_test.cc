// Cases that users of other tools met, as whole runs by threads and by ranks: sums of micro-batches
// and of shards (H1), ids of more than 16 bits (H5), budgets from ample down to the least (F3),
// models that are too small to be split (J5). Within one process: tests/training.
#include "tests/commands/faulty_runs.h"
#include "tests/npy_file.h"

namespace cad {
namespace {

class CasesOnDevices : public FaultyRuns {};

// Two labels cost 1, eight cost 3, six are missing: 2.6, whoever adds them up; means of means would
// say 2.
TEST_F(CasesOnDevices, AMeanIsOverTheLabelsThatAreThere) {
  write("net.cad", R"(dim B, V = 2
model Net(y: i32[B]) -> [B, V] {
  param w : [V] = zeros
  low: f32[B] = where(y == 0, -log(exp(3.0) - 1), -log(exp(1.0) - 1))
  z: f32[B, V] = low * f32(iota[V]) + w
  return z
}
fn Target(y: i32[B]) -> i32[B] { return where(y < 0, y, 1) }
train net {
  data: npy("y.npy", y: i32[B])
  loss: cross_entropy[V](Net(y), Target(y))
  optimizer: sgd(lr: 0.1)
  B: 16, steps: 2, order: sequential
}
)");
  write("y.npy", npy_file<int>({16}, {-1, -1, 1, -1, -1, 1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0}));
  const auto losses_by = [&](const std::string& flags, int ranks) {
    std::filesystem::remove(folder_ / "log.jsonl");
    const std::string line = "run net.cad --quiet --log log.jsonl " + flags;
    const Output out = ranks == 0 ? run(line) : run_mpi(ranks, line);
    EXPECT_EQ(out.status, 0) << flags << out.err;
    return losses("log.jsonl");
  };
  const std::vector<double> one = losses_by("", 0);
  ASSERT_EQ(one.size(), 2U);
  EXPECT_NEAR(one[0], 2.6, 1e-6);
  EXPECT_LT(one[1], one[0]);
  const std::string two = "--set B=8 --set accumulate=2 ", eight = "--set B=2 --set accumulate=8 ";
  for (const std::string& flags :
       {two, eight, std::string("--devices 2 --plan dp"), two + "--devices 2 --plan dp",
        two + "--devices 4 --plan zero3", eight + "--devices 2 --plan dp"}) {
    expect_close(losses_by(flags, 0), one, flags);
  }
  if (have_mpi()) expect_close(losses_by(two + "--devices 2 --plan zero1", 2), one, "two ranks");
}

// 70,000 words: a file of 16 bits, an id that is too large and one that is negative are refused
// before anything begins, at every rank.
TEST_F(CasesOnDevices, IdsOfMoreThan16Bits) {
  const auto tokens = [&](auto type, const std::vector<uint32_t>& ids) {
    std::string bytes;
    for (const uint32_t id : ids) {
      const auto value = static_cast<decltype(type)>(id);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    write("ids.bin", bytes);
  };
  const auto program = [&](const std::string& more) {
    write("net.cad",
          "dim B, T = 2, V = 70_000, D = 2\nmodel Net(x: i32[B, T]) -> [B, T, V] {\n"
          "  param e : [V, D] = normal(0.1)\n  return e[V = x] @[D] e\n}\ntrain net {\n"
          "  data: tokens(\"ids.bin\", x: i32[B, T], y: i32[B, T]" +
              more +
              ")\n  loss: cross_entropy[V](Net(x), y)\n  optimizer: sgd(lr: 0.1)\n"
              "  B: 2, steps: 1\n  save { to: \"runs/net\" }\n}\n");
  };
  const auto refused = [&](const std::string& says) {
    for (const int ranks : {0, 2}) {
      if (ranks > 0 && !have_mpi()) continue;
      const std::string line =
          std::string("run net.cad --quiet ") + (ranks > 0 ? "--devices 2 --plan dp" : "");
      expect_failed(ranks > 0 ? run_ranks(ranks, line) : run(line), {1, ranks, {says}}, says);
      EXPECT_FALSE(std::filesystem::exists(folder_ / "runs")) << says;
    }
  };
  const std::vector<uint32_t> good = {1, 65'535, 65'536, 69'999, 0};
  program("");
  tokens(uint16_t{}, good);
  refused("error[E0605]: `ids.bin` is read as u16, which does not hold every id of `V` = 70000");
  program(", dtype: u32");
  tokens(uint32_t{}, {1, 65'535, 70'000, 70'001, 0});
  refused("error[E0607]: id 70000 at token 2 of `ids.bin` is outside `V` = 70000");
  tokens(uint32_t{}, {1, 65'535, 65'536, 69'999, 0xFFFFFFFFU});
  refused("error[E0607]: id 4294967295 at token 4 of `ids.bin` is outside `V` = 70000");
  tokens(uint32_t{}, good);
  const Output out = run("run net.cad --quiet --devices 2 --plan dp --log log.jsonl");
  EXPECT_EQ(out.status, 0) << out.err;
  EXPECT_EQ(losses("log.jsonl").size(), 1U);
}

// 16 gated blocks, from all that a run likes down to a twentieth: what is measured is within the
// budget and what was said, less is never faster, nor enough where more was not; where nothing runs
// the message says what would do.
TEST_F(CasesOnDevices, BudgetsDownToTheLeast) {
  write("deep.cad",
        "dim B, D = 24, F = 64, L = 16\nmodel Net(x: [B, D]) -> [B, D] {\n  repeat L as h {\n"
        "    x = x + SwiGLU[D -> F](RMSNorm[D](x))\n  }\n  return x\n}\n"
        "train {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
        "  optimizer: sgd(lr: 0.1)\n  B: 512, steps: 2\n}\n");
  ASSERT_EQ(run("run deep.cad --quiet --log one.jsonl").status, 0);
  const std::vector<double> one = losses("one.jsonl");
  for (const int devices : {1, 2}) {
    const std::string flags =
        "run deep.cad --quiet --plan auto --log n.jsonl --devices " + std::to_string(devices);
    ASSERT_EQ(run(flags).status, 0);
    const json ample = events("n.jsonl", "end").front();
    const auto most = ample["predicted_peak_bytes"].get<int64_t>();
    double slowest = ample["predicted_step_s"];
    int ran = 0;
    for (int percent = 100; percent >= 5; percent -= 5) {
      const std::string what = std::to_string(percent) + " % on " + std::to_string(devices);
      const int64_t budget = most * percent / 100;
      std::filesystem::remove(folder_ / "n.jsonl");
      const Output out = run(flags + " --budget " + std::to_string(budget) + "B");
      if (out.status != 0) {
        EXPECT_EQ(out.status, 3) << what << out.err;
        EXPECT_TRUE(contains(out.err, "needs")) << out.err;
        continue;
      }
      EXPECT_EQ(ran, (100 - percent) / 5) << what << " is enough, and more was not";
      ++ran;
      const json end = events("n.jsonl", "end").front();
      expect_peaks(end, devices, what);
      EXPECT_LE(end["predicted_peak_bytes"], budget) << what;
      EXPECT_GE(end["predicted_step_s"].get<double>(), slowest * (1 - 1e-9)) << what;
      slowest = end["predicted_step_s"];
      expect_close(losses("n.jsonl"), one, what);
    }
    EXPECT_GE(ran, 12) << devices;
    EXPECT_LT(ran, 20) << "5 % of all";
    EXPECT_GT(slowest, ample["predicted_step_s"].get<double>()) << devices;
    std::filesystem::remove(folder_ / "n.jsonl");
  }
}

// Of models so small that the devices only wait for each other one device is chosen; it is the
// faster one, as was predicted.
TEST_F(CasesOnDevices, SmallModelsStayOnOneDevice) {
  const auto median_ms = [&](const std::string& flags) {
    std::filesystem::remove(folder_ / "m.jsonl");
    EXPECT_EQ(run("run small.cad --quiet --log m.jsonl " + flags).status, 0) << flags;
    std::vector<double> ms;
    for (const json& step : events("m.jsonl", "step")) ms.push_back(step["ms"]);
    std::sort(ms.begin(), ms.end());
    return ms.at(ms.size() / 2);
  };
  const struct { int rows, width, layers; } cases[] = {{64, 8, 4}, {256, 32, 6}};
  for (const auto& c : cases) {
    write("small.cad", "dim B, D = " + std::to_string(c.width) +
                           "\nmodel Net(x: [B, D]) -> [B, D] {\n  repeat " +
                           std::to_string(c.layers) +
                           " { x = relu(Linear[D -> D](x)) }\n  return x\n}\ntrain {\n"
                           "  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
                           "  optimizer: adam(lr: 1e-3)\n  B: " +
                           std::to_string(c.rows) + ", steps: 61\n}\n");
    const json chosen = json::parse(run("plan small.cad --devices 4 --json").out);
    const json parallel = json::parse(run("plan small.cad --devices 4 --plan dp --json").out);
    EXPECT_EQ(chosen["devices"], 1) << c.width;
    EXPECT_LT(chosen["predicted"]["step_s"], parallel["predicted"]["step_s"]) << c.width;
    EXPECT_LT(median_ms("--devices 1"), 1.1 * median_ms("--devices 4 --plan dp")) << c.width;
  }
}

}  // namespace
}  // namespace cad
