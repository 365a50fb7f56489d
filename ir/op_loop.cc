// ir/op_loop.cc -- repeat's shape rule. The interpreter runs it (ir/interpreter.cc); its gradient
// is a pass's work (ir/autodiff_loop.cc), since it needs the body.
//
// (C1) operands: carries, scanned, invariants, as many as Node::loop says. (C2) the body's
// arguments are the number i32[], then the operands' types, scanned ones without their first dim,
// which is the loop's. (C3) the body's results are carries of unchanged type, then what is
// collected. (C4) what is collected does not hold the loop's dim.
#include "ir/op_rules.h"  // defines: failed, repeated, unknown

namespace cad::ir {

using Code = ShapeError::Code;

namespace {

ShapeResult no_shape(const Graph&, Values, const Attrs&) {
  return failed(Code::kOther, -1, {}, "a `repeat` is checked with its body: repeat_shape");
}

ShapeResult mismatch(const Graph& g, int operand, const char* what, const Type& is,
                     const Type& wanted) {
  return failed(is.dtype == wanted.dtype ? Code::kOther : Code::kDType, operand, is.dims,
                fmt::format("{} is {}, {} is wanted", what, g.str(is), g.str(wanted)));
}

}  // namespace

ShapeResult repeat_shape(const Graph& g, Values operands, const Loop& loop) {
  if (auto wrong = unknown(g, {loop.dim})) return *wrong;
  if (loop.body.index <= 0 || static_cast<size_t>(loop.body.index) >= g.regions.size()) {
    return failed(Code::kOther, -1, {}, fmt::format("no body {}", loop.body.index));
  }
  const Region& body = g.region(loop.body);
  const int count = loop.carries + loop.scanned + loop.invariants;
  if (loop.carries < 0 || loop.scanned < 0 || loop.invariants < 0 || loop.collected < 0 ||
      static_cast<int>(operands.size()) != count ||
      static_cast<int>(body.args.size()) != count + 1 ||
      static_cast<int>(body.results.size()) != loop.carries + loop.collected) {
    return failed(
        Code::kOther, -1, {},
        fmt::format(
            "{} carries, {} scanned, {} invariants, {} collected: the body has {} arguments and {} "
            "results, there are {} operands",
            loop.carries, loop.scanned, loop.invariants, loop.collected, body.args.size(),
            body.results.size(), operands.size()));
  }
  Type number;
  number.dtype = DType::kI32;
  if (g.type(body.args[0]) != number)
    return mismatch(g, -1, "the loop's number", g.type(body.args[0]), number);
  for (int i = 0; i < count; ++i) {
    Type wanted = g.type(operands[static_cast<size_t>(i)]);
    if (i >= loop.carries && i < loop.carries + loop.scanned) {
      if (wanted.dims.empty() || wanted.dims[0] != loop.dim) {
        return failed(
            Code::kMissingDim, i, {loop.dim},
            fmt::format("{} is not the first dim of {}", names(g, {loop.dim}), g.str(wanted)));
      }
      wanted.dims.erase(wanted.dims.begin());
    }
    const Type& argument = g.type(body.args[static_cast<size_t>(i) + 1]);
    if (argument != wanted) return mismatch(g, i, "the body's argument", argument, wanted);
  }
  ShapeResult result;
  for (int i = 0; i < loop.carries + loop.collected; ++i) {
    Type type = g.type(body.results[static_cast<size_t>(i)]);
    if (i < loop.carries) {
      const Type& entered = g.type(operands[static_cast<size_t>(i)]);
      if (type != entered)
        return mismatch(g, i, "a carried value at the body's end", type, entered);
    } else {
      type.dims.insert(type.dims.begin(), loop.dim);
      if (auto wrong = repeated(g, type.dims)) return *wrong;
    }
    result.types.push_back(std::move(type));
  }
  return result;
}

const OpInfo kRepeatInfo{"a loop: its body runs once for each index of its dim",
                         no_shape,
                         nullptr,
                         nullptr,
                         repeat_cost,
                         nullptr};

}  // namespace cad::ir
