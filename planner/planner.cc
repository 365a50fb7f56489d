// planner/planner.cc -- see planner.h. Meshes with fewer axes come first: they fold fast, and what
// they find lets most of the others be dropped after one fold.
#include "planner/planner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/path_pattern.h"
#include "planner/baselines.h"
#include "planner/compute_cost.h"
#include "planner/frontier.h"
#include "planner/plan_text.h"
#include "planner/segments.h"

namespace cad::planner {

namespace {

constexpr double kDropWithin = 0.0005;
constexpr int64_t kSmall = 4000;            // choices: such a mesh is searched to the end
constexpr int64_t kSmallWork = 50'000'000;  // PlanRequest::proof_work, at most, for that
constexpr int64_t kFitWork = 2'000'000;     // and where no plan is known that fits
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNothingFits = 1;  // byte

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double state_bytes(const ir::OptimizerEntry& entry) {
  if (entry.frozen) return 0;
  if (entry.special == "adafactor") return 0.02;  // a row and a column instead of a matrix
  double states = 0;
  for (const ir::Output& out : entry.plain.outputs) states += out.name.rfind("state:", 0) == 0;
  return 4 * states;
}

struct Best {
  bool feasible = false;
  Evaluation evaluation;
  std::shared_ptr<Problem> problem;
  BodyPlan body;
  double price = 0;
  MomentPrices moments;  // prices of them, of a bound of its mesh
  Search::Line line;     // of that bound
};

// A mesh that has been searched, for its segments.
struct Searched {
  size_t mesh = 0;
  double bound = 0;    // seconds: of plans without segments
  double segment = 0;  // of plans with them too, from prices alone
  Search::Line line;
  MomentPrices moments;
  [[nodiscard]] double least() const { return std::min(bound, segment); }
  double price = 0;
  double least_peak = 0;
  std::vector<BodyPlan> bases;  // plans next to the budget
  bool tried = false;           // put into segments, with no plan at hand
};

class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : r_(request),
        sites_(std::make_shared<SiteGraph>(find_sites(*request.graph))),
        model_(cost_model(request.cluster.device)) {}

  Planning run() {
    const double start = now();
    std::vector<Mesh> meshes = candidates();
    std::vector<double> bounds(meshes.size(), kInfinite);
    sizes_.assign(meshes.size(), kSmall + 1);
    int64_t dropped = 0;
    for (size_t m = 0; m < meshes.size(); ++m) {
      if (const double least = least_of_fewer(meshes[m]); least > 0) {
        bounds[m] = least;
        ++dropped;
        continue;
      }
      const std::shared_ptr<Problem> problem = built(meshes[m]);
      sizes_[m] = choices_of(*problem);
      if (!problem->impossible.empty()) {  // annotations that this mesh cannot honour
        impossible_ = problem->impossible;
        continue;
      }
      count(*problem);
      if ((r_.alternatives && !has_fewer(meshes[m])) || r_.name != "auto") alternatives(problem);
      if (r_.name != "auto") continue;
      Search search(*problem);
      // Under a binding budget plans are found to a fraction of a percent, and a mesh that can be
      // no better than that is not looked at further; its bound counts for the gap.
      const double enough = best_.feasible ? best_.evaluation.seconds *
                                                 (1 - (best_.price > 0 ? drop_within(*problem) : 0))
                                           : kInfinite;
      if (best_.feasible) {
        MomentPrices start_at = best_.moments;
        start_at.bound = 0;  // that was of another mesh
        search.begin_with(std::move(start_at));
        search.begin_on(best_.line);
      }
      const Found found = search.run(r_.budget, enough, best_.feasible ? best_.price : 0);
      solver_columns_ = std::max(solver_columns_, found.columns);
      solver_rows_ = std::max(solver_rows_, found.rows);
      bounds[m] = found.bound;
      dropped += best_.feasible && bounds[m] >= enough ? 1 : 0;
      if (offer(found, problem, search.price(), search.moment_prices())) best_.line = search.line();
      if (!segments()) continue;
      remember(m, *problem, search, found, enough);
      // where nothing fits without them, plans in segments let the other meshes be dropped
      if (!best_.feasible) {
        offer_segments(problem, 10 * usual_price(), searched_.back().bases, r_.budget);
        searched_.back().tried = true;
      }
    }
    if (r_.name == "auto") {
      finish_small(meshes, bounds);
      close_gap(meshes, bounds);
      try_tighter(meshes, bounds);
    }
    plain_ = *std::min_element(bounds.begin(), bounds.end());
    bound_ = plain_;
    if (segments()) bound_ = std::min(bound_, try_segments(meshes, bounds));
    meshes_ = static_cast<int64_t>(meshes.size());
    dropped_ = dropped;
    return finish(now() - start);
  }

  // See baseline_plans().
  std::vector<Planning> baselines() {
    std::vector<Mesh> meshes = r_.meshes;
    if (meshes.size() > 1) add_orders(meshes);
    add_one(meshes);
    std::vector<Planning> plans;
    meshes_ = static_cast<int64_t>(meshes.size());
    for (const Mesh& mesh : meshes) {
      const std::shared_ptr<Problem> problem = built(mesh);
      if (!problem->impossible.empty()) continue;
      count(*problem);
      each_baseline(*problem,
                    [&](const Alternative& row, const BodyPlan& plan, const Evaluation& e) {
                      best_ = {};
                      best_.feasible = true;
                      best_.evaluation = e;
                      best_.problem = problem;
                      best_.body = plan;
                      alternatives_ = {row};
                      plans.push_back(finish(0));
                    });
    }
    std::stable_sort(plans.begin(), plans.end(), [](const Planning& a, const Planning& b) {
      return a.plan.predicted.step_s < b.plan.predicted.step_s;
    });
    return plans;
  }

  // After run(): the plan when this one is a candidate too.
  Planning finish_with(const Planning& known) {
    const double start = now();
    if (!best_.feasible) {  // what was the least by the way depends on the budget
      best_ = {};
      least_peak_ = 0;
    }
    offer_known(known);
    return finish(now() - start);
  }

 private:
  // Where the gap over all meshes is large, meshes are solved to the end, the lowest bound first.
  void close_gap(const std::vector<Mesh>& meshes, std::vector<double>& bounds) {
    constexpr double kGap = 0.01, kWithin = 0.004;
    int64_t work = r_.proof_work;
    for (size_t i = 0; i < meshes.size() && best_.feasible && work > 0; ++i) {
      const auto least = std::min_element(bounds.begin(), bounds.end());
      if (best_.evaluation.seconds - *least <= kGap * best_.evaluation.seconds) return;
      const auto problem = built(meshes[static_cast<size_t>(least - bounds.begin())]);
      Search search(*problem);
      search.be_exact(i < 3 ? r_.proof_s : 0, kWithin, work);
      const Found found = search.run(r_.budget, best_.evaluation.seconds);
      work = search.work_left();
      solver_columns_ = std::max(solver_columns_, found.columns);
      solver_rows_ = std::max(solver_rows_, found.rows);
      offer(found, problem, search.price());
      if (found.bound <= *least * (1 + 1e-9)) return;
      *least = found.bound;
    }
  }

  // Small meshes are searched to the end, by labels alone: the same plan on every machine. Prices
  // may have missed a plan that fits, where memory for a moment decides. Of plans as good as equal
  // the first mesh's stays, which has the fewest axes. Not so for long loops, where what is won is
  // some iterations that differ from the others, and a longer plan.
  void finish_small(const std::vector<Mesh>& meshes, std::vector<double>& bounds) {
    constexpr double kWithin = 1e-7, kEqual = 1e-5, kLongLoop = 128;
    int64_t done = 0;
    for (size_t m = 0; m < meshes.size(); ++m) {
      const int64_t work = std::min(r_.proof_work, best_.feasible ? kSmallWork : kFitWork) - done;
      if (work <= 0) break;
      const double best = best_.feasible ? best_.evaluation.seconds * (1 - kEqual) : kInfinite;
      if (sizes_[m] > kSmall || bounds[m] >= best) continue;
      const auto problem = built(meshes[m]);
      const auto& regions = problem->regions;
      if (std::any_of(regions.begin(), regions.end(),
                      [](const RegionProblem& r) { return r.trips > kLongLoop; }))
        continue;
      Search search(*problem);
      search.be_exact(0, kWithin, work);
      const Found found = search.run(r_.budget, best);
      done += work - search.work_left();
      offer(found, problem, search.price());
      bounds[m] = std::max(bounds[m], found.bound);
    }
  }

  // Plans for less memory fit as well. Searches are exact up to their gap, so one for a little less
  // may end with a faster plan: the rungs of one ladder of budgets, the same for all requests, are
  // tried on the best plan's mesh, and on small ones that may have one, until bounds say that none
  // can be faster. So requests whose budgets are close agree, to what the gap allows.
  void try_tighter(const std::vector<Mesh>& meshes, const std::vector<double>& bounds) {
    if (!best_.feasible || !std::isfinite(r_.budget)) return;
    const std::string own = best_.problem->mesh.str();
    std::vector<size_t> order;  // the best plan's mesh first
    for (size_t m = 0; m < meshes.size(); ++m) {
      const bool small = sizes_[m] <= kSmall || meshes[m].str() == own;
      if (small && bounds[m] < best_.evaluation.seconds * (1 - kSame)) order.push_back(m);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return bounds[a] < bounds[b]; });
    std::stable_partition(order.begin(), order.end(),
                          [&](size_t m) { return meshes[m].str() == own; });
    int64_t work = kLadderWork;
    int64_t small_work = 5 * kLadderWork;
    for (const size_t m : order) {
      const bool small = sizes_[m] <= kSmall;
      try_rungs(meshes[m], small, bounds[m], small ? small_work : work);
    }
  }

  // Of one mesh. Where it folds fast, what a run finds is there for the next ones to mix, so the
  // first is without a limit and the last within the budget.
  void try_rungs(const Mesh& mesh, bool small, double bound, int64_t& work) {
    const std::shared_ptr<Problem> problem = built(mesh);
    std::unique_ptr<Search> search;
    // True: plans within so many bytes may be faster than the best one.
    const auto look = [&](double budget, double start) {
      if (search == nullptr || !small) search = std::make_unique<Search>(*problem);
      const Found found = search->run(budget, best_.evaluation.seconds, start);
      if (found.feasible && found.evaluation.peak <= r_.budget)
        offer(found, problem, search->price());
      work -= choices_of(*problem) * found.evaluations;
      return found.bound < best_.evaluation.seconds * (1 - kSame);
    };
    if (small) look(std::max(most_bytes(*problem), r_.budget), 0);
    if (best_.price <= 0) return;
    for (int i = 1; i <= kMostRungs && work > 0; ++i) {
      if (bound >= best_.evaluation.seconds * (1 - kSame)) return;
      if (!look(rung(i), best_.price)) break;
    }
    if (small && work > 0) look(r_.budget, best_.price);
  }

  static constexpr double kSame = 1e-6;
  static constexpr int kMostRungs = 12;
  static constexpr int64_t kLadderWork = 600'000;  // folds times choices

  // Bytes: of the ladder's rungs below the budget the i-th, from the top.
  [[nodiscard]] double rung(int i) const {
    constexpr double kRungs = 64;  // to half the budget
    return std::exp2((std::ceil(std::log2(r_.budget) * kRungs) - i) / kRungs);
  }

  // Of a step: what is not worth a further mesh, where looking takes time.
  static double drop_within(const Problem& problem) {
    return choices_of(problem) > kSmall ? kDropWithin : 0;
  }

  static int64_t choices_of(const Problem& problem) {
    int64_t choices = 0;
    for (const RegionProblem& region : problem.regions) {
      for (const VariableInfo& v : region.variables)
        choices += static_cast<int64_t>(v.choices.size());
    }
    return choices;
  }

  // Where memory is short, loops may have iterations that run again in segments.
  [[nodiscard]] bool segments() const {
    return r_.name == "auto" && r_.segments && std::isfinite(r_.budget) &&
           r_.rules.checkpointing == Checkpointing::kAuto;
  }

  // No plan has a higher peak.
  static double most_bytes(const Problem& problem) {
    double total = 0, runs = 1;
    for (const RegionProblem& r : problem.regions) {
      runs *= r.trips;  // at most: loops may stand side by side
      for (const VariableInfo& v : r.variables) {
        double most = 0;
        for (const Choice& c : v.choices)
          most = std::max(most, static_cast<double>(c.parameters + c.gradients + c.optimizer +
                                                    c.saved + c.again + c.transient));
        total += runs * most;
      }
      for (const Pair& pair : r.pairs) {
        for (const Table* table : {&pair.saved, &pair.alive}) {
          float most = 0;
          for (const float x : table->at) most = std::max(most, x);
          total += runs * static_cast<double>(most);
        }
      }
    }
    return total;
  }

  void remember(size_t mesh, const Problem& problem, Search& search, const Found& found,
                double enough) {
    Searched s;
    s.mesh = mesh;
    s.line = search.line();
    s.moments = search.moment_prices();
    s.price = search.price();
    if (most_bytes(problem) <= r_.budget)
      s.segment = kInfinite;  // whatever runs in segments fits without them, and is faster so
    else
      s.segment = search.segment_bound(s.line, s.line.price, r_.budget, enough, 1);
    s.least_peak = found.least_peak;
    s.bases = search.bases();
    if (!found.plan.choices.empty()) s.bases.push_back(found.plan);
    searched_.push_back(std::move(s));
  }

  // Looks at the meshes where segments may help, the most promising first. The bound on all plans,
  // `bounds` being on those without segments.
  double try_segments(const std::vector<Mesh>& meshes, const std::vector<double>& bounds) {
    constexpr size_t kMostMeshes = 6;
    constexpr double kWorthIt = 0.01;  // of a step, at most, for looking
    for (Searched& s : searched_) s.bound = bounds[s.mesh];
    std::stable_sort(searched_.begin(), searched_.end(), [&](const Searched& a, const Searched& b) {
      return best_.feasible ? a.least() < b.least() : a.least_peak < b.least_peak;
    });
    for (size_t i = 0; i < std::min(kMostMeshes, searched_.size()); ++i) {
      const Searched& s = searched_[i];
      if (best_.feasible && s.segment >= best_.evaluation.seconds * (1 - kWorthIt)) continue;
      if (!best_.feasible && s.tried) continue;
      const std::shared_ptr<Problem> problem = built(meshes[s.mesh]);
      std::vector<BodyPlan> bases = s.bases;
      if (best_.problem != nullptr && best_.problem->mesh.str() == problem->mesh.str())
        bases.push_back(best_.body);
      const bool priced = std::isfinite(s.line.bound) && best_.feasible && s.price > 0;
      offer_segments(problem, priced ? s.price : 10 * usual_price(), bases, r_.budget);
    }
    try_tighter_segments();
    return close_segment_gap(meshes);
  }

  // As try_tighter, where the best plan has segments.
  void try_tighter_segments() {
    constexpr int kFolds = 6;  // of one try of segments
    const auto in_segments = [](const std::vector<Run>& runs) {
      return std::any_of(runs.begin(), runs.end(), [](const Run& run) { return run.segment > 0; });
    };
    const std::vector<std::vector<Run>>& loops = best_.body.loops;
    if (!best_.feasible || !std::any_of(loops.begin(), loops.end(), in_segments)) return;
    const std::shared_ptr<Problem> problem = best_.problem;
    int64_t work = kLadderWork;
    for (int i = 1; i <= kMostRungs && work > 0; ++i) {
      Search search(*problem);
      const Found plain = search.run(rung(i), kInfinite);
      std::vector<BodyPlan> bases = search.bases();
      if (!plain.plan.choices.empty()) bases.push_back(plain.plan);
      const bool priced = std::isfinite(search.line().bound) && search.price() > 0;
      offer_segments(problem, priced ? search.price() : 10 * usual_price(), bases, rung(i));
      work -= choices_of(*problem) * (plain.evaluations + kFolds);
    }
  }

  // The best of `bases` with segments, within so many bytes where there is one.
  void offer_segments(const std::shared_ptr<Problem>& problem, double price,
                      const std::vector<BodyPlan>& bases, double budget) {
    PriceOptions options;
    options.price = price;
    const auto segmented = with_segments(*problem, options, bases, budget);
    if (!segmented) return;
    Found found;
    found.plan = segmented->plan;
    found.evaluation = segmented->evaluation;
    found.feasible = segmented->evaluation.peak <= r_.budget;
    found.least_peak = segmented->evaluation.peak;
    offer(found, problem, price);
  }

  [[nodiscard]] double usual_price() const {
    return best_.evaluation.seconds / std::max(best_.evaluation.peak, 1.0);
  }

  // Where the gap is large, better prices for the bounds, the lowest one first.
  double close_segment_gap(const std::vector<Mesh>& meshes) {
    constexpr int64_t kFoldsTimesChoices = 100'000;
    constexpr double kGap = 0.01;
    constexpr int kMostMeshes = 6;
    if (searched_.empty()) return kInfinite;
    const auto least = [&] {
      return std::min_element(
          searched_.begin(), searched_.end(),
          [](const Searched& a, const Searched& b) { return a.least() < b.least(); });
    };
    for (int i = 0; i < kMostMeshes && best_.feasible; ++i) {
      const auto s = least();
      const double enough = best_.evaluation.seconds * (1 - kGap);
      if (s->least() >= enough || s->segment >= s->bound) break;
      const std::shared_ptr<Problem> problem = built(meshes[s->mesh]);
      Search search(*problem);
      double segment = 0;
      if (s->line.price == 0) {  // it was dropped at another mesh's prices
        const Found found = search.run(r_.budget, best_.evaluation.seconds);
        offer(found, problem, search.price());
        s->bound = std::max(s->bound, found.bound);
        s->line = search.line();
        s->moments = search.moment_prices();
      }
      if (s->moments.list.empty())
        search.price_moments(s->line, r_.budget, best_.evaluation.seconds);
      else
        search.begin_with(s->moments);
      s->moments = search.moment_prices();
      if (s->line.price == 0 && s->moments.list.empty()) {
        // overlap's two lines: a proof, of plans of any memory
        search.be_exact(0, 0.4 * kGap, 200'000'000);
        segment = search.run(kInfinite, best_.evaluation.seconds).bound;
      } else {
        const double near = std::min(std::max(s->line.price, s->moments.sum()), usual_price());
        const int64_t folds =
            std::clamp<int64_t>(kFoldsTimesChoices / choices_of(*problem), 12, 100);
        segment = search.segment_bound(s->line, near, r_.budget, enough, static_cast<int>(folds));
      }
      if (segment <= s->segment) break;  // no price is better
      s->segment = segment;
    }
    return least()->least();
  }

  void count(const Problem& problem) {
    columns_ += choices_of(problem);
    for (const RegionProblem& region : problem.regions)
      rows_ += static_cast<int64_t>(region.variables.size() + region.pairs.size());
  }

  [[nodiscard]] std::shared_ptr<Problem> built(const Mesh& mesh) const {
    return std::make_shared<Problem>(make_problem(*sites_, mesh, r_.training, model_, r_.rules));
  }

  void offer_known(const Planning& known) {
    if (known.problem == nullptr || known.body.choices.empty()) return;
    const std::shared_ptr<Problem> problem = built(known.problem->mesh);
    if (!problem->impossible.empty()) return;
    Found found;
    found.plan = known.body;
    found.evaluation = evaluate(*problem, known.body);
    found.feasible = found.evaluation.valid && found.evaluation.peak <= r_.budget;
    found.least_peak = found.evaluation.peak;
    if (found.evaluation.valid) offer(found, problem, known.price);
  }

  // Of PlanRequest::fewer, that is.
  [[nodiscard]] bool has_fewer(const Mesh& mesh) const {
    return mesh.devices() > 1 && mesh.devices() < r_.meshes[0].devices();
  }

  // Seconds that this mesh, which has fewer devices, cannot be faster than, when that is enough to
  // leave it out.
  double least_of_fewer(const Mesh& mesh) {
    if (!has_fewer(mesh)) return 0;
    // what fits these fits all, along one more axis that nothing uses
    const bool extends =
        r_.meshes[0].devices() % mesh.devices() == 0 && mesh.axes.size() < kMaxAxes;
    if (!best_.feasible && extends) return kInfinite;
    if (r_.cluster.device.cpu) return 0;
    const auto known = least_of_devices_.find(mesh.devices());
    const double least =
        known != least_of_devices_.end()
            ? known->second
            : least_of_devices_.emplace(mesh.devices(), least_of(mesh.devices())).first->second;
    return least >= (best_.feasible ? best_.evaluation.seconds : kInfinite) ? least : 0;
  }

  // No plan of so many devices is faster. They do at best an equal part of the work each (smaller
  // shapes are less efficient, and what they send counts for nothing; caches of CPUs break that)
  // and hold an equal part of the bytes: a plan of theirs is one of a device with the budget of
  // all, which takes as many times as long.
  double least_of(int devices) {
    constexpr int kFolds = 40;
    if (one_device_ == nullptr) {
      const auto one = make_mesh(r_.cluster, {{r_.meshes[0].axes[0].name, 1}});
      if (!one.ok()) return 0;
      one_device_ = built(*one);
    }
    if (!one_device_->impossible.empty()) return 0;
    const double incumbent = best_.feasible ? best_.evaluation.seconds * devices : kInfinite;
    Search search(*one_device_);
    double least = search.run(r_.budget * devices, incumbent).bound;
    if (segments() && most_bytes(*one_device_) > r_.budget * devices) {
      const Search::Line line = search.line();
      least = std::min(
          least, search.segment_bound(line, line.price, r_.budget * devices, incumbent, kFolds));
    }
    return least / devices;
  }

  void add_one(std::vector<Mesh>& meshes) const {
    if (!r_.idle || meshes.empty() || meshes[0].devices() == 1) return;
    auto one = make_mesh(r_.cluster, {{meshes[0].axes[0].name, 1}});
    if (one.ok()) meshes.push_back(*one);
  }

  // One device is a candidate too: small models run fastest on one.
  std::vector<Mesh> candidates() const {
    std::vector<Mesh> meshes = r_.meshes;
    if (r_.name == "auto" || r_.name == "single") add_one(meshes);
    if (r_.name != "auto" && meshes.size() > 1) add_orders(meshes);
    std::stable_sort(meshes.begin(), meshes.end(),
                     [](const Mesh& a, const Mesh& b) { return a.axes.size() < b.axes.size(); });
    if (r_.idle && r_.name == "auto") meshes.insert(meshes.end(), r_.fewer.begin(), r_.fewer.end());
    return meshes;
  }

  // Of axes over equal links one order is enough to search in, but baselines give each axis a role:
  // the first one is the batch's.
  void add_orders(std::vector<Mesh>& meshes) const {
    const auto sizes_of = [](const Mesh& mesh) {
      std::vector<int> sizes;
      for (const Axis& axis : mesh.axes) sizes.push_back(axis.size);
      return sizes;
    };
    std::set<std::vector<int>> known;
    for (const Mesh& mesh : meshes) known.insert(sizes_of(mesh));
    const std::vector<Mesh> given = meshes;
    for (const Mesh& mesh : given) {
      std::vector<int> sizes = sizes_of(mesh);
      std::sort(sizes.begin(), sizes.end());
      do {
        if (!known.insert(sizes).second) continue;
        std::vector<Axis> axes = mesh.axes;
        for (size_t i = 0; i < axes.size(); ++i) axes[i].size = sizes[i];
        auto other = make_mesh(r_.cluster, axes);
        if (other.ok()) meshes.push_back(*other);
      } while (std::next_permutation(sizes.begin(), sizes.end()));
    }
  }

  // True: it is the best so far.
  bool offer(const Found& found, const std::shared_ptr<Problem>& problem, double price,
             const MomentPrices& moments = {}) {
    if (found.plan.choices.empty()) return false;
    if (least_peak_ == 0 || found.least_peak < least_peak_) least_peak_ = found.least_peak;
    const bool better = found.feasible
                            ? !best_.feasible || found.evaluation.seconds < best_.evaluation.seconds
                            : !best_.feasible && (best_.problem == nullptr ||
                                                  found.evaluation.peak < best_.evaluation.peak);
    if (!better) return false;
    MomentPrices prices = moments.list.empty() ? std::move(best_.moments) : moments;
    best_ = {found.feasible, found.evaluation,  problem,   found.plan,
             price,          std::move(prices), best_.line};
    return true;
  }

  // Those of a mesh, with and without recomputation.
  template <class Take>
  void each_baseline(const Problem& problem, Take&& take) const {
    for (const std::string& name : baseline_names()) {
      const bool asked = r_.name == name;
      if ((r_.name != "auto" && !asked) || !baseline_fits_mesh(name, problem.mesh)) continue;
      // a mesh of one device beside those of several is there for `single`
      const bool one = problem.mesh.devices() == 1;
      if (one && name != "single" && (!asked || r_.meshes[0].devices() > 1)) continue;
      for (const bool recompute : {false, true}) {
        if (recompute && problem.regions.size() == 1) continue;
        const BaselineResult b = baseline(problem, name, recompute);
        if (!b.plan) continue;
        Alternative row;
        row.name = name + (recompute ? " + recompute" : "");
        row.mesh = problem.mesh.str();
        row.feasible = b.evaluation.peak <= r_.budget;
        row.step_s = b.evaluation.seconds;
        row.peak_bytes = b.evaluation.peak;
        take(row, *b.plan, b.evaluation);
      }
    }
  }

  void alternatives(const std::shared_ptr<Problem>& problem) {
    each_baseline(*problem, [&](const Alternative& row, const BodyPlan& plan, const Evaluation& e) {
      Found found;
      found.feasible = row.feasible;
      found.plan = plan;
      found.evaluation = e;
      found.least_peak = e.peak;
      // the search looks at a superset, but a plan that is at hand costs nothing to offer
      offer(found, problem, best_.price);
      alternatives_.push_back(row);
    });
  }

  Planning finish(double wall_s) {
    Planning out;
    out.sites = sites_;
    out.problem = best_.problem;
    out.body = best_.body;
    out.price = best_.price;
    out.feasible = best_.feasible;
    out.least_peak = least_peak_;
    out.impossible = impossible_;
    if (best_.problem == nullptr) return out;
    out.plan = describe(*best_.problem, best_.body);
    Plan& plan = out.plan;
    plan.name = r_.name;
    plan.cluster = r_.cluster.name;
    plan.budget = r_.budget;
    plan.memory = r_.cluster.device.memory;
    plan.rows = r_.rows;
    plan.offered = r_.meshes[0].devices();
    plan.alternatives = best_rows(alternatives_);
    for (const std::string& text : sites_->unsupported)
      plan.notes.push_back(text + " is planned in a restricted way");
    SolverReport& s = plan.solver;
    s.name = solver_columns_ > 0 ? "folding, prices and lp_solve" : "folding and prices";
    s.columns = columns_;
    s.rows = rows_;
    s.objective = best_.evaluation.seconds;
    if (r_.name != "auto") {
      s.status = best_.feasible ? "fixed" : "infeasible";
    } else if (!best_.feasible) {
      s.status = "infeasible";
    } else {
      s.prove(std::min(bound_, s.objective));
      note_plain_gap(plan, plain_);
    }
    s.meshes = meshes_;
    s.meshes_dropped = dropped_;
    s.wall_s = wall_s;
    std::vector<std::pair<double, const char*>> parts = {
        {plan.predicted.params_bytes, "parameters"},
        {plan.predicted.grads_bytes, "gradients"},
        {plan.predicted.optimizer_bytes, "optimizer states"},
        {plan.predicted.activation_bytes, "saved activations"},
        {plan.predicted.transient_bytes, "what is alive for a moment"}};
    std::stable_sort(parts.begin(), parts.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& [bytes, name] : parts)
      out.contributors.push_back(fmt::format("{} {}", name, bytes_text(bytes)));
    return out;
  }

  // Where plans with segments may be faster, but as far as is known none without them.
  static void note_plain_gap(Plan& plan, double plain) {
    const double gap = 1 - plain / plan.solver.objective;
    if (plan.solver.gap <= 0.01 || gap > 0.01) return;
    plan.notes.push_back(
        gap <= 0
            ? std::string("every plan whose loops do not run again in segments is slower")
            : fmt::format("the gap is {:.2f} % on plans whose loops do not run again in segments",
                          gap * 100));
  }

  const PlanRequest& r_;
  std::shared_ptr<SiteGraph> sites_;
  CostModel model_;
  Best best_;
  std::vector<Searched> searched_;
  std::vector<int64_t> sizes_;  // choices, by mesh
  double least_peak_ = 0;
  double plain_ = 0, bound_ = 0;  // seconds: of plans without segments, of all
  int64_t meshes_ = 0, dropped_ = 0;
  std::shared_ptr<Problem> one_device_;           // for bounds of more of them
  std::map<int, double> least_of_devices_;        // seconds
  int64_t columns_ = 0, rows_ = 0;                // choices and variables, of all meshes
  int64_t solver_columns_ = 0, solver_rows_ = 0;  // of what went to lp_solve
  std::vector<Alternative> alternatives_;
  std::vector<std::string> impossible_;
};

}  // namespace

Training training_of(const ir::TrainSpec& spec, const ir::Graph& graph) {
  Training t;
  t.bindings = spec.bindings;
  t.mixed = spec.precision != ir::DType::kF32;
  t.micro_batches = static_cast<double>(std::max<int64_t>(1, spec.accumulate));
  for (const ir::Input& input : graph.inputs) {
    double bytes = 0;
    for (const ir::OptimizerEntry& entry : spec.optimizers) {
      const bool takes = entry.of.empty() ||
                         std::any_of(entry.of.begin(), entry.of.end(), [&](const std::string& of) {
                           return path_matches(of, input.path);
                         });
      if (!takes) continue;
      bytes = state_bytes(entry);
      break;
    }
    t.state_bytes.push_back(bytes + (spec.ema ? 4 : 0));
  }
  return t;
}

CostModel cost_model(const Device& device, const CostConstants& constants) {
  CostModel model;
  model.seconds = [device, constants](const Work& work) {
    return compute_seconds(device, work, constants);
  };
  model.memory_bandwidth = device.bandwidth * (device.cpu ? 1 : constants.memory_peak);
  // devices of a host are shares of its cores, which are the ones that move the bytes
  model.overlap = device.cpu ? 0 : constants.overlap;
  model.attention_tile = device.cpu ? kCpuAttentionTile : 0;
  model.epilogues = !device.cpu;  // our own products do not
  return model;
}

// The plan that needs least memory, as far as is searched: budgets below that of one are tried
// until none is left in between, more of them where a try is cheap. It is the same for every budget
// of the request.
static Planning plan_of_least(PlanRequest request) {
  constexpr double kWithin = 1e-4;  // of the budget
  constexpr int64_t kChoicesTimesTries = 30'000;
  request.proof_work = std::min(request.proof_work, kFitWork);
  request.budget = kNothingFits;
  request.alternatives = true;  // that of a baseline may be the least
  Planning least = Planner(request).run();
  request.alternatives = false;
  if (least.body.choices.empty()) return least;
  least.least_peak = least.plan.predicted.peak_bytes;
  const auto tries = std::clamp<int64_t>(
      kChoicesTimesTries / std::max<int64_t>(1, least.plan.solver.columns), 0, 20);
  double low = 0, step = 0.02;
  for (int64_t i = 0; i < tries && least.least_peak - low > kWithin * least.least_peak; ++i) {
    request.budget =
        std::floor(std::max((low + least.least_peak) / 2, least.least_peak * (1 - step)));
    Planning found = Planner(request).run();
    if (found.feasible) {
      found.least_peak = found.plan.predicted.peak_bytes;
      least = std::move(found);
      step = std::min(2 * step, 0.5);
    } else {
      low = request.budget;
    }
  }
  return least;
}

std::vector<Planning> baseline_plans(const PlanRequest& request) {
  return Planner(request).baselines();
}

// What is named as the least budget does when it is asked for.
Planning make_plan(const PlanRequest& request) {
  Planner planner(request);
  Planning made = planner.run();
  if (made.feasible || made.body.choices.empty() || request.name != "auto" || !request.try_least)
    return made;
  return planner.finish_with(plan_of_least(request));
}

}  // namespace cad::planner
