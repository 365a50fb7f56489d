"""tools/bench plans: how long plans take and how close to their bound they are, for large models.

Runs `colauto plan` on examples/ for each row and prints batch, sequence, GPUs, the time from start to
printed plan and the memory that planning took, the predicted step, the proven gap and the peak of a
device. A row that has no plan says how much memory is missing. Then the same block 10 and 1,000 times, with
ample memory and with half of what that plan needs: seconds and lines of the printed plan. Nothing is run on
a GPU.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

# program, GPUs, batch rows of a micro-batch, micro-batches
ROWS = [
    ("gpt3-175b", 8, 8, 1),
    ("gpt3-175b", 64, 64, 24),
    ("gpt3-175b", 512, 1536, 1),
    ("gpt3-175b", 1024, 1536, 1),
    ("llama3-8b", 8, 8, 64),
    ("llama3-8b", 64, 64, 8),
    ("llama3-70b", 64, 64, 8),
    ("gpt-1000-layers", 64, 64, 1),
]


def run(binary, program, gpus, batch, micro, extra=("--json",)):
    command = [binary, "plan", f"examples/{program}.cad", "--gpus", str(gpus), "--cluster", "dgx_a100",
               "--set", f"B={batch}", "--set", f"accumulate={micro}", *extra]
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)  # of this child alone
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - start
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, out.read(), err.read()), seconds, usage.ru_maxrss / 1024


def planned(binary, layers, budget):
    """The plan of a GPT of so many layers, seconds from start to printed text (the least of three), its lines."""
    sizes = ("--set", f"L={layers}", "--budget", f"{budget:.0f}B")
    document = json.loads(run(binary, "gpt-1000-layers", 64, 64, 1, ("--json", *sizes))[0].stdout)
    runs = [run(binary, "gpt-1000-layers", 64, 64, 1, sizes) for _ in range(3)]
    return document, min(seconds for _, seconds, _ in runs), runs[0][0].stdout.count("\n")


def depth(binary):
    print(f"\n{'layers':>6} {'memory':<6} {'plan':>8} {'lines':>6} {'step':>9} {'gap':>7} {'peak':>9}")
    base = {}
    for layers in (10, 1000):
        budget = 1e15
        for memory in ("ample", "tight"):
            plan, seconds, lines = planned(binary, layers, budget)
            peak = plan["predicted"]["peak_bytes"]
            budget = peak / 2
            limit = 1.2 * base.setdefault(memory, seconds) + 0.2
            more = "" if layers == 10 else f"  ({limit:.2f} s: 1.2 times that of 10 layers and 0.2 s)"
            print(f"{layers:>6} {memory:<6} {seconds:>6.2f} s {lines:>6} {plan['predicted']['step_s']:>7.3g} s "
                  f"{100 * plan['solver']['gap']:>6.2f}% {peak / 2**30:>5.1f} GiB{more}")


def main():
    binary = sys.argv[1]
    print(f"{'model':<16} {'GPUs':>5} {'batch':>6} {'plan':>8} {'memory':>8} {'step':>9} {'gap':>7} {'peak':>9}  mesh")
    for program, gpus, batch, micro in ROWS:
        done, seconds, memory = run(binary, program, gpus, batch, micro)
        head = f"{program:<16} {gpus:>5} {batch * micro:>6} {seconds:>6.2f} s {memory:>4.0f} MiB "
        if done.returncode == 3:
            found = re.search(r"the least that was found.*", done.stderr)
            print(head + "no plan: " + (found.group(0) if found else done.stderr.strip()))
            continue
        if done.returncode != 0:
            print(head + f"exit {done.returncode}: {done.stderr.strip().splitlines()[0]}")
            continue
        plan = json.loads(done.stdout)
        mesh = ", ".join(f"{a['name']}={a['size']}" for a in plan["mesh"]["axes"])
        p, s = plan["predicted"], plan["solver"]
        print(head + f"{p['step_s']:>7.3g} s {100 * s['gap']:>6.2f}% {p['peak_bytes'] / 2**30:>5.1f} GiB  {mesh}")
    depth(binary)


if __name__ == "__main__":
    main()
