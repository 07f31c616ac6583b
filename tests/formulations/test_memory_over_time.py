"""schedule.latency with memory over time: each rule by hand, every moment of every schedule tried, the checker's sentences."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest

import hetopt
from hetopt import Instance, Solution
from hetopt.algorithms import dag_anneal, dag_kernels, dag_room
from hetopt.algorithms.dag_list import RULES
from hetopt.io import generators
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.registry import problem
from hetopt.verify.residence import memory_over_time, occupied, residents

LATENCY = problem("schedule.latency")
ASK = {"objective": "schedule-latency", "options": {"memory": "over-time"}}
FREE = [Link(source="*", target="*", bandwidth=None)]


def job(edges="", *, room=(None, None), links=FREE, data=None, **tasks) -> Instance:
    """Tasks by name with (times, output, weights); edges as "ab ac"; devices p, q with ``room``."""
    made = [Task(name=v, time=list(row[0]), output=row[1], memory=row[2]) for v, row in tasks.items()]
    arcs = [Edge(source=e[0], target=e[1], data=(data or {}).get(e)) for e in edges.split()]
    devices = [Device(name=name, memory=size) for name, size in zip("pq", room, strict=False)]
    return Instance.build(devices, [Job(name="j", tasks=made, edges=arcs)], links)


def value(instance: Instance, **options) -> float:
    result = hetopt.solve(instance, **ASK, method="cpsat", **options)
    assert result.status == "optimal", result.messages
    return result.objective


def said(instance: Instance, placement, start) -> str:
    plan = Solution(placement=np.array(placement), start=np.array(start, float))
    question = LATENCY.question(instance.with_question({"objective": "schedule-latency", "memory": "over-time"}))
    return " ".join(LATENCY.evaluate(instance, question, plan).violations)


P, Q = (1, None), (None, 1)


class TestRules:
    def test_a_result_nobody_reads_lies_there_until_its_task_ends(self):
        assert value(job(room=(5, 5), a=((2, 2), 5, 0), b=((2, 2), 5, 0))) == 2
        assert value(job(room=(5, 0), a=((2, 2), 5, 0), b=((2, 2), 5, 0))) == 4

    def test_weights_stay(self):
        tasks = {"a": ((2, 9), 3, 2), "b": ((2, 9), 3, 2)}
        assert value(job(room=(7, None), **tasks)) == 4
        assert value(job(room=(6, None), **tasks)) == 9  # 2 + 2 + 3 bytes: one goes to q

    def test_a_result_stays_until_its_last_reader_there_has_ended(self):
        """On one device: a and what b makes, then b's and c's; with a's read again at the end, all three."""
        chain = {"a": ((1,), 4, 0), "b": ((1,), 4, 0), "c": ((1,), 4, 0)}
        assert value(job("ab bc", room=(8,), **chain)) == 3
        result = hetopt.solve(job("ab bc ac", room=(11,), **chain), **ASK)
        assert (result.status, result.exit_code) == ("infeasible", 3)
        assert result.infeasible == (
            "task 'c' needs 12 bytes while it runs (weights 0, what it reads 8, its result 4), and the roomiest device it "
            "can run on, 'p', has 11: 1 bytes short",
        )

    def test_a_result_stays_until_its_transfer_has_arrived(self):
        slow = [Link(source="*", target="*", bandwidth=None, latency=10)]
        tasks = {"a": ((1, None), 4, 0), "b": ((None, 1), 0, 0), "c": ((3, None), 5, 0)}
        assert value(job("ab", room=(9, None), links=slow, **tasks)) == 1 + 10 + 1
        assert value(job("ab", room=(8, None), links=slow, **tasks)) == 1 + 10 + 3

    def test_a_copy_lies_there_from_the_end_of_its_task_so_that_starting_later_may_be_better(self):
        """c's 6 bytes fill p until 5; a's copy comes to p when a ends: a waits on q, though q is free, and starts at 4."""
        instance = job("ab", room=(9, None), a=(Q, 4, 0), b=(P, 0, 0), c=((5, None), 6, 0))
        result = hetopt.solve(instance, method="cpsat", **ASK)
        assert (result.status, result.objective) == ("optimal", 6)
        assert result.solution.start.tolist() == [4, 5, 0]
        assert said(instance, [1, 0, 0], [3, 5, 0]) == (
            "device 'p' holds 10 bytes at 4 and has 9: 1 too many (the result of 'c' 6, a copy of the result of 'a' 4)"
        )

    def test_readers_on_a_device_share_a_copy(self):
        tasks = {"a": (P, 4, 0), "b": ((None, 3), 0, 0), "c": ((None, 3), 0, 0)}
        assert value(job("ab ac", room=(None, 4), **tasks)) == 7

    def test_bytes_of_an_edge_are_what_its_device_holds(self):
        """The result is as large as its largest edge; a copy as the largest edge into its device."""
        tasks = {"a": (P, 1, 0), "b": (Q, 0, 0), "c": (Q, 0, 0), "d": (P, 0, 0)}
        edges = {"data": {"ab": 3, "ac": 5, "ad": 2}}
        assert value(job("ab ac ad", room=(5, 5), **tasks, **edges)) == 3
        for room, where in (((4, 5), "its result 5"), ((5, 4), "what it reads 5")):
            result = hetopt.solve(job("ab ac ad", room=room, **tasks, **edges), **ASK)
            assert where in result.infeasible[0], result.infeasible

    def test_a_group_shares_its_weights(self):
        tasks = [Task(name=v, time=[1, 1], memory=3, output=2, group="g") for v in "ab"]
        devices = [Device(name="p", memory=8), Device(name="q", memory=7)]
        result = hetopt.solve(Instance.build(devices, [Job(name="j", tasks=tasks)], FREE), method="cpsat", **ASK)
        assert result.objective == 2
        assert result.solution.placement.tolist() == [0, 0]

    def test_room_for_all_together_is_no_limit_and_the_question_is_as_before(self):
        instance = job("ab", room=(10, 10), a=((1, 2), 4, 1), b=((2, 1), 4, 1))
        question = LATENCY.question(instance.with_question({"objective": "schedule-latency", "memory": "over-time"}))
        assert LATENCY.method("milp").fits(instance, question) is None
        tight = job("ab", room=(9, 10), a=((1, 2), 4, 1), b=((2, 1), 4, 1))
        assert "cpsat" in LATENCY.method("milp").fits(tight, question)

    def test_room_for_each_task_and_not_for_all_says_how_much_more_would_do(self):
        """b and c read a, whose 4 bytes are held until both have ended; b's 4 stay for d while c's are made."""
        instance = job("ab ac bd cd", room=(12,), a=((1,), 4, 0), b=((1,), 4, 0), c=((1,), 4, 0), d=((1,), 1, 0))
        assert value(instance) == 4
        tight = job("ab ac bd cd", room=(10,), a=((1,), 4, 0), b=((1,), 4, 0), c=((1,), 4, 0), d=((1,), 1, 0))
        result = hetopt.solve(tight, **ASK)
        assert result.status == "infeasible"
        assert (
            "memory: with 2 bytes more on each device that has a limit there is a plan; fewer are proved too few"
            in (result.infeasible[0])
        )

    def test_weights_that_no_way_fits_say_how_much_more_would_do(self):
        tasks = {"a": ((1, 1), 0, 3), "b": ((1, 1), 0, 3), "c": ((1, 1), 0, 3)}
        result = hetopt.solve(job(room=(5, 5), **tasks), objective="schedule-latency")
        assert result.status == "infeasible"
        assert "with 1 bytes more on each device" in result.infeasible[0]

    def test_a_wrong_word_is_told(self):
        with pytest.raises(hetopt.InputError, match=r"\$\.question\.memory is 'over time'"):
            hetopt.solve(job(a=(P, 1, 0)), objective="schedule-latency", options={"memory": "over time"})


class TestChecker:
    """A valid plan and damage to it."""

    INSTANCE = job("ab ac bd", room=(10, 9), a=((1, 1), 4, 1), b=((2, 2), 3, 1), c=((2, 2), 2, 1), d=((1, 1), 1, 1))

    def test_blocks_are_as_worked_out_by_hand(self):
        """a at 0 and b at 1 on p, c at 1 on q, d at 3 on p."""
        found = residents(self.INSTANCE, np.array([0, 0, 1, 0]), np.array([0.0, 1, 1, 3]), np.array([1.0, 3, 3, 4]))
        rows = sorted(zip(*(part.tolist() for part in found), strict=True))
        assert rows == [
            (0, 0.0, 3.0, 4.0, 0, False),
            (0, 1.0, 4.0, 3.0, 1, False),
            (0, 3.0, 4.0, 1.0, 3, False),
            (1, 1.0, 3.0, 2.0, 2, False),
            (1, 1.0, 3.0, 4.0, 0, True),
        ]
        moments, level = occupied(found, 0, 3.0)
        assert (moments.tolist(), level.tolist()) == ([0, 1, 3, 4], [7, 10, 7, 3])

    def test_damage_is_told(self):
        assert not said(self.INSTANCE, [0, 0, 1, 0], [0, 1, 1, 3])
        assert "at 3 and has 10: 3 too many" in said(self.INSTANCE, [0, 0, 0, 0], [0, 1, 3, 5])
        assert "'q' holds 10 bytes at 1 and has 9: 1 too many" in said(self.INSTANCE, [1, 1, 1, 0], [0, 1, 3, 3])

    def test_sums_of_decimals_that_end_where_others_begin_are_no_excess(self):
        instance = job("ab", room=(4,), a=((0.1,), 2, 0), b=((0.2,), 2, 0), c=((0.3,), 4, 0))
        assert 0.1 + 0.2 > 0.3
        assert not said(instance, [0, 0, 0], [0.3, 0.4, 0])
        assert not said(instance, [0, 0, 0], [0, 0.1, 0.3])
        assert "too many" in said(instance, [0, 0, 0], [0.299, 0.399, 0])

    def test_bytes_that_are_no_whole_numbers_are_added_with_one_rounding(self):
        tasks = dict.fromkeys("abcdefghij", ((1,), 0.1, 0.0))
        instance = job("aj bj cj dj ej fj gj hj ij", room=(1.0,), **tasks)
        place, start = np.zeros(10, int), np.arange(10.0)
        assert not memory_over_time(instance, place, start, start + 1)


def drawn(seed: int, n: int) -> Instance:
    """``n`` small tasks on two devices with little room."""
    rng = np.random.default_rng(seed)
    times = rng.integers(0 if seed % 5 == 0 else 1, 4, (n, 2)).tolist()
    for row in times:
        if rng.random() < 0.25:
            row[int(rng.integers(2))] = None
    tasks = [
        Task(name=f"t{k}", time=row, output=int(rng.integers(0, 5)), memory=int(rng.integers(0, 3)),
             group="g" if seed % 7 == 3 and None not in times[0] + times[1] and k < 2 else None)
        for k, row in enumerate(times)
    ]  # fmt: skip
    edges = [
        Edge(source=f"t{a}", target=f"t{b}", data=int(rng.integers(0, 6)) if rng.random() < 0.3 else None)
        for a, b in itertools.combinations(range(n), 2)
        if rng.random() < 0.5
    ]
    devices = [Device(name=f"d{i}", memory=int(rng.integers(6, 13)) if rng.random() < 0.8 else None) for i in range(2)]
    links = [Link(source="*", target="*", bandwidth=None, latency=int(rng.integers(0, 3)))]
    question = {"objective": "schedule-latency", "memory": "over-time"}
    return Instance.build(
        devices, [Job(name="j", tasks=tasks, edges=edges, release=seed % 2)], links, question=question
    )


def optimum_by_every_moment(instance: Instance) -> float | None:
    """Best makespan over all devices and all whole starts, memory added up second by second as the rules are worded."""
    n = instance.n_tasks
    wait = float(instance.link("d0", "d1").latency)
    edges = list(zip(instance.edges.tolist(), instance.edge_data.tolist(), strict=True))
    slowest = np.where(instance.eligible, instance.time, 0).max(axis=1)
    last = int(slowest.sum() + wait * len(edges) + instance.columns.release.max())
    grid = np.array(list(itertools.product(range(last + 1), repeat=n)), float)
    best = None
    for place in itertools.product(range(2), repeat=n):
        length = instance.time[np.arange(n), place]
        same = [
            place[a] == place[b]
            for a, b in itertools.combinations(range(n), 2)
            if 0 <= instance.group[a] == instance.group[b]
        ]
        if not np.isfinite(length).all() or not all(same):
            continue
        start = grid[(grid + length).max(axis=1) <= (last if best is None else best - 1)]
        end = start + length
        ok = (start >= instance.columns.release[instance.job_of]).all(axis=1)
        for (u, v), _ in edges:
            ok &= start[:, v] >= end[:, u] + (wait if place[u] != place[v] else 0)
        for a, b in itertools.combinations(range(n), 2):
            if place[a] == place[b] and length[a] > 0 and length[b] > 0:
                ok &= (end[:, a] <= start[:, b]) | (end[:, b] <= start[:, a])
        start, end = start[ok], end[ok]
        ok = np.ones(len(start), bool)
        for p, moment in itertools.product(range(2), range(last + 1)):
            held = np.full(len(start), sum(instance.memory[v] for v in range(n) if place[v] == p))
            for u in range(n):
                out = [(v, size) for (a, v), size in edges if a == u]
                here = [v for v, _ in out if place[v] == p]
                if place[u] == p:
                    size = max([instance.output[u], *(size for _, size in out)])
                    until = end[:, [u, *here]].max(axis=1)
                    if len(here) < len(out):
                        until = np.maximum(until, end[:, u] + wait)
                    held = held + size * ((start[:, u] <= moment) & (moment < until))
                elif here:
                    size = max(size for v, size in out if place[v] == p)
                    held = held + size * ((end[:, u] <= moment) & (moment < end[:, here].max(axis=1)))
            ok &= held <= instance.capacity[p]
        if ok.any():
            best = float(end[ok].max(axis=1).min())
    return best


@pytest.mark.parametrize("seed", range(200 if os.environ.get("HETOPT_LONG_TESTS") else 24))
def test_every_moment_of_every_schedule(seed):
    """The optimum is found and proved, by CP-SAT and among the plans of (25); bounds and heuristics are on its two sides."""
    instance = drawn(seed, 4 if seed % 4 == 1 and os.environ.get("HETOPT_LONG_TESTS") else 3)
    question = LATENCY.question(instance)
    optimum = optimum_by_every_moment(instance)
    judged = (LATENCY.evaluate(instance, question, plan) for plan in LATENCY.every_plan(instance, question))
    assert min((e.value for e in judged if not e.violations), default=None) == optimum
    exact = hetopt.solve(instance, method="cpsat")
    assert (exact.status, exact.objective) == ("infeasible" if optimum is None else "optimal", optimum)
    for method in RULES:
        found = hetopt.solve(instance, method=method)
        assert found.objective is None or found.objective >= optimum, method
        assert not [text for text in found.messages if "rejected" in text], found.messages
    if optimum is not None:
        assert hetopt.bound(instance, method="paths").bound <= optimum


@pytest.mark.parametrize("seed", range(6))
def test_decimals_and_bytes_that_have_to_be_rounded(seed):
    """Times in thirds and bytes in 17ths: the plan is found all the same, and the bound is one."""
    instance = drawn(seed, 3)
    thirds = instance.jobs()
    scaled = Instance.build(
        [Device(name=d.name, memory=None if d.memory is None else d.memory / 17) for d in instance.devices],
        [
            Job(
                name=j.name,
                release=j.release / 3,
                edges=[Edge(source=e.source, target=e.target, data=None if e.data is None else e.data / 17) for e in j.edges],
                tasks=[
                    Task(name=t.name, time=[None if s is None else s / 3 for s in t.time], output=t.output / 17,
                         memory=t.memory / 17, group=t.group)
                    for t in j.tasks
                ],
            )
            for j in thirds
        ],
        [Link(source="*", target="*", bandwidth=None, latency=instance.link("d0", "d1").latency / 3)],
        question=instance.question,
    )  # fmt: skip
    optimum, found = hetopt.solve(instance, method="cpsat").objective, hetopt.solve(scaled, method="cpsat")
    assert found.bound is None or found.bound <= optimum / 3 * (1 + 1e-12)
    if found.objective is not None:
        assert found.objective >= optimum / 3 * (1 - 1e-6)


def test_annealing_finds_an_order_where_list_schedules_meet_dead_ends():
    """Two chains whose first results are large: one has to be finished before the other begins."""
    chain = {f"{v}{k}": ((1,), 6 if k < 2 else 1, 0) for v in "ab" for k in range(3)}
    made = [Task(name=v, time=list(row[0]), output=row[1]) for v, row in chain.items()]
    arcs = [Edge(source=f"{v}{k}", target=f"{v}{k + 1}") for v in "ab" for k in range(2)]
    instance = Instance.build([Device(name="p", memory=13)], [Job(name="j", tasks=made, edges=arcs)])
    for method in (*RULES, "annealing", "cpsat"):
        assert hetopt.solve(instance, method=method, time_limit=1, **ASK).objective == 6, method


def test_plain_and_compiled_kernels_agree(monkeypatch):
    from formulations.schedule._graphs import graph
    from formulations.schedule._residence import in_room, results
    from hetopt.algorithms.dag_list import list_schedule

    instance = generators.get("task-graph").make(tasks=14, devices=3, seed=2)
    room = 0.5 * float(instance.output.sum())
    g = graph(instance)._replace(room=np.full(3, room))
    schedules = [found for rule in RULES if (found := list_schedule(g, rule)) is not None]
    sizes = (instance.memory, results(instance))

    def walk():
        tried = [dag_room.best_attempt(g, *sizes, [found]) for found in schedules]
        end = dag_room.anneal_in_room(g, *sizes, tried[0], horizon=1e3, steps=60, seed=3)
        return [*(one.schedule.start.tolist() for one in tried), end.schedule.start.tolist(), end.left]

    compiled = walk()
    for module in (dag_kernels, dag_anneal, dag_room):
        for name, kernel in list(vars(module).items()):
            if hasattr(kernel, "py_func"):
                monkeypatch.setattr(module, name, kernel.py_func)
    assert walk() == compiled
    assert in_room(instance, []) is None


def test_generated_graphs_with_little_room():
    make = generators.get("task-graph").make
    instance = make(shape="wired", tasks=18, devices=3, room=0.4, seed=1)
    together = instance.memory.sum() + instance.output.sum()
    assert instance.question["memory"] == "over-time"
    assert (instance.capacity == np.ceil(0.4 * together / 1e6) * 1e6).all()
    assert not np.isfinite(make(seed=1).capacity).any()
    with pytest.raises(hetopt.InputError, match="--room is -1"):
        make(room=-1)
    with pytest.raises(hetopt.InputError, match="--room asks for memory over time"):
        make(room=0.4, question="mapping")
