// backend/trainer_evaluate.cc -- evaluations of a run: see backend/trainer.h.
#include <algorithm>

#include "backend/cpu/thread_pool.h"
#include "backend/interrupt.h"
#include "backend/trainer.h"

namespace cad::backend {

std::vector<EvalReport> Trainer::evaluate_all() {
  std::vector<EvalReport> reports;
  for (size_t i = 0; i < evals_.size(); ++i) reports.push_back(evaluate(i));
  return reports;
}

EvalReport Trainer::evaluate(size_t index) {
  Eval& eval = evals_[index];
  const ir::EvalSpec& spec = spec_->evals[index];
  const DataSet& data = *eval.data;
  const int64_t batch = data.batch();
  EvalReport report;
  report.name = spec.name;
  // No row counts twice: `batches` beyond the data are not there. (Compared without a product,
  // which may be beyond 64 bits.)
  const int64_t whole = data.endless() ? INT64_MAX : data.rows();
  report.rows = data.endless() ? batch : whole;
  if (spec.batches) report.rows = *spec.batches > whole / batch ? whole : *spec.batches * batch;
  const auto& outputs = eval.program.program().outputs();
  std::vector<double> sums(outputs.size(), 0.0);
  int64_t batches = 0;
  for (int64_t row = 0; row < report.rows; row += batch, ++batches) {
    StepFacts facts;
    facts.signal = InterruptGuard::signal();
    report.signal = exchange(facts).signal;
    if (report.signal != 0) return report;
    const int64_t count = std::min(batch, report.rows - row);
    // Rows that are left out are real rows again (from the start), so that nothing odd is computed.
    data.load(row, eval.program.slices(), pool_);
    eval.program.set_row_mask(count);
    Run& run = eval.program.run();
    run.seed = spec_->seed;
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
