"""tools/bench_scale.py: training speed on 1, 2, 4 and 8 devices that share this machine's cores.

For each program and plan the device counts take turns, `--rounds` times; a turn is `--steps` steps after one
that is not counted. Printed are medians over turns: tokens/s, the ratio to the same round's single device
(which has all cores), and where a step goes (of its predicted and measured seconds): compute, communication
that the device waits for, the optimizer, all else. Then, on each number of devices, whether plans come in the
order that was predicted, for every pair predicted more than 10 % apart, and how far `auto` is from the best.
"""

import argparse
import statistics

from bench_runs import PROGRAMS, arguments, train

APART = 1.10


def median(rows, key):
    return statistics.median(key(row) for row in rows)


def step_of(rows):
    return median(rows, lambda r: r["step"]["measured_s"])


def stood(row):
    return sum(c["stood_s"] for c in row["collectives"])


def report(kind, rows, alone):
    plan, devices = kind[1], kind[0]
    ratio = statistics.median(statistics.median(r["rates"]) / statistics.median(one["rates"])
                              for r, one in zip(rows, alone))
    step, predicted = step_of(rows), median(rows, lambda r: r["step"]["predicted_s"])
    parts = [median(rows, lambda r: r["compute"]["measured_s"]), median(rows, stood),
             median(rows, lambda r: r["optimizer"]["measured_s"]), median(rows, lambda r: r["other_s"])]
    shares = " ".join(f"{100 * p / step:>6.0f}%" for p in parts)
    peak = max(rows[-1]["peak"]["measured_bytes"]) / 2**20
    planned = rows[-1]["peak"]["predicted_bytes"] / 2**20
    rate = median(rows, lambda r: statistics.median(r["rates"]))
    print(f"  {plan:<10} {devices:>7} {rate:>9.0f} {ratio:>6.2f}x {1e3 * step:>9.1f} {1e3 * predicted:>9.1f}"
          f" {100 * (predicted / step - 1):>+6.0f}% {shares} {peak:>9.1f} {planned:>9.1f}", flush=True)


def order(devices, results):
    """Pairs of plans predicted more than 10 % apart, and whether they were measured in that order."""
    rows = {plan: results[(n, plan)] for n, plan in results if n == devices and results[(n, plan)]}
    if len(rows) < 2:
        return
    predicted = {plan: median(r, lambda x: x["step"]["predicted_s"]) for plan, r in rows.items()}
    measured = {plan: step_of(r) for plan, r in rows.items()}
    right, wrong = 0, []
    for a in rows:
        for b in rows:
            if predicted[b] <= APART * predicted[a]:
                continue
            if measured[a] < measured[b]:
                right += 1
            else:
                wrong.append(f"{a} before {b}")
    text = f"  {devices} devices: {right} of {right + len(wrong)} pairs in the predicted order"
    if wrong:
        text += f" (not {', '.join(wrong)})"
    if "auto" in measured:
        text += f"; auto is {100 * (measured['auto'] / min(measured.values()) - 1):.0f} % above the best"
    print(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("colauto")
    parser.add_argument("--devices", default="1,2,4,8")
    parser.add_argument("--plans", default="", help="on each number of devices; default: auto, dp, and on 4 all four")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    counts = [int(n) for n in options.devices.split(",")]
    for name, (program, settings) in PROGRAMS.items():
        if options.only not in ("", name):
            continue
        print(f"{name}: {program} {' '.join(f'{k}={v}' for k, v in settings.items())}")
        print(f"  {'plan':<10} {'devices':>7} {'tok/s':>9} {'of one':>7} {'ms':>9} {'predicted':>9} {'off':>7}"
              f" {'compute':>7} {'waits':>7} {'optim':>7} {'else':>7} {'peak MiB':>9} {'predicted':>9}")
        kinds = [(1, "single")]
        for n in counts:
            plans = options.plans.split(",") if options.plans else \
                ["auto", "dp", "megatron", "zero3"] if n == 4 else ["auto", "dp"]
            kinds += [(n, plan) for plan in plans if n > 1]
        results = {kind: [] for kind in kinds}
        failed = {}
        for _ in range(options.rounds):
            for kind in kinds:
                if kind in failed:
                    continue
                result, why = train(options.colauto, arguments(program, settings, *kind), options.steps)
                if result is None:
                    failed[kind] = why
                else:
                    results[kind].append(result)
        for kind in kinds:
            if kind in failed:
                print(f"  {kind[1]:<10} {kind[0]:>7} {failed[kind]}")
            else:
                report(kind, results[kind], results[(1, "single")])
        for n in counts:
            order(n, {kind: rows for kind, rows in results.items() if kind not in failed})


if __name__ == "__main__":
    main()
