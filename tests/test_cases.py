"""Situations that people have reported, told in our own words: what went wrong elsewhere must come out right here.

Those of chains, offloading, re-planning, serving and exporters stand with their tests; the rest is here.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import hetopt
from hetopt import Instance, LinearModel, Solution, solvers
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.registry import problem

GIB = 2**30


def chain(tasks, devices, links=(), **more) -> Instance:
    edges = [Edge(source=a.name, target=b.name) for a, b in pairwise(tasks)]
    return Instance.build(devices, [Job(name="model", tasks=list(tasks), edges=edges)], links, **more)


@pytest.mark.parametrize(
    ("layers", "ranges", "missing"),
    [(30, [(0, 7), (7, 14), (14, 21), (21, 28)], (28, 29)), (10, [(8, 10), (3, 6), (0, 3)], (6, 7))],
    ids=["four stages", "three ranks"],
)
def test_layers_that_no_stage_holds_are_named(layers, ranges, missing):
    """[H07] 28 of 30 layers were built, and nothing failed."""
    tasks = [Task(name=f"layer{k}", time={"d": 1}) for k in range(layers)]
    instance = chain(tasks, [Device(name=f"d{i}", type="d") for i in range(len(ranges))])
    placement = np.full(layers, -1)
    for device, (start, end) in enumerate(ranges):
        placement[start:end] = device
    with pytest.raises(hetopt.VerificationError) as caught:
        hetopt.verify(instance.with_question({"objective": "chain-bottleneck"}), Solution.assign(placement))
    told = " ".join(caught.value.violations)
    assert all(f"'layer{k}' is not placed" in told for k in missing)
    assert told.count("is not placed") == len(missing)


@pytest.mark.parametrize("head", ["copy", "first device"])
def test_an_embedding_larger_than_an_even_share(head):
    """[H12] 2 billion parameters on eight devices: the embedding alone is the fullest; the tied head is a copy or stays."""
    embedding, layer = 1_179_648_000, 155_713_536
    sizes = [embedding, *[layer] * 26, *([embedding] if head == "copy" else [])]
    tasks = [Task(name=f"m{k}", time={"d": size}, memory=size) for k, size in enumerate(sizes)]
    devices = [Device(name=f"d{i}", type="d", memory=17_179_869_184) for i in range(8)]
    result = hetopt.solve(chain(tasks, devices), objective="chain-bottleneck", options={"order": "free"})
    assert (result.status, result.objective, result.bound) == ("optimal", embedding, embedding)


def test_an_accelerator_with_many_islands():
    """[H22] 53 of 87 nodes are faster on the accelerator, but 34 switches cost more: 72.1 ms with four islands, not 90.7."""
    islands = [1, 1, 2, 1, 3, 1, 12, 1, 2, 1, 1, 15, 2, 1, 4, 1, 4]
    gaps = [2] * 16 + [1] * 2
    supported = []
    for gap, island in zip(gaps, [*islands, 0], strict=True):
        supported += [False] * gap + [True] * island
    assert (len(supported), sum(supported)) == (87, 53)
    tasks = [Task(name=f"n{k}", time=[0.3 if good else None, 1.0], output=0) for k, good in enumerate(supported)]
    devices = [Device(name="npu"), Device(name="cpu", host=True)]
    instance = chain(tasks, devices, [Link(source="*", target="*", bandwidth=None, latency=1.2)])
    result = hetopt.solve(instance, objective="offload")
    assert (result.status, result.objective) == ("optimal", pytest.approx(72.1))
    on = result.solution.placement == 0
    starts = np.flatnonzero(on & ~np.r_[False, on[:-1]])
    ends = np.flatnonzero(on & ~np.r_[on[1:], False]) + 1
    assert (ends - starts).tolist() == [12, 15, 4, 4]
    question = problem("partition.offload").question(instance)
    judged = problem("partition.offload").evaluate
    everything = judged(instance, question, Solution.assign(np.where(supported, 0, 1)))
    assert everything.value == pytest.approx(90.7)
    assert judged(instance, question, Solution.assign(np.ones(87, int))).value == pytest.approx(87.0)
    forbidden = judged(instance, question, Solution.assign(np.zeros(87, int)))
    assert "cannot run on 'npu'" in " ".join(forbidden.violations)


class TestStatuses:
    """[H26] Optimal, feasible, infeasible and unknown, each only when it is so."""

    def test_infeasible(self):
        told = hetopt.solve(Instance.from_times([[1], [1]], memory=[3, 3], capacity=[4]))
        assert (told.status, told.exit_code) == ("infeasible", 3)

    def test_no_time_and_no_plan_is_unknown(self):
        rng = np.random.default_rng(0)
        hard = Instance.from_times(rng.integers(10, 50, (60, 12)), memory=rng.integers(20, 60, 60), capacity=[215] * 12)
        told = hetopt.solve(hard, method="milp", time_limit=0.001)
        assert told.status in ("unknown", "feasible", "infeasible")
        assert told.status != "infeasible" or told.reason == "infeasible"
        assert (told.solution is None) == (told.status != "feasible")

    def test_a_plan_at_the_limit_is_feasible_with_its_gap(self):
        rng = np.random.default_rng(1)
        times = rng.integers(10, 100, (200, 20)).astype(float)
        told = hetopt.solve(
            Instance.from_times(times), method="milp", hint=Solution.assign(np.zeros(200, int)), time_limit=0.2
        )
        assert told.status == "feasible"
        assert told.gap is None or told.gap > 0

    @pytest.mark.parametrize("name", ["highs", "scipy"])
    def test_a_large_multiplier_is_no_excuse(self, name):
        """y = 1 and y <= 1e6 x: x is 1."""
        model = LinearModel("switch")
        x = model.binary("x", 1)
        y = model.continuous("y", 1, lower=1, upper=1)
        model.rows("link", 1, [(0, y, 1.0), (0, x, -1e6)], upper=0)
        model.minimize(x)
        answer = solvers.get(name).solve(model)
        assert answer.reason == "optimal"
        assert answer.x is not None
        assert answer.x[0] == 1 or model.check(answer.x)

    @pytest.mark.parametrize("name", ["highs", "scipy"])
    def test_zero_is_not_one(self, name):
        model = LinearModel("nothing")
        model.continuous("x", 1, upper=0)
        model.rows("never", 1, [(0, np.array([0]), 0.0)], lower=1, upper=1)
        model.minimize(np.array([0]))
        assert solvers.get(name).solve(model).reason == "infeasible"


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e-6, 1e-9])
def test_bytes_beside_microseconds(unit):
    """[H27] 32 layers of 1.7 GB on three devices of 25.8: 15 fit on one, whatever the unit of memory."""
    seconds = (1.7e-06, 3.1e-06, 9.9e-06)
    tasks = [Task(name=f"l{k}", time=list(seconds), memory=1_711_276_032 * unit) for k in range(32)]
    instance = chain(tasks, [Device(name=f"d{i}", memory=25_769_803_776 * unit) for i in range(3)])
    for objective, method in (("chain-latency", "dp"), ("chain-latency", "milp"), ("makespan", "auto")):
        result = hetopt.solve(instance, objective=objective, method=method, time_limit=60)
        hetopt.verify(instance, result)
        count = np.bincount(result.solution.placement, minlength=3)
        assert count.max() <= 15
        if objective == "chain-latency":
            assert result.status == "optimal"
            assert count.tolist() == [15, 15, 2]
            assert result.objective == pytest.approx(15 * seconds[0] + 15 * seconds[1] + 2 * seconds[2])


def test_a_size_is_known_before_anything_is_built():
    """[H28] 10,000 jobs on 1,000 machines are ten million binaries: said, not built; other methods are tried."""
    instance = Instance.from_times(np.broadcast_to(np.arange(1.0, 1001.0), (10_000, 1000)))
    makespan = problem("assignment.makespan")
    question = makespan.question(instance)
    assert makespan.method("milp").size(instance, question) >= 10_000_000
    told = hetopt.explain(instance)
    assert [name for name, _ in told.steps if name not in ("milp", "cpsat")]
    assert "milp" not in [name for name, _ in told.steps]


def test_what_is_left_at_the_limit_is_a_plan_and_a_bound():
    """[H28] A limit of a second on 2,000 jobs: a verified plan, a bound, and the gap between them."""
    rng = np.random.default_rng(3)
    result = hetopt.solve(Instance.from_times(rng.integers(10, 100, (2000, 20)).astype(float)), time_limit=3)
    assert result.verified
    assert result.bound is not None
    assert result.gap is not None
