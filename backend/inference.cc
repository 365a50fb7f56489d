// backend/inference.cc -- see backend/inference.h.
#include "backend/inference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "backend/cpu/thread_pool.h"
#include "backend/initialize.h"
#include "ir/passes.h"
#include "ir/random.h"

namespace cad::backend {

Inference::~Inference() = default;

int64_t Inference::Tensor::elements() const {
  int64_t product = 1;
  for (const int64_t size : extents) product *= size;
  return product;
}

std::unique_ptr<Inference> Inference::create(ir::Graph graph, const ir::Bindings& bindings,
                                             int threads) {
  std::unique_ptr<Inference> inference(new Inference());
  inference->pool_ = std::make_unique<ThreadPool>(threads);
  inference->parameters_.add(graph, bindings);
  graph = ir::evaluation_graph(std::move(graph));
  inference->program_ = BoundProgram(graph, bindings, {}, nullptr);
  const Program& program = inference->program_.program();
  const auto tensor = [&](const Port& port) {
    Tensor result;
    result.name = port.name;
    result.dtype = port.type.dtype;
    result.extents = port.extents;
    for (const ir::DimId dim : port.type.dims) result.dims.push_back(graph.dim(dim).name);
    return result;
  };
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const ir::InputKind kind = graph.inputs[i].kind;
    if (kind == ir::InputKind::kParam || kind == ir::InputKind::kState) continue;
    inference->input_ports_.push_back(i);
    inference->inputs_.push_back(tensor(program.inputs()[i]));
  }
  for (const Port& port : program.outputs()) inference->outputs_.push_back(tensor(port));
  for (const Parameter& p : inference->parameters_.all())
    inference->persistent_ += aligned(p.bytes());
  inference->region_ = inference->program_.place(0);
  return inference;
}

Status Inference::start(const std::vector<ir::InitFile>& init, uint64_t seed,
                        std::vector<Diagnostic>& warnings) {
  CAD_TRY_VOID(memory_.allocate(persistent_, region_));
  std::byte* at = memory_.persistent();
  std::vector<std::byte*> values;
  for (Parameter& p : parameters_.all()) {
    p.data = at;
    at += aligned(p.bytes());
    values.push_back(p.data);
    initialize(p, seed, *pool_);
  }
  program_.bind(parameters_, values, memory_.region());
  for (size_t i = 0; i < inputs_.size(); ++i)
    inputs_[i].data = static_cast<std::byte*>(program_.run().inputs[input_ports_[i]]);
  for (size_t i = 0; i < outputs_.size(); ++i) outputs_[i].data = program_.output(i);
  return load_init_files(parameters_, init, "", warnings);
}

void Inference::run(uint64_t seed) {
  program_.run().seed = seed;
  execute(program_.program(), *pool_, program_.run());
}

Result<TokenModel> token_model(Inference& inference) {
  const auto unfit = [](const std::string& why) {
    Diagnostic error = make_error(DiagId::E0704, "the model cannot generate: " + why, kExitUsage);
    error.help(
        "`generate` needs one argument `i32[B, T]` and one result with these dims and a "
        "vocabulary");
    return error;
  };
  if (inference.inputs().size() != 1)
    return unfit(fmt::format("it has {} arguments", inference.inputs().size()));
  if (inference.outputs().empty()) return unfit("it has no result");
  const Inference::Tensor& in = inference.inputs()[0];
  const Inference::Tensor& out = inference.outputs()[0];
  if (in.dtype != ir::DType::kI32 || in.dims.size() != 2)
    return unfit(
        fmt::format("its argument is {}[{}]", ir::dtype_name(in.dtype), fmt::join(in.dims, ", ")));
  TokenModel model;
  model.window = in.extents[1];
  int64_t stride = 1;
  for (size_t d = out.dims.size(); d-- > 0;) {
    if (out.dims[d] == in.dims[1]) {
      model.time_stride = stride;
    } else if (out.dims[d] != in.dims[0]) {
      if (model.vocabulary != 0)
        return unfit(fmt::format("its result is [{}]", fmt::join(out.dims, ", ")));
      model.vocabulary = out.extents[d];
      model.token_stride = stride;
    }
    stride *= out.extents[d];
  }
  if (model.vocabulary < 1 || model.time_stride == 0 || !ir::is_float(out.dtype))
    return unfit(
        fmt::format("its result is {}[{}]", ir::dtype_name(out.dtype), fmt::join(out.dims, ", ")));
  return model;
}

int32_t sample(const std::vector<float>& logits, double temperature, int64_t top_k, uint32_t word) {
  const auto n = static_cast<int64_t>(logits.size());
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const int64_t kept = top_k <= 0 ? n : std::min(top_k, n);
  const auto before = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;  // ties to the lowest
  };
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), before);
  if (temperature <= 0) return order[0];
  const double top = static_cast<double>(logits[static_cast<size_t>(order[0])]);
  std::vector<double> weights;
  double total = 0;
  for (int64_t i = 0; i < kept; ++i) {
    const double logit =
        static_cast<double>(logits[static_cast<size_t>(order[static_cast<size_t>(i)])]);
    weights.push_back(std::exp((logit - top) / temperature));
    total += weights.back();
  }
  double left = static_cast<double>(word) * 0x1.0p-32 * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[0];
}

void generate(Inference& inference, const TokenModel& model, std::vector<int32_t> tokens,
              const GenerateOptions& options, const std::function<bool(int32_t)>& emit) {
  auto* input = reinterpret_cast<int32_t*>(inference.inputs()[0].data);
  const Inference::Tensor& out = inference.outputs()[0];
  const uint64_t key = ir::stream_key(options.seed, ir::site_hash("generate"), {});
  std::vector<float> logits(static_cast<size_t>(model.vocabulary));
  std::string ignored;
  std::memset(input, 0, static_cast<size_t>(inference.inputs()[0].elements()) * 4);
  for (int64_t made = 0; made < options.tokens; ++made) {
    // The window slides; a model that looks back only does not see the zeros behind the last token.
    const auto have = static_cast<int64_t>(tokens.size());
    const int64_t used = std::min(have, model.window);
    std::copy(tokens.end() - used, tokens.end(), input);
    inference.run(options.seed);
    for (int64_t v = 0; v < model.vocabulary; ++v) {
      const int64_t at = (used - 1) * model.time_stride + v * model.token_stride;
      const StoredType type = stored_as(out.dtype);
      convert_elements(type, out.data + at * stored_bytes(type), false, 1, ir::DType::kF32,
                       reinterpret_cast<std::byte*>(&logits[static_cast<size_t>(v)]), ignored);
    }
    const uint32_t word = ir::philox(key, static_cast<uint64_t>(made), 0)[0];
    tokens.push_back(sample(logits, options.temperature, options.top_k, word));
    if (have > model.window) tokens.erase(tokens.begin());
    if (!emit(tokens.back())) return;
  }
}

}  // namespace cad::backend
