"""Degrees of parallelism: worked by hand, brute force, bindings, launch lines read back, broken plans and tables."""

from __future__ import annotations

import numpy as np
import pytest

import hetopt
from hetopt import InputError, Instance, Solution
from hetopt.io.launch import LAUNCHERS, Launch, read, write
from hetopt.records import Device, Job
from hetopt.registry import problem

ROWS = [
    {"data": 1, "tensor": 2, "pipeline": 1, "seconds": 20, "memory": 9},
    {"data": 2, "tensor": 2, "pipeline": 1, "seconds": 11, "memory": 9},
    {"data": 4, "tensor": 1, "pipeline": 1, "seconds": 10, "memory": 16},
    {"data": 2, "tensor": 2, "pipeline": 2, "seconds": 6, "memory": 5},
    {"data": 1, "tensor": 8, "pipeline": 1, "seconds": 5, "memory": 3},
]
NUMA = {"distance": [[0, 2], [0, 3], [1, 2], [2, 0]], "cores": [4, 4]}


def asked(objective="parallelism", memory=10, nodes=2, cpus=1, **tables) -> Instance:
    return Instance.build(
        [Device(name=f"n{k}", slots=4, memory=memory, price=3600) for k in range(nodes)],
        [Job(name="train", time=[1] * nodes)],
        tables={"degrees": ROWS, **tables},
        question={"objective": objective, "cpus": cpus},
    )


@pytest.mark.parametrize(
    ("given", "degrees", "value"),
    [
        ({}, (2, 2, 2), 6),
        ({"nodes": 1}, (2, 2, 1), 11),
        ({"nodes": 1, "memory": 16}, (4, 1, 1), 10),
        ({"model": {"layers": 31}}, (2, 2, 1), 11),
        ({"model": {"batch": 8, "micro": 8}}, (1, 2, 1), 20),
        ({"model": {"heads": 3}, "memory": 16}, (4, 1, 1), 10),
        ({"objective": "parallelism-cost"}, (2, 2, 1), 11),
        ({"numa": NUMA, "cpus": 4}, (1, 2, 1), 20),
    ],
    ids=["free", "nodes", "memory", "layers", "batch", "heads", "cost", "cores"],
)
def test_by_hand(given, degrees, value):
    instance = asked(**given)
    for method in ("auto", "milp"):
        result = hetopt.solve(instance, method=method)
        assert (result.status, result.objective) == ("optimal", value)
        assert tuple(result.solution.details[key] for key in ("data", "tensor", "pipeline")) == degrees
        hetopt.verify(instance, result)


def test_processes_go_to_the_nearest_domains_with_room():
    binding = hetopt.solve(asked(numa=NUMA, cpus=2)).solution.details["binding"]
    assert binding == [0, 0, 1, 1]  # the third would rather be in domain 0, which is full


def test_no_row_can_be_run():
    result = hetopt.solve(asked(memory=2))
    assert result.exit_code == 3
    assert "1x2x1 needs 9 bytes a process, there are 2: 7 short" in result.infeasible[0]


def test_a_cost_without_a_price_is_no_zero():
    free = asked()
    devices = [Device(name=v.name, slots=v.slots, memory=v.memory) for v in free.devices]
    with pytest.raises(InputError, match="nodes have no price"):
        hetopt.solve(Instance.build(devices, free.jobs(), tables=free.tables, question=free.question),
                     objective="parallelism-cost")  # fmt: skip


@pytest.mark.parametrize("seed", range(900, 930))
@pytest.mark.parametrize("name", ["selection.parallelism", "selection.parallelism_cost"])
def test_against_all_plans(name, seed):
    one = problem(name)
    instance = one.sample(seed)
    question = one.question(instance)
    judged = [one.judge(instance, question, plan) for plan in one.every_plan(instance, question)]
    values = [each.value for each in judged if not each.violations]
    for method in ("table", "milp"):
        result = hetopt.solve(instance, method=method)
        assert result.status == ("optimal" if values else "infeasible")
        assert not values or result.objective == pytest.approx(min(values))


def test_fifty_plans_are_read_back_from_their_lines():
    rng = np.random.default_rng(1)
    for _ in range(50):
        processes, nodes = int(2 ** rng.integers(0, 4)), int(rng.integers(1, 9))
        tensor = int(rng.choice([t for t in (1, 2, 4, 8) if processes % t == 0]))
        pipeline = int(rng.choice([p for p in range(1, nodes + 1) if nodes % p == 0]))
        data = nodes * processes // tensor // pipeline
        binding = tuple(rng.integers(0, 4, processes).tolist()) if rng.random() < 0.7 else ()
        plan = Launch(data, tensor, pipeline, nodes, processes, int(rng.integers(1, 17)), binding)
        for launcher in LAUNCHERS:
            assert read(write(plan, launcher, script="my train.py")) == plan


def test_a_solved_plan_becomes_a_line():
    details = dict(hetopt.solve(asked(numa=NUMA, cpus=2)).solution.details)
    plan = Launch(**{**details, "binding": tuple(details["binding"])})
    assert write(plan, "srun").startswith(
        "srun --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=2 bash -c "
    )
    assert "numactl --cpunodebind=${d[$SLURM_LOCALID]}" in write(plan, "srun")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ls", "starts none"),
        ("srun --nodes=2 x", "lacks"),
        (write(Launch(2, 1, 1, 1, 2), "srun").replace("-size 2", "-size 3"), "is not"),
    ],
    ids=["none", "lacks", "product"],
)
def test_lines_that_state_no_plan(line, told):
    with pytest.raises(InputError, match=told):
        read(line)


def test_an_unknown_launcher():
    with pytest.raises(InputError, match="no launcher 'slurn'"):
        write(Launch(1, 1, 1, 1, 1), "slurn")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, ""),
        ({"data": 3}, "no row of data, tensor, pipeline (3, 2, 1)"),
        ({"nodes": 2}, "nodes and processes a node are (2, 4), the degrees need (1, 4)"),
        ({"cpus": 1}, "has 1 cores a process, 2 are asked for"),
        ({"binding": [0, 0, 0, 1]}, "domain 0 holds 3 processes and has room for 2"),
        ({"binding": [0, 1, 0, 1]}, "the binding is not the nearest"),
        ({"binding": [0, 0]}, "expected a domain"),
        ({"tensor": 8, "data": 1}, "1x8x1 splits tensors over 8 processes, a node has 4"),
    ],
    ids=str,
)
def test_broken_plans(change, told):
    instance = asked(numa=NUMA, cpus=2)
    one = problem("selection.parallelism")
    plan = {
        "data": 2,
        "tensor": 2,
        "pipeline": 1,
        "nodes": 1,
        "processes": 4,
        "cpus": 2,
        "binding": [0, 0, 1, 1],
        **change,
    }
    found = " ".join(one.judge(instance, one.question(instance), Solution(details=plan)).violations)
    assert told in found
    assert told or not found


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"degrees": []}, "must be a list"),
        ({"degrees": [{"data": 1}]}, "expected data"),
        ({"degrees": [{**ROWS[0], "data": 0}]}, "data is 0"),
        ({"degrees": [ROWS[0], ROWS[0]]}, "two rows"),
        ({"model": {"layer": 2}}, "expected layers"),
        ({"numa": {"distance": [[0]], "cores": [4]}}, "must be 4 x 1"),
    ],
    ids=str,
)
def test_tables_that_cannot_be_read(tables, told):
    with pytest.raises(InputError, match=told):
        hetopt.solve(asked(**tables))
