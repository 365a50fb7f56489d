// backend/comm/mpi_lines.h -- a connection to every rank on another host over which nothing goes:
// it breaks when that rank's process ends, and the kernel says so at once. Open MPI's own transport
// sees the same and ends this process without a word, so whoever may call MPI asks here first.
// Ranks of this host are watched by their pids (mpi_session.h). Only in builds with MPI.
#pragma once

#ifdef COLAUTO_MPI

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

namespace cad::backend {

class RankLines {
 public:
  // Where a rank can be called; travels as bytes.
  struct Number {
    std::array<uint32_t, 6> addresses{};  // IPv4, as in sockaddr_in; 0: none
    uint16_t port = 0;                    // as in sockaddr_in
    uint64_t key = 0;                     // what a caller has to say
  };

  RankLines() = default;
  ~RankLines();
  RankLines(const RankLines&) = delete;
  RankLines& operator=(const RankLines&) = delete;

  // Waits to be called; without a number where that cannot be.
  Number listen();
  // Calls the ranks after this one that are `far` and is called by those before it. Two ranks that
  // cannot reach each other within two seconds have no line, and none is who does not bid the
  // caller welcome: it had no room, or took it for somebody else.
  void connect(int rank, const std::vector<Number>& numbers, const std::vector<char>& far);
  // There is no line to that rank since this process may open no more descriptors.
  [[nodiscard]] bool lacks(int rank) const;
  // Whether there is, or was, a line to that rank.
  [[nodiscard]] bool has(int rank);
  // This process ends in an orderly way, or has told why: its end is none that others must name.
  void say_goodbye();
  // Whether that rank's process has ended without a goodbye; any rank's. A line that the network
  // breaks (a reset, no route) is not looked at any more, and says nothing of the rank.
  bool ended(int rank);
  bool any_ended();

 private:
  // mutex_ is held
  void look();
  [[nodiscard]] bool heard(size_t rank, int fd);

  std::mutex mutex_;
  int listener_ = -1;
  uint64_t key_ = 0;
  std::vector<int> lines_;   // by rank: a socket that has not been heard of, or -1
  std::vector<int> silent_;  // sockets that have
  std::vector<char> sure_;   // by rank: it has called, or bid this one welcome
  std::vector<char> ended_;  // by rank
  std::vector<char> lacks_;  // by rank
  bool any_ = false;
  bool deaf_ = false;  // no descriptors for being called
};

}  // namespace cad::backend

#endif
