// backend/comm/agree.h -- that all devices of a world are about to do the same thing: they compare
// what each of them has (a program's collectives, a plan, a seed, a data file's sum) before the
// first step, so that a rank with other arguments is an error at once and no wrong result. What
// goes on later is checked call by call (thread_world.h, mpi_world.h).
#pragma once

#include <optional>
#include <string>

#include "backend/comm/world.h"

namespace cad::backend {

// All devices of the world call it with the same `name` ("program", "seed"). Nothing: their texts
// are equal. Else what differs, the same message on every device: the first two devices that do
// not agree and the first line in which they differ. Throws WorldFailed.
std::optional<std::string> agree(Communicator& comm, const std::string& name,
                                 const std::string& text);

}  // namespace cad::backend
