"""Nash welfare and strategy-proof shares: by hand, against other solvers, what a false report would bring, proofs broken."""

from __future__ import annotations

import math
import os
from copy import deepcopy
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

import hetopt
from formulations.sharing import nash
from hetopt import InputError, Instance, Solution, VerificationError
from hetopt.io import generators
from hetopt.records import Device, Job

MANY = 200 if os.environ.get("HETOPT_LONG_TESTS") else 20


def cluster(jobs: list[dict[str, Any]], workers: list[int], objective: str = "nash-welfare") -> Instance:
    devices = [Device(name="abc"[i], slots=w) for i, w in enumerate(workers)]
    return Instance.build(
        devices, [Job(name=f"j{k}", **job) for k, job in enumerate(jobs)], question={"objective": objective}
    )


def solved(instance: Instance, **options: Any) -> hetopt.Result:
    result = hetopt.solve(instance, **options)
    assert result.status == "optimal", result.messages
    hetopt.verify(instance, result)
    return result


def shares(result: hetopt.Result) -> np.ndarray:
    assert result.solution is not None
    assert result.solution.shares is not None
    return np.asarray(result.solution.shares)


class TestNash:
    def test_equal_jobs_share_equally(self) -> None:
        assert shares(solved(cluster([{"time": [1]}] * 4, [1]))).ravel() == pytest.approx([0.25] * 4, rel=1e-6)

    def test_weights_are_parts(self) -> None:
        """One worker, weights 1 and 3: x log-optimal at 1/4 and 3/4, (1/4)^(1/4) (3/4)^(3/4)."""
        result = solved(cluster([{"time": [1]}, {"time": [1], "weight": 3}], [1]))
        assert shares(result).ravel() == pytest.approx([0.25, 0.75], rel=1e-6)
        assert result.objective == pytest.approx(0.25**0.25 * 0.75**0.75)

    def test_a_job_of_two_workers_has_half_the_time(self) -> None:
        """x0 + 2 x1 = 1: each has half of the worker, levels 1/2 and 2 / 4."""
        assert shares(solved(cluster([{"time": [1]}, {"time": [1], "scale": 2}], [1]))).ravel() == pytest.approx(
            [0.5, 0.25], rel=1e-6
        )

    def test_each_where_it_gains_most(self) -> None:
        """Rates 1, 4 and 4, 1: each has its own type, level 4 over the mixed 5/2."""
        result = solved(cluster([{"time": [1, 0.25]}, {"time": [0.25, 1]}], [1, 1]))
        assert result.objective == pytest.approx(1.6)
        assert shares(result).ravel() == pytest.approx([0, 1, 1, 0], abs=1e-6)

    @pytest.mark.parametrize("seed", range(MANY))
    def test_methods_agree(self, seed: int) -> None:
        size = {"jobs": 1 + seed % 9, "types": 1 + seed % 4, "workers": 1 + seed % 3}
        made = generators.get("cluster").make(question="nash-welfare", seed=seed, **size)
        value = solved(made).objective
        question = nash.PROBLEMS[0].question(made)
        other = nash.PROBLEMS[0].optimum(made, question)
        assert other is not None
        inside = nash.inside(nash.cluster_of(made), other)
        assert nash.PROBLEMS[0].evaluate(made, question, Solution(shares=inside)).value == pytest.approx(
            value, rel=1e-5
        )
        if seed % 5 == 0:
            assert hetopt.solve(made, method="cvxpy").objective == pytest.approx(value, rel=1e-6)
        for name in ("isolated", "proportional"):
            assert hetopt.solve(made, method=name).objective <= value * (1 + 1e-8)  # type: ignore[operator]

    def test_a_job_without_weight_counts_nothing(self) -> None:
        result = solved(cluster([{"time": [1]}, {"time": [1], "weight": 0}], [1]))
        assert shares(result).ravel() == pytest.approx([1, 0], abs=1e-6)
        with pytest.raises(InputError, match="no job has a weight"):
            hetopt.solve(cluster([{"time": [1], "weight": 0}], [1]))

    def test_no_prices_prove_too_much(self) -> None:
        made = generators.get("cluster").make(question="nash-welfare", jobs=10, seed=5)
        one, result = nash.PROBLEMS[0], hetopt.solve(made)
        assert result.certificate is not None
        assert result.objective is not None
        random = np.random.default_rng(0)
        for _ in range(60):
            prices = {key: np.array(result.certificate[key]) for key in ("jobs", "types")}
            changed = {
                key: (q * random.choice([0.0, 0.5, 0.99, 1.01, 2.0], len(q))).tolist() for key, q in prices.items()
            }
            try:
                bound = one.replay(made, one.question(made), {"kind": "prices", **changed})
            except ValueError:
                continue
            assert bound >= result.objective * (1 - 1e-9)


class TestStrategyProof:
    def test_two_equal_jobs_keep_a_half(self) -> None:
        """Without the other a job would have all: d = (1/2) / 1."""
        result = solved(cluster([{"time": [1]}] * 2, [1], "strategy-proof"))
        assert shares(result).ravel() == pytest.approx([0.25, 0.25], rel=1e-6)

    def test_jobs_that_do_not_meet_keep_all(self) -> None:
        result = solved(cluster([{"time": [1, None]}, {"time": [None, 1]}], [1, 1], "strategy-proof"))
        assert shares(result).ravel() == pytest.approx([1, 0, 0, 1], abs=1e-6)

    def test_a_job_by_itself_keeps_all(self) -> None:
        assert shares(solved(cluster([{"time": [1]}], [1], "strategy-proof"))).ravel() == pytest.approx([1])

    @pytest.mark.parametrize("seed", range(MANY // 4))
    def test_nobody_gains_by_a_false_report_and_all_keep_a_third(self, seed: int) -> None:
        """At least 1/e of the fair shares; with other times reported, what a job really gets is never more."""
        made = generators.get("cluster").make(question="strategy-proof", jobs=5, workers=1, seed=seed)
        jobs = [msgspec.structs.replace(job, weight=1) for job in made.jobs()]
        true = Instance.build(made.devices, jobs, question=made.question)
        result = solved(true)
        kept = result.evaluation["kept"]
        assert min(kept.values()) >= math.exp(-1)
        assert max(kept.values()) <= 1
        honest = (shares(result) / true.time).sum(axis=1)
        random = np.random.default_rng(seed)
        for liar in range(5):
            time = [None if t is None else t * float(random.choice([0.3, 1.0, 3.0])) for t in jobs[liar].time]  # type: ignore[union-attr]
            told = [msgspec.structs.replace(job, time=time) if k == liar else job for k, job in enumerate(jobs)]
            got = shares(hetopt.solve(Instance.build(made.devices, told, question=made.question)))
            assert (got[liar] / true.time[liar]).sum() <= honest[liar] * (1 + 1e-6)

    def test_changed_plans_are_caught(self) -> None:
        made = generators.get("cluster").make(question="strategy-proof", jobs=4, workers=1, seed=2)
        result = solved(made)
        assert result.solution is not None
        for change in range(5):
            details: Any = deepcopy(dict(result.solution.details))
            own = shares(result).copy()
            if change == 0:
                own[0] *= 0.99
            elif change == 1:
                details["without"].pop()
            elif change == 2:
                details["fair"]["shares"]["j0"] = {name: 0.9 * x for name, x in details["fair"]["shares"]["j0"].items()}
            elif change == 3:
                details["without"][0]["jobs"]["j1"] *= 2
            else:
                details["without"][1]["shares"]["j0"]["type0"] = 2.0
            with pytest.raises(VerificationError):
                hetopt.verify(made, replace(result, solution=Solution(shares=own, details=details)))

    def test_too_many_jobs(self) -> None:
        with pytest.raises(InputError, match="200 at most"):
            hetopt.solve(generators.get("cluster").make(question="strategy-proof", jobs=201), method="barrier")
