"""Every question, 200 random small instances each: every method against all plans, and tampered plans against the verifier.

    python benchmarks/brute_force.py [--count 200] [--block 20] [--log FILE] [QUESTION ...]

A question's samples, with its options in turn; the optimum is that of all its plans by its own evaluator. Asserted of each
method: nothing is discarded on the way; bounds are not beyond the optimum, plans not better; "optimal" and "infeasible" are
true; the result read back from its file is verified. Exact methods are to end proved; one that does not is told, and is missing
in the table. Of the best plan found some 40 copies, with a part taken away or one thing changed, are verified: each is refused or
is as good a plan; none is called valid and better than the optimum.

All questions get a block of instances, those that took least so far first, then all the next one, so that after any time all were
tried about alike. Instances in FILE are not run again; `--count 0` prints its table. A contradiction ends the run with exit 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("HETOPT_LONG_TESTS", "1")
sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests"), str(Path(__file__).parent)]

import test_contract as contract
from _clock import ProcessorControl
from tampering import slips

import hetopt
from hetopt import InputError, Solution, VerificationError
from hetopt.registry import problem
from hetopt.result import Result

LIMITS = {"search": 0.05, "heuristic": 0.05}  # processor seconds of what goes on as long as it may
PATIENCE = 20.0  # of the others
TAMPERED = 20  # of each of the two kinds
HEAD = (
    "| question | instances | with a plan | methods | answers | proved | tampered plans caught | as good | CPU s |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def main() -> int:
    """Run the blocks that are missing, then print the table; 1 at the first contradiction."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="QUESTION")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--block", type=int, default=20)
    parser.add_argument("--log", type=Path)
    asked = parser.parse_args()
    names = asked.names or contract.NAMES
    rows = [json.loads(line) for line in asked.log.read_text().splitlines()] if asked.log and asked.log.exists() else []
    done = {(row["name"], seed) for row in rows for seed in range(*row["seeds"])}
    for first in range(0, asked.count, asked.block):
        for name in sorted(names, key=lambda name: _cost(rows, name)):
            seeds = [s for s in range(first, min(first + asked.block, asked.count)) if (name, s) not in done]
            if not seeds:
                continue
            try:
                row = {"name": name, "seeds": [seeds[0], seeds[-1] + 1], **block(name, seeds)}
            except AssertionError as error:
                print(f"contradiction: {error}", file=sys.stderr)
                return 1
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
            if asked.log:
                with asked.log.open("a") as log:
                    log.write(json.dumps(row) + "\n")
    print(HEAD)
    for name in names:
        total = Counter[str]()
        for row in rows:
            if row["name"] == name:
                total.update({key: value for key, value in row.items() if key not in ("name", "seeds")})
        print(
            f"| {name} | {total['instances']} | {total['planned']} | {len(problem(name).methods)} | {total['answers']} | "
            f"{total['proved']} of {total['exact']} | {total['caught']} of {total['tampered']} | {total['as good']} | "
            f"{total['seconds']:.0f} |"
        )
    return 0


def _cost(rows: list[dict[str, Any]], name: str) -> float:
    """Seconds an instance so far."""
    own = [row for row in rows if row["name"] == name]
    return sum(row["seconds"] for row in own) / max(1, sum(row["instances"] for row in own))


def block(name: str, seeds: list[int]) -> dict[str, float]:
    """Counts of one question's instances; AssertionError, with the question, sample and method, at a contradiction."""
    started, count = time.process_time(), Counter[str](instances=len(seeds))
    one = problem(name)
    for seed in seeds:
        contract.sample.cache_clear()
        contract.best.cache_clear()
        try:
            _, instance, about = contract.sample(name, seed)
        except InputError:  # options that the question refuses together
            count["instances"] -= 1
            continue
        optimum, _ = contract.best(name, seed)
        count["planned"] += optimum is not None
        best: Result | None = None
        for method in one.methods:
            if method.fits(instance, about) is not None:
                continue
            clock = ProcessorControl(LIMITS.get(method.kind, PATIENCE))
            result = hetopt.solve(instance, objective=name, method=method.name, control=clock)
            try:
                contract.check_result(result, name, seed)
            except Exception as error:
                raise AssertionError(f"{name}, sample {seed}, {method.name}: {error}") from error
            count["answers"] += 1
            if method.kind == "exact":
                count["exact"] += 1
                count["proved"] += result.status in ("optimal", "infeasible")
                if result.status not in ("optimal", "infeasible"):
                    print(f"{name}, sample {seed}: {method.name} ended {result.status}", file=sys.stderr)
            if result.solution is not None and (best is None or better(result, best)):
                best = result
        if best is not None:
            count.update(caught_of(name, seed, best))
    return {**count, "seconds": round(time.process_time() - started, 1)}


def better(result: Result, than: Result) -> bool:
    """Whether its plan is better."""
    return result.objective < than.objective if result.sense == "min" else result.objective > than.objective


def tampered(name: str, seed: int, plan: Solution) -> Iterator[Solution | str]:
    """Some of the contract's damages and some slips; a sentence where a file's reader would refuse the plan."""
    instance = contract.sample(name, seed)[1]
    damages = contract.damages(plan)
    yield from damages[:: max(1, len(damages) // TAMPERED)][:TAMPERED]
    yield from slips(instance, plan, seed, TAMPERED)


def caught_of(name: str, seed: int, result: Result) -> Counter[str]:
    """How many tampered plans were tried, refused, and as good as the plan; AssertionError at one that is neither."""
    one, instance, question = contract.sample(name, seed)
    optimum, _ = contract.best(name, seed)
    bare = replace(result, bound=None, bound_proof="none", certificate=None)
    count = Counter[str]()
    for plan in tampered(name, seed, result.solution):
        count["tampered"] += 1
        if isinstance(plan, str):
            count["caught"] += 1
            continue
        where = f"{name}, sample {seed}, tampered plan {plan}"
        try:
            judged = one.judge(instance, question, plan)
        except InputError:
            judged = None
        if judged is not None and not judged.violations:
            assert contract.not_beyond(optimum, judged.value, one.sense), (
                f"{where}: value {judged.value} beats {optimum}"
            )
        try:
            report = hetopt.verify(instance, replace(bare, solution=plan))
        except (VerificationError, InputError) as error:
            assert str(error).strip(), f"{where}: refused without a word"
            count["caught"] += 1
        else:
            assert contract.same(report.objective, result.objective), f"{where}: passed with value {report.objective}"
            count["as good"] += 1
    return count


if __name__ == "__main__":
    sys.exit(main())
