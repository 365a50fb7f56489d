// planner/chain_table.cc -- the recurrence as tables. Memory is the outer loop, in chunks of 32, so
// that the chunk of every row stays in cache while the segments are gone through by length.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "planner/chain_solver.h"

namespace cad::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kChunk = 32;

// Index in the chunk that starts at `from` of the first memory that is at least `need`.
inline int first_index(int64_t need, int64_t from) {
  return static_cast<int>(std::clamp<int64_t>(need - from, 0, kChunk));
}

}  // namespace

ChainTable::ChainTable(const ChainModel& model, int64_t memory, const ChainLate& late)
    : model_(model), least_(least_memory(model)) {
  CAD_CHECK(memory >= 0, "a table of memory {}", memory);
  // An odd number of chunks a row: powers of two would put all rows in the same cache sets.
  stride_ = (memory / kChunk / 2 * 2 + 1) * kChunk;
  if (stride_ <= memory) stride_ += int64_t{2} * kChunk;
  rows_.assign(model.segments().size() * static_cast<size_t>(stride_), kNever);
  guess_.resize(model.segments().size());
  right_end_.assign(model.segments().size(), kNever);
  left_end_ = right_end_;
  forward_.push_back(0);
  for (int s = 0; s < model.stages(); ++s) {
    const auto& way = model.unsaved(s).front();
    one_way_ = one_way_ && model.unsaved(s).size() == 1;
    forward_.push_back(forward_.back() + way.forward);
    run_need_.push_back(model.in(s) + model.out(s) + way.tmp);
  }
  complete_ = true;
  for (int64_t from = 0; from <= memory && complete_; from += kChunk) complete_ = fill(from, late);
}

double ChainTable::time(int s, int t, int64_t m) const {
  return m < 0 ? kNever : rows_[row_at(model_.id(s, t)) + m];
}

// acc[x] = min(acc[x], time of saving s with one of its options) for the chunk at `from`.
void ChainTable::add_saves(int s, int t, int64_t from, double* acc) const {
  for (const StageOption& o : model_.options(s)) {
    const double own = o.forward + o.backward;
    const int64_t rest = s < t ? row_at(model_.id(s + 1, t)) + from - o.saved : 0;
    for (int x = first_index(model_.save_need(s, t, o), from); x < kChunk; ++x) {
      const double value = own + (s < t ? rows_[rest + x] : 0);
      acc[x] = value < acc[x] ? value : acc[x];
    }
  }
}

// sweep[x] += time of the fastest way to run stage k unsaved, as part of (s, t), that fits.
void ChainTable::add_run(int s, int k, int t, int64_t from, double* sweep) const {
  const auto& ways = model_.unsaved(k);  // later ones are faster and need more
  double before = 0;
  for (const auto& way : ways) {
    for (int x = first_index(model_.run_need(s, k, t, way.tmp), from); x < kChunk; ++x) {
      sweep[x] += way.forward - before;
    }
    before = way.forward;
  }
}

// acc[x] = min(acc[x], time with k as the first checkpoint, after unsaved runs that take sweep[x]
// or `add`) for memories not below `need`. Times fall with memory, so acc[0] is the largest entry,
// and a checkpoint whose time at the end of the chunk does not beat it is of no use: most are not.
template <bool kOneWay>
inline bool ChainTable::relax(const Split& split, int64_t from, int64_t need, double add,
                              const double* sweep, double* acc) const {
  const double end = kOneWay ? add : sweep[kChunk - 1];
  if (!(left_end_[split.left] + right_end_[split.right] + end < acc[0])) return false;
  const int64_t kept = model_.in(split.k);
  const int64_t a = row_at(split.left) + from - kept, b = row_at(split.right) + from;
  const double* rows = rows_.data();
  const int first = first_index(std::max(need, kept), from);
  if (first == 0) {
    for (int x = 0; x < kChunk; ++x) {
      const double value = rows[a + x] + rows[b + x] + (kOneWay ? add : sweep[x]);
      acc[x] = value < acc[x] ? value : acc[x];
    }
    return true;
  }
  for (int x = first; x < kChunk; ++x) {
    const double value = rows[a + x] + rows[b + x] + (kOneWay ? add : sweep[x]);
    acc[x] = value < acc[x] ? value : acc[x];
  }
  return true;
}

// All first checkpoints where each stage has one way to run unsaved.
void ChainTable::add_splits(int s, int t, int64_t from, Guess& guess, double* acc) const {
  const int* right = model_.ids_from(s);
  const int* left = model_.ids_to(t);
  const int64_t out = model_.out(t), limit = from + kChunk;
  // The checkpoint that was last found best, for less memory, is a good start.
  if (guess.k > 0) {
    relax<true>({guess.k, left[guess.k], right[guess.k - 1]}, from, guess.need, guess.add, nullptr,
                acc);
  }
  const double base = model_.base(s, t), before = forward_[s];
  int64_t need = out + model_.out(s) + model_.unsaved(s).front().tmp;
  for (int k = s + 1; need < limit; need = std::max(need, out + run_need_[k]), ++k) {
    const double add = forward_[k] - before;
    if (base + add >= acc[0]) break;  // both parts take their base at least
    if (relax<true>({k, left[k], right[k - 1]}, from, need, add, nullptr, acc)) {
      guess = {k, need, add};
    }
    if (k == t) break;
  }
}

// The same where some have several: the time of the runs depends on the memory.
void ChainTable::add_splits_several_ways(int s, int t, int64_t from, double* acc) const {
  const int* right = model_.ids_from(s);
  const int* left = model_.ids_to(t);
  double sweep[kChunk] = {};
  int64_t need = 0;
  for (int k = s + 1; k <= t; ++k) {
    need = std::max(need, model_.run_need(s, k - 1, t, model_.unsaved(k - 1).front().tmp));
    if (need >= from + kChunk) break;
    add_run(s, k - 1, t, from, sweep);
    relax<false>({k, left[k], right[k - 1]}, from, need, 0, sweep, acc);
  }
}

// Chunk [from, from + kChunk) of every row; the chunks before are done.
bool ChainTable::fill(int64_t from, const ChainLate& late) {
  for (size_t i = 0; i < model_.segments().size(); ++i) {
    if (i % 256 == 255 && late && late()) return false;
    right_end_[i] = left_end_[i] = kNever;
    if (least_[i] >= from + kChunk) continue;
    const auto [s, t] = model_.segments()[i];
    double acc[kChunk];
    std::fill_n(acc, kChunk, kNever);
    add_saves(s, t, from, acc);
    if (s < t && acc[0] > model_.base(s, t)) {
      if (one_way_) {
        add_splits(s, t, from, guess_[i], acc);
      } else {
        add_splits_several_ways(s, t, from, acc);
      }
    }
    const int64_t row = row_at(static_cast<int>(i));
    std::copy_n(acc, kChunk, &rows_[row + from]);
    const int64_t end = from + kChunk - 1;
    right_end_[i] = acc[kChunk - 1];
    if (end >= model_.in(s)) left_end_[i] = rows_[row + end - model_.in(s)];
  }
  return true;
}

}  // namespace cad::planner
