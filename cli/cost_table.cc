// cli/cost_table.cc -- see cost_table.h: tables. JSON: cost_json.cc.
#include "cli/cost_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/text.h"

namespace cad::cli {

namespace {

using ir::Amount;
using ir::Profile;

std::string scaled(double value, double step, const std::vector<const char*>& units) {
  size_t unit = 0;
  while (value >= step && unit + 1 < units.size()) {
    value /= step;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value >= 100 ? 1 : 2, units[unit]);
}

// Rows of cells; a column is as wide as its widest cell, numbers (those after `lead` columns and
// before the last) to the right. The last column is not padded.
class Table {
 public:
  explicit Table(size_t lead) : lead_(lead) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] bool empty() const { return rows_.size() <= 1; }
  [[nodiscard]] std::string text(const std::string& indent = "") const {
    std::vector<size_t> widths;
    for (const auto& row : rows_) {
      if (widths.size() < row.size()) widths.resize(row.size());
      for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
    }
    std::string out;
    for (const auto& row : rows_) {
      std::string line = indent;
      for (size_t c = 0; c < row.size(); ++c) {
        const bool text = c < lead_ || c + 1 == widths.size();
        line += text ? fmt::format("{:<{}}", row[c], widths[c])
                     : fmt::format("{:>{}}", row[c], widths[c]);
        if (c + 1 < row.size()) line += "  ";
      }
      while (!line.empty() && line.back() == ' ') line.pop_back();
      out += line + "\n";
    }
    return out;
  }

 private:
  size_t lead_;
  std::vector<std::vector<std::string>> rows_;
};

class Printer {
 public:
  Printer(const Profile& p, const ir::Bindings& bindings)
      : p_(p), bindings_(bindings), extents_(p.extents(bindings)) {}

  [[nodiscard]] double at(const Amount& amount) const { return amount.at(extents_); }
  [[nodiscard]] std::string flops(const Amount& amount) const { return flops_text(at(amount)); }
  [[nodiscard]] std::string bytes(const Amount& amount) const { return bytes_text(at(amount)); }
  [[nodiscard]] std::string count(const Amount& amount) const { return count_text(at(amount)); }
  [[nodiscard]] std::string formula(const Amount& amount) const {
    return amount.terms().empty() ? "0" : amount.size(p_.graph).str();
  }

  // "B = 4, T = 1024": the symbols that the graph's sizes have, in order of the dims.
  std::string header() const {
    std::string bound;
    for (const std::string& name : symbols()) {
      const auto found = bindings_.find(name);
      if (found == bindings_.end()) continue;
      bound += fmt::format("{}{} = {}", bound.empty() ? "" : ", ", name, found->second);
    }
    std::string out = bound.empty() ? "" : "sizes: " + bound + "\n";
    const std::vector<std::string> missing = free();
    if (!missing.empty()) {
      out += fmt::format("free: {} (numbers need `--set {}=64`)\n", fmt::join(missing, ", "),
                         fmt::join(missing, "=64 --set "));
    }
    out += fmt::format("precision: {}; forward and backward are of one micro-batch",
                       ir::dtype_name(p_.precision));
    if (p_.accumulate > 1) out += fmt::format(", of which a step makes {}", p_.accumulate);
    return out + "\n";
  }

  std::string totals() const {
    const ir::ProfileTotals& t = p_.total;
    Table table(1);
    const auto flops_row = [&](const char* name, const Amount& amount) {
      table.add({name, flops(amount), formula(amount)});
    };
    flops_row("forward, contractions", t.forward.matmul);
    flops_row("forward, other", t.forward.other);
    flops_row("backward, contractions", t.backward.matmul);
    flops_row("backward, other", t.backward.other);
    flops_row("optimizer", t.optimizer_flops);
    const auto bytes_row = [&](const char* name, const Amount& amount) {
      table.add({name, bytes(amount), formula(amount)});
    };
    bytes_row("moved forward, op by op", t.forward.bytes());
    bytes_row("moved backward, op by op", t.backward.bytes());
    table.add({"", "", ""});
    table.add({"parameters", count(t.params), formula(t.params)});
    bytes_row("  their values", t.param_bytes);
    if (!t.state_bytes.terms().empty()) bytes_row("states", t.state_bytes);
    bytes_row("gradients", t.grad_bytes);
    bytes_row("optimizer state", t.optimizer_bytes);
    if (!t.average_bytes.terms().empty()) bytes_row("moving average", t.average_bytes);
    bytes_row("data", t.data_bytes);
    bytes_row("saved activations", t.activation_bytes);
    if (!t.copy_bytes.terms().empty()) bytes_row("16-bit copies (made where used)", t.copy_bytes);
    const Profile::Peak peak = p_.peak(extents_);
    if (peak.point >= 0) {
      const Amount transient = p_.memory.bytes(p_.memory.points[static_cast<size_t>(peak.point)]);
      bytes_row("transient peak", transient);
    }
    table.add({"peak", bytes_text(peak.bytes), peak_place(peak)});
    return "total\n" + table.text("  ");
  }

  std::string layers() const {
    Table table(1);
    table.add({"layer", "forward", "backward", "parameters", "saved", "contractions forward"});
    for (const ir::ProfiledLayer& layer : p_.layers) {
      table.add({layer_name(layer), flops(layer.forward.flops()), flops(layer.backward.flops()),
                 count(layer.params), bytes(layer.activation_bytes),
                 formula(layer.forward.matmul)});
    }
    return table.text();
  }

  // One layer with all that is inside it: each amount with its formula.
  std::string block(const std::string& scope) const {
    std::string out;
    for (const ir::ProfiledLayer& layer : p_.layers) {
      if (layer.scope != scope) continue;
      Table table(1);
      const auto row = [&](const char* name, std::string number, const Amount& amount) {
        table.add({name, std::move(number), formula(amount)});
      };
      row("forward, contractions", flops(layer.forward.matmul), layer.forward.matmul);
      row("forward, other", flops(layer.forward.other), layer.forward.other);
      row("backward, contractions", flops(layer.backward.matmul), layer.backward.matmul);
      row("backward, other", flops(layer.backward.other), layer.backward.other);
      row("parameters", count(layer.params), layer.params);
      row("  their values", bytes(layer.param_bytes), layer.param_bytes);
      row("gradients", bytes(layer.grad_bytes), layer.grad_bytes);
      row("optimizer state", bytes(layer.optimizer_bytes), layer.optimizer_bytes);
      row("saved activations", bytes(layer.activation_bytes), layer.activation_bytes);
      const std::string name = layer.layer.empty() ? "" : " (" + layer.layer + ")";
      out += scope_name(scope) + name + "\n" + table.text("  ");
    }
    return out;
  }

  std::string ops(const std::vector<std::string>& scopes) const {
    struct Row {
      const ir::ProfiledOp* first;
      ir::OpCost cost;
      int nodes = 0;
    };
    std::vector<Row> rows;
    std::map<std::string, size_t> known;
    for (const ir::ProfiledOp& op : p_.ops) {
      const bool free = op.cost.flops().terms().empty() && op.cost.bytes().terms().empty();
      if (free || !shown(op.scope, scopes)) continue;
      const std::string key =
          fmt::format("{} {} {}", static_cast<int>(op.phase), op.scope, op_of(op));
      const auto [found, fresh] = known.emplace(key, rows.size());
      if (fresh) rows.push_back({&op, {}, 0});
      rows[found->second].cost += op.cost;
      ++rows[found->second].nodes;
    }
    const auto weight = [&](const Row& row) {
      const double value = at(row.cost.flops());
      return std::isnan(value) ? 0 : value;
    };
    std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
      if (a.first->phase != b.first->phase) return a.first->phase < b.first->phase;
      return weight(a) > weight(b);
    });
    Table table(3);
    table.add({"phase", "layer", "op", "nodes", "FLOPs", "bytes", "FLOPs as a formula"});
    for (const Row& row : rows) {
      table.add({row.first->phase == ir::Phase::kForward ? "forward" : "backward",
                 scope_name(row.first->scope), op_of(*row.first), std::to_string(row.nodes),
                 flops(row.cost.flops()), bytes(row.cost.bytes()), formula(row.cost.flops())});
    }
    return table.text();
  }

  std::string parameters(const std::vector<std::string>& scopes) const {
    Table table(2);
    table.add(
        {"parameter", "dims", "count", "bytes", "gradient", "optimizer", "count as a formula"});
    for (const ir::ProfiledParameter& q : p_.parameters) {
      if (!shown(q.scope, scopes)) continue;
      const bool state = q.kind == ir::InputKind::kState;
      table.add({q.path, p_.graph.str(q.type), count(q.count), bytes(q.bytes),
                 q.trained ? bytes(q.grad_bytes)
                 : state   ? "state"
                           : "frozen",
                 q.trained ? bytes(q.optimizer_bytes) : "", formula(q.count)});
    }
    return table.text();
  }

  static bool shown(const std::string& scope, const std::vector<std::string>& scopes) {
    return scopes.empty() || std::any_of(scopes.begin(), scopes.end(), [&](const auto& s) {
             return s.empty() || scope == s ||
                    (scope.size() > s.size() && scope.compare(0, s.size(), s) == 0 &&
                     scope[s.size()] == '.');
           });
  }

 private:
  [[nodiscard]] std::vector<std::string> symbols() const {
    std::vector<std::string> names;
    std::set<std::string> seen;
    for (const ir::Dim& dim : p_.graph.dims) {
      for (const std::string& symbol : dim.size.symbols()) {
        if (seen.insert(symbol).second) names.push_back(symbol);
      }
    }
    return names;
  }
  [[nodiscard]] std::vector<std::string> free() const {
    std::vector<std::string> names;
    for (const std::string& symbol : symbols()) {
      if (bindings_.count(symbol) == 0) names.push_back(symbol);
    }
    return names;
  }
  static std::string scope_name(const std::string& scope) {
    return scope.empty() ? "(model)" : scope;
  }
  static std::string layer_name(const ir::ProfiledLayer& layer) {
    const auto depth = static_cast<size_t>(
        std::count(layer.scope.begin(), layer.scope.end(), '.') -
        [&] {  // a loop's `{}` is no level of its own
          int loops = 0;
          for (size_t at = 0; (at = layer.scope.find(".{}", at)) != std::string::npos; ++at)
            ++loops;
          return loops;
        }());
    std::string name = scope_name(layer.scope);
    if (!layer.layer.empty()) name += " (" + layer.layer + ")";
    return std::string(layer.scope.empty() ? 0 : 2 + 2 * depth, ' ') + name;
  }
  [[nodiscard]] std::string op_of(const ir::ProfiledOp& op) const {
    return ir::op_name(p_.graph.node(op.node).op);
  }
  [[nodiscard]] std::string peak_place(const Profile::Peak& peak) const {
    if (peak.point < 0) return "parameters, gradients, optimizer state and data";
    const ir::MemoryPoint& point = p_.memory.points[static_cast<size_t>(peak.point)];
    const ir::Node& node = p_.graph.node(point.at);
    return fmt::format("in the {} pass, {} of {}{}", point.backward ? "backward" : "forward",
                       ir::op_name(node.op), scope_name(node.scope),
                       peak.nominal ? " (with 64 for each free size)" : "");
  }

  const Profile& p_;
  const ir::Bindings& bindings_;
  std::vector<double> extents_;
};

std::string with_star(std::string path) {
  for (size_t at = 0; (at = path.find("{}", at)) != std::string::npos; ++at)
    path.replace(at, 2, "*");
  return path;
}

// "h.3.attn", "h.{}.attn" and "h.*.attn" are the same layer.
std::string as_template(const std::string& path) {
  std::string out, part;
  for (size_t i = 0; i <= path.size(); ++i) {
    if (i < path.size() && path[i] != '.') {
      part += path[i];
      continue;
    }
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    out += number || part == "*" ? "{}" : part;
    if (i < path.size()) out += '.';
    part.clear();
  }
  return out;
}

}  // namespace

std::string flops_text(double flops) {
  if (std::isnan(flops)) return "";
  if (flops < 1e6) return count_text(flops) + " FLOP";
  return scaled(flops / 1e6, 1e3, {"MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP"});
}

std::string bytes_text(double bytes) {
  if (std::isnan(bytes)) return "";
  if (bytes < 1024) return count_text(bytes) + " B";
  return scaled(bytes / 1024, 1024, {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"});
}

std::vector<std::string> scopes_named(const Profile& profile, const std::string& name,
                                      std::vector<std::string>* names) {
  const std::string wanted = as_template(name);
  std::vector<std::string> scopes;
  for (const ir::ProfiledLayer& layer : profile.layers) {
    std::string path = layer.scope;  // a loop's scope ends in `.{}`: its name stands before that
    if (path.size() > 3 && path.compare(path.size() - 3, 3, ".{}") == 0)
      path.resize(path.size() - 3);
    const size_t dot = path.rfind('.');
    const std::string last = dot == std::string::npos ? path : path.substr(dot + 1);
    if (names != nullptr && !layer.scope.empty()) {
      for (const std::string& each : {layer.layer, with_star(layer.scope), last}) {
        if (!each.empty() && std::find(names->begin(), names->end(), each) == names->end())
          names->push_back(each);
      }
    }
    if (layer.scope.empty()) continue;
    if (layer.layer == name || layer.scope == wanted || last == name) scopes.push_back(layer.scope);
  }
  return scopes;
}

std::string cost_table(const Profile& profile, const ir::Bindings& bindings, CostRows rows,
                       const std::vector<std::string>& scopes) {
  const Printer printer(profile, bindings);
  std::string out = printer.header() + "\n";
  switch (rows) {
    case CostRows::kOp:
      out += printer.ops(scopes);
      break;
    case CostRows::kLayer:
      if (scopes.empty()) out += printer.layers();
      for (const std::string& scope : scopes) out += printer.block(scope) + "\n";
      if (!scopes.empty()) out += printer.ops(scopes);
      break;
    case CostRows::kParam:
      out += printer.parameters(scopes);
      break;
  }
  if (scopes.empty()) out += "\n" + printer.totals();
  return out;
}

std::string sweep_table(const Profile& profile, const std::vector<std::string>& dims,
                        const std::vector<ir::Bindings>& bindings) {
  Table table(0);
  std::vector<std::string> head = dims;
  for (const char* name : {"forward", "backward", "optimizer", "parameters", "saved", "peak", ""})
    head.emplace_back(name);
  table.add(std::move(head));
  const ir::ProfileTotals& t = profile.total;
  const Amount forward = t.forward.flops(), backward = t.backward.flops();
  for (const ir::Bindings& point : bindings) {
    const std::vector<double> extents = profile.extents(point);
    std::vector<std::string> row;
    for (const std::string& dim : dims) row.push_back(std::to_string(point.at(dim)));
    row.push_back(flops_text(forward.at(extents)));
    row.push_back(flops_text(backward.at(extents)));
    row.push_back(flops_text(t.optimizer_flops.at(extents)));
    row.push_back(count_text(t.params.at(extents)));
    row.push_back(bytes_text(t.activation_bytes.at(extents)));
    row.push_back(bytes_text(profile.peak(extents).bytes));
    row.emplace_back();
    table.add(std::move(row));
  }
  return table.text();
}

}  // namespace cad::cli
