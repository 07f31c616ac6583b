"""Every adapter after every other one in one process: none may crash.

Native libraries of solvers clash (PuLP's import of HiGHS made OR-Tools' copy crash), and whether they do depends on who
comes first. Eight sequences, one process each, hold every ordered pair of adapters as neighbours, and every adapter first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from hetopt import solvers

ROOT = Path(__file__).resolve().parents[2]

# CVXPY twice, because the solver behind it is what is loaded.
RUNS = [name for name in solvers.names() if name != "cvxpy"] + ["cvxpy:CLARABEL", "cvxpy:OSQP"]

CODE = """
import sys
from solver_cases import CASES
from hetopt import solvers
from hetopt.solvers import Options
lp = next(case for case in CASES if case.name == "two-rows-max")
mip = next(case for case in CASES if case.name == "knapsack")
for run in sys.argv[1:]:
    name, _, inner = run.partition(":")
    adapter = solvers.get(name)
    case = mip if {"mip", "cp"} & adapter.capabilities and not inner else lp
    answer = adapter.solve(case.model, Options(native={"solver": inner} if inner else {}, time_limit=30))
    assert abs(answer.objective - case.objective) < 1e-4, (run, answer)
    print(run, flush=True)
"""


def sequences(items: list[str]) -> list[list[str]]:
    """Orders of an even number of items in which each ordered pair is adjacent exactly once (Williams, 1949)."""
    n = len(items)
    zigzag = [0] + [(k + 1) // 2 if k % 2 else n - k // 2 for k in range(1, n)]
    return [[items[(z + shift) % n] for z in zigzag] for shift in range(n)]


def test_the_sequences_hold_every_ordered_pair():
    pairs = [pair for row in sequences(RUNS) for pair in pairwise(row)]
    assert len(pairs) == len(set(pairs)) == len(RUNS) * (len(RUNS) - 1)
    assert {row[0] for row in sequences(RUNS)} == set(RUNS)


@pytest.mark.parametrize("order", sequences(RUNS), ids=lambda order: order[0])
def test_no_order_crashes(order):
    usable = solvers.with_capability()
    order = [run for run in order if run.partition(":")[0] in usable]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "solvers")])}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *order], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout.split()) == (0, order), done.stderr
