// backend/npy.h -- NumPy's .npy files (format 1 to 3, either byte order, C or Fortran order),
// mapped, read row by row along the first dim. Object and structured arrays are refused (E0604).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/mapped_file.h"
#include "backend/stored_type.h"

namespace cad::backend {

struct NpyHeader {
  StoredType type = StoredType::kF32;
  bool swap = false;  // the other byte order
  bool fortran = false;
  std::vector<int64_t> shape;
  int64_t elements = 1;
  uint64_t data_start = 0;
};
Result<NpyHeader> parse_npy(std::string_view bytes, const std::string& path);

class NpyFile {
 public:
  static Result<NpyFile> open(const std::string& path);
  [[nodiscard]] const NpyHeader& header() const { return header_; }
  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] int64_t rows() const { return header_.shape.empty() ? 1 : header_.shape[0]; }
  [[nodiscard]] int64_t row_elements() const { return row_elements_; }
  // Row `row` in C order, converted. Returns the first element that does not fit, or -1.
  int64_t read_row(int64_t row, ir::DType to, std::byte* target, std::string& value) const;

 private:
  MappedFile file_;
  NpyHeader header_;
  int64_t row_elements_ = 1;
};

// Writes format 1.0, C order.
Status write_npy(const std::string& path, StoredType type, const std::vector<int64_t>& shape,
                 const void* data);

}  // namespace cad::backend
