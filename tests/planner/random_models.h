// tests/planner/random_models.h -- six families of tiny models with random sizes, as text with a
// train section; machines and meshes to plan them on.
#pragma once

#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "planner/machines.h"
#include "planner/planner.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {

inline const std::vector<std::string>& model_families() {
  static const std::vector<std::string> kNames = {"mlp",     "gpt",     "llama",
                                                  "experts", "convnet", "table"};
  return kNames;
}

// Every number is drawn in a statement of its own: compilers choose the order in which arguments
// are evaluated, and a seed is to be the same model everywhere.
class RandomModels {
 public:
  explicit RandomModels(uint32_t seed) : random_(seed) {}

  int pick(std::initializer_list<int> values) {
    return *(values.begin() + random_() % values.size());
  }
  // In [0, 1).
  double part() { return static_cast<double>(random_() % 10000) / 10000; }

  std::string text(const std::string& family) {
    if (family == "mlp") return mlp();
    if (family == "gpt") return gpt();
    if (family == "llama") return llama();
    if (family == "experts") return experts();
    return family == "convnet" ? convnet() : table();
  }

 private:
  static std::string trained(const std::string& data, const std::string& loss, int rows) {
    return fmt::format(
        "train t {{\n  data: synthetic({})\n  loss: {}\n  optimizer: adam(lr: 1e-3)\n  B: {}\n"
        "  steps: 1\n}}\n",
        data, loss, rows);
  }
  std::string mlp() {
    const int width = pick({24, 64, 256}), layers = pick({1, 2, 4});
    const int rows = pick({12, 128, 4096}), wider = pick({1, 4});
    return fmt::format(
               "dim B, D = {}, F = {}\nmodel Net(x: [B, D]) -> [B, D] {{\n  repeat {} as h {{\n"
               "    x = x + Linear[F -> D](gelu(Linear[D -> F](LayerNorm[D](x))))\n  }}\n"
               "  return x\n}}\n",
               width, width * wider, layers) +
           trained("x: f32[B, D], y: f32[B, D]", "mse(Net(x), y)", rows);
  }

  std::string gpt() {
    const int heads = pick({2, 3, 4}), head = pick({8, 32});
    const int rows = pick({4, 12, 64}), layers = pick({1, 2}), vocabulary = pick({96, 257, 1000});
    const int tokens = pick({16, 64});
    return tied_gpt(tokens, heads, head, vocabulary, layers) + token_training(rows);
  }

  std::string llama() {
    const int groups = pick({1, 2}), shared = pick({2, 3}), head = pick({8, 16});
    const int width = groups * shared * head;
    const int rows = pick({4, 12, 64}), layers = pick({1, 2}), vocabulary = pick({96, 257});
    const int tokens = pick({16, 32});
    return fmt::format(
               "dim B, T = {}, S = T, V = {}, G = {}, R = {}, K = {}, D = {}, F = {}, L = {}\n"
               "model Net(ids: i32[B, T]) -> [B, T, V] {{\n  use emb = Embedding[V -> D]\n"
               "  x = emb(ids)\n  repeat L as h {{\n"
               "    x = x + GQA[T -> S, D, G, R, K](RMSNorm[D](x))\n"
               "    x = x + SwiGLU[D -> F](RMSNorm[D](x))\n  }}\n"
               "  return RMSNorm[D](x) @[D] emb.W\n}}\n",
               tokens, vocabulary, groups, shared, head, width, 3 * width, layers) +
           token_training(rows);
  }

  std::string experts() {
    const int width = pick({12, 32});
    const int rows = pick({6, 32}), layers = pick({1, 2}), vocabulary = pick({96, 257});
    const int capacity = pick({8, 32}), count = pick({4, 6});
    return fmt::format(
               "dim B, T = 8, D = {}, F = {}, E = {}, A = 2, M = {}, V = {}, L = {}\n"
               "model Net(ids: i32[B, T], y: i32[B, T]) -> f32[] {{\n"
               "  param wte : [V, D] = normal(0.3)\n  x = wte[V = ids]\n  aux = 0.0\n"
               "  repeat L as h {{\n    z, balance = MoE[D -> F, E, A, M](RMSNorm[D](x))\n"
               "    x = x + z\n    aux = aux + balance\n  }}\n"
               "  return cross_entropy[V](RMSNorm[D](x) @[D] wte, y) + 0.01 * aux\n}}\n",
               width, 2 * width, count, capacity, vocabulary, layers) +
           trained("ids: i32[B, T], y: i32[B, T]", "Net(ids, y)", rows);
  }

  std::string convnet() {
    const int side = pick({8, 16});
    const int rows = pick({6, 32, 256}), wide = pick({6, 16}), narrow = pick({4, 8});
    const int colors = pick({1, 3});
    return fmt::format(
               "dim B, C = {}, Y = {}, X = {}, Y2 = Y / 2, X2 = X / 2, Y3 = Y2 / 2, X3 = X2 / 2\n"
               "dim O = {}, O2 = {}, V = 10\n"
               "model Net(img: [B, C, Y, X]) -> [B, V] {{\n"
               "  x = relu(ConvBN[C -> O, Y -> Y, X -> X](img))\n"
               "  x = max_pool[Y -> Y2, X -> X2](x, 2)\n"
               "  x = relu(ConvBN[O -> O2, Y2 -> Y3, X2 -> X3](x, stride: 2))\n"
               "  return Linear[O2 -> V](mean[Y3, X3](x))\n}}\n",
               colors, side, side, narrow, wide, side) +
           trained("img: f32[B, C, Y, X], y: i32[B]", "cross_entropy[V](Net(img), y)", rows);
  }

  std::string table() {
    const int width = pick({8, 32});
    const int rows = pick({6, 64, 1024}), vocabulary = pick({257, 5000}), lists = pick({3, 8});
    return fmt::format(
               "dim B, N = {}, M = 2, V = {}, I = 13, D = {}, F = {}, O = 2\n"
               "model Net(ids: i32[B, N, M], x: [B, I]) -> [B, O] {{\n"
               "  z = relu(Linear[I -> D](x))\n  e = EmbeddingBag[V -> D, M](ids)\n"
               "  h = relu(Linear[N -> F](e @[D] z) + Linear[D -> F](z))\n"
               "  return Linear[F -> O](h)\n}}\n",
               lists, vocabulary, width, 2 * width) +
           trained("ids: i32[B, N, M], x: f32[B, I], y: f32[B, O]", "mse(Net(ids, x), y)", rows);
  }

  std::mt19937 random_;
};

// "4": every mesh of so many devices, and fewer ones; "2x2": this mesh.
inline PlanRequest random_request(const Planned& p, const std::string& cluster,
                                  const std::string& shape) {
  PlanRequest request;
  std::vector<int> sizes;
  int devices = 1;
  for (size_t at = 0; at < shape.size(); at += 2) {
    sizes.push_back(shape[at] - '0');
    devices *= sizes.back();
  }
  request.graph = &p.graph;
  request.training = p.training;
  request.cluster = *find_cluster({}, cluster, devices);
  if (sizes.size() > 1) {
    request.meshes = {mesh_of(request.cluster, sizes)};
  } else {
    request.meshes = *meshes(request.cluster, devices);
    for (const int some : fewer_devices(devices)) {
      const std::vector<Mesh> fewer = *meshes(request.cluster, some);
      request.fewer.insert(request.fewer.end(), fewer.begin(), fewer.end());
    }
  }
  request.segments = true;
  request.proof_s = 0;  // nothing that the clock decides
  return request;
}

}  // namespace cad::planner
