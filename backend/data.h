// backend/data.h -- where the rows of a training step come from. A DataSet is opened once: every
// file is found, its size checked, and every id checked against the dims it indexes, so a step
// cannot fail on data. Row n of a run (n = 0, 1, .. over all steps and micro-batches) is then a
// pure function of (files, seed, n): a run resumes at any row, and any device can read its own
// rows. Formats: backend/data_sources.cc, data_csv.cc; orders: backend/data_order.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/data_order.h"
#include "backend/shard.h"
#include "base/result.h"
#include "ir/training.h"

namespace cad::backend {

class ThreadPool;

// One declared name, sizes evaluated.
struct DataColumn {
  std::string name;
  ir::DType dtype = ir::DType::kF32;
  std::vector<std::string> dims;
  std::vector<int64_t> extents;  // of a micro-batch; [0] is the batch
  int64_t row_elements = 1;
  int64_t limit = INT64_MAX;  // ids are in [-1, limit)
  std::string limit_name;     // "V"
  [[nodiscard]] int64_t row_bytes() const { return row_elements * ir::dtype_bytes(dtype); }
  [[nodiscard]] int64_t bytes() const { return row_bytes() * extents[0]; }
};

// Rows of one source, in file order. `targets` has a place for one row of each of its columns.
class RowSource {
 public:
  virtual ~RowSource() = default;
  [[nodiscard]] virtual int64_t rows() const = 0;  // kEndless: no end
  virtual void read(int64_t row, std::span<std::byte* const> targets) const = 0;
  [[nodiscard]] virtual std::string describe() const = 0;  // "2 files, 4,404,411 bytes"
};
constexpr int64_t kEndless = INT64_MAX;

// A buffer of one column, or of a device's block of it. Its padding is filled with real rows and
// real elements, so that nothing odd is computed there.
struct DataSlice {
  size_t column = 0;
  Shard shard;  // of the column's extents
  std::byte* target = nullptr;
};

struct DataOptions {
  ir::Bindings bindings;
  std::string folder;  // that file names are relative to
  uint64_t seed = 0;
  bool shuffled = true;  // evaluation reads in order
};

class DataSet {
 public:
  static Result<DataSet> open(const ir::DataSpec& spec, const DataOptions& options);

  [[nodiscard]] const std::vector<DataColumn>& columns() const { return columns_; }
  [[nodiscard]] int64_t batch() const { return columns_.front().extents[0]; }
  // Rows of an epoch: those of the first source.
  [[nodiscard]] int64_t rows() const { return parts_.front().source->rows(); }
  [[nodiscard]] bool endless() const { return rows() == kEndless; }
  // Tokens of a row for text and tokens, else 1: what tokens/s counts.
  [[nodiscard]] int64_t tokens_per_row() const { return tokens_per_row_; }
  [[nodiscard]] std::string describe() const;
  // Where row n of the run stands in the files of a column.
  [[nodiscard]] int64_t file_row(size_t column, int64_t n) const;
  // Rows [first, first + count) of the run into rows 0.. of `buffers` (one per column).
  void load(int64_t first, int64_t count, std::span<std::byte* const> buffers,
            ThreadPool* pool = nullptr) const;
  // The micro-batch that begins at row `first` of the run, into the slices.
  void load(int64_t first, std::span<const DataSlice> slices, ThreadPool* pool = nullptr) const;
  // Rows, and a sum over rows all over the data: equal for equal data, as good as surely not else.
  [[nodiscard]] std::string fingerprint() const;

 private:
  struct Part {
    std::shared_ptr<RowSource> source;
    size_t first_column = 0, columns = 0;
    RowOrder order;
  };
  void load_rows(int64_t first, int64_t begin, int64_t end,
                 std::span<const DataSlice> slices) const;
  std::vector<DataColumn> columns_;
  std::vector<Part> parts_;
  int64_t tokens_per_row_ = 1;
};

// The sources (internal; one per DataSource::Kind). `columns` are the source's own.
using SourceResult = Result<std::shared_ptr<RowSource>>;
SourceResult open_text(const ir::DataSource& spec, std::vector<DataColumn> columns,
                       const std::vector<std::string>& files);
SourceResult open_npy(const ir::DataSource& spec, std::vector<DataColumn> columns,
                      const std::vector<std::vector<std::string>>& files);
SourceResult open_csv(std::vector<DataColumn> columns, const std::vector<std::string>& files);
SourceResult open_synthetic(std::vector<DataColumn> columns, uint64_t seed);

// "`V` = 256", "a dim of size 256".
std::string limit_text(const DataColumn& column);
// "id 300 at token 17 of `a.bin` is outside `V` = 256" (E0607).
Diagnostic id_error(const DataColumn& column, const std::string& id, const std::string& place);

// Files that match `pattern` (`*`, `?`, `[..]`), in name order; E0601 when there is none.
Result<std::vector<std::string>> expand_files(const std::string& folder,
                                              const std::string& pattern);

}  // namespace cad::backend
