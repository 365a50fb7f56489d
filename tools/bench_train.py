"""tools/bench_train.py: training speed of colauto and PyTorch, f32, side by side in one run.

For each model the three programs take turns (colauto, eager, compile), `--pairs` times; a turn is
`--steps` steps after one that is not counted. Printed: the median over turns of tokens/s, the median
of the ratios of neighbouring turns, and the model's FLOP rate against the GEMM rate of this machine
(torch.mm of 1024 x 768 x 3072, best of ten, in the same run).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch

from torch_models import BENCHMARKS, trainer


def gemm_rate():
    a, b = torch.randn(1024, 768), torch.randn(768, 3072)
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2 * 1024 * 768 * 3072 / best


def colauto_turn(program, settings, steps, threads):
    """Seconds of a step, median of the log without the first."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log.jsonl")
        command = ["build/release/colauto", "run", program, "--devices", "1", "--threads-per-device", str(threads),
                   "--steps", str(steps + 1), "--log", log, "--save", os.path.join(folder, "save"), "--quiet"]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        events = [json.loads(line) for line in open(log)]
    return statistics.median(e["ms"] for e in events[1:] if e["event"] == "step" and e["step"] > 1) / 1e3


def torch_turn(step, steps):
    times = []
    for i in range(steps + 1):
        start = time.perf_counter()
        step()
        if i > 0:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def flops_per_step(model, rows, length):
    """6 per weight and token (embedding tables that are only looked up left out), and attention."""
    from torch import nn
    weights = sum(p.numel() for n, p in model.named_parameters() if p.dim() > 1 and "wpe" not in n)
    layers = len(model.blocks)
    dim = next(p for n, p in model.named_parameters() if n in ("wte.weight", "emb.weight")).shape[1]
    return rows * length * (6 * weights + 6 * layers * length * dim)   # causal: half of 12 T D


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {args.threads} threads, f32, {args.pairs} turns of {args.steps} steps")
    print(f"{'model':<11} {'colauto tok/s':>14} {'eager':>9} {'compile':>9} {'vs eager':>9} {'vs compile':>11}"
          f" {'GFLOP/s':>8} {'of GEMM':>8}")
    for name, (program, settings, rows, length, vocab, make) in BENCHMARKS.items():
        if args.only and name != args.only:
            continue
        model = make()
        flops = flops_per_step(model, rows, length)
        eager = trainer(model, vocab, rows, length, False)
        compiled = None if args.no_compile else trainer(make(), vocab, rows, length, True)
        if compiled:
            compiled()
        eager()
        turns, gemm = [], 0.0
        for _ in range(args.pairs):
            gemm = max(gemm, gemm_rate())
            turns.append((colauto_turn(program, settings, args.steps, args.threads), torch_turn(eager, args.steps),
                          torch_turn(compiled, args.steps) if compiled else None))
        ours, theirs = (statistics.median(turn[i] for turn in turns) for i in (0, 1))
        tokens = rows * length
        fast = against_fast = "-"
        if compiled:
            fast = f"{tokens / statistics.median(f for _, _, f in turns):.0f}"
            against_fast = f"{statistics.median(f / c for c, _, f in turns):.2f}x"
        print(f"{name:<11} {tokens / ours:>14.0f} {tokens / theirs:>9.0f} {fast:>9}"
              f" {statistics.median(e / c for c, e, _ in turns):>8.2f}x {against_fast:>11}"
              f" {flops / ours / 1e9:>8.0f} {flops / ours / gemm:>7.0%}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
