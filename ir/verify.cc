// ir/verify.cc -- every structural rule of a graph, numbered; the runner checks them after each
// pass.
//   V1 ids are in range          V2 a value is defined once, by the node or region that lists it
//   V3 operands come before use and stand in the same region (bodies are isolated)
//   V4 types are those the op's shape rule gives (also its constraints), dims unique within a type
//   V5 loop operands, args, results: counts and types   V6 outputs parallel to region 0's results
//   V7 inputs and their nodes agree                     V8 no pack dims, dim names unique
//   V9 a mesh's axes have names and sizes of their own; a dim's part is split by axes of the mesh,
//      each once, and as large as ir/shard.h says (where sizes are numbers)
// Linear in the size of the graph: type sizes are compared by dim id, never evaluated.
#include <algorithm>
#include <unordered_set>

#include "base/check.h"
#include "ir/op.h"
#include "ir/shard.h"
#include "ir/text.h"

namespace cad::ir {

namespace {

constexpr size_t kMaxFaults = 20;

class Verifier {
 public:
  explicit Verifier(const Graph& g)
      : g_(g),
        seen_(g.values.size(), 0),
        node_seen_(g.nodes.size(), 0),
        region_seen_(g.regions.size(), 0) {}

  std::vector<std::string> run() {
    if (g_.regions.empty()) return {"V1: no top-level region"};
    check_mesh();
    check_dims();
    check_region(RegionId{0}, NodeId{});
    check_outputs();
    check_inputs();
    return std::move(faults_);
  }

 private:
  template <class... Args>
  void fault(fmt::format_string<Args...> text, Args&&... args) {
    if (faults_.size() < kMaxFaults)
      faults_.push_back(where_ + fmt::format(text, std::forward<Args>(args)...));
  }
  template <class Arena, class Tag>
  static bool in(const Arena& arena, Id<Tag> id) {
    return id.index >= 0 && static_cast<size_t>(id.index) < arena.size();
  }

  void check_dims() {
    std::unordered_set<std::string> names;
    for (const Dim& dim : g_.dims) {
      if (dim.pack) fault("V8: dim `{}` is a pack", dim.name);
      if (!names.insert(dim.name).second) fault("V8: two dims are named `{}`", dim.name);
      check_part(dim);
    }
    if (g_.batch_dim.valid() && !in(g_.dims, g_.batch_dim)) fault("V1: batch dim out of range");
  }

  void check_mesh() {
    if (g_.mesh.size() > kMaxMeshAxes) fault("V9: a mesh of {} axes", g_.mesh.size());
    std::unordered_set<std::string> names;
    for (const MeshAxis& axis : g_.mesh) {
      if (!names.insert(axis.name).second) fault("V9: two axes are named `{}`", axis.name);
      if (axis.size < 1) fault("V9: axis `{}` has size {}", axis.name, axis.size);
    }
  }

  void check_part(const Dim& dim) {
    if (!dim.whole.valid()) {
      if (!dim.axes.empty()) fault("V9: dim `{}` is split but no part of a dim", dim.name);
      return;
    }
    if (!in(g_.dims, dim.whole) || g_.dim(dim.whole).whole.valid())
      return fault("V9: dim `{}` is no part of a whole dim", dim.name);
    for (size_t i = 0; i < dim.axes.size(); ++i) {
      const int8_t axis = dim.axes[i];
      if (axis < 0 || static_cast<size_t>(axis) >= g_.mesh.size())
        return fault("V9: dim `{}` is split by axis {}, which the mesh lacks", dim.name, axis);
      if (g_.mesh[static_cast<size_t>(axis)].size < 1) return;  // reported already
      if (std::find(dim.axes.begin(), dim.axes.begin() + static_cast<ptrdiff_t>(i), axis) !=
          dim.axes.begin() + static_cast<ptrdiff_t>(i))
        fault("V9: dim `{}` is split twice by axis {}", dim.name, axis);
    }
    const auto whole = g_.dim(dim.whole).size.constant();
    if (whole && dim.size.constant() != part_extent(g_, *whole, dim.axes))
      fault("V9: dim `{}` is {}, not a part of {} by its axes", dim.name, dim.size.str(), *whole);
  }

  bool check_type(const Type& type) {
    for (size_t i = 0; i < type.dims.size(); ++i) {
      if (!in(g_.dims, type.dims[i])) {
        fault("V1: dim id {} out of range", type.dims[i].index);
        return false;
      }
      for (size_t j = 0; j < i; ++j) {
        if (type.dims[i] == type.dims[j])
          fault("V4: a type holds `{}` twice", g_.dim(type.dims[i]).name);
      }
    }
    return true;
  }

  // A definition of `value` by (def, index) in `region`; later uses in the region may read it.
  void define(ValueId value, NodeId def, size_t index, RegionId region) {
    if (!in(g_.values, value)) return fault("V1: value id {} out of range", value.index);
    const Value& v = g_.value(value);
    if (v.def != def || v.region != region || v.result != static_cast<int32_t>(index)) {
      fault("V2: value {} does not name its definition", value.index);
    }
    if (seen_[static_cast<size_t>(value.index)] != 0)
      fault("V2: value {} is defined twice", value.index);
    seen_[static_cast<size_t>(value.index)] = region.index + 1;
    check_type(v.type);
    for (const Pin& pin : v.pins) {
      if (!v.type.has(pin.dim)) fault("V4: value {} is pinned in a dim that it lacks", value.index);
    }
  }

  bool readable(ValueId value, RegionId region, const char* what) {
    if (!in(g_.values, value)) {
      fault("V1: {} {} out of range", what, value.index);
      return false;
    }
    const int32_t seen = seen_[static_cast<size_t>(value.index)];
    if (seen == 0) {
      fault("V3: {} {} (`{}`) is read before its definition", what, value.index,
            g_.value(value).name);
    } else if (seen != region.index + 1) {
      fault("V3: {} {} (`{}`) belongs to another region", what, value.index, g_.value(value).name);
    }
    return seen == region.index + 1;
  }

  void check_region(RegionId id, NodeId owner) {
    const Region& region = g_.region(id);
    if (region_seen_[static_cast<size_t>(id.index)]++ != 0)
      return fault("V2: a region has two owners");
    if (region.owner != owner) fault("V2: region {} does not name its owner", id.index);
    if (id.index == 0 && !region.args.empty()) fault("V5: the top level has arguments");
    for (size_t i = 0; i < region.args.size(); ++i) define(region.args[i], NodeId{}, i, id);
    for (NodeId node : region.nodes) check_node(node, id);
    for (ValueId result : region.results) readable(result, id, "result");
  }

  void check_node(NodeId id, RegionId region) {
    if (!in(g_.nodes, id)) return fault("V1: node id {} out of range", id.index);
    if (node_seen_[static_cast<size_t>(id.index)]++ != 0)
      return fault("V2: node {} is listed twice", id.index);
    const Node& node = g_.node(id);
    const std::string outer = where_;
    where_ = fmt::format("{}node {} `{}`{}: ", outer, id.index, op_name(node.op),
                         node.scope.empty() ? "" : " in " + node.scope);
    if (node.region != region) fault("V2: it does not name its region");
    bool fine = true;
    for (ValueId operand : node.operands) fine = readable(operand, region, "operand") && fine;
    if (node.op == Op::kRepeat) {
      if (fine) check_loop(node, id);
    } else if (fine && attrs_in_range(node.attrs)) {
      check_shape(node);
    }
    for (size_t i = 0; i < node.results.size(); ++i) define(node.results[i], id, i, region);
    where_ = outer;
  }

  bool attrs_in_range(const Attrs& a) {
    std::vector<DimId> all = a.dims;
    all.insert(all.end(), a.probs.begin(), a.probs.end());
    for (const DimGroup& group : a.groups) {
      all.insert(all.end(), group.from.begin(), group.from.end());
      all.insert(all.end(), group.to.begin(), group.to.end());
    }
    for (DimId dim : {a.dim, a.to, a.window}) {
      if (dim.valid()) all.push_back(dim);
    }
    for (DimId dim : all) {
      if (!in(g_.dims, dim)) {
        fault("V1: dim id {} of an attribute out of range", dim.index);
        return false;
      }
    }
    if (a.input.index >= static_cast<int32_t>(g_.inputs.size())) {
      fault("V1: input {} out of range", a.input.index);
      return false;
    }
    return true;
  }

  void check_shape(const Node& node) {
    for (ValueId result : node.results) {
      if (!in(g_.values, result)) return;  // reported by define()
    }
    const ShapeResult shape = op_info(node.op).shape(g_, node.operands, node.attrs);
    for (const ShapeError& error : shape.errors) {
      std::string dims;
      for (DimId dim : error.dims) dims += " `" + g_.dim(dim).name + "`";
      fault("V4: operand {}:{} {}", error.operand, dims, error.detail);
    }
    if (!shape.errors.empty()) return;
    if (shape.types.size() != node.results.size()) {
      return fault("V4: {} results, the op has {}", node.results.size(), shape.types.size());
    }
    for (size_t i = 0; i < shape.types.size(); ++i) {
      const Type& type = g_.type(node.results[i]);
      if (!(type == shape.types[i])) {
        fault("V4: result {} is {}, the op gives {}", i, g_.str(type), g_.str(shape.types[i]));
      }
    }
  }

  void check_loop(const Node& node, NodeId id) {
    const Loop& loop = node.loop;
    if (!in(g_.regions, loop.body) || loop.body.index == 0) return fault("V1: body out of range");
    if (!in(g_.dims, loop.dim)) return fault("V1: loop dim out of range");
    const Region& body = g_.region(loop.body);
    const auto carries = static_cast<size_t>(loop.carries);
    const auto scanned = static_cast<size_t>(loop.scanned);
    const size_t operands = carries + scanned + static_cast<size_t>(loop.invariants);
    const size_t results = carries + static_cast<size_t>(loop.collected);
    if (loop.carries < 0 || loop.scanned < 0 || loop.invariants < 0 || loop.collected < 0 ||
        node.operands.size() != operands || body.args.size() != operands + 1 ||
        node.results.size() != results || body.results.size() != results) {
      return fault(
          "V5: {} operands, {} args, {} results, {} body results do not fit {} carries, {} "
          "scanned, "
          "{} invariants, {} collected",
          node.operands.size(), body.args.size(), node.results.size(), body.results.size(),
          loop.carries, loop.scanned, loop.invariants, loop.collected);
    }
    check_region(loop.body, id);
    for (const std::vector<ValueId>* list : {&body.args, &body.results, &node.results}) {
      for (ValueId value : *list) {
        if (!in(g_.values, value)) return;  // reported already
      }
    }
    if (!(g_.type(body.args[0]) == Type{DType::kI32, {}})) fault("V5: the number is not i32[]");
    for (size_t i = 0; i < operands; ++i) {
      const bool stacked = i >= carries && i < carries + scanned;
      same(g_.type(node.operands[i]), g_.type(body.args[i + 1]), stacked, loop.dim, "operand", i);
    }
    for (size_t i = 0; i < results; ++i) {
      same(g_.type(node.results[i]), g_.type(body.results[i]), i >= carries, loop.dim, "result", i);
      if (i < carries)
        same(g_.type(node.results[i]), g_.type(node.operands[i]), false, loop.dim, "carry", i);
    }
  }

  // `outside` is `inside`, with the loop dim first when stacked.
  void same(const Type& outside, const Type& inside, bool stacked, DimId loop, const char* what,
            size_t index) {
    const size_t shift = stacked ? 1 : 0;
    bool equal = outside.dtype == inside.dtype && outside.rank() == inside.rank() + shift;
    if (equal && stacked) equal = outside.dims[0] == loop;
    for (size_t i = 0; equal && i < inside.rank(); ++i)
      equal = outside.dims[i + shift] == inside.dims[i];
    if (!equal) {
      fault("V5: {} {} is {} outside and {} inside", what, index, g_.str(outside), g_.str(inside));
    }
  }

  void check_outputs() {
    if (g_.outputs.size() != g_.regions[0].results.size()) {
      fault("V6: {} outputs name {} results", g_.outputs.size(), g_.regions[0].results.size());
    }
    std::unordered_set<std::string> names;
    for (const Output& output : g_.outputs) {
      if (!names.insert(output.name).second) fault("V6: two outputs are named `{}`", output.name);
    }
  }

  void check_inputs() {
    for (size_t i = 0; i < g_.inputs.size(); ++i) {
      const Input& input = g_.inputs[i];
      if (!input.value.valid()) continue;
      if (!in(g_.values, input.value)) {
        fault("V1: value of input `{}` out of range", input.path);
        continue;
      }
      const Value& value = g_.value(input.value);
      const Node* def = in(g_.nodes, value.def) ? &g_.node(value.def) : nullptr;
      if (def == nullptr || def->op != Op::kInput ||
          def->attrs.input.index != static_cast<int32_t>(i) || value.region.index != 0) {
        fault("V7: the value of input `{}` is not its node's", input.path);
      }
      if (input.loop_dims > static_cast<int>(value.type.rank())) {
        fault("V7: input `{}` has more loop dims than dims", input.path);
      }
    }
  }

  const Graph& g_;
  std::vector<int32_t> seen_;  // region index + 1 once defined
  std::vector<int32_t> node_seen_, region_seen_;
  std::vector<std::string> faults_;
  std::string where_;
};

}  // namespace

std::vector<std::string> verify(const Graph& g) {
  return Verifier(g).run();
}

}  // namespace cad::ir
