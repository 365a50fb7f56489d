// backend/data.cc -- opening a DataSpec and loading micro-batches. The formats themselves are in
// backend/data_sources.cc and backend/data_csv.cc.
#include "backend/data.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "backend/cpu/thread_pool.h"
#include "base/check.h"

namespace cad::backend {
namespace {

int64_t evaluated(const ir::Size& size, const ir::Bindings& bindings, const std::string& what) {
  const auto value = size.evaluate(bindings);
  CAD_CHECK(value.ok(), "data: size `{}` of {} is not bound ({})", size.str(), what, value.detail);
  return value.value;
}

DataColumn column_of(const ir::DataName& name, const ir::Bindings& bindings) {
  DataColumn column;
  column.name = name.name;
  column.dtype = name.dtype;
  column.dims = name.dims;
  for (const ir::Size& size : name.sizes)
    column.extents.push_back(evaluated(size, bindings, name.name));
  CAD_CHECK(!column.extents.empty(), "data name `{}` has no batch dim", name.name);
  for (size_t i = 1; i < column.extents.size(); ++i) column.row_elements *= column.extents[i];
  for (const ir::Size& limit : name.id_limits) {
    const int64_t value = evaluated(limit, bindings, name.name);
    if (value < column.limit) {
      column.limit = value;
      column.limit_name = limit.str();
    }
  }
  return column;
}

SourceResult open_source(const ir::DataSource& spec, std::vector<DataColumn> columns,
                         const DataOptions& options) {
  using Kind = ir::DataSource::Kind;
  if (spec.kind == Kind::kSynthetic) return open_synthetic(std::move(columns), options.seed);
  std::vector<std::vector<std::string>> files;
  std::vector<std::string> all;
  for (const std::string& pattern : spec.files) {
    CAD_TRY(found, expand_files(options.folder, pattern));
    all.insert(all.end(), found.begin(), found.end());
    files.push_back(std::move(found));
  }
  if (spec.kind == Kind::kNpy) return open_npy(spec, std::move(columns), files);
  if (spec.kind == Kind::kCsv) return open_csv(std::move(columns), all);
  return open_text(spec, std::move(columns), all);
}

}  // namespace

Diagnostic id_error(const DataColumn& column, const std::string& id, const std::string& place) {
  const std::string limit = column.limit_name == std::to_string(column.limit)
                                ? fmt::format("a dim of size {}", column.limit)
                                : fmt::format("`{}` = {}", column.limit_name, column.limit);
  Diagnostic error = make_error(
      DiagId::E0607, fmt::format("id {} at {} is outside {}", id, place, limit), kExitRunFailed);
  error.note(fmt::format("`{}` indexes it: ids are 0 to {}, and -1 for no row", column.name,
                         column.limit - 1));
  return error;
}

Result<std::vector<std::string>> expand_files(const std::string& folder,
                                              const std::string& pattern) {
  std::filesystem::path path(pattern);
  if (path.is_relative() && !folder.empty()) path = std::filesystem::path(folder) / path;
  if (pattern.find_first_of("*?[") == std::string::npos)
    return std::vector<std::string>{path.string()};
  glob_t found{};
  const int status = ::glob(path.c_str(), 0, nullptr, &found);
  std::vector<std::string> files;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  if (files.empty()) {
    return make_error(DiagId::E0601, fmt::format("no file matches `{}`", path.string()),
                      kExitNoInput);
  }
  std::sort(files.begin(), files.end());
  return files;
}

Result<DataSet> DataSet::open(const ir::DataSpec& spec, const DataOptions& options) {
  DataSet set;
  CAD_CHECK(!spec.empty(), "a data set without a source");
  for (size_t i = 0; i < spec.size(); ++i) {
    std::vector<DataColumn> columns;
    for (const ir::DataName& name : spec[i].names)
      columns.push_back(column_of(name, options.bindings));
    CAD_CHECK(!columns.empty(), "a data source without names");
    Part part;
    part.first_column = set.columns_.size();
    part.columns = columns.size();
    set.columns_.insert(set.columns_.end(), columns.begin(), columns.end());
    const bool tokens = spec[i].kind == ir::DataSource::Kind::kText ||
                        spec[i].kind == ir::DataSource::Kind::kTokens;
    if (i == 0 && tokens) set.tokens_per_row_ = columns[0].row_elements;
    auto opened = open_source(spec[i], std::move(columns), options);
    if (!opened.ok()) {
      if (spec[i].span.valid() && !opened.error().primary)
        opened.error().label(spec[i].span, "read here");
      return std::move(opened.error());
    }
    part.source = std::move(*opened);
    part.order = {part.source->rows(), options.shuffled, options.seed, static_cast<int64_t>(i)};
    set.parts_.push_back(std::move(part));
  }
  return set;
}

std::string DataSet::describe() const {
  std::string text;
  for (const Part& part : parts_) text += (text.empty() ? "" : "; ") + part.source->describe();
  return text;
}

int64_t DataSet::file_row(size_t column, int64_t n) const {
  for (const Part& part : parts_) {
    if (column < part.first_column + part.columns) return part.order.row(n);
  }
  return n;
}

void DataSet::load(int64_t first, int64_t count, std::span<std::byte* const> buffers,
                   ThreadPool* pool) const {
  CAD_CHECK(buffers.size() == columns_.size(), "load: {} buffers for {} columns", buffers.size(),
            columns_.size());
  const auto load_rows = [&](int64_t begin, int64_t end) {
    std::vector<std::byte*> targets;
    for (const Part& part : parts_) {
      for (int64_t b = begin; b < end; ++b) {
        targets.clear();
        for (size_t c = 0; c < part.columns; ++c) {
          const size_t column = part.first_column + c;
          targets.push_back(buffers[column] + b * columns_[column].row_bytes());
        }
        part.source->read(part.order.row(first + b), targets);
      }
    }
  };
  int64_t row_bytes = 1;
  for (const DataColumn& column : columns_) row_bytes += column.row_bytes();
  // Waking threads pays from about 64 KiB a part on.
  if (pool == nullptr || row_bytes * count < (1 << 17)) return load_rows(0, count);
  pool->split(count, std::max<int64_t>(1, (1 << 16) / row_bytes), load_rows);
}

}  // namespace cad::backend
