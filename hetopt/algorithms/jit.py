"""Compile kernels with numba where it is there, run them as plain Python where it is not.

A kernel decorated with :func:`njit` gives the same answers either way; without numba it is only slower. The plain
function stays reachable as ``kernel.py_func``, so tests can compare both. Set ``HETOPT_NO_NUMBA=1`` to force the plain
path. While numba compiles, :mod:`hetopt.clock` stands still. Import this module only from ``hetopt.algorithms``: importing
numba costs half a second, and the command line must answer ``--help`` without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hetopt import clock

__all__ = ["HAVE_NUMBA", "inner", "njit"]

_numba: Any = None
if os.environ.get("HETOPT_NO_NUMBA", "") not in ("1", "true", "yes"):
    try:
        import numba
        from numba.core import event

        class _Compiling(event.Listener):  # type: ignore[misc]
            """Stops the clock, but not while a kernel is only loaded from its cache."""

            def on_start(self, event: Any) -> None:
                clock.pause()

            def on_end(self, event: Any) -> None:
                clock.resume()

        event.register("numba:compile", _Compiling())
        _numba = numba
    except Exception:  # a broken compiler (wrong llvmlite, unwritable cache) must not stop a user
        _numba = None

HAVE_NUMBA = _numba is not None


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorate a kernel; ``cache=True`` unless said otherwise, other options go to :func:`numba.njit`."""
    if function is None:
        return lambda f: njit(f, **options)
    if _numba is None:
        function.py_func = function  # type: ignore[attr-defined]
        return function
    options.setdefault("cache", True)
    return _numba.njit(function, **options)


inner = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Decorate a step that only kernels call: it cannot be called from Python, and compiles faster."""
