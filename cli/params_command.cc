// cli/params_command.cc -- `colauto params`: every parameter and state with path, dims, size, the
// optimizer entry that updates it and, with --init, where its first value comes from.
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "backend/optimizer.h"
#include "backend/parameters.h"
#include "backend/safetensors.h"
#include "cli/training_common.h"

namespace cad::cli {
namespace {

struct Row {
  std::string path, dims, entry, source;
  std::vector<int64_t> extents;
  int64_t count = 0;
  bool state = false;
};

std::string entry_text(const ir::TrainSpec& spec, const backend::Optimizer& optimizer,
                       int parameter, int64_t iteration) {
  for (const backend::Segment& segment : optimizer.segments()) {
    if (segment.parameter != parameter || iteration < segment.first_iteration ||
        iteration >= segment.first_iteration + segment.iterations)
      continue;
    const auto e = static_cast<size_t>(segment.entry);
    const std::string number = spec.optimizers.size() > 1 ? fmt::format(" #{}", e + 1) : "";
    return spec.optimizers[e].name + number + (segment.decays ? ", decays" : "");
  }
  return "frozen";
}

std::vector<Row> rows_of(const backend::Parameters& parameters, const ir::TrainSpec* spec,
                         const backend::Optimizer* optimizer,
                         const std::vector<backend::SafetensorsFile>& files) {
  std::vector<Row> rows;
  for (size_t i = 0; i < parameters.all().size(); ++i) {
    const backend::Parameter& p = parameters.all()[i];
    for (int64_t iteration = 0; iteration < p.iterations; ++iteration) {
      Row row;
      row.path = p.iteration_path(iteration);
      row.state = p.kind == ir::InputKind::kState;
      row.extents = p.extents;
      row.count = p.iteration_elements;
      row.dims = fmt::format("[{}]", fmt::join(p.dims, ", "));
      row.entry = row.state ? "state"
                  : optimizer == nullptr
                      ? ""
                      : entry_text(*spec, *optimizer, static_cast<int>(i), iteration);
      for (const backend::SafetensorsFile& file : files) {
        const backend::StoredTensor* tensor = file.find(row.path);
        if (tensor != nullptr)
          row.source = tensor->shape == p.extents
                           ? "file"
                           : "file has " + backend::shape_text(tensor->shape);
      }
      if (row.source.empty() && !files.empty()) row.source = "initialiser";
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

void print_rows(const CommonOptions& common, const std::vector<Row>& rows, int64_t total) {
  if (common.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Row& row : rows) {
      nlohmann::ordered_json item = {{"path", row.path},     {"dims", row.dims},
                                     {"shape", row.extents}, {"count", row.count},
                                     {"state", row.state},   {"optimizer", row.entry}};
      if (!row.source.empty()) item["init"] = row.source;
      list.push_back(std::move(item));
    }
    print(nlohmann::ordered_json{{"schema", 1}, {"params", total}, {"tensors", list}}.dump(2) +
          "\n");
    return;
  }
  size_t path = 4, dims = 4, shape = 5, entry = 9;
  for (const Row& row : rows) {
    path = std::max(path, row.path.size());
    dims = std::max(dims, row.dims.size());
    shape = std::max(shape, backend::shape_text(row.extents).size());
    entry = std::max(entry, row.entry.size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>10}  {:<{}}  {}", row.path, path,
                                   row.dims, dims, backend::shape_text(row.extents), shape,
                                   row.count, row.entry, entry, row.source);
    while (line.back() == ' ') line.pop_back();
    text += line + "\n";
  }
  print(text + fmt::format("{} parameters\n", total));
}

int run_params(const CommonOptions& common) {
  LoadedProgram program;
  if (const int status = load_program(common, program); status != kExitOk) return status;
  backend::Parameters parameters;
  std::optional<ir::TrainSpec> spec;
  std::optional<backend::Optimizer> optimizer;
  auto lowered = frontend::lower_train(*program.module);
  const bool no_train = !lowered.ok() && lowered.error().id == DiagId::E0308;
  if (!lowered.ok() && (!no_train || !common.train.empty()))
    return fail(common, program.sources, lowered.error());
  if (lowered.ok()) {
    spec = std::move(*lowered);
    parameters.add(spec->forward, spec->bindings);
    auto assigned = backend::Optimizer::assign(*spec, parameters);
    if (!assigned.ok()) return fail(common, program.sources, assigned.error());
    optimizer = std::move(*assigned);
  } else {
    auto graph = frontend::lower_model(*program.module, true, ir::DType::kF32);
    if (!graph.ok()) return fail(common, program.sources, graph.error());
    const ir::Bindings& bindings = frontend::bindings(*program.module);
    ir::Graph only = *graph;  // data may stay unbound
    for (const ir::Input& input : graph->inputs) {
      if (input.kind != ir::InputKind::kParam && input.kind != ir::InputKind::kState) continue;
      for (const ir::DimId dim : graph->type(input.value).dims) {
        if (graph->dim(dim).size.evaluate(bindings).ok()) continue;
        Diagnostic error =
            make_diagnostic(DiagId::E0323, input.span,
                            fmt::format("the dim `{}` has no size", graph->dim(dim).name));
        error.help(fmt::format("give it one: `--set {}=64`", graph->dim(dim).name));
        return fail(common, program.sources, error);
      }
    }
    parameters.add(only, bindings);
  }
  std::vector<backend::SafetensorsFile> files;
  for (const ir::InitFile& init : init_files(common.init)) {
    const bool folder = std::filesystem::is_directory(init.file);
    auto file =
        backend::SafetensorsFile::open(folder ? init.file + "/model.safetensors" : init.file);
    if (!file.ok()) return fail(common, file.error());
    files.push_back(std::move(*file));
  }
  print_rows(common,
             rows_of(parameters, spec ? &*spec : nullptr, optimizer ? &*optimizer : nullptr, files),
             parameters.count());
  return kExitOk;
}

}  // namespace

Action declare_params(CLI::App& app, CommonOptions& common) {
  add_program_flags(app, common);
  add_json_flag(app, common);
  app.add_option("--init", common.init, "show what this file would fill")
      ->type_name("FILE")
      ->allow_extra_args(false);
  return [&common] { return run_params(common); };
}

}  // namespace cad::cli
