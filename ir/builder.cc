// ir/builder.cc -- appending nodes. The shape rule runs before anything is added, so a failed
// try_make leaves the graph as it was (but for casts that `/` of integers needs).
#include "ir/builder.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace cad::ir {

namespace {

std::string first_error(const ShapeResult& shape) {
  return shape.errors.empty() ? "" : shape.errors[0].detail;
}

}  // namespace

std::vector<ValueId> Builder::append(Node node, const std::vector<Type>& types) {
  const NodeId id{static_cast<int32_t>(graph_.nodes.size())};
  node.region = region_;
  node.span = span;
  node.scope = scope;
  for (const Type& type : types) {
    const ValueId result = graph_.add_value(region_, type);
    graph_.value(result).def = id;
    graph_.value(result).result = static_cast<int32_t>(node.results.size());
    node.results.push_back(result);
  }
  std::vector<ValueId> results = node.results;
  graph_.nodes.push_back(std::move(node));
  graph_.region(region_).nodes.push_back(id);
  return results;
}

Builder::Made Builder::try_make(Op op, std::vector<ValueId> operands, Attrs attrs) {
  Made made;
  if (op == Op::kDiv) {
    for (ValueId& x : operands) {
      if (graph_.type(x).dtype == DType::kI32) x = cast(x, DType::kF32);
    }
  }
  made.shape = op_info(op).shape(graph_, operands, attrs);
  if (!made.ok()) return made;
  if (std::strcmp(op_family(op), "pointwise") == 0) attrs.dims = made.shape.types[0].dims;
  Node node;
  node.op = op;
  node.attrs = std::move(attrs);
  node.operands = std::move(operands);
  made.results = append(std::move(node), made.shape.types);
  return made;
}

std::vector<ValueId> Builder::make_all(Op op, std::vector<ValueId> operands, Attrs attrs) {
  Made made = try_make(op, std::move(operands), std::move(attrs));
  CAD_CHECK(made.ok(), "op `{}`: {}", op_name(op), first_error(made.shape));
  return std::move(made.results);
}

ValueId Builder::make(Op op, std::vector<ValueId> operands, Attrs attrs) {
  return make_all(op, std::move(operands), std::move(attrs))[0];
}

ValueId Builder::input(Input input, Type type) {
  CAD_CHECK(region_.index == 0, "input `{}` outside the top level", input.path);
  Node node;
  node.op = Op::kInput;
  node.attrs.input = {static_cast<int32_t>(graph_.inputs.size())};
  const ValueId value = append(std::move(node), {std::move(type)})[0];
  graph_.value(value).name = input.path;
  input.value = value;
  graph_.inputs.push_back(std::move(input));
  return value;
}

Builder::Made Builder::try_repeat(Loop loop, std::vector<ValueId> operands) {
  Made made;
  made.shape = repeat_shape(graph_, operands, loop);
  if (!made.ok()) return made;
  Node node;
  node.op = Op::kRepeat;
  node.operands = std::move(operands);
  node.loop = loop;
  const NodeId id{static_cast<int32_t>(graph_.nodes.size())};
  made.results = append(std::move(node), made.shape.types);
  graph_.region(loop.body).owner = id;
  return made;
}

std::vector<ValueId> Builder::repeat(Loop loop, std::vector<ValueId> operands) {
  Made made = try_repeat(loop, std::move(operands));
  CAD_CHECK(made.ok(), "op `repeat`: {}", first_error(made.shape));
  return std::move(made.results);
}

ValueId Builder::constant(Scalar value, DType dtype) {
  Attrs attrs;
  attrs.scalar = std::move(value);
  attrs.dtype = dtype;
  return make(Op::kConst, {}, std::move(attrs));
}

ValueId Builder::cast(ValueId x, DType dtype) {
  if (graph_.type(x).dtype == dtype) return x;
  Attrs attrs;
  attrs.dtype = dtype;
  return make(Op::kCast, {x}, std::move(attrs));
}

ValueId Builder::sum(ValueId x, std::vector<DimId> dims) {
  if (dims.empty()) return x;
  Attrs attrs;
  attrs.dims = std::move(dims);
  return make(Op::kSum, {x}, std::move(attrs));
}

ValueId Builder::broadcast(ValueId x, const std::vector<DimId>& dims) {
  if (graph_.type(x).dims == dims) return x;
  Attrs attrs;
  attrs.dims = dims;
  return make(Op::kBroadcast, {x}, std::move(attrs));
}

ValueId Builder::ordered(ValueId x, const std::vector<DimId>& dims) {
  if (graph_.type(x).dims == dims) return x;
  Attrs attrs;
  attrs.dims = dims;
  return make(Op::kTranspose, {x}, std::move(attrs));
}

ValueId Builder::sum_to(
    ValueId x, std::vector<DimId> dims) {  // by value: the caller's may be a type in the arena
  std::vector<DimId> gone;
  for (DimId d : graph_.type(x).dims) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) gone.push_back(d);
  }
  return ordered(sum(x, std::move(gone)), dims);
}

ValueId Builder::zeros(const Type& type) {
  return broadcast(constant(0.0, type.dtype), type.dims);
}

}  // namespace cad::ir
