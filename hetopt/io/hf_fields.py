"""A published ``config.json`` read strictly: fields by any of their names, of the right type and a size that can be.

A file is data that anybody may have made: what is no plain number where one is expected, a count too large to be a model's,
or a text nested too deeply is refused with the field's path. It knows no model; :mod:`hetopt.io.hf_families` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from hetopt.errors import InputError
from hetopt.io import strict
from hetopt.io.instances import load_bytes

__all__ = ["Fields", "read_fields"]

MOST_BYTES = 16 << 20
MOST_LAYERS = 4096
MOST = 1 << 26  # of a width or a vocabulary
_decoder = msgspec.json.Decoder(dict[str, Any])


class Fields:
    """One object of a config.

    Parameters
    ----------
    found
        Its fields.
    path
        Where it stands.
    usual
        What absent fields mean, as the model's configuration class has it.
    """

    def __init__(self, found: Mapping[str, Any], path: str = "$", usual: Mapping[str, Any] | None = None) -> None:
        self.found, self.path, self.usual = found, path, dict(usual or {})

    def with_usual(self, usual: Mapping[str, Any]) -> Fields:
        """The same object, with other values for absent fields."""
        return Fields(self.found, self.path, {**self.usual, **usual})

    def has(self, name: str) -> bool:
        """Whether a field is there and not null."""
        return self.found.get(name) is not None

    def get(self, *names: str) -> Any:
        """Value of the first of some fields that is there (null counts as there), else the usual one."""
        for name in names:
            if name in self.found:
                return self.found[name]
        return next((self.usual[name] for name in names if name in self.usual), None)

    def whole(self, *names: str, least: int = 1, most: int = MOST) -> int:
        """A whole number.

        Raises
        ------
        InputError
            It is missing, or no whole number from ``least`` to ``most``.
        """
        value = self.maybe(*names, least=least, most=most)
        if value is None:
            raise InputError(f"{self.path} lacks the field {names[0]!r}; expected a whole number there")
        return value

    def maybe(self, *names: str, least: int = 1, most: int = MOST) -> int | None:
        """A whole number, or None where it is null or absent; InputError as :meth:`whole`."""
        name = next((name for name in names if name in self.found), names[0])
        value = self.get(*names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            strict.refuse(f"{self.path}.{name}", value, f"a whole number from {least} to {most}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false; InputError when it is anything else."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            strict.refuse(f"{self.path}.{name}", value, "true or false")
        return bool(value)

    def word(self, name: str) -> str | None:
        """A text, None where it is absent; InputError when it is anything else."""
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            strict.refuse(f"{self.path}.{name}", value, "a text")
        return value if isinstance(value, str) else None

    def items(self, name: str, kind: type, size: int | None = None) -> list[Any] | None:
        """A list of values of one type, None where it is absent; InputError when it is anything else or has another length."""
        value = self.get(name)
        if value is None:
            return None
        good = isinstance(value, list) and all(type(item) is kind for item in value)
        if not good or (size is not None and len(value) != size):
            many = "a list" if size is None else f"a list of {size} entries"
            strict.refuse(f"{self.path}.{name}", value, f"{many}, each {'a text' if kind is str else 'a whole number'}")
        return list(value)

    def inner(self, name: str) -> Fields | None:
        """An object inside, None where it is absent; InputError when it is anything else."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            strict.refuse(f"{self.path}.{name}", value, "an object")
        return Fields(value, f"{self.path}.{name}")


def read_fields(source: str | Path) -> Fields:
    """Fields of a ``config.json``, or of the one in a folder.

    Raises
    ------
    InputError
        The file cannot be read, is no JSON object, has a key twice, or is too large or too deep for a config.
    """
    path = Path(source)
    if path.is_dir() and (path / "config.json").is_file():
        path = path / "config.json"
    data = load_bytes(path, limit=MOST_BYTES)
    try:
        found = strict.decode(_decoder, data)
        strict.refuse_repeated_keys(data)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    return Fields(found)
