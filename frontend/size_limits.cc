// frontend/size_limits.cc -- see the header. Sizes are evaluated once a dim, not once a tensor.
#include "frontend/size_limits.h"

#include <fmt/format.h>

#include <vector>

namespace cad::frontend {
namespace {

struct KnownDim {
  bool known = false;
  bool too_large = false;
  int64_t size = 0;
};

std::vector<KnownDim> known_dims(const ir::Graph& g, const ir::Bindings& bindings) {
  std::vector<KnownDim> dims(g.dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    const ir::Size::Evaluated size = g.dims[i].size.evaluate(bindings);
    dims[i].known = size.ok();
    dims[i].size = size.value;
    dims[i].too_large = size.error == ir::Size::EvalError::kOverflow;
  }
  return dims;
}

bool too_large(const std::vector<KnownDim>& dims, const ir::Type& type) {
  int64_t elements = 1;
  for (const ir::DimId id : type.dims) {
    const KnownDim& dim = dims[static_cast<size_t>(id.index)];
    if (dim.too_large) return true;
    if (!dim.known) return false;
    if (dim.size == 0) return false;
    if (elements > kMostElements / dim.size) return true;
    elements *= dim.size;
  }
  return false;
}

std::string sizes_text(const ir::Graph& g, const std::vector<KnownDim>& dims,
                       const ir::Type& type) {
  std::string text;
  for (const ir::DimId id : type.dims) {
    const KnownDim& dim = dims[static_cast<size_t>(id.index)];
    text += fmt::format("{}`{}` is {}", text.empty() ? "" : ", ", g.dim(id).name,
                        dim.too_large ? "over 64 bits" : std::to_string(dim.size));
  }
  return text;
}

}  // namespace

std::optional<Diagnostic> size_fault(const ir::Graph& g, const ir::Bindings& bindings) {
  const std::vector<KnownDim> dims = known_dims(g, bindings);
  if (g.batch_dim.valid()) {
    const KnownDim& batch = dims[static_cast<size_t>(g.batch_dim.index)];
    if (batch.known && batch.size < 1) {
      Diagnostic d =
          make_error(DiagId::E0304, fmt::format("the batch dim `{}` is 0", g.dim(g.batch_dim).name),
                     kExitProgram);
      d.help("a step needs at least one row");
      return d;
    }
  }
  for (const ir::Value& value : g.values) {
    if (!too_large(dims, value.type)) continue;
    Diagnostic d = make_error(
        DiagId::E0206, fmt::format("a tensor is too large: {}", g.str(value.type)), kExitProgram);
    d.note(sizes_text(g, dims, value.type)).note("one tensor has at most 2^48 elements");
    return d;
  }
  return std::nullopt;
}

std::optional<Diagnostic> data_size_fault(const ir::DataSpec& data, const ir::Bindings& bindings) {
  const auto is_zero = [&](const ir::Size& size) {
    const ir::Size::Evaluated value = size.evaluate(bindings);
    return value.ok() && value.value == 0;
  };
  const auto fault = [](const std::string& dim, const std::string& means, const ir::DataName& name,
                        const ir::DataSource& source) {
    Diagnostic d =
        make_error(DiagId::E0304, fmt::format("the dim `{}` is 0: {}", dim, means), kExitProgram);
    if (source.span.valid()) d.primary = Label{source.span, fmt::format("`{}` has it", name.name)};
    d.help(fmt::format("give it a size of at least 1: `--set {}=64`", dim));
    return d;
  };
  for (const ir::DataSource& source : data) {
    for (const ir::DataName& name : source.names) {
      for (size_t i = 0; i < name.sizes.size(); ++i) {
        if (is_zero(name.sizes[i]))
          return fault(name.dims[i], fmt::format("a row of `{}` holds nothing", name.name), name,
                       source);
      }
      for (const ir::Size& limit : name.id_limits) {
        if (is_zero(limit))
          return fault(limit.str(), fmt::format("`{}` indexes it, and no id is in it", name.name),
                       name, source);
      }
    }
  }
  return std::nullopt;
}

}  // namespace cad::frontend
