"""Write a file whole or not at all: into a temporary name beside it, then rename."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from hetopt.errors import InputError

__all__ = ["atomic_write", "atomically"]


@contextmanager
def atomically(path: str | Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file beside ``path``; rename it to ``path`` when the block ends well, remove it when it does not.

    A device or a pipe is written to as it is: a file in its place would be there for everybody, and for good.

    Raises
    ------
    InputError
        The folder is missing or not writable, or the disk is full; ``path`` is left as it was.
    """
    target = Path(path)
    if target.exists() and not target.is_file() and not target.is_dir():
        with _as_it_is(target, mode) as stream:
            yield stream
        return
    if target.is_symlink():  # what it leads to is written, and it stays a link
        target = Path(os.path.realpath(target))
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise InputError(f"cannot write {str(target)!r}: {error.strerror or error}; choose another place") from error
    try:
        with os.fdopen(handle, mode, **_text(mode)) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, target)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(f"cannot write {str(target)!r}: {error.strerror or error}; nothing was written") from error
        raise


@contextmanager
def _as_it_is(target: Path, mode: str) -> Iterator[IO[Any]]:
    try:
        with open(target, mode, **_text(mode)) as stream:
            yield stream
    except OSError as error:
        raise InputError(f"cannot write {str(target)!r}: {error.strerror or error}") from error


def _text(mode: str) -> dict[str, Any]:
    return {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}


def atomic_write(path: str | Path, data: bytes | str) -> None:
    """Write ``data`` to ``path`` whole or not at all."""
    with atomically(path, "w" if isinstance(data, str) else "wb") as stream:
        stream.write(data)
