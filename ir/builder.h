// ir/builder.h -- appends nodes to one region of a Graph, running the op's shape rule.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "ir/op.h"

namespace cad::ir {

class Builder {
 public:
  Builder(Graph& graph, RegionId region) : graph_(graph), region_(region) {}
  [[nodiscard]] Graph& graph() { return graph_; }
  [[nodiscard]] RegionId region() const { return region_; }

  // Stamped on every node made from now on.
  Span span;
  std::string scope;

  // Checked: errors are returned (front end). On success the node's results are in `results`.
  struct Made {
    std::vector<ValueId> results;
    ShapeResult shape;
    [[nodiscard]] bool ok() const { return shape.errors.empty(); }
  };
  Made try_make(Op op, std::vector<ValueId> operands, Attrs attrs = {});
  // Unchecked use by passes: a shape error is our bug (CAD_CHECK).
  ValueId make(Op op, std::vector<ValueId> operands, Attrs attrs = {});
  std::vector<ValueId> make_all(Op op, std::vector<ValueId> operands, Attrs attrs = {});

  // An input row and its node; `input.value` is set here. Region 0 only.
  ValueId input(Input input, Type type);
  // A repeat over loop.body, whose args and results stand already; the region becomes owned by it.
  Made try_repeat(Loop loop, std::vector<ValueId> operands);
  std::vector<ValueId> repeat(Loop loop, std::vector<ValueId> operands);

  // Shorthands for passes and gradient rules.
  ValueId constant(Scalar value, DType dtype);
  ValueId add(ValueId a, ValueId b) { return make(Op::kAdd, {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return make(Op::kSub, {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return make(Op::kMul, {a, b}); }
  ValueId div(ValueId a, ValueId b) { return make(Op::kDiv, {a, b}); }
  ValueId unary(Op op, ValueId x) { return make(op, {x}); }
  ValueId where(ValueId c, ValueId a, ValueId b) { return make(Op::kWhere, {c, a, b}); }
  ValueId cast(ValueId x, DType dtype);                          // no node when it is that already
  ValueId sum(ValueId x, std::vector<DimId> dims);               // no node when dims is empty
  ValueId broadcast(ValueId x, const std::vector<DimId>& dims);  // no node when the dims are equal
  // Sums dims not listed, then puts them in this order: the vjp of broadcast.
  ValueId sum_to(ValueId x, std::vector<DimId> dims);
  ValueId zeros(const Type& type);
  ValueId ordered(ValueId x,
                  const std::vector<DimId>& dims);  // the same dims in this order (transpose)

 private:
  std::vector<ValueId> append(Node node, const std::vector<Type>& types);

  Graph& graph_;
  RegionId region_;
};

}  // namespace cad::ir
