// ir/op_pointwise_value.h -- what a pointwise op makes of one element, in double: the reference
// semantics (ir/op_pointwise.cc), also used where constants are folded (ir/simplify.cc). Rounding
// to the result's dtype is the caller's.
#pragma once

#include "ir/op.h"

namespace cad::ir {

// `x`: the operands' values, as many as the op takes and at least two; bool is 0 or 1.
double pointwise_value(Op op, const double* x, DType operand, DType result);

}  // namespace cad::ir
