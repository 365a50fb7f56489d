// planner/solver/instance.h -- reads the public format of the pairwise problem: JSON, also gzipped,
//
//   {"problem": {"name": .., "nodes": {"intervals": [[from, to], ..], "costs": [[..], ..],
//    "usages": [[..], ..]}, "edges": {"nodes": [[i, j], ..], "costs": [[row-major], ..]},
//    "usage_limit": bytes}}
//
// A cost of 1e18 or more means forbidden. Errors (E0820, E0821) name the place in the file.
#pragma once

#include <string>

#include "base/result.h"
#include "planner/solver/solver.h"

namespace cad::planner::solver {

struct Instance {
  std::string name;
  Problem problem;
};

// The file's text, unpacked when it is gzipped; "-" is standard input. Ends soon after a byte that
// no JSON text has, which a parser then complains of. E0601, E0820 (broken gzip).
Result<std::string> read_packed(const std::string& path);

// The first of `keys` that the top-level object has, or empty. Reads no further than that key, so
// that a command can tell kinds of files apart. E0820 when the text is not JSON up to there.
Result<std::string> first_key(const std::string& path, const std::string& text,
                              const std::vector<std::string>& keys);

Result<Instance> read_instance(const std::string& path, const std::string& text);

}  // namespace cad::planner::solver
