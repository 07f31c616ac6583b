"""Encoders of text and pictures, from the fields of their ``config.json``: BERT, ViT, and the vision tower of Gemma 3.

As :mod:`hetopt.io.hf_families`, for models whose tokens all see each other, and that keep no cache.
"""

from __future__ import annotations

from hetopt.costs.transformer import Attention, Lookup, Model, Module, Product
from hetopt.errors import InputError
from hetopt.io.hf_fields import MOST_LAYERS, Fields

__all__ = ["bert", "vision_tower", "vit"]


def _block(config: Fields, *, qkv: bool = True) -> tuple[tuple[Product, ...], Attention, int, int]:
    """Products, attention and norm weights of a block, and its width."""
    h, heads = config.whole("hidden_size"), config.whole("num_attention_heads", most=1 << 16)
    inner, size = config.whole("intermediate_size"), h // heads or 1
    products = (
        Product(h, 3 * h, 3 * h if qkv else 0),
        Product(h, h, h, residual=True),
        Product(h, inner, inner),
        Product(inner, h, h, residual=True),
    )
    return products, Attention(heads, size, size, 2 * size, 0, causal=False), 4 * h, h


def _labels(config: Fields) -> int:
    names = config.inner("id2label")
    return len(names.found) if names is not None and names.found else config.maybe("num_labels") or 2


def _architecture(config: Fields) -> str:
    return str((config.items("architectures", str) or ["Model"])[0])


def bert(config: Fields) -> Model:
    """BERT with its pooler, its word head, or a classifier, as ``architectures`` says.

    Raises
    ------
    InputError
        A field is missing or cannot be; it is a decoder; or its head is not known.
    """
    products, attention, norms, h = _block(config)
    words, places = config.whole("vocab_size"), config.whole("max_position_embeddings")
    kinds = config.maybe("type_vocab_size") or 2
    if config.flag("is_decoder") or config.flag("add_cross_attention"):
        raise InputError(
            f"{config.path}.is_decoder or .add_cross_attention is true, and BERT is known as an encoder only"
        )
    layers = config.whole("num_hidden_layers", most=MOST_LAYERS)
    name, pooler = _architecture(config), Module("bert.pooler", h, (Product(h, h, h),), last=True)
    if name.endswith("Model"):
        heads = [pooler]
    elif name.endswith("ForMaskedLM"):
        # the decoder's matrix is the embedding's; its bias, and a product and norm before it, are its own
        heads = [Module("cls.transform", h, (Product(h, h, h),), vectors=2 * h, glued=True),
                 Module("cls.decoder", words, (Product(h, words, words),), end=True, shares=True)]  # fmt: skip
    elif name.endswith("ForSequenceClassification"):
        labels = _labels(config)
        heads = [pooler, Module("classifier", labels, (Product(h, labels, labels),), last=True)]
    else:
        raise InputError(
            f"{config.path}.architectures[0] is {name!r}, expected BertModel, BertForMaskedLM or BertForSequenceClassification"
        )
    tables = (Lookup(words, h), Lookup(places, h), Lookup(kinds, h))
    return Model(
        "bert",
        (
            Module("bert.embeddings", h, tables=tables, vectors=2 * h, end=True, glued=True),
            *(
                Module(f"bert.encoder.layer.{k}", h, products, attention, norms, glued=k == layers - 1)
                for k in range(layers)
            ),
            *heads,
        ),
        places,
    )


def vit(config: Fields) -> Model:
    """ViT with its pooler, or a classifier where ``architectures`` says so.

    Raises
    ------
    InputError
        A field is missing or cannot be, or its head is not known.
    """
    products, attention, norms, h = _block(config, qkv=config.flag("qkv_bias", True))
    layers = config.whole("num_hidden_layers", most=MOST_LAYERS)
    patches, inside = _patches(config)
    name, labels = _architecture(config), _labels(config)
    if name.endswith("ForImageClassification"):
        head = Module("classifier", labels, (Product(h, labels, labels),), last=True)
    elif name.endswith("Model"):
        head = Module("vit.pooler", h, (Product(h, h, h),), last=True)
    else:
        raise InputError(f"{config.path}.architectures[0] is {name!r}, expected ViTModel or ViTForImageClassification")
    tokens = patches + 1
    embed = Module("vit.embeddings", h, (Product(inside, h, h),), stem=h + tokens * h, tokens=tokens, glued=True)
    blocks = [
        Module(f"vit.encoder.layer.{k}", h, products, attention, norms, tokens=tokens, glued=k == layers - 1)
        for k in range(layers)
    ]
    norm = Module("vit.layernorm", h, vectors=2 * h, tokens=tokens, glued=True)
    return Model("vit", (embed, *blocks, norm, head), None, tokens)


def _patches(config: Fields) -> tuple[int, int]:
    """Patches of a picture, and the numbers in one."""
    side, size = config.whole("image_size", most=1 << 16), config.whole("patch_size", most=1 << 16)
    if side < size:
        raise InputError(
            f"{config.path}.patch_size is {size}, more than image_size, {side}; expected it to be no larger"
        )
    channels = config.maybe("num_channels", most=1 << 10) or 3
    return (side // size) ** 2, channels * size * size


_SIGLIP = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 224,
    "patch_size": 16,
}  # fmt: skip


def vision_tower(config: Fields, width: int, kept: int) -> tuple[Module, Module]:
    """Gemma 3's vision tower and the projector into the language model's ``width``; ``kept`` tokens of a picture go in.

    One picture a prompt is counted; a decode step has none. Raises InputError where it is no SigLIP.
    """
    kind = config.word("model_type")
    if kind not in (None, "siglip_vision_model"):
        raise InputError(f"{config.path}.model_type is {kind!r}, expected 'siglip_vision_model'; or add --text-only")
    config = config.with_usual(_SIGLIP)
    products, attention, norms, h = _block(config)
    patches, inside = _patches(config)
    layers = config.whole("num_hidden_layers", most=MOST_LAYERS)
    stem = inside * h + h + patches * h + 2 * h
    if config.flag("vision_use_head", True):  # one more attention, from a query of its own, with norm and network
        inner = config.whole("intermediate_size")
        stem += h + 4 * (h * h + h) + 2 * h + 2 * h * inner + inner + h
    tower = Module(
        "model.vision_tower", h, products, attention, norms, blocks=layers, stem=stem, end=True, tokens=patches, once=True,
        glued=True,
    )  # fmt: skip
    projector = Module(
        "model.multi_modal_projector",
        width,
        (Product(h, width),),
        vectors=h,
        end=True,
        tokens=kept,
        once=True,
        glued=True,
    )
    return tower, projector
