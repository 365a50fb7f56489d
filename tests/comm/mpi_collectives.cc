// Run under mpirun by mpi_test.cc, not by itself: `mpi_collectives TEST DEVICES_PER_RANK`. Every
// rank leaves with status 0 when its part of the test holds.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "backend/comm/mpi_world.h"
#include "backend/comm/thread_world.h"

namespace {

using namespace cad::backend;
using Floats = std::vector<float>;

int failures = 0;
void expect(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "rank %d: %s\n", mpi_rank(), what);
  ++failures;
}

template <class F>
void on_local_devices(World& world, F f) {
  std::vector<std::thread> threads;
  for (int d = 0; d < world.local_devices(); ++d) {
    threads.emplace_back([&world, &f, device = world.first_device() + d] {
      Communicator comm(world, device);
      f(device, comm);
    });
  }
  for (std::thread& t : threads) t.join();
}

Floats numbers(int64_t n, int device, int call) {
  std::mt19937 random(static_cast<unsigned>(device * 1000 + call));
  std::uniform_real_distribution<float> uniform(-1, 1);
  Floats x(static_cast<size_t>(n));
  for (float& v : x) v = uniform(random);
  return x;
}

// Every kind over every group of a line of devices: all, neighbours, every second.
std::vector<CollectiveCall> calls(int devices, int device) {
  std::vector<std::vector<int>> groups(3);
  for (int d = 0; d < devices; ++d) {
    groups[0].push_back(d);
    if (d / 2 == device / 2) groups[1].push_back(d);
    if (d % 2 == device % 2) groups[2].push_back(d);
  }
  std::vector<CollectiveCall> result;
  for (const auto& members : groups) {
    CollectiveCall call;
    call.members = members;
    call.outer = 3;
    call.inner = 1001;
    // columns of the neighbour, and of half of the rows
    Parts::Dim rows{6, 3, {}, {}}, columns{5, 5, {}, {}};
    for (int i = 0; i < call.size(); ++i) {
      const int from = (i + 1) % call.size();
      rows.had.push_back({0, 6});
      rows.gets.push_back({i % 4, i % 4 + 3});
      columns.had.push_back({5 * i, 5 * i + 5});
      columns.gets.push_back({5 * from, 5 * from + 5});
    }
    call.parts.dims = {rows, {7, 7, {}, {}}, columns};
    call.parts.dims[1].had = call.parts.dims[1].gets =
        std::vector<Parts::Range>(call.members.size(), {0, 7});
    call.all_to_all = {2, 3, 2, 5, 7, false};
    for (CollectiveKind kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather,
          CollectiveKind::kAllToAll, CollectiveKind::kPermute, CollectiveKind::kBarrier}) {
      call.kind = kind;
      call.all_to_all.join_first = !call.all_to_all.join_first;
      result.push_back(call);
    }
  }
  return result;
}

// What every device gets, by (device, call).
using Results = std::vector<std::vector<Floats>>;

void run_all(int device, Communicator& comm, int devices, std::vector<Floats>& results) {
  const std::vector<CollectiveCall> list = calls(devices, device);
  results.resize(list.size());
  std::vector<Floats> in;
  std::vector<Communicator::Ticket> tickets;
  for (size_t i = 0; i < list.size(); ++i) {
    in.push_back(numbers(list[i].in_elements(), device, static_cast<int>(i)));
    results[i].assign(static_cast<size_t>(list[i].out_elements()), -1);
  }
  for (size_t i = 0; i < list.size(); ++i)
    tickets.push_back(comm.start(list[i], in[i].data(), results[i].data()));
  for (size_t i = 0; i < list.size(); ++i) expect(comm.wait(tickets[i]), "a collective failed");
}

void test_equal_to_threads(World& world) {
  const int devices = world.devices();
  Results want(static_cast<size_t>(devices)), got(static_cast<size_t>(devices));
  {
    ThreadWorld threads(devices);
    on_local_devices(threads, [&](int device, Communicator& comm) {
      run_all(device, comm, devices, want[static_cast<size_t>(device)]);
    });
  }
  for (int turn = 0; turn < 3; ++turn) {
    on_local_devices(world, [&](int device, Communicator& comm) {
      run_all(device, comm, devices, got[static_cast<size_t>(device)]);
    });
    for (int d = 0; d < world.local_devices(); ++d) {
      const auto at = static_cast<size_t>(world.first_device() + d);
      for (size_t i = 0; i < want[at].size(); ++i) {
        expect(want[at][i] == got[at][i], "values differ from those of threads");
      }
    }
  }
}

void test_disagreement(World& world) {
  on_local_devices(world, [&](int device, Communicator& comm) {
    CollectiveCall call;
    call.kind = CollectiveKind::kAllReduce;
    for (int d = 0; d < world.devices(); ++d) call.members.push_back(d);
    call.inner = mpi_rank() == 1 ? 8 : 4;
    call.axis = "dp";
    Floats x(8);
    (void)device;
    expect(!comm.run(call, x.data(), x.data()), "a disagreement went unseen");
  });
  const std::string why = world.failure().value_or("");
  expect(why.find("16 bytes") != std::string::npos && why.find("32 bytes") != std::string::npos,
         why.c_str());
}

// Rank 1 does not come; the others must say so in time.
void test_absence(World& world) {
  if (mpi_rank() == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    return;
  }
  on_local_devices(world, [&](int, Communicator& comm) {
    CollectiveCall call;
    for (int d = 0; d < world.devices(); ++d) call.members.push_back(d);
    expect(!comm.run(call, nullptr, nullptr), "a missing rank went unseen");
  });
  const std::string why = world.failure().value_or("");
  expect(why.find("no sign of rank 1") != std::string::npos, why.c_str());
  sleep(1);
  mpi_abort(failures == 0 ? 5 : 6);  // as runs that fail do
}

// Rank 1 is stopped, and goes on long after the others have ended their part.
void test_stopped(World& world) {
  const auto begin = std::chrono::steady_clock::now();
  if (mpi_rank() == 1) {
    const pid_t self = getpid();
    if (fork() == 0) {
      sleep(4);
      kill(self, SIGCONT);
      _exit(0);
    }
    raise(SIGSTOP);
  }
  on_local_devices(world, [&](int, Communicator& comm) {
    CollectiveCall call;
    for (int d = 0; d < world.devices(); ++d) call.members.push_back(d);
    call.label = "the first";
    expect(!comm.run(call, nullptr, nullptr), "a stopped rank went unseen");
  });
  const std::string why = world.failure().value_or("");
  expect(why.find("no sign of rank 1") != std::string::npos, why.c_str());
  if (mpi_rank() != 1)
    expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(4), "too late");
}

// Rank 1 comes after three times the time-out: it has shown that it lives, so the others wait.
void test_slow(World& world) {
  if (mpi_rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
  on_local_devices(world, [&](int, Communicator& comm) {
    CollectiveCall call;
    call.kind = CollectiveKind::kAllReduce;
    for (int d = 0; d < world.devices(); ++d) call.members.push_back(d);
    float one = 1;
    expect(comm.run(call, &one, &one), "a slow rank was given up");
    expect(one == static_cast<float>(world.devices()), "the sum is wrong");
  });
  expect(!world.failure(), world.failure().value_or("").c_str());
}

// Rank 1 gives up for a reason of its own: the others end with that reason.
void test_giving_up(World& world) {
  if (mpi_rank() == 1) {
    world.fail("device 2: the loss is not finite");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return;
  }
  on_local_devices(world, [&](int, Communicator& comm) {
    CollectiveCall call;
    for (int d = 0; d < world.devices(); ++d) call.members.push_back(d);
    expect(!comm.run(call, nullptr, nullptr), "a failure went unheard");
  });
  expect(world.failure() == "device 2: the loss is not finite",
         world.failure().value_or("nothing").c_str());
}

// All have done their part, and rank 1 is killed before MPI has ended.
void test_late_death(std::unique_ptr<World>& world) {
  world.reset();
  if (mpi_rank() == 1) {
    sleep(1);
    raise(SIGKILL);
  }
}

// The others have done their part and hear of it before they leave, but do not ask.
void test_unasked_failure(std::unique_ptr<World>& world) {
  using namespace std::chrono_literals;
  if (mpi_rank() == 1) {
    world->fail("device 1 (rank 1): the disk is full");
    std::this_thread::sleep_for(2s);
    mpi_abort(7);
  }
  std::this_thread::sleep_for(500ms);
  world.reset();
}

// Rank 1 fails and goes on to its end; there it finds that the others, whom it has told, are gone
// before it.
void test_left_alone(std::unique_ptr<World>& world) {
  if (mpi_rank() == 1) {
    world->fail("device 1 (rank 1): the disk is full");
    world.reset();
    return;
  }
  while (!world->failure()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::_Exit(5);
}

// The others have done their part, rank 1 cannot do its own.
void test_late_failure(std::unique_ptr<World>& world) {
  if (mpi_rank() == 1) {
    sleep(1);
    world->fail("device 1 (rank 1): the disk is full");
    std::fprintf(stderr, "rank 1 has failed\n");
    sleep(1);
    mpi_abort(7);
  }
  world.reset();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string test = argv[1];
  const bool short_wait = test == "absence" || test == "stopped" || test == "slow";
  if (test == "left-alone") {
    std::atexit([] {  // runs after MPI's end, which make_mpi_world() has ordered
      if (mpi_rank() == 1) std::fputs("rank 1 ends as it was about to\n", stderr);
    });
  }
  auto world = make_mpi_world(std::atoi(argv[2]), short_wait ? 1 : 20);
  if (!world) return 3;
  if (test == "threads") test_equal_to_threads(**world);
  if (test == "disagreement") test_disagreement(**world);
  if (test == "absence") test_absence(**world);
  if (test == "giving-up") test_giving_up(**world);
  if (test == "stopped") test_stopped(**world);
  if (test == "slow") test_slow(**world);
  if (test == "late-death") test_late_death(*world);
  if (test == "unasked-failure") test_unasked_failure(*world);
  if (test == "left-alone") test_left_alone(*world);
  if (test == "late-failure") test_late_failure(*world);
  return failures == 0 ? 0 : 1;
}
