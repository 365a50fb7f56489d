// planner/plan_timeline.cc -- see plan_timeline.h.
#include "planner/plan_timeline.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cad::planner {

namespace {

using Kind = TimelineSlot::Kind;

struct Collective {
  std::string row, name;
  double seconds = 0;
};

// Ops that run as one kernel, in one execution of their body.
struct Group {
  int number = -1;
  std::string name;
  double forward = 0, backward = 0, recompute = 0, saved = 0, transient = 0;
  std::vector<Collective> forward_waits, backward_waits;    // before it runs
  std::vector<Collective> again_waits;                      // before it runs again
  std::vector<Collective> forward_beside, backward_beside;  // of parameters
};

// Of a carry on its way into a loop, or out of the last one.
struct CarryWaits {
  std::vector<Collective> forward, again, backward;
};

struct Loop {
  int after = 0;
  std::string name;
  std::vector<std::vector<int>> runs;  // bodies of each pattern
  CarryWaits waits;
};

struct Body {
  std::vector<Group> groups;
  std::vector<Loop> loops;
  CarryWaits last;        // after the last loop
  double executions = 1;  // a step
};

void add_steps(std::vector<Collective>& to, const std::vector<PlanStep>& steps,
               const std::string& name, double times) {
  for (const PlanStep& s : steps) {
    if (s.seconds > 0)
      to.push_back({fmt::format("{}", fmt::join(s.axes, "+")),
                    fmt::format("{} of {}", s.kind, name), s.seconds * times});
  }
}

std::vector<Body> bodies_of(const Plan& plan) {
  std::vector<Body> bodies(plan.bodies.size());
  for (size_t b = 1; b < bodies.size(); ++b) {
    const PlanBody& p = plan.bodies[b];
    Body& parent = bodies[static_cast<size_t>(p.parent)];
    bodies[b].executions = parent.executions * static_cast<double>(p.count);
    const bool same = !parent.loops.empty() && parent.loops.back().after == p.after &&
                      parent.loops.back().name == p.path && (p.run > 0 || p.position > 0);
    if (!same) parent.loops.push_back({p.after, p.path, {}, {}});
    Loop& loop = parent.loops.back();
    if (loop.runs.empty() || p.position == 0) loop.runs.emplace_back();
    loop.runs.back().push_back(static_cast<int>(b));
  }
  std::map<int, std::pair<size_t, size_t>> place;  // group -> body, index
  for (const PlanOp& op : plan.ops) {
    Body& body = bodies[static_cast<size_t>(op.body)];
    if (body.groups.empty() || body.groups.back().number != op.group) {
      place[op.group] = {static_cast<size_t>(op.body), body.groups.size()};
      body.groups.emplace_back();
      body.groups.back().number = op.group;
    }
    Group& g = body.groups.back();
    g.name = op.path == op.op ? op.op : fmt::format("{}: {}", op.path, op.op);
    g.forward += op.forward_s;
    g.backward += op.backward_s;
    g.recompute += op.recompute_s;
    g.saved += op.saved_bytes;
    g.transient += op.transient_bytes;
    add_steps(g.forward_waits, op.forward_steps, g.name, plan.micro_batches);
    add_steps(g.backward_waits, op.backward_steps, g.name, plan.micro_batches);
  }
  for (const PlanConversion& c : plan.conversions) {
    const bool again = c.phase == "recompute";
    if (c.loop >= 0) {
      Body& body = bodies[static_cast<size_t>(c.body)];
      const auto loop = static_cast<size_t>(c.loop);
      CarryWaits& waits = loop < body.loops.size() ? body.loops[loop].waits : body.last;
      add_steps(again                  ? waits.again
                : c.phase == "forward" ? waits.forward
                                       : waits.backward,
                c.steps, c.value, c.count / body.executions);
      continue;
    }
    const auto at = place.find(c.group);
    if (at == place.end() || (again && c.inside)) continue;
    Body& body = bodies[at->second.first];
    Group& g = body.groups[at->second.second];
    const bool forward = c.phase == "forward";
    add_steps(again         ? g.again_waits
              : c.parameter ? (forward ? g.forward_beside : g.backward_beside)
                            : (forward ? g.forward_waits : g.backward_waits),
              c.steps, c.value, c.count / body.executions);
  }
  return bodies;
}

class Scheduler {
 public:
  Scheduler(const Plan& plan, int most_slots) : plan_(plan), bodies_(bodies_of(plan)) {
    double slots = 0;
    for (const Body& body : bodies_)
      slots += body.executions * static_cast<double>(body.groups.size());
    unfold_ = slots <= most_slots;
  }

  Timeline step() {
    point();
    forward(0);
    backward(0);
    double blocked = 0;
    for (const Body& body : bodies_) {
      const auto add = [&](const std::vector<Collective>& list) {
        for (const Collective& c : list) blocked += c.seconds * body.executions;
      };
      for (const Group& g : body.groups) {
        add(g.forward_waits);
        add(g.backward_waits);
      }
      for (const Loop& loop : body.loops) {
        add(loop.waits.forward);
        add(loop.waits.backward);
      }
      add(body.last.forward);
      add(body.last.backward);
    }
    // parameters' collectives that nothing hides
    now_ += std::max(0.0, plan_.predicted.exposed_comm_s - blocked);
    for (const PlanConversion& c : plan_.conversions) {
      if (c.group >= 0 || c.loop >= 0) continue;
      std::vector<Collective> list;
      add_steps(list, c.steps, c.value, c.count);
      beside(list);
    }
    point();
    slot(Kind::kOptimizer, "compute", "optimizer", plan_.predicted.optimizer_s, -1);
    now_ += plan_.predicted.optimizer_s;
    point();
    return end();
  }

  Timeline body(int number) {
    unfold_ = false;
    point();
    forward(number);
    backward(number);
    return end();
  }

 private:
  void slot(Kind kind, const std::string& row, const std::string& name, double seconds, int group) {
    if (seconds > 0) out_.slots.push_back({kind, row, name, now_, seconds, group});
  }
  void point(double moment = 0) { out_.memory.push_back({now_, saved_, moment}); }

  void waits(const std::vector<Collective>& list, int group) {
    for (const Collective& c : list) {
      slot(Kind::kCollective, c.row, c.name, c.seconds, group);
      now_ += c.seconds;
    }
  }
  void beside(const std::vector<Collective>& list, int group = -1) {
    for (const Collective& c : list) {
      double& free = row_free_[c.row + " parameters"];
      free = std::max(free, now_);
      if (c.seconds > 0)
        out_.slots.push_back(
            {Kind::kCollective, c.row + " parameters", c.name, free, c.seconds, group});
      free += c.seconds;
    }
  }

  void forward(int number) {
    const Body& body = bodies_[static_cast<size_t>(number)];
    saved_ += plan_.bodies[static_cast<size_t>(number)].saved_bytes;
    size_t loop = 0;
    for (size_t g = 0; g <= body.groups.size(); ++g) {
      for (; loop < body.loops.size() && body.loops[loop].after <= static_cast<int>(g); ++loop)
        iterate(body.loops[loop], true);
      if (g < body.groups.size()) forward(body.groups[g]);
    }
    for (; loop < body.loops.size(); ++loop) iterate(body.loops[loop], true);
    waits(body.last.forward, -1);
  }
  void forward(const Group& g) {
    beside(g.forward_beside, g.number);
    waits(g.forward_waits, g.number);
    slot(Kind::kForward, "compute", g.name, g.forward, g.number);
    now_ += g.forward;
    saved_ += g.saved;
    point();
  }

  void backward(int number) {
    const Body& body = bodies_[static_cast<size_t>(number)];
    const PlanBody& p = plan_.bodies[static_cast<size_t>(number)];
    size_t loop = body.loops.size();
    waits(body.last.again, -1);
    waits(body.last.backward, -1);
    for (size_t g = body.groups.size() + 1; g-- > 0;) {
      if (g < body.groups.size()) backward(body.groups[g], p.again_bytes);
      for (; loop > 0 && body.loops[loop - 1].after >= static_cast<int>(g); --loop)
        iterate(body.loops[loop - 1], false);
    }
    saved_ -= p.saved_bytes;
    point();
  }
  void backward(const Group& g, double again) {
    point(again + g.transient);
    beside(g.backward_beside, g.number);
    waits(g.again_waits, g.number);
    waits(g.backward_waits, g.number);
    slot(Kind::kRecompute, "compute", g.name, g.recompute, g.number);
    now_ += g.recompute;
    slot(Kind::kBackward, "compute", g.name, g.backward, g.number);
    now_ += g.backward;
    point(again + g.transient);
    saved_ -= g.saved;
    point();
  }

  void iterate(const Loop& loop, bool is_forward) {
    if (is_forward) waits(loop.waits.forward, -1);
    iterations(loop, is_forward);
    if (is_forward) return;
    waits(loop.waits.again, -1);
    waits(loop.waits.backward, -1);
  }

  void iterations(const Loop& loop, bool is_forward) {
    for (size_t i = 0; i < loop.runs.size(); ++i) {
      const std::vector<int>& pattern = loop.runs[is_forward ? i : loop.runs.size() - 1 - i];
      const int64_t count = plan_.bodies[static_cast<size_t>(pattern[0])].count;
      if (!unfold_) {
        as_one(loop, pattern, count, is_forward);
        continue;
      }
      for (int64_t k = 0; k < count; ++k) {
        for (size_t p = 0; p < pattern.size(); ++p) {
          if (is_forward)
            forward(pattern[p]);
          else
            backward(pattern[pattern.size() - 1 - p]);
        }
      }
    }
  }

  // One slot for all iterations of a run, one a row of collectives.
  void as_one(const Loop& loop, const std::vector<int>& pattern, int64_t count, bool is_forward) {
    Scheduler once(plan_, 0);
    for (size_t p = 0; p < pattern.size(); ++p) {
      if (is_forward)
        once.forward(pattern[p]);
      else
        once.backward(pattern[pattern.size() - 1 - p]);
    }
    const auto times = static_cast<double>(count);
    const double seconds = once.now_ * times;
    const std::string name =
        fmt::format("{}: {} iterations", loop.name, count * static_cast<int64_t>(pattern.size()));
    std::map<std::string, double> rows;
    for (const TimelineSlot& s : once.out_.slots) {
      if (s.kind == Kind::kCollective) rows[s.row] += s.seconds * times;
    }
    for (const auto& [row, busy] : rows) {
      double& free = row_free_[row];
      const double start = std::max(now_, free);
      out_.slots.push_back({Kind::kCollective, row, "collectives of " + name, start, busy, -1});
      free = start + busy;
    }
    double moment = 0;
    for (const MemoryPoint& m : once.out_.memory) moment = std::max(moment, m.moment);
    point(moment);
    slot(is_forward ? Kind::kForward : Kind::kBackward, "compute", name, seconds, -1);
    now_ += seconds;
    saved_ += once.saved_ * times;
    point(is_forward ? 0 : moment);
  }

  // Slots that would run past the end are cut there.
  Timeline end() {
    out_.seconds = now_;
    std::vector<TimelineSlot> kept;
    for (TimelineSlot& s : out_.slots) {
      if (s.start >= now_) continue;
      s.seconds = std::min(s.seconds, now_ - s.start);
      kept.push_back(std::move(s));
    }
    out_.slots = std::move(kept);
    return std::move(out_);
  }

  const Plan& plan_;
  std::vector<Body> bodies_;
  bool unfold_ = true;
  double now_ = 0, saved_ = 0;
  std::map<std::string, double> row_free_;  // when the links of these axes are free again
  Timeline out_;
};

}  // namespace

Timeline step_timeline(const Plan& plan, int most_slots) {
  return Scheduler(plan, most_slots).step();
}

Timeline body_timeline(const Plan& plan, int body) {
  return Scheduler(plan, 0).body(body);
}

std::string peak_op(const Plan& plan) {
  const std::vector<Body> bodies = bodies_of(plan);
  double most = 0;
  std::string name;
  for (size_t b = 0; b < bodies.size(); ++b) {
    for (const Group& g : bodies[b].groups) {
      const double moment = plan.bodies[b].again_bytes + g.transient;
      if (moment <= most) continue;
      most = moment;
      name = g.name;
    }
  }
  return name;
}

}  // namespace cad::planner
