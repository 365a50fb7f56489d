// tests/ir/pass_test_util.h -- building small graphs, running them on random data, and checking
// gradients against central differences in f64.
#pragma once

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ir/builder.h"
#include "ir/interpreter.h"
#include "ir/passes.h"
#include "ir/text.h"

namespace cad::ir {

// A graph under construction at the top level.
struct Program {
  Graph g;
  Builder b{g, RegionId{0}};

  DimId dim(const std::string& name, Size size) { return g.add_dim(name, std::move(size)); }
  ValueId input(const std::string& path, std::vector<DimId> dims,
                InputKind kind = InputKind::kParam, DType dtype = DType::kF32) {
    Input in;
    in.kind = kind;
    in.path = path;
    return b.input(in, Type{dtype, std::move(dims)});
  }
  ValueId data(const std::string& path, std::vector<DimId> dims, DType dtype = DType::kF32) {
    return input(path, std::move(dims), InputKind::kData, dtype);
  }
  void output(const std::string& name, ValueId value) {
    g.outputs.push_back({name});
    g.regions[0].results.push_back(value);
  }
};

inline Attrs dims_attr(std::vector<DimId> dims) {
  Attrs attrs;
  attrs.dims = std::move(dims);
  return attrs;
}
inline ValueId contract(Builder& b, ValueId x, ValueId y, std::vector<DimId> dims) {
  return b.make(Op::kContract, {x, y}, dims_attr(std::move(dims)));
}
inline ValueId renamed(Builder& b, ValueId x, DimId from, DimId to) {
  Attrs attrs;
  attrs.groups = {DimGroup{{from}, {to}}};
  return b.make(Op::kRename, {x}, attrs);
}
inline ValueId iota(Builder& b, DimId dim) {
  Attrs attrs;
  attrs.dim = dim;
  return b.make(Op::kIota, {}, attrs);
}
inline ValueId select(Builder& b, ValueId x, DimId dim, ValueId index) {
  Attrs attrs;
  attrs.dim = dim;
  return b.make(Op::kSelect, {x, index}, attrs);
}
inline ValueId number(Builder& b, double value) {
  return b.constant(Scalar(value), DType::kF32);
}

// A body being filled: number, then one argument for each operand.
struct Body {
  Graph& g;
  Loop loop;
  std::vector<ValueId> operands;
  ValueId number;

  Body(Graph& graph, DimId dim) : g(graph) {
    loop.dim = dim;
    loop.body = g.add_region(NodeId{});
    number = g.add_argument(loop.body, Type{DType::kI32, {}}, "number");
  }
  // In order: carries, then scanned, then invariants.
  ValueId carry(ValueId x) { return add(x, loop.carries, false); }
  ValueId scan(ValueId x) { return add(x, loop.scanned, true); }
  ValueId invariant(ValueId x) { return add(x, loop.invariants, false); }
  [[nodiscard]] Builder builder() const { return Builder(g, loop.body); }
  std::vector<ValueId> close(Builder& outer, std::vector<ValueId> results) {
    loop.collected = static_cast<int>(results.size()) - loop.carries;
    g.region(loop.body).results = std::move(results);
    return outer.repeat(loop, operands);
  }

 private:
  ValueId add(ValueId x, int& count, bool stacked) {
    Type type = g.type(x);
    if (stacked) type.dims.erase(type.dims.begin());
    ++count;
    operands.push_back(x);
    return g.add_argument(loop.body, type, g.value(x).name);
  }
};

inline std::vector<Tensor> random_inputs(const Graph& g, const Bindings& bindings, uint32_t seed,
                                         double scale = 1) {
  std::mt19937 engine(seed);
  std::vector<Tensor> tensors;
  for (const Input& input : g.inputs) {
    Tensor t;
    const Type& type = g.type(input.value);
    t.dtype = type.dtype;
    t.extents = extents_of(g, type, bindings);
    size_t count = 1;
    for (int64_t e : t.extents) count *= static_cast<size_t>(e);
    for (size_t i = 0; i < count; ++i) {
      const double u = static_cast<double>(engine()) / 4294967296.0;
      t.data.push_back(is_float(t.dtype)         ? scale * (2 * u - 1)
                       : t.dtype == DType::kBool ? std::floor(2 * u)
                                                 : std::floor(3 * u));
    }
    tensors.push_back(std::move(t));
  }
  return tensors;
}

inline std::map<std::string, Tensor> run(const Graph& g, const std::vector<Tensor>& inputs,
                                         EvalContext context) {
  const std::vector<Tensor> results = interpret(g, inputs, context);
  std::map<std::string, Tensor> named;
  for (size_t i = 0; i < results.size(); ++i) named[g.outputs[i].name] = results[i];
  return named;
}

inline void expect_valid(const Graph& g, const std::string& what = "") {
  for (const std::string& fault : verify(g))
    ADD_FAILURE() << what << ": " << fault << "\n" << print(g);
}

inline void expect_near(const Tensor& a, const Tensor& b, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(a.extents, b.extents) << what;
  for (size_t i = 0; i < a.data.size(); ++i) {
    if (a.data[i] == b.data[i] || (std::isnan(a.data[i]) && std::isnan(b.data[i])))
      continue;  // infinities too
    ASSERT_NEAR(a.data[i], b.data[i], tolerance * (1 + std::abs(b.data[i])))
        << what << " element " << i;
  }
}

// Every "grad:PATH" of the trained graph against central differences of the forward graph's loss.
inline void check_gradients(const Graph& forward, const Graph& trained,
                            const std::vector<Tensor>& inputs, const EvalContext& context,
                            double tolerance = 1e-5) {
  const std::map<std::string, Tensor> out = run(trained, inputs, context);
  const double h = 1e-5;
  for (size_t i = 0; i < forward.inputs.size(); ++i) {
    const auto grad = out.find("grad:" + forward.inputs[i].path);
    if (grad == out.end()) continue;
    ASSERT_EQ(grad->second.extents, inputs[i].extents) << forward.inputs[i].path;
    for (size_t k = 0; k < inputs[i].data.size(); ++k) {
      std::vector<Tensor> moved = inputs;
      moved[i].data[k] += h;
      const double up = run(forward, moved, context).at("loss").data[0];
      moved[i].data[k] -= 2 * h;
      const double down = run(forward, moved, context).at("loss").data[0];
      const double expected = (up - down) / (2 * h);
      ASSERT_NEAR(grad->second.data[k], expected, tolerance * (1 + std::abs(expected)))
          << forward.inputs[i].path << "[" << k << "]";
    }
  }
}

// The whole pipeline on a forward graph, with its gradients checked. Returns the trained graph.
inline Graph train_and_check(const Graph& forward, const Bindings& bindings, uint32_t seed = 1) {
  expect_valid(forward, "forward");
  const Graph trained = training_graph(forward);
  EvalContext context;
  context.bindings = bindings;
  context.seed = 7;
  context.step = 3;
  const std::vector<Tensor> inputs = random_inputs(forward, bindings, seed);
  const double before = run(forward, inputs, context).at("loss").data[0];
  const double after = run(trained, inputs, context).at("loss").data[0];
  EXPECT_NEAR(before, after, 1e-9 * (1 + std::abs(before)));
  check_gradients(forward, trained, inputs, context);
  return trained;
}

inline size_t count_ops(const Graph& g, Op op) {
  size_t count = 0;
  for (const Region& region : g.regions) {
    for (NodeId id : region.nodes) count += g.node(id).op == op ? 1 : 0;
  }
  return count;
}

}  // namespace cad::ir
