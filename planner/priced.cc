// planner/priced.cc -- see priced.h. Regions fold from the innermost outwards; a loop is an edge of
// its region, from the hub of the carry before it to the hub after it.
#include "planner/priced.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"

namespace cad::planner {

namespace {

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

int64_t iterations(const Run& run) {
  return run.count * static_cast<int64_t>(run.pattern.size());
}

// Behind the others, as one run with the last of them where they are alike.
void append(std::vector<Run>& to, Run run) {
  if (run.count == 0) return;
  if (!to.empty() && to.back().pattern.size() == 1 && run.pattern.size() == 1 &&
      same(to.back().pattern[0], run.pattern[0])) {
    to.back().count += run.count;
  } else {
    to.push_back(std::move(run));
  }
}

// The iterations from `begin` to `end`, as few runs: their cost does not depend on the counts.
std::vector<Run> stretch(const std::vector<Run>& runs, int64_t begin, int64_t end) {
  std::vector<Run> out;
  int64_t at = 0;
  for (const Run& run : runs) {
    const int64_t n = iterations(run);
    const auto period = static_cast<int64_t>(run.pattern.size());
    int64_t from = std::clamp<int64_t>(begin - at, 0, n);
    const int64_t to = std::clamp<int64_t>(end - at, 0, n);
    at += n;
    const auto single = [&](int64_t i) {
      append(out, {1, {run.pattern[static_cast<size_t>(i % period)]}});
    };
    for (; from < to && from % period != 0; ++from) single(from);
    append(out, {(to - from) / period, run.pattern});
    for (from += (to - from) / period * period; from < to; ++from) single(from);
  }
  return out;
}

// By column a number, the same for equal ones.
std::vector<int> column_classes(const Table& t) {
  const auto column = [&](int c) {
    std::vector<float> out;
    for (int r = 0; r < t.rows; ++r) out.push_back(t(r, c));
    return out;
  };
  std::map<std::vector<float>, int> number;
  std::vector<int> out;
  for (int c = 0; c < t.columns; ++c)
    out.push_back(number.emplace(column(c), static_cast<int>(number.size())).first->second);
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
  classes_.resize(p.regions.size());
  segmented_.assign(p.regions.size(), 0);
  for (size_t c = 0; o_.segments != nullptr && c < p.regions[0].children.size(); ++c)
    segmented_[static_cast<size_t>(p.regions[0].children[c].region)] = may_segment(c) ? 1 : 0;
  if (o_.only_segments) return;
  for (size_t r = p.regions.size(); r-- > 0;) fold(r);
}

double Priced::value() const {
  return static_cast<double>(tables_[0].at[0]);
}

double Priced::bound() const {
  if (exact_ || o_.bounds) return value();
  if (inner_exact_) return static_cast<double>(folded_[0]->bound().at[0]);
  PriceOptions options = o_;
  options.bounds = true;
  return Priced(p_, options).value();
}

// Of a byte that a variable of one iteration has for a moment.
double Priced::moment_price(size_t r, size_t v, bool segment) const {
  double part = 0;
  if (o_.moments != nullptr && !segment)
    part = (*o_.moments)[r][v] * (o_.segments != nullptr ? o_.segments->moment : 1);
  if (segmented_[r] != 0 && o_.segments->inside > 0)
    part += o_.segments->inside * o_.segments->where[r][v];
  return part > 0 ? o_.price * part / executions(r) : 0;
}

std::vector<float> Priced::priced_choices(size_t r, size_t v, std::optional<double> segment) const {
  const RegionProblem& region = p_.regions[r];
  const double again = r == 0 ? 0 : again_price(r, segment.has_value());
  const double for_a_moment = moment_price(r, v, segment.has_value());
  const double saved = segment ? *segment : segmented_[r] != 0 ? o_.segments->plain : 1;
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
                         again * static_cast<double>(c.again) + for_a_moment * moment +
                         (segment ? static_cast<double>(c.forward) : 0);
    const bool allowed = moment <= o_.limit && (o_.mask == nullptr || o_.mask->choices.empty() ||
                                                o_.mask->choices[r][v][i] != 0);
    const bool unpaid = static_cast<int>(v) == region.exit;  // the next iteration's entry
    cost.push_back(!allowed ? kNever : unpaid ? 0 : static_cast<float>(total));
  }
  return cost;
}

FoldProblem Priced::priced_region(size_t r, std::optional<double> segment) const {
  const RegionProblem& region = p_.regions[r];
  FoldProblem f;
  for (size_t v = 0; v < region.variables.size(); ++v)
    f.nodes.push_back(priced_choices(r, v, segment));
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
    if (segment) {
      for (size_t i = 0; i < e.cost.at.size(); ++i) e.cost.at[i] += pair.forward.at[i];
    }
    if (!pair.alive.at.empty() && std::isfinite(o_.limit)) {
      for (size_t i = 0; i < e.cost.at.size(); ++i) {
        if (static_cast<double>(pair.alive.at[i]) > o_.limit) e.cost.at[i] = kNever;
      }
    }
    const double for_a_moment = moment_price(r, static_cast<size_t>(pair.b), segment.has_value());
    if (!pair.alive.at.empty() && for_a_moment > 0 && pair.b != region.exit) {
      for (size_t i = 0; i < e.cost.at.size(); ++i)
        e.cost.at[i] += static_cast<float>(for_a_moment * static_cast<double>(pair.alive.at[i]));
    }
    const double price = o_.price * (segment              ? *segment
                                     : segmented_[r] != 0 ? o_.segments->plain
                                                          : 1);
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
double Priced::again_price(size_t r, bool segment) const {
  double part = 0;
  if (!segment && o_.moments == nullptr)
    part = o_.again / (static_cast<double>(p_.regions.size()) - 1);
  if (!segment && o_.moments != nullptr) {
    for (const double x : (*o_.moments)[r]) part += x;
  }
  if (o_.segments != nullptr) part *= o_.segments->moment;
  if (segmented_[r] != 0) part += o_.segments->inside;
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
  if (!folded_[r]->exact()) {
    exact_ = false;
    if (r > 0) inner_exact_ = false;
  }
  tables_[r] = o_.bounds ? folded_[r]->bound() : folded_[r]->result();
  if (segmented_[r] != 0) allow_segments(r);
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

// An iteration of a segment starts and ends alike and runs forward twice.
void Priced::allow_segments(size_t r) {
  const RegionProblem& region = p_.regions[r];
  const VariableInfo& carry = region.variables[static_cast<size_t>(region.entry)];
  double part = 0;
  for (size_t v = 0; o_.moments != nullptr && v < region.variables.size(); ++v)
    part += (*o_.moments)[r][v];
  // for a moment at least this, as an iteration of the last segment has
  const double moment = o_.segments->moment * part * least_moment(region) / region.trips;
  std::map<float, std::unique_ptr<Folded>> folds;  // by bytes of the carry
  for (int s = 0; s < tables_[r].rows; ++s) {
    const auto bytes = static_cast<double>(carry.bytes[static_cast<size_t>(s)]);
    const double more = o_.segments->carried * bytes;
    std::unique_ptr<Folded>& fold = folds[static_cast<float>(more)];
    if (fold == nullptr)
      fold = std::make_unique<Folded>(priced_region(r, o_.segments->segment + more),
                                      std::vector<int>{region.entry, region.exit});
    if (!fold->exact()) exact_ = inner_exact_ = false;
    const Table& once = o_.bounds ? fold->bound() : fold->result();
    const double held = o_.price * (moment + o_.segments->carry * bytes / region.trips);
    tables_[r](s, s) = std::min(tables_[r](s, s), once(s, s) + static_cast<float>(held));
  }
}

const Folded& Priced::segment_fold(size_t r) {
  segment_folds_.resize(p_.regions.size());
  if (segment_folds_[r] == nullptr) {
    const RegionProblem& region = p_.regions[r];
    segment_folds_[r] = std::make_unique<Folded>(priced_region(r, o_.segment_price),
                                                 std::vector<int>{region.entry, region.exit});
  }
  return *segment_folds_[r];
}

std::optional<BodyPlan> Priced::segment_body(size_t child, int state) {
  const auto r = static_cast<size_t>(p_.regions[0].children[child].region);
  const Folded& folded = segment_fold(r);
  if (folded.result()(state, state) == kNever) return std::nullopt;
  BodyPlan plan;
  plan.choices = folded.choices({state, state});
  return plan;
}

// Many states of the carry are alike at the end of an iteration (copies of one layout): a power is
// the body's table times one of its table from class to class, a third as wide or less.
Priced::Classes& Priced::classes(size_t r) const {
  Classes& made = classes_[r];
  if (!made.of.empty()) return made;
  const Table& table = tables_[r];
  made.of = column_classes(table);
  const int n = *std::max_element(made.of.begin(), made.of.end()) + 1;
  made.ends = Table(table.rows, n, kNever);
  Table once(n, n, kNever);
  for (int i = 0; i < table.rows; ++i) {
    for (int j = 0; j < table.columns; ++j) {
      const int c = made.of[static_cast<size_t>(j)];
      made.ends(i, c) = table(i, j);
      float& least = once(made.of[static_cast<size_t>(i)], c);
      least = std::min(least, table(i, j));
    }
  }
  made.squares.push_back(std::move(once));
  return made;
}

const Table& Priced::power(size_t r, int64_t n) const {
  CAD_CHECK(n >= 1, "a loop of {} iterations", n);
  if (n == 1) return tables_[r];
  const std::pair<size_t, int64_t> key{r, n};
  const auto known = products_.find(key);
  if (known != products_.end()) return known->second;
  Classes& of = classes(r);
  std::optional<Table> rest;  // from class to class, of all iterations but the first
  int64_t left = n - 1;
  for (size_t k = 0; left > 0; ++k, left /= 2) {
    while (of.squares.size() <= k)
      of.squares.push_back(min_plus(of.squares.back(), of.squares.back()));
    if (left % 2 != 0) rest = rest ? min_plus(*rest, of.squares[k]) : of.squares[k];
  }
  const Table product = min_plus(of.ends, *rest);
  Table out(product.rows, tables_[r].columns, kNever);
  for (int i = 0; i < out.rows; ++i) {
    for (int j = 0; j < out.columns; ++j) out(i, j) = product(i, of.of[static_cast<size_t>(j)]);
  }
  return products_.emplace(key, std::move(out)).first->second;
}

// States of the carry from `from` to `to` in n steps, both included.
Priced::Walk Priced::walk(size_t r, int from, int to, int64_t n) const {
  if (n == 1) return {{from, to}, {}};
  const Table& w = tables_[r];
  if (n > 4) {
    if (auto regular = regular_walk(r, from, to, n)) return std::move(*regular);
  }
  const int64_t half = n / 2;
  const Table &left = power(r, half), &right = power(r, n - half);
  int best = 0;
  for (int h = 0; h < w.rows; ++h) {
    if (left(from, h) + right(h, to) < left(from, best) + right(best, to)) best = h;
  }
  Walk path = walk(r, from, best, half);
  const Walk rest = walk(r, best, to, n - half);
  const size_t joint = path.states.size() - 1;
  path.states.insert(path.states.end(), rest.states.begin() + 1, rest.states.end());
  for (const auto& [at, turns] : rest.more) path.more.emplace_back(at + joint, turns);
  return path;
}

// A few steps, then one state (or two in turn) again and again, then a few steps; nothing when no
// such walk is as good as the best one. So the plan of a thousand layers is a few runs.
std::optional<Priced::Walk> Priced::regular_walk(size_t r, int from, int to, int64_t n) const {
  const Table& w = tables_[r];
  const float best = power(r, n)(from, to);
  const Table& two = power(r, 2);
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
  if (at < 0 || least > best * (1 + 2e-6F)) return std::nullopt;
  const auto middle_of = [&](int x, int y) {
    int m = 0;
    for (int h = 0; h < w.rows; ++h) {
      if (w(x, h) + w(h, y) < w(x, m) + w(m, y)) m = h;
    }
    return m;
  };
  constexpr int64_t kWritten = 16;  // of equal steps
  Walk path{{from}, {}};
  if (in == 2) path.states.push_back(middle_of(from, at));
  if (in > 0) path.states.push_back(at);
  const int64_t middle = n - in - out;
  const int other = period == 2 ? middle_of(at, at) : at;
  if (other == at) period = 1;
  const int64_t more = std::max<int64_t>(0, (middle - kWritten) / period);
  for (int64_t i = 0; i < middle - more * period; ++i) {
    if (more > 0 && i == kWritten / 2) path.more.emplace_back(path.states.size(), more);
    path.states.push_back(i % 2 == 0 && period == 2 ? other : at);
  }
  if (out == 2) path.states.push_back(middle_of(at, to));
  if (out > 0) path.states.push_back(to);
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
std::vector<Run> Priced::runs(size_t c, const Walk& walk) const {
  const std::vector<int>& states = walk.states;
  std::vector<Run> out;
  std::map<std::pair<int, int>, BodyPlan> made;
  const auto step = [&](size_t i) -> const BodyPlan& {
    const std::pair<int, int> key{states[i], states[i + 1]};
    auto at = made.find(key);
    if (at == made.end())
      at = made.emplace(key, body(c, folded_[c]->choices({key.first, key.second}))).first;
    return at->second;
  };
  // turns that are not written out, of the iterations from i on
  const auto more = [&](size_t i, size_t count) {
    int64_t turns = 0;
    for (const auto& [at, n] : walk.more) turns += at > i && at <= i + count ? n : 0;
    return turns;
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
      out.push_back({static_cast<int64_t>(turns) + more(i, 2 * turns), {step(i), step(i + 1)}});
      i += 2 * turns;
    } else {
      out.push_back({static_cast<int64_t>(same) + more(i, same), {step(i)}});
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
  int64_t n = 0;
  for (const Run& run : first.loops[child]) n += iterations(run);
  if (count <= 0 || count >= n || r.entry < 0) return std::nullopt;
  std::vector<Run> steps = stretch(first.loops[child], 0, count);
  std::vector<Run> joint = stretch(last.loops[child], count, count + 1);
  // the joint: an iteration that goes from the one's carry to the other's
  const auto entry = static_cast<size_t>(r.entry), exit = static_cast<size_t>(r.exit);
  const int from = steps.back().pattern.back().choices[exit];
  const std::vector<int>& wanted = joint[0].pattern[0].choices;
  if (from != wanted[entry]) {
    const int to = wanted[exit];
    if (tables_[body_region](from, to) == kNever) return std::nullopt;
    joint[0].pattern[0] = body(body_region, folded_[body_region]->choices({from, to}));
  }
  append(steps, std::move(joint[0]));
  for (Run& run : stretch(last.loops[child], count + 1, n)) append(steps, std::move(run));
  const std::optional<BodyPlan>& around =
      top_around(child, steps.front().pattern.front().choices[entry],
                 steps.back().pattern.back().choices[exit]);
  if (!around) return std::nullopt;
  BodyPlan plan = *around;
  plan.loops[child] = std::move(steps);
  return plan;
}

// The best top level around a loop that begins and ends in these states; nothing: none is allowed.
const std::optional<BodyPlan>& Priced::top_around(size_t child, int first, int last) const {
  const auto [at, fresh] = tops_.emplace(std::make_tuple(child, first, last), std::nullopt);
  if (!fresh) return at->second;
  const RegionProblem::Child& c = p_.regions[0].children[child];
  FoldProblem top = priced_region(0);
  const auto fix = [&](int variable, int choice) {
    std::vector<float>& cost = top.nodes[static_cast<size_t>(variable)];
    for (size_t i = 0; i < cost.size(); ++i) {
      if (static_cast<int>(i) != choice) cost[i] = kNever;
    }
  };
  fix(c.entry, first);
  fix(c.exit, last);
  const Folded folded(std::move(top), {});
  if (folded.result().at[0] != kNever) at->second = body(0, folded.choices({}));
  return at->second;
}

}  // namespace cad::planner
