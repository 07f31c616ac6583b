"""Shortest job first and the matching of jobs with places in line: by hand, against brute force, proofs broken."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

import hetopt
from formulations.sharing import matching, shortest
from hetopt import InputError, Instance, Solution, VerificationError
from hetopt.records import Device, Job

MANY = 200 if os.environ.get("HETOPT_LONG_TESTS") else 20


def cluster(jobs: list[dict[str, Any]], workers: list[int], objective: str, **asked: Any) -> Instance:
    devices = [Device(name="abc"[i], slots=w) for i, w in enumerate(workers)]
    records = [Job(name=f"j{k}", **{"steps": 1, **job}) for k, job in enumerate(jobs)]
    return Instance.build(devices, records, question={"objective": objective, **asked})


def solved(instance: Instance, **options: Any) -> float:
    result = hetopt.solve(instance, **options)
    assert result.status == "optimal", result.messages
    assert result.objective is not None
    hetopt.verify(instance, result)
    return float(result.objective)


def drawn(seed: int, objective: str, scales: bool) -> Instance:
    random = np.random.default_rng(seed)
    n, m = int(random.integers(1, 6)), int(random.integers(1, 4))
    jobs = []
    for _ in range(n):
        time: list[Any] = [int(t) for t in random.integers(1, 20, m)]
        if m > 1 and random.random() < 0.3:
            time[int(random.integers(m))] = None
        job = {"time": time, "steps": int(random.integers(1, 9)), "release": int(random.integers(0, 9))}
        jobs.append({**job, "scale": int(random.choice([1, 2, 4]))} if scales else job)
    return cluster(jobs, [int(c) for c in random.integers(1, 4, m)], objective)


class TestShortestFirst:
    def test_the_shortest_has_its_fastest_type(self) -> None:
        """6 steps at 3 a second on b: 2 s; the other takes 5."""
        jobs: list[dict[str, Any]] = [{"time": [1, 1 / 3], "steps": 6}, {"time": [1, 1], "steps": 5}]
        result = hetopt.solve(cluster(jobs, [1, 1], "shortest-job-first"))
        assert result.objective == pytest.approx(2)
        assert result.solution is not None
        assert result.solution.shares is not None
        assert result.solution.shares.tolist() == [[0, 1], [1, 0]]

    def test_a_job_of_more_workers_than_a_type_has_runs_part_of_the_time(self) -> None:
        """Scale 4 on two workers of b: half the time at 2 a second, the other half on a at 1: 1.5 a second."""
        assert solved(cluster([{"time": [1, 0.5], "scale": 4, "steps": 3}], [4, 2], "sjf")) == pytest.approx(2)

    @pytest.mark.parametrize("seed", range(MANY))
    def test_against_linear_programs(self, seed: int) -> None:
        instance = drawn(seed, "sjf", scales=True)
        question = shortest.PROBLEM.question(instance)
        best = shortest.PROBLEM.optimum(instance, question)
        assert best is not None
        assert solved(instance) == pytest.approx(
            shortest.PROBLEM.evaluate(instance, question, Solution(shares=best)).value
        )

    def test_nothing_stands_idle_that_a_job_could_use(self) -> None:
        jobs: list[dict[str, Any]] = [{"time": [1], "steps": s} for s in (1, 2, 3)]
        result = hetopt.solve(cluster(jobs, [2], "sjf"))
        assert result.solution is not None
        assert result.solution.shares is not None
        assert result.solution.shares.ravel().tolist() == [1, 1, 0]


def by_orders(instance: Instance) -> float:
    """Least total completion over all types, workers and orders of jobs."""
    n, best = instance.n_tasks, np.inf
    steps = [job.steps for job in instance.jobs()]
    workers = [(j, w) for j, device in enumerate(instance.devices) for w in range(device.slots)]
    for order in permutations(range(n)):
        for at in product(range(len(workers)), repeat=n):
            clock, total = [0.0] * len(workers), 0.0
            for job in order:
                clock[at[job]] += steps[job] * instance.time[job, workers[at[job]][0]]
                total += clock[at[job]]
            best = min(best, total)
    return best / n


class TestMatching:
    def test_short_jobs_go_first(self) -> None:
        """1 and 3 s on one worker: (1 + 4) / 2."""
        jobs: list[dict[str, Any]] = [{"time": [3]}, {"time": [1]}]
        assert solved(cluster(jobs, [1], "mean-completion")) == pytest.approx(2.5)

    def test_a_slower_type_may_be_earlier(self) -> None:
        """Two jobs, 2 s on a, 3 on b: 2 and 3 beat 2 and 4."""
        assert solved(cluster([{"time": [2, 3]}] * 2, [1, 1], "allox")) == pytest.approx(2.5)

    def test_workers_run_side_by_side(self) -> None:
        """1, 2 and 3 s on two workers: 1, 2, 1 + 3."""
        assert solved(cluster([{"time": [t]} for t in (1, 2, 3)], [2], "allox")) == pytest.approx(7 / 3)

    def test_what_was_waited_counts(self) -> None:
        """Waited 10 and 4: (10 + 1 + 4 + 2) / 2."""
        jobs: list[dict[str, Any]] = [{"time": [1]}, {"time": [1], "release": 6}]
        assert solved(cluster(jobs, [1], "allox", now=10.0)) == pytest.approx(8.5)

    @pytest.mark.parametrize("seed", range(MANY))
    def test_against_cvxpy_and_brute_force(self, seed: int) -> None:
        instance = drawn(seed, "allox", scales=False)
        value = solved(instance)
        if seed % 4 == 0:
            assert solved(instance, method="cvxpy") == pytest.approx(value, rel=1e-6)
        if instance.n_tasks <= 4 and sum(device.slots for device in instance.devices) <= 4:
            assert value == pytest.approx(by_orders(instance))
        assert value <= hetopt.solve(instance, method="shortest").objective * (1 + 1e-12)  # type: ignore[operator]

    def test_a_job_moved_is_caught(self) -> None:
        jobs: list[dict[str, Any]] = [{"time": [2, 5]}, {"time": [3, None]}, {"time": [4, 2]}]
        instance = cluster(jobs, [1, 1], "allox")
        result = hetopt.solve(instance)
        assert result.solution is not None
        assert result.solution.start is not None
        assert result.solution.placement is not None
        for k in range(3):
            for change in (-1.0, 1.0, np.nan, np.inf, -100.0):
                start = result.solution.start.copy()
                start[k] += change
                with pytest.raises(VerificationError):
                    hetopt.verify(instance, replace(result, solution=replace(result.solution, start=start)))
            for kind in {-1, 0, 1, 2} - {int(result.solution.placement[k])}:
                moved = result.solution.placement.copy()
                moved[k] = kind
                with pytest.raises(VerificationError):
                    hetopt.verify(instance, replace(result, solution=replace(result.solution, placement=moved)))

    def test_no_prices_prove_too_much(self) -> None:
        instance = drawn(5, "allox", scales=False)
        result = hetopt.solve(instance)
        assert result.certificate is not None
        assert result.objective is not None
        random, one = np.random.default_rng(0), matching.PROBLEM
        for _ in range(60):
            prices = [
                (np.array(q) * random.choice([0, 0.5, 1.01, 2], len(q))).tolist() for q in result.certificate["prices"]
            ]
            bound = one.replay(instance, one.question(instance), {"kind": "place-prices", "prices": prices})
            assert bound <= result.objective
        for broken in ([], [[-1.0]], [[float("nan")]], [[[1.0]]]):
            with pytest.raises(ValueError, match=r"expected|inhomogeneous"):
                one.replay(instance, one.question(instance), {"kind": "place-prices", "prices": broken})

    def test_gangs_are_refused(self) -> None:
        with pytest.raises(InputError, match="takes one worker"):
            hetopt.solve(cluster([{"time": [1], "scale": 2}], [2], "allox"))
