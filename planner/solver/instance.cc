// planner/solver/instance.cc -- the reader: zlib unpacks, nlohmann's event parser (no tree: the
// large files hold millions of numbers) drives a small machine that knows where it is, so that
// every complaint can say `problem.nodes.costs[17][3]`.
#include "planner/solver/instance.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <zlib.h>
#include <nlohmann/json.hpp>

namespace cad::planner::solver {
namespace {

constexpr size_t kLargestText = size_t{1}
                                << 29;        // unpacked bytes: a small file may unpack to any size
constexpr size_t kMostEntries = 100'000'000;  // numbers in the tables of one file
constexpr size_t kMostDepth = 64;
constexpr double kForbiddenFrom = 1e18;
constexpr double kExact = 9007199254740992.0;  // 2^53
constexpr int64_t kMostBytes = int64_t{1} << 62;

using Json = nlohmann::json;

Diagnostic broken(const std::string& path, const std::string& what) {
  return make_error(DiagId::E0820, fmt::format("`{}` {}", path, what), kExitProgram);
}

Diagnostic wrong(const std::string& path, const std::string& place, const std::string& what) {
  return make_error(DiagId::E0821, fmt::format("`{}`: {} {}", path, place, what), kExitProgram);
}

std::string line_and_column(const std::string& text, size_t at) {
  at = std::min(at, text.size());
  const auto line = std::count(text.begin(), text.begin() + at, '\n') + 1;
  const size_t start = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  return fmt::format("line {}, column {}", line, start == std::string::npos ? at + 1 : at - start);
}

// nlohmann's text is "[json.exception.parse_error.101] parse error at ..: syntax error while
// parsing value - what happened; last read: .."; the middle is what a user needs.
std::string plain(std::string message) {
  if (const size_t mark = message.find("] "); message.rfind("[json.", 0) == 0 && mark < 60)
    message = message.substr(mark + 2);
  const size_t dash = message.find(" - ");
  if (dash != std::string::npos) message = message.substr(dash + 3);
  const size_t end = message.find("; ");
  if (end != std::string::npos && message.compare(0, end, "invalid literal") == 0)
    message.erase(end);
  return message;
}

// Keeps the path of the value that is being read and the first error.
class Events : public nlohmann::json_sax<Json> {
 public:
  Events(const std::string& path, const std::string& text) : path_(path), text_(text) {}
  std::optional<Diagnostic> error;

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a truth value"); }
  bool string(string_t& value) override { return leave(text_value(value)); }
  bool binary(binary_t&) override { return other("binary"); }
  bool number_integer(number_integer_t value) override {
    return leave(number(static_cast<double>(value), value, true));
  }
  bool number_unsigned(number_unsigned_t value) override {
    const bool fits = value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    return leave(number(static_cast<double>(value), fits ? static_cast<int64_t>(value) : 0, fits));
  }
  bool number_float(number_float_t value, const string_t&) override {
    const bool whole = std::abs(value) < kExact && value == std::floor(value);
    return leave(number(value, whole ? static_cast<int64_t>(value) : 0, whole));
  }
  bool start_object(size_t) override {
    if (!may_enter(false)) return false;
    frames_.push_back({false, 0, ""});
    return true;
  }
  bool key(string_t& name) override {
    frames_.back().key = name;
    return at_key();
  }
  bool end_object() override {
    frames_.pop_back();
    return leave(true);
  }
  bool start_array(size_t) override {
    if (!may_enter(true)) return false;
    frames_.push_back({true, 0, ""});
    return true;
  }
  bool end_array() override {
    frames_.pop_back();
    return array_done() && leave(true);
  }
  bool parse_error(size_t position, const std::string&, const Json::exception& e) override {
    if (!error)
      error = broken(
          path_, fmt::format("is not JSON at {}: {}",
                             line_and_column(text_, position ? position - 1 : 0), plain(e.what())));
    return false;
  }

 protected:
  struct Frame {
    bool array = false;
    size_t index = 0;
    std::string key;
  };
  virtual bool number(double value, int64_t whole, bool is_whole) = 0;
  virtual bool text_value(const std::string& value) = 0;
  virtual bool enter(bool array) = 0;
  virtual bool array_done() { return true; }
  virtual bool at_key() { return true; }
  virtual bool other(const char*) { return leave(true); }

  bool may_enter(bool array) {
    if (frames_.size() >= kMostDepth)
      return complain(fmt::format("is nested more than {} deep", kMostDepth));
    return enter(array);
  }
  bool leave(bool good) {  // a value is complete
    if (good && !frames_.empty() && frames_.back().array) ++frames_.back().index;
    return good;
  }
  std::string place() const {
    std::string text;
    for (const Frame& frame : frames_) {
      if (frame.array) {
        text += fmt::format("[{}]", frame.index);
      } else {
        text += (text.empty() ? "" : ".") + frame.key;
      }
    }
    return text.empty() ? "the file" : fmt::format("`{}`", text);
  }
  bool complain(const std::string& what) {
    if (!error) error = wrong(path_, place(), what);
    return false;
  }

  const std::string& path_;
  const std::string& text_;
  std::vector<Frame> frames_;
};

class KeyFinder final : public Events {
 public:
  KeyFinder(const std::string& path, const std::string& text, const std::vector<std::string>& keys)
      : Events(path, text), keys_(keys) {}
  std::string found;

 private:
  bool number(double, int64_t, bool) override { return true; }
  bool text_value(const std::string&) override { return true; }
  bool enter(bool) override { return true; }
  bool at_key() override {
    if (frames_.size() != 1) return true;
    const std::string& key = frames_[0].key;
    if (std::find(keys_.begin(), keys_.end(), key) != keys_.end()) found = key;
    return found.empty();
  }
  const std::vector<std::string>& keys_;
};

// The arrays of the file as they stand; make_problem() checks how they fit together.
struct Arrays {
  std::string name;
  std::vector<std::vector<int64_t>> intervals, usages, ends;
  std::vector<std::vector<double>> costs, edge_costs;
  std::optional<int64_t> limit;
  bool has[5] = {};
};

enum class Field { kOther, kName, kIntervals, kCosts, kUsages, kEnds, kEdgeCosts, kLimit };

class InstanceReader final : public Events {
 public:
  using Events::Events;
  Arrays arrays;

 private:
  bool at_key() override {
    field_ = Field::kOther;
    std::string path;
    for (const Frame& frame : frames_) {
      if (frame.array) return true;
      path += (path.empty() ? "" : ".") + frame.key;
    }
    depth_ = frames_.size();
    if (path == "problem.name") field_ = Field::kName;
    if (path == "problem.nodes.intervals") field_ = Field::kIntervals;
    if (path == "problem.nodes.costs") field_ = Field::kCosts;
    if (path == "problem.nodes.usages") field_ = Field::kUsages;
    if (path == "problem.edges.nodes") field_ = Field::kEnds;
    if (path == "problem.edges.costs") field_ = Field::kEdgeCosts;
    if (path == "problem.usage_limit") field_ = Field::kLimit;
    if (field_ >= Field::kIntervals && field_ <= Field::kEdgeCosts) {
      bool& has = arrays.has[static_cast<int>(field_) - static_cast<int>(Field::kIntervals)];
      if (has) return complain("is given twice");
      has = true;
    }
    return true;
  }

  bool is_table() const { return field_ >= Field::kIntervals && field_ <= Field::kEdgeCosts; }

  bool enter(bool array) override {
    if (field_ == Field::kOther) return true;
    const size_t inside = frames_.size() - depth_;
    if (!array || !is_table() || inside > 1)
      return complain(is_table() ? "is not a list of lists of numbers" : "is a list or an object");
    if (inside == 1) {
      if (field_ == Field::kIntervals) arrays.intervals.emplace_back();
      if (field_ == Field::kUsages) arrays.usages.emplace_back();
      if (field_ == Field::kEnds) arrays.ends.emplace_back();
      if (field_ == Field::kCosts) arrays.costs.emplace_back();
      if (field_ == Field::kEdgeCosts) arrays.edge_costs.emplace_back();
    }
    return true;
  }

  bool other(const char* what) override {
    if (field_ != Field::kOther) return complain(fmt::format("is {}, not a number", what));
    return leave(true);
  }
  bool text_value(const std::string& value) override {
    if (field_ == Field::kName) arrays.name = value;
    if (field_ >= Field::kIntervals) return complain("is a text, not a number");
    return true;
  }

  bool number(double value, int64_t whole, bool is_whole) override {
    if (field_ == Field::kOther || field_ == Field::kName) return true;
    if (field_ != Field::kLimit && frames_.size() - depth_ != 2)
      return complain("is not a list of lists of numbers");
    if (++entries_ > kMostEntries)
      return complain(
          fmt::format("is number {} of the file, more than this program takes", entries_));
    if (field_ == Field::kCosts) return cost(arrays.costs.back(), value, whole, is_whole);
    if (field_ == Field::kEdgeCosts) return cost(arrays.edge_costs.back(), value, whole, is_whole);
    if (!is_whole || whole < 0)
      return complain(fmt::format("is {}; it must be a whole number from 0 to 2^63 - 1", value));
    if (field_ == Field::kIntervals) arrays.intervals.back().push_back(whole);
    if (field_ == Field::kUsages) arrays.usages.back().push_back(whole);
    if (field_ == Field::kEnds) arrays.ends.back().push_back(whole);
    if (field_ == Field::kLimit) arrays.limit = whole;
    return true;
  }

  bool cost(std::vector<double>& list, double value, int64_t whole, bool is_whole) {
    if (value >= kForbiddenFrom) {
      list.push_back(kForbidden);
      return true;
    }
    const bool exact =
        is_whole ? std::abs(whole) <= static_cast<int64_t>(kExact) : std::abs(value) <= kExact;
    if (!exact)
      return complain(
          fmt::format("is {}; costs are exact up to 2^53, and forbidden from 1e18 on", value));
    list.push_back(value);
    return true;
  }

  Field field_ = Field::kOther;
  size_t depth_ = 0, entries_ = 0;
};

// Lengths and indices; the path names the entry that is wrong.
std::optional<Diagnostic> check_nodes(const std::string& path, const Arrays& a) {
  const size_t n = a.costs.size();
  if (a.intervals.size() != n || a.usages.size() != n)
    return wrong(
        path, "`problem.nodes`",
        fmt::format("has {} `costs`, {} `intervals` and {} `usages`; all need one entry a node", n,
                    a.intervals.size(), a.usages.size()));
  __int128 most = 0;
  for (size_t i = 0; i < n; ++i) {
    const auto& interval = a.intervals[i];
    if (!interval.empty() && (interval.size() != 2 || interval[0] > interval[1]))
      return wrong(
          path, fmt::format("`problem.nodes.intervals[{}]`", i),
          fmt::format("is [{}]; it must be [from, to] with from <= to", fmt::join(interval, ", ")));
    if (a.costs[i].empty())
      return wrong(path, fmt::format("`problem.nodes.costs[{}]`", i), "is empty");
    if (a.usages[i].size() != a.costs[i].size())
      return wrong(path, fmt::format("`problem.nodes.usages[{}]`", i),
                   fmt::format("has {} entries, `costs[{}]` has {}", a.usages[i].size(), i,
                               a.costs[i].size()));
    most += *std::max_element(a.usages[i].begin(), a.usages[i].end());
    if (most > kMostBytes)
      return wrong(path, fmt::format("`problem.nodes.usages[{}]`", i),
                   "takes the sum of all uses past 2^62");
  }
  return std::nullopt;
}

std::optional<Diagnostic> check_edges(const std::string& path, const Arrays& a) {
  const size_t n = a.costs.size();
  if (a.ends.size() != a.edge_costs.size())
    return wrong(path, "`problem.edges`",
                 fmt::format("has {} `nodes` and {} `costs`", a.ends.size(), a.edge_costs.size()));
  for (size_t e = 0; e < a.ends.size(); ++e) {
    const auto& ends = a.ends[e];
    const std::string place = fmt::format("`problem.edges.nodes[{}]`", e);
    if (ends.size() != 2)
      return wrong(path, place,
                   fmt::format("has {} entries; an edge joins two nodes", ends.size()));
    for (const int64_t end : ends)
      if (end >= static_cast<int64_t>(n))
        return wrong(path, place, fmt::format("names node {}; there are {}", end, n));
    const size_t ka = a.costs[ends[0]].size(), kb = a.costs[ends[1]].size();
    if (a.edge_costs[e].size() != ka * kb)
      return wrong(path, fmt::format("`problem.edges.costs[{}]`", e),
                   fmt::format("has {} entries; nodes {} and {} have {} x {} choices",
                               a.edge_costs[e].size(), ends[0], ends[1], ka, kb));
  }
  return std::nullopt;
}

// Whether some of `text` from `from` on is in no JSON text, or nothing that starts one comes first:
// more of it need not be read to say so. An endless device is told from a file by this.
bool cannot_be_json(const std::string& text, size_t from) {
  const size_t first = text.find_first_not_of("\xEF\xBB\xBF \t\n\r");
  if (first != std::string::npos && std::strchr("{[\"-0123456789tfn", text[first]) == nullptr)
    return true;
  return std::any_of(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r';
  });
}

}  // namespace

Result<std::string> read_packed(const std::string& path) {
  const auto cannot = [&](const std::string& why) {
    return make_error(DiagId::E0601, fmt::format("cannot read `{}`: {}", path, why), kExitNoInput);
  };
  // zlib reads plain files as they are
  errno = 0;
  const gzFile file = path == "-" ? gzdopen(0, "rb") : gzopen(path.c_str(), "rb");
  if (!file) return cannot(errno ? std::strerror(errno) : "out of memory");
  gzbuffer(file, 1 << 18);
  std::string text;
  std::vector<char> buffer(1 << 20);
  int count = 0;
  while ((count = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0) {
    text.append(buffer.data(), static_cast<size_t>(count));
    if (cannot_be_json(text, text.size() - static_cast<size_t>(count))) break;
    if (text.size() > kLargestText) {
      gzclose(file);
      return broken(path, fmt::format("holds more than {} MiB of text", kLargestText >> 20));
    }
  }
  int code = Z_OK;
  const std::string why = gzerror(file, &code);
  const int system = errno;
  gzclose(file);
  if (code == Z_ERRNO) return cannot(std::strerror(system));
  if (code != Z_OK && code != Z_STREAM_END)
    return broken(path, fmt::format("is a broken gzip file after {} bytes of text", text.size()));
  return text;
}

Result<std::string> first_key(const std::string& path, const std::string& text,
                              const std::vector<std::string>& keys) {
  KeyFinder finder(path, text, keys);
  Json::sax_parse(text, &finder);
  if (finder.error) return *finder.error;
  return finder.found;
}

Result<Instance> read_instance(const std::string& path, const std::string& text) {
  InstanceReader reader(path, text);
  Json::sax_parse(text, &reader);
  if (reader.error) return *reader.error;
  Arrays& a = reader.arrays;
  const char* names[] = {"nodes.intervals", "nodes.costs", "nodes.usages", "edges.nodes",
                         "edges.costs"};
  for (int i = 0; i < 5; ++i)
    if (!a.has[i]) return wrong(path, fmt::format("`problem.{}`", names[i]), "is missing");
  if (auto error = check_nodes(path, a)) return *error;
  if (auto error = check_edges(path, a)) return *error;
  Instance instance;
  instance.name = a.name;
  Problem& problem = instance.problem;
  problem.budget = a.limit;
  problem.nodes.resize(a.costs.size());
  for (size_t i = 0; i < a.costs.size(); ++i) {
    problem.nodes[i].cost = std::move(a.costs[i]);
    if (a.intervals[i].size() == 2 && a.intervals[i][0] < a.intervals[i][1])
      problem.nodes[i].lives.push_back(
          {a.intervals[i][0], a.intervals[i][1], std::move(a.usages[i])});
  }
  problem.edges.resize(a.ends.size());
  for (size_t e = 0; e < a.ends.size(); ++e)
    problem.edges[e] = {static_cast<int>(a.ends[e][0]), static_cast<int>(a.ends[e][1]),
                        std::move(a.edge_costs[e])};
  return instance;
}

}  // namespace cad::planner::solver
