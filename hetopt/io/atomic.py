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

    Raises
    ------
    InputError
        The folder is missing or not writable, or the disk is full; ``path`` is left as it was.
    """
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise InputError(f"cannot write {str(target)!r}: {error.strerror or error}; choose another place") from error
    try:
        text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
        with os.fdopen(handle, mode, **text) as stream:  # type: ignore[call-overload]
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


def atomic_write(path: str | Path, data: bytes | str) -> None:
    """Write ``data`` to ``path`` whole or not at all."""
    with atomically(path, "w" if isinstance(data, str) else "wb") as stream:
        stream.write(data)
