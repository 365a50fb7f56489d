// frontend/section_tables.cc -- the tables of section_tables.h.
#include "frontend/section_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cad::frontend {

const std::vector<SectionTable>& section_tables() {
  using K = KeyKind;
  static const std::vector<SectionTable> tables = {
      {"train",
       {{"data", K::kData, true},
        {"loss", K::kExpression, true},
        {"optimizer", K::kOptimizer, true},
        {"accumulate", K::kCount},
        {"precision", K::kChoice, false, {"f32", "bf16", "f16"}},
        {"clip", K::kPositive},
        {"steps", K::kSteps},
        {"epochs", K::kPositive},
        {"seed", K::kWhole},
        {"order", K::kChoice, false, {"shuffled", "sequential"}},
        {"dropout", K::kSwitch},
        {"ema", K::kOpenFraction},
        {"init", K::kInit}},
       {"eval", "save"},
       true,
       true},
      {"eval",
       {{"data", K::kData, true},
        {"every", K::kSteps},
        {"batches", K::kCount},
        {"metrics", K::kMetrics}}},
      {"save",
       {{"to", K::kString, true},
        {"every", K::kSteps},
        {"keep", K::kCount},
        {"best", K::kBest},
        {"frozen", K::kSwitch}}},
      {"device",
       {{"memory", K::kBytes, true},
        {"f32", K::kFlops, true},
        {"tf32", K::kFlops},
        {"bf16", K::kFlops},
        {"f16", K::kFlops},
        {"bandwidth", K::kBandwidth, true},
        {"pointwise", K::kFlops},
        {"attention", K::kFlops},
        {"attention_grad", K::kFlops},
        {"packing", K::kBandwidth},
        {"random", K::kBandwidth},
        {"cache", K::kBytes},
        {"cache_bandwidth", K::kBandwidth}},
       {},
       false,
       true},
      {"cluster",
       {{"device", K::kName, true},
        {"nodes", K::kCount},
        {"per_node", K::kCount},
        {"intra", K::kLink},
        {"inter", K::kLink},
        {"pairs", K::kLink}},
       {},
       false,
       true},
      {"mesh", {{"axes", K::kAxes, true}}, {}, false, true},
      {"plan",
       {{"checkpoint", K::kChoice, false, {"auto", "none", "all"}}, {"budget", K::kBudget}},
       {"shard"},
       false,
       true},
      {"shard", {}, {}, true},
  };
  return tables;
}

const SectionTable* find_table(const std::string& kind) {
  for (const SectionTable& table : section_tables()) {
    if (table.kind == kind) return &table;
  }
  return nullptr;
}

const Key* find_key(const SectionTable& table, const std::string& name) {
  for (const Key& key : table.keys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string wanted(const Key& key) {
  switch (key.kind) {
    case KeyKind::kCount:
    case KeyKind::kSteps:
      return "a whole number, at least 1";
    case KeyKind::kWhole:
      return "a whole number, at least 0";
    case KeyKind::kPositive:
      return "a number above 0";
    case KeyKind::kOpenFraction:
      return "a number above 0 and below 1";
    case KeyKind::kSwitch:
      return "`on` or `off`";
    case KeyKind::kChoice:
      return fmt::format("one of `{}`", fmt::join(key.choices, "`, `"));
    case KeyKind::kString:
      return "a text in quotes";
    case KeyKind::kName:
      return "a name";
    case KeyKind::kBytes:
      return "an amount of memory such as `80 GiB`";
    case KeyKind::kFlops:
      return "a rate such as `312 TFLOPS`";
    case KeyKind::kBandwidth:
      return "a bandwidth such as `2.0 TB/s`";
    case KeyKind::kLink:
      return "a link such as `link(300 GB/s, 5 us)`";
    case KeyKind::kAxes:
      return "axes with their sizes such as `(dp: 2, tp: 4)`";
    case KeyKind::kBudget:
      return "a fraction of the device's memory such as `0.9`, or an amount such as `40 GiB`";
    case KeyKind::kExpression:
      return "an expression";
    case KeyKind::kData:
      return "a data source such as `text(\"file.txt\", x: i32[B, T], y: i32[B, T])`";
    case KeyKind::kOptimizer:
      return "an optimizer such as `adamw(lr: 1e-3)`, or a list of them";
    case KeyKind::kInit:
      return "a file in quotes, `load(\"file\", under: \"path\")`, or a list of them";
    case KeyKind::kMetrics:
      return "named expressions such as `(acc: mean(f32(argmax[V](Net(x)) == y)))`";
    case KeyKind::kBest:
      return "`min(NAME)` or `max(NAME)` of an evaluation's result";
  }
  return "";
}

std::string example(const Key& key) {
  switch (key.kind) {
    case KeyKind::kData:
      return fmt::format("{}: text(\"file.txt\", x: i32[B, T], y: i32[B, T])", key.name);
    case KeyKind::kOptimizer:
      return fmt::format("{}: adamw(lr: 1e-3)", key.name);
    case KeyKind::kExpression:
      return fmt::format("{}: cross_entropy[V](Net(x), y)", key.name);
    case KeyKind::kString:
      return fmt::format("{}: \"runs/a\"", key.name);
    case KeyKind::kBytes:
      return fmt::format("{}: 80 GiB", key.name);
    case KeyKind::kFlops:
      return fmt::format("{}: 19.5 TFLOPS", key.name);
    case KeyKind::kBandwidth:
      return fmt::format("{}: 2.0 TB/s", key.name);
    case KeyKind::kAxes:
      return fmt::format("{}: (dp: 2, tp: 4)", key.name);
    case KeyKind::kName:
      return fmt::format("{}: a100", key.name);
    default:
      return fmt::format("{}: 100", key.name);
  }
}

}  // namespace cad::frontend
