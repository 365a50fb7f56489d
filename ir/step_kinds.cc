// ir/step_kinds.cc -- see step_kinds.h.
#include "ir/step_kinds.h"

#include <string_view>

#include "ir/collective.h"
#include "ir/op.h"

namespace cad::ir {

bool is_library_step(Op op) {
  switch (op) {
    case Op::kContract:
    case Op::kScatterAdd:
    case Op::kTopK:
    case Op::kCumSum:
    case Op::kSlots:
    case Op::kRepeat:
    case Op::kAttention:
    case Op::kAttentionGrad:
      return true;
    default:
      return is_collective(op);
  }
}

bool wants_dense_operands(Op op) {
  return is_library_step(op) && op != Op::kContract && op != Op::kAttention &&
         op != Op::kAttentionGrad;
}

bool is_view_op(const Graph& g, const Node& n) {
  switch (n.op) {
    case Op::kRename:
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kSlice:
    case Op::kFlip:
    case Op::kBroadcast:
    case Op::kStop:
    case Op::kStepTotal:
    case Op::kAttach:
      return true;
    case Op::kCast:
      return g.type(n.operands[0]).dtype == g.type(n.results[0]).dtype;
    default:
      return false;
  }
}

bool is_costly(Op op) {
  switch (op) {
    case Op::kExp:
    case Op::kLog:
    case Op::kTanh:
    case Op::kErf:
    case Op::kSigmoid:
    case Op::kSoftplus:
    case Op::kSin:
    case Op::kCos:
    case Op::kPow:
    case Op::kSoftmax:
    case Op::kLogSumExp:
    case Op::kGather:
    case Op::kDropout:
    case Op::kNormal:
    case Op::kUniform:
    case Op::kBernoulli:
      return true;
    default:
      return false;
  }
}

bool is_light_arithmetic(Op op) {
  return std::string_view(op_family(op)) == "pointwise" && !is_costly(op);
}

}  // namespace cad::ir
