// planner/baselines.cc -- see baselines.h.
#include "planner/baselines.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/check.h"

namespace cad::planner {

namespace {

enum class Scheme : uint8_t { kData, kMegatron, kGrid };

struct Baseline {
  const char* name;
  Scheme scheme;
  int stage;      // of ZeRO over the batch's axis: 0 none, 1 states, 2 gradients, 3 parameters
  bool sequence;  // megatron: sequence dims too
  size_t least_axes, most_axes;
};

const std::vector<Baseline>& table() {
  static const std::vector<Baseline> kTable{
      {"single", Scheme::kData, 0, false, 1, 1},
      {"dp", Scheme::kData, 0, false, 1, 1},
      {"zero1", Scheme::kData, 1, false, 1, 1},
      {"zero2", Scheme::kData, 2, false, 1, 1},
      {"zero3", Scheme::kData, 3, false, 1, 1},
      {"megatron", Scheme::kMegatron, 0, false, 1, 2},
      {"megatron-sp", Scheme::kMegatron, 0, true, 1, 2},
      {"megatron-zero", Scheme::kMegatron, 2, true, 2, 2},
      {"tp2d", Scheme::kGrid, 0, false, 2, 2},
      {"tp3d", Scheme::kGrid, 0, false, 3, 3},
  };
  return kTable;
}

const Baseline* find(const std::string& name) {
  for (const Baseline& b : table()) {
    if (name == b.name) return &b;
  }
  return nullptr;
}

class Masker {
 public:
  Masker(const Problem& p, const Baseline& b, bool recompute)
      : p_(p), g_(*p.graph), b_(b), recompute_(recompute) {
    for (const Site& site : p.sites->sites) {
      if (g_.node(site.nodes[0]).op != ir::Op::kContract) continue;
      for (const Use& use : site.params) {
        for (ir::DimId d : g_.type(use.seen).dims) weight_dims_.insert(d.index);
      }
    }
    weight_dims_.erase(g_.batch_dim.index);
    for (const LoopSite& loop : p.sites->loops) {
      if (!loop.carry.valid()) continue;
      for (ir::DimId d : g_.type(loop.carry).dims) carried_dims_.insert(d.index);
    }
    for (const Site& site : p.sites->sites) {
      const bool product = g_.node(site.nodes[0]).op == ir::Op::kContract && !site.params.empty();
      for (const Use& use : site.inputs) {
        if (product) product_inputs_.insert(use.root.index);
      }
    }
  }

  Mask run() {
    Mask mask;
    for (size_t r = 0; r < p_.regions.size(); ++r) {
      mask.choices.emplace_back();
      for (size_t v = 0; v < p_.regions[r].variables.size(); ++v)
        mask.choices.back().push_back(variable(r, v));
      mask.copies.push_back(recompute_ && r > 0 ? 0 : 1);
    }
    return mask;
  }
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  [[nodiscard]] size_t axes() const { return p_.mesh.axes.size(); }
  // What an axis is for: the batch, or dims of weights.
  [[nodiscard]] bool for_batch(size_t axis) const {
    return b_.scheme == Scheme::kData || (axis == 0 && axes() > 1);
  }

  std::vector<char> variable(size_t r, size_t index) {
    const VariableInfo& v = p_.regions[r].variables[index];
    switch (v.kind) {
      case VariableInfo::Kind::kSite:
        return site(r, v);
      case VariableInfo::Kind::kHub:
        return hub(r, index, v);
      case VariableInfo::Kind::kParam:
        return param(v);
      case VariableInfo::Kind::kSink:
        break;
    }
    return std::vector<char>(v.choices.size(), 1);
  }

  enum class DimKind : uint8_t { kUnused, kBatch, kWeight, kOther };
  [[nodiscard]] DimKind kind(ir::DimId d) const {
    if (d == g_.batch_dim) return DimKind::kBatch;
    return weight_dims_.count(d.index) != 0 ? DimKind::kWeight : DimKind::kOther;
  }

  std::vector<char> site(size_t r, const VariableInfo& v) {
    const Site& s = p_.sites->sites[static_cast<size_t>(v.site)];
    // an option's rank: how many axes it leaves unused although they have a purpose
    std::vector<int> unused(v.options.size(), -1);
    int least = 1 << 20;
    for (size_t o = 0; o < v.options.size(); ++o) {
      int n = 0;
      bool allowed = true;
      for (size_t a = 0; a < axes() && allowed; ++a) {
        const int8_t d = v.options[o].split[a];
        const DimKind k = d < 0 ? DimKind::kUnused : kind(v.dims[static_cast<size_t>(d)]);
        if (k == DimKind::kUnused)
          ++n;
        else if (for_batch(a))
          allowed = k == DimKind::kBatch;
        else
          allowed = allowed_inner(s, k, v.dims[static_cast<size_t>(d)]);
      }
      if (!allowed || !grid_product(s, v, v.options[o])) continue;
      unused[o] = n;
      least = std::min(least, n);
    }
    // light groups may stay whole on the inner axes: that is how megatron keeps them
    // (with a split sequence they do not)
    const bool choose = s.light && b_.scheme != Scheme::kData && !b_.sequence;
    std::vector<char> out(v.choices.size(), 0);
    for (size_t i = 0; i < v.choices.size(); ++i) {
      const auto o = static_cast<size_t>(v.option[i]);
      bool allowed = unused[o] >= 0 && (unused[o] == least || (choose && batch_used(v, o)));
      const Variant& variant = s.variants[static_cast<size_t>(v.variant[i])];
      if (recompute_ && r > 0) {
        allowed = allowed && variant.kept != Kept::kSaved && variant.saved.empty();
      } else {
        allowed = allowed && variant.kept != Kept::kAgain;
        if (s.light && b_.sequence && product_inputs_.count(s.outputs[0].index) != 0)
          allowed = allowed && variant.kept == Kept::kSaved;
      }
      out[i] = allowed ? 1 : 0;
    }
    return out;
  }

  [[nodiscard]] bool batch_used(const VariableInfo& v, size_t option) const {
    for (size_t a = 0; a < axes(); ++a) {
      if (!for_batch(a) || v.options[option].split[a] >= 0) continue;
      // unused: fine only where no option can use it
      for (const SiteOption& other : v.options) {
        if (other.split[a] >= 0 &&
            kind(v.dims[static_cast<size_t>(other.split[a])]) == DimKind::kBatch)
          return false;
      }
    }
    return true;
  }

  [[nodiscard]] bool allowed_inner(const Site& s, DimKind k, ir::DimId dim) const {
    // between the products of a cube, rows lie over two of its axes
    if (k == DimKind::kBatch) return cube() && (s.light || s.params.empty());
    if (s.light && b_.scheme == Scheme::kMegatron && carried_dims_.count(dim.index) != 0)
      return b_.sequence && k == DimKind::kOther;  // between the blocks
    if (s.light) return k == DimKind::kWeight || b_.sequence;
    if (s.params.empty()) return k == DimKind::kWeight;
    for (const Use& use : s.params) {
      if (g_.type(use.seen).has(dim)) return true;
    }
    return false;
  }

  [[nodiscard]] bool cube() const { return b_.scheme == Scheme::kGrid && axes() == 3; }

  // A product with a weight on a grid. Two axes: SUMMA (Optimus), where the second axis splits
  // columns of the result, so rows of the input are gathered along it and the weight along the
  // first; the summed dim is never split. Three: Agarwal et al. 1995 (Bian et al.), where one inner
  // axis splits columns, the other the summed dim, over which the result is reduce-scattered.
  [[nodiscard]] bool grid_product(const Site& s, const VariableInfo& v, const SiteOption& o) const {
    const ir::Node& n = g_.node(s.nodes[0]);
    if (b_.scheme != Scheme::kGrid || n.op != ir::Op::kContract || s.params.empty()) return true;
    int columns = 0, summed = 0;
    for (size_t a = 1; a < axes(); ++a) {
      if (o.split[a] < 0) continue;
      const ir::DimId d = v.dims[static_cast<size_t>(o.split[a])];
      const bool sums =
          std::find(n.attrs.dims.begin(), n.attrs.dims.end(), d) != n.attrs.dims.end();
      ++(sums ? summed : columns);
    }
    return cube() ? columns <= 1 && summed <= 1 : summed == 0;
  }

  // What a grid holds between layers: rows over the first axis (of a cube: and one more), columns
  // over the other.
  [[nodiscard]] bool grid_rows(const Layout& l, const ir::Type& type) const {
    int rows = 0, columns = 0;
    for (size_t a = 0; a < axes(); ++a) {
      if (l.axis[a] < 0) continue;
      const DimKind k = kind(type.dims[static_cast<size_t>(l.axis[a])]);
      if (k == DimKind::kOther || (a == 0 && k != DimKind::kBatch)) return false;
      ++(k == DimKind::kBatch ? rows : columns);
    }
    return columns == 1 && rows == (cube() ? 2 : 1);
  }

  std::vector<char> hub(size_t r, size_t index, const VariableInfo& v) const {
    const bool carry = is_carry(r, index);
    const std::vector<Layout>& layouts = v.table->layouts();
    const ir::Type& type = g_.type(v.value);
    std::vector<char> out(v.choices.size(), 1);
    for (size_t i = 0; i < out.size(); ++i) {
      if (recompute_ && r > 0 && !carry && v.copy[i] == Copy::kCopy) out[i] = 0;
      if (b_.sequence && !carry && v.copy[i] == Copy::kCopy && gathered(v, i)) out[i] = 0;
      if (!carry || b_.scheme == Scheme::kData) continue;
      const Layout& l = layouts[static_cast<size_t>(v.layout[i])];
      if (b_.scheme == Scheme::kGrid) {
        if (type.has(g_.batch_dim) && !grid_rows(l, type)) out[i] = 0;
        continue;
      }
      const bool rows = b_.sequence && splits_sequence(v, type);
      for (size_t a = 0; a < axes(); ++a) {
        const int8_t x = l.axis[a];
        const DimKind k = x < 0 ? DimKind::kUnused : kind(type.dims[static_cast<size_t>(x)]);
        const bool ok = for_batch(a) ? k == DimKind::kBatch || !type.has(g_.batch_dim)
                        : rows       ? k == DimKind::kOther
                                     : k == DimKind::kUnused;
        if (!ok) out[i] = 0;
      }
    }
    return out;
  }

  // Whether some layout splits a dim that is neither the batch nor of weights.
  [[nodiscard]] bool splits_sequence(const VariableInfo& v, const ir::Type& type) const {
    const std::vector<Layout>& layouts = v.table->layouts();
    return std::any_of(v.layout.begin(), v.layout.end(), [&](int i) {
      const int8_t x = layouts[static_cast<size_t>(i)].axis[axes() - 1];
      return x >= 0 && kind(type.dims[static_cast<size_t>(x)]) == DimKind::kOther;
    });
  }

  // With a split sequence, inputs of products are kept split and gathered again.
  [[nodiscard]] bool gathered(const VariableInfo& v, size_t choice) const {
    const Layout& l = v.table->layouts()[static_cast<size_t>(v.layout[choice])];
    for (size_t a = 0; a < axes(); ++a) {
      if (!for_batch(a) && l.axis[a] < 0) return product_inputs_.count(v.value.index) != 0;
    }
    return false;
  }

  [[nodiscard]] bool is_carry(size_t r, size_t index) const {
    const RegionProblem& region = p_.regions[r];
    const auto i = static_cast<int>(index);
    if (i == region.entry || i == region.exit) return true;
    return std::any_of(region.children.begin(), region.children.end(),
                       [&](const auto& c) { return c.entry == i || c.exit == i; });
  }

  std::vector<char> param(const VariableInfo& v) const {
    const std::vector<Layout>& layouts = v.table->layouts();
    const auto split = [&](int layout) {
      int n = 0;
      for (size_t a = 0; a < axes(); ++a) n += layouts[static_cast<size_t>(layout)].axis[a] >= 0;
      return n;
    };
    const auto splits_batch_axis = [&](int layout) {
      for (size_t a = 0; a < axes(); ++a) {
        if (for_batch(a) && layouts[static_cast<size_t>(layout)].axis[a] >= 0) return true;
      }
      return false;
    };
    int most = 0;
    for (const int o : v.optimizer) most = std::max(most, split(o));
    std::map<int, int> most_of;  // by stored layout: whether the batch's axis can split its states
    for (size_t i = 0; i < v.choices.size(); ++i) {
      if (splits_batch_axis(v.optimizer[i])) most_of[v.layout[i]] = 1;
    }
    std::vector<char> out(v.choices.size(), 0);
    for (size_t i = 0; i < out.size(); ++i) {
      const int s = v.layout[i], g = v.gradient[i], o = v.optimizer[i];
      if (b_.scheme == Scheme::kGrid) {
        out[i] = s == o && g == o && split(o) == most ? 1 : 0;
      } else if (b_.scheme == Scheme::kMegatron && b_.stage == 0) {
        out[i] = s == o && (g == o || g < 0) && !splits_batch_axis(o) ? 1 : 0;
      } else if (b_.scheme == Scheme::kMegatron) {
        // stored as megatron does, updated in parts: as many as the batch's axis can make of it
        const bool parts = splits_batch_axis(o) || most_of[s] == 0;
        out[i] = !splits_batch_axis(s) && parts && (g == o || g < 0) ? 1 : 0;
      } else if (b_.stage == 0) {
        out[i] = split(o) == 0 ? 1 : 0;
      } else {
        const bool frozen = v.choices[i].gradients <= 0;
        const bool whole = split(s) == 0;
        out[i] = frozen             ? (b_.stage == 3 ? split(s) == most : whole)
                 : split(o) != most ? 0
                 : b_.stage == 1    ? whole && (g == s || g < 0)
                 : b_.stage == 2    ? whole && g == o
                                    : s == o && g == o;
      }
    }
    return out;
  }

  const Problem& p_;
  const ir::Graph& g_;
  const Baseline& b_;
  bool recompute_;
  std::set<int> weight_dims_;
  std::set<int> carried_dims_;    // of what goes from block to block
  std::set<int> product_inputs_;  // values that a product with a weight reads
  std::string why_;
};

}  // namespace

const std::vector<std::string>& baseline_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Baseline& b : table()) names.emplace_back(b.name);
    return names;
  }();
  return kNames;
}

bool baseline_fits_mesh(const std::string& name, const Mesh& mesh) {
  const Baseline* b = find(name);
  if (b == nullptr || mesh.axes.size() < b->least_axes || mesh.axes.size() > b->most_axes)
    return false;
  return name != "single" || mesh.devices() == 1;
}

BaselineResult baseline(const Problem& problem, const std::string& name, bool recompute) {
  const Baseline* b = find(name);
  CAD_CHECK(b != nullptr, "no baseline `{}`", name);
  BaselineResult result;
  Masker masker(problem, *b, recompute);
  const Mask mask = masker.run();
  PriceOptions options;
  options.mask = &mask;
  const Priced priced(problem, options);
  if (!std::isfinite(priced.value())) {
    result.why = "the model's sizes do not allow it on this mesh";
    return result;
  }
  result.plan = priced.plan();
  result.evaluation = evaluate(problem, *result.plan);
  return result;
}

}  // namespace cad::planner
