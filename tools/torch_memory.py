"""tools/torch_memory.py: one PyTorch training program on its own: seconds of its steps, and its peak memory.

Prints JSON. The peak is the high-water mark of the process's resident set minus what it was before the model was
made (interpreter and libraries); `--checkpoint` puts torch.utils.checkpoint around every block.
"""

import argparse
import json
import resource
import time

import torch
from torch.utils.checkpoint import checkpoint

from torch_models import BENCHMARKS, trainer


class Checkpointed(torch.nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x, *more):
        return checkpoint(self.block, x, *more, use_reentrant=False)


def resident():
    with open("/proc/self/status") as status:
        return 1024 * int(next(line for line in status if line.startswith("VmRSS")).split()[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--checkpoint", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    start = resident()
    _, _, rows, length, vocab, make = BENCHMARKS[args.model]
    model = make()
    if args.checkpoint:
        model.blocks = torch.nn.ModuleList(Checkpointed(block) for block in model.blocks)
    step = trainer(model, vocab, args.rows or rows, length, False)
    times = []
    for _ in range(args.steps + 1):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
    print(json.dumps({"seconds": times[1:], "peak_bytes": peak}))


if __name__ == "__main__":
    main()
