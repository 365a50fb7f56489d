// cli/repl_cost.cc -- `:cost` and `:mem`: the session's program as `colauto cost` sees it
// (cli/cost_table.h), and its memory as bars.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/suggest.h"
#include "cli/cost_table.h"
#include "cli/repl_commands.h"

namespace cad::cli {
namespace {

constexpr size_t kBarWidth = 32;

// Of the train section, else of the model; nullopt: reported.
std::optional<ir::Profile> profile_of(const ReplContext& context) {
  Result<ir::Profile> profile = program_profile(context.session.module());
  if (profile.ok()) return std::move(*profile);
  (void)context.fail(profile.error());
  return std::nullopt;
}

std::string bar(double part, double whole) {
  if (!(whole > 0) || !(part > 0)) return "";
  const auto width = static_cast<size_t>(std::lround(part / whole * kBarWidth));
  return std::string(std::min(width, kBarWidth), '#');
}

// The highest of the steps that fall into each of `width` columns, as blocks of eight heights
// between `least` and `most`.
std::string sparkline(const std::vector<double>& values, size_t width, double least, double most) {
  static const char* const kBlocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                        "\u2585", "\u2586", "\u2587", "\u2588"};
  constexpr double kHeights = std::size(kBlocks);
  if (values.empty()) return "";
  width = std::min(width, values.size());
  std::string out;
  for (size_t column = 0; column < width; ++column) {
    const size_t from = column * values.size() / width, to = (column + 1) * values.size() / width;
    const double value =
        *std::max_element(values.begin() + static_cast<std::ptrdiff_t>(from),
                          values.begin() + static_cast<std::ptrdiff_t>(std::max(to, from + 1)));
    const double height = most > least ? std::ceil((value - least) / (most - least) * kHeights) : 1;
    out += kBlocks[static_cast<size_t>(std::clamp(height, 1.0, kHeights)) - 1];
  }
  return out;
}

// Memory step by step above what is there all the time, forward and backward apart.
std::string course_lines(const ir::Profile& profile, const std::vector<double>& extents) {
  constexpr size_t kWidth = 64;
  const std::vector<double> bytes = profile.course(extents);
  size_t backward = 0;  // the first step of the backward pass
  while (backward < bytes.size() && !profile.memory.course[backward].backward) ++backward;
  const double each = std::max(1.0, std::ceil(static_cast<double>(bytes.size()) / kWidth));
  const auto width = [&](size_t steps) {
    return std::max<size_t>(1, static_cast<size_t>(static_cast<double>(steps) / each));
  };
  const double most = bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
  const double least = profile.total.persistent_bytes().at(extents);
  const auto line = [&](const char* name, size_t from, size_t to) {
    if (from == to) return std::string();
    const std::vector<double> part(bytes.begin() + static_cast<std::ptrdiff_t>(from),
                                   bytes.begin() + static_cast<std::ptrdiff_t>(to));
    return fmt::format("{:<20} {:>10}  {}\n", name,
                       bytes_text(*std::max_element(part.begin(), part.end())),
                       sparkline(part, width(to - from), least, most));
  };
  return line("forward", 0, backward) + line("backward", backward, bytes.size());
}

}  // namespace

bool repl_cost(ReplContext& context, const std::string& layer) {
  const auto profile = profile_of(context);
  if (!profile) return false;
  std::vector<std::string> names;
  std::vector<std::string> scopes;
  if (!layer.empty()) {
    scopes = scopes_named(*profile, layer, &names);
    if (scopes.empty()) {
      Diagnostic error =
          make_error(DiagId::E0511, fmt::format("no layer `{}` in the program", layer), kExitUsage);
      if (const auto near = suggest(layer, names)) {
        error.help(fmt::format("did you mean `{}`?", *near));
      } else if (!names.empty()) {
        error.note(fmt::format("it has `{}`", fmt::join(names, "`, `")));
      }
      return context.fail(error);
    }
  }
  context.print(
      cost_table(*profile, frontend::bindings(context.session.module()), CostRows::kLayer, scopes));
  return true;
}

bool repl_mem(ReplContext& context, const std::string&) {
  const auto profile = profile_of(context);
  if (!profile) return false;
  const ir::Bindings& bindings = frontend::bindings(context.session.module());
  const std::vector<double> extents = profile->extents(bindings);
  const ir::Profile::Peak peak = profile->peak(extents);
  const ir::ProfileTotals& total = profile->total;
  const double persistent = total.persistent_bytes().at(extents);
  if (std::isnan(peak.bytes) || std::isnan(persistent)) {
    Diagnostic error = make_error(DiagId::E0323, "memory needs a size for every dim", kExitProgram);
    error.help("`:show` lists dims without a size, `:set B=4` gives one")
        .help("`:cost` shows the formulas");
    return context.fail(error);
  }
  std::string text;
  const auto row = [&](const char* name, double bytes) {
    if (!(bytes > 0)) return;
    text += fmt::format("{:<20} {:>10}  {}\n", name, bytes_text(bytes), bar(bytes, peak.bytes));
  };
  row("parameters", total.param_bytes.at(extents));
  row("states", total.state_bytes.at(extents));
  row("gradients", total.grad_bytes.at(extents));
  row("optimizer state", total.optimizer_bytes.at(extents));
  row("moving average", total.average_bytes.at(extents));
  row("data", total.data_bytes.at(extents));
  row("saved activations", total.activation_bytes.at(extents));
  row("transient peak", peak.transient);
  row("peak", peak.bytes);
  text += course_lines(*profile, extents);
  if (peak.point >= 0) {
    const ir::MemoryPoint& point = profile->memory.points[static_cast<size_t>(peak.point)];
    const ir::Node& node = profile->graph.node(point.at);
    text += fmt::format("the peak is in the {} pass, at {}{}{}\n",
                        point.backward ? "backward" : "forward", ir::op_name(node.op),
                        node.scope.empty() ? "" : " of ", node.scope);
  }
  context.print(text);
  return true;
}

}  // namespace cad::cli
