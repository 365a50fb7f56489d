// base/text.cc -- see text.h.
#include "base/text.h"

#include <cmath>

#include <fmt/format.h>

namespace cad {

std::string count_text(double whole) {
  if (std::isnan(whole)) return "";
  if (!(std::abs(whole) < 1e15)) return fmt::format("{:.3g}", whole);
  std::string digits = fmt::format("{:.0f}", whole);
  for (size_t at = digits.size(); at > 3 && digits[at - 4] != '-';) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string trimmed(std::string_view text) {
  const size_t from = text.find_first_not_of(" \t\r\n");
  if (from == std::string_view::npos) return "";
  return std::string(text.substr(from, text.find_last_not_of(" \t\r\n") - from + 1));
}

std::string printable(std::string_view text, size_t most) {
  std::string out(text.substr(0, most));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text.size() > most ? out + ".." : out;
}

}  // namespace cad
