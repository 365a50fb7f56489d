// ir/split_rows.h -- a step in more and smaller micro-batches. A micro-batch of B rows is read as
// `parts` of B / parts rows, one after the other: everything that grows with the batch needs a
// part of the memory, and losses, gradients, data order and random numbers are those of the whole
// up to rounding. Only where no row depends on others: row_relations() (ir/passes.h), and what is
// said here. Who decides how many parts: cli/device_plan.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/training.h"

namespace cad::ir {

// Rows of a micro-batch; 0: the program has no data, or the dim no size.
int64_t micro_batch_rows(const TrainSpec& spec);

// Why the results of a step would be others: "`mean` in `h.norm` relates rows of the batch". Empty:
// they are not.
std::string against_split(const TrainSpec& spec);

// The numbers of parts that come into question, from 2 on: divisors of the rows, each at least
// twice the one before it; the last one is the rows themselves.
std::vector<int64_t> possible_parts(int64_t rows);

// `parts` divides the rows and nothing is against it. TrainSpec::parts is multiplied by it.
// Evaluations read their rows in the same parts where their values do not change; where they would,
// they stay as they are.
TrainSpec split_rows(const TrainSpec& spec, int64_t parts);

}  // namespace cad::ir
