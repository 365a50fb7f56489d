// frontend/elaborate.h -- walking definitions and expressions into an ir::Graph. The same walk
// serves checking (each body once, dim parameters opaque, calls by signature only) and lowering
// (calls expanded with their actual dims). This is the face for sections and lower.cc; the walk
// itself is elaborator.h and elaborate_*.cc.
//
//   Lowering low(module, options, diagnostics);
//   low.add_data("x", DType::kI32, {name B, name T});
//   auto loss = low.expression(ast, expr);          // loss: cross_entropy[V](GPT(x), y)
//   low.output("loss", loss->at(0).value);
//   ir::Graph g = low.take();                       // adds the outputs "state:PATH"
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "frontend/module_data.h"
#include "ir/graph.h"

namespace cad::frontend {

class Elaborator;

struct LowerOptions {
  bool check = false;    // only check: calls by signature, no bodies; graph is scratch
  bool training = true;  // the constant `training`; states are updated
  bool dropout = true;   // `dropout: off` makes it the identity
  ir::DType compute = ir::DType::kF32;  // precision
};

// A value of a section's expression. Constants have no dtype until something needs one.
struct SectionValue {
  enum class Kind { kTensor, kNumber, kBool } kind = Kind::kTensor;
  ir::ValueId value;  // kTensor (region 0)
  ir::Scalar number;  // kNumber
  bool flag = false;  // kBool
};

// Elaborates expressions of the program's file (module.main()) one after another into one graph.
// Errors go to `diagnostics`; a call that reported some returns nullopt.
class Lowering {
 public:
  Lowering(const Module& module, const LowerOptions& options, Diagnostics& diagnostics);
  ~Lowering();
  Lowering(const Lowering&) = delete;
  Lowering& operator=(const Lowering&) = delete;

  [[nodiscard]] ir::Graph& graph();

  // A name that expressions may use. The first data name's first dim becomes graph().batch_dim.
  // f32 data is cast to the compute precision where it is used.
  bool add_data(const std::string& name, ir::DType dtype, const std::vector<Name>& dims);
  // Binds a name to any value of region 0.
  void bind(const std::string& name, ir::ValueId value);
  // A graph input of kind kOther whose dims are dims of the graph.
  ir::ValueId add_input(const std::string& path, ir::DType dtype,
                        const std::vector<ir::DimId>& dims);
  // The graph's dim for a dim of the program; invalid when unknown.
  ir::DimId dim(const std::string& name);

  // All values the expression gives (a call may give several).
  std::optional<std::vector<SectionValue>> expression(ExprId expr);
  // One rank-0 or other tensor; constants become nodes (f32). Reports when it is several.
  std::optional<ir::ValueId> tensor(ExprId expr);
  // Calls `definition` with `leading` for its first arguments and `args` (of the program's file)
  // for the others: optimizers, schedules. Dim parameters: none. Paths of states are as in a model.
  std::optional<std::vector<ir::ValueId>> call(const Definition& definition,
                                               const std::vector<ir::ValueId>& leading,
                                               const std::vector<Arg>& args, Span where);
  // The same with values from code for arguments by name.
  std::optional<std::vector<ir::ValueId>> call(
      const Definition& definition, const std::vector<ir::ValueId>& leading,
      const std::vector<Arg>& args, const std::vector<std::pair<std::string, double>>& constants,
      Span where);
  void output(const std::string& name, ir::ValueId value);
  // Adds "state:PATH" outputs (training only) and gives the graph away.
  ir::Graph take();

 private:
  std::unique_ptr<Elaborator> elaborator_;
};

// A constant expression of a file: numbers, lets, dims in value position, arithmetic on them.
// Errors are reported; nullopt then.
std::optional<ir::Scalar> constant_expression(const Module& module, const Unit& unit, ExprId expr,
                                              Diagnostics& diagnostics);
// The same for an expression of another tree, such as a `--set` text: names are module.main()'s.
std::optional<ir::Scalar> constant_expression(const Module& module, const Ast& ast, ExprId expr,
                                              Diagnostics& diagnostics);
// A size expression (`dim K = D / H`, a count): over base dims.
std::optional<ir::Size> size_expression(const Module& module, const Unit& unit, ExprId expr,
                                        Diagnostics& diagnostics);

// The model that CheckOptions::model names, else the last of the file; nullptr sets `error`.
const Definition* chosen_model(const Module& module, Diagnostic& error);

// Definitions by name as a section sees them (file, library, `alias.Name`); nullptr when unknown.
const Definition* find_definition(const Module& module, const std::string& dotted);

}  // namespace cad::frontend
