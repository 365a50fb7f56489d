// planner/chain_runs.h -- a checkpointing plan that a program can execute as loops: a chain of
// equal blocks cut into at most three runs, each with one segment length and one option. A run with
// segment length g keeps the input of every g-th block and runs the segment again before its
// backward; segment length 0 saves every block in the forward pass. The run that saves least comes
// first, since what it keeps is held longest. Not here: the optimum with nested recomputation
// (planner/chain.h), of which this loses little.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/chain.h"

namespace cad::planner {

// `count` equal blocks whose input and output have one size, and then the loss (or whatever
// follows the blocks) as one stage: `loss.backward_tmp` is its peak beyond the last output and
// its gradient.
struct BlockChain {
  std::vector<StageOption> options;  // of the block
  int64_t boundary = 0;              // bytes of a block's input = of its output = of a gradient
  int64_t count = 0;
  StageOption loss;
};
Chain expand(const BlockChain& blocks);

struct ChainRun {
  int64_t blocks = 0;
  int64_t segment = 0;  // 0: every block saved in the forward pass
  int option = 0;       // with which blocks are saved, in the forward pass or when run again
  bool operator==(const ChainRun&) const = default;
};

struct ChainRuns {
  bool feasible = false;
  std::vector<ChainRun> runs;  // at most three, in forward order
  int forward_option = 0;      // with which blocks run when nothing is saved
  double time = 0;             // of all blocks and the loss
  int64_t peak = 0;            // as simulate() finds it on runs_schedule()
  int64_t least_budget = 0;    // when infeasible: the least budget with any such plan
};

// Least time within `budget` (which counts as in solve_chain) among such plans. Time to find it
// does not depend on `count` but through the number of inputs kept.
ChainRuns three_runs(const BlockChain& blocks, int64_t budget);

// The least budget for which three_runs() finds a plan.
int64_t least_runs_budget(const BlockChain& blocks);

// The plan as a schedule of expand(blocks).
std::vector<ChainOp> runs_schedule(const BlockChain& blocks, const ChainRuns& plan);

}  // namespace cad::planner
