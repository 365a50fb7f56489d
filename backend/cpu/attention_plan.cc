// backend/cpu/attention_plan.cc -- strides, offsets and scratch of an attention step.
#include <algorithm>
#include <cmath>

#include "backend/cpu/attention.h"
#include "backend/cpu/attention_scratch.h"
#include "backend/cpu/gemm_kernels.h"
#include "base/check.h"
#include "ir/random.h"
#include "ir/shard.h"

namespace cad::backend {

namespace {

class Planner {
 public:
  Planner(const ir::Graph& g, const ir::Node& node, const std::vector<Layout>& layouts,
          const ir::Bindings& bindings)
      : g_(g), node_(node), layouts_(layouts), bindings_(bindings) {
    const bool backward = node.op == ir::Op::kAttentionGrad;
    const std::vector<ir::ValueId>& in = node.operands;
    size_t next = 0;
    q = in[next++];
    k = in[next++];
    v = in[next++];
    out = backward ? in[next++] : node.results[0];
    lse = backward ? in[next++] : node.results[1];
    if (backward) this->g = in[next++];
    if (node.attrs.masked) mask = in[next++];
    loop_numbers = static_cast<int>(in.size() - next);
    if (!backward) return;
    dq = node.results[0];
    dk = node.results[1];
    dv = node.results[2];
  }

  [[nodiscard]] int64_t extent(ir::DimId dim) const {
    return g_.dim(dim).size.evaluate(bindings_).value;
  }

  // 0 where the value is absent or lacks the dim.
  [[nodiscard]] int64_t stride(ir::ValueId v, ir::DimId dim) const {
    if (!v.valid()) return 0;
    const int at = g_.type(v).position(dim);
    return at < 0 ? 0 : layouts_[static_cast<size_t>(v.index)].strides[static_cast<size_t>(at)];
  }

  // Offsets of all elements of some dims, row-major.
  [[nodiscard]] std::vector<int64_t> offsets(ir::ValueId v,
                                             const std::vector<ir::DimId>& dims) const {
    std::vector<int64_t> all{0};
    for (const ir::DimId dim : dims) {
      std::vector<int64_t> next;
      for (const int64_t offset : all) {
        for (int64_t i = 0; i < extent(dim); ++i) next.push_back(offset + i * stride(v, dim));
      }
      all = std::move(next);
    }
    return all;
  }

  [[nodiscard]] AttentionDim dim(ir::DimId id) const {
    AttentionDim d;
    d.extent = extent(id);
    d.q = stride(q, id);
    d.k = stride(k, id);
    d.v = stride(v, id);
    d.out = stride(out, id);
    d.lse = stride(lse, id);
    d.mask = stride(mask, id);
    d.g = stride(g, id);
    d.dq = stride(dq, id);
    d.dk = stride(dk, id);
    d.dv = stride(dv, id);
    const std::vector<ir::DimId>& probs = node_.attrs.probs;
    d.probs = 1;
    if (!g_.dim(id).axes.empty()) d.part = id;
    const int batch = batch_position(g_, probs);
    d.is_rows = batch >= 0 && probs[static_cast<size_t>(batch)] == id;
    for (size_t i = probs.size(); i-- > 0 && probs[i] != id;) {
      if (static_cast<int>(i) == batch) {
        d.before_rows = true;
      } else {
        d.probs *= extent(whole_dim(g_, probs[i]));
      }
    }
    return d;
  }

  [[nodiscard]] int64_t elements(ir::ValueId value) const {
    int64_t n = 1;
    for (const ir::DimId id : g_.type(value).dims) n *= extent(id);
    return n;
  }

  // The dims of the rows and of the keys, the problems beside them, offsets along depth and width.
  void add_dims(AttentionPlan& plan) const;
  // After add_dims(): times every pair of a row and a key, half of them where they are causal.
  [[nodiscard]] double flops(const AttentionPlan& plan) const;

  ir::ValueId q, k, v, out, lse, mask, g, dq, dk, dv;
  int loop_numbers = 0;  // operands behind these

 private:
  const ir::Graph& g_;
  const ir::Node& node_;
  const std::vector<Layout>& layouts_;
  const ir::Bindings& bindings_;
};

void Planner::add_dims(AttentionPlan& plan) const {
  const std::vector<ir::DimId>& names = node_.attrs.dims;  // rows, keys, depth
  plan.t = dim(names[0]);
  plan.s = dim(names[1]);
  CAD_CHECK(!plan.s.part.valid(), "attention over a part of the keys");
  const std::vector<ir::DimId> depth{names[2]};
  std::vector<ir::DimId> width;
  for (const ir::DimId id : g_.type(v).dims) {
    if (id != names[1] && !g_.type(q).has(id)) width.push_back(id);
  }
  for (const ir::DimId id : node_.attrs.probs) {
    if (id == names[0] || id == names[1]) continue;
    const bool in_k = g_.type(k).has(id), in_v = g_.type(v).has(id);
    (in_k && in_v ? plan.shared : plan.own).push_back(dim(id));
    plan.adds = plan.adds || in_k != in_v;
  }
  plan.q_depth = offsets(q, depth);
  plan.k_depth = offsets(k, depth);
  plan.v_width = offsets(v, width);
  plan.out_width = offsets(out, width);
  if (!plan.backward) return;
  plan.dq_depth = offsets(dq, depth);
  plan.dk_depth = offsets(dk, depth);
  plan.g_width = offsets(g, width);
  plan.dv_width = offsets(dv, width);
}

double Planner::flops(const AttentionPlan& plan) const {
  double pairs = static_cast<double>(plan.t.extent) * static_cast<double>(plan.s.extent) *
                 (plan.causal ? 0.5 : 1.0);
  for (const std::vector<AttentionDim>* problems : {&plan.own, &plan.shared}) {
    for (const AttentionDim& d : *problems) pairs *= static_cast<double>(d.extent);
  }
  const auto depths = static_cast<double>(plan.q_depth.size()),
             widths = static_cast<double>(plan.v_width.size());
  return 2 * pairs * (plan.backward ? 3 * depths + 2 * widths : depths + widths);
}

// Who does what: no more threads than have something to do, and one for what is not worth a fork.
void share_out(AttentionPlan& plan, int threads) {
  constexpr double kWorthAFork = 200'000;  // flops
  const int64_t columns = gemm_kernels().columns;
  const int64_t groups = (plan.t.extent + columns - 1) / columns;
  const int64_t shared = total(plan.shared), inner = total(plan.own);
  if (plan.flops < kWorthAFork) threads = 1;
  plan.tasks = shared;
  if (!plan.backward) {
    const int64_t problems = shared * inner;
    plan.parts = std::clamp<int64_t>(3L * threads / std::max<int64_t>(problems, 1), 1,
                                     std::max<int64_t>(groups, 1));
    plan.tasks = problems * plan.parts;
  }
  if (groups * inner == 0) plan.tasks = 0;
  plan.threads = static_cast<int>(std::min<int64_t>(threads, plan.tasks));
}

}  // namespace

AttentionPlan plan_attention(const ir::Graph& g, const ir::Node& node,
                             const std::vector<Layout>& layouts, const ir::Bindings& bindings,
                             int threads) {
  AttentionPlan plan;
  plan.backward = node.op == ir::Op::kAttentionGrad;
  plan.causal = node.attrs.causal;
  plan.masked = node.attrs.masked;
  const Planner at(g, node, layouts, bindings);
  plan.loop_numbers = at.loop_numbers;
  const std::optional<double> scale = node.attrs.scalar.evaluate(bindings),
                              p = node.attrs.p.evaluate(bindings);
  CAD_CHECK(scale && p, "attention's scale `{}` or p `{}` has a free symbol",
            node.attrs.scalar.str(), node.attrs.p.str());
  plan.scale = static_cast<float>(*scale);
  plan.p = *p;
  plan.site = ir::site_hash(node.attrs.site);
  plan.dtype = g.type(at.q).dtype;
  at.add_dims(plan);
  plan.k_elements = at.elements(at.k);
  plan.v_elements = at.elements(at.v);
  plan.flops = at.flops(plan);
  share_out(plan, threads);
  plan.thread_floats = AttentionScratch(plan, nullptr).floats();
  plan.scratch_bytes = plan.thread_floats * 4 * plan.threads;
  return plan;
}

void set_attention_part(const AttentionPlan& plan, const ir::Graph& g, const ir::Bindings& bindings,
                        std::span<const int> coordinates, AttentionRun& run) {
  const auto offset = [&](const AttentionDim& d) {
    return d.part.valid() ? ir::shard_offset(g, d.part, coordinates, bindings) : 0;
  };
  int64_t element = 0;
  const auto add = [&](const AttentionDim& d) {
    element += offset(d) * (d.before_rows ? d.probs * run.step_rows : d.probs);
  };
  for (const AttentionDim& d : plan.shared) add(d);
  for (const AttentionDim& d : plan.own) add(d);
  add(plan.t);
  run.first_element = static_cast<uint64_t>(element);
  run.first_query = offset(plan.t);
}

}  // namespace cad::backend
