// cli/repl_evaluate.cc -- see repl_evaluate.h. Compiled evaluation (`:time`) is repl_time.cc.
#include "cli/repl_evaluate.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "backend/cpu/thread_pool.h"
#include "backend/initialize.h"
#include "backend/parameters.h"
#include "base/text.h"
#include "cli/repl_graph.h"
#include "frontend/size_limits.h"
#include "ir/autodiff.h"
#include "ir/interpreter.h"

namespace cad::cli {

using frontend::SectionValue;
using frontend::SessionBody;

namespace {

double elements_of(const ir::Graph& g, const std::set<ir::DimId>& dims,
                   const ir::Bindings& bindings) {
  double product = 1;
  for (const ir::DimId dim : dims)
    product *= static_cast<double>(g.dim(dim).size.evaluate(bindings).value);
  return product;
}

double node_steps(const ir::Graph& g, const ir::Node& node, const ir::Bindings& bindings) {
  double steps = 1;
  std::set<ir::DimId> all;
  const auto see = [&](ir::ValueId v) {
    const std::vector<ir::DimId>& dims = g.type(v).dims;
    steps = std::max(steps, elements_of(g, {dims.begin(), dims.end()}, bindings));
    all.insert(dims.begin(), dims.end());
  };
  for (const ir::ValueId v : node.operands) see(v);
  if (node.op == ir::Op::kContract) return elements_of(g, all, bindings);
  for (const ir::ValueId v : node.results) see(v);
  return steps;
}

double region_steps(const ir::Graph& g, ir::RegionId id, const ir::Bindings& bindings) {
  double steps = 0;
  for (const ir::NodeId n : g.region(id).nodes) {
    const ir::Node& node = g.node(n);
    steps += node_steps(g, node, bindings);
    if (node.op == ir::Op::kRepeat)
      steps +=
          elements_of(g, {node.loop.dim}, bindings) * region_steps(g, node.loop.body, bindings);
  }
  return steps;
}

Diagnostic too_large(double steps) {
  Diagnostic error = make_error(
      DiagId::E0513,
      fmt::format("evaluating this one element at a time would take {} steps", count_text(steps)),
      kExitRunFailed);
  error.note(fmt::format("the limit is {}", count_text(kMostSteps)))
      .help("make dims smaller, as in `:set B=1`; `:time EXPR` runs it compiled");
  return error;
}

// Initial values, as a run would start from them.
ir::Tensor initial_value(const ir::Graph& graph, const ir::Input& input,
                         const ir::Bindings& bindings, uint64_t seed) {
  ir::Graph one;
  one.dims = graph.dims;
  ir::Input alone = input;
  alone.value = one.add_value(ir::RegionId{0}, graph.type(input.value));
  one.inputs.push_back(alone);
  backend::Parameters parameters;
  parameters.add(one, bindings);
  backend::Parameter& p = parameters.all()[0];
  std::vector<std::byte> bytes(static_cast<size_t>(std::max<int64_t>(p.bytes(), 1)));
  p.data = bytes.data();
  backend::ThreadPool pool(1);
  backend::initialize(p, seed, pool);
  ir::Tensor tensor;
  tensor.dtype = p.dtype;
  tensor.extents = ir::extents_of(graph, graph.type(input.value), bindings);
  tensor.data = values_in(p.dtype, bytes.data(), p.elements());
  return tensor;
}

// The results of a graph's region 0.
Result<std::vector<NamedTensor>> run(const Session& session, const ir::Graph& graph,
                                     const std::map<std::string, ir::Tensor>& given) {
  const ir::Bindings& bindings = frontend::bindings(session.module());
  if (auto fault = frontend::size_fault(graph, bindings)) return *fault;
  if (auto fault = free_dim(graph, bindings)) return *fault;
  if (const double steps = interpreter_steps(graph, bindings); !(steps <= kMostSteps))
    return too_large(steps);
  std::vector<ir::Tensor> inputs;
  const uint64_t seed = seed_of(session);
  for (const ir::Input& input : graph.inputs) {
    const auto at = given.find(input.path);
    inputs.push_back(at != given.end() ? at->second : initial_value(graph, input, bindings, seed));
  }
  ir::EvalContext context;
  context.bindings = bindings;
  context.seed = seed;
  context.round = true;
  std::vector<ir::Tensor> results = ir::interpret(graph, inputs, context);
  std::vector<NamedTensor> out;
  for (size_t i = 0; i < results.size(); ++i) {
    NamedTensor named;
    named.name = graph.outputs[i].name;
    for (const ir::DimId dim : graph.type(graph.regions[0].results[i]).dims)
      named.dims.push_back(graph.dim(dim).name);
    named.tensor = std::move(results[i]);
    out.push_back(std::move(named));
  }
  return out;
}

}  // namespace

double interpreter_steps(const ir::Graph& graph, const ir::Bindings& bindings) {
  return region_steps(graph, ir::RegionId{0}, bindings);
}

std::vector<TypeOf> types_of(const Session& session, const frontend::Typed& expression,
                             Diagnostics& diagnostics) {
  SessionBody body(session.module(), SessionBody::Walk::kCheck, diagnostics);
  session.replay(body, {});
  const auto values = body.evaluate(expression);
  std::vector<TypeOf> out;
  if (!values) return out;
  for (const SectionValue& value : *values) {
    TypeOf type;
    type.kind = value.kind;
    type.number = value.number;
    type.flag = value.flag;
    if (value.kind == SectionValue::Kind::kTensor) {
      const ir::Type& t = body.graph().type(value.value);
      type.dtype = t.dtype;
      for (const ir::DimId dim : t.dims) type.dims.push_back(body.graph().dim(dim).name);
    }
    out.push_back(std::move(type));
  }
  return out;
}

std::optional<ir::Graph> graph_of(const Session& session, const frontend::Typed& expression,
                                  Diagnostics& diagnostics) {
  if (types_of(session, expression, diagnostics).empty()) return std::nullopt;
  SessionBody body(session.module(), SessionBody::Walk::kLower, diagnostics);
  session.replay(body, {});
  const auto values = body.evaluate(expression);
  if (!values) return std::nullopt;
  size_t i = 0;
  for (const SectionValue& value : *values) {
    if (value.kind == SectionValue::Kind::kTensor)
      body.output("result:" + std::to_string(i), value.value);
    ++i;
  }
  return body.take();
}

std::vector<Answer> evaluate(const Session& session, const frontend::Typed& expression,
                             Diagnostics& diagnostics) {
  const std::vector<TypeOf> types = types_of(session, expression, diagnostics);
  const auto graph = types.empty() ? std::nullopt : graph_of(session, expression, diagnostics);
  std::vector<Answer> answers;
  if (!graph) return answers;
  Result<std::vector<NamedTensor>> tensors = run(session, *graph, {});
  if (!tensors.ok()) {
    diagnostics.add(tensors.error());
    return answers;
  }
  size_t next = 0;
  for (const TypeOf& type : types) {
    Answer answer;
    answer.kind = type.kind;
    answer.number = type.number;
    answer.flag = type.flag;
    if (type.kind == SectionValue::Kind::kTensor) answer.tensor = std::move((*tensors)[next++]);
    answers.push_back(std::move(answer));
  }
  return answers;
}

// ------------------------------------------------------------------------------------ gradients

namespace {

// The expression's graph with the session's own tensors cut off: see Session::is_leaf.
struct CutGraph {
  ir::Graph graph;
  std::vector<NamedTensor> cut;  // by input path; no values yet
};

Diagnostic not_one_number(const std::string& what) {
  Diagnostic error = make_error(
      DiagId::E0503, fmt::format("`:grad` wants one float number, this is {}", what), kExitUsage);
  error.help("make it one: `:grad sum(..)`");
  return error;
}

std::set<size_t> leaves_of(const Session& session, const frontend::Typed& expression) {
  std::set<size_t> leaves;
  for (const size_t i : session.needed_by(expression)) {
    if (session.is_leaf(i) && ir::is_float(session.program().values[i][0].dtype)) leaves.insert(i);
  }
  return leaves;
}

// Values of statements, each as input_name().
Result<std::map<std::string, ir::Tensor>> leaf_values(const Session& session,
                                                      const std::set<size_t>& leaves) {
  Diagnostics diagnostics;
  SessionBody body(session.module(), SessionBody::Walk::kLower, diagnostics);
  session.replay(body, {}, [&](size_t i) {
    if (leaves.count(i) == 0) return;
    const std::string& name = session.program().values[i][0].name;
    if (const auto value = body.value(name))
      body.output(Session::input_name(i, name), value->value);
  });
  std::map<std::string, ir::Tensor> out;
  CAD_TRY(tensors, run(session, body.take(), {}));
  for (NamedTensor& t : tensors) out[t.name] = std::move(t.tensor);
  return out;
}

// "0:x" of a session's tensor is x; a parameter keeps its path.
std::string shown_name(const ir::Input& input) {
  return input.kind == ir::InputKind::kOther ? input.path.substr(input.path.find(':') + 1)
                                             : input.path;
}

}  // namespace

Result<GradientAnswer> gradients(const Session& session, const frontend::Typed& expression) {
  Diagnostics diagnostics;
  const std::vector<TypeOf> types = types_of(session, expression, diagnostics);
  if (diagnostics.has_errors()) return diagnostics.all()[0];
  if (types.size() != 1) return not_one_number(fmt::format("{} values", types.size()));
  if (types[0].kind != SectionValue::Kind::kTensor) return not_one_number("a constant");
  if (!types[0].dims.empty() || types[0].dtype != ir::DType::kF32)
    return not_one_number(type_text(types[0].dtype, types[0].dims, {}));
  const std::set<size_t> leaves = leaves_of(session, expression);
  SessionBody body(session.module(), SessionBody::Walk::kLower, diagnostics);
  session.replay(body, leaves);
  const auto values = body.evaluate(expression);
  if (!values) return diagnostics.all()[0];
  body.output("value", (*values)[0].value);
  ir::Graph graph = body.take();
  ir::DifferentiateOptions options;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const ir::Input& input = graph.inputs[i];
    const bool own = input.kind == ir::InputKind::kOther || input.kind == ir::InputKind::kParam;
    if (own && !input.frozen && ir::is_float(graph.type(input.value).dtype))
      options.wrt.push_back(ir::InputId{static_cast<int32_t>(i)});
  }
  if (options.wrt.empty()) {
    Diagnostic error = make_error(
        DiagId::E0503, "nothing to differentiate by: no float tensor or parameter is in it",
        kExitUsage);
    error.help("bind one first: `x = normal[B, D](1.0)`");
    return error;
  }
  GradientAnswer answer;
  const ir::ValueId value = graph.regions[0].results[0];
  answer.graph = ir::differentiate(std::move(graph), value, options);
  if (free_dim(answer.graph, frontend::bindings(session.module()))) return answer;
  CAD_TRY(given, leaf_values(session, leaves));
  CAD_TRY(tensors, run(session, answer.graph, given));
  answer.values = true;
  for (NamedTensor& t : tensors) {
    if (t.name == "value") {
      answer.gradients.value = t.tensor.data[0];
      continue;
    }
    for (const ir::Input& input : answer.graph.inputs) {
      if (t.name == "grad:" + input.path) t.name = shown_name(input);
    }
    answer.gradients.of.push_back(std::move(t));
  }
  return answer;
}

}  // namespace cad::cli
