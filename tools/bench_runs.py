"""tools/bench_runs.py: short training runs with what the plan predicted beside what was measured, for the benches."""

import json
import os
import subprocess
import tempfile

# A run ends with its evaluations: short ones.
PROGRAMS = {
    "gpt": ("examples/gpt.cad", {}),
    "gpt2-124m": ("examples/gpt2-124m.cad", {"B": "4", "T": "256", "accumulate": "1", "eval.batches": "1"}),
}


def arguments(program, settings, devices, plan="auto", budget=None):
    command = [program, "--devices", str(devices), "--plan", plan]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    return command + (["--budget", f"{int(budget)}B"] if budget else [])


def first_line(text):
    return (text.strip().splitlines() or ["no message"])[0]


def complaint(text):
    """An error with its notes, on one line."""
    lines = [line.strip(" =") for line in text.strip().splitlines()]
    return "; ".join(line for line in lines if line.startswith(("error", "note"))) or "no message"


def in_memory():
    """A folder for checkpoints: what one run wrote to a disk slows down the next one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def train(colauto, flags, steps):
    """`steps` steps after one that is not counted. The comparison of `--compare-plan --json`, and tokens/s
    of every step; or None and what was said instead."""
    with tempfile.TemporaryDirectory(dir=in_memory()) as folder:
        command = [colauto, "run", *flags, "--steps", str(steps + 1), "--compare-plan", "--json", "--quiet",
                   "--save", os.path.join(folder, "save")]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return None, f"exit {done.returncode}: {complaint(done.stderr)}"
    events = [json.loads(line) for line in done.stdout.splitlines()]
    comparison = next(e for e in events if e["event"] == "comparison")
    comparison["rates"] = [e["tokens_per_s"] for e in events if e["event"] == "step"][1:]
    comparison["ms"] = [e["ms"] for e in events if e["event"] == "step"][1:]
    return comparison, ""


def dry_run(colauto, flags):
    """What `run --dry-run --json` says, with its memory; or None and what was said instead."""
    done = subprocess.run([colauto, "run", *flags, "--dry-run", "--json"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return None, f"exit {done.returncode}: {done.stderr.strip()}"
    return json.loads(done.stdout), ""
