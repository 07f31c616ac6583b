"""Published model families as modules in sequence, from the fields of their ``config.json``.

Shapes are those of the families' public configuration classes, with their field names and what they mean when absent; modules
bear the names of the published checkpoints. Sizes of a model must stand in the file, but for a nested ``text_config``, which
leaves out what its class has anyway. Each layer is counted by itself (experts, windows and biases differ from layer to
layer). No weights are read, and no package of the model's makers is needed.

Families: Llama, Mistral, Mixtral, Qwen 2 and 3 (dense and with experts), DeepSeek-V2 and V3, Gemma 1 to 3, GPT-2, BERT, ViT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hetopt.costs.transformer import Attention, Lookup, Model, Module, Product
from hetopt.errors import InputError, nearest
from hetopt.io.hf_encoders import bert, vision_tower, vit
from hetopt.io.hf_fields import MOST_LAYERS, Fields

__all__ = ["FAMILIES", "model_of"]

_LLAMA = {
    "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000,
    "max_position_embeddings": 2048,
}  # fmt: skip
_MISTRAL = {**_LLAMA, "intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072}
_QWEN = {
    **_LLAMA, "intermediate_size": 22016, "vocab_size": 151936, "max_position_embeddings": 32768, "max_window_layers": 28,
    "sliding_window": 4096, "num_key_value_heads": 32,
}  # fmt: skip
_GEMMA = {
    "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28, "num_attention_heads": 16, "vocab_size": 256000,
    "num_key_value_heads": 16, "head_dim": 256, "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip
_GEMMA2 = {
    **_GEMMA, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
    "num_key_value_heads": 4, "sliding_window": 4096,
}  # fmt: skip
_USUAL: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "mistral": {**_MISTRAL, "sliding_window": 4096},
    "mixtral": {**_MISTRAL, "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2": _QWEN,
    "qwen2_moe": {
        **_QWEN, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16,
        "num_key_value_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632, "decoder_sparse_step": 1,
    },
    "qwen3": {**_QWEN, "head_dim": 128},
    "qwen3_moe": {
        **_QWEN, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24, "num_key_value_heads": 4,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1,
    },
    "deepseek_v2": {"num_nextn_predict_layers": 0, "first_k_dense_replace": 0},
    "deepseek_v3": {"num_nextn_predict_layers": 1, "first_k_dense_replace": 3},
    "gemma": _GEMMA,
    "gemma2": {**_GEMMA2, "pattern": 2},
    "gemma3_text": {**_GEMMA2, "vocab_size": 262208, "max_position_embeddings": 131072, "pattern": 6},
}  # fmt: skip

_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def model_of(config: Fields, *, mtp: bool = False, text_only: bool = False) -> Model:
    """The model that a config describes.

    Parameters
    ----------
    config
        The file's fields.
    mtp
        Take in layers for multi-token prediction.
    text_only
        Leave out towers for pictures and sound.

    Raises
    ------
    InputError
        Its ``model_type`` is not known, a field is missing or cannot be, or it has a part that is not known.
    """
    kind = config.word("model_type")
    if kind is None:
        raise InputError(
            f"{config.path} lacks the field 'model_type', so the family is not known; expected a config.json"
        )
    text = config.inner("text_config")
    if text is not None:
        return _with_towers(config, kind, text, mtp=mtp, text_only=text_only)
    if kind not in FAMILIES:
        raise InputError(f"{config.path}.model_type is {kind!r}; {nearest(kind, FAMILIES, what='the known families')}")
    return FAMILIES[kind](_sized(config, kind), mtp)


def _sized(config: Fields, kind: str) -> Fields:
    """With the usual values of its class, but for sizes, which a file of its own must state."""
    usual = {name: value for name, value in _USUAL.get(kind, {}).items() if name not in _SIZES}
    return config.with_usual(usual)


def _with_towers(config: Fields, kind: str, text: Fields, *, mtp: bool, text_only: bool) -> Model:
    """The language model of a nested config, behind its vision tower."""
    inner = text.word("model_type") or ("gemma3_text" if kind == "gemma3" else None)
    if inner not in _USUAL:
        raise InputError(
            f"{text.path}.model_type is {inner!r}; {nearest(str(inner), _USUAL, what='the known language models')}"
        )
    tied = (
        {} if config.get("tie_word_embeddings") is None else {"tie_word_embeddings": config.flag("tie_word_embeddings")}
    )
    model = FAMILIES[inner](text.with_usual({**_USUAL[inner], **tied}), mtp)
    others = [name for name in config.found if name.endswith("_config") and isinstance(config.found[name], dict)]
    others = [name for name in others if name not in ("text_config", "quantization_config", "generation_config")]
    modules = tuple(replace(m, name=m.name.replace("model.", "model.language_model.", 1)) for m in model.modules)
    if text_only or not others:
        return replace(model, family=kind, modules=modules)
    vision = config.inner("vision_config")
    if kind != "gemma3" or others != ["vision_config"] or vision is None:
        raise InputError(
            f"{config.path} has {' and '.join(others)}, towers that are not known for {kind!r}; add --text-only to plan the "
            "language model alone (leave room for them)"
        )
    tower = vision_tower(vision, model.modules[0].width, config.whole("mm_tokens_per_image", least=1) if
                         config.has("mm_tokens_per_image") else 256)  # fmt: skip
    return replace(model, family=kind, modules=(*tower, *modules))


# Decoders -------------------------------------------------------------------------------------------------------------


def _ends(config: Fields, layers: list[Module], extra: list[Module], *, family: str) -> Model:
    """Embedding, layers, layers for multi-token prediction, norm and head."""
    h, words = config.whole("hidden_size"), config.whole("vocab_size")
    tied = config.flag("tie_word_embeddings")
    modules = [
        Module("model.embed_tokens", h, tables=(Lookup(words, h),), end=True, glued=True),
        *layers[:-1],
        replace(layers[-1], glued=True),
        *(replace(module, glued=True) for module in extra),
        Module("model.norm", h, vectors=h, glued=True),
        *_head(config, h, words, tied),
    ]
    return Model(family, tuple(modules), config.maybe("max_position_embeddings"))


def _head(config: Fields, h: int, words: int, tied: bool) -> list[Module]:
    names = config.items("architectures", str) or ["CausalLM"]
    if names[0].endswith(("ForCausalLM", "ForConditionalGeneration", "CausalLM")):
        return [Module("lm_head", words, (Product(h, words),), end=True, last=True, shares=tied)]
    if names[0].endswith("Model"):
        return []
    raise InputError(
        f"{config.path}.architectures[0] is {names[0]!r}, expected a causal language model (...ForCausalLM) or a bare ...Model"
    )


def _grouped(config: Fields, window: int | None, *, qkv: bool, out: bool, norms: bool = False) -> _Mixer:
    """Attention with grouped heads: products, attention, weights of its norms."""
    h, heads = config.whole("hidden_size"), config.whole("num_attention_heads", most=1 << 16)
    kv = config.maybe("num_key_value_heads", most=1 << 16) or heads
    size = config.maybe("head_dim", most=1 << 16) or h // heads
    if not size:
        raise InputError(
            f"{config.path}.num_attention_heads is {heads}, more than hidden_size, {h}; expected a divisor of it"
        )
    own, both = heads * size, (heads + 2 * kv) * size
    products = (Product(h, both, both if qkv else 0), Product(own, h, h if out else 0, residual=True))
    return products, Attention(heads, size, size, 2 * size, 2 * kv * size, window), 2 * size if norms else 0


_Mixer = tuple[tuple[Product, ...], Attention, int]


def _latent(config: Fields) -> _Mixer:
    """Multi-head latent attention: the cache keeps a compressed vector and a rotary key; decoding works on it as it is."""
    h, heads = config.whole("hidden_size"), config.whole("num_attention_heads", most=1 << 16)
    low, rope = config.whole("kv_lora_rank"), config.whole("qk_rope_head_dim")
    nope, value = config.whole("qk_nope_head_dim"), config.whole("v_head_dim")
    bias = config.flag("attention_bias")
    queries = config.maybe("q_lora_rank")
    first = (
        (Product(h, heads * (nope + rope)),)
        if queries is None
        else (Product(h, queries, queries if bias else 0), Product(queries, heads * (nope + rope)))
    )
    products = (
        *first,
        Product(h, low + rope, low + rope if bias else 0),
        Product(low, heads * (nope + value)),
        Product(heads * value, h, h if bias else 0, residual=True),
    )
    attention = Attention(heads, low + rope, low, nope + rope + value, low + rope)
    return products, attention, low + (queries or 0)


def _gated(h: int, inner: int, *, bias: bool = False, copies: int = 1, used: int = 1) -> tuple[Product, ...]:
    """A gated feed-forward network: gate and up together, then down."""
    up = Product(h, 2 * inner, 2 * inner if bias else 0, copies, used)
    return up, Product(inner, h, h if bias else 0, copies, used, residual=True)


def _experts(config: Fields, number: int, inner: int, *, bias: int = 0) -> tuple[Product, ...]:
    """A router and experts."""
    h = config.whole("hidden_size")
    used = config.whole("num_experts_per_tok", most=number)
    return Product(h, number, bias, plain=True), *_gated(h, inner, copies=number, used=used)


def _layer(
    number: int, h: int, mixer: _Mixer, feed: tuple[Product, ...], *, norms: int = 2, vectors: int = 0
) -> Module:
    products, attention, inner = mixer
    return Module(f"model.layers.{number}", h, (*products, *feed), attention, norms * h + inner + vectors)


def _count(config: Fields) -> int:
    return config.whole("num_hidden_layers", most=MOST_LAYERS)


def _llama(config: Fields, mtp: bool) -> Model:
    h, inner = config.whole("hidden_size"), config.whole("intermediate_size")
    bias, window = config.flag("attention_bias"), _window(config)
    mixer = _grouped(config, window, qkv=bias, out=bias)
    feed = _gated(h, inner, bias=config.flag("mlp_bias"))
    return _ends(config, [_layer(k, h, mixer, feed) for k in range(_count(config))], [], family="llama")


def _window(config: Fields) -> int | None:
    return config.maybe("sliding_window", least=0) or None


def _mixtral(config: Fields, mtp: bool) -> Model:
    h = config.whole("hidden_size")
    experts = config.whole("num_local_experts", "num_experts", most=1 << 16)
    feed = _experts(config, experts, config.whole("intermediate_size"))
    mixer = _grouped(config, _window(config), qkv=False, out=False)
    return _ends(config, [_layer(k, h, mixer, feed) for k in range(_count(config))], [], family="mixtral")


def _windows(config: Fields, layers: int, usual: Callable[[int], bool]) -> list[int | None]:
    """(layers) window of each layer, by ``layer_types`` where they stand, else by the class's rule."""
    window = _window(config)
    types = config.items("layer_types", str, layers)
    for name in types or ():
        if name not in ("full_attention", "sliding_attention"):
            raise InputError(
                f"{config.path}.layer_types holds {name[:60]!r}, expected 'full_attention' or 'sliding_attention'"
            )
    if types is not None and "sliding_attention" in types and window is None:
        raise InputError(f"{config.path}.sliding_window is missing, and layer_types has layers with a window")
    slides = [name == "sliding_attention" for name in types] if types else [usual(k) for k in range(layers)]
    return [window if slide else None for slide in slides]


def _qwen(config: Fields, mtp: bool) -> Model:
    kind = config.word("model_type") or "qwen2"
    third, sparse = kind.startswith("qwen3"), kind.endswith("moe")
    h, layers = config.whole("hidden_size"), _count(config)
    late = config.maybe("max_window_layers", least=0) or 0
    slides = config.flag("use_sliding_window")
    windows = _windows(config, layers, lambda k: slides and k >= late)
    bias = config.flag("attention_bias") if third else config.flag("qkv_bias", True)
    dense = _gated(h, config.whole("intermediate_size"))
    rich = _qwen_experts(config, shared=not third) if sparse else dense
    step = config.whole("decoder_sparse_step") if sparse else 1
    plain = set(config.items("mlp_only_layers", int) or []) if sparse else set()
    made = []
    for k, window in enumerate(windows):
        mixer = _grouped(config, window if slides else None, qkv=bias, out=bias and third, norms=third)
        made.append(_layer(k, h, mixer, dense if k in plain or (k + 1) % step else rich))
    return _ends(config, made, [], family=kind)


def _qwen_experts(config: Fields, *, shared: bool) -> tuple[Product, ...]:
    h = config.whole("hidden_size")
    experts = config.whole("num_experts", "num_local_experts", most=1 << 16)
    found = _experts(config, experts, config.whole("moe_intermediate_size"))
    if not shared:
        return found
    return *found, *_gated(h, config.whole("shared_expert_intermediate_size")), Product(h, 1, plain=True)


def _deepseek(config: Fields, mtp: bool) -> Model:
    kind = config.word("model_type") or "deepseek_v3"
    h, layers = config.whole("hidden_size"), _count(config)
    mixer = _latent(config)
    dense = _gated(h, config.whole("intermediate_size"))
    experts = config.whole("n_routed_experts", "num_local_experts", most=1 << 16)
    inner = config.whole("moe_intermediate_size")
    shared = config.maybe("n_shared_experts", least=0) or 0
    rich = _experts(config, experts, inner, bias=experts if kind == "deepseek_v3" else 0)
    rich += _gated(h, inner * shared) if shared else ()
    first = config.whole("first_k_dense_replace", least=0, most=MOST_LAYERS)
    step = config.maybe("moe_layer_freq") or 1
    made = [_layer(k, h, mixer, dense if k < first or k % step else rich) for k in range(layers)]
    more = config.maybe("num_nextn_predict_layers", least=0, most=64) or 0
    extra = []
    for k in range(more if mtp else 0):
        # two norms and a product join the hidden state with the next word; a norm of its own stands before the shared head
        deep = _layer(k, h, mixer, (Product(2 * h, h), *rich), norms=5)
        extra.append(replace(deep, name=f"model.mtp.{k}"))
    return _ends(config, made, extra, family=kind)


def _gemma(config: Fields, mtp: bool) -> Model:
    kind = config.word("model_type") or "gemma3_text"
    h, layers = config.whole("hidden_size"), _count(config)
    pattern = config.whole("sliding_window_pattern", "_sliding_window_pattern", "pattern") if kind != "gemma" else 0
    windows = _windows(config, layers, lambda k: pattern > 0 and (k + 1) % pattern > 0)
    bias = config.flag("attention_bias")
    feed = _gated(h, config.whole("intermediate_size"))
    made = []
    for k, window in enumerate(windows):
        mixer = _grouped(config, window, qkv=bias, out=bias, norms=kind == "gemma3_text")
        made.append(_layer(k, h, mixer, feed, norms=2 if kind == "gemma" else 4))
    return _ends(config, made, [], family=kind)


def _gpt2(config: Fields, mtp: bool) -> Model:
    h, heads = config.whole("n_embd", "hidden_size"), config.whole("n_head", "num_attention_heads", most=1 << 16)
    layers = config.whole("n_layer", "num_hidden_layers", most=MOST_LAYERS)
    words, places = config.whole("vocab_size"), config.whole("n_positions", "n_ctx", "max_position_embeddings")
    inner = config.maybe("n_inner") or 4 * h
    if config.flag("add_cross_attention"):
        raise InputError(f"{config.path}.add_cross_attention is true, and decoders with an encoder are not known")
    size = h // heads or 1
    products = (
        Product(h, 3 * h, 3 * h),
        Product(h, h, h, residual=True),
        Product(h, inner, inner),
        Product(inner, h, h, residual=True),
    )
    attention = Attention(heads, size, size, 2 * size, 2 * h)
    made = [Module(f"transformer.h.{k}", h, products, attention, 4 * h, glued=k == layers - 1) for k in range(layers)]
    return Model(
        "gpt2",
        (
            Module("transformer.wte", h, tables=(Lookup(words, h),), end=True, glued=True),
            Module("transformer.wpe", h, tables=(Lookup(places, h),), end=True, glued=True),
            *made,
            Module("transformer.ln_f", h, vectors=2 * h, glued=True),
            *_head(config, h, words, config.flag("tie_word_embeddings", True)),
        ),
        places,
    )


FAMILIES: Mapping[str, Callable[[Fields, bool], Model]] = {
    "llama": _llama,
    "mistral": _llama,
    "mixtral": _mixtral,
    "qwen2": _qwen,
    "qwen2_moe": _qwen,
    "qwen3": _qwen,
    "qwen3_moe": _qwen,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gemma": _gemma,
    "gemma2": _gemma,
    "gemma3_text": _gemma,
    "gpt2": _gpt2,
    "bert": lambda config, mtp: bert(config),
    "vit": lambda config, mtp: vit(config),
}
"""What makes a model of a config's fields, by its ``model_type``."""
