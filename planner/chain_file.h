// planner/chain_file.h -- the chain problem as a JSON file, in the arrangement that Rotor uses:
//
//   {"chain": {"forward": [n], "backward": [n + 1], "output": [n + 1], "saved": [n + 1],
//              "forward_tmp": [n], "backward_tmp": [n + 1]}, "budget": m}
//
// output[0] is the chain's input, output[i + 1] what stage i makes; saved[i + 1] is what stage i
// saves, its output included (saved[0], the input's, is held in any case and not counted again);
// entry n of backward and backward_tmp is the loss. Whole numbers, none negative. For a stage with
// several options forward, backward, saved and the transients may each be a list; one number
// stands for all options.
#pragma once

#include <string>

#include "base/result.h"
#include "planner/chain.h"

namespace cad::planner {

struct ChainProblem {
  Chain chain;
  int64_t budget = 0;
};

// E0820: not JSON; E0821: not such a chain, with the place. `path` is for messages only.
Result<ChainProblem> read_chain(const std::string& path, const std::string& text);

}  // namespace cad::planner
