"""Read and write ``hetopt-instance/1`` files, plain or gzipped.

Reading is strict: whatever is wrong is an :class:`~hetopt.errors.InputError` whose message starts with the JSON path and
names the value and what was expected. Jobs are decoded one by one, so that memory stays close to the arrays' size. Files are
data: nothing in them is ever executed, and a file that would not fit into memory is refused before memory is taken.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hetopt.errors import InputError, nearest
from hetopt.instance import Instance
from hetopt.io.atomic import atomically
from hetopt.records import FORMAT, Device, Edge, InstanceFile, Job, Link, Mode, Task

__all__ = ["decode", "encode", "instance_schema", "load_bytes", "read", "write"]

MAX_BYTES = 4 << 30
MAX_CELLS = 1 << 30


class _Outline(msgspec.Struct, forbid_unknown_fields=True):
    """An instance file whose jobs are still text."""

    format: str
    devices: list[Device]
    jobs: list[msgspec.Raw]
    name: str = ""
    description: str = ""
    source: str = ""
    links: list[Link] = msgspec.field(default_factory=list)
    tables: dict[str, Any] = msgspec.field(default_factory=dict)
    question: dict[str, Any] = msgspec.field(default_factory=dict)


_outline = msgspec.json.Decoder(_Outline)
_job = msgspec.json.Decoder(Job)


def read(path: str | Path) -> Instance:
    """Read an instance file (``.json`` or ``.json.gz``).

    Raises
    ------
    InputError
        The file cannot be read, is not JSON, has another format tag, or breaks a rule of the format.
    """
    try:
        return decode(load_bytes(path))
    except InputError as error:
        if str(error).startswith("cannot read"):
            raise
        raise InputError(f"{path}: {error}") from error


def load_bytes(path: str | Path, *, limit: int = MAX_BYTES) -> bytes:
    """Bytes of a file, unpacked when it is gzipped; refuses more than ``limit`` bytes before taking the memory.

    Raises
    ------
    InputError
        The path is a directory, missing, unreadable, too large, or a broken gzip file.
    """
    place = Path(path)
    try:
        if place.is_dir():
            raise InputError(f"cannot read {str(path)!r}: it is a directory; expected a file")
        with place.open("rb") as stream:
            head = stream.read(2)
            stream.seek(0)
            if head == b"\x1f\x8b":
                with gzip.GzipFile(fileobj=stream) as packed:
                    data = packed.read(limit + 1)
            else:
                data = stream.read(limit + 1)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise InputError(
            f"cannot read {str(path)!r}: the gzip data are broken ({error}); make the file again"
        ) from error
    if len(data) > limit:
        raise InputError(f"cannot read {str(path)!r}: it holds more than {limit >> 20} MiB; split it")
    return data


def decode(data: bytes | str) -> Instance:
    """Instance from the text of a file; raises InputError as :func:`read` does."""
    raw = data.encode() if isinstance(data, str) else data
    try:
        outline = _outline.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(_explain(raw, error)) from error
    if outline.format != FORMAT:
        raise InputError(f"$.format is {outline.format!r}, expected {FORMAT!r}")
    if len(outline.jobs) * max(1, len(outline.devices)) > MAX_CELLS:
        raise InputError(
            f"$.jobs times $.devices is {len(outline.jobs)} x {len(outline.devices)}, more than {MAX_CELLS} times; split the file"
        )
    return Instance.build(
        outline.devices,
        _jobs(outline.jobs),
        outline.links,
        tables=outline.tables,
        question=outline.question,
        name=outline.name,
        description=outline.description,
        source=outline.source,
    )


def _jobs(texts: list[msgspec.Raw]) -> Iterator[Job]:
    for j, text in enumerate(texts):
        try:
            yield _job.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(_explain(bytes(text), error, f"$.jobs[{j}]", Job)) from error


def write(instance: Instance, path: str | Path) -> None:
    """Write an instance whole or not at all; gzipped when the name ends in ``.gz``."""
    with atomically(path) as stream:
        if str(path).endswith(".gz"):
            with gzip.GzipFile(fileobj=stream, mode="wb", mtime=0, filename="") as packed:
                _write(instance, packed)
        else:
            _write(instance, stream)


def encode(instance: Instance) -> bytes:
    """Text of an instance file in canonical form: fixed key order, defaults left out, a job a line."""
    buffer = io.BytesIO()
    _write(instance, buffer)
    return buffer.getvalue()


def _write(instance: Instance, stream: Any) -> None:
    put = msgspec.json.Encoder().encode
    stream.write(b'{"format":' + put(FORMAT))
    for key in ("name", "description", "source"):
        if getattr(instance, key):
            stream.write(b',\n"%s":' % key.encode() + put(getattr(instance, key)))
    stream.write(b',\n"devices":[\n' + b",\n".join(map(put, instance.devices)) + b"]")
    if instance.links:
        stream.write(b',\n"links":[\n' + b",\n".join(map(put, instance.links)) + b"]")
    stream.write(b',\n"jobs":[')
    for j, job in enumerate(instance.jobs()):
        stream.write((b",\n" if j else b"\n") + put(job))
    stream.write(b"]")
    for key in ("tables", "question"):
        if getattr(instance, key):
            stream.write(b',\n"%s":' % key.encode() + put(getattr(instance, key)))
    stream.write(b"}\n")


def instance_schema() -> dict[str, Any]:
    """JSON Schema of an instance file, generated from the record types."""
    return msgspec.json.schema(InstanceFile)


# What was wrong, in one sentence --------------------------------------------------------------------------------------

_KNOWN = {
    "devices": Device,
    "links": Link,
    "jobs": Job,
    "tasks": Task,
    "edges": Edge,
    "modes": Mode,
}


def _explain(raw: bytes, error: Exception, prefix: str = "$", top: type = InstanceFile) -> str:
    """One sentence for a decoding error: path, value, expectation."""
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        bad = re.search(r"\(byte (\d+)\)", text)
        if bad:
            at = int(bad[1])
            for word in (b"NaN", b"Infinity", b"-Infinity"):
                if raw[at : at + len(word)] == word or raw[at - 1 : at - 1 + len(word)] == word:
                    line = raw.count(b"\n", 0, at) + 1
                    return f"{prefix}: line {line} holds {word.decode()}, which JSON does not have; write null for none"
            line, column = raw.count(b"\n", 0, at) + 1, at - raw.rfind(b"\n", 0, at)
            return f"{prefix} is not JSON: invalid text in line {line}, column {column}"
        if "truncated" in text:
            return f"{prefix} is not JSON: the text ends too early (after {len(raw)} bytes); is the file cut off?"
        if isinstance(error, RecursionError):
            return f"{prefix} is nested too deeply; expected an instance file"
        return f"{prefix} is not JSON: {text}"
    where = re.search(r" - at `\$?(.*)`$", text)
    path = where[1] if where else ""
    what = text[: where.start()] if where else text
    unknown = re.search(r"unknown field `(.*)`", what)
    if unknown:
        kind = next((_KNOWN[key] for key in reversed(re.findall(r"[a-z_]+", path)) if key in _KNOWN), top)
        fields = [f.encode_name for f in msgspec.structs.fields(kind)]
        return f"{prefix}{path} has the unknown key {unknown[1]!r}; {nearest(unknown[1], fields, what='the keys')}"
    missing = re.search(r"missing required field `(.*)`", what)
    if missing:
        return f"{prefix}{path} lacks the key {missing[1]!r}; expected it there"
    path, value = _find(raw, path)
    expected = what[0].lower() + what[1:].replace("`", "")
    shown = "" if value is _NOTHING else f" is {_short(value)}:"
    return f"{prefix}{path}{shown} {expected}"


_NOTHING = object()


def _find(raw: bytes, path: str) -> tuple[str, Any]:
    """Value at a path of msgspec's; ``[...]`` (some entry of a map) is resolved to the first entry that is no number."""
    try:
        value = json.loads(raw)
    except ValueError:
        return path, _NOTHING
    shown = ""
    for name, index, some in re.findall(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])", path):
        try:
            if some:
                key = next(k for k, v in value.items() if not (v is None or (isinstance(v, (int, float)) and v >= 0)))
            else:
                key = name or int(index)
            value = value[key]
        except (KeyError, IndexError, TypeError, StopIteration, AttributeError):
            return path, _NOTHING
        shown += f".{key}" if isinstance(key, str) else f"[{key}]"
    return shown, value


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
