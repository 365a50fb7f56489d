// backend/trainer_step.cc -- one step of training, and evaluation: see backend/trainer.h.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "backend/compile.h"
#include "backend/cpu/routines.h"
#include "backend/cpu/thread_pool.h"
#include "backend/train_graph.h"
#include "backend/trainer.h"
#include "base/check.h"

namespace cad::backend {
namespace {

constexpr int64_t kNormBlock = 1 << 14;
constexpr int64_t kGrowAfter = 2000;  // good f16 steps before the loss scale doubles

void store_scalar(std::byte* to, ir::DType dtype, double value) {
  if (dtype == ir::DType::kI32) {
    const auto whole = static_cast<int32_t>(value);
    std::memcpy(to, &whole, 4);
  } else {
    const auto narrow = static_cast<float>(value);
    std::memcpy(to, &narrow, 4);
  }
}

// Sum of squares in blocks of fixed size, in double: does not depend on the number of threads.
double sum_of_squares(const float* values, int64_t count, std::vector<double>& parts,
                      ThreadPool& pool) {
  const int64_t blocks = (count + kNormBlock - 1) / kNormBlock;
  if (static_cast<int64_t>(parts.size()) < blocks) parts.resize(static_cast<size_t>(blocks));
  pool.split(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t last = std::min(count, (block + 1) * kNormBlock);
      double lanes[8] = {};
      int64_t i = block * kNormBlock;
      for (; i + 8 <= last; i += 8) {
        for (int64_t lane = 0; lane < 8; ++lane) {
          const auto v = static_cast<double>(values[i + lane]);
          lanes[lane] += v * v;
        }
      }
      double sum = 0;
      for (; i < last; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      for (const double lane : lanes) sum += lane;
      parts[static_cast<size_t>(block)] = sum;
    }
  });
  double total = 0;
  for (int64_t block = 0; block < blocks; ++block) total += parts[static_cast<size_t>(block)];
  return total;
}

}  // namespace

// Counts over the whole step come first: every micro-batch divides by them.
void Trainer::add_step_totals() {
  const size_t count = totals_.program().outputs().size();
  std::vector<double> sums(count, 0.0);
  for (int64_t i = 0; i < spec_.accumulate; ++i) {
    Run& run = totals_.run();
    run.seed = spec_.seed;
    run.step = steps_done_;
    run.row_offset = i * data_->batch();
    run.step_rows = rows_per_step();
    data_->load(rows_done_ + i * data_->batch(), data_->batch(), totals_.columns(), pool_.get());
    execute(totals_.program(), *pool_, run);
    for (size_t k = 0; k < count; ++k) sums[k] += totals_.scalar(k);
  }
  for (size_t k = 0; k < count; ++k) {
    const Port& port = totals_.program().outputs()[k];
    if (std::byte* to = train_.other(port.name)) store_scalar(to, port.type.dtype, sums[k]);
  }
}

// Returns the loss; gradients are in their buffers. `debug`: stops at the first bad op.
double Trainer::run_micro_batches(bool debug) {
  if (totals_.valid()) add_step_totals();
  if (std::byte* scale = train_.other("loss_scale"))
    store_scalar(scale, ir::DType::kF32, loss_scale_);
  first_bad_.reset();
  for (int64_t i = 0; i < spec_.accumulate; ++i) {
    Run& run = train_.run();
    run.seed = spec_.seed;
    run.step = steps_done_;
    run.row_offset = i * data_->batch();
    run.step_rows = rows_per_step();
    run.accumulate = i > 0;
    run.debug_nan = debug;
    run.trace = options_.trace;
    data_->load(rows_done_ + i * data_->batch(), data_->batch(), train_.columns(), pool_.get());
    first_bad_ = execute(train_.program(), *pool_, run);
    if (first_bad_) break;
  }
  return train_.scalar(static_cast<size_t>(train_.program().output("loss")));
}

namespace {

const char* odd_name(double value) {
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

// The first element that is not finite: its index, or -1; `name` is nan, inf or -inf.
int64_t first_odd(const std::byte* data, int64_t elements, ir::DType dtype, const char*& name) {
  if (!ir::is_float(dtype)) return -1;
  const NonFiniteCounts odd = count_non_finite(data, elements, dtype);
  if (odd.nan + odd.plus + odd.minus == 0) return -1;
  name = odd.nan > 0 ? "nan" : odd.plus > 0 ? "inf" : "-inf";
  for (int64_t i = 0; i < elements; ++i) {
    const NonFiniteCounts one = count_non_finite(data + i * ir::dtype_bytes(dtype), 1, dtype);
    if (one.nan + one.plus + one.minus != 0) return i;
  }
  return -1;
}

}  // namespace

std::optional<std::string> Trainer::odd_data(const DataSet& data, const BoundProgram& program,
                                             int64_t first, int64_t count) {
  for (int64_t row = first; row < first + count; row += data.batch()) {
    data.load(row, data.batch(), program.columns(), pool_.get());
    for (size_t c = 0; c < data.columns().size(); ++c) {
      const DataColumn& column = data.columns()[c];
      const char* name = "";
      const int64_t rows = std::min(data.batch(), first + count - row);
      const int64_t at =
          first_odd(program.columns()[c], rows * column.row_elements, column.dtype, name);
      if (at < 0) continue;
      const int64_t in_file = data.file_row(c, row + at / column.row_elements);
      return fmt::format("`{}` holds {} at row {} of its data", column.name, name, in_file);
    }
  }
  return std::nullopt;
}

std::optional<std::string> Trainer::odd_parameter() const {
  for (const Parameter& p : parameters_.all()) {
    const char* name = "";
    const int64_t at = first_odd(p.data, p.elements(), p.dtype, name);
    if (at < 0) continue;
    const std::string path = p.iteration_path(at / std::max<int64_t>(p.iteration_elements, 1));
    return fmt::format("the {} `{}` holds {} before this step",
                       p.kind == ir::InputKind::kState ? "state" : "parameter", path, name);
  }
  return std::nullopt;
}

// Nothing was updated, so the step can be run again to find where it began: op by op, without
// fusion, in memory of its own (it needs more, and the run ends here).
void Trainer::find_first_op() {
  first_bad_.reset();
  ir::Graph g = train_step_graph(spec_, parameters_, nullptr);
  if (spec_.accumulate > 1) g = supply_step_totals(std::move(g));
  CompileOptions options;
  options.fuse = false;
  BoundProgram plain(g, spec_.bindings, options, &*data_);
  RunMemory memory;
  if (memory.allocate(0, plain.place(0)).ok()) {
    std::vector<std::byte*> values;
    for (const Parameter& p : parameters_.all()) values.push_back(p.data);
    plain.bind(parameters_, values, memory.region());
    std::swap(train_, plain);
    run_micro_batches(true);
    std::swap(train_, plain);
  }
}

Diagnostic Trainer::not_finite(DiagId id, const std::string& what, double value) {
  Diagnostic error =
      make_error(id, fmt::format("the {} is {} at step {}", what, odd_name(value), steps_done_ + 1),
                 kExitRunFailed);
  const auto data = odd_data(*data_, train_, rows_done_, rows_per_step());
  const auto parameter = data ? std::nullopt : odd_parameter();
  if (data) {
    error.note(*data);
  } else if (parameter) {
    error.note(*parameter);
  } else {
    const std::optional<NonFinite> fused = first_bad_;  // with --debug-nan
    find_first_op();
    if (first_bad_) {
      if (first_bad_->span.valid()) error.primary = Label{first_bad_->span, "first here"};
      error.note(
          fmt::format("the first value that is not finite comes from `{}`{}", first_bad_->op,
                      first_bad_->scope.empty() ? "" : fmt::format(" in `{}`", first_bad_->scope)));
    } else if (fused) {
      error.note(
          fmt::format("the first kernel that gives it ends in `{}`: its operations one by "
                      "one stay finite",
                      fused->op));
    } else {
      error.note("no operation alone makes it: values overflow where several are added up");
    }
  }
  error.note("nothing was updated in this step; the last checkpoint is intact");
  error.help(data ? "leave such rows out of the data, or replace the values"
                  : "try a lower learning rate, a longer warmup or `clip: 1.0`");
  return error;
}

Status Trainer::check_finite(size_t index, const EvalReport& report) {
  for (const auto& [name, value] : report.values) {
    if (name != "loss" || std::isfinite(value)) continue;
    Diagnostic error = make_error(
        DiagId::E0701, fmt::format("the loss of `{}` is {}", report.name, odd_name(value)),
        kExitRunFailed);
    Eval& eval = evals_[index];
    const auto data = odd_data(*eval.data, eval.program, 0, report.rows);
    const auto parameter = data ? std::nullopt : odd_parameter();
    if (data) error.note(*data);
    if (parameter) error.note(*parameter);
    return error;
  }
  return Ok{};
}

Result<StepReport> Trainer::step() {
  StepReport report;
  report.step = steps_done_ + 1;
  report.rates = optimizer_.learning_rates(report.step, total_steps_);
  for (const double rate : report.rates) {
    if (std::isfinite(rate)) continue;
    Diagnostic error = make_error(DiagId::E0701,
                                  fmt::format("the learning rate is {} at step {}",
                                              std::isnan(rate) ? "nan" : "infinite", report.step),
                                  kExitRunFailed);
    error.note("nothing was updated in this step; the last checkpoint is intact");
    error.help("look at the arguments of the schedule");
    return error;
  }
  report.loss = run_micro_batches(options_.debug_nan);
  const bool half = spec_.precision == ir::DType::kF16;
  if (first_bad_ && !half) return not_finite(DiagId::E0701, "loss or gradient", std::nan(""));
  if (!std::isfinite(report.loss) && !half) return not_finite(DiagId::E0701, "loss", report.loss);
  double squares = 0;
  for (const Segment& segment : optimizer_.segments()) {
    const Parameter& p = parameters_.all()[static_cast<size_t>(segment.parameter)];
    const float* gradient = gradients_[static_cast<size_t>(segment.parameter)];
    CAD_CHECK(gradient != nullptr, "trained parameter `{}` has no gradient", p.path);
    squares += sum_of_squares(gradient + segment.first_iteration * p.iteration_elements,
                              segment.iterations * p.iteration_elements, norm_parts_, *pool_);
  }
  report.grad_norm = std::sqrt(squares) / loss_scale_;
  rows_done_ += rows_per_step();
  if (half && (!std::isfinite(report.grad_norm) || !std::isfinite(report.loss))) {
    report.skipped = true;
    loss_scale_ /= 2;
    good_steps_ = 0;
    ++steps_done_;
    if (loss_scale_ < 1.0 / 1024) {
      --steps_done_, rows_done_ -= rows_per_step();
      return not_finite(DiagId::E0702, "gradient norm (at every loss scale)", report.grad_norm);
    }
    return report;
  }
  if (!std::isfinite(report.grad_norm)) {
    rows_done_ -= rows_per_step();
    return not_finite(DiagId::E0702, "gradient norm", report.grad_norm);
  }
  double scale = 1.0 / loss_scale_;
  if (spec_.clip) scale *= std::min(1.0, *spec_.clip / (report.grad_norm + 1e-6));
  ++updates_done_;
  std::byte* region = memory_.region() + memory_report_.gradients;
  optimizer_.update(parameters_, gradients_, scale, report.rates, updates_done_, region, *pool_);
  if (spec_.ema) average_parameters();
  if (half && ++good_steps_ % kGrowAfter == 0) loss_scale_ *= 2;
  ++steps_done_;
  return report;
}

void Trainer::average_parameters() {
  const auto keep = static_cast<float>(*spec_.ema);
  const auto fresh = static_cast<float>(1.0 - *spec_.ema);
  for (size_t i = 0; i < averages_.size(); ++i) {
    const Parameter& p = parameters_.all()[i];
    if (averages_[i] == p.data) continue;
    auto* average = reinterpret_cast<float*>(averages_[i]);
    const auto* now = reinterpret_cast<const float*>(p.data);
    pool_->split(p.elements(), 4096, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) average[k] = keep * average[k] + fresh * now[k];
    });
  }
}

std::vector<EvalReport> Trainer::evaluate_all() {
  std::vector<EvalReport> reports;
  for (size_t i = 0; i < evals_.size(); ++i) reports.push_back(evaluate(i));
  return reports;
}

EvalReport Trainer::evaluate(size_t index) {
  Eval& eval = evals_[index];
  const ir::EvalSpec& spec = spec_.evals[index];
  const DataSet& data = *eval.data;
  const int64_t batch = data.batch();
  EvalReport report;
  report.name = spec.name;
  report.rows = spec.batches ? *spec.batches * batch : data.endless() ? batch : data.rows();
  const auto& outputs = eval.program.program().outputs();
  std::vector<double> sums(outputs.size(), 0.0);
  int64_t batches = 0;
  for (int64_t row = 0; row < report.rows; row += batch, ++batches) {
    const int64_t count = std::min(batch, report.rows - row);
    // Rows that are left out are real rows again (from the start), so that nothing odd is computed.
    data.load(row, batch, eval.program.columns(), pool_.get());
    if (std::byte* mask = eval.program.other("row_mask")) {
      for (int64_t b = 0; b < batch; ++b) mask[b] = static_cast<std::byte>(b < count ? 1 : 0);
    }
    Run& run = eval.program.run();
    run.seed = spec_.seed;
    run.row_offset = row;
    execute(eval.program.program(), *pool_, run);
    for (size_t i = 0; i < outputs.size(); ++i)
      sums[i] += outputs[i].extents.empty() ? eval.program.scalar(i) : 0.0;
  }
  for (const std::string& metric : spec.metrics) {
    double value = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].name == "value:" + metric)
        value += sums[i] / static_cast<double>(std::max<int64_t>(batches, 1));
      // a metric's further pairs are "sum:NAME#2" ..: they add up
      const std::string pair = outputs[i].name.substr(0, outputs[i].name.find('#'));
      if (pair != "sum:" + metric || i + 1 >= outputs.size()) continue;
      value += sums[i + 1] == 0 ? 0.0 : sums[i] / sums[i + 1];
    }
    report.values.emplace_back(metric, value);
  }
  return report;
}

}  // namespace cad::backend
