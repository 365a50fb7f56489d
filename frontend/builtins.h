// frontend/builtins.h -- what the builtin functions share: arguments by position and name, dims
// from brackets, constants. The functions are in builtins_<concern>.cc, the table in builtins.cc.
#pragma once

#include <initializer_list>

#include "frontend/elaborator.h"

namespace cad::frontend {

// The values of a call in the order of `names`; absent ones are null. Errors are reported.
struct BuiltinArgs {
  bool ok = false;
  std::vector<const EValue*> values;
  std::vector<Span> spans;
  const EValue* operator[](size_t i) const { return values[i]; }
};
BuiltinArgs take(Elaborator& e, const Call& call, std::initializer_list<const char*> names,
                 size_t required);
bool no_dims(Elaborator& e, const Call& call);
// Exactly `count` items of kind plain or arrow as `forms` say: "T" or "N -> T", for the message.
bool dim_items(Elaborator& e, const Call& call, size_t count, bool arrows, const char* form);
std::optional<DimList> side(Elaborator& e, const Call& call, const DimSide& s);

std::optional<ir::ValueId> tensor(Elaborator& e, const Call& call, const EValue* v,
                                  std::optional<ir::DType> like = std::nullopt);
// A float tensor; i32 and bool are an error with a cast as help.
std::optional<ir::ValueId> float_tensor(Elaborator& e, const Call& call, const EValue* v);
std::optional<ir::Scalar> number(Elaborator& e, const Call& call, const EValue* v, const char* name,
                                 double fallback);
std::optional<ir::Size> whole(Elaborator& e, const Call& call, const EValue* v, const char* name,
                              int64_t fallback);
std::optional<int64_t> known_whole(Elaborator& e, const Call& call, const ir::Size& s,
                                   const char* name);
Elaborator::Site site(const Call& call, std::initializer_list<const EValue*> values);
EValue result(Elaborator& e, const Call& call, std::optional<ir::ValueId> v);
// Dims of `v` must hold all of `dims`; reports.
bool has_dims(Elaborator& e, const Call& call, const EValue& shown, ir::ValueId v,
              const DimList& dims);

// clang-format off
#define CAD_BUILTINS(X) \
  X(exp) X(log) X(sqrt) X(rsqrt) X(abs) X(sin) X(cos) X(tanh) X(erf) X(sigmoid) \
  X(softplus) X(relu) X(gelu) X(silu) X(clamp) X(where) X(stop) X(f32) X(bf16) X(f16) \
  X(i32) X(bool) X(sum) X(mean) X(max) X(min) X(logsumexp) X(argmax) X(softmax) \
  X(log_softmax) X(cumsum) X(causal) X(rope) X(cross_entropy) X(nll) X(mse) X(bce) \
  X(one_hot) X(load_balance) X(concat) X(stack) X(pad) X(flip) X(topk) X(dispatch) \
  X(combine) X(tril) X(upsample) X(conv) X(max_pool) X(avg_pool) X(dropout) X(normal) \
  X(uniform) X(bernoulli)
// clang-format on
#define CAD_DECLARE_BUILTIN(name) EValue builtin_##name(Elaborator& e, Call& call);
CAD_BUILTINS(CAD_DECLARE_BUILTIN)
#undef CAD_DECLARE_BUILTIN

}  // namespace cad::frontend
