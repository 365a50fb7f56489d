// planner/exact_proof.cc -- see exact_proof.h. Regions are folded from the inside out, then what is
// outside of them is handed inwards; choices that a measure rules out go, and the rest is folded
// again, this time as labels too.
#include "planner/exact_proof.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "planner/exact_fold.h"
#include "planner/exact_plan.h"

namespace cad::planner {

namespace {

constexpr int64_t kMostTrips = 128;
constexpr double kUnlimited = 1e18;  // bytes

// A region as nodes and factors, by the choices that are left.
struct Built {
  ExactRegion region;
  std::vector<int> node_of;                 // by variable; -1: a parameter that its site has in it
  std::vector<std::vector<int>> choice_of;  // by node, choice: the variable's
  std::vector<int> variable_of;             // by node
  std::vector<std::unique_ptr<Labels>> lists;  // of parameters
  std::vector<int> loop_factor;                // by child
  std::vector<int> states;                     // choices of the carry's hubs that are left
  std::unique_ptr<ExactFold> fold;
};

class Prover {
 public:
  Prover(const Problem& p, double budget, const ProofLimits& limits)
      : p_(p), budget_(std::min(budget, kUnlimited)), limits_(limits) {
    for (const RegionProblem& r : p.regions) {
      floors_.push_back(0);
      for (const VariableInfo& v : r.variables) {
        double moment = std::numeric_limits<double>::infinity();
        for (const Choice& c : v.choices)
          moment = std::min(moment, static_cast<double>(c.transient));
        floors_.back() = std::max(floors_.back(), moment);
      }
      floor_ = std::max(floor_, floors_.back());
    }
    parent_.assign(p.regions.size(), {-1, -1});
    for (size_t r = 0; r < p.regions.size(); ++r) {
      for (size_t c = 0; c < p.regions[r].children.size(); ++c)
        parent_[static_cast<size_t>(p.regions[r].children[c].region)] = {static_cast<int>(r),
                                                                         static_cast<int>(c)};
    }
    left_.resize(p.regions.size());
    for (size_t r = 0; r < p.regions.size(); ++r) {
      for (const VariableInfo& v : p.regions[r].variables)
        left_[r].emplace_back(v.choices.size(), 1);
    }
    for (const RegionProblem& r : p.regions) prices_.emplace_back(r.variables.size(), 0.0);
    for (const MomentPrice& x : limits.moments.list)
      prices_[x.region][x.variable] += x.price / executions(x.region);
    for (const std::vector<double>& of : prices_)
      sums_.push_back(std::accumulate(of.begin(), of.end(), 0.0));
    make_measures();
  }

  std::optional<Proof> run() {
    for (const RegionProblem& r : p_.regions) {
      if (r.trips > kMostTrips) return std::nullopt;
    }
    Proof proof;
    LabelMaker numbers(0, limits_.work);  // parameters' own sets
    if (!numbers_of_all(numbers)) return std::nullopt;
    if (ruled_out() || !drop_choices()) {
      proof.complete = true;
      proof.bound = limits_.target;
      return proof;
    }
    double filters = 1;
    if (!numbers_of_all(numbers)) return std::nullopt;
    for (size_t r = 0; r < p_.regions.size(); ++r)
      filters += executions(r) * (built_[r].fold->filters() + 2);
    maker_ = std::make_unique<LabelMaker>(limits_.grain / filters, limits_.work);
    maker_->derivations() = numbers.derivations();
    for (size_t r = p_.regions.size(); r-- > 0;) {
      labels_of(r);
      if (maker_->gave_up()) break;
    }
    proof.work = limits_.work - std::max<int64_t>(0, maker_->work_left());
    if (maker_->gave_up()) return proof;
    proof.complete = true;
    conclude(proof);
    return proof;
  }

 private:
  void make_measures() {
    const double room = budget_ - floor_;
    double loops = 0;  // of memory for a moment in loops, which what runs again comes on top of
    for (size_t r = 1; r < floors_.size(); ++r)
      loops += floors_[r] / (static_cast<double>(floors_.size()) - 1);
    const auto line = [&](double hide, double price, bool again) {
      Measure m;
      m.comm = 1 - hide;
      m.compute = hide;
      m.held = price;
      m.again = again ? price : 0;
      m.most = (limits_.target + price * (again ? budget_ - loops : room)) * (1 + 4e-6);
      measures_.push_back(m);
    };
    line(limits_.hide, limits_.price, false);
    if (limits_.price > 0) line(limits_.hide, limits_.price, true);
    if (limits_.price > 0) line(limits_.hide, limits_.price * 4, false);
    if (p_.model.overlap > 0) line(limits_.hide < 0.5 ? 1 : 0, limits_.price / 2, false);
    // Prices of moments, and less and more of them: what they leave open differs.
    for (const double times : {1.0, 0.5, 2.0, 0.0}) {
      const double price = limits_.moments.sum();
      if (price <= 0) break;
      Measure m;
      m.comm = 1 - limits_.moments.hide;
      m.compute = limits_.moments.hide;
      m.held = times * price;
      m.mean = times;
      m.most = (limits_.target + m.held * budget_) * (1 + 4e-6);
      measures_.push_back(m);
    }
    Measure memory;  // what is held alone, in units near 1
    memory.held = 1 / std::max(budget_, 1.0);
    memory.most = room * memory.held * (1 + 4e-6);
    measures_.push_back(memory);
  }

  [[nodiscard]] double executions(size_t r) const {
    double n = p_.regions[r].trips;
    for (int at = parent_[r].first; at >= 0; at = parent_[static_cast<size_t>(at)].first)
      n *= p_.regions[static_cast<size_t>(at)].trips;
    return n;
  }
  [[nodiscard]] std::vector<Measure> measures(size_t r) const {
    std::vector<Measure> out = measures_;
    const double loops = std::max(1.0, static_cast<double>(p_.regions.size()) - 1);
    for (Measure& m : out) m.again /= executions(r) * loops;
    return out;
  }

  // ---- from a region to nodes and factors

  [[nodiscard]] Label label_of(size_t r, size_t v, const Choice& c) const {
    const double base = static_cast<double>(c.terms.recompute) +
                        static_cast<double>(c.terms.communicate) +
                        static_cast<double>(c.terms.optimizer);
    const auto compute = static_cast<double>(c.terms.compute);
    const auto parameters = static_cast<double>(c.terms.parameters);
    const double seen = 1 - p_.model.overlap;
    Label l;
    l.hidden_comm = base + compute + seen * parameters;
    l.hidden_compute = base + seen * compute + parameters;
    l.held = static_cast<double>(c.parameters) + static_cast<double>(c.gradients) +
             static_cast<double>(c.optimizer) + static_cast<double>(c.saved);
    l.moment = static_cast<double>(c.transient);
    (r == 0 ? l.moment : l.again) += static_cast<double>(c.again);
    l.mean = prices_[r][v] * l.moment + sums_[r] * l.again;
    return l;
  }
  // Of a pair; false: forbidden.
  bool label_of(size_t r, const Pair& pair, int i, int j, Label& l) const {
    if (pair.seconds(i, j) == kNever) return false;
    const auto seconds = static_cast<double>(pair.seconds(i, j));
    l.hidden_comm = (pair.kind == Pair::Kind::kParam ? 1 - p_.model.overlap : 1) * seconds;
    l.hidden_compute = seconds;
    if (!pair.saved.at.empty()) l.held = static_cast<double>(pair.saved(i, j));
    if (!pair.alive.at.empty()) l.moment = static_cast<double>(pair.alive(i, j));
    l.mean = prices_[r][static_cast<size_t>(pair.b)] * l.moment;
    return true;
  }

  void build(size_t r, LabelMaker& maker) {
    const RegionProblem& region = p_.regions[r];
    Built& b = built_[r];
    b = Built{};
    const size_t n = region.variables.size();
    b.node_of.assign(n, -1);
    std::vector<std::vector<size_t>> params(n);  // by parameter: its pairs
    for (size_t i = 0; i < region.pairs.size(); ++i) {
      if (region.pairs[i].kind == Pair::Kind::kParam)
        params[static_cast<size_t>(region.pairs[i].a)].push_back(i);
    }
    std::vector<std::vector<size_t>> inside(n);  // by site: pairs of parameters of its own
    for (size_t v = 0; v < n; ++v) {
      if (params[v].size() == 1 && region.variables[v].kind == VariableInfo::Kind::kParam)
        inside[static_cast<size_t>(region.pairs[params[v][0]].b)].push_back(params[v][0]);
    }
    std::vector<char> gathers(n, 0);  // by site: a parameter that others use too
    for (size_t v = 0; v < n; ++v) {
      for (const size_t i : params[v]) {
        if (params[v].size() > 1 && !region.pairs[i].alive.at.empty())
          gathers[static_cast<size_t>(region.pairs[i].b)] = 1;
      }
    }
    for (size_t v = 0; v < n; ++v) {
      if (params[v].size() == 1 && region.variables[v].kind == VariableInfo::Kind::kParam) continue;
      b.node_of[v] = static_cast<int>(b.region.nodes.size());
      b.variable_of.push_back(static_cast<int>(v));
      add_node(r, v, inside[v], b, maker);
      if (gathers[v] != 0) part_by_moment(b, maker);
    }
    if (region.entry >= 0) {
      b.region.entry = b.node_of[static_cast<size_t>(region.entry)];
      b.region.exit = b.node_of[static_cast<size_t>(region.exit)];
      b.states = b.choice_of[static_cast<size_t>(b.region.entry)];
    }
    for (size_t i = 0; i < region.pairs.size(); ++i) {
      if (b.node_of[static_cast<size_t>(region.pairs[i].a)] >= 0) add_pair(r, region.pairs[i], b);
    }
  }

  [[nodiscard]] bool is_state(size_t r, size_t v) const {
    const auto index = static_cast<int>(v);
    return index == p_.regions[r].entry || index == p_.regions[r].exit;
  }

  void add_node(size_t r, size_t v, const std::vector<size_t>& inside, Built& b,
                LabelMaker& maker) {
    const RegionProblem& region = p_.regions[r];
    const VariableInfo& info = region.variables[v];
    std::map<std::pair<size_t, int>, const Labels*> lists;  // pair, column
    b.region.nodes.emplace_back();
    b.choice_of.emplace_back();
    for (size_t c = 0; c < info.choices.size(); ++c) {
      if (left_[r][v][c] == 0) continue;
      ExactChoice choice;
      const bool unpaid = static_cast<int>(v) == region.exit;
      if (!unpaid) choice.own = label_of(r, v, info.choices[c]);
      choice.own.from = maker.derivations().add(
          {Derivation::Kind::kChoice, static_cast<int32_t>(v), static_cast<int32_t>(c)});
      for (const size_t i : inside) {
        const Pair& pair = region.pairs[i];
        const int column = pair.class_b[c];
        auto at = lists.find({i, column});
        if (at == lists.end()) {
          b.lists.push_back(std::make_unique<Labels>(param_labels(r, pair, column, maker)));
          at = lists.emplace(std::make_pair(i, column), b.lists.back().get()).first;
        }
        choice.with.push_back(at->second);
      }
      b.region.nodes.back().push_back(std::move(choice));
      b.choice_of.back().push_back(static_cast<int>(c));
    }
  }

  // The last node's choices once for each moment that its own parameters come to: factors beside
  // it add theirs to that.
  static void part_by_moment(Built& b, LabelMaker& maker) {
    std::vector<ExactChoice> parted;
    std::vector<int> choice_of;
    for (size_t i = 0; i < b.region.nodes.back().size(); ++i) {
      const ExactChoice& c = b.region.nodes.back()[i];
      Labels all = {Label{}};
      for (const Labels* with : c.with) {
        Labels next;
        for (const Label& x : all) {
          for (const Label& y : *with) {
            next.push_back(at_once(x, y));
            next.back().from = maker.derivations().join(x.from, y.from);
          }
        }
        all = std::move(next);
      }
      std::map<double, Labels> by_moment;
      for (const Label& l : all) by_moment[l.moment].push_back(l);
      for (auto& [moment, labels] : by_moment) {
        b.lists.push_back(std::make_unique<Labels>(std::move(labels)));
        parted.push_back({c.own, {b.lists.back().get()}});
        choice_of.push_back(b.choice_of.back()[i]);
      }
    }
    b.region.nodes.back() = std::move(parted);
    b.choice_of.back() = std::move(choice_of);
  }

  // A parameter's choices beside one layout that its only user wants.
  Labels param_labels(size_t r, const Pair& pair, int column, LabelMaker& maker) const {
    const auto v = static_cast<size_t>(pair.a);
    const VariableInfo& info = p_.regions[r].variables[v];
    for (size_t c = 0; c < info.choices.size(); ++c) {
      Label between;
      if (!label_of(r, pair, pair.class_a[c], column, between)) continue;
      Label l = at_once(label_of(r, v, info.choices[c]), between);
      l.from = maker.derivations().add(
          {Derivation::Kind::kChoice, static_cast<int32_t>(v), static_cast<int32_t>(c)});
      maker.add(l);
    }
    return maker.take();
  }

  // Classes that the choices left still use, numbered anew. `moments`: of each choice, which tell
  // classes apart as well.
  struct Classes {
    std::vector<int32_t> by_choice;
    std::vector<int> original;
    std::vector<double> moment;
  };
  static Classes classes_of(const std::vector<int32_t>& all, const std::vector<int>& choices,
                            const std::vector<double>& moments = {}) {
    Classes out;
    std::map<std::pair<int, double>, int32_t> number;
    for (size_t i = 0; i < choices.size(); ++i) {
      const int k = all[static_cast<size_t>(choices[i])];
      const double moment = moments.empty() ? 0 : moments[i];
      const auto [at, fresh] =
          number.emplace(std::pair{k, moment}, static_cast<int32_t>(out.original.size()));
      if (fresh) {
        out.original.push_back(k);
        out.moment.push_back(moment);
      }
      out.by_choice.push_back(at->second);
    }
    return out;
  }

  // What a parameter with several users takes for a moment comes on top of its user's own moment,
  // so the factor between them knows that too.
  void add_pair(size_t r, const Pair& pair, Built& b) const {
    ExactFactor f;
    f.a = b.node_of[static_cast<size_t>(pair.a)];
    f.b = b.node_of[static_cast<size_t>(pair.b)];
    std::vector<double> moments;
    if (!pair.alive.at.empty()) {
      for (const ExactChoice& c : b.region.nodes[static_cast<size_t>(f.b)])
        moments.push_back(least_moment(c));
    }
    Classes rows = classes_of(pair.class_a, b.choice_of[static_cast<size_t>(f.a)]);
    Classes columns = classes_of(pair.class_b, b.choice_of[static_cast<size_t>(f.b)], moments);
    f.labels = LabelTable(static_cast<int>(rows.original.size()),
                          static_cast<int>(columns.original.size()));
    for (int i = 0; i < f.labels.rows; ++i) {
      for (int j = 0; j < f.labels.columns; ++j) {
        Label l;
        if (!label_of(r, pair, rows.original[static_cast<size_t>(i)],
                      columns.original[static_cast<size_t>(j)], l))
          continue;
        if (l.moment > 0) l.moment += columns.moment[static_cast<size_t>(j)];
        f.labels(i, j).push_back(l);
      }
    }
    f.class_a = std::move(rows.by_choice);
    f.class_b = std::move(columns.by_choice);
    b.region.factors.push_back(std::move(f));
  }

  // Of a choice, with the least that its own parameters take besides.
  static double least_moment(const ExactChoice& choice) {
    double sum = choice.own.moment;
    for (const Labels* with : choice.with) {
      double least = std::numeric_limits<double>::infinity();
      for (const Label& l : *with) least = std::min(least, l.moment);
      sum += with->empty() ? 0 : least;
    }
    return sum;
  }

  // ---- loops

  // Factor of a loop in its parent: rows and columns are states of the carry, and one for states
  // that the body no longer has.
  void add_loop(size_t r, size_t c) {
    const RegionProblem::Child& child = p_.regions[r].children[c];
    Built& b = built_[r];
    const Built& body = built_[static_cast<size_t>(child.region)];
    ExactFactor f;
    if (child.entry < 0) {
      f.labels = LabelTable(1, 1);
    } else {
      f.a = b.node_of[static_cast<size_t>(child.entry)];
      f.b = b.node_of[static_cast<size_t>(child.exit)];
      const auto n = static_cast<int>(body.states.size());
      f.labels = LabelTable(n + 1, n + 1);
      const auto classes = [&](int node) {
        std::vector<int32_t> out;
        for (const int choice : b.choice_of[static_cast<size_t>(node)]) {
          const auto at = std::find(body.states.begin(), body.states.end(), choice);
          out.push_back(static_cast<int32_t>(at - body.states.begin()));
        }
        return out;
      };
      f.class_a = classes(f.a);
      f.class_b = classes(f.b);
    }
    // as sets: more than one label marks that what is outside is asked for
    for (Labels& cell : f.labels.cells) cell.assign(2, Label{});
    b.loop_factor.push_back(static_cast<int>(b.region.factors.size()));
    b.region.factors.push_back(std::move(f));
  }

  // Powers 0..trips of a body's table, over states.
  static std::vector<Table> powers(const Table& once, int64_t trips) {
    std::vector<Table> out;
    Table identity(once.rows, once.columns, kNever);
    for (int i = 0; i < once.rows; ++i) identity(i, i) = 0;
    out.push_back(std::move(identity));
    for (int64_t i = 1; i <= trips; ++i) out.push_back(i == 1 ? once : min_plus(out.back(), once));
    return out;
  }
  static Table turned(const Table& t) {
    Table out(t.columns, t.rows, 0);
    for (int r = 0; r < t.rows; ++r) {
      for (int c = 0; c < t.columns; ++c) out(c, r) = t(r, c);
    }
    return out;
  }

  // A child's table with the last state that it has not.
  static Table padded(const Table& t) {
    Table out(t.rows + 1, t.columns + 1, kNever);
    for (int r = 0; r < t.rows; ++r) {
      for (int c = 0; c < t.columns; ++c) out(r, c) = t(r, c);
    }
    return out;
  }

  // Numbers of all regions, in and out, for every measure. False: a graph does not fold.
  bool numbers_of_all(LabelMaker& maker) {
    built_.clear();
    built_.resize(p_.regions.size());
    for (size_t r = p_.regions.size(); r-- > 0;) {
      build(r, maker);
      for (size_t c = 0; c < p_.regions[r].children.size(); ++c) add_loop(r, c);
      built_[r].fold = std::make_unique<ExactFold>(built_[r].region);
      if (built_[r].fold->stuck()) return false;
    }
    scalars_.assign(p_.regions.size(), {});
    powers_.assign(p_.regions.size(), {});
    for (size_t r = p_.regions.size(); r-- > 0;) numbers_inside(r);
    for (size_t r = 0; r < p_.regions.size(); ++r) numbers_outside(r);
    return true;
  }

  void numbers_inside(size_t r) {
    const std::vector<Measure> list = measures(r);
    for (size_t k = 0; k < list.size(); ++k) {
      std::vector<std::pair<int, const Table*>> loops;
      for (size_t c = 0; c < p_.regions[r].children.size(); ++c) {
        const auto child = static_cast<size_t>(p_.regions[r].children[c].region);
        const std::vector<Table>& powers = powers_[child][k];
        loops.emplace_back(built_[r].loop_factor[c], &powers.back());
      }
      scalars_[r].push_back(built_[r].fold->inside(list[k], loops));
      const Table& once = scalars_[r].back().result;
      powers_[r].push_back(powers(p_.regions[r].entry >= 0 ? padded(once) : once,
                                  static_cast<int64_t>(p_.regions[r].trips)));
    }
  }

  void numbers_outside(size_t r) {
    const auto [parent, child] = parent_[r];
    for (size_t k = 0; k < measures_.size(); ++k) {
      Scalars& s = scalars_[r][k];
      Table rest(s.result.rows, s.result.columns, 0);
      if (parent >= 0) {
        const auto factor = static_cast<size_t>(
            built_[static_cast<size_t>(parent)].loop_factor[static_cast<size_t>(child)]);
        rest = around_iteration(powers_[r][k],
                                scalars_[static_cast<size_t>(parent)][k].factor_rest[factor]);
        if (p_.regions[r].entry >= 0) {
          Table cut(s.result.rows, s.result.columns, 0);
          for (int i = 0; i < cut.rows; ++i) {
            for (int j = 0; j < cut.columns; ++j) cut(i, j) = rest(i, j);
          }
          rest = std::move(cut);
        }
      }
      built_[r].fold->outside(s, rest);
    }
  }

  // The least around one iteration, wherever it stands, by the states before and after it.
  static Table around_iteration(const std::vector<Table>& powers, const Table& outside) {
    const size_t n = powers.size() - 1;
    Table least(outside.rows, outside.columns, kNever);
    for (size_t i = 0; i < n; ++i) {
      const Table before = min_plus(turned(powers[i]), outside);
      const Table both = min_plus(before, turned(powers[n - 1 - i]));
      for (size_t x = 0; x < least.at.size(); ++x) least.at[x] = std::min(least.at[x], both.at[x]);
    }
    return least;
  }

  [[nodiscard]] bool ruled_out() const {
    for (size_t k = 0; k < measures_.size(); ++k) {
      if (static_cast<double>(scalars_[0][k].least) > measures_[k].most) return true;
    }
    return false;
  }

  // False: a variable has none left.
  bool drop_choices() {
    for (size_t r = 0; r < p_.regions.size(); ++r) {
      const Built& b = built_[r];
      for (size_t n = 0; n < b.variable_of.size(); ++n) {
        const auto v = static_cast<size_t>(b.variable_of[n]);
        std::vector<char> left(left_[r][v].size(), 0);
        for (size_t i = 0; i < b.choice_of[n].size(); ++i) {
          bool open = true;
          for (size_t k = 0; k < measures_.size(); ++k)
            open = open && static_cast<double>(scalars_[r][k].total[n][i]) <= measures_[k].most;
          if (open) left[static_cast<size_t>(b.choice_of[n][i])] = 1;
        }
        left_[r][v] = std::move(left);
      }
      // a state is left if the carry can have it before or after some iteration
      if (p_.regions[r].entry < 0) continue;
      std::vector<char>& before = left_[r][static_cast<size_t>(p_.regions[r].entry)];
      std::vector<char>& after = left_[r][static_cast<size_t>(p_.regions[r].exit)];
      for (size_t i = 0; i < before.size(); ++i)
        before[i] = after[i] = before[i] != 0 || after[i] != 0 ? 1 : 0;
    }
    for (const auto& region : left_) {
      for (const std::vector<char>& choices : region) {
        if (std::count(choices.begin(), choices.end(), 1) == 0) return false;
      }
    }
    return true;
  }

  // ---- labels

  void labels_of(size_t r) {
    Built& b = built_[r];
    for (size_t c = 0; c < p_.regions[r].children.size(); ++c)
      b.region.factors[static_cast<size_t>(b.loop_factor[c])].labels = std::move(loops_[r][c]);
    LabelTable once =
        b.fold->labels(*maker_, scalars_[r], measures(r), budget_, r == 0 ? floor_ : floors_[r]);
    if (maker_->gave_up()) return;
    const auto [parent, child] = parent_[r];
    if (parent < 0) {
      root_ = std::move(once.cells[0]);
      return;
    }
    for (Labels& cell : once.cells) {
      for (Label& l : cell) {
        l.moment = std::max(l.moment, floors_[r]) + l.again;
        l.from = maker_->derivations().add({Derivation::Kind::kIteration, l.from, -1});
      }
    }
    LabelTable all = iterations(r, once);
    for (Labels& cell : all.cells) {
      for (Label& l : cell) {
        l.again = 0;
        l.from = maker_->derivations().add({Derivation::Kind::kLoop, child, l.from});
      }
    }
    if (p_.regions[r].entry >= 0) {
      LabelTable wide(all.rows + 1, all.columns + 1);
      for (int i = 0; i < all.rows; ++i) {
        for (int j = 0; j < all.columns; ++j) wide(i, j) = std::move(all(i, j));
      }
      all = std::move(wide);
    }
    auto& list = loops_[static_cast<size_t>(parent)];
    list.resize(p_.regions[static_cast<size_t>(parent)].children.size());
    list[static_cast<size_t>(child)] = std::move(all);
  }

  // One iteration after the other; what the rest of the loop needs at least is known exactly.
  LabelTable iterations(size_t r, const LabelTable& once) {
    const auto [parent, child] = parent_[r];
    const auto factor = static_cast<size_t>(
        built_[static_cast<size_t>(parent)].loop_factor[static_cast<size_t>(child)]);
    const std::vector<Measure> list = measures(r);
    const auto trips = static_cast<size_t>(p_.regions[r].trips);
    // within another loop what that one runs again comes on top of these moments
    const double alike = parent == 0 ? floor_ : 0;
    LabelTable so_far = once;
    for (size_t n = 1; n <= trips; ++n) {
      std::vector<Table> rest;  // by measure: from the first state to the one after n iterations
      for (size_t k = 0; k < list.size(); ++k)
        rest.push_back(min_plus(scalars_[static_cast<size_t>(parent)][k].factor_rest[factor],
                                turned(powers_[r][k][trips - n])));
      LabelTable next(so_far.rows, so_far.columns);
      for (int i = 0; i < next.rows; ++i) {
        for (int j = 0; j < next.columns; ++j) {
          const auto allowed = [&](const Label& l) {
            if (l.held + l.moment > budget_) return false;
            for (size_t k = 0; k < list.size(); ++k) {
              if (list[k].of(l) + static_cast<double>(rest[k](i, j)) > list[k].most) return false;
            }
            return true;
          };
          if (n == 1) {
            for (const Label& l : once(i, j)) {
              if (allowed(l)) maker_->add(l);
            }
          } else {
            for (int h = 0; h < so_far.columns; ++h) {
              if (!so_far(i, h).empty() && !once(h, j).empty())
                maker_->add_joins(so_far(i, h), once(h, j), allowed, Derivation::Kind::kSequence);
            }
          }
          next(i, j) = maker_->take(alike, true);
          if (maker_->gave_up()) return next;
        }
      }
      so_far = std::move(next);
    }
    return so_far;
  }

  // ---- the answer

  void conclude(Proof& proof) {
    std::vector<const Label*> left;
    for (const Label& l : root_) {
      if (l.held + std::max(l.moment, floor_) <= budget_ && l.seconds() <= limits_.target)
        left.push_back(&l);
    }
    std::sort(left.begin(), left.end(),
              [](const Label* x, const Label* y) { return x->seconds() < y->seconds(); });
    proof.bound = limits_.target;
    if (left.empty()) return;
    proof.bound = std::min(proof.bound, left[0]->seconds() - limits_.grain);
    for (const Label* label : left) {
      BodyPlan plan = plan_of_label(p_, maker_->derivations(), label->from);
      if (evaluate(p_, plan).peak > budget_) continue;
      proof.plan = std::move(plan);
      return;
    }
  }

  const Problem& p_;
  double budget_;
  ProofLimits limits_;
  double floor_ = 0;            // memory that every plan has for a moment
  std::vector<double> floors_;  // of each region
  Moments prices_;              // seconds a byte, of one iteration
  std::vector<double> sums_;    // of them, by region
  std::vector<Measure> measures_;
  std::vector<std::pair<int, int>> parent_;           // region, child; by region
  std::vector<std::vector<std::vector<char>>> left_;  // choices, by region and variable
  std::vector<Built> built_;
  std::vector<std::vector<Scalars>> scalars_;            // by region, measure
  std::vector<std::vector<std::vector<Table>>> powers_;  // by region, measure, iterations
  std::unique_ptr<LabelMaker> maker_;
  std::map<size_t, std::vector<LabelTable>> loops_;  // by parent region
  Labels root_;
};

}  // namespace

std::optional<Proof> prove(const Problem& problem, double budget, const ProofLimits& limits) {
  return Prover(problem, budget, limits).run();
}

}  // namespace cad::planner
