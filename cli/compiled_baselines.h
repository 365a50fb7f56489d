// cli/compiled_baselines.h -- baselines as compiled: whether they fit counts as it does for every
// plan, by their program's memory. They are tried as `--plan NAME` tries them, the fastest first,
// so `auto` is no slower than any that fits.
#pragma once

#include "cli/fitting_search.h"

namespace cad::cli {

// With the baselines of the question (for a name, of that one alone, as there is no search then): a
// faster one that fits becomes the best, and where nothing fits what fails is the one of them that
// needs least, if it needs less. Where the question asks for alternatives they are the best plan's
// rows, and none that is faster than it is said to fit: those faster are compiled, others are
// measured by the model's bytes. They take micro-batches whole. Rules of the program's `plan` bind
// `auto` alone: under rules baselines are rows and no more, and may be faster.
Status add_baselines(const PlanQuestion& question, const ir::TrainSpec& spec,
                     const backend::TrainerOptions& options, Searched& found);

}  // namespace cad::cli
