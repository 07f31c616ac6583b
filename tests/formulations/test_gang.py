"""Gangs on nodes: rules by hand, situations that operators report, the verifier against broken plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import hetopt
from hetopt import InputError, Instance, Solution
from hetopt.records import Device, Job, Task
from hetopt.registry import problem
from hetopt.verify.gangs import gang_violations

Amounts = Mapping[str, float]


def gangs(
    nodes: Sequence[Amounts], jobs: Sequence[Sequence[Amounts]], objective: str = "gang-weight", **more: Any
) -> Instance:
    """Nodes n0, n1, ... and gangs g0, g1, ... of bundles b0, b1, ...; ``types`` of the nodes, ``only`` a type for each gang."""
    types, only = more.pop("types", [None] * len(nodes)), more.pop("only", [None] * len(jobs))
    devices = [Device(name=f"n{v}", type=types[v]) for v in range(len(nodes))]
    records, demand = [], {}
    for g, bundles in enumerate(jobs):
        anywhere = [1] * len(nodes)
        time: Any = anywhere if only[g] is None else {only[g]: 1}
        records.append(Job(name=f"g{g}", tasks=[Task(name=f"b{k}", time=time) for k in range(len(bundles))]))
        for k, bundle in enumerate(bundles):
            demand[f"g{g}/b{k}" if len(jobs) > 1 else f"b{k}"] = dict(bundle)
    tables = {"capacity": {f"n{v}": dict(a) for v, a in enumerate(nodes)}, "demand": demand, **more.pop("tables", {})}
    question = {"objective": objective, **more}
    return Instance.build(devices, records, tables=tables, question=question)


def gpus(*counts: float) -> list[Amounts]:
    return [{"gpu": count} for count in counts]


def solved(instance: Instance) -> hetopt.Result:
    result = hetopt.solve(instance)
    hetopt.verify(instance, result)
    return result


class TestReportedSituations:
    def test_a_gang_of_two_leaves_the_big_node_to_the_pod_that_needs_it(self) -> None:
        """[H24] Nodes with 2, 1 and 1 GPUs: two pods of one GPU belong on the small ones, the pod of two then fits."""
        result = solved(gangs(gpus(2, 1, 1), [gpus(1, 1), gpus(2)]))
        assert result.status == "optimal"
        assert result.objective == 2
        assert result.solution is not None
        assert result.solution.placement is not None
        assert result.solution.placement.tolist()[2] == 0
        assert sorted(result.solution.placement.tolist()[:2]) == [1, 2]

    def test_free_gpus_on_two_nodes_are_not_one_node(self) -> None:
        """[H24] Four and four are not eight."""
        result = solved(gangs(gpus(4, 4), [gpus(8)], "gang-nodes"))
        assert result.status == "infeasible"
        assert "4 short" in result.infeasible[0]

    def test_memory_of_one_gpu_holds_two_of_three(self) -> None:
        instance = gangs([{"gib": 24}], [[{"gib": 12}]] * 3)
        assert solved(instance).objective == 2

    def test_a_gang_beyond_the_quota_does_not_start_in_part(self) -> None:
        """[H24] Tasks of two and five with three to give: none, and seven are needed."""
        assert solved(gangs(gpus(3), [gpus(2, 5)])).objective == 0
        result = solved(gangs(gpus(3), [gpus(2, 5)], "gang-nodes"))
        assert result.status == "infeasible"
        assert any("take 7" in sentence and "4 short" in sentence for sentence in result.infeasible)

    @pytest.mark.parametrize("method", ["auto", "milp"])
    def test_gangs_that_fit_one_by_one_and_not_together(self, method: str) -> None:
        """Two nodes of three hold one pod of two each, and three are asked for; six of six would have been enough."""
        result = hetopt.solve(gangs(gpus(3, 3), [gpus(2), gpus(2), gpus(2)], "gang-nodes"), method=method)
        assert result.exit_code == 3
        assert "gangs: 1 of 3 must be left out at least, for example 'g" in result.infeasible[0]

    def test_one_type_does_not_stand_for_another(self) -> None:
        """[H24] Sixteen of the one and eight of the other are not sixteen of the other."""
        instance = gangs(gpus(16, 8), [gpus(*[1] * 16)], types=["H200", "H100"], only=["H100"])
        assert solved(instance).objective == 0
        either = gangs(gpus(16, 8), [gpus(*[1] * 16)], types=["H200", "H100"], only=["H200"])
        assert solved(either).objective == 1

    def test_bundles_without_a_gpu_need_no_new_node(self) -> None:
        """[H25] Two nodes of 16 CPUs, one with a GPU: 31 bundles of one CPU and one of one GPU fit as they are."""
        nodes = [{"cpu": 16}, {"cpu": 16, "gpu": 1}, {"cpu": 16, "gpu": 1}]
        instance = gangs(nodes, [[{"cpu": 1}] * 31, [{"gpu": 1}]], "gang-nodes", tables={"new": ["n2"]})
        result = solved(instance)
        assert (result.status, result.objective) == ("optimal", 0)

    def test_cpus_beside_a_gpu_are_kept_free(self) -> None:
        """[H25] With 8 of 16 CPUs reserved beside the GPU, the bundles of 8 go to the other node."""
        jobs: list[list[Amounts]] = [[{"gpu": 1, "cpu": 4}], [{"cpu": 8}], [{"cpu": 8}]]
        tables = {"reserve": {"n0": {"cpu": 8}}}
        result = solved(gangs([{"cpu": 16, "gpu": 1}, {"cpu": 16}], jobs, "gang-nodes", tables=tables))
        assert result.status == "optimal"
        assert result.solution is not None
        assert result.solution.placement is not None
        assert result.solution.placement.tolist() == [0, 1, 1]


class TestRules:
    def test_weights_decide_who_is_placed(self) -> None:
        instance = gangs(gpus(2), [gpus(2), gpus(1)])
        jobs = [
            job.__class__(name=job.name, tasks=job.tasks, weight=weight)
            for job, weight in zip(instance.jobs(), (1, 3), strict=True)
        ]
        heavier = Instance.build(instance.devices, jobs, tables=instance.tables, question=instance.question)
        result = solved(heavier)
        assert result.objective == 3
        assert result.solution is not None
        assert result.solution.details["gangs"] == ["g1"]

    def test_new_nodes_only_when_needed(self) -> None:
        result = solved(gangs(gpus(1, 1, 1), [gpus(1, 1)], "gang-nodes", tables={"new": ["n1", "n2"]}))
        assert (result.status, result.objective) == ("optimal", 1)

    @pytest.mark.parametrize(("together", "value"), [(False, 1), (True, 0)])
    def test_one_domain(self, together: bool, value: int) -> None:
        """Three bundles on nodes in racks of two: they fit only across racks."""
        tables = {"domain": {"n0": "r", "n1": "r", "n2": "q"}}
        assert solved(gangs(gpus(1, 1, 1), [gpus(1, 1, 1)], tables=tables, together=together)).objective == value

    def test_every_resource_counts(self) -> None:
        node: Amounts = {"cpu": 2, "gpu": 2}
        assert solved(gangs([node], [[{"cpu": 2}], [{"cpu": 1, "gpu": 1}], [{"gpu": 1}]])).objective == 2

    @pytest.mark.parametrize(
        ("tables", "words"),
        [
            ({"capacity": {"x": {"gpu": 1}}}, "names 'x'"),
            ({"capacity": {"n0": {"gpu": -1}}}, "expected a number"),
            ({"capacity": {"n0": 3}}, "expected amounts by resource"),
            ({"demand": {"b0": {"tpu": 1}}}, "which no node has"),
            ({"domain": ["r"]}, "expected a domain"),
            ({"new": ["y"]}, "names 'y'"),
        ],
    )
    def test_damaged_tables_are_told(self, tables: dict[str, Any], words: str) -> None:
        with pytest.raises(InputError, match=words):
            hetopt.solve(gangs(gpus(1), [gpus(1)], tables=tables))


class TestVerifier:
    def check(
        self, placement: list[int], said: Any, together: bool = False, all_placed: bool = False
    ) -> tuple[str, ...]:
        instance = gangs([{"gpu": 2}, {"gpu": 1}], [gpus(1, 1), gpus(1)])
        domain = np.array([0, 1]) if together else None
        plan = Solution(placement=np.array(placement), details={"gangs": said})
        return gang_violations(instance, plan, domain, all_placed)[2]

    def test_valid(self) -> None:
        assert self.check([0, 0, 1], ["g0", "g1"], together=True, all_placed=True) == ()
        assert self.check([-1, -1, 1], ["g1"]) == ()

    @pytest.mark.parametrize(
        ("placement", "said", "words"),
        [
            ([0, 0, 0], ["g0", "g1"], "1 too many"),
            ([0, -1, 1], ["g0", "g1"], "1 of its 2 bundles"),
            ([0, -1, 1], ["g1"], "is not placed, and 1"),
            ([0, 0, 1], ["g0"], "is not placed, and 1"),
            ([0, 0, 7], ["g0", "g1"], "a node that is not there"),
            ([0, 0], ["g0"], "no node for each bundle"),
            ([0, 0, 1], ["g0", "g1", "g9"], "'g9', which is not there"),
            ([0, 0, 1], ["g0", "g1", "g1"], "twice"),
            ([0, 0, 1], None, "no list"),
        ],
    )
    def test_broken(self, placement: list[int], said: Any, words: str) -> None:
        assert any(words in sentence for sentence in self.check(placement, said))

    def test_spread_and_left_out(self) -> None:
        assert any("several domains" in text for text in self.check([0, 1, 0], ["g0", "g1"], together=True))
        assert any("left out" in text for text in self.check([0, 0, -1], ["g0"], all_placed=True))

    def test_types(self) -> None:
        instance = gangs(gpus(1, 1), [gpus(1)], types=["a", "b"], only=["a"])
        plan = Solution(placement=np.array([1]), details={"gangs": ["g0"]})
        assert any("cannot run" in text for text in gang_violations(instance, plan, None, False)[2])


def test_relaxation_and_program_agree_with_the_rule_on_larger_ones() -> None:
    """Bounds hold and the program is no worse than the rule: forty bundles on eight nodes."""
    random = np.random.default_rng(3)
    nodes = [{"cpu": 16, "gpu": int(random.integers(0, 5))} for _ in range(8)]
    jobs = [
        [{"cpu": int(random.integers(1, 6)), "gpu": int(random.integers(0, 2))}] * int(random.integers(1, 5))
        for _ in range(16)
    ]
    instance = gangs(nodes, jobs)
    rule, exact = hetopt.solve(instance, method="best-fit"), solved(instance)
    bound = hetopt.bound(instance).bound
    assert exact.status == "optimal"
    assert rule.objective is not None
    assert exact.objective is not None
    assert bound is not None
    assert rule.objective <= exact.objective <= bound
    assert problem("sharing.gang").sense == "max"
