"""Importers of models: every number by hand on small files, totals of published networks, and no header believed.

Sources of the totals: parameters are those of the networks' papers as counted by public tables; multiply-adds of VGG-19 19.6 and
ResNet-50 4.1 thousand million, as published with them.
"""

from __future__ import annotations

import json
import math
import os
import struct
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from model_files import (
    DECODER,
    LLAMA,
    STATISTICS,
    exported,
    gguf_file,
    llama_tensors,
    onnx_model,
    pt2_archive,
    safetensors_file,
)

import hetopt
from hetopt.costs.roofline import PROCESSORS, seconds
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io import importers
from hetopt.io.importers import _arithmetic as count
from hetopt.io.importers._devices import crew, ordered

SMALL = ("light_bvlc_alexnet", "light_squeezenet", "light_vgg19", "light_zfnet512", "light_shufflenet")


def load(kind: str, path: Path, data: bytes, **options: Any) -> Instance:
    path.write_bytes(data)
    return importers.get(kind).load(path, **options)  # type: ignore[no-any-return]


def complaint(kind: str, path: Path, data: bytes, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load(kind, path, data, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


def named(value: Any) -> str:
    """Name of a case: what is said about it."""
    return value if isinstance(value, str) else "x"


def roofline(device: str, flops: float, moved: float, precision: str = "fp16") -> float:
    return round(seconds(PROCESSORS[device], flops, moved, precision), 9)


# Devices --------------------------------------------------------------------------------------------------------------


def test_devices_and_links_are_those_of_the_catalogue(tmp_path: Path) -> None:
    members = crew("RTX-4090:2, t4, cpu", "fp16", None, one_node=True)
    named = [(d.name, d.type, d.host) for d in members.devices(host_limit=False)]
    assert named == [
        ("rtx4090-0", "rtx4090", False),
        ("rtx4090-1", "rtx4090", False),
        ("t4-0", "t4", False),
        ("cpu-0", "cpu", True),
    ]
    assert members.devices(host_limit=False)[3].memory is None
    assert members.devices(host_limit=True)[3].memory == 64e9
    ends = {(link.source, link.target) for link in members.links()}
    assert {("rtx4090", "host"), ("rtx4090", "t4"), ("rtx4090", "rtx4090")} <= ends
    own = tmp_path / "own.json"
    own.write_text('{"format": "hetopt-devices/1", "devices": [{"name": "t4", "bandwidth_gbs": 640}]}')
    fast, slow = (crew("t4", "fp16", file, one_node=True).times(0, 1e9)["t4"] for file in (str(own), None))
    assert fast is not None
    assert slow is not None
    assert slow - 5e-6 == pytest.approx(2 * (fast - 5e-6))


@pytest.mark.parametrize(
    ("text", "precision", "said"),
    [
        ("", "fp16", "--devices has an empty part"),
        ("rtx", "fp16", "could be rtx3090, rtx4090, rtx5090"),
        ("t4,T4", "fp16", "names 't4' twice"),
        ("t4:0", "fp16", "expected a count from 1"),
        ("t4/t4", "fp16", "are 2 machines, expected one"),
        ("coral-edgetpu", "fp16", "bandwidth is not published"),
        ("snapdragon-8-gen-3-npu", "fp16", "published peak for fp16"),
        ("t4", "fp32", "--precision is 'fp32'"),
    ],
    ids=named,
)
def test_devices_that_cannot_be_meant_are_refused(text: str, precision: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        crew(text, precision, None, one_node=True)
    assert said in str(caught.value)


def test_names_of_tasks_are_unique_and_short() -> None:
    assert ordered(["a", "b", "a", "a#2", "x" * 300]) == ["a#0", "b", "a#2#", "a#2", "x" * 200 + "#4"]


# Arithmetic -----------------------------------------------------------------------------------------------------------


def test_arithmetic_counts_two_for_a_multiply_add() -> None:
    # the first convolution of ResNet-50: 118,013,952 multiply-adds (64 x 112 x 112 results, 3 x 7 x 7 each)
    assert count.convolution((64, 3, 7, 7), (1, 64, 112, 112)) == 2 * 118_013_952
    assert count.convolution((32, 1, 3, 3), (1, 32, 8, 8)) == 2 * 32 * 64 * 9  # by channel
    assert count.spread((1, 16, 4, 4), (16, 8, 2, 2)) == 2 * 256 * 32
    assert count.matrix_product((5, 2, 3), (5, 2, 4)) == 2 * 5 * 2 * 3 * 4
    # 2 heads, 3 queries, 7 keys, width 4, values of width 6: 3 x 7 scores and as many weights, for each head
    assert count.attention((2, 3, 4), (2, 7, 4), (2, 3, 6)) == 2 * 2 * 3 * 7 * 4 + 2 * 2 * 3 * 7 * 6
    assert count.recurrent((10, 2, 8), [(1, 64, 8), (1, 64, 16)]) == 2 * 20 * (64 * 8 + 64 * 16)
    assert count.contraction("bij, bjk -> bik", [(5, 2, 3), (5, 3, 4)], (5, 2, 4)) == 2 * 5 * 2 * 3 * 4
    assert count.contraction("...ij,...jk->...ik", [(5, 2, 3), (5, 3, 4)], (5, 2, 4)) == 2 * 5 * 2 * 3 * 4


# ONNX -----------------------------------------------------------------------------------------------------------------


def test_an_onnx_graph_by_hand(tmp_path: Path) -> None:
    instance = load("onnx", tmp_path / "two.onnx", onnx_model(), devices="t4,cpu")
    assert instance.labels == ("first", "bias", "Relu", "same", "second")
    assert instance.edges.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    # x is 2 x 8, w1 8 x 16, b1 16, w2 16 x 4 (computed), s two 64-bit numbers; half precision
    assert instance.output.tolist() == [64, 64, 64, 64, 16]
    assert instance.memory.tolist() == [256 + 64, 32 + 64, 64, 16 + 64, 128 + 16]
    assert instance.time[0, 0] == roofline("t4", 2 * 2 * 16 * 8, 32 + 256 + 64)
    assert instance.time[1, 1] == roofline("cpu", 32, 64 + 32 + 64)
    assert instance.time[3].tolist() == [0, 0]  # a reshape moves nothing
    assert instance.time[4, 0] == roofline("t4", 2 * 2 * 4 * 16, 64 + 128 + 16)
    assert instance.question == {"objective": "throughput"}
    assert "208 parameters" in instance.description
    quarter = load("onnx", tmp_path / "two.onnx", onnx_model(), devices="t4", precision="int8")
    assert quarter.memory[0] == 128 + 32


def test_a_named_dimension_needs_its_size(tmp_path: Path) -> None:
    path = tmp_path / "n.onnx"
    assert "its dimension 'N' has no size; say --dims N=..." in complaint("onnx", path, onnx_model("N"))
    assert load("onnx", path, onnx_model("N"), dims="N=2").digest == load("onnx", path, onnx_model(2)).digest
    assert load("onnx", path, onnx_model("N"), dims=" N=6 ").output[0] == 6 * 16 * 2
    for dims in ("N", "N=", "=3", "N=0", "N=-1", "N=2.5", "N=99999999999"):
        assert "--dims holds" in complaint("onnx", path, onnx_model("N"), dims=dims)


def test_older_models_compute_shapes_too(tmp_path: Path) -> None:
    new, old = (load("onnx", tmp_path / "m.onnx", onnx_model(opset=opset)) for opset in (15, 11))
    assert new.digest == old.digest


def changed_model(change: Any) -> bytes:
    import onnx

    model = onnx.load_model_from_string(onnx_model())
    change(model)
    return bytes(model.SerializeToString())


def test_external_data_are_not_opened(tmp_path: Path) -> None:
    def outside(model: Any) -> None:
        weight = model.graph.initializer[0]
        weight.ClearField("raw_data")
        weight.data_location = 1
        weight.external_data.add(key="location", value="../../nowhere/at/all")

    inside = load("onnx", tmp_path / "m.onnx", onnx_model())
    assert load("onnx", tmp_path / "m.onnx", changed_model(outside)).digest == inside.digest


def test_functions_are_unfolded_and_an_explosion_of_them_is_refused(tmp_path: Path) -> None:
    from onnx import helper

    opset = helper.make_opsetid("", 15)

    def wrapped(model: Any) -> None:
        body = [helper.make_node("Relu", ["a"], ["b"], "inside")]
        model.functions.append(helper.make_function("own", "F", ["a"], ["b"], body, [opset]))
        model.opset_import.append(helper.make_opsetid("own", 1))
        model.graph.node[3].op_type, model.graph.node[3].domain = "F", "own"

    instance = load("onnx", tmp_path / "f.onnx", changed_model(wrapped))
    assert instance.output.tolist() == [64, 64, 64, 64, 16]

    def exploding(model: Any) -> None:
        wrapped(model)
        del model.functions[:]
        for k in range(12):
            kind, domain = ("Relu", "") if k == 0 else (f"F{k - 1}", "own")
            names = ["a", *(f"t{i}" for i in range(1, 8)), "b"]
            body = [helper.make_node(kind, [names[i]], [names[i + 1]], domain=domain) for i in range(8)]
            model.functions.append(helper.make_function("own", f"F{k}", ["a"], ["b"], body, [opset]))
        model.graph.node[3].op_type = "F11"

    assert "more than 262144 operators" in complaint("onnx", tmp_path / "f.onnx", changed_model(exploding))

    def recursive(model: Any) -> None:
        wrapped(model)
        model.functions[0].node[0].op_type, model.functions[0].node[0].domain = "F", "own"

    assert "expected no recursion" in complaint("onnx", tmp_path / "f.onnx", changed_model(recursive))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.graph.node.reverse(), "which nothing before it makes"),
        (lambda m: m.graph.ClearField("node"), "no operator that computes"),
        (lambda m: m.graph.node[2].output.__setitem__(0, "h0"), "makes 'h0', which is there already"),
        (lambda m: setattr(m.graph.node[3], "op_type", "Unheard"), "its shape cannot be inferred"),
        (lambda m: setattr(m.graph.node[3], "op_type", "If"), "whose cost depends on data"),
        (lambda m: setattr(m.graph.initializer[0], "data_type", 8), "element type 8"),
        (lambda m: m.graph.initializer[0].dims.__setitem__(0, -8), "expected sizes >= 0"),
        (
            lambda m: m.graph.initializer[0].dims.extend([1 << 60] * 30),
            "more than 10^30 elements, expected at most 2^53",
        ),
        (lambda m: m.graph.initializer[0].dims.extend([1] * 70), "has 72 dimensions"),
    ],
    ids=named,
)
def test_an_onnx_graph_that_cannot_be_right_is_refused(change: Any, said: str, tmp_path: Path) -> None:
    assert said in complaint("onnx", tmp_path / "m.onnx", changed_model(change))


def test_what_is_no_onnx_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not an ONNX model" in complaint("onnx", tmp_path / "m.onnx", b"hello, this is text")
    assert "no operator" in complaint("onnx", tmp_path / "m.onnx", b"")
    good = onnx_model()
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert 'pip install "hetopt[onnx]"' in complaint("onnx", tmp_path / "m.onnx", good)


PUBLISHED: dict[str, tuple[int, int, float | None]] = {
    "light_bvlc_alexnet": (24, 60_965_224, None),
    "light_densenet121": (668, 8_146_152, None),
    "light_inception_v1": (143, 6_998_552, None),
    "light_inception_v2": (371, 11_234_792, None),
    "light_resnet50": (176, 25_610_152, 2 * 4.1e9),
    "light_shufflenet": (203, 1_420_152, None),
    "light_squeezenet": (66, 1_235_496, None),
    "light_vgg19": (46, 143_667_240, 2 * 19.6e9),
    "light_zfnet512": (22, 87_250_536, None),
}
"""Operators that are not constants, numbers in floating point that are, arithmetic operations as published."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_graphs_that_come_with_onnx_import_and_the_small_ones_are_partitioned(name: str) -> None:
    import onnx

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    instance = importers.get("onnx").load(folder / f"{name}.onnx", devices="rtx4090,rtx3090,cpu")
    operators, parameters, flops = PUBLISHED[name]
    assert instance.n_tasks == operators
    assert f" {parameters} parameters" in instance.description
    if flops is not None:
        stated = float(instance.description.split(" arithmetic operations")[0].split()[-1])
        assert stated == pytest.approx(flops, rel=0.01)
    if name in SMALL:
        result = hetopt.solve(instance, time_limit=20)
        assert result.status == "optimal"
        hetopt.verify(instance, result)


# torch ----------------------------------------------------------------------------------------------------------------


def test_an_exported_program_by_hand(tmp_path: Path) -> None:
    instance = load("torch", tmp_path / "net.json", json.dumps(exported()).encode(), devices="t4,cpu")
    assert instance.labels == ("up: linear", "left", "relu", "cat", "mm")
    assert instance.edges.tolist() == [[0, 1], [1, 2], [1, 3], [2, 3], [3, 4]]
    # x is 2 x 8 (a symbolic size of 2), the weight 16 x 8, its bias 16, the buffer 16 x 4
    assert instance.memory.tolist() == [256 + 32 + 64, 64, 32, 64, 128 + 16]
    assert instance.time[0, 0] == roofline("t4", 2 * 2 * 16 * 8, 32 + 256 + 32 + 64)
    assert instance.time[1].tolist() == [0, 0]
    assert instance.time[4, 1] == roofline("cpu", 2 * 2 * 4 * 16, 64 + 128 + 16)
    for name in ("models/model.json", "serialized_exported_program.json"):
        assert (
            load("torch", tmp_path / "net.pt2", pt2_archive(exported(), name), devices="t4,cpu").digest
            == instance.digest
        )


def test_a_program_in_memory_is_written_by_torch_and_read_the_same_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch: Any = types.ModuleType("torch")
    torch.export = types.SimpleNamespace(save=lambda program, buffer: buffer.write(pt2_archive(program)))
    monkeypatch.setitem(sys.modules, "torch", torch)
    instance = importers.get("torch").from_exported(exported(), devices="t4,cpu", name="net")
    assert (
        instance.digest
        == load("torch", tmp_path / "net.json", json.dumps(exported()).encode(), devices="t4,cpu").digest
    )
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match="needs PyTorch"):
        importers.get("torch").from_exported(exported())


def program(**change: Any) -> bytes:
    data = exported()
    for path, value in change.items():
        place: Any = data
        *steps, last = [int(step) if step.isdigit() else step for step in path.split("__")]
        for step in steps:
            place = place[step]
        place[last] = value
    return json.dumps(data).encode()


GRAPH = "graph_module__graph__"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (program(schema_version__major=7), "$.schema_version.major is 7, expected 8"),
        (program(**{GRAPH + "nodes__0__inputs__1__arg": {"as_tensor": {"name": "ghost"}}}), "nodes[0] reads 'ghost'"),
        (program(**{GRAPH + "nodes__2__outputs": [{"as_tensor": {"name": "linear"}}]}), "makes 'linear', which is there already"),
        (program(**{GRAPH + "nodes__0__inputs__1__arg": {"as_graph": {"name": "g"}}}), "holds a graph"),
        (program(**{GRAPH + "nodes__0__inputs": []}), "too few inputs"),
        (program(**{GRAPH + "tensor_values__x__dtype": 99}), "dtype is 99"),
        (program(**{GRAPH + "tensor_values__x__sizes": [{"as_expr": {"expr_str": "s0"}}]}), "one that is not known"),
        (program(**{GRAPH + "tensor_values__x__sizes": [{"as_int": 2**70}]}), "elements, expected at most 2^53"),
        (program(**{GRAPH + "tensor_values__x__sizes": [{"as_int": -2}]}), "expected sizes >= 0"),
        (program(**{GRAPH + "tensor_values__x__sizes": [{"as_int": 1}] * 70}), "has 70 dimensions, expected at most 64"),
        (program(**{GRAPH + "tensor_values": {}}), "expected it in $.graph_module.graph.tensor_values"),
        (program(**{GRAPH + "nodes": []}), "no operator that computes"),
        (b"[1, 2]", "expected object"),
        (pt2_archive(exported(), "elsewhere/model.json"), "the archive has 0 graphs"),
        (pt2_archive(exported())[:400], "not JSON"),
        (pt2_archive(exported()).replace(b"\x50\x4b\x03\x04", b"\x50\x4b\x03\x00", 1), "the archive is broken"),
    ],
    ids=named,
)  # fmt: skip
def test_a_program_that_cannot_be_right_is_refused(data: bytes, said: str, tmp_path: Path) -> None:
    assert said in complaint("torch", tmp_path / "net.pt2", data)


# GGUF and safetensors -------------------------------------------------------------------------------------------------


def test_a_gguf_file_by_hand(tmp_path: Path) -> None:
    instance = load(
        "gguf", tmp_path / "m.gguf", gguf_file(LLAMA, llama_tensors()), devices="t4,cpu", context=10, batch=2
    )
    assert instance.labels == ("embedding", "layer0", "layer1", "layer2", "head")
    weights = 256 + 64 * 64 * 2 + 64 * 128 // 32 * 34
    assert instance.memory.tolist() == [12800, weights, weights, weights, 256 + 12800]
    assert instance.output[0] == 2 * 64 * 2
    kv = 2 * (64 // 4) * 2 * 2  # two heads of 16, keys and values, half precision
    assert instance.columns.kv_bytes_per_token.tolist() == [0, kv, kv, kv, 0]
    elements = 64 + 64 * 64 + 64 * 128
    flops = 2 * 2 * (elements + 2 * 64 * 10)
    assert instance.time[1, 0] == roofline("t4", flops, weights + 2 * 10 * kv + 2 * 256)
    assert instance.question == {"objective": "chain-bottleneck", "order": "free", "tokens": 20}
    result = hetopt.solve(instance)
    assert result.status == "optimal"
    hetopt.verify(instance, result)


def meta(**change: Any) -> dict[str, Any]:
    found = {**LLAMA, **{f"llama.{key.replace('__', '.')}": value for key, value in change.items()}}
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"attention__head_count_kv": [2, 4, 0]}, [128, 256, 0]),
        ({"attention__head_count_kv": None}, [256, 256, 256]),
        ({"attention__key_length": 32, "attention__value_length": 8}, [160, 160, 160]),
        ({"attention__kv_lora_rank": 24, "rope__dimension_count": 8}, [64, 64, 64]),
        ({"attention__head_count": None, "attention__head_count_kv": None, "ssm__state_size": 16}, [0, 0, 0]),
    ],
)
def test_the_cache_follows_the_kind_of_attention(change: dict[str, Any], expected: list[int], tmp_path: Path) -> None:
    instance = load("gguf", tmp_path / "m.gguf", gguf_file(meta(**change), llama_tensors()))
    assert instance.columns.kv_bytes_per_token.tolist()[1:4] == expected


def test_of_experts_only_those_used_are_read(tmp_path: Path) -> None:
    tensors = [*llama_tensors(), *((f"blk.{k}.ffn_up_exps.weight", (64, 32, 8), 1, 64 * 32 * 8 * 2) for k in range(3))]
    facts = meta(expert_count=8, expert_used_count=2)
    dense = load("gguf", tmp_path / "m.gguf", gguf_file(LLAMA, llama_tensors()), devices="cpu", context=0)
    mixture = load("gguf", tmp_path / "m.gguf", gguf_file(facts, tensors), devices="cpu", context=0)
    assert mixture.memory[1] - dense.memory[1] == 64 * 32 * 8 * 2
    moved = dense.memory[1] + 64 * 32 * 8 * 2 / 4 + 2 * 64 * 2
    assert mixture.time[1, 0] == roofline("cpu", 2 * (64 + 64 * 64 + 64 * 128 + 64 * 32 * 2), moved)


def test_a_head_without_a_matrix_shares_the_embedding(tmp_path: Path) -> None:
    instance = load("gguf", tmp_path / "m.gguf", gguf_file(LLAMA, llama_tensors()[:-1]))
    assert instance.memory[-1] == 256 + 12800
    assert "head shares the embedding" in instance.description
    none = load("gguf", tmp_path / "m.gguf", gguf_file(meta(pooling_type=1), llama_tensors()[:-1]))
    assert none.memory[-1] == 256


def test_parts_of_a_gguf_model_are_read_together(tmp_path: Path) -> None:
    tensors = llama_tensors()
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(gguf_file({**LLAMA, "split.count": 2}, tensors[:5]))
    second = tmp_path / "m-00002-of-00002.gguf"
    data = gguf_file({**LLAMA, "split.count": 2}, tensors[5:])
    whole = load("gguf", tmp_path / "whole.gguf", gguf_file(LLAMA, tensors))
    together = load("gguf", second, data)
    assert together.memory.tolist() == whole.memory.tolist()
    assert together.time.tolist() == whole.time.tolist()
    assert "is there twice" in complaint("gguf", second, gguf_file({**LLAMA, "split.count": 2}, tensors[4:]))
    second.unlink()
    with pytest.raises(InputError, match="No such file"):
        importers.get("gguf").load(tmp_path / "m-00001-of-00002.gguf")
    assert "split.count is 2, expected a part's name" in complaint("gguf", tmp_path / "x.gguf", data)


GOOD = gguf_file(LLAMA, llama_tensors())


def patched(data: bytes, at: int, kind: str, value: Any) -> bytes:
    new = struct.pack("<" + kind, value)
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GGML" + GOOD[4:], "does not start with GGUF"),
        (patched(GOOD, 4, "I", 1), "the version is 1"),
        (patched(GOOD, 4, "I", 3 << 24), "expected 2 or 3 (little-endian)"),
        (patched(GOOD, 8, "Q", 1 << 60), "more than the file can hold"),
        (patched(GOOD, 16, "Q", 1 << 60), "more than the file can hold"),
        (patched(GOOD, 24, "Q", 1 << 60), "expected at most 65536"),
        (GOOD[:460], "cut off"),
        (GOOD[: len(GOOD) - 40], "lies outside the file"),
        (gguf_file(LLAMA, llama_tensors(), data=False), "lies outside the file"),
        (gguf_file(meta(block_count=4), llama_tensors()), "llama.block_count is 4, but 3 layers"),
        (gguf_file(meta(block_count="x"), llama_tensors()), "llama.block_count is x"),
        (gguf_file(meta(embedding_length=None), llama_tensors()), "the metadata lack llama.embedding_length"),
        (gguf_file(meta(attention__head_count=None), llama_tensors()), "the metadata lack llama.attention.head_count"),
        (gguf_file(meta(attention__head_count_kv=[1, 2]), llama_tensors()), "expected 3 whole numbers"),
        (gguf_file(meta(expert_count=2, expert_used_count=3), llama_tensors()), "expected a number from 1 to"),
        (gguf_file({}, llama_tensors()), "lack general.architecture"),
        (gguf_file(LLAMA, llama_tensors()[:1]), "no tensor belongs to a layer"),
        (gguf_file(LLAMA, llama_tensors()[:4] + llama_tensors()[7:]), "layer 1 of blk has no tensors"),
        (gguf_file(LLAMA, [*llama_tensors(), ("v.blk.0.w", (32,), 0, 128)]), "say which with --stack"),
        (gguf_file(LLAMA, [*llama_tensors(), ("x", (33,), 8, 34)]), "expected a multiple of 32"),
        (gguf_file(LLAMA, [*llama_tensors(), ("x", (32,), 99, 34)]), "has the type 99"),
        (gguf_file(LLAMA, [*llama_tensors(), ("x", (1,) * 9, 0, 4)]), "has 9 dimensions"),
        (gguf_file(LLAMA, [*llama_tensors(), ("x", (1 << 60, 1 << 60), 0, 4)]), "lies outside the file"),
        (gguf_file(LLAMA, [*llama_tensors(), llama_tensors()[0]]), "is there twice"),
    ],
    ids=named,
)  # fmt: skip
def test_a_gguf_header_that_cannot_be_right_is_refused(data: bytes, said: str, tmp_path: Path) -> None:
    assert said in complaint("gguf", tmp_path / "m.gguf", data)


def test_a_stack_is_chosen_by_name(tmp_path: Path) -> None:
    data = gguf_file(LLAMA, [*llama_tensors(), ("v.blk.0.w", (32,), 0, 128)])
    instance = load("gguf", tmp_path / "m.gguf", data, stack="blk")
    assert "1 tensors of other stacks left out" in instance.description
    assert "the stacks of layers are: blk, v.blk" in complaint("gguf", tmp_path / "m.gguf", data, stack="w")
    assert "--context is -1" in complaint("gguf", tmp_path / "m.gguf", GOOD, context=-1)
    assert "--batch is 0" in complaint("gguf", tmp_path / "m.gguf", GOOD, batch=0)


def test_safetensors_by_hand(tmp_path: Path) -> None:
    instance = load("safetensors", tmp_path / "m.safetensors", safetensors_file(DECODER), devices="t4", context=10)
    assert instance.labels == ("embedding", "layer0", "layer1", "layer2", "head")
    elements = 64 + 64 * 64 + 2 * 32 * 64 + 128 * 64
    assert instance.memory.tolist() == [12800, *[2 * elements] * 3, 128 + 12800]
    assert instance.columns.kv_bytes_per_token.tolist() == [0, 128, 128, 128, 0]
    flops = 2 * (elements + 2 * 64 * 10)
    assert instance.time[1, 0] == roofline("t4", flops, 2 * elements + 10 * 128 + 2 * 128)
    assert instance.question["tokens"] == 10


def without(*names: str, **more: Any) -> Mapping[str, Any]:
    return {key: value for key, value in DECODER.items() if not any(name in key for name in names)} | more


def test_what_the_shapes_do_not_tell_is_asked_for(tmp_path: Path) -> None:
    path, shared = tmp_path / "m.safetensors", safetensors_file(without("lm_head"))
    assert "say --head tied" in complaint("safetensors", path, shared)
    assert load("safetensors", path, shared, head="tied").memory[-1] == 128 + 12800
    assert load("safetensors", path, shared, head="none").memory[-1] == 128
    assert "--head is 'own'" in complaint("safetensors", path, shared, head="own")
    fused = safetensors_file(without("k_proj"))
    assert "say --kv-bytes" in complaint("safetensors", path, fused)
    assert load("safetensors", path, fused, kv_bytes=99).columns.kv_bytes_per_token[1] == 99
    assert load("safetensors", path, fused, context=0).question["tokens"] == 0
    expert = {f"model.layers.{k}.mlp.experts.{e}.w.weight": ("F16", (16, 64)) for k in range(3) for e in range(4)}
    mixture = safetensors_file({**DECODER, **expert})
    assert "say how many a token uses: --experts-used" in complaint("safetensors", path, mixture)
    assert "--experts-used is 5" in complaint("safetensors", path, mixture, experts_used=5)
    few = load("safetensors", path, mixture, experts_used=1, devices="cpu")
    all_ = load("safetensors", path, mixture, experts_used=4, devices="cpu")
    assert few.memory.tolist() == all_.memory.tolist()
    assert few.time[1, 0] < all_.time[1, 0]


def header(text: str, room: int = 0, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text.encode() + bytes(room)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "announces a header"),
        (header("{}", length=1 << 62), "announces a header of 4611686018427387904 bytes"),
        (header("{}"), "no tensor belongs to a layer"),
        (header('{"a": 1}'), "$['a'] is 1, expected"),
        (header('{"a": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4], "x": 1}}', 4), "unknown key 'x'"),
        (header('{"a": {"dtype": "F16", "shape": [2]}}', 4), "lacks the key 'data_offsets'"),
        (header('{"a": {"dtype": "Q4", "shape": [2], "data_offsets": [0, 4]}}', 4), "dtype is 'Q4', which is not known"),
        (header('{"a": {"dtype": "F16", "shape": [-2], "data_offsets": [0, 4]}}', 4), "expected at most 64 whole numbers >= 0"),
        (header('{"a": {"dtype": "F16", "shape": [3], "data_offsets": [0, 4]}}', 4), "expected 6 bytes of the 4"),
        (header('{"a": {"dtype": "F16", "shape": [2], "data_offsets": [4, 8]}}', 4), "data_offsets is [4, 8]"),
        (header('{"a": {"dtype": "F16", "shape": [4503599627370496, 2048], "data_offsets": [0, 4]}}', 4), "more than 2^57"),
        (header('{"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "b": {"dtype": "U8", "shape": [2],'
                ' "data_offsets": [3, 5]}}', 5), "lies on the tensor before it"),
        (header('{"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, "a": {"dtype": "U8", "shape": [1],'
                ' "data_offsets": [0, 1]}}', 1), "twice"),
    ],
    ids=named,
)  # fmt: skip
def test_a_safetensors_header_that_cannot_be_right_is_refused(data: bytes, said: str, tmp_path: Path) -> None:
    assert said in complaint("safetensors", tmp_path / "m.safetensors", data)


def test_a_large_file_is_read_by_its_header_alone(tmp_path: Path) -> None:
    """140 GB announced and, as a sparse file, there: nothing of it is read."""
    size = 70_000_000_000
    big = {"model.layers.0.w.weight": {"dtype": "F16", "shape": [size // 64, 64], "data_offsets": [0, 2 * size]},
           "model.norm.weight": {"dtype": "F16", "shape": [64], "data_offsets": [2 * size, 2 * size + 128]},
           "model.embed.weight": {"dtype": "F16", "shape": [1, 64], "data_offsets": [2 * size + 128, 2 * size + 256]},
           }  # fmt: skip
    path = tmp_path / "big.safetensors"
    path.write_bytes(header(json.dumps(big)))
    try:
        os.truncate(path, path.stat().st_size + 2 * size + 256)
    except OSError:
        pytest.skip("the file system has no sparse files of this size")
    instance = importers.get("safetensors").load(path, context=0, head="none", devices="t4")
    assert instance.memory[1] == 2 * size


def test_an_index_names_files_beside_it(tmp_path: Path) -> None:
    whole = load("safetensors", tmp_path / "m.safetensors", safetensors_file(DECODER))
    names = list(DECODER)
    parts = {"a.safetensors": names[:7], "b.safetensors": names[7:]}
    for file, part in parts.items():
        (tmp_path / file).write_bytes(safetensors_file({name: DECODER[name] for name in part}))
    weight_map = {name: file for file, part in parts.items() for name in part}
    total = sum(2 * math.prod(shape) for _, shape in DECODER.values())
    index = tmp_path / "m.safetensors.index.json"

    def text(**change: Any) -> bytes:
        return json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map} | change).encode()

    instance = load("safetensors", index, text())
    assert (instance.digest, instance.name) == (whole.digest, "m")
    assert "total_size is 3, but the tensors have" in complaint("safetensors", index, text(metadata={"total_size": 3}))
    assert "it is not there" in complaint(
        "safetensors", index, text(weight_map=weight_map | {"ghost": "a.safetensors"})
    )
    for name in ("../a.safetensors", "/etc/passwd", "x/y", "", "..\\a"):
        assert "expected the plain name" in complaint("safetensors", index, text(weight_map={"w": name}))
    (tmp_path / "b.safetensors").unlink()
    assert "cannot read" in complaint("safetensors", index, text())


def test_what_would_flood_the_memory_is_refused_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importers.get("safetensors"), "MAX_COLONS", 40)
    assert "more than 10 tensors" in complaint("safetensors", tmp_path / "m.safetensors", safetensors_file(DECODER))
    monkeypatch.setattr(importers.get("torch"), "MAX_BYTES", 1000)
    assert "more than 0 MiB" in complaint("torch", tmp_path / "m.pt2", pt2_archive({"a": "x" * 10**7}))
    monkeypatch.setattr(importers.get("gguf"), "MAX_ITEMS", 2)
    assert "array of 3 texts, more than expected" in complaint("gguf", tmp_path / "m.gguf", GOOD)
    monkeypatch.setattr(importers.get("onnx"), "MAX_OPERATORS", 3)
    assert "more than 3 operators" in complaint("onnx", tmp_path / "m.onnx", onnx_model())


# ONNX Runtime's statistics --------------------------------------------------------------------------------------------


def test_measured_memory_replaces_the_estimate(tmp_path: Path) -> None:
    model = tmp_path / "two.onnx"
    model.write_bytes(onnx_model())
    alone = load("ort-stats", tmp_path / "s.csv", STATISTICS, devices="t4")
    assert alone.labels == ("first", "bias", "Relu", "same", "second")
    assert alone.memory.tolist() == [736, 320, 256, 256, 1416]
    assert alone.time[0, 0] == roofline("t4", 0, 64 + 512 + 128)
    assert "lower estimates" in alone.description
    graph = load("ort-stats", tmp_path / "s.csv", STATISTICS, devices="t4", model=str(model))
    assert graph.memory.tolist() == alone.memory.tolist()
    assert graph.time.tolist() == load("onnx", model, onnx_model(), devices="t4").time.tolist()
    fewer = STATISTICS.replace(b"Relu_2,128,0,128,0\n", b"")
    assert "the model's operator 'Relu' has no line" in complaint(
        "ort-stats", tmp_path / "s.csv", fewer, model=str(model)
    )


def test_operators_with_one_name_keep_their_hash(tmp_path: Path) -> None:
    instance = load("ort-stats", tmp_path / "s.csv", b"Add_1,1,1,1,1\nAdd_2,2,2,2,2\nMul_3,3,3,3,3\n")
    assert instance.labels == ("Add_1", "Add_2", "Mul")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "there is no operator"),
        (b"#name,sizes\n", "line 1 is '#name,sizes'"),
        (b"a,1,2,3\n", "line 1 is 'a,1,2,3', expected a name and four whole numbers"),
        (b"a,1,2,3,-4\n", "four whole numbers"),
        (b"a,1,2,3,4.5\n", "four whole numbers"),
        (b"a,1,2,3,99999999999999999999\n", "four whole numbers"),
        (b"a,1,2,3,4\na,1,2,3,4\n", "line 2 repeats 'a'"),
        (b",1,2,3,4\n", "expected a name"),
    ],
    ids=named,
)
def test_statistics_that_cannot_be_right_are_refused(text: bytes, said: str, tmp_path: Path) -> None:
    assert said in complaint("ort-stats", tmp_path / "s.csv", text)
