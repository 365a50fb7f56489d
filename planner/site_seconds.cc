// planner/site_seconds.cc -- see site_seconds.h. The group is priced as one kernel: it reads what
// comes from outside and writes its output once.
#include "planner/site_seconds.h"

#include <algorithm>

namespace cad::planner {

using ir::DimId;
using ir::ValueId;

SiteSeconds::SiteSeconds(const SiteContext& c, const Site& site, const MadeInside& made)
    : c_(c), g_(*c.sites.graph), site_(site), made_(made) {
  for (size_t i = 0; i < site_.nodes.size(); ++i) measure(i);
}

bool SiteSeconds::is_contraction() const {
  return g_.node(site_.nodes[0]).op == ir::Op::kContract;
}

void SiteSeconds::measure(size_t i) {
  const std::vector<double> b(c_.extents.begin(), c_.extents.end());
  const ir::OpCost cost = ir::op_cost(g_, site_.nodes[i]);
  NodeWork w;
  w.matmul = cost.matmul.at(b);
  w.other = cost.other.at(b);
  w.bytes = cost.read.at(b) + cost.written.at(b);
  const ir::Node& n = g_.node(site_.nodes[i]);
  w.draws = drawn(n, b);
  w.gradients.resize(n.operands.size());
  double share = 0, parts = 0;  // gradients nobody wants are not computed
  for (size_t k = 0; k < n.operands.size(); ++k) {
    const ir::GradientCost& gradient = site_.backward[i].gradients[k];
    if (!gradient.exists) continue;
    GradientWork& work = w.gradients[k];
    work.matmul = gradient.cost.matmul.at(b);
    work.other = gradient.cost.other.at(b);
    work.wanted = c_.sites.active[static_cast<size_t>(n.operands[k].index)] != 0;
    work.free = work.matmul + work.other + gradient.cost.bytes().at(b) == 0;
    const double all = work.matmul + work.other + 1;
    parts += all;
    if (work.wanted) share += all;
  }
  if (parts > 0) {
    const ir::OpCost& back = site_.backward[i].total;
    w.back_matmul = back.matmul.at(b) * share / parts;
    w.back_other = back.other.at(b) * share / parts;
    w.back_bytes = (back.read.at(b) + back.written.at(b)) * share / parts;
  }
  work_.push_back(w);
}

// Random numbers: one an element of the result, or of attention's probabilities.
double SiteSeconds::drawn(const ir::Node& n, const std::vector<double>& extents) const {
  const bool attention = n.op == ir::Op::kAttention && n.attrs.p.number() != 0.0;
  const bool random = n.op == ir::Op::kDropout || n.op == ir::Op::kNormal ||
                      n.op == ir::Op::kUniform || n.op == ir::Op::kBernoulli;
  if (!attention && !random) return 0;
  double elements = 1;
  for (DimId d : attention ? n.attrs.probs : g_.type(n.results[0]).dims)
    elements *= extents[static_cast<size_t>(d.index)];
  return elements;
}

double SiteSeconds::bytes(ValueId v, int layout) const {
  return bytes_on_device(c_, v, table_of(c_, v).layouts()[static_cast<size_t>(layout)]);
}

double SiteSeconds::border_bytes(const SiteOption& o) const {
  double sum = 0;
  for (size_t i = 0; i < site_.inputs.size(); ++i) sum += bytes(site_.inputs[i].seen, o.inputs[i]);
  for (size_t i = 0; i < site_.params.size(); ++i) sum += bytes(site_.params[i].seen, o.params[i]);
  for (size_t i = 0; i < site_.outputs.size(); ++i) sum += bytes(site_.outputs[i], o.outputs[i]);
  return sum;
}

double& SiteSeconds::matmul_of(Work& work) const {
  return is_attention() ? work.attention_flops : work.matmul_flops;
}

void SiteSeconds::price(SiteOption& o, const std::vector<Strategy>& strategies,
                        const std::vector<double>& again_comm) const {
  Work forward;
  forward.dtype = g_.type(site_.outputs[0]).dtype;
  forward.bytes = border_bytes(o);
  double whole = 0;
  for (size_t i = 0; i < work_.size(); ++i) {
    matmul_of(forward) += work_[i].matmul * strategies[i].share;
    forward.other_flops += work_[i].other * strategies[i].share;
    forward.draws += work_[i].draws * strategies[i].share;
    whole += work_[i].bytes;
  }
  if (!site_.light && whole > 0)  // a gather reads rows
    forward.bytes = std::min(forward.bytes, whole);
  if (is_contraction()) set_shape(forward, strategies[0]);
  if (is_attention()) {
    set_attention(forward, strategies[0]);
    forward.attention_flops *= hidden_part();
    forward.shown = hidden_part();
  }
  o.forward_s = site_.epilogue && c_.model.epilogues ? 0 : c_.model.seconds(forward);
  if (site_.active) {
    o.backward_s = is_contraction() ? product_gradients(forward, strategies[0])
                                    : c_.model.seconds(backward_work(o, strategies, forward));
  }
  for (size_t i = 0; i < work_.size(); ++i) {
    // inside a fused backward kernel: arithmetic only
    Work alone;
    alone.dtype = forward.dtype;
    alone.other_flops = (work_[i].other + work_[i].matmul) * strategies[i].share;
    alone.draws = work_[i].draws * strategies[i].share;
    alone.kernels = 0;
    const double s = site_.light ? c_.model.seconds(alone) : o.forward_s;
    o.again_s.push_back(static_cast<float>(s + again_comm[i]));
  }
}

// The gradients of m x k by k x n are products of their own: m x n by n x k, and k x m by m x n.
// Each reads the result's gradient and the other operand.
double SiteSeconds::product_gradients(const Work& forward, const Strategy& strategy) const {
  double seconds = 0;
  for (size_t k = 0; k < 2; ++k) {
    const GradientWork& gradient = work_[0].gradients[k];
    if (!gradient.wanted) continue;
    Work work;
    work.dtype = forward.dtype;
    work.matmul_flops = gradient.matmul * strategy.share;
    work.other_flops = gradient.other * strategy.share;
    work.bytes = forward.bytes;
    work.m = k == 0 ? forward.m : forward.k;
    work.n = k == 0 ? forward.k : forward.n;
    work.k = k == 0 ? forward.n : forward.m;
    seconds += c_.model.seconds(work);
  }
  return seconds;
}

// Of a site that is no product.
Work SiteSeconds::backward_work(const SiteOption& o, const std::vector<Strategy>& strategies,
                                const Work& forward) const {
  Work work;
  work.dtype = forward.dtype;
  work.backward = true;
  work.m = forward.m;
  work.n = forward.n;
  work.k = forward.k;
  double whole = 0, back = 0;
  for (size_t i = 0; i < work_.size(); ++i) {
    matmul_of(work) += work_[i].back_matmul * strategies[i].share;
    work.other_flops += work_[i].back_other * strategies[i].share;
    work.draws += work_[i].draws * strategies[i].share;  // masks are not kept
    whole += work_[i].bytes;
    back += work_[i].back_bytes;
  }
  work.shown = forward.shown;
  if (is_attention()) work.attention_flops *= hidden_part();
  if (site_.light)
    work.bytes = light_backward_bytes(o);
  else
    work.bytes = whole > 0 ? forward.bytes * back / whole : 0;
  if (site_.light && work.bytes <= 0) return {};
  return work;
}

// One kernel: it reads the results' gradients and the operands it needs, and writes the operands'
// gradients, but for those that are a result's gradient as it is (both sides of a sum). Nothing
// to write, nothing to run.
double SiteSeconds::light_backward_bytes(const SiteOption& o) const {
  const std::vector<char> passed = passed_gradients();
  double read = 0, written = 0;
  for (size_t i = 0; i < site_.outputs.size(); ++i) {
    if (c_.sites.active[static_cast<size_t>(site_.outputs[i].index)] != 0)
      read += bytes(site_.outputs[i], o.outputs[i]);
  }
  const Variant& lean = site_.variants[0];
  const auto add = [&](const std::vector<Use>& uses, const std::vector<int>& layouts,
                       const std::vector<char>& needs) {
    for (size_t i = 0; i < uses.size(); ++i) {
      const Use& use = uses[i];
      const double all = bytes(use.seen, layouts[i]);
      if (needs[i] != 0) read += all;
      const auto& [node, k] = use.places[0];
      const bool same = use.places.size() == 1 && passed[static_cast<size_t>(node)] != 0 &&
                        work_[static_cast<size_t>(node)].gradients[static_cast<size_t>(k)].free;
      if (use.gradient && !same) written += all;
    }
  };
  add(site_.inputs, o.inputs, lean.needs);
  add(site_.params, o.params, lean.needs_param);
  return written > 0 ? read + written : 0;
}

// By node: the gradient of its result is that of the site's result as it is.
std::vector<char> SiteSeconds::passed_gradients() const {
  std::vector<char> passed(site_.nodes.size(), 0);
  std::vector<int> uses(site_.nodes.size(), 0);
  passed.back() = 1;
  for (size_t i = site_.nodes.size(); i-- > 0;) {
    const ir::Node& n = g_.node(site_.nodes[i]);
    if (i + 1 < site_.nodes.size() && uses[i] != 1) passed[i] = 0;
    for (size_t k = 0; k < n.operands.size(); ++k) {
      const auto made = made_.find(behind_renames(g_, n.operands[k]).index);
      if (made == made_.end()) continue;
      const size_t from = made->second.first;
      ++uses[from];
      passed[from] = passed[i] != 0 && work_[i].gradients[k].free ? 1 : 0;
    }
  }
  return passed;
}

bool SiteSeconds::is_attention() const {
  return g_.node(site_.nodes[0]).op == ir::Op::kAttention;
}
// Kernels skip the blocks that a causal mask hides, as far as whole tiles of queries do not see
// them.
double SiteSeconds::hidden_part() const {
  const ir::Node& n = g_.node(site_.nodes[0]);
  if (!n.attrs.causal) return 1;
  const auto queries = static_cast<double>(c_.extents[static_cast<size_t>(n.attrs.dims[0].index)]);
  return std::min(1.0, 0.5 * (1 + c_.model.attention_tile / std::max(queries, 1.0)));
}

// Rows of queries, rows of keys, channels of a head.
void SiteSeconds::set_attention(Work& work, const Strategy& strategy) const {
  const ir::Node& n = g_.node(site_.nodes[0]);
  const auto local = [&](size_t operand, ir::DimId dim) {
    const ir::Type& type = g_.type(n.operands[operand]);
    const int p = type.position(dim);
    if (p < 0) return 0.0;
    return static_cast<double>(local_extent(strategy.operands[operand], p,
                                            c_.extents[static_cast<size_t>(dim.index)], c_.mesh));
  };
  work.m = local(0, n.attrs.dims[0]);
  work.n = local(1, n.attrs.dims[1]);
  work.k = local(0, n.attrs.dims[2]);
}

void SiteSeconds::set_shape(Work& work, const Strategy& strategy) const {
  const ir::Node& n = g_.node(site_.nodes[0]);
  const ir::Type &a = g_.type(n.operands[0]), &b = g_.type(n.operands[1]);
  double m = 1, nn = 1, k = 1;
  for (size_t p = 0; p < a.rank(); ++p) {
    const auto e = static_cast<double>(
        local_extent(strategy.operands[0], static_cast<int>(p),
                     c_.extents[static_cast<size_t>(a.dims[p].index)], c_.mesh));
    const bool summed =
        std::find(n.attrs.dims.begin(), n.attrs.dims.end(), a.dims[p]) != n.attrs.dims.end();
    if (summed)
      k *= e;
    else if (!b.has(a.dims[p]))
      m *= e;
  }
  for (size_t p = 0; p < b.rank(); ++p) {
    if (a.has(b.dims[p])) continue;
    nn *= static_cast<double>(local_extent(strategy.operands[1], static_cast<int>(p),
                                           c_.extents[static_cast<size_t>(b.dims[p].index)],
                                           c_.mesh));
  }
  work.m = m;
  work.n = nn;
  work.k = k;
}

}  // namespace cad::planner
