"""Import safetensors: layers with their weight bytes, KV cache a token from the shapes, times by the roofline; headers only.

A header is a length (8 bytes, little-endian) and a JSON object of that length: ``{name: {dtype, shape, data_offsets}}``. It must
say nothing that the file contradicts: bytes by type and shape, offsets inside the file, no tensor on another. An index file
(``model.safetensors.index.json``) names files beside it, and all must be there.

KV cache: as wide as the results of the layer's key and value matrices. Where these are not stored apart, say
``--kv-bytes`` (bytes a token and layer; ``import hf`` knows it from the configuration).
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io import strict
from hetopt.io.importers._devices import DEVICES
from hetopt.io.importers._layers import (
    COMMON,
    HALF,
    Decoder,
    Layers,
    Serving,
    Weight,
    chain_instance,
    experts_in,
    layers_of,
)
from hetopt.io.instances import load_bytes
from hetopt.io.kinds import Option, chosen, whole

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "safetensors"
TITLE = "Weights in safetensors: layers and KV cache, times by the roofline; reads the headers only."
SOURCE_HELP = "safetensors file, or the index (.index.json) of several."
HEADS = ("auto", "own", "tied", "none")
OPTIONS: tuple[Option, ...] = (
    *COMMON,
    Option("--kv-bytes", int, None, "Bytes of KV cache a token and layer, where the shapes do not tell."),
    Option("--experts-used", int, None, "Experts that a token uses, where layers have several."),
    Option(
        "--head", HEADS, "auto", "Whether the head has a matrix of its own, shares the embedding's, or is not there."
    ),
)

MAX_HEADER = 100 << 20  # the format's own limit
MAX_FILES = 10_000
MAX_COLONS = 1 << 21  # four a tensor
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32,
    "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
_KEY_VALUE = re.compile(r"\.(?:k_proj|v_proj|key|value|wk|wv|k_lin|v_lin)\.(?:weight|qweight)$")


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class _Index(msgspec.Struct):
    weight_map: dict[str, str]
    metadata: dict[str, Any] = {}


_texts = msgspec.json.Decoder(dict[str, msgspec.Raw])
_entry = msgspec.json.Decoder(_Entry)
_index = msgspec.json.Decoder(_Index)


def load(
    source: str | Path,
    *,
    devices: str = DEVICES.default,
    catalogue: str | None = None,
    context: int = 4096,
    batch: int = 1,
    stack: str = "",
    kv_bytes: int | None = None,
    experts_used: int | None = None,
    head: str = "auto",
) -> Instance:
    """Instance of a model, a chain of layers.

    Raises
    ------
    InputError
        A file cannot be read, its header is longer than the file or no such object, a type is not known, offsets contradict
        shapes, lie outside the file or on each other; a file of an index is missing or lacks a tensor; the head, the KV cache or
        the experts used cannot be told and are not said; an option is out of range.
    """
    chosen("--head", head, HEADS)
    path = Path(source)
    try:
        layers = layers_of(_weights(path), stack)
        decoder = Decoder(
            layers,
            _hidden(layers),
            _kv(layers, context, kv_bytes),
            *_experts(layers, experts_used),
            _tied(layers, head),
        )
        name = path.name.removesuffix(".index.json").removesuffix(".safetensors")[:200]
        return chain_instance(
            decoder, Serving(devices, catalogue, context, batch), name=name, source=f"the safetensors {path.name}"
        )
    except InputError as error:
        if str(error).startswith(("cannot read", "--")):
            raise
        raise InputError(f"{source}: {error}") from error


def _hidden(layers: Layers) -> int:
    """Width of what layers hand on: that of the embedding, else of the layers' only vector lengths."""
    wide = [weight.shape[-1] for weight in layers.front if len(weight.shape) == 2]
    wide = wide or [
        weight.shape[0] for weight in layers.layers[0] if len(weight.shape) == 1 and "norm" in weight.name.lower()
    ]
    if not wide or not 0 < wide[0] < 1 << 31:
        raise InputError("no embedding and no norm tells how wide the layers are; expected one of them")
    return wide[0]


def _kv(layers: Layers, context: int, given: int | None) -> list[int]:
    """Bytes of KV cache a token, layer by layer."""
    if given is not None:
        return [whole("--kv-bytes", given, 0, 1 << 40)] * len(layers.layers)
    found = []
    for weights in layers.layers:
        apart = [weight for weight in weights if _KEY_VALUE.search(weight.name) and len(weight.shape) == 2]
        packed = any(weight.name.endswith("qweight") for weight in apart)
        if (len(apart) != 2 or packed) and context:
            raise InputError(
                "the shapes do not tell the KV cache; say --kv-bytes (bytes a token and layer) or --context 0"
            )
        found.append(sum(weight.shape[0] for weight in apart) * HALF if len(apart) == 2 and not packed else 0)
    return found


def _experts(layers: Layers, used: int | None) -> tuple[int, int]:
    """Experts of a layer, and how many a token uses."""
    most = max(map(experts_in, layers.layers))
    if most == 1:
        return 1, 1
    if used is None:
        raise InputError(f"layers have {most} experts; say how many a token uses: --experts-used")
    return most, whole("--experts-used", used, 1, most)


def _tied(layers: Layers, head: str) -> bool:
    """Whether the head shares the embedding's matrix."""
    own = any(len(weight.shape) == 2 and min(weight.shape) > 1 for weight in layers.back)
    if head == "auto":
        if not own and layers.front:
            raise InputError("there is no matrix of a head: say --head tied (it shares the embedding's) or --head none")
        return False
    if head == "own" and not own:
        raise InputError("--head is 'own', but no matrix follows the layers; say --head tied or --head none")
    return head == "tied"


# Files ----------------------------------------------------------------------------------------------------------------


def _weights(path: Path) -> list[Weight]:
    if not path.name.endswith(".json"):
        return _header(path)
    raw = load_bytes(path, limit=MAX_HEADER)
    index = strict.decode(_index, raw)
    strict.refuse_repeated_keys(raw)
    files = sorted(set(index.weight_map.values()))
    if len(files) > MAX_FILES:
        raise InputError(f"$.weight_map names {len(files)} files, more than {MAX_FILES}")
    for name in files:
        if not name or name != Path(name).name or "\0" in name or "\\" in name:
            raise InputError(
                f"$.weight_map names the file {name[:80]!r}, expected the plain name of a file beside the index"
            )
    held = {name: {weight.name: weight for weight in _header(path.with_name(name))} for name in files}
    weights = []
    for tensor, name in index.weight_map.items():
        if tensor not in held[name]:
            raise InputError(f"$.weight_map says that {tensor[:80]!r} is in {name}, but it is not there")
        weights.append(held[name][tensor])
    total, stated = sum(weight.bytes for weight in weights), index.metadata.get("total_size")
    if stated is not None and stated != total:
        raise InputError(f"$.metadata.total_size is {str(stated)[:40]}, but the tensors have {total} bytes")
    return weights


def _header(path: Path) -> list[Weight]:
    """Tensors of a file."""
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            length = int.from_bytes(stream.read(8), "little")
            if length > min(size - 8, MAX_HEADER) or size < 10:
                room = min(size - 8, MAX_HEADER)
                raise InputError(f"{path.name} announces a header of {length} bytes, expected at most {room}")
            raw = stream.read(length)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read {str(path)!r}: {error}") from error
    if raw.count(b":") > MAX_COLONS:  # before memory is taken for them
        raise InputError(f"{path.name}: the header holds more than {MAX_COLONS // 4} tensors; split the file")
    texts = strict.decode(_texts, raw)
    strict.refuse_repeated_keys(raw)
    texts.pop("__metadata__", None)
    entries = {name: strict.decode(_entry, bytes(text), f"$[{name[:80]!r}]") for name, text in texts.items()}
    weights = [_weight(name, entry, size - 8 - length) for name, entry in entries.items()]
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        if entry.data_offsets[0] < end:
            raise InputError(f"$[{name[:80]!r}].data_offsets lies on the tensor before it; expected tensors apart")
        end = entry.data_offsets[1]
    return weights


def _weight(name: str, entry: _Entry, room: int) -> Weight:
    where, (first, last) = f"$[{name[:80]!r}]", entry.data_offsets
    if entry.dtype not in _BITS:
        raise InputError(f"{where}.dtype is {entry.dtype[:40]!r}, which is not known")
    if len(entry.shape) > 64 or any(not 0 <= size < 1 << 53 for size in entry.shape):
        raise InputError(f"{where}.shape is {str(entry.shape[:8])[:80]}, expected at most 64 whole numbers >= 0")
    bits = math.prod(entry.shape) * _BITS[entry.dtype]
    if not 0 <= first <= last <= room or bits != 8 * (last - first):
        needed = str(-(-bits // 8)) if bits < 1 << 60 else "more than 2^57"
        raise InputError(
            f"{where}.data_offsets is [{first}, {last}], expected {needed} bytes of the {room} that there are"
        )
    return Weight(name, tuple(entry.shape), last - first)
