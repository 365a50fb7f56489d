"""tools/bench plans: how long plans take and how close to their bound they are, for large models.

Runs `colauto plan` on examples/ for each row and prints batch, sequence, GPUs, the time from start to
printed plan and the memory that planning took, the predicted step, the proven gap and the peak of a
device. A row that has no plan says how much memory is missing. Then the same block 10 and 1,000 times, with
ample memory and with half of what that plan needs: seconds and lines of the printed plan. Nothing is run on
a GPU. Ends with a line for each limit that does not hold, and then with status 1: a gap of at most 1 %,
GPT-3 175B on 64 GPUs in less than 2 s and on 1,024 in less than 10 s, none on 8, and 1,000 layers in
1.2 times the time of 10 and 0.2 s, in no more lines. A time is the least of three where it has a limit.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

# program, sequence, GPUs, batch rows of a micro-batch, micro-batches
ROWS = [
    ("gpt3-175b", 2048, 8, 8, 1),
    ("gpt3-175b", 2048, 64, 64, 24),
    ("gpt3-175b", 2048, 512, 1536, 1),
    ("gpt3-175b", 2048, 1024, 1536, 1),
    ("llama3-8b", 8192, 8, 8, 64),
    ("llama3-8b", 8192, 64, 64, 8),
    ("llama3-70b", 8192, 64, 64, 8),
    ("gpt-1000-layers", 2048, 64, 64, 1),
]
NO_PLAN = {("gpt3-175b", 8)}  # by program and GPUs
SECONDS = {("gpt3-175b", 64): 2, ("gpt3-175b", 1024): 10}
GAP = 0.01
DEEP = ("gpt-1000-layers", 2048, 64, 64, 1)


def run(binary, program, sequence, gpus, batch, micro, extra=("--json",)):
    command = [binary, "plan", f"examples/{program}.cad", "--gpus", str(gpus), "--cluster", "dgx_a100",
               "--set", f"T={sequence}", "--set", f"B={batch}", "--set", f"accumulate={micro}", *extra]
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
    document = json.loads(run(binary, *DEEP, ("--json", *sizes))[0].stdout)
    runs = [run(binary, *DEEP, sizes) for _ in range(3)]
    return document, min(seconds for _, seconds, _ in runs), runs[0][0].stdout.count("\n")


def depth(binary):
    """The table of 10 and 1,000 layers; a line for each limit that does not hold."""
    print(f"\n{'layers':>6} {'memory':<6} {'plan':>8} {'lines':>6} {'step':>9} {'gap':>7} {'peak':>9}")
    base, broken = {}, []
    for layers in (10, 1000):
        budget = 1e15
        for memory in ("ample", "tight"):
            plan, seconds, lines = planned(binary, layers, budget)
            peak, gap = plan["predicted"]["peak_bytes"], plan["solver"]["gap"]
            budget = peak / 2
            few_seconds, few_lines = base.setdefault(memory, (seconds, lines))
            limit = 1.2 * few_seconds + 0.2
            more = "" if layers == 10 else f"  ({limit:.2f} s: 1.2 times that of 10 layers and 0.2 s)"
            print(f"{layers:>6} {memory:<6} {seconds:>6.2f} s {lines:>6} {plan['predicted']['step_s']:>7.3g} s "
                  f"{100 * gap:>6.2f}% {peak / 2**30:>5.1f} GiB{more}")
            name = f"{layers} layers, {memory} memory"
            if gap > GAP:
                broken.append(f"{name}: a gap of {100 * gap:.2f} %, at most {100 * GAP:g} %")
            if seconds > limit:
                broken.append(f"{name}: planned in {seconds:.2f} s, at most {limit:.2f} s")
            if lines > few_lines:
                broken.append(f"{name}: {lines} lines, at most {few_lines}")
    return broken


def line(binary, program, sequence, gpus, batch, micro):
    """Prints a row; a line for each limit that does not hold."""
    row, limit = (program, gpus), SECONDS.get((program, gpus))
    runs = [run(binary, program, sequence, gpus, batch, micro) for _ in range(3 if limit else 1)]
    done, seconds, memory = min(runs, key=lambda each: each[1])
    name = f"{program} on {gpus} GPUs"
    head = f"{program:<16} {gpus:>5} {batch * micro:>6} {sequence:>8} {seconds:>6.2f} s {memory:>4.0f} MiB "
    if done.returncode == 3:
        found = re.search(r"the least that was found.*", done.stderr)
        print(head + "no plan: " + (found.group(0) if found else done.stderr.strip()))
        if row not in NO_PLAN:
            return [f"{name}: no plan"]
        return [] if found and " more" in found.group(0) else [f"{name}: it is not said how much memory is missing"]
    if done.returncode != 0:
        print(head + f"exit {done.returncode}: {(done.stderr.strip() or 'no message').splitlines()[0]}")
        return [f"{name}: exit {done.returncode}"]
    plan = json.loads(done.stdout)
    mesh = ", ".join(f"{a['name']}={a['size']}" for a in plan["mesh"]["axes"])
    p, s = plan["predicted"], plan["solver"]
    print(head + f"{p['step_s']:>7.3g} s {100 * s['gap']:>6.2f}% {p['peak_bytes'] / 2**30:>5.1f} GiB  {mesh}")
    broken = []
    if row in NO_PLAN:
        broken.append(f"{name}: there is a plan, and should be none")
    if s["gap"] > GAP:
        broken.append(f"{name}: a gap of {100 * s['gap']:.2f} %, at most {100 * GAP:g} %")
    if limit and seconds >= limit:
        broken.append(f"{name}: planned in {seconds:.2f} s, not in less than {limit} s")
    return broken


def main():
    binary = sys.argv[1]
    print(f"{'model':<16} {'GPUs':>5} {'batch':>6} {'sequence':>8} {'plan':>8} {'memory':>8} {'step':>9} {'gap':>7} "
          f"{'peak':>9}  mesh")
    broken = [each for row in ROWS for each in line(binary, *row)]
    broken += depth(binary)
    print()
    for each in broken:
        print("does not hold: " + each)
    if not broken:
        print("every limit holds")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
