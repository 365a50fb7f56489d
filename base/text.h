// base/text.h -- small questions about text that several folders ask: numbers as people write them,
// what of foreign text a message may show. Times and amounts of memory: planner/plan_text.h.
#pragma once

#include <string>
#include <string_view>

namespace cad {

// "12,596,224"; three digits from 1e15 on ("1.23e+15"); NaN: empty.
std::string count_text(double whole);

// Without white space at its ends.
std::string trimmed(std::string_view text);

// For a message: `most` characters, without what a terminal would obey.
std::string printable(std::string_view text, size_t most);

}  // namespace cad
