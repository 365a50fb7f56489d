// base/embedded.h -- files that travel inside the binary: stdlib/*.cad and docs/errors/*.md, so
// that a release needs nothing beside it. Paths are those of the repository.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace cad {

std::optional<std::string_view> embedded_file(std::string_view path);   // "stdlib/layers.cad"
std::vector<std::string_view> embedded_files(std::string_view prefix);  // sorted paths

}  // namespace cad
