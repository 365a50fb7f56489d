// frontend/module.h -- a checked program. `check` resolves names and types every definition once,
// with dims symbolic; `lower` instantiates a model or a train section into an ir::Graph by walking
// the same definitions again with the calls expanded (frontend/elaborate.h serves both).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "frontend/ast.h"
#include "ir/training.h"

namespace cad::frontend {

// `--set NAME=VALUE` and flags that act like one; the text is parsed as an expression.
struct Setting {
  std::string name;  // "B", "lr", "eval.every"
  std::string value;
};

struct CheckOptions {
  std::vector<Setting> settings;
  std::string train;           // --train NAME; empty: the last section
  std::string model;           // --model NAME; empty: the last model
  bool whole_library = false;  // parse all of the standard library, not only what is mentioned
};

struct Module;  // frontend/module_data.h: definitions, dims, sections and their types

// Files are read through this, so that tests and the REPL can supply texts.
struct FileReader {
  virtual ~FileReader() = default;
  virtual Result<std::string> read(const std::string& path) = 0;
};

// Parse errors and check errors go to `diagnostics`; the module is usable when it has no errors.
std::shared_ptr<const Module> check(Sources& sources, FileId file, FileReader& reader,
                                    const CheckOptions& options, Diagnostics& diagnostics);

// The chosen model as a forward graph (outputs "result:0", ..): for predict, generate, cost.
Result<ir::Graph> lower_model(const Module& module, bool training, ir::DType precision);
// The chosen train section.
enum class TrainUsage : uint8_t {
  kRun,  // all of it, every dim bound
  kCost  // forward graph, data and optimizers only; dims may be free
};
Result<ir::TrainSpec> lower_train(const Module& module, TrainUsage usage = TrainUsage::kRun);
// Values of all bound dims after `--set`, train and dim declarations.
const ir::Bindings& bindings(const Module& module);

}  // namespace cad::frontend
