// cli/cost_json.cc -- a profile as JSON: docs/schema/cost.schema.json. Numbers beyond 2^53 are
// rounded to a double.
#include <cmath>

#include "cli/cost_table.h"

namespace cad::cli {

namespace {

using nlohmann::ordered_json;

ordered_json number(double value) {
  if (std::isnan(value)) return nullptr;
  if (value < 9007199254740992.0) return static_cast<int64_t>(value);
  return value;
}

ordered_json total_json(const ir::Profile& p, const ir::Bindings& bindings) {
  const std::vector<double> extents = p.extents(bindings);
  const ir::ProfileTotals& t = p.total;
  const ir::Profile::Peak peak = p.peak(extents);
  const auto at = [&](const ir::Amount& amount) { return number(amount.at(extents)); };
  return {{"flops_forward", at(t.forward.flops())},
          {"flops_backward", at(t.backward.flops())},
          {"flops_optimizer", at(t.optimizer_flops)},
          {"matmul_flops_forward", at(t.forward.matmul)},
          {"matmul_flops_backward", at(t.backward.matmul)},
          {"bytes_forward", at(t.forward.bytes())},
          {"bytes_backward", at(t.backward.bytes())},
          {"params", at(t.params)},
          {"param_bytes", at(t.param_bytes)},
          {"state_bytes", at(t.state_bytes)},
          {"grad_bytes", at(t.grad_bytes)},
          {"optimizer_bytes", at(t.optimizer_bytes)},
          {"compute_copy_bytes", at(t.copy_bytes)},
          {"average_bytes", at(t.average_bytes)},
          {"data_bytes", at(t.data_bytes)},
          {"activation_bytes", at(t.activation_bytes)},
          {"transient_bytes", number(peak.transient)},
          {"peak_bytes", number(peak.bytes)}};
}

ordered_json dims_json(const ir::Bindings& bindings) {
  ordered_json dims = ordered_json::object();
  for (const auto& [name, size] : bindings) dims[name] = size;
  return dims;
}

bool below(const std::string& scope, const std::vector<std::string>& scopes) {
  if (scopes.empty()) return true;
  for (const std::string& s : scopes) {
    if (scope == s || scope.rfind(s + ".", 0) == 0) return true;
  }
  return false;
}

}  // namespace

ordered_json cost_json(const ir::Profile& p, const ir::Bindings& bindings,
                       const std::vector<std::string>& scopes) {
  const std::vector<double> extents = p.extents(bindings);
  const auto at = [&](const ir::Amount& amount) { return number(amount.at(extents)); };
  const auto formula = [&](const ir::Amount& amount) { return amount.size(p.graph).str(); };
  ordered_json ops = ordered_json::array(), layers = ordered_json::array(),
               params = ordered_json::array();
  for (const ir::ProfiledOp& op : p.ops) {
    const ir::Amount flops = op.cost.flops(), bytes = op.cost.bytes();
    if (!below(op.scope, scopes) || (flops.terms().empty() && bytes.terms().empty())) continue;
    ops.push_back({{"path", op.scope},
                   {"op", ir::op_name(p.graph.node(op.node).op)},
                   {"flops", at(flops)},
                   {"bytes", at(bytes)},
                   {"formula", formula(flops)},
                   {"phase", op.phase == ir::Phase::kForward ? "forward" : "backward"}});
  }
  for (const ir::ProfiledLayer& layer : p.layers) {
    if (!below(layer.scope, scopes)) continue;
    layers.push_back({{"path", layer.scope},
                      {"layer", layer.layer},
                      {"flops_forward", at(layer.forward.flops())},
                      {"flops_backward", at(layer.backward.flops())},
                      {"params", at(layer.params)},
                      {"param_bytes", at(layer.param_bytes)},
                      {"activation_bytes", at(layer.activation_bytes)},
                      {"formula", formula(layer.forward.flops())}});
  }
  for (const ir::ProfiledParameter& q : p.parameters) {
    if (!below(q.scope, scopes)) continue;
    params.push_back({{"path", q.path},
                      {"dims", p.graph.str(q.type)},
                      {"count", at(q.count)},
                      {"trained", q.trained},
                      {"param_bytes", at(q.bytes)},
                      {"grad_bytes", at(q.grad_bytes)},
                      {"optimizer_bytes", at(q.optimizer_bytes)},
                      {"formula", formula(q.count)}});
  }
  const auto total_formula = [&](const ir::Amount& amount) { return formula(amount); };
  const ir::ProfileTotals& t = p.total;
  return {{"schema", 1},
          {"dims", dims_json(bindings)},
          {"precision", ir::dtype_name(p.precision)},
          {"micro_batches", p.accumulate},
          {"total", total_json(p, bindings)},
          {"formulas",
           {{"flops_forward", total_formula(t.forward.flops())},
            {"flops_backward", total_formula(t.backward.flops())},
            {"flops_optimizer", total_formula(t.optimizer_flops)},
            {"params", total_formula(t.params)},
            {"activation_bytes", total_formula(t.activation_bytes)}}},
          {"ops", ops},
          {"layers", layers},
          {"params", params}};
}

ordered_json sweep_json(const ir::Profile& p, const std::vector<std::string>& dims,
                        const std::vector<ir::Bindings>& bindings) {
  ordered_json points = ordered_json::array();
  for (const ir::Bindings& point : bindings) {
    ordered_json swept = ordered_json::object();
    for (const std::string& dim : dims) swept[dim] = point.at(dim);
    points.push_back({{"dims", swept}, {"total", total_json(p, point)}});
  }
  return points;
}

}  // namespace cad::cli
