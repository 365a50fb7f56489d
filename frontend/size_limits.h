// frontend/size_limits.h -- sizes that no run can have, found once all dims are bound: a batch
// without rows, rows without elements, ids of nothing, and tensors whose bytes would leave 64 bits.
#pragma once

#include <optional>

#include "base/diagnostic.h"
#include "ir/graph.h"
#include "ir/training.h"

namespace cad::frontend {

// Elements of one tensor: 2^48 (4 bytes each are 1 PiB), so that sums over thousands fit 64 bits.
inline constexpr int64_t kMostElements = int64_t{1} << 48;

// Dims that are still free are passed over.
std::optional<Diagnostic> size_fault(const ir::Graph& g, const ir::Bindings& bindings);
// Of what is read: a dim of a data name that is 0, a dim of size 0 that ids index. E0304.
std::optional<Diagnostic> data_size_fault(const ir::DataSpec& data, const ir::Bindings& bindings);

}  // namespace cad::frontend
