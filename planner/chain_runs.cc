// planner/chain_runs.cc -- at most three runs of equal blocks. With h inputs kept before them, the
// j-th segment may be (M - q - j b) / S blocks long: room falls by one boundary a segment, so a
// run's segment length is what its last segment may be, and early runs have the longer segments.
#include "planner/chain_runs.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/check.h"

namespace cad::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int64_t kCuts = 64;     // ways to cut h segments in two that are tried
constexpr int64_t kFewCuts = 24;  // and twice in three

struct Search {
  Search(const BlockChain& chain, int64_t memory, int forward)
      : blocks(chain), budget(memory), forward_option(forward) {
    const StageOption& loss = chain.loss;
    loss_need = loss.saved + std::max(loss.forward_tmp, chain.boundary + loss.backward_tmp);
    sweep = chain.options[forward];
  }

  const BlockChain& blocks;
  int64_t budget = 0;
  int forward_option = 0;
  StageOption sweep;  // how blocks run unsaved
  int64_t loss_need = 0;
  bool any = false;  // stop at the first plan that fits
  double best = kNever;
  std::vector<ChainRun> runs;

  [[nodiscard]] const StageOption& option(int o) const { return blocks.options[o]; }
  [[nodiscard]] int64_t boundary() const { return blocks.boundary; }
  [[nodiscard]] double saved_time(int o) const { return option(o).forward + option(o).backward; }
  [[nodiscard]] double rerun_time(int o) const { return sweep.forward + saved_time(o); }

  // Blocks that the j-th segment may have when they are saved with o.
  [[nodiscard]] int64_t segment(int64_t j, int o) const {
    const int64_t b = boundary();
    if (j * b + 2 * b + sweep.forward_tmp > budget) {  // one block alone has no transient input
      if (j * b + b + sweep.forward_tmp > budget) return 0;
      return std::min<int64_t>(1, blocks_in(budget - j * b - own(o), o));
    }
    return blocks_in(budget - j * b - own(o), o);
  }
  // Beyond what is kept: saving runs with a gradient there, and the backward.
  [[nodiscard]] int64_t own(int o) const {
    return std::max(boundary() + option(o).forward_tmp, 2 * boundary() + option(o).backward_tmp);
  }
  // The same for blocks saved in the forward pass.
  [[nodiscard]] int64_t own_saved(int o) const {
    return std::max(option(o).forward_tmp, 2 * boundary() + option(o).backward_tmp);
  }
  [[nodiscard]] int64_t blocks_in(int64_t bytes, int o) const {
    if (bytes < 0) return 0;
    return option(o).saved == 0 ? blocks.count : std::min(blocks.count, bytes / option(o).saved);
  }

  void offer(double time, const std::vector<ChainRun>& plan) {
    if (time >= best) return;
    best = time;
    runs.clear();
    for (const ChainRun& run : plan) {
      if (run.blocks == 0) continue;
      if (!runs.empty() && runs.back().segment == run.segment && runs.back().option == run.option) {
        runs.back().blocks += run.blocks;
      } else {
        runs.push_back(run);
      }
    }
  }
  [[nodiscard]] bool done() const { return any && best < kNever; }

  void two_segments_and_saved(int o1, int o2, int o3);
  void segments_and_two_saved(int o1, int o2, int o3);
  void three_segments(int o);
};

// The i-th of `cuts` places to cut h segments in two: all where h is small, else evenly spaced.
// They do not depend on the budget, so that a larger budget never gives a slower plan.
int64_t cut(int64_t h, int64_t i, int64_t cuts) {
  return h <= cuts ? i : i * h / cuts;
}

void Search::two_segments_and_saved(int o1, int o2, int o3) {
  const int64_t count = blocks.count, b = boundary();
  const double t1 = rerun_time(o1), t2 = rerun_time(o2), t3 = saved_time(o3);
  for (int64_t h = 0; h <= count && (h + 1) * b + loss_need <= budget && !done(); ++h) {
    const int64_t room = budget - (h + 1) * b - std::max(own_saved(o3), loss_need);
    const int64_t saved = blocks_in(room, o3);
    // What is saved has less room as h grows, and so does the last segment.
    const double rest = std::min(t1, t2), gain = std::max(0.0, rest - t3);
    if (static_cast<double>(count) * rest - static_cast<double>(saved) * gain >= best) break;
    const int64_t g2 = h == 0 ? 0 : segment(h, o2);
    if (h > 0 && g2 == 0 && segment(h, o1) == 0) break;
    for (int64_t i = 0; i <= std::min(h, kCuts); ++i) {
      const int64_t c = cut(h, i, kCuts);
      const int64_t g1 = c == 0 ? 0 : segment(c, o1);
      if ((c > 0 && g1 == 0) || (c < h && g2 == 0)) continue;
      // as many as fit of the cheapest kind first
      struct Part {
        double time;
        int64_t room;
        int which;
      } parts[3] = {{t1, c * g1, 0}, {t2, (h - c) * g2, 1}, {t3, saved, 2}};
      std::stable_sort(parts, parts + 3,
                       [](const Part& x, const Part& y) { return x.time < y.time; });
      int64_t left = count;
      double time = 0;
      int64_t used[3] = {0, 0, 0};
      for (const Part& part : parts) {
        used[part.which] = std::min(left, part.room);
        left -= used[part.which];
        time += static_cast<double>(used[part.which]) * part.time;
      }
      if (left == 0) offer(time, {{used[0], g1, o1}, {used[1], g2, o2}, {used[2], 0, o3}});
    }
  }
}

// For h segments, n1 blocks run again, n2 saved with o2 and n3 with o3 that saves more and is
// faster: n3 is what the room leaves, linear in n1 but for rounding down, so the best n1 is near an
// end of its range.
void Search::segments_and_two_saved(int o1, int o2, int o3) {
  const int64_t count = blocks.count, b = boundary();
  const int64_t s2 = option(o2).saved, s3 = option(o3).saved;
  const double t1 = rerun_time(o1), t2 = saved_time(o2), t3 = saved_time(o3);
  if (s3 <= s2 || t3 >= t2) return;
  const int64_t period = s2 == 0 ? 1 : (s3 - s2) / s2 + 2;
  for (int64_t h = 0; h <= count && (h + 1) * b + loss_need <= budget && !done(); ++h) {
    const int64_t kept = (h + 1) * b;
    const int64_t room = budget - kept - std::max(own_saved(o3), loss_need);
    const int64_t room2 = budget - kept - own_saved(o2);
    const int64_t g = h == 0 ? 0 : segment(h, o1);
    if (room < 0 || room2 < 0 || (h > 0 && g == 0)) break;
    const int64_t most = std::min(count, h * g);
    const int64_t least = std::max<int64_t>(0, count - blocks_in(room, o2));
    const auto try_blocks = [&](int64_t n1) {
      const int64_t rest = count - n1;
      const int64_t n3 = std::min(rest, (room - rest * s2) / (s3 - s2));
      const int64_t n2 = rest - n3;
      if (n2 * s2 > room2) return;
      offer(static_cast<double>(n1) * t1 + static_cast<double>(n2) * t2 +
                static_cast<double>(n3) * t3,
            {{n1, g, o1}, {n2, 0, o2}, {n3, 0, o3}});
    };
    for (int64_t n1 = least; n1 <= most && n1 < least + period; ++n1) try_blocks(n1);
    for (int64_t n1 = most; n1 >= least && n1 > most - period; --n1) try_blocks(n1);
    if (h > 0 && static_cast<double>(least) * t1 >= best) break;
  }
}

// Where nothing can be saved in the forward pass: three steps under the falling room.
void Search::three_segments(int o) {
  const int64_t count = blocks.count, b = boundary();
  const double time = static_cast<double>(count) * rerun_time(o);
  if (time >= best) return;
  for (int64_t h = 1; h <= count && (h + 1) * b + loss_need <= budget; ++h) {
    const int64_t g3 = segment(h, o);
    if (g3 == 0) return;
    for (int64_t i = 0; i <= std::min(h, kFewCuts); ++i) {
      const int64_t c2 = cut(h, i, kFewCuts);
      const int64_t g2 = c2 == 0 ? 0 : segment(c2, o);
      for (int64_t j = 0; j <= std::min(c2, kFewCuts); ++j) {
        const int64_t c1 = cut(c2, j, kFewCuts);
        const int64_t g1 = c1 == 0 ? 0 : segment(c1, o);
        const int64_t n1 = std::min(count, c1 * g1);
        const int64_t n2 = std::min(count - n1, (c2 - c1) * g2);
        const int64_t n3 = count - n1 - n2;
        if (n3 > (h - c2) * g3) continue;
        offer(time, {{n1, g1, o}, {n2, g2, o}, {n3, g3, o}});
        return;
      }
    }
  }
}

// Options that another one beats in everything are left out.
std::vector<int> useful_options(const std::vector<StageOption>& options) {
  std::vector<int> useful;
  for (size_t i = 0; i < options.size(); ++i) {
    const StageOption& a = options[i];
    bool beaten = false;
    for (size_t j = 0; j < options.size() && !beaten; ++j) {
      const StageOption& c = options[j];
      const bool no_worse = c.forward + c.backward <= a.forward + a.backward &&
                            c.saved <= a.saved && c.forward_tmp <= a.forward_tmp &&
                            c.backward_tmp <= a.backward_tmp;
      const bool same = no_worse && a.forward + a.backward <= c.forward + c.backward &&
                        a.saved <= c.saved && a.forward_tmp <= c.forward_tmp &&
                        a.backward_tmp <= c.backward_tmp;
      beaten = j != i && no_worse && (!same || j < i);
    }
    if (!beaten) useful.push_back(static_cast<int>(i));
  }
  return useful;
}

std::vector<int> ways_to_run(const std::vector<StageOption>& options) {
  std::vector<int> ways;
  for (size_t i = 0; i < options.size(); ++i) {
    bool beaten = false;
    for (size_t j = 0; j < options.size(); ++j) {
      const bool no_worse = options[j].forward <= options[i].forward &&
                            options[j].forward_tmp <= options[i].forward_tmp;
      const bool same = options[j].forward == options[i].forward &&
                        options[j].forward_tmp == options[i].forward_tmp;
      beaten = beaten || (j != i && no_worse && (!same || j < i));
    }
    if (!beaten) ways.push_back(static_cast<int>(i));
  }
  return ways;
}

void search_all(Search& search, const std::vector<int>& useful) {
  for (const int o3 : useful) {
    for (const int o1 : useful) {
      for (const int o2 : useful) {
        search.two_segments_and_saved(o1, o2, o3);
        search.segments_and_two_saved(o1, o2, o3);
        if (search.done()) return;
      }
    }
  }
  for (const int o : useful) search.three_segments(o);
}

ChainRuns best_runs(const BlockChain& blocks, int64_t budget, bool any) {
  const std::vector<int> useful = useful_options(blocks.options);
  ChainRuns plan;
  plan.time = kNever;
  for (const int way : ways_to_run(blocks.options)) {
    Search search(blocks, budget, way);
    search.any = any;
    search_all(search, useful);
    if (search.best >= plan.time) continue;
    plan.feasible = true;
    plan.runs = search.runs;
    plan.forward_option = way;
    plan.time = search.best;
  }
  return plan;
}

// Memory by position, run by run: see runs_schedule().
int64_t runs_peak(const BlockChain& blocks, const ChainRuns& plan) {
  const int64_t b = blocks.boundary, sweep = blocks.options[plan.forward_option].forward_tmp;
  int64_t inputs = 0, saved = 0, peak = 0;
  bool in_saved = false;  // the next block's input is part of what the last one saved
  for (const ChainRun& run : plan.runs) {
    const StageOption& o = blocks.options[run.option];
    const int64_t backward = 2 * b + o.backward_tmp;
    if (run.segment == 0) {
      if (!in_saved) ++inputs;
      in_saved = true;
      saved += run.blocks * o.saved;
      peak = std::max(peak, inputs * b + saved + std::max(o.forward_tmp, backward));
      continue;
    }
    const int64_t segments = (run.blocks + run.segment - 1) / run.segment;
    const int64_t tail = run.blocks - (segments - 1) * run.segment;  // the last may be shorter
    for (const auto& [count, length] : {std::pair{segments - 1, run.segment}, {segments, tail}}) {
      if (count == 0) continue;
      const int64_t kept = (inputs + count - (in_saved ? 1 : 0)) * b + saved;
      const int64_t again = length * o.saved + std::max(b + o.forward_tmp, backward);
      peak = std::max({peak, kept + (length > 1 ? 2 : 1) * b + sweep, kept + again});
    }
    inputs += segments - (in_saved ? 1 : 0);
    in_saved = false;
  }
  const StageOption& loss = blocks.loss;
  const int64_t end = inputs * b + saved + (in_saved ? 0 : b);
  return std::max(peak, end + loss.saved + std::max(loss.forward_tmp, b + loss.backward_tmp));
}

}  // namespace

int64_t least_runs_budget(const BlockChain& blocks) {
  int64_t low = 0, high = 1;  // nothing fits in low
  while (high < INT64_MAX / 4 && !best_runs(blocks, high, true).feasible) high *= 2;
  while (low + 1 < high) {
    const int64_t middle = low + (high - low) / 2;
    (best_runs(blocks, middle, true).feasible ? high : low) = middle;
  }
  return high;
}

Chain expand(const BlockChain& blocks) {
  Chain chain{blocks.boundary, {}};
  for (int64_t i = 0; i < blocks.count; ++i)
    chain.stages.push_back({blocks.boundary, blocks.options});
  chain.stages.push_back({0, {blocks.loss}});
  return chain;
}

ChainRuns three_runs(const BlockChain& blocks, int64_t budget) {
  CAD_CHECK(blocks.count >= 1 && !blocks.options.empty(), "{} blocks, {} options", blocks.count,
            blocks.options.size());
  ChainRuns plan = best_runs(blocks, budget, false);
  if (!plan.feasible) {
    plan.least_budget = least_runs_budget(blocks);
    plan.time = 0;
    return plan;
  }
  plan.time += blocks.loss.forward + blocks.loss.backward;
  plan.peak = runs_peak(blocks, plan);
  return plan;
}

std::vector<ChainOp> runs_schedule(const BlockChain& blocks, const ChainRuns& plan) {
  using Kind = ChainOpKind;
  struct Segment {
    int32_t first = 0, end = 0;
    int option = 0;
    bool saved = false;
  };
  std::vector<Segment> segments;
  int32_t at = 0;
  for (const ChainRun& run : plan.runs) {
    const int64_t length = run.segment == 0 ? run.blocks : run.segment;
    for (int64_t done = 0; done < run.blocks; done += length) {
      const auto take = static_cast<int32_t>(std::min(length, run.blocks - done));
      segments.push_back({at, at + take, run.option, run.segment == 0});
      at += take;
    }
  }
  std::vector<ChainOp> schedule;
  const auto save = [&](const Segment& segment) {
    for (int32_t s = segment.first; s < segment.end; ++s)
      schedule.push_back({Kind::kForwardSave, s, segment.option});
  };
  for (const Segment& segment : segments) {
    if (segment.saved) {
      save(segment);
      continue;
    }
    for (int32_t s = segment.first; s < segment.end; ++s) {
      schedule.push_back(
          {s == segment.first ? Kind::kForwardKeep : Kind::kForward, s, plan.forward_option});
    }
  }
  schedule.push_back({Kind::kForwardSave, at, 0});
  schedule.push_back({Kind::kBackward, at, 0});
  if (!segments.back().saved) schedule.push_back({Kind::kDrop, at, 0});
  for (size_t i = segments.size(); i-- > 0;) {
    const Segment& segment = segments[i];
    if (!segment.saved) save(segment);
    for (int32_t s = segment.end; s-- > segment.first;)
      schedule.push_back({Kind::kBackward, s, segment.option});
    const bool kept = segment.first > 0 && !segments[i - 1].saved;
    if (kept) schedule.push_back({Kind::kDrop, segment.first, 0});
  }
  CAD_CHECK(at == blocks.count, "runs of {} blocks for {}", at, blocks.count);
  return schedule;
}

}  // namespace cad::planner
