"""What the importers of text files share: the text itself, and numbers as people write them in tables."""

from __future__ import annotations

import math
import re
from pathlib import Path

from hetopt.errors import InputError
from hetopt.io.instances import load_bytes

__all__ = ["MAX_CELLS", "load_text", "number", "plain_numbers"]

MAX_BYTES = 256 << 20
MAX_CELLS = 1 << 23
"""Numbers a text table may hold (8.4 million); larger instances belong in a ``.json.gz`` file."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def load_text(source: str | Path) -> str:
    """Text of a UTF-8 file (a byte order mark is dropped); InputError when it cannot be read, is too large or no text."""
    data = load_bytes(source, limit=MAX_BYTES)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"line {line} is not UTF-8 text (byte {data[error.start]:#04x}); save the file as UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"line {line} holds a NUL byte; expected a text file")
    return text


def plain_numbers(words: list[str]) -> list[float] | None:
    """The numbers of many cells at once; None unless each is plainly a finite number >= 0, then look at them one by one."""
    try:
        values = list(map(float, words))
    except ValueError:
        return None
    # float() also takes words, digits grouped by "_" and foreign digits; a sum that is finite holds no nan and no inf.
    written = "".join(words)
    plain = written.isascii() and "_" not in written and min(values, default=0) >= 0 and math.isfinite(sum(values))
    return values if plain else None


def number(text: str) -> float | None:
    """The number that a cell states with digits, a decimal point and perhaps an exponent; None when it states none.

    Words such as ``nan`` and ``inf``, digits grouped by ``_`` or ``,`` and decimal commas state none; neither does a number
    too large for a float.
    """
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if value != float("inf") and value != float("-inf") else None
