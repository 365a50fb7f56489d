// tests/commands/faults_test.cc -- runs that meet something bad: a disk that fills, data and losses
// that are not finite. Statuses, what the message names, and that nothing already saved is lost.
#include <sys/mount.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/commands/command_testing.h"
#include "tests/npy_file.h"

namespace cad {
namespace {

using nlohmann::json;

// 256 KiB of parameters, as much again of optimizer state.
const char* const kWide = R"(dim B, D = 256
model Net(x: [B, D]) -> [B, D] {
  param w : [D, D2] = normal(0.02)
  return (x @[D] w)[D2 -> D]
}
dim D2 = D
train {
  data: synthetic(x: f32[B, D])
  loss: mean(Net(x) ^ 2)
  optimizer: sgd(lr: 0.1, momentum: 0.9)
  B: 4, steps: 12
  save { to: "disk/run", every: 1 }
}
)";

class Faults : public Commands {
 protected:
  void SetUp() override {
    Commands::SetUp();
    write("wide.cad", kWide);
    std::filesystem::create_directories(folder_ / "disk");
  }
  void TearDown() override {
    if (mounted_) ::umount((folder_ / "disk").c_str());
    Commands::TearDown();
  }
  // A disk of its own, if this process may make one.
  bool small_disk(const char* size) {
    const std::string options = std::string("size=") + size;
    mounted_ = ::mount("tmpfs", (folder_ / "disk").c_str(), "tmpfs", 0, options.c_str()) == 0;
    return mounted_;
  }
  [[nodiscard]] std::vector<std::string> names(const std::string& folder) const {
    std::vector<std::string> found;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / folder, none))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  void npy(const std::string& name, int rows, int columns, const std::vector<float>& values) const {
    write(name, npy_file({rows, columns}, values));
  }
  bool mounted_ = false;
};

void expect_no_leftovers(const std::vector<std::string>& names) {
  for (const std::string& name : names) EXPECT_NE(name.substr(0, 5), ".tmp-") << name;
}

TEST_F(Faults, TheDiskFillsInMidRun) {
  if (!small_disk("3m")) GTEST_SKIP() << "no right to mount a small disk";
  const Output full = run("run wide.cad --quiet");
  EXPECT_EQ(full.status, 1) << full.err;
  EXPECT_TRUE(contains(full.err, "error[E0602]: cannot write")) << full.err;
  EXPECT_TRUE(contains(full.err, "No space left")) << full.err;
  const std::vector<std::string> saved = names("disk/run");
  expect_no_leftovers(saved);
  ASSERT_GE(saved.size(), 4U);  // several checkpoints and model.safetensors
  // The newest complete one still loads, and the run goes on from it where there is room again.
  const Output params = run("params wide.cad --init disk/run");
  EXPECT_EQ(params.status, 0) << params.err;
  EXPECT_TRUE(contains(params.out, "file")) << params.out;
  std::filesystem::remove_all(folder_ / "disk/run/step-000001");
  std::filesystem::remove_all(folder_ / "disk/run/step-000002");
  const Output more = run("run wide.cad --quiet --resume --save disk/run --set save.keep=2");
  EXPECT_EQ(more.status, 0) << more.err;
}

TEST_F(Faults, ADiskWithoutRoomForTheFirst) {
  if (!small_disk("700k")) GTEST_SKIP() << "no right to mount a small disk";
  // Room for one checkpoint, not for `best/` as well.
  std::string best = kWide;
  best.replace(best.find("save {"), 6,
               "eval { data: synthetic(x: f32[B, D]), every: 1, batches: 1 }\n"
               "  save { best: min(loss), ");
  write("best.cad", best);
  const Output refused = run("run best.cad --quiet");
  EXPECT_EQ(refused.status, 1) << refused.err;
  EXPECT_TRUE(contains(refused.err, "error[E0602]")) << refused.err;
  EXPECT_TRUE(contains(refused.err, "the disk has ")) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "disk/run"));
}

// Without a disk of one's own: files may grow to 100 KiB only.
TEST_F(Faults, WritesThatFail) {
  const std::string limit = "ulimit -f 200; trap '' XFSZ;";
  const Output first = run("run wide.cad --quiet", limit);
  EXPECT_EQ(first.status, 1) << first.err;
  EXPECT_TRUE(contains(first.err, "error[E0602]: cannot write")) << first.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "disk/run"));  // made by the run, and empty
  ASSERT_EQ(run("run wide.cad --quiet --steps 3").status, 0);
  const std::vector<std::string> before = names("disk/run");
  const Output later = run("run wide.cad --quiet --resume", limit);
  EXPECT_EQ(later.status, 1) << later.err;
  EXPECT_EQ(names("disk/run"), before);
  EXPECT_EQ(run("run wide.cad --quiet --resume").status, 0);
}

const char* const kRows = R"(dim B, D = 3
model Net(x: [B, D]) -> [B] {
  param w : [D] = ones
  return relu(x * w) @[D] w
}
train {
  data: npy("x.npy", x: f32[B, D])
  loss: mean(Net(x) ^ 2)
  optimizer: sgd(lr: 1e-3)
  B: 4, steps: 4, order: sequential
  eval { data: npy("y.npy") }
}
)";

TEST_F(Faults, DataThatIsNotFiniteIsNamed) {
  write("rows.cad", kRows);
  std::vector<float> good(60, 1.0F), bad = good;
  bad[10 * 3 + 1] = std::nanf("");
  npy("x.npy", 20, 3, bad);
  npy("y.npy", 20, 3, good);
  for (const char* flags : {"", " --debug-nan"}) {
    const Output stopped = run(std::string("run rows.cad --quiet") + flags);
    EXPECT_EQ(stopped.status, 1) << stopped.err;
    EXPECT_TRUE(contains(stopped.err, "error[E0701]")) << stopped.err;
    EXPECT_TRUE(contains(stopped.err, "at step 3")) << stopped.err;
    EXPECT_TRUE(contains(stopped.err, "`x` holds nan at row 10 of its data")) << stopped.err;
    EXPECT_FALSE(contains(stopped.err, "comes from")) << stopped.err;
  }
  // In evaluation: the figures are printed, the status says that they are none.
  npy("x.npy", 20, 3, good);
  bad[10 * 3 + 1] = INFINITY;
  npy("y.npy", 20, 3, bad);
  const Output eval = run("eval rows.cad --json");
  EXPECT_EQ(eval.status, 1) << eval.err;
  EXPECT_TRUE(json::parse(eval.out)["loss"].is_null()) << eval.out;
  EXPECT_EQ(json::parse(eval.out)["step"], 0);
  EXPECT_TRUE(contains(eval.err, "the loss of `eval` is inf")) << eval.err;
  EXPECT_TRUE(contains(eval.err, "`x` holds inf at row 10 of its data")) << eval.err;
}

// Where the data are fine the very operation is named, although it runs inside of a fused kernel.
TEST_F(Faults, TheOperationIsNamed) {
  std::string program = kRows;
  program.replace(program.find("relu(x * w)"), 11, "log(relu(0 - x * w))");
  write("rows.cad", program);
  npy("x.npy", 20, 3, std::vector<float>(60, 1.0F));
  npy("y.npy", 20, 3, std::vector<float>(60, 1.0F));
  for (const char* flags : {"", " --debug-nan"}) {
    const Output stopped = run(std::string("run rows.cad --quiet") + flags);
    EXPECT_EQ(stopped.status, 1) << stopped.err;
    EXPECT_TRUE(contains(stopped.err, "comes from `log`")) << stopped.err;
    EXPECT_TRUE(contains(stopped.err, "rows.cad:4:")) << stopped.err;
    EXPECT_FALSE(contains(stopped.err, "holds")) << stopped.err;
  }
}

}  // namespace
}  // namespace cad
