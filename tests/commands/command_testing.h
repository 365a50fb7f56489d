// tests/commands/command_testing.h -- runs the binary and keeps what it prints; a scratch folder.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/sanitized.h"

namespace cad {

struct Output {
  std::string out, err;
  int status = 0;                 // 128 + n when a signal ended it
  double began = 0, seconds = 0;  // of now_s()
};

// Of the machine's monotonic clock.
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
// In which every process of a run has ended after a fault or a signal.
inline constexpr double kInTime = 30;

class Commands : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    // without links: what /proc says of a process's folder has none
    folder_ = std::filesystem::canonical(std::filesystem::temp_directory_path()) /
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
    const double began = now_s();
    const int raw = std::system(command.c_str());
    const double seconds = now_s() - began;
    return {read(".out"), read(".err"), WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw),
            began, seconds};
  }

  // The binary or another program with these arguments in the scratch folder, its messages in .err;
  // devices are missed after `timeout` seconds.
  pid_t start(const std::vector<std::string>& words, const char* timeout = "5") const {
    const pid_t child = ::fork();
    if (child != 0) return child;
    if (::chdir(folder_.c_str()) != 0) ::_exit(99);
    ::setenv("COLAUTO_COMM_TIMEOUT", timeout, 1);
    if (std::freopen(".err", "w", stderr) == nullptr) ::_exit(97);
    std::vector<char*> list;
    for (const std::string& word : words) list.push_back(const_cast<char*>(word.c_str()));
    list.push_back(nullptr);
    ::execvp(list[0], list.data());
    ::_exit(98);
  }
  static int status_of(pid_t child) {
    int raw = 0;
    ::waitpid(child, &raw, 0);
    return WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
  }
  // For at most a minute.
  template <class F>
  static bool wait_until(F&& holds) {
    for (int i = 0; i < 1200; ++i, ::usleep(50'000)) {
      if (holds()) return true;
    }
    return false;
  }
  // A run without an end that logs to log.jsonl gets the signal after its third step: it ends in
  // time with the signal's status. Returns the log's last line.
  std::string interrupted(const std::vector<std::string>& words, int signal) const {
    const pid_t child = start(words);
    EXPECT_TRUE(
        wait_until([&] { return read("log.jsonl").find("\"step\":3,") != std::string::npos; }));
    const double then = now_s();
    ::kill(child, signal);
    EXPECT_EQ(status_of(child), 128 + signal) << read(".err");
    EXPECT_LT(now_s() - then, kInTime);
    std::istringstream lines(read("log.jsonl"));
    std::string last;
    for (std::string line; std::getline(lines, line);) last = line;
    return last;
  }

  std::filesystem::path folder_;
};

// Where a run with an `end` event like this one, saving to runs/net, has saved last.
inline std::string checkpoint_of(const nlohmann::json& end) {
  char name[64];
  std::snprintf(name, sizeof name, "runs/net/step-%06lld/state.json",
                static_cast<long long>(end.at("steps").get<int64_t>()));
  return name;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline const char* const kSmallProgram =
    "dim B, D = 4\nmodel Net(x: [B, D]) -> [B, D] {\n  param w : [D] = ones\n  return x * w\n}\n";

}  // namespace cad
