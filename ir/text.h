// ir/text.h -- the IR's text form; print and parse round-trip exactly (types, attributes, regions).
#pragma once

#include <string>

#include "base/result.h"
#include "ir/graph.h"

namespace cad::ir {

std::string print(const Graph& g);
Result<Graph> parse_graph(const std::string& text);

// Every structural rule and every op's constraints (C1).. ; empty when fine, else one line a fault.
std::vector<std::string> verify(const Graph& g);

}  // namespace cad::ir
