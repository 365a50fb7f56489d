"""tests/numerics/gpt_run.py COLAUTO [STEPS]: the whole run of examples/gpt.cad against PyTorch.

Both train from the same initial parameters (`--steps 0 --save`) on the same rows (`order:
sequential`, no dropout), f32, all 300 steps by default. Prints both losses every 50 steps and their
relative difference at the last; fails over 1 %.
"""

import json
import math
import os
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F

from reference import layer_norm, linear, load

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PROGRAM = os.path.join(ROOT, "examples", "gpt.cad")
ROWS, LENGTH, LAYERS, TOTAL = 32, 128, 6, 300


def model(w, ids):
    x = w["wte"][ids] + w["wpe"]
    for i in range(LAYERS):
        p = f"h.{i}.block"
        y = layer_norm(w, p + ".layer_norm", x)
        q, k, v = (torch.einsum("btd,dhk->bhtk", y, w[f"{p}.attention.W{c}"]) for c in "qkv")
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + torch.einsum("bhtk,hkd->btd", y, w[p + ".attention.Wo"])
        y = layer_norm(w, p + ".layer_norm_1", x)
        x = x + linear(w, p + ".mlp.linear_1", F.gelu(linear(w, p + ".mlp.linear", y)))
    return layer_norm(w, "layer_norm", x) @ w["wte"].t()


def colauto_run(colauto, steps, folder):
    log = os.path.join(folder, "log.jsonl")
    subprocess.run([colauto, "run", PROGRAM, "--set", "drop=0", "--set", "order=sequential", "--steps", str(steps),
                    "--save", os.path.join(folder, f"run{steps}"), "--log", log, "--quiet"], check=True)
    return [e["loss"] for e in map(json.loads, open(log)) if e["event"] == "step"]


def torch_run(w, steps):
    for p in w.values():
        p.requires_grad_(True)
    groups = [{"params": [p for p in w.values() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in w.values() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    text = torch.tensor(list(open(os.path.join(ROOT, "examples", "data", "kjv.txt"), "rb").read()))
    windows = (len(text) - 1) // LENGTH
    losses = []
    for step in range(steps):
        t = step + 1
        rate = 1e-3 * t / 50 if t <= 50 else 1e-4 + 9e-4 * (1 + math.cos(math.pi * (t - 50) / (TOTAL - 50))) / 2
        for group in optimizer.param_groups:
            group["lr"] = rate
        starts = [(step * ROWS + b) % windows * LENGTH for b in range(ROWS)]
        rows = torch.stack([text[s:s + LENGTH + 1] for s in starts])
        optimizer.zero_grad()
        loss = F.cross_entropy(model(w, rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    colauto, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else TOTAL
    with tempfile.TemporaryDirectory() as folder:
        colauto_run(colauto, 0, folder)
        weights = {name: t.float() for name, t in load(os.path.join(folder, "run0", "model.safetensors")).items()}
        theirs = torch_run(weights, steps)
        ours = colauto_run(colauto, steps, folder)
    for t in sorted({1, steps, *range(50, steps + 1, 50)}):
        print(f"step {t:>3}  colauto {ours[t - 1]:.6f}  torch {theirs[t - 1]:.6f}")
    difference = abs(ours[-1] - theirs[-1]) / theirs[-1]
    print(f"relative difference at step {steps}: {difference:.2e}")
    return 0 if difference < 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
