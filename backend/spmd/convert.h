// backend/spmd/convert.h -- appends the ops that bring a tensor from one layout to another: the
// steps of planner/conversion.h, each as a collective and the views around it. A dim that does not
// divide is padded before it is cut and sliced after it is joined. A permute sends each device what
// it lacks, so it also does several steps in a row that only move parts: they move once.
#pragma once

#include <vector>

#include "backend/spmd/local_dims.h"
#include "planner/conversion.h"

namespace cad::backend {

class Converter {
 public:
  Converter(LocalDims& dims, const planner::Mesh& mesh) : dims_(dims), conversions_(mesh) {}

  // `x` holds a tensor of type `whole` in layout `from` (dims before those of `whole` stay as they
  // are); returns it in layout `to`.
  ir::ValueId convert(ir::Builder& b, ir::ValueId x, const ir::Type& whole,
                      const planner::Layout& from, const planner::Layout& to);

 private:
  using Step = planner::Step;
  // How the tensor lies: by position, the axes that split it.
  using State = std::vector<AxisOrder>;
  ir::ValueId apply(ir::Builder& b, ir::ValueId x, const ir::Type& whole, const Step& step);
  ir::ValueId cut(ir::Builder& b, ir::ValueId x, ir::DimId whole, AxisOrder& axes, int8_t axis);
  ir::ValueId join(ir::Builder& b, ir::ValueId x, ir::DimId whole, AxisOrder& axes);
  ir::ValueId shrink(ir::Builder& b, ir::ValueId x, const ir::Type& whole, State& at,
                     const State& to, bool collective);
  ir::ValueId grow(ir::Builder& b, ir::ValueId x, const ir::Type& whole, State& at, const State& to,
                   bool reduce);
  bool exchange(ir::Builder& b, ir::ValueId& x, const ir::Type& whole, State& at, const State& to);
  ir::ValueId permute(ir::Builder& b, ir::ValueId x, const ir::Type& whole, const State& from,
                      const State& to);

  LocalDims& dims_;
  planner::Conversions conversions_;
};

}  // namespace cad::backend
