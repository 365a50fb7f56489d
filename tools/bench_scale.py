"""tools/bench_scale.py: training speed on 1, 2, 4 and 8 devices that share this machine's cores.

For each program and plan the device counts take turns, `--rounds` times; a turn is `--steps` steps after
one that is not counted. Printed: the median over turns of tokens/s, the median of the ratios to the same
round's single device (which has all cores), the predicted and measured peak, and the predicted step.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

PROGRAMS = {
    "gpt": ("examples/gpt.cad", {}),
    "gpt2-124m": ("examples/gpt2-124m.cad", {"B": "4", "T": "256", "accumulate": "1"}),
}


def turn(colauto, program, settings, devices, plan, steps):
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log.jsonl")
        command = [colauto, "run", program, "--devices", str(devices), "--steps", str(steps + 1), "--log", log,
                   "--save", os.path.join(folder, "save"), "--quiet"]
        if devices > 1:
            command += ["--plan", plan]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            return None, done.stderr.strip().splitlines()[0]
        events = [json.loads(line) for line in open(log)]
    rates = [e["tokens_per_s"] for e in events if e["event"] == "step" and e["step"] > 1]
    end = events[-1]
    return (statistics.median(rates), max(end["peak_bytes"]), end["predicted_peak_bytes"]), ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("colauto")
    parser.add_argument("--devices", default="1,2,4,8")
    parser.add_argument("--plans", default="dp,megatron,zero3,auto")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    counts = [int(n) for n in options.devices.split(",")]
    for name, (program, settings) in PROGRAMS.items():
        if options.only not in ("", name):
            continue
        print(f"{name}: {program} {' '.join(f'{k}={v}' for k, v in settings.items())}")
        print(f"  {'plan':<10} {'devices':>7} {'tok/s':>9} {'of one':>7} {'peak MiB':>9} {'predicted':>9}")
        kinds = [(1, "single")] + [(n, plan) for n in counts if n > 1 for plan in options.plans.split(",")]
        results = {kind: [] for kind in kinds}
        failed = {}
        for _ in range(options.rounds):
            for kind in kinds:
                if kind in failed:
                    continue
                result, why = turn(options.colauto, program, settings, kind[0], kind[1], options.steps)
                if result is None:
                    failed[kind] = why
                else:
                    results[kind].append(result)
        for kind in kinds:
            devices, plan = kind
            if kind in failed:
                print(f"  {plan:<10} {devices:>7} {failed[kind]}")
                continue
            rates = [r[0] for r in results[kind]]
            ratios = [r[0] / one[0] for r, one in zip(results[kind], results[(1, 'single')])]
            peak, predicted = results[kind][-1][1:]
            print(f"  {plan:<10} {devices:>7} {statistics.median(rates):>9.0f} {statistics.median(ratios):>6.2f}x "
                  f"{peak / 2**20:>9.1f} {predicted / 2**20:>9.1f}", flush=True)


if __name__ == "__main__":
    main()
