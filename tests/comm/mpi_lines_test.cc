// Connections between ranks of different hosts (backend/comm/mpi_lines.h), without MPI: two ends in
// this process, or one end and a socket of the test's own that does not keep to the rules.
#ifdef COLAUTO_MPI_TEST
#define COLAUTO_MPI
#include "backend/comm/mpi_lines.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

namespace cad::backend {
namespace {

using Numbers = std::vector<RankLines::Number>;

// Where this process itself answers.
RankLines::Number here(RankLines::Number number) {
  number.addresses = {htonl(INADDR_LOOPBACK)};
  return number;
}

template <class F>
bool soon(F&& holds) {
  for (int i = 0; i < 200; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}
void a_moment() {
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

// Ranks 0 and 1, connected.
struct Two {
  Two() {
    const Numbers numbers = {here(a->listen()), here(b->listen())};
    std::thread other([&] { b->connect(1, numbers, {1, 0}); });
    a->connect(0, numbers, {0, 1});
    other.join();
  }
  std::unique_ptr<RankLines> a = std::make_unique<RankLines>(), b = std::make_unique<RankLines>();
};

TEST(RankLines, TellWhoseProcessHasEnded) {
  Two caller_stays, called_stays;
  EXPECT_TRUE(soon([&] { return caller_stays.a->has(1) && caller_stays.b->has(0); }));
  EXPECT_TRUE(soon([&] { return called_stays.a->has(1); }));  // nothing is left unread
  EXPECT_FALSE(caller_stays.a->any_ended() || caller_stays.b->any_ended());
  caller_stays.b.reset();
  EXPECT_TRUE(soon([&] { return caller_stays.a->ended(1); }));
  EXPECT_TRUE(caller_stays.a->any_ended());
  EXPECT_FALSE(caller_stays.a->ended(0));
  called_stays.a.reset();
  EXPECT_TRUE(soon([&] { return called_stays.b->ended(0); }));
}

TEST(RankLines, TakeAGoodbyeForNoEnd) {
  Two two;
  two.b->say_goodbye();
  two.b.reset();
  a_moment();
  EXPECT_FALSE(two.a->any_ended());
  EXPECT_TRUE(two.a->has(1));
}

// Rank 1 as a socket of the test: what it does with rank 0's call.
struct Callee {
  Callee() {
    RankLines::Number number;
    fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    socklen_t length = sizeof any;
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
    EXPECT_EQ(::listen(fd, 4), 0);
    EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&any), &length), 0);
    number.port = any.sin_port;
    caller.connect(0, {here(caller.listen()), here(number)}, {0, 1});
    line = ::accept(fd, nullptr, nullptr);
    EXPECT_GE(line, 0);
    char greeting[16];
    EXPECT_EQ(::recv(line, greeting, sizeof greeting, MSG_WAITALL), 16);
  }
  ~Callee() {
    hang_up();
    ::close(fd);
  }
  void say(char what) const { EXPECT_EQ(::send(line, &what, 1, MSG_NOSIGNAL), 1); }
  void hang_up() {
    if (line >= 0) ::close(line);
    line = -1;
  }
  void reset() {  // as a firewall does that has forgotten the connection
    const linger at_once{1, 0};
    EXPECT_EQ(::setsockopt(line, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    hang_up();
  }
  RankLines caller;
  int fd = -1, line = -1;
};

TEST(RankLines, ALineThatWasRefusedIsNobodysEnd) {
  Callee refuses;
  refuses.hang_up();
  a_moment();
  EXPECT_FALSE(refuses.caller.any_ended());
  EXPECT_FALSE(refuses.caller.has(1));
}

TEST(RankLines, AWelcomeMakesALine) {
  Callee welcomes;
  welcomes.say('w');
  EXPECT_TRUE(soon([&] { return welcomes.caller.has(1); }));
  EXPECT_FALSE(welcomes.caller.any_ended());
  welcomes.hang_up();
  EXPECT_TRUE(soon([&] { return welcomes.caller.ended(1); }));
}

TEST(RankLines, ALineThatTheNetworkBreaksIsNobodysEnd) {
  Callee lives;
  lives.say('w');
  EXPECT_TRUE(soon([&] { return lives.caller.has(1); }));
  lives.reset();
  a_moment();
  EXPECT_FALSE(lives.caller.any_ended());
  EXPECT_TRUE(lives.caller.has(1));
}

// Calls with a greeting of its own making.
int call_as(const RankLines::Number& number, uint64_t key, int32_t rank) {
  struct {
    uint64_t key;
    int32_t rank, pad;
  } const greeting{key, rank, 0};
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = number.addresses[0];
  to.sin_port = number.port;
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  EXPECT_EQ(::send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL), ssize_t{sizeof greeting});
  return fd;
}

// Somebody else calls first: a port scan, a rank of another job. The line is the rank's all the
// same.
TEST(RankLines, WhoDoesNotKnowTheKeyIsNobody) {
  auto a = std::make_unique<RankLines>(), b = std::make_unique<RankLines>();
  const Numbers numbers = {here(a->listen()), here(b->listen())};
  std::vector<int> strangers;
  for (const auto& [key, rank] : {std::pair(numbers[1].key ^ 1, 0),
                                  {uint64_t{0}, 0},
                                  {numbers[1].key, -1},
                                  {numbers[1].key, 7}})
    strangers.push_back(call_as(numbers[1], key, rank));
  std::thread other([&] { b->connect(1, numbers, {1, 0}); });
  a->connect(0, numbers, {0, 1});
  other.join();
  EXPECT_TRUE(soon([&] { return a->has(1) && b->has(0); }));
  for (const int fd : strangers) ::close(fd);
  a_moment();
  EXPECT_FALSE(a->any_ended() || b->any_ended());
  a.reset();
  EXPECT_TRUE(soon([&] { return b->ended(0); }));
}

TEST(RankLines, AllThatWasSaidIsHeardAtOnce) {
  Callee leaves, ends;
  leaves.say('w');
  leaves.say('b');
  leaves.hang_up();
  ends.say('w');
  ends.hang_up();
  a_moment();
  EXPECT_FALSE(leaves.caller.any_ended());
  EXPECT_TRUE(ends.caller.ended(1));
}

// No more descriptors for this process than `more`, until it goes.
struct NoDescriptors {
  explicit NoDescriptors(int more = 0) {
    ::getrlimit(RLIMIT_NOFILE, &before);
    const int next = ::dup(0);
    ::close(next);
    rlimit less = before;
    less.rlim_cur = static_cast<rlim_t>(next + more);
    ::setrlimit(RLIMIT_NOFILE, &less);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before); }
  rlimit before{};
};

TEST(RankLines, WithoutDescriptorsThereAreNoLines) {
  RankLines none;
  {
    const NoDescriptors limit;
    EXPECT_EQ(none.listen().port, 0);
  }
  RankLines first;
  none.connect(1, {here(first.listen()), {}}, {1, 0});
  EXPECT_TRUE(none.lacks(0));
  // who calls, and who is called
  for (const bool calls : {true, false}) {
    RankLines a, b;
    const Numbers numbers = {here(a.listen()), here(b.listen())};
    if (!calls) {
      a.connect(0, numbers, {0, 1});
      const NoDescriptors limit;
      b.connect(1, numbers, {1, 0});
    } else {
      const NoDescriptors limit;
      a.connect(0, numbers, {0, 1});
    }
    EXPECT_EQ(a.lacks(1), calls);
    EXPECT_EQ(b.lacks(0), !calls);
    a_moment();
    EXPECT_FALSE(a.has(1) || b.has(0));
    EXPECT_FALSE(a.any_ended() || b.any_ended()) << calls;
  }
}

// The welcome of the rank that was called may come later: nothing lacks there.
TEST(RankLines, OnlyWhatWasNotOpenedLacks) {
  RankLines caller, called, another;
  const Numbers numbers = {here(caller.listen()), here(called.listen()), here(another.listen())};
  {
    const NoDescriptors limit(1);
    caller.connect(0, numbers, {0, 1, 1});
  }
  EXPECT_FALSE(caller.has(1));
  EXPECT_FALSE(caller.lacks(0));
  EXPECT_FALSE(caller.lacks(1));
  EXPECT_TRUE(caller.lacks(2));
}

}  // namespace
}  // namespace cad::backend

#endif
