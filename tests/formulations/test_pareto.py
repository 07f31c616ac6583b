"""Throughput against energy: cases worked out by hand, the whole front against every plan, broken plans."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

import hetopt
from formulations.partition import pareto
from hetopt import Instance, Solution
from hetopt.errors import InputError
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.registry import problem

PERIOD, ENERGY = problem("partition.pareto"), problem("partition.pareto_energy")


def row(times, pools, *, outputs=None, links=(), memory=0, cut=True, tables=None, **question) -> Instance:
    """Layers with seconds by pool; pools as (units, watts, idle watts)."""
    tasks = [
        Task(name=f"l{k}", time=list(each), output=0 if outputs is None else outputs[k], memory=memory, cut=cut)
        for k, each in enumerate(times)
    ]
    return Instance.build(
        [Device(name=f"p{k}", slots=n, power=w, idle_power=v, memory=10) for k, (n, w, v) in enumerate(pools)],
        [Job(name="model", tasks=tasks, edges=[Edge(source=a.name, target=b.name) for a, b in pairwise(tasks)])],
        links,
        tables=tables or {},
        question={"objective": "pareto-period", **question},
    )


def solve(instance, objective, **options):
    """The proved result of the labels, equal to that of the MILP."""
    result = hetopt.solve(instance, objective=objective, options=options)
    assert result.status == "optimal", (result.messages, result.infeasible)
    assert result.method.startswith("labels")
    hetopt.verify(instance, result)
    other = hetopt.solve(instance, objective=objective, options=options, method="milp")
    assert other.status == "optimal"
    assert math.isclose(other.objective, result.objective, rel_tol=1e-6)
    return result


def points(instance, **limits) -> list[tuple[float, float]]:
    return [(point.period, point.energy) for point in pareto.front(instance, **limits)]


# A fast and hungry pool, a slow and thrifty one: 2 s at 10 W or 6 s at 1 W for each of two layers.
PAIR = row([[2, 6], [2, 6]], [(1, 10, 0), (1, 1, 0)])


class TestByHand:
    def test_the_whole_front(self):
        """Fast alone: 4 s, 40 J; one of each: 6 s, 26 J; slow alone: 12 s, 12 J."""
        assert points(PAIR) == [(4, 40), (6, 26), (12, 12)]
        assert points(PAIR, period=10) == [(4, 40), (6, 26)]
        assert points(PAIR, energy=30) == [(6, 26), (12, 12)]

    def test_one_plan_of_it_by_a_limit(self):
        assert solve(PAIR, "pareto-period").objective == 4
        assert solve(PAIR, "pareto-period", energy=30.0).objective == 6
        assert solve(PAIR, "pareto-energy").objective == 12
        assert solve(PAIR, "pareto-energy", period=6.0).objective == 26

    def test_the_result_lists_the_front(self):
        result = hetopt.solve(PAIR)
        assert result.run["model"]["labels"]["front"] == [[4, 40], [6, 26], [12, 12]]

    def test_units_at_rest_draw_power_until_the_period_ends(self):
        """4 s at 10 W on p0; p1 works 1 s at 3 W and rests 3 s at 2 W: 40 + 3 + 6."""
        instance = row([[4, None], [None, 1]], [(1, 10, 5), (1, 3, 2)])
        assert points(instance) == [(4, 49)]

    def test_units_work_together(self):
        """12 s on one unit at 1 W, 6 s on two: 12 J each way; with speed-up 1.5, 8 s and 16 J."""
        assert points(row([[12]], [(2, 1, 0)])) == [(6, 12)]
        table = {"speedup": {"p0": [1, 1.5]}}
        assert points(row([[12]], [(2, 1, 0)], tables=table)) == [(8, 16), (12, 12)]

    def test_stages_on_one_pool_follow_each_other(self):
        """Two units of one pool, two layers of 5 s, and no speed-up from sharing: a pipeline of two stages."""
        link = Link(source="*", target="*", bandwidth=None)
        instance = row([[5], [5]], [(2, 1, 0)], tables={"speedup": {"p0": [1, 1]}}, links=[link])
        result = solve(instance, "pareto-period")
        assert result.objective == 5
        assert result.solution.details == {"layers": [1, 1], "units": [1, 1]}

    def test_what_passes_is_received_by_the_next_stage(self):
        """6 bytes at 2 a second and 1 s: the second stage takes 2 + 4 s, at work for 2 of them."""
        link = Link(source="p0", target="p1", bandwidth=2, latency=1)
        instance = row([[3, None], [None, 2]], [(1, 1, 0), (1, 1, 1)], outputs=[6, 0], links=[link])
        assert points(instance) == [(6, 3 + 6)]

    def test_without_a_link_nothing_passes(self):
        instance = row([[3, 9], [9, 3]], [(1, 1, 0), (1, 1, 0)], outputs=[6, 0])
        assert points(instance) == [(12, 12)]
        assert points(row([[3, 9], [9, 3]], [(1, 1, 0), (1, 1, 0)])) == [(3, 6)]

    def test_every_unit_holds_the_weights(self):
        assert points(row([[3, 9], [9, 3]], [(1, 1, 0), (1, 1, 0)], memory=6)) == [(3, 6)]
        assert points(row([[3], [9]], [(1, 1, 0)], memory=6)) == []

    def test_a_cut_that_is_not_allowed(self):
        assert points(row([[3, 9], [9, 3]], [(1, 1, 0), (1, 1, 0)], cut=False)) == [(12, 12)]


class TestInfeasible:
    @pytest.mark.parametrize(
        ("limits", "told"),
        [
            ({"period": 3.0}, "the quickest plan takes 4: 1 s too many"),
            ({"energy": 10.0}, "the thriftiest plan takes 12: 2 J too many"),
            (
                {"period": 6.0, "energy": 20.0},
                "within 6 s no plan takes less than 26 J, and at most 20 are",
            ),
        ],
    )
    def test_by_how_much_a_limit_is_missed(self, limits, told):
        for objective in ("pareto-period", "pareto-energy"):
            result = hetopt.solve(PAIR, objective=objective, options=limits)
            assert result.status == "infeasible"
            assert told in result.infeasible[0]

    def test_no_plan_at_all(self):
        result = hetopt.solve(row([[3], [9]], [(1, 1, 0)], memory=6))
        assert result.status == "infeasible"
        assert "hold and pass them on" in result.infeasible[0]


class TestBroken:
    @pytest.mark.parametrize(
        ("placement", "details", "told"),
        [
            ([0, 1], {"layers": [1, 1], "units": [1, 1]}, ""),
            ([0, 1], {"layers": [1, 1], "units": [1, 2]}, "has 1 units, and the plan takes 2"),
            ([0, 0], {"layers": [1, 1], "units": [1, 1]}, "has 1 units, and the plan takes 2"),
            ([0, 0], {"layers": [2], "units": [1]}, "the energy is 40 J an item, 10 more than the 30 allowed"),
            ([1, 1], {"layers": [2], "units": [1]}, "the period is 12 s an item, 2 more than the 10 allowed"),
        ],
    )
    def test_each_break_is_told(self, placement, details, told):
        question = PERIOD.question(PAIR, {"objective": "pareto-period", "energy": 30.0, "period": 10.0})
        found = " ".join(PERIOD.judge(PAIR, question, Solution(np.array(placement), details=details)).violations)
        assert (told in found) if told else not found

    def test_memory_links_and_cuts(self):
        plan = Solution(np.array([0, 1]), details={"layers": [1, 1], "units": [1, 1]})
        for instance, told in (
            (row([[3, 9], [9, 3]], [(1, 1, 0)] * 2, memory=11), "needs 11 bytes and has 10: 1 too many"),
            (row([[3, 9], [9, 3]], [(1, 1, 0)] * 2, outputs=[6, 0]), "no link 'p0' -> 'p1'"),
            (row([[3, 9], [9, 3]], [(1, 1, 0)] * 2, cut=False), "no cut is allowed"),
        ):
            assert told in " ".join(PERIOD.judge(instance, PERIOD.question(instance), plan).violations)

    @pytest.mark.parametrize("table", [{"p9": [1]}, {"p0": [2]}, {"p0": []}, {"p0": "x"}, {"p0": [1, -1]}, 3])
    def test_a_broken_table_is_told(self, table):
        with pytest.raises(InputError, match="speedup"):
            hetopt.solve(row([[3]], [(1, 1, 0)], tables={"speedup": table}))

    def test_what_does_not_fit_is_told(self):
        assert "more when idle" in PERIOD.fits(row([[3]], [(1, 1, 2)]))
        bare = Instance.build([Device(name="p0", power=1)], [Job(name="l", time=[1])])
        assert "no idle_power" in PERIOD.fits(bare)
        with pytest.raises(ValueError, match="no idle_power"):
            pareto.front(bare)
        with pytest.raises(InputError, match="energy"):
            hetopt.solve(PAIR, options={"energy": -1.0})


@pytest.mark.parametrize("seed", range(30, 60))
def test_the_front_is_that_of_all_plans(seed):
    instance = PERIOD.sample(seed).with_question({"objective": "pareto-period"})
    question = PERIOD.question(instance)
    pairs = set()
    for plan in PERIOD.every_plan(instance, question):
        evaluation = PERIOD.evaluate(instance, question, plan)
        if not evaluation.violations:
            pairs.add((evaluation.details["period"], evaluation.details["energy"]))
    expected: list[tuple[float, float]] = []
    for period, joules in sorted(pairs):
        if not expected or joules < expected[-1][1] * (1 - 1e-11):
            expected.append((period, joules))
    found = points(instance)
    assert np.allclose(np.array(found).reshape(-1, 2), np.array(expected).reshape(-1, 2), rtol=1e-9)
    if expected:
        assert hetopt.bound(instance, objective="pareto-period", method="count").bound <= expected[0][0] * (1 + 1e-12)
        assert hetopt.bound(instance, objective="pareto-energy", method="count").bound <= expected[-1][1] * (1 + 1e-12)


def test_no_joules_and_no_work_that_draws_any():
    """All work at rest power 5 and no time: the plan draws nothing, and a limit of 0 joules keeps it."""
    instance = hetopt.Instance.from_times(
        [[0.0]], devices=[hetopt.Device(name="p0", power=12.5, idle_power=5)], question={"objective": "pareto-energy"}
    )
    result = hetopt.solve(instance, options={"energy": 0}, method="milp")
    assert (result.status, result.objective) == ("optimal", 0.0)
