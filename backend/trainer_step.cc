// backend/trainer_step.cc -- one step of training: see backend/trainer.h. What follows the
// gradients is in backend/trainer_update.cc.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "backend/cpu/thread_pool.h"
#include "backend/interrupt.h"
#include "backend/trainer.h"

namespace cad::backend {
namespace {

constexpr int64_t kGrowAfter = 2000;  // good f16 steps before the loss scale doubles

}  // namespace

// Counts over the whole step come first: every micro-batch divides by them.
void Trainer::add_step_totals() {
  const size_t count = totals_.program().outputs().size();
  std::vector<double> sums(count, 0.0);
  for (int64_t i = 0; i < spec_->accumulate; ++i) {
    Run& run = totals_.run();
    run.seed = spec_->seed;
    run.step = steps_done_;
    run.row_offset = i * data_->batch();
    run.step_rows = rows_per_step();
    data_->load(rows_done_ + i * data_->batch(), totals_.slices(), pool_);
    execute(totals_.program(), *pool_, run);
    for (size_t k = 0; k < count; ++k) sums[k] += totals_.scalar(k);
  }
  for (size_t k = 0; k < count; ++k)
    train_.set_scalar(totals_.program().outputs()[k].name, sums[k]);
}

// Returns the loss; gradients are in their buffers. `debug`: stops at the first bad op (of several
// devices, after the micro-batch in which one of them found it).
double Trainer::run_micro_batches(bool debug) {
  if (totals_.valid()) add_step_totals();
  train_.set_scalar("loss_scale", loss_scale_);
  first_bad_.reset();
  for (int64_t i = 0; i < spec_->accumulate; ++i) {
    Run& run = train_.run();
    run.seed = spec_->seed;
    run.step = steps_done_;
    run.row_offset = i * data_->batch();
    run.step_rows = rows_per_step();
    run.accumulate = i > 0;
    run.debug_nan = debug;
    run.trace = options_.trace;
    data_->load(rows_done_ + i * data_->batch(), train_.slices(), pool_);
    first_bad_ = execute(train_.program(), *pool_, run);
    if (debug && (first_bad_ || team_.devices() > 1) && anywhere(first_bad_.has_value())) break;
  }
  return train_.scalar(static_cast<size_t>(train_.program().output("loss")));
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
  const auto mark = [&](StepReport::Mark m) { report.marks[m] = now_ns(); };
  mark(StepReport::kBegun);
  report.loss = run_micro_batches(options_.debug_nan);
  mark(StepReport::kPassed);
  convert_gradients();
  mark(StepReport::kReduced);
  StepFacts facts;
  facts.squares = squares_of_gradients();
  facts.odd_loss = std::isfinite(report.loss) ? 0 : 1;
  facts.odd_op = first_bad_ ? 1 : 0;
  facts.signal = InterruptGuard::signal();
  facts = exchange(facts);
  mark(StepReport::kMeasured);
  report.marks[StepReport::kUpdated] = report.marks[StepReport::kMeasured];
  report.signal = facts.signal;
  const bool half = spec_->precision == ir::DType::kF16;
  if (facts.odd_op != 0 && !half)
    return not_finite(DiagId::E0701, "loss or gradient", std::nan(""));
  if (facts.odd_loss != 0 && !half) return not_finite(DiagId::E0701, "loss", report.loss);
  report.grad_norm = std::sqrt(facts.squares) / loss_scale_;
  rows_done_ += rows_per_step();
  if (half && (!std::isfinite(report.grad_norm) || facts.odd_loss != 0)) {
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
  if (spec_->clip) scale *= std::min(1.0, *spec_->clip / (report.grad_norm + 1e-6));
  ++updates_done_;
  const int64_t converted = converted_ns_;
  update_parameters(
      {scale, report.rates, updates_done_, memory_.region() + memory_report_.gradients});
  if (spec_->ema) average_parameters();
  mark(StepReport::kUpdated);
  report.moved_ns = converted_ns_ - converted;
  if (half && ++good_steps_ % kGrowAfter == 0) loss_scale_ *= 2;
  ++steps_done_;
  return report;
}

}  // namespace cad::backend
