// cli/solve_command.h -- the kinds of files that `colauto solve` takes. The command reads the text
// once and hands it to the solver of its kind, told by the first known top-level key.
#pragma once

#include <string>

#include "cli/command.h"

namespace cad::cli {

struct SolveFlags {
  std::string file;  // "-": standard input
  double time_s = 60;
  double gap = 0;  // relative
};

// {"problem": ..}: cli/solve_command.cc. Returns the exit status.
int solve_pairwise(const SolveFlags& flags, const std::string& text, const CommonOptions& common);
// {"chain": ..}: cli/solve_chain.cc.
int solve_chain_file(const SolveFlags& flags, const std::string& text, const CommonOptions& common);

}  // namespace cad::cli
