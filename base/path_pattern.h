// base/path_pattern.h -- patterns of parameter paths, as in an optimizer's `of: "h.*"`.
#pragma once

#include <string>

namespace cad {

// `*` is any run of characters, dots included; everything else stands for itself.
bool path_matches(const std::string& pattern, const std::string& path);

}  // namespace cad
