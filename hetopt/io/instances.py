"""Read and write ``hetopt-instance/1`` files, plain or gzipped.

Reading is strict: whatever is wrong is an :class:`~hetopt.errors.InputError` whose message starts with the JSON path and
names the value and what was expected. Jobs are decoded one by one, so that memory stays close to the arrays' size. Files are
data: nothing in them is ever executed, and a file that would not fit into memory is refused before memory is taken.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hetopt._filling import MAX_CELLS
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io import strict
from hetopt.io.atomic import atomically
from hetopt.records import FORMAT, Device, Edge, InstanceFile, Job, Link, Mode, Task

__all__ = ["decode", "encode", "instance_schema", "load_bytes", "read", "write"]

MAX_BYTES = 4 << 30
MAX_UNPACKED = 1 << 30  # of a gzip file or a pipe, whose size is not known before it is read


class _Outline(msgspec.Struct, forbid_unknown_fields=True):
    """An instance file whose jobs are still text."""

    format: str
    devices: list[Device]
    jobs: msgspec.Raw
    name: str = ""
    description: str = ""
    source: str = ""
    links: list[Link] = msgspec.field(default_factory=list)
    tables: dict[str, Any] = msgspec.field(default_factory=dict)
    question: dict[str, Any] = msgspec.field(default_factory=dict)


class _Tag(msgspec.Struct):
    format: str | None = None
    model_type: Any = None


_NOT_HERE = {"hetopt-result/1": "; a result comes behind its instance"}


_NESTED = {"devices": Device, "links": Link, "tasks": Task, "edges": Edge, "modes": Mode}

_tag = msgspec.json.Decoder(_Tag)
_outline = msgspec.json.Decoder(_Outline)
_texts = msgspec.json.Decoder(list[msgspec.Raw])
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
    """Bytes of a file (``-``: of standard input), unpacked when gzipped; refuses more than ``limit`` before taking memory.

    Raises
    ------
    InputError
        The path is a directory, missing, unreadable, too large, or a broken gzip file.
    """
    if Path(path).is_dir():
        raise InputError(f"cannot read {str(path)!r}: it is a directory; expected a file")
    piped = str(path) == "-"
    try:
        with open(0 if piped else path, "rb", closefd=not piped) as stream:
            return _content(stream, path, limit)
    except InputError:
        raise
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        why = f"the gzip data are broken ({error}); make the file again"
        raise InputError(f"cannot read {str(path)!r}: {why}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
        raise InputError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}") from error


def _content(stream: io.BufferedReader, path: str | Path, limit: int) -> bytes:
    """Bytes of an open file, unpacked when gzipped; InputError when there are more than ``limit``."""
    facts = os.fstat(stream.fileno())
    packed = stream.peek(2)[:2] == b"\x1f\x8b"
    if packed or not stat.S_ISREG(facts.st_mode):
        limit = min(limit, MAX_UNPACKED)
    data = b""
    if not stat.S_ISREG(facts.st_mode) or facts.st_size <= limit:
        with gzip.GzipFile(fileobj=stream) if packed else stream as source:
            data = source.read(limit + 1)
        if len(data) <= limit:
            return data
    raise InputError(f"cannot read {str(path)!r}: it holds more than {limit >> 20} MiB; split it")


def decode(data: bytes | str) -> Instance:
    """Instance from the text of a file; raises InputError as :func:`read` does."""
    raw = data.encode() if isinstance(data, str) else data
    try:
        outline = strict.decode(_outline, raw, nested=_NESTED)
    except InputError:
        _refuse_other_format(raw)
        raise
    _refuse_other_format(raw, outline.format)
    whole = bytes(outline.jobs)
    strict.refuse_repeated_keys(raw.replace(whole, b"[]", 1))
    texts = strict.decode(_texts, whole, "$.jobs")
    if len(texts) * len(outline.devices) > MAX_CELLS:
        raise InputError(
            f"$.jobs times $.devices is {len(texts)} x {len(outline.devices)}, more than {MAX_CELLS} times; split the file"
        )
    return Instance.build(
        outline.devices,
        _jobs(texts),
        outline.links,
        tables=outline.tables,
        question=outline.question,
        name=outline.name,
        description=outline.description,
        source=outline.source,
    )


def _refuse_other_format(raw: bytes, tag: str | None = None) -> None:
    """Raise InputError when the tag says that a file is something else, whatever else is wrong with it."""
    if tag is None:
        try:
            found = _tag.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if found.format is None and found.model_type is not None:
            raise InputError(
                "$ is a model's configuration and no instance; `hetopt plan` takes it, and `hetopt import hf` makes an instance"
            )
        tag = found.format
    if tag is not None and tag != FORMAT:
        raise InputError(f"$.format is {tag!r}, expected {FORMAT!r}{_NOT_HERE.get(tag, '')}")


def _jobs(texts: list[msgspec.Raw]) -> Iterator[Job]:
    for j, text in enumerate(texts):
        raw, path = bytes(text), f"$.jobs[{j}]"
        job = strict.decode(_job, raw, path, _NESTED)
        strict.refuse_repeated_keys(raw, path)
        yield job


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
    """JSON Schema (2020-12) of an instance file, generated from the record types."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(InstanceFile)}
