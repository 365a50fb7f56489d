// backend/trainer_odd.cc -- a loss or gradient that is not finite: where it comes from. Rows of
// data, parameters, then the step again, op by op. Several devices look together. See
// backend/trainer.h.
#include <algorithm>
#include <cmath>
#include <mutex>

#include <fmt/format.h>

#include "backend/compile.h"
#include "backend/cpu/routines.h"
#include "backend/trainer.h"

namespace cad::backend {
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

struct Trainer::PlainProgram {
  std::once_flag once;
  BoundProgram program;
  int64_t bytes = 0;
};

std::shared_ptr<Trainer::PlainProgram> Trainer::make_plain() {
  return std::make_shared<PlainProgram>();
}

bool Trainer::anywhere(bool here) const {
  const std::vector<int32_t> all =
      team_.gather(here ? int32_t{1} : int32_t{0}, "a value that is not finite");
  return std::find(all.begin(), all.end(), 1) != all.end();
}

std::optional<std::string> Trainer::odd_data(const DataSet& data, int64_t first, int64_t count) {
  std::vector<std::vector<std::byte>> columns;
  std::vector<std::byte*> targets;
  for (const DataColumn& column : data.columns()) {
    columns.emplace_back(static_cast<size_t>(column.bytes()));
    targets.push_back(columns.back().data());
  }
  for (int64_t row = first; row < first + count; row += data.batch()) {
    data.load(row, data.batch(), targets, pool_);
    for (size_t c = 0; c < data.columns().size(); ++c) {
      const DataColumn& column = data.columns()[c];
      const char* name = "";
      const int64_t rows = std::min(data.batch(), first + count - row);
      const int64_t at = first_odd(targets[c], rows * column.row_elements, column.dtype, name);
      if (at < 0) continue;
      const int64_t in_file = data.file_row(c, row + at / column.row_elements);
      return fmt::format("`{}` holds {} at row {} of its data", column.name, name, in_file);
    }
  }
  return std::nullopt;
}

// The device's own elements: padding may hold anything.
std::optional<std::string> Trainer::odd_parameter() const {
  for (const Parameter& p : parameters_.all()) {
    const int64_t width = ir::dtype_bytes(p.dtype);
    for (int64_t i = 0; i < p.iterations; ++i) {
      const std::byte* data = p.data + i * p.iteration_elements * width;
      const char* name = nullptr;
      each_stretch(p.storage, [&](int64_t here, int64_t, int64_t elements) {
        if (name == nullptr) first_odd(data + here * width, elements, p.dtype, name);
      });
      if (name == nullptr) continue;
      return fmt::format("the {} `{}` holds {} before this step",
                         p.kind == ir::InputKind::kState ? "state" : "parameter",
                         p.iteration_path(i), name);
    }
  }
  return std::nullopt;
}

// Nothing was updated, so the step can be run again to find where it began: op by op, without
// fusion, in memory of its own (it needs more, and the run ends here).
void Trainer::find_first_op() {
  first_bad_.reset();
  std::call_once(plain_->once, [&] {
    RunGraph step = step_graph();
    if (spec_->accumulate > 1) step.graph = supply_step_totals(std::move(step.graph));
    CompileOptions options;
    options.fuse = false;
    options.threads = options_.threads;
    plain_->program = BoundProgram(step.graph, spec_->bindings, options, data_.get(), step.inputs);
    plain_->bytes = plain_->program.place(0);
  });
  BoundProgram plain = plain_->program;
  RunMemory memory;
  const bool fits = memory.allocate(0, plain_->bytes, 0, options_.sharing).ok();
  if (anywhere(!fits)) return;
  plain.place_device(mesh_, planner::coordinates_of(mesh_, team_.device()), team_.comm());
  std::vector<std::byte*> values;
  for (const Parameter& p : parameters_.all()) values.push_back(p.data);
  plain.bind(parameters_, values, memory.region());
  std::swap(train_, plain);
  run_micro_batches(true);
  std::swap(train_, plain);
}

// The device whose first odd value came first in the program; -1: none has any.
int Trainer::first_finder() const {
  const std::vector<int64_t> numbers =
      team_.gather(first_bad_ ? first_bad_->number : INT64_MAX, "a value that is not finite");
  const auto least = std::min_element(numbers.begin(), numbers.end());
  return *least == INT64_MAX ? -1 : static_cast<int>(least - numbers.begin());
}

Diagnostic Trainer::not_finite(DiagId id, const std::string& what, double value) {
  Diagnostic error =
      make_error(id, fmt::format("the {} is {} at step {}", what, odd_name(value), steps_done_ + 1),
                 kExitRunFailed);
  const auto data = odd_data(*data_, rows_done_, rows_per_step());
  const auto parameter = data ? std::nullopt : odd_parameter();
  const std::optional<NonFinite> fused = first_bad_;  // with --debug-nan
  if (data) {
    error.note(*data);
  } else if (parameter) {
    error.note(*parameter);
  }
  if (anywhere(data || parameter)) {
    if (!data && !parameter) error.note("another device's data or parameters hold it");
  } else {
    find_first_op();
    const int finder = first_finder();
    const std::string where = team_.devices() > 1 ? fmt::format(" on device {}", finder) : "";
    if (finder == team_.device()) {
      if (first_bad_->span.valid()) error.primary = Label{first_bad_->span, "first here"};
      error.note(fmt::format(
          "the first value that is not finite comes from `{}`{}{}", first_bad_->op,
          first_bad_->scope.empty() ? "" : fmt::format(" in `{}`", first_bad_->scope), where));
    } else if (finder >= 0) {
      error.note("the first value that is not finite comes" + where);
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
    const auto data = odd_data(*eval.data, 0, report.rows);
    const auto parameter = data ? std::nullopt : odd_parameter();
    if (data) error.note(*data);
    if (parameter) error.note(*parameter);
    return error;
  }
  return Ok{};
}

}  // namespace cad::backend
