// tests/ir/ir_testing.h -- a bench for graphs in tests: named dims, inputs with generated values,
// evaluation by the reference interpreter. Dims are symbolic; the bindings come at evaluation.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/interpreter.h"
#include "ir/op_rules.h"
#include "ir/text.h"

namespace cad::ir {

inline Attrs over(Dims dims) {
  Attrs attrs;
  attrs.dims = std::move(dims);
  return attrs;
}
inline Attrs along(DimId dim, DimId to = {}, DimId window = {}) {
  Attrs attrs;
  attrs.dim = dim;
  attrs.to = to;
  attrs.window = window;
  return attrs;
}

class Bench {
 public:
  Graph g;
  Builder b{g, RegionId{0}};
  Bindings bindings;
  DType dtype = DType::kF32;   // what x() gives
  std::vector<Tensor> values;  // of the inputs, made by fill()

  // The dim of this name, its size a symbol of that name (or a given one).
  DimId dim(const std::string& name) {
    DimId found = g.find_dim(name);
    return found.valid() ? found : g.add_dim(name, Size::symbol(name));
  }
  Dims dims(const std::vector<std::string>& names) {
    Dims ids;
    for (const auto& name : names) ids.push_back(dim(name));
    return ids;
  }
  Type type(DType t, const std::vector<std::string>& names) { return {t, dims(names)}; }

  // An f32 parameter with values in [lo, hi), as the bench's dtype.
  ValueId x(const std::string& name, const std::vector<std::string>& names, double lo = -2,
            double hi = 2) {
    ValueId value = raw(name, type(DType::kF32, names), InputKind::kParam,
                        [=, this](size_t) { return lo + (hi - lo) * random(); });
    return b.cast(value, dtype);
  }
  // i32 data from -1 to the size of `limit`: both ends are outside.
  ValueId ids(const std::string& name, const std::vector<std::string>& names,
              const std::string& limit) {
    return raw(name, type(DType::kI32, names), InputKind::kData, [=, this](size_t) {
      return std::floor(random() * static_cast<double>(bindings.at(limit) + 2)) - 1;
    });
  }
  ValueId bools(const std::string& name, const std::vector<std::string>& names) {
    return raw(name, type(DType::kBool, names), InputKind::kData,
               [this](size_t) { return random() < 0.5; });
  }
  // Given values, row-major.
  ValueId given(const std::string& name, Type t, std::vector<double> data) {
    return raw(name, std::move(t), InputKind::kData, [=](size_t i) { return data.at(i); });
  }
  ValueId number(int value) { return b.constant(static_cast<double>(value), DType::kI32); }

  void output(ValueId value, const std::string& name = "result") {
    g.outputs.push_back({name});
    g.regions[0].results.push_back(value);
  }

  void fill() {
    values.clear();
    for (size_t i = 0; i < g.inputs.size(); ++i) {
      Tensor t = filled(g, g.type(g.inputs[i].value), bindings, 0);
      for (size_t k = 0; k < t.data.size(); ++k) t.data[k] = makers_[i](k);
      values.push_back(std::move(t));
    }
  }
  std::vector<Tensor> run(EvalContext context = {}) {
    fill();
    context.bindings = bindings;
    return interpret(g, values, context);
  }
  // The one value asked for, evaluated.
  std::vector<double> eval(ValueId value, EvalContext context = {}) {
    Bench copy = *this;
    copy.g.outputs.clear();
    copy.g.regions[0].results.clear();
    copy.output(value);
    return copy.run(std::move(context))[0].data;
  }
  Bench(const Bench& other)
      : g(other.g),
        bindings(other.bindings),
        dtype(other.dtype),
        values(other.values),
        makers_(other.makers_) {}
  Bench() = default;

  double random() {  // a plain LCG: the same on every machine
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<double>(state_ >> 40) * 0x1.0p-24;
  }

 private:
  using Maker = std::function<double(size_t)>;
  ValueId raw(const std::string& name, Type t, InputKind kind, Maker maker) {
    Input input;
    input.kind = kind;
    input.path = name;
    makers_.push_back(std::move(maker));
    return b.input(std::move(input), std::move(t));
  }
  std::vector<Maker> makers_;
  uint64_t state_ = 12345;
};

// The only error of a failed try_make, as text: "code: detail".
inline std::string error_of(Bench& t, Op op, std::vector<ValueId> operands, Attrs attrs = {}) {
  const auto made = t.b.try_make(op, std::move(operands), std::move(attrs));
  if (made.ok()) return "fine";
  static const char* const kCodes[] = {
      "not-subset", "missing-dim", "duplicate-dim", "size-mismatch", "dtype", "rank", "other"};
  const ShapeError& error = made.shape.errors[0];
  return std::string(kCodes[static_cast<size_t>(error.code)]) + ": " + error.detail;
}
inline std::string type_of(Bench& t, ValueId value) {
  return t.g.str(t.g.type(value));
}

}  // namespace cad::ir
