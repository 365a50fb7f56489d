// planner/problem_site.cc -- see problem_site.h. All nodes of a site follow one split of named
// dims; where an op inside cannot follow it, or leaves a sum unfinished, the conversion between the
// two nodes is part of the option's cost. The group is priced as one kernel: it reads what comes
// from outside and writes its output once.
#include "planner/problem_site.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/check.h"
#include "planner/rules_followed.h"

namespace cad::planner {

using ir::DimId;
using ir::ValueId;

const ConversionTable& table_of(const SiteContext& c, ValueId value) {
  const ir::Type& type = c.sites.graph->type(value);
  return c.conversions.table(tensor_extents(type, c.extents), ir::dtype_bytes(type.dtype),
                             ir::is_float(type.dtype));
}

double bytes_on_device(const SiteContext& c, ValueId value, const Layout& layout) {
  const ir::Type& type = c.sites.graph->type(value);
  return local_elements(layout, tensor_extents(type, c.extents), c.mesh) *
         ir::dtype_bytes(type.dtype);
}

namespace {

struct GradientWork {
  bool wanted = false;  // there is one, and a gradient flows on
  bool free = false;    // it is the gradient of the result as it is
  double matmul = 0, other = 0;
};

struct NodeWork {
  double matmul = 0, other = 0;  // forward, whole
  double back_matmul = 0, back_other = 0, back_bytes = 0;
  double bytes = 0, draws = 0;
  std::vector<GradientWork> gradients;  // by operand, each by itself
};

class SiteBuilder {
 public:
  SiteBuilder(const SiteContext& c, int site)
      : c_(c), g_(*c.sites.graph), site_(c.sites.sites[static_cast<size_t>(site)]) {
    v_.kind = VariableInfo::Kind::kSite;
    v_.site = site;
    v_.name = site_.path;
    v_.table = &table_of(c, site_.outputs[0]);
    for (size_t i = 0; i < site_.nodes.size(); ++i) {
      const ir::Node& n = g_.node(site_.nodes[i]);
      shardings_.emplace_back(g_, site_.nodes[i], c.extents);
      for (size_t r = 0; r < n.results.size(); ++r) made_[n.results[r].index] = {i, r};
      measure(i);
    }
    name_dims();
  }

  VariableInfo build() {
    for (const DimId d : v_.dims) v_.one_of.push_back(class_.at(d.index));
    std::vector<int8_t> split(c_.mesh.axes.size(), -1);
    enumerate(split, 0);
    if (c_.model.every_contraction && is_contraction()) drop_unused();
    if (!c_.rules.shard.empty()) follow_rules();
    make_choices();
    return std::move(v_);
  }

 private:
  [[nodiscard]] bool is_contraction() const {
    return g_.node(site_.nodes[0]).op == ir::Op::kContract;
  }

  void drop_unused() {
    const auto used = [](const SiteOption& o) {
      return std::count_if(o.split.begin(), o.split.end(), [](int8_t s) { return s != -1; });
    };
    std::ptrdiff_t most = 0;
    for (const SiteOption& o : v_.options) most = std::max(most, used(o));
    std::vector<SiteOption> kept;
    for (SiteOption& o : v_.options) {
      if (used(o) == most) kept.push_back(std::move(o));
    }
    v_.options = std::move(kept);
  }

  // The options that follow as many `shard` rules as any does.
  void follow_rules() {
    std::vector<int> followed;
    int most = 0;
    for (const SiteOption& o : v_.options) {
      followed.push_back(rules_followed(c_.rules, v_, o, g_, c_.mesh));
      most = std::max(most, followed.back());
    }
    std::vector<SiteOption> kept;
    for (size_t i = 0; i < followed.size(); ++i) {
      if (followed[i] == most) kept.push_back(std::move(v_.options[i]));
    }
    v_.options = std::move(kept);
  }

  void measure(size_t i) {
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
  [[nodiscard]] double drawn(const ir::Node& n, const std::vector<double>& extents) const {
    const bool attention = n.op == ir::Op::kAttention && n.attrs.p.number() != 0.0;
    const bool random = n.op == ir::Op::kDropout || n.op == ir::Op::kNormal ||
                        n.op == ir::Op::kUniform || n.op == ir::Op::kBernoulli;
    if (!attention && !random) return 0;
    double elements = 1;
    for (DimId d : attention ? n.attrs.probs : g_.type(n.results[0]).dims)
      elements *= extents[static_cast<size_t>(d.index)];
    return elements;
  }

  // Dims of the site's values, renamed ones together.
  void name_dims() {
    std::vector<DimId> order;
    const auto add = [&](ValueId value) {
      for (DimId d : g_.type(value).dims) {
        if (class_.emplace(d.index, -1).second) order.push_back(d);
      }
    };
    for (const ir::NodeId id : site_.nodes) {
      for (ValueId v : g_.node(id).operands) add(v);
      for (ValueId v : g_.node(id).results) add(v);
    }
    for (DimId d : order) {
      class_[d.index] = static_cast<int>(v_.dims.size());
      v_.dims.push_back(d);
    }
    // inside a group a value may be read under other names
    const auto unite = [&](const ir::Type& a, const ir::Type& b) {
      if (a.rank() != b.rank()) return;
      for (size_t p = 0; p < a.rank(); ++p) {
        const int from = class_[b.dims[p].index], to = class_[a.dims[p].index];
        if (from == to) continue;
        for (auto& [dim, number] : class_) {
          if (number == from) number = to;
        }
      }
    };
    if (site_.nodes.size() == 1) return;
    for (const std::vector<Use>* uses : {&site_.inputs, &site_.params}) {
      for (const Use& use : *uses) {
        for (const auto& [node, k] : use.places) {
          const ir::Node& n = g_.node(site_.nodes[static_cast<size_t>(node)]);
          unite(g_.type(use.seen), g_.type(n.operands[static_cast<size_t>(k)]));
        }
      }
    }
    for (const ir::NodeId id : site_.nodes) {
      for (ValueId operand : g_.node(id).operands) {
        const ValueId inside = behind_renames(operand);
        if (inside != operand && made_.count(inside.index) != 0)
          unite(g_.type(inside), g_.type(operand));
      }
    }
  }

  [[nodiscard]] ValueId behind_renames(ValueId v) const {
    while (g_.value(v).def.valid() && (g_.node(g_.value(v).def).op == ir::Op::kRename ||
                                       g_.node(g_.value(v).def).op == ir::Op::kStop))
      v = g_.node(g_.value(v).def).operands[0];
    return v;
  }

  void enumerate(std::vector<int8_t>& split, size_t axis) {
    if (axis == split.size()) {
      if (auto option = make_option(split)) v_.options.push_back(std::move(*option));
      return;
    }
    split[axis] = -1;
    enumerate(split, axis + 1);
    if (c_.mesh.axes[axis].size > 1) {
      std::set<int> classes;
      for (const auto& [dim, number] : class_) classes.insert(number);
      for (int number : classes) {
        split[axis] = static_cast<int8_t>(number);
        enumerate(split, axis + 1);
      }
      if (!site_.light) {
        for (size_t flow = 0; flow < flows(); ++flow) {
          split[axis] = static_cast<int8_t>(-2 - static_cast<int>(flow));
          enumerate(split, axis + 1);
        }
      }
    }
    split[axis] = -1;
  }
  [[nodiscard]] size_t flows() const { return 0; }

  // The factor of node i that the class of dims names, or -1.
  [[nodiscard]] int factor_of(size_t i, int number) const {
    const ir::Node& n = g_.node(site_.nodes[i]);
    for (size_t k = 0; k < n.operands.size(); ++k) {
      for (DimId d : g_.type(n.operands[k]).dims) {
        if (class_.at(d.index) != number) continue;
        if (const int f = shardings_[i].factor_of_operand(k, d); f >= 0) return f;
      }
    }
    for (size_t r = 0; r < n.results.size(); ++r) {
      for (DimId d : g_.type(n.results[r]).dims) {
        if (class_.at(d.index) != number) continue;
        if (const int f = shardings_[i].factor_of_result(r, d); f >= 0) return f;
      }
    }
    return -1;
  }

  // Whether the results lie as the program's `@shard`s say.
  [[nodiscard]] bool pinned_so(ir::NodeId node, const Strategy& strategy) const {
    const std::vector<ValueId>& results = g_.node(node).results;
    for (size_t r = 0; r < results.size(); ++r) {
      const ir::Value& value = g_.value(results[r]);
      if (!value.pins.empty() && !honours(strategy.results[r], value.type, value.pins, c_.mesh))
        return false;
    }
    return true;
  }
  // Whether the program's `@keep`, `@recompute` or `@checkpoint` on the result allows it.
  [[nodiscard]] bool kept_so(const Variant& variant) const {
    switch (g_.value(site_.outputs[0]).saving) {
      case ir::Saving::kAuto:
        return checkpointed_so(variant);
      case ir::Saving::kKeep:
      case ir::Saving::kCheckpoint:
        return variant.kept == Kept::kSaved;
      case ir::Saving::kRecompute:
        return variant.kept != Kept::kSaved;
    }
    return true;
  }

  // Whether the plan section's `checkpoint` allows it. What a fused backward kernel computes from
  // its operands on the way is no running again: no one saves that.
  [[nodiscard]] bool checkpointed_so(const Variant& variant) const {
    switch (c_.rules.checkpointing) {
      case Checkpointing::kAuto:
        return true;
      case Checkpointing::kNone:
        return variant.kept != Kept::kAgain &&
               (site_.light || !runs_again(variant) ||
                std::all_of(site_.variants.begin(), site_.variants.end(), runs_again));
      case Checkpointing::kAll:
        return site_.region.index == 0 || (variant.kept != Kept::kSaved && variant.saved.empty());
    }
    return true;
  }
  static bool runs_again(const Variant& v) {
    return v.kept == Kept::kAgain ||
           std::any_of(v.again.begin(), v.again.end(), [](char c) { return c != 0; });
  }

  std::optional<SiteOption> make_option(const std::vector<int8_t>& split) {
    SiteOption o;
    o.split = split;
    std::vector<Strategy> strategies;
    double largest_share = 0;
    bool used[kMaxAxes] = {};
    for (size_t i = 0; i < site_.nodes.size(); ++i) {
      Assignment assignment{kUnused, kUnused, kUnused};
      for (size_t axis = 0; axis < split.size(); ++axis) {
        if (split[axis] >= 0) assignment[axis] = static_cast<int8_t>(factor_of(i, split[axis]));
        if (assignment[axis] != kUnused) used[axis] = true;
      }
      auto strategy = shardings_[i].strategy(assignment, c_.mesh);
      if (!strategy || !pinned_so(site_.nodes[i], *strategy)) return std::nullopt;
      largest_share = std::max(largest_share, strategy->share);
      o.assignments.push_back(assignment);
      o.results.push_back(strategy->results[0]);
      strategies.push_back(std::move(*strategy));
    }
    for (size_t axis = 0; axis < split.size(); ++axis) {
      if (split[axis] != -1 && !used[axis]) return std::nullopt;  // the same as leaving it unused
    }
    std::vector<double> again_comm(site_.nodes.size(), 0);
    if (!connect(o, strategies, again_comm)) return std::nullopt;
    price(o, strategies, again_comm);
    return o;
  }

  // Layouts at the border, conversions inside. False when a layout is none of its tensor's.
  bool connect(SiteOption& o, const std::vector<Strategy>& strategies,
               std::vector<double>& again_comm) {
    double forward = 0, backward = 0;
    const auto convert = [&](ValueId seen, const Layout& from, const Layout& to, bool gradient,
                             size_t node) {
      if (from == to) return true;
      const ConversionTable& t = table_of(c_, seen);
      const int a = t.index(from), b = t.index(to);
      if (a < 0 || b < 0 || !std::isfinite(t.seconds(a, b))) return false;
      o.inside.push_back({seen, from, to, static_cast<int>(node), gradient});
      forward += t.seconds(a, b);
      again_comm[node] += t.seconds(a, b);
      if (gradient) backward += t.backward_seconds(a, b);
      return true;
    };
    const auto border = [&](const std::vector<Use>& uses, std::vector<int>& out) {
      for (const Use& use : uses) {
        const auto& [node, k] = use.places[0];
        const Layout& wanted =
            strategies[static_cast<size_t>(node)].operands[static_cast<size_t>(k)];
        const int index = table_of(c_, use.seen).index(wanted);
        if (index < 0) return false;
        out.push_back(index);
        for (size_t p = 1; p < use.places.size(); ++p) {
          const auto& [n2, k2] = use.places[p];
          if (!convert(use.seen, wanted,
                       strategies[static_cast<size_t>(n2)].operands[static_cast<size_t>(k2)],
                       use.gradient, static_cast<size_t>(n2)))
            return false;
        }
      }
      return true;
    };
    if (!border(site_.inputs, o.inputs) || !border(site_.params, o.params)) return false;
    for (size_t i = 0; i < site_.nodes.size(); ++i) {
      const ir::Node& n = g_.node(site_.nodes[i]);
      std::set<std::pair<int, Layout>> paid;  // both operands of a product may be one value
      for (size_t k = 0; k < n.operands.size(); ++k) {
        const ValueId inside = behind_renames(n.operands[k]);
        const auto made = made_.find(inside.index);
        if (made == made_.end()) continue;
        const Layout& from = strategies[made->second.first].results[made->second.second];
        if (!paid.emplace(inside.index, strategies[i].operands[k]).second) continue;
        if (!convert(inside, from, strategies[i].operands[k],
                     c_.sites.active[static_cast<size_t>(inside.index)] != 0, i))
          return false;
      }
      for (const InnerCollective& inner : strategies[i].forward) {
        const double s = collective_seconds(c_.mesh, inner.axes, inner.kind, inner.bytes);
        forward += s;
        again_comm[i] += s;
        o.forward.push_back(inner);
        o.forward_of.push_back(static_cast<int>(i));
      }
      if (!site_.active) continue;
      for (const InnerCollective& inner : strategies[i].backward) {
        backward += collective_seconds(c_.mesh, inner.axes, inner.kind, inner.bytes);
        o.backward.push_back(inner);
      }
    }
    const Strategy& last = strategies.back();
    for (size_t r = 0; r < site_.outputs.size(); ++r) {
      const int index = table_of(c_, site_.outputs[r]).index(last.results[r]);
      if (index < 0) return false;
      o.outputs.push_back(index);
    }
    o.forward_comm = forward;
    o.backward_comm = backward;
    return true;
  }

  [[nodiscard]] double border_bytes(const SiteOption& o) const {
    double bytes = 0;
    for (size_t i = 0; i < site_.inputs.size(); ++i) {
      const ValueId v = site_.inputs[i].seen;
      bytes += bytes_on_device(c_, v, table_of(c_, v).layouts()[static_cast<size_t>(o.inputs[i])]);
    }
    for (size_t i = 0; i < site_.params.size(); ++i) {
      const ValueId v = site_.params[i].seen;
      bytes += bytes_on_device(c_, v, table_of(c_, v).layouts()[static_cast<size_t>(o.params[i])]);
    }
    for (size_t i = 0; i < site_.outputs.size(); ++i) {
      const ValueId v = site_.outputs[i];
      bytes += bytes_on_device(c_, v, table_of(c_, v).layouts()[static_cast<size_t>(o.outputs[i])]);
    }
    return bytes;
  }

  [[nodiscard]] double& matmul_of(Work& work) const {
    return is_attention() ? work.attention_flops : work.matmul_flops;
  }

  void price(SiteOption& o, const std::vector<Strategy>& strategies,
             const std::vector<double>& again_comm) {
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
  [[nodiscard]] double product_gradients(const Work& forward, const Strategy& strategy) const {
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
  [[nodiscard]] Work backward_work(const SiteOption& o, const std::vector<Strategy>& strategies,
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
  [[nodiscard]] double light_backward_bytes(const SiteOption& o) const {
    const std::vector<char> passed = passed_gradients();
    const auto bytes = [&](ValueId v, int layout) {
      return bytes_on_device(c_, v, table_of(c_, v).layouts()[static_cast<size_t>(layout)]);
    };
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
  [[nodiscard]] std::vector<char> passed_gradients() const {
    std::vector<char> passed(site_.nodes.size(), 0);
    std::vector<int> uses(site_.nodes.size(), 0);
    passed.back() = 1;
    for (size_t i = site_.nodes.size(); i-- > 0;) {
      const ir::Node& n = g_.node(site_.nodes[i]);
      if (i + 1 < site_.nodes.size() && uses[i] != 1) passed[i] = 0;
      for (size_t k = 0; k < n.operands.size(); ++k) {
        const auto made = made_.find(behind_renames(n.operands[k]).index);
        if (made == made_.end()) continue;
        const size_t from = made->second.first;
        ++uses[from];
        passed[from] = passed[i] != 0 && work_[i].gradients[k].free ? 1 : 0;
      }
    }
    return passed;
  }

  [[nodiscard]] bool is_attention() const {
    return g_.node(site_.nodes[0]).op == ir::Op::kAttention;
  }
  // Kernels skip the blocks that a causal mask hides, as far as whole tiles of queries do not see
  // them.
  [[nodiscard]] double hidden_part() const {
    const ir::Node& n = g_.node(site_.nodes[0]);
    if (!n.attrs.causal) return 1;
    const auto queries =
        static_cast<double>(c_.extents[static_cast<size_t>(n.attrs.dims[0].index)]);
    return std::min(1.0, 0.5 * (1 + c_.model.attention_tile / std::max(queries, 1.0)));
  }

  // Rows of queries, rows of keys, channels of a head.
  void set_attention(Work& work, const Strategy& strategy) const {
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

  void set_shape(Work& work, const Strategy& strategy) const {
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

  void make_choices() {
    const double micro = c_.training.micro_batches;
    for (size_t o = 0; o < v_.options.size(); ++o) {
      const SiteOption& option = v_.options[o];
      double out_bytes = 0, grads = 0;
      for (size_t r = 0; r < site_.outputs.size(); ++r) {
        const double b = bytes_on_device(
            c_, site_.outputs[r],
            table_of(c_, site_.outputs[r]).layouts()[static_cast<size_t>(option.outputs[r])]);
        if (r == 0) out_bytes = b;
        if (c_.sites.active[static_cast<size_t>(site_.outputs[r].index)] != 0) grads += b;
      }
      for (size_t i = 0; i < site_.inputs.size(); ++i) {
        const ValueId seen = site_.inputs[i].seen;
        if (site_.inputs[i].gradient)
          grads += bytes_on_device(
              c_, seen, table_of(c_, seen).layouts()[static_cast<size_t>(option.inputs[i])]);
      }
      for (size_t n = 0; n < site_.variants.size(); ++n) {
        const Variant& variant = site_.variants[n];
        if (!kept_so(variant)) continue;
        Choice choice;
        choice.terms.compute = static_cast<float>(micro * (option.forward_s + option.backward_s));
        choice.terms.communicate =
            static_cast<float>(micro * (option.forward_comm + option.backward_comm));
        choice.forward = static_cast<float>(micro * (option.forward_s + option.forward_comm));
        choice.transient = static_cast<float>(grads);
        double again = 0;
        if (variant.kept == Kept::kAgain) {
          again = option.forward_s + option.forward_comm;
          choice.again = static_cast<float>(out_bytes);
        } else {
          for (size_t i = 0; i < variant.again.size(); ++i) {
            if (variant.again[i] != 0) again += static_cast<double>(option.again_s[i]);
          }
        }
        choice.terms.recompute = static_cast<float>(micro * again);
        double saved = variant.kept == Kept::kSaved ? out_bytes : 0;
        for (ValueId s : variant.saved) saved += saved_bytes(option, s);
        choice.saved = static_cast<float>(saved);
        v_.option.push_back(static_cast<int>(o));
        v_.variant.push_back(static_cast<int>(n));
        v_.choices.push_back(choice);
      }
    }
  }

  [[nodiscard]] double saved_bytes(const SiteOption& option, ValueId value) const {
    const auto& [node, result] = made_.at(value.index);
    if (result == 0) return bytes_on_device(c_, value, option.results[node]);
    return bytes_on_device(
        c_, value, table_of(c_, value).layouts()[static_cast<size_t>(option.outputs[result])]);
  }

  const SiteContext& c_;
  const ir::Graph& g_;
  const Site& site_;
  VariableInfo v_;
  std::vector<OpSharding> shardings_;
  std::vector<NodeWork> work_;
  std::map<int, std::pair<size_t, size_t>> made_;  // value -> node of the site, result
  std::map<int, int> class_;                       // dim -> class
};

}  // namespace

VariableInfo site_variable(const SiteContext& c, int site) {
  return SiteBuilder(c, site).build();
}

}  // namespace cad::planner
