// tests/commands/output_test.cc -- what a run shows besides its results: the progress line on a
// terminal, the trace, the kernels.
#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/commands/command_testing.h"

namespace cad {
namespace {

using nlohmann::json;

const char* const kProgram = R"(dim B, D = 16
model Net(x: [B, D]) -> [B] {
  param w : [D, H] = normal(0.1)
  param v : [H] = normal(0.1)
  repeat 2 { x = x + gelu(x @[D] w) @[H] w }
  return gelu(x @[D] w) @[H] v
}
dim H = 32
train {
  data: synthetic(x: f32[B, D])
  loss: mean(Net(x) ^ 2)
  optimizer: sgd(lr: 0.01)
  B: 4, steps: 120
}
)";

class Shown : public Commands {
 protected:
  void SetUp() override {
    Commands::SetUp();
    write("net.cad", kProgram);
  }
};

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

// On a terminal one line is written over and over between the lines that stay.
TEST_F(Shown, ProgressOnATerminal) {
  if (std::system("command -v script >/dev/null") != 0) GTEST_SKIP() << "needs script(1)";
  const auto on_terminal = [&](const std::string& flags) {
    const std::string command = "cd '" + folder_.string() +
                                "' && script -qec \"'" COLAUTO_BINARY "' run net.cad " + flags +
                                "\" typescript >/dev/null </dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << flags;
    return read("typescript");
  };
  const std::string live = on_terminal("");
  EXPECT_GE(count_of(live, "\rstep "), 80) << live.substr(0, 2000);
  EXPECT_TRUE(contains(live, "\x1b[K"));
  EXPECT_TRUE(contains(live, "\rstep   2/120  loss "));
  EXPECT_TRUE(contains(live, "  eta "));
  EXPECT_TRUE(contains(live, "step 120/120  loss "));
  EXPECT_FALSE(contains(on_terminal("--quiet"), "step "));
  // In a file only the lines that stay.
  const Output piped = run("run net.cad");
  EXPECT_FALSE(contains(piped.err, "\r"));
  EXPECT_LE(count_of(piped.err, "step "), 45);
  EXPECT_TRUE(contains(piped.err, "step   1/120  loss ")) << piped.err;
}

TEST_F(Shown, TraceIsReadable) {
  const Output traced = run("run net.cad --steps 3 --quiet --trace trace.json");
  ASSERT_EQ(traced.status, 0) << traced.err;
  const json events = json::parse(read("trace.json"))["traceEvents"];
  std::set<std::string> names;
  int intervals = 0;
  for (const json& event : events) {
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["ts"].get<double>(), 0);
    EXPECT_GE(event["dur"].get<double>(), 0);
    if (event["cat"] == "part" || event["pid"] != 0) continue;  // of a step; of what was predicted
    ++intervals;
    names.insert(event["name"].get<std::string>());
    EXPECT_TRUE(event["args"].contains("flops"));
  }
  EXPECT_EQ(events[0]["ph"], "M");  // the device's name
  EXPECT_EQ(names.count("contract"), 1U);
  EXPECT_EQ(intervals % 3, 0);  // every step does the same
  EXPECT_GE(intervals, 3 * 10);
}

TEST_F(Shown, KernelsInBothForms) {
  const Output kernels = run("run net.cad --emit=kernels");
  ASSERT_EQ(kernels.status, 0) << kernels.err;
  const int count = count_of(kernels.out, "\nkernel ") + (kernels.out.rfind("kernel ", 0) == 0);
  EXPECT_GE(count, 3) << kernels.out.substr(0, 2000);
  EXPECT_GE(count_of(kernels.out, "define void @kernel"), count);  // LLVM IR of every kernel
  for (const char* part : {"kernel 0 ", " used ", "inner ", "load", "store", "float", "ret "})
    EXPECT_TRUE(contains(kernels.out, part)) << part << "\n" << kernels.out.substr(0, 3000);
  EXPECT_EQ(kernels.out, run("run net.cad --emit=kernels").out);  // no addresses, no dates
}

}  // namespace
}  // namespace cad
