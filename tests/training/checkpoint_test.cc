// The run folder: atomic, complete or ignored, nobody else's overwritten by accident.
#include "backend/checkpoint.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/training/training_testing.h"

namespace cad::backend {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;
using Mode = CheckpointFolder::Mode;

CheckpointContents contents_at(int64_t step, const std::vector<float>& values) {
  CheckpointContents contents;
  contents.model.push_back(
      {"w", StoredType::kF32, {static_cast<int64_t>(values.size())}, values.data()});
  contents.state.step = step;
  contents.state.rows = step * 8;
  contents.state.config = "abc";
  return contents;
}

TEST(Checkpoint, SaveFindKeep) {
  TemporaryFolder folder;
  const std::string run = folder.file("deep/run");
  auto opened = CheckpointFolder::open(run, Mode::kFresh, 2, 100);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  for (int64_t step = 1; step <= 4; ++step) {
    const std::vector<float> values(4, static_cast<float>(step));
    ASSERT_TRUE(opened->save(contents_at(step, values)).ok());
  }
  EXPECT_FALSE(fs::exists(run + "/step-000002"));
  EXPECT_TRUE(fs::exists(run + "/step-000003/model.safetensors"));
  auto newest = find_checkpoint(run);
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->state.step, 4);
  EXPECT_EQ(newest->state.rows, 32);
  auto older = find_checkpoint(run + "/step-000003");
  ASSERT_TRUE(older.ok());
  EXPECT_EQ(older->state.step, 3);
  auto link = SafetensorsFile::open(run + "/model.safetensors");
  ASSERT_TRUE(link.ok());
  float values[4];
  ASSERT_TRUE(link->read_f32(*link->find("w"), values).ok());
  EXPECT_EQ(values[3], 4.0F);
}

TEST(Checkpoint, AnotherRunsFolder) {
  TemporaryFolder folder;
  const std::vector<float> values = {1};
  {
    auto first = CheckpointFolder::open(folder.path(), Mode::kFresh, 0, 0);
    ASSERT_TRUE(first->save(contents_at(7, values)).ok());
    ASSERT_TRUE(first->save(contents_at(9, values)).ok());
  }
  auto again = CheckpointFolder::open(folder.path(), Mode::kFresh, 0, 0);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().id, DiagId::E0613);
  EXPECT_TRUE(fs::exists(folder.file("step-000009")));
  EXPECT_TRUE(CheckpointFolder::open(folder.path(), Mode::kResume, 0, 0).ok());
  auto over = CheckpointFolder::open(folder.path(), Mode::kOverwrite, 0, 0);
  ASSERT_TRUE(over.ok());
  EXPECT_TRUE(fs::exists(folder.file("step-000009")))
      << "nothing goes before the new run has saved";
  ASSERT_TRUE(over->save(contents_at(7, values)).ok());
  EXPECT_FALSE(fs::exists(folder.file("step-000009")));
  EXPECT_TRUE(fs::exists(folder.file("step-000007/state.json")));
}

TEST(Checkpoint, PlacesThatCannotBeWritten) {
  TemporaryFolder folder;
  const std::string file = folder.write("file", "x");
  auto on_file = CheckpointFolder::open(file, Mode::kFresh, 0, 0);
  ASSERT_FALSE(on_file.ok());
  EXPECT_EQ(on_file.error().message, "cannot write `" + file + "`: it is a file, not a folder");
  EXPECT_EQ(on_file.error().exit_code, kExitRunFailed);
  auto too_big = CheckpointFolder::open(folder.file("run"), Mode::kFresh, 0, int64_t{1} << 60);
  ASSERT_FALSE(too_big.ok());
  EXPECT_NE(too_big.error().message.find("a checkpoint needs 1024.0 PiB"), std::string::npos)
      << too_big.error().message;
  EXPECT_FALSE(CheckpointFolder::open("/proc/nowhere", Mode::kFresh, 0, 0).ok());
}

// A row before the first one, or a scale that divides by zero, would not be noticed later.
TEST(Checkpoint, CountsThatNoRunReachesAreNamed) {
  TemporaryFolder folder;
  const std::string state =
      R"({"schema": 1, "step": 3, "rows": 6, "updates": 3, "seed": 18446744073709551615,
          "loss_scale": 2.0, "good_steps": 3, "config": ""})";
  fs::create_directory(folder.file("step-000003"));
  folder.write("step-000003/state.json", state);
  ASSERT_TRUE(find_checkpoint(folder.path()).ok());
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {R"("step": 3)", R"("step": 18446744073709551615)"},
           {R"("rows": 6)", R"("rows": 18446744073709551615)"},
           {R"("rows": 6)", R"("rows": 9223372036854775807)"},
           {R"("updates": 3)", R"("updates": 18446744073709551614)"},
           {R"("good_steps": 3)", R"("good_steps": 9223372036854775807)"},
           {R"("loss_scale": 2.0)", R"("loss_scale": 0)"},
           {R"("loss_scale": 2.0)", R"("loss_scale": -1)"}}) {
    std::string changed = state;
    changed.replace(changed.find(from), from.size(), to);
    folder.write("step-000003/state.json", changed);
    const auto found = find_checkpoint(folder.path());
    ASSERT_FALSE(found.ok()) << to;
    EXPECT_EQ(found.error().id, DiagId::E0615) << to;
  }
}

TEST(Checkpoint, IncompleteOnesAreIgnoredAndBrokenStatesNamed) {
  TemporaryFolder folder;
  const std::vector<float> values = {1};
  auto run = CheckpointFolder::open(folder.path(), Mode::kFresh, 0, 0);
  ASSERT_TRUE(run->save(contents_at(3, values)).ok());
  fs::create_directory(folder.file("step-000008"));  // no state.json
  fs::create_directory(folder.file(".tmp-step-000009"));
  folder.write(".tmp-step-000009/state.json", "{}");
  auto found = find_checkpoint(folder.path());
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->state.step, 3);
  folder.write("step-000003/state.json", "{\"schema\": 1}");
  auto broken = find_checkpoint(folder.path());
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().id, DiagId::E0615);
  auto none = find_checkpoint(folder.file("nobody"));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().id, DiagId::E0614);
  EXPECT_EQ(none.error().exit_code, kExitNoInput);
}

// A child saves as fast as it can and is killed at some moment: what is found is always complete.
TEST(Checkpoint, KilledWhileSaving) {
  for (int round = 0; round < 12; ++round) {
    TemporaryFolder folder;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto run = CheckpointFolder::open(folder.path(), Mode::kFresh, 2, 0);
      for (int64_t step = 1; run.ok(); ++step) {
        const std::vector<float> values(20'000, static_cast<float>(step));
        // The same name again now and then: the exchange of folders is hit too.
        if (!run->save(contents_at(step - step % 2, values)).ok()) break;
      }
      ::_exit(1);
    }
    ::usleep(static_cast<useconds_t>(30'000 + 7'919 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    auto found = find_checkpoint(folder.path());
    if (!found.ok()) {
      EXPECT_EQ(found.error().id, DiagId::E0614)
          << found.error().message;  // killed before the first
      continue;
    }
    auto model = SafetensorsFile::open(found->file("model.safetensors"));
    ASSERT_TRUE(model.ok()) << model.error().message;
    std::vector<float> values(20'000);
    ASSERT_TRUE(model->read_f32(*model->find("w"), values.data()).ok());
    EXPECT_EQ(values.front(), values.back());
  }
}

}  // namespace
}  // namespace cad::backend
