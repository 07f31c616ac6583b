"""Time shares of a cluster: each limit by hand, each certificate broken, values against the published programs."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetopt
from hetopt import Instance, Solution, VerificationError
from hetopt.io import generators, importers
from hetopt.records import Device, Job
from hetopt.registry import problem_for
from hetopt.verify.shares import share_violations, throughputs

ROOT = Path(__file__).resolve().parents[2]


def cluster(jobs: list[dict[str, Any]], workers: list[int], objective: str, **more: Any) -> Instance:
    """Jobs j0, j1, ... on types a, b, ...; ``prices`` of the types."""
    prices = more.pop("prices", [1] * len(workers))
    devices = [Device(name="abcdef"[i], slots=w, price=p) for i, (w, p) in enumerate(zip(workers, prices, strict=True))]
    records = [Job(name=f"j{k}", **job) for k, job in enumerate(jobs)]
    return Instance.build(devices, records, question={"objective": objective, **more.pop("question", {})}, **more)


def solved(instance: Instance, **options: Any) -> float:
    result = hetopt.solve(instance, **options)
    assert result.status == "optimal", result.messages
    assert result.objective is not None
    hetopt.verify(instance, result)
    return float(result.objective)


# Each limit, worked out by hand ---------------------------------------------------------------------------------------


class TestMaxMin:
    def test_turns_bind(self) -> None:
        """One job, all its time on its only type: 2 steps a second over a proportional 2, whatever workers there are."""
        assert solved(cluster([{"time": [0.5]}], [3], "max-min-fairness")) == pytest.approx(1)

    def test_workers_bind(self) -> None:
        """Four equal jobs on one worker: a quarter each."""
        assert solved(cluster([{"time": [0.5]}] * 4, [1], "max-min-fairness")) == pytest.approx(0.25)

    def test_a_job_of_two_workers_has_half_the_room(self) -> None:
        """x0 + 2 x1 <= 1 with levels x0 and 2 x1: 1/2."""
        jobs: list[dict[str, Any]] = [{"time": [1]}, {"time": [1], "scale": 2}]
        assert solved(cluster(jobs, [1], "max-min-fairness")) == pytest.approx(0.5)

    def test_weights_divide_levels(self) -> None:
        """x0 = x1 / 3 with x0 + x1 = 1: 1/4."""
        jobs: list[dict[str, Any]] = [{"time": [1]}, {"time": [1], "weight": 3}]
        assert solved(cluster(jobs, [1], "max-min-fairness")) == pytest.approx(0.25)

    def test_each_job_goes_where_it_gains_most(self) -> None:
        """Rates 1 and 3, 1 and 2 on one worker each, p = 2 and 3/2. With x of b for job 1 both are busy throughout:
        (3 - 2 x) / 2 = (1 + x) / 1.5 at x = 1/2, level 1."""
        assert solved(
            cluster([{"time": [1, 1 / 3]}, {"time": [1, 1 / 2]}], [1, 1], "max-min-fairness")
        ) == pytest.approx(1)

    def test_agnostic_counts_time(self) -> None:
        jobs: list[dict[str, Any]] = [{"time": [1, 1 / 3]}, {"time": [1, 1 / 2]}, {"time": [1, 1]}]
        instance = cluster(jobs, [1, 1], "max-min-fairness", question={"agnostic": True})
        assert solved(instance) == pytest.approx(2 / 3)

    def test_a_job_that_cannot_run_on_a_type_waits_for_the_other(self) -> None:
        """Job 1 runs on a only and gets level 2; job 0 has b to itself, level 1."""
        instance = cluster([{"time": [1, 1]}, {"time": [1, None]}], [1, 1], "max-min-fairness")
        assert solved(instance) == pytest.approx(1)

    @pytest.mark.parametrize("seed", range(4))
    def test_classes_are_exact(self, seed: int) -> None:
        made = generators.get("cluster").make(jobs=30, kinds=4, seed=seed)
        jobs = [replace_weight(job) for job in made.jobs()]
        instance = Instance.build(made.devices, jobs, question=made.question)
        values = [solved(instance, method=method) for method in ("lp", "classes", "barrier", "cvxpy")]
        assert values[1:] == pytest.approx(values[:-1], rel=1e-6)


def replace_weight(job: Job) -> Job:
    import msgspec

    return msgspec.structs.replace(job, weight=1)


class TestMakespan:
    def test_work_over_rate(self) -> None:
        """Six steps at 2 a second: 3 seconds."""
        assert solved(cluster([{"time": [0.5], "steps": 6}], [2], "sharing-makespan")) == pytest.approx(3)

    def test_workers_are_shared(self) -> None:
        """3 + 5 seconds of work on one worker: 8."""
        jobs: list[dict[str, Any]] = [{"time": [1], "steps": 3}, {"time": [1], "steps": 5}]
        assert solved(cluster(jobs, [1], "sharing-makespan")) == pytest.approx(8)

    def test_a_job_runs_on_one_type_at_a_time(self) -> None:
        """Two types do not make one job faster: 5 seconds on the better one."""
        assert solved(cluster([{"time": [1, 2], "steps": 5}], [1, 1], "sharing-makespan")) == pytest.approx(5)

    def test_scale_takes_workers(self) -> None:
        """Three jobs of two workers on three workers: 2 s x 3 x 2 / 3 = 4 seconds, not 6."""
        jobs: list[dict[str, Any]] = [{"time": [1], "steps": 2, "scale": 2}] * 3
        assert solved(cluster(jobs, [3], "sharing-makespan")) == pytest.approx(4)


class TestFinishTime:
    def test_two_equal_jobs_are_as_well_off_as_alone(self) -> None:
        jobs: list[dict[str, Any]] = [{"time": [1], "steps": 10}] * 2
        assert solved(cluster(jobs, [1], "finish-time-fairness")) == pytest.approx(1)

    def test_types_that_suit_different_jobs_help_both(self) -> None:
        """An even division gives each (1 + 2) / 2 steps a second, its own type 2: 3/4."""
        jobs: list[dict[str, Any]] = [{"time": [1, 0.5], "steps": 10}, {"time": [0.5, 1], "steps": 10}]
        assert solved(cluster(jobs, [1, 1], "finish-time-fairness")) == pytest.approx(0.75)

    def test_what_was_waited_counts(self) -> None:
        """Arrived 10 s ago, 10 s to go: 20 over 20 when it ran as much as alone, 20 over 10 when it ran not at all."""
        jobs: list[dict[str, Any]] = [{"time": [1], "steps": 10}]
        ran = cluster(jobs, [1], "finish-time-fairness", question={"now": 10.0})
        idle = cluster(jobs, [1], "finish-time-fairness", question={"now": 10.0}, tables={"isolated": {"j0": 0}})
        assert solved(ran) == pytest.approx(1)
        assert solved(idle) == pytest.approx(2)


class TestCost:
    def test_rate_over_price(self) -> None:
        """3 steps for 2 on b beat 1 for 1 on a."""
        assert solved(cluster([{"time": [1, 1 / 3]}], [1, 1], "sharing-cost", prices=[1, 2])) == pytest.approx(1.5)

    def test_a_deadline_buys_the_dearer_type(self) -> None:
        """10 steps in 5 s need 2 a second: x on b with (1 - x) + 3 x >= 2, so x = 1/2: 1/2 / 1 + 3/2 / 10."""
        job: dict[str, Any] = {"time": [1, 1 / 3], "steps": 10, "deadline": 5}
        assert solved(cluster([job], [1, 1], "sharing-cost", prices=[1, 10])) == pytest.approx(0.65)

    def test_a_deadline_out_of_reach_is_told(self) -> None:
        result = hetopt.solve(cluster([{"time": [1], "steps": 10, "deadline": 8}], [1], "sharing-cost"))
        assert result.status == "infeasible"
        assert result.exit_code == 3
        assert "2 s too late" in result.infeasible[0]

    @pytest.mark.parametrize("question", ["sharing-cost", "sharing-cost-ratio"])
    def test_a_job_larger_than_a_type_keeps_its_deadline_on_several(self, question: str) -> None:
        """It takes two workers at once, and each type has one: half its time on either, a step a second."""
        job: dict[str, Any] = {"time": [1, 1], "steps": 10, "deadline": 12, "scale": 2}
        assert solved(cluster([job], [1, 1], question)) == pytest.approx(1 if question == "sharing-cost" else 0.5)

    @pytest.mark.parametrize("question", ["sharing-cost", "sharing-cost-ratio"])
    def test_deadlines_out_of_reach_together_are_told(self, question: str) -> None:
        """Ten steps each, a worker of a step a second: 20 s, and 12 are given."""
        jobs: list[dict[str, Any]] = [{"time": [1], "steps": 10, "deadline": 12}] * 2
        result = hetopt.solve(cluster(jobs, [1], question))
        assert result.exit_code == 3
        assert "only when each is 1.66667 times as late, for job 'j0' that is 8 s later" in result.infeasible[0]

    def test_the_ratio_leaves_dear_workers_idle(self) -> None:
        """3 steps for 2: the other job's 1 for 1 would lower the ratio from 3/2."""
        jobs: list[dict[str, Any]] = [{"time": [None, 1 / 3]}, {"time": [1, None]}]
        assert solved(cluster(jobs, [1, 1], "sharing-cost-ratio", prices=[1, 2])) == pytest.approx(1.5)

    def test_scale_counts_in_what_is_spent(self) -> None:
        assert solved(cluster([{"time": [0.25], "scale": 2}], [2], "sharing-cost-ratio", prices=[2])) == pytest.approx(
            1
        )

    def test_normalized_steps(self) -> None:
        """Rates 100 and 1 on one worker count alike."""
        jobs: list[dict[str, Any]] = [{"time": [0.01]}, {"time": [1]}]
        assert solved(cluster(jobs, [1], "sharing-cost", question={"normalized": True})) == pytest.approx(1)


class TestFirstCome:
    def test_the_earlier_job_has_the_worker(self) -> None:
        """Two jobs on one worker: 2 x 1 for the earlier beats 1 x 1."""
        jobs: list[dict[str, Any]] = [{"time": [1], "release": 5}, {"time": [0.5], "release": 0}]
        result = hetopt.solve(cluster(jobs, [1], "first-in-first-out"))
        assert result.objective == pytest.approx(2)
        assert result.solution is not None
        assert result.solution.shares is not None
        assert result.solution.shares.ravel().tolist() == pytest.approx([0, 1])

    def test_jobs_that_came_together_count_alike(self) -> None:
        """The last two of three are worth 1.5 each, the first 3, on two workers: 4.5."""
        jobs: list[dict[str, Any]] = [{"time": [1], "release": r} for r in (0, 1, 1)]
        assert solved(cluster(jobs, [2], "first-in-first-out")) == pytest.approx(4.5)

    def test_scale_takes_workers(self) -> None:
        """The earlier job takes both workers, worth 2; one later job would be worth 1 and leave the other idle."""
        jobs: list[dict[str, Any]] = [{"time": [1], "scale": 2}, {"time": [1], "release": 1}]
        assert solved(cluster(jobs, [2], "first-in-first-out")) == pytest.approx(2)


# The verifier and the certificates, broken ----------------------------------------------------------------------------


class TestShares:
    def shares(self) -> tuple[Instance, np.ndarray]:
        jobs: list[dict[str, Any]] = [{"time": [1, 0.5]}, {"time": [1, None], "scale": 2}]
        return cluster(jobs, [2, 1], "max-min-fairness"), np.array([[0.5, 0.5], [0.75, 0.0]])

    def test_a_valid_plan(self) -> None:
        instance, shares = self.shares()
        assert share_violations(instance, shares) == ()
        assert throughputs(instance, shares).tolist() == [1.5, 0.75]

    @pytest.mark.parametrize(
        ("where", "value", "words"),
        [
            ((0, 0), -0.1, "below 0"),
            ((1, 1), 0.1, "where it cannot run"),
            ((0, 0), 0.6, "more than 1"),
            ((1, 0), 0.8, "too many"),
            ((0, 1), math.nan, "no finite number"),
            ((0, 1), math.inf, "no finite number"),
        ],
    )
    def test_a_broken_limit_is_named(self, where: tuple[int, int], value: float, words: str) -> None:
        instance, shares = self.shares()
        shares[where] = value
        assert any(words in sentence for sentence in share_violations(instance, shares))

    def test_no_shares_and_wrong_shapes(self) -> None:
        instance, shares = self.shares()
        assert "no shares" in share_violations(instance, None)[0]
        assert "shape" in share_violations(instance, shares[:1])[0]

    @pytest.mark.parametrize(
        "question", ["max-min-fairness", "sharing-makespan", "finish-time-fairness", "sharing-cost"]
    )
    def test_a_share_moved_up_is_caught(self, question: str) -> None:
        instance = generators.get("cluster").make(question=question, jobs=12, seed=3)
        one = problem_for(instance)
        result = hetopt.solve(instance)
        assert result.objective is not None
        assert result.solution is not None
        assert result.solution.shares is not None
        for k, i in itertools.product(range(instance.n_tasks), range(instance.n_devices)):
            shares = np.array(result.solution.shares)
            shares[k, i] += 0.01
            moved = replace(result, solution=Solution(shares=shares))
            evaluation = one.evaluate(instance, one.question(instance), Solution(shares=shares))
            if evaluation.violations:
                with pytest.raises(VerificationError):
                    hetopt.verify(instance, moved)
            else:
                better = 1 if one.sense == "min" else -1
                assert better * evaluation.value >= better * result.objective * (1 + better * 1e-6) - 1e-6


class TestCertificates:
    @pytest.mark.parametrize(
        ("question", "kind"),
        [("max-min-fairness", "prices"), ("sharing-makespan", "prices"), ("finish-time-fairness", "prices"),
         ("sharing-cost", "lp-dual"), ("sharing-cost-ratio", "lp-dual")],
    )  # fmt: skip
    def test_no_change_of_a_certificate_proves_too_much(self, question: str, kind: str) -> None:
        """Whatever numbers stand in it, what is replayed never passes the optimum; damage is a ValueError."""
        instance = generators.get("cluster").make(question=question, jobs=10, seed=5)
        one = problem_for(instance)
        asked = one.question(instance)
        result = hetopt.solve(instance)
        assert result.objective is not None
        assert result.certificate is not None
        assert result.certificate["kind"] == kind
        better = 1 if one.sense == "min" else -1
        random = np.random.default_rng(0)
        for _ in range(60):
            changed: dict[str, Any] = dict(result.certificate)
            for key in ("values", "jobs", "types"):
                if key in changed:
                    factor = random.choice([0.0, 0.5, 0.99, 1.01, 2.0, -1.0], len(changed[key]))
                    changed[key] = (np.array(changed[key]) * factor).tolist()
            try:
                bound = one.replay(instance, asked, changed)
            except ValueError:
                continue
            assert better * bound <= better * result.objective + 1e-9 * abs(result.objective)

    def test_damaged_prices(self) -> None:
        instance = generators.get("cluster").make(question="finish-time-fairness", jobs=4, seed=5)
        one = problem_for(instance)
        for broken in (
            {"jobs": [1.0] * 3, "types": [0.0] * 3},
            {"jobs": [1.0] * 4, "types": [0.0, 0.0, math.nan]},
            {"jobs": [0.0] * 4, "types": [0.0] * 3},
            {"jobs": [-1.0] * 4, "types": [0.0] * 3},
        ):
            with pytest.raises(ValueError, match="expected"):
                one.replay(instance, one.question(instance), {"kind": "prices", **broken})


# The published programs --------------------------------------------------------------------------------------------------------


def stated(instance: Instance, objective: str) -> float:
    """The published program in cvxpy, from the file's numbers alone (Narayanan et al., OSDI 2020)."""
    import cvxpy as cp

    with np.errstate(divide="ignore"):
        rate = np.where(np.isfinite(instance.time), 1.0 / instance.time, 0.0)
    jobs = list(instance.jobs())
    scale, weight = (np.array([getattr(job, key) for job in jobs], float) for key in ("scale", "weight"))
    workers = np.array([device.slots for device in instance.devices], float)
    price = np.array([device.price for device in instance.devices], float)
    n = len(jobs)
    x = cp.Variable(rate.shape, nonneg=True)
    got = cp.sum(cp.multiply(rate, x), axis=1)
    limits = [cp.sum(x, axis=1) <= 1, scale @ x <= workers]
    if objective != "max-min-fairness":
        steps = np.array([job.steps for job in jobs], float)
    if objective == "max-min-fairness":
        fair = weight * (rate @ workers) / workers.sum()
        return float(cp.Problem(cp.Maximize(cp.min(cp.multiply(scale / fair, got))), limits).solve(solver="CLARABEL"))
    if objective == "sharing-makespan":
        unit = float((steps / rate.max(axis=1)).max())
        pace = cp.Problem(cp.Maximize(cp.min(cp.multiply(unit / steps, got))), limits).solve(solver="CLARABEL")
        return unit / float(pace)
    if objective == "finish-time-fairness":
        even = (workers / n)[None, :] / scale[:, None]
        even = even / np.maximum(even.sum(axis=1), 1)[:, None]
        alone = (rate * even).sum(axis=1)
        return float(
            cp.Problem(cp.Minimize(cp.max(cp.multiply(alone, cp.inv_pos(got)))), limits).solve(solver="CLARABEL")
        )
    due = [k for k, job in enumerate(jobs) if job.deadline is not None]
    need = [steps[k] / jobs[k].deadline for k in due]  # type: ignore[operator]
    limits += [cp.multiply(1 / np.array(need), got[due]) >= 1] if due else []
    return float(cp.Problem(cp.Maximize(cp.sum(cp.multiply(rate / price, x))), limits).solve(solver="CLARABEL"))


@pytest.mark.parametrize("question", ["max-min-fairness", "sharing-makespan", "finish-time-fairness", "sharing-cost"])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_values_on_published_rates(data_dir: Path, question: str, noise: float) -> None:
    """On jobs drawn from the published oracle, with capacities that bind, equal to the published program to 1e-6."""
    oracle = data_dir / "gavel" / "simulation_throughputs.json"
    if not oracle.is_file():
        pytest.skip("the throughput oracle is not among the reference data")
    instance = importers.get("gavel").load(
        oracle, jobs=60, seed=2, capacity="5,5,5", noise=noise, deadlines=0.1 if question == "sharing-cost" else 0.0,
        priorities=question == "max-min-fairness", objective=question,
    )  # fmt: skip
    assert solved(instance) == pytest.approx(stated(instance, question), rel=1e-6)


@pytest.mark.parametrize("question", ["max-min-fairness", "sharing-makespan", "finish-time-fairness", "sharing-cost"])
@pytest.mark.parametrize("seed", range(3))
def test_values_on_generated_clusters(question: str, seed: int) -> None:
    instance = generators.get("cluster").make(question=question, jobs=40, seed=seed)
    assert solved(instance) == pytest.approx(stated(instance, question), rel=1e-6)
