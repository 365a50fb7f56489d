// planner/plan_svg.cc -- see plan_svg.h: memory over the step against the budget, the timeline of
// compute and collectives below it on the same axis, then an iteration of each loop with its ops by
// number and name. What lies where is said by planner/plan_timeline.h.
#include "planner/plan_svg.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "planner/plan_text.h"
#include "planner/plan_timeline.h"

namespace cad::planner {

namespace {

constexpr double kWidth = 960, kLeft = 140, kPlot = 780;
constexpr double kMemoryHeight = 200, kRow = 30, kLine = 16;
constexpr double kLetter = 6.2;  // pixels a character of a label, about

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string label(double x, double y, const std::string& text, const char* anchor = "start") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}

// `text` stands inside when there is room.
std::string box(double x, double y, double w, double h, const std::string& fill,
                const std::string& hint, const std::string& text = "") {
  std::string out = fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" "
      "stroke=\"white\" stroke-width=\"0.3\"><title>{}</title></rect>\n",
      x, y, std::max(w, 0.3), h, fill, escaped(hint));
  if (!text.empty() && kLetter * static_cast<double>(text.size()) < w)
    out += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"white\" "
        "pointer-events=\"none\">{}</text>\n",
        x + w / 2, y + h / 2 + 4, escaped(text));
  return out;
}

const char* fill_of(const TimelineSlot& slot) {
  switch (slot.kind) {
    case TimelineSlot::Kind::kForward:
      return "#54a24b";
    case TimelineSlot::Kind::kBackward:
      return "#2f7d32";
    case TimelineSlot::Kind::kRecompute:
      return "#c7a008";
    case TimelineSlot::Kind::kOptimizer:
      return "#b279a2";
    case TimelineSlot::Kind::kCollective:
      break;
  }
  return "#d67195";
}

const char* pass_of(const TimelineSlot& slot) {
  switch (slot.kind) {
    case TimelineSlot::Kind::kForward:
      return "forward, ";
    case TimelineSlot::Kind::kBackward:
      return "backward, ";
    case TimelineSlot::Kind::kRecompute:
      return "again, ";
    default:
      return "";
  }
}

// Marks of time under a plot.
std::string time_axis(double y, double seconds) {
  std::string out;
  for (int i = 0; i <= 4; ++i) {
    const double x = kLeft + kPlot * i / 4;
    out += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#999\"/>\n", x,
        y, y + 4);
    out += label(x, y + kLine, seconds_text(seconds * i / 4), "middle");
  }
  return out;
}

class Picture {
 public:
  explicit Picture(const Plan& plan) : plan_(plan) {}

  std::string run() {
    const Timeline step = step_timeline(plan_);
    memory(step);
    rows(step, fmt::format("time: {} a step", seconds_text(plan_.predicted.step_s)), {});
    std::set<std::pair<int, std::string>> drawn;
    for (size_t b = 1; b < plan_.bodies.size(); ++b) {
      const PlanBody& body = plan_.bodies[b];
      if (!drawn.emplace(body.parent, body.path).second) continue;
      iteration(static_cast<int>(b));
    }
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
               "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
               "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
               kWidth, y_ + 10) +
           out_ + "</svg>\n";
  }

 private:
  void memory(const Timeline& t) {
    const Predicted& p = plan_.predicted;
    const bool limited = std::isfinite(plan_.budget);
    // a budget far above the peak would leave nothing to see
    const bool far = limited && plan_.budget > 4 * p.peak_bytes;
    const double top = std::max(p.peak_bytes, limited && !far ? plan_.budget : 0) * 1.08;
    const double y0 = y_ + 30, h = kMemoryHeight;
    const auto x = [&](double s) { return kLeft + (t.seconds > 0 ? s / t.seconds : 0) * kPlot; };
    const auto y = [&](double b) { return y0 + h * (1 - (top > 0 ? b / top : 0)); };
    out_ += label(
        kLeft, y0 - 12,
        fmt::format("memory of a device over the step: at most {} of {}", bytes_text(p.peak_bytes),
                    limited ? bytes_text(plan_.budget) : "no limit"));
    double base = 0;
    const auto band = [&](double bytes, const char* fill, const char* name) {
      if (bytes <= 0) return;
      const std::string text = fmt::format("{} {}", name, bytes_text(bytes));
      const double height = y(base) - y(base + bytes);
      out_ += box(kLeft, y(base + bytes), kPlot, height, fill, text, height > 14 ? text : "");
      base += bytes;
    };
    band(p.params_bytes, "#4c78a8", "parameters");
    band(p.grads_bytes, "#72b7b2", "gradients");
    band(p.optimizer_bytes, "#6fa8d8", "optimizer states");
    const auto area = [&](const char* fill, const std::string& text, auto upper) {
      std::string points = fmt::format("{:.1f},{:.1f}", x(0), y(base));
      for (const MemoryPoint& m : t.memory)
        points += fmt::format(" {:.1f},{:.1f}", x(m.time), y(base + upper(m)));
      points += fmt::format(" {:.1f},{:.1f}", x(t.seconds), y(base));
      out_ += fmt::format("<polygon points=\"{}\" fill=\"{}\"><title>{}</title></polygon>\n",
                          points, fill, text);
    };
    area("#e45756", "for a moment, at most " + bytes_text(p.transient_bytes),
         [](const MemoryPoint& m) { return m.saved + m.moment; });
    area("#f58518", "saved activations, at most " + bytes_text(p.activation_bytes),
         [](const MemoryPoint& m) { return m.saved; });
    level(y(p.peak_bytes), "#e45756");
    out_ += label(kLeft - 6, y(p.peak_bytes) + 12, "peak " + bytes_text(p.peak_bytes), "end");
    if (limited && !far) {
      level(y(plan_.budget), "#333");
      out_ += label(kLeft - 6, y(plan_.budget) - 2, "budget " + bytes_text(plan_.budget), "end");
    }
    out_ += label(kLeft - 6, y(0) + 4, "0", "end");
    y_ = y0 + h;
    out_ += time_axis(y_, t.seconds);
    y_ += 2 * kLine;
    static const std::vector<std::pair<const char*, const char*>> kNames = {
        {"#4c78a8", "parameters"}, {"#72b7b2", "gradients"},    {"#6fa8d8", "optimizer"},
        {"#f58518", "saved"},      {"#e45756", "for a moment"}, {"#54a24b", "forward"},
        {"#2f7d32", "backward"},   {"#c7a008", "again"},        {"#d67195", "collective"},
        {"#b279a2", "update"}};
    double at = kLeft;
    for (const auto& [fill, name] : kNames) {
      out_ += box(at, y_ - 2, 10, 10, fill, name) + label(at + 13, y_ + 7, name);
      at += 26 + 1.05 * kLetter * static_cast<double>(std::string(name).size());
    }
    y_ += kLine;
  }

  void level(double y, const char* stroke) {
    out_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
        "stroke-dasharray=\"6 3\"/>\n",
        kLeft, y, kLeft + kPlot, y, stroke);
  }

  // A row for compute, then one for each set of axes. `numbers`: what stands in the box of a group.
  void rows(const Timeline& t, const std::string& title, const std::map<int, int>& numbers) {
    y_ += 24;
    out_ += label(kLeft, y_ - 8, title);
    std::map<std::string, std::vector<const TimelineSlot*>> by_row;
    by_row["compute"];
    for (const TimelineSlot& s : t.slots) by_row[s.row].push_back(&s);
    const auto draw = [&](const std::string& row, const std::vector<const TimelineSlot*>& slots) {
      out_ += label(kLeft - 6, y_ + 18, row, "end");
      for (const TimelineSlot* s : slots) {
        const auto number = numbers.find(s->group);
        const bool compute = s->kind != TimelineSlot::Kind::kCollective;
        const double w = t.seconds > 0 ? s->seconds / t.seconds * kPlot : 0;
        const double x = kLeft + (t.seconds > 0 ? s->start / t.seconds * kPlot : 0);
        out_ += box(x, y_, w, kRow - 6, fill_of(*s),
                    fmt::format("{}{}: {}", pass_of(*s), s->name, seconds_text(s->seconds)),
                    number != numbers.end() && compute ? std::to_string(number->second) : s->name);
      }
      y_ += kRow;
    };
    draw("compute", by_row["compute"]);
    for (const auto& [row, slots] : by_row) {
      if (row != "compute") draw(row, slots);
    }
    out_ += time_axis(y_ - 4, t.seconds);
    y_ += kLine + 4;
  }

  // One iteration, its ops numbered, and what the numbers mean.
  void iteration(int number) {
    const PlanBody& body = plan_.bodies[static_cast<size_t>(number)];
    const Timeline t = body_timeline(plan_, number);
    std::map<int, int> numbers;
    std::vector<std::string> lines;
    for (size_t i = 0; i < plan_.ops.size(); ++i) {
      const PlanOp& op = plan_.ops[i];
      const bool last = i + 1 == plan_.ops.size() || plan_.ops[i + 1].group != op.group;
      if (op.body != number || !last) continue;
      numbers[op.group] = static_cast<int>(numbers.size()) + 1;
      const double seconds = op.forward_s + op.backward_s + op.recompute_s;
      lines.push_back(fmt::format(
          "{} {}: {}, {}, {}{}", numbers[op.group], op.path == op.op ? "" : op.path, op.op,
          layout_text(op.strategy, plan_.axes), seconds_text(seconds),
          op.recompute_s > 0 ? fmt::format(" ({} of it again)", seconds_text(op.recompute_s))
                             : ""));
    }
    rows(t,
         fmt::format("one iteration of {} of {}: {}", body.path, iterations(body),
                     seconds_text(t.seconds)),
         numbers);
    for (const std::string& line : lines) {
      y_ += kLine;
      out_ += label(kLeft, y_, line);
    }
    y_ += 4;
  }

  [[nodiscard]] int64_t iterations(const PlanBody& of) const {
    int64_t n = 0;
    for (const PlanBody& body : plan_.bodies) {
      if (body.parent == of.parent && body.path == of.path) n += body.count;
    }
    return n;
  }

  const Plan& plan_;
  std::string out_;
  double y_ = 10;
};

}  // namespace

std::string plan_svg(const Plan& plan) {
  return Picture(plan).run();
}

}  // namespace cad::planner
