// backend/comm/collective.h -- one collective between devices, as a value, and what every device
// moves for it: in each phase every member of the group takes a strided block from every other
// member's buffer and copies it, or adds it up in the group's order. Threads read the blocks in
// place, processes send them: the pieces are the same, so results are bit-equal whoever carries
// them. Not here: who waits for whom (thread_world.h, mpi_world.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/type.h"

namespace cad::backend {

enum class CollectiveKind : uint8_t {
  kAllReduce,      // in, out: elements
  kReduceScatter,  // in [outer, n, inner] -> out [outer, inner]: the member's own piece
  kAllGather,      // in [outer, inner] -> out [outer, n, inner], pieces in the group's order
  kAllToAll,       // splits one dim of `in` and joins another: see AllToAll
  kPermute,        // parts of a tensor become other parts of it: see Parts
  kBarrier
};
const char* collective_kind_name(CollectiveKind kind);  // "all-reduce"

enum class Reduction : uint8_t { kSum, kMax, kMin };  // f32 sums for 16-bit floats

// An all-to-all over n members. in [a, n*split, b, join, c] -> out [a, split, b, n*join, c], or,
// with `join_first`, in [a, join, b, n*split, c] -> out [a, n*join, b, split, c].
struct AllToAll {
  int64_t a = 1, split = 1, b = 1, join = 1, c = 1;
  bool join_first = false;
  bool operator==(const AllToAll&) const = default;
};

// A permute: every member holds a part of one tensor and gets another one, each element from who
// has it. The dims of a member's buffers, in order; of every dim the stretch that each member has.
struct Parts {
  struct Range {
    int64_t begin = 0, end = 0;
    bool operator==(const Range&) const = default;
  };
  struct Dim {
    int64_t in = 1, out = 1;       // extents of the buffers: at least as long as any stretch
    std::vector<Range> had, gets;  // by member, in elements of the whole dim
    bool operator==(const Dim&) const = default;
  };
  std::vector<Dim> dims;
  bool operator==(const Parts&) const = default;
};

// What all members of a group call in the same order. Two calls fit together when everything but
// `label` is equal.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  std::vector<int> members;  // device numbers, ascending; the caller is one of them
  ir::DType dtype = ir::DType::kF32;
  Reduction reduction = Reduction::kSum;
  int64_t outer = 1, inner = 1;  // elements of an all-reduce: outer * inner
  AllToAll all_to_all;
  Parts parts;
  std::string axis;   // mesh axes, for messages: "dp"
  std::string label;  // what it is for: "gradient of wte"
  [[nodiscard]] int size() const { return static_cast<int>(members.size()); }
  [[nodiscard]] int index_of(int device) const;  // -1: not a member
  [[nodiscard]] int64_t in_elements() const;
  [[nodiscard]] int64_t out_elements() const;
  [[nodiscard]] bool fits(const CollectiveCall& other) const;
  // "all-reduce over `dp` (16384 bytes of f32)"
  [[nodiscard]] std::string str() const;
};

// A block of elements: rows of `run` neighbours at all combinations of `count` steps, and of those
// of `outer`, which come first.
struct Piece {
  enum class Action : uint8_t { kCopy, kReduce } action = Action::kCopy;
  bool from_out = false;     // source: the other member's out instead of its in
  int64_t from = 0, to = 0;  // offsets in elements
  int64_t run = 0;           // 0: nothing moves
  std::array<int64_t, 2> count{1, 1}, from_step{0, 0}, to_step{0, 0};
  struct Steps {
    int64_t count = 1, from = 0, to = 0;
  };
  std::vector<Steps> outer;  // of permutes of many dims
  [[nodiscard]] int64_t elements() const {
    int64_t n = run * count[0] * count[1];
    for (const Steps& steps : outer) n *= steps.count;
    return n;
  }
};

int phases(CollectiveKind kind);  // 2 for all-reduce (reduce own slice, fetch the others), else 1
// What member `to` takes from member `from` in a phase. kReduce pieces have one geometry for all
// `from`: the results are their sums in the group's order.
Piece piece(const CollectiveCall& call, int phase, int from, int to);

// A buffer to take a piece from: the whole of it, or with `packed` the piece's elements in a row.
struct Source {
  const void* data = nullptr;
  bool packed = false;
};
void take_copy(const CollectiveCall& call, const Piece& piece, const Source& source, void* out);
// The sum (maximum, minimum) of all sources; `out` may be one of them. 16-bit floats are summed in
// f32 and rounded once.
void take_reduced(const CollectiveCall& call, const Piece& piece,
                  const std::vector<Source>& sources, void* out);
// What a permute gives this member nothing for, the tail of an uneven part: zeros, before any
// piece.
void clear_tail(const CollectiveCall& call, int member, void* out);
// The piece's elements in a row, for sending.
void pack(const CollectiveCall& call, const Piece& piece, const void* source, void* packed);

}  // namespace cad::backend
