// frontend/section_tables.h -- the keys of every section: what a key wants and whether it must be
// there. Checking, `--set` and did-you-mean all read these tables; a new key is one row.
#pragma once

#include <string>
#include <vector>

namespace cad::frontend {

enum class KeyKind {
  kCount,         // whole, at least 1
  kSteps,         // the same, `500` or `500 steps`
  kWhole,         // whole, at least 0
  kPositive,      // a finite number above 0
  kOpenFraction,  // above 0 and below 1
  kSwitch,        // on, off, true, false
  kChoice,        // one of `choices`
  kString,        // "..."
  kName,          // a name of something else in the program
  kBytes,
  kFlops,
  kBandwidth,   // quantities
  kLink,        // link(300 GB/s, 5 us)
  kAxes,        // (dp: 2, tp: 4)
  kBudget,      // a fraction of the device, or bytes
  kExpression,  // a tensor expression: loss
  kData,
  kOptimizer,
  kInit,
  kMetrics,
  kBest,
};

struct Key {
  const char* name;
  KeyKind kind;
  bool required = false;
  std::vector<std::string> choices = {};
};

struct SectionTable {
  const char* kind;  // "train"
  std::vector<Key> keys = {};
  std::vector<std::string> nested = {};  // kinds of sections that may stand in it
  bool dims = false;                     // a key may also be a dim: train binds it, shard splits it
  bool top = false;                      // may stand in the file
};

const std::vector<SectionTable>& section_tables();
const SectionTable* find_table(const std::string& kind);
const Key* find_key(const SectionTable& table, const std::string& name);

// "a whole number, at least 1": what a key of this kind wants, for messages.
std::string wanted(const Key& key);
// An example line, `every: 100`.
std::string example(const Key& key);

}  // namespace cad::frontend
