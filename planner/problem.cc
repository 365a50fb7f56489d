// planner/problem.cc -- see problem.h: variables and pair costs of every region; what a plan costs
// by them is in evaluate.cc. What a pair costs:
//
//   forward     from the layout that is given to the one that is wanted
//   backward    between the duals, the other way, if a gradient flows
//   again       the forward conversion once more, where the backward pass needs the operand and
//               what is available is not in the wanted layout
//   parameters  gathering before each use, reducing the gradient once it is there
#include "planner/problem.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "planner/problem_site.h"
#include "planner/rules_followed.h"

namespace cad::planner {

using ir::RegionId;
using ir::ValueId;

namespace {

constexpr int kAvailableNo = 0, kAvailableSaved = 1, kAvailableAgain = 2;

class Builder {
 public:
  Builder(Problem& problem, const SiteGraph& sites)
      : p_(problem), s_(sites), c_{sites,
                                   problem.mesh,
                                   *problem.conversions,
                                   problem.training,
                                   problem.model,
                                   problem.extents,
                                   problem.rules} {}

  void run() {
    make_regions(RegionId{0}, 1);
    count_payers();
    for (size_t r = 0; r < p_.regions.size(); ++r) fill(r);
  }

 private:
  // A user of a value within a region.
  struct User {
    enum class Kind : uint8_t { kSite, kHub, kSink } kind;
    int variable = -1;
    size_t use = 0;  // kSite: index of the input
  };

  int make_regions(RegionId id, double trips) {
    const int index = static_cast<int>(p_.regions.size());
    p_.regions.emplace_back();
    p_.regions.back().region = id;
    p_.regions.back().trips = trips;
    const auto order = s_.order.find(id.index);
    if (order == s_.order.end()) return index;
    for (int member : order->second) {
      if (member >= 0) continue;
      const LoopSite& loop = s_.loops[static_cast<size_t>(-1 - member)];
      const ir::Loop& l = s_.graph->node(loop.node).loop;
      const auto count = static_cast<double>(p_.extents[static_cast<size_t>(l.dim.index)]);
      const int child = make_regions(loop.body, count);
      RegionProblem::Child c;
      c.region = child;
      c.loop = -1 - member;
      p_.regions[static_cast<size_t>(index)].children.push_back(c);
    }
    return index;
  }

  // A parameter that several regions use is there once: each of them pays a part of it, and it lies
  // as the one says that takes less memory (backend/spmd/shared_parameters.h). Iterations of a loop
  // have parameters of their own, whatever is inside of it: then regions of one loop are one.
  void count_payers() {
    std::unordered_map<int, RegionId> parent;  // by body
    for (const LoopSite& loop : s_.loops) parent[loop.body.index] = loop.region;
    const auto top = [&](RegionId region) {
      while (region.index != 0 && parent.at(region.index).index != 0)
        region = parent.at(region.index);
      return region.index;
    };
    std::map<int, std::set<int>> payers;
    for (const Site& site : s_.sites) {
      for (const Use& use : site.params) {
        const bool stacked = s_.graph->inputs[static_cast<size_t>(use.param)].loop_dims > 0;
        payers[use.param].insert(stacked ? top(site.region) : site.region.index);
      }
    }
    for (const auto& [param, regions] : payers)
      payers_[param] = static_cast<double>(regions.size());
  }

  void fill(size_t index) {
    RegionProblem& r = p_.regions[index];
    producer_.clear();
    users_.clear();
    params_.clear();
    const LoopSite* own = nullptr;
    for (const LoopSite& loop : s_.loops) {
      if (loop.body == r.region) own = &loop;
    }
    const bool carries = own != nullptr && own->carry.valid();
    if (carries) {
      r.entry = add_hub(r, own->carry, false, true);
      producer_[own->carry.index] = r.entry;
    }
    const auto order = s_.order.find(r.region.index);
    size_t child = 0;
    for (int member : order == s_.order.end() ? std::vector<int>{} : order->second) {
      if (member >= 0) {
        add_site(r, member);
        continue;
      }
      const LoopSite& loop = s_.loops[static_cast<size_t>(-1 - member)];
      RegionProblem::Child& c = r.children[child++];
      if (!loop.carry.valid()) continue;
      c.entry = add_hub(r, loop.init, true, true);
      users_[loop.init.index].push_back({User::Kind::kHub, c.entry, 0});
      c.exit = add_hub(r, loop.result, false, true);
      producer_[loop.result.index] = c.exit;
    }
    if (carries) {
      r.exit = add_hub(r, own->carry, true, true);
      users_[own->next.index].push_back({User::Kind::kHub, r.exit, 0});
    }
    if (r.region.index == 0 && s_.loss.valid()) add_sink(r);
    if (!p_.impossible.empty()) return;
    connect(r);
    connect_params(r, index);
  }

  // `checkpoint: all` keeps nothing inside a loop but what enters an iteration.
  [[nodiscard]] bool keeps_nothing(const RegionProblem& r) const {
    return p_.rules.checkpointing == Checkpointing::kAll && r.region.index != 0;
  }

  // The copy of a value that several users share. `unpaid`: its memory is counted elsewhere;
  // `carry`: it enters or leaves an iteration.
  int add_hub(RegionProblem& r, ValueId value, bool unpaid, bool carry) {
    VariableInfo v;
    v.kind = VariableInfo::Kind::kHub;
    v.value = value;
    v.table = &table_of(c_, value);
    const std::string& name = s_.graph->value(value).name;
    v.name = name.empty() ? "value" : name;
    const std::vector<Layout>& layouts = v.table->layouts();
    for (size_t l = 0; l < layouts.size(); ++l) {
      if (axes_with(layouts[l], p_.mesh, kPartial) != 0) continue;
      for (const Copy copy : {Copy::kNone, Copy::kCopy, Copy::kVia}) {
        if (copy == Copy::kCopy && !carry && keeps_nothing(r)) continue;
        Choice choice;
        if (copy == Copy::kCopy && !unpaid)
          choice.saved = static_cast<float>(bytes_on_device(c_, value, layouts[l]));
        v.layout.push_back(static_cast<int>(l));
        v.copy.push_back(copy);
        v.bytes.push_back(static_cast<float>(bytes_on_device(c_, value, layouts[l])));
        v.choices.push_back(choice);
      }
    }
    r.variables.push_back(std::move(v));
    return static_cast<int>(r.variables.size()) - 1;
  }

  void add_site(RegionProblem& r, int site) {
    const Site& s = s_.sites[static_cast<size_t>(site)];
    const int variable = static_cast<int>(r.variables.size());
    r.variables.push_back(site_variable(c_, site));
    if (r.variables.back().choices.empty()) p_.impossible.push_back(s.path);
    for (ValueId out : s.outputs) producer_[out.index] = variable;
    for (size_t i = 0; i < s.inputs.size(); ++i)
      users_[s.inputs[i].root.index].push_back({User::Kind::kSite, variable, i});
    for (size_t i = 0; i < s.params.size(); ++i)
      params_[s.params[i].param].push_back({User::Kind::kSite, variable, i});
  }

  void add_sink(RegionProblem& r) {
    VariableInfo v;
    v.kind = VariableInfo::Kind::kSink;
    v.value = s_.loss;
    v.table = &table_of(c_, s_.loss);
    v.name = "loss";
    v.choices.emplace_back();
    users_[s_.loss.index].push_back({User::Kind::kSink, static_cast<int>(r.variables.size()), 0});
    r.variables.push_back(std::move(v));
  }

  // Pairs along values. Iterates in variable order, so that results do not depend on hashing.
  void connect(RegionProblem& r) {
    std::map<int, ValueId> values;
    for (const auto& [value, users] : users_) values.emplace(value, ValueId{value});
    for (const auto& [index, value] : values) {
      const auto made = producer_.find(index);
      if (made == producer_.end()) continue;  // an activation from outside the loop
      int source = made->second;
      const std::vector<User> users = users_[index];
      if (users.size() > 1 &&
          r.variables[static_cast<size_t>(source)].kind == VariableInfo::Kind::kSite) {
        const int hub = add_hub(r, value, false, false);
        pair(r, source, value, {User::Kind::kHub, hub, 0});
        source = hub;
      }
      for (const User& user : users) pair(r, source, value, user);
    }
  }

  struct Side {
    std::vector<int32_t> classes;           // by choice
    std::vector<std::pair<int, int>> what;  // by class: layout, availability or need
  };

  static Side classify(const std::vector<std::pair<int, int>>& by_choice) {
    Side side;
    std::map<std::pair<int, int>, int> number;
    for (const auto& key : by_choice) {
      const auto [at, fresh] = number.emplace(key, static_cast<int>(side.what.size()));
      if (fresh) side.what.push_back(key);
      side.classes.push_back(at->second);
    }
    return side;
  }

  Side given(const VariableInfo& v, ValueId value) const {
    std::vector<std::pair<int, int>> keys;
    if (v.kind == VariableInfo::Kind::kSite) {
      const Site& s = s_.sites[static_cast<size_t>(v.site)];
      const auto out = static_cast<size_t>(std::find(s.outputs.begin(), s.outputs.end(), value) -
                                           s.outputs.begin());
      for (size_t i = 0; i < v.choices.size(); ++i) {
        const Kept kept = s.variants[static_cast<size_t>(v.variant[i])].kept;
        keys.emplace_back(v.options[static_cast<size_t>(v.option[i])].outputs[out],
                          kept == Kept::kNo      ? kAvailableNo
                          : kept == Kept::kSaved ? kAvailableSaved
                                                 : kAvailableAgain);
      }
    } else {
      for (size_t i = 0; i < v.choices.size(); ++i)
        keys.emplace_back(v.layout[i], v.copy[i] == Copy::kNone ? kAvailableNo : kAvailableSaved);
    }
    return classify(keys);
  }

  Side wanted(const VariableInfo& v, const User& user) const {
    std::vector<std::pair<int, int>> keys;
    if (v.kind == VariableInfo::Kind::kSite) {
      const Site& s = s_.sites[static_cast<size_t>(v.site)];
      for (size_t i = 0; i < v.choices.size(); ++i)
        keys.emplace_back(v.options[static_cast<size_t>(v.option[i])].inputs[user.use],
                          s.variants[static_cast<size_t>(v.variant[i])].needs[user.use]);
    } else if (v.kind == VariableInfo::Kind::kHub) {
      for (size_t i = 0; i < v.choices.size(); ++i)
        keys.emplace_back(v.layout[i], static_cast<int>(v.copy[i]));
    } else {
      keys.emplace_back(v.table->index(Layout{}), 0);
    }
    return classify(keys);
  }

  void pair(RegionProblem& r, int source, ValueId value, const User& user) {
    const VariableInfo& a = r.variables[static_cast<size_t>(source)];
    const VariableInfo& b = r.variables[static_cast<size_t>(user.variable)];
    const bool from_hub = a.kind == VariableInfo::Kind::kHub;
    const bool to_hub = b.kind == VariableInfo::Kind::kHub;
    const bool loops = to_hub && (user.variable == r.exit || is_entry(r, user.variable));
    Side row = given(a, value), column = wanted(b, user);
    Pair pair;
    pair.a = source;
    pair.b = user.variable;
    pair.kind = from_hub && !to_hub ? Pair::Kind::kHubToSite : Pair::Kind::kConvert;
    pair.table = &table_of(c_, value);
    pair.gradient = gradient_of(value, user, b);
    const int rows = static_cast<int>(row.what.size()),
              columns = static_cast<int>(column.what.size());
    pair.seconds = Table(rows, columns, 0);
    pair.part = Table(rows, columns, 0);
    pair.forward = Table(rows, columns, 0);
    pair.saved = Table(rows, columns, 0);
    const auto micro = p_.training.micro_batches;
    const ConversionTable& t = *pair.table;
    std::vector<double> bytes;  // of the wanted layouts
    for (const auto& [layout, need] : column.what)
      bytes.push_back(bytes_on_device(c_, value, t.layouts()[static_cast<size_t>(layout)]));
    bool any_saved = false;
    for (int i = 0; i < rows; ++i) {
      const auto& [from, available] = row.what[static_cast<size_t>(i)];
      for (int j = 0; j < columns; ++j) {
        const auto& [to, need] = column.what[static_cast<size_t>(j)];
        const double forward = t.seconds(from, to);
        double seconds = forward, again = 0;
        if (pair.gradient) seconds += t.backward_seconds(from, to);
        bool possible = true;
        if (to_hub) {
          const Copy copy = static_cast<Copy>(need);
          if (copy == Copy::kVia) {
            again = forward;
            possible = available != kAvailableNo && !(loops && available == kAvailableAgain);
          }
        } else if (need != 0) {
          if (available != kAvailableNo) {
            again = forward;
          } else if (from_hub || keeps_nothing(r)) {
            possible = false;
          } else {  // the converted operand itself is saved
            pair.saved(i, j) = static_cast<float>(bytes[static_cast<size_t>(j)]);
            any_saved = true;
          }
        }
        pair.seconds(i, j) = possible ? static_cast<float>(micro * (seconds + again)) : kNever;
        pair.part(i, j) = static_cast<float>(micro * again);
        pair.forward(i, j) = static_cast<float>(micro * forward);
      }
    }
    if (!any_saved) pair.saved = Table();
    pair.class_a = std::move(row.classes);
    pair.class_b = std::move(column.classes);
    pair.row = std::move(row.what);
    pair.column = std::move(column.what);
    r.pairs.push_back(std::move(pair));
  }

  static bool is_entry(const RegionProblem& r, int variable) {
    return std::any_of(r.children.begin(), r.children.end(),
                       [&](const RegionProblem::Child& c) { return c.entry == variable; });
  }

  [[nodiscard]] bool gradient_of(ValueId value, const User& user, const VariableInfo& b) const {
    if (b.kind == VariableInfo::Kind::kSink) return false;
    if (b.kind == VariableInfo::Kind::kSite)
      return s_.sites[static_cast<size_t>(b.site)].inputs[user.use].gradient;
    return s_.active[static_cast<size_t>(value.index)] != 0;
  }

  // Parameters of one region. One that outer iterations or other regions share costs its memory and
  // its update once, so a part of them an iteration.
  void connect_params(RegionProblem& r, size_t index) {
    const std::map<int, std::vector<User>> params(params_.begin(), params_.end());
    for (const auto& [param, users] : params) {
      const VariableInfo& first = r.variables[static_cast<size_t>(users[0].variable)];
      const Use& use = s_.sites[static_cast<size_t>(first.site)].params[users[0].use];
      const double part = use.invariant ? 1 / p_.regions[index].trips : 1;
      const int variable = add_param(r, use, part / payers_.at(param));
      for (const User& user : users) pair_param(r, variable, user, part);
    }
  }

  int add_param(RegionProblem& r, const Use& use, double part) {
    VariableInfo v;
    v.kind = VariableInfo::Kind::kParam;
    v.param = use.param;
    v.value = use.seen;
    v.table = &table_of(c_, use.seen);
    const ir::Input& input = s_.graph->inputs[static_cast<size_t>(use.param)];
    v.name = input.path;
    const bool trained = use.gradient && !input.frozen;
    const std::vector<Layout>& layouts = v.table->layouts();
    const std::vector<int64_t>& extents = v.table->extents();
    const auto elements = [&](const Layout& l) { return local_elements(l, extents, p_.mesh); };
    const double state = p_.training.state_bytes.empty()
                             ? 8
                             : p_.training.state_bytes[static_cast<size_t>(use.param)];
    const std::vector<char> wished = wished_layouts(use, layouts);
    for (size_t o = 0; o < layouts.size(); ++o) {
      if (axes_with(layouts[o], p_.mesh, kPartial) != 0) continue;
      for (size_t s = 0; s < layouts.size(); ++s) {
        if (!coarser(layouts[s], layouts[o]) || wished[s] == 0) continue;
        if (!trained && s != o) continue;
        for (const int gradient : gradients(static_cast<int>(s), static_cast<int>(o), trained)) {
          Choice c;
          const double stored = elements(layouts[s]), updated = elements(layouts[o]);
          c.parameters = static_cast<float>(
              part * (p_.training.mixed ? (trained ? 4 * updated : 0) + 2 * stored : 4 * stored));
          if (trained) {
            const double summed =
                gradient < 0 ? stored : elements(layouts[static_cast<size_t>(gradient)]);
            c.gradients = static_cast<float>(part * 4 * summed);
            c.optimizer = static_cast<float>(part * state * updated);
            // every micro-batch but the first adds to what is there: read once more, where products
            // do not add as they write
            if (!p_.model.epilogues)
              c.terms.compute = static_cast<float>(
                  part * 4 * summed * (p_.training.micro_batches - 1) / p_.model.memory_bandwidth);
            c.terms.optimizer =
                static_cast<float>(part * updated * (12 + 2 * state) / p_.model.memory_bandwidth);
            double collectives = v.table->seconds(static_cast<int>(o), static_cast<int>(s));
            if (gradient < 0) {
              const int local = v.table->index(dual(layouts[s], p_.mesh));
              collectives += v.table->seconds(local, static_cast<int>(o));
            }
            c.terms.parameters = static_cast<float>(part * collectives);
          }
          v.layout.push_back(static_cast<int>(s));
          v.gradient.push_back(gradient);
          v.optimizer.push_back(static_cast<int>(o));
          v.choices.push_back(c);
        }
      }
    }
    if (v.choices.empty()) p_.impossible.push_back(v.name);
    r.variables.push_back(std::move(v));
    return static_cast<int>(r.variables.size()) - 1;
  }

  // Whether a parameter stored so honours its `@shard`s.
  [[nodiscard]] bool pinned_so(const Use& use, const Layout& stored) const {
    const ir::Input& input = s_.graph->inputs[static_cast<size_t>(use.param)];
    const std::vector<ir::Pin>& pins = s_.graph->value(input.value).pins;
    const ir::Type& type = s_.graph->type(use.seen);
    const bool named = std::all_of(pins.begin(), pins.end(),
                                   [&](const ir::Pin& pin) { return type.has(pin.dim); });
    return pins.empty() || !named || honours(stored, type, pins, p_.mesh);
  }

  // Storage layouts that honour the annotations and, of those, follow most `shard` rules.
  [[nodiscard]] std::vector<char> wished_layouts(const Use& use,
                                                 const std::vector<Layout>& layouts) const {
    std::vector<char> out(layouts.size(), 0);
    std::vector<int> followed(layouts.size(), -1);
    int most = -1;
    for (size_t s = 0; s < layouts.size(); ++s) {
      if (!pinned_so(use, layouts[s]) || axes_with(layouts[s], p_.mesh, kPartial) != 0) continue;
      followed[s] =
          rules_followed(p_.rules, s_.graph->type(use.seen), layouts[s], *s_.graph, p_.mesh);
      most = std::max(most, followed[s]);
    }
    for (size_t s = 0; s < layouts.size(); ++s) out[s] = most >= 0 && followed[s] == most ? 1 : 0;
    return out;
  }

  [[nodiscard]] std::vector<int> gradients(int stored, int updated, bool trained) const {
    if (!trained) return {updated};
    std::vector<int> out = {updated};
    if (stored != updated) out.push_back(stored);
    if (p_.training.micro_batches > 1) out.push_back(-1);
    return out;
  }

  [[nodiscard]] bool coarser(const Layout& a, const Layout& b) const {
    for (size_t i = 0; i < p_.mesh.axes.size(); ++i) {
      if (a.axis[i] != b.axis[i] && a.axis[i] != kReplicated) return false;
    }
    return a.order == b.order;
  }

  void pair_param(RegionProblem& r, int variable, const User& user, double part) {
    const VariableInfo& v = r.variables[static_cast<size_t>(variable)];
    const VariableInfo& b = r.variables[static_cast<size_t>(user.variable)];
    const Site& site = s_.sites[static_cast<size_t>(b.site)];
    const Use& use = site.params[user.use];
    const bool trained = use.gradient && !s_.graph->inputs[static_cast<size_t>(use.param)].frozen;
    std::vector<std::pair<int, int>> rows, columns;
    for (size_t i = 0; i < v.choices.size(); ++i) rows.emplace_back(v.layout[i], v.gradient[i]);
    for (size_t i = 0; i < b.choices.size(); ++i)
      columns.emplace_back(b.options[static_cast<size_t>(b.option[i])].params[user.use],
                           site.variants[static_cast<size_t>(b.variant[i])].needs_param[user.use]);
    Side row = classify(rows), column = classify(columns);
    // a tied parameter may be seen under other dim names: positions are the same
    Pair pair;
    pair.a = variable;
    pair.b = user.variable;
    pair.kind = Pair::Kind::kParam;
    pair.table = v.table;
    pair.gradient = trained;
    pair.seconds =
        Table(static_cast<int>(row.what.size()), static_cast<int>(column.what.size()), 0);
    pair.part = pair.forward = pair.alive = pair.seconds;
    const double micro = p_.training.micro_batches;
    const ConversionTable& t = *v.table;
    for (int i = 0; i < pair.seconds.rows; ++i) {
      const auto& [stored, gradient] = row.what[static_cast<size_t>(i)];
      for (int j = 0; j < pair.seconds.columns; ++j) {
        const auto& [used, need] = column.what[static_cast<size_t>(j)];
        const double gather = t.seconds(stored, used);
        // a parameter that is whole where it is used stays so for all micro-batches and iterations
        const double gathers = gather * (1 + need) * (use.invariant ? part : 1) * micro;
        double reduce = 0;
        if (trained) {
          const int from = t.index(dual(t.layouts()[static_cast<size_t>(used)], p_.mesh));
          const int to = gradient >= 0
                             ? gradient
                             : t.index(dual(t.layouts()[static_cast<size_t>(stored)], p_.mesh));
          reduce = t.seconds(from, to) * part * micro;
        }
        const double copy = bytes_on_device(c_, use.seen, t.layouts()[static_cast<size_t>(used)]);
        double alive = used == stored ? 0 : copy;
        if (trained && used != gradient) alive += copy;
        pair.alive(i, j) = static_cast<float>(alive);
        pair.seconds(i, j) = static_cast<float>(gathers + reduce);
        pair.part(i, j) = static_cast<float>(reduce);
        pair.forward(i, j) = static_cast<float>(gather * (use.invariant ? part : 1) * micro);
      }
    }
    pair.class_a = std::move(row.classes);
    pair.class_b = std::move(column.classes);
    pair.row = std::move(row.what);
    pair.column = std::move(column.what);
    r.pairs.push_back(std::move(pair));
  }

  Problem& p_;
  const SiteGraph& s_;
  SiteContext c_;
  std::unordered_map<int, int> producer_;  // value -> variable
  std::unordered_map<int, std::vector<User>> users_;
  std::unordered_map<int, std::vector<User>> params_;
  std::unordered_map<int, double> payers_;  // by parameter: regions that use it
};

}  // namespace

Problem make_problem(const SiteGraph& sites, const Mesh& mesh, const Training& training,
                     const CostModel& model, const PlanRules& rules) {
  Problem problem;
  problem.graph = sites.graph;
  problem.sites = &sites;
  problem.mesh = mesh;
  problem.conversions = std::make_unique<Conversions>(mesh);
  problem.training = training;
  problem.model = model;
  problem.rules = rules;
  problem.extents = dim_extents(*sites.graph, training.bindings);
  Builder(problem, sites).run();
  return problem;
}

}  // namespace cad::planner
