// tests/uneven_model.h -- a small GPT of sizes that nothing divides, as text without a train
// section.
#pragma once

namespace cad {

// 257 tokens, 3 heads of 5
inline const char* const kUnevenModel = R"(dim B, T = 12, S = T, V = 257, D = 15, L = 2
dim H = 3, K = D / H, F = 22
layer Attention(x: [B, T, D]) -> [B, T, D] {
  param Wq, Wk, Wv : [D, H, K] = normal(0.3)
  param Wo         : [H, K, D] = normal(0.3)
  q = x @[D] Wq
  k = (x @[D] Wk)[T -> S]
  v = (x @[D] Wv)[T -> S]
  s = q @[K] k / sqrt(K)
  p = softmax[S](causal[T, S](s)) |> dropout(0.1)
  return p @[S] v @[H, K] Wo
}
layer Block(x: [B, T, D]) -> [B, T, D] {
  x = x + Attention(LayerNorm[D](x))
  h = Linear[D -> F](x) |> gelu
  x = x + (Linear[F -> D](h) |> dropout(0.1))
  return x
}
model Net(tokens: i32[B, T]) -> [B, T, V] {
  param e : [V, D] = normal(0.1)
  x = e[V = tokens]
  repeat L as h { x = Block(x) }
  return LayerNorm[D](x) @[D] e
}
)";

}  // namespace cad
