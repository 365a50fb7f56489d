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
  // cannot reach each other within two seconds have no line.
  void connect(int rank, const std::vector<Number>& numbers, const std::vector<char>& far);
  // This process ends in an orderly way, or has told why: its end is none that others must name.
  void say_goodbye();
  // Whether that rank's process has ended without a goodbye; any rank's.
  bool ended(int rank);
  bool any_ended();

 private:
  void look();  // mutex_ is held

  std::mutex mutex_;
  int listener_ = -1;
  uint64_t key_ = 0;
  std::vector<int> lines_;   // by rank: a socket that has not been heard of, or -1
  std::vector<int> silent_;  // sockets that have
  std::vector<char> ended_;  // by rank
  bool any_ = false;
};

}  // namespace cad::backend

#endif
