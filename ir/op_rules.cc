// ir/op_rules.cc -- helpers of the family files: dims as sets, shape errors, size equations, axes.
#include "ir/op_rules.h"

#include <algorithm>

#include "ir/shard.h"

namespace cad::ir {

using Code = ShapeError::Code;

bool contains(const Dims& dims, DimId dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

bool contains_all(const Dims& dims, const Dims& others) {
  return std::all_of(others.begin(), others.end(), [&](DimId d) { return contains(dims, d); });
}

Dims without(const Dims& dims, const Dims& gone) {
  Dims left;
  for (DimId d : dims) {
    if (!contains(gone, d)) left.push_back(d);
  }
  return left;
}

Dims joined(const Dims& first, const Dims& then) {
  Dims all = first;
  for (DimId d : then) {
    if (!contains(all, d)) all.push_back(d);
  }
  return all;
}

Dims replaced(const Dims& dims, DimId from, const Dims& to) {
  Dims result;
  for (DimId d : dims) {
    if (d == from) {
      result.insert(result.end(), to.begin(), to.end());
    } else {
      result.push_back(d);
    }
  }
  return result;
}

std::optional<DimId> duplicate(const Dims& dims) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (std::find(dims.begin(), dims.begin() + static_cast<ptrdiff_t>(i), dims[i]) !=
        dims.begin() + static_cast<ptrdiff_t>(i)) {
      return dims[i];
    }
  }
  return std::nullopt;
}

bool same_set(const Dims& a, const Dims& b) {
  return a.size() == b.size() && contains_all(a, b) && contains_all(b, a);
}

std::string names(const Graph& g, const Dims& dims) {
  std::string text;
  for (DimId d : dims) text += (text.empty() ? "`" : ", `") + g.dim(d).name + "`";
  return text;
}

ShapeResult failed(Code code, int operand, Dims dims, std::string detail) {
  ShapeError error;
  error.code = code;
  error.operand = operand;
  error.dims = std::move(dims);
  error.detail = std::move(detail);
  ShapeResult result;
  result.errors.push_back(std::move(error));
  return result;
}

ShapeResult typed(DType dtype, Dims dims) {
  ShapeResult result;
  Type type;
  type.dtype = dtype;
  type.dims = std::move(dims);
  result.types.push_back(std::move(type));
  return result;
}

std::optional<ShapeResult> wrong_dtype(const Graph& g, Values operands, int operand,
                                       Accepts accepts) {
  const DType dtype = g.type(operands[static_cast<size_t>(operand)]).dtype;
  const char* wanted = nullptr;
  switch (accepts) {
    case Accepts::kFloat:
      wanted = is_float(dtype) ? nullptr : "a float type";
      break;
    case Accepts::kNumber:
      wanted = dtype == DType::kBool ? "a number type" : nullptr;
      break;
    case Accepts::kI32:
      wanted = dtype == DType::kI32 ? nullptr : "`i32`";
      break;
    case Accepts::kBool:
      wanted = dtype == DType::kBool ? nullptr : "`bool`";
      break;
    case Accepts::kAny:
      break;
  }
  if (wanted == nullptr) return std::nullopt;
  return failed(Code::kDType, operand, {},
                fmt::format("{} is wanted, this is `{}`", wanted, dtype_name(dtype)));
}

std::optional<ShapeResult> wrong_operands(const Graph& g, Values operands,
                                          std::initializer_list<Accepts> accepts) {
  if (operands.size() != accepts.size()) {
    return failed(
        Code::kOther, -1, {},
        fmt::format("{} operands are wanted, there are {}", accepts.size(), operands.size()));
  }
  int at = 0;
  for (Accepts a : accepts) {
    if (auto wrong = wrong_dtype(g, operands, at++, a)) return wrong;
  }
  return std::nullopt;
}

std::optional<ShapeResult> missing(const Graph& g, Values operands, int operand,
                                   const Dims& wanted) {
  const Type& type = g.type(operands[static_cast<size_t>(operand)]);
  Dims absent = without(wanted, type.dims);
  if (absent.empty()) return std::nullopt;
  std::string detail = fmt::format("{} {} not among the dims of {}", names(g, absent),
                                   absent.size() == 1 ? "is" : "are", g.str(type));
  return failed(Code::kMissingDim, operand, std::move(absent), std::move(detail));
}

std::optional<ShapeResult> repeated(const Graph& g, const Dims& dims) {
  auto twice = duplicate(dims);
  if (!twice) return std::nullopt;
  return failed(Code::kDuplicateDim, -1, {*twice},
                fmt::format("the result would hold `{}` twice", g.dim(*twice).name));
}

std::optional<ShapeResult> unknown(const Graph& g, const Dims& dims) {
  for (DimId d : dims) {
    if (!d.valid() || static_cast<size_t>(d.index) >= g.dims.size()) {
      return failed(Code::kOther, -1, {}, fmt::format("no dim {} in the graph", d.index));
    }
  }
  return std::nullopt;
}

namespace {

void require(ShapeResult& result, const Size& left, const Size& right, Dims dims,
             const std::string& what, bool at_most) {
  // The difference decides: 0 is equal, another constant is never equal, else it depends.
  if (left == right) return;
  const auto difference = (left - right).constant();
  if (difference && at_most && *difference <= 0) return;
  if (!difference) {
    Condition condition;
    condition.left = left;
    condition.right = right;
    condition.what = what;
    condition.at_most = at_most;
    result.conditions.push_back(std::move(condition));
    return;
  }
  ShapeError error;
  error.code = Code::kSizeMismatch;
  error.dims = std::move(dims);
  error.detail =
      fmt::format("{}: {} is {} {}", what, left.str(), at_most ? "more than" : "not", right.str());
  result.errors.push_back(std::move(error));
}

}  // namespace

void require_equal(ShapeResult& result, const Size& left, const Size& right, Dims dims,
                   const std::string& what) {
  require(result, left, right, std::move(dims), what, false);
}

void require_at_most(ShapeResult& result, const Size& left, const Size& right, Dims dims,
                     const std::string& what) {
  require(result, left, right, std::move(dims), what, true);
}

int Axes::position(DimId dim) const {
  auto at = std::find(dims.begin(), dims.end(), dim);
  return at == dims.end() ? -1 : static_cast<int>(at - dims.begin());
}

int64_t extent_of(const Graph& g, DimId dim, const Bindings& bindings) {
  const Size::Evaluated size = g.dim(dim).size.evaluate(bindings);
  CAD_CHECK(size.ok(), "dim `{}` = {} has no size: {}", g.dim(dim).name, g.dim(dim).size.str(),
            size.detail);
  return size.value;
}

Axes axes_of(const Graph& g, Dims dims, const Bindings& bindings) {
  Axes axes;
  for (DimId d : dims) axes.extents.push_back(extent_of(g, d, bindings));
  axes.dims = std::move(dims);
  return axes;
}

Tensor filled(const Graph& g, const Type& type, const Bindings& bindings, double value) {
  Tensor tensor;
  tensor.dtype = type.dtype;
  tensor.extents = extents_of(g, type, bindings);
  int64_t count = 1;
  for (int64_t e : tensor.extents) count *= e;
  tensor.data.assign(static_cast<size_t>(count), value);
  return tensor;
}

Shard shard_of(const Graph& g, DimId dim, const EvalContext& context) {
  const auto at = static_cast<size_t>(dim.index);
  if (at < context.shards.size() && context.shards[at].whole >= 0) return context.shards[at];
  return {0, extent_of(g, dim, context.bindings)};
}

Shard place_in_whole(const Graph& g, DimId dim, const EvalContext& context) {
  const DimId whole = g.dim(dim).whole;
  const auto at = static_cast<size_t>(dim.index);
  const bool given = at < context.shards.size() && context.shards[at].whole >= 0;
  if (given || !whole.valid()) return shard_of(g, dim, context);
  return {shard_offset(g, dim, context.coordinates, context.bindings),
          extent_of(g, whole, context.bindings)};
}

bool counts_rows(const Graph& g, DimId dim) {
  if (!g.batch_dim.valid()) return false;
  return dim == g.batch_dim || g.dim(dim).whole == g.batch_dim;
}

double evaluated(const Scalar& scalar, const Bindings& bindings) {
  auto value = scalar.evaluate(bindings);
  CAD_CHECK(value.has_value(), "scalar `{}` has a free symbol", scalar.str());
  return *value;
}

}  // namespace cad::ir
