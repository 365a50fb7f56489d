// backend/comm/mpi_lines.cc -- see mpi_lines.h.
#include "backend/comm/mpi_lines.h"

#ifdef COLAUTO_MPI

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <random>
#include <utility>

namespace cad::backend {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLimit = std::chrono::seconds(2);

// What goes over a line: the caller's greeting, its answer, and a goodbye of either.
constexpr char kWelcome = 'w', kGoodbye = 'b';
struct Greeting {
  uint64_t key = 0;
  int32_t rank = 0, pad = 0;
};

sockaddr_in address_of(uint32_t address, uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = address;
  to.sin_port = port;
  return to;
}

int new_socket() {
  return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int milliseconds_to(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

// Whether `fd` is ready for `events` before `end`.
bool ready(int fd, short events, Clock::time_point end) {
  pollfd one{fd, events, 0};
  int result = 0;
  do {
    result = ::poll(&one, 1, milliseconds_to(end));
  } while (result < 0 && errno == EINTR);
  return result == 1 && (one.revents & events) != 0;
}

bool no_descriptors() {
  return errno == EMFILE || errno == ENFILE;
}

// A line to one of the addresses, or -1. The kernel there answers: nobody needs to accept yet.
int call(const RankLines::Number& number, int rank, Clock::time_point end, bool& is_short) {
  for (const uint32_t address : number.addresses) {
    if (address == 0 || milliseconds_to(end) == 0) continue;
    const int fd = new_socket();
    if (fd < 0) {
      is_short = is_short || no_descriptors();
      return -1;
    }
    const sockaddr_in to = address_of(address, number.port);
    // one that does not answer leaves time for the others
    const auto until = std::min(end, Clock::now() + kLimit / 4);
    const bool at_once = ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
    int error = 0;
    socklen_t length = sizeof error;
    const bool there =
        at_once || (errno == EINPROGRESS && ready(fd, POLLOUT, until) &&
                    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0);
    const Greeting hello{number.key, rank, 0};
    if (there && ::send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello) return fd;
    ::close(fd);
  }
  return -1;
}

}  // namespace

RankLines::~RankLines() {
  for (const auto* fds : {&lines_, &silent_}) {
    for (const int fd : *fds) {
      if (fd >= 0) ::close(fd);
    }
  }
  if (listener_ >= 0) ::close(listener_);
}

RankLines::Number RankLines::listen() {
  Number number;
  listener_ = new_socket();
  sockaddr_in any = address_of(htonl(INADDR_ANY), 0);
  socklen_t length = sizeof any;
  deaf_ = listener_ < 0 && no_descriptors();
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&any), sizeof any) != 0 ||
      ::listen(listener_, SOMAXCONN) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&any), &length) != 0)
    return {};
  number.port = any.sin_port;
  std::random_device random;
  number.key = key_ = uint64_t{random()} << 32 | random();
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) {
    deaf_ = no_descriptors();
    return {};
  }
  size_t count = 0;
  for (const ifaddrs* i = all; i != nullptr && count < number.addresses.size(); i = i->ifa_next) {
    const unsigned wanted = IFF_UP, unwanted = IFF_LOOPBACK;
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET ||
        (i->ifa_flags & wanted) == 0 || (i->ifa_flags & unwanted) != 0)
      continue;
    number.addresses[count++] = reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr.s_addr;
  }
  ::freeifaddrs(all);
  return number;
}

void RankLines::connect(int rank, const std::vector<Number>& numbers,
                        const std::vector<char>& far) {
  const std::lock_guard lock(mutex_);
  const auto end = Clock::now() + kLimit;
  lines_.assign(numbers.size(), -1);
  sure_.assign(numbers.size(), 0);
  ended_.assign(numbers.size(), 0);
  lacks_.assign(numbers.size(), 0);
  int callers = 0;
  for (size_t r = 0; r < numbers.size(); ++r) {
    if (far[r] == 0 || numbers[r].port == 0) continue;
    if (static_cast<int>(r) > rank) {
      bool is_short = false;
      lines_[r] = call(numbers[r], rank, end, is_short);
      lacks_[r] = is_short ? 1 : 0;
    } else {
      ++callers;
    }
  }
  while (listener_ >= 0 && callers > 0 && ready(listener_, POLLIN, end)) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED || errno == EAGAIN) continue;
      deaf_ = deaf_ || no_descriptors();
      break;  // the others have no line
    }
    Greeting hello;
    const bool said = ready(fd, POLLIN, end) &&
                      ::recv(fd, &hello, sizeof hello, MSG_DONTWAIT) == sizeof hello &&
                      hello.key == key_ && hello.rank >= 0 && hello.rank < rank;
    const auto from = static_cast<size_t>(hello.rank);
    if (!said || far[from] == 0 || lines_[from] >= 0) {
      ::close(fd);
      continue;
    }
    lines_[from] = fd;
    sure_[from] = 1;
    --callers;
    if (::send(fd, &kWelcome, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) continue;  // it is gone
  }
  if (listener_ >= 0) ::close(std::exchange(listener_, -1));
  for (size_t r = 0; deaf_ && r < static_cast<size_t>(rank); ++r)
    lacks_[r] = far[r] != 0 && numbers[r].port != 0 && lines_[r] < 0 ? 1 : 0;
  look();  // a process that ends with something unread resets its lines
}

void RankLines::say_goodbye() {
  const std::lock_guard lock(mutex_);
  for (const int fd : lines_) {
    if (fd >= 0 && ::send(fd, &kGoodbye, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) continue;
  }
}

// Reads what there is. False: the line is at its end, after a goodbye or without one.
bool RankLines::heard(size_t rank, int fd) {
  for (;;) {
    char said = 0;
    const ssize_t n = ::recv(fd, &said, 1, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (n == 1 && said == kWelcome) {
      sure_[rank] = 1;
      continue;
    }
    // Errors are the network's, and say nothing of the rank: a firewall resets what is idle. Nor
    // does the end of a line that never was one.
    if (n == 0 && sure_[rank] != 0) {
      ended_[rank] = 1;
      any_ = true;
    }
    return false;
  }
}

void RankLines::look() {
  std::vector<pollfd> open;
  std::vector<size_t> of;
  for (size_t r = 0; r < lines_.size(); ++r) {
    if (lines_[r] < 0) continue;
    open.push_back({lines_[r], POLLIN, 0});
    of.push_back(r);
  }
  if (open.empty() || ::poll(open.data(), open.size(), 0) <= 0) return;
  for (size_t i = 0; i < open.size(); ++i) {
    if (open[i].revents == 0 || heard(of[i], open[i].fd)) continue;
    silent_.push_back(std::exchange(lines_[of[i]], -1));  // open: the other end would take it for
                                                          // this process's
  }
}

bool RankLines::lacks(int rank) const {
  return !lacks_.empty() && lacks_[static_cast<size_t>(rank)] != 0;
}

bool RankLines::has(int rank) {
  const std::lock_guard lock(mutex_);
  look();
  return !sure_.empty() && sure_[static_cast<size_t>(rank)] != 0;
}

bool RankLines::ended(int rank) {
  const std::lock_guard lock(mutex_);
  look();
  return !ended_.empty() && ended_[static_cast<size_t>(rank)] != 0;
}

bool RankLines::any_ended() {
  const std::lock_guard lock(mutex_);
  look();
  return any_;
}

}  // namespace cad::backend

#endif
