// What happens to a run on several devices when one of them fails, stops, is not like the others or
// is told to end: every rank ends in time and says who and why, no process is left, and the last
// complete checkpoint goes on. Threads and ranks. The collectives' own failures: tests/comm.
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>

#include "tests/commands/run_devices.h"

namespace cad {
namespace {

class RunFaults : public RunDevices {
 protected:
  void wait_for(const std::string& name) const {
    EXPECT_TRUE(wait_until([&] { return std::filesystem::exists(folder_ / name); })) << name;
  }
  void npy(const std::string& name, const std::vector<float>& values, int columns) const {
    std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(static_cast<int>(values.size()) / columns) + ", " +
                       std::to_string(columns) + "), }";
    dict.append(117 - dict.size(), ' ');
    std::string file = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(dict.size() + 1) +
                       std::string(1, '\0') + dict + "\n";
    file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    write(name, file);
  }
};

const std::string kForEver =
    "run net.cad --quiet --set steps=100000000 --overwrite --log log.jsonl ";

TEST_F(RunFaults, SignalsFinishTheStepAndSave) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const json end = json::parse(
        interrupted({COLAUTO_BINARY, "run", "net.cad", "--devices", "2", "--plan", "dp", "--set",
                     "steps=100000000", "--overwrite", "--log", "log.jsonl", "--quiet"},
                    signal));
    EXPECT_EQ(end["interrupted"], signal == SIGINT ? "SIGINT" : "SIGTERM");
    EXPECT_TRUE(std::filesystem::exists(folder_ / checkpoint_of(end)));
    expect_gone_and_resumable(std::to_string(signal), "--devices 3 --plan zero3");
  }
}

// A signal at one of the ranks, as a scheduler sends it: all finish the step and save.
TEST_F(RunFaults, ASignalAtARank) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  const Output out = run_ranks(2, kForEver + "--devices 4 --plan dp", "TERM");
  EXPECT_EQ(out.status, 128 + SIGTERM) << out.err << messages(0) << messages(1);
  EXPECT_EQ(events("log.jsonl", "end").at(0)["interrupted"], "SIGTERM");
  expect_gone_and_resumable("TERM at rank 1");
}

// Whatever is refused, on whichever thread, the run says that memory ran out.
TEST_F(RunFaults, MemoryThatIsRefused) {
  if (kSanitized) GTEST_SKIP() << "address space is no measure of memory under a sanitizer";
  int refused = 0;
  for (int limit = 120'000; limit <= 600'000; limit += 80'000) {  // KiB
    const Output out = run("run net.cad --quiet --steps 1 --overwrite --devices 4 --plan dp",
                           "ulimit -v " + std::to_string(limit) + "; ");
    if (contains(out.err, "error while loading shared libraries")) continue;
    if (out.status == 0) continue;
    ++refused;
    EXPECT_EQ(out.status, 1) << limit << ": " << out.err;
    EXPECT_TRUE(contains(out.err, "error[E0703]: not enough memory")) << limit << ": " << out.err;
  }
  EXPECT_GT(refused, 0);
}

// mpirun passes an interrupt on, and kills after a second who is not done by then.
TEST_F(RunFaults, AnInterruptOfTheLauncher) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  std::string words = kMpi, word;
  std::vector<std::string> line{"env"};
  std::istringstream all(words + " -n 2 " COLAUTO_BINARY " " + kForEver + "--devices 2 --plan dp");
  while (all >> word) {
    // `timeout` would stand between the signal and mpirun
    if (word == "timeout" && all >> word) continue;
    line.push_back(word);
  }
  const pid_t child = start(line);
  wait_for("runs/net/step-000004/state.json");
  ::kill(child, SIGINT);
  EXPECT_NE(status_of(child), 0);
  expect_gone_and_resumable("an interrupt of mpirun", "--devices 2 --plan zero1");
}

// Ranks that were not started alike, each kind of difference: status 1, both sides named.
TEST_F(RunFaults, RanksThatDiffer) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  std::string other = kProgram;
  other.replace(other.find("gelu"), 4, "relu");
  write("other.cad", other);
  std::filesystem::create_directories(folder_ / "sub");
  write("sub/net.cad", kProgram);
  std::string text;
  for (int i = 0; i < 90; ++i) text += "the quick green fox " + std::to_string(i % 7) + "\n";
  write("sub/text.txt", text);
  const std::string binary = std::string("'") + COLAUTO_BINARY + "' ";
  const std::string rest = " --quiet --devices 2 --save runs/mpi";
  const struct {
    const char* what;
    std::string first, second;
  } cases[] = {{"seed", "run net.cad --plan dp --seed 1", "run net.cad --plan dp --seed 2"},
               {"program", "run net.cad --plan dp", "run other.cad --plan dp"},
               {"plan", "run net.cad --plan dp", "run net.cad --plan zero3"},
               {"data", "run net.cad --plan dp", "run sub/net.cad --plan dp"}};
  for (const auto& c : cases) {
    const Output out = run_mpi(1, c.first + rest + " : -n 1 " + binary + c.second + rest);
    EXPECT_EQ(out.status, 1) << c.what << out.err;
    EXPECT_TRUE(contains(out.err, "error[E1002]")) << c.what << out.err;
    EXPECT_TRUE(contains(out.err, std::string("device 0 (rank 0) and device 1 (rank 1) ") +
                                      "disagree about the " + c.what))
        << out.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs")) << c.what;
    EXPECT_EQ(processes(), "") << c.what;
  }
  // first values come from files that each rank reads for itself
  ASSERT_EQ(run("run net.cad --quiet --steps 0 --save one").status, 0);
  ASSERT_EQ(run("run net.cad --quiet --steps 0 --save two --seed 9").status, 0);
  const Output values = run_mpi(1, "run net.cad --plan dp --init one" + rest + " : -n 1 " + binary +
                                       "run net.cad --plan dp --init two" + rest);
  EXPECT_EQ(values.status, 1) << values.err;
  EXPECT_TRUE(contains(values.err,
                       "error[E1002]: device 0 (rank 0) and device 1 (rank 1) start "
                       "from different values of `"))
      << values.err;
}

// Two ranks in different folders, as on hosts without a common file system.
TEST_F(RunFaults, AFolderThatNotAllSee) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  std::filesystem::create_directories(folder_ / "elsewhere");
  const std::string flags = " --quiet --devices 2 --plan dp --save here";
  const Output out =
      run_mpi(1, "run net.cad" + flags +
                     " : -n 1 -wdir elsewhere '" COLAUTO_BINARY "' run ../net.cad" + flags);
  EXPECT_EQ(out.status, 1) << out.err;
  EXPECT_TRUE(contains(out.err, "error[E1003]")) << out.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "here"));
}

// Those that are left see that its process is gone, and say so before the launcher ends them too.
TEST_F(RunFaults, ARankIsKilled) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  for (const char* flags : {"--devices 3 --plan zero3", "--devices 6 --plan dp"}) {
    const Output out = run_ranks(3, kForEver + flags, "KILL");
    EXPECT_EQ(out.status, 128 + SIGKILL) << out.err;
    EXPECT_TRUE(contains(out.err, "rank 1") && contains(out.err, "signal 9")) << out.err;
    for (const int rank : {0, 2}) {
      EXPECT_TRUE(contains(messages(rank), "error[E1001]: rank 1 (the last was: "))
          << rank << ": " << messages(rank);
      EXPECT_TRUE(contains(messages(rank), "ended without a word: killed, or crashed"))
          << rank << ": " << messages(rank);
      EXPECT_TRUE(contains(messages(rank), "`--resume`")) << rank << ": " << messages(rank);
    }
    expect_gone_and_resumable("a killed rank");
  }
}

// In a step so long that no device comes to look for its neighbours before the launcher kills.
TEST_F(RunFaults, ARankIsKilledInALongStep) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  write("net.cad",
        "dim B, D = 1024, E = D, L = 200\nmodel Net(x: [B, D]) -> [B, D] {\n"
        "  param w : [D, E] = normal(0.01)\n  repeat L { x = tanh(x @[D] w)[E -> D] }\n"
        "  return x\n}\ntrain net {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n"
        "  loss: mse(Net(x), y)\n  optimizer: sgd(lr: 1e-3)\n  B: 1024, steps: 1000\n}\n");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Output out =
        run_ranks(2, "run net.cad --quiet --devices 2 --plan dp --log log.jsonl", "KILL");
    ::_exit(out.status);
  }
  EXPECT_TRUE(wait_until([&] { return contains(read("log.jsonl"), "\"start\""); }));
  ::usleep(300'000);
  std::filesystem::create_directories(folder_ / "runs/net/step-000004");
  write("runs/net/step-000004/state.json", "");  // what the fault waits for
  EXPECT_EQ(status_of(child), 128 + SIGKILL);
  EXPECT_TRUE(events("log.jsonl", "step").empty()) << "the step is not long enough";
  EXPECT_TRUE(contains(messages(0), "error[E1001]: rank 1 (the last was: ")) << messages(0);
  EXPECT_TRUE(contains(messages(0), "ended without a word")) << messages(0);
  EXPECT_EQ(processes(), "");
}

// While the ranks still plan or compile nobody meets anybody: the one that is left says who is
// gone.
TEST_F(RunFaults, ARankIsKilledBeforeTheFirstStep) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  std::string deep = "dim B, D = 8\nmodel Net(x: [B, D]) -> [B, D] {\n";
  for (int i = 0; i < 150; ++i)  // no two alike, so none is compiled once for all
    deep += "  x = tanh(x * " + std::to_string(i + 2) + ".5 + Linear[D -> D](x))\n";
  write("deep.cad",
        deep +
            "  return x\n}\ntrain net {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n"
            "  loss: mse(Net(x), y)\n  optimizer: sgd(lr: 1e-3)\n  B: 8, steps: 9\n}\n");
  const struct {
    const char *what, *flags;
  } cases[] = {{"planning",
                "run net.cad --set L=40 --set B=64 --devices 8 --mesh a=2,b=2,c=2 "
                "--budget 700KiB "},
               {"compiling", "run deep.cad --devices 2 --plan dp "}};
  for (const auto& c : cases) {
    const std::string line = std::string(c.flags) + "--quiet --log log.jsonl";
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(run_ranks(2, line, "KILL").status);
    EXPECT_TRUE(wait_until([&] { return std::filesystem::exists(folder_ / "err.0"); })) << c.what;
    ::usleep(700'000);  // MPI has started
    std::filesystem::create_directories(folder_ / "runs/net/step-000004");
    write("runs/net/step-000004/state.json", "");  // what the fault waits for
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(status_of(child), 128 + SIGKILL) << c.what;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << c.what;
    EXPECT_EQ(read("log.jsonl"), "") << c.what << " has ended before";
    EXPECT_TRUE(contains(messages(0), "error[E1001]: rank 1 (the last was: "))
        << c.what << messages(0);
    EXPECT_TRUE(contains(messages(0), "ended without a word")) << c.what << messages(0);
    EXPECT_EQ(processes(), "") << c.what;
    for (const char* left : {"err.0", "err.1", "runs", "log.jsonl"})
      std::filesystem::remove_all(folder_ / left);
  }
}

// Whoever waits for a rank that itself waits for the stopped one does not take it for dead.
TEST_F(RunFaults, AStoppedRankIsNamedByAll) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  const Output out =
      run_ranks(4, kForEver + "--devices 4 --mesh dp=2,tp=2 --threads-per-device 1", "STOP", 3);
  EXPECT_EQ(out.status, 1) << out.err;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(contains(messages(rank), "error[E1001]")) << rank << ": " << messages(rank);
    EXPECT_TRUE(contains(messages(rank), "waited 5 s")) << rank << ": " << messages(rank);
    EXPECT_TRUE(contains(messages(rank), "no sign of rank 3")) << rank << ": " << messages(rank);
  }
  expect_gone_and_resumable("a stopped rank");
}

// One that stops and goes on before the time-out has only been slow.
TEST_F(RunFaults, ARankThatPausesGoesOn) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  const std::string flags =
      "run net.cad --quiet --set steps=60 --devices 2 --plan zero1 --threads-per-device 1 ";
  ASSERT_EQ(run(flags + "--log one.jsonl --save one").status, 0);
  const Output out = run_ranks(2, flags + "--log log.jsonl", "STOP", 1, 1.5);
  EXPECT_EQ(out.status, 0) << out.err << messages(0) << messages(1);
  EXPECT_EQ(losses("log.jsonl"), losses("one.jsonl"));
}

TEST_F(RunFaults, ARankThatNeverStarts) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  const auto begin = std::chrono::steady_clock::now();
  std::string mpi = kMpi;
  mpi.replace(mpi.find("TIMEOUT=5"), 9, "TIMEOUT=0.3");
  const Output out =
      run("run net.cad --quiet --devices 2 --plan dp : -n 1 sleep 100", mpi + "-n 1");
  EXPECT_EQ(out.status, 1) << out.err;
  EXPECT_TRUE(contains(out.err, "rank 0 waited 3 s for the other ranks to start")) << out.err;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_EQ(processes(), "");
}

TEST_F(RunFaults, TheProcessOfAllDevicesIsKilled) {
  const pid_t child =
      start({COLAUTO_BINARY, "run", "net.cad", "--quiet", "--set", "steps=100000000", "--set",
             "save.every=1", "--devices", "3", "--plan", "zero3"});
  wait_for("runs/net/step-000004/state.json");
  ::usleep(30'000);
  ::kill(child, SIGKILL);
  EXPECT_EQ(status_of(child), 128 + SIGKILL);
  expect_gone_and_resumable("a killed process", "--devices 2 --plan dp");
}

// The devices of a process that is stopped for longer than the time-out have not missed each other.
TEST_F(RunFaults, AStoppedProcessGoesOn) {
  const std::vector<std::string> line = {COLAUTO_BINARY,
                                         "run",
                                         "net.cad",
                                         "--quiet",
                                         "--set",
                                         "steps=60",
                                         "--devices",
                                         "3",
                                         "--plan",
                                         "zero1",
                                         "--log",
                                         "log.jsonl",
                                         "--overwrite",
                                         "--threads-per-device",
                                         "1"};
  ASSERT_EQ(status_of(start(line)), 0) << read(".err");
  const std::vector<double> through = losses("log.jsonl");
  std::filesystem::remove_all(folder_ / "runs");
  std::filesystem::remove(folder_ / "log.jsonl");
  const pid_t child = start(line, "0.4");
  wait_for("runs/net/step-000004/state.json");
  ::kill(child, SIGSTOP);
  ::usleep(2'500'000);
  ::kill(child, SIGCONT);
  EXPECT_EQ(status_of(child), 0) << read(".err");
  EXPECT_EQ(losses("log.jsonl"), through);
}

const char* const kRows = R"(dim B, D = 4
model Net(x: [B, D]) -> [B] {
  param w : [D] = ones
  return log(x * w + 1.0) @[D] w
}
train net {
  data: npy("x.npy", x: f32[B, D])
  loss: mean(Net(x) ^ 2)
  optimizer: sgd(lr: 1e-4)
  B: 4, steps: 6, order: sequential
  save { to: "runs/net", every: 1 }
}
)";

// A value that is not finite at one device: in its rows, in what it computes of them, in its part
// of a parameter. All devices say where it is from.
TEST_F(RunFaults, ANanAtOneDevice) {
  write("net.cad", kRows);
  const std::vector<float> good(4 * 24, 1.0F);
  const auto with = [&](float value) {  // in row 10: of the third step, the second device's
    std::vector<float> bad = good;
    bad[10 * 4 + 1] = value;
    return bad;
  };
  // the last element of `w`: by zero3 the second device's
  npy("good.npy", good, 4);
  npy("x.npy", good, 4);
  ASSERT_EQ(run("run net.cad --quiet --steps 0 --save first").status, 0);
  std::string model = read("first/step-000000/model.safetensors");
  const float nan = std::nanf("");
  std::memcpy(model.data() + model.size() - 4, &nan, 4);
  write("bad.safetensors", model);
  const struct {
    const char* what;
    float value;
    std::string flags, says;
    bool saved;
  } cases[] = {
      {"data", nan, "--plan dp", "`x` holds nan at row 10 of its data, which device 1", true},
      {"an operation", -5, "--plan dp",
       "the first value that is not finite comes from `log` on device 1", true},
      {"a parameter", 1, "--plan zero3 --init bad.safetensors",
       "the parameter `w` holds nan before this step on device 1", false}};
  for (const auto& c : cases) {
    npy("x.npy", with(c.value), 4);
    const std::string arguments = "run net.cad --quiet --devices 2 " + c.flags;
    const Output threads = run(arguments);
    EXPECT_EQ(threads.status, 1) << c.what << threads.err;
    EXPECT_TRUE(contains(threads.err, "error[E0701]")) << c.what << threads.err;
    EXPECT_TRUE(contains(threads.err, c.saved ? "at step 3" : "at step 1")) << threads.err;
    EXPECT_TRUE(contains(threads.err, c.says)) << c.what << threads.err;
    const auto repair = [&] { npy("x.npy", good, 4); };
    if (c.saved) {
      repair();
      expect_gone_and_resumable(c.what);
      npy("x.npy", with(c.value), 4);
    }
    std::filesystem::remove_all(folder_ / "runs");
    if (!have_mpi()) continue;
    const Output ranks = run_ranks(2, arguments);
    EXPECT_EQ(ranks.status, 1) << c.what << ranks.err;
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(contains(messages(rank), "error[E0701]")) << c.what << messages(rank);
      EXPECT_TRUE(contains(messages(rank), c.says + " (rank 1)")) << c.what << messages(rank);
    }
    if (c.saved) {
      repair();
      expect_gone_and_resumable(c.what, "--devices 3 --plan dp");
    }
    std::filesystem::remove_all(folder_ / "runs");
  }
}

TEST_F(RunFaults, TheDiskFillsAtASave) {
  for (const bool mpi : {false, true}) {
    if (mpi && !have_mpi()) continue;
    std::filesystem::create_directories(folder_ / "disk");
    if (::mount("tmpfs", (folder_ / "disk").c_str(), "tmpfs", 0, "size=600k") != 0)
      GTEST_SKIP() << "no right to mount a small disk";
    const std::string arguments =
        "run net.cad --quiet --devices 2 --plan zero1 --save disk/run --set steps=80";
    const Output full = mpi ? run_ranks(2, arguments) : run(arguments);
    EXPECT_EQ(full.status, 1) << full.err;
    if (mpi) {
      for (int rank = 0; rank < 2; ++rank) {
        EXPECT_TRUE(contains(messages(rank), "error[E0602]: cannot write") ||
                    contains(messages(rank), "saving: cannot write"))
            << rank << messages(rank);
      }
    } else {
      EXPECT_TRUE(contains(full.err, "error[E0602]: cannot write")) << full.err;
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "disk/run")) {
      const std::string name = entry.path().filename().string();
      EXPECT_NE(name.substr(0, 5), ".tmp-") << name;
    }
    std::filesystem::create_directories(folder_ / "runs");
    std::filesystem::copy(folder_ / "disk/run", folder_ / "runs/net",
                          std::filesystem::copy_options::recursive);
    EXPECT_EQ(::umount((folder_ / "disk").c_str()), 0);
    expect_gone_and_resumable("a full disk", "--devices 3 --plan dp --set steps=80");
  }
}

// Rank 0 alone writes the trace, when all have done their part.
TEST_F(RunFaults, ARankFailsAfterTheLastStep) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  const Output out =
      run_ranks(2, "run net.cad --quiet --steps 1 --devices 2 --plan dp --trace /dev/full");
  EXPECT_EQ(out.status, 1) << out.err;
  EXPECT_TRUE(contains(messages(0), "error[E0602]: cannot write")) << messages(0);
  EXPECT_TRUE(contains(messages(1), "error[E1001]: device 0 (rank 0)")) << messages(1);
  EXPECT_FALSE(contains(messages(0) + messages(1), "ended without a word"))
      << messages(0) << messages(1);
  EXPECT_EQ(processes(), "");
}

const char* const kAttention = R"(dim B, T = 512, S = T, D = 32, H = 2, K = D / H
model Net(x: [B, T, D]) -> [B, T, D] {
  param Wq, Wk, Wv : [D, H, K] = normal(0.3)
  param Wo         : [H, K, D] = normal(0.3)
  q = x @[D] Wq
  k = (x @[D] Wk)[T -> S]
  v = (x @[D] Wv)[T -> S]
  s = q @[K] k / sqrt(K)
  p = softmax[S](causal[T, S](s))
  return p @[S] v @[H, K] Wo
}
train net {
  data: synthetic(x: f32[B, T, D], y: f32[B, T, D])
  loss: mse(Net(x), y)
  optimizer: sgd(lr: 1e-3)
  B: 2, steps: 1
}
)";

// As on hosts of different sizes: what a device needs depends on its threads, and all ranks come to
// one program.
TEST_F(RunFaults, RanksWithFewerCores) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<std::string> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(std::to_string(core));
  }
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  write("bound.sh", "#!/bin/sh\ncores=" + cores[0] + "," + cores[1] +
                        "\n[ $OMPI_COMM_WORLD_RANK = 1 ] && cores=" + cores[0] +
                        "\nexec taskset -c $cores \"$@\"\n");
  write("wide.cad", kAttention);
  const std::string line = "run wide.cad --quiet --devices 2 --plan dp ";
  const auto peak = [&](const std::string& flags, const std::string& prefix = "") {
    const Output out = run(line + "--dry-run --json " + flags, prefix);
    EXPECT_EQ(out.status, 0) << out.err;
    return json::parse(out.out).at("predicted_peak_bytes").get<int64_t>();
  };
  const int64_t least = peak("--threads-per-device 1");
  EXPECT_GT(peak("--threads-per-device 2"), least);
  EXPECT_EQ(peak("", std::string(kMpi) + "-n 2 sh bound.sh"), least);
  // `auto`, which asks what the machine is, too
  const std::string any = "run wide.cad --quiet --devices 2 --plan auto";
  const Output out = run(any, std::string(kMpi) + "-n 2 sh bound.sh");
  EXPECT_EQ(out.status, 0) << out.err;
}

// Where nothing can be saved, nothing begins, at any rank.
TEST_F(RunFaults, APlaceThatCannotBeWritten) {
  write("taken", "a file");
  const Output threads = run("run net.cad --quiet --devices 2 --plan dp --save taken");
  EXPECT_EQ(threads.status, 1);
  EXPECT_TRUE(contains(threads.err, "error[E0602]: cannot write `taken`")) << threads.err;
  if (!have_mpi()) return;
  const Output ranks = run_ranks(2,
                                 "run net.cad --quiet --devices 2 --plan dp --save taken "
                                 "--log log.jsonl");
  EXPECT_EQ(ranks.status, 1) << ranks.err;
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_TRUE(contains(messages(rank), "cannot write `taken`")) << rank << messages(rank);
  EXPECT_TRUE(events("log.jsonl", "step").empty());
  EXPECT_EQ(processes(), "");
}

// Jobs on one machine do not meet each other.
TEST_F(RunFaults, JobsAtOnce) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  std::string script;
  for (const char* name : {"a", "b", "c"}) {
    script += std::string(kMpi) +
              "-n 2 '" COLAUTO_BINARY
              "' run net.cad --quiet --devices 2 --plan zero1 --threads-per-device 1 --save " +
              name + " --log " + name + ".jsonl & p" + name + "=$!\n";
  }
  script += "wait $pa && wait $pb && wait $pc\n";
  write("jobs.sh", script);
  EXPECT_EQ(std::system(("cd '" + folder_.string() + "' && sh jobs.sh 2>.err").c_str()), 0)
      << read(".err");
  EXPECT_EQ(losses("a.jsonl").size(), 8U);
  EXPECT_EQ(losses("a.jsonl"), losses("b.jsonl"));
  EXPECT_EQ(losses("a.jsonl"), losses("c.jsonl"));
  EXPECT_EQ(processes(), "");
}

// On a cube of devices too the answer comes soon, and names what does: the same whatever was asked.
TEST_F(RunFaults, NoChoiceFitsOnACube) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string cube =
      "run net.cad --quiet --dry-run --devices 8 --mesh a=2,b=2,c=2 --plan auto --budget ";
  const auto least_of = [&](const std::string& budget) {
    const Output out = run(cube + budget);
    EXPECT_EQ(out.status, 3) << out.err;
    const size_t needs = out.err.find("needs"), bytes = out.err.find('(', needs);
    EXPECT_TRUE(needs != std::string::npos && bytes != std::string::npos) << out.err;
    return std::stoll(out.err.substr(bytes + 1));
  };
  const int64_t least = least_of("1KiB");
  EXPECT_EQ(least_of(std::to_string(least / 2) + "B"), least);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(kSanitized ? 300 : 30));
  if (kSanitized) return;  // what does is searched for in many parts
  const Output out = run(cube + std::to_string(least) + "B");
  EXPECT_EQ(out.status, 0) << out.err;
}

// Planning holds nothing that has to be finished: a signal ends it at once.
TEST_F(RunFaults, SignalsEndPlanning) {
  for (const int signal : {SIGINT, SIGTERM}) {
    for (const char* command : {"run", "plan"}) {
      const pid_t child =
          start({COLAUTO_BINARY, command, "net.cad", "--set", "L=40", "--set", "B=64", "--devices",
                 "8", "--mesh", "a=2,b=2,c=2", "--budget", "700KiB"});
      ::usleep(400'000);
      const auto begin = std::chrono::steady_clock::now();
      ::kill(child, signal);
      EXPECT_EQ(status_of(child), 128 + signal) << command << read(".err");
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2)) << command;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
}

// Where no choice fits, the run ends with the reason: it does not fall back to one that cannot.
TEST_F(RunFaults, NoChoiceFits) {
  for (const char* flags : {"--devices 2 --budget 1KiB", "--devices 4 --mesh dp=4 --budget 2KiB",
                            "--devices 2 --plan dp --budget 1KiB", "--budget 1KiB"}) {
    const Output out = run(std::string("run net.cad --quiet --log log.jsonl ") + flags);
    EXPECT_EQ(out.status, 3) << flags << out.err;
    EXPECT_TRUE(contains(out.err, "error[E0901]") || contains(out.err, "error[E0703]")) << out.err;
    EXPECT_TRUE(contains(out.err, "needs")) << out.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs")) << flags;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "log.jsonl") && !read("log.jsonl").empty());
  }
}

}  // namespace
}  // namespace cad
