"""Published configs become sequences of layers with the published sizes; what cannot be a config is refused with a sentence."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_configs import CONFIGS, TOTALS

import hetopt
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.hf_families import FAMILIES, model_of
from hetopt.io.hf_fields import Fields
from hetopt.io.importers import hf
from hetopt.io.instances import decode, encode

DECODERS = [name for name, config in CONFIGS.items() if config["model_type"] not in ("bert", "vit")]


def written(folder: Path, config: Any) -> Path:
    path = folder / "config.json"
    path.write_bytes(config if isinstance(config, bytes) else json.dumps(config).encode())
    return path


def load(folder: Path, config: Any, **options: Any) -> Instance:
    if isinstance(config, str):
        config = CONFIGS[config]
    return hf.load(written(folder, config), **{"devices": "a100-sxm-80:2,cpu", **options})


def complaint(folder: Path, config: Any, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load(folder, config, **options)
    said = str(caught.value)
    assert "\n" not in said
    return said


# Sizes ----------------------------------------------------------------------------------------------------------------


def test_every_published_total_has_a_config():
    assert set(CONFIGS) == set(TOTALS)
    kinds = {c["text_config"]["model_type"] if "text_config" in c else c["model_type"] for c in CONFIGS.values()}
    assert kinds == set(FAMILIES)


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_the_published_ones(name):
    assert model_of(Fields(CONFIGS[name])).parameters == TOTALS[name]


@pytest.mark.parametrize(
    ("kind", "total"),
    [
        ("Llama", 6_738_415_616),
        ("Mistral", 7_241_732_096),
        ("Mixtral", 46_702_792_704),
        ("Qwen2", None),
        ("Qwen2Moe", 14_315_784_192),
        ("Qwen3", None),
        ("Qwen3Moe", None),
        ("DeepseekV3", 671_026_419_200),
        ("Gemma", 8_537_680_896),
        ("Gemma2", 2_614_341_888),
        ("Gemma3Text", None),
        ("Gemma3", None),
        ("GPT2", 124_439_808),
        ("Bert", 109_482_240),
        ("ViT", 86_389_248),
    ],
)
def test_configuration_classes_as_they_write_themselves(kind, total, tmp_path):
    """Where the package is installed: a default configuration is read, and where it is a published model's, has its total."""
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed; it is not needed otherwise"
    )
    config = json.loads(getattr(transformers, f"{kind}Config")().to_json_string(use_diff=False))
    found = model_of(Fields(config)).parameters
    assert found == total or (total is None and found > 10**9)
    assert load(tmp_path, config, devices="h200-sxm:8,cpu").n_tasks > 10


@pytest.mark.parametrize(
    ("name", "billions"),
    [("mixtral-8x7b", 12.88), ("mixtral-8x22b", 39.15), ("qwen3-30b-a3b", 3.353), ("qwen3-235b-a22b", 22.19),
     ("deepseek-v3", 37.55)],
)  # fmt: skip
def test_active_parameters_are_the_published_ones(name, billions):
    assert model_of(Fields(CONFIGS[name])).active == pytest.approx(billions * 1e9, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "cache"),
    [("llama-2-7b", 524_288), ("llama-3-8b", 131_072), ("llama-3-70b", 327_680), ("qwen3-30b-a3b", 98_304),
     ("deepseek-v3", 70_272), ("gpt2-xl", 307_200)],
)  # fmt: skip
def test_caches_take_the_published_bytes_a_token(name, cache, tmp_path):
    instance = load(tmp_path, name, context=512)
    assert instance.columns.kv_bytes_per_token.sum() == cache
    assert load(tmp_path, name, context=512, kv="fp8").columns.kv_bytes_per_token.sum() == cache // 2


def test_layers_are_sized_one_by_one(tmp_path):
    """DeepSeek-V3: three dense layers of 0.58 billion parameters, then 58 with experts of 11.5 billion."""
    memory = load(tmp_path, "deepseek-v3").memory
    sizes = memory[1:62] / 2e9
    assert sizes[:3] == pytest.approx([0.583] * 3, abs=1e-3)
    assert sizes[3:] == pytest.approx([11.507] * 58, abs=1e-3)


def test_layers_that_are_said_to_be_dense_are(tmp_path):
    config = {**CONFIGS["qwen3-30b-a3b"], "mlp_only_layers": [0], "decoder_sparse_step": 2}
    memory = load(tmp_path, config).memory[1:49]
    assert (memory[[0, 2, 4]] < memory[1] / 5).all()
    assert (memory[[1, 3, 5]] == memory[1]).all()


def test_layers_for_multi_token_prediction_are_taken_in_when_asked(tmp_path):
    """One layer with experts and a product of 2 h x h: 11.5 billion parameters of its own, on the last stage."""
    plain, more = load(tmp_path, "deepseek-v3"), load(tmp_path, "deepseek-v3", mtp=True)
    assert "model.mtp.0" not in plain.labels
    at = more.task_index["model.mtp.0"]
    assert more.memory[at] - more.memory[61] == 2 * (2 * 7168**2 + 3 * 7168)
    assert more.memory[at] / 2 == pytest.approx(11.5e9, rel=0.02)
    assert more.columns.cut[at - 1 : at + 2].tolist() == [False, False, False]


# Names and order ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first", "layer", "last"),
    [
        ("llama-3-8b", ["model.embed_tokens"], "model.layers.0", ["model.norm", "lm_head"]),
        ("gpt2", ["transformer.wte", "transformer.wpe"], "transformer.h.0", ["transformer.ln_f", "lm_head"]),
        ("bert-base", ["bert.embeddings"], "bert.encoder.layer.0", ["bert.pooler"]),
        ("vit-base-1000", ["vit.embeddings"], "vit.encoder.layer.0", ["vit.layernorm", "classifier"]),
        ("gemma-3-4b", ["model.vision_tower", "model.multi_modal_projector", "model.language_model.embed_tokens"],
         "model.language_model.layers.0", ["model.language_model.norm", "lm_head"]),
    ],
)  # fmt: skip
def test_modules_bear_the_names_of_checkpoints(name, first, layer, last, tmp_path):
    labels = list(load(tmp_path, name).labels)
    assert labels[: len(first) + 1] == [*first, layer]
    assert labels[-len(last) :] == last


def test_ends_stay_with_the_layers_beside_them(tmp_path):
    cut = load(tmp_path, "llama-3-8b").columns.cut
    assert [k for k, allowed in enumerate(cut) if not allowed] == [0, 32, 33]


def test_the_name_is_the_folders(tmp_path):
    folder = tmp_path / "My model"
    folder.mkdir()
    written(folder, CONFIGS["gpt2"])
    assert hf.load(folder, devices="t4").name == "My-model"


# Windows and tied matrices --------------------------------------------------------------------------------------------


def test_a_window_ends_a_cache(tmp_path):
    """Mistral 7B: 32 layers of 4,096 bytes a token; behind 4,096 tokens the cache is 16 MiB a layer and sequence."""
    short, long = (load(tmp_path, "mistral-7b-v0.1", context=c, batch=2, in_flight=3) for c in (4096, 4097))
    assert (short.columns.kv_bytes_per_token[1:33] == 4096).all()
    assert (long.columns.kv_bytes_per_token == 0).all()
    assert (long.memory - short.memory)[1:33].tolist() == [6 * 4096 * 4096] * 32


@pytest.mark.parametrize(
    ("name", "every", "layers"), [("gemma-2-9b", 2, 42), ("gemma-3-1b", 6, 26), ("gemma-3-4b", 6, 34)]
)
def test_only_some_layers_have_windows(name, every, layers, tmp_path):
    config = copy.deepcopy(CONFIGS[name])
    cache = load(tmp_path, config, context=5000, text_only=True).columns.kv_bytes_per_token[1 : layers + 1]
    assert [k for k in range(layers) if cache[k]] == list(range(every - 1, layers, every))
    inner = config.get("text_config", config)
    inner["layer_types"] = ["full_attention" if k % 3 == 0 else "sliding_attention" for k in range(layers)]
    cache = load(tmp_path, config, context=5000, text_only=True).columns.kv_bytes_per_token[1 : layers + 1]
    assert [k for k in range(layers) if cache[k]] == list(range(0, layers, 3))


def test_qwen_has_windows_only_when_told(tmp_path):
    config = {**CONFIGS["qwen2.5-7b"], "sliding_window": 1024, "max_window_layers": 20}
    assert (load(tmp_path, config).columns.kv_bytes_per_token[1:29] > 0).all()
    cache = load(tmp_path, {**config, "use_sliding_window": True}).columns.kv_bytes_per_token[1:29]
    assert (cache > 0).tolist() == [True] * 20 + [False] * 8


def test_a_tied_matrix_lies_at_both_ends_of_a_pipeline_and_once_on_one_device(tmp_path):
    matrix = 2 * 50257 * 768
    logits = 4 * 50257
    assert load(tmp_path, "gpt2", context=1024).memory[-1] == matrix + logits
    assert load(tmp_path, "gpt2", context=1024, devices="t4").memory[-1] == logits


# Times and questions --------------------------------------------------------------------------------------------------


def test_a_decode_step_reads_every_weight_once(tmp_path):
    """Llama 3 70B in bf16 at batch 1: 139 GB without the embedding at 80 % of 2,039 GB/s is 85 ms."""
    instance = load(tmp_path, "llama-3-70b", context=1)
    assert instance.time[:, 0].sum() == pytest.approx((70.55e9 - 1.05e9) * 2 / (2039e9 * 0.8), rel=0.03)
    assert instance.time[1, 2] > 10 * instance.time[1, 0]  # the host has a fortieth of the bandwidth


def test_a_prompt_is_bound_by_arithmetic(tmp_path):
    """Two operations a parameter and token, and attention, at 87 % of 312 TFLOPS."""
    instance = load(tmp_path, "llama-3-8b", phase="prefill", context=8192)
    flops = 2 * (8.03e9 - 1.05e9) * 8192 + 32 * 4 * 4096 * 8192 * 8193 / 2
    assert instance.time[:, 0].sum() == pytest.approx(flops / (312e12 * 0.869), rel=0.02)
    assert instance.output[3] == 8192 * 4096 * 2


def test_questions_follow_what_is_wanted(tmp_path):
    ask = {want: dict(load(tmp_path, "llama-3-8b", want=want, context=100, batch=2).question)
           for want in ("throughput", "latency", "tokens")}  # fmt: skip
    assert ask["throughput"] == {"objective": "chain-bottleneck", "order": "free", "tokens": 600, "then": "stages"}
    assert ask["latency"] == {"objective": "chain-latency", "order": "free", "tokens": 200}
    assert ask["tokens"] == {"objective": "chain-tokens", "order": "free", "block": 16, "then": "stages"}
    cost = load(tmp_path, "gpt2", want="cost", devices="t4:2,cpu", at_most=0.5)
    assert cost.question["period"] == 0.5
    assert [v.price for v in cost.devices] == [0.526, 0.526, 0]
    assert "tokens" not in load(tmp_path, "bert-base").question


def test_a_price_that_nobody_knows_is_asked_for(tmp_path):
    said = complaint(tmp_path, "gpt2", want="cost", devices="h100-pcie,cpu")
    assert said.startswith("the price of h100-pcie is not known")
    mine = tmp_path / "mine.json"
    mine.write_text(
        '{"format": "hetopt-devices/1", "devices": [{"name": "H100 PCIe", "price": {"usd_per_hour": 2.5}}]}'
    )
    priced = load(tmp_path, "gpt2", want="cost", devices="h100-pcie,cpu", catalogue=str(mine))
    assert priced.devices[0].price == 2.5


def test_measurements_replace_what_is_assumed(tmp_path):
    """A layer measured at twice its time makes every layer bound by the same wall take twice as long."""
    before = load(tmp_path, "llama-3-8b", context=64, devices="l4")
    seconds = 2 * float(before.time[5, 0])
    path = tmp_path / "measured.json"
    path.write_text(json.dumps({
        "format": "hetopt-measurements/1",
        "measurements": [{"device": "L4", "what": "layer", "context": 64, "seconds": seconds}],
    }))  # fmt: skip
    after = load(tmp_path, "llama-3-8b", context=64, devices="l4", calibration=str(path))
    assert after.time[5, 0] == pytest.approx(seconds, rel=1e-6)
    assert "fitted to 1 measurement" in after.source
    path.write_text(
        '{"format": "hetopt-measurements/1", "measurements": [{"device": "l4", "second": 1, "context": 1}]}'
    )
    assert "'second'; did you mean 'seconds'" in complaint(tmp_path, "gpt2", calibration=str(path))


def test_every_estimate_says_where_it_came_from(tmp_path):
    source = load(tmp_path, "mixtral-8x7b", quantisation="q4_k", devices="rtx4090:2,cpu/rtx3090:2").source
    for said in ("46702792704 parameters", "weights: q4_k", "KV cache: elements of 2 bytes", "experts: tokens choose at random",
                 "times on rtx4090: roofline", "efficiency assumed", "usable memory", "link rtx3090 - rtx3090",
                 "between nodes"):  # fmt: skip
        assert said in source


# Precision and schemes ------------------------------------------------------------------------------------------------


def test_precision_is_what_the_config_says(tmp_path):
    gpt2 = CONFIGS["gpt2"]
    plain = load(tmp_path, gpt2).memory[5]
    assert load(tmp_path, {**gpt2, "dtype": "float32"}).memory[5] == 2 * plain
    assert load(tmp_path, {**gpt2, "torch_dtype": "float32"}, precision="fp16").memory[5] == plain
    assert "say --precision" in complaint(tmp_path, {**gpt2, "dtype": "float8"})


@pytest.mark.parametrize(
    ("stored", "scheme"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
    ],
)
def test_a_scheme_is_what_the_config_says(stored, scheme, tmp_path):
    config = {**CONFIGS["llama-3-8b"], "quantization_config": stored}
    said, asked = load(tmp_path, config), load(tmp_path, "llama-3-8b", quantisation=scheme)
    assert said.memory.tolist() == asked.memory.tolist()
    assert load(tmp_path, config, quantisation="none").memory[3] == 2 * (218_112_000 - 8192) + 2 * 8192


def test_schemes_that_are_not_known_are_asked_for(tmp_path):
    for stored in ({"quant_method": "awq", "bits": 4, "group_size": 32}, {"quant_method": "aqlm"}, {}):
        said = complaint(tmp_path, {**CONFIGS["llama-3-8b"], "quantization_config": stored})
        assert "say --quantisation" in said


def test_weights_of_70_billion_parameters_by_scheme(tmp_path):
    gigabytes = {scheme: load(tmp_path, "llama-3-70b", quantisation=scheme).memory.sum() / 1e9
                 for scheme in ("none", "fp8", "int4", "q4_k")}  # fmt: skip
    assert gigabytes["none"] == pytest.approx(141.1, abs=0.1)
    assert gigabytes["fp8"] == pytest.approx(72.7, abs=0.1)
    assert gigabytes["int4"] == pytest.approx(39.8, abs=0.1)
    assert gigabytes["q4_k"] == pytest.approx(39.7, abs=0.1)


def test_training_keeps_sixteen_bytes_a_parameter(tmp_path):
    instance = load(tmp_path, "gpt2", phase="train", batch=1, context=1, in_flight=1)
    states = 16 * (124_439_808 + 50257 * 768)  # the head's copy is trained as well
    assert instance.memory.sum() == pytest.approx(states, rel=1e-3)
    assert "--quantisation none" in complaint(tmp_path, "gpt2", phase="train", quantisation="nf4")


# Round trip -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_an_import_is_an_instance_that_can_be_asked(name, tmp_path):
    instance = load(tmp_path, name, devices="h200-sxm:8/h200-sxm:8/cpu", context=None)
    assert decode(encode(instance)).digest == instance.digest
    assert np.isfinite(instance.time).all()
    from hetopt.registry import problem_for

    assert problem_for(instance).fits(instance) is None


def test_a_small_model_is_planned_and_verified(tmp_path):
    instance = load(tmp_path, "gpt2", devices="t4:2,cpu", context=1024)
    result = hetopt.solve(instance)
    assert result.status == "optimal"
    hetopt.verify(instance, result)


# Refusals -------------------------------------------------------------------------------------------------------------

LLAMA = CONFIGS["llama-3-8b"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "lacks the field 'hidden_size'"),
        ({"hidden_size": -1}, "$.hidden_size is -1, expected a whole number from 1"),
        ({"hidden_size": 0}, "$.hidden_size is 0"),
        ({"hidden_size": 4096.5}, "$.hidden_size is 4096.5"),
        ({"hidden_size": True}, "$.hidden_size is true"),
        ({"hidden_size": "4096"}, '$.hidden_size is "4096"'),
        ({"hidden_size": 10**12}, "$.hidden_size is 1000000000000"),
        ({"hidden_size": 2**64}, "$.hidden_size is 18446744073709551616"),
        ({"num_hidden_layers": 10**9}, "$.num_hidden_layers is 1000000000"),
        ({"num_hidden_layers": [32]}, "$.num_hidden_layers is [32]"),
        ({"num_attention_heads": 5000}, "more than hidden_size"),
        ({"tie_word_embeddings": "yes"}, '$.tie_word_embeddings is "yes", expected true or false'),
        ({"architectures": ["LlamaForSequenceClassification"]}, "$.architectures[0] is 'LlamaForSequenceClassification'"),
        ({"architectures": "LlamaForCausalLM"}, "expected a list"),
        ({"architectures": [1]}, "expected a list"),
        ({"model_type": "lama"}, "did you mean 'llama'"),
        ({"model_type": None}, "lacks the field 'model_type'"),
        ({"model_type": 7}, "$.model_type is 7, expected a text"),
        ({"text_config": 3}, "$.text_config is 3, expected an object"),
        ({"text_config": {"model_type": "opera"}}, "$.text_config.model_type is 'opera'"),
        ({"quantization_config": "fp8"}, "$.quantization_config is \"fp8\", expected an object"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_config_is_refused(change, said, tmp_path):
    assert said in complaint(tmp_path, {**LLAMA, **change})


@pytest.mark.parametrize(
    "field", ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"]
)
def test_a_model_must_state_its_sizes(field, tmp_path):
    config = {key: value for key, value in LLAMA.items() if key != field}
    assert f"lacks the field '{field}'" in complaint(tmp_path, config)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "not JSON"),
        (b"[]", "expected"),
        (b'{"model_type": "llama", "hidden_size": NaN}', "NaN"),
        (b'{"model_type": "llama"', "ends too early"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deep"),
        (b'{"hidden_size": ' + b"9" * 6000 + b', "model_type": "llama"}', ""),
        (b"\xff\xfe", "not JSON"),
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(text, said, tmp_path):
    assert said in complaint(tmp_path, text)


def test_a_file_must_be_there_and_small(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        hf.load(tmp_path / "none.json")
    with pytest.raises(InputError, match="is a directory"):
        hf.load(tmp_path)
    assert "holds more than 16 MiB" in complaint(tmp_path, b" " * ((16 << 20) + 1))


def test_towers_that_are_not_known_are_named(tmp_path):
    config = {
        "model_type": "llava",
        "text_config": {"model_type": "llama", "vocab_size": 32064},
        "vision_config": {"model_type": "clip"},
    }
    assert "add --text-only" in complaint(tmp_path, config)
    instance = load(tmp_path, config, text_only=True, context=2048)
    assert instance.labels[0] == "model.language_model.embed_tokens"
    assert instance.n_tasks == 35  # a nested config leaves out what its class has anyway: here Llama 7B's sizes


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"context": 200_000}, "--context is 200000, and the model is made for 131072"),
        ({"context": 0}, "--context is 0"),
        ({"batch": 0}, "--batch is 0"),
        ({"batch": 10**9}, "--batch is 1000000000"),
        ({"in_flight": -1}, "--in-flight is -1"),
        ({"phase": "encode"}, "--phase is 'encode'"),
        ({"want": "speed"}, "--want is 'speed'"),
        ({"precision": "fp17"}, "--precision is 'fp17'"),
        ({"quantisation": "q4"}, "--quantisation is 'q4'"),
        ({"kv": "q4"}, "--kv is 'q4'"),
        ({"at_most": 0.0}, "--at-most is 0.0"),
        ({"recompute": True}, "--recompute is for --phase train"),
        ({"network": "string"}, "--network is 'string'"),
        ({"reserve": -1}, "--reserve is -1"),
        ({"devices": "coral-edgetpu"}, "has no fp16_tflops"),
        ({"batch": 65536, "phase": "prefill", "context": 131072, "in_flight": 4096}, "more than 2^53 bytes"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(options, said, tmp_path):
    assert said in complaint(tmp_path, LLAMA, **options)


def test_encoders_have_phases_and_lengths_of_their_own(tmp_path):
    assert "keeps no KV cache" in complaint(tmp_path, "bert-base", phase="decode")
    assert "keeps no KV cache" in complaint(tmp_path, "bert-base", want="tokens")
    assert "made for 512" in complaint(tmp_path, "bert-base", context=513)
    assert "always sees 197 tokens" in complaint(tmp_path, "vit-base", context=196)
    assert load(tmp_path, "vit-base").output[4] == 197 * 768 * 2


def test_mutated_configs_make_an_instance_or_a_sentence(tmp_path):
    rng = random.Random(7)
    values = [0, -1, 1, 3, 2**26, 2**31, 2**70, 1.5, None, True, "x", "", [], {}, [1, 2], {"a": {}}, "\x00", 4096]
    texts = [json.dumps(config).encode() for config in CONFIGS.values()]
    for _ in range(250):
        if rng.random() < 0.5:
            config = copy.deepcopy(CONFIGS[rng.choice(list(CONFIGS))])
            inside = rng.choice([config, *(value for value in config.values() if isinstance(value, dict))])
            inside[rng.choice(list(inside))] = rng.choice(values)
            raw = json.dumps(config).encode()
        else:
            broken = bytearray(rng.choice(texts))
            broken[rng.randrange(len(broken))] = rng.randrange(256)
            raw = bytes(broken[: rng.randrange(len(broken))] if rng.random() < 0.3 else broken)
        try:
            assert load(tmp_path, raw, text_only=rng.random() < 0.5).n_tasks > 1
        except InputError as error:
            assert "\n" not in str(error)


def test_one_device_keeps_the_biases_of_a_tied_head(tmp_path):
    """The word head of BERT shares its matrix with the embedding, and has a bias of its own."""
    instance = load(tmp_path, "bert-base-words", devices="t4", context=128)
    assert instance.memory[-1] == 2 * 30522
