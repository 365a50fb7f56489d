// What the operating system says that a run needs: its arena and little else. Resident memory at
// its highest, of the process as a whole, against the sum of its devices' predicted peaks.
#include <fcntl.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "tests/commands/command_testing.h"

namespace cad {
namespace {

using nlohmann::json;

// A table of 100 MiB with two states for Adam, and layers whose saved activations take 128 MiB
// each.
const char* const kLarge = R"(dim B, D = 16, F = 512, V = 400_000, M = 64, L = 4, N = 2
model Net(ids: i32[B, N], x: [B, D]) -> [B, D] {
  param table : [V, M] = normal(0.02)
  x = x + Linear[M -> D](sum[N](table[V = ids]))
  repeat L as h {
    x = x + Linear[F -> D](gelu(Linear[D -> F](x)))
  }
  return x
}
train net {
  data:      synthetic(ids: i32[B, N], x: f32[B, D], y: f32[B, D])
  loss:      mse(Net(ids, x), y)
  optimizer: adam(lr: 1e-3)
  B: 53248, steps: 2, seed: 3
}
)";

class Memory : public Commands {
 protected:
  // Highest resident bytes of a process that runs the binary so; -1: it failed.
  int64_t resident(std::vector<std::string> arguments) const {
    std::vector<char*> argv;
    arguments.insert(arguments.begin(), "colauto");
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      if (::chdir(folder_.c_str()) != 0) ::_exit(99);
      const int out = ::open(".out", O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(out, STDOUT_FILENO);
      ::dup2(out, STDERR_FILENO);
      ::execv(COLAUTO_BINARY, argv.data());
      ::_exit(98);
    }
    int raw = 0;
    rusage usage{};
    if (::wait4(child, &raw, 0, &usage) != child || !WIFEXITED(raw) || WEXITSTATUS(raw) != 0)
      return -1;
    return static_cast<int64_t>(usage.ru_maxrss) << 10;
  }
};

constexpr int64_t kMiB = int64_t{1} << 20;

TEST_F(Memory, IsThatOfTheArenas) {
  write("net.cad", kLarge);
  const int64_t start = resident({"version"});
  ASSERT_GT(start, 0);
  for (const std::string devices : {"1", "2"}) {
    std::vector<std::string> arguments = {"run",       "net.cad",   "--quiet", "--log",
                                          "log.jsonl", "--devices", devices};
    if (devices != "1") arguments.insert(arguments.end(), {"--plan", "zero1"});
    const int64_t highest = resident(arguments);
    ASSERT_GT(highest, 0) << read(".out");
    std::istringstream lines(read("log.jsonl"));
    json end;
    for (std::string line; std::getline(lines, line);) end = json::parse(line);
    ASSERT_EQ(end["event"], "end");
    int64_t arenas = 0;
    for (const json& peak : end["peak_bytes"]) {
      EXPECT_EQ(peak, end["predicted_peak_bytes"]);
      arenas += peak.get<int64_t>();
    }
    EXPECT_GE(arenas, 1024 * kMiB);
    EXPECT_LE(highest - start, arenas + 128 * kMiB)
        << devices << " devices: " << highest / kMiB << " MiB, " << start / kMiB
        << " MiB at the start, arenas " << arenas / kMiB << " MiB";
    EXPECT_GE(highest, arenas);  // what is measured is memory that is there
    std::filesystem::remove(folder_ / "log.jsonl");
  }
}

}  // namespace
}  // namespace cad
