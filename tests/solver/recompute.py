#!/usr/bin/env python3
"""recompute.py INSTANCE RESULT: reads a problem file (.json or .json.gz) and the output of
`colauto solve --json` and computes cost and memory of the choices again, with nothing of colauto.
Prints cost, peak and budget; status 1 when they are not what the result says, or when it has choices
and a status that do not go together."""
import gzip
import json
import sys

FORBIDDEN = 10**18
SOLVED = ("optimal", "within the gap", "time limit, with a solution",
          "time limit, with a simple solution")
UNSOLVED = ("infeasible", "time limit, without a solution")


def read(path):
    data = open(path, "rb").read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    return json.loads(data)


def main():
    problem = read(sys.argv[1])["problem"]
    result = read(sys.argv[2])
    choices = result["choices"]
    nodes, edges = problem["nodes"], problem["edges"]
    if not choices and nodes["costs"]:
        print(f"no solution: {result['status']}")
        return 0 if result["cost"] is None and result["status"] in UNSOLVED else 1
    if len(choices) != len(nodes["costs"]):
        print(f"wrong: {len(choices)} choices for {len(nodes['costs'])} nodes")
        return 1
    cost = 0
    change = {}
    for i, k in enumerate(choices):
        assert 0 <= k < len(nodes["costs"][i]), f"node {i} has no choice {k}"
        here = nodes["costs"][i][k]
        assert here < FORBIDDEN, f"node {i} takes the forbidden choice {k}"
        cost += here
        interval = nodes["intervals"][i]
        if len(interval) == 2 and interval[0] < interval[1]:
            change[interval[0]] = change.get(interval[0], 0) + nodes["usages"][i][k]
            change[interval[1]] = change.get(interval[1], 0) - nodes["usages"][i][k]
    for (i, j), costs in zip(edges["nodes"], edges["costs"]):
        here = costs[choices[i] * len(nodes["costs"][j]) + choices[j]]
        assert here < FORBIDDEN, f"edge {i}-{j} takes a forbidden pair"
        cost += here
    peak = now = 0
    for time in sorted(change):
        now += change[time]
        peak = max(peak, now)
    budget = problem.get("usage_limit")
    print(f"cost {cost} peak {peak} budget {budget}")
    wrong = []
    if cost != result["cost"]:
        wrong.append(f"the result says cost {result['cost']}")
    if peak != result["peak_bytes"]:
        wrong.append(f"the result says peak {result['peak_bytes']}")
    if budget is not None and peak > budget:
        wrong.append("the peak exceeds the budget")
    if result["bound"] is not None and result["bound"] > cost:
        wrong.append(f"the bound {result['bound']} is above the cost")
    if result["status"] not in SOLVED:
        wrong.append(f"the result has choices and says {result['status']}")
    if result["status"] == "optimal" and result["bound"] != cost:
        wrong.append(f"the result says optimal with a bound of {result['bound']}")
    for line in wrong:
        print("wrong: " + line)
    return 1 if wrong else 0


sys.exit(main())
