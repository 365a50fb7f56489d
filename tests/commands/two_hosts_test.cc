// Ranks on two hosts. The hosts are two network namespaces of this machine, each with a host name
// of its own and joined by a cable (a veth pair) that can be pulled; all traffic is TCP. Needs root
// and `ip`; skipped where they are missing. Faults of ranks on one host: run_faults_test.cc.
#include <thread>

#include "tests/commands/faulty_runs.h"

namespace cad {
namespace {

class TwoHosts : public FaultyRuns {
 protected:
  void SetUp() override {
    FaultyRuns::SetUp();
    if (!have_mpi()) GTEST_SKIP() << "no mpirun";
    if (std::system("command -v ip >/dev/null 2>&1 && command -v unshare >/dev/null 2>&1") != 0)
      GTEST_SKIP() << "no `ip` (iproute2) or no `unshare` (util-linux)";
    for (const char* host : {"a", "b"}) names_.push_back(namespace_of(host));
    for (const std::string& name : names_) {
      if (!shell("ip netns add " + name))
        GTEST_SKIP() << "no right to make a network namespace: " << read("shell.err");
    }
    for (const std::string& step :
         {"ip link add cable netns " + names_[0] + " type veth peer name cable netns " + names_[1],
          "ip -n " + names_[0] + " addr add 10.77.0.1/24 dev cable",
          "ip -n " + names_[1] + " addr add 10.77.0.2/24 dev cable",
          "ip -n " + names_[0] + " link set lo up", "ip -n " + names_[1] + " link set lo up",
          "ip -n " + names_[0] + " link set cable up",
          "ip -n " + names_[1] + " link set cable up"}) {
      if (!shell(step)) GTEST_SKIP() << step << ": " << read("shell.err");
    }
    // What mpirun calls to start its daemon on the other host: agent [flags] ADDRESS COMMAND..
    write("agent.sh", "#!/bin/sh\nshift\nexec ip netns exec " + names_[1] +
                          " unshare -u sh -c 'hostname host-b; exec sh -c \"$*\"' sh \"$@\"\n");
    shell("chmod +x agent.sh");
  }
  void TearDown() override {
    for (const std::string& name : names_) shell("ip netns del " + name);
    FaultyRuns::TearDown();
  }
  static std::string namespace_of(const std::string& host) {
    return "colauto-" + std::to_string(::getpid()) + host;
  }
  bool shell(const std::string& command) const {
    const std::string line = "cd '" + folder_.string() + "' && " + command + " 2>shell.err";
    return std::system(line.c_str()) == 0;
  }
  // mpirun on host a, `slots` ranks a host.
  std::string mpirun(int slots, const std::string& more = "", const std::string& set = "") const {
    const std::string slots_text = " slots=" + std::to_string(slots) + "\n";
    write("hosts", "10.77.0.1" + slots_text + "10.77.0.2" + slots_text);
    std::string mpi = kMpi;  // ends in "timeout 120 mpirun "
    const size_t at = mpi.find("timeout 120");
    return mpi.substr(0, at) + set + "ip netns exec " + names_[0] +
           " unshare -u sh -c 'hostname host-a; exec \"$@\"' sh " + mpi.substr(at) +
           "--hostfile hosts --mca plm_rsh_agent '" + (folder_ / "agent.sh").string() +
           "' --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 "
           "--mca oob_tcp_if_include 10.77.0.0/24 " +
           more;
  }
  // Returns when.
  double pull_when_saved() const {
    EXPECT_TRUE(wait_until(
        [&] { return std::filesystem::exists(folder_ / "runs/net/step-000004/state.json"); }));
    const double then = now_s();
    EXPECT_TRUE(shell("ip -n " + names_[0] + " link set cable down"));
    return then;
  }
  std::vector<std::string> names_;
  const std::string long_run_ = kForEver + "--devices 4 --plan dp --threads-per-device 1";
};

TEST_F(TwoHosts, GiveTheBitsOfThreads) {
  const std::string flags = "run net.cad --quiet --devices 4 --threads-per-device 1 --plan zero1 ";
  ASSERT_EQ(run(flags + "--log one.jsonl --save one").status, 0);
  for (const int slots : {2, 1}) {  // one device a rank, then two
    const Output out =
        run_ranks(2 * slots, flags + "--log many.jsonl --save many", {}, mpirun(slots));
    ASSERT_EQ(out.status, 0) << out.err << messages(0) << messages(1);
    EXPECT_EQ(losses("many.jsonl"), losses("one.jsonl")) << slots;
    EXPECT_EQ(read("many/step-000008/model.safetensors"),
              read("one/step-000008/model.safetensors"));
    EXPECT_EQ(processes(), "");
    std::filesystem::remove_all(folder_ / "many");
    std::filesystem::remove(folder_ / "many.jsonl");
  }
}

// The ranks of both hosts see that it is gone and name it, before Open MPI's transport, which sees
// a peer hang up, or the launcher ends them.
TEST_F(TwoHosts, ARankIsKilled) {
  const Output out = run_ranks(4, long_run_, {SIGKILL, 3}, mpirun(2));
  expect_failed(out, {128 + SIGKILL,
                      4,
                      {"error[E1001]: rank 3 on host-b (the last was: ", "ended without a word"},
                      3});
  EXPECT_TRUE(contains(out.err, "process rank 3")) << out.err;
  expect_gone_and_resumable("a killed rank");
}

// The cable is pulled in mid-run. The ranks of each host miss the other's, say so and end, although
// no launcher can tell them to; that of Open MPI cannot reach its own daemon and is ended here.
TEST_F(TwoHosts, ACableIsPulled) {
  Output out;
  std::thread launcher(
      [&] { out = run_ranks(4, long_run_, {}, mpirun(2, "--mca oob_tcp_keepalive_time 300 ")); });
  const double then = pull_when_saved();
  EXPECT_TRUE(wait_until([&] { return contains(messages(0) + messages(1), "error[E1001]"); }));
  EXPECT_EQ(processes(true), "");
  EXPECT_LT(now_s() - then, kInTime);
  for (const pid_t pid : running()) ::kill(pid, SIGKILL);
  launcher.join();
  out.began = then;
  out.seconds = 0;  // it was ended here; its ranks were not
  expect_failed(out, {128 + SIGKILL, 4, {"error[E1001]", "no sign of rank"}});
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(contains(messages(rank), rank < 2 ? "on host-b" : "on host-a")) << messages(rank);
  expect_gone_and_resumable("a pulled cable");
}

// With a launcher that looks after its daemons all end at once.
TEST_F(TwoHosts, ACableIsPulledAndTheLauncherSees) {
  Output out;
  std::thread launcher([&] {
    out = run_ranks(4, long_run_, {},
                    mpirun(2,
                           "--mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 "
                           "--mca oob_tcp_keepalive_probes 2 ",
                           "COLAUTO_COMM_TIMEOUT=20 "));
  });
  const double then = pull_when_saved();
  launcher.join();
  out.seconds -= then - out.began;
  out.began = then;
  EXPECT_NE(out.status, 124) << "no end came of itself";
  expect_failed(out, {out.status, 4, {}});
  EXPECT_TRUE(contains(out.err, "lost communication")) << out.err;
  expect_gone_and_resumable("a pulled cable", "--devices 3 --plan zero1");
}

}  // namespace
}  // namespace cad
