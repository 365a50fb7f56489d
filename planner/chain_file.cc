// planner/chain_file.cc -- the reader of chain problems: every complaint names its place.
#include "planner/chain_file.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/chain_model.h"

namespace cad::planner {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostStages = 2000;
constexpr double kMostSplits = 2e8;  // n different stages take n^3 / 6: 1,000 of them are taken
constexpr size_t kMostOptions = 256;

Diagnostic wrong(const std::string& path, const std::string& what) {
  return make_error(DiagId::E0821, fmt::format("`{}`: {}", path, what), kExitProgram);
}

// A whole number from 0 to 2^63 - 1.
Result<int64_t> whole(const std::string& path, const std::string& place, const Json& value) {
  if (!value.is_number()) return wrong(path, fmt::format("{} is not a number", place));
  if (!value.is_number_integer()) return wrong(path, fmt::format("{} is not whole", place));
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX})
    return wrong(path, fmt::format("{} is beyond 63 bits", place));
  if (value.get<int64_t>() < 0) return wrong(path, fmt::format("{} is negative", place));
  return value.get<int64_t>();
}

Result<const Json*> list(const std::string& path, const Json& chain, const std::string& key) {
  const auto found = chain.find(key);
  if (found == chain.end()) return wrong(path, fmt::format("`chain` lacks `{}`", key));
  if (!found->is_array()) return wrong(path, fmt::format("chain.{} is not a list", key));
  return &*found;
}

// One entry of a list: a number, or one for each option of the stage.
struct Entry {
  std::vector<int64_t> values;
  [[nodiscard]] int64_t of(size_t option) const {
    return values.size() == 1 ? values[0] : values[option];
  }
};

Result<Entry> entry(const std::string& path, const std::string& place, const Json& value) {
  Entry result;
  if (!value.is_array()) {
    CAD_TRY(number, whole(path, place, value));
    result.values = {number};
    return result;
  }
  if (value.empty()) return wrong(path, fmt::format("{} has no option", place));
  if (value.size() > kMostOptions)
    return wrong(path, fmt::format("{} has {} options, at most {} are taken", place, value.size(),
                                   kMostOptions));
  for (size_t i = 0; i < value.size(); ++i) {
    CAD_TRY(number, whole(path, fmt::format("{}[{}]", place, i), value[i]));
    result.values.push_back(number);
  }
  return result;
}

struct Lists {
  const Json *forward = nullptr, *backward = nullptr, *output = nullptr, *saved = nullptr,
             *forward_tmp = nullptr, *backward_tmp = nullptr;
};

Result<Lists> lists(const std::string& path, const Json& chain) {
  Lists all;
  struct Row {
    const char* key;
    const Json** list;
    size_t more;  // entries beyond the number of stages
  };
  const Row rows[] = {{"forward", &all.forward, 0},         {"backward", &all.backward, 1},
                      {"output", &all.output, 1},           {"saved", &all.saved, 1},
                      {"forward_tmp", &all.forward_tmp, 0}, {"backward_tmp", &all.backward_tmp, 1}};
  for (const Row& row : rows) {
    CAD_TRY(found, list(path, chain, row.key));
    *row.list = found;
  }
  const size_t n = all.forward->size();
  if (n == 0) return wrong(path, "the chain is empty: `forward` has no entry");
  if (n > kMostStages)
    return wrong(path, fmt::format("{} stages, at most {} are taken", n, kMostStages));
  for (const Row& row : rows) {
    if ((*row.list)->size() == n + row.more) continue;
    return wrong(path, fmt::format("chain.{} has {} entries, expected {}: `forward` has {}",
                                   row.key, (*row.list)->size(), n + row.more, n));
  }
  return all;
}

// Stage i, or the loss where i is the number of stages.
Result<ChainStage> stage(const std::string& path, const Lists& all, size_t i) {
  const bool loss = i == all.forward->size();
  const Entry none{{0}};
  const auto read = [&](const Json* from, const char* key, size_t at) {
    return entry(path, fmt::format("chain.{}[{}]", key, at), (*from)[at]);
  };
  CAD_TRY(backward, read(all.backward, "backward", i));
  CAD_TRY(backward_tmp, read(all.backward_tmp, "backward_tmp", i));
  Entry forward = none, saved = none, forward_tmp = none;
  ChainStage result;
  if (!loss) {
    CAD_TRY(f, read(all.forward, "forward", i));
    CAD_TRY(s, read(all.saved, "saved", i + 1));
    CAD_TRY(t, read(all.forward_tmp, "forward_tmp", i));
    CAD_TRY(out, whole(path, fmt::format("chain.output[{}]", i + 1), (*all.output)[i + 1]));
    forward = f, saved = s, forward_tmp = t;
    result.output = out;
  }
  size_t options = 1;
  for (const Entry* e : {&forward, &backward, &saved, &forward_tmp, &backward_tmp}) {
    const size_t has = e->values.size();
    if (has > 1 && options > 1 && has != options)
      return wrong(path,
                   fmt::format("stage {} has lists of {} and of {} options", i, options, has));
    options = std::max(options, has);
  }
  for (size_t o = 0; o < options; ++o) {
    result.options.push_back({static_cast<double>(forward.of(o)),
                              static_cast<double>(backward.of(o)), saved.of(o), forward_tmp.of(o),
                              backward_tmp.of(o)});
  }
  return result;
}

}  // namespace

Result<ChainProblem> read_chain(const std::string& path, const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded())
    return make_error(DiagId::E0820, fmt::format("`{}` is not JSON", path), kExitProgram);
  if (!json.is_object() || !json.contains("chain")) return wrong(path, "there is no `chain`");
  const Json& chain = json["chain"];
  if (!chain.is_object()) return wrong(path, "`chain` is not an object");
  if (!json.contains("budget")) return wrong(path, "there is no `budget`");
  ChainProblem problem;
  CAD_TRY(budget, whole(path, "budget", json["budget"]));
  problem.budget = budget;
  CAD_TRY(all, lists(path, chain));
  CAD_TRY(input, whole(path, "chain.output[0]", (*all.output)[0]));
  problem.chain.input = input;
  CAD_TRY(unused, entry(path, "chain.saved[0]", (*all.saved)[0]));
  static_cast<void>(unused);
  for (size_t i = 0; i <= all.forward->size(); ++i) {
    CAD_TRY(next, stage(path, all, i));
    problem.chain.stages.push_back(std::move(next));
  }
  const std::string error = chain_error(problem.chain);
  if (!error.empty()) return wrong(path, error);
  if (ChainModel(problem.chain).splits() > kMostSplits)
    return wrong(path, fmt::format("{} stages, too many of which differ", all.forward->size()));
  return problem;
}

}  // namespace cad::planner
