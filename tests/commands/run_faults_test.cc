// What happens to a run on several devices when one of them fails, stops, is not like the others or
// is told to end: every rank ends in time and says who and why, no process is left, and the last
// complete checkpoint goes on. Threads and ranks. The collectives' own failures: tests/comm.
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <cstring>
#include <thread>

#include "tests/commands/faulty_runs.h"
#include "tests/npy_file.h"

namespace cad {
namespace {

// What a rank says of one that is killed: what that did last, and that it is gone.
const char* const kEndedBefore = "error[E1001]: rank 1 (the last was: ";
const char* const kWithoutAWord = "ended without a word: killed, or crashed";

class RunFaults : public FaultyRuns {
 protected:
  // What a fault waits for, where no run makes four steps.
  void strike() const {
    std::filesystem::create_directories(folder_ / "runs/net/step-000004");
    write("runs/net/step-000004/state.json", "");
  }
  // The newest complete checkpoint loads; for programs of which a run would take long.
  void expect_readable(const std::string& program) const {
    std::filesystem::remove_all(folder_ / "runs/net/step-000004");
    EXPECT_EQ(newest_step(), 0);
    const Output read = run("params " + program + " --init runs/net");
    EXPECT_EQ(read.status, 0) << read.err;
  }
  void wait_for(const std::string& name) const {
    EXPECT_TRUE(wait_until([&] { return std::filesystem::exists(folder_ / name); })) << name;
  }
};

TEST_F(RunFaults, SignalsFinishTheStepAndSave) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string name = signal == SIGINT ? "SIGINT" : "SIGTERM";
    const json end =
        json::parse(interrupted({COLAUTO_BINARY, "run", "net.cad", "--devices", "2", "--plan", "dp",
                                 "--set", "steps=100000000", "--overwrite", "--log", "log.jsonl"},
                                signal));
    EXPECT_EQ(end["interrupted"], name);
    EXPECT_TRUE(contains(read(".err"), "interrupted by " + name)) << read(".err");
    EXPECT_TRUE(std::filesystem::exists(folder_ / checkpoint_of(end)));
    expect_gone_and_resumable(name, "--devices 3 --plan zero3");
  }
}

// A signal at one of the ranks, as a scheduler sends it: all finish the step and save.
TEST_F(RunFaults, ASignalAtARank) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string name = signal == SIGINT ? "SIGINT" : "SIGTERM";
    const Output out = run_ranks(
        2, "run net.cad --set steps=100000000 --log log.jsonl --devices 4 --plan dp", {signal});
    // rank 0 speaks for all
    expect_failed(out, {128 + signal, 2, {"interrupted by " + name}, 1}, name);
    const json end = events("log.jsonl", "end").at(0);
    EXPECT_EQ(end["interrupted"], name);
    EXPECT_TRUE(std::filesystem::exists(folder_ / checkpoint_of(end)));
    expect_gone_and_resumable(name + " at rank 1");
  }
}

// Whatever is refused, on whichever thread, the run says that memory ran out; what was saved stays.
TEST_F(RunFaults, MemoryThatIsRefused) {
  if (kSanitized) GTEST_SKIP() << "address space is no measure of memory under a sanitizer";
  save_first();
  int refused = 0;
  for (int limit = 120'000; limit <= 600'000; limit += 80'000) {  // KiB
    const Output out = run("run net.cad --quiet --steps 5 --resume --devices 4 --plan dp",
                           "ulimit -v " + std::to_string(limit) + "; ");
    if (contains(out.err, "error while loading shared libraries")) continue;
    if (out.status == 0) continue;
    ++refused;
    expect_failed(out, {1, 0, {"error[E0703]: not enough memory"}}, std::to_string(limit));
  }
  EXPECT_GT(refused, 0);
  expect_gone_and_resumable("memory that is refused");
}

// mpirun passes an interrupt on, and kills after a second who is not done by then.
TEST_F(RunFaults, AnInterruptOfTheLauncher) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  std::string word;
  std::vector<std::string> line{"env"};
  std::istringstream all(kMpi + std::string(" -n 2 " COLAUTO_BINARY
                                            " run net.cad --set steps=100000000 --log log.jsonl "
                                            "--devices 2 --plan dp"));
  while (all >> word) {
    // `timeout` would stand between the signal and mpirun
    if (word == "timeout" && all >> word) continue;
    line.push_back(word);
  }
  const pid_t child = start(line);
  wait_for("runs/net/step-000004/state.json");
  const double then = now_s();
  ::kill(child, SIGINT);
  const Output out = ended(child, then);
  expect_failed(out, {out.status, 0, {"interrupted by SIG"}});
  expect_gone_and_resumable("an interrupt of mpirun", "--devices 2 --plan zero1");
}

// Ranks that were not started alike, each kind of difference: both sides are named, nothing begins,
// and what `--overwrite` would have replaced is still there.
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
  save_first();
  const std::string saved = read("runs/net/step-000004/model.safetensors");
  const std::string rest =
      " --quiet --devices 2 --save '" + (folder_ / "runs/net").string() + "' --overwrite";
  const std::string both = "device 0 (rank 0) and device 1 (rank 1) ";
  const auto differ = [&](const std::string& first, const std::string& second,
                          const std::string& says, const std::string& what) {
    expect_failed(run_two("run " + first + rest, "run " + second + rest),
                  {1, 2, {"error[E1002]: " + both + says}}, what);
    EXPECT_EQ(newest_step(), 4) << what;
    EXPECT_EQ(read("runs/net/step-000004/model.safetensors"), saved) << what;
  };
  const struct {
    const char* what;
    std::string first, second;
  } cases[] = {{"seed", "net.cad --plan dp --seed 1", "net.cad --plan dp --seed 2"},
               {"program", "net.cad --plan dp", "other.cad --plan dp"},
               {"plan", "net.cad --plan dp", "net.cad --plan zero3"},
               {"data", "net.cad --plan dp", "sub/net.cad --plan dp"}};
  for (const auto& c : cases)
    differ(c.first, c.second, std::string("disagree about the ") + c.what, c.what);
  // first values come from files that each rank reads for itself
  ASSERT_EQ(run("run net.cad --quiet --steps 0 --save one").status, 0);
  ASSERT_EQ(run("run net.cad --quiet --steps 0 --save two --seed 9").status, 0);
  differ("net.cad --plan dp --init one", "net.cad --plan dp --init two",
         "start from different values of `", "first values");
  expect_gone_and_resumable("ranks that differ", "--devices 2 --plan dp");
}

// Two ranks in different folders, as on hosts without a common file system.
TEST_F(RunFaults, AFolderThatNotAllSee) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  std::filesystem::create_directories(folder_ / "elsewhere");
  save_first();
  const std::string flags = " --quiet --devices 2 --plan dp --save runs/net --overwrite";
  const Output out = run_two("run net.cad" + flags, "run ../net.cad" + flags, "-wdir elsewhere ");
  expect_failed(out, {1, 2, {"device 1 does not see the first device's `runs/net`"}});
  EXPECT_TRUE(contains(messages(1), "error[E1003]")) << messages(1);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "elsewhere/runs"));
  expect_gone_and_resumable("a folder that not all see");
}

// Those that are left see that its process is gone, and say so before the launcher ends them too.
TEST_F(RunFaults, ARankIsKilled) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  for (const char* flags : {"--devices 3 --plan zero3", "--devices 6 --plan dp"}) {
    const Output out = run_ranks(3, kForEver + flags, {SIGKILL});
    EXPECT_TRUE(contains(out.err, "rank 1") && contains(out.err, "signal 9")) << out.err;
    expect_failed(out, {128 + SIGKILL, 3, {kEndedBefore, kWithoutAWord, "`--resume`"}, 1}, flags);
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
  ASSERT_EQ(run("run net.cad --quiet --steps 0 --save runs/net").status, 0);
  std::thread fault([&] {
    EXPECT_TRUE(wait_until([&] { return contains(read("log.jsonl"), "\"start\""); }));
    ::usleep(300'000);
    strike();
  });
  const Output out = run_ranks(
      2, "run net.cad --quiet --devices 2 --plan dp --resume --save runs/net --log log.jsonl",
      {SIGKILL});
  fault.join();
  EXPECT_TRUE(events("log.jsonl", "step").empty()) << "the step is not long enough";
  expect_failed(out, {128 + SIGKILL, 2, {kEndedBefore, kWithoutAWord}, 1});
  expect_readable("net.cad");
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
    const char *what, *program, *flags;
  } cases[] = {{"planning", "net.cad --set L=40 --set B=64",
                " --devices 8 --mesh a=2,b=2,c=2 --budget 700KiB"},
               {"compiling", "deep.cad", " --devices 2 --plan dp"}};
  for (const auto& c : cases) {
    const std::string line = std::string("run ") + c.program + " --quiet --save runs/net ";
    ASSERT_EQ(run(line + "--steps 0").status, 0);
    std::thread fault([&] {
      EXPECT_TRUE(wait_until([&] { return std::filesystem::exists(folder_ / "err.0"); })) << c.what;
      ::usleep(700'000);  // MPI has started
      strike();
    });
    const Output out = run_ranks(2, line + "--resume --log log.jsonl" + c.flags, {SIGKILL});
    fault.join();
    EXPECT_EQ(read("log.jsonl"), "") << c.what << " has ended before";
    expect_failed(out, {128 + SIGKILL, 2, {kEndedBefore, kWithoutAWord}, 1}, c.what);
    expect_readable(c.program);
    for (const char* left : {"runs", "log.jsonl", "err.0"})
      std::filesystem::remove_all(folder_ / left);
  }
}

// Whoever waits for a rank that itself waits for the stopped one does not take it for dead.
TEST_F(RunFaults, AStoppedRankIsNamedByAll) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  const Output out =
      run_ranks(4, kForEver + "--devices 4 --mesh dp=2,tp=2 --threads-per-device 1", {SIGSTOP, 3});
  expect_failed(out, {1, 4, {"error[E1001]", "waited 5 s", "no sign of rank 3"}, 3});
  expect_gone_and_resumable("a stopped rank");
}

// One that stops and goes on before the time-out has only been slow.
TEST_F(RunFaults, ARankThatPausesGoesOn) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  const std::string flags =
      "run net.cad --quiet --set steps=60 --devices 2 --plan zero1 --threads-per-device 1 ";
  ASSERT_EQ(run(flags + "--log one.jsonl --save one").status, 0);
  const Output out = run_ranks(2, flags + "--log log.jsonl", {SIGSTOP, 1, 1.5});
  EXPECT_EQ(out.status, 0) << out.err << messages(0) << messages(1);
  EXPECT_EQ(losses("log.jsonl"), losses("one.jsonl"));
}

TEST_F(RunFaults, ARankThatNeverStarts) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  save_first();
  std::string mpi = kMpi;
  mpi.replace(mpi.find("TIMEOUT=5"), 9, "TIMEOUT=0.3");
  const Output out = run_ranks(
      1, "run net.cad --quiet --devices 2 --plan dp --overwrite : -n 1 sleep 100", {}, mpi);
  expect_failed(out, {1, 1, {"rank 0 waited 3 s for the other ranks to start"}});
  expect_gone_and_resumable("a rank that never starts");
}

TEST_F(RunFaults, TheProcessOfAllDevicesIsKilled) {
  const pid_t child =
      start({COLAUTO_BINARY, "run", "net.cad", "--quiet", "--set", "steps=100000000", "--set",
             "save.every=1", "--devices", "3", "--plan", "zero3"});
  wait_for("runs/net/step-000004/state.json");
  ::usleep(30'000);
  const double then = now_s();
  ::kill(child, SIGKILL);
  expect_failed(ended(child, then), {128 + SIGKILL});
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
  const auto rows = [&](const std::vector<float>& values) {
    write("x.npy", npy_file({24, 4}, values));
  };
  rows(good);
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
    rows(with(c.value));
    const std::string arguments = "run net.cad --quiet --devices 2 " + c.flags;
    const std::string step = c.saved ? "at step 3" : "at step 1";
    expect_failed(run(arguments), {1, 0, {"error[E0701]", step, c.says}}, c.what);
    if (c.saved) {
      rows(good);
      expect_gone_and_resumable(c.what);
      rows(with(c.value));
    }
    EXPECT_EQ(newest_step(), -1) << c.what;
    std::filesystem::remove_all(folder_ / "runs");
    if (!have_mpi()) continue;
    expect_failed(run_ranks(2, arguments), {1, 2, {"error[E0701]", step, c.says + " (rank 1)"}},
                  c.what);
    if (c.saved) {
      rows(good);
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
    expect_failed(full, {1, mpi ? 2 : 0, {"cannot write"}});
    for (const std::string& text : mpi ? std::vector<std::string>{messages(0), messages(1)}
                                       : std::vector<std::string>{full.err}) {
      EXPECT_TRUE(contains(text, "error[E0602]: cannot write") ||
                  (mpi && contains(text, "saving: cannot write")))
          << text;
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
  expect_failed(out, {1, 2, {}});
  EXPECT_TRUE(contains(messages(0), "error[E0602]: cannot write")) << messages(0);
  EXPECT_TRUE(contains(messages(1), "error[E1001]: device 0 (rank 0)")) << messages(1);
  EXPECT_FALSE(contains(messages(0) + messages(1), kWithoutAWord)) << messages(0) << messages(1);
  expect_gone_and_resumable("a trace that cannot be written");
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
  const std::string line = "run net.cad --quiet --devices 2 --plan dp --save taken";
  expect_failed(run(line), {1, 0, {"error[E0602]: cannot write `taken`"}});
  if (!have_mpi()) return;
  expect_failed(run_ranks(2, line + " --log log.jsonl"), {1, 2, {"cannot write `taken`"}});
  EXPECT_TRUE(events("log.jsonl", "step").empty());
  EXPECT_EQ(read("taken"), "a file");
}

// On a cube of devices too the answer comes soon, and names what does: the same whatever was asked.
TEST_F(RunFaults, NoChoiceFitsOnACube) {
  const double begin = now_s();
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
  EXPECT_LT(now_s() - begin, kSanitized ? 300 : 30);
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
      const double then = now_s();
      ::kill(child, signal);
      const Output out = ended(child, then);
      expect_failed(out, {128 + signal}, command);
      EXPECT_LT(out.seconds, 2) << command;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
}

// Where no choice fits, the run ends with the reason: it does not fall back to one that cannot.
TEST_F(RunFaults, NoChoiceFits) {
  for (const char* flags : {"--devices 2 --budget 1KiB", "--devices 4 --mesh dp=4 --budget 2KiB",
                            "--devices 2 --plan dp --budget 1KiB", "--budget 1KiB"}) {
    const Output out = run(std::string("run net.cad --quiet --log log.jsonl ") + flags);
    expect_failed(out, {3, 0, {"needs"}}, flags);
    EXPECT_TRUE(contains(out.err, "error[E0901]") || contains(out.err, "error[E0703]")) << out.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs")) << flags;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "log.jsonl") && !read("log.jsonl").empty());
  }
}

}  // namespace
}  // namespace cad
