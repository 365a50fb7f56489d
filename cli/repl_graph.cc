// cli/repl_graph.cc -- see repl_graph.h.
#include "cli/repl_graph.h"

#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "backend/parameters.h"
#include "backend/stored_type.h"
#include "frontend/module_data.h"
#include "frontend/settings.h"

namespace cad::cli {

namespace {

Diagnostic no_size(const std::string& name) {
  Diagnostic error =
      make_error(DiagId::E0323, fmt::format("dim `{}` has no size", name), kExitProgram);
  error.help(fmt::format("give it one: `:set {}=4`", name));
  return error;
}

// The first symbol without a value in a size.
std::optional<std::string> free_symbol(const ir::Size& size, const ir::Bindings& bindings) {
  for (const std::string& symbol : size.symbols()) {
    if (bindings.count(symbol) == 0) return symbol;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Diagnostic> free_dim(const ir::Graph& graph, const ir::Bindings& bindings) {
  std::vector<char> seen(graph.dims.size(), 0);
  std::optional<std::string> missing;
  const auto see = [&](ir::DimId dim) {
    if (!dim.valid() || missing || seen[static_cast<size_t>(dim.index)] != 0) return;
    seen[static_cast<size_t>(dim.index)] = 1;
    missing = free_symbol(graph.dim(dim).size, bindings);
  };
  for (const ir::Region& region : graph.regions) {
    for (const ir::NodeId n : region.nodes) {
      const ir::Node& node = graph.node(n);
      for (const ir::ValueId v : node.results) {
        for (const ir::DimId dim : graph.type(v).dims) see(dim);
      }
      see(node.loop.dim);
      if (!missing) missing = free_symbol(node.attrs.start, bindings);
      if (missing) return no_size(*missing);
      if (node.attrs.scalar.number() || node.attrs.scalar.evaluate(bindings)) continue;
      // A constant of dims, `1 / sqrt(K)`: each in turn gets a value until it has one.
      ir::Bindings tried = bindings;
      for (const ir::Dim& dim : graph.dims) {
        for (const std::string& symbol : dim.size.symbols()) {
          if (tried.count(symbol) != 0) continue;
          tried[symbol] = 1;
          if (node.attrs.scalar.evaluate(tried)) return no_size(symbol);
        }
      }
      return no_size(node.attrs.scalar.str());
    }
  }
  for (const ir::Input& input : graph.inputs) {
    for (const ir::DimId dim : graph.type(input.value).dims) see(dim);
  }
  if (missing) return no_size(*missing);
  return std::nullopt;
}

std::string type_text(ir::DType dtype, const std::vector<std::string>& dims,
                      const ir::Bindings& bindings) {
  std::string text;
  for (const std::string& dim : dims) {
    const auto at = bindings.find(dim);
    text += (text.empty() ? "" : ", ") + dim;
    if (at != bindings.end()) text += fmt::format(" = {}", at->second);
  }
  return fmt::format("{}[{}]", ir::dtype_name(dtype), text);
}

std::string value_text(const BoundValue& value, const Session& session) {
  const ir::Bindings& bindings = frontend::bindings(session.module());
  if (value.instance) return "an instance";
  switch (value.kind) {
    case frontend::SectionValue::Kind::kNumber:
      return number_text(value.number, bindings);
    case frontend::SectionValue::Kind::kBool:
      return value.flag ? "true" : "false";
    case frontend::SectionValue::Kind::kTensor:
      break;
  }
  return (value.param ? "param " : "") + type_text(value.dtype, value.dims, bindings);
}

std::string number_text(const ir::Scalar& number, const ir::Bindings& bindings) {
  const auto plain = [](double x) {
    return std::floor(x) == x && std::abs(x) < 1e15 ? fmt::format("{:.0f}", x)
                                                    : fmt::format("{:.9g}", x);
  };
  if (const auto value = number.number()) return plain(*value);
  const auto value = number.evaluate(bindings);
  if (value) return fmt::format("{} = {}", number.str(), plain(*value));
  std::string text = number.str();
  if (const auto size = number.as_size()) {
    if (const auto symbol = free_symbol(*size, bindings))
      text += fmt::format("   (`{}` has no size)", *symbol);
  }
  return text;
}

std::vector<double> values_in(ir::DType dtype, const std::byte* data, int64_t elements) {
  std::vector<double> out(static_cast<size_t>(elements));
  if (dtype == ir::DType::kI32) {
    for (size_t i = 0; i < out.size(); ++i) {
      int32_t value = 0;
      std::memcpy(&value, data + 4 * i, 4);
      out[i] = value;
    }
    return out;
  }
  if (dtype == ir::DType::kBool) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = data[i] != std::byte{0} ? 1 : 0;
    return out;
  }
  std::vector<float> floats(out.size());
  std::string ignored;
  backend::convert_elements(backend::stored_as(dtype), data, false, elements, ir::DType::kF32,
                            reinterpret_cast<std::byte*>(floats.data()), ignored);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(floats[i]);
  return out;
}

uint64_t seed_of(const Session& session) {
  const frontend::Section* train = frontend::chosen_train(session.module());
  if (train == nullptr) return 0;
  for (const frontend::Entry& entry : train->entries) {
    if (entry.key.text != "seed" || !entry.value.valid()) continue;
    const frontend::Expr& e = session.module().main().ast.expr(entry.value);
    return static_cast<uint64_t>(e.number);
  }
  return 0;
}

}  // namespace cad::cli
