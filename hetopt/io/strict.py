"""Strict JSON: decode into a record type, and say what is wrong in one sentence with path, value and expectation.

What it adds to the decoder: a path that starts with ``$``, the value found there, the nearest known key, and that no object
has a key twice (a decoder would silently take the last). What it is not: it knows no format; callers bring the types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from hetopt.errors import InputError, nearest

__all__ = ["decode", "explain", "refuse", "refuse_repeated_keys"]

T = TypeVar("T")

_FLAT_KEY = re.compile(rb'"([^"\\]*)"\s*:')
_WORDS = (b"NaN", b"Infinity", b"-Infinity")
_NOTHING = object()


def decode(
    decoder: msgspec.json.Decoder[T], raw: bytes, prefix: str = "$", nested: Mapping[str, type] | None = None
) -> T:
    """Value of a JSON text, in the decoder's type.

    Parameters
    ----------
    decoder
        Its type says what is allowed.
    raw
        The text; need not be a whole file.
    prefix
        JSON path of the text in its file.
    nested
        Record type of the entries of each list of records, by the list's key: to name the known keys beside an unknown one.

    Raises
    ------
    InputError
        The text is not JSON or not of the type.
    """
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(explain(raw, error, prefix, decoder.type, nested or {})) from error


def refuse_repeated_keys(raw: bytes, prefix: str = "$") -> None:
    """Raise InputError when an object in a text has a key twice; the text must be valid JSON.

    One scan for the keys where there is one object with plain keys (a job in a list of many); a parse otherwise.
    """
    if raw.count(b"{") == 1 and b"\\" not in raw:
        keys = _FLAT_KEY.findall(raw)
        if len(set(keys)) == len(keys):
            return
    try:
        json.loads(raw, object_pairs_hook=_once)
    except _Repeated:
        path, key = _repeated_in(json.loads(raw, object_pairs_hook=_Pairs))
        raise InputError(f"{prefix}{path} has the key {key!r} twice; expected each key once") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{prefix} is nested too deeply or holds a number too long; expected plain data") from error


class _Repeated(Exception):
    pass


class _Pairs(list[tuple[str, Any]]):
    """An object as its pairs of key and value, told apart from a list."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Repeated
    return found


def _repeated_in(value: Any, path: str = "") -> tuple[str, str]:
    """Path and key of the first repetition, depth first; ("", "") when there is none."""
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, _ in value:
            if key in seen:
                return path, key
            seen.add(key)
    steps: Iterable[tuple[str, Any]] = ()
    if isinstance(value, _Pairs):
        steps = ((f"{path}.{key}", part) for key, part in value)
    elif isinstance(value, list):
        steps = ((f"{path}[{k}]", part) for k, part in enumerate(value))
    return next((found for at, part in steps if (found := _repeated_in(part, at))[1]), ("", ""))


# What was wrong, in one sentence --------------------------------------------------------------------------------------


def explain(raw: bytes, error: Exception, prefix: str, top: Any, nested: Mapping[str, type]) -> str:
    """One sentence for a decoding error: path, value, expectation. Parameters as in :func:`decode`."""
    text = str(error)
    if isinstance(error, RecursionError):
        return f"{prefix} is nested too deeply; expected plain records"
    if not isinstance(error, msgspec.ValidationError):
        return _not_json(raw, text, prefix)
    where = re.search(r" - at `\$?(.*)`$", text)
    path = where[1] if where else ""
    what = text[: where.start()] if where else text
    unknown = re.search(r"unknown field `(.*)`", what)
    if unknown:
        kind = next((nested[key] for key in reversed(re.findall(r"[A-Za-z_]+", path)) if key in nested), top)
        fields = [field.encode_name for field in msgspec.structs.fields(kind)]
        return f"{prefix}{path} has the unknown key {unknown[1]!r}; {nearest(unknown[1], fields, what='the keys')}"
    missing = re.search(r"missing required field `(.*)`", what)
    if missing:
        return f"{prefix}{path} lacks the key {missing[1]!r}; expected it there"
    path, value = _find(raw, path)
    expected = what[0].lower() + what[1:].replace("`", "")
    # The decoder speaks of the first member of a union and, for integers, of >= 1 where > 0 is meant.
    expected = re.sub(r"(int|float) (>=|<=|>) ", r"a number \2 ", expected).replace("number >= 1", "number > 0")
    shown = ":" if value is _NOTHING else f" is {_short(value)},"
    return f"{prefix}{path}{shown} {expected}"


def _not_json(raw: bytes, text: str, prefix: str) -> str:
    if not raw.strip():
        return f"{prefix} is not JSON: the text is empty"
    if raw.startswith(b"\xef\xbb\xbf"):
        return f"{prefix} is not JSON: the text starts with a byte order mark; save it as UTF-8 without one"
    if "truncated" in text:
        return f"{prefix} is not JSON: the text ends too early (after {len(raw)} bytes); is the file cut off?"
    bad = re.search(r"\(byte (\d+)\)", text)
    if not bad:
        return f"{prefix} is not JSON: {text[0].lower()}{text[1:]}"
    at = int(bad[1])
    line, column = raw.count(b"\n", 0, at) + 1, at - raw.rfind(b"\n", 0, at)
    for word in _WORDS:
        if word in (raw[at : at + len(word)], raw[at - 1 : at - 1 + len(word)]):
            return f"{prefix}: line {line} holds {word.decode()}, which JSON does not have; write null for none"
    return f"{prefix} is not JSON: invalid text in line {line}, column {column}"


def _find(raw: bytes, path: str) -> tuple[str, Any]:
    """Value at a path of the decoder's; ``[...]`` (some entry of a map) becomes the first entry that is no number >= 0."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return path, _NOTHING
    shown = ""
    for name, index, some in re.findall(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])", path):
        try:
            key = _odd_entry(value) if some else name or int(index)
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return path, _NOTHING
        shown += f".{key}" if isinstance(key, str) else f"[{key}]"
    return shown, value


def _odd_entry(value: Any) -> str:
    if not isinstance(value, dict):
        raise TypeError
    for key, entry in value.items():
        number = isinstance(entry, (int, float)) and not isinstance(entry, bool)
        if entry is not None and not (number and entry >= 0):
            return str(key)
    raise KeyError


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def refuse(path: str, value: Any, expected: str) -> NoReturn:
    """Raise the InputError of a value that is wrong where it stands."""
    raise InputError(f"{path} is {_short(value)}, expected {expected}")
