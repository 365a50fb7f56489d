// base/suggest.h -- "did you mean": the nearest of some names, for flags, keys, dims and ops alike.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cad {

// Damerau-Levenshtein distance (adjacent transpositions count 1); a change of case costs 0.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word` within distance 1 + len/4 (the first of equals), if any.
std::optional<std::string> suggest(std::string_view word,
                                   const std::vector<std::string>& candidates);

}  // namespace cad
