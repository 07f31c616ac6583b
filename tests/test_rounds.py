"""Rounds that keep shares, and traces simulated with them: by hand, against the plan's own values, the same each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hetopt
from hetopt import InputError, Instance
from hetopt.algorithms.share_rounds import Rows, matched, serve
from hetopt.control import Control
from hetopt.io import generators
from hetopt.records import Device, Job
from hetopt.rounds import Moment, simulate
from hetopt.verify.pairs import together_of


def cluster(jobs: list[dict[str, Any]], workers: list[int], **question: Any) -> Instance:
    devices = [Device(name="abc"[i], slots=w) for i, w in enumerate(workers)]
    return Instance.build(devices, [Job(name=f"j{k}", **job) for k, job in enumerate(jobs)], question=question)


def rows_of(instance: Instance) -> Rows:
    """A solved plan's rows."""
    plan = hetopt.solve(instance).solution
    assert plan is not None
    assert plan.shares is not None
    job, kind = np.nonzero(plan.shares)
    pairs = together_of(instance, plan.details)
    first = np.concatenate([job, pairs.job])
    scale = instance.columns.scale[first]
    return Rows(
        first, np.concatenate([np.full(len(job), -1), pairs.other]), np.concatenate([kind, pairs.device]),
        np.concatenate([plan.shares[job, kind], pairs.share]), scale,
    )  # fmt: skip


class TestRounds:
    def test_three_jobs_take_turns_on_two_workers(self) -> None:
        rows = Rows(*(np.array(x) for x in ([0, 1, 2], [-1] * 3, [0] * 3, [2 / 3] * 3, [1.0] * 3)))  # type: ignore[arg-type]
        had = np.zeros(3)
        for _ in range(300):
            runs = serve(rows, np.array([2.0]), had)
            assert runs.sum() == 2
            had += runs
        assert had.tolist() == [200, 200, 200]

    @pytest.mark.parametrize(("rule", "far"), [("matching", 0.02), ("priority", 0.2)])
    @pytest.mark.parametrize("question", ["max-min-fairness", "packed-max-min-fairness"])
    def test_time_averages_go_to_the_plan(self, question: str, rule: str, far: float) -> None:
        """Jobs of one worker: how far a row may be from its share after 400 rounds; limits hold in each round."""
        made = generators.get("cluster").make(question=question, jobs=18, kinds=6, workers=4, seed=0)
        jobs = [Job(name=job.name, time=job.time, weight=job.weight, steps=job.steps) for job in made.jobs()]
        instance = Instance.build(made.devices, jobs, tables=made.tables, question=made.question)
        rows, workers = rows_of(instance), np.array([4.0] * 3)
        if rule == "matching" and (rows.partner >= 0).any():
            pytest.skip("pairs are served by priority")
        had = np.zeros(len(rows.share))
        for number in range(400):
            runs = matched(rows, workers, had, number) if rule == "matching" else serve(rows, workers, had)
            assert (np.bincount(rows.type[runs], rows.scale[runs], 3) <= workers).all()
            busy = np.concatenate([rows.job[runs], rows.partner[runs][rows.partner[runs] >= 0]])
            assert len(set(busy.tolist())) == len(busy)
            had += runs
        assert np.abs(had / 400 - rows.share).max() < far

    @pytest.mark.parametrize("seed", range(8))
    def test_a_matching_keeps_any_shares(self, seed: int) -> None:
        """Random shares that fill jobs and workers to the brim: within 2 % after 500 rounds."""
        random = np.random.default_rng(seed)
        share = np.zeros((8, 3))
        for _ in range(12):  # a mean of assignments of eight jobs to 3, 3 and 2 workers
            share[random.permutation(8), [0, 0, 0, 1, 1, 1, 2, 2]] += 1 / 12
        job, kind = np.nonzero(share)
        rows = Rows(job, np.full(len(job), -1), kind, share[job, kind], np.ones(len(job)))
        had = np.zeros(len(job))
        for number in range(500):
            had += matched(rows, np.array([3.0, 3.0, 2.0]), had, number)
        assert np.abs(had / 500 - rows.share).max() < 0.02

    def test_a_row_without_a_share_never_runs(self) -> None:
        rows = Rows(*(np.array(x) for x in ([0, 1], [-1, -1], [0, 0], [0.0, 0.5], [1.0, 1.0])))  # type: ignore[arg-type]
        assert serve(rows, np.array([2.0]), np.zeros(2)).tolist() == [False, True]


class TestTraces:
    def test_one_job_runs_to_its_end(self) -> None:
        """100 steps at 0.5 a second, arriving at 30 s, first round at 60: done at 260."""
        told = simulate(
            cluster([{"time": [2], "steps": 100, "release": 30}], [1], objective="max-min-fairness"), round_seconds=60
        )
        assert told.finish == {"j0": 260}
        assert told.completion == 230
        assert told.makespan == 260
        assert told.plans == 1
        assert told.used["a"] == pytest.approx(200 / 260)

    def test_two_take_turns_and_the_shorter_leaves_first(self) -> None:
        """10 and 25 s of work, rounds of 5 on one worker: 0 1 0, then 1 alone from 15 on: done at 15 and 35."""
        jobs: list[dict[str, Any]] = [{"time": [1], "steps": 10}, {"time": [1], "steps": 25}]
        told = simulate(cluster(jobs, [1], objective="max-min-fairness"), round_seconds=5)
        assert told.finish == {"j0": 15, "j1": 35}
        assert told.plans == 2
        assert told.used["a"] == pytest.approx(1)

    def test_first_come_goes_first(self) -> None:
        jobs: list[dict[str, Any]] = [{"time": [1], "steps": 10, "release": 1}, {"time": [1], "steps": 10}]
        told = simulate(cluster(jobs, [1], objective="first-in-first-out"), round_seconds=5)
        assert told.finish == {"j0": 20, "j1": 10}

    def test_pairs_run_beside_each_other(self) -> None:
        """Each at 0.8 a second beside the other: 40 steps take 50 s; in turns the last would end at 80."""
        devices, jobs = [Device(name="a")], [Job(name=f"j{k}", time=[1], steps=40) for k in range(2)]
        tables = {"kind": {"j0": "k", "j1": "k"}, "together": [["a", "k", "k", 1.25, 1.25]]}
        trace = Instance.build(devices, jobs, tables=tables, question={"objective": "packed-max-min-fairness"})
        assert simulate(trace, round_seconds=10).makespan == pytest.approx(50)
        assert simulate(trace, round_seconds=10, method="unpaired").makespan == pytest.approx(80)

    @pytest.mark.parametrize("seed", range(2))
    def test_a_batch_ends_near_its_planned_makespan(self, seed: int) -> None:
        """Never before the optimum, and within 5 % of it with rounds of a three-hundredth."""
        made = generators.get("cluster").make(question="sharing-makespan", jobs=8, workers=2, seed=seed)
        jobs = [Job(name=job.name, time=job.time, steps=job.steps) for job in made.jobs()]
        trace = Instance.build(made.devices, jobs, question=made.question)
        best = hetopt.solve(trace).objective
        assert best is not None
        told = simulate(trace, round_seconds=best / 300, rule="matching")
        assert told.makespan is not None
        assert best * (1 - 1e-9) <= told.makespan <= best * 1.05

    @pytest.mark.parametrize(
        "question", ["max-min-fairness", "finish-time-fairness", "sharing-cost", "water-filling", "nash-welfare",
                     "shortest-job-first"],
    )  # fmt: skip
    def test_every_policy_ends_and_does_all_work(self, question: str) -> None:
        made = generators.get("cluster").make(question="sharing-cost", jobs=6, workers=2, seed=3)
        jobs = [
            Job(name=job.name, time=job.time, steps=job.steps, release=300 * k, deadline=job.deadline)
            for k, job in enumerate(made.jobs())
        ]
        trace = Instance.build(made.devices, jobs, question={"objective": question})
        told = simulate(trace, round_seconds=600)
        assert told.makespan is not None
        names = trace.device_names
        for k, job in enumerate(jobs):
            done = sum(seconds / trace.time[k, names.index(name)] for name, seconds in told.time[job.name].items())
            assert done == pytest.approx(job.steps)

    def test_the_same_each_time_with_progress(self) -> None:
        made = generators.get("cluster").make(jobs=6, workers=1, seed=1)
        seen: list[Moment] = []
        first = simulate(made, round_seconds=1000, on_round=seen.append)
        assert first == simulate(made, round_seconds=1000)
        assert [moment.round for moment in seen] == list(range(first.rounds))
        assert [moment.done for moment in seen] == sorted(moment.done for moment in seen)

    def test_limits(self) -> None:
        trace = cluster([{"time": [1], "steps": 100}, {"time": [1], "steps": 5}], [2], objective="max-min-fairness")
        told = simulate(trace, round_seconds=10, horizon=30)
        assert told.finish == {"j0": None, "j1": 5}
        assert told.makespan is None
        assert "1 jobs were not done at the end, 'j0' among them" in told.notes
        control = Control()
        control.cancel()
        assert simulate(trace, control=control).rounds == 0

    def test_a_job_wider_than_every_type_is_named(self) -> None:
        jobs: list[dict[str, Any]] = [{"time": [1], "steps": 5}, {"time": [1], "steps": 5, "scale": 3}]
        told = simulate(cluster(jobs, [2], objective="max-min-fairness"), round_seconds=10)
        assert told.finish == {"j0": 5, "j1": None}
        assert "'j1' takes 3 workers at once, and no type has more than 2: it can run in no round" in told.notes

    def test_a_deadline_that_cannot_be_kept_is_dropped_and_told(self) -> None:
        job = {"time": [1], "steps": 100, "deadline": 50}
        devices = [Device(name="a", price=1)]
        trace = Instance.build(devices, [Job(name="j", **job)], question={"objective": "sharing-cost"})
        told = simulate(trace, round_seconds=10)
        assert told.makespan == 100
        assert "made without them" in told.notes[0]

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({"round_seconds": 0}, "round_seconds is 0"),
            ({"rule": "luck"}, "rule is 'luck'"),
            ({"horizon": float("nan")}, "horizon is nan"),
            ({"objective": "mean-completion"}, "gave no shares"),
            ({"objective": "sharing-cost"}, "needs a price"),
        ],
        ids=range(5),
    )
    def test_bad_input(self, more: dict[str, Any], words: str) -> None:
        trace = cluster([{"time": [1], "steps": 100}], [2], objective="max-min-fairness")
        with pytest.raises(InputError, match=words):
            simulate(trace, **more)

    def test_a_trace_needs_steps(self) -> None:
        with pytest.raises(InputError, match="needs `steps`"):
            simulate(cluster([{"time": [1]}], [1], objective="max-min-fairness"))
