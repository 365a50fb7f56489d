// planner/json_fields.h -- rows of a plan as JSON objects and back. One list of fields serves both:
//
//   constexpr auto axis_fields = [](const auto& io, auto& axis) {
//     io.field("name", axis.name);
//     io.field("size", axis.size);
//   };
//
// `io` is a JsonWriter or a JsonReader. Keys are written in the order of the list, and are missed
// in that order. A member that is no plain number, text or flag goes through an entry type: a
// struct with static Json write(const T&) and static void read(const JsonReader&, T&).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace cad::planner {

using Json = nlohmann::ordered_json;

// Appends members to an object.
class JsonWriter {
 public:
  explicit JsonWriter(Json& object) : object_(object) {}

  template <class T>
  void field(const char* key, const T& value) const {
    object_[key] = value;
  }
  template <class T, class Entry>
  void field(const char* key, const T& value, Entry) const {
    object_[key] = Entry::write(value);
  }
  // Left out where it is the default.
  template <class T>
  void optional(const char* key, const T& value, const T& otherwise) const {
    if (value != otherwise) object_[key] = value;
  }
  template <class T, class Fields>
  void object(const char* key, const T& row, const Fields& fields) const {
    object_[key] = written(row, fields);
  }
  template <class T, class Fields>
  void optional_object(const char* key, const T& row, const Fields& fields) const {
    object(key, row, fields);
  }
  template <class T, class Fields>
  void rows(const char* key, const std::vector<T>& list, const Fields& fields) const {
    object_[key] = written_rows(list, fields);
  }
  // An object whose keys are numbers; left out where it is empty.
  template <class T, class Entry>
  void numbered(const char* key, const std::map<int, T>& map, Entry) const {
    if (map.empty()) return;
    Json& object = object_[key] = Json::object();
    for (const auto& [number, value] : map) object[std::to_string(number)] = Entry::write(value);
  }

  template <class T, class Fields>
  static Json written(const T& row, const Fields& fields) {
    Json out = Json::object();
    fields(JsonWriter(out), row);
    return out;
  }
  template <class T, class Fields>
  static Json written_rows(const std::vector<T>& list, const Fields& fields) {
    Json out = Json::array();
    for (const T& row : list) out.push_back(written(row, fields));
    return out;
  }

 private:
  Json& object_;
};

// A value of a file, and where it stands. The first thing that is missing or of another kind is
// what `fault` says, in words that go on from the file's name; what is read from then on does not
// count.
class JsonReader {
 public:
  JsonReader(const Json& root, std::string& fault) : value_(root), fault_(fault) {}

  // The value itself.
  void read(std::string& to) const;  // without control characters: it is shown in a terminal
  void read(double& to) const;
  void read(int64_t& to) const;
  void read(int& to) const;     // the nearest, of a larger one
  void read(int8_t& to) const;  // the nearest, of a larger one
  void read(bool& to) const;
  template <class T>
  void read(std::vector<T>& to) const {
    each([&](const JsonReader& element, size_t) { element.read(to.emplace_back()); });
  }
  template <class T, class Fields>
  void read_rows(std::vector<T>& to, const Fields& fields) const {
    each(
        [&](const JsonReader& element, size_t) { element.read_object(to.emplace_back(), fields); });
  }
  template <class T, class Fields>
  void read_object(T& to, const Fields& fields) const {
    if (is_object()) fields(*this, to);
  }
  // f(element, position) of a list.
  template <class F>
  void each(const F& f) const {
    if (!is_list()) return;
    for (size_t i = 0; i < value_.size() && fault_.empty(); ++i) f(child(value_[i], "", i), i);
  }
  [[nodiscard]] bool is_null() const { return value_.is_null(); }
  [[nodiscard]] bool is_text() const { return value_.is_string(); }
  [[nodiscard]] size_t size() const { return value_.size(); }

  // Members of an object.
  template <class T>
  void field(const char* key, T& to) const {
    if (const Json* member = find(key)) child(*member, key).read(to);
  }
  template <class T, class Entry>
  void field(const char* key, T& to, Entry) const {
    if (const Json* member = find(key)) Entry::read(child(*member, key), to);
  }
  template <class T>
  void optional(const char* key, T& to, const T& otherwise) const {
    to = otherwise;
    if (value_.contains(key)) field(key, to);
  }
  template <class T, class Fields>
  void object(const char* key, T& to, const Fields& fields) const {
    if (const Json* member = find(key)) child(*member, key).read_object(to, fields);
  }
  template <class T, class Fields>
  void optional_object(const char* key, T& to, const Fields& fields) const {
    if (value_.contains(key)) object(key, to, fields);
  }
  template <class T, class Fields>
  void rows(const char* key, std::vector<T>& to, const Fields& fields) const {
    if (const Json* member = find(key)) child(*member, key).read_rows(to, fields);
  }
  template <class T, class Entry>
  void numbered(const char* key, std::map<int, T>& to, Entry) const {
    if (!fault_.empty() || !value_.contains(key)) return;
    const JsonReader map = child(value_[key], key);
    if (!map.is_object()) return;
    for (auto at = map.value_.begin(); at != map.value_.end() && fault_.empty(); ++at) {
      if (const auto number = map.number_of(at.key()))
        Entry::read(map.child(*at, at.key()), to[*number]);
    }
  }

  // It is not `wanted`: "a text".
  void wrong(const char* wanted) const;

 private:
  JsonReader(const JsonReader& parent, const Json& value, std::string_view key, size_t position)
      : value_(value),
        fault_(parent.fault_),
        parent_(&parent),
        key_(key),
        position_(position),
        depth_(parent.depth_ + 1) {}
  // Lives no longer than this one.
  [[nodiscard]] JsonReader child(const Json& value, std::string_view key, size_t at = 0) const {
    return {*this, value, key, at};
  }
  [[nodiscard]] bool is_object() const;  // or says that it is none, or is too deep
  [[nodiscard]] bool is_list() const;
  // Of a member that must be there.
  [[nodiscard]] const Json* find(const char* key) const;
  [[nodiscard]] std::optional<int> number_of(const std::string& key) const;
  [[nodiscard]] std::string path() const;  // "ops[3].strategy[0]"; empty: the whole file

  const Json& value_;
  std::string& fault_;
  const JsonReader* parent_ = nullptr;
  std::string_view key_;  // empty: an element of a list
  size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace cad::planner
