"""Import a GGUF file: layers with their weight bytes as quantised, KV cache a token, times by the roofline; headers only.

Only the header is read: metadata and the list of tensors. Nothing is allocated before its size is known to be there, and a
header that announces more than the file holds is refused. Of a model in several files (``-00001-of-00003.gguf``) any one is
named, and all must be there. Sliding windows are not known here: the KV cache counts every token on every layer.

Source of the layout and of the block sizes: the GGUF specification (ggml) and its public Python package.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.importers._devices import DEVICES
from hetopt.io.importers._layers import COMMON, HALF, Decoder, Layers, Serving, Weight, chain_instance, layers_of
from hetopt.io.kinds import Option

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "gguf"
TITLE = "A GGUF model: layers with quantised weights and KV cache, times by the roofline; reads the header only."
SOURCE_HELP = "GGUF file, or one of its parts."
OPTIONS: tuple[Option, ...] = COMMON

MAX_ITEMS = 1 << 21  # entries of arrays and tensors in a header; the largest vocabularies have 1 << 18
MAX_TENSORS = 1 << 17
MAX_PARTS = 1000
KEPT = 1 << 13  # entries of an array that are kept: numbers by layer, not vocabularies

# Elements of a block and its bytes, by type of tensor.
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74), 18: (256, 98),
    19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8),
    28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18),
}  # fmt: skip
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_PART = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf")

Meta = dict[str, Any]


def load(
    source: str | Path,
    *,
    devices: str = DEVICES.default,
    catalogue: str | None = None,
    context: int = 4096,
    batch: int = 1,
    stack: str = "",
) -> Instance:
    """Instance of a model, a chain of layers.

    Raises
    ------
    InputError
        A file cannot be read, is no GGUF file of version 2 or 3, is cut off, announces what cannot be, or repeats a name;
        parts are missing; metadata that are needed are missing or cannot be right; an option is out of range.
    """
    path = Path(source)
    try:
        meta, weights = _whole_model(path)
        decoder = _decoder(meta, layers_of(weights, stack))
        serving = Serving(devices, catalogue, context, batch)
        return chain_instance(decoder, serving, name=path.stem[:200], source=f"the GGUF file {path.name}")
    except InputError as error:
        if str(error).startswith(("cannot read", "--")):
            raise
        raise InputError(f"{source}: {error}") from error


def _decoder(meta: Meta, layers: Layers) -> Decoder:
    """What the metadata say of the model."""
    kind = meta.get("general.architecture")
    if not isinstance(kind, str) or not 0 < len(kind) <= 64:
        raise InputError("the metadata lack general.architecture; expected a short text such as 'llama'")
    count = _number(meta, f"{kind}.block_count", 1)
    if count != len(layers.layers):
        raise InputError(
            f"{kind}.block_count is {count}, but {len(layers.layers)} layers have tensors; is a part missing?"
        )
    hidden = _number(meta, f"{kind}.embedding_length", 1)
    experts = _number(meta, f"{kind}.expert_count", 0, default=0)
    used = _number(meta, f"{kind}.expert_used_count", 0, default=experts)
    if experts and not 1 <= used <= experts:
        raise InputError(
            f"{kind}.expert_used_count is {used}, expected a number from 1 to {kind}.expert_count = {experts}"
        )
    matrices = any(len(weight.shape) == 2 and min(weight.shape) > 1 for weight in layers.back)
    tied = bool(layers.front) and not matrices and f"{kind}.pooling_type" not in meta  # embedding models have no head
    return Decoder(layers, hidden, _kv(meta, kind, hidden, count), max(1, experts), max(1, used), tied)


def _kv(meta: Meta, kind: str, hidden: int, count: int) -> list[int]:
    """Bytes of KV cache a token, layer by layer."""
    if f"{kind}.attention.kv_lora_rank" in meta:
        latent = _number(meta, f"{kind}.attention.kv_lora_rank", 1) + _number(meta, f"{kind}.rope.dimension_count", 0)
        return [latent * HALF] * count
    if f"{kind}.attention.head_count" not in meta and f"{kind}.ssm.state_size" in meta:
        return [0] * count  # a state of fixed size instead of a cache
    heads = _by_layer(meta, f"{kind}.attention.head_count", count)
    shared = (
        _by_layer(meta, f"{kind}.attention.head_count_kv", count)
        if f"{kind}.attention.head_count_kv" in meta
        else heads
    )
    width = hidden // max(1, max(heads))
    length = sum(_number(meta, f"{kind}.attention.{part}_length", 1, default=width) for part in ("key", "value"))
    return [number * length * HALF for number in shared]


def _by_layer(meta: Meta, key: str, count: int) -> list[int]:
    """A number for each layer: one for all, or a list of them."""
    value = meta.get(key)
    if not isinstance(value, list):
        return [_number(meta, key, 0)] * count
    if len(value) != count or not all(_is_count(entry, 0) for entry in value):
        raise InputError(f"{key} is a list of {len(value)}, expected {count} whole numbers, one a layer")
    return value


def _number(meta: Meta, key: str, least: int, default: int | None = None) -> int:
    value = meta.get(key, default)
    if value is None:
        raise InputError(f"the metadata lack {key}; expected a whole number")
    if not _is_count(value, least):
        raise InputError(f"{key} is {str(value)[:40]}, expected a whole number from {least} to 2^31")
    return int(value)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 31


# Files ----------------------------------------------------------------------------------------------------------------


def _whole_model(path: Path) -> tuple[Meta, list[Weight]]:
    """Metadata of the first part and tensors of all."""
    meta, weights = _read(path)
    count = _number(meta, "split.count", 0, default=0)
    if count <= 1:
        return meta, weights
    name = _PART.fullmatch(path.name)
    if name is None or int(name[3]) != count or count > MAX_PARTS:
        raise InputError(
            f"split.count is {count}, expected a part's name (at most {MAX_PARTS} parts), as m-00001-of-00003.gguf"
        )
    parts = [_read(path.with_name(f"{name[1]}-{k:05}-of-{count:05}.gguf")) for k in range(1, count + 1)]
    together = [weight for _, part in parts for weight in part]
    _refuse_repeated(together)
    return parts[0][0], together


def _read(path: Path) -> tuple[Meta, list[Weight]]:
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _header(_Reader(data))
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read {str(path)!r}: it is empty or no plain file") from error


def _header(reader: _Reader) -> tuple[Meta, list[Weight]]:
    if reader.take(4) != b"GGUF":
        raise InputError("the file does not start with GGUF; expected a GGUF file")
    version = reader.number("I")
    if version not in (2, 3):
        raise InputError(f"the version is {version}, expected 2 or 3 (little-endian)")
    tensors, facts = reader.number("Q"), reader.number("Q")
    if tensors > min(MAX_TENSORS, reader.left() // 24) or facts > min(MAX_TENSORS, reader.left() // 13):
        raise InputError(f"the header announces {tensors} tensors and {facts} facts, more than the file can hold")
    meta: Meta = {}
    for _ in range(facts):
        key = reader.text()
        if key in meta:
            raise InputError(f"the metadata state {key[:80]!r} twice; expected each once")
        meta[key] = reader.value(reader.number("I"), key)
    found = list(_tensors(reader, tensors))
    alignment = _number(meta, "general.alignment", 1, default=32)
    start = -(-reader.at // alignment) * alignment
    for weight, offset in found:
        if offset % alignment or start + offset + weight.bytes > reader.size:
            raise InputError(
                f"the tensor {weight.name[:80]!r} lies outside the file or off its alignment; is the file cut off?"
            )
    weights = [weight for weight, _ in found]
    _refuse_repeated(weights)
    return meta, weights


def _tensors(reader: _Reader, count: int) -> Iterator[tuple[Weight, int]]:
    for _ in range(count):
        name, rank = reader.text(), reader.number("I")
        if not 1 <= rank <= 8:
            raise InputError(f"the tensor {name[:80]!r} has {rank} dimensions, expected 1 to 8")
        shape = tuple(reader.number("Q") for _ in range(rank))
        kind, offset = reader.number("I"), reader.number("Q")
        if kind not in _BLOCKS:
            raise InputError(f"the tensor {name[:80]!r} has the type {kind}, which is not known")
        held, size = _BLOCKS[kind]
        if shape[0] % held:
            raise InputError(f"the tensor {name[:80]!r} has rows of {shape[0]} numbers, expected a multiple of {held}")
        yield Weight(name, shape[::-1], math.prod(shape) // held * size), offset


def _refuse_repeated(weights: list[Weight]) -> None:
    seen: set[str] = set()
    for weight in weights:
        if weight.name in seen:
            raise InputError(f"the tensor {weight.name[:80]!r} is there twice; expected each once")
        seen.add(weight.name)


class _Reader:
    """Numbers and texts of a mapped file, one after the other; never past its end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.size, self.at, self.items = data, len(data), 0, 0

    def left(self) -> int:
        return self.size - self.at

    def take(self, count: int) -> bytes:
        if count > self.left():
            raise InputError(f"the header ends too early (at byte {self.size}); is the file cut off?")
        self.at += count
        return self.data[self.at - count : self.at]

    def skip(self, count: int) -> None:
        if count > self.left():
            raise InputError(
                f"the header announces {count} bytes at byte {self.at}, more than the file has; is it cut off?"
            )
        self.at += count

    def number(self, kind: str) -> Any:
        return struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))[0]

    def text(self) -> str:
        """A name; at most 64 KiB."""
        count = self.number("Q")
        if count > 1 << 16:
            raise InputError(f"a name at byte {self.at} has {count} bytes, expected at most 65536")
        return self.take(count).decode("utf-8", "replace")

    def value(self, kind: int, key: str) -> Any:
        """A fact; of long texts and of arrays that are no short list of numbers only that they are there."""
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _TEXT:
            count = self.number("Q")
            if count <= 1 << 16:
                return self.take(count).decode("utf-8", "replace")
            return self.skip(count)
        if kind != _ARRAY:
            raise InputError(f"the fact {key[:80]!r} has the type {kind}, which is not known")
        inner, count = self.number("I"), self.number("Q")
        if inner in _NUMBERS and count <= KEPT:
            return list(
                struct.unpack(f"<{count}{_NUMBERS[inner]}", self.take(count * struct.calcsize("<" + _NUMBERS[inner])))
            )
        if inner in _NUMBERS:
            return self.skip(count * struct.calcsize("<" + _NUMBERS[inner]))
        if inner != _TEXT:
            raise InputError(f"the fact {key[:80]!r} is an array of type {inner}, expected numbers or texts")
        self.items += count
        if self.items > MAX_ITEMS or count > self.left() // 8:
            raise InputError(
                f"the fact {key[:80]!r} is an array of {count} texts, more than expected or than the file can hold"
            )
        for _ in range(count):
            self.skip(self.number("Q"))
        return None
