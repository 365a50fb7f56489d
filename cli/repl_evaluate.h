// cli/repl_evaluate.h -- what an expression of a session is worth: its graph by the reference
// interpreter, its type without a value, its gradients, and how fast compiled code computes it.
// Nothing here changes a session.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/repl_session.h"
#include "ir/op.h"

namespace cad::cli {

// A tensor with what is known of it.
struct NamedTensor {
  std::string name;  // of an output or a session's tensor; may be empty
  std::vector<std::string> dims;
  ir::Tensor tensor;
};

// One result of an expression: a tensor, or a constant (a number or size, a bool).
struct Answer {
  frontend::SectionValue::Kind kind = frontend::SectionValue::Kind::kTensor;
  NamedTensor tensor;
  ir::Scalar number;
  bool flag = false;
};

// Evaluations beyond this many steps of the interpreter (one multiply-add or element each) are
// refused (E0513). It does some ten million a second.
inline constexpr double kMostSteps = 2e8;

// Steps that the interpreter would take; every dim of `graph` must be bound.
double interpreter_steps(const ir::Graph& graph, const ir::Bindings& bindings);

// The expression's results, errors in `diagnostics` (then empty). E0323 for dims without a size.
std::vector<Answer> evaluate(const Session& session, const frontend::Typed& expression,
                             Diagnostics& diagnostics);

// A result's type: dims are in `graph`.
struct TypeOf {
  frontend::SectionValue::Kind kind = frontend::SectionValue::Kind::kTensor;
  ir::DType dtype = ir::DType::kF32;
  std::vector<std::string> dims;
  ir::Scalar number;
  bool flag = false;
};
std::vector<TypeOf> types_of(const Session& session, const frontend::Typed& expression,
                             Diagnostics& diagnostics);

// The expression as a graph with outputs "result:0", ..; statements it does not need are left out.
std::optional<ir::Graph> graph_of(const Session& session, const frontend::Typed& expression,
                                  Diagnostics& diagnostics);

// Of a rank-0 float expression: its value, then d value / d t for the tensors it is made of, those
// bound at the prompt to something that is no function of other tensors, and parameters.
struct Gradients {
  double value = 0;
  std::vector<NamedTensor> of;
};
// When dims are free only `graph` is filled: the gradient as IR.
struct GradientAnswer {
  bool values = false;
  Gradients gradients;
  ir::Graph graph;
};
Result<GradientAnswer> gradients(const Session& session, const frontend::Typed& expression);

// Compiled for this machine: the median of repeated runs.
struct Timed {
  double seconds = 0;
  double flops = 0, bytes = 0;  // of one run, as the program counts them
  int runs = 0, threads = 1;
};
Result<Timed> time_expression(const Session& session, const frontend::Typed& expression,
                              int threads);

}  // namespace cad::cli
