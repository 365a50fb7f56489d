// frontend/layer_names.h -- which layer a scope is a call of: "h.{}.attention" -> "Attention". For
// reports that people ask for by the names that they wrote; the graph itself has only scopes.
#pragma once

#include <map>
#include <string>

#include "frontend/module.h"

namespace cad::frontend {

// Scopes of all calls and instances of layers and models, from every model of the program down.
std::map<std::string, std::string> layer_names(const Module& module);

}  // namespace cad::frontend
