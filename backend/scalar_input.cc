// backend/scalar_input.cc -- see backend/scalar_input.h.
#include "backend/scalar_input.h"

namespace cad::backend {

ir::ValueId prepend_scalar_input(ir::Graph& g, const std::string& name) {
  const ir::ValueId value = g.add_value(ir::RegionId{0}, ir::Type{ir::DType::kF32, {}}, name);
  ir::Node node;
  node.op = ir::Op::kInput;
  node.attrs.input = ir::InputId{static_cast<int32_t>(g.inputs.size())};
  node.results = {value};
  node.region = ir::RegionId{0};
  const ir::NodeId id{static_cast<int32_t>(g.nodes.size())};
  g.nodes.push_back(std::move(node));
  g.regions[0].nodes.insert(g.regions[0].nodes.begin(), id);
  g.value(value).def = id;
  ir::Input input;
  input.path = name;
  input.value = value;
  g.inputs.push_back(std::move(input));
  return value;
}

}  // namespace cad::backend
