// backend/safetensors.cc -- reader and writer. The header goes through nlohmann-json's SAX parser,
// which keeps no tree and does not recurse: duplicate names are seen (a DOM would keep the last
// silently) and deep nesting is refused at its first bracket.
#include "backend/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace cad::backend {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the reference reader's limit

std::string shown(std::string_view name) {
  return printable(name, 80);
}

std::optional<StoredType> stored_type(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(StoredType::kF64); ++i) {
    if (name == stored_name(static_cast<StoredType>(i))) return static_cast<StoredType>(i);
  }
  return std::nullopt;
}

// States of the header: outside, in the object, in an entry, in one of its two lists, in metadata.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader header;
  std::string error;  // the reason, once something is wrong

  bool null() override { return value_error(); }
  bool boolean(bool) override { return value_error(); }
  bool number_integer(number_integer_t) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return value_error();
    return fail(fmt::format("{}: a negative number in `{}`", tensor(), key_));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      if (value > INT64_MAX) return fail(fmt::format("{}: a size is beyond 63 bits", tensor()));
      current_.shape.push_back(static_cast<int64_t>(value));
      if (current_.shape.size() > 1024)
        return fail(fmt::format("{}: more than 1024 dims", tensor()));
      return true;
    }
    if (place_ == Place::kOffsets) {
      if (offsets_ == 2)
        return fail(fmt::format("{}: `data_offsets` has more than two numbers", tensor()));
      (offsets_++ == 0 ? current_.begin : current_.end) = value;
      return true;
    }
    return value_error();
  }
  bool number_float(number_float_t, const string_t& text) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return value_error();
    return fail(fmt::format("{}: `{}` holds {}, not a whole number of 64 bits", tensor(), key_,
                            shown(text)));
  }
  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      header.metadata[key_] = value;
      return true;
    }
    if (place_ == Place::kEntry && key_ == "dtype") {
      const auto type = stored_type(value);
      if (!type) return fail(fmt::format("{}: unknown dtype `{}`", tensor(), shown(value)));
      current_.type = *type;
      return true;
    }
    return value_error();
  }
  bool binary(binary_t&) override { return value_error(); }
  bool start_object(std::size_t) override {
    if (place_ == Place::kOutside)
      place_ = Place::kTop;
    else if (place_ == Place::kTop)
      start_entry();
    else
      return value_error();
    return true;
  }
  bool key(string_t& name) override {
    auto& seen = place_ == Place::kTop ? names_ : keys_;
    if (!seen.insert(name).second) {
      if (place_ == Place::kTop)
        return fail(fmt::format("duplicate tensor name `{}`", shown(name)));
      return fail(fmt::format("{}: duplicate key `{}`", tensor(), shown(name)));
    }
    if (place_ == Place::kEntry && name != "dtype" && name != "shape" && name != "data_offsets") {
      return fail(fmt::format("{}: unknown key `{}`", tensor(), shown(name)));
    }
    (place_ == Place::kTop ? name_ : key_) = name;
    return true;
  }
  bool end_object() override {
    if (place_ == Place::kEntry) {
      for (const char* needed : {"dtype", "shape", "data_offsets"}) {
        if (keys_.count(needed) == 0) return fail(fmt::format("{}: no `{}`", tensor(), needed));
      }
      header.tensors.push_back(std::move(current_));
    }
    place_ = place_ == Place::kTop ? Place::kOutside : Place::kTop;
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ == Place::kEntry && key_ == "shape")
      place_ = Place::kShape;
    else if (place_ == Place::kEntry && key_ == "data_offsets")
      place_ = Place::kOffsets;
    else
      return value_error();
    return true;
  }
  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_ != 2) {
      return fail(fmt::format("{}: `data_offsets` needs two numbers", tensor()));
    }
    place_ = Place::kEntry;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    if (error.empty()) error = fmt::format("the header is not valid JSON at byte {}", position);
    return false;
  }

 private:
  enum class Place { kOutside, kTop, kEntry, kMetadata, kShape, kOffsets };

  void start_entry() {
    keys_.clear();
    current_ = StoredTensor();
    current_.name = name_;
    offsets_ = 0;
    place_ = name_ == "__metadata__" ? Place::kMetadata : Place::kEntry;
  }
  [[nodiscard]] std::string tensor() const { return fmt::format("tensor `{}`", shown(name_)); }
  bool fail(std::string why) {
    if (error.empty()) error = std::move(why);
    return false;
  }
  bool value_error() {
    switch (place_) {
      case Place::kOutside:
        return fail("the header is not a JSON object");
      case Place::kTop:
        return fail(fmt::format("{}: its entry is not an object", tensor()));
      case Place::kMetadata:
        return fail(fmt::format("`__metadata__`: `{}` is not a string", shown(key_)));
      default:
        break;
    }
    const char* wanted = key_ == "dtype"   ? "a string"
                         : key_ == "shape" ? "a list of sizes"
                                           : "two offsets";
    return fail(fmt::format("{}: `{}` is not {}", tensor(), shown(key_), wanted));
  }

  Place place_ = Place::kOutside;
  std::string name_, key_;
  std::set<std::string> names_, keys_;
  StoredTensor current_;
  int offsets_ = 0;
};

// Empty when the tensor's bytes are exactly those its shape needs.
std::string check_extent(StoredTensor& tensor, uint64_t data_size) {
  const std::string name = fmt::format("tensor `{}`", shown(tensor.name));
  if (tensor.begin > tensor.end)
    return fmt::format("{}: begins at {} after its end {}", name, tensor.begin, tensor.end);
  if (tensor.end > data_size) {
    return fmt::format("{}: ends at byte {} of {} bytes of data", name, tensor.end, data_size);
  }
  uint64_t elements = 1;
  bool empty = false;
  for (const int64_t size : tensor.shape) {
    if (size == 0)
      empty = true;
    else if (__builtin_mul_overflow(elements, static_cast<uint64_t>(size), &elements)) {
      return fmt::format("{}: the product of its sizes is beyond 64 bits", name);
    }
  }
  if (empty) elements = 0;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(elements, static_cast<uint64_t>(stored_bytes(tensor.type)), &bytes)) {
    return fmt::format("{}: its bytes are beyond 64 bits", name);
  }
  if (bytes != tensor.end - tensor.begin) {
    return fmt::format("{}: {} of {} needs {} bytes, its offsets give {}", name,
                       shape_text(tensor.shape), stored_name(tensor.type), bytes,
                       tensor.end - tensor.begin);
  }
  tensor.elements = static_cast<int64_t>(elements);
  return "";
}

// The data must be covered exactly once, whatever the header's order.
std::string check_cover(const std::vector<StoredTensor>& tensors, uint64_t data_size) {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  uint64_t at = 0;
  const StoredTensor* before = nullptr;
  for (const StoredTensor* tensor : order) {
    if (tensor->begin < at) {
      return fmt::format("tensor `{}`: overlaps `{}`", shown(tensor->name), shown(before->name));
    }
    if (tensor->begin > at) {
      return fmt::format("tensor `{}`: a hole of {} bytes before it", shown(tensor->name),
                         tensor->begin - at);
    }
    if (tensor->end > at) before = tensor;
    at = tensor->end;
  }
  if (at != data_size) return fmt::format("{} bytes of data after the last tensor", data_size - at);
  return "";
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<SafetensorsHeader> parse_safetensors(std::string_view bytes, const std::string& path) {
  const auto broken = [&](const std::string& why) {
    return make_error(DiagId::E0603,
                      fmt::format("`{}` is not a valid safetensors file: {}", path, why),
                      kExitRunFailed);
  };
  if (bytes.size() < 8)
    return broken(fmt::format("{} bytes cannot hold the header length", bytes.size()));
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | static_cast<unsigned char>(bytes[static_cast<size_t>(i)]);
  if (length > bytes.size() - 8) {
    return broken(
        fmt::format("header length {} is beyond the file's {} bytes", length, bytes.size()));
  }
  if (length > kMaxHeader)
    return broken(fmt::format("header length {} is over the limit of {}", length, kMaxHeader));
  if (length == 0) return broken("the header is empty");
  const std::string_view text = bytes.substr(8, length);
  if (text[0] != '{') return broken("the header is not a JSON object");
  HeaderReader reader;
  const bool parsed = nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  if (!parsed || !reader.error.empty()) {
    return broken(reader.error.empty() ? "the header is not valid JSON" : reader.error);
  }
  const uint64_t data_size = bytes.size() - 8 - length;
  for (StoredTensor& tensor : reader.header.tensors) {
    if (std::string why = check_extent(tensor, data_size); !why.empty()) return broken(why);
  }
  if (std::string why = check_cover(reader.header.tensors, data_size); !why.empty())
    return broken(why);
  reader.header.data_start = 8 + length;
  return std::move(reader.header);
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile result;
  CAD_TRY(file, MappedFile::open(path));
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  CAD_TRY(header, parse_safetensors(bytes, path));
  result.file_ = std::move(file);
  result.header_ = std::move(header);
  for (size_t i = 0; i < result.header_.tensors.size(); ++i) {
    result.by_name_[result.header_.tensors[i].name] = i;
  }
  return result;
}

const StoredTensor* SafetensorsFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
}

const std::byte* SafetensorsFile::data(const StoredTensor& tensor) const {
  return file_.data() + header_.data_start + tensor.begin;
}

Status SafetensorsFile::read_f32(const StoredTensor& tensor, float* to) const {
  std::string value;
  const int64_t bad = convert_elements(tensor.type, data(tensor), false, tensor.elements,
                                       ir::DType::kF32, reinterpret_cast<std::byte*>(to), value);
  if (bad < 0) return Ok{};
  return make_error(DiagId::E0608,
                    fmt::format("`{}`: tensor `{}`: element {} is {}, beyond f32", path(),
                                shown(tensor.name), bad, value),
                    kExitRunFailed);
}

namespace {

// Length and header of a file, and where each tensor begins and the data ends, from its start.
struct Plan {
  std::string head;
  std::vector<uint64_t> begins;
  uint64_t end = 0;
};

Plan plan_of(const std::vector<TensorToWrite>& tensors,
             const std::map<std::string, std::string>& metadata) {
  Plan plan;
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t at = 0;
  for (const TensorToWrite& tensor : tensors) {
    auto bytes = static_cast<uint64_t>(stored_bytes(tensor.type));
    for (const int64_t size : tensor.shape) bytes *= static_cast<uint64_t>(size);
    header[tensor.name] = {{"dtype", stored_name(tensor.type)},
                           {"shape", tensor.shape},
                           {"data_offsets", {at, at + bytes}}};
    plan.begins.push_back(at);
    at += bytes;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  for (size_t i = 0; i < 8; ++i) plan.head += static_cast<char>(text.size() >> (8 * i));
  plan.head += text;
  for (uint64_t& begin : plan.begins) begin += plan.head.size();
  plan.end = plan.head.size() + at;
  return plan;
}

Status write_tensors(FileWriter& file, const std::vector<TensorToWrite>& tensors,
                     const Plan& plan) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorToWrite& tensor = tensors[i];
    if (tensor.data == nullptr || (tensor.shard && !tensor.shard->counts)) continue;
    const auto* data = static_cast<const char*>(tensor.data);
    const int64_t width = stored_bytes(tensor.type);
    Status status = Ok{};
    each_stretch(tensor.shard ? *tensor.shard : whole_shard(tensor.shape),
                 [&](int64_t here, int64_t there, int64_t count) {
                   if (!status.ok()) return;
                   status =
                       file.write_at(plan.begins[i] + static_cast<uint64_t>(there * width),
                                     data + here * width, static_cast<uint64_t>(count * width));
                 });
    CAD_TRY_VOID(status);
  }
  return file.finish();
}

}  // namespace

Status create_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                          const std::map<std::string, std::string>& metadata) {
  const Plan plan = plan_of(tensors, metadata);
  CAD_TRY(file, FileWriter::create(path));
  CAD_TRY_VOID(file.reserve(plan.end));
  CAD_TRY_VOID(file.write_at(0, plan.head.data(), plan.head.size()));
  return file.close();  // synced by whoever writes the data
}

Status write_shards(const std::string& path, const std::vector<TensorToWrite>& tensors,
                    const std::map<std::string, std::string>& metadata) {
  CAD_TRY(file, FileWriter::open(path));
  return write_tensors(file, tensors, plan_of(tensors, metadata));
}

Status write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  const Plan plan = plan_of(tensors, metadata);
  CAD_TRY(file, FileWriter::create(path));
  CAD_TRY_VOID(file.write_at(0, plan.head.data(), plan.head.size()));
  return write_tensors(file, tensors, plan);
}

}  // namespace cad::backend
