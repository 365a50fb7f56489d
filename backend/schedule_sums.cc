// backend/schedule_sums.cc -- Scheduler's fourth part: sums whose terms are added where the sum
// lies. The gradient of a table that is read twice is the sum of a product and of rows by index:
// both are as large as the table, so one buffer holds what they have given so far, and where it is
// an output's that buffer itself. The order of additions is that of the steps: it depends on the
// program alone.
#include <algorithm>

#include "backend/scheduler.h"

namespace cad::backend {

// Whether a step can add its result to what lies at its place.
bool Scheduler::can_add(const Step& step, ValueId v) const {
  switch (step.kind) {
    case Step::Kind::kContract:
    case Step::Kind::kScatterAdd:
      return true;
    case Step::Kind::kLoop:  // collected: its slices are added in the body
      return graph_.value(v).result >= node_of(step).loop.carries;
    default:
      return false;
  }
}

// What a step adds up that does nothing else: values that are stored as the result is. Empty: it is
// no such step.
std::vector<ValueId> Scheduler::terms_of(const Step& step) const {
  if (step.kind != Step::Kind::kKernel || step.outputs.size() != 1) return {};
  const ValueId out = step.outputs[0];
  std::vector<ValueId> terms;
  for (const ir::NodeId id : step.nodes) {
    const ir::Node& node = graph_.node(id);
    if (node.op != ir::Op::kAdd || !(graph_.type(node.results[0]) == graph_.type(out))) return {};
    for (const ValueId v : node.operands) {
      const ir::NodeId def = graph_.value(v).def;
      if (std::find(step.nodes.begin(), step.nodes.end(), def) == step.nodes.end())
        terms.push_back(v);
    }
  }
  if (terms.size() != step.nodes.size() + 1) return {};  // a sum inside is read twice
  for (const ValueId v : terms) {
    if (base(v) != v || !(graph_.type(v) == graph_.type(out)) ||
        layout(v).strides != layout(out).strides || std::count(terms.begin(), terms.end(), v) > 1)
      return {};
  }
  return terms;
}

// `made`: the steps by the values they write.
std::optional<Sum> Scheduler::sum_of(const Step& step,
                                     const std::map<int32_t, const Step*>& made) const {
  Sum sum;
  std::vector<const Step*> makers;  // of the direct terms: one each, their order is that of steps
  const auto alone = [&](const std::vector<ValueId>& terms) {
    return std::none_of(terms.begin(), terms.end(), [&](ValueId v) {
      return std::find(makers.begin(), makers.end(), made.at(v.index)) != makers.end();
    });
  };
  for (const ValueId v : terms_of(step)) {
    const auto maker = made.find(v.index);
    const auto inner = sums_.find(v.index);
    if (uses_[index(v)] != 1 || maker == made.end()) {
      sum.copied.push_back(v);
    } else if (inner != sums_.end() && alone(inner->second.direct)) {
      const Sum& other = inner->second;
      for (const ValueId term : other.direct) makers.push_back(made.at(term.index));
      sum.direct.insert(sum.direct.end(), other.direct.begin(), other.direct.end());
      sum.inner.insert(sum.inner.end(), other.inner.begin(), other.inner.end());
      sum.inner.push_back(v);
    } else if (can_add(*maker->second, v) && alone({v})) {
      makers.push_back(maker->second);
      sum.direct.push_back(v);
    } else {
      sum.copied.push_back(v);
    }
  }
  if (sum.direct.empty()) return {};
  sum.value = step.outputs[0];
  return sum;
}

// A sum of two terms of which one is added anyway saves nothing, unless it goes to a buffer that
// holds something already.
void Scheduler::find_sums(ir::RegionId region, const std::vector<Step>& steps,
                          const std::vector<Destination>& destinations) {
  const std::vector<ValueId>& results = graph_.region(region).results;
  std::map<int32_t, const Step*> made;
  for (const Step& step : steps) {
    if (step.kind == Step::Kind::kView) continue;
    for (const ValueId v : step.outputs) made[v.index] = &step;
    std::optional<Sum> sum = sum_of(step, made);
    if (!sum) continue;
    bool useful = sum->direct.size() > 1;
    for (size_t i = 0; i < results.size() && !useful; ++i) {
      if (results[i] != sum->value || uses_[index(sum->value)] != 1) continue;
      const ValueId held = destinations[i].occupant;
      const bool carried =
          held.valid() && uses_[index(held)] == 1 &&
          std::find(sum->copied.begin(), sum->copied.end(), held) != sum->copied.end();
      useful = carried || destinations[i].adds != Adds::kNo;
    }
    if (!useful) continue;
    const int32_t value = sum->value.index;
    for (const ValueId v : sum->direct) sum_of_term_[v.index] = value;
    for (const ValueId v : sum->inner) sum_of_term_[v.index] = value;
    sums_[value] = std::move(*sum);
  }
}

const Sum* Scheduler::sum_at(const Step& step) const {
  if (step.kind != Step::Kind::kKernel || step.outputs.size() != 1) return nullptr;
  const auto found = sums_.find(step.outputs[0].index);
  return found == sums_.end() ? nullptr : &found->second;
}

const Sum* Scheduler::sum_with(ValueId term) const {
  const auto found = sum_of_term_.find(term.index);
  return found == sum_of_term_.end() ? nullptr : &sums_.at(found->second);
}

int32_t Scheduler::begun(const Sum& sum) const {
  int32_t first = def_step_[index(sum.value)];
  for (const ValueId v : sum.direct) first = std::min(first, def_step_[index(v)]);
  return first;
}

// Whether its terms can be added at the destination: what lives there must be one of them, or be
// needed no more when the first of them is made.
bool Scheduler::sum_may_go_direct(const Sum& sum, const Destination& d) const {
  if (!d.occupant.valid()) return true;
  if (std::find(sum.copied.begin(), sum.copied.end(), d.occupant) != sum.copied.end())
    return uses_[index(d.occupant)] == 1;
  return last_use_[index(d.occupant)] < begun(sum) && !in_flight(d.occupant, begun(sum));
}

// `first`: what the first term does there; the others add.
void Scheduler::place_sum(const Sum& sum, const Address& place, Adds first) {
  const int32_t at = begun(sum);
  for (const ValueId v : sum.direct) {
    Destination& d = of_sums_.emplace_back();
    d.place = place;
    d.adds = def_step_[index(v)] == at ? first : Adds::kAlways;
    direct_[index(v)] = &d;
    places_[index(v)] = place;
  }
  for (const ValueId v : sum.inner) places_[index(v)] = place;
}

// A sum's buffer begins with its first term.
void Scheduler::place_term(const RegionState& r, const Step& step, ValueId term, int32_t at) {
  const Sum* sum = sum_with(term);
  if (sum == nullptr || places_[index(term)].valid()) return;
  const ValueId v = sum->value;
  places_[index(v)] =
      new_buffer(r, bytes(v), at, last_use_[index(v)], name_of(graph_, v), node_of(step).scope);
  place_sum(*sum, places_[index(v)], Adds::kNo);
}

// What is left of the step of a sum.
void Scheduler::step_sum(const RegionState& r, const Step& step, const Sum& sum) {
  const Address& place = place_of(sum.value);
  const Destination* direct = direct_[index(sum.value)];
  int32_t info = -1;
  for (const ValueId v : sum.copied) {
    // What lives there is added to. The same memory may have another address: a state's next value
    // is an output, the state itself an input.
    if (direct != nullptr && direct->occupant == v) continue;
    if (info < 0) info = add_info(r, step, "add", static_cast<double>(elements(v)));
    add_copy(r, v, place, Adds::kAlways, info);
  }
  if (info >= 0) add_checks(block(r).instructions.back(), step);
}

}  // namespace cad::backend
