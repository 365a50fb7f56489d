// frontend/constants.h -- constant expressions: numbers, `let`s and dims in value position, with
// arithmetic and functions on them. No tensors here; the elaborator folds with the same functions.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/diagnostic.h"
#include "frontend/ast.h"
#include "ir/scalar.h"

namespace cad::frontend {

struct Constant {
  enum class Kind { kError, kNumber, kBool } kind = Kind::kError;
  ir::Scalar number;
  bool whole = false;  // has no fraction, as far as the form tells
  int8_t flag = -1;    // kBool: 0, 1, or -1 when not known yet
  static Constant of(ir::Scalar number, bool whole);
  static Constant of(bool flag);
};

// What a name stands for; reports and gives kError when it is none.
using ConstantLookup = std::function<Constant(const std::string& name, Span span)>;
Constant evaluate_constant(const Ast& ast, ExprId expr, const ConstantLookup& lookup,
                           Diagnostics& diagnostics);

// a OP b of numbers; nullopt when OP is none of + - * / // % ^.
std::optional<ir::Scalar> fold(AstOp op, const ir::Scalar& a, const ir::Scalar& b);
bool fold_whole(AstOp op, bool a, bool b, const ir::Scalar& result);
// Comparison of known numbers: 0, 1, or -1 when a symbol is free.
int8_t fold_comparison(AstOp op, const ir::Scalar& a, const ir::Scalar& b,
                       const ir::Bindings& known);
// Functions of one number that are folded: exp log sqrt rsqrt abs sin cos tanh.
bool folds(const std::string& function);

}  // namespace cad::frontend
