// base/render.h -- diagnostics as text for people (frames with the source), one line each, or JSON.
// Sorted by file and position, errors without a place first; at most 20 errors a run are shown.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "base/diagnostic.h"

namespace cad {

struct RenderOptions {
  bool color = false;
  size_t limit = 20;  // errors shown; the rest is counted in a last line
};

std::string render_human(const Diagnostics& diagnostics, const Sources& sources,
                         const RenderOptions& options = {});
std::string render_human(const Diagnostic& diagnostic, const Sources& sources,
                         const RenderOptions& options = {});
// `file:line:col: error[E0203]: text`
std::string render_short(const Diagnostics& diagnostics, const Sources& sources,
                         const RenderOptions& options = {});
// {"schema":1,"diagnostics":[..]}, see docs/schema/check.json
nlohmann::json render_json(const Diagnostics& diagnostics, const Sources& sources,
                           const RenderOptions& options = {});

}  // namespace cad
