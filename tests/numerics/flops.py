"""tests/numerics/flops.py: FLOPs of the examples by PyTorch's own counter; writes flops.json.

The models are those of examples/gpt2-124m.cad, llama.cad and convnet.cad in PyTorch's terms, on the
meta device (nothing is computed). Attention is written out, so its backward is twice its forward.
FlopCounterMode counts contractions and convolutions, 2 a multiply-add, nothing else.
tests/frontend/profile_test.cc compares; it needs neither PyTorch nor this script.
"""

import json
import math
import os

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

HERE = os.path.dirname(os.path.abspath(__file__))


def weight(*shape):
    return torch.empty(*shape, device="meta", requires_grad=True)


def attention(q, k, v):
    """q [B, H, T, K], k and v [B, H, S, K]."""
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    return torch.softmax(scores, -1) @ v


def gpt2(B, T, V, D, L, H):
    w = {"wte": weight(V, D), "wpe": weight(T, D), "g": weight(D), "b": weight(D)}
    x = F.embedding(torch.empty(B, T, dtype=torch.long, device="meta"), w["wte"]) + w["wpe"]
    for i in range(L):
        p = {n: weight(D, D) for n in "qkvo"} | {"1": weight(D, 4 * D), "2": weight(4 * D, D)}
        p |= {n: weight(D) for n in ("bq", "bk", "bv", "bo", "b2", "g1", "h1", "g2", "h2")} | {"b1": weight(4 * D)}
        y = F.layer_norm(x, (D,), p["g1"], p["h1"])
        heads = lambda n: (y @ p[n] + p["b" + n]).view(B, T, H, D // H).transpose(1, 2)
        y = attention(heads("q"), heads("k"), heads("v")).transpose(1, 2).reshape(B, T, D)
        x = x + y @ p["o"] + p["bo"]
        y = F.layer_norm(x, (D,), p["g2"], p["h2"])
        x = x + F.gelu(y @ p["1"] + p["b1"]) @ p["2"] + p["b2"]
        w |= {f"{i}.{n}": t for n, t in p.items()}
    logits = F.layer_norm(x, (D,), w["g"], w["b"]) @ w["wte"].t()
    return w, F.cross_entropy(logits.view(B * T, V), torch.empty(B * T, dtype=torch.long, device="meta"))


def rms_norm(x, g):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * g


def rotate(x):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    cos = torch.empty(x.shape[-2], half, device="meta")
    return torch.cat((a * cos - b * cos, a * cos + b * cos), -1)


def llama(B, T, V, D, L, G, R, F_):
    K = D // (G * R)
    w = {"emb": weight(V, D), "g": weight(D)}
    x = F.embedding(torch.empty(B, T, dtype=torch.long, device="meta"), w["emb"])
    for i in range(L):
        p = {"q": weight(D, G * R * K), "k": weight(D, G * K), "v": weight(D, G * K), "o": weight(G * R * K, D)}
        p |= {"g": weight(D, F_), "u": weight(D, F_), "d": weight(F_, D), "n1": weight(D), "n2": weight(D)}
        y = rms_norm(x, p["n1"])
        q = rotate((y @ p["q"]).view(B, T, G * R, K).transpose(1, 2))
        k = rotate((y @ p["k"]).view(B, T, G, K).transpose(1, 2)).repeat_interleave(R, 1)
        v = (y @ p["v"]).view(B, T, G, K).transpose(1, 2).repeat_interleave(R, 1)
        x = x + attention(q, k, v).transpose(1, 2).reshape(B, T, D) @ p["o"]
        y = rms_norm(x, p["n2"])
        x = x + (F.silu(y @ p["g"]) * (y @ p["u"])) @ p["d"]
        w |= {f"{i}.{n}": t for n, t in p.items()}
    logits = rms_norm(x, w["g"]) @ w["emb"].t()
    return w, F.cross_entropy(logits.view(B * T, V), torch.empty(B * T, dtype=torch.long, device="meta"))


def convnet(B, C, Y, X, O, O2, V):
    w = {"c1": weight(O, C, 3, 3), "c2": weight(O2, O, 3, 3), "c3": weight(O2, O2, 3, 3), "c4": weight(O2, O2, 3, 3)}
    w |= {f"{n}{i}": weight(c) for i, c in enumerate((O, O2, O2, O2)) for n in "gb"}
    w |= {"W": weight(O2, V), "b": weight(V)}
    norm = lambda x, i: F.batch_norm(x, None, None, w[f"g{i}"], w[f"b{i}"], training=True)
    x = torch.empty(B, C, Y, X, device="meta") / 255
    x = F.max_pool2d(F.relu(norm(F.conv2d(x, w["c1"], padding=1), 0)), 2)
    x = F.relu(norm(F.conv2d(x, w["c2"], stride=2, padding=1), 1))
    h = F.relu(norm(F.conv2d(x, w["c3"], padding=1), 2))
    x = F.relu(x + norm(F.conv2d(h, w["c4"], padding=1), 3))
    logits = x.mean((2, 3)) @ w["W"] + w["b"]
    return w, F.cross_entropy(logits, torch.empty(B, dtype=torch.long, device="meta"))


def count(make, dims):
    with FlopCounterMode(display=False) as forward:
        w, loss = make(*dims.values())
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    params = sum(t.numel() for t in w.values())
    return {"dims": dims, "params": params, "forward": forward.get_total_flops(),
            "backward": backward.get_total_flops()}


def main():
    cases = {
        "gpt2-124m": count(gpt2, {"B": 4, "T": 1024, "V": 50257, "D": 768, "L": 12, "H": 12}),
        "llama": count(llama, {"B": 16, "T": 128, "V": 256, "D": 256, "L": 6, "G": 4, "R": 2, "F": 704}),
        "convnet": count(convnet, {"B": 64, "C": 1, "Y": 28, "X": 28, "O": 16, "O2": 32, "V": 10}),
    }
    with open(os.path.join(HERE, "flops.json"), "w") as out:
        json.dump({"torch": torch.__version__.split("+")[0], "cases": cases}, out, indent=1)
        out.write("\n")


main()
