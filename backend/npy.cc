// backend/npy.cc -- header parser (a Python dict literal of three keys) and row access.
#include "backend/npy.h"

#include <cctype>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "backend/safetensors.h"

namespace cad::backend {
namespace {

// The dict: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class DictParser {
 public:
  explicit DictParser(std::string_view text) : text_(text) {}
  std::string descr;
  std::vector<int64_t> shape;
  bool fortran = false;

  // The reason it is not such a dict; empty when it is.
  std::string parse() {
    int seen = 0;
    if (!take('{')) return "its header is not a dict";
    while (!take('}')) {
      const auto key = string();
      if (!key || !take(':')) return "its header is not a dict of names";
      if (*key == "descr") {
        const auto value = string();
        if (!value) return "`descr` is not a plain type (structured arrays are not read)";
        descr = *value;
        seen |= 1;
      } else if (*key == "fortran_order") {
        if (word("True"))
          fortran = true;
        else if (!word("False"))
          return "`fortran_order` is neither True nor False";
        seen |= 2;
      } else if (*key == "shape") {
        if (!tuple()) return "`shape` is not a tuple of sizes";
        seen |= 4;
      } else {
        return "unknown key in its header";
      }
      if (!take(',') && peek() != '}') return "its header is not a dict";
    }
    return seen == 7 ? "" : "its header lacks `descr`, `fortran_order` or `shape`";
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view w) {
    skip();
    if (text_.substr(at_, w.size()) != w) return false;
    at_ += w.size();
    return true;
  }
  std::optional<std::string> string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return std::nullopt;
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }
  bool tuple() {
    if (!take('(')) return false;
    while (!take(')')) {
      if (std::isdigit(static_cast<unsigned char>(peek())) == 0) return false;
      int64_t size = 0;
      while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
        if (__builtin_mul_overflow(size, int64_t{10}, &size) ||
            __builtin_add_overflow(size, int64_t{text_[at_] - '0'}, &size)) {
          return false;
        }
        ++at_;
      }
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2's long
      shape.push_back(size);
      if (!take(',') && peek() != ')') return false;
    }
    return true;
  }
  std::string_view text_;
  size_t at_ = 0;
};

std::optional<StoredType> type_of(std::string_view code) {
  static const struct {
    const char* code;
    StoredType type;
  } table[] = {{"b1", StoredType::kBool}, {"u1", StoredType::kU8},  {"i1", StoredType::kI8},
               {"u2", StoredType::kU16},  {"i2", StoredType::kI16}, {"u4", StoredType::kU32},
               {"i4", StoredType::kI32},  {"u8", StoredType::kU64}, {"i8", StoredType::kI64},
               {"f2", StoredType::kF16},  {"f4", StoredType::kF32}, {"f8", StoredType::kF64}};
  for (const auto& row : table) {
    if (code == row.code) return row.type;
  }
  return std::nullopt;
}

}  // namespace

Result<NpyHeader> parse_npy(std::string_view bytes, const std::string& path) {
  const auto broken = [&](const std::string& why) {
    return make_error(DiagId::E0604, fmt::format("`{}` is not a readable npy file: {}", path, why),
                      kExitRunFailed);
  };
  const auto byte = [&](size_t i) {
    return static_cast<uint64_t>(static_cast<unsigned char>(bytes[i]));
  };
  if (bytes.size() < 10 || bytes.substr(0, 6) != "\x93NUMPY")
    return broken("it does not start with the magic bytes");
  const uint64_t major = byte(6);
  if (major < 1 || major > 3) return broken(fmt::format("unknown format version {}", major));
  const uint64_t start = major == 1 ? 10 : 12;
  if (bytes.size() < start) return broken("the file ends within its header");
  const uint64_t length = major == 1 ? byte(8) | byte(9) << 8
                                     : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (length > bytes.size() - start)
    return broken(fmt::format("header length {} is beyond the file", length));
  DictParser dict(bytes.substr(start, length));
  if (std::string why = dict.parse(); !why.empty()) return broken(why);
  NpyHeader header;
  if (dict.descr.size() < 3) return broken(fmt::format("unknown dtype `{}`", dict.descr));
  const auto type = type_of(std::string_view(dict.descr).substr(1));
  const char order = dict.descr[0];
  if (!type || (order != '<' && order != '>' && order != '|' && order != '=')) {
    return broken(fmt::format("dtype `{}` is not a number or bool", dict.descr.substr(0, 40)));
  }
  header.type = *type;
  header.swap = order == '>' && stored_bytes(*type) > 1;
  header.fortran = dict.fortran;
  header.shape = dict.shape;
  header.data_start = start + length;
  bool empty = false;
  for (const int64_t size : header.shape) {
    if (size == 0)
      empty = true;
    else if (__builtin_mul_overflow(header.elements, size, &header.elements))
      return broken("the product of its sizes is beyond 63 bits");
  }
  if (empty) header.elements = 0;
  int64_t needed = 0;
  if (__builtin_mul_overflow(header.elements, int64_t{stored_bytes(*type)}, &needed))
    return broken("its bytes are beyond 63 bits");
  const uint64_t found = bytes.size() - header.data_start;
  if (static_cast<uint64_t>(needed) != found) {
    return broken(fmt::format("{} needs {} bytes of data, found {}", shape_text(header.shape),
                              needed, found));
  }
  return header;
}

Result<NpyFile> NpyFile::open(const std::string& path) {
  NpyFile result;
  CAD_TRY(file, MappedFile::open(path));
  CAD_TRY(header, parse_npy({reinterpret_cast<const char*>(file.data()), file.size()}, path));
  result.file_ = std::move(file);
  result.header_ = std::move(header);
  result.row_elements_ = 1;
  for (size_t i = 1; i < result.header_.shape.size(); ++i)
    result.row_elements_ *= result.header_.shape[i];
  return result;
}

int64_t NpyFile::read_row(int64_t row, ir::DType to, std::byte* target, std::string& value) const {
  const std::byte* data = file_.data() + header_.data_start;
  const int width = stored_bytes(header_.type);
  if (!header_.fortran || header_.shape.size() < 2) {
    return convert_elements(header_.type, data + row * row_elements_ * width, header_.swap,
                            row_elements_, to, target, value);
  }
  // Fortran order: the first index runs fastest; walk the row's indices in C order.
  std::vector<int64_t> index(header_.shape.size(), 0);
  for (int64_t i = 0; i < row_elements_; ++i) {
    int64_t at = 0;
    for (size_t d = header_.shape.size(); d-- > 1;) at = at * header_.shape[d] + index[d];
    at = at * header_.shape[0] + row;
    if (convert_elements(header_.type, data + at * width, header_.swap, 1, to,
                         target + i * ir::dtype_bytes(to), value) >= 0) {
      return i;
    }
    for (size_t d = header_.shape.size(); d-- > 1;) {
      if (++index[d] < header_.shape[d]) break;
      index[d] = 0;
    }
  }
  return -1;
}

Status write_npy(const std::string& path, StoredType type, const std::vector<int64_t>& shape,
                 const void* data) {
  static const char* const codes[] = {"|b1", "|u1", "|i1", "<u2", "<i2", "<u4", "<i4",
                                      "<u8", "<i8", "<f2", "",    "<f4", "<f8"};
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                 codes[static_cast<int>(type)], fmt::join(shape, ", "),
                                 shape.size() == 1 ? "," : "");
  dict.append(63 - (10 + dict.size()) % 64, ' ');
  dict += '\n';
  std::string head("\x93NUMPY\x01\x00", 8);
  head += static_cast<char>(dict.size() & 255);
  head += static_cast<char>(dict.size() >> 8);
  head += dict;
  uint64_t bytes = static_cast<uint64_t>(stored_bytes(type));
  for (const int64_t size : shape) bytes *= static_cast<uint64_t>(size);
  CAD_TRY(file, FileWriter::create(path));
  CAD_TRY_VOID(file.write(head.data(), head.size()));
  CAD_TRY_VOID(file.write(data, bytes));
  return file.finish();
}

}  // namespace cad::backend
