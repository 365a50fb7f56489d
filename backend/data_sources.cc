// backend/data_sources.cc -- text and token files, npy arrays, synthetic rows. Each checks all its
// data when opened: sizes, then every id and every value that might not fit its declared type.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "backend/data.h"
#include "backend/mapped_file.h"
#include "backend/npy.h"
#include "backend/safetensors.h"
#include "base/check.h"
#include "ir/random.h"

namespace cad::backend {
namespace {

// ---- text and tokens: a stream of ids, cut into windows ----

void store_id(ir::DType dtype, std::byte* at, int64_t i, int64_t id) {
  if (dtype == ir::DType::kI32) {
    const auto value = static_cast<int32_t>(id);
    std::memcpy(at + i * 4, &value, 4);
    return;
  }
  const auto value = static_cast<float>(id);
  std::string ignored;
  convert_elements(StoredType::kF32, reinterpret_cast<const std::byte*>(&value), false, 1, dtype,
                   at + i * ir::dtype_bytes(dtype), ignored);
}

class TokenSource : public RowSource {
 public:
  TokenSource(std::vector<DataColumn> columns, int width)
      : columns_(std::move(columns)), width_(width) {}

  Status add(const std::string& path, bool bytes) {
    CAD_TRY(file, MappedFile::open(path));
    if (file.size() % static_cast<uint64_t>(width_) != 0) {
      Diagnostic error = make_error(
          DiagId::E0605,
          fmt::format("`{}` has {} bytes, not a multiple of {}", path, file.size(), width_),
          kExitRunFailed);
      error.note(fmt::format("its tokens are read as u{}", width_ * 8));
      return error;
    }
    const int64_t window = columns_[0].row_elements;
    const int64_t tokens = static_cast<int64_t>(file.size()) / width_;
    const int64_t windows = tokens < 2 ? 0 : (tokens - 1) / std::max<int64_t>(window, 1);
    if (windows < 1) {
      Diagnostic error =
          make_error(DiagId::E0606,
                     fmt::format("`{}` is shorter than one window: found {} {}, needed {}", path,
                                 tokens, bytes ? "bytes" : "tokens", window + 1),
                     kExitRunFailed);
      error.note(
          fmt::format("a window is {} tokens, and the token after it is the last label", window));
      return error;
    }
    files_.push_back({std::move(file), rows_, tokens});
    rows_ += windows;
    return check_ids(files_.back());
  }
  [[nodiscard]] int64_t rows() const override { return rows_; }
  void read(int64_t row, std::span<std::byte* const> targets) const override {
    const auto after = std::upper_bound(files_.begin(), files_.end(), row,
                                        [](int64_t r, const File& f) { return r < f.first_row; });
    const File& file = *(after - 1);
    const int64_t window = columns_[0].row_elements;
    const int64_t start = (row - file.first_row) * window;
    for (size_t c = 0; c < columns_.size(); ++c) {
      for (int64_t i = 0; i < window; ++i) {
        store_id(columns_[c].dtype, targets[c], i,
                 token(file, start + i + static_cast<int64_t>(c)));
      }
    }
  }
  [[nodiscard]] std::string describe() const override {
    int64_t tokens = 0;
    for (const File& file : files_) tokens += file.tokens;
    return fmt::format("{} tokens in {} file{}", tokens, files_.size(),
                       files_.size() == 1 ? "" : "s");
  }

 private:
  struct File {
    MappedFile bytes;
    int64_t first_row = 0, tokens = 0;
  };
  [[nodiscard]] int64_t token(const File& file, int64_t i) const {
    const std::byte* at = file.bytes.data() + i * width_;
    if (width_ == 1) return static_cast<int64_t>(*at);
    if (width_ == 2) {
      uint16_t value = 0;
      std::memcpy(&value, at, 2);
      return value;
    }
    uint32_t value = 0;
    std::memcpy(&value, at, 4);
    return value;
  }
  // Ids that 16 bits cannot hold may have been cut when the file was written, unseen.
  static Diagnostic narrow_error(const DataColumn& column, const File& file) {
    Diagnostic error =
        make_error(DiagId::E0605,
                   fmt::format("`{}` is read as u16, which does not hold every id of {}",
                               file.bytes.path(), limit_text(column)),
                   kExitRunFailed);
    error.note("an id beyond 65535 that is written in 16 bits comes back as another one");
    error.help("write the file again with 32 bits a token, and say `dtype: u32`");
    return error;
  }
  Status check_ids(const File& file) const {
    const DataColumn* tightest = &columns_[0];
    for (const DataColumn& column : columns_) {
      if (column.limit < tightest->limit) tightest = &column;
    }
    int64_t limit = tightest->limit;
    const int64_t reach = width_ == 1 ? 256 : width_ == 2 ? 65536 : int64_t{1} << 32;
    if (width_ == 2 && limit > reach && limit != INT64_MAX) return narrow_error(*tightest, file);
    if (limit >= reach) {
      // Nothing to scan, but a u32 above what i32 holds would turn negative.
      if (width_ < 4 || columns_[0].dtype != ir::DType::kI32) return Ok{};
      limit = int64_t{1} << 31;
    }
    if (columns_[0].dtype == ir::DType::kI32) limit = std::min(limit, int64_t{1} << 31);
    for (int64_t i = 0; i < file.tokens; ++i) {
      const int64_t id = token(file, i);
      if (id < limit) continue;
      const std::string place = fmt::format("token {} of `{}`", i, file.bytes.path());
      if (tightest->limit != INT64_MAX) return id_error(*tightest, std::to_string(id), place);
      return make_error(DiagId::E0608, fmt::format("{} at {} does not fit i32", id, place),
                        kExitRunFailed);
    }
    return Ok{};
  }

  std::vector<DataColumn> columns_;
  int width_ = 1;
  std::vector<File> files_;
  int64_t rows_ = 0;
};

// ---- npy: one array a name (or several files of it, one after the other) ----

class NpySource : public RowSource {
 public:
  explicit NpySource(std::vector<DataColumn> columns) : columns_(std::move(columns)) {}

  Status add(size_t column, const std::vector<std::string>& paths) {
    const DataColumn& wanted = columns_[column];
    std::vector<Array> arrays;
    int64_t rows = 0;
    for (const std::string& path : paths) {
      CAD_TRY(file, NpyFile::open(path));
      CAD_TRY_VOID(check_shape(file, wanted));
      CAD_TRY_VOID(check_values(file, wanted));
      const int64_t count = file.rows();
      arrays.push_back({std::move(file), rows});
      rows += count;
    }
    if (column == 0) {
      rows_ = rows;
      if (rows == 0)
        return make_error(DiagId::E0606, fmt::format("`{}` has no rows", paths[0]), kExitRunFailed);
    } else if (rows != rows_) {
      return make_error(
          DiagId::E0609,
          fmt::format("`{}` has {} rows of `{}`, `{}` has {} of `{}`", arrays_[0][0].file.path(),
                      rows_, columns_[0].name, paths[0], rows, wanted.name),
          kExitRunFailed);
    }
    arrays_.push_back(std::move(arrays));
    return Ok{};
  }
  [[nodiscard]] int64_t rows() const override { return rows_; }
  void read(int64_t row, std::span<std::byte* const> targets) const override {
    std::string ignored;
    for (size_t c = 0; c < columns_.size(); ++c) {
      size_t i = arrays_[c].size() - 1;
      while (arrays_[c][i].first_row > row) --i;
      const Array& array = arrays_[c][i];
      array.file.read_row(row - array.first_row, columns_[c].dtype, targets[c], ignored);
    }
  }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("{} rows of npy", rows_);
  }

 private:
  struct Array {
    NpyFile file;
    int64_t first_row = 0;
  };
  static Status check_shape(const NpyFile& file, const DataColumn& wanted) {
    const std::vector<int64_t>& shape = file.header().shape;
    bool fits = shape.size() == wanted.extents.size();
    for (size_t d = 1; fits && d < shape.size(); ++d) fits = shape[d] == wanted.extents[d];
    if (fits) return Ok{};
    std::string sizes = wanted.dims.empty() ? "" : wanted.dims[0];
    for (size_t d = 1; d < wanted.extents.size(); ++d)
      sizes += fmt::format(", {} = {}", wanted.dims[d], wanted.extents[d]);
    return make_error(DiagId::E0609,
                      fmt::format("`{}` is {}, `{}` needs [{}]", file.path(), shape_text(shape),
                                  wanted.name, sizes),
                      kExitRunFailed);
  }
  static Status check_values(const NpyFile& file, const DataColumn& wanted) {
    const StoredType type = file.header().type;
    const bool narrow = wanted.dtype == ir::DType::kI32
                            ? !(type <= StoredType::kI16 || type == StoredType::kI32)
                        : wanted.dtype == ir::DType::kBool ? type != StoredType::kBool
                        : wanted.dtype == ir::DType::kF32  ? type == StoredType::kF64
                                                           : true;
    const bool ids = wanted.dtype == ir::DType::kI32 && wanted.limit != INT64_MAX;
    if (!narrow && !ids) return Ok{};
    std::vector<std::byte> buffer(static_cast<size_t>(wanted.row_bytes()));
    for (int64_t row = 0; row < file.rows(); ++row) {
      std::string value;
      const auto place = [&](int64_t i) {
        return fmt::format("element {} of `{}`", row * wanted.row_elements + i, file.path());
      };
      const int64_t bad = file.read_row(row, wanted.dtype, buffer.data(), value);
      if (bad >= 0) {
        return make_error(DiagId::E0608,
                          fmt::format("{} at {} does not fit {} of `{}`", value, place(bad),
                                      ir::dtype_name(wanted.dtype), wanted.name),
                          kExitRunFailed);
      }
      for (int64_t i = 0; ids && i < wanted.row_elements; ++i) {
        int32_t id = 0;
        std::memcpy(&id, buffer.data() + i * 4, 4);
        if (id < -1 || id >= wanted.limit) return id_error(wanted, std::to_string(id), place(i));
      }
    }
    return Ok{};
  }

  std::vector<DataColumn> columns_;
  std::vector<std::vector<Array>> arrays_;
  int64_t rows_ = 0;
};

// ---- synthetic: floats from a normal, ids uniform in their range, bools by a coin ----

class SyntheticSource : public RowSource {
 public:
  SyntheticSource(std::vector<DataColumn> columns, uint64_t seed) : columns_(std::move(columns)) {
    for (const DataColumn& column : columns_) {
      keys_.push_back(ir::stream_key(seed, ir::site_hash("synthetic " + column.name), {}));
    }
  }
  [[nodiscard]] int64_t rows() const override { return kEndless; }
  void read(int64_t row, std::span<std::byte* const> targets) const override {
    for (size_t c = 0; c < columns_.size(); ++c) {
      const DataColumn& column = columns_[c];
      for (int64_t i = 0; i < column.row_elements; ++i) {
        const auto words =
            ir::philox(keys_[c], static_cast<uint64_t>(i), static_cast<uint64_t>(row));
        if (ir::is_float(column.dtype)) {
          const float value = ir::standard_normal(words[0], words[1]);
          std::string ignored;
          convert_elements(StoredType::kF32, reinterpret_cast<const std::byte*>(&value), false, 1,
                           column.dtype, targets[c] + i * ir::dtype_bytes(column.dtype), ignored);
        } else if (column.dtype == ir::DType::kBool) {
          targets[c][i] = static_cast<std::byte>(words[0] & 1);
        } else {
          const uint64_t limit =
              column.limit == INT64_MAX ? 256 : static_cast<uint64_t>(column.limit);
          store_id(column.dtype, targets[c], i, static_cast<int64_t>(words[0] * limit >> 32));
        }
      }
    }
  }
  [[nodiscard]] std::string describe() const override { return "synthetic rows"; }

 private:
  std::vector<DataColumn> columns_;
  std::vector<uint64_t> keys_;
};

}  // namespace

SourceResult open_text(const ir::DataSource& spec, std::vector<DataColumn> columns,
                       const std::vector<std::string>& files) {
  const bool bytes = spec.kind == ir::DataSource::Kind::kText;
  CAD_CHECK(columns.size() <= 2, "text data with {} names", columns.size());
  auto source = std::make_shared<TokenSource>(std::move(columns), bytes              ? 1
                                                                  : spec.wide_tokens ? 4
                                                                                     : 2);
  for (const std::string& file : files) CAD_TRY_VOID(source->add(file, bytes));
  return std::shared_ptr<RowSource>(source);
}

SourceResult open_npy(const ir::DataSource&, std::vector<DataColumn> columns,
                      const std::vector<std::vector<std::string>>& files) {
  CAD_CHECK(columns.size() == files.size(), "npy: {} names for {} files", columns.size(),
            files.size());
  const size_t count = columns.size();
  auto source = std::make_shared<NpySource>(std::move(columns));
  for (size_t i = 0; i < count; ++i) CAD_TRY_VOID(source->add(i, files[i]));
  return std::shared_ptr<RowSource>(source);
}

SourceResult open_synthetic(std::vector<DataColumn> columns, uint64_t seed) {
  return std::shared_ptr<RowSource>(std::make_shared<SyntheticSource>(std::move(columns), seed));
}

}  // namespace cad::backend
