// cli/repl_graph.h -- small questions about graphs and sessions that the REPL's commands share:
// types and numbers as text, dims without a size, raw values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "cli/repl_session.h"
#include "ir/graph.h"

namespace cad::cli {

// E0323 when a dim or constant that the graph's nodes use has no value.
std::optional<Diagnostic> free_dim(const ir::Graph& graph, const ir::Bindings& bindings);

// "f32[B = 4, D]": sizes where `bindings` has them; plain "f32" for rank 0.
std::string type_text(ir::DType dtype, const std::vector<std::string>& dims,
                      const ir::Bindings& bindings);
// "D/H = 32", "0.02", "8*B (`B` has no size)".
std::string number_text(const ir::Scalar& number, const ir::Bindings& bindings);
// What a bound name is: its type, or the constant.
std::string value_text(const BoundValue& value, const Session& session);

// Elements stored as `dtype`, as doubles.
std::vector<double> values_in(ir::DType dtype, const std::byte* data, int64_t elements);

uint64_t seed_of(const Session& session);  // the train section's, else 0

}  // namespace cad::cli
