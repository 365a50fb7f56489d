// backend/data_csv.cc -- numbers in text columns. A row of the file is a row of data; each name
// takes as many columns as a row of it has elements, in order. A first line without any number is a
// header and skipped. Separators: comma, semicolon or tab (that of the first line). The whole
// file is parsed when opened; nothing is guessed: a field that is not a number is an error (E0610).
#include <charconv>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "backend/data.h"
#include "backend/mapped_file.h"
#include "backend/stored_type.h"
#include "base/text.h"

namespace cad::backend {
namespace {

std::string_view unquoted(std::string_view field) {
  while (!field.empty() && (field.front() == ' ' || field.front() == '"')) field.remove_prefix(1);
  while (!field.empty() && (field.back() == ' ' || field.back() == '"' || field.back() == '\r'))
    field.remove_suffix(1);
  return field;
}

bool number(std::string_view field, double& value) {
  field = unquoted(field);
  if (!field.empty() && field[0] == '+') field.remove_prefix(1);
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  return error == std::errc() && end == field.data() + field.size() && !field.empty();
}

std::vector<std::string_view> split(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  for (size_t begin = 0;;) {
    const size_t end = line.find(separator, begin);
    fields.push_back(line.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return fields;
    begin = end + 1;
  }
}

char separator_of(std::string_view line) {
  for (const char c : {',', ';', '\t'}) {
    if (line.find(c) != std::string_view::npos) return c;
  }
  return ',';
}

class CsvSource : public RowSource {
 public:
  explicit CsvSource(std::vector<DataColumn> columns) : columns_(std::move(columns)) {
    for (const DataColumn& column : columns_) {
      fields_ += static_cast<size_t>(column.row_elements);
      row_bytes_ += static_cast<size_t>(column.row_bytes());
    }
  }
  Status add(const std::string& path) {
    CAD_TRY(file, MappedFile::open(path));
    std::string_view rest(reinterpret_cast<const char*>(file.data()), file.size());
    if (rest.substr(0, 3) == "\xEF\xBB\xBF") rest.remove_prefix(3);
    const char separator = separator_of(rest.substr(0, rest.find('\n')));
    for (int64_t line = 1; !rest.empty(); ++line) {
      const size_t end = rest.find('\n');
      const std::string_view text = rest.substr(0, end);
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
      if (unquoted(text).empty()) continue;
      CAD_TRY_VOID(add_line(path, line, split(text, separator)));
    }
    return Ok{};
  }
  [[nodiscard]] int64_t rows() const override { return rows_; }
  void read(int64_t row, std::span<std::byte* const> targets) const override {
    const std::byte* at = data_.data() + static_cast<size_t>(row) * row_bytes_;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const auto bytes = static_cast<size_t>(columns_[c].row_bytes());
      std::memcpy(targets[c], at, bytes);
      at += bytes;
    }
  }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("{} rows of csv", rows_);
  }

 private:
  Status add_line(const std::string& path, int64_t line,
                  const std::vector<std::string_view>& fields) {
    const auto wrong = [&](const std::string& why) {
      return make_error(DiagId::E0610, fmt::format("`{}` line {}: {}", path, line, why),
                        kExitRunFailed);
    };
    std::vector<double> values(fields.size());
    size_t numbers = 0, odd = fields.size();  // the first that is no number
    for (size_t i = fields.size(); i-- > 0;) {
      if (number(fields[i], values[i]))
        ++numbers;
      else
        odd = i;
    }
    if (line == 1 && numbers == 0) return Ok{};  // a header
    if (odd < fields.size()) {
      Diagnostic error = wrong(fmt::format("field {} is `{}`, not a number", odd + 1,
                                           printable(unquoted(fields[odd]), 40)));
      if (line == 1) error.note("a first line is a header when none of its fields is a number");
      return error;
    }
    if (fields.size() != fields_)
      return wrong(fmt::format("found {} fields, needed {}", fields.size(), fields_));
    size_t at = data_.size(), field = 0;
    data_.resize(at + row_bytes_);
    for (const DataColumn& column : columns_) {
      for (int64_t i = 0; i < column.row_elements; ++i, ++field) {
        std::string value;
        const double number = values[field];
        if (convert_elements(StoredType::kF64, reinterpret_cast<const std::byte*>(&number), false,
                             1, column.dtype, data_.data() + at, value) >= 0) {
          return make_error(
              DiagId::E0608,
              fmt::format("{} in field {} of `{}` line {} does not fit {} of `{}`", value,
                          field + 1, path, line, ir::dtype_name(column.dtype), column.name),
              kExitRunFailed);
        }
        const bool is_id = column.dtype == ir::DType::kI32 && column.limit != INT64_MAX;
        if (is_id && (number < -1 || number >= static_cast<double>(column.limit))) {
          return id_error(column, fmt::format("{}", number),
                          fmt::format("field {} of `{}` line {}", field + 1, path, line));
        }
        at += static_cast<size_t>(ir::dtype_bytes(column.dtype));
      }
    }
    ++rows_;
    return Ok{};
  }

  std::vector<DataColumn> columns_;
  size_t fields_ = 0, row_bytes_ = 0;
  std::vector<std::byte> data_;
  int64_t rows_ = 0;
};

}  // namespace

SourceResult open_csv(std::vector<DataColumn> columns, const std::vector<std::string>& files) {
  auto source = std::make_shared<CsvSource>(std::move(columns));
  for (const std::string& file : files) CAD_TRY_VOID(source->add(file));
  if (source->rows() == 0) {
    return make_error(DiagId::E0606, fmt::format("`{}` has no rows", files.empty() ? "" : files[0]),
                      kExitRunFailed);
  }
  return std::shared_ptr<RowSource>(source);
}

}  // namespace cad::backend
