// backend/optimizer.cc -- see backend/optimizer.h.
#include "backend/optimizer.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "backend/compile.h"
#include "backend/cpu/thread_pool.h"
#include "backend/run_memory.h"
#include "backend/scalar_input.h"
#include "base/check.h"
#include "base/path_pattern.h"
#include "ir/builder.h"
#include "ir/interpreter.h"

namespace cad::backend {
namespace {

constexpr int64_t kScalarsBytes = 3 * kAlignment;  // lr, step, grad_scale

int entry_for(const ir::TrainSpec& spec, const std::string& path) {
  for (size_t e = 0; e < spec.optimizers.size(); ++e) {
    const auto& of = spec.optimizers[e].of;
    const auto matches = [&](const std::string& pattern) { return path_matches(pattern, path); };
    if (of.empty() || std::any_of(of.begin(), of.end(), matches)) return static_cast<int>(e);
  }
  return -1;
}

bool decays(const Parameter& p, const ir::OptimizerEntry& entry) {
  if (p.decay == ir::Input::Decay::kAlways) return true;
  if (p.decay == ir::Input::Decay::kNever) return false;
  return entry.decay_all || p.extents.size() >= 2;
}

// The update reads g * grad_scale wherever it read g.
ir::Graph with_gradient_scale(ir::Graph g) {
  const ir::ValueId scale = prepend_scalar_input(g, "grad_scale");
  ir::ValueId gradient;
  for (const ir::Input& input : g.inputs) {
    if (input.path == "g") gradient = input.value;
  }
  CAD_CHECK(gradient.valid(), "an optimizer without a gradient input");
  auto& order = g.regions[0].nodes;
  // Inputs first, so that the product can follow them directly.
  std::stable_partition(order.begin(), order.end(),
                        [&](ir::NodeId n) { return g.node(n).op == ir::Op::kInput; });
  ir::Builder builder(g, ir::RegionId{0});
  const ir::ValueId scaled = builder.mul(gradient, scale);
  const ir::NodeId product = g.value(scaled).def;
  for (ir::Node& node : g.nodes) {
    if (&node == &g.node(product)) continue;
    std::replace(node.operands.begin(), node.operands.end(), gradient, scaled);
  }
  std::replace(g.regions[0].results.begin(), g.regions[0].results.end(), gradient, scaled);
  auto& nodes = g.regions[0].nodes;
  nodes.pop_back();
  const auto first_op = std::find_if(nodes.begin(), nodes.end(),
                                     [&](ir::NodeId n) { return g.node(n).op != ir::Op::kInput; });
  nodes.insert(first_op, product);
  return g;
}

}  // namespace

Result<Optimizer> Optimizer::assign(const ir::TrainSpec& spec, Parameters& parameters) {
  Optimizer optimizer;
  optimizer.spec_ = &spec;
  std::vector<bool> used(spec.optimizers.size(), false);
  for (size_t i = 0; i < parameters.all().size(); ++i) {
    Parameter& p = parameters.all()[i];
    if (!p.trained()) continue;
    bool any_trained = false;
    std::vector<Segment> found;
    for (int64_t iteration = 0; iteration < p.iterations; ++iteration) {
      const std::string path = p.iteration_path(iteration);
      const int entry = entry_for(spec, path);
      if (entry < 0) {
        Diagnostic error = make_error(
            DiagId::E0317, fmt::format("no optimizer entry takes `{}`", path), kExitProgram);
        if (p.span.valid()) error.label(p.span, "declared here");
        error.help("end the list with an entry without `of`, or with `frozen()`");
        return error;
      }
      const auto e = static_cast<size_t>(entry);
      used[e] = true;
      any_trained = any_trained || !spec.optimizers[e].frozen;
      if (!found.empty() && found.back().entry == entry) {
        ++found.back().iterations;
        continue;
      }
      Segment segment;
      segment.parameter = static_cast<int>(i);
      segment.entry = entry;
      segment.first_iteration = iteration;
      segment.decays = decays(p, spec.optimizers[e]);
      segment.first_path = path;
      found.push_back(std::move(segment));
    }
    p.frozen = !any_trained;
    for (Segment& segment : found) {
      if (!spec.optimizers[static_cast<size_t>(segment.entry)].frozen)
        optimizer.segments_.push_back(std::move(segment));
    }
  }
  int rates = 0;
  for (size_t e = 0; e < used.size(); ++e) {
    const ir::OptimizerEntry& entry = spec.optimizers[e];
    optimizer.rate_index_.push_back(entry.frozen ? -1 : rates++);
    if (used[e]) continue;
    Diagnostic error = make_error(DiagId::E0316,
                                  fmt::format("optimizer entry {} (`{}`) takes no parameter", e + 1,
                                              entry.frozen ? "frozen" : entry.name),
                                  kExitProgram);
    if (entry.span.valid()) error.label(entry.span, "this entry");
    if (!entry.of.empty())
      error.note(fmt::format("no path that is left matches `{}`", fmt::join(entry.of, "`, `")));
    return error;
  }
  return optimizer;
}

const ir::OptimizerEntry& Optimizer::entry_of(const Segment& segment) const {
  return spec_->optimizers[static_cast<size_t>(segment.entry)];
}

void Optimizer::part_of(const Optimizer& whole, const Parameters& parameters,
                        const Parameters& all) {
  for (Segment& segment : segments_) {
    const Parameter& p = parameters.all()[static_cast<size_t>(segment.parameter)];
    const auto held = p.held.begin() + segment.first_iteration;
    for (const Segment& other : whole.segments_) {
      const int64_t end = other.first_iteration + other.iterations;
      if (all.all()[static_cast<size_t>(other.parameter)].path != p.path) continue;
      if (*held < other.first_iteration || *held >= end) continue;
      segment.first_path = other.first_path;
      segment.has_first = *held == other.first_iteration;
    }
  }
}

void Optimizer::fix_layouts(Parameters& parameters) const {
  for (const Segment& segment : segments_) {
    if (entry_of(segment).special.empty()) continue;
    parameters.all()[static_cast<size_t>(segment.parameter)].optimizer_layout = planner::Layout{};
  }
}

void Optimizer::add_states(const Parameters& parameters) {
  for (Segment& segment : segments_) {
    const Parameter& p = parameters.all()[static_cast<size_t>(segment.parameter)];
    const ir::OptimizerEntry& entry = entry_of(segment);
    if (entry.special == "adafactor") {
      add_adafactor_states(segment, p);
      continue;
    }
    const ir::Graph& graph = segment.decays ? entry.decayed : entry.plain;
    for (const ir::Input& input : graph.inputs) {
      if (input.kind != ir::InputKind::kState) continue;
      OptimizerState state;
      state.name = input.path;
      const ir::Type& type = graph.type(input.value);
      state.dtype = type.dtype;
      state.per_iteration = !type.dims.empty();
      if (state.per_iteration) state.extents = p.extents;
      state.shard = state.per_iteration ? p.optimizer : whole_shard({});
      state.elements = state.per_iteration ? segment.iterations * p.optimizer.elements() : 1;
      state.init = input.init.kind;
      state.init_scale = input.init.scale.evaluate(spec_->bindings).value_or(0.0);
      segment.states.push_back(std::move(state));
    }
  }
}

void Optimizer::place(const planner::Mesh& mesh, std::span<const int> coordinates,
                      const Parameters& parameters) {
  for (Segment& segment : segments_) {
    const Parameter& p = parameters.all()[static_cast<size_t>(segment.parameter)];
    const bool elementwise = entry_of(segment).special.empty();
    for (OptimizerState& state : segment.states) {
      const bool parted = elementwise && state.per_iteration;
      state.shard =
          parted ? p.optimizer : shard_of(planner::Layout{}, state.extents, mesh, coordinates);
    }
  }
}

void Optimizer::compile_updates(const Parameters& parameters, const CompileOptions& options) {
  std::map<std::string, int> known;
  for (Segment& segment : segments_) {
    if (!entry_of(segment).special.empty()) continue;
    compile_segment(segment, parameters.all()[static_cast<size_t>(segment.parameter)], options,
                    known);
  }
}

void Optimizer::compile_segment(Segment& segment, const Parameter& p, CompileOptions options,
                                std::map<std::string, int>& known) {
  const ir::OptimizerEntry& entry = entry_of(segment);
  CAD_CHECK(entry.elementwise, "optimizer `{}` is neither elementwise nor built in", entry.name);
  const ir::Graph& graph = segment.decays ? entry.decayed : entry.plain;
  const int64_t elements = segment.iterations * p.optimizer.elements();
  const std::string key = fmt::format("{} {} {}", segment.entry, segment.decays, elements);
  auto [place, fresh] = known.emplace(key, static_cast<int>(programs_.size()));
  segment.program = place->second;
  if (!fresh) return;
  ir::Bindings bindings = spec_->bindings;
  std::vector<std::string> flat;  // the symbols of the stand-in dim
  for (const ir::Input& input : graph.inputs) {
    if (input.path != "p") continue;
    for (const ir::DimId dim : graph.type(input.value).dims) {
      for (const std::string& symbol : graph.dim(dim).size.symbols()) flat.push_back(symbol);
    }
  }
  for (const std::string& symbol : flat) bindings[symbol] = elements;
  Compiled compiled;
  const ir::Graph scaled = with_gradient_scale(graph);
  for (const ir::Output& output : scaled.outputs) {
    const bool state = output.name.compare(0, 6, "state:") == 0;
    options.in_place.emplace_back(output.name, state ? output.name.substr(6) : output.name);
  }
  compiled.inputs = scaled.inputs;
  compiled.program = compile(scaled, bindings, options);
  programs_.push_back(std::move(compiled));
}

int64_t Optimizer::region_bytes() const {
  int64_t transient = 0;
  for (const Compiled& compiled : programs_)
    transient = std::max(transient, compiled.program.transient_bytes());
  return kScalarsBytes + transient;
}

void Optimizer::initialize_states(ThreadPool& pool) {
  for (Segment& segment : segments_) {
    for (OptimizerState& state : segment.states) {
      if (state.dtype != ir::DType::kF32 || state.init != ir::Init::Kind::kConstant) {
        std::memset(state.data, 0, static_cast<size_t>(state.bytes()));
      }
      if (state.init != ir::Init::Kind::kConstant) continue;
      auto* values = reinterpret_cast<float*>(state.data);
      auto* whole = reinterpret_cast<int32_t*>(state.data);
      const bool integer = state.dtype == ir::DType::kI32;
      pool.split(state.elements, 4096, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          if (integer)
            whole[i] = static_cast<int32_t>(state.init_scale);
          else
            values[i] = static_cast<float>(state.init_scale);
        }
      });
    }
  }
}

std::vector<double> Optimizer::learning_rates(int64_t t, int64_t steps) const {
  std::vector<double> rates;
  for (const ir::OptimizerEntry& entry : spec_->optimizers) {
    if (entry.frozen) continue;
    std::vector<ir::Tensor> inputs;
    for (const ir::Input& input : entry.schedule.inputs) {
      ir::Tensor tensor;
      tensor.dtype = entry.schedule.type(input.value).dtype;
      tensor.data = {static_cast<double>(
          input.path == "t" ? std::min(t, std::max<int64_t>(steps, 1)) : steps)};
      inputs.push_back(std::move(tensor));
    }
    ir::EvalContext context;
    context.bindings = spec_->bindings;
    rates.push_back(ir::interpret(entry.schedule, inputs, context).at(0).data.at(0));
  }
  return rates;
}

void Optimizer::update(const Segment& segment, const Parameter& p, float* values,
                       const float* gradient, const Update& update, ThreadPool& pool) {
  auto* rate = reinterpret_cast<float*>(update.region);
  auto* step = reinterpret_cast<int32_t*>(update.region + kAlignment);
  auto* grad_scale = reinterpret_cast<float*>(update.region + 2 * kAlignment);
  const auto e = static_cast<size_t>(segment.entry);
  const ir::OptimizerEntry& entry = entry_of(segment);
  *step = static_cast<int32_t>(update.count);
  *grad_scale = static_cast<float>(update.scale);
  *rate = static_cast<float>(update.rates[static_cast<size_t>(rate_index_[e])]);
  const int64_t offset = segment.first_iteration * p.optimizer.elements();
  values += offset;
  gradient += offset;
  if (segment.program < 0) {
    const auto decay = entry.constants.find("decay");
    const bool any = segment.decays && decay != entry.constants.end();
    return adafactor_update(segment, p, values, gradient, update.scale, *rate,
                            any ? decay->second : 0.0, entry.constants, update.count, pool);
  }
  const Compiled& compiled = programs_[static_cast<size_t>(segment.program)];
  Run run;
  size_t next_state = 0;
  for (const ir::Input& input : compiled.inputs) {
    void* at = input.path == "p"            ? static_cast<void*>(values)
               : input.path == "g"          ? const_cast<float*>(gradient)
               : input.path == "lr"         ? static_cast<void*>(rate)
               : input.path == "step"       ? static_cast<void*>(step)
               : input.path == "grad_scale" ? static_cast<void*>(grad_scale)
                                            : nullptr;
    if (input.kind == ir::InputKind::kState) at = segment.states[next_state++].data;
    CAD_CHECK(at != nullptr, "optimizer `{}` has an unknown input `{}`", entry.name, input.path);
    run.inputs.push_back(at);
  }
  for (const Port& port : compiled.program.outputs()) {
    void* at = values;
    for (const OptimizerState& state : segment.states) {
      if (port.name == "state:" + state.name) at = state.data;
    }
    run.outputs.push_back(at);
  }
  run.arena = update.region + kScalarsBytes;
  execute(compiled.program, pool, run);
}

}  // namespace cad::backend
