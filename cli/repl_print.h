// cli/repl_print.h -- tensors as text: dtype and dims with their sizes, then the values in nested
// brackets, long dims cut to their ends.
#pragma once

#include <string>

#include "cli/repl_evaluate.h"

namespace cad::cli {

// "f32[B = 2, D = 3]\n[[ 1  2  3]\n [ 4  5  6]]\n"; of rank 0 the number alone.
std::string tensor_text(const NamedTensor& tensor);
std::string element_text(double value, ir::DType dtype);  // "0.693147", "true", "-inf"

}  // namespace cad::cli
