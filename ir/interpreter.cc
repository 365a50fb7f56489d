// ir/interpreter.cc -- runs a graph node by node through the ops' reference rules. The rules are in
// the family files; here are the environment, `repeat` and rounding. Nothing is fast on purpose.
#include "ir/interpreter.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ir/op_rules.h"

namespace cad::ir {

std::vector<int64_t> extents_of(const Graph& g, const Type& type, const Bindings& bindings) {
  std::vector<int64_t> extents;
  for (DimId d : type.dims) extents.push_back(extent_of(g, d, bindings));
  return extents;
}

double round_to(double x, DType dtype) {
  if (dtype == DType::kI32 || dtype == DType::kBool || std::isnan(x) || std::isinf(x)) return x;
  if (dtype == DType::kF32) return static_cast<float>(x);
  // Nearest, ties to even, on a grid of 2^(exponent - digits), from the least normal down fixed.
  const bool half = dtype == DType::kF16;
  const int digits = half ? 11 : 8, least = half ? -13 : -125;
  const double largest = half ? 65504.0 : 0x1.FEp127;
  int exponent = 0;
  std::frexp(x, &exponent);  // |x| in [2^(exponent-1), 2^exponent)
  const double unit = std::ldexp(1.0, std::max(exponent, least) - digits);
  const double rounded = std::nearbyint(x / unit) * unit;
  return std::abs(rounded) > largest ? std::copysign(INFINITY, x) : rounded;
}

namespace {

class Interpreter {
 public:
  Interpreter(const Graph& g, EvalContext& context)
      : g_(g), context_(context), values_(g.values.size()) {}

  // Runs a region whose arguments are in the environment already.
  std::vector<Tensor> run(RegionId id) {
    for (NodeId node : g_.region(id).nodes) run(g_.node(node));
    std::vector<Tensor> results;
    for (ValueId value : g_.region(id).results) results.push_back(get(value));
    return results;
  }

 private:
  Tensor& get(ValueId value) { return values_[static_cast<size_t>(value.index)]; }

  void run(const Node& node) {
    std::vector<Tensor> results;
    if (node.op == Op::kRepeat) {
      results = repeat(node);
    } else {
      std::vector<const Tensor*> operands;
      for (ValueId operand : node.operands) operands.push_back(&get(operand));
      results = op_info(node.op).eval(g_, node, operands, context_);
    }
    CAD_CHECK(results.size() == node.results.size(), "op `{}` gave {} results", op_name(node.op),
              results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      if (context_.round) {
        for (double& x : results[i].data) x = round_to(x, results[i].dtype);
      }
      get(node.results[i]) = std::move(results[i]);
    }
  }

  // See Node::loop in ir/graph.h. Bodies share the environment: SSA keeps their values apart, and
  // an iteration overwrites the last one's.
  std::vector<Tensor> repeat(const Node& node) {
    const Loop& loop = node.loop;
    const Region& body = g_.region(loop.body);
    const auto carries = static_cast<size_t>(loop.carries),
               scanned = static_cast<size_t>(loop.scanned);
    std::vector<Tensor> operands;
    for (ValueId operand : node.operands) operands.push_back(get(operand));
    std::vector<Tensor> results(operands.begin(), operands.begin() + loop.carries);
    for (size_t i = carries; i < node.results.size(); ++i) {
      results.push_back(filled(g_, g_.type(node.results[i]), context_.bindings, 0));
    }
    const int64_t count = extent_of(g_, loop.dim, context_.bindings);
    for (int64_t step = 0; step < count; ++step) {
      const int64_t number = loop.reverse ? count - 1 - step : step;
      Tensor index;
      index.dtype = DType::kI32;
      index.data = {static_cast<double>(number)};
      get(body.args[0]) = std::move(index);
      for (size_t i = 0; i < operands.size(); ++i) {
        const bool is_scanned = i >= carries && i < carries + scanned;
        get(body.args[i + 1]) = i < carries  ? results[i]
                                : is_scanned ? slice(operands[i], number)
                                             : operands[i];
      }
      std::vector<Tensor> made = run(loop.body);
      for (size_t i = 0; i < made.size(); ++i) {
        if (i < carries) {
          results[i] = std::move(made[i]);
        } else {
          std::copy(made[i].data.begin(), made[i].data.end(),
                    results[i].data.begin() + number * static_cast<int64_t>(made[i].data.size()));
        }
      }
    }
    return results;
  }

  // x at `number` of its first dim.
  static Tensor slice(const Tensor& x, int64_t number) {
    Tensor part;
    part.dtype = x.dtype;
    part.extents.assign(x.extents.begin() + 1, x.extents.end());
    const auto size = static_cast<int64_t>(x.data.size()) / x.extents[0];
    part.data.assign(x.data.begin() + number * size, x.data.begin() + (number + 1) * size);
    return part;
  }

  const Graph& g_;
  EvalContext& context_;
  std::vector<Tensor> values_;
};

}  // namespace

std::vector<Tensor> interpret(const Graph& g, const std::vector<Tensor>& inputs,
                              EvalContext& context) {
  CAD_CHECK(inputs.size() == g.inputs.size(), "{} tensors for {} inputs", inputs.size(),
            g.inputs.size());
  context.inputs = &inputs;
  std::vector<Tensor> results = Interpreter(g, context).run(RegionId{0});
  context.inputs = nullptr;
  return results;
}

}  // namespace cad::ir
