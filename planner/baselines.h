// planner/baselines.h -- well-known ways to train on several devices as parts of the joint space:
// each is a mask over choices, and the fastest plan within it is that baseline's plan, priced like
// every other. Since the search looks at all choices, it is never slower than a baseline that fits.
//
//   dp          every op over the batch; parameters, gradients and states whole on every device
//   zero1       dp, optimizer states split; zero2: gradients too; zero3: parameters too
//   megatron    weights' dims over the inner axis, the batch over the outer one (Shoeybi et al.
//               2019); megatron-sp: what lies between the blocks split along the sequence
//               (Korthikanti et al. 2022); megatron-zero: and states and gradients split over the
//               outer axis (the distributed optimizer of Megatron-core)
//   tp2d        SUMMA on a grid: rows over one axis, columns over the other, weights over both
//               (Xu et al. 2021, Optimus)
//   tp3d        a cube: every product splits rows, columns and the summed dim, one axis each (Bian
//               et al. 2021)
//   single      one device
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/priced.h"

namespace cad::planner {

const std::vector<std::string>& baseline_names();  // single dp zero1 ..

// Whether the baseline is one of this mesh: single: 1 device; dp and zero: one axis; megatron: one
// axis or two; tp2d: two; tp3d: three. On one device all that have one axis are the same.
bool baseline_fits_mesh(const std::string& name, const Mesh& mesh);

struct BaselineResult {
  std::optional<BodyPlan> plan;  // none: the mesh cannot do it
  Evaluation evaluation;
  std::string why;  // there is none
};
// `recompute`: loop bodies keep their carry alone and run again in the backward pass.
BaselineResult baseline(const Problem& problem, const std::string& name, bool recompute);

}  // namespace cad::planner
