// planner/json_fields.cc -- see json_fields.h.
#include "planner/json_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include <fmt/format.h>

namespace cad::planner {

namespace {

constexpr int kMostDepth = 512;  // of values within values

template <class Narrow>
void read_nearest(const JsonReader& from, Narrow& to) {
  int64_t whole = 0;
  from.read(whole);
  to = static_cast<Narrow>(std::clamp<int64_t>(whole, std::numeric_limits<Narrow>::min(),
                                               std::numeric_limits<Narrow>::max()));
}

bool is_control(unsigned char c) {
  return c < 0x20 || c == 0x7f;
}

}  // namespace

void JsonReader::read(std::string& to) const {
  if (!value_.is_string()) return wrong("a text");
  to = value_.get<std::string>();
  if (std::any_of(to.begin(), to.end(), is_control)) wrong("a text without control characters");
}

void JsonReader::read(double& to) const {
  if (!value_.is_number()) return wrong("a number");
  to = value_.get<double>();
}

void JsonReader::read(int64_t& to) const {
  if (!value_.is_number_integer()) return wrong("a whole number");
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  const bool beyond =
      value_.is_number_unsigned() && value_.get<uint64_t>() > static_cast<uint64_t>(most);
  to = beyond ? most : value_.get<int64_t>();
}

void JsonReader::read(int& to) const {
  read_nearest(*this, to);
}

void JsonReader::read(int8_t& to) const {
  read_nearest(*this, to);
}

void JsonReader::read(bool& to) const {
  if (!value_.is_boolean()) return wrong("true or false");
  to = value_.get<bool>();
}

void JsonReader::wrong(const char* wanted) const {
  if (!fault_.empty()) return;
  const std::string where = path();
  fault_ = where.empty() ? fmt::format("it is not {}", wanted)
                         : fmt::format("`{}` is not {}", where, wanted);
}

bool JsonReader::is_object() const {
  if (!value_.is_object()) wrong("an object");
  if (depth_ > kMostDepth && fault_.empty())
    fault_ = fmt::format("it is nested more than {} deep", kMostDepth);
  return fault_.empty();
}

bool JsonReader::is_list() const {
  if (!value_.is_array()) wrong("a list");
  return fault_.empty();
}

const Json* JsonReader::find(const char* key) const {
  if (!fault_.empty()) return nullptr;
  const auto at = value_.find(key);
  if (at != value_.end()) return &*at;
  const std::string where = path();
  fault_ = where.empty() ? fmt::format("it lacks `{}`", key)
                         : fmt::format("`{}` lacks `{}`", where, key);
  return nullptr;
}

// Keys are not shown: they may hold anything.
std::optional<int> JsonReader::number_of(const std::string& key) const {
  int number = 0;
  std::from_chars(key.data(), key.data() + key.size(), number);
  if (std::to_string(number) == key) return number;
  if (fault_.empty()) fault_ = fmt::format("a key of `{}` is not a number", path());
  return std::nullopt;
}

std::string JsonReader::path() const {
  if (parent_ == nullptr) return "";
  std::string before = parent_->path();
  if (key_.empty()) return fmt::format("{}[{}]", before, position_);
  return (before.empty() ? "" : before + ".") + std::string(key_);
}

}  // namespace cad::planner
