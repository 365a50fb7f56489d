// backend/inference.h -- a model that is only evaluated: predict and generate. One program, one
// allocation; inputs and outputs are plain buffers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/bound_program.h"
#include "backend/parameters.h"
#include "backend/run_memory.h"
#include "ir/training.h"

namespace cad::backend {

class ThreadPool;

class Inference {
 public:
  // `graph`: of lower_model(), training off; every dim is bound.
  static std::unique_ptr<Inference> create(ir::Graph graph, const ir::Bindings& bindings,
                                           int threads);
  ~Inference();
  // Allocates, initialises, then fills from the files (none: initial values).
  Status start(const std::vector<ir::InitFile>& init, uint64_t seed,
               std::vector<Diagnostic>& warnings);

  struct Tensor {
    std::string name;
    ir::DType dtype = ir::DType::kF32;
    std::vector<std::string> dims;
    std::vector<int64_t> extents;
    std::byte* data = nullptr;  // valid after start()
    [[nodiscard]] int64_t elements() const;
  };
  [[nodiscard]] std::vector<Tensor>& inputs() { return inputs_; }    // the model's arguments
  [[nodiscard]] std::vector<Tensor>& outputs() { return outputs_; }  // "result:0", ..
  void run(uint64_t seed);
  [[nodiscard]] const Parameters& parameters() const { return parameters_; }

 private:
  Inference() = default;
  std::unique_ptr<ThreadPool> pool_;
  Parameters parameters_;
  BoundProgram program_;
  RunMemory memory_;
  int64_t persistent_ = 0, region_ = 0;
  std::vector<size_t> input_ports_;
  std::vector<Tensor> inputs_, outputs_;
};

struct GenerateOptions {
  int64_t tokens = 200;
  double temperature = 1;  // 0: always the likeliest
  int64_t top_k = 0;       // 0: all
  uint64_t seed = 0;
};
// The token model's window T, vocabulary V; E0704 when the model is none.
struct TokenModel {
  int64_t window = 0, vocabulary = 0;
  int64_t time_stride = 0, token_stride = 0;  // of the logits, row 0
};
Result<TokenModel> token_model(Inference& inference);
// Extends `tokens` (at least one), calling `emit` for each new one; stops early when it says false.
void generate(Inference& inference, const TokenModel& model, std::vector<int32_t> tokens,
              const GenerateOptions& options, const std::function<bool(int32_t)>& emit);

// Index drawn from softmax(logits / temperature) of the top_k largest; `word` is 32 random bits.
int32_t sample(const std::vector<float>& logits, double temperature, int64_t top_k, uint32_t word);

}  // namespace cad::backend
