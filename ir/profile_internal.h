// ir/profile_internal.h -- parameters of a profile: which are trained, and what their gradients and
// the optimizer's state take. Shared by profile.cc and profile_parameters.cc.
#pragma once

#include <string>
#include <vector>

#include "ir/profile.h"

namespace cad::ir {

// Paths of the parameters that some optimizer entry updates.
std::vector<std::string> trained_paths(const TrainSpec& spec);

// `g`: the training graph. Without optimizer entries (a model alone) there is no optimizer state.
std::vector<ProfiledParameter> profiled_parameters(const Graph& g, const TrainSpec& spec,
                                                   const std::vector<std::string>& trained);

}  // namespace cad::ir
