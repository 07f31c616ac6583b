"""Broken inputs by the thousand: mutate a valid source of an importer, and judge what the importer makes of it.

Every input follows from the importer's name, a seed and a number, so that one that fails can be made again alone. The verdict is
``instance`` (and it survives writing and reading), ``refused`` (one sentence), or a :class:`Failure`.
"""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from model_files import SOURCES, Source

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.instances import decode, encode

__all__ = ["Failure", "judge", "mutated", "prepared"]


class Failure(Exception):
    """An importer did neither give a valid instance nor a sentence."""


def prepared(kind: str, folder: Path) -> list[tuple[Source, Path]]:
    """Sources of an importer, each with the folder that holds the files beside it."""
    found = []
    for k, source in enumerate(SOURCES[kind]):
        place = folder / f"{kind}-{k}"
        place.mkdir(parents=True)
        for name, make in source.beside.items():
            (place / name).write_bytes(make())
        options = {
            key: str(place / value) if value in source.beside else value for key, value in source.options.items()
        }
        found.append((source._replace(options=options), place))
    return found


def judge(load: Callable[..., Instance], path: Path, options: Mapping[str, Any]) -> str:
    """What an importer makes of a file: ``instance`` or ``refused``.

    Raises
    ------
    Failure
        Another exception than InputError, a message that is no single short line, or an instance that is not read back as it is.
    """
    try:
        instance = load(path, **options)
        again = decode(encode(instance))
    except InputError as error:
        text = str(error)
        if not text or "\n" in text or len(text) > 1600 or "Traceback" in text:
            raise Failure(f"a message that is no sentence: {text[:300]!r}") from error
        return "refused"
    except Exception as error:
        raise Failure(f"{type(error).__name__}: {error}"[:300]) from error
    if again.digest != instance.digest:
        raise Failure("the instance is not read back as it was written")
    return "instance"


# Mutations ------------------------------------------------------------------------------------------------------------

WORDS = [
    "", "-1", "0", "1e308", "-1e308", "1e400", "5e-324", "NaN", "Infinity", "null", "true", '"x"', "[]", "{}", "1" * 400,
    "9" * 30, "18446744073709551616", "9007199254740993", "-0.0", "0x10", "1_000", "½", "\ud7ff", "\0", "1,5", "1e", "..", "∞",
    "a\nb",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, -1, 0, 1.5, 1e308, 2**53 + 1, 2**63, 2**64, 10**40, "", "x", "x" * 5000, "\u0000", "é\u202e", "a\nb", [], [[]],
    {}, {"a": 1}, [None], ["x"] * 3, [1e308] * 3, -0.0, 5e-324,
]  # fmt: skip
NUMBERS = [0, 1, 2, 127, 128, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**60, 2**63 - 1, 2**63, 2**64 - 1]


HEAD = 1500  # bytes at the start of a file that most mutations keep to: behind them weights are zeros


def mutated(kind: str, seed: int, number: int, data: bytes) -> bytes:
    """A broken (perhaps still valid) version of a source's bytes: one to three mutations."""
    draw = random.Random(f"{kind}/{seed}/{number}")
    size = len(data) if draw.random() < 0.2 else HEAD
    head, rest = data[:size], data[size:]
    if kind == "onnx" and draw.random() < 0.5:
        return _message(draw, data)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        head = draw.choice(MUTATIONS)(draw, head)
    return head + rest


def _truncated(draw: random.Random, data: bytes) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _flipped(draw: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8, 64)) if found else 0):
        found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)
    return bytes(found)


def _overwritten(draw: random.Random, data: bytes) -> bytes:
    at, size = draw.randrange(len(data) + 1), draw.choice((1, 2, 4, 8, 40))
    new = draw.choice((bytes(size), b"\xff" * size, draw.randbytes(size)))
    return data[:at] + new + data[at + size :]


def _counted(draw: random.Random, data: bytes) -> bytes:
    """A number in the machine's layout, somewhere near the start where counts are, or anywhere."""
    at = draw.randrange(min(len(data), draw.choice((32, 400, 1 << 30))) + 1)
    kind = draw.choice("IQ")
    new = struct.pack("<" + kind, draw.choice(NUMBERS) % (1 << (32 if kind == "I" else 64)))
    return data[:at] + new + data[at + len(new) :]


def _varint(draw: random.Random, data: bytes) -> bytes:
    """A number as protobuf writes it, in place of a byte."""
    at, value, new = draw.randrange(len(data) + 1), draw.choice(NUMBERS), bytearray()
    while value > 127:
        new.append(value & 127 | 128)
        value >>= 7
    return data[:at] + bytes([*new, value]) + data[at + 1 :]


def _moved(draw: random.Random, data: bytes) -> bytes:
    """A piece left out, doubled, or put elsewhere."""
    start = draw.randrange(len(data) + 1)
    piece = data[start : start + draw.choice((1, 5, 30, 300))]
    rest = data[:start] + data[start + len(piece) :]
    at = draw.randrange(len(rest) + 1)
    return draw.choice((rest, data[:at] + piece + data[at:], rest[:at] + piece + rest[at:]))


def _word(draw: random.Random, data: bytes) -> bytes:
    """Another word in place of a number or a word."""
    found = list(re.finditer(rb"-?\d[\d.eE+-]*|[A-Za-z_]+", data[: 1 << 13]))
    if not found:
        return data
    match = draw.choice(found)
    new = draw.choice(WORDS).encode("utf-8", "replace") if draw.random() < 0.8 else draw.choice(found)[0]
    return data[: match.start()] + new + data[match.end() :]


def _line(draw: random.Random, data: bytes) -> bytes:
    """A line left out, doubled or swapped with another."""
    lines = data.split(b"\n")
    i, k = draw.randrange(len(lines)), draw.randrange(len(lines))
    change = draw.randrange(3)
    if change == 0:
        del lines[i]
    elif change == 1:
        lines.insert(k, lines[i])
    else:
        lines[i], lines[k] = lines[k], lines[i]
    return b"\n".join(lines)


def _nested(draw: random.Random, data: bytes) -> bytes:
    """Brackets by the thousand, around or inside."""
    depth = draw.choice((50, 1000, 20_000))
    opening, closing = draw.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"(", b")"), (b'"', b'"')))
    at = draw.randrange(len(data) + 1)
    end = closing * depth if draw.random() < 0.7 else b""
    return draw.choice((opening * depth + data + end, data[:at] + opening * depth + b"1" + end + data[at:]))


def _json(draw: random.Random, data: bytes) -> bytes:
    """Another value, no key, another key, a key twice, somewhere in a JSON text (also behind the length of a header)."""
    start = 8 if data[8:9] == b"{" and data[:1] not in (b"{", b"[") else 0
    size = int.from_bytes(data[:8], "little") if start else len(data)
    try:
        value = json.loads(data[start : start + size])
    except (ValueError, RecursionError):
        return _overwritten(draw, data)
    places = list(_places(value))
    if not places:
        return json.dumps(draw.choice(VALUES)).encode()
    holder, key = draw.choice(places)
    change = draw.randrange(5)
    if change == 0:
        del holder[key]
    elif change == 1 and isinstance(holder, dict):
        holder[draw.choice(("x", key + "s", key[::-1], ""))] = holder.pop(key)
    elif change == 2:
        other, at = draw.choice(places)
        holder[key] = other.get(at) if isinstance(other, dict) else other[at] if at < len(other) else None
        if _contains(holder[key], holder):
            return data
    else:
        holder[key] = draw.choice(VALUES)
    text = json.dumps(value).encode()
    return struct.pack("<Q", len(text)) + text + data[start + size :] if start else text


def _message(draw: random.Random, data: bytes) -> bytes:
    """An ONNX model with another value somewhere in its message: still a message, of a model that may make no sense."""
    import onnx
    from google.protobuf import json_format

    model = onnx.load_model_from_string(data)
    text = json_format.MessageToJson(model, preserving_proto_field_name=True).encode()
    for _ in range(8):
        try:
            changed = json_format.Parse(_json(draw, text), onnx.ModelProto(), ignore_unknown_fields=True)
        except (json_format.ParseError, ValueError, TypeError, RecursionError):
            continue
        return bytes(changed.SerializeToString())
    return data


def _places(value: Any) -> Any:
    """Every holder with a key of it."""
    pending = [value]
    while pending:
        holder = pending.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            yield holder, key
            pending.append(holder[key])


def _contains(value: Any, holder: Any) -> bool:
    return value is holder or any(other is holder for other, _ in _places(value))


MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _truncated, _flipped, _overwritten, _counted, _varint, _moved, _word, _word, _line, _nested, _json, _json, _json,
)  # fmt: skip
