// backend/data.cc -- opening a DataSpec and loading micro-batches. The formats themselves are in
// backend/data_sources.cc and backend/data_csv.cc.
#include "backend/data.h"

#include <glob.h>

#include <algorithm>
#include <cstring>
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

// Rows that share a buffer stay aligned for every type.
int64_t aligned_row(const DataColumn& column) {
  return (column.row_bytes() + 7) / 8 * 8;
}

}  // namespace

std::string limit_text(const DataColumn& column) {
  return column.limit_name == std::to_string(column.limit)
             ? fmt::format("a dim of size {}", column.limit)
             : fmt::format("`{}` = {}", column.limit_name, column.limit);
}

Diagnostic id_error(const DataColumn& column, const std::string& id, const std::string& place) {
  Diagnostic error = make_error(
      DiagId::E0607, fmt::format("id {} at {} is outside {}", id, place, limit_text(column)),
      kExitRunFailed);
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
        opened.error().primary = Label{spec[i].span, "read here"};
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
  std::vector<DataSlice> slices;
  for (size_t c = 0; c < columns_.size(); ++c) {
    std::vector<int64_t> extents = columns_[c].extents;
    extents[0] = count;
    slices.push_back({c, whole_shard(std::move(extents)), buffers[c]});
  }
  load(first, slices, pool);
}

void DataSet::load(int64_t first, std::span<const DataSlice> slices, ThreadPool* pool) const {
  int64_t begin = INT64_MAX, end = 0, row_bytes = 1;
  for (const DataSlice& slice : slices) {
    const int64_t from = slice.shard.own[0].offset;
    begin = std::min(begin, from);
    end = std::max(end, from + slice.shard.padded[0]);
  }
  for (const DataColumn& column : columns_) row_bytes += column.row_bytes();
  const int64_t count = std::max<int64_t>(end - begin, 0);
  // Waking threads pays from about 64 KiB a part on.
  if (pool == nullptr || row_bytes * count < (1 << 17)) return load_rows(first, begin, end, slices);
  pool->split(count, std::max<int64_t>(1, (1 << 16) / row_bytes), [&](int64_t from, int64_t to) {
    load_rows(first, begin + from, begin + to, slices);
  });
}

namespace {

// One row of a column into a slice of it: dims after the batch. Padding repeats the last element.
void cut_row(const DataColumn& column, const Shard& shard, const std::byte* row, std::byte* to) {
  const auto width = static_cast<size_t>(ir::dtype_bytes(column.dtype));
  std::vector<int64_t> at(shard.padded.size(), 0);
  const int64_t elements = shard.padded[0] == 0 ? 0 : shard.elements() / shard.padded[0];
  for (int64_t i = 0; i < elements; ++i) {
    int64_t from = 0;
    for (size_t d = 1; d < at.size(); ++d) {
      const int64_t wanted = shard.own[d].offset + at[d];
      from = from * shard.whole[d] + std::min(wanted, shard.whole[d] - 1);
    }
    std::memcpy(to + static_cast<size_t>(i) * width, row + static_cast<size_t>(from) * width,
                width);
    for (size_t d = at.size() - 1; d > 0 && ++at[d] == shard.padded[d]; --d) at[d] = 0;
  }
}

bool whole_rows(const Shard& shard) {
  for (size_t d = 1; d < shard.whole.size(); ++d) {
    if (shard.padded[d] != shard.whole[d]) return false;
  }
  return true;
}

}  // namespace

// Rows [begin, end) of the micro-batch. A source gives a row of all its columns at once: straight
// into a slice where one takes the row as it is, else into a buffer that is cut up.
void DataSet::load_rows(int64_t first, int64_t begin, int64_t end,
                        std::span<const DataSlice> slices) const {
  std::vector<std::byte> buffer;
  std::vector<std::byte*> targets;
  for (const Part& part : parts_) {
    size_t row_bytes = 0;
    for (size_t c = 0; c < part.columns; ++c)
      row_bytes += static_cast<size_t>(aligned_row(columns_[part.first_column + c]));
    for (int64_t b = begin; b < end; ++b) {
      const auto place = [&](const DataSlice& slice) -> std::byte* {
        const int64_t row = b - slice.shard.own[0].offset;
        if (row < 0 || row >= slice.shard.padded[0]) return nullptr;
        const int64_t elements = slice.shard.elements() / slice.shard.padded[0];
        return slice.target + row * elements * ir::dtype_bytes(columns_[slice.column].dtype);
      };
      targets.clear();
      size_t at = 0;
      bool needed = false;
      for (size_t c = 0; c < part.columns; ++c) {
        const size_t column = part.first_column + c;
        std::byte* direct = nullptr;
        int users = 0;
        for (const DataSlice& slice : slices) {
          std::byte* to = slice.column == column ? place(slice) : nullptr;
          if (to == nullptr) continue;
          ++users;
          if (whole_rows(slice.shard)) direct = to;
        }
        needed = needed || users > 0;
        if (users != 1 || direct == nullptr) {
          buffer.resize(row_bytes);
          direct = nullptr;
        }
        targets.push_back(direct);
      }
      if (!needed) continue;
      for (size_t c = 0; c < part.columns; ++c) {
        if (targets[c] == nullptr) targets[c] = buffer.data() + at;
        at += static_cast<size_t>(aligned_row(columns_[part.first_column + c]));
      }
      part.source->read(part.order.row(first + b), targets);
      for (const DataSlice& slice : slices) {
        if (slice.column < part.first_column || slice.column >= part.first_column + part.columns)
          continue;
        std::byte* to = place(slice);
        const std::byte* from = targets[slice.column - part.first_column];
        if (to != nullptr && to != from) cut_row(columns_[slice.column], slice.shard, from, to);
      }
    }
  }
}

std::string DataSet::fingerprint() const {
  constexpr int64_t kRows = 256;
  std::string text;
  std::vector<std::vector<std::byte>> rows;
  std::vector<std::byte*> targets;
  for (const Part& part : parts_) {
    rows.clear();
    targets.clear();
    for (size_t c = 0; c < part.columns; ++c) {
      rows.emplace_back(static_cast<size_t>(columns_[part.first_column + c].row_bytes()));
      targets.push_back(rows.back().data());
    }
    const int64_t count = part.source->rows();
    const int64_t some = std::min(count, kRows);
    uint64_t sum = 0xcbf29ce484222325ULL;
    for (int64_t i = 0; i < some; ++i) {
      part.source->read(count == kEndless ? i : count / some * i, targets);
      for (const std::vector<std::byte>& row : rows) {
        for (const std::byte byte : row)
          sum = (sum ^ static_cast<uint64_t>(byte)) * 0x100000001b3ULL;
      }
    }
    text += fmt::format("{}, sum {:016x}\n", part.source->describe(), sum);
  }
  return text;
}

}  // namespace cad::backend
