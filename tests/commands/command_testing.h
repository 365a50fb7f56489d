// tests/commands/command_testing.h -- runs the binary and keeps what it prints; a scratch folder.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace cad {

// Under a sanitizer: slower, and with addresses that no limit allows.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

struct Output {
  std::string out, err;
  int status = 0;  // 128 + n when a signal ended it
};

class Commands : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("colauto-" + std::string(info->name()) + "-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return name;
  }
  std::string read(const std::string& name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  // `arguments` go through the shell, in the scratch folder; `before` is put before the binary.
  Output run(const std::string& arguments, const std::string& before = "",
             const std::string& after = "") const {
    const std::string command = "cd '" + folder_.string() + "' && " + before +
                                " '" COLAUTO_BINARY "' </dev/null " + arguments + " >.out 2>.err " +
                                after;  // `arguments` may redirect the input
    const int raw = std::system(command.c_str());
    Output output{read(".out"), read(".err"),
                  WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw)};
    return output;
  }

  std::filesystem::path folder_;
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline const char* const kSmallProgram =
    "dim B, D = 4\nmodel Net(x: [B, D]) -> [B, D] {\n  param w : [D] = ones\n  return x * w\n}\n";

}  // namespace cad
