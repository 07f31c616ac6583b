"""Generators give what the published architectures say, the same on every run, and never an instance without a plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetopt.costs.roofline import MEMORY_EFFICIENCY, PROCESSORS, fleet, seconds
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io import generators
from hetopt.io.generators import bert_large, gpt2_xl, llama3_70b, mobile_trio, resnet50
from hetopt.io.generators.random_graph import SHAPES, edges_of
from hetopt.io.instances import decode, encode

MODELS = ("bert-large", "gpt2-xl", "llama3-70b", "mobile-trio", "resnet50")


def make(kind: str, /, **options: Any) -> Instance:
    return generators.get(kind).make(**options)  # type: ignore[no-any-return]


# The registry ---------------------------------------------------------------------------------------------------------


def test_the_generators_are_found_by_name() -> None:
    assert {*MODELS, "random-graph", "serving", "unrelated"} <= set(generators.names())
    assert generators.names() == sorted(generators.names())
    for generator in generators.generators():
        assert generators.get(generator.NAME) is generator
        assert generator.TITLE.endswith(".")
        for flag, kind, default, text in generator.OPTIONS:
            assert flag.startswith("--")
            assert default in kind if isinstance(kind, tuple) else isinstance(default, kind)
            assert text.endswith(".")
    with pytest.raises(InputError, match="did you mean 'resnet50'"):
        generators.get("resnet-50")


@pytest.mark.parametrize("kind", [*MODELS, "random-graph", "serving", "unrelated"])
def test_defaults_of_the_options_are_those_of_python(kind: str) -> None:
    generator = generators.get(kind)
    spelled = {option.flag[2:].replace("-", "_"): option.default for option in generator.OPTIONS}
    assert generator.make(**spelled).digest == generator.make().digest


@pytest.mark.parametrize("kind", [*MODELS, "random-graph", "serving", "unrelated"])
def test_seed_and_options_decide_the_instance(kind: str) -> None:
    noisy = {"noise": 0.1} if kind in MODELS else {}
    one, same, other = (make(kind, seed=seed, **noisy) for seed in (4, 4, 5))
    assert encode(one) == encode(same)
    assert one.digest != other.digest
    assert one.source
    assert decode(encode(one)).digest == one.digest


# The roofline ---------------------------------------------------------------------------------------------------------


def test_an_operation_runs_into_one_of_two_walls() -> None:
    """NVIDIA L4: 121 TFLOPS dense, 300 GB/s; a matrix product is bound by arithmetic, a copy by memory."""
    l4 = PROCESSORS["l4"]
    assert seconds(l4, 121e12 * 0.7, 0, "fp16") == pytest.approx(1 + l4.overhead, rel=1e-12)
    assert seconds(l4, 1e6, 300e9 * MEMORY_EFFICIENCY, "fp16") == pytest.approx(1 + l4.overhead, rel=1e-12)
    assert seconds(l4, 0, 0, "fp16") == l4.overhead
    assert seconds(PROCESSORS["v100-sxm2-16"], 1, 1, "int8") == np.inf


def test_a_fleet_is_read_from_a_word() -> None:
    assert [(p.name, count) for p, count in fleet("h100-sxm:2, l4")] == [("h100-sxm", 2), ("l4", 1)]
    for text, said in (
        ("h100", "--fleet names 'h100'"),
        ("l4:0", "holds 'l4:0', expected a count from 1"),
        ("l4:x", "holds 'l4:x'"),
        ("l4:99999", "expected a count from 1 to 4096"),
        ("l4,l4:2", "names 'l4' twice"),
    ):
        with pytest.raises(InputError, match=said):
            fleet(text)


# Models ---------------------------------------------------------------------------------------------------------------


def test_parameters_are_the_published_ones() -> None:
    assert resnet50.model(1).parameters == 25_557_032
    assert mobile_trio.model(1).parameters == 3_504_872
    assert bert_large.model(1, 128).parameters == 335_141_888
    assert llama3_70b.model(1, 1).parameters == 70_553_706_496
    assert gpt2_xl.model(1, 128).parameters == 1_557_611_200 + 50257 * 1600  # the head keeps a copy of the word table


def test_arithmetic_is_the_published_one() -> None:
    """4.1 and 0.3 billion multiply-adds an image; about two operations a parameter and token in a decoder."""
    assert sum(op.flops for op in resnet50.model(1).operations) / 2 == pytest.approx(4.09e9, rel=0.01)
    assert sum(op.flops for op in mobile_trio.model(1).operations) / 2 == pytest.approx(0.30e9, rel=0.01)
    decoder = llama3_70b.model(1, 1)
    assert sum(op.flops for op in decoder.operations) == pytest.approx(
        2 * (decoder.parameters - 8192 * 128256), rel=0.001
    )


def test_a_decode_step_reads_all_weights_and_the_whole_cache() -> None:
    instance = make("llama3-70b", batch=2, context=1000, fleet="h100-sxm:2")
    cache = 2 * 1000 * 327_680
    results = instance.output.sum()
    assert instance.memory.sum() == 2 * 70_553_706_496 + cache + results
    traffic = instance.memory.sum() - 2 * 8192 * 128256  # the embedding reads two rows only
    floor = traffic / (3350e9 * MEMORY_EFFICIENCY) + 402 * 5e-6
    assert instance.time[:, 0].sum() == pytest.approx(floor, rel=0.001)
    assert (instance.time[:, 0] == instance.time[:, 1]).all()


def test_memory_binds_on_the_mixed_fleet() -> None:
    """The fastest device cannot hold the share that its bandwidth asks for, and all together can hold everything."""
    instance = make("llama3-70b")
    assert instance.name == "llama70b-mixed"
    assert instance.memory.sum() < instance.capacity.sum()
    speed = 1 / instance.time.sum(axis=0)
    assert instance.memory.sum() * speed[0] / speed.sum() > instance.capacity[0]


def test_links_and_devices_follow_the_data_sheets() -> None:
    instance = make("resnet50")
    assert instance.device_names == ("l4-0", "l4-1", "t4-0", "t4-1", "t4-2", "epyc-9654-0")
    assert instance.is_host.tolist() == [False] * 5 + [True]
    assert instance.capacity[:3].tolist() == [21.6e9, 21.6e9, 14.4e9]
    assert instance.need_link("t4-1", "host").bandwidth == 15.75e9
    assert instance.need_link("host", "l4-0").bandwidth == 31.5e9
    first = instance.task_index["conv1"]
    assert instance.output[first] == 32 * 64 * 112 * 112 * 2


def test_the_npu_lacks_an_operation() -> None:
    instance = make("mobile-trio")
    assert np.argwhere(~instance.eligible).tolist() == [[instance.task_index["softmax"], 0]]


@pytest.mark.parametrize("kind", ["resnet50", "bert-large"])
def test_training_mirrors_the_forward_pass(kind: str) -> None:
    forward, training = make(kind), make(kind, training=True)
    n, edges = forward.n_tasks, set(map(tuple, forward.edges.tolist()))
    assert training.n_tasks == 2 * n
    assert training.backward.tolist() == [False] * n + [True] * n
    assert (training.group[:n] == training.group[n:]).all()
    assert len(set(training.group.tolist())) == n
    assert np.allclose(training.time[n:], 2 * forward.time, rtol=0, atol=1.1e-9)
    sinks = set(range(n)) - {a for a, _ in edges}
    assert set(map(tuple, training.edges.tolist())) == edges | {(b + n, a + n) for a, b in edges} | {
        (k, k + n) for k in sinks
    }
    assert training.memory[n:].sum() == 0
    assert (training.memory[:n] >= forward.memory).all()


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("resnet50", {"batch": 0}, "--batch is 0, expected a whole number from 1"),
        ("bert-large", {"tokens": 513}, "--tokens is 513, expected a whole number from 1 to 512"),
        ("gpt2-xl", {"noise": 1.0}, "--noise is 1.0, expected a number from 0 to less than 1"),
        ("llama3-70b", {"fleet": "h200"}, "--fleet names 'h200'"),
        ("unrelated", {"kind": "u1_99"}, "--kind is 'u1_99'"),
        ("unrelated", {"jobs": 10**6, "machines": 10**6}, "--jobs times --machines is 1000000000000, expected"),
        ("unrelated", {"eligible": 0.0}, "--eligible is 0.0, expected a number above 0"),
        ("unrelated", {"memory": 0.5}, "--memory is 0.5, expected 0 or a number from 1"),
        ("unrelated", {"pins": 51}, "--pins is 51, expected a whole number from 0 to 50"),
        ("unrelated", {"seed": -1}, "--seed is -1"),
        ("random-graph", {"shape": "ring"}, "--shape is 'ring'"),
        ("random-graph", {"tasks": 0}, "--tasks is 0"),
        ("random-graph", {"accelerators": 0, "cpus": 0}, "--cpus is 0"),
        ("random-graph", {"cpus": 0, "unsupported": 0.5}, "0 without a CPU"),
    ],
)
def test_options_out_of_range_are_refused(kind: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        make(kind, **options)


# Unrelated machines ---------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    jobs=st.integers(1, 30),
    machines=st.integers(1, 6),
    eligible=st.floats(0.05, 1),
    memory=st.sampled_from([0.0, 1.0, 1.2]),
    share=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_variants_always_have_a_plan(
    jobs: int, machines: int, eligible: float, memory: float, share: float, seed: int
) -> None:
    """Largest memory first, each where most is free among the machines it may use, fits."""
    pins = int(share * jobs)
    instance = make("unrelated", jobs=jobs, machines=machines, eligible=eligible, memory=memory, pins=pins, seed=seed)
    assert len(instance.columns.pin) == pins
    assert instance.eligible.any(axis=1).all()
    used = np.zeros(machines)
    alone = instance.eligible.sum(axis=1) == 1
    pinned = np.isin(np.arange(jobs), list(instance.columns.pin))
    for k in np.lexsort((np.arange(jobs), -instance.memory, ~pinned)).tolist():
        where = np.flatnonzero(instance.eligible[k])
        used[where[np.argmin(used[where])]] += instance.memory[k]
    assert alone[pinned].all()
    assert (used <= instance.capacity).all()


def test_unrelated_times_are_those_of_the_distribution() -> None:
    from hetopt.io.generate_unrelated import unrelated

    instance = make("unrelated", kind="u_i_hihi", jobs=12, machines=3, seed=9)
    assert np.allclose(instance.time, unrelated("u_i_hihi", 12, 3, 9), rtol=0, atol=5e-7)
    assert make("unrelated", kind="jobcorr", seed=2).integral


# Random graphs --------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(shape=st.sampled_from(SHAPES), n=st.integers(1, 25), seed=st.integers(0, 1000))
def test_shapes_are_what_they_are_called(shape: str, n: int, seed: int) -> None:
    edges = edges_of(shape, n, np.random.default_rng(seed))
    assert len(set(edges)) == len(edges)
    assert all(a < b for a, b in edges)
    assert {k for edge in edges for k in edge} == (set(range(n)) if n > 1 else set())
    if shape == "chain":
        assert edges == [(k, k + 1) for k in range(n - 1)]
    if shape == "series-parallel":
        assert reduces_to_one_edge(edges, n)
    if shape == "layered":
        assert all(1 <= sum(b == k for _, b in edges) <= 2 for k in range(1, n))


def reduces_to_one_edge(edges: list[tuple[int, int]], n: int) -> bool:
    """Whether series and parallel reductions leave a single edge: the definition of two-terminal series-parallel."""
    left = list(edges)
    while len(left) > 1:
        left = list(set(left))
        for k in range(n):
            into, out = [e for e in left if e[1] == k], [e for e in left if e[0] == k]
            if len(into) == len(out) == 1:
                left = [e for e in left if k not in e] + [(into[0][0], out[0][1])]
                break
        else:
            return len(left) <= 1
    return True


def test_random_graphs_have_whole_numbers_and_room() -> None:
    instance = make("random-graph", tasks=30, unsupported=0.3, training=True, seed=3)
    for values in (instance.time[instance.eligible], instance.output, instance.memory):
        assert (values == np.floor(values)).all()
    assert (instance.eligible[:30] == instance.eligible[30:]).all()
    assert not instance.eligible[:, 0].all()
    assert instance.capacity[:3].sum() >= 1.5 * instance.memory.sum()
    assert instance.need_link("acc0", "host").bandwidth == 1
