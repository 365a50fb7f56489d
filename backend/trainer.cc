// backend/trainer.cc -- set-up of a run: data, programs, memory, first values, restoring. The step
// itself is in backend/trainer_step.cc.
#include "backend/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "backend/compile.h"
#include "backend/cpu/thread_pool.h"
#include "backend/initialize.h"
#include "backend/scalar_input.h"
#include "backend/train_graph.h"
#include "base/check.h"
#include "ir/autodiff.h"

namespace cad::backend {
namespace {

constexpr double kFirstLossScale = 65536;

uint64_t fnv(uint64_t hash, const std::string& text) {
  for (const char c : text + "\n") hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace

ir::Graph train_step_graph(const ir::TrainSpec& spec, const Parameters& parameters,
                           ir::PassLog* log) {
  ir::Graph g = ir::run_passes(spec.forward, ir::passes_before_autodiff(), log);
  ir::DifferentiateOptions options;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    if (g.inputs[i].kind != ir::InputKind::kParam) continue;
    const int index = parameters.find(g.inputs[i].path);
    const bool trained = index >= 0 && parameters.all()[static_cast<size_t>(index)].trained();
    if (trained) options.wrt.push_back(ir::InputId{static_cast<int32_t>(i)});
  }
  const ir::ValueId loss = ir::output_value(g, "loss");
  if (spec.precision == ir::DType::kF16) {
    options.seed = prepend_scalar_input(g, "loss_scale");  // gradients of loss * loss_scale
  }
  options.save.bindings = spec.bindings;
  // No trained parameter: nothing to differentiate (an empty list would mean all of them).
  if (!options.wrt.empty()) g = ir::differentiate(std::move(g), loss, options);
  return ir::run_passes(std::move(g), ir::passes_after_autodiff(), log);
}

Trainer::~Trainer() = default;

std::string Trainer::folder() const {
  return std::filesystem::path(spec_.program_path).parent_path().string();
}

Result<std::unique_ptr<Trainer>> Trainer::create(ir::TrainSpec spec,
                                                 const TrainerOptions& options) {
  std::unique_ptr<Trainer> trainer(new Trainer());
  trainer->spec_ = std::move(spec);
  trainer->options_ = options;
  trainer->pool_ = std::make_unique<ThreadPool>(options.threads);
  CAD_TRY_VOID(trainer->open_data());
  const ir::TrainSpec& s = trainer->spec_;
  trainer->parameters_.add(s.forward, s.bindings);
  for (const ir::EvalSpec& eval : s.evals) trainer->parameters_.add(eval.graph, s.bindings);
  if (!options.evaluate_only) {
    CAD_TRY(optimizer, Optimizer::assign(s, trainer->parameters_));
    trainer->optimizer_ = std::move(optimizer);
  }
  trainer->loss_scale_ = s.precision == ir::DType::kF16 ? kFirstLossScale : 1;
  trainer->compile_programs(options);
  trainer->plan_memory();
  return trainer;
}

Status Trainer::open_data() {
  DataOptions options{spec_.bindings, folder(), spec_.seed, spec_.shuffled};
  total_steps_ = spec_.steps;
  if (!options_.evaluate_only) {
    CAD_TRY(data, DataSet::open(spec_.data, options));
    data_ = std::move(data);
  }
  if (spec_.epochs && data_) {
    if (data_->endless()) {
      return make_error(DiagId::E0616, "`epochs` needs data with an end; `synthetic` has none",
                        kExitRunFailed);
    }
    const double rows = *spec_.epochs * static_cast<double>(data_->rows());
    total_steps_ = static_cast<int64_t>(rows / static_cast<double>(rows_per_step()));
    if (total_steps_ < 1 && *spec_.epochs > 0) {
      Diagnostic error =
          make_error(DiagId::E0606,
                     fmt::format("{} epochs of {} rows do not fill one step of {} rows",
                                 *spec_.epochs, data_->rows(), rows_per_step()),
                     kExitRunFailed);
      error.help("use a smaller batch, or more epochs");
      return error;
    }
  }
  options.shuffled = false;
  for (const ir::EvalSpec& eval : spec_.evals) {
    Eval opened;
    CAD_TRY(set, DataSet::open(eval.data.empty() ? spec_.data : eval.data, options));
    opened.data = std::move(set);
    evals_.push_back(std::move(opened));
  }
  return Ok{};
}

void Trainer::compile_programs(const TrainerOptions& options) {
  for (size_t i = 0; i < evals_.size(); ++i) {
    const ir::Graph eval = ir::evaluation_graph(spec_.evals[i].graph, options.passes);
    evals_[i].program = BoundProgram(eval, spec_.bindings, {}, &*evals_[i].data);
  }
  if (options.evaluate_only) return;
  ir::Graph g = train_step_graph(spec_, parameters_, options.passes);
  if (spec_.accumulate > 1) {
    const ir::Graph totals = step_total_graph(g);
    if (!totals.outputs.empty()) totals_ = BoundProgram(totals, spec_.bindings, {}, &*data_);
    g = supply_step_totals(std::move(g));
  }
  CompileOptions compile_options;
  for (const ir::Output& output : g.outputs) {
    const bool state = output.name.compare(0, 6, "state:") == 0;
    if (state)
      compile_options.in_place.emplace_back(output.name, output.name.substr(6));
    else
      compile_options.accumulate.push_back(output.name);
  }
  train_ = BoundProgram(g, spec_.bindings, compile_options, &*data_);
  optimizer_.compile_updates();
}

// Persistent: parameters, states, optimizer states, average. Region: gradients, then what the train
// program and the updates need in turn; evaluations reuse all of it.
void Trainer::plan_memory() {
  for (const Parameter& p : parameters_.all()) memory_report_.parameters += aligned(p.bytes());
  for (const Segment& segment : optimizer_.segments()) {
    for (const OptimizerState& state : segment.states)
      memory_report_.optimizer += aligned(state.bytes());
  }
  if (spec_.ema) {
    for (const Parameter& p : parameters_.all())
      memory_report_.average += p.trained() ? aligned(p.bytes()) : 0;
  }
  persistent_bytes_ = memory_report_.parameters + memory_report_.optimizer + memory_report_.average;
  std::map<std::string, int64_t> shared;
  int64_t at = 0;
  for (const Parameter& p : parameters_.all()) {
    const bool has = train_.valid() && train_.program().output("grad:" + p.path) >= 0;
    gradient_offsets_.push_back(has ? at : -1);
    if (!has) continue;
    shared["grad:" + p.path] = at;
    at += aligned(p.bytes());
  }
  memory_report_.gradients = at;
  if (train_.valid()) {
    region_bytes_ = std::max(train_.place(at, shared), at + optimizer_.region_bytes());
  }
  if (totals_.valid()) region_bytes_ = std::max(region_bytes_, totals_.place(at));
  for (Eval& eval : evals_) region_bytes_ = std::max(region_bytes_, eval.program.place(0));
  memory_report_.region = aligned(region_bytes_) - at;
  memory_report_.total = persistent_bytes_ + aligned(region_bytes_);
}

void Trainer::bind() {
  std::byte* at = memory_.persistent();
  const auto take = [&](int64_t bytes) {
    std::byte* start = at;
    at += aligned(bytes);
    return start;
  };
  std::vector<std::byte*> values;
  for (Parameter& p : parameters_.all()) {
    p.data = take(p.bytes());
    values.push_back(p.data);
  }
  for (Segment& segment : optimizer_.segments()) {
    for (OptimizerState& state : segment.states) state.data = take(state.bytes());
  }
  averages_ = values;
  for (size_t i = 0; spec_.ema && i < values.size(); ++i) {
    if (parameters_.all()[i].trained()) averages_[i] = take(parameters_.all()[i].bytes());
  }
  gradients_.clear();
  for (const int64_t offset : gradient_offsets_) {
    gradients_.push_back(offset < 0 ? nullptr
                                    : reinterpret_cast<float*>(memory_.region() + offset));
  }
  if (train_.valid()) train_.bind(parameters_, values, memory_.region());
  if (totals_.valid()) totals_.bind(parameters_, values, memory_.region());
  for (Eval& eval : evals_) eval.program.bind(parameters_, averages_, memory_.region());
}

Status Trainer::start(std::vector<Diagnostic>& warnings) {
  CAD_TRY_VOID(memory_.allocate(persistent_bytes_, region_bytes_, options_.budget));
  memory_.poison_region();
  bind();
  for (const Parameter& p : parameters_.all()) initialize(p, spec_.seed, *pool_);
  optimizer_.initialize_states(*pool_);
  CAD_TRY_VOID(load_init_files(parameters_, spec_.init, folder(), warnings));
  for (size_t i = 0; i < averages_.size(); ++i) {
    const Parameter& p = parameters_.all()[i];
    if (averages_[i] != p.data) std::memcpy(averages_[i], p.data, static_cast<size_t>(p.bytes()));
  }
  return Ok{};
}

namespace {

Diagnostic lacks(const std::string& file, const std::string& tensor) {
  Diagnostic error =
      make_error(DiagId::E0615, fmt::format("checkpoint `{}` has no tensor `{}`", file, tensor),
                 kExitRunFailed);
  error.help(
      "resume with the program that wrote it, or start a new run from its parameters with "
      "`--init`");
  return error;
}

// `optional`: a parameter whose tensors may be left out (frozen ones, with `frozen: false`).
Status restore_parameter(const SafetensorsFile& file, const Parameter& p, std::byte* to,
                         bool optional) {
  const int64_t step = p.iteration_elements * ir::dtype_bytes(p.dtype);
  for (int64_t i = 0; i < p.iterations; ++i) {
    const StoredTensor* tensor = file.find(p.iteration_path(i));
    if (tensor == nullptr && optional) continue;
    if (tensor == nullptr) return lacks(file.path(), p.iteration_path(i));
    CAD_TRY_VOID(read_tensor(file, *tensor, p, to + i * step));
  }
  return Ok{};
}

// A state's tensors as Parameters, so that reading, writing and their checks are shared.
Parameter as_parameter(const Segment& segment, const OptimizerState& state, const Parameter& p) {
  Parameter view = p;
  view.dtype = state.dtype;
  view.extents = state.extents;
  view.dims.clear();
  view.iterations = state.per_iteration ? segment.iterations : 1;
  view.iteration_elements = state.elements / view.iterations;
  view.data = state.data;
  return view;
}

std::string state_path(const Segment& segment, const OptimizerState& state, const Parameter& p,
                       int64_t i) {
  return state.name + ":" + p.iteration_path(segment.first_iteration + i);
}

}  // namespace

Status Trainer::restore(const Checkpoint& checkpoint) {
  CAD_TRY(model, SafetensorsFile::open(checkpoint.file("model.safetensors")));
  for (const Parameter& p : parameters_.all()) {
    const bool optional = p.kind == ir::InputKind::kParam && p.frozen;
    CAD_TRY_VOID(restore_parameter(model, p, p.data, optional));
  }
  CAD_TRY(optimizer, SafetensorsFile::open(checkpoint.file("optimizer.safetensors")));
  for (const Segment& segment : optimizer_.segments()) {
    const Parameter& p = parameters_.all()[static_cast<size_t>(segment.parameter)];
    for (const OptimizerState& state : segment.states) {
      const Parameter view = as_parameter(segment, state, p);
      const int64_t bytes = view.iteration_elements * ir::dtype_bytes(view.dtype);
      for (int64_t i = 0; i < view.iterations; ++i) {
        const std::string path = state_path(segment, state, p, i);
        const StoredTensor* tensor = optimizer.find(path);
        if (tensor == nullptr) return lacks(optimizer.path(), path);
        CAD_TRY_VOID(read_tensor(optimizer, *tensor, view, view.data + i * bytes));
      }
    }
  }
  if (spec_.ema) {
    CAD_TRY(average, SafetensorsFile::open(checkpoint.file("ema.safetensors")));
    for (size_t i = 0; i < averages_.size(); ++i) {
      const Parameter& p = parameters_.all()[i];
      if (averages_[i] != p.data) CAD_TRY_VOID(restore_parameter(average, p, averages_[i], false));
    }
  }
  steps_done_ = checkpoint.state.step;
  rows_done_ = checkpoint.state.rows;
  updates_done_ = checkpoint.state.updates;
  if (spec_.precision == ir::DType::kF16) loss_scale_ = checkpoint.state.loss_scale;
  good_steps_ = checkpoint.state.good_steps;
  return Ok{};
}

CheckpointContents Trainer::contents() const {
  CheckpointContents contents;
  for (size_t i = 0; i < parameters_.all().size(); ++i) {
    const Parameter& p = parameters_.all()[i];
    const bool left_out = !spec_.save.frozen && p.kind == ir::InputKind::kParam && p.frozen;
    if (left_out) continue;
    append_tensors(p, p.data, "", contents.model);
    if (spec_.ema) append_tensors(p, averages_[i], "", contents.average);
  }
  for (const Segment& segment : optimizer_.segments()) {
    const Parameter& p = parameters_.all()[static_cast<size_t>(segment.parameter)];
    for (const OptimizerState& state : segment.states) {
      const Parameter view = as_parameter(segment, state, p);
      const int64_t bytes = view.iteration_elements * ir::dtype_bytes(view.dtype);
      for (int64_t i = 0; i < view.iterations; ++i) {
        contents.optimizer.push_back({state_path(segment, state, p, i), stored_as(view.dtype),
                                      view.extents, view.data + i * bytes});
      }
    }
  }
  contents.state.step = steps_done_;
  contents.state.rows = rows_done_;
  contents.state.updates = updates_done_;
  contents.state.seed = spec_.seed;
  contents.state.loss_scale = loss_scale_;
  contents.state.good_steps = good_steps_;
  contents.state.config = config_hash();
  return contents;
}

std::string Trainer::config_hash() const {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const Parameter& p : parameters_.all()) {
    hash = fnv(hash, fmt::format("{} {} {}", p.path, shape_text(p.loops), shape_text(p.extents)));
  }
  for (const ir::DataSource& source : spec_.data) {
    for (const std::string& file : source.files) hash = fnv(hash, file);
    for (const ir::DataName& name : source.names) hash = fnv(hash, name.name);
  }
  for (const ir::OptimizerEntry& entry : spec_.optimizers) {
    hash = fnv(hash, entry.name);
    for (const auto& [name, value] : entry.constants)
      hash = fnv(hash, fmt::format("{} {}", name, value));
  }
  for (const auto& [name, value] : spec_.bindings)
    hash = fnv(hash, fmt::format("{} {}", name, value));
  hash = fnv(hash, fmt::format("{} {} {} {} {} {} {} {}", spec_.seed, spec_.accumulate,
                               static_cast<int>(spec_.precision), spec_.clip.value_or(0),
                               spec_.ema.value_or(0), spec_.shuffled, spec_.dropout, total_steps_));
  return fmt::format("{:016x}", hash);
}

const float* Trainer::gradient(const std::string& path) const {
  const int index = parameters_.find(path);
  return index < 0 ? nullptr : gradients_[static_cast<size_t>(index)];
}

}  // namespace cad::backend
