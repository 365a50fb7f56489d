// backend/initialize.h -- first values of parameters and states: from their initialisers, then from
// the files of `init`. An element's value depends on (seed, path, iteration numbers, its index) and
// nothing else, so any sharding and any number of threads give the same.
#pragma once

#include <string>
#include <vector>

#include "backend/parameters.h"
#include "base/result.h"
#include "ir/training.h"

namespace cad::backend {

class ThreadPool;

// The device's own elements of the iterations it holds; padding is zero.
void initialize(const Parameter& p, uint64_t seed, ThreadPool& pool);

// Fills parameters and states by path from the files, later ones over earlier ones. Relative names
// are relative to `folder`; a folder as a file means its model.safetensors. E0611: another shape,
// E0612: nothing taken. `warnings`: one W0061 when either side lacks a tensor.
Status load_init_files(Parameters& parameters, const std::vector<ir::InitFile>& files,
                       const std::string& folder, std::vector<Diagnostic>& warnings);

// Copies the device's own elements of `tensor` to `target`, which lies as p.storage says, as the
// dtype of p; E0611 when the shape is not that of an iteration.
Status read_tensor(const SafetensorsFile& file, const StoredTensor& tensor, const Parameter& p,
                   std::byte* target);

}  // namespace cad::backend
