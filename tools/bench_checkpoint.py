"""tools/bench_checkpoint.py: what a smaller memory costs, as planned and as measured, and PyTorch beside it.

Budgets are the state (parameters, gradients, optimizer) plus 60, 40 and 25 % of the rest of what one device needs
without recomputation; on four devices each has a quarter of that. Printed for each: the planned and the measured
peak, and how many times slower a step is than without a budget, predicted and measured (medians of `--steps`). At
25 % of the total four devices should train and one should not. Then PyTorch with every block checkpointed: its
step and its peak, and colauto's step with that peak as its budget.
"""

import argparse
import json
import os
import statistics
import subprocess

from bench_runs import PROGRAMS, arguments, dry_run, first_line, train

MIB = 2**20


def settings_of(name, rows):
    program, settings = PROGRAMS[name]
    return program, {**settings, **({"B": str(rows)} if rows else {})}


def row(devices, label, budget, result, base):
    step, slower = result["step"], result["step"]["measured_s"] / base["step"]["measured_s"]
    predicted = step["predicted_s"] / base["step"]["predicted_s"]
    peak = max(result["peak"]["measured_bytes"])
    print(f"  {devices:>7} {label:>12} {budget / MIB:>11.1f} {result['peak']['predicted_bytes'] / MIB:>9.1f}"
          f" {peak / MIB:>9.1f} {step['measured_s']:>8.2f} {slower:>8.2f}x {predicted:>8.2f}x"
          f" {100 * (predicted / slower - 1):>+6.0f}%", flush=True)


def under_budgets(options, program, settings, devices, memory):
    rest = memory["step_bytes"]
    state = memory["predicted_peak_bytes"] - rest
    base, why = train(options.colauto, arguments(program, settings, devices), options.steps)
    if base is None:
        print(f"  {devices:>7} {why}")
        return None
    row(devices, "no budget", max(base["peak"]["measured_bytes"]), base, base)
    for part in options.parts:
        budget = (state + part * rest) / devices
        result, why = train(options.colauto, arguments(program, settings, devices, budget=budget), options.steps)
        if result is None:
            print(f"  {devices:>7} {f'{100 * part:.0f} % of rest':>12} {budget / MIB:>11.1f} {why}")
        else:
            row(devices, f"{100 * part:.0f} % of rest", budget, result, base)
    return base


def quarter(options, program, settings, total):
    """At 25 % of the total: four devices train, one says what the least budget is."""
    budget = total / 4
    four, why = train(options.colauto, arguments(program, settings, 4, budget=budget), 1)
    if four is None:
        print(f"  25 % of the total ({budget / MIB:.1f} MiB), 4 devices: {why}")
    else:
        print(f"  25 % of the total ({budget / MIB:.1f} MiB), 4 devices: trains, peak"
              f" {max(four['peak']['measured_bytes']) / MIB:.1f} MiB")
    _, why = train(options.colauto, arguments(program, settings, 1, budget=budget), 1)
    print(f"  the same, 1 device: {why or 'trains'}")


def torch_turn(options, rows, checkpointed):
    command = [options.python, "tools/torch_memory.py", options.only, "--steps", str(options.steps), "--rows",
               str(rows), "--threads", str(os.cpu_count())] + (["--checkpoint"] if checkpointed else [])
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return None, first_line(done.stderr)
    result = json.loads(done.stdout)
    return (statistics.median(result["seconds"]), result["peak_bytes"]), ""


def beside_torch(options, program, settings):
    for checkpointed in (False, True):
        name = "PyTorch, blocks checkpointed" if checkpointed else "PyTorch"
        theirs, why = torch_turn(options, int(settings["B"]), checkpointed)
        if theirs is None:
            print(f"  {name}: {why}")
            continue
        seconds, peak = theirs
        print(f"  {name}: {seconds:.2f} s a step, peak {peak / MIB:.1f} MiB")
        ours, why = train(options.colauto, arguments(program, settings, 1, budget=peak), options.steps)
        if ours is None:
            print(f"  colauto within that: {why}")
        else:
            print(f"  colauto within that: {ours['step']['measured_s']:.2f} s a step, peak"
                  f" {max(ours['peak']['measured_bytes']) / MIB:.1f} MiB:"
                  f" {seconds / ours['step']['measured_s']:.2f} times as fast", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("colauto")
    parser.add_argument("--only", default="gpt2-124m", choices=PROGRAMS)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--devices", default="1,4")
    parser.add_argument("--parts", default="0.6,0.4,0.25")
    parser.add_argument("--python", default="", help="one that has PyTorch; none: colauto alone")
    options = parser.parse_args()
    options.parts = [float(part) for part in options.parts.split(",") if part]
    program, settings = settings_of(options.only, options.rows)
    flags = arguments(program, settings, 1, plan="single")
    memory, why = dry_run(options.colauto, flags)
    if memory is None:
        raise SystemExit(why)
    print(f"{options.only}: {' '.join(f'{k}={v}' for k, v in settings.items())}, one device without recomputation"
          f" needs {memory['predicted_peak_bytes'] / MIB:.1f} MiB")
    print(f"  {'devices':>7} {'':>12} {'budget MiB':>11} {'planned':>9} {'measured':>9} {'s/step':>8} {'slower':>9}"
          f" {'predicted':>9} {'off':>7}")
    for devices in (int(n) for n in options.devices.split(",") if n):
        under_budgets(options, program, settings, devices, memory)
    quarter(options, program, settings, memory["predicted_peak_bytes"])
    if options.python:
        beside_torch(options, program, settings)


if __name__ == "__main__":
    main()
