// cli/predict_command.cc -- `colauto predict`: a trained model over the rows of npy files.
#include <algorithm>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "backend/inference.h"
#include "backend/npy.h"
#include "base/suggest.h"
#include "cli/training_common.h"

namespace cad::cli {
namespace {

struct PredictFlags {
  std::vector<std::string> in, out;
};

using NamedFiles = std::vector<std::pair<std::string, backend::NpyFile>>;  // by argument

Diagnostic usage(const std::string& text) {
  return make_error(DiagId::E0503, text, kExitUsage);
}

// "x=a.npy" -> {"x", "a.npy"}; without `=` the name is empty.
std::pair<std::string, std::string> split(const std::string& text) {
  const size_t equals = text.find('=');
  return equals == std::string::npos
             ? std::pair<std::string, std::string>{"", text}
             : std::pair<std::string, std::string>{text.substr(0, equals), text.substr(equals + 1)};
}

Result<NamedFiles> open_inputs(const ir::Graph& graph, const std::vector<std::string>& flags) {
  std::vector<std::string> names;
  for (const ir::Input& input : graph.inputs) {
    if (input.kind == ir::InputKind::kData) names.push_back(input.path);
  }
  NamedFiles files;
  for (const std::string& flag : flags) {
    auto [given, path] = split(flag);
    const std::string name = given.empty() && names.size() == 1 ? names[0] : given;
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      Diagnostic error =
          usage(fmt::format("`--in {}`: the model has no argument `{}`", flag, name));
      error.note(fmt::format("its arguments are `{}`", fmt::join(names, "`, `")));
      return error;
    }
    if (std::any_of(files.begin(), files.end(), [&](const auto& f) { return f.first == name; }))
      return usage(fmt::format("`--in {}`: the argument `{}` has a file already", flag, name));
    CAD_TRY(file, backend::NpyFile::open(path));
    files.emplace_back(name, std::move(file));
  }
  for (const std::string& name : names) {
    const bool given =
        std::any_of(files.begin(), files.end(), [&](const auto& f) { return f.first == name; });
    if (!given) {
      Diagnostic error = usage(fmt::format("no file for the argument `{}`", name));
      error.help(fmt::format("add `--in {}=FILE.npy`", name));
      return error;
    }
  }
  return files;
}

Status check_shape(const backend::NpyFile& file, const backend::Inference::Tensor& input,
                   int64_t rows) {
  const auto& shape = file.header().shape;
  bool fits = shape.size() == input.extents.size() && file.rows() == rows;
  for (size_t d = 1; fits && d < shape.size(); ++d) fits = shape[d] == input.extents[d];
  if (fits) return Ok{};
  std::string sizes = fmt::format("{}", rows);
  for (size_t d = 1; d < input.extents.size(); ++d)
    sizes += fmt::format(", {} = {}", input.dims[d], input.extents[d]);
  return make_error(DiagId::E0609,
                    fmt::format("`{}` is {}, `{}` needs [{}]", file.path(),
                                backend::shape_text(shape), input.name, sizes),
                    kExitRunFailed);
}

// Row-major results, all batches of an output whose first dim is the batch one after the other.
struct Collected {
  backend::StoredType type = backend::StoredType::kF32;
  std::vector<std::byte> data;
  std::vector<int64_t> shape;
};

class Predictor {
 public:
  Predictor(backend::Inference& inference, NamedFiles files, int64_t rows, int64_t batch)
      : inference_(inference), files_(std::move(files)), rows_(rows), batch_(batch) {}

  Result<std::vector<Collected>> predict(const std::string& batch_name) {
    std::vector<Collected> results(inference_.outputs().size());
    for (int64_t row = 0; row < rows_; row += batch_) {
      CAD_TRY_VOID(load(row));
      inference_.run(0);
      const int64_t count = std::min(batch_, rows_ - row);
      for (size_t i = 0; i < results.size(); ++i)
        CAD_TRY_VOID(append(results[i], inference_.outputs()[i], batch_name, count, row));
    }
    return results;
  }

 private:
  Status load(int64_t row) {
    for (const auto& [name, file] : files_) {
      for (backend::Inference::Tensor& input : inference_.inputs()) {
        if (input.name != name) continue;
        const int64_t bytes = input.elements() / batch_ * ir::dtype_bytes(input.dtype);
        for (int64_t b = 0; b < batch_; ++b) {
          std::string value;
          const int64_t source = std::min(row + b, rows_ - 1);  // rows past the end: the last again
          const int64_t bad = file.read_row(source, input.dtype, input.data + b * bytes, value);
          if (bad < 0) continue;
          return make_error(DiagId::E0608,
                            fmt::format("{} at element {} of `{}` does not fit {} of `{}`", value,
                                        source * file.row_elements() + bad, file.path(),
                                        ir::dtype_name(input.dtype), name),
                            kExitRunFailed);
        }
      }
    }
    return Ok{};
  }
  Status append(Collected& to, const backend::Inference::Tensor& output,
                const std::string& batch_name, int64_t count, int64_t row) const {
    const bool by_row = !output.dims.empty() && output.dims[0] == batch_name;
    if (!by_row && rows_ > batch_) {
      Diagnostic error = make_error(
          DiagId::E0704,
          fmt::format("the result [{}] is not by row, and {} rows do not fit one batch of {}",
                      fmt::join(output.dims, ", "), rows_, batch_),
          kExitRunFailed);
      error.help(fmt::format("`--set {}={}`", batch_name, rows_));
      return error;
    }
    const backend::StoredType type = backend::stored_as(output.dtype);
    const int64_t row_elements = by_row ? output.elements() / batch_ : output.elements();
    const int64_t elements = by_row ? row_elements * count : row_elements;
    const bool narrow = type == backend::StoredType::kBF16 || type == backend::StoredType::kF16;
    to.type = narrow ? backend::StoredType::kF32 : type;
    const int width = backend::stored_bytes(to.type);
    const size_t at = to.data.size();
    to.data.resize(at + static_cast<size_t>(elements * width));
    std::string ignored;
    if (narrow)
      backend::convert_elements(type, output.data, false, elements, ir::DType::kF32,
                                to.data.data() + at, ignored);
    else
      std::memcpy(to.data.data() + at, output.data, static_cast<size_t>(elements * width));
    to.shape = output.extents;
    if (by_row) to.shape[0] = row + count;
    return Ok{};
  }

  backend::Inference& inference_;
  NamedFiles files_;
  int64_t rows_, batch_;
};

// The model's batch dim gets as many rows as the files have, at most kMostBatch. Returns its name;
// empty: it has none.
std::string bind_batch(const ir::Graph& graph, int64_t rows, ir::Bindings& bindings) {
  constexpr int64_t kMostBatch = 256;
  if (!graph.batch_dim.valid()) return "";
  const ir::Dim& dim = graph.dim(graph.batch_dim);
  for (const std::string& symbol : dim.size.symbols()) {
    if (bindings.count(symbol) == 0) bindings[symbol] = std::min(rows, kMostBatch);
  }
  return dim.name;
}

// Files fit the arguments and results can be written, before anything is computed.
Status check_files(const NamedFiles& files, const std::vector<std::string>& out,
                   backend::Inference& inference) {
  const int64_t rows = files[0].second.rows();
  for (const auto& [name, file] : files) {
    for (const auto& input : inference.inputs()) {
      if (input.name == name) CAD_TRY_VOID(check_shape(file, input, rows));
    }
  }
  const size_t results = inference.outputs().size();
  if (out.size() > results)
    return usage(fmt::format("{} `--out` files for {} results", out.size(), results));
  for (const std::string& name : out) CAD_TRY_VOID(probe_output(split(name).second));
  return Ok{};
}

Status write_results(const CommonOptions& common, const std::vector<std::string>& out,
                     const std::vector<Collected>& results) {
  for (size_t i = 0; i < out.size(); ++i) {
    const std::string path = split(out[i]).second;
    const Collected& result = results[i];
    CAD_TRY_VOID(backend::write_npy(path, result.type, result.shape, result.data.data()));
    message(common, fmt::format("{}: {}", path, backend::shape_text(result.shape)));
  }
  return Ok{};
}

int run_predict(const PredictFlags& flags, const CommonOptions& common) {
  if (auto error = check_one_device(common, "predict")) return fail(common, *error);
  LoadedProgram program;
  if (const int status = load_program(common, program); status != kExitOk) return status;
  auto graph = frontend::lower_model(*program.module, false, ir::DType::kF32);
  if (!graph.ok()) return fail(common, program.sources, graph.error());
  auto files = open_inputs(*graph, flags.in);
  if (!files.ok()) return fail(common, files.error());
  if (files->empty()) return fail(common, usage("the model has no arguments to predict from"));
  const int64_t rows = (*files)[0].second.rows();
  if (rows == 0)
    return fail(common, make_error(DiagId::E0606,
                                   fmt::format("`{}` has no rows", (*files)[0].second.path()),
                                   kExitRunFailed));
  ir::Bindings bindings = frontend::bindings(*program.module);
  const std::string batch_name = bind_batch(*graph, rows, bindings);
  if (auto error = unbound_dim(*graph, bindings)) return fail(common, program.sources, *error);
  std::string folder;
  bool average = false;
  if (auto spec = frontend::lower_train(*program.module); spec.ok()) {
    folder = save_folder(common, *spec);
    average = spec->ema.has_value();
  }
  const auto init = trained_files(common, folder, average);
  if (init.empty())
    message(common, "note: no checkpoint found: predicting with initial parameters");
  auto inference = backend::Inference::create(
      std::move(*graph), bindings, static_cast<int>(common.threads_per_device.value_or(0)));
  int64_t batch = rows;
  for (const auto& input : inference->inputs()) {
    if (!input.extents.empty() && !input.dims.empty() && input.dims[0] == batch_name)
      batch = input.extents[0];
  }
  if (Status status = check_files(*files, flags.out, *inference); !status.ok())
    return fail(common, status.error());
  std::vector<Diagnostic> warnings;
  if (Status status = inference->start(init, common.seed.value_or(0), warnings); !status.ok())
    return fail(common, program.sources, status.error());
  print_warnings(common, program.sources, warnings);
  auto results = Predictor(*inference, std::move(*files), rows, batch).predict(batch_name);
  if (!results.ok()) return fail(common, results.error());
  if (Status status = write_results(common, flags.out, *results); !status.ok())
    return fail(common, status.error());
  return kExitOk;
}

}  // namespace

Action declare_predict(CLI::App& app, CommonOptions& common) {
  auto own = std::make_shared<PredictFlags>();
  add_program_flags(app, common);
  add_trained_flag(app, common);
  app.add_option("--in", own->in, "rows for an argument: NAME=FILE.npy; repeatable")
      ->type_name("NAME=FILE")
      ->required()
      ->allow_extra_args(false);
  app.add_option("--out", own->out, "where a result goes, in the order of results; repeatable")
      ->type_name("FILE")
      ->required()
      ->allow_extra_args(false);
  app.add_option("--seed", common.seed, "the seed, instead of the program's")
      ->type_name("N")
      ->check(at_least(0));
  add_one_device_flags(app, common);
  return [own, &common] { return run_predict(*own, common); };
}

}  // namespace cad::cli
