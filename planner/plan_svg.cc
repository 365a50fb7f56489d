// planner/plan_svg.cc -- see plan_svg.h. The step is drawn as forward, backward and update; saved
// activations grow over the forward pass and go over the backward pass, run by run of the loop.
#include "planner/plan_svg.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "planner/plan_text.h"

namespace cad::planner {

namespace {

constexpr double kWidth = 900, kLeft = 80, kPlot = 780;
constexpr double kMemoryTop = 50, kMemoryHeight = 220, kTimeTop = 330, kRow = 34;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string label(double x, double y, const std::string& text, const char* anchor = "start") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}
std::string box(double x, double y, double w, double h, const char* fill, const std::string& hint) {
  return fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"><title>{}"
      "</title></rect>\n",
      x, y, std::max(w, 0.5), h, fill, escaped(hint));
}

// Where a step's time goes: forward a third of compute, backward the rest and what runs again.
struct Phases {
  double forward = 0, backward = 0, update = 0;
};
Phases phases(const Plan& plan) {
  const Predicted& p = plan.predicted;
  double forward_comm = 0, all = 0;
  for (const PlanCollective& c : plan.collectives) {
    all += c.seconds;
    if (c.phase == "forward") forward_comm += c.seconds;
  }
  const double share = all > 0 ? forward_comm / all : 0;
  Phases out;
  out.forward = p.compute_s / 3 + p.exposed_comm_s * share;
  out.backward = p.compute_s * 2 / 3 + p.recompute_s + p.exposed_comm_s * (1 - share);
  out.update = p.optimizer_s;
  return out;
}

std::string memory(const Plan& plan) {
  const Predicted& p = plan.predicted;
  const double top = std::max(p.peak_bytes, std::isfinite(plan.budget) ? plan.budget : 0) * 1.05;
  const Phases t = phases(plan);
  const double step = t.forward + t.backward + t.update;
  const auto x = [&](double s) { return kLeft + (step > 0 ? s / step : 0) * kPlot; };
  const auto y = [&](double b) { return kMemoryTop + kMemoryHeight * (1 - b / top); };
  std::string out = label(kLeft, kMemoryTop - 12, "memory of a device over the step");
  const double fixed = p.params_bytes + p.grads_bytes + p.optimizer_bytes;
  out += box(kLeft, y(p.params_bytes), kPlot, y(0) - y(p.params_bytes), "#4c78a8",
             "parameters " + bytes_text(p.params_bytes));
  out += box(kLeft, y(p.params_bytes + p.grads_bytes), kPlot,
             y(p.params_bytes) - y(p.params_bytes + p.grads_bytes), "#72b7b2",
             "gradients " + bytes_text(p.grads_bytes));
  out += box(kLeft, y(fixed), kPlot, y(p.params_bytes + p.grads_bytes) - y(fixed), "#9ecae9",
             "optimizer states " + bytes_text(p.optimizer_bytes));
  out += fmt::format(
      "<polygon points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\" fill=\"#f58518\"><title>saved "
      "activations {}</title></polygon>\n",
      x(0), y(fixed), x(t.forward), y(fixed + p.activation_bytes), x(t.forward + t.backward),
      y(fixed), bytes_text(p.activation_bytes));
  out += fmt::format(
      "<polygon points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\" "
      "fill=\"#e45756\" fill-opacity=\"0.6\"><title>for a moment {}</title></polygon>\n",
      x(t.forward), y(fixed + p.activation_bytes), x(t.forward), y(p.peak_bytes),
      x(t.forward + t.backward), y(fixed + p.transient_bytes), x(t.forward + t.backward), y(fixed),
      bytes_text(p.transient_bytes));
  if (std::isfinite(plan.budget)) {
    out += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#333\" "
        "stroke-dasharray=\"6 3\"/>\n",
        kLeft, y(plan.budget), kLeft + kPlot, y(plan.budget));
    out += label(kLeft + kPlot, y(plan.budget) - 4, "budget " + bytes_text(plan.budget), "end");
  }
  out += label(kLeft - 6, y(p.peak_bytes) + 4, bytes_text(p.peak_bytes), "end");
  out += label(kLeft - 6, y(0) + 4, "0", "end");
  return out;
}

std::string timeline(const Plan& plan) {
  const Predicted& p = plan.predicted;
  const Phases t = phases(plan);
  const double step = std::max(p.step_s, 1e-30);
  const auto wide = [&](double s) { return s / step * kPlot; };
  std::string out = label(kLeft, kTimeTop - 12, "time: " + seconds_text(p.step_s) + " a step");
  out += label(kLeft - 6, kTimeTop + 20, "compute", "end");
  double x = kLeft;
  const auto piece = [&](double seconds, const char* fill, const std::string& name) {
    out += box(x, kTimeTop, wide(seconds), kRow - 8, fill, name + " " + seconds_text(seconds));
    x += wide(seconds);
  };
  double waited_forward = t.forward - p.compute_s / 3;
  piece(p.compute_s / 3, "#54a24b", "forward");
  x += wide(waited_forward);
  piece(p.recompute_s, "#eeca3b", "recomputation");
  piece(p.compute_s * 2 / 3, "#2f7d32", "backward");
  x += wide(t.backward - p.compute_s * 2 / 3 - p.recompute_s);
  piece(p.optimizer_s, "#b279a2", "optimizer");
  // one row an axis; what is hidden lies under compute
  std::map<std::string, std::vector<const PlanCollective*>> rows;
  for (const PlanCollective& c : plan.collectives) rows[c.axis].push_back(&c);
  double y = kTimeTop + kRow;
  for (const auto& [axis, list] : rows) {
    out += label(kLeft - 6, y + 20, axis, "end");
    double forward = kLeft, backward = kLeft + wide(t.forward);
    for (const PlanCollective* c : list) {
      double& at = c->phase == "forward" ? forward : backward;
      const double w = std::min(wide(c->seconds), kLeft + kPlot - at);
      out += box(at, y, w, kRow - 8, c->phase == "forward" ? "#ff9da6" : "#d67195",
                 fmt::format("{} {} x{:.0f}, {} each, {}", c->phase, c->kind, c->count,
                             bytes_text(c->bytes), seconds_text(c->seconds)));
      at += w;
    }
    y += kRow;
  }
  return out;
}

}  // namespace

std::string plan_svg(const Plan& plan) {
  std::map<std::string, int> axes;
  for (const PlanCollective& c : plan.collectives) ++axes[c.axis];
  const double height = kTimeTop + kRow * (1 + static_cast<double>(axes.size())) + 30;
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
             "viewBox=\"0 0 {:.0f} {:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
             kWidth, height, kWidth, height) +
         memory(plan) + timeline(plan) + "</svg>\n";
}

}  // namespace cad::planner
