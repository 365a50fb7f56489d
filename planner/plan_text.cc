// planner/plan_text.cc -- see plan_text.h.
#include "planner/plan_text.h"
#include "planner/plan_timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/text.h"

namespace cad::planner {

std::string seconds_text(double s) {
  if (s == 0) return "0 s";
  const double a = std::abs(s);
  if (a >= 1000) return fmt::format("{:.0f} s", s);
  if (a >= 1) return fmt::format("{:.3g} s", s);
  if (a >= 1e-3) return fmt::format("{:.3g} ms", s * 1e3);
  return fmt::format("{:.3g} us", s * 1e6);
}

std::string bytes_text(double b) {
  if (b >= 0x1p40) return fmt::format("{:.2f} TiB", b / 0x1p40);
  if (b >= 0x1p30) return fmt::format("{:.2f} GiB", b / 0x1p30);
  if (b >= 0x1p20) return fmt::format("{:.2f} MiB", b / 0x1p20);
  if (b >= 0x1p10) return fmt::format("{:.2f} KiB", b / 0x1p10);
  return fmt::format("{:.0f} B", b);
}

std::string layout_text(const NamedLayout& layout, const std::vector<Axis>& axes) {
  std::string out;
  for (size_t a = 0; a < layout.size(); ++a) {
    if (layout[a].empty() || std::find(layout.begin(), layout.begin() + static_cast<ptrdiff_t>(a),
                                       layout[a]) != layout.begin() + static_cast<ptrdiff_t>(a))
      continue;  // said with the first axis of this dim
    std::string names;
    for (size_t b = a; b < layout.size(); ++b) {
      if (layout[b] == layout[a]) names += (names.empty() ? "" : "+") + axes[b].name;
    }
    if (!out.empty()) out += ", ";
    out += (layout[a] == "+" ? "partial" : layout[a]) + " over " + names;
  }
  return out.empty() ? "whole" : out;
}

namespace {

constexpr int kBar = 40;

// At least three digits: 0.0123, 4.85, 5,981.
std::string rate_text(double n) {
  return n < 100 ? fmt::format("{:.3g}", n) : count_text(n);
}

struct Part {
  char mark;
  double value;
  std::string text;
};

// "[####==..    ]": each part's share of `whole`.
std::string bar(const std::vector<Part>& parts, double whole) {
  std::string out;
  double sum = 0;
  for (const Part& part : parts) {
    sum += part.value;
    const auto until =
        static_cast<size_t>(std::lround(std::min(1.0, whole > 0 ? sum / whole : 0) * kBar));
    if (until > out.size()) out.append(until - out.size(), part.mark);
  }
  out.resize(kBar, ' ');
  return "[" + out + "]";
}

std::string legend(const std::vector<Part>& parts) {
  std::string out;
  for (const Part& part : parts) {
    if (part.value <= 0) continue;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", std::string(1, part.mark), part.text);
  }
  return out;
}

std::string mesh_text(const Plan& plan) {
  std::string out;
  for (const Axis& axis : plan.axes)
    out += fmt::format("{}{}={}", out.empty() ? "" : ", ", axis.name, axis.size);
  return out;
}

// "4 of 8"; "8" when all are used.
std::string devices_text(const Plan& plan) {
  const std::string used = count_text(plan.devices);
  return plan.devices < plan.offered ? used + " of " + count_text(plan.offered) : used;
}

std::string read_in(const Plan& plan) {
  return micro_batches_text(plan.micro_batches, plan.rows / plan.micro_batches);
}

std::string head(const Plan& plan, const std::string& program) {
  const Predicted& p = plan.predicted;
  const bool idle = plan.devices < plan.offered;
  std::string out = fmt::format("{}: {} device{} of {}, mesh {}", program, devices_text(plan),
                                (idle ? plan.offered : plan.devices) == 1 ? "" : "s", plan.cluster,
                                mesh_text(plan));
  if (plan.name != "auto") out += fmt::format(", plan {}", plan.name);
  if (idle)
    out += fmt::format("; {} device{} idle: no faster step was found on more",
                       count_text(plan.offered - plan.devices),
                       plan.offered - plan.devices == 1 ? " stays" : "s stay");
  out += "\n\n";
  const std::vector<Part> time = {
      {'#', p.compute_s, "compute " + seconds_text(p.compute_s)},
      {'r', p.recompute_s, "recompute " + seconds_text(p.recompute_s)},
      {'~', p.exposed_comm_s,
       fmt::format("communication {} (of {}, the rest behind compute)",
                   seconds_text(p.exposed_comm_s), seconds_text(p.comm_s))},
      {'o', p.optimizer_s, "optimizer " + seconds_text(p.optimizer_s)}};
  out += fmt::format("step    {} {}", bar(time, p.step_s), seconds_text(p.step_s));
  if (plan.rows > 0 && p.step_s > 0)
    out += fmt::format(", {} rows/s", rate_text(plan.rows / p.step_s));
  if (plan.micro_batches > 1 && plan.rows > 0) out += fmt::format(", {}", read_in(plan));
  out += fmt::format("\n        {}\n", legend(time));
  const std::string at = peak_op(plan);
  const std::vector<Part> memory = {
      {'p', p.params_bytes, "parameters " + bytes_text(p.params_bytes)},
      {'g', p.grads_bytes, "gradients " + bytes_text(p.grads_bytes)},
      {'o', p.optimizer_bytes, "optimizer " + bytes_text(p.optimizer_bytes)},
      {'a', p.activation_bytes, "saved activations " + bytes_text(p.activation_bytes)},
      {'t', p.transient_bytes,
       fmt::format("for a moment {}{}{}", bytes_text(p.transient_bytes), at.empty() ? "" : " at ",
                   at)}};
  const bool limited = std::isfinite(plan.budget);
  const std::string share = limited && plan.budget > 0
                                ? fmt::format(" of {} a device, {:.3g} %", bytes_text(plan.budget),
                                              p.peak_bytes / plan.budget * 100)
                                : " a device, without a limit";
  out += fmt::format("memory  {} {}{}\n        {}\n",
                     bar(memory, limited ? plan.budget : p.peak_bytes), bytes_text(p.peak_bytes),
                     share, legend(memory));
  const SolverReport& s = plan.solver;
  out += fmt::format("solver  {}", s.status);
  if (s.bound > 0)
    out += fmt::format(": no plan is faster than {} (gap {:.2f} %)", seconds_text(s.bound),
                       s.gap * 100);
  else if (s.status == "feasible")
    out += ": how much faster another plan could be is not known";
  if (s.meshes > 1)
    out += fmt::format("; {} meshes tried, {} of them dropped by their bound", s.meshes,
                       s.meshes_dropped);
  out += fmt::format("; found in {}\n", seconds_text(s.wall_s));
  return out;
}

struct Line {
  std::string what, split, saved;
};

// One line a group of ops, whatever is chosen for them: as many for one plan as for another.
std::vector<Line> op_lines(const Plan& plan, int body) {
  std::vector<Line> lines;
  for (size_t i = 0; i < plan.ops.size();) {
    size_t j = i;
    bool saved = false, again = false, any_split = false;
    double kept = 0;  // bytes
    NamedLayout split(plan.axes.size());
    for (; j < plan.ops.size() && plan.ops[j].group == plan.ops[i].group; ++j) {
      saved = saved || plan.ops[j].saved == "saved";
      again = again || plan.ops[j].saved == "recomputed";
      kept += plan.ops[j].saved_bytes;
      for (size_t a = 0; a < split.size(); ++a) {
        if (split[a].empty()) split[a] = plan.ops[j].strategy[a];
        any_split = any_split || !split[a].empty();
      }
    }
    const PlanOp& last = plan.ops[j - 1];
    if (plan.ops[i].body == body) {
      const size_t n = j - i;
      Line line;
      const bool bare = last.path == last.op;
      line.what = (bare ? "" : last.path + ": ") +
                  (n == 1 ? last.op : fmt::format("{} and {} more", last.op, n - 1));
      line.split = any_split ? layout_text(split, plan.axes) : "whole on every device";
      line.saved = saved && again ? "part saved"
                   : saved        ? "saved"
                   : kept > 0     ? (again ? "operands saved, recomputed" : "operands saved")
                   : again        ? "recomputed"
                                  : "";
      lines.push_back(std::move(line));
    }
    i = j;
  }
  return lines;
}

// "4th"
std::string ordinal(int64_t n) {
  const int64_t last = n % 10;
  const bool teen = n / 10 % 10 == 1;
  return fmt::format("{}{}", n,
                     teen || last > 3 || last == 0 ? "th"
                     : last == 1                   ? "st"
                     : last == 2                   ? "nd"
                                                   : "rd");
}

// "25 iterations, each run again from its input"
std::string iterations(const PlanBody& body) {
  std::string out = fmt::format("{} iteration{}", count_text(static_cast<double>(body.count)),
                                body.count == 1 ? "" : "s");
  if (body.period > 1) out += fmt::format(", {} of {} in turn", body.position + 1, body.period);
  if (body.segment > 0) {
    out += body.count == 1              ? std::string(", run again from its input")
           : body.segment == body.count ? ", run again as a whole from their input"
           : body.segment == 1          ? ", each run again from its input"
                               : fmt::format(", the input of every {} kept: {} run again from each",
                                             ordinal(body.segment), body.segment);
  }
  return out;
}

using Cells = std::array<std::string, 3>;

// The first row is the header; each column as wide as its widest text.
std::string table(const std::vector<Cells>& rows) {
  size_t first = 0, second = 0;
  for (const Cells& row : rows) {
    first = std::max(first, row[0].size());
    second = std::max(second, row[1].size());
  }
  std::string out;
  for (const Cells& row : rows) {
    std::string line = fmt::format("  {:<{}}  {:<{}}  {}", row[0], first, row[1], second, row[2]);
    while (line.back() == ' ') line.pop_back();
    out += line + "\n";
  }
  return out;
}

std::string table_of(const std::vector<Line>& lines) {
  if (lines.empty()) return "  no ops\n";
  std::vector<Cells> rows = {{"op", "split", "for the backward pass"}};
  for (const Line& l : lines) rows.push_back({l.what, l.split, l.saved});
  return table(rows);
}

// "h: 12 iterations"; "h: (1) 25 iterations, (2) 71 iterations".
std::string loop_title(const Plan& plan, const std::vector<size_t>& runs) {
  const PlanBody& first = plan.bodies[runs[0]];
  if (first.parent < 0) return "top level";
  if (runs.size() == 1) return first.path + ": " + iterations(first);
  std::string out = first.path + ":";
  for (size_t i = 0; i < runs.size(); ++i)
    out += fmt::format("{} ({}) {}", i == 0 ? "" : ",", i + 1, iterations(plan.bodies[runs[i]]));
  return out;
}

// What the first run says, and which ones say something else: "recomputed; (3-5) saved".
std::string by_run(const std::vector<std::string>& texts) {
  std::string out = texts[0];
  for (size_t i = 1; i < texts.size();) {
    size_t j = i;
    while (j < texts.size() && texts[j] == texts[i]) ++j;
    if (texts[i] != texts[0])
      out += (j == i + 1 ? fmt::format("; ({}) ", i + 1) : fmt::format("; ({}-{}) ", i + 1, j)) +
             texts[i];
    i = j;
  }
  return out;
}

std::string loop_table(const std::vector<std::vector<Line>>& runs) {
  std::vector<Line> lines = runs[0];
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<std::string> split, saved;
    for (const std::vector<Line>& run : runs) {
      split.push_back(run[i].split);
      saved.push_back(run[i].saved);
    }
    if (std::any_of(saved.begin(), saved.end(), [&](const auto& t) { return t != saved[0]; }))
      std::replace(saved.begin(), saved.end(), std::string(), std::string("not kept"));
    lines[i].split = by_run(split);
    lines[i].saved = by_run(saved);
  }
  return table_of(lines);
}

// A table a loop, all its runs in it; runs of other ops, which may be, have their own.
std::string bodies(const Plan& plan) {
  std::string out;
  std::vector<char> done(plan.bodies.size(), 0);
  for (size_t b = 0; b < plan.bodies.size(); ++b) {
    if (done[b] != 0) continue;
    std::vector<size_t> runs;
    std::vector<std::vector<Line>> lines;
    for (size_t e = b; e < plan.bodies.size(); ++e) {
      const bool same = e == b || (plan.bodies[e].path == plan.bodies[b].path &&
                                   plan.bodies[b].parent >= 0 && plan.bodies[e].parent >= 0);
      if (done[e] != 0 || !same) continue;
      std::vector<Line> own = op_lines(plan, static_cast<int>(e));
      const auto alike = [](const Line& x, const Line& y) { return x.what == y.what; };
      if (!lines.empty() &&
          !std::equal(own.begin(), own.end(), lines[0].begin(), lines[0].end(), alike))
        continue;
      done[e] = 1;
      runs.push_back(e);
      lines.push_back(std::move(own));
    }
    out += fmt::format("\n{}\n", loop_title(plan, runs)) + loop_table(lines);
  }
  return out;
}

// How one run of a loop stores a parameter: "B over dp", "alike".
struct Storage {
  std::string stored, rest;
  bool operator==(const Storage& o) const { return stored == o.stored && rest == o.rest; }
};

// A path and its storage, each other one once, by runs in their order.
using Stored = std::pair<std::string, std::vector<Storage>>;

std::vector<Stored> storage_of(const Plan& plan) {
  struct Row {
    std::string stored, gradient, states;
  };
  std::vector<std::string> order;                     // of paths
  std::map<std::string, std::map<int, Row>> by_body;  // path -> body -> row
  for (const PlanTensor& t : plan.tensors) {
    if (t.role == "activation") continue;
    if (by_body.find(t.path) == by_body.end()) order.push_back(t.path);
    Row& row = by_body[t.path][t.body];
    (t.role == "parameter"  ? row.stored
     : t.role == "gradient" ? row.gradient
                            : row.states) = layout_text(t.layout, plan.axes);
  }
  std::vector<Stored> out;
  for (const std::string& path : order) {
    std::vector<Storage> list;
    for (const auto& [body, row] : by_body[path]) {
      const Storage storage{row.stored,
                            row.gradient.empty() ? "not trained"
                            : row.gradient != row.states
                                ? fmt::format("gradient {}, states {}", row.gradient, row.states)
                            : row.gradient == row.stored ? "alike"
                                                         : row.gradient};
      if (std::find(list.begin(), list.end(), storage) == list.end()) list.push_back(storage);
    }
    out.emplace_back(path, std::move(list));
  }
  return out;
}

// "B over dp; whole"; "whole" when all say so.
std::string joined(const std::vector<Storage>& list, std::string Storage::*column) {
  const auto same = [&](const Storage& s) { return s.*column == list[0].*column; };
  std::string out = list[0].*column;
  if (std::all_of(list.begin(), list.end(), same)) return out;
  for (size_t i = 1; i < list.size(); ++i) out += "; " + list[i].*column;
  return out;
}

// A row a path, however its iterations are stored: a longer loop has no longer table.
std::string parameters(const Plan& plan) {
  std::vector<Cells> rows = {{"parameter", "stored", "gradient and states"}};
  for (const auto& [path, list] : storage_of(plan))
    rows.push_back({path, joined(list, &Storage::stored), joined(list, &Storage::rest)});
  return "\nparameters\n" + (rows.size() > 1 ? table(rows) : "  none\n");
}

// Those that take longest, then how many more there are: how many kinds a plan has depends on how
// the iterations of its loops differ.
std::string collectives(const Plan& plan) {
  constexpr size_t kMost = 12;
  if (plan.collectives.empty()) return "\nno collectives\n";
  std::vector<PlanCollective> list = plan.collectives;
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  std::string out = "\ncollectives of a step: how many, bytes of one, time of all\n";
  double rest = 0;  // seconds
  for (size_t i = 0; i < list.size(); ++i) {
    const PlanCollective& c = list[i];
    if (i >= kMost)
      rest += c.seconds;
    else
      out +=
          fmt::format("  {:<14} over {:<8} {:<9} {:>7} x {:>10}  {:>9}\n", c.kind, c.axis, c.phase,
                      count_text(c.count), bytes_text(c.bytes), seconds_text(c.seconds));
  }
  if (list.size() > kMost)
    out += fmt::format("  and {} more, in all {}\n", list.size() - kMost, seconds_text(rest));
  return out;
}

std::string alternatives(const Plan& plan) {
  if (plan.alternatives.empty()) return "";
  std::string out = "\nalternatives: step, against this plan, memory of a device, mesh\n";
  const double own = plan.predicted.step_s;
  for (const Alternative& a : plan.alternatives) {
    out += fmt::format("  {:<26} {:>10}  {:>6}  {:>11}  {}{}\n", a.name, seconds_text(a.step_s),
                       own > 0 ? fmt::format("{:.3g}x", a.step_s / own) : "",
                       bytes_text(a.peak_bytes), a.mesh, a.feasible ? "" : "  OOM");
  }
  return out;
}

}  // namespace

std::string plan_text(const Plan& plan, const std::string& program) {
  std::string out = head(plan, program) + bodies(plan) + parameters(plan) + collectives(plan) +
                    alternatives(plan);
  for (const std::string& note : plan.notes) out += "note: " + note + "\n";
  return out;
}

std::string plan_difference(const Plan& a, const Plan& b) {
  std::string out;
  const auto line = [&](const std::string& what, const std::string& x, const std::string& y) {
    if (x != y) out += fmt::format("{}: {} -> {}\n", what, x, y);
  };
  line("cluster", a.cluster, b.cluster);
  line("devices", devices_text(a), devices_text(b));
  line("mesh", mesh_text(a), mesh_text(b));
  line("read in", read_in(a), read_in(b));
  line("budget", bytes_text(a.budget), bytes_text(b.budget));
  line("step", seconds_text(a.predicted.step_s), seconds_text(b.predicted.step_s));
  line("communication", seconds_text(a.predicted.exposed_comm_s),
       seconds_text(b.predicted.exposed_comm_s));
  line("recompute", seconds_text(a.predicted.recompute_s), seconds_text(b.predicted.recompute_s));
  line("peak", bytes_text(a.predicted.peak_bytes), bytes_text(b.predicted.peak_bytes));
  // by node: what its first run does
  const auto ops = [](const Plan& p) {
    std::map<int, std::pair<std::string, std::string>> out_ops;
    for (const PlanOp& op : p.ops) {
      const std::string text =
          layout_text(op.strategy, p.axes) + (op.saved.empty() ? "" : ", " + op.saved);
      auto& entry = out_ops[op.node];
      entry.first = fmt::format("{}: {}", op.path, op.op);
      if (entry.second.find(text) == std::string::npos)
        entry.second += (entry.second.empty() ? "" : "; then ") + text;
    }
    return out_ops;
  };
  const auto x = ops(a), y = ops(b);
  for (const auto& [node, entry] : x) {
    const auto at = y.find(node);
    if (at != y.end()) line(entry.first, entry.second, at->second.second);
  }
  const auto tensors = [](const Plan& p) {
    std::map<std::string, std::string> all;
    for (const PlanTensor& t : p.tensors) {
      if (t.role != "activation") all.emplace(t.path + " " + t.role, layout_text(t.layout, p.axes));
    }
    return all;
  };
  const auto u = tensors(a), v = tensors(b);
  for (const auto& [path, text] : u) {
    const auto at = v.find(path);
    if (at != v.end()) line(path, text, at->second);
  }
  return out;
}

std::string micro_batches_text(double count, double rows) {
  return fmt::format("{} micro-batch{} of {} row{}", count_text(count), count == 1 ? "" : "es",
                     count_text(rows), rows == 1 ? "" : "s");
}

}  // namespace cad::planner
