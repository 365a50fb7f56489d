// backend/program_verify.h -- checks a compiled program against what must hold of every one: what
// is read was written, buffers that live together do not overlap, a collective has the sizes of its
// node and its buffers to itself from start to await (an output in place is its input's memory),
// and the groups of every collective cover all devices once. Blocks have no branches, so devices
// that run one program meet the same collectives in the same order; that all processes have the
// same program is agree()'s to find out (backend/comm/agree.h), by collective_sequence().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/program.h"

namespace cad::backend {

// What is wrong, one line each; empty when all holds.
std::vector<std::string> verify(const Program& program);

// Whether the devices from 0 on fall into groups on which all members agree: what is wrong. Of
// large groups the ends are asked: members differ by their place on the group's axes only.
using GroupOf = std::function<std::vector<int>(int64_t device)>;
std::vector<std::string> group_problems(int64_t devices, const GroupOf& group_of);

// Every collective in the order in which a device meets them, loops with their counts: equal texts
// are programs that fit together.
std::string collective_sequence(const Program& program);

}  // namespace cad::backend
