"""Seconds that count against a time limit: wall time, but for what compiling kernels takes.

Kernels are compiled the first time they are called on a machine (:mod:`hetopt.algorithms.jit`), which takes seconds to a minute
and cannot be interrupted. A limit that ran on meanwhile would end the first solve after an installation before its search began;
so this clock stands still. :func:`hetopt.solve` says how long that was, and ``hetopt warm`` compiles everything beforehand.
"""

from __future__ import annotations

import time

__all__ = ["compiled", "compiling", "now", "pause", "resume"]

_taken = 0.0
_since: float | None = None
_depth = 0


def now() -> float:
    """Seconds of a steady clock that stands still while kernels are compiled."""
    time_now = time.monotonic()
    since = _since
    return (time_now if since is None else min(since, time_now)) - _taken


def compiled() -> float:
    """Seconds that this process has compiled for."""
    since = _since
    return _taken + (0.0 if since is None else time.monotonic() - since)


def compiling() -> bool:
    """Whether kernels are being compiled now."""
    return _depth > 0


def pause() -> None:
    """Compiling begins; calls may be nested, in one thread at a time."""
    global _depth, _since
    _depth += 1
    if _depth == 1:
        _since = time.monotonic()


def resume() -> None:
    """Compiling ends."""
    global _depth, _since, _taken
    _depth -= 1
    if _depth == 0 and _since is not None:
        _taken, _since = _taken + time.monotonic() - _since, None
