// cli/sweep.cc -- see sweep.h.
#include "cli/sweep.h"

#include <charconv>
#include <limits>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/diagnostic.h"

namespace cad::cli {

namespace {

Diagnostic bad(const std::string& text, const std::string& why) {
  Diagnostic error =
      make_error(DiagId::E0512, fmt::format("`--sweep {}`: {}", text, why), kExitUsage);
  error.help("write `T=1024:65536:x2`, `T=1024:8192:+1024` or `T=512,1024,4096`");
  return error;
}

enum class Fault { kNone, kForm, kLarge };

Fault read(const std::string& text, int64_t& value) {
  std::string digits;
  for (char c : text) {
    if (c != '_') digits += c;
  }
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::result_out_of_range) return Fault::kLarge;
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0)
    return Fault::kForm;
  return Fault::kNone;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::optional<std::string> fault_of(const std::string& text, int64_t& value) {
  switch (read(text, value)) {
    case Fault::kNone:
      return std::nullopt;
    case Fault::kLarge:
      return fmt::format("`{}` is past 64 bits", text);
    case Fault::kForm:
      break;
  }
  return fmt::format("`{}` is not a whole number", text);
}

}  // namespace

Result<Sweep> parse_sweep(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return bad(text, "it names no values");
  Sweep sweep;
  sweep.dim = text.substr(0, equals);
  const std::string values = text.substr(equals + 1);
  if (values.find(':') == std::string::npos) {
    for (const std::string& part : split(values, ',')) {
      int64_t value = 0;
      if (auto fault = fault_of(part, value)) return bad(text, *fault);
      sweep.values.push_back(value);
    }
    return sweep;
  }
  const std::vector<std::string> parts = split(values, ':');
  if (parts.size() != 3) return bad(text, "a range is FROM:TO:STEP");
  int64_t from = 0, to = 0, step = 0;
  if (auto fault = fault_of(parts[0], from)) return bad(text, *fault);
  if (auto fault = fault_of(parts[1], to)) return bad(text, *fault);
  const char kind = parts[2].empty() ? '\0' : parts[2][0];
  if (kind != 'x' && kind != '+')
    return bad(text, fmt::format("the step `{}` starts with neither `x` nor `+`", parts[2]));
  if (auto fault = fault_of(parts[2].substr(1), step)) return bad(text, *fault);
  if (from > to) return bad(text, fmt::format("{} is above {}", from, to));
  if (kind == '+' && step < 1) return bad(text, "a step of 0 goes nowhere");
  if (kind == 'x' && (step < 2 || from < 1))
    return bad(text, fmt::format("{} times {} does not grow", from, step));
  for (int64_t value = from; value <= to;) {
    if (sweep.values.size() == kMostPoints)
      return bad(text, fmt::format("more than {} values", kMostPoints));
    sweep.values.push_back(value);
    int64_t next = 0;
    if (kind == 'x' ? __builtin_mul_overflow(value, step, &next)
                    : __builtin_add_overflow(value, step, &next))
      break;  // past 64 bits is past `to`
    value = next;
  }
  return sweep;
}

Result<std::vector<ir::Bindings>> sweep_points(const std::vector<Sweep>& sweeps,
                                               const ir::Bindings& bindings) {
  std::vector<ir::Bindings> points = {bindings};
  std::set<std::string> seen;
  size_t count = 1;
  for (const Sweep& sweep : sweeps) {
    if (!seen.insert(sweep.dim).second)
      return bad(sweep.dim + "=..", fmt::format("`{}` is swept twice", sweep.dim));
    count *= sweep.values.size();
    if (count > kMostPoints) {
      return bad(sweep.dim + "=..", fmt::format("together more than {} combinations", kMostPoints));
    }
    std::vector<ir::Bindings> next;
    next.reserve(count);
    for (const ir::Bindings& point : points) {
      for (int64_t value : sweep.values) {
        next.push_back(point);
        next.back()[sweep.dim] = value;
      }
    }
    points = std::move(next);
  }
  return points;
}

}  // namespace cad::cli
