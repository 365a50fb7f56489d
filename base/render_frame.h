// base/render_frame.h -- the source frame of a diagnostic: its lines with carets and labels.
#pragma once

#include <string>

#include "base/diagnostic.h"

namespace cad {

struct FrameText {
  std::string text;   // empty when the diagnostic has no place
  size_t gutter = 1;  // width of the line-number column, for the notes below
};
FrameText render_frame(const Diagnostic& diagnostic, const Sources& sources, bool color);

}  // namespace cad
