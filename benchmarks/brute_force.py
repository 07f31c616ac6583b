"""Every question, 200 random small instances each: every method against all plans.

    python benchmarks/brute_force.py [--count 200] [--log FILE] [QUESTION ...]

A question's samples, with its options in turn; the optimum is that of all its plans by its own evaluator. Asserted of each
method: nothing discarded on the way; exact ones prove the optimum or that there is none; bounds are not beyond the optimum,
plans not better; the result read back from its file is verified. (That tampered plans are caught is tests/test_contract.py.) A
line for each question; those in FILE are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("HETOPT_LONG_TESTS", "1")
sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests")]

import test_contract as contract

import hetopt
from hetopt.registry import problem

HEAD = "| question | instances | with a plan | methods | answers | proved | CPU s |\n|---|---|---|---|---|---|---|"


def main() -> int:
    """Print the table; stops at the first contradiction."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="QUESTION")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--log", type=Path)
    asked = parser.parse_args()
    rows = (
        {row["name"]: row for row in map(json.loads, asked.log.read_text().splitlines())}
        if asked.log and asked.log.exists()
        else {}
    )
    print(HEAD)
    for name in asked.names or contract.NAMES:
        if name not in rows:
            rows[name] = question(name, asked.count)
            if asked.log:
                with asked.log.open("a") as log:
                    log.write(json.dumps(rows[name]) + "\n")
        print("| " + " | ".join(str(v) for v in rows[name].values()) + " |", flush=True)
    return 0


def question(name: str, count: int) -> dict[str, object]:
    """One question's row."""
    one, started, planned, answers, proved = problem(name), time.process_time(), 0, 0, 0
    for seed in range(count):
        contract.sample.cache_clear()
        contract.best.cache_clear()
        _, instance, about = contract.sample(name, seed)
        optimum, _ = contract.best(name, seed)
        planned += optimum is not None
        for method in one.methods:
            if method.fits(instance, about) is not None:
                continue
            limit = 0.1 if method.kind in ("search", "heuristic") else 20.0
            result = hetopt.solve(instance, objective=name, method=method.name, time_limit=limit)
            contract.check_result(result, name, seed)
            answers += 1
            if method.kind == "exact":
                proved += result.status in ("optimal", "infeasible")
                if result.status not in ("optimal", "infeasible"):
                    print(f"{name} {seed}: {method.name} ended {result.status}", file=sys.stderr)
    return {
        "name": name, "instances": count, "planned": planned, "methods": len(one.methods), "answers": answers,
        "proved": proved, "seconds": round(time.process_time() - started, 1),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
