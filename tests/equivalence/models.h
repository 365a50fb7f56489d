// tests/equivalence/models.h -- seven kinds of models, small and of sizes that nothing divides: 257
// ids, 3 or 5 heads, 6 rows, dropout. Each with a train section over synthetic data.
#pragma once

#include <string>
#include <vector>

#include "tests/uneven_model.h"

namespace cad {

struct TestModel {
  std::string name, text;
};

inline std::string training(const std::string& data, const std::string& loss,
                            const std::string& optimizer, const std::string& more = "") {
  return "train net {\n  data: synthetic(" + data + ")\n  loss: " + loss +
         "\n  optimizer: " + optimizer + "\n  B: 6, steps: 5, seed: 3\n  " + more + "\n}\n";
}

// A loop of blocks of 3 heads, and a layer of 5 after it.
inline std::string test_gpt() {
  std::string text = kUnevenModel;
  const std::string last = "  return LayerNorm[D](x) @[D] e\n}\n";
  text.replace(text.rfind(last), last.size(),
               "  x = x + dropout(Five(LayerNorm[D](x)), 0.1)\n" + last +
                   R"(dim N = 5, M = D / N
layer Five(x: [B, T, D]) -> [B, T, D] {
  param Wq, Wk, Wv : [D, N, M] = normal(0.3)
  param Wo         : [N, M, D] = normal(0.3)
  s = (x @[D] Wq) @[M] (x @[D] Wk)[T -> S] / sqrt(M)
  return softmax[S](causal[T, S](s)) @[S] (x @[D] Wv)[T -> S] @[N, M] Wo
}
)");
  return text;
}

// 5 groups of 2 heads, two micro-batches, a moving average.
inline const char* const kTestLlama = R"(
dim B, T = 9, S = T, V = 257, G = 5, R = 2, K = 2, D = G * R * K, F = 22, L = 3
layer Block(x: [B, T, D]) -> [B, T, D] {
  x = x + dropout(GQA[T -> S, D, G, R, K](RMSNorm[D](x)), 0.1)
  return x + SwiGLU[D -> F](RMSNorm[D](x))
}
model Net(ids: i32[B, T]) -> [B, T, V] {
  use emb = Embedding[V -> D]
  x = emb(ids)
  repeat L as h { x = Block(x) }
  return RMSNorm[D](x) @[D] emb.W
}
)";

// 5 experts, of which a row takes 2; not all rows find a place.
inline const char* const kTestExperts = R"(
dim B, T = 5, D = 6, F = 7, E = 5, A = 2, M = 8, V = 257, L = 2
model Net(ids: i32[B, T], y: i32[B, T]) -> f32[] {
  param wte : [V, D] = normal(0.3)
  x = wte[V = ids]
  aux = 0.0
  repeat L as h {
    z, balance = MoE[D -> F, E, A, M](RMSNorm[D](x))
    x = x + dropout(z, 0.1)
    aux = aux + balance
  }
  return cross_entropy[V](RMSNorm[D](x) @[D] wte, y) + 0.01 * aux
}
)";

inline const char* const kTestConvnet = R"(
dim B, C = 1, Y = 8, X = 8, Y2 = Y / 2, X2 = X / 2, Y3 = Y2 / 2, X3 = X2 / 2
dim O = 3, O2 = 5, V = 10
model Net(img: [B, C, Y, X]) -> [B, V] {
  x = relu(ConvBN[C -> O, Y -> Y, X -> X](img))
  x = max_pool[Y -> Y2, X -> X2](x, 2)
  x = relu(ConvBN[O -> O2, Y2 -> Y3, X2 -> X3](x, stride: 2))
  x = dropout(ResBlock[O2, Y3, X3](x), 0.1)
  return Linear[O2 -> V](mean[Y3, X3](x))
}
)";

// Dense features and bags of ids that look up one table, their products, and layers on top.
inline const char* const kTestTable = R"(
dim B, N = 3, M = 2, V = 257, I = 13, D = 6, F = 11, O = 2
model Net(ids: i32[B, N, M], x: [B, I]) -> [B, O] {
  z = relu(Linear[I -> D](x))
  e = EmbeddingBag[V -> D, M](ids)
  h = relu(Linear[N -> F](e @[D] z) + Linear[D -> F](z))
  return Linear[F -> O](dropout(h, 0.1))
}
)";

// A loop that the loss goes through twice, on other data each time, so that its parameters are
// scanned by two loops; weights that iterations share, and that are used after them.
inline const char* const kTestTwice = R"(
dim B, I = 7, F = 10, L = 3
model Net(x: [B, I]) -> [B, I] {
  use ln = LayerNorm[I]
  use last = Linear[I -> I]
  repeat L as h { x = x + dropout(Linear[F -> I](gelu(Linear[I -> F](ln(x)))), 0.1) }
  return last(x) + gelu(last(ln(x)))
}
)";

// The same with states, which the second time finds as the first one left them.
inline const char* const kTestNorms = R"(
dim B, I = 5, F = 6, L = 2
model Net(x: [B, I]) -> [B, I] {
  repeat L as h { x = x + Linear[F -> I](gelu(Linear[I -> F](BatchNorm[I](x)))) }
  return x
}
)";

inline const std::vector<TestModel>& test_models() {
  static const std::vector<TestModel> kModels = {
      {"gpt", test_gpt() + training("x: i32[B, T], y: i32[B, T]", "cross_entropy[V](Net(x), y)",
                                    "adamw(lr: cosine(1e-2, warmup: 2))", "clip: 1.0")},
      {"llama", kTestLlama + training("x: i32[B, T], y: i32[B, T]", "cross_entropy[V](Net(x), y)",
                                      "adamw(lr: 1e-2)", "accumulate: 2, ema: 0.9")},
      {"experts",
       kTestExperts + training("x: i32[B, T], y: i32[B, T]", "Net(x, y)", "adam(lr: 1e-3)")},
      {"convnet",
       kTestConvnet + training("x: f32[B, C, Y, X], y: i32[B]", "cross_entropy[V](Net(x), y)",
                               "sgd(lr: 0.05, momentum: 0.9, nesterov: true)")},
      {"table", kTestTable + training("ids: i32[B, N, M], x: f32[B, I], y: f32[B, O]",
                                      "mse(Net(ids, x), y)", "adam(lr: 1e-2)")},
      {"twice",
       kTestTwice + training("x: f32[B, I], y: f32[B, I]", "mse(Net(x), y) + 0.5 * mse(Net(y), x)",
                             "adamw(lr: 1e-2)", "accumulate: 2, clip: 1.0")},
      {"norms",
       kTestNorms + training("x: f32[B, I], y: f32[B, I]", "mse(Net(x), y) + 0.1 * mae(Net(x), y)",
                             "sgd(lr: 0.05, momentum: 0.9)")}};
  return kModels;
}

}  // namespace cad
