"""From a config and devices to settings: plans that the tools follow, proved; what cannot be is told with what would mend it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import hetopt
from hetopt.cli import main
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.io.exporters import accelerate, llama_cpp, vllm
from hetopt.plan import Planned, plan, settings_file, write_plan
from hetopt.report_plan import record

LLAMA_70B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
SMALL = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip
FLEET = "a100-sxm-40:2,t4:4,cpu"
A100, T4 = 35_000_000_000, 13_400_000_000  # 90 % less a gigabyte of context, before workspace


@pytest.fixture
def large(tmp_path: Path) -> Path:
    return written(tmp_path, LLAMA_70B)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return written(tmp_path, SMALL)


def written(folder: Path, config: dict) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    ended = CliRunner().invoke(main, ["plan", *map(str, arguments)])
    return ended.exit_code, ended.stdout, ended.stderr


def device_lists(planned: Planned) -> list[str]:
    return [stage.device for stage in planned.stages]


# A large decoder on uneven devices ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    path = written(tmp_path_factory.mktemp("model"), LLAMA_70B)
    return plan(path, to=["vllm", "llama.cpp", "accelerate"], devices=FLEET, quantisation="int4", context=8192)


def test_it_is_proved_and_verified(decoder):
    assert decoder.result.status == "optimal"
    assert decoder.result.gap < 1e-9
    assert decoder.result.bound_proof == "replayed"
    hetopt.verify(decoder.instance, decoder.result)
    assert decoder.refused == {}
    assert any("vllm runs on accelerators only: cpu-0 left out" in note for note in decoder.notes)


def test_its_stages_fit_by_arithmetic_of_their_own(decoder):
    """A layer of 855,638,016 weights in 4.156 bits with two norms, and 4,096 bytes of cache a token, six times 8,192."""
    matrices = 8192 * (8192 + 2 * 1024) + 8192 * 8192 + 3 * 8192 * 28672
    layer = -(-matrices * 133 // 256) + 2 * 8192 * 2
    cache = 4096 * 6 * 8192
    ends = {"embed": 128256 * 8192 * 2, "head": 128256 * 8192 * 2 + 8192 * 2 + 128256 * 4}
    for stage in decoder.stages:
        more = sum(size for name, size in ends.items() if name in stage.modules)
        assert stage.weights == stage.layers * layer + more
        assert stage.cache == stage.layers * cache
        assert stage.weights + stage.cache <= (A100 if stage.device.startswith("a100") else T4)
    assert sum(stage.layers for stage in decoder.stages) == 80
    assert decoder.result.objective == max(stage.seconds for stage in decoder.stages)
    assert dict(decoder.rates)["tokens a second, pipeline full"] == pytest.approx(1 / decoder.result.objective)


def test_the_tools_read_the_same_plan(decoder):
    """Each tool's own mapping of its setting gives each layer the device of the plan."""
    number = {"a100-sxm-40-0": 0, "a100-sxm-40-1": 1, "t4-0": 2, "t4-1": 3, "t4-2": 4, "t4-3": 5}
    planned = [number[s.device] for s in decoder.stages for _ in range(s.layers)]

    lines = dict(
        line.removeprefix("export ").split("=")
        for line in decoder.settings["vllm"].splitlines()
        if "=" in line and line[0] == "e"
    )
    ranks = [int(part) for part in lines["CUDA_VISIBLE_DEVICES"].split(",")]
    split = vllm.parse(lines["VLLM_PP_LAYER_PARTITION"], layers=80, ranks=len(ranks))
    assert [device for device, size in zip(ranks, split, strict=True) for _ in range(size)] == planned

    words = decoder.settings["llama.cpp"].splitlines()[-1].split()
    given = dict(zip(words[::2], words[1::2], strict=True))
    devices = [int(name.removeprefix("CUDA")) for name in given["--device"].split(",")]
    slots = llama_cpp.slots(80, int(given["--n-gpu-layers"]), [float(x) for x in given["--tensor-split"].split(",")])
    assert [devices[slot] for slot in slots][:80] == planned

    names = [f"model.layers.{k}.self_attn.q_proj.weight" for k in range(80)]
    ends = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
    found = accelerate.resolve(json.loads(decoder.settings["accelerate"]), [*names, *ends])
    assert found == [*planned, planned[0], planned[-1], planned[-1]]


def test_every_estimate_has_a_source_and_the_record_says_all(decoder):
    assert "times on t4: roofline" in decoder.instance.source
    told = record(decoder)
    assert told["status"] == "optimal"
    assert set(told["settings"]) == {"vllm", "llama.cpp", "accelerate"}
    assert [stage["device"] for stage in told["stages"]] == device_lists(decoder)


# What tools can follow ------------------------------------------------------------------------------------------------


def test_llama_cpp_gets_the_first_layers_in_host_memory(large):
    """In bf16 the model does not fit the accelerators, so the host holds the embedding and the first layers."""
    planned = plan(large, to=["llama.cpp"], devices=FLEET, context=2048)
    assert planned.result.status == "optimal"
    assert planned.stages[0].device == "cpu-0"
    assert planned.stages[0].modules.startswith("embed, 0-")
    kept = planned.stages[0].layers
    assert f"--n-gpu-layers {81 - kept}" in planned.settings["llama.cpp"]
    assert [note.partition(":")[0] for note in planned.notes] == [
        "on accelerators",
        "with the first layers in host memory",
    ]
    assert any("no further layer fits" in sentence for sentence in planned.binding)


def test_llama_cpp_may_leave_the_host_alone(small):
    planned = plan(small, to=["llama.cpp"], devices="t4:2,cpu", want="latency")
    assert "cpu-0" not in device_lists(planned)
    assert planned.settings["llama.cpp"].splitlines()[-1].startswith("--device CUDA")


def test_accelerate_copies_what_is_in_host_memory(large):
    """A layer of 1.71 GB takes 1.711e9 / 25.2e9 s over PCIe 4 at 80 %, and the first GPU keeps room for the largest module."""
    planned = plan(large, to=["accelerate"], devices=FLEET, context=2048)
    at = planned.instance.task_index["model.layers.3"]
    host, first = planned.instance.device_index["cpu-0"], planned.instance.device_index["a100-sxm-40-0"]
    weights = planned.instance.memory[at]
    copy = planned.instance.time[at, host] - planned.instance.time[at, first]
    assert copy == pytest.approx(10e-6 + weights / (31.5e9 * 0.8), rel=1e-6)
    largest = 128256 * 8192 * 2
    assert planned.instance.capacity[first] == planned.instance.capacity[first + 1] - largest
    assert "copied to a100-sxm-40-0 for each use" in planned.instance.source
    assert "cpu" in json.loads(planned.settings["accelerate"]).values()


def test_without_tools_a_host_may_hold_any_stage(large):
    planned = plan(large, devices=FLEET, context=2048, want="latency")
    assert "cpu-0" in device_lists(planned)
    assert planned.settings == {}


def test_a_tool_that_cannot_follow_is_told_apart(small):
    """Edge TPUs are asked for, and the plan is on GPUs: the other setting is written, and the exit code is 1."""
    planned = plan(small, to=["vllm", "edgetpu"], devices="t4:2")
    assert set(planned.settings) == {"vllm"}
    assert set(planned.refused) == {"edgetpu"}
    code, out, err = run(small, "--devices", "t4:2", "--to", "vllm,edgetpu")
    assert code == 1
    assert "VLLM_PP_LAYER_PARTITION" in out
    assert "note: edgetpu" in err


# What is wanted -------------------------------------------------------------------------------------------------------


def test_most_tokens_are_the_least_room(large):
    planned = plan(large, to=["vllm"], devices=FLEET, quantisation="int4", want="tokens")
    rooms = [stage.tokens for stage in planned.stages]
    assert planned.result.status == "optimal"
    assert planned.result.objective == min(rooms) // 16 * 16
    assert "has the least room" in planned.binding[0]


def test_least_cost_leaves_dear_devices_empty(large):
    planned = plan(large, to=["vllm"], devices=FLEET, quantisation="int4", context=2048, want="cost")
    assert planned.result.objective == pytest.approx(4 * 0.526)
    assert device_lists(planned) == ["t4-0", "t4-1", "t4-2", "t4-3"]
    assert "left empty: a100-sxm-40-0, a100-sxm-40-1" in planned.binding


def test_a_limit_on_stages_costs(large):
    free = plan(large, devices="a100-sxm-40:2,t4:4", quantisation="int4", context=2048, want="cost")
    quick = plan(large, devices="a100-sxm-40:2,t4:4", quantisation="int4", context=2048, want="cost", at_most=0.02)
    assert quick.result.objective > free.result.objective
    assert all(stage.seconds <= 0.02 for stage in quick.stages)


def test_prompts_and_training_have_rates_of_their_own(small):
    prompts = plan(small, devices="t4:2", phase="prefill", context=512)
    assert dict(prompts.rates)["tokens a second, pipeline full"] == pytest.approx(512 / prompts.result.objective)
    training = plan(small, devices="a100-sxm-80:2", phase="train", context=512)
    assert [name for name, _ in training.rates] == ["tokens a second, pipeline full", "seconds a micro-batch, alone"]


# When there is no plan ------------------------------------------------------------------------------------------------


def test_changes_that_mend_it_are_told_and_do(large):
    planned = plan(large, to=["vllm"], devices="rtx4090:2,cpu", quantisation="int4", context=8192)
    assert planned.result.status == "infeasible"
    assert planned.stages == ()
    context = next(mend for mend in planned.mends if mend.startswith("--context"))
    assert "one more rtx4090" in planned.mends
    shorter = int(context.split()[1])
    for tokens, status in ((shorter, "optimal"), (shorter + 1, "infeasible")):
        assert (
            plan(large, to=["vllm"], devices="rtx4090:2,cpu", quantisation="int4", context=tokens).result.status
            == status
        )
    assert (
        plan(large, to=["vllm"], devices="rtx4090:3,cpu", quantisation="int4", context=8192).result.status == "optimal"
    )


def test_smaller_weights_are_offered(large):
    planned = plan(large, to=["vllm"], devices=FLEET, context=2048)
    assert planned.mends == ("--quantisation int8 (instead of bf16)", "one more a100-sxm-40")
    assert "17508712448 bytes short" in planned.result.infeasible[0]


def test_nothing_is_offered_that_does_not_help(large):
    assert plan(large, to=["vllm"], devices="t4", context=64).mends == ()


def test_an_interrupted_search_for_mends_says_so(large, monkeypatch):
    control = Control()
    whole = hetopt.plan.__globals__["solve"]

    def cancelling(instance, **given):
        if control.method.startswith("there is no plan"):
            control.cancel()
        return whole(instance, **given)

    monkeypatch.setitem(hetopt.plan.__globals__, "solve", cancelling)
    planned = plan(large, to=["vllm"], devices=FLEET, context=2048, control=control)
    assert len(planned.mends) < 2
    assert planned.notes[-1] == "the search for what would mend it was interrupted; more may"


def test_mends_that_a_limit_left_open_are_named(large, monkeypatch):
    monkeypatch.setitem(hetopt.plan.__globals__, "_PATIENCE", 0.0)
    whole = hetopt.plan.__globals__["solve"]

    def idle(instance, **given):
        result = whole(instance, **given)
        return result if given["time_limit"] else replace(result, reason="limit", limit="time", solution=None)

    monkeypatch.setitem(hetopt.plan.__globals__, "solve", idle)
    planned = plan(large, to=["vllm"], devices="t4", context=64)
    assert planned.mends == ()
    assert planned.notes[-1].startswith("whether it would help was not settled in 0 s each: --quantisation int8")


# Public reports -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "status"), [(0.75, "infeasible"), (0.9, "optimal")])
def test_what_an_operating_system_allows_decides(share, status, tmp_path):
    """294 GB in 61 layers on unified memories of 192, 128 and 64 GB: too much at three quarters, enough at nine tenths."""
    same = {"kind": "soc", "shared_memory": True, "bandwidth_gbs": 400, "fp16_tflops": 20}
    own = [{"name": f"mac-{size}", "memory_gb": size, **same} for size in (192, 128, 64)]
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"format": "hetopt-devices/1", "devices": own}))
    config = {**LLAMA_70B, "hidden_size": 16384, "intermediate_size": 37430, "num_attention_heads": 128, "num_hidden_layers": 61,
              "vocab_size": 32}  # fmt: skip
    planned = plan(
        written(tmp_path, config), devices="mac-192/mac-128/mac-64", catalogue=str(mine), utilisation=share, context=16,
        network="1gbe", reserve=0,
    )  # fmt: skip
    assert planned.instance.memory.sum() / 1e9 == pytest.approx(294, rel=0.05)
    assert planned.result.status == status


def test_a_large_table_of_words_is_no_stage_of_its_own(tmp_path):
    """Gemma 2 2B on eight devices: the embedding (1,179,648,000 bytes) is larger than an even share, and nothing fails."""
    config = {
        "model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192,
    }  # fmt: skip
    planned = plan(written(tmp_path, config), to=["vllm"], devices="t4:8", context=1024)
    assert planned.instance.memory[0] == 1_179_648_000
    assert set(planned.instance.memory[1:27].tolist()) == {155_713_536 + 4 * 2304 * 2}
    assert planned.result.status == "optimal"
    assert sum(stage.layers for stage in planned.stages) == 26


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command_writes_what_can_be_verified(small, tmp_path):
    out = tmp_path / "deep" / "plan"
    code, text, err = run(small, "--devices", "t4:2,cpu", "--to", "vllm", "--to", "accelerate", "-o", out)
    assert (code, err.count("error")) == (0, 0)
    assert {path.name for path in out.iterdir()} == {"instance.json", "result.json", "vllm.sh", "accelerate.json"}
    assert (out / "vllm.sh").read_text() in hetopt.export(
        hetopt.read(out / "instance.json"),
        hetopt.read_result(out / "result.json", hetopt.read(out / "instance.json")),
        "vllm",
    )
    for word in (
        "optimal",
        "t4-0",
        "embed, 0-",
        "head",
        "gap 0 %",
        "busiest",
        "replayed by `hetopt verify`",
        str(out / "vllm.sh"),
    ):
        assert word in text
    ended = CliRunner().invoke(main, ["verify", str(out / "instance.json"), str(out / "result.json")])
    assert ended.exit_code == 0


def test_the_command_speaks_json(small):
    code, out, _ = run(small, "--devices", "t4:2", "--to", "vllm", "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["status"], told["gap"], told["verified"]) == ("optimal", 0, True)
    assert told["settings"]["vllm"].startswith("# devices")


def test_exit_codes_are_those_of_solving(small, tmp_path):
    assert run(small, "--devices", "coral-edgetpu")[0] == 1
    assert run(small, "--devices", "t4", "--to", "vlm")[0] == 1
    assert run(tmp_path / "none.json")[0] == 1
    assert run(small, "--devices", "t4", "-o", small)[0] == 1
    code, out, _ = run(written(tmp_path, LLAMA_70B), "--devices", "t4:2")
    assert code == 3
    assert "bytes short" in out


def test_python_and_the_command_agree(small):
    planned = hetopt.plan(small, devices="t4:2,rtx3090", to=["vllm"])
    _, out, _ = run(small, "--devices", "t4:2,rtx3090", "--to", "vllm", "--json")
    assert json.loads(out)["objective"] == planned.result.objective
    assert json.loads(out)["settings"] == dict(planned.settings)


def test_files_have_the_tools_suffix(tmp_path, small):
    assert [settings_file(name) for name in ("vllm", "torch", "accelerate")] == [
        "vllm.sh",
        "torch.py",
        "accelerate.json",
    ]
    planned = plan(small, devices="t4:2")
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(InputError, match="cannot make the folder"):
        write_plan(planned, blocked / "below")
