// cli/cost_table.h -- a profile as text and as JSON: tables with formulas and, where sizes are
// bound, numbers with units. For `colauto cost` and the REPL; how things are counted:
// docs/costs.md.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "frontend/module.h"
#include "ir/profile.h"

namespace cad::cli {

// Of the chosen train section, or of the chosen model alone (`model`, or when there is no section).
Result<ir::Profile> program_profile(const frontend::Module& module, bool model = false);

enum class CostRows : uint8_t { kOp, kLayer, kParam };

// "12.6 GFLOP" (decimal), "48.05 MiB" (binary); of NaN: empty.
std::string flops_text(double flops);
std::string bytes_text(double bytes);

// Scopes of the layers that a name means: a layer's own name (`Attention`), a path (`h.{}.attn`,
// `h.3.attn`, `h.*.attn`), or a path's last part. Empty: none. `names`: what it could have been.
std::vector<std::string> scopes_named(const ir::Profile& profile, const std::string& name,
                                      std::vector<std::string>* names = nullptr);

// `layer`: only what lies in these scopes (all: empty).
std::string cost_table(const ir::Profile& profile, const ir::Bindings& bindings, CostRows rows,
                       const std::vector<std::string>& scopes = {});
// A row a binding: the swept dims, FLOPs, parameters and memory.
std::string sweep_table(const ir::Profile& profile, const std::vector<std::string>& dims,
                        const std::vector<ir::Bindings>& bindings);

// docs/schema/cost.schema.json. Amounts whose dims are free are null.
nlohmann::ordered_json cost_json(const ir::Profile& profile, const ir::Bindings& bindings,
                                 const std::vector<std::string>& scopes = {});
nlohmann::ordered_json sweep_json(const ir::Profile& profile, const std::vector<std::string>& dims,
                                  const std::vector<ir::Bindings>& bindings);

}  // namespace cad::cli
