// planner/priced.cc -- see priced.h. Regions fold from the innermost outwards; a loop is an edge of
// its region, from the hub of the carry before it to the hub after it.
#include "planner/priced.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"

namespace cad::planner {

namespace {

// One entry an iteration.
std::vector<const BodyPlan*> unrolled(const std::vector<Run>& runs) {
  std::vector<const BodyPlan*> out;
  for (const Run& run : runs) {
    for (int64_t i = 0; i < run.count; ++i) {
      for (const BodyPlan& body : run.pattern) out.push_back(&body);
    }
  }
  return out;
}

bool same(const BodyPlan& a, const BodyPlan& b);
bool same(const std::vector<Run>& a, const std::vector<Run>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].count != b[i].count || a[i].pattern.size() != b[i].pattern.size()) return false;
    for (size_t j = 0; j < a[i].pattern.size(); ++j) {
      if (!same(a[i].pattern[j], b[i].pattern[j])) return false;
    }
  }
  return true;
}
bool same(const BodyPlan& a, const BodyPlan& b) {
  if (a.choices != b.choices || a.loops.size() != b.loops.size()) return false;
  for (size_t i = 0; i < a.loops.size(); ++i) {
    if (!same(a.loops[i], b.loops[i])) return false;
  }
  return true;
}

std::vector<Run> rolled(const std::vector<const BodyPlan*>& steps) {
  std::vector<Run> out;
  for (const BodyPlan* step : steps) {
    if (!out.empty() && out.back().pattern.size() == 1 && same(out.back().pattern[0], *step)) {
      ++out.back().count;
    } else {
      out.push_back({1, {*step}});
    }
  }
  return out;
}

}  // namespace

Priced::Priced(const Problem& p, const PriceOptions& options)
    : p_(p),
      o_(options),
      compute_(1 - options.hide * p.model.overlap),
      parameters_(1 - (1 - options.hide) * p.model.overlap) {
  folded_.resize(p.regions.size());
  tables_.resize(p.regions.size());
  powers_.resize(p.regions.size());
  if (o_.only_segments) return;
  for (size_t r = p.regions.size(); r-- > 0;) fold(r);
}

double Priced::value() const {
  return stuck_ ? 0 : static_cast<double>(folded_[0]->result().at[0]);
}

std::vector<float> Priced::priced_choices(size_t r, size_t v, bool again_run) const {
  const RegionProblem& region = p_.regions[r];
  const double again = r == 0 || again_run ? 0 : again_price(r);
  const double moment_price =
      o_.moments == nullptr || again_run ? 0 : o_.price * (*o_.moments)[r][v] / executions(r);
  const double saved = again_run ? o_.segment_price : 1;
  std::vector<float> cost;
  const std::vector<Choice>& choices = region.variables[v].choices;
  cost.reserve(choices.size());
  for (size_t i = 0; i < choices.size(); ++i) {
    const Choice& c = choices[i];
    const double held = static_cast<double>(c.parameters) + static_cast<double>(c.gradients) +
                        static_cast<double>(c.optimizer) + saved * static_cast<double>(c.saved);
    const double moment =
        static_cast<double>(c.transient) + (r == 0 ? static_cast<double>(c.again) : 0);
    const double total = compute_ * static_cast<double>(c.terms.compute) +
                         static_cast<double>(c.terms.recompute) +
                         static_cast<double>(c.terms.communicate) +
                         parameters_ * static_cast<double>(c.terms.parameters) +
                         static_cast<double>(c.terms.optimizer) + o_.price * held +
                         again * static_cast<double>(c.again) + moment_price * moment +
                         (again_run ? static_cast<double>(c.forward) : 0);
    const bool allowed = moment <= o_.limit && (o_.mask == nullptr || o_.mask->choices.empty() ||
                                                o_.mask->choices[r][v][i] != 0);
    const bool unpaid = static_cast<int>(v) == region.exit;  // the next iteration's entry
    cost.push_back(!allowed ? kNever : unpaid ? 0 : static_cast<float>(total));
  }
  return cost;
}

FoldProblem Priced::priced_region(size_t r, bool again) const {
  const RegionProblem& region = p_.regions[r];
  FoldProblem f;
  for (size_t v = 0; v < region.variables.size(); ++v)
    f.nodes.push_back(priced_choices(r, v, again));
  const bool copies = o_.mask == nullptr || o_.mask->copies.empty() || o_.mask->copies[r] != 0;
  for (const Pair& pair : region.pairs) {
    FoldEdge e;
    e.a = pair.a;
    e.b = pair.b;
    e.class_a = pair.class_a;
    e.class_b = pair.class_b;
    e.cost = pair.seconds;
    if (pair.kind == Pair::Kind::kParam && parameters_ != 1) {
      for (float& x : e.cost.at) x *= static_cast<float>(parameters_);
    }
    if (again) {
      for (size_t i = 0; i < e.cost.at.size(); ++i) e.cost.at[i] += pair.forward.at[i];
    }
    if (!pair.alive.at.empty() && std::isfinite(o_.limit)) {
      for (size_t i = 0; i < e.cost.at.size(); ++i) {
        if (static_cast<double>(pair.alive.at[i]) > o_.limit) e.cost.at[i] = kNever;
      }
    }
    const double moment_price =
        o_.moments == nullptr || again
            ? 0
            : o_.price * (*o_.moments)[r][static_cast<size_t>(pair.b)] / executions(r);
    if (!pair.alive.at.empty() && moment_price > 0 && pair.b != region.exit) {
      for (size_t i = 0; i < e.cost.at.size(); ++i)
        e.cost.at[i] += static_cast<float>(moment_price * static_cast<double>(pair.alive.at[i]));
    }
    const double price = o_.price * (again ? o_.segment_price : 1);
    if (!pair.saved.at.empty() && (price > 0 || !copies)) {
      for (size_t i = 0; i < e.cost.at.size(); ++i) {
        if (!copies && pair.saved.at[i] > 0)
          e.cost.at[i] = kNever;
        else
          e.cost.at[i] += static_cast<float>(price * static_cast<double>(pair.saved.at[i]));
      }
    }
    f.edges.push_back(std::move(e));
  }
  for (const RegionProblem::Child& child : region.children) {
    const auto c = static_cast<size_t>(child.region);
    if (child.entry < 0) {  // nothing is carried: all iterations are alike
      const double once = static_cast<double>(tables_[c].at[0]);
      if (!f.nodes.empty())
        for (float& x : f.nodes[0]) x += static_cast<float>(once * p_.regions[c].trips);
      continue;
    }
    FoldEdge e;
    e.a = child.entry;
    e.b = child.exit;
    e.cost = power(c, static_cast<int64_t>(p_.regions[c].trips));
    e.class_a.resize(static_cast<size_t>(e.cost.rows));
    for (size_t i = 0; i < e.class_a.size(); ++i) e.class_a[i] = static_cast<int32_t>(i);
    e.class_b = e.class_a;
    f.edges.push_back(std::move(e));
  }
  return f;
}

// Of a byte that runs again in one iteration of a loop.
double Priced::again_price(size_t r) const {
  double part = o_.again / (static_cast<double>(p_.regions.size()) - 1);
  if (o_.moments != nullptr) {
    part = 0;
    for (const double x : (*o_.moments)[r]) part += x;
  }
  return o_.price * part / executions(r);
}

double Priced::executions(size_t r) const {
  for (size_t o = 0; o < p_.regions.size(); ++o) {
    for (const auto& child : p_.regions[o].children) {
      if (child.region == static_cast<int>(r)) return p_.regions[r].trips * executions(o);
    }
  }
  return p_.regions[r].trips;
}

void Priced::fold(size_t r) {
  const RegionProblem& region = p_.regions[r];
  std::vector<int> kept;
  if (region.entry >= 0) kept = {region.entry, region.exit};
  folded_[r] = std::make_unique<Folded>(priced_region(r), kept);
  if (folded_[r]->stuck()) {
    stuck_ = true;
    tables_[r] = Table(1, 1, 0);
    if (!kept.empty()) {
      const int n =
          static_cast<int>(region.variables[static_cast<size_t>(region.entry)].choices.size());
      tables_[r] = Table(n, n, 0);
    }
    return;
  }
  tables_[r] = folded_[r]->result();
  if (o_.any_segments) allow_segments(r);
}

bool Priced::may_segment(size_t child) const {
  const RegionProblem::Child& c = p_.regions[0].children[child];
  if (c.entry < 0 || !p_.regions[static_cast<size_t>(c.region)].children.empty()) return false;
  const ir::Graph& g = *p_.graph;
  const ir::Node& loop = g.node(p_.sites->loops[static_cast<size_t>(c.loop)].node);
  const auto kept = [&](ir::ValueId v) {
    const ir::Saving saving = g.value(v).saving;
    return saving == ir::Saving::kKeep || saving == ir::Saving::kCheckpoint;
  };
  if (loop.loop.carries != 1 || p_.rules.checkpointing != Checkpointing::kAuto) return false;
  if (std::any_of(loop.results.begin(), loop.results.end(), kept)) return false;
  const std::vector<ir::NodeId>& nodes = g.region(loop.loop.body).nodes;
  return std::none_of(nodes.begin(), nodes.end(), [&](ir::NodeId id) {
    const std::vector<ir::ValueId>& results = g.node(id).results;
    return std::any_of(results.begin(), results.end(), kept);
  });
}

// An iteration of a segment starts and ends alike, runs forward twice, and its loop keeps the carry
// before one iteration at least.
void Priced::allow_segments(size_t r) {
  for (size_t c = 0; c < p_.regions[0].children.size(); ++c) {
    if (p_.regions[0].children[c].region != static_cast<int>(r) || !may_segment(c)) continue;
    const Folded& segment = segment_fold(r);
    if (segment.stuck()) {
      stuck_ = true;
      return;
    }
    const RegionProblem& region = p_.regions[r];
    const VariableInfo& carry = region.variables[static_cast<size_t>(region.entry)];
    // for a moment at least this, as an iteration of the last segment has
    double moment = 0;
    for (const VariableInfo& v : region.variables) {
      double least = static_cast<double>(kNever);
      for (const Choice& x : v.choices) least = std::min(least, static_cast<double>(x.transient));
      moment = std::max(moment, least);
    }
    double part = 0;
    for (size_t v = 0; o_.moments != nullptr && v < region.variables.size(); ++v)
      part += (*o_.moments)[r][v];
    for (int s = 0; s < tables_[r].rows; ++s) {
      const double held =
          (static_cast<double>(carry.bytes[static_cast<size_t>(s)]) + part * moment) / region.trips;
      tables_[r](s, s) =
          std::min(tables_[r](s, s), segment.result()(s, s) + static_cast<float>(o_.price * held));
    }
  }
}

const Folded& Priced::segment_fold(size_t r) {
  segment_folds_.resize(p_.regions.size());
  if (segment_folds_[r] == nullptr) {
    const RegionProblem& region = p_.regions[r];
    segment_folds_[r] = std::make_unique<Folded>(priced_region(r, true),
                                                 std::vector<int>{region.entry, region.exit});
  }
  return *segment_folds_[r];
}

std::optional<BodyPlan> Priced::segment_body(size_t child, int state) {
  const auto r = static_cast<size_t>(p_.regions[0].children[child].region);
  const Folded& folded = segment_fold(r);
  if (folded.stuck() || folded.result()(state, state) == kNever) return std::nullopt;
  BodyPlan plan;
  plan.choices = folded.choices({state, state});
  return plan;
}

// Powers of two of a body's table, made when asked for.
const Table& Priced::square(size_t r, size_t k) const {
  std::vector<Table>& list = powers_[r];
  if (list.empty()) list.push_back(tables_[r]);
  while (list.size() <= k) list.push_back(min_plus(list.back(), list.back()));
  return list[k];
}

const Table& Priced::power(size_t r, int64_t n) const {
  CAD_CHECK(n >= 1, "a loop of {} iterations", n);
  const std::pair<size_t, int64_t> key{r, n};
  const auto known = products_.find(key);
  if (known != products_.end()) return known->second;
  Table out;
  bool first = true;
  for (size_t k = 0; n > 0; ++k, n /= 2) {
    if (n % 2 == 0) continue;
    out = first ? square(r, k) : min_plus(out, square(r, k));
    first = false;
  }
  return products_.emplace(key, std::move(out)).first->second;
}

// States of the carry from `from` to `to` in n steps, both included.
std::vector<int> Priced::walk(size_t r, int from, int to, int64_t n) const {
  if (n == 1) return {from, to};
  const Table& w = tables_[r];
  if (n > 4) {
    std::vector<int> regular = regular_walk(r, from, to, n);
    if (!regular.empty()) return regular;
  }
  const int64_t half = n / 2;
  const Table &left = power(r, half), &right = power(r, n - half);
  int best = 0;
  for (int h = 0; h < w.rows; ++h) {
    if (left(from, h) + right(h, to) < left(from, best) + right(best, to)) best = h;
  }
  std::vector<int> path = walk(r, from, best, half);
  const std::vector<int> rest = walk(r, best, to, n - half);
  path.insert(path.end(), rest.begin() + 1, rest.end());
  return path;
}

// A few steps, then one state (or two in turn) again and again, then a few steps; empty when no
// such walk is as good as the best one. So the plan of a thousand layers is a few runs.
std::vector<int> Priced::regular_walk(size_t r, int from, int to, int64_t n) const {
  const Table& w = tables_[r];
  const float best = power(r, n)(from, to);
  const Table two = square(r, 1);
  float least = kNever;
  int at = -1, in = 0, out = 0, period = 1;
  for (int period_try : {1, 2}) {
    for (int a = 0; a <= 2; ++a) {
      for (int b = 0; b <= 2; ++b) {
        const int64_t middle = n - a - b;
        if (middle % period_try != 0) continue;
        for (int h = 0; h < w.rows; ++h) {
          const float start = a == 0   ? (h == from ? 0 : kNever)
                              : a == 1 ? w(from, h)
                                       : two(from, h);
          const float end = b == 0 ? (h == to ? 0 : kNever) : b == 1 ? w(h, to) : two(h, to);
          const float cycle = period_try == 1 ? w(h, h) : two(h, h);
          const float cost = start + end + cycle * static_cast<float>(middle / period_try);
          if (cost < least * (1 - 1e-6F)) {
            least = cost;
            at = h;
            in = a;
            out = b;
            period = period_try;
          }
        }
      }
    }
  }
  if (at < 0 || least > best * (1 + 2e-6F)) return {};
  const auto middle_of = [&](int x, int y) {
    int m = 0;
    for (int h = 0; h < w.rows; ++h) {
      if (w(x, h) + w(h, y) < w(x, m) + w(m, y)) m = h;
    }
    return m;
  };
  std::vector<int> path = {from};
  if (in == 2) path.push_back(middle_of(from, at));
  if (in > 0) path.push_back(at);
  const int64_t middle = n - in - out;
  const int other = period == 2 ? middle_of(at, at) : at;
  for (int64_t i = 0; i < middle; ++i) path.push_back(i % 2 == 0 && period == 2 ? other : at);
  if (out == 2) path.push_back(middle_of(at, to));
  if (out > 0) path.push_back(to);
  return path;
}

BodyPlan Priced::body(size_t r, const std::vector<int>& choices) const {
  BodyPlan plan;
  plan.choices = choices;
  for (const RegionProblem::Child& child : p_.regions[r].children) {
    const auto c = static_cast<size_t>(child.region);
    const auto trips = static_cast<int64_t>(p_.regions[c].trips);
    if (child.entry < 0) {
      plan.loops.push_back({Run{trips, {body(c, folded_[c]->choices({}))}}});
      continue;
    }
    plan.loops.push_back(runs(c, walk(c, choices[static_cast<size_t>(child.entry)],
                                      choices[static_cast<size_t>(child.exit)], trips)));
  }
  return plan;
}

// Equal steps in a row are one run, two steps in turn a run of period two.
std::vector<Run> Priced::runs(size_t c, const std::vector<int>& states) const {
  std::vector<Run> out;
  std::map<std::pair<int, int>, BodyPlan> made;
  const auto step = [&](size_t i) -> const BodyPlan& {
    const std::pair<int, int> key{states[i], states[i + 1]};
    auto at = made.find(key);
    if (at == made.end())
      at = made.emplace(key, body(c, folded_[c]->choices({key.first, key.second}))).first;
    return at->second;
  };
  const size_t n = states.size() - 1;
  for (size_t i = 0; i < n;) {
    size_t same = 1;
    while (i + same < n && states[i + same] == states[i] && states[i + same + 1] == states[i + 1])
      ++same;
    size_t turns = 1;
    while (same == 1 && i + 2 * turns + 1 < n && states[i + 2 * turns] == states[i] &&
           states[i + 2 * turns + 1] == states[i + 1] && states[i + 2 * turns + 2] == states[i])
      ++turns;
    if (same == 1 && turns > 1) {
      out.push_back({static_cast<int64_t>(turns), {step(i), step(i + 1)}});
      i += 2 * turns;
    } else {
      out.push_back({static_cast<int64_t>(same), {step(i)}});
      i += same;
    }
  }
  return out;
}

std::optional<BodyPlan> Priced::spliced(size_t child, const BodyPlan& first, const BodyPlan& last,
                                        int64_t count) const {
  const RegionProblem::Child& c = p_.regions[0].children[child];
  const auto body_region = static_cast<size_t>(c.region);
  const RegionProblem& r = p_.regions[body_region];
  const std::vector<const BodyPlan*> head = unrolled(first.loops[child]);
  const std::vector<const BodyPlan*> tail = unrolled(last.loops[child]);
  const auto n = static_cast<int64_t>(head.size());
  if (count <= 0 || count >= n || r.entry < 0) return std::nullopt;
  std::vector<const BodyPlan*> steps(head.begin(), head.begin() + count);
  steps.insert(steps.end(), tail.begin() + count, tail.end());
  // the joint: an iteration that goes from the one's carry to the other's
  const auto entry = static_cast<size_t>(r.entry), exit = static_cast<size_t>(r.exit);
  BodyPlan bridge;
  const int from = steps[static_cast<size_t>(count) - 1]->choices[exit];
  const int wanted = steps[static_cast<size_t>(count)]->choices[entry];
  if (from != wanted) {
    const int to = steps[static_cast<size_t>(count)]->choices[exit];
    if (tables_[body_region](from, to) == kNever) return std::nullopt;
    bridge = body(body_region, folded_[body_region]->choices({from, to}));
    steps[static_cast<size_t>(count)] = &bridge;
  }
  BodyPlan plan;
  FoldProblem top = priced_region(0);
  const auto fix = [&](int variable, int choice) {
    std::vector<float>& cost = top.nodes[static_cast<size_t>(variable)];
    for (size_t i = 0; i < cost.size(); ++i) {
      if (static_cast<int>(i) != choice) cost[i] = kNever;
    }
  };
  fix(c.entry, steps.front()->choices[entry]);
  fix(c.exit, steps.back()->choices[exit]);
  const Folded folded(std::move(top), {});
  if (folded.stuck() || folded.result().at[0] == kNever) return std::nullopt;
  plan = body(0, folded.choices({}));
  plan.loops[child] = rolled(steps);
  return plan;
}

}  // namespace cad::planner
