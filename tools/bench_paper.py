"""tools/bench paper: the experiment of arXiv 2302.02599 as the planner predicts it.

GPT-2 of four layers, width 2048 to 16384, on 1 to 8 A100 of a box whose GPUs are joined in NVLink pairs
(examples/colossal-auto/). For each plan: the step, PFLOPS of the whole machine counted as the paper does
(8 FLOPs a parameter and token: full recomputation) and at 6, the peak of a device, OOM where it does not
fit, and the megabytes that a step moves over the pairs' links and over PCIe. No constant knows these runs.
"""
import json
import subprocess
import sys

ROWS = [("gpt2-2048", 1), ("gpt2-4096", 2), ("gpt2-8192", 4), ("gpt2-16384", 8)]
NAMES = {"dp": "DDP", "megatron": "Megatron", "tp2d": "Optimus 2-D", "tp3d": "3-D", "auto": "auto"}
LENGTH = 1024


def plan(binary, program, gpus, name):
    done = subprocess.run([binary, "plan", f"examples/colossal-auto/{program}.cad", "--gpus", str(gpus), "--cluster", "pairs",
                           "--plan", name, "--json", "--budget", "1TB"], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def links(document):
    """Megabytes a device moves inside its pair and over PCIe: an axis joins neighbours if it is the last one."""
    sizes = {a["name"]: a["size"] for a in document["mesh"]["axes"]}
    last = list(sizes)[-1] if sizes else ""
    inside = across = 0.0
    for c in document["collectives"]:
        axes = c["axis"].split("+")
        group = 1
        for a in axes:
            group *= sizes[a]
        volume = c["bytes"] * c["count"] * (group - 1) / group * (2 if c["kind"] == "all-reduce" else 1)
        if axes == [last] and sizes[last] == 2:
            inside += volume
        else:
            across += volume
    return inside / 1e6, across / 1e6


def main():
    binary = sys.argv[1]
    budget = 0.9 * 80e9
    print("predicted; batch and parameters of the examples, 80 GB a device of which 0.9 may be used")
    print(f"{'model':<11} {'GPUs':>4} {'plan':<12} {'step':>9} {'PFLOPS x8':>10} {'PFLOPS x6':>10} {'peak':>9}  {'pair links':>11} {'PCIe':>9}")
    for program, gpus in ROWS:
        params = subprocess.run([binary, "params", f"examples/colossal-auto/{program}.cad", "--json"], capture_output=True, text=True, check=True)
        count = json.loads(params.stdout)["params"]
        rows = next(int(line.split()[1]) for line in open(f"examples/colossal-auto/{program}.cad") if line.strip().startswith("B:"))
        for name, shown in NAMES.items():
            document = plan(binary, program, gpus, name)
            head = f"{program:<11} {gpus:>4} {shown:<12} "
            if document is None:
                print(head + f"{'-':>9} no such plan on {gpus} device{'s' if gpus > 1 else ''}")
                continue
            p = document["predicted"]
            rate = count * rows * LENGTH / p["step_s"] / 1e15
            inside, across = links(document)
            oom = "  OOM" if p["peak_bytes"] > budget else ""
            print(head + f"{1e3 * p['step_s']:>6.0f} ms {8 * rate:>10.3f} {6 * rate:>10.3f} {p['peak_bytes'] / 1e9:>6.1f} GB  {inside:>8.0f} MB {across:>6.0f} MB{oom}")


if __name__ == "__main__":
    main()
