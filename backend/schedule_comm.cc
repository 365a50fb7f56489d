// backend/schedule_comm.cc -- Scheduler's third part: a collective starts when its operand is there
// and is awaited when its result is needed, so that other steps run beside it. Where that keeps a
// buffer longer than the order of the partition does, it must fit under the region's peak, and no
// loop may lie between: its body's memory is not known here. All devices run one program, so all
// move their collectives alike.
#include <algorithm>

#include "backend/scheduler.h"

namespace cad::backend {

namespace {

// Steps worth hiding a collective behind.
bool heavy(const Step& step) {
  return step.kind == Step::Kind::kContract || step.kind == Step::Kind::kAttention ||
         step.kind == Step::Kind::kAttentionGrad || step.kind == Step::Kind::kLoop;
}
constexpr int kHeavyEnough = 2;  // of them, when it costs memory meanwhile

// Collectives of so few bytes take as long as the meeting of their members: several go together.
constexpr int64_t kSmall = 64 << 10, kTogether = 1 << 20;

// Same members, same phases.
bool alike(const ir::Node& a, const ir::Node& b) {
  return a.op == b.op && a.attrs.axes == b.attrs.axes;
}

}  // namespace

// Stored values of a region while its steps are moved: by value, made and last used at a step.
struct Scheduler::Lives {
  std::vector<int32_t> made, last;
  std::vector<int64_t> bytes;  // by step: of all that lives then
  std::vector<char> outside;   // by value: a result of the region, which is made where it has to be
  int64_t peak = 0;

  Lives(const Scheduler& s, ir::RegionId region, const std::vector<Step>& steps)
      : made(s.graph_.values.size(), -1),
        last(s.graph_.values.size(), -1),
        bytes(steps.size()),
        outside(s.graph_.values.size(), 0) {
    for (size_t at = 0; at < steps.size(); ++at) {
      if (steps[at].kind == Step::Kind::kView) continue;
      for (const ValueId v : steps[at].inputs) last[index(s.base(v))] = static_cast<int32_t>(at);
      for (const ValueId v : steps[at].outputs) {
        made[index(v)] = static_cast<int32_t>(at);
        last[index(v)] = static_cast<int32_t>(at);
      }
    }
    for (const ValueId v : s.graph_.region(region).results) {
      last[index(s.base(v))] = static_cast<int32_t>(steps.size()) - 1;
      if (s.base(v) == v) outside[index(v)] = 1;
    }
    for (const Step& step : steps) {
      const Sum* sum = s.sum_at(step);
      for (const ValueId v : step.outputs) {
        // terms lie where the sum is
        if (made[index(v)] < 0 || outside[index(v)] != 0 || s.sum_with(v) != nullptr) continue;
        const int64_t size = s.bytes(v);
        int32_t first = made[index(v)];
        if (sum != nullptr)
          for (const ValueId term : sum->direct) first = std::min(first, made[index(term)]);
        for (int32_t at = first; at <= last[index(v)]; ++at) bytes[static_cast<size_t>(at)] += size;
      }
    }
    for (const int64_t b : bytes) peak = std::max(peak, b);
  }

  // The result will take the operand's place.
  [[nodiscard]] bool in_place(const Scheduler& s, const Step& step, int32_t at) const {
    const ValueId in = step.inputs[0];
    if (outside[index(step.outputs[0])] != 0) return false;
    return !step.may_overwrite[0].empty() && s.base(in) == in && made[index(in)] >= 0 &&
           last[index(in)] == at;
  }
  // Of a result that is there sooner.
  [[nodiscard]] int64_t sooner(const Scheduler& s, const Step& step, bool in_place) const {
    const ValueId out = step.outputs[0];
    return in_place || outside[index(out)] != 0 ? 0 : s.bytes(out);
  }
  // Whether `extra` bytes more fit at a step, of `limit`.
  [[nodiscard]] bool fits(const Step& step, size_t at, int64_t extra, int64_t limit) const {
    return extra == 0 || (step.kind != Step::Kind::kLoop && bytes[at] + extra <= limit);
  }
};

bool Scheduler::reads(const Step& step, ValueId stored) const {
  return step.kind != Step::Kind::kView &&
         std::any_of(step.inputs.begin(), step.inputs.end(),
                     [&](ValueId v) { return base(v) == stored; });
}

// The region's steps with collectives moved up to where their operands are made.
std::vector<Step> Scheduler::started_early(ir::RegionId region) const {
  std::vector<Step> steps = partition_.regions[static_cast<size_t>(region.index)].steps;
  if (!overlap_) return steps;
  const auto is_collective = [](const Step& s) { return s.kind == Step::Kind::kCollective; };
  if (std::none_of(steps.begin(), steps.end(), is_collective)) return steps;
  for (size_t s = 1; s < steps.size(); ++s) {
    if (steps[s].kind != Step::Kind::kCollective) continue;
    const Lives lives(*this, region, steps);
    const auto at = static_cast<int32_t>(s);
    const ValueId in = base(steps[s].inputs[0]);
    const bool in_place = lives.in_place(*this, steps[s], at);
    const int64_t extra = lives.sooner(*this, steps[s], in_place);
    size_t to = s;
    int passed = 0;
    while (static_cast<int32_t>(to) - 1 > lives.made[index(in)] && passed < kHeavyEnough &&
           lives.fits(steps[to - 1], to - 1, extra, lives.peak)) {
      if (in_place && reads(steps[to - 1], in)) break;
      --to;
      if (heavy(steps[to])) ++passed;
    }
    // Nothing is won by passing light steps only; views follow their base.
    if (passed == 0) continue;
    const auto begin = steps.begin();
    std::rotate(begin + static_cast<std::ptrdiff_t>(to), begin + static_cast<std::ptrdiff_t>(s),
                begin + static_cast<std::ptrdiff_t>(s) + 1);
  }
  join_earlier(region, steps);
  gather_small(region, steps);
  return steps;
}

// A small collective moves up to one of its kind and group when its operand is there by then and
// its result fits meanwhile: gathers of the parameters of a loop's body, whose operands always are.
void Scheduler::join_earlier(ir::RegionId region, std::vector<Step>& steps) const {
  std::optional<Lives> lives;
  const int64_t limit = Lives(*this, region, steps).peak + slack_;
  for (size_t s = 1; s < steps.size(); ++s) {
    if (steps[s].kind != Step::Kind::kCollective) continue;
    const int64_t size = bytes(steps[s].inputs[0]);
    if (size > kSmall) continue;
    if (!lives) lives.emplace(*this, region, steps);
    const ValueId in = base(steps[s].inputs[0]);
    const bool in_place = lives->in_place(*this, steps[s], static_cast<int32_t>(s));
    const int64_t extra = lives->sooner(*this, steps[s], in_place);
    for (size_t to = s; to > 0 && static_cast<int32_t>(to) - 1 > lives->made[index(in)]; --to) {
      const Step& before = steps[to - 1];
      if (before.kind == Step::Kind::kCollective && alike(node_of(before), node_of(steps[s]))) {
        int64_t total = size;
        for (size_t t = to; t-- > 0 && steps[t].kind == Step::Kind::kCollective;)
          total += bytes(steps[t].inputs[0]);
        if (total <= kTogether) {
          if (to == s) break;
          const auto begin = steps.begin();
          std::rotate(begin + static_cast<std::ptrdiff_t>(to),
                      begin + static_cast<std::ptrdiff_t>(s),
                      begin + static_cast<std::ptrdiff_t>(s) + 1);
          lives.reset();
          break;
        }
      }
      if (!lives->fits(before, to - 1, extra, limit) || (in_place && reads(before, in))) break;
    }
  }
}

// Small collectives wait for the next one of their kind and group when nothing in between needs
// them: they stand before it then, and start together.
void Scheduler::gather_small(ir::RegionId region, std::vector<Step>& steps) const {
  const int64_t limit = Lives(*this, region, steps).peak + slack_;
  for (size_t s = steps.size(); s-- > 0;) {
    if (steps[s].kind != Step::Kind::kCollective) continue;
    const ValueId in = base(steps[s].inputs[0]), out = steps[s].outputs[0];
    int64_t total = bytes(steps[s].inputs[0]);
    if (total > kSmall) continue;
    std::optional<Lives> lives;
    size_t to = s + 1;
    bool found = false;
    for (; to < steps.size() && !reads(steps[to], out); ++to) {
      found =
          steps[to].kind == Step::Kind::kCollective && alike(node_of(steps[s]), node_of(steps[to]));
      if (found) break;
      if (!lives) lives.emplace(*this, region, steps);
      const auto at = static_cast<int32_t>(s);
      const bool dies = lives->made[index(in)] >= 0 && lives->last[index(in)] == at;
      const int64_t extra = dies && !lives->in_place(*this, steps[s], at) ? bytes(in) : 0;
      if (!lives->fits(steps[to], to, extra, limit)) break;
    }
    if (!found || to == s + 1) continue;
    for (size_t t = to; t < steps.size() && steps[t].kind == Step::Kind::kCollective; ++t)
      total += bytes(steps[t].inputs[0]);
    if (total > kTogether) continue;
    const auto begin = steps.begin();
    std::rotate(begin + static_cast<std::ptrdiff_t>(s), begin + static_cast<std::ptrdiff_t>(s) + 1,
                begin + static_cast<std::ptrdiff_t>(to));
  }
}

// Marks neighbouring starts that go together, and those whose await comes next.
void Scheduler::join_starts(RegionState& r) {
  std::vector<Instruction>& all = block(r).instructions;
  int64_t total = 0;
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    if (all[i].kind != Instruction::Kind::kCollective) continue;
    const Instruction& next = all[i + 1];
    const CollectivePlan& mine = program_.collectives[static_cast<size_t>(all[i].detail)];
    total += mine.bytes();
    if (next.kind == Instruction::Kind::kCollective && overlap_) {
      const CollectivePlan& other = program_.collectives[static_cast<size_t>(next.detail)];
      all[i].joins = alike(graph_.node(mine.node), graph_.node(other.node)) &&
                     total + other.bytes() <= kTogether;
    }
    if (all[i].joins) continue;
    total = 0;
    all[i].at_once = next.kind == Instruction::Kind::kAwait && next.ticket == all[i].ticket;
  }
}

// For every collective the step before which it is awaited.
void Scheduler::choose_awaits(RegionState& r, const std::vector<Step>& steps) {
  r.await_at.assign(steps.size(), -1);
  r.awaits.resize(steps.size() + 1);
  std::optional<Lives> lives;
  for (size_t s = 0; s < steps.size(); ++s) {
    if (steps[s].kind != Step::Kind::kCollective) continue;
    const auto at = static_cast<int32_t>(s);
    r.await_at[s] = at + 1;
    if (!overlap_) continue;
    if (!lives) lives.emplace(*this, r.region, steps);
    const ValueId in = base(steps[s].inputs[0]), out = steps[s].outputs[0];
    const bool dies = lives->made[index(in)] >= 0 && lives->last[index(in)] == at;
    const bool in_place = lives->in_place(*this, steps[s], at);
    const int64_t extra = dies && !in_place ? bytes(in) : 0;
    const int64_t limit = lives->peak + (bytes(steps[s].inputs[0]) <= kSmall ? slack_ : 0);
    int passed = 0;
    size_t to = s + 1;
    for (; to < steps.size(); ++to) {
      if (reads(steps[to], out) || !lives->fits(steps[to], to, extra, limit)) break;
      if (extra > 0 && passed >= kHeavyEnough) break;
      if (heavy(steps[to])) ++passed;
    }
    const bool together = to > s + 1 && steps[s + 1].kind == Step::Kind::kCollective &&
                          alike(node_of(steps[s]), node_of(steps[s + 1]));
    if (passed == 0 && !together) continue;
    for (size_t t = s + 1; t < to; ++t) lives->bytes[t] += extra;
    r.await_at[s] = static_cast<int32_t>(to);
    // In place, the operand's buffer is the result's already.
    if (!in_place)
      in_flight_until_[index(in)] = std::max(in_flight_until_[index(in)], r.await_at[s]);
  }
}

void Scheduler::add_awaits(RegionState& r, int32_t before) {
  for (Instruction& await : r.awaits[static_cast<size_t>(before)]) add(r, std::move(await));
  r.awaits[static_cast<size_t>(before)].clear();
}

void Scheduler::add_collective(RegionState& r, const Step& step, int32_t at, Instruction start) {
  start.ticket = program_.tickets++;
  Instruction await;
  await.kind = Instruction::Kind::kAwait;
  await.operands = start.operands;
  await.writes = start.writes;
  await.detail = start.detail;
  await.ticket = start.ticket;
  await.info = start.info;
  add_checks(await, step);
  const int32_t until = r.await_at[static_cast<size_t>(at)];
  for (const Address& used : start.operands) {  // lives as long
    if (used.root != Address::kArena || used.block != r.block) continue;
    ArenaBuffer& buffer = block(r).buffers[static_cast<size_t>(used.buffer)];
    buffer.last = std::max(buffer.last, until - 1);
  }
  add(r, std::move(start));
  r.awaits[static_cast<size_t>(until)].push_back(std::move(await));
}

}  // namespace cad::backend
