// Ranks on two hosts. The hosts are two network namespaces of this machine, each with a host name
// of its own and joined by a cable (a veth pair) that can be pulled; all traffic is TCP. Needs root
// and `ip`; skipped where they are missing. Faults of ranks on one host: run_faults_test.cc.
#include <sys/wait.h>

#include "tests/commands/run_devices.h"

namespace cad {
namespace {

const char* const kForEver =
    "run net.cad --quiet --devices 4 --plan dp --threads-per-device 1 --overwrite "
    "--set steps=100000000 --log log.jsonl";

class TwoHosts : public RunDevices {
 protected:
  void SetUp() override {
    RunDevices::SetUp();
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
    RunDevices::TearDown();
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
  void pull_when_saved() const {
    for (int i = 0; i < 1200; ++i, ::usleep(50'000)) {
      if (std::filesystem::exists(folder_ / "runs/net/step-000004/state.json")) break;
    }
    EXPECT_TRUE(shell("ip -n " + names_[0] + " link set cable down"));
  }
  std::vector<std::string> names_;
};

TEST_F(TwoHosts, GiveTheBitsOfThreads) {
  const std::string flags = "run net.cad --quiet --devices 4 --threads-per-device 1 --plan zero1 ";
  ASSERT_EQ(run(flags + "--log one.jsonl --save one").status, 0);
  for (const int slots : {2, 1}) {  // one device a rank, then two
    const Output out =
        run_ranks(2 * slots, flags + "--log many.jsonl --save many", "", 0, 0, mpirun(slots));
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
  const Output out = run_ranks(4, kForEver, "KILL", 3, 0, mpirun(2));
  EXPECT_EQ(out.status, 128 + SIGKILL) << out.err;
  for (const int rank : {0, 1, 2}) {
    EXPECT_TRUE(contains(messages(rank), "error[E1001]: rank 3 on host-b (the last was: "))
        << rank << ": " << messages(rank) << out.err;
    EXPECT_TRUE(contains(messages(rank), "ended without a word")) << rank << ": " << messages(rank);
  }
  EXPECT_TRUE(contains(out.err, "process rank 3")) << out.err;
  expect_gone_and_resumable("a killed rank");
}

// The cable is pulled in mid-run. The ranks of each host miss the other's, say so and end, although
// no launcher can tell them to; that of Open MPI cannot reach its own daemon and is ended here.
TEST_F(TwoHosts, ACableIsPulled) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    run_ranks(4, kForEver, "", 0, 0, mpirun(2, "--mca oob_tcp_keepalive_time 300 "));
    ::_exit(0);
  }
  pull_when_saved();
  for (int i = 0; i < 400 && !contains(messages(0) + messages(1), "error[E1001]"); ++i)
    ::usleep(50'000);
  EXPECT_EQ(processes(true), "");
  for (int rank = 0; rank < 4; ++rank) {
    const std::string text = messages(rank);
    EXPECT_TRUE(contains(text, "error[E1001]")) << rank << ": " << text;
    EXPECT_TRUE(contains(text, "no sign of rank")) << rank << ": " << text;
    EXPECT_TRUE(contains(text, rank < 2 ? "on host-b" : "on host-a")) << rank << ": " << text;
  }
  for (const pid_t pid : running()) ::kill(pid, SIGKILL);
  ::waitpid(child, nullptr, 0);
  expect_gone_and_resumable("a pulled cable");
}

// With a launcher that looks after its daemons all end at once.
TEST_F(TwoHosts, ACableIsPulledAndTheLauncherSees) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Output out = run_ranks(4, kForEver, "", 0, 0,
                                 mpirun(2,
                                        "--mca oob_tcp_keepalive_time 2 --mca "
                                        "oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes "
                                        "2 ",
                                        "COLAUTO_COMM_TIMEOUT=20 "));
    write("launcher", out.err);
    ::_exit(out.status);
  }
  pull_when_saved();
  int raw = 0;
  ::waitpid(child, &raw, 0);
  EXPECT_TRUE(WIFEXITED(raw) && WEXITSTATUS(raw) != 0 && WEXITSTATUS(raw) != 124) << raw;
  EXPECT_TRUE(contains(read("launcher"), "lost communication")) << read("launcher");
  expect_gone_and_resumable("a pulled cable", "--devices 3 --plan zero1");
}

}  // namespace
}  // namespace cad
