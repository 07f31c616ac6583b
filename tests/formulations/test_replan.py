"""Keep or move: a reported case, hand-made trade-offs, brute force."""

from __future__ import annotations

from itertools import pairwise

import pytest

import hetopt
from hetopt import Instance
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.registry import problem


def pipeline(seconds, held, links=(), memory=0, tables=None) -> Instance:
    """Layers with a row of seconds by device, and what each device holds as (first, beyond the last)."""
    tasks = [Task(name=f"l{k}", time=list(row), memory=memory) for k, row in enumerate(seconds)]
    edges = [Edge(source=a.name, target=b.name) for a, b in pairwise(tasks)]
    names = [f"s{i}" for i in range(len(held))]
    current = {name: [f"l{k}" for k in range(*reach)] for name, reach in zip(names, held, strict=True)}
    return Instance.build(
        [Device(name=name) for name in names], [Job(name="m", tasks=tasks, edges=edges)], links,
        tables={"current": current, **(tables or {})}, question={"objective": "replan"},
    )  # fmt: skip


def solved(instance, **options):
    result = hetopt.solve(instance, options=options)
    assert result.status == "optimal", result.messages
    hetopt.verify(instance, result)
    return result


def test_rebalancing_that_costs_more_than_it_gains():
    """[H29] Servers reload whole stages at 6 s a layer for 4 per cent more, over 600 s: keep."""
    speed = (1.04 / 33, 1 / 33, 1 / 20)
    instance = pipeline([speed] * 80, [(0, 33), (33, 66), (60, 80)])
    kept = solved(instance, horizon=600, reload=6, loads="all")
    assert kept.evaluation["decision"] == "keep"
    assert kept.objective == pytest.approx(1.04)
    assert solved(instance, horizon=60_000, reload=6, loads="all").evaluation["decision"] == "move"


def test_a_move_pays_when_the_horizon_is_long():
    """Two layers of four are moved when 10 s of standing still are little against the horizon."""
    instance = pipeline([(1, 1)] * 4, [(0, 4), (0, 0)])
    short = solved(instance, horizon=15, reload=5)
    assert (short.objective, short.evaluation["decision"]) == (4.0, "keep")
    middle = solved(instance, horizon=30, reload=5)
    assert middle.objective == pytest.approx(2 * 30 / 20)
    assert middle.evaluation["layers_loaded"] == 2


def test_loading_by_bytes_over_the_link_from_the_host():
    link = [Link(source="host", target="*", bandwidth=2), Link(source="*", target="*", bandwidth=None)]
    instance = pipeline([(1, 1)] * 4, [(0, 4), (0, 0)], link, memory=10)
    assert solved(instance, horizon=100).objective == pytest.approx(2 * 100 / 90)


def test_nothing_can_be_loaded_in_time():
    instance = pipeline([(1, 1)] * 2, [(0, 0), (0, 0)])
    assert hetopt.solve(instance, options={"horizon": 5, "reload": 10}).status == "infeasible"


@pytest.mark.parametrize("seed", range(500, 540))
def test_against_all_plans(seed):
    one = problem("partition.replan")
    instance = one.sample(seed)
    question = one.question(instance)
    judged = [one.judge(instance, question, plan) for plan in one.every_plan(instance, question)]
    values = [each.value for each in judged if not each.violations]
    result = hetopt.solve(instance)
    if not values:
        assert result.status == "infeasible"
        return
    assert result.objective == pytest.approx(min(values), rel=1e-12)
    assert result.bound <= min(values) * (1 + 1e-12)
    assert result.status == "optimal"


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"s9": []}, "devices"),
        ({"s0": "l0"}, "expected a list of tasks"),
        ({"s0": ["l9"]}, "no task of the instance"),
        ([], "no object"),
    ],
    ids=["device", "type", "task", "shape"],
)
def test_a_table_that_cannot_be_read(table, word):
    instance = pipeline([(1, 1)] * 2, [(0, 2), (0, 0)], tables={"current": table})
    with pytest.raises(hetopt.InputError, match=word):
        hetopt.solve(instance, options={"reload": 1})
