// backend/kernel_ir.cc -- prints kernel IR. The text is complete: two kernels with equal text are
// the same kernel, and compiled once.
#include "backend/kernel_ir.h"

#include <fmt/format.h>

#include "ir/op.h"

namespace cad::backend::kernel {

namespace {

std::string text(Slot s) {
  if (s == kZero) return "0";
  if (s == kOne) return "1";
  return fmt::format("n{}", s);
}

std::string text(const Linear& linear, const Stage& stage) {
  std::string out;
  auto add = [&out](const std::string& term) { out += (out.empty() ? "" : " + ") + term; };
  if (linear.offset != kZero) add(text(linear.offset));
  for (size_t d = 0; d < linear.strides.size() && d < stage.dims.size(); ++d) {
    if (linear.strides[d] == kZero) continue;
    add(linear.strides[d] == kOne ? fmt::format("i{}", d)
                                  : fmt::format("{}*i{}", text(linear.strides[d]), d));
  }
  return out.empty() ? "0" : out;
}

const char* text(Reduction::Kind kind) {
  static constexpr const char* kNames[] = {"sum", "max", "min", "argmax"};
  return kNames[static_cast<int>(kind)];
}

std::string address(const Expr& e, const Stage& stage) {
  std::string out = text(e.linear, stage);
  for (const auto& [index, stride] : e.dynamic)
    out += fmt::format(" + {}*%{}", text(stride), index);
  return out;
}

std::string text(const Expr& e, const Stage& stage) {
  std::string out;
  switch (e.kind) {
    case Expr::Kind::kConst:
      out = fmt::format("const {}", e.value);
      break;
    case Expr::Kind::kLoad:
      out = fmt::format("load b{}[{}]", e.buffer, address(e, stage));
      break;
    case Expr::Kind::kIndex:
      out = fmt::format("index {}", address(e, stage));
      break;
    case Expr::Kind::kReduction:
      out = fmt::format("reduced r{}", e.reduction);
      break;
    case Expr::Kind::kOp:
      out = ir::op_name(e.op);
      break;
    case Expr::Kind::kRandom:
      out = fmt::format("random_{} site {:x} [{}; rows {}*; {}]", ir::op_name(e.op), e.site,
                        address(e, stage), text(e.row_stride), text(e.rows, stage));
      break;
  }
  for (ExprId o : e.operands) out += fmt::format(" %{}", o);
  if (e.predicate >= 0) out += fmt::format(" if %{}", e.predicate);
  out += fmt::format(" : {}", ir::dtype_name(e.dtype));
  if (e.rounds != ir::DType::kF32) out += fmt::format(" rounded to {}", ir::dtype_name(e.rounds));
  return out;
}

std::string text(const Stage& stage) {
  std::string out;
  static constexpr const char* kRoles[] = {"parallel", "sequential", "inner"};
  for (size_t d = 0; d < stage.dims.size(); ++d) {
    const LoopDim& dim = stage.dims[d];
    out += fmt::format("  {} i{} < {}", kRoles[static_cast<int>(dim.role)], d, text(dim.extent));
    if (dim.chunk_of >= 0) out += fmt::format(", chunk i{} of {}", dim.chunk_of, text(dim.chunk));
    out += dim.lanes ? ", lanes\n" : "\n";
  }
  for (size_t e = 0; e < stage.exprs.size(); ++e)
    out += fmt::format("  %{} = {}\n", e, text(stage.exprs[e], stage));
  for (int phase = 0; phase < stage.phases; ++phase) {
    out += fmt::format("  phase {}\n", phase);
    for (size_t r = 0; r < stage.reductions.size(); ++r) {
      const Reduction& reduction = stage.reductions[r];
      if (reduction.phase != phase) continue;
      out += fmt::format("    r{} = {} %{}", r, text(reduction.kind), reduction.operand);
      if (reduction.index >= 0) out += fmt::format(" at %{}", reduction.index);
      out += fmt::format(" : {}\n", ir::dtype_name(reduction.dtype));
    }
    for (const Store& s : stage.stores) {
      if (s.phase != phase) continue;
      out += fmt::format("    {}b{}[{}] {} %{}\n", s.row ? "row " : "", s.buffer,
                         text(s.linear, stage),
                         s.accumulate ? fmt::format("{}=", text(s.combine)) : "=", s.expr);
    }
  }
  return out;
}

}  // namespace

std::string Kernel::str() const {
  std::string out;
  for (size_t b = 0; b < buffers.size(); ++b) {
    out += fmt::format("buffer b{}: {}{}", b, ir::dtype_name(buffers[b].dtype),
                       buffers[b].written ? " out" : "");
    if (buffers[b].scratch) out += fmt::format(" scratch at {}", text(buffers[b].scratch_offset));
    out += "\n";
  }
  for (size_t s = 0; s < stages.size(); ++s) out += fmt::format("stage {}\n{}", s, text(stages[s]));
  return out;
}

}  // namespace cad::backend::kernel
