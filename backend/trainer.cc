// backend/trainer.cc -- set-up of a run: data, programs, memory, first values. Checkpoints are in
// backend/trainer_state.cc, the step in backend/trainer_step.cc and trainer_update.cc.
#include "backend/trainer.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "backend/compile.h"
#include "backend/cpu/thread_pool.h"
#include "backend/initialize.h"
#include "backend/jit.h"
#include "base/check.h"

namespace cad::backend {
namespace {

constexpr double kFirstLossScale = 65536;

}  // namespace

Trainer::~Trainer() = default;

std::string Trainer::folder() const {
  return std::filesystem::path(spec_->program_path).parent_path().string();
}

Result<std::unique_ptr<Trainer>> Trainer::create(ir::TrainSpec spec,
                                                 const TrainerOptions& options) {
  std::unique_ptr<Trainer> trainer(new Trainer());
  trainer->spec_ = std::make_shared<const ir::TrainSpec>(std::move(spec));
  trainer->options_ = options;
  if (options.jit == nullptr) trainer->options_.jit = std::make_shared<Jit>();
  const bool alone = options.plan == nullptr;
  // A plan for one device (what it keeps and recomputes) is carried out by this very trainer.
  if (alone || options.plan->train.mesh.devices() == 1) {
    trainer->own_pool_ = std::make_unique<ThreadPool>(options.threads);
    trainer->pool_ = trainer->own_pool_.get();
  }
  CAD_TRY_VOID(trainer->open_data());
  const ir::TrainSpec& s = *trainer->spec_;
  std::optional<LoweredRun> lowered;
  if (!alone) lowered = lower_run(s, *options.plan, options.passes);
  CAD_TRY_VOID(trainer->assign_parameters(lowered ? &*lowered : nullptr));
  trainer->loss_scale_ = s.precision == ir::DType::kF16 ? kFirstLossScale : 1;
  trainer->compile_programs(lowered ? &*lowered : nullptr);
  trainer->plan_memory();
  if (!alone) trainer->place_device(planner::coordinates_of(trainer->mesh_, 0));
  return trainer;
}

std::unique_ptr<Trainer> Trainer::on_device(const Team& team, ThreadPool& pool) const {
  CAD_CHECK(team.devices() == devices(), "a run on {} devices in a world of {}", devices(),
            team.devices());
  std::unique_ptr<Trainer> t(new Trainer());
  t->spec_ = spec_;
  t->options_ = options_;
  t->team_ = team;
  t->mesh_ = mesh_;
  t->pool_ = &pool;
  t->data_ = data_;
  t->whole_ = whole_;
  t->parameters_ = parameters_;
  t->whole_optimizer_ = whole_optimizer_;
  t->optimizer_ = optimizer_;
  t->train_ = train_;
  t->totals_ = totals_;
  t->evals_ = evals_;
  t->conversions_ = conversions_;
  t->conversion_programs_ = conversion_programs_;
  t->memory_report_ = memory_report_;
  t->persistent_bytes_ = persistent_bytes_;
  t->region_bytes_ = region_bytes_;
  t->scratch_offset_ = scratch_offset_;
  t->conversion_offset_ = conversion_offset_;
  t->gradient_offsets_ = gradient_offsets_;
  t->plain_ = plain_;
  t->total_steps_ = total_steps_;
  t->loss_scale_ = loss_scale_;
  t->place_device(planner::coordinates_of(mesh_, team.device()));
  return t;
}

Status Trainer::open_data() {
  DataOptions options{spec_->bindings, folder(), spec_->seed, spec_->shuffled};
  total_steps_ = spec_->steps;
  if (options_.layout_only) {
    evals_.resize(spec_->evals.size());
    return Ok{};
  }
  if (!options_.evaluate_only) {
    CAD_TRY(data, DataSet::open(spec_->data, options));
    data_ = std::make_shared<const DataSet>(std::move(data));
  }
  if (spec_->epochs && data_) {
    if (data_->endless()) {
      return make_error(DiagId::E0616, "`epochs` needs data with an end; `synthetic` has none",
                        kExitRunFailed);
    }
    const double rows = *spec_->epochs * static_cast<double>(data_->rows());
    total_steps_ = static_cast<int64_t>(rows / static_cast<double>(rows_per_step()));
    if (total_steps_ < 1 && *spec_->epochs > 0) {
      Diagnostic error =
          make_error(DiagId::E0606,
                     fmt::format("{} epochs of {} rows do not fill one step of {} rows",
                                 *spec_->epochs, data_->rows(), rows_per_step()),
                     kExitRunFailed);
      error.help("use a smaller batch, or more epochs");
      return error;
    }
  }
  options.shuffled = false;
  for (const ir::EvalSpec& eval : spec_->evals) {
    Eval opened;
    CAD_TRY(set, DataSet::open(eval.data.empty() ? spec_->data : eval.data, options));
    opened.data = std::make_shared<const DataSet>(std::move(set));
    evals_.push_back(std::move(opened));
  }
  return Ok{};
}

// With several devices a parameter may be cut into tensors of some iterations each, and each of
// them into blocks. Which entry updates it is settled for the whole; parts follow.
Status Trainer::assign_parameters(const LoweredRun* lowered) {
  const ir::TrainSpec& s = *spec_;
  whole_.add(s.forward, s.bindings);
  for (const ir::EvalSpec& eval : s.evals) whole_.add(eval.graph, s.bindings);
  const Parameters unassigned = whole_;
  if (!options_.evaluate_only) {
    CAD_TRY(optimizer, Optimizer::assign(s, whole_));
    whole_optimizer_ = std::move(optimizer);
  }
  if (lowered == nullptr) {
    parameters_ = whole_;
    optimizer_ = whole_optimizer_;
  } else {
    mesh_ = lowered->mesh;
    parameters_.add_local(unassigned, lowered->train.tensors);
    for (const LocalGraph& eval : lowered->evals) parameters_.add_local(unassigned, eval.tensors);
    parameters_.add_unused(unassigned);
    parameters_.place(mesh_, planner::coordinates_of(mesh_, 0));
    if (!options_.evaluate_only) {
      CAD_TRY(optimizer, Optimizer::assign(s, parameters_));
      optimizer_ = std::move(optimizer);
    }
    optimizer_.part_of(whole_optimizer_, parameters_, whole_);
    optimizer_.fix_layouts(parameters_);
    parameters_.place(mesh_, planner::coordinates_of(mesh_, 0));
  }
  whole_optimizer_.add_states(whole_);
  optimizer_.add_states(parameters_);
  return Ok{};
}

// All programs of a run share the code of equal kernels.
CompileOptions Trainer::compile_options() const {
  CompileOptions options;
  options.threads = options_.threads;
  options.jit = options_.jit;
  options.code = !options_.layout_only;
  options.slack = options_.plan == nullptr || !options_.plan->lean;
  return options;
}

void Trainer::compile_programs(LoweredRun* lowered) {
  const CompileOptions options = compile_options();
  for (size_t i = 0; i < evals_.size(); ++i) {
    RunGraph eval = lowered == nullptr
                        ? RunGraph{ir::evaluation_graph(spec_->evals[i].graph, options_.passes), {}}
                        : local_evaluation_graph(std::move(lowered->evals[i]), options_.passes);
    evals_[i].program =
        BoundProgram(eval.graph, spec_->bindings, options, evals_[i].data.get(), eval.inputs);
  }
  if (options_.evaluate_only) return;
  compile_train(lowered == nullptr ? train_step_graph(*spec_, parameters_, options_.passes)
                                   : local_step_graph(*spec_, std::move(lowered->train),
                                                      parameters_, options_.passes),
                options);
  optimizer_.compile_updates(parameters_, options);
  add_conversions();
  plain_ = make_plain();
}

RunGraph Trainer::step_graph() const {
  if (options_.plan == nullptr) return train_step_graph(*spec_, parameters_, nullptr);
  LoweredRun lowered = lower_run(*spec_, *options_.plan, nullptr);
  return local_step_graph(*spec_, std::move(lowered.train), parameters_, nullptr);
}

void Trainer::compile_train(RunGraph step, const CompileOptions& options) {
  ir::Graph& g = step.graph;
  if (spec_->accumulate > 1) {
    const ir::Graph totals = step_total_graph(g);
    if (!totals.outputs.empty())
      totals_ = BoundProgram(totals, spec_->bindings, options, data_.get(), step.inputs);
    g = supply_step_totals(std::move(g));
  }
  CompileOptions train_options = options;
  for (const ir::Output& output : g.outputs) {
    const bool state = output.name.compare(0, 6, "state:") == 0;
    if (state)
      train_options.in_place.emplace_back(output.name, output.name.substr(6));
    else if (spec_->accumulate > 1)
      train_options.accumulate.push_back(output.name);
  }
  train_ = BoundProgram(g, spec_->bindings, train_options, data_.get(), step.inputs);
}

std::vector<OptimizerState*> Trainer::optimizer_states() {
  std::vector<OptimizerState*> states;
  for (Segment& segment : optimizer_.segments()) {
    for (OptimizerState& state : segment.states) states.push_back(&state);
  }
  return states;
}

// Persistent: parameters, states, optimizer states, average. Region: gradients, then what the train
// program and the updates need in turn; evaluations reuse all of it. Behind what the optimizer
// needs: one parameter in its layout, and what the programs that bring it there and back need.
void Trainer::plan_memory() {
  for (const Parameter& p : parameters_.all()) memory_report_.parameters += aligned(p.bytes());
  for (const OptimizerState* state : optimizer_states())
    memory_report_.optimizer += aligned(state->bytes());
  if (spec_->ema) {
    for (const Parameter& p : parameters_.all())
      memory_report_.average += p.trained() ? aligned(p.bytes()) : 0;
  }
  persistent_bytes_ = memory_report_.parameters + memory_report_.optimizer + memory_report_.average;
  std::map<std::string, int64_t> shared;
  int64_t at = 0, scratch = 0, conversion = 0;
  for (size_t i = 0; i < parameters_.all().size(); ++i) {
    const Parameter& p = parameters_.all()[i];
    const bool has = train_.valid() && train_.program().output("grad:" + p.local) >= 0;
    gradient_offsets_.push_back(has ? at : -1);
    if (!has) continue;
    shared["grad:" + p.local] = at;
    const int64_t of_optimizer = p.iterations * p.optimizer.elements() * 4;
    at += aligned(std::max(p.iterations * p.gradient.elements() * 4, of_optimizer));
    const Conversions& c = conversions_[i];
    if (c.gradient < 0 && c.take < 0) continue;
    scratch = std::max(scratch, aligned(of_optimizer));
    for (const int program : {c.gradient, c.take, c.give}) {
      if (program < 0) continue;
      const Program& used = conversion_programs_[static_cast<size_t>(program)];
      conversion = std::max(conversion, used.transient_bytes());
    }
  }
  memory_report_.gradients = at;
  if (train_.valid()) {
    scratch_offset_ = at + aligned(optimizer_.region_bytes());
    conversion_offset_ = scratch_offset_ + scratch;
    const int64_t updates =
        scratch > 0 ? conversion_offset_ + conversion : at + optimizer_.region_bytes();
    region_bytes_ = std::max(train_.place(at, shared), updates);
  }
  if (totals_.valid()) region_bytes_ = std::max(region_bytes_, totals_.place(at));
  for (Eval& eval : evals_) region_bytes_ = std::max(region_bytes_, eval.program.place(0));
  memory_report_.region = aligned(region_bytes_) - at;
  memory_report_.total = persistent_bytes_ + aligned(region_bytes_);
}

void Trainer::place_device(const std::vector<int>& coordinates) {
  parameters_.place(mesh_, coordinates);
  optimizer_.place(mesh_, coordinates, parameters_);
  for (BoundProgram* program : {&train_, &totals_}) {
    if (program->valid()) program->place_device(mesh_, coordinates, team_.comm());
  }
  for (Eval& eval : evals_) eval.program.place_device(mesh_, coordinates, team_.comm());
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
  for (OptimizerState* state : optimizer_states()) state->data = take(state->bytes());
  averages_ = values;
  for (size_t i = 0; spec_->ema && i < values.size(); ++i) {
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
  CAD_TRY_VOID(team_.agree(
      memory_.allocate(persistent_bytes_, region_bytes_, options_.budget, options_.sharing),
      "taking memory"));
  memory_.poison_region();
  bind();
  for (const Parameter& p : parameters_.all()) initialize(p, spec_->seed, *pool_);
  optimizer_.initialize_states(*pool_);
  CAD_TRY_VOID(team_.agree(load_init_files(parameters_, spec_->init, folder(), warnings),
                           "reading first values"));
  for (size_t i = 0; i < averages_.size(); ++i) {
    const Parameter& p = parameters_.all()[i];
    if (averages_[i] != p.data) std::memcpy(averages_[i], p.data, static_cast<size_t>(p.bytes()));
  }
  return Ok{};
}

const float* Trainer::gradient(const std::string& local) const {
  const int index = parameters_.find(local);
  return index < 0 ? nullptr : gradients_[static_cast<size_t>(index)];
}

}  // namespace cad::backend
