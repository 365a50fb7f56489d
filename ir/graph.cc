// ir/graph.cc -- the arena of a Graph: adding dims, regions and values. Nodes are added by Builder.
#include "ir/graph.h"

#include <set>

namespace cad::ir {

// `D`, then `D.1`, `D.2`, ..: one scan, however many there are.
DimId Graph::add_dim(const std::string& name, Size size) {
  const std::string prefix = name + ".";
  std::set<std::string> suffixes;
  bool taken = false;
  for (const Dim& d : dims) {
    if (d.name == name) taken = true;
    if (d.name.compare(0, prefix.size(), prefix) == 0)
      suffixes.insert(d.name.substr(prefix.size()));
  }
  Dim dim;
  dim.name = name;
  dim.size = std::move(size);
  if (taken) {
    // The count of suffixes is a lower bound that is nearly always free.
    size_t number = suffixes.size() + 1;
    while (suffixes.count(std::to_string(number)) != 0) ++number;
    dim.name = prefix + std::to_string(number);
  }
  dims.push_back(std::move(dim));
  return {static_cast<int32_t>(dims.size()) - 1};
}

DimId Graph::find_dim(const std::string& name) const {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].name == name) return {static_cast<int32_t>(i)};
  }
  return {};
}

RegionId Graph::add_region(NodeId owner) {
  Region region;
  region.owner = owner;
  regions.push_back(std::move(region));
  return {static_cast<int32_t>(regions.size()) - 1};
}

ValueId Graph::add_value(RegionId region, Type type, std::string name) {
  Value value;
  value.type = std::move(type);
  value.region = region;
  value.name = std::move(name);
  values.push_back(std::move(value));
  return {static_cast<int32_t>(values.size()) - 1};
}

ValueId Graph::add_argument(RegionId id, Type type, std::string name) {
  const ValueId value = add_value(id, std::move(type), std::move(name));
  values.back().result = static_cast<int32_t>(region(id).args.size());
  region(id).args.push_back(value);
  return value;
}

Size Graph::elements(const Type& type) const {
  Size product = 1;
  for (DimId d : type.dims) product = product * dim(d).size;
  return product;
}

std::string Graph::str(const Type& type) const {
  std::string text = type.dtype == DType::kF32 && !type.dims.empty() ? "" : dtype_name(type.dtype);
  text += '[';
  for (size_t i = 0; i < type.dims.size(); ++i) text += (i ? ", " : "") + dim(type.dims[i]).name;
  return text + ']';
}

}  // namespace cad::ir
