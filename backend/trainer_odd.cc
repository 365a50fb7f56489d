// backend/trainer_odd.cc -- a loss or gradient that is not finite: where it comes from. Rows of
// data, parameters, then the step again, op by op. Several devices look together. See
// backend/trainer.h.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <mutex>

#include <fmt/format.h>

#include "backend/compile.h"
#include "backend/cpu/routines.h"
#include "backend/trainer.h"

namespace cad::backend {
namespace {

const char* odd_name(double value) {
  // another device's sum may be odd where this one's is not
  return std::isfinite(value) ? "not finite"
         : std::isnan(value)  ? "nan"
         : value > 0          ? "inf"
                              : "-inf";
}

// What a device found, as it tells the others.
struct Finding {
  int64_t number = INT64_MAX;  // orders finds in an op's result
  int32_t found = 0;
  Span span;
  char text[480] = {};
  explicit Finding(const std::optional<std::string>& what = std::nullopt) {
    if (!what) return;
    found = 1;
    std::snprintf(text, sizeof text, "%s", what->c_str());
  }
};

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

// Whether it is this device that reads the odd rows of this step: its own blocks hold one.
bool Trainer::reads_odd_data() {
  for (int64_t i = 0; i < spec_->accumulate; ++i) {
    data_->load(rows_done_ + i * data_->batch(), train_.slices(), pool_);
    for (const DataSlice& slice : train_.slices()) {
      const ir::DType dtype = data_->columns()[slice.column].dtype;
      const char* name = nullptr;
      each_stretch(slice.shard, [&](int64_t here, int64_t, int64_t elements) {
        first_odd(slice.target + here * ir::dtype_bytes(dtype), elements, dtype, name);
      });
      if (name != nullptr) return true;
    }
  }
  return false;
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
    CompileOptions options = compile_options();
    options.fuse = false;
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

// The same on every device: all see what each of them found.
Diagnostic Trainer::not_finite(DiagId id, const std::string& what, double value) {
  Diagnostic error =
      make_error(id, fmt::format("the {} is {} at step {}", what, odd_name(value), steps_done_ + 1),
                 kExitRunFailed);
  const bool alone = team_.devices() == 1;
  const auto on = [&](size_t device) {
    return alone ? "" : " on " + team_.name_of(static_cast<int>(device));
  };
  const auto told = [&](const Finding& mine) { return team_.gather(mine, "what is not finite"); };
  const auto is_find = [](const Finding& finding) { return finding.found != 0; };
  const std::optional<NonFinite> fused = first_bad_;  // with --debug-nan
  const auto data = odd_data(*data_, rows_done_, rows_per_step());
  const std::vector<Finding> held = told(Finding(data ? data : odd_parameter()));
  const auto holder = std::find_if(held.begin(), held.end(), is_find);
  if (data) {
    std::string readers;
    const std::vector<int32_t> reads =
        team_.gather(alone || reads_odd_data() ? int32_t{1} : int32_t{0}, "who reads it");
    for (size_t d = 0; d < reads.size(); ++d) {
      if (reads[d] != 0)
        readers += (readers.empty() ? "" : ", ") + team_.name_of(static_cast<int>(d));
    }
    error.note(alone ? *data : fmt::format("{}, which {} reads", *data, readers));
  } else if (holder != held.end()) {
    error.note(holder->text + on(static_cast<size_t>(holder - held.begin())));
  } else {
    find_first_op();
    Finding mine;
    if (first_bad_) {
      mine = Finding(
          fmt::format("the first value that is not finite comes from `{}`{}", first_bad_->op,
                      first_bad_->scope.empty() ? "" : fmt::format(" in `{}`", first_bad_->scope)));
      mine.number = first_bad_->number;
      mine.span = first_bad_->span;
    }
    const std::vector<Finding> finds = told(mine);
    const auto first =
        std::min_element(finds.begin(), finds.end(),
                         [](const Finding& a, const Finding& b) { return a.number < b.number; });
    if (first->found != 0) {
      if (first->span.valid()) error.primary = Label{first->span, "first here"};
      error.note(first->text + on(static_cast<size_t>(first - finds.begin())));
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
    const std::vector<Finding> held =
        team_.gather(Finding(data ? data : odd_parameter()), "what is not finite");
    for (size_t d = 0; d < held.size(); ++d) {
      if (held[d].found == 0) continue;
      const bool where = !data && held.size() > 1;
      error.note(held[d].text + (where ? " on " + team_.name_of(static_cast<int>(d)) : ""));
      break;
    }
    return error;
  }
  return Ok{};
}

}  // namespace cad::backend
