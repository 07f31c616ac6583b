"""Offloading: reported situations worked out by hand, brute force, replayed prices, broken plans."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import hetopt
from hetopt import Instance, Solution
from hetopt.io.exporters import llama_cpp
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.registry import problem

LINK = Link(source="*", target="*", bandwidth=None, latency=0)


def sequence(tasks, devices, links=(LINK,)) -> Instance:
    edges = [Edge(source=a.name, target=b.name) for a, b in pairwise(tasks)]
    return Instance.build(devices, [Job(name="model", tasks=list(tasks), edges=edges)], links)


def solved(instance, objective="offload", **options):
    result = hetopt.solve(instance, objective=objective, options=options, time_limit=60)
    assert result.status == "optimal", (result.messages, result.infeasible)
    hetopt.verify(instance, result)
    return result


class TestReportedCases:
    def test_a_card_smaller_than_the_largest_module(self):
        """[H10] Small modules on the card when the large one runs in place; a swapped one needs 200 bytes more room."""
        sizes = {"a": 100, "b": 100, "c": 100, "big": 900, "d": 100, "e": 100, "f": 100}
        tasks = [Task(name=name, time=[1, 10], memory=size) for name, size in sizes.items()]
        instance = sequence(tasks, [Device(name="gpu0", memory=700), Device(name="cpu", memory=4000, host=True)])
        best = solved(instance)
        assert best.evaluation["devices"]["gpu0"]["memory"] == 600
        assert best.evaluation["devices"]["cpu"]["memory"] == 900
        refused = hetopt.solve(instance, objective="offload", options={"execute": "swap"})
        assert refused.status == "infeasible"
        assert "'big' needs 900 bytes" in refused.infeasible[0]
        assert "200 bytes short" in refused.infeasible[0]

    def test_bare_parameters_on_little_memory(self):
        """[H13] Three parameters of 4 bytes, 6 bytes on the CPU: one there, two on the disk, or 6 bytes short without one."""
        tasks = [Task(name=f"p{k}", time=[1, 1, 1], memory=4, pin=["cpu", "disk"]) for k in range(3)]
        devices = [
            Device(name="gpu", memory=4),
            Device(name="cpu", memory=6, host=True),
            Device(name="disk", host=True),
        ]
        links = [Link(source="cpu", target="gpu", bandwidth=4), Link(source="disk", target="gpu", bandwidth=1)]
        roomy = sequence(tasks, devices, links)
        best = solved(roomy, execute="swap")
        assert (best.objective, sorted(best.solution.placement.tolist())) == (3 + 1 + 4 + 4, [1, 2, 2])
        bare = [replace_pin(task, "cpu") for task in tasks]
        refused = hetopt.solve(sequence(bare, devices[:2], links[:1]), objective="offload", options={"execute": "swap"})
        assert refused.status == "infeasible"
        assert refused.infeasible == (
            "memory: the tasks that lie on 'cpu' need 12 bytes, and there are 6: 6 bytes short",
        )

    def test_experts_of_both_cards_go_to_the_host(self):
        """[H15] Half of 48 layers' experts in host memory: 19,128 MiB on each card, 12 layers of each."""
        tasks = []
        for k in range(48):
            tasks.append(Task(name=f"blk.{k}.dense", time=[1, 1, 9], memory=120, forbid="cpu", cut=False))
            tasks.append(Task(name=f"blk.{k}.experts", time=[1, 1, 9], memory=1354))
        cards = [Device(name=f"cuda{g}", memory=23000) for g in range(2)]
        instance = sequence(tasks, [*cards, Device(name="cpu", host=True)])
        best = solved(instance, "offload-memory", hosted=24)
        assert best.objective == 19128
        placement = best.solution.placement
        assert (placement == 2).sum() == 24
        dense = placement[0::2]
        assert [int(((dense == g) & (placement[1::2] == 2)).sum()) for g in range(2)] == [12, 12]
        naive = np.repeat(np.arange(48) // 24, 2)
        naive[1:48:2] = 2
        told = problem("partition.offload_memory").evaluate(
            instance, problem("partition.offload_memory").question(instance, {"hosted": 24}), Solution.assign(naive)
        )
        assert told.details["devices"]["cuda1"]["memory"] == 35376
        assert "cuda1" in " ".join(told.violations)
        words = hetopt.export(instance, best, "llama.cpp").splitlines()[-1]
        kept = np.flatnonzero(placement[1::2] == 2).tolist()
        arguments = dict(zip(words.split()[::2], words.split()[1::2], strict=True))
        assert np.flatnonzero(llama_cpp.hosted_experts(arguments, 48)).tolist() == kept
        assert "--device CUDA0,CUDA1" in words

    def test_four_cards_and_the_host(self):
        """[H16] 80 blocks on four cards with 14.8 GiB for blocks of 1.32: 44 of them, and 52 with no cache."""
        for cache, fits in ((0.24375, 44), (0.0, 52)):
            size = round((1.0775 + cache) * 2**30)
            tasks = [Task(name=f"l{k}", time=[1, 1, 1, 1, 10], memory=size) for k in range(80)]
            cards = [Device(name=f"g{k}", memory=22 * 2**30, reserved=round(7.2 * 2**30)) for k in range(4)]
            assert solved(sequence(tasks, [*cards, Device(name="cpu", host=True)])).objective == fits + 10 * (80 - fits)


def replace_pin(task: Task, pin: str) -> Task:
    return Task(name=task.name, time=task.time[:2], memory=task.memory, pin=pin)


class TestBruteForce:
    @pytest.mark.parametrize("seed", range(200, 230))
    @pytest.mark.parametrize("name", ["partition.offload", "partition.offload_memory"])
    def test_every_method(self, name, seed):
        one = problem(name)
        instance = one.sample(seed)
        question = one.question(instance)
        judged = [one.judge(instance, question, plan) for plan in one.every_plan(instance, question)]
        values = [each.value for each in judged if not each.violations]
        exact = hetopt.solve(instance, method="milp")
        if not values:
            assert exact.status == "infeasible"
            return
        assert exact.objective == pytest.approx(min(values), rel=1e-9)
        for method in (m.name for m in one.methods if m.name != "milp"):
            other = hetopt.solve(instance, method=method)
            assert other.objective is None or other.objective >= min(values) * (1 - 1e-9)
            assert other.bound is None or other.bound <= min(values) * (1 + 1e-9)
            if other.bound is not None:
                hetopt.verify(instance, other)


class TestFactsOfTasks:
    DEVICES = (Device(name="g", memory=10), Device(name="h", host=True))

    def build(self, group, data):
        tasks = [
            Task(name=name, time=[1, 5], memory=size, output=1, group=group if name != "b" else None)
            for name, size in (("a", 6), ("b", 6), ("c", 3))
        ]
        edges = [Edge(source="a", target="b", data=data), Edge(source="b", target="c")]
        links = [Link(source="*", target="*", bandwidth=1)]
        return Instance.build(self.DEVICES, [Job(name="model", tasks=tasks, edges=edges)], links)

    def test_a_group_lies_together(self):
        """Alone: b on the host, 1 + 1 + 5 + 1 + 1, or a, 5 + 1 + 1 + 1. Together: a and c on the card, 9."""
        assert solved(self.build(None, None)).objective == 8
        best = solved(self.build("x", None))
        assert (best.objective, best.solution.placement.tolist()) == (9, [0, 1, 0])
        assert not [message for message in best.messages if "group" in message or "rejected" in message]

    def test_an_edge_carries_its_own_bytes(self):
        """100 bytes behind a: all on the host instead, 15 seconds."""
        assert solved(self.build("x", 100)).objective == 15
        assert solved(self.build(None, 0)).objective == 7

    def test_a_group_without_a_common_place(self):
        tasks = [Task(name="a", time=[1, None], group="x"), Task(name="b", time=[None, 1], group="x")]
        refused = hetopt.solve(sequence(tasks, self.DEVICES), objective="offload")
        assert refused.status == "infeasible"
        assert refused.infeasible == ("group 'x': no device may hold all of its 2 tasks",)
        heavy = [Task(name=name, time=[1, None], memory=6, group="x") for name in "ab"]
        refused = hetopt.solve(sequence(heavy, self.DEVICES), objective="offload")
        assert refused.infeasible == ("memory: group 'x' needs 12 bytes, and 'g' offers 10: 2 bytes short",)


class TestBrokenPlans:
    def setup_method(self):
        tasks = [Task(name=f"t{k}", time=[1, 1, 5], memory=2, cut=k != 0) for k in range(4)]
        devices = [Device(name="a", memory=4), Device(name="b", memory=4), Device(name="h", host=True)]
        self.instance = sequence(tasks, devices)
        self.problem = problem("partition.offload")

    def told(self, placement, **options) -> str:
        question = self.problem.question(self.instance, options)
        return " ".join(self.problem.evaluate(self.instance, question, Solution.assign(placement)).violations)

    def test_a_good_one(self):
        assert self.told([0, 0, 1, 1]) == ""
        assert self.told([0, 2, 1, 1]) == ""

    def test_accelerators_out_of_order(self):
        assert "before the device of an earlier task" in self.told([1, 1, 0, 0])

    def test_torn_where_no_cut_is_allowed(self):
        assert "no cut is allowed" in self.told([0, 1, 1, 2])

    def test_too_much_memory(self):
        assert "'a' needs 6 bytes of memory and has 4: 2 too many" in self.told([0, 0, 0, 1])

    def test_no_room_for_copies(self):
        assert "with room for the largest task that is copied in" in self.told([0, 0, 1, 2], execute="swap")

    def test_another_number_on_hosts(self):
        assert "1 tasks are on hosts, exactly 2 are asked for" in self.told([0, 0, 1, 2], hosted=2)

    def test_a_task_nowhere(self):
        assert "not placed" in self.told([0, 0, 1, -1])

    @pytest.mark.parametrize("wrong", [[-1.0, 0, 0], [0.0, 0.0], [np.nan, 0, 0], [0, 0, 1.0]])
    def test_prices_that_prove_nothing(self, wrong):
        question = self.problem.question(self.instance)
        with pytest.raises(ValueError, match="price"):
            self.problem.replay(self.instance, question, {"kind": "prices", "prices": wrong})

    def test_a_claimed_bound_above_its_prices(self):
        result = hetopt.solve(self.instance, objective="offload", method="prices")
        with pytest.raises(hetopt.VerificationError):
            hetopt.verify(self.instance, replace(result, bound=result.bound * 1.01 + 0.1))


def test_the_generated_decoder_has_the_published_size():
    from hetopt.io.generators import moe_offload

    assert sum(part[1] for part in moe_offload.parts(1, 1)) == 30_532_122_624


@pytest.mark.filterwarnings("error")
def test_a_task_that_no_host_runs_raises_no_warning() -> None:
    """Two tasks of 2 and 3 bytes, the second on accelerators only, which have room for one: nothing overflows on the way."""
    devices = [Device(name="a", memory=4), Device(name="h", host=True, memory=1)]
    tasks = [Task(name="t0", time=[1, 5], memory=2), Task(name="t1", time=[7, None], memory=3)]
    job = Job(name="m", tasks=tasks, edges=[Edge(source="t0", target="t1")])
    links = [Link(source="*", target="*", bandwidth=1)]
    instance = Instance.build(devices, [job], links, question={"objective": "offload"})
    result = hetopt.solve(instance, method="prices", time_limit=1)
    assert result.reason != "error", result.messages


@pytest.mark.filterwarnings("error")
def test_a_task_that_one_accelerator_alone_runs_raises_no_warning() -> None:
    tasks = [Task(name="a", time={"g0": 1}), Task(name="b", time={"g1": 1})]
    devices = [Device(name="g0"), Device(name="g1"), Device(name="h", host=True)]
    assert solved(sequence(tasks, devices)).solution.placement.tolist() == [0, 1]
