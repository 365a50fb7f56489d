// tests/golden/golden_test.cc -- every *.cad here whose first line is `# RUN: command flags` is run
// through the binary; what it prints (stdout, then stderr, then the exit code) must equal the .out
// beside it. Lines `# STDIN: text` are its standard input. COLAUTO_UPDATE_GOLDEN=1 writes the .out
// files instead. `fail_*` files must fail.
// Coverage: every diagnostic id has a golden that shows it and an entry for `colauto explain`.
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/diagnostic.h"

namespace cad {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(COLAUTO_SOURCE_DIR) / "tests" / "golden";

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string run_line(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string line;
  std::getline(in, line);
  const std::string mark = "# RUN: ";
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line.rfind(mark, 0) == 0 ? line.substr(mark.size()) : "";
}

// What `# STDIN: ` lines hold, a line each.
std::string standard_input(const fs::path& path) {
  std::istringstream lines(read_file(path));
  const std::string mark = "# STDIN: ";
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(mark, 0) == 0) text += line.substr(mark.size()) + "\n";
  }
  return text;
}

std::vector<fs::path> programs() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".cad" && !run_line(entry.path()).empty())
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string capture(const std::string& command, int& status) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string out;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
  status = pclose(pipe);
  return out;
}

// The program is run in its own folder, so that messages show its plain name.
std::string output_of(const fs::path& path) {
  std::string command = run_line(path);
  const std::string name = path.filename().string();
  const size_t at = command.find("%s");
  if (at == std::string::npos) {
    command += " " + name;
  } else {
    command.replace(at, 2, name);
  }
  const fs::path errors =
      fs::temp_directory_path() / ("colauto-golden-" + name + std::to_string(getpid()));
  const fs::path input = errors.string() + ".in";
  std::ofstream(input, std::ios::binary) << standard_input(path);
  int status = 0;
  std::string text = capture("cd '" + kFolder.string() + "' && NO_COLOR=1 '" COLAUTO_BINARY "' " +
                                 command + " 2>'" + errors.string() + "' <'" + input.string() + "'",
                             status);
  text += read_file(errors);
  fs::remove(errors);
  fs::remove(input);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return text + "exit " + std::to_string(code) + "\n";
}

class Golden : public testing::TestWithParam<fs::path> {};

TEST_P(Golden, PrintsWhatItShould) {
  const fs::path expected = fs::path(GetParam()).replace_extension(".out");
  const std::string text = output_of(GetParam());
  if (std::getenv("COLAUTO_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(expected, std::ios::binary) << text;
    return;
  }
  EXPECT_EQ(text, read_file(expected)) << "COLAUTO_UPDATE_GOLDEN=1 writes " << expected;
  if (GetParam().filename().string().rfind("fail_", 0) == 0) {
    EXPECT_EQ(text.find("exit 0\n"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, Golden, testing::ValuesIn(programs()), [](const auto& info) {
  std::string name = info.param.stem().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
      '_');
  return name;
});

TEST(GoldenCoverage, EveryDiagnosticIsShownAndExplained) {
  std::string all;
  for (const fs::path& path : programs())
    all += read_file(fs::path(path).replace_extension(".out"));
  for (size_t i = 0; i < diag_count(); ++i) {
    const std::string name = diag_name(static_cast<DiagId>(i));
    // These take several processes: tests/commands/run_devices_test.cc.
    const bool of_ranks = name == "E1001" || name == "E1002" || name == "E1003";
    EXPECT_TRUE(of_ranks || all.find("[" + name + "]") != std::string::npos)
        << name << " has no golden test";
    EXPECT_TRUE(fs::exists(fs::path(COLAUTO_SOURCE_DIR) / "docs" / "errors" / (name + ".md")))
        << name << " has no docs/errors entry";
  }
}

TEST(GoldenCoverage, EveryExplanationIsOfADiagnostic) {
  std::set<std::string> names;
  for (size_t i = 0; i < diag_count(); ++i) names.insert(diag_name(static_cast<DiagId>(i)));
  for (const auto& entry :
       fs::directory_iterator(fs::path(COLAUTO_SOURCE_DIR) / "docs" / "errors")) {
    if (entry.path().extension() == ".md") {
      EXPECT_TRUE(names.count(entry.path().stem().string())) << entry.path() << " explains nothing";
    }
  }
}

}  // namespace
}  // namespace cad
