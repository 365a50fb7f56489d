// The lock on a folder that a run saves to (backend/folder_lock.h); two runs at once, as a user
// sees them: tests/commands/run_ends_test.cc.
#include "backend/folder_lock.h"

#include "tests/training/training_testing.h"

namespace cad::backend {
namespace {

std::shared_ptr<FolderLock> taken(const std::string& folder) {
  auto lock = FolderLock::take(folder);
  EXPECT_TRUE(lock.ok());
  return lock.ok() ? *lock : nullptr;
}

TEST(FolderLock, IsOneRunsAtATime) {
  const testing::TemporaryFolder folder;
  auto first = taken(folder.path());
  ASSERT_NE(first, nullptr);
  const auto second = FolderLock::take(folder.path());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().id, DiagId::E0613);
  EXPECT_EQ(second.error().notes.at(0).rfind("it is process ", 0), 0U);
  first.reset();
  EXPECT_FALSE(std::filesystem::exists(folder.file(".lock")));
  EXPECT_NE(taken(folder.path()), nullptr);
}

// Somebody removes the file (or the folder, and makes it again): the run that had it must not take
// away that of the next one when it ends.
TEST(FolderLock, WhoseFileIsGoneLeavesAnothersAlone) {
  const testing::TemporaryFolder folder;
  auto first = taken(folder.path());
  std::filesystem::remove(folder.file(".lock"));
  auto second = taken(folder.path());
  ASSERT_NE(second, nullptr);
  first.reset();
  EXPECT_TRUE(std::filesystem::exists(folder.file(".lock")));
  EXPECT_FALSE(FolderLock::take(folder.path()).ok());  // still the second one's
  second.reset();
  EXPECT_FALSE(std::filesystem::exists(folder.file(".lock")));
}

// A file that a killed run left has no lock on it.
TEST(FolderLock, OfAKilledRunIsTaken) {
  const testing::TemporaryFolder folder;
  folder.write(".lock", "process 1 on nowhere");
  const auto lock = taken(folder.path());
  ASSERT_NE(lock, nullptr);
  const auto second = FolderLock::take(folder.path());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().notes.at(0).find("nowhere"), std::string::npos);
}

}  // namespace
}  // namespace cad::backend
