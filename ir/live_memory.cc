// ir/live_memory.cc -- see live_memory.h. Places are chosen as in backend/schedule.cc: where a
// value has to be in the end, where the sum lies that it is a term of (as in
// backend/schedule_sums.cc), in the buffer of an operand that dies, in a buffer of its own.
#include "ir/live_memory.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace cad::ir {

namespace {

using Terms = std::map<int32_t, int64_t>;  // product -> bytes an element, times a count

class Liveness {
 public:
  Liveness(const Graph& g, const StepGroups& groups, LiveMemory& out)
      : g_(g), groups_(groups), out_(out) {}

  // Where a region's result goes: outside of the arena (an output, a slice of a stack), unless it
  // is a carry, which lives in the place of `occupant` until the next iteration.
  struct Destination {
    ValueId occupant;
  };

  // Every point of the region, in order. `backward`: by step, whether a gradient is computed there
  // or before.
  std::vector<MemoryPoint> region(RegionId id, const std::vector<Destination>& destinations,
                                  const std::vector<char>& backward) {
    Work w;
    w.id = id;
    w.steps = &groups_.regions[static_cast<size_t>(id.index)];
    count(w);
    find_sums(w, destinations);
    analyse(w, destinations);
    std::vector<std::pair<size_t, std::vector<MemoryPoint>>> bodies;
    for (size_t s = 0; s < w.steps->size(); ++s) {
      const StepGroup& step = (*w.steps)[s];
      const Node& node = g_.node(step.nodes[0]);
      if (node.op == Op::kRepeat) {
        place_loop(w, s, node);
        bodies.emplace_back(s, body_points(node, !backward.empty() && backward[s] != 0));
      } else {
        place_outputs(w, s, step);
      }
    }
    return points_of(w, bodies, backward);
  }

 private:
  struct Buffer {
    int32_t product;
    int64_t bytes;  // an element
    int first, last;
  };
  // A value that a step makes by nothing but adding others. The direct ones are added to its place
  // by their own steps, the inner ones are such sums themselves, whose terms are among the direct.
  struct Sum {
    std::vector<ValueId> direct, copied, inner;
  };
  struct Work {
    RegionId id;
    const std::vector<StepGroup>* steps = nullptr;
    std::vector<Buffer> buffers;
    std::unordered_map<ValueId, int> buffer_of;  // own buffers; -1: a place outside
    std::unordered_map<ValueId, int> last_use, def, uses;
    std::unordered_map<ValueId, Sum> sums;
    std::unordered_map<ValueId, ValueId> sum_of;  // direct and inner terms
  };

  int32_t product_of(const Type& type) {
    std::vector<DimId> dims = type.dims;
    std::sort(dims.begin(), dims.end());
    const auto [found, fresh] = index_.emplace(dims, static_cast<int32_t>(out_.products.size()));
    if (fresh) out_.products.push_back(std::move(dims));
    return found->second;
  }

  int new_buffer(Work& w, ValueId value, int first) {
    const Type& type = g_.type(value);
    const auto used = w.last_use.find(value);
    const int last = used == w.last_use.end() ? first : std::max(first, used->second);
    w.buffers.push_back({product_of(type), dtype_bytes(type.dtype), first, last});
    return static_cast<int>(w.buffers.size()) - 1;
  }

  void count(Work& w) {
    for (size_t s = 0; s < w.steps->size(); ++s) {
      const StepGroup& step = (*w.steps)[s];
      for (ValueId v : step.reads) {
        w.last_use[v] = static_cast<int>(s);
        ++w.uses[v];
      }
      for (ValueId v : step.writes) w.def[v] = static_cast<int>(s);
    }
    for (ValueId v : g_.region(w.id).results) ++w.uses[groups_.base_of(v)];
  }

  // What a step adds up that does nothing else; empty: it is no such step.
  [[nodiscard]] std::vector<ValueId> terms_of(const StepGroup& step) const {
    if (step.library || step.writes.size() != 1) return {};
    const Type& type = g_.type(step.writes[0]);
    std::vector<ValueId> terms;
    for (NodeId id : step.nodes) {
      const Node& node = g_.node(id);
      if (node.op != Op::kAdd || !(g_.type(node.results[0]) == type)) return {};
      for (ValueId v : node.operands) {
        const NodeId def = g_.value(v).def;
        if (std::find(step.nodes.begin(), step.nodes.end(), def) == step.nodes.end())
          terms.push_back(v);
      }
    }
    if (terms.size() != step.nodes.size() + 1) return {};
    for (ValueId v : terms) {
      if (groups_.base_of(v) != v || !(g_.type(v) == type) ||
          std::count(terms.begin(), terms.end(), v) > 1)
        return {};
    }
    return terms;
  }

  // Whether the step that makes it can add it to what lies at its place.
  [[nodiscard]] bool adds_itself(ValueId v) const {
    const Node& node = g_.node(g_.value(v).def);
    if (node.op == Op::kRepeat) return g_.value(v).result >= node.loop.carries;
    return node.op == Op::kContract || node.op == Op::kScatterAdd;
  }

  // Direct terms have a step each: its order is that of the additions.
  [[nodiscard]] Sum sum_of(const Work& w, const std::vector<ValueId>& terms) const {
    Sum sum;
    std::vector<int> makers;
    const auto take = [&](const std::vector<ValueId>& values) {
      for (ValueId v : values) {
        if (std::count(makers.begin(), makers.end(), w.def.at(v)) != 0) return false;
      }
      for (ValueId v : values) makers.push_back(w.def.at(v));
      sum.direct.insert(sum.direct.end(), values.begin(), values.end());
      return true;
    };
    for (ValueId v : terms) {
      const auto inner = w.sums.find(v);
      const bool mine = w.def.count(v) != 0 && w.uses.at(v) == 1;
      if (mine && inner != w.sums.end() && take(inner->second.direct)) {
        sum.inner.insert(sum.inner.end(), inner->second.inner.begin(), inner->second.inner.end());
        sum.inner.push_back(v);
      } else if (!(mine && inner == w.sums.end() && adds_itself(v) && take({v}))) {
        sum.copied.push_back(v);
      }
    }
    return sum;
  }

  // One direct term saves nothing, unless it is added to what lies there already: a carry, the
  // gradient of the micro-batches before.
  void find_sums(Work& w, const std::vector<Destination>& destinations) const {
    const std::vector<ValueId>& results = g_.region(w.id).results;
    for (const StepGroup& step : *w.steps) {
      const std::vector<ValueId> terms = terms_of(step);
      if (terms.empty()) continue;
      Sum sum = sum_of(w, terms);
      if (sum.direct.empty()) continue;
      const ValueId value = step.writes[0];
      bool useful = sum.direct.size() > 1;
      for (size_t i = 0; i < results.size() && !useful; ++i) {
        if (results[i] != value || w.uses.at(value) != 1) continue;
        const ValueId held = destinations[i].occupant;
        useful = !held.valid() || (is_in(held, sum.copied) && w.uses.at(held) == 1);
      }
      if (!useful) continue;
      for (const auto* list : {&sum.direct, &sum.inner}) {
        for (ValueId v : *list) w.sum_of[v] = value;
      }
      w.sums.emplace(value, std::move(sum));
    }
  }

  static bool is_in(ValueId v, const std::vector<ValueId>& list) {
    return std::find(list.begin(), list.end(), v) != list.end();
  }

  // The step of its first direct term.
  [[nodiscard]] static int begun(const Work& w, ValueId value, const Sum& sum) {
    int first = w.def.at(value);
    for (ValueId v : sum.direct) first = std::min(first, w.def.at(v));
    return first;
  }

  static void place_sum(Work& w, const Sum& sum, int buffer) {
    for (const auto* list : {&sum.direct, &sum.inner}) {
      for (ValueId v : *list) w.buffer_of[v] = buffer;
    }
  }

  // Whether a result can be made where what lives there is needed no more by then.
  [[nodiscard]] bool may_replace(const Work& w, ValueId occupant, ValueId value) const {
    const auto used = w.last_use.find(occupant);
    if (!occupant.valid() || used == w.last_use.end()) return true;
    if (const auto sum = w.sums.find(value); sum != w.sums.end()) {
      if (is_in(occupant, sum->second.copied)) return w.uses.at(occupant) == 1;
      return used->second < begun(w, value, sum->second);
    }
    const int def = w.def.at(value);
    const StepGroup& step = (*w.steps)[static_cast<size_t>(def)];
    return used->second < def ||
           (used->second == def && overwrites(step) && same_shape(occupant, value));
  }

  // Results that can be written to their destination at once get the place -1.
  void analyse(Work& w, const std::vector<Destination>& destinations) {
    const auto end = static_cast<int>(w.steps->size());
    const std::vector<ValueId>& results = g_.region(w.id).results;
    for (size_t i = 0; i < results.size(); ++i) {
      const ValueId base = groups_.base_of(results[i]);
      if (!base.valid() || w.def.count(base) == 0) continue;
      const bool direct = base == results[i] && w.buffer_of.count(base) == 0 &&
                          may_replace(w, destinations[i].occupant, base);
      if (!direct) {
        w.last_use[base] = end;
        continue;
      }
      w.buffer_of[base] = -1;
      if (const auto sum = w.sums.find(base); sum != w.sums.end()) place_sum(w, sum->second, -1);
    }
  }

  // The buffer of a sum begins with its first term.
  void place_term(Work& w, ValueId v, int at) {
    const auto found = w.sum_of.find(v);
    if (found == w.sum_of.end() || w.buffer_of.count(v) != 0) return;
    const int buffer = new_buffer(w, found->second, at);
    w.buffer_of[found->second] = buffer;
    place_sum(w, w.sums.at(found->second), buffer);
  }

  // Stored alike, whatever the dims are called: a step that goes through one in order goes through
  // the other in order.
  [[nodiscard]] bool same_shape(ValueId a, ValueId b) const {
    const Type &x = g_.type(a), &y = g_.type(b);
    if (x.rank() != y.rank() || dtype_bytes(x.dtype) != dtype_bytes(y.dtype)) return false;
    for (size_t i = 0; i < x.rank(); ++i) {
      if (x.dims[i] != y.dims[i] && !(g_.dim(x.dims[i]).size == g_.dim(y.dims[i]).size))
        return false;
    }
    return true;
  }
  // Whether the step may make its results where its operands are.
  [[nodiscard]] bool overwrites(const StepGroup& step) const {
    return !step.library || g_.node(step.nodes[0]).op == Op::kAllReduce;
  }

  void place_outputs(Work& w, size_t s, const StepGroup& step) {
    std::vector<int> taken;
    const auto at = static_cast<int>(s);
    for (ValueId v : step.writes) {
      place_term(w, v, at);
      if (w.buffer_of.count(v) != 0) continue;
      int buffer = overwrites(step) ? dying_operand(w, at, step, v, taken) : -1;
      if (buffer < 0) {
        buffer = new_buffer(w, v, at);
      } else {
        const auto used = w.last_use.find(v);
        Buffer& old = w.buffers[static_cast<size_t>(buffer)];
        old.last = std::max({old.last, at, used == w.last_use.end() ? at : used->second});
        taken.push_back(buffer);
      }
      w.buffer_of[v] = buffer;
    }
  }

  // The buffer of an operand that dies at this step and has the size of `v`; -1: none.
  int dying_operand(const Work& w, int at, const StepGroup& step, ValueId v,
                    const std::vector<int>& taken) const {
    for (ValueId in : step.reads) {
      const auto buffer = w.buffer_of.find(in);
      if (buffer == w.buffer_of.end() || buffer->second < 0) continue;
      if (w.last_use.at(in) != at || !same_shape(in, v)) continue;
      if (w.buffers[static_cast<size_t>(buffer->second)].last != at) continue;
      if (std::find(taken.begin(), taken.end(), buffer->second) == taken.end())
        return buffer->second;
    }
    return -1;
  }

  void place_loop(Work& w, size_t s, const Node& node) {
    const auto at = static_cast<int>(s);
    for (size_t i = 0; i < node.results.size(); ++i) {
      const ValueId result = node.results[i];
      place_term(w, result, at);
      if (w.buffer_of.count(result) != 0) continue;
      if (i < static_cast<size_t>(node.loop.carries)) {
        const ValueId init = groups_.base_of(node.operands[i]);
        const auto own = w.buffer_of.find(init);
        const auto readers = std::count_if(node.operands.begin(), node.operands.end(),
                                           [&](ValueId v) { return groups_.base_of(v) == init; });
        if (own != w.buffer_of.end() && own->second >= 0 && readers == 1 &&
            init == node.operands[i] && w.last_use.at(init) == at) {
          const auto used = w.last_use.find(result);
          Buffer& buffer = w.buffers[static_cast<size_t>(own->second)];
          buffer.last = std::max({buffer.last, at, used == w.last_use.end() ? at : used->second});
          w.buffer_of[result] = own->second;
          continue;
        }
      }
      w.buffer_of[result] = new_buffer(w, result, at);
    }
  }

  std::vector<MemoryPoint> body_points(const Node& node, bool backward) {
    const Region& body = g_.region(node.loop.body);
    std::vector<Destination> destinations(body.results.size());
    for (size_t i = 0; i < static_cast<size_t>(node.loop.carries); ++i)
      destinations[i].occupant = body.args[i + 1];
    const size_t steps = groups_.regions[static_cast<size_t>(node.loop.body.index)].size();
    return region(node.loop.body, destinations, std::vector<char>(steps, backward ? 1 : 0));
  }

  std::vector<MemoryPoint> points_of(
      const Work& w, const std::vector<std::pair<size_t, std::vector<MemoryPoint>>>& bodies,
      const std::vector<char>& backward) {
    std::vector<MemoryPoint> points;
    for (size_t s = 0; s <= w.steps->size(); ++s) {
      Terms live;
      for (const Buffer& buffer : w.buffers) {
        if (buffer.first <= static_cast<int>(s) && buffer.last >= static_cast<int>(s))
          live[buffer.product] += buffer.bytes;
      }
      const bool last = s == w.steps->size();
      if (last && live.empty()) continue;
      const size_t step = std::min(s, w.steps->size() - 1);
      const bool back = !backward.empty() && backward[step] != 0;
      bool inside = false;
      for (const auto& [at, body] : bodies) {
        if (at != s || last) continue;
        for (const MemoryPoint& inner : body) {
          Terms all = live;
          for (const auto& [product, bytes] : inner.terms) all[product] += bytes;
          points.push_back({inner.at, back, {all.begin(), all.end()}});
          inside = true;
        }
      }
      if (inside || w.steps->empty()) continue;
      points.push_back({(*w.steps)[step].nodes.back(), back, {live.begin(), live.end()}});
    }
    return points;
  }

  const Graph& g_;
  const StepGroups& groups_;
  LiveMemory& out_;
  std::map<std::vector<DimId>, int32_t> index_;
};

// A point below another for every binding cannot be the peak.
bool below(const MemoryPoint& a, const MemoryPoint& b) {
  size_t at = 0;
  for (const auto& [product, bytes] : a.terms) {
    while (at < b.terms.size() && b.terms[at].first < product) ++at;
    if (at == b.terms.size() || b.terms[at].first != product || b.terms[at].second < bytes)
      return false;
  }
  return true;
}
std::vector<MemoryPoint> undominated(const std::vector<MemoryPoint>& points) {
  std::vector<MemoryPoint> kept;
  for (size_t i = 0; i < points.size(); ++i) {
    bool drop = false;
    for (size_t j = 0; j < points.size() && !drop; ++j) {
      if (i == j || !below(points[i], points[j])) continue;
      drop = !below(points[j], points[i]) || j < i;
    }
    if (!drop) kept.push_back(points[i]);
  }
  return kept;
}

// The innermost node behind a loop's result.
NodeId maker(const Graph& g, ValueId value) {
  NodeId def = g.value(value).def;
  while (def.valid() && g.node(def).op == Op::kRepeat) {
    const Node& node = g.node(def);
    const ValueId inner =
        g.region(node.loop.body).results[static_cast<size_t>(g.value(value).result)];
    if (!g.value(inner).def.valid()) break;
    value = inner;
    def = g.value(inner).def;
  }
  return def;
}

}  // namespace

Amount LiveMemory::bytes(const MemoryPoint& point) const {
  Amount sum;
  for (const auto& [product, bytes] : point.terms)
    sum.add(bytes, products[static_cast<size_t>(product)]);
  return sum;
}

LiveMemory live_memory(const Graph& g, const StepGroups& groups, const std::vector<char>& forward) {
  LiveMemory out;
  const std::vector<StepGroup>& top = groups.regions[0];
  std::vector<char> backward(top.size(), 0), mixed(top.size(), 0);
  bool begun = false;
  for (size_t s = 0; s < top.size(); ++s) {
    for (NodeId id : top[s].nodes) {
      if (forward[static_cast<size_t>(id.index)] == 0) mixed[s] = 1;
    }
    begun = begun || mixed[s] != 0;
    backward[s] = begun ? 1 : 0;
  }
  std::map<ValueId, char> made;  // by a step that is all forward; 2: listed
  for (size_t s = 0; s < top.size(); ++s) {
    if (mixed[s] == 0) {
      for (ValueId v : top[s].writes) made.emplace(v, 1);
      continue;
    }
    for (ValueId v : top[s].reads) {
      const auto found = made.find(v);
      if (found == made.end() || found->second == 2) continue;
      found->second = 2;
      const NodeId def = maker(g, v);
      const Type& type = g.type(v);
      out.saved.push_back(
          {v, def.valid() ? g.node(def).scope : "", Amount(dtype_bytes(type.dtype), type.dims)});
    }
  }
  Liveness liveness(g, groups, out);
  out.course = liveness.region(
      RegionId{0}, std::vector<Liveness::Destination>(g.region(RegionId{0}).results.size()),
      backward);
  out.points = undominated(out.course);
  return out;
}

}  // namespace cad::ir
