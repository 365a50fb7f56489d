// ir/op_pointwise_grad.h -- gradient rules of the pointwise ops, defined in op_pointwise_grad.cc
// and put in the registry by op_pointwise.cc.
#pragma once

#include "ir/op.h"

namespace cad::ir {

#define CAD_GRAD(name) \
  std::vector<ValueId> name##_grad(Builder& b, NodeId node, std::span<const ValueId> grads)
CAD_GRAD(add);
CAD_GRAD(sub);
CAD_GRAD(mul);
CAD_GRAD(div);
CAD_GRAD(mod);
CAD_GRAD(pow);
CAD_GRAD(min);
CAD_GRAD(max);
CAD_GRAD(neg);
CAD_GRAD(abs);
CAD_GRAD(exp);
CAD_GRAD(log);
CAD_GRAD(sqrt);
CAD_GRAD(rsqrt);
CAD_GRAD(sin);
CAD_GRAD(cos);
CAD_GRAD(tanh);
CAD_GRAD(erf);
CAD_GRAD(sigmoid);
CAD_GRAD(softplus);
CAD_GRAD(where);
CAD_GRAD(cast);
CAD_GRAD(broadcast);
#undef CAD_GRAD

}  // namespace cad::ir
