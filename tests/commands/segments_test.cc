// Plans whose loops run again in segments, as a user meets them: a budget that no other plan meets,
// what `plan` says of it in words and as JSON, and running the saved plan. Without micro-batches in
// parts, which would do instead.
#include "tests/commands/run_devices.h"

namespace cad {
namespace {

// Small parameters, large activations, many iterations: what a loop keeps is what counts.
const char* const kLong = R"(dim B, D = 16, F = 32, L = 26
model Net(x: [B, D]) -> [B, D] {
  repeat L as h { x = x + (Linear[F -> D](gelu(Linear[D -> F](x))) |> dropout(0.1)) }
  return x
}
train net {
  data: synthetic(x: f32[B, D], y: f32[B, D])
  loss: mse(Net(x), y)
  optimizer: adam(lr: 1e-3)
  B: 4096, steps: 3, seed: 2
}
)";

class Segments : public RunDevices {
 protected:
  void SetUp() override {
    RunDevices::SetUp();
    write("net.cad", kLong);
  }
};

TEST_F(Segments, ArePlannedPrintedAndRun) {
  // a little more than the least budget, which only plans with segments meet
  const Output little = run("plan net.cad --devices 2 --micro-batches 1 --budget 1KiB");
  ASSERT_EQ(little.status, 3);
  const size_t bytes = little.err.find(" bytes)");
  ASSERT_NE(bytes, std::string::npos) << little.err;
  const double least = std::stod(little.err.substr(little.err.rfind('(', bytes) + 1));
  const std::string budget = " --devices 2 --micro-batches 1 --budget " +
                             std::to_string(static_cast<int64_t>(least * 1.1)) + "B ";
  const Output plan = run("plan net.cad --json" + budget);
  ASSERT_EQ(plan.status, 0) << plan.err;
  int64_t in_segments = 0;
  const json planned = json::parse(plan.out);
  for (const json& body : planned["bodies"]) {
    if (body["segment"] > 0) in_segments += body["count"].get<int64_t>();
  }
  ASSERT_GT(in_segments, 0);
  const Output text = run("plan net.cad" + budget);
  EXPECT_NE(text.out.find(", run again "), std::string::npos) << text.out;

  write("plan.json", plan.out);
  ASSERT_EQ(run("run net.cad --quiet --log one.jsonl --save one").status, 0);
  const Output many =
      run("run net.cad --quiet --log many.jsonl --save many --plan plan.json" + budget);
  ASSERT_EQ(many.status, 0) << many.err;
  const std::vector<double> a = losses("one.jsonl"), b = losses("many.jsonl");
  ASSERT_EQ(a.size(), 3u);
  ASSERT_EQ(b.size(), a.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(b[i], a[i], 1e-5 * std::abs(a[i])) << i;
}

}  // namespace
}  // namespace cad
