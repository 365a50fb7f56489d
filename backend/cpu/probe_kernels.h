// backend/cpu/probe_kernels.h -- small programs that `colauto probe` compiles and times: fused
// attention, its gradient, and a pointwise chain in the caches. What they measure are rates of the
// cost model (planner/cluster.h, CpuRates). Products and memory: backend/cpu/probe.cc.
#pragma once

#include <functional>

namespace cad::backend {

class ThreadPool;

// Operations a second by the counts of ir/op_costs.h.
struct KernelRates {
  double pointwise = 0;       // of tanh and what stands around it in a GELU, 256 KiB a thread
  double random = 0;          // bytes a second of dropout's random numbers
  double attention = 0;       // products of causal attention: 256 queries, heads of 64 channels;
  double attention_grad = 0;  // its softmax taken off at the rate of `pointwise`
};

// `median`: seconds of a function, by running it for a while.
KernelRates measure_kernels(ThreadPool& pool,
                            const std::function<double(const std::function<void()>&)>& median);

}  // namespace cad::backend
