// planner/problem_site.cc -- see problem_site.h. All nodes of a site follow one split of named
// dims; where an op inside cannot follow it, or leaves a sum unfinished, the conversion between the
// two nodes is part of the option's cost. What the site's kernels take: planner/site_seconds.cc.
#include "planner/problem_site.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/check.h"
#include "planner/rules_followed.h"
#include "planner/site_seconds.h"

namespace cad::planner {

using ir::DimId;
using ir::ValueId;

ValueId behind_renames(const ir::Graph& g, ValueId v) {
  while (g.value(v).def.valid() && (g.node(g.value(v).def).op == ir::Op::kRename ||
                                    g.node(g.value(v).def).op == ir::Op::kStop))
    v = g.node(g.value(v).def).operands[0];
  return v;
}

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

// Layouts at an option's border, conversions and collectives inside.
class Connector {
 public:
  // `again_comm`: seconds of conversions that run again with a node, by node.
  Connector(const SiteContext& c, const Site& site, const MadeInside& made,
            const std::vector<Strategy>& strategies, SiteOption& option,
            std::vector<double>& again_comm)
      : c_(c),
        g_(*c.sites.graph),
        site_(site),
        made_(made),
        strategies_(strategies),
        o_(option),
        again_comm_(again_comm) {}

  // False when a layout is none of its tensor's.
  bool run() {
    if (!border(site_.inputs, o_.inputs) || !border(site_.params, o_.params)) return false;
    for (size_t i = 0; i < site_.nodes.size(); ++i) {
      if (!operands(i)) return false;
      collectives(i);
    }
    return outputs();
  }

 private:
  bool convert(ValueId seen, const Layout& from, const Layout& to, bool gradient, size_t node) {
    if (from == to) return true;
    const ConversionTable& t = table_of(c_, seen);
    const int a = t.index(from), b = t.index(to);
    if (a < 0 || b < 0 || !std::isfinite(t.seconds(a, b))) return false;
    o_.inside.push_back({seen, from, to, static_cast<int>(node), gradient});
    o_.forward_comm += t.seconds(a, b);
    again_comm_[node] += t.seconds(a, b);
    if (gradient) o_.backward_comm += t.backward_seconds(a, b);
    return true;
  }

  // A value comes in as its first user wants it; others convert.
  bool border(const std::vector<Use>& uses, std::vector<int>& out) {
    const auto wanted = [&](const std::pair<int, int>& place) -> const Layout& {
      return strategies_[static_cast<size_t>(place.first)]
          .operands[static_cast<size_t>(place.second)];
    };
    for (const Use& use : uses) {
      const Layout& first = wanted(use.places[0]);
      const int index = table_of(c_, use.seen).index(first);
      if (index < 0) return false;
      out.push_back(index);
      for (size_t p = 1; p < use.places.size(); ++p) {
        if (!convert(use.seen, first, wanted(use.places[p]), use.gradient,
                     static_cast<size_t>(use.places[p].first)))
          return false;
      }
    }
    return true;
  }

  // What other nodes of the site make for node i.
  bool operands(size_t i) {
    const ir::Node& n = g_.node(site_.nodes[i]);
    std::set<std::pair<int, Layout>> paid;  // both operands of a product may be one value
    for (size_t k = 0; k < n.operands.size(); ++k) {
      const ValueId inside = behind_renames(g_, n.operands[k]);
      const auto made = made_.find(inside.index);
      if (made == made_.end()) continue;
      const Layout& from = strategies_[made->second.first].results[made->second.second];
      const Layout& to = strategies_[i].operands[k];
      if (!paid.emplace(inside.index, to).second) continue;
      if (!convert(inside, from, to, c_.sites.active[static_cast<size_t>(inside.index)] != 0, i))
        return false;
    }
    return true;
  }

  void collectives(size_t i) {
    for (const InnerCollective& inner : strategies_[i].forward) {
      const double s = collective_seconds(c_.mesh, inner.axes, inner.kind, inner.bytes);
      o_.forward_comm += s;
      again_comm_[i] += s;
      o_.forward.push_back(inner);
      o_.forward_of.push_back(static_cast<int>(i));
    }
    if (!site_.active) return;
    for (const InnerCollective& inner : strategies_[i].backward) {
      o_.backward_comm += collective_seconds(c_.mesh, inner.axes, inner.kind, inner.bytes);
      o_.backward.push_back(inner);
    }
  }

  bool outputs() {
    const Strategy& last = strategies_.back();
    for (size_t r = 0; r < site_.outputs.size(); ++r) {
      const int index = table_of(c_, site_.outputs[r]).index(last.results[r]);
      if (index < 0) return false;
      o_.outputs.push_back(index);
    }
    return true;
  }

  const SiteContext& c_;
  const ir::Graph& g_;
  const Site& site_;
  const MadeInside& made_;
  const std::vector<Strategy>& strategies_;
  SiteOption& o_;
  std::vector<double>& again_comm_;
};

class SiteBuilder {
 public:
  SiteBuilder(const SiteContext& c, int site)
      : c_(c),
        g_(*c.sites.graph),
        site_(c.sites.sites[static_cast<size_t>(site)]),
        seconds_(c, site_, made_) {
    v_.kind = VariableInfo::Kind::kSite;
    v_.site = site;
    v_.name = site_.path;
    v_.table = &table_of(c, site_.outputs[0]);
    for (size_t i = 0; i < site_.nodes.size(); ++i) {
      const ir::Node& n = g_.node(site_.nodes[i]);
      shardings_.emplace_back(g_, site_.nodes[i], c.extents);
      for (size_t r = 0; r < n.results.size(); ++r) made_[n.results[r].index] = {i, r};
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
        const ValueId inside = behind_renames(g_, operand);
        if (inside != operand && made_.count(inside.index) != 0)
          unite(g_.type(inside), g_.type(operand));
      }
    }
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
    }
    split[axis] = -1;
  }

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
    if (!Connector(c_, site_, made_, strategies, o, again_comm).run()) return std::nullopt;
    seconds_.price(o, strategies, again_comm);
    return o;
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
  MadeInside made_;
  SiteSeconds seconds_;
  std::map<int, int> class_;  // dim -> class
};

}  // namespace

VariableInfo site_variable(const SiteContext& c, int site) {
  return SiteBuilder(c, site).build();
}

}  // namespace cad::planner
