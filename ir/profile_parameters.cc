// ir/profile_parameters.cc -- see profile_internal.h. Which entry updates a parameter is decided by
// path as in the trainer, per iteration where a pattern can tell iterations apart; what its state
// takes is read off the entry's update graph.
#include <algorithm>
#include <map>

#include "base/path_pattern.h"
#include "ir/cost.h"
#include "ir/profile_internal.h"

namespace cad::ir {

namespace {

constexpr int64_t kMostIterations = 100'000;  // told apart by number

int entry_of(const TrainSpec& spec, const std::string& path) {
  for (size_t e = 0; e < spec.optimizers.size(); ++e) {
    const auto& of = spec.optimizers[e].of;
    const auto matches = [&](const std::string& pattern) { return path_matches(pattern, path); };
    if (of.empty() || std::any_of(of.begin(), of.end(), matches)) return static_cast<int>(e);
  }
  return -1;
}

std::string with_numbers(const std::string& path, const std::vector<int64_t>& numbers) {
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path.compare(i, 2, "{}") != 0 || next == numbers.size()) {
      out += path[i];
      continue;
    }
    out += std::to_string(numbers[next++]);
    ++i;
  }
  return out;
}

// A part of a parameter's iterations: `count` of them, or all when 0.
struct Share {
  int entry;
  int64_t count;
};

// Entries with what each takes of a parameter. Free loop sizes count as one iteration.
std::vector<Share> shares_of(const TrainSpec& spec, const Graph& g, const Input& input) {
  std::vector<int64_t> trips;
  int64_t all = 1;
  for (int i = 0; i < input.loop_dims; ++i) {
    const DimId dim = g.type(input.value).dims[static_cast<size_t>(i)];
    const Size::Evaluated size = g.dim(dim).size.evaluate(spec.bindings);
    const int64_t trip = size.ok() ? size.value : 1;
    trips.push_back(trip);
    all = trip != 0 && all > kMostIterations / trip ? kMostIterations + 1 : all * trip;
  }
  std::map<int, int64_t> counts;
  if (all > kMostIterations || all == 0) {
    counts[entry_of(spec, with_numbers(input.path, std::vector<int64_t>(trips.size(), 0)))] = all;
  }
  for (int64_t k = 0; k < all && all <= kMostIterations; ++k) {
    std::vector<int64_t> numbers(trips.size());
    int64_t rest = k;
    for (size_t i = trips.size(); i-- > 0; rest /= trips[i]) numbers[i] = rest % trips[i];
    ++counts[entry_of(spec, with_numbers(input.path, numbers))];
  }
  std::vector<Share> shares;
  for (const auto& [entry, count] : counts) {
    if (entry < 0 || spec.optimizers[static_cast<size_t>(entry)].frozen) continue;
    shares.push_back({entry, count == all ? 0 : count});
  }
  return shares;
}

bool decays(const Input& input, size_t rank, const OptimizerEntry& entry) {
  if (input.decay == Input::Decay::kAlways) return true;
  if (input.decay == Input::Decay::kNever) return false;
  return entry.decay_all || rank >= 2;
}

// State and FLOPs of one entry's update, by whether they grow with the parameter.
struct Update {
  int64_t bytes_each = 0, bytes_once = 0, flops_each = 0;
  explicit Update(const Graph& update) {
    for (const Input& input : update.inputs) {
      if (input.kind != InputKind::kState || !input.value.valid()) continue;
      const Type& type = update.type(input.value);
      (type.dims.empty() ? bytes_once : bytes_each) += dtype_bytes(type.dtype);
    }
    for (NodeId id : update.regions[0].nodes) {
      const Amount flops = op_cost(update, id).flops();
      for (const Amount::Term& term : flops.terms()) {
        if (!term.dims.empty()) flops_each += term.times;
      }
    }
  }
};

// Adafactor (backend/optimizer_adafactor.cc): a mean for each row and column of the last two dims.
constexpr int64_t kAdafactorFlops = 12;  // a parameter: squares and their two sums, update, norms
void add_adafactor(ProfiledParameter& q, const std::vector<DimId>& dims, size_t loops,
                   int64_t times) {
  q.optimizer_flops.add(times * kAdafactorFlops, dims);
  if (dims.size() < loops + 2) return q.optimizer_bytes.add(4 * times, dims);
  std::vector<DimId> row = dims, column = dims;
  row.pop_back();
  column.erase(column.end() - 2);
  q.optimizer_bytes.add(4 * times, row);
  q.optimizer_bytes.add(4 * times, column);
}

void add_optimizer(ProfiledParameter& q, const TrainSpec& spec, const Graph& g,
                   const Input& input) {
  const auto loops = static_cast<size_t>(input.loop_dims);
  const std::vector<DimId>& all = q.type.dims;
  for (const Share& share : shares_of(spec, g, input)) {
    const OptimizerEntry& entry = spec.optimizers[static_cast<size_t>(share.entry)];
    const int64_t times = share.count == 0 ? 1 : share.count;
    const auto skipped = static_cast<std::ptrdiff_t>(share.count == 0 ? 0 : loops);
    const std::vector<DimId> dims(all.begin() + skipped, all.end());
    if (!entry.special.empty()) {
      add_adafactor(q, dims, share.count == 0 ? loops : 0, times);
      continue;
    }
    const Update update(decays(input, all.size() - loops, entry) ? entry.decayed : entry.plain);
    q.optimizer_bytes.add(times * update.bytes_each, dims);
    q.optimizer_bytes.add(update.bytes_once, {});
    q.optimizer_flops.add(times * update.flops_each, dims);
  }
}

}  // namespace

std::vector<std::string> trained_paths(const TrainSpec& spec) {
  std::vector<std::string> paths;
  for (const Input& input : spec.forward.inputs) {
    if (input.kind != InputKind::kParam || input.frozen || !input.value.valid()) continue;
    if (!shares_of(spec, spec.forward, input).empty()) paths.push_back(input.path);
  }
  return paths;
}

std::vector<ProfiledParameter> profiled_parameters(const Graph& g, const TrainSpec& spec,
                                                   const std::vector<std::string>& trained) {
  std::vector<ProfiledParameter> list;
  for (const Input& input : g.inputs) {
    if (input.kind != InputKind::kParam && input.kind != InputKind::kState) continue;
    ProfiledParameter q;
    q.path = input.path;
    const size_t dot = input.path.rfind('.');
    q.scope = dot == std::string::npos ? "" : input.path.substr(0, dot);
    q.kind = input.kind;
    q.type = g.type(input.value);
    q.count.add(1, q.type.dims);
    q.bytes.add(dtype_bytes(q.type.dtype), q.type.dims);
    q.trained = std::find(trained.begin(), trained.end(), input.path) != trained.end();
    if (q.kind == InputKind::kParam && is_float(q.type.dtype)) {
      if (spec.precision != DType::kF32 && q.type.dtype == DType::kF32)
        q.copy_bytes.add(dtype_bytes(spec.precision), q.type.dims);
    }
    if (q.trained) {
      q.grad_bytes = q.bytes;
      if (spec.ema) q.average_bytes = q.bytes;
      add_optimizer(q, spec, g, input);
    }
    list.push_back(std::move(q));
  }
  return list;
}

}  // namespace cad::ir
