// planner/exact_plan.cc -- see exact_plan.h.
#include "planner/exact_plan.h"

#include <algorithm>

#include "base/check.h"

namespace cad::planner {

namespace {

class Reader {
 public:
  Reader(const Problem& problem, const Derivations& derivations)
      : p_(problem), derivations_(derivations) {}

  [[nodiscard]] BodyPlan empty(size_t r) const {
    BodyPlan plan;
    plan.choices.assign(p_.regions[r].variables.size(), -1);
    plan.loops.resize(p_.regions[r].children.size());
    return plan;
  }

  void collect(int32_t from, size_t r, BodyPlan& plan) const {
    if (from < 0) return;
    const Derivation& d = derivations_.at(from);
    switch (d.kind) {
      case Derivation::Kind::kChoice:
        plan.choices[static_cast<size_t>(d.left)] = d.right;
        break;
      case Derivation::Kind::kJoin:
        collect(d.left, r, plan);
        collect(d.right, r, plan);
        break;
      case Derivation::Kind::kLoop: {
        const auto child =
            static_cast<size_t>(p_.regions[r].children[static_cast<size_t>(d.left)].region);
        std::vector<int32_t> list;
        iterations_of(d.right, list);
        plan.loops[static_cast<size_t>(d.left)] = runs(child, list);
        break;
      }
      case Derivation::Kind::kIteration:
      case Derivation::Kind::kSequence:
        CAD_CHECK(false, "an iteration outside of a loop");
    }
  }

 private:
  void iterations_of(int32_t from, std::vector<int32_t>& out) const {
    const Derivation& d = derivations_.at(from);
    if (d.kind == Derivation::Kind::kSequence) {
      iterations_of(d.left, out);
      iterations_of(d.right, out);
    } else {
      out.push_back(d.left);
    }
  }

  // Equal iterations that start and end in one state may stand anywhere: they are put together.
  // Two that take turns are one run of period two.
  std::vector<Run> runs(size_t r, const std::vector<int32_t>& list) const {
    const RegionProblem& region = p_.regions[r];
    std::vector<Run> flat;
    std::vector<int32_t> kinds;
    for (const int32_t kind : list) {
      const auto known = std::find(kinds.begin(), kinds.end(), kind);
      BodyPlan body = empty(r);
      collect(kind, r, body);
      const bool stays = region.entry < 0 || body.choices[static_cast<size_t>(region.entry)] ==
                                                 body.choices[static_cast<size_t>(region.exit)];
      if (stays && known != kinds.end()) {
        ++flat[static_cast<size_t>(known - kinds.begin())].count;
        continue;
      }
      kinds.push_back(kind);
      flat.push_back({1, {std::move(body)}});
    }
    std::vector<Run> out;
    for (size_t i = 0; i < flat.size();) {
      size_t turns = 1;
      const auto single = [&](size_t k) { return k < flat.size() && flat[k].count == 1; };
      while (single(i) && single(i + 1) && single(i + 2 * turns) && single(i + 2 * turns + 1) &&
             kinds[i + 2 * turns] == kinds[i] && kinds[i + 2 * turns + 1] == kinds[i + 1])
        ++turns;
      if (turns > 1) {
        out.push_back({static_cast<int64_t>(turns),
                       {std::move(flat[i].pattern[0]), std::move(flat[i + 1].pattern[0])}});
        i += 2 * turns;
      } else {
        out.push_back(std::move(flat[i++]));
      }
    }
    return out;
  }

  const Problem& p_;
  const Derivations& derivations_;
};

}  // namespace

BodyPlan plan_of_label(const Problem& problem, const Derivations& derivations, int32_t from) {
  const Reader reader(problem, derivations);
  BodyPlan plan = reader.empty(0);
  reader.collect(from, 0, plan);
  return plan;
}

}  // namespace cad::planner
