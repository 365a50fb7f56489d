// ir/split_rows.cc -- see split_rows.h. Sizes of the batch dims are divided, nothing else: `B` as a
// number in an expression stays what the program says.
#include "ir/split_rows.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "base/check.h"
#include "ir/op.h"
#include "ir/passes.h"

namespace cad::ir {
namespace {

bool contains(const std::vector<DimId>& dims, DimId dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

bool meets(const std::vector<DimId>& a, const std::vector<DimId>& b) {
  return std::any_of(a.begin(), a.end(), [&](DimId d) { return contains(b, d); });
}

bool is_random(Op op) {
  return std::string_view(op_family(op)) == "random";
}

std::string named(const Graph& g, NodeId id) {
  const Node& node = g.node(id);
  return fmt::format("`{}`{}", op_name(node.op),
                     node.scope.empty() ? "" : fmt::format(" in `{}`", node.scope));
}

// What a node makes of the rows' places, or of their number.
bool counts_rows(const Graph& g, const std::vector<DimId>& batch, const Node& node) {
  if (node.op == Op::kIota) return contains(batch, node.attrs.dim);
  if (node.op == Op::kRepeat) return contains(batch, node.loop.dim);
  // random numbers are keyed by rows of the step along the batch dim itself, not along others
  if (is_random(node.op)) {
    const std::vector<DimId>& dims = g.type(node.results[0]).dims;
    return std::any_of(dims.begin(), dims.end(),
                       [&](DimId d) { return d != g.batch_dim && contains(batch, d); });
  }
  // parts of merged rows must be rows again
  return std::any_of(node.attrs.groups.begin(), node.attrs.groups.end(),
                     [&](const DimGroup& group) {
                       if (!meets(group.from, batch)) return false;
                       return !contains(batch, group.from[0]) || !contains(batch, group.to[0]);
                     });
}

std::string against(const Graph& g) {
  if (!g.batch_dim.valid()) return "the program has no data";
  const std::vector<DimId> batch = batch_dims(g);
  const std::vector<NodeId> relations = row_relations(g);
  if (!relations.empty())
    return fmt::format("{} relates rows of the batch", named(g, relations.front()));
  for (const Region& region : g.regions) {
    for (const NodeId id : region.nodes) {
      if (counts_rows(g, batch, g.node(id)))
        return fmt::format("{} depends on the number of rows", named(g, id));
    }
  }
  for (const Input& input : g.inputs) {
    const bool held = input.kind == InputKind::kParam || input.kind == InputKind::kState;
    if (held && meets(g.type(input.value).dims, batch))
      return fmt::format("`{}` has a value for each row of the batch", input.path);
  }
  const std::vector<std::string> symbols = g.dim(g.batch_dim).size.symbols();
  for (size_t d = 0; d < g.dims.size(); ++d) {
    if (contains(batch, DimId{static_cast<int32_t>(d)})) continue;
    for (const std::string& symbol : g.dims[d].size.symbols()) {
      if (std::find(symbols.begin(), symbols.end(), symbol) != symbols.end())
        return fmt::format("the size of `{}` depends on the number of rows", g.dims[d].name);
    }
  }
  return "";
}

// An evaluation's values are sums over rows by counts of rows; all else would be averaged over
// other batches than the program's.
bool evaluation_splits(const Graph& g) {
  if (!against(g).empty()) return false;
  for (const Node& node : g.nodes) {
    if (is_random(node.op)) return false;  // keyed by rows of a batch
  }
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    if (g.outputs[i].name.rfind("value:", 0) == 0) return false;
    const NodeId def = g.value(g.regions[0].results[i]).def;
    const bool count = g.outputs[i].name.rfind("count:", 0) == 0;
    if (count && def.valid() && g.node(def).op == Op::kConst) return false;
  }
  return true;
}

void divide(Graph& g, int64_t parts) {
  for (const DimId dim : batch_dims(g)) {
    Size& size = g.dims[static_cast<size_t>(dim.index)].size;
    size = size / Size(parts);
  }
}

void divide(DataSpec& data, int64_t parts) {
  for (DataSource& source : data) {
    for (DataName& name : source.names) name.sizes[0] = name.sizes[0] / Size(parts);
  }
}

}  // namespace

int64_t micro_batch_rows(const TrainSpec& spec) {
  const Graph& g = spec.forward;
  if (!g.batch_dim.valid()) return 0;
  const Size::Evaluated rows = g.dim(g.batch_dim).size.evaluate(spec.bindings);
  return rows.ok() ? rows.value : 0;
}

std::string against_split(const TrainSpec& spec) {
  for (const Output& output : spec.forward.outputs) {
    if (output.name.rfind("state:", 0) == 0)
      return fmt::format("the state `{}` changes with every micro-batch", output.name.substr(6));
  }
  return against(spec.forward);
}

std::vector<int64_t> possible_parts(int64_t rows) {
  std::set<int64_t> divisors;
  for (int64_t n = 1; n <= rows / n; ++n) {
    if (rows % n == 0) divisors.insert({n, rows / n});
  }
  std::vector<int64_t> parts;
  int64_t last = 1;
  for (const int64_t n : divisors) {
    if (n >= 2 * last) parts.push_back(last = n);
  }
  return parts;
}

TrainSpec split_rows(const TrainSpec& spec, int64_t parts) {
  CAD_CHECK(parts >= 1 && micro_batch_rows(spec) % parts == 0, "{} rows in {} parts",
            micro_batch_rows(spec), parts);
  TrainSpec out = spec;
  if (parts == 1) return out;
  out.accumulate *= parts;
  out.parts *= parts;
  divide(out.forward, parts);
  divide(out.data, parts);
  for (EvalSpec& eval : out.evals) {
    if (eval.data.empty()) eval.data = spec.data;
    if (!evaluation_splits(eval.graph)) continue;
    divide(eval.graph, parts);
    divide(eval.data, parts);
    // of data without an end one batch is read
    if (!eval.batches && eval.data.front().kind == DataSource::Kind::kSynthetic) eval.batches = 1;
    if (eval.batches) *eval.batches *= parts;
  }
  return out;
}

}  // namespace cad::ir
