"""Jobs that share workers: each limit by hand, classes against single jobs, pairs of a plan broken one by one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetopt
from formulations.sharing import packed
from formulations.sharing._packing import _met, classes_of, expanded, joined
from hetopt import InputError, Instance, Solution, VerificationError
from hetopt.io import generators, importers
from hetopt.records import Device, Job
from hetopt.verify.pairs import pair_rates, together_of

MANY = 200 if os.environ.get("HETOPT_LONG_TESTS") else 20
QUESTION = "packed-max-min-fairness"


def cluster(
    jobs: list[dict[str, Any]], workers: list[int], rows: list[list[Any]], kinds: str, objective: str = QUESTION
) -> Instance:
    """Jobs j0, j1, ... on types a, b, ...; kinds a letter each, "-" for none."""
    devices = [Device(name="abc"[i], slots=w) for i, w in enumerate(workers)]
    records = [Job(name=f"j{k}", **job) for k, job in enumerate(jobs)]
    tables = {"kind": {f"j{k}": kind for k, kind in enumerate(kinds) if kind != "-"}, "together": rows}
    return Instance.build(devices, records, tables=tables, question={"objective": objective})


def solved(instance: Instance, **options: Any) -> float:
    result = hetopt.solve(instance, **options)
    assert result.status == "optimal", result.messages
    assert result.objective is not None
    hetopt.verify(instance, result)
    return float(result.objective)


class TestByHand:
    def test_two_that_lose_a_fifth_beside_each_other(self) -> None:
        """One worker, two jobs: 0.8 each together, 0.5 each in turns."""
        assert solved(cluster([{"time": [1]}] * 2, [1], [["a", "k", "k", 1.25, 1.25]], "kk")) == pytest.approx(0.8)

    def test_two_that_lose_more_than_half_take_turns(self) -> None:
        assert solved(cluster([{"time": [1]}] * 2, [1], [["a", "k", "k", 2.5, 2.5]], "kk")) == pytest.approx(0.5)

    def test_three_alike_meet_one_another(self) -> None:
        """Each is in two of the three pairs, a third of the time each: 2/3 of 0.9."""
        instance = cluster([{"time": [1]}] * 3, [1], [["a", "k", "k", 1 / 0.9, 1 / 0.9]], "kkk")
        assert solved(instance) == pytest.approx(0.6)

    def test_a_job_has_time_for_one_partner_at_once(self) -> None:
        """Two workers, two jobs: together on one worker all the time leaves none for more; alone on one each is better."""
        assert solved(cluster([{"time": [1]}] * 2, [2], [["a", "k", "k", 1.25, 1.25]], "kk")) == pytest.approx(1)

    def test_rates_belong_to_their_job(self) -> None:
        """Beside each other 0.9 for k and 0.3 for m; k alone 0 to y more: 0.9 z + x = 0.3 z + y, x + y + z = 1.
        Level (1 + z 0.2) / 2 grows with z until x = 0: y = 0.6 z, z = 1 / 1.6, level 0.9 / 1.6; written either way round."""
        for row in (["a", "k", "m", 1 / 0.9, 1 / 0.3], ["a", "m", "k", 1 / 0.3, 1 / 0.9]):
            assert solved(cluster([{"time": [1]}] * 2, [1], [row], "km")) == pytest.approx(0.9 / 1.6)

    def test_scales_that_differ_never_share(self) -> None:
        """x0 + 2 x1 <= 2, x <= 1 with levels x0 and 2 x1: 1."""
        jobs: list[dict[str, Any]] = [{"time": [1]}, {"time": [1], "scale": 2}]
        assert solved(cluster(jobs, [1], [["a", "k", "k", 1, 1]], "kk")) == pytest.approx(0.5)

    def test_a_pair_of_two_workers_each_takes_two(self) -> None:
        """Two jobs of scale 2 on two workers: together all the time, 2 x 0.8."""
        jobs: list[dict[str, Any]] = [{"time": [1], "scale": 2}] * 2
        assert solved(cluster(jobs, [2], [["a", "k", "k", 1.25, 1.25]], "kk")) == pytest.approx(1.6)

    def test_a_job_without_a_kind_stays_alone(self) -> None:
        assert solved(cluster([{"time": [1]}] * 2, [1], [["a", "k", "k", 1.25, 1.25]], "k-")) == pytest.approx(0.5)

    def test_makespan(self) -> None:
        """8 steps each at 0.8 a second: 10 seconds, in turns 16."""
        jobs: list[dict[str, Any]] = [{"time": [1], "steps": 8}] * 2
        instance = cluster(jobs, [1], [["a", "k", "k", 1.25, 1.25]], "kk", "packed-makespan")
        assert solved(instance) == pytest.approx(10)
        assert hetopt.solve(instance, method="unpaired").objective == pytest.approx(16)


class TestExpansion:
    @pytest.mark.parametrize(("n", "m"), [(2, None), (3, None), (4, None), (7, None), (1, 1), (3, 5), (4, 6), (1, 9)])
    def test_every_member_has_its_part(self, n: int, m: int | None) -> None:
        """Parts add up to one pair's time; a member of n has 1/n of it (2/n where both are of one class)."""
        i, j, part = _met(n, m)
        assert part.sum() == pytest.approx(1, abs=1e-15)
        if m is None:
            assert (i != j).all()
            own = np.bincount(i, part, n) + np.bincount(j, part, n)
            assert own == pytest.approx(np.full(n, 2 / n), abs=1e-15)
        else:
            assert np.bincount(i, part, n) == pytest.approx(np.full(n, 1 / n), abs=1e-15)
            assert np.bincount(j, part, m) == pytest.approx(np.full(m, 1 / m), abs=1e-15)
            assert len(part) <= n + m - 1

    @pytest.mark.parametrize("seed", range(4))
    def test_jobs_of_a_class_get_the_same(self, seed: int) -> None:
        made = generators.get("cluster").make(question=QUESTION, jobs=40, kinds=4, seed=seed)
        result = hetopt.solve(made)
        assert result.solution is not None
        assert result.solution.shares is not None
        together = together_of(made, result.solution.details)
        rate = (result.solution.shares / made.time).sum(axis=1) + together.steps(pair_rates(made), made.n_tasks)
        classes = classes_of(made, packed.PROBLEMS[0].factor(made))
        assert len(classes.members) < 14
        for c in range(len(classes.members)):
            mine = classes.of == c
            assert rate[mine] == pytest.approx(np.full(mine.sum(), rate[mine][0]), rel=1e-12)
            assert together.time(made.n_tasks)[mine] == pytest.approx(together.time(made.n_tasks)[mine][0], rel=1e-12)

    def test_what_is_too_much_is_scaled_back(self) -> None:
        instance = cluster([{"time": [1]}] * 2, [1], [["a", "k", "k", 1.25, 1.25]], "kk")
        classes = classes_of(instance, np.ones(2))
        plan = expanded(instance, classes, np.array([[0.4]]), joined(classes.pairs()), np.array([1.2]))
        assert not packed.PROBLEMS[0].evaluate(instance, packed.PROBLEMS[0].question(instance), plan).violations


@pytest.mark.parametrize("seed", range(MANY))
@pytest.mark.parametrize("question", ["packed-max-min-fairness", "packed-makespan"])
def test_methods_agree(question: str, seed: int) -> None:
    """Classes, single jobs and, now and then, cvxpy: one value, and none is below the best plan without pairs."""
    size = {"jobs": 6 + seed % 12, "kinds": 1 + seed % 5, "workers": 1 + seed % 3}
    made = generators.get("cluster").make(question=question, seed=seed, **size)
    values = [solved(made, method=method) for method in ("classes", "jobs", *(["cvxpy"] if seed % 5 == 0 else []))]
    assert values[1:] == pytest.approx(values[:-1], rel=1e-6)
    alone = hetopt.solve(made, method="unpaired").objective
    assert alone is not None
    better = 1 if question == "packed-makespan" else -1
    assert better * values[0] <= better * alone + 1e-9 * abs(alone)


def test_columns_are_added_until_none_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    made = generators.get("cluster").make(question=QUESTION, jobs=40, kinds=20, seed=3)
    whole = hetopt.solve(made)
    monkeypatch.setattr(packed, "ALL", 0)
    grown = hetopt.solve(made)
    assert grown.status == whole.status == "optimal"
    assert grown.objective == pytest.approx(whole.objective, rel=1e-8)


class TestVerifier:
    def plan(self) -> tuple[Instance, Any]:
        jobs: list[dict[str, Any]] = [
            {"time": [1, 2]},
            {"time": [1, None]},
            {"time": [1, 1], "scale": 2},
            {"time": [1, 1]},
        ]
        rows = [["a", "k", "k", 1.25, 1.25], ["b", "k", "k", 1.25, 1.25], ["a", "m", "k", 1.5, 1.5]]
        instance = cluster(jobs, [2, 2], rows, "kkk-")
        return instance, hetopt.solve(instance)

    @pytest.mark.parametrize(
        ("row", "words"),
        [
            (["j0", "j0", "a", 0.1], "together with itself"),
            (["j0", "j1", "a", -0.1], "below 0"),
            (["j0", "j1", "b", 0.1], "cannot run there"),
            (["j0", "j2", "a", 0.1], "scales differ"),
            (["j0", "j3", "a", 0.1], "no rates for them"),
            (["j0", "j1", "a", 1.1], "more than 1"),
            (["j0", "j1", "a", 2.5], "too many"),
            (["j0", "nobody", "a", 0.1], "cannot be read"),
            (["j0", "j1", "a"], "cannot be read"),
            (["j0", "j1", "a", "0.1"], "cannot be read"),
            (["j0", "j1", "a", float("nan")], "cannot be read"),
        ],
        ids=range(11),
    )
    def test_a_pair_that_cannot_be_is_named(self, row: list[Any], words: str) -> None:
        instance, _ = self.plan()
        one = packed.PROBLEMS[0]
        plan = Solution(shares=np.zeros((4, 2)), details={"together": [row]})
        assert any(words in sentence for sentence in one.judge(instance, one.question(instance), plan).violations)

    def test_pairs_left_out_are_missed(self) -> None:
        instance, result = self.plan()
        assert result.solution.details["together"]
        with pytest.raises(VerificationError):
            hetopt.verify(instance, replace(result, solution=Solution(shares=result.solution.shares)))

    def test_no_prices_prove_too_much(self) -> None:
        made = generators.get("cluster").make(question=QUESTION, jobs=20, kinds=6, seed=5)
        one = packed.PROBLEMS[0]
        result = hetopt.solve(made)
        assert result.certificate is not None
        assert result.objective is not None
        random = np.random.default_rng(0)
        for _ in range(60):
            changed = {
                key: (np.array(value) * random.choice([0.0, 0.5, 0.99, 1.01, 2.0], len(value))).tolist()
                for key, value in result.certificate.items()
                if key != "kind"
            }
            try:
                bound = one.replay(made, one.question(made), {"kind": "pair-prices", **changed})
            except ValueError:
                continue
            assert bound >= result.objective * (1 - 1e-9)


class TestBadInput:
    @pytest.mark.parametrize(
        ("tables", "words"),
        [
            ({"kind": [], "together": []}, "tables.kind is list"),
            ({"kind": {}, "together": {}}, "tables.together is dict"),
            ({"kind": {"nobody": "k"}, "together": []}, "no job of the instance"),
            ({"kind": {"j0": 3}, "together": []}, "expected a word"),
            ({"kind": {"j0": "k"}, "together": [["a", "k", "k", 1]]}, "expected \\[type"),
            ({"kind": {"j0": "k"}, "together": [["x", "k", "k", 1, 1]]}, "no device"),
            ({"kind": {"j0": "k"}, "together": [["a", "k", "k", 0, 1]]}, "seconds a step"),
            ({"kind": {"j0": "k", "j1": "m"}, "together": [["a", "k", "m", 1, 1], ["a", "m", "k", 1, 1]]}, "repeats"),
        ],
        ids=range(8),
    )
    def test_tables(self, tables: dict[str, Any], words: str) -> None:
        jobs = [Job(name="j0", time=[1]), Job(name="j1", time=[1])]
        instance = Instance.build([Device(name="a")], jobs, tables=tables, question={"objective": QUESTION})
        with pytest.raises(InputError, match=words):
            hetopt.solve(instance)

    def test_without_tables_it_does_not_fit(self) -> None:
        with pytest.raises(InputError, match="no rates of pairs"):
            hetopt.solve(generators.get("cluster").make(jobs=4), objective=QUESTION)

    def test_too_many_kinds(self) -> None:
        with pytest.raises(InputError, match="--kinds"):
            generators.get("cluster").make(question=QUESTION, jobs=1000)


def stated(instance: Instance, steps: bool) -> float:
    """The published program over all pairs of jobs, from the file's tables alone."""
    import cvxpy as cp

    jobs, types = list(instance.jobs()), instance.device_names
    rate = np.where(np.isfinite(instance.time), 1.0 / instance.time, 0.0)
    workers = np.array([device.slots for device in instance.devices], float)
    kind = instance.tables["kind"]
    beside = {}
    for name, one, two, own, other in instance.tables["together"]:
        beside[name, one, two], beside[name, two, one] = 1 / own, 1 / other
    z, got, own, used = [], [0.0] * len(jobs), [0.0] * len(jobs), [0.0] * len(types)
    x = cp.Variable(rate.shape, nonneg=True)
    for i, first in enumerate(jobs):
        got[i] += rate[i] @ x[i]
        own[i] += cp.sum(x[i])
        for j in range(len(types)):
            used[j] += x[i, j]
        for k in range(i + 1, len(jobs)):
            for j, name in enumerate(types):
                one, two = kind[first.name], kind[jobs[k].name]
                if (name, one, two) in beside:
                    z.append(cp.Variable(nonneg=True))
                    got[i] += beside[name, one, two] * z[-1]
                    got[k] += beside[name, two, one] * z[-1]
                    own[i] += z[-1]
                    own[k] += z[-1]
                    used[j] += z[-1]
    fair = np.array([job.steps for job in jobs], float) if steps else rate @ workers / workers.sum()
    unit = float((rate.max(axis=1) / fair).min())
    level = cp.min(cp.hstack([got[i] / (fair[i] * unit) for i in range(len(jobs))]))
    limits = [term <= 1 for term in own] + [used[j] <= workers[j] for j in range(len(types))]
    value = unit * float(cp.Problem(cp.Maximize(level), limits).solve(solver="CLARABEL"))
    return 1 / value if steps else value


@pytest.mark.parametrize("question", ["packed-max-min-fairness", "packed-makespan"])
def test_values_on_published_rates(data_dir: Path, question: str) -> None:
    oracle = data_dir / "gavel" / "simulation_throughputs.json"
    if not oracle.is_file():
        pytest.skip("the throughput oracle is not among the reference data")
    instance = importers.get("gavel").load(oracle, jobs=14, seed=3, capacity="2,1,1", objective=question)
    assert solved(instance) == pytest.approx(stated(instance, question == "packed-makespan"), rel=1e-6)
