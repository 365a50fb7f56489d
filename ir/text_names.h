// ir/text_names.h -- spellings shared by the printer and the parser of the IR's text form.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include <fmt/format.h>

#include "ir/text.h"

namespace cad::ir {

// Parallel to the enumerators of InputKind, Init::Kind, Saving, Reduction and Input::Decay.
inline constexpr std::array<const char*, 4> kInputKinds = {"param", "state", "data", "other"};
inline constexpr std::array<const char*, 4> kInitKinds = {"zeros", "constant", "normal", "uniform"};
inline constexpr std::array<const char*, 4> kSavings = {"auto", "keep", "recompute", "checkpoint"};
inline constexpr std::array<const char*, 3> kReductions = {"sum", "max", "min"};
inline constexpr std::array<const char*, 3> kDecays = {"by_rank", "always", "never"};

std::string text_quote(const std::string& text);  // with \" \\ \n escaped
std::string text_word(const std::string& name);   // bare when it can be, else quoted
std::string text_scalar(const Scalar& scalar);    // 0.02, inf, "1 / sqrt(K)"

}  // namespace cad::ir
