// backend/initialize.cc -- see backend/initialize.h.
#include "backend/initialize.h"

#include <cstring>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "backend/cpu/thread_pool.h"
#include "ir/random.h"

namespace cad::backend {
namespace {

float initial_value(const Parameter& p, uint64_t key, int64_t element) {
  const auto scale = static_cast<float>(p.init_scale);
  if (p.init == ir::Init::Kind::kConstant) return scale;
  if (p.init == ir::Init::Kind::kZeros) return 0.0F;
  const auto words = ir::philox(key, static_cast<uint64_t>(element), 0);
  if (p.init == ir::Init::Kind::kNormal) return ir::standard_normal(words[0], words[1]) * scale;
  return (2.0F * ir::uniform01(words[0]) - 1.0F) * scale;  // [-a, a)
}

// "a, b, c and 12 more"
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 4;
  std::string text;
  for (size_t i = 0; i < names.size() && i < kShown; ++i)
    text += (i == 0 ? "`" : ", `") + names[i] + "`";
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

}  // namespace

void initialize(const Parameter& p, uint64_t seed, ThreadPool& pool) {
  if (p.dtype != ir::DType::kF32) {
    // States of other types start from a constant.
    const double constant = p.init == ir::Init::Kind::kConstant ? p.init_scale : 0.0;
    const int width = ir::dtype_bytes(p.dtype);
    std::string ignored;
    for (int64_t i = 0; i < p.elements(); ++i) {
      convert_elements(StoredType::kF64, reinterpret_cast<const std::byte*>(&constant), false, 1,
                       p.dtype, p.data + i * width, ignored);
    }
    return;
  }
  auto* values = reinterpret_cast<float*>(p.data);
  // Behind a device's own elements (the padding of an uneven split) are zeros.
  if (!p.storage.is_whole()) std::memset(p.data, 0, static_cast<size_t>(p.bytes()));
  for (int64_t i = 0; i < p.iterations; ++i) {
    const uint64_t key = ir::stream_key(seed, ir::site_hash(p.path), p.loop_numbers(i));
    float* target = values + i * p.iteration_elements;
    each_stretch(p.storage, [&](int64_t here, int64_t there, int64_t count) {
      pool.split(count, 4096, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) target[here + k] = initial_value(p, key, there + k);
      });
    });
  }
}

Status read_tensor(const SafetensorsFile& file, const StoredTensor& tensor, const Parameter& p,
                   std::byte* target) {
  if (tensor.shape != p.extents) {
    Diagnostic error =
        make_error(DiagId::E0611,
                   fmt::format("`{}`: tensor `{}` is {}, the program's is {}", file.path(),
                               tensor.name, shape_text(tensor.shape), shape_text(p.extents)),
                   kExitRunFailed);
    if (p.span.valid()) error.label(p.span, fmt::format("[{}]", fmt::join(p.dims, ", ")));
    return error;
  }
  // Whole numbers are no weights: quantised ones mean nothing without their scales.
  if (ir::is_float(p.dtype) && !stored_is_float(tensor.type)) {
    Diagnostic error =
        make_error(DiagId::E0611,
                   fmt::format("`{}`: tensor `{}` holds {}, the program's holds floats",
                               file.path(), tensor.name, stored_name(tensor.type)),
                   kExitRunFailed);
    if (p.span.valid()) error.label(p.span, ir::dtype_name(p.dtype));
    return error;
  }
  std::string value;
  int64_t bad = -1;
  const int64_t from = stored_bytes(tensor.type), to = ir::dtype_bytes(p.dtype);
  each_stretch(p.storage, [&](int64_t here, int64_t there, int64_t count) {
    if (bad >= 0) return;
    bad = convert_elements(tensor.type, file.data(tensor) + there * from, false, count, p.dtype,
                           target + here * to, value);
    if (bad >= 0) bad += there;
  });
  if (bad < 0) return Ok{};
  return make_error(DiagId::E0608,
                    fmt::format("`{}`: tensor `{}`: element {} is {}, which does not fit {}",
                                file.path(), tensor.name, bad, value, ir::dtype_name(p.dtype)),
                    kExitRunFailed);
}

Status load_init_files(Parameters& parameters, const std::vector<ir::InitFile>& files,
                       const std::string& folder, std::vector<Diagnostic>& warnings) {
  if (files.empty()) return Ok{};
  std::set<std::string> filled;
  std::vector<std::string> dropped;
  for (const ir::InitFile& init : files) {
    std::filesystem::path path(init.file);
    if (path.is_relative() && !folder.empty()) path = std::filesystem::path(folder) / path;
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) path /= "model.safetensors";
    auto file = SafetensorsFile::open(path.string());
    if (!file.ok()) {
      if (init.span.valid()) file.error().label(init.span, "read here");
      return std::move(file.error());
    }
    std::set<std::string> taken;
    for (Parameter& p : parameters.all()) {
      const int64_t step = p.iteration_elements * ir::dtype_bytes(p.dtype);
      for (int64_t i = 0; i < p.iterations; ++i) {
        std::string name = p.iteration_path(i);
        const std::string full = name;
        if (!init.under.empty()) {
          if (name.compare(0, init.under.size() + 1, init.under + ".") != 0) continue;
          name = name.substr(init.under.size() + 1);
        }
        const StoredTensor* tensor = file->find(name);
        if (tensor == nullptr) continue;
        CAD_TRY_VOID(read_tensor(*file, *tensor, p, p.data + i * step));
        taken.insert(name);
        filled.insert(full);
      }
    }
    for (const StoredTensor& tensor : file->header().tensors) {
      if (taken.count(tensor.name) == 0) dropped.push_back(tensor.name);
    }
    if (!taken.empty()) continue;
    Diagnostic error = make_error(
        DiagId::E0612, fmt::format("`{}` fills no parameter", path.string()), kExitRunFailed);
    if (init.span.valid()) error.label(init.span, "read here");
    error.note("it holds " + (file->header().tensors.empty() ? "no tensors" : some_of(dropped)));
    if (!parameters.all().empty())
      error.note("the program's first path is `" + (init.under.empty() ? "" : init.under + ".") +
                 parameters.all()[0].iteration_path(0) + "`");
    return error;
  }
  std::vector<std::string> missing;
  for (const Parameter& p : parameters.all()) {
    for (int64_t i = 0; i < p.iterations; ++i) {
      if (filled.count(p.iteration_path(i)) == 0) missing.push_back(p.iteration_path(i));
    }
  }
  if (missing.empty() && dropped.empty()) return Ok{};
  Diagnostic warning =
      make_error(DiagId::W0061, "`init` and the program do not hold the same tensors", kExitOk);
  if (files[0].span.valid()) warning.label(files[0].span, "");
  if (!missing.empty())
    warning.note(fmt::format("{} keep their initialiser: {}", missing.size(), some_of(missing)));
  if (!dropped.empty())
    warning.note(fmt::format("{} of the file are dropped: {}", dropped.size(), some_of(dropped)));
  warnings.push_back(std::move(warning));
  return Ok{};
}

}  // namespace cad::backend
