"""assignment.setup_times: a hand-worked case, the exact kernel against brute force, and the published sets."""

from __future__ import annotations

import csv
import itertools
from dataclasses import replace

import numpy as np
import pytest

import hetopt
from hetopt.algorithms.setup_times import anneal_sequences, best_sequences, sequence_loads
from hetopt.io import importers
from hetopt.io.results import decode_result, encode_result


def test_order_decides_by_hand():
    """Two jobs of 2 on one machine: 0 then 1 needs a setup of 5, 1 then 0 of 1; so 2 + 1 + 2 = 5."""
    instance = hetopt.Instance.from_times(
        [[2.0], [2.0]], tables={"setup": [[[0, 5], [1, 0]]]}, question={"objective": "setup-makespan"}
    )
    result = hetopt.solve(instance)
    assert (result.status, result.objective) == ("optimal", 5.0)
    assert result.solution.start.tolist() == [3.0, 0.0]


def test_a_setup_cut_short_is_caught():
    """The second job starting a second too early is named, with the moment it may start."""
    instance = hetopt.Instance.from_times(
        [[2.0], [2.0]], tables={"setup": [[[0, 5], [1, 0]]]}, question={"objective": "setup-makespan"}
    )
    early = hetopt.Solution(placement=np.zeros(2, np.int64), start=np.array([2.0, 0.0]))
    with pytest.raises(hetopt.VerificationError, match="end at 3"):
        hetopt.verify(instance, early)


@pytest.mark.parametrize("method", ["subsets", "cpsat", "milp", "annealing"])
def test_jobs_of_no_length_are_told_apart_by_their_sequence(method):
    """Three jobs at moment 0 in the order 2, 1, 0 need no setup; any other order needs one. The starts do not tell."""
    setup = [[0, 7, 7], [0, 0, 7], [7, 0, 0]]
    instance = hetopt.Instance.from_times(
        [[0.0], [0.0], [0.0]], tables={"setup": [setup]}, question={"objective": "setup-makespan"}
    )
    result = hetopt.solve(instance, method=method)
    assert result.objective == 0.0
    assert not [told for told in result.messages if "rejected" in told]
    hetopt.verify(instance, decode_result(encode_result(result, instance), instance))
    wrong = {"sequence": {instance.device_names[0]: [*instance.labels]}}
    with pytest.raises(hetopt.VerificationError, match="setup"):
        hetopt.verify(instance, replace(result.solution, details=wrong))
    for useless in ({"sequence": 5}, {"sequence": {"no": []}}, {"sequence": {instance.device_names[0]: [1, None, []]}}):
        with pytest.raises(hetopt.VerificationError, match="setup"):
            hetopt.verify(instance, replace(result.solution, details=useless))


@pytest.mark.parametrize("seed", range(40))
def test_kernel_equals_brute_force(seed):
    """All assignments in all orders on tiny instances; annealing is never better."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    time, setup = rng.integers(0, 15, (n, m)).astype(float), rng.integers(0, 10, (m, n, n)).astype(float)
    time[(rng.random((n, m)) < 0.2) & (np.arange(m) != rng.integers(0, m, (n, 1)))] = np.inf
    best = min(
        sequence_loads(time, setup, machine, np.argsort(order)).max()
        for machine in itertools.product(*(np.flatnonzero(np.isfinite(row)) for row in time))
        for order in itertools.permutations(range(n))
    )
    exact = best_sequences(time, setup)
    assert exact.makespan == best == sequence_loads(time, setup, exact.machine, exact.position).max()
    annealed = anneal_sequences(time, setup, seed=seed, rounds=1)
    assert annealed.makespan == sequence_loads(time, setup, annealed.machine, annealed.position).max() >= best


@pytest.mark.parametrize("power", [-30, 0, 40])
def test_units_do_not_matter(power):
    """Times of nanoseconds or of 10^12 seconds: the models' optimum is the exact one, and the LP's bound scales."""
    rng = np.random.default_rng(3)
    time, setup = rng.integers(1, 60, (5, 3)), rng.integers(0, 9, (3, 5, 5))
    unit = 2.0**power
    instance, plain = (
        hetopt.Instance.from_times(
            (time * scale).tolist(),
            tables={"setup": (setup * scale).tolist()},
            question={"objective": "setup-makespan"},
        )
        for scale in (unit, 1.0)
    )
    result = hetopt.solve(instance, method="milp")
    assert (result.status, result.objective) == ("optimal", unit * hetopt.solve(plain).objective)
    scaled, bound = (hetopt.solve(one, method="lp").bound for one in (instance, plain))
    assert scaled / unit == pytest.approx(bound, abs=1)  # whole times are rounded up to whole values
    assert scaled / unit > bound - 1


def test_published_small_sets(data_dir):
    """Vallada and Ruiz's small sets: the listed optimum, proved and verified.

    One listed value is not the optimum: for I_12_5_S_1-99_3 a plan of 75 stands where 80 is listed.
    """
    folder = data_dir / "vallada-ruiz"
    with (folder / "best_known_small.csv").open() as stream:
        listed = {row["instance"]: int(row["makespan"]) for row in csv.DictReader(stream)}
    load = importers.get("upmsp").load
    different = {}
    for file in [*sorted((folder / "small").glob("*.txt"))[::4], folder / "small" / "I_12_5_S_1-99_3.txt"]:
        instance = load(file)
        result = hetopt.solve(instance)
        assert result.status == "optimal"
        hetopt.verify(instance, result)
        if result.objective != listed[file.stem]:
            different[file.stem] = result.objective
    assert different == {"I_12_5_S_1-99_3": 75.0}
