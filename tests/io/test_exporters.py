"""Exporters: each target's own mapping against hand-worked and golden numbers, exact texts, round trips and refusals."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from conftest import reference_data
from hypothesis import given, settings
from hypothesis import strategies as st

import hetopt
from hetopt import Instance, Solution
from hetopt.cli import main
from hetopt.errors import InputError, VerificationError
from hetopt.io import exporters
from hetopt.io.exporters import _plan, accelerate, deepspeed, exo, llama_cpp, megatron, onnxruntime, torch, vllm
from hetopt.records import Device, Link

TARGETS = (
    "accelerate", "deepspeed", "edgetpu", "exo", "kubernetes", "llama.cpp", "megatron", "onnxruntime", "ray", "slurm", "torch",
    "torchrun", "vllm",
)  # fmt: skip


def model(*devices: Device, layers: int = 4, ends: tuple[str, str] = ("embed", "head"), parts: int = 1) -> Instance:
    """A chain embed, layers.0, ..., head over some devices; each layer of ``parts`` tasks; nothing costs anything but time."""
    inside = [f"layers.{k}" if parts == 1 else f"layers.{k}.part{p}" for k in range(layers) for p in range(parts)]
    names = [name for name in (ends[0], *inside, ends[1]) if name]
    return Instance.from_graph(
        np.ones((len(names), len(devices))),
        [(k, k + 1) for k in range(len(names) - 1)],
        tasks=names,
        devices=list(devices),
        links=[Link(source="*", target="*", bandwidth=1)],
        question={"objective": "throughput", "contiguous": "none"},
        name="Tiny model",
    )


def gpus(count: int) -> list[Device]:
    return [Device(name=f"g{k}", type="gpu") for k in range(count)]


HOST = Device(name="box", host=True)


def text_of(target: str, instance: Instance, placement) -> str:
    return hetopt.export(instance, Solution.assign(placement), target)


def refusal(target: str, instance: Instance, placement) -> str:
    with pytest.raises(InputError) as caught:
        text_of(target, instance, placement)
    return str(caught.value)


# The published mappings ------------------------------------------------------------------------------------------------


@cache
def golden() -> tuple[dict, ...]:
    folder = reference_data()
    file = folder.parent / "cases" / "exporter_golden.json" if folder is not None else None
    return tuple(json.loads(file.read_text())["cases"]) if file is not None and file.is_file() else ()


def cases(target: str) -> list[dict]:
    found = [case for case in golden() if case["target"] == target]
    if not found:
        pytest.skip("reference cases not found: set HETOPT_DATA to the folder of data beside them")
    return found


def test_golden_every_target_of_the_file_has_a_test_here():
    targets = {case["target"] for case in golden()}
    if not targets:
        pytest.skip("reference cases not found: set HETOPT_DATA to the folder of data beside them")
    source = Path(__file__).read_text(encoding="utf-8")
    assert len(golden()) == 28
    assert not [target for target in targets if f'cases("{target}")' not in source]


def test_golden_vllm_default_split():
    for case in cases("vllm-default"):
        assert vllm.default_split(case["layers"], case["pp"]) == case["expect"]


def test_golden_vllm_variable():
    for case in cases("vllm-env"):
        stages = case["stages"]
        text = text_of("vllm", model(*gpus(2), layers=sum(stages)), [0] * (1 + stages[0]) + [1] * (stages[1] + 1))
        assert f"export {case['env']}\n" in text
        value = case["env"].partition("=")[2]
        assert vllm.parse(value, layers=sum(stages), ranks=2) == stages
        assert len(case["invalid"]) == 3  # one each below


@pytest.mark.parametrize(
    ("value", "layers", "ranks", "says"),
    [
        ("12,20", 32, 3, "has 2 parts, expected one for each of 3 ranks"),
        ("12,19", 32, 2, "sums to 31, expected the 32 layers"),
        ("12.0,20", 32, 2, "holds '12.0', expected whole numbers"),
        ("12,", 12, 2, "holds '', expected whole numbers"),
        ("-1,33", 32, 2, "holds '-1'"),
    ],
)
def test_vllm_refuses_a_wrong_list(value, layers, ranks, says):
    with pytest.raises(InputError, match=re.escape(says)):
        vllm.parse(value, layers=layers, ranks=ranks)


def test_golden_deepspeed_uniform_bounds():
    for case in cases("deepspeed-uniform"):
        assert deepspeed.uniform_bounds(case["items"], case["stages"]) == case["expect_bounds"]


def test_golden_llama_cpp_slots():
    for case in cases("llama.cpp-layer-map"):
        found = Counter(llama_cpp.slots(case["n_layer"], case["ngl"], case["ts"]))
        assert {("CPU" if k < 0 else str(k)): count for k, count in found.items()} == case["expect_counts"]


def test_golden_exo_proportional():
    for case in cases("exo-proportional"):
        assert exo.proportional(case["layers"], case["fractions"]) == case["expect"]


def test_golden_megatron_layout():
    for case in cases("megatron-layout"):
        read = megatron.parse(case["string"], case["pp"])
        assert read.decoders == case["decoders"]
        assert read.predictors == case.get("mtp", 0)
        assert len(read.stages) == case.get("stages", case["pp"])
        if "counts_pp4" in case:
            ends = [Counter(E=1), Counter(), Counter(), Counter(L=1)]
            stages = [end + Counter(t=count) for end, count in zip(ends, case["counts_pp4"], strict=True)]
            assert megatron.layout(stages) == case["string"]


def test_golden_torch_split():
    for case in cases("torch-pipelining"):
        modules = [module for stage in case["stages"] for module in stage]
        stage_of = [k for k, stage in enumerate(case["stages"]) for _ in stage]
        assert torch.stages_of_split(modules, list(case["split_spec"])) == stage_of
        text = text_of("torch", model(*gpus(2), ends=("", "lm_head")), stage_of)
        for name, where in case["split_spec"].items():
            assert f"{name!r}: {where}," in text


def test_golden_torchtitan_parts():
    for case in cases("torchtitan"):
        parts = case["module_fqns_per_model_part"]
        modules = [module for part in parts for module in part]
        stage_of = [k for k, part in enumerate(parts) for _ in part]
        assert torch.stages_of_parts(modules, parts) == stage_of


def test_golden_accelerate_map():
    for case in cases("accelerate-device_map"):
        parameters = [f"{module}.weight" for module in case["map"]]
        assert accelerate.resolve(case["map"], parameters) == list(case["map"].values())


def test_golden_onnxruntime_setting():
    for case in cases("ort-layer-assignment"):
        assert case["option"] == onnxruntime.OPTION
        assert onnxruntime.parse(case["value"]) == [("gpu", "hetopt_gpu0", False), ("cpu", "hetopt_cpu", True)]
        assert onnxruntime.assigned(case["value"], "hetopt_gpu0") == "gpu"
        assert onnxruntime.assigned(case["value"], "hetopt_cpu") == "cpu"
        text = text_of("onnxruntime", model(*gpus(1), HOST), [0, 0, 0, 0, 0, 1])
        assert set(next(iter(json.loads(text)["layer_ann"].items()))) == {"embed", "hetopt_gpu"}
        assert case["node_metadata_key"] in json.loads(text)


# The mappings by hand: these need no file -----------------------------------------------------------------------------


def test_vllm_gives_what_is_left_over_to_ranks_before_the_last():
    assert vllm.default_split(32, 4) == [8, 8, 8, 8]
    assert vllm.default_split(22, 4) == [5, 6, 6, 5]
    assert vllm.default_split(61, 8) == [7, 7, 8, 8, 8, 8, 8, 7]
    assert vllm.default_split(5, 3) == [2, 2, 1]


def test_deepspeed_gives_what_is_left_over_to_the_first_stages():
    assert deepspeed.uniform_bounds(38, 8) == [0, 5, 10, 15, 20, 25, 30, 34, 38]
    assert deepspeed.uniform_bounds(3, 5) == [0, 1, 2, 3, 3, 3]
    assert deepspeed.stage_of([0, 2, 2, 3], 3) == [0, 0, 2]
    for bounds in ([0, 2], [1, 3], [0, 3, 2, 3], [3]):
        with pytest.raises(InputError, match="do not run from 0 to 3"):
            deepspeed.stage_of(bounds, 3)


@pytest.mark.parametrize(
    ("layers", "offloaded", "split", "counts"),
    [
        (32, 33, [3, 1], {0: 25, 1: 8}),  # slot 24 is at 24/33 < 3/4, slot 25 beyond
        (32, 99, [1, 1], {0: 17, 1: 16}),
        (48, 49, [0, 1], {1: 49}),
        (32, 20, [2, 1], {-1: 13, 0: 14, 1: 6}),
        (4, 0, [], {-1: 5}),
    ],
)
def test_llama_cpp_counts_slots_from_the_end(layers, offloaded, split, counts):
    assert Counter(llama_cpp.slots(layers, offloaded, split)) == counts


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(0, 40))
def test_llama_cpp_whole_numbers_of_slots_come_back_in_single_precision(split, on_host):
    layers = sum(split) + on_host - 1
    found = llama_cpp.slots(layers, sum(split), split)
    assert found == [-1] * on_host + [k for k, size in enumerate(split) for _ in range(size)]


def test_exo_rounds_by_the_largest_remainder_and_leaves_nobody_out():
    assert exo.proportional(32, [0.9, 0.05, 0.05]) == [29, 2, 1]
    assert exo.proportional(48, [3, 2]) == [29, 19]
    assert exo.proportional(10, [100, 1]) == [9, 1]
    with pytest.raises(InputError, match="there are 1 for 2"):
        exo.proportional(1, [1, 1])


def test_megatron_reads_brackets_factors_and_commas():
    read = megatron.parse("Et*3|(tt|)*29,m|L", 16)
    assert (len(read.stages), read.decoders, read.predictors) == (32, 61, 1)
    assert read.stages[:3] == ("Ettt", "tt", "tt")
    assert read.stages[-2:] == ("m", "L")
    assert megatron.parse("E||t|L", 4).stages == ("E", "", "t", "L")
    assert megatron.parse("E(t*2|)*2tL", 3).stages == ("Ett", "tt", "tL")
    assert megatron.parse("E((t|)*2t|)*2L", 7).stages == ("Et", "t", "t", "t", "t", "t", "L")


@pytest.mark.parametrize(
    ("text", "ranks", "says"),
    [
        ("Et|tL", 3, "has 2 stages, expected a multiple of 3"),
        ("t|tL", 2, "expected E, then t"),
        ("Et|EtL", 2, "expected E, then t"),
        ("Et|t", 2, "expected E, then t"),
        ("Etm|tL", 2, "expected E, then t"),
        ("Etm|L", 2, "not on the first rank"),
        ("Et|m|mL", 3, "in one stage"),
        ("Ex|tL", 2, "more than E, t, m, L"),
        ("E(t|tL", 2, "bracket without its other half"),
        ("Et*9999999|L", 2, "more than 65536 letters"),
        ("E((((t*999)*999)*999)*999)|L", 2, "more than 65536 letters"),
    ],
)
def test_megatron_refuses_a_layout_it_would_not_take(text, ranks, says):
    with pytest.raises(InputError, match=re.escape(says)):
        megatron.parse(text, ranks)


@given(
    st.integers(1, 4).flatmap(
        lambda ranks: st.tuples(
            st.just(ranks),
            st.integers(1, 3).flatmap(lambda r: st.lists(st.integers(1, 12), min_size=ranks * r, max_size=ranks * r)),
        )
    )
)
def test_megatron_layouts_come_back(drawn):
    ranks, counts = drawn
    stages = [Counter(t=count) for count in counts]
    stages[0]["E"], stages[-1]["L"] = 1, 1
    read = megatron.parse(megatron.layout(stages), ranks)
    assert [Counter(stage) for stage in read.stages] == stages


def test_torch_split_needs_a_module_and_a_stage_before_it():
    modules = ["embed", "layers.1.a", "layers.1.b", "layers.10"]
    assert torch.stages_of_split(modules, ["layers.10"]) == [0, 0, 0, 1]
    assert torch.stages_of_split(modules, ["layers.1"]) == [0, 1, 1, 1]
    assert torch.stages_of_split(["embed", "layers.10", "layers.1"], ["layers.1"]) == [0, 0, 1]
    assert torch.stages_of_split(modules, ["layers.1.b", "layers.10"]) == [0, 0, 1, 2]
    with pytest.raises(InputError, match="first stage would be empty"):
        torch.stages_of_split(modules, ["embed"])
    with pytest.raises(InputError, match=r"'layers.7' is at no module"):
        torch.stages_of_split(modules, ["layers.7"])


def test_torchtitan_parts_name_each_module_once():
    assert torch.stages_of_parts(["a.b", "a.c"], [["a"], ["a.c"]]) == [0, 1]
    for parts in ([["a"]], [["a", "b"], ["b"]]):
        with pytest.raises(InputError, match="expected one"):
            torch.stages_of_parts(["a", "b"], parts)


def test_accelerate_takes_the_longest_key_that_ends_at_a_dot():
    found = accelerate.resolve(
        {"layers.1": 0, "layers.1.norm": "cpu", "": 2}, ["layers.1.w", "layers.1.norm.w", "layers.10.w"]
    )
    assert found == [0, "cpu", 2]
    with pytest.raises(InputError, match=r"no key for the parameter 'layers.10.w'"):
        accelerate.resolve({"layers.1": 0}, ["layers.10.w"])
    for value in ("0", True, 1.0, None):
        with pytest.raises(InputError, match="expected a GPU's number"):
            accelerate.resolve({"a": value}, ["a"])


def test_onnxruntime_looks_up_prefixes_before_exact_ones():
    setting = "cpu(=enc1); gpu(enc, dec); npu(en)"
    assert [onnxruntime.assigned(setting, word) for word in ("enc1", "dec", "en", "x")] == ["gpu", "gpu", "npu", None]
    assert onnxruntime.assigned("cpu(=enc1)", "enc") is None
    for wrong in ("tpu(a)", "gpu a", "gpu()", "gpu(=)", "gpu(a);"):
        with pytest.raises(InputError, match=r"layer_assignment_settings holds"):
            onnxruntime.parse(wrong)


# Exact texts ----------------------------------------------------------------------------------------------------------


def test_names_are_the_targets_and_a_wrong_one_is_named():
    assert exporters.names() == sorted(TARGETS)
    assert [target.NAME for target in exporters.exporters()] == exporters.names()
    assert all(target.TITLE.endswith(".") for target in exporters.exporters())
    with pytest.raises(InputError, match=r"no export target 'vlm'; did you mean 'vllm'"):
        exporters.get("vlm")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("wild", ["a\nrm -rf /", "a\rb", "a\u2028b", "a\x1b[2J"])
def test_a_name_cannot_start_a_line_of_its_own(target, wild):
    for device, end in ((Device(name=wild, type="gpu"), "embed"), (Device(name="g0", type="gpu"), wild)):
        with pytest.raises(InputError, match="does not stay in its line"):
            text_of(target, model(device, ends=(end, "head")), [0] * 6)


def test_vllm_text_gives_the_order_of_the_devices():
    text = text_of("vllm", model(*gpus(2)), [1, 1, 0, 0, 0, 0])
    assert text.splitlines() == [
        "# devices in the order of the bus: 0 = g0, 1 = g1",
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "export CUDA_VISIBLE_DEVICES=1,0",
        "export VLLM_PP_LAYER_PARTITION=1,3",
        "# vllm serve MODEL --pipeline-parallel-size 2",
        "# vLLM's own split would be 2,2",
    ]


def test_a_host_among_the_devices_is_not_counted():
    text = text_of("vllm", model(HOST, *gpus(2)), [1, 1, 1, 2, 2, 2])
    assert "CUDA_VISIBLE_DEVICES=0,1\n" in text


def test_llama_cpp_text_counts_the_head_and_says_where_the_embedding_stays():
    assert text_of("llama.cpp", model(*gpus(2)), [0, 0, 0, 0, 1, 1]).splitlines()[1:] == [
        "# 'embed' (0 bytes) stays in host memory, not on g0",
        "--device CUDA0,CUDA1 --n-gpu-layers 5 --split-mode layer --tensor-split 3,2",
    ]
    on_host = text_of("llama.cpp", model(*gpus(1), HOST), [1, 1, 0, 0, 0, 0])
    assert on_host.splitlines()[1:] == ["--device CUDA0 --n-gpu-layers 4 --split-mode layer --tensor-split 4"]
    assert text_of("llama.cpp", model(*gpus(1), HOST), [1] * 6) == "--n-gpu-layers 0\n"
    amd = model(Device(name="a", type="mi300x"))
    assert "--device ROCm0 " in text_of("llama.cpp", amd, [0] * 6)


def test_deepspeed_text_is_python_with_the_bounds():
    text = text_of("deepspeed", model(*gpus(2)), [0, 1, 1, 1, 1, 1])
    assert "PARTS = [0, 1, 6]\n" in text
    assert {node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)} == {"Planned"}
    even = text_of("deepspeed", model(*gpus(2)), [0, 0, 0, 1, 1, 1])
    assert 'partition_method="uniform"' in even
    assert "PARTS = [0, 3, 6]\n" in even


def test_megatron_text_follows_ends_of_their_own_and_interleaved_stages():
    assert 'layout "Et*2|t*2L"' in text_of("megatron", model(*gpus(2)), [0, 0, 0, 1, 1, 1])
    assert 'size 3 --pipeline-model-parallel-layout "E|t*4|L"' in text_of(
        "megatron", model(*gpus(3)), [2, 0, 0, 0, 0, 1]
    )
    assert 'size 2 --pipeline-model-parallel-layout "Et|t|t|tL"' in text_of(
        "megatron", model(*gpus(2)), [1, 1, 0, 1, 0, 0]
    )
    predicting = model(*gpus(2), ends=("embed", "mtp"))
    assert 'layout "Et*2|t*2mL"' in text_of("megatron", predicting, [0, 0, 0, 1, 1, 1])


def test_torch_text_names_a_layer_that_begins_a_stage_and_its_part_where_it_is_cut():
    whole = text_of("torch", model(*gpus(2), parts=2), [0] * 5 + [1] * 5)
    assert "split_spec = {\n    'layers.2': SplitPoint.BEGINNING,\n}" in whole
    assert "['embed', 'layers.0', 'layers.1'],\n    ['layers.2', 'layers.3', 'head']" in whole
    cut = text_of("torch", model(*gpus(2), parts=2), [0] * 4 + [1] * 6)
    assert "'layers.1.part1': SplitPoint.BEGINNING" in cut
    assert "['embed', 'layers.0', 'layers.1.part0'],\n    ['layers.1.part1', 'layers.2', 'layers.3', 'head']" in cut


def test_accelerate_text_has_whole_numbers_and_one_key_a_layer():
    mixed = model(*gpus(2), HOST, parts=2)
    found = json.loads(text_of("accelerate", mixed, [0, 0, 0, 0, 1, 2, 2, 0, 0, 1]))
    assert found == {
        "embed": 0, "layers.0": 0, "layers.1.part0": 0, "layers.1.part1": 1, "layers.2": "cpu", "layers.3": 0, "head": 1,
    }  # fmt: skip
    assert text_of("accelerate", mixed, [1] * 10) == '{\n "": 1\n}\n'


def test_edgetpu_text_names_files_as_the_compiler_does():
    found = json.loads(text_of("edgetpu", model(*gpus(2)), [1, 1, 1, 0, 0, 0]))["segments"]
    assert [entry["file"] for entry in found] == [f"Tiny_model_segment_{k}_of_2_edgetpu.tflite" for k in (0, 1)]
    assert [(entry["device"], entry["first"], entry["last"]) for entry in found] == [
        (1, "embed", "layers.1"), (0, "layers.2", "head"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"file": "m_segment_1_of_3_edgetpu.tflite"}, "is not NAME_segment_K_of_2"),
        ({"file": "m_segment_0_of_2_edgetpu.tflite"}, "segment 0 does not go on|segment 1 does not go on"),
        ({"first": "c"}, "segment 1 does not go on"),
        ({"last": "b"}, "end before the operation 'c'"),
        ({"last": "a"}, "segment 1 does not go on"),
    ],
)
def test_edgetpu_segments_must_cover_the_operations(changed, says):
    files = [
        {"file": "m_segment_0_of_2_edgetpu.tflite", "first": "a", "last": "a"},
        {"file": "m_segment_1_of_2_edgetpu.tflite", "first": "b", "last": "c"},
    ]
    segment_of = exporters.get("edgetpu").segment_of
    assert segment_of(files[::-1], ["a", "b", "c"]) == [0, 1, 1]
    with pytest.raises(InputError, match=says):
        segment_of([files[0], files[1] | changed], ["a", "b", "c"])


def test_torchrun_text_starts_a_process_a_stage():
    last = text_of("torchrun", model(*gpus(3)), [2, 2, 2, 0, 0, 0]).splitlines()
    assert last[2] == "export CUDA_VISIBLE_DEVICES=2,0"
    assert last[-1] == (
        "torchrun --nnodes 1 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint localhost:29500 script.py"
    )


FLEET = (
    Device(name="big", type="a100-sxm-80"), Device(name="s0", type="l4"), Device(name="s1", type="l4"),
    Device(name="box", type="epyc", host=True),
)  # fmt: skip


def independent(*devices: Device) -> Instance:
    """Six jobs on some devices: a target that starts workers needs no graph."""
    return Instance.from_times(np.ones((6, len(devices))), devices=list(devices))


def test_slurm_text_has_a_component_for_each_stretch_of_equal_devices():
    text = text_of("slurm", independent(*FLEET), [0, 1, 1, 2, 3, 0])
    assert text.splitlines() == [
        "#!/bin/bash", "# rank 0: big, 2 tasks", "# rank 1: s0, 2 tasks", "# rank 2: s1, 1 tasks", "# rank 3: box, 1 tasks",
        "#SBATCH --ntasks=1 --gpus-per-task=a100-sxm-80:1", "#SBATCH hetjob", "#SBATCH --ntasks=2 --gpus-per-task=l4:1",
        "#SBATCH hetjob", "#SBATCH --ntasks=1 --constraint=epyc", 'srun --het-group=0,1,2 "$@"',
    ]  # fmt: skip
    assert text_of("slurm", independent(*FLEET), [1] * 6).splitlines()[-1] == 'srun "$@"'


def test_slurm_reads_what_each_component_states_itself():
    ranks = exporters.get("slurm").ranks
    with pytest.raises(InputError, match="states no --ntasks"):
        ranks('#SBATCH --ntasks=1 --constraint=a\n#SBATCH hetjob\n#SBATCH --constraint=b\nsrun --het-group=0,1 "$@"\n')
    with pytest.raises(InputError, match="does not run in all components"):
        ranks('#SBATCH --ntasks=1 --constraint=a\n#SBATCH hetjob\n#SBATCH --ntasks=1 --constraint=b\nsrun "$@"\n')


def test_kubernetes_text_selects_by_product_and_limits_whole_devices():
    pods = json.loads(text_of("kubernetes", independent(*FLEET), [0, 1, 1, 2, 3, 0]))["items"]
    assert [next(iter(pod["spec"]["nodeSelector"].items())) for pod in pods] == [
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB"), ("nvidia.com/gpu.product", "NVIDIA-L4"),
        ("nvidia.com/gpu.product", "NVIDIA-L4"), ("hetopt/device-type", "epyc"),
    ]  # fmt: skip
    assert [pod["spec"]["containers"][0]["resources"] for pod in pods[2:]] == [{"limits": {"nvidia.com/gpu": 1}}, {}]
    amd = json.loads(text_of("kubernetes", independent(Device(name="m", type="mi300x")), [0] * 6))["items"][0]
    assert amd["spec"]["containers"][0]["resources"] == {"limits": {"amd.com/gpu": 1}}
    ranks = exporters.get("kubernetes").ranks
    assert ranks({"items": pods[::-1]})[0] == "NVIDIA-A100-SXM4-80GB"
    with pytest.raises(InputError, match="count from 0, each once"):
        ranks({"items": pods[1:]})
    pods[0]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 2
    with pytest.raises(InputError, match="limit its device to 1"):
        ranks({"items": pods})


def test_ray_text_has_a_selector_for_each_bundle():
    text = text_of("ray", independent(*FLEET), [0, 1, 1, 1, 3, 0])
    values = {n.targets[0].id: n.value for n in ast.parse(text).body if isinstance(n, ast.Assign)}
    assert ast.literal_eval(values["bundles"]) == [{"GPU": 1, "CPU": 1}, {"GPU": 1, "CPU": 1}, {"CPU": 1}]
    assert ast.literal_eval(values["bundle_label_selector"]) == [
        {"ray.io/accelerator-type": "A100"}, {"ray.io/accelerator-type": "L4"}, {"hetopt/device-type": "epyc"},
    ]  # fmt: skip
    with pytest.raises(InputError, match="one selector a bundle"):
        exporters.get("ray").ranks('bundles = [{"CPU": 1}]\nbundle_label_selector = []\n')


def test_exo_text_is_its_own_split_or_a_refusal_that_says_it():
    machines = [Device(name="a", memory=3), Device(name="b", memory=1)]
    assert text_of("exo", model(*machines), [0, 0, 0, 0, 1, 1]).splitlines()[:2] == [
        "a: layers.0 to layers.2 (3 layers)", "b: layers.3 to layers.3 (1 layers)",
    ]  # fmt: skip
    assert "it would give a 3, b 1 layers" in refusal("exo", model(*machines), [0, 0, 0, 1, 1, 1])
    assert "states none" in refusal("exo", model(*gpus(2)), [0, 0, 0, 1, 1, 1])


# Round trips on random plans ------------------------------------------------------------------------------------------

PIPELINES = ("vllm", "llama.cpp", "deepspeed", "megatron", "torch", "accelerate", "torchrun", "edgetpu")


@settings(max_examples=50)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 2), st.randoms(use_true_random=False))
def test_every_contiguous_plan_of_whole_layers_is_exported(stages, layers, parts, random):
    """What an exporter writes it has read back; so the whole space of such plans must go through."""
    stages = min(stages, layers)
    bounds = [0, *sorted(random.sample(range(1, layers), stages - 1)), layers]
    order = random.sample(range(4), stages)
    of_layer = [order[k] for k in range(stages) for _ in range(bounds[k], bounds[k + 1])]
    placement = [order[0], *(device for device in of_layer for _ in range(parts)), order[-1]]
    instance = model(*gpus(4), layers=layers, parts=parts)
    for target in PIPELINES:
        assert text_of(target, instance, placement)
    sizes = [b - a for a, b in pairwise(bounds)]
    assert f"PARTITION={','.join(map(str, sizes))}\n" in text_of("vllm", instance, placement)
    sizes[-1] += 1
    assert f"--tensor-split {','.join(map(str, sizes))}\n" in text_of("llama.cpp", instance, placement)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_any_plan_is_exported_or_refused_with_a_sentence(placement):
    instance = model(*gpus(2), HOST)
    for target in TARGETS:
        try:
            assert text_of(target, instance, placement).endswith("\n")
        except InputError as refused:
            assert str(refused).startswith(f"{target} cannot follow this plan: ")


def test_a_setting_that_would_come_back_as_another_plan_is_refused():
    plan = _plan.read(model(*gpus(2)), Solution.assign([0, 0, 0, 1, 1, 1]), "some tool")
    with pytest.raises(InputError, match="read back, its setting puts b on device 0, and the plan on device 1"):
        _plan.same(plan, ["a", "b"], [0, 1], [0, 0])
    with pytest.raises(InputError, match="places 1 items, and the plan has 2"):
        _plan.same(plan, ["a", "b"], [0, 1], [0])


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["vllm", "llama.cpp", "deepspeed", "torch", "torchrun", "edgetpu", "exo"])
def test_a_device_with_two_stretches_is_refused(target):
    says = refusal(target, model(*gpus(2)), [0, 0, 1, 1, 0, 0])
    assert says.startswith(f"{target} cannot follow this plan: a device runs one stretch of the model, and g0 has ")


@pytest.mark.parametrize("target", ["vllm", "llama.cpp", "deepspeed", "megatron", "exo"])
def test_a_cut_layer_is_refused_by_its_name(target):
    says = refusal(target, model(*gpus(2), parts=2), [0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    assert "layers.1 whole" in says
    assert "'layers.1.part0' is on g0 but 'layers.1.part1' is on g1" in says


def test_ends_elsewhere_are_refused_by_name():
    three = model(*gpus(3))
    assert "'embed' is on g2, but it runs with the first layers, which are on g0" in refusal(
        "vllm", three, [2, 0, 0, 1, 1, 1]
    )
    assert "'head' is on g2, but it runs with the last layers, which are on g1" in refusal(
        "vllm", three, [0, 0, 0, 1, 1, 2]
    )


def test_hosts_where_they_cannot_be_are_refused():
    mixed = model(*gpus(1), HOST)
    told = refusal("vllm", mixed, [1, 1, 0, 0, 0, 0])
    assert "its stages run on GPUs, and box is a cpu; plan again for it" in told
    assert "`hetopt plan ... --to vllm`" in told
    assert "keeps the first layers in host memory, and the plan has layers.2 to the output head on box" in refusal(
        "llama.cpp", mixed, [0, 0, 0, 1, 1, 1]
    )
    two = model(*gpus(1), HOST, Device(name="rack", host=True))
    assert "it knows one host, and the plan uses box and rack" in refusal("accelerate", two, [1, 1, 2, 0, 0, 0])
    assert "its segments run on Edge TPUs, and box is none" in refusal("edgetpu", mixed, [0, 0, 0, 1, 1, 1])
    assert "its segments run on Edge TPUs, and t is none" in refusal(
        "edgetpu", model(Device(name="t", type="t4")), [0] * 6
    )


def test_megatron_refuses_stages_that_do_not_go_round():
    says = refusal("megatron", model(*gpus(3)), [0, 0, 1, 0, 2, 2])
    assert says.endswith("its stages go round the ranks in one order, and the plan visits g0, g1, g0, g2")


@pytest.mark.parametrize("target", ["accelerate", "torch"])
def test_operators_are_no_modules(target):
    names = ["embed: embedding", "layers.0.mlp: linear", "layers.0.mlp: gelu", "layers.1.mlp: linear", "add_3"]
    instance = Instance.from_graph(
        np.ones((5, 2)), [(k, k + 1) for k in range(4)], tasks=names, devices=gpus(2),
        links=[Link(source="*", target="*", bandwidth=1)], question={"objective": "throughput", "contiguous": "none"},
    )  # fmt: skip
    for placement in ([0, 0, 1, 1, 1], [0, 0, 0, 1, 1]):
        assert "it places modules, and '" in refusal(target, instance, placement)


def test_experts_may_stay_in_host_memory():
    names = ["embed", *(f"blk.{k}.{part}" for k in range(4) for part in ("attn", "experts")), "head"]
    instance = Instance.from_graph(
        np.ones((10, 3)), [(k, k + 1) for k in range(9)], tasks=names, devices=[*gpus(2), HOST],
        links=[Link(source="*", target="*", bandwidth=1)], question={"objective": "throughput", "contiguous": "none"},
    )  # fmt: skip
    first = text_of("llama.cpp", instance, [0, 0, 2, 0, 2, 1, 1, 1, 1, 1]).splitlines()[-1]
    assert first == "--device CUDA0,CUDA1 --n-gpu-layers 5 --split-mode layer --tensor-split 2,3 --n-cpu-moe 2"
    apart = text_of("llama.cpp", instance, [0, 0, 2, 0, 0, 1, 2, 1, 1, 1]).splitlines()[-1]
    assert apart.endswith(r' --override-tensor "blk\.(0|2)\.ffn_(up|down|gate)_exps\.=CPU"')
    some = {"--override-tensor": r'"blk\.0\.ffn_up_exps\.=CPU"'}
    with pytest.raises(InputError, match="some experts of layer 0 only"):
        llama_cpp.hosted_experts(some, 1)
    assert "keeps the layer blk.1 whole" in refusal("llama.cpp", instance, [0, 0, 0, 2, 0, 1, 1, 1, 1, 1])


def test_onnxruntime_refuses_two_devices_of_a_kind():
    assert "a session has one gpu, and the plan uses g0 and g1" in refusal(
        "onnxruntime", model(*gpus(2)), [0, 0, 0, 1, 1, 1]
    )
    chip = model(Device(name="v", type="tpu-v4"))
    assert "it knows cpu, gpu and npu, and v is a tpu" in refusal("onnxruntime", chip, [0] * 6)


def test_gpus_of_two_makers_have_no_common_numbers():
    both = model(Device(name="n", type="l4"), Device(name="a", type="mi300x"))
    assert "the GPUs of one maker, and the instance has amd and nvidia" in refusal("vllm", both, [0, 0, 0, 1, 1, 1])
    phone = model(Device(name="p", type="adreno-750"))
    assert "GPUs of NVIDIA or AMD, and the instance has those of qualcomm" in refusal("vllm", phone, [0] * 6)


def test_schedulers_refuse_devices_that_one_label_mixes_up():
    unlike = [Device(name="s", type="l4", memory=10), Device(name="t", type="l4", memory=20)]
    for target in ("slurm", "kubernetes", "ray"):
        says = refusal(target, independent(*unlike), [0] * 6)
        assert says.endswith("s and t share, with other usable memory")
    both = [Device(name="s", type="a100-sxm-40", memory=40), Device(name="t", type="a100-sxm-80", memory=80)]
    assert "by the label 'A100', which s and t share" in refusal("ray", independent(*both), [0] * 6)
    assert "NVIDIA-A100-SXM4-40GB" in text_of("kubernetes", independent(*both), [0] * 6)
    slower = Instance.from_times([[1, 2]] * 6, devices=[Device(name=n, type="l4") for n in "st"])
    assert "share, with other times" in refusal("slurm", slower, [0] * 6)
    wired = Instance.from_times(
        np.ones((6, 2)),
        devices=[Device(name=n, type="l4") for n in "st"],
        links=[Link(source="s", target="host", bandwidth=1)],
    )
    assert "share, with other links" in refusal("slurm", wired, [0] * 6)


def test_schedulers_refuse_names_that_they_cannot_write():
    odd = independent(Device(name="a b"))
    assert "is of type 'a b'" in refusal("slurm", odd, [0] * 6)
    assert "cannot be the value of a label" in refusal("kubernetes", odd, [0] * 6)
    chip = independent(Device(name="v", type="tpu-v4"))
    for target in ("slurm", "kubernetes", "ray"):
        assert "v" in refusal(target, chip, [0] * 6)


def test_what_is_no_plan_is_refused_before_it_is_read():
    instance = model(*gpus(2))
    with pytest.raises(VerificationError, match=r"layers\.0"):
        text_of("vllm", instance, [0, -1, 0, 0, 0, 0])
    for solution, says in (
        (Solution.assign([0, -1, 0, 0, 0, 0]), "the task 'layers.0' has no place"),
        (Solution(), "places no tasks"),
        (Solution.assign([0] * 6, replicas={"g0": ["g1"]}), "the plan also has: replicas"),
        (Solution(np.zeros(6, int), start=np.zeros(6)), "the plan also has: start"),
    ):
        with pytest.raises(InputError, match=re.escape(says)):
            exporters.get("vllm").export(instance, solution)
    with pytest.raises(InputError, match="runs one model, and the instance has 6 jobs"):
        text_of("vllm", independent(*gpus(1)), [0] * 6)


def test_a_backward_task_must_follow_its_forward_task():
    def training(group):
        return Instance.from_graph(
            np.ones((4, 2)), [(0, 1), (1, 3), (3, 2)], tasks=["layer0", "layer1", "layer0.grad", "layer1.grad"], devices=gpus(2),
            group=group, backward=[False, False, True, True], links=[Link(source="*", target="*", bandwidth=1)],
            question={"objective": "throughput"},
        )  # fmt: skip

    assert "PARTITION=1,1\n" in text_of("vllm", training(["a", "b", "a", "b"]), [0, 1, 0, 1])
    plan = Solution.assign([0, 1, 1, 0])
    with pytest.raises(InputError, match=r"'layer0.grad' is in no group with a forward task on g1"):
        exporters.get("vllm").export(training([None] * 4), plan)


# Which tasks are layers -----------------------------------------------------------------------------------------------


def layers_of(names, edges=None):
    edges = [(k, k + 1) for k in range(len(names) - 1)] if edges is None else edges
    instance = Instance.from_graph(np.ones((len(names), 1)), edges, tasks=names, devices=gpus(1))
    plan = _plan.read(instance, Solution.assign([0] * len(names)), "some tool")
    label = instance.labels.__getitem__
    return plan.layer_names, [label(k) for k in plan.before], [label(k) for k in plan.after]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["wte", "h.0.attn", "h.0.mlp", "h.1", "ln_f"], (["h.0", "h.1"], ["wte"], ["ln_f"])),
        (["token_embd", "blk.0.q", "blk.1.q", "output"], (["blk.0", "blk.1"], ["token_embd"], ["output"])),
        (["a", "m/layer_1/x", "m/layer_2/x"], (["m/layer_1", "m/layer_2"], ["a"], [])),
        (["block1", "block2", "mtp.layers.0", "head"], (["block1", "block2"], [], ["mtp.layers.0", "head"])),
        (["embed", "x", "y", "norm", "lm_head"], (["x", "y"], ["embed"], ["norm", "lm_head"])),
        (["t0", "t1", "t2"], (["t0", "t1", "t2"], [], [])),
        (["embed", "head"], (["head"], ["embed"], [])),
    ],
)
def test_layers_are_told_by_names_and_order(names, expected):
    assert layers_of(names) == expected


def test_a_task_that_feeds_all_layers_is_before_them():
    found = layers_of(["embed", "layer0", "rotary", "layer1", "head"], [(0, 1), (1, 3), (2, 1), (2, 3), (3, 4)])
    assert found == (["layer0", "layer1"], ["embed", "rotary"], ["head"])


@pytest.mark.parametrize(
    ("names", "edges", "says"),
    [
        (["encoder.layers.0", "encoder.layers.1", "decoder.layers.0"], None, "named after several"),
        (["layer0", "layer2"], None, "no task is named layer1"),
        (["layer2", "layer3"], None, "no task is named layer1"),
        (["layer1", "layer0"], None, "'layer1' feeds 'layer0'"),
        (["layer0", "reshape", "layer1"], None, "'reshape' stands between layers"),
        (["a", "b", "c"], [(0, 1), (0, 2)], "no task's name holds one"),
    ],
)
def test_layers_that_cannot_be_told_are_refused(names, edges, says):
    with pytest.raises(InputError, match=re.escape(says)):
        layers_of(names, edges)[1]


# A real plan and the command line -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llama():
    """The committed decoder on six GPUs, with the tasks of a layer in one group, and a plan of whole layers."""
    instance = hetopt.read(Path(__file__).resolve().parents[2] / "instances" / "partition" / "llama70b-mixed.json")
    whole = []
    for job in instance.jobs():
        tasks = [msgspec.structs.replace(t, group=t.name.partition(".")[0]) for t in job.tasks]
        whole.append(msgspec.structs.replace(job, tasks=tasks))
    split = {2: 10, 4: 3, 5: 3, 3: 10, 1: 23, 0: 31}  # what the dynamic program finds
    of_layer = [device for device, size in split.items() for _ in range(size)]
    placement = [of_layer[0], *(device for device in of_layer for _ in range(5)), of_layer[-1]]
    return instance, Instance.build(instance.devices, whole, instance.links, question=instance.question), placement


def test_a_decoder_on_six_gpus_goes_to_vllm_by_whole_layers(llama):
    _, whole, placement = llama
    text = text_of("vllm", whole, placement)
    assert "VLLM_PP_LAYER_PARTITION=10,3,3,10,23,31\n" in text
    assert "CUDA_VISIBLE_DEVICES=2,4,5,3,1,0\n" in text
    assert "--tensor-split 10,3,3,10,23,32\n" in text_of("llama.cpp", whole, placement)
    assert '"Et*10|t*3|t*3|t*10|t*23|t*31L"' in text_of("megatron", whole, placement)


def test_a_plan_that_cuts_a_layer_of_it_goes_to_torch_only(llama):
    instance, _, placement = llama
    cut = list(placement)
    cut[51] = cut[50]
    assert instance.labels[51] == "layer10.qkv"
    assert "it keeps the layer layer10 whole" in refusal("vllm", instance, cut)
    assert "'layer10.attention': SplitPoint.BEGINNING" in text_of("torch", instance, cut)


def test_the_command_writes_a_file_whole_or_standard_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    instance = model(*gpus(2)).with_question({"objective": "throughput"})
    hetopt.write(instance, "model.json")
    hetopt.write_result(hetopt.solve(instance), instance, "plan.json")

    def call(*words):
        return CliRunner().invoke(main, ["export", "model.json", "plan.json", *words])

    shown = call("--to", "vllm")
    assert shown.exit_code == 0
    assert shown.stdout == hetopt.export(instance, hetopt.read_result("plan.json", instance), to="vllm")
    written = call("--to", "vllm", "-o", "settings.sh")
    assert (written.exit_code, written.stdout) == (0, "")
    assert (tmp_path / "settings.sh").read_text() == shown.stdout
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.json", "plan.json", "settings.sh"]


def test_the_command_says_why_it_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    instance = model(*gpus(2))
    hetopt.write(instance, "model.json")
    result = hetopt.solve(instance)
    hetopt.write_result(result, instance, "plan.json")
    spoiled = json.loads((tmp_path / "plan.json").read_text())
    spoiled["objective"] = 0.5
    (tmp_path / "spoiled.json").write_text(json.dumps(spoiled))
    for words, says in (
        (["plan.json", "--to", "vlm"], "did you mean 'vllm'?"),
        (["plan.json", "--to", "edgetpu", "-o", "nowhere/out"], "folder"),
        (["spoiled.json", "--to", "accelerate", "-o", "out"], "rejected: the result claims the value"),
        (["plan.json"], "missing option '--to'"),
    ):
        run = CliRunner().invoke(main, ["export", "model.json", *words])
        assert run.exit_code == 1
        assert says in run.stderr
        assert run.stdout == ""
    assert not (tmp_path / "out").exists()
