"""Situations that people have reported, told in our own words: what went wrong elsewhere must come out right here.

Those of chains, offloading, re-planning, serving and exporters stand with their tests; the rest is here.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import hetopt
from hetopt import Instance, LinearModel, Solution, solvers
from hetopt.cli import main
from hetopt.io import importers
from hetopt.io.exporters import accelerate
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.registry import problem

sys.path.insert(0, str(Path(__file__).parent / "io"))
from hf_configs import CONFIGS

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
    with pytest.raises(hetopt.VerificationError):
        hetopt.export(instance.with_question({"objective": "chain-bottleneck"}), Solution.assign(placement), "vllm")


def test_the_fuller_stage_is_named_and_so_is_what_the_other_cannot_use():
    """[H01] 56 and 8 of 64 layers, fixed by hand: the first stage has room for 46,800 tokens, and the second for no more."""
    tasks = [Task(name=f"l{k}", time={"d": 1}, kv_bytes_per_token=2048, pin=f"d{int(k >= 56)}") for k in range(64)]
    instance = chain(tasks, [Device(name=f"d{k}", type="d", memory=5 * GIB) for k in range(2)])
    asked = {"objective": "chain-tokens", "block": 16}
    found = hetopt.diagnose(instance.with_question(asked))
    assert found.binding[0] == "cache: d0 has room for 46,800 tokens, and so has the pipeline; unused: d1 for 327,680"
    assert [gain.value for gain in found.gains if gain.change.endswith("more memory on d0")] == [56160]


def test_uneven_cards_are_told_to_the_tool():
    """[H02] 9 and 22 GiB: the best split of 40 layers is written as the tool reads it."""
    tasks = [Task(name=f"l{k}", time=[1, 1], memory=630476800, kv_bytes_per_token=20480) for k in range(40)]
    free = (9663676416, 23622320128)
    cards = [Device(name=f"g{k}", type="gpu", memory=m, reserved=2630877184) for k, m in enumerate(free)]
    instance = chain(tasks, cards, [Link(source="*", target="*", bandwidth=None)])
    best = hetopt.solve(instance, objective="chain-tokens", options={"block": 16})
    assert "VLLM_PP_LAYER_PARTITION=10,30\n" in hetopt.export(instance, best, "vllm")


@pytest.mark.parametrize("head", ["copy", "first device"])
def test_an_embedding_larger_than_an_even_share(head):
    """[H12] 2 billion parameters on eight devices: the embedding alone is the fullest; the tied head is a copy or stays."""
    embedding, layer = 1_179_648_000, 155_713_536
    sizes = [embedding, *[layer] * 26, *([embedding] if head == "copy" else [])]
    tasks = [Task(name=f"m{k}", time={"d": size}, memory=size) for k, size in enumerate(sizes)]
    devices = [Device(name=f"d{i}", type="d", memory=17_179_869_184) for i in range(8)]
    result = hetopt.solve(chain(tasks, devices), objective="chain-bottleneck", options={"order": "free"})
    assert (result.status, result.objective, result.bound) == ("optimal", embedding, embedding)


def test_a_tied_head_is_held_once_where_the_embedding_is():
    """[H12] The head returns to the embedding's device: no bytes of its own, and the bottleneck is the embedding."""
    embedding, layer = 1_179_648_000, 155_713_536
    sizes = [embedding, *[layer] * 26, 0]
    tasks = [
        Task(name=f"m{k}", time={"d": size}, memory=size, output=0, group="tied" if k in (0, 27) else None)
        for k, size in enumerate(sizes)
    ]
    devices = [Device(name=f"d{i}", type="d", memory=17_179_869_184) for i in range(8)]
    instance = chain(tasks, devices, [Link(source="*", target="*", bandwidth=None)])
    result = hetopt.solve(instance, objective="throughput", options={"contiguous": "none"}, time_limit=60)
    assert (result.status, result.objective) == ("optimal", embedding)
    held = [row["memory"] for row in result.evaluation["devices"].values()]
    assert sum(held) == embedding + 26 * layer
    assert result.solution.placement[27] == result.solution.placement[0]


def test_a_bare_parameter_has_a_device():
    """[H13] A layer is cut: its two modules and its own parameter each have a key; devices without room stay empty."""
    sizes = {"attn": 10, "mlp": 20, "layer_scalar": 0.001}
    tasks = [Task(name=f"layers.8.{name}", time={"g": size}, memory=size) for name, size in sizes.items()]
    devices = [Device(name=f"g{k}", type="g", memory=room) for k, room in enumerate((12, 30, 0, 0))]
    instance = chain(tasks, devices, [Link(source="*", target="*", bandwidth=None)])
    result = hetopt.solve(instance, objective="chain-bottleneck")
    assert result.status == "optimal"
    assert set(result.solution.placement.tolist()) == {0, 1}
    found = json.loads(hetopt.export(instance, result, "accelerate"))
    names = ["layers.8.attn.q_proj.weight", "layers.8.mlp.up_proj.weight", "layers.8.layer_scalar"]
    assert accelerate.resolve(found, names) == [0, 1, 1]


def test_every_layer_is_sized_by_itself(tmp_path):
    """[H14] Three dense layers before those with experts: the importer looks at each, and so does the balance."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS["deepseek-v3"]))
    instance = importers.get("hf").load(path, devices="h100-sxm:8/h100-sxm:8", quantisation="int8", context=64)
    size = {name.rpartition(".")[2]: need for name, need in zip(instance.labels, instance.memory.tolist(), strict=True)}
    dense, sparse = [size[str(k)] for k in range(3)], [size[str(k)] for k in range(3, 61)]
    assert len(set(dense)) == len(set(sparse)) == 1
    assert sparse[0] > 15 * dense[0]


def test_more_memory_a_card_is_what_puts_all_layers_on_cards():
    """[H16] 80 blocks of 1.32 GiB on four cards of 22: 11,904 MiB more on each, since each has to hold 20 whole blocks."""
    block = int((1.0775 + 0.24375) * GIB)
    tasks = [Task(name=f"l{k}", time={"gpu": 1}, memory=block) for k in range(80)]
    cards = [Device(name=f"g{k}", type="gpu", memory=22 * GIB, reserved=round(7.2 * GIB)) for k in range(4)]
    found = hetopt.diagnose(chain(tasks, cards), objective="chain-latency", time_limit=60)
    mend = next(m for m in found.mends if "on each gpu" in m.sentence)
    least = 20 * block - (22 * GIB - round(7.2 * GIB))
    assert mend.sentence.startswith("11,904 MiB more memory on each gpu")
    assert mend.too_little < least <= mend.amount


def test_what_is_fixed_and_too_large_ends_with_a_code_and_the_shortfall(tmp_path):
    """[H17] 24,840 MiB are fixed on a card of 22,341 MiB with a margin of 1,024: exit code 3, 3,523 MiB short."""
    mib = 2**20
    fixed = Task(name="fixed", time=[1, 5], memory=24840 * mib, pin="gpu")
    rest = Task(name="rest", time=[1, 5], memory=mib)
    instance = chain([fixed, rest], [Device(name="gpu", memory=22341 * mib, reserved=1024 * mib), Device(name="cpu")])
    file = tmp_path / "fixed.json"
    hetopt.write(instance.with_question({"objective": "chain-latency"}), file)
    for command in ("solve", "explain"):
        ended = CliRunner().invoke(main, [command, str(file)])
        assert ended.exit_code == 3
        assert "3,523 MiB" in ended.stdout
    assert "3,523 MiB more memory on gpu (3,522 MiB is proved too little)" in ended.stdout


@pytest.mark.parametrize(
    ("room", "least", "says"),
    [
        (
            (2.5, 2),
            False,
            "memory: the layers fit no sequence of stages; with 2000000000 bytes more on every device they would",
        ),
        ((2.3, 1.9, 0.1), False, "4500000000 bytes, and all devices have 4300000000: 200000000 bytes short"),
        ((48, 32), True, "connectivity: stages must pass data on, and there is no link a -> b"),
        (
            (48, 32, 32),
            True,
            "min-nodes: 3 devices must hold a layer each, and the sequence can be cut into 2 stages at most",
        ),
    ],
    ids=["whole layers", "memory", "connectivity", "min-nodes"],
)
def test_three_causes_have_three_messages(room, least, says):
    """[H19] 4.5 GB in two layers: too little memory, no link where both nodes must be used, or fewer layers than nodes."""
    devices = [Device(name=name, type="node", memory=round(gb * 10**9)) for name, gb in zip("abc", room, strict=False)]
    tasks = [Task(name=f"l{k}", time={"node": 1}, memory=2_250_000_000, output=1000) for k in range(2)]
    result = hetopt.solve(chain(tasks, devices), objective="chain-bottleneck", options={"empty": not least})
    assert result.status == "infeasible"
    assert says in " ".join(result.infeasible)


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
    written = json.loads(hetopt.export(instance, result, "onnxruntime"))
    assert written["layer_ann"] == {f"n{k}": "hetopt_npu" if here else "hetopt_cpu" for k, here in enumerate(on)}
    assert written["islands"] == {"cpu": 5, "npu": 4}


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
    asked = [("chain-latency", "dp"), ("chain-latency", "milp"), ("makespan", "auto"), ("makespan", "cpsat")]
    for objective, method in asked:
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


def test_a_coarser_grid_of_times_has_a_proved_error():
    """[H28] 24,000 minutes of jobs: the grid of times gets finer step by step, and each answer is within its own factor."""
    rng = np.random.default_rng(5)
    minutes = np.repeat(rng.integers(60, 1440, (32, 1)).astype(float), 2, axis=1)
    result = hetopt.solve(
        Instance.from_times(minutes), objective="restricted-makespan", method="fptas", gap=0.05, time_limit=60
    )
    assert result.objective <= (1 + result.run["model"]["fptas"]["epsilon"]) * result.bound
    assert result.gap <= 0.05


def test_what_is_left_at_the_limit_is_a_plan_and_a_bound():
    """[H28] A limit of a second on 2,000 jobs: a verified plan, a bound, and the gap between them."""
    rng = np.random.default_rng(3)
    result = hetopt.solve(Instance.from_times(rng.integers(10, 100, (2000, 20)).astype(float)), time_limit=3)
    assert result.verified
    assert result.bound is not None
    assert result.gap is not None
