"""Rules of partition.maxload beyond the plain ones: by hand, against every plan, and a verifier that notices what is wrong."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from msgspec import structs

import hetopt
from hetopt import Device, Edge, InputError, Job, Link, Task
from hetopt.registry import problem
from hetopt.solution import Solution

MAXLOAD = problem("partition.maxload")
IDEALS = {"contiguous": "ideals", "passes": "sum"}


def model(times: list[float], devices: int, links: list[Link], *, backward: int = 0, **more: float) -> hetopt.Instance:
    """A chain of tasks of one byte with outputs of 4 bytes on equal devices; the last ``backward`` are the backward pass."""
    facts = {"memory": 1, "output": 4, "activation": 0} | {k: v for k, v in more.items() if k != "room"}
    forward = len(times) - backward
    tasks = [
        Task(name=f"t{k}", time=[t] * devices, backward=k >= forward,
             group=f"g{k}" if k < forward else f"g{len(times) - 1 - k}", **facts)
        for k, t in enumerate(times)
    ]  # fmt: skip
    edges = [Edge(source=a.name, target=b.name) for a, b in itertools.pairwise(tasks)]
    given = [Device(name=f"d{k}", type="acc", memory=more.get("room")) for k in range(devices)]
    return hetopt.Instance.build(
        given, [Job(name="m", tasks=tasks, edges=edges)], links, question={"objective": "maxload"}
    )


HOST = [Link(source="acc", target="host", bandwidth=4, both=True)]


def solved(instance: hetopt.Instance, **options: object) -> hetopt.Result:
    result = hetopt.solve(instance, options=options)
    assert result.status == "optimal", result.messages
    hetopt.verify(instance, result)
    return result


def test_latency_is_paid_once_a_transfer() -> None:
    """3 | 3 with a hand-over of 4 / 4 + 2 seconds on the sending side and 4 / 2 + 1 on the receiving one: 6 against 6."""
    links = [
        Link(source="acc", target="host", bandwidth=4, latency=2), Link(source="host", target="acc", bandwidth=2, latency=1)
    ]  # fmt: skip
    assert solved(model([3, 3], 2, links)).objective == 6
    assert solved(model([4, 4], 2, links)).objective == 7
    assert solved(model([4, 4], 2, links), contiguous="none").objective == 7


def test_overlap_takes_the_larger_part() -> None:
    assert solved(model([3, 3], 2, HOST)).objective == 4
    for contiguous in ("ideals", "device", "none"):
        assert solved(model([3, 3], 2, HOST), overlap=True, contiguous=contiguous).objective == 3
    assert solved(model([0.5, 0.5], 2, HOST), overlap=True).objective == 1


def test_direct_links_are_directed() -> None:
    """d0 -> d1 takes 1 second, d1 -> d0 takes 4: the chain starts on d0; the wrong way round it costs 3 more."""
    links = [Link(source="d0", target="d1", bandwidth=4), Link(source="d1", target="d0", bandwidth=2, latency=2)]
    instance = model([5, 5], 2, links)
    result = solved(instance, transfers="direct")
    assert result.objective == 6
    assert result.solution.placement.tolist() == [0, 1]
    question = MAXLOAD.question(instance, {"transfers": "direct"})
    assert MAXLOAD.evaluate(instance, question, Solution.assign([1, 0])).value == 9
    with pytest.raises(InputError, match="'d1' -> 'd0'"):
        hetopt.solve(model([5, 5], 2, links[:1]), options={"transfers": "direct"})


def test_an_output_is_sent_directly_to_each_device_that_needs_it() -> None:
    """A source of 1 second feeds two tasks of 9 on two other devices: it sends twice, 1 + 2 x 1."""
    tasks = [Task(name=n, time=[t] * 3, output=4) for n, t in (("a", 1), ("b", 9), ("c", 9))]
    instance = hetopt.Instance.build(
        [Device(name=f"d{k}") for k in range(3)],
        [Job(name="m", tasks=tasks, edges=[Edge(source="a", target="b"), Edge(source="a", target="c")])],
        [Link(source="*", target="*", bandwidth=4)],
    )
    apart = Solution.assign([0, 1, 2])
    loads = {
        transfers: MAXLOAD.evaluate(instance, MAXLOAD.question(instance, {"transfers": transfers}), apart)
        for transfers in ("host", "direct")
    }
    assert loads["host"].details["devices"]["d0"]["load"] == 2
    assert loads["direct"].details["devices"]["d0"]["load"] == 3


def test_shared_stages_halve_the_load() -> None:
    """1 | 8 | 1 with hand-overs of 1: 10 alone; the middle one on two of four devices (8 + 2) / 2 = 5."""
    instance = model([1, 8, 1], 4, HOST)
    assert solved(instance).objective == 10
    assert solved(instance, replicas=2).objective == 5


def test_shared_stages_sum_gradients_in_training() -> None:
    """6 forward and 6 backward, one layer of 2 bytes on two devices: 12 / 2 + 2 x (2 / (2 x 1) + 1) / batch."""
    links = [*HOST, Link(source="acc", target="acc", bandwidth=1, latency=1)]
    instance = model([6, 6], 2, links, backward=1)
    assert solved(instance, replicas=2, batch=1).objective == 10
    assert solved(instance, replicas=2, batch=4).objective == 7
    assert solved(model([12], 2, links), replicas=2).objective == 6


def test_early_stages_hold_more_inputs() -> None:
    """Three layers of 1 byte and 1 of activations, one on each device: 1 + 3 bytes on the first."""
    instance = model([3, 3, 3], 3, [Link(source="*", target="*", bandwidth=None)], activation=1, room=4)
    assert solved(instance, in_flight="1f1b").objective == 3
    tight = model([3, 3, 3], 3, [Link(source="*", target="*", bandwidth=None)], activation=1, room=3)
    assert hetopt.solve(tight, options={"in_flight": "1f1b"}).status == "infeasible"
    plain = hetopt.solve(tight)
    assert plain.objective == 3
    assert any("activation" in text for text in plain.messages)


def test_links_that_are_not_used_are_told() -> None:
    instance = model([3, 3], 2, [*HOST, Link(source="d0", target="d1", bandwidth=9)])
    assert any("transfers=direct uses them" in text for text in hetopt.solve(instance).messages)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"replicas": 2, "contiguous": "none"}, "replicas > 1 is answered with contiguous=ideals only"),
        ({"in_flight": "1f1b", "transfers": "direct"}, "in_flight=1f1b is answered with transfers=host only"),
        ({"replicas": 2, "passes": "max"}, "with passes=sum only"),
        ({"replicas": 0}, "expected a number from 1 to 16"),
        ({"batch": 0}, "expected a number >= 1"),
    ],
)
def test_what_no_method_answers_is_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        hetopt.solve(model([3, 3], 2, HOST), options=options)


@pytest.mark.parametrize("method", ["dp", "milp", "cpsat", "lp", "exchange", "min-cut"])
def test_plain_methods_refuse_other_rules(method: str) -> None:
    options = {"overlap": True, "contiguous": "none" if method == "exchange" else "ideals"}
    with pytest.raises(InputError, match=r"overlap|one device a stage"):
        hetopt.solve(model([3, 3], 2, HOST), method=method, options=options)


def test_equal_devices_with_unequal_links_are_refused() -> None:
    links = [*HOST, Link(source="*", target="*", bandwidth=1), Link(source="d0", target="d1", bandwidth=2)]
    result = hetopt.solve(model([3, 3], 2, links), options={"replicas": 2})  # no gradients, no matter
    assert result.status == "optimal"
    with pytest.raises(InputError, match="different speed"):
        hetopt.solve(model([3, 3], 2, links, backward=1), options={"replicas": 2})


@pytest.mark.parametrize(
    ("stages", "sentence"),
    [
        ([["d0"], ["d1", "d2"], ["d3", "d3"]], "twice"),
        ([["d0"], ["d1", "d2"]], "not the devices that hold tasks"),
        ([["d1", "d2"], ["d0"], ["d3"]], "whose stage is earlier"),
        ([["d0"], ["d1", "d2", "d4"], ["d3"]], "replicas is 2"),
        ([["d0"], ["d1", "slow"], ["d3"]], "is not like it"),
        ([["d0"], ["nothing"]], "not lists of device names"),
        ("d0", "not lists of device names"),
    ],
)
def test_the_verifier_reads_stages(stages: object, sentence: str) -> None:
    devices = [*(Device(name=f"d{k}", type="acc") for k in range(5)), Device(name="slow")]
    tasks = [Task(name=f"t{k}", time={"acc": 4, "slow": 5}, output=4) for k in range(3)]
    edges = [Edge(source="t0", target="t1"), Edge(source="t1", target="t2")]
    instance = hetopt.Instance.build(
        devices, [Job(name="m", tasks=tasks, edges=edges)], [Link(source="*", target="*", bandwidth=4)]
    )
    question = MAXLOAD.question(instance, {"replicas": 2})
    good = MAXLOAD.evaluate(instance, question, Solution.assign([0, 1, 3], stages=[["d0"], ["d1", "d2"], ["d3"]]))
    assert (good.value, good.violations) == (5.0, ())
    assert good.details["devices"]["d2"]["load"] == 3
    bad = MAXLOAD.evaluate(instance, question, Solution.assign([0, 1, 3], stages=stages))
    assert any(sentence in text for text in bad.violations), bad.violations


def altered(seed: int) -> hetopt.Instance:
    """A sample with activations, latencies and links of its own between two devices."""
    instance, rng = MAXLOAD.sample(seed), np.random.default_rng(seed + 1000)
    (job,) = instance.jobs()
    tasks = [structs.replace(task, activation=int(rng.integers(0, 4))) for task in job.tasks[:5]]
    edges = [e for e in job.edges if {e.source, e.target} <= {t.name for t in tasks}]
    links = [
        Link(source="acc", target="host", bandwidth=2, latency=int(rng.integers(0, 2))),
        Link(source="host", target="acc", bandwidth=1, latency=int(rng.integers(0, 3))),
        Link(source="*", target="*", bandwidth=1, latency=1),
    ]
    question = {"objective": "maxload"}
    return hetopt.Instance.build(instance.devices, [Job(name="m", tasks=tasks, edges=edges)], links, question=question)


RULES = [
    {"overlap": True, "contiguous": "ideals"}, {"overlap": True, "contiguous": "device", "passes": "max"},
    {"transfers": "direct", "contiguous": "ideals"}, {"transfers": "direct", "contiguous": "none", "overlap": True},
    {"replicas": 2, "overlap": True, "batch": 2}, {"in_flight": "1f1b"}, {"in_flight": "1f1b", "replicas": 2}, {},
]  # fmt: skip


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: " ".join(f"{k}={v}" for k, v in rules.items()) or "latency")
@pytest.mark.parametrize("seed", range(4))
def test_every_method_against_every_plan(seed: int, rules: dict[str, object]) -> None:
    instance = altered(seed)
    question = MAXLOAD.question(instance, rules)
    judged = [MAXLOAD.evaluate(instance, question, plan) for plan in MAXLOAD.every_plan(instance, question)]
    best = min((e.value for e in judged if not e.violations), default=math.inf)
    for method in MAXLOAD.methods:
        if method.fits(instance, question) is not None:
            continue
        result = hetopt.solve(instance, options=rules, method=method.name)
        assert not any("reject" in text or "fail" in text for text in result.messages), (method.name, result.messages)
        if method.kind == "exact":
            assert result.status == ("optimal" if best < math.inf else "infeasible")
            assert best == math.inf or result.objective == pytest.approx(best)
        if result.objective is not None:
            assert result.objective >= best * (1 - 1e-9)
        if result.bound is not None:
            assert result.bound <= best * (1 + 1e-9)


def test_a_load_of_zero_is_proved() -> None:
    """A task of no length: the program ends with the bound 0."""
    job = hetopt.Job(name="m", tasks=[hetopt.Task(name="t", time=[0])])
    instance = hetopt.Instance.build([hetopt.Device(name="d")], [job], question={"objective": "maxload"})
    result = hetopt.solve(instance, options={"in_flight": "1f1b"}, method="stages")
    assert (result.status, result.bound) == ("optimal", 0.0)
