// planner/segment_runs.cc -- see segment_runs.h. While the j-th segment runs again its own
// iterations are held and the carries of the j segments up to it, those of later ones being gone:
// each segment may be a little shorter than the one before it, a staircase. Up to three runs of
// equal segments stand for it, each as long as its last segment allows. Their numbers are tried on
// a grid, the best ones with a further run, and then changed one at a time.
#include "planner/segment_runs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cad::planner {

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr size_t kMostRuns = 3;
constexpr size_t kBeam = 4;    // shapes that get a further run
constexpr int64_t kGrid = 16;  // numbers of segments of a first run
constexpr int64_t kGridNext = 8;

// How many segments of which kind; lengths follow from the budget.
struct Shape {
  std::vector<int> kinds;
  std::vector<int64_t> segments;
  size_t plain = 0;  // of LoopKinds::plain
  double seconds = kInfinite;
};

// What runs come to, one after the other in forward order.
struct Sum {
  explicit Sum(const LoopKinds& l) : loop(l), all(static_cast<double>(l.iterations)) {
    // with no plain iteration the least of the kinds' moments stands for those of the rest
    for (const SegmentKind& kind : l.kinds) moment = std::min(moment, kind.moment);
  }
  void add(const SegmentRun& run) {
    const SegmentKind& kind = loop.kinds[static_cast<size_t>(run.kind)];
    add(kind, run.segments * run.length, kind.again);
    carries += static_cast<double>(run.segments) * loop.carry;
    inside = std::max(inside, carries + static_cast<double>(run.length) * kind.saved + kind.inside);
  }
  void add(const PlainRun& run) {
    const SegmentKind& kind = loop.kinds[static_cast<size_t>(run.kind)];
    add(kind, run.count, kind.plain);
    held += static_cast<double>(run.count) * kind.saved;
    moment = std::max(moment, kind.moment);
  }
  [[nodiscard]] double peak() const { return base + std::max(carries + held + moment, inside); }
  [[nodiscard]] double seconds() const {
    return count == loop.iterations ? std::max(lines[0], lines[1]) : kInfinite;
  }

  const LoopKinds& loop;
  double all, base = 0;

 private:
  void add(const SegmentKind& kind, int64_t n, const std::array<double, 2>& seconds_of) {
    const double part = static_cast<double>(n) / all;
    for (size_t i = 0; i < 2; ++i) lines[i] += part * seconds_of[i];
    base += part * kind.base;
    count += n;
  }
  std::array<double, 2> lines{};
  double held = 0, moment = kInfinite, carries = 0, inside = 0;
  int64_t count = 0;
};

class Composer {
 public:
  Composer(const LoopKinds& loop, double budget) : loop_(loop), budget_(budget) {
    double least = kInfinite;
    for (const SegmentKind& kind : loop.kinds) least = std::min(least, kind.base);
    const double room = (budget - least) / std::max(loop.carry, 1.0);
    most_ = static_cast<int64_t>(std::clamp(room, 0.0, static_cast<double>(loop.iterations)));
  }

  std::optional<SegmentRuns> run(size_t most_runs) {
    if (most_ < 1 || loop_.kinds.empty()) return std::nullopt;
    std::vector<Shape> beam = first_runs();
    for (size_t runs = 2; runs <= std::min(most_runs, kMostRuns); ++runs) further_runs(beam);
    for (size_t i = 0; most_runs > 1 && i < beam.size(); ++i) descend(beam[i]);
    if (best_.seconds == kInfinite) return std::nullopt;
    return best_;
  }

 private:
  // Distinct numbers from 1 to `most_`, at most so many, closer together where they are small.
  [[nodiscard]] std::vector<int64_t> grid(int64_t count) const {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < count; ++i) {
      const double part = count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 1;
      const auto n = static_cast<int64_t>(std::llround(std::pow(static_cast<double>(most_), part)));
      if (out.empty() || n > out.back()) out.push_back(n);
    }
    return out;
  }

  // The best number for each kind and each way to leave the rest.
  std::vector<Shape> first_runs() {
    std::vector<Shape> beam;
    for (size_t plain = 0; plain < loop_.plain.size(); ++plain) {
      for (size_t kind = 0; kind < loop_.kinds.size(); ++kind) {
        Shape best;
        for (const int64_t n : grid(kGrid)) {
          Shape shape{{static_cast<int>(kind)}, {n}, plain, kInfinite};
          measure(shape);
          if (shape.seconds < best.seconds || best.kinds.empty()) best = shape;
        }
        beam.push_back(best);
      }
    }
    cut(beam);
    return beam;
  }

  // Shapes that fit nothing yet may do so with a further run.
  static void cut(std::vector<Shape>& beam) {
    std::stable_sort(beam.begin(), beam.end(),
                     [](const Shape& a, const Shape& b) { return a.seconds < b.seconds; });
    if (beam.size() > kBeam) beam.resize(kBeam);
  }

  void further_runs(std::vector<Shape>& beam) {
    std::vector<Shape> more = beam;
    for (const Shape& from : beam) {
      for (size_t kind = 0; kind < loop_.kinds.size(); ++kind) {
        for (size_t place = 0; place <= from.kinds.size(); ++place) {
          Shape best;
          const auto at = static_cast<std::ptrdiff_t>(place);
          Shape shape = from;
          shape.kinds.insert(shape.kinds.begin() + at, static_cast<int>(kind));
          shape.segments.insert(shape.segments.begin() + at, 1);
          const size_t other = place > 0 ? place - 1 : 1;
          for (const int64_t n : grid(kGridNext)) {
            for (const int64_t old : grid(kGridNext)) {
              shape.segments[place] = n;
              shape.segments[other] = old;
              measure(shape);
              if (shape.seconds < best.seconds) best = shape;
            }
          }
          if (best.seconds < from.seconds) more.push_back(best);
        }
      }
    }
    cut(more);
    beam = std::move(more);
  }

  // One number, kind or rest at a time, as long as that helps.
  void descend(Shape& shape) {
    constexpr int kMostRounds = 100;
    for (int round = 0; round < kMostRounds && shape.seconds < kInfinite; ++round) {
      Shape best = shape;
      const auto attempt = [&](Shape changed) {
        measure(changed);
        if (changed.seconds < best.seconds * (1 - 1e-9)) best = std::move(changed);
      };
      for (size_t k = 0; k < shape.kinds.size(); ++k) {
        for (const int64_t by : {1, -1, 2, -2, 5, -5, 12, -12, 30, -30}) {
          Shape changed = shape;
          changed.segments[k] += by;
          if (changed.segments[k] < 1) continue;
          attempt(changed);
          for (size_t other = 0; other < shape.kinds.size(); ++other) {
            if (other == k) continue;
            Shape moved = changed;
            moved.segments[other] -= by;
            if (moved.segments[other] >= 1) attempt(std::move(moved));
          }
        }
        for (size_t kind = 0; kind < loop_.kinds.size(); ++kind) {
          Shape changed = shape;
          changed.kinds[k] = static_cast<int>(kind);
          attempt(std::move(changed));
        }
      }
      for (size_t plain = 0; plain < loop_.plain.size(); ++plain) {
        Shape changed = shape;
        changed.plain = plain;
        attempt(std::move(changed));
      }
      if (!(best.seconds < shape.seconds)) return;
      shape = std::move(best);
    }
  }

  // Runs of segments and how many iterations stay behind them, without lists to allocate.
  struct Filled {
    std::array<SegmentRun, 2 * kMostRuns> runs;
    size_t count = 0;
    int64_t left = 0;
    double seconds = 0, peak = kInfinite, base = 0;
  };

  // Of as many iterations in segments as are needed: the fewer the faster.
  void measure(Shape& shape) {
    shape.seconds = kInfinite;
    // how much is held besides depends on how many iterations each kind gets
    double base = 0;
    for (const int kind : shape.kinds)
      base = std::max(base, loop_.kinds[static_cast<size_t>(kind)].base);
    for (int i = 0; i < 2; ++i) {
      int64_t low = 1, high = loop_.iterations;
      while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (take(shape, base, middle).peak <= budget_)
          high = middle;
        else
          low = middle + 1;
      }
      const double mean = take(shape, base, low).base;
      if (mean == base) return;
      base = mean;
    }
  }

  Filled take(Shape& shape, double base, int64_t iterations) {
    Filled f = filled(shape, base, iterations);
    if (f.peak > budget_) return f;
    shape.seconds = std::min(shape.seconds, f.seconds);
    if (f.seconds < best_.seconds) {
      best_.segments.assign(f.runs.begin(), f.runs.begin() + static_cast<std::ptrdiff_t>(f.count));
      best_.plain = last(loop_.plain[shape.plain], f.left);
      best_ = measured(loop_, std::move(best_));
    }
    return f;
  }

  // Segments as long as they may be, of so many iterations at most. Infinite peak: some do not fit.
  [[nodiscard]] Filled filled(const Shape& shape, double base, int64_t iterations) const {
    Filled f;
    int64_t before = 0, left = iterations;
    for (size_t k = 0; k < shape.kinds.size() && left > 0; ++k) {
      const SegmentKind& kind = loop_.kinds[static_cast<size_t>(shape.kinds[k])];
      before += shape.segments[k];
      const double room = budget_ - base - static_cast<double>(before) * loop_.carry - kind.inside;
      if (room < kind.saved || room <= 0) return f;
      const int64_t length =
          kind.saved <= 0
              ? left
              : static_cast<int64_t>(std::min(room / kind.saved, static_cast<double>(left)));
      if (length < 1) return f;
      const int64_t whole = std::min(shape.segments[k], left / length);
      if (whole > 0) f.runs[f.count++] = {shape.kinds[k], whole, length};
      left -= whole * length;
      if (whole < shape.segments[k] && left > 0) {  // a last, shorter one
        f.runs[f.count++] = {shape.kinds[k], 1, left};
        left = 0;
      }
    }
    f.left = loop_.iterations - iterations + left;
    Sum sum(loop_);
    for (size_t i = 0; i < f.count; ++i) sum.add(f.runs[i]);
    int64_t rest = f.left;
    const std::vector<PlainRun>& all = loop_.plain[shape.plain];
    for (size_t i = all.size(); i-- > 0 && rest > 0;) {
      const int64_t n = std::min(rest, all[i].count);
      sum.add(PlainRun{all[i].kind, n});
      rest -= n;
    }
    f.seconds = sum.seconds();
    f.peak = sum.peak();
    f.base = sum.base;
    return f;
  }

  static std::vector<PlainRun> last(const std::vector<PlainRun>& all, int64_t count) {
    std::vector<PlainRun> out;
    for (size_t i = all.size(); i-- > 0 && count > 0;) {
      const int64_t n = std::min(count, all[i].count);
      out.insert(out.begin(), {all[i].kind, n});
      count -= n;
    }
    return out;
  }

  const LoopKinds& loop_;
  double budget_;
  int64_t most_ = 0;  // segments
  SegmentRuns best_{{}, {}, kInfinite, 0};
};

}  // namespace

SegmentRuns measured(const LoopKinds& loop, SegmentRuns runs) {
  Sum sum(loop);
  for (const SegmentRun& run : runs.segments) sum.add(run);
  for (const PlainRun& run : runs.plain) sum.add(run);
  runs.peak = sum.peak();
  runs.seconds = sum.seconds();
  return runs;
}

std::optional<SegmentRuns> best_segment_runs(const LoopKinds& loop, double budget, int runs) {
  return Composer(loop, budget).run(static_cast<size_t>(runs));
}

}  // namespace cad::planner
