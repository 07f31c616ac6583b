"""Completion of measured tables: each method where its answer is known, no leak from what is held out, instances with marks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hetopt
from hetopt import InputError, Instance
from hetopt.cli import main
from hetopt.costs.completing import complete_instance, measured_times, merged, to_measure
from hetopt.costs.completion import METHODS, complete, held_out, low_rank, mean, neighbours, ridge, soft
from hetopt.costs.fits import monotone, monotone_map, rank_one
from hetopt.records import Device, Job

NAN = float("nan")
MANY = 200 if os.environ.get("HETOPT_LONG_TESTS") else 20


def factors(
    seed: int, n: int = 12, m: int = 4, missing: float = 0.3
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A matrix that is a factor of the job by one of the type, and the same with holes, one entry left in each row and column."""
    random = np.random.default_rng(seed)
    whole = random.uniform(1, 9, (n, 1)) * random.uniform(0.2, 5, (1, m))
    holes = random.random((n, m)) < missing
    holes[np.arange(n), np.arange(n) % m] = False
    holes[0] = False
    return whole, np.where(holes, NAN, whole)


class TestMethods:
    @pytest.mark.parametrize("name", sorted(METHODS))
    @pytest.mark.parametrize("seed", range(3))
    def test_factors_are_found_exactly(self, name: str, seed: int) -> None:
        """With logarithms every method finds a table of factors, but for the penalty of those that have one."""
        whole, holed = factors(seed)
        found = np.exp(METHODS[name](np.log(holed), True))
        known = ~np.isnan(found)
        assert known.all() or name == "monotone"
        close = 0.02 if name in ("low-rank", "mean", "soft", "neighbours", "ridge") else 1e-6
        assert np.abs(found / whole - 1)[known].max() < close

    def test_one_wild_measurement_does_not_bend_the_absolute_fit(self) -> None:
        whole, holed = factors(0)
        i, j = np.argwhere(~np.isnan(holed))[7]
        holed[i, j] *= 50
        found = np.exp(rank_one(np.log(holed)))
        assert np.abs(found / whole - 1).max() < 1e-6

    @pytest.mark.parametrize("seed", range(MANY))
    def test_the_absolute_fit_is_the_least_there_is(self, seed: int) -> None:
        """Three jobs, two types: some optimum passes through as many entries as there are free factors; all are tried."""
        import itertools

        random = np.random.default_rng(seed)
        x = random.normal(size=(3, 2))
        fit = rank_one(x)
        cells = list(itertools.product(range(3), range(2)))
        best = np.inf
        for through in itertools.combinations(cells, 4):
            a = np.zeros((5, 5))
            right = np.zeros(5)
            for row, (i, j) in enumerate(through):
                a[row, i] = a[row, 3 + j] = 1
                right[row] = x[i, j]
            a[4, 3] = 1
            if abs(np.linalg.det(a)) > 1e-9:
                f = np.linalg.solve(a, right)
                best = min(best, float(np.abs(x - f[:3, None] - f[None, 3:]).sum()))
        assert float(np.abs(x - fit).sum()) == pytest.approx(best, rel=1e-7)

    def test_what_nothing_leads_to_stays_unknown(self) -> None:
        apart = np.array([[1.0, 2.0, NAN], [2.0, 4.0, NAN], [NAN, NAN, 3.0]])
        assert np.isnan(rank_one(np.log(apart))[2, :2]).all()
        done = complete(apart, "rank-one")
        assert np.isnan(done.values[:2, 2]).all()
        assert done.values[0, 0] == 1.0

    def test_a_monotone_map_is_found_between_its_knots(self) -> None:
        x = np.linspace(0, 1, 13)
        y = np.where(x < 0.5, x, 0.5 + 3 * (x - 0.5))
        found = monotone(x, y)
        assert found.error < 0.05
        assert (np.diff(found(np.linspace(-1, 2, 50))) >= -1e-9).all()
        falling = monotone(x, -x)
        assert np.ptp(falling(x)) < 1e-9  # the best that does not fall is level

    def test_the_nearest_jobs_decide(self) -> None:
        """The first job is like the second, not like the others."""
        matrix = np.array([[0.9, 0.8, NAN], [0.9, 0.8, 0.7], [0.1, 0.2, 0.1], [0.2, 0.1, 0.2], [0.1, 0.1, 0.1]])
        assert neighbours(matrix, False)[0, 2] == pytest.approx(0.7, abs=0.01)

    def test_a_column_mean(self) -> None:
        assert mean(np.array([[1.0, NAN], [3.0, 5.0]]), False).tolist() == [[2, 5], [2, 5]]

    def test_low_rank_of_a_product(self) -> None:
        random = np.random.default_rng(0)
        whole = random.random((14, 2)) @ random.random((2, 10))
        holed = np.where(random.random(whole.shape) < 0.2, NAN, whole)
        assert np.abs(low_rank(holed, False, rank=2, shrink=1e-6, rounds=200) - whole).max() < 1e-3
        assert np.abs(soft(holed, False) - whole).mean() < 0.1
        assert np.abs(ridge(np.vstack([whole[:-1], holed[-1:]]), False)[-1] - whole[-1]).max() < 0.2

    def test_maps_need_anchors(self) -> None:
        assert np.isnan(monotone_map(np.array([[0.0, 1.0], [1.0, NAN], [2.0, NAN]]))[1, 1])


class TestHoldingOut:
    def test_what_is_held_out_is_not_seen(self) -> None:
        """A method that repeats what it is given knows nothing of what is held out."""
        _, holed = factors(1)
        assert np.isnan(held_out(holed, lambda matrix, logs: matrix, True)).all()

    def test_every_measured_entry_is_tried_once(self) -> None:
        _, holed = factors(2, n=30)
        seen = held_out(holed, lambda matrix, logs: np.zeros_like(matrix), True)
        assert (np.isnan(seen) == np.isnan(holed)).all()

    def test_auto_takes_the_method_with_the_least_error(self) -> None:
        random = np.random.default_rng(0)
        matrix = np.exp(random.normal(0, 1, (20, 4)))
        matrix[random.random(matrix.shape) < 0.2] = NAN
        done = complete(matrix)
        whole = [name for name in done.tried if name != "monotone"]
        assert done.tried[done.method] <= min(done.tried[name] for name in whole)
        assert (done.error[~done.measured] > 0).all()
        assert (done.error[done.measured] == 0).all()

    def test_the_error_told_is_about_the_error_made(self) -> None:
        random = np.random.default_rng(5)
        whole, _ = factors(5, n=60, m=5)
        noisy = whole * np.exp(random.normal(0, 0.1, whole.shape))
        holed = np.where(random.random(whole.shape) < 0.25, NAN, noisy)
        done = complete(holed, "rank-one")
        made = np.sqrt(np.mean((done.values / noisy - 1)[~done.measured] ** 2))
        assert 0.6 < made / done.error[~done.measured].mean() < 1.6

    @pytest.mark.parametrize(
        ("values", "method", "words"),
        [
            ([[NAN]], "auto", "at least one measurement"),
            ([[1.0, -1.0]], "auto", "above 0"),
            ([[1.0, 2.0]], "nearest", "there is no method 'nearest'"),
            ([1.0], "auto", "expected jobs by types"),
        ],
        ids=["none", "negative", "method", "shape"],
    )
    def test_bad_input(self, values: Any, method: str, words: str) -> None:
        with pytest.raises(InputError, match=words):
            complete(values, method)


def cluster(times: list[list[float | None]], kinds: dict[str, str] | None = None, **tables: Any) -> Instance:
    devices = [Device(name=f"t{i}", power=100) for i in range(len(times[0]))]
    jobs = [Job(name=f"j{k}", time=list(row)) for k, row in enumerate(times)]
    return Instance.build(devices, jobs, tables={"kind": kinds or {}, **tables})


class TestInstances:
    def test_estimates_are_marked_and_the_rest_stays(self) -> None:
        times: list[list[float | None]] = [[1, 2], [2, 4], [3, 6], [4, None], [5, None]]
        instance = cluster(times, unmeasured={"j3": ["t1"]})
        done = complete_instance(instance, "rank-one")
        assert done.instance.time[3, 1] == pytest.approx(8)
        assert not done.instance.eligible[4, 1]  # it cannot run there
        rows = done.instance.tables["estimated"]
        assert [(row[0], row[1], row[3]) for row in rows] == [("t1", ["j3"], "rank-one")]
        assert rows[0][2][0] == pytest.approx(0, abs=1e-6)
        assert "unmeasured" not in done.instance.tables
        assert (done.instance.time[:3] == instance.time[:3]).all()
        assert complete_instance(instance, "rank-one", everywhere=True).estimated == 2

    def test_an_error_of_which_nothing_is_known_is_null(self) -> None:
        """Two entries, of which each is needed for the other: nothing can be held out."""
        instance = cluster([[1, None], [2, 3]], unmeasured={"j0": ["t1"]}, floor={"j0": 0.1})
        done = complete_instance(instance, "monotone", everywhere=False)
        assert (done.estimated, done.unknown) == (0, 1)
        assert done.instance.tables["unmeasured"] == {"j0": ["t1"]}
        marked: dict[str, Any] = {"estimated": [["t0", ["j0"], [None], "rank-one"]], "floor": {"j0": 0.1}}
        instance = cluster([[1, 2]], None, **marked).with_question({"objective": "least-power"})
        assert hetopt.solve(instance).solution.details["accelerators"][0][0] == "t0"  # type: ignore[union-attr]
        careful = hetopt.solve(instance, options={"caution": 1.0})
        assert careful.solution.details["accelerators"] == [["t1", ["j0"]]]  # type: ignore[union-attr]

    def test_a_kind_is_one_row(self) -> None:
        """What another job of the kind has measured is no estimate, and is not counted twice."""
        times: list[list[float | None]] = [[1, 2], [1, None], [3, 7]]
        instance = cluster(times, {"j0": "k", "j1": "k"}, unmeasured={"j1": ["t1"]})
        rows, of = merged(instance, measured_times(instance)[0])
        assert (len(rows), of.tolist()) == (2, [0, 0, 1])
        done = complete_instance(instance)
        assert done.instance.time[1, 1] == 2
        assert (done.estimated, done.instance.tables["estimated"]) == (0, [])

    def test_kinds_that_disagree_are_apart(self) -> None:
        instance = cluster([[1, 2], [1, 3]], {"j0": "k", "j1": "k"})
        assert len(merged(instance, measured_times(instance)[0])[0]) == 2

    @pytest.mark.parametrize(
        ("tables", "words"),
        [
            ({}, "nothing is unmeasured"),
            ({"unmeasured": {"x": ["t1"]}}, "names 'x', which is no task"),
            ({"unmeasured": {"j0": ["t9"]}}, "'t9', which is no device"),
            ({"unmeasured": {"j0": ["t0"]}}, "but there is a time for it"),
            ({"unmeasured": {"j0": "t1"}}, "expected a list of devices"),
            ({"unmeasured": []}, "expected lists of devices by task"),
        ],
        ids=["nothing", "task", "device", "there", "list", "table"],
    )
    def test_bad_input(self, tables: dict[str, Any], words: str) -> None:
        with pytest.raises(InputError, match=words):
            complete_instance(cluster([[1, None], [2, 3]], **tables))

    def test_devices_of_one_type_take_one_time(self) -> None:
        devices = [Device(name="a", type="gpu"), Device(name="b", type="gpu")]
        instance = Instance.build(devices, [Job(name="j", time=[1, 2])])
        with pytest.raises(InputError, match="of one type and take different times"):
            measured_times(instance)

    def test_what_to_measure(self) -> None:
        """Two anchors for the second type, of which one is there."""
        times: list[list[float | None]] = [[1, 2], [2, None], [3, None]]
        instance = cluster(times, unmeasured={"j1": ["t1"], "j2": ["t1"]})
        found = to_measure(instance, 2)
        assert (found["reference"], found["count"], found["anchors"], found["wanted"]) == ("t0", 1, 2, 2)
        assert to_measure(instance, 3, budget=1)["anchors"] == 2
        with pytest.raises(InputError, match="--reference is 'x'"):
            to_measure(instance, 2, reference="x")


class TestPairs:
    def kinds(self, together: list[Any], missing: list[Any]) -> Instance:
        """Three kinds of two jobs on two types, t1 twice as fast."""
        kind = {f"j{k}": f"k{k // 2}" for k in range(6)}
        times: list[list[float | None]] = [[2.0 + k // 2, 1.0 + k // 4] for k in range(6)]
        return cluster(times, kind, together=together, unmeasured_pairs=missing)

    def test_what_a_kind_keeps_is_alike_beside_alike_partners(self) -> None:
        """Everybody keeps half beside anybody: so does the pair that was not measured."""
        pairs = [("k0", "k0"), ("k0", "k1"), ("k0", "k2"), ("k1", "k1"), ("k1", "k2"), ("k2", "k2")]
        alone = {"t0": {"k0": 2, "k1": 3, "k2": 4}, "t1": {"k0": 1, "k1": 1, "k2": 2}}
        rows = [[t, a, b, 2 * alone[t][a], 2 * alone[t][b]] for t in alone for a, b in pairs]
        instance = self.kinds([row for row in rows if row[:3] != ["t1", "k0", "k2"]], [["t1", "k2", "k0"]])
        done = complete_instance(instance)
        row = done.instance.tables["together"][-1]
        assert row[:3] == ["t1", "k2", "k0"]
        assert row[3:] == pytest.approx([4, 2], rel=1e-6)
        ((device, names, errors, method),) = done.instance.tables["estimated"]
        assert (device, names, method) == ("t1", ["k2", "k0"], done.pairs.method if done.pairs else None)
        assert errors == pytest.approx([0, 0], abs=1e-6)
        assert "unmeasured_pairs" not in done.instance.tables

    @pytest.mark.parametrize(
        ("missing", "words"),
        [
            ([["t9", "k0", "k1"]], "'t9', which is no device"),
            ([["t0", "k0", "k9"]], "expected kinds"),
            ([["t0", "k1", "k0"]], "that is measured"),
            ([["t1", "k1", "k0"], ["t1", "k0", "k1"]], "is named before"),
            ([["t0", "k0"]], "expected \\[type, kind, other kind\\]"),
        ],
        ids=["device", "kind", "measured", "twice", "short"],
    )
    def test_bad_input(self, missing: list[Any], words: str) -> None:
        with pytest.raises(InputError, match=words):
            complete_instance(self.kinds([["t0", "k0", "k1", 4, 6]], missing))

    def test_jobs_of_a_kind_must_be_alike(self) -> None:
        kind = {"j0": "k", "j1": "k"}
        instance = cluster(
            [[1, 2], [1, 3]], kind, together=[["t0", "k", "k", 3, 3]], unmeasured_pairs=[["t1", "k", "k"]]
        )
        with pytest.raises(InputError, match="kind 'k' take different times alone"):
            complete_instance(instance)


class TestCommand:
    def test_a_file_completed_is_a_file(self, tmp_path: Path) -> None:
        run = CliRunner()
        holed, done = str(tmp_path / "holed.json"), str(tmp_path / "done.json")
        made = run.invoke(
            main, ["generate", "colocation", "--jobs", "30", "--unmeasured", "0.3", "--seed", "1", "-o", holed]
        )
        assert made.exit_code == 0
        told = run.invoke(main, ["complete", holed, "--json", "-o", done])
        assert told.exit_code == 0
        record = json.loads(told.stdout)
        assert record["unknown"] == 0
        assert len(hetopt.read(done).tables["estimated"]) == record["estimated"] > 0
        table = run.invoke(main, ["complete", holed])
        assert f"* {record['method']}" in table.stdout
        asked = run.invoke(main, ["complete", holed, "--measure", "2", "--json"])
        assert json.loads(asked.stdout)["wanted"] == 4
        assert run.invoke(main, ["complete", holed, "--method", "magic"]).exit_code == 1
