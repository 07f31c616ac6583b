"""Least power on a published throughput oracle: jobs on one GPU in pairs, floors of steps a second, assumed watts.

    python benchmarks/energy.py /path/to/simulation_throughputs.json [JOBS ...]

The oracle has no power numbers. Assumed are the boards' limits, 150, 250 and 300 W, and four fifths of them for a job alone;
floors are 15, 30 or 50 % of a job's rate alone on the V100, the cluster n / 3 GPUs of each type. With ``distinct`` floors are
drawn from 15 to 50 %, so that no two jobs are alike.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import hetopt
from hetopt.costs.completing import complete_instance
from hetopt.instance import Instance
from hetopt.io.importers import gavel
from hetopt.records import Device
from hetopt.verify.accelerators import check_accelerators

WATTS = {"k80": 150, "p100": 250, "v100": 300}


def cluster(oracle: str, jobs: int, distinct: bool) -> Instance:
    """The instance of so many jobs."""
    drawn = gavel.load(oracle, jobs=jobs, seed=0, capacity=",".join([str(jobs // 3)] * 3), pairs=True)
    random = np.random.default_rng(3)
    part = random.uniform(0.15, 0.5, jobs) if distinct else random.choice([0.15, 0.3, 0.5], jobs, p=[0.4, 0.4, 0.2])
    fastest = drawn.time[:, drawn.device_index["v100"]]
    floor = {name: float(p / t) for name, p, t in zip(drawn.labels, part, fastest, strict=True)}
    kinds = sorted(set(drawn.tables["kind"].values()))
    watts = [[name, [kind], 0.8 * power] for name, power in WATTS.items() for kind in kinds]
    devices = [Device(name=v.name, slots=v.slots, power=WATTS[v.name]) for v in drawn.devices]
    tables = {**drawn.tables, "floor": floor, "watts": watts}
    return Instance.build(devices, drawn.jobs(), tables=tables, question={"objective": "least-power"})


def doubts(oracle: str, jobs: int) -> None:
    """Plans made from a table of which 30 % was not measured, judged by the whole table."""
    true = cluster(oracle, jobs, distinct=False)
    random = np.random.default_rng(7)
    rows = true.tables["together"]
    gone = random.random(len(rows)) < 0.3
    tables = {
        **true.tables,
        "together": [row for row, away in zip(rows, gone.tolist(), strict=True) if not away],
        "unmeasured_pairs": [row[:3] for row, away in zip(rows, gone.tolist(), strict=True) if away],
    }
    holed = Instance.build(true.devices, true.jobs(), tables=tables, question=true.question)
    best = hetopt.solve(true).objective
    print("all measured:", best, "W; what was measured alone:", hetopt.solve(holed).objective, "W")
    done = complete_instance(holed)
    for caution in (0.0, 1.0, 2.0):
        plan = hetopt.solve(done.instance, options={"caution": caution}).solution
        assert plan is not None
        seen = check_accelerators(true, plan, 0.0, 0.0)
        short = sum(" short" in text for text in seen.violations)
        print(f"completed, caution {caution:g}: {seen.watts} W, {short} of {jobs} floors missed in truth")


def main(arguments: list[str]) -> None:
    """Print a line for each size and method."""
    if not arguments:
        sys.exit("usage: python benchmarks/energy.py ORACLE.json [JOBS ...]")
    doubts(arguments[0], 200)
    for jobs in [int(word) for word in arguments[1:]] or [200, 2000]:
        for distinct in (False, True):
            instance = cluster(arguments[0], jobs, distinct)
            one = hetopt.registry.problem("sharing.energy")
            question = one.question(instance)
            for method in ("greedy", "lp", "milp", "prices"):
                if (why := one.method(method).fits(instance, question)) is not None:
                    print(jobs, "distinct" if distinct else "alike", method, "does not fit:", why, flush=True)
                    continue
                before = time.process_time()
                result = hetopt.solve(instance, method=method, time_limit=120)
                told = {k: v for k, v in result.run.get("model", {}).get(method, {}).items() if k != "nonzeros"}
                print(
                    jobs, "distinct" if distinct else "alike", method, result.status, result.objective, result.bound,
                    result.bound_proof, f"{time.process_time() - before:.2f} CPU s", told, flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
