"""Water filling: levels by hand, against another solver's, and proofs of rounds that do not hold."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hetopt
from formulations.sharing._water_programs import by_simplex
from formulations.sharing._water_rounds import fill
from formulations.sharing.water_filling import PROBLEM
from hetopt import InputError, Instance, VerificationError
from hetopt.io import generators
from hetopt.records import Device, Job


def cluster(
    jobs: list[dict[str, Any]], workers: list[int], tables: dict[str, Any] | None = None, **asked: Any
) -> Instance:
    devices = [Device(name="abc"[i], slots=w) for i, w in enumerate(workers)]
    records = [Job(name=f"j{k}", **job) for k, job in enumerate(jobs)]
    return Instance.build(devices, records, tables=tables or {}, question={"objective": "water-filling", **asked})


def levels(instance: Instance) -> list[float]:
    result = hetopt.solve(instance)
    assert result.status == "optimal", result.messages
    hetopt.verify(instance, result)
    return [float(result.evaluation["levels"][label]) for label in instance.labels]


def test_a_job_with_less_to_gain_does_not_hold_up_the_others() -> None:
    """Job 0 runs on a only (one worker, to itself), 1 and 2 on b: p = 1/2 each; levels 2, then 1 and 1."""
    instance = cluster([{"time": [1, None]}, {"time": [None, 1]}, {"time": [None, 1]}], [1, 1])
    assert levels(instance) == pytest.approx([2, 1, 1], rel=1e-6)


def test_weights_share_what_binds() -> None:
    """One worker, weights 1 and 3: 1/4 and 3/4."""
    assert levels(cluster([{"time": [1]}, {"time": [1], "weight": 3}], [1])) == pytest.approx([0.25, 0.75], rel=1e-6)


def test_what_a_full_job_leaves_goes_to_the_others() -> None:
    """Two workers, weights 1, 1 and 6: the third is full at 1 of its time, the others share the second worker."""
    jobs: list[dict[str, Any]] = [{"time": [1]}, {"time": [1]}, {"time": [1], "weight": 6}]
    assert levels(cluster(jobs, [2])) == pytest.approx([0.5, 0.5, 1], rel=1e-6)


@pytest.mark.parametrize("workers", [10**3, 10**6, 10**9, 10**12])
def test_a_type_far_larger_than_all_jobs(workers: int) -> None:
    """Every job has its best type all the time, and the average worker is one of the large type."""
    instance = cluster([{"time": [1, 2]}, {"time": [2, 2]}, {"time": [3, 2]}], [workers, 2])
    assert levels(instance) == pytest.approx([1, 1, 1.5], rel=1e-2)


@pytest.mark.parametrize("scale", [1e3, 1e6, 1e9])
def test_a_job_far_larger_than_the_cluster(scale: float) -> None:
    """Jobs 1 and 2 are as well off as alone on their best type, job 0 has the two workers that they leave."""
    instance = cluster([{"time": [1, 1], "scale": scale}, {"time": [1, 1]}, {"time": [1, 1]}], [2, 2])
    assert levels(instance) == pytest.approx([2, 1, 1], rel=1e-6)


ENTITIES = {"entity": {"j0": "x", "j1": "x", "j2": "y"}, "entities": {"x": 1, "y": 3}}


def test_owners_share_first_then_their_jobs() -> None:
    """Weights 1 and 3 of owners: a quarter of the worker to x, an eighth to each of its jobs."""
    instance = cluster([{"time": [1]}] * 3, [1], ENTITIES)
    assert levels(instance) == pytest.approx([1 / 8, 1 / 8, 3 / 4], rel=1e-6)


def test_owners_may_serve_their_first_job() -> None:
    """By release, j1 is x's first: it has x's quarter, and j0 nothing."""
    jobs: list[dict[str, Any]] = [{"time": [1], "release": 5}, {"time": [1]}, {"time": [1]}]
    instance = cluster(jobs, [1], ENTITIES, within="first-in-first-out")
    assert levels(instance) == pytest.approx([0, 1 / 4, 3 / 4], abs=1e-6)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("owners", [0, 3])
def test_levels_are_those_of_another_solver(seed: int, owners: int) -> None:
    made = generators.get("cluster").make(jobs=18, seed=seed, workers=2)
    tables = {"entity": {name: f"e{k % owners}" for k, name in enumerate(made.labels)}} if owners else {}
    instance = Instance.build(made.devices, list(made.jobs()), tables=tables, question={"objective": "water-filling"})
    question = PROBLEM.question(instance)
    other = fill(instance, question, by_simplex, lambda: False)
    assert other is not None
    evaluation = PROBLEM.evaluate(instance, question, other)
    assert not evaluation.violations
    assert levels(instance) == pytest.approx(list(evaluation.details["levels"].values()), rel=1e-5, abs=1e-9)


def test_the_first_level_is_that_of_max_min_fairness() -> None:
    instance = generators.get("cluster").make(jobs=40, seed=2)
    worst = hetopt.solve(instance, objective="max-min-fairness").objective
    assert hetopt.solve(instance, objective="water-filling").objective == pytest.approx(worst, rel=1e-6)


class TestProofs:
    def broken(self, change: Any) -> None:
        instance = generators.get("cluster").make(jobs=12, seed=4)
        result = hetopt.solve(instance, objective="water-filling")
        assert result.solution is not None
        rounds = deepcopy(list(result.solution.details["rounds"]))
        change(rounds)
        plan = replace(result.solution, details={"rounds": rounds})
        with pytest.raises(VerificationError):
            hetopt.verify(instance, replace(result, solution=plan))

    def test_a_round_left_out(self) -> None:
        self.broken(lambda rounds: rounds.pop())
        self.broken(lambda rounds: rounds.pop(0))

    def test_a_rise_too_small_or_too_large(self) -> None:
        self.broken(lambda rounds: rounds[0].update(rise=rounds[0]["rise"] * 0.999))
        self.broken(lambda rounds: rounds[0].update(rise=rounds[0]["rise"] * 1.001))

    def test_a_job_stopped_too_early(self) -> None:
        def change(rounds: list[dict[str, Any]]) -> None:
            rounds[0]["frozen"] = [*rounds[0]["frozen"], *rounds[-1]["frozen"]]
            rounds.pop()

        self.broken(change)

    def test_prices_that_prove_less(self) -> None:
        self.broken(lambda rounds: rounds[-1].update(types=dict.fromkeys(rounds[-1]["types"], 1e3)))
        self.broken(lambda rounds: rounds[-1].update(jobs={}))

    def test_shares_that_give_less(self) -> None:
        instance = generators.get("cluster").make(jobs=12, seed=4)
        result = hetopt.solve(instance, objective="water-filling")
        assert result.solution is not None
        assert result.solution.shares is not None
        for k in range(instance.n_tasks):
            shares = np.array(result.solution.shares)
            shares[k] *= 0.999
            with pytest.raises(VerificationError):
                hetopt.verify(instance, replace(result, solution=replace(result.solution, shares=shares)))


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"entity": {"j0": "x"}}, "no entity for the job 'j1'"),
        ({"entity": ["x"]}, "must be an entity by job"),
        ({"entity": {"j0": "x", "j1": "x"}, "entities": {"x": 0}}, "expected a weight above 0"),
    ],
)
def test_damaged_tables_are_told(tables: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        hetopt.solve(cluster([{"time": [1]}] * 2, [1], tables))
