#include "base/suggest.h"

#include <algorithm>
#include <cctype>

namespace cad {

int edit_distance(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  };
  const size_t columns = b.size() + 1;
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(columns, 0));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int cost = same(a[i - 1], b[j - 1]) ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + cost});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

std::optional<std::string> suggest(std::string_view word,
                                   const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 64;  // longer names are no typing slips, and would cost time
  if (word.empty() || word.size() > kLongest) return std::nullopt;
  int best = 2 + static_cast<int>(word.size()) / 4;
  std::optional<std::string> found;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongest || candidate == word) continue;
    const int distance = edit_distance(word, candidate);
    // A one-letter name is near every other: it must share its letter.
    if (distance < best && distance < static_cast<int>(std::max(word.size(), candidate.size()))) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

}  // namespace cad
