"""Compile kernels beforehand, by answering each question's own small samples: afterwards a first solve does not wait.

What is compiled is kept in numba's cache beside the installed files (``NUMBA_CACHE_DIR`` names another place), for this machine's
processor. A kernel that small samples do not reach is still compiled at its first use.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from hetopt import clock
from hetopt.control import Control
from hetopt.formulation import Problem
from hetopt.registry import problem, problems
from hetopt.solve import solve

__all__ = ["warm"]

_SAMPLES = 3
_SECONDS = 0.2  # for a method on a sample, compiling not counted


def warm(names: Sequence[str] = (), *, cancelled: threading.Event | None = None) -> Iterator[tuple[str, float]]:
    """Compile the kernels of some questions (all by default); yields each one's name and the seconds its kernels took.

    Parameters
    ----------
    names
        Questions, as `hetopt list` shows them.
    cancelled
        Set it to stop after the method that runs.

    Raises
    ------
    InputError
        A question that does not exist.
    """
    stop = cancelled or threading.Event()
    for one in [problem(name) for name in names] or list(problems()):
        before = clock.compiled()
        _answer(one, stop)
        if stop.is_set():
            return
        yield one.name, clock.compiled() - before


def _answer(one: Problem, stop: threading.Event) -> None:
    """Each of a question's own algorithms on a few samples."""
    for seed in range(_SAMPLES):
        instance = one.sample(seed)
        question = one.question(instance)
        for method in one.methods:
            if stop.is_set():
                return
            if method.engine == "algorithm" and method.fits(instance, question) is None:
                control = Control(cancelled=stop)
                solve(instance, objective=one.name, method=method.name, time_limit=_SECONDS, control=control)
