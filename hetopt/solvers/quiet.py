"""Keep what native solvers print away from standard output.

HiGHS prints a banner when it is constructed, before any option can silence it, and it does so below Python. The only
cure is to point file descriptor 1 elsewhere for the moment. Python's own ``sys.stdout`` is not touched; where it writes to
descriptor 1 it is redirected with it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["quiet", "release"]

_lock = threading.Lock()
_inside: Counter[int] = Counter()  # thread -> how many blocks it is in
_saved: int | None = None


@contextmanager
def quiet(to: int | None = None) -> Iterator[int | None]:
    """Redirect file descriptor 1 while the block runs.

    Blocks may be nested and may overlap in threads: the first to enter redirects, the last to leave restores.

    Parameters
    ----------
    to
        Descriptor to write to instead, for example 2 for standard error; None discards.

    Yields
    ------
    int or None
        A descriptor of the real standard output, valid inside the outermost block (the command line writes its one JSON
        object there); None when there is no standard output.
    """
    global _saved
    me = threading.get_ident()
    with _lock:
        if not _inside:
            _saved = _redirect(to)
        _inside[me] += 1
    try:
        yield _saved
    finally:
        with _lock:
            if me in _inside:  # else it was released
                _inside[me] -= 1
                _restore_if_last()


def release(thread: int | None) -> None:
    """Take a thread (by its ``ident``) that will not come back out of its blocks, so that it cannot hold up the others."""
    with _lock:
        if thread is not None and _inside.pop(thread, None) is not None:
            _restore_if_last()


def _restore_if_last() -> None:
    """Give standard output back when no thread is in a block any more; the lock is held."""
    global _saved
    for thread in [thread for thread, depth in _inside.items() if depth == 0]:
        del _inside[thread]
    if not _inside and _saved is not None:
        _flush()
        os.dup2(_saved, 1)
        os.close(_saved)
        _saved = None


def _redirect(to: int | None) -> int | None:
    _flush()
    try:
        saved = os.dup(1)
    except OSError:  # standard output is closed: there is nothing to protect
        return None
    target = os.open(os.devnull, os.O_WRONLY) if to is None else to
    os.dup2(target, 1)
    if to is None:
        os.close(target)
    return saved


def _flush() -> None:
    with suppress(AttributeError, ValueError, OSError):
        sys.stdout.flush()
