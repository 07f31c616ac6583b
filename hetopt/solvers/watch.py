"""Run a solver in a thread while the caller's thread waits in short steps.

Native solvers keep Python from handling Ctrl-C for as long as they run. Here the solver works in a thread of its own and
the caller's thread looks up every 20 ms: it passes events on, checks the limits and the run's own stop sign, and asks the
solver to stop. A solver that does not obey within :data:`GRACE` seconds (HiGHS does not during presolve) is left behind
in its thread, and the best point it reported is the answer.

A thread left behind keeps its memory and a core until the solver returns; :func:`abandoned` counts them, so that a
program that is about to end can leave with ``os._exit`` instead of waiting for native code at interpreter shutdown.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.solvers.base import Answer, Options, SolverError, Verdict
from hetopt.solvers.quiet import release

__all__ = ["GRACE", "Watch", "abandoned", "supervise"]

GRACE = 3.0
TICK = 0.02

Item = TypeVar("Item")
Cause = Literal["time", "interrupted", "memory", "gap"]
VERDICTS: dict[str, Verdict] = {
    "time": ("limit", "time"),
    "interrupted": ("interrupted", None),
    "memory": ("limit", "memory"),
    "gap": ("limit", "gap"),
}

_left_behind: list[threading.Thread] = []


class Watch:
    """What a running solver and the thread that waits for it share.

    Attributes
    ----------
    stopped
        The solver should return; adapters poll it in the solver's callbacks.
    on_stop
        Called when ``stopped`` turns true and again until the solver returns, for solvers that are told rather than asked.
    deadline
        ``time.monotonic()`` at which the time is up; None without a limit.
    """

    def __init__(self, seconds: float | None = None, *, keep_points: bool = False) -> None:
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.stopped = False
        self.cause: Cause | None = None
        self.on_stop: Callable[[], None] | None = None
        self.best_x: NDArray[Any] | None = None
        self.best_bound: float | None = None
        self._keep_points = keep_points
        self._points: SimpleQueue[NDArray[Any]] = SimpleQueue()
        self._bounds: SimpleQueue[float] = SimpleQueue()

    @property
    def remaining(self) -> float | None:
        """Seconds left for the solver, at least 0; None without a limit."""
        return None if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)

    def incumbent(self, x: NDArray[Any]) -> None:
        """Note a better point; called by adapters from the solver's thread."""
        self.best_x = np.array(x)
        if self._keep_points:
            self._points.put(self.best_x)

    def bound(self, value: float) -> None:
        """Note a bound; called by adapters from the solver's thread. Repetitions and infinities are dropped."""
        if np.isfinite(value) and value != self.best_bound:
            self.best_bound = float(value)
            self._bounds.put(self.best_bound)

    def stop(self, cause: Cause) -> None:
        """Ask the solver to return; the first cause counts."""
        if self.cause is None:
            self.cause, self.stopped = cause, True
        self.insist()

    def insist(self) -> None:
        """Tell the solver again: the first time it may not have been ready to hear."""
        if self.stopped and self.on_stop is not None:
            self.on_stop()

    def deliver(self, options: Options) -> None:
        """Pass on what the solver noted; called in the caller's thread."""
        _drain(self._points, options.on_incumbent)
        _drain(self._bounds, options.on_bound)


def _drain(queue: SimpleQueue[Item], tell: Callable[[Item], None] | None) -> None:
    while True:
        try:
            item = queue.get_nowait()
        except Empty:
            return
        if tell is not None:
            tell(item)


def supervise(
    work: Callable[[Watch], Answer],
    options: Options,
    seconds: float | None,
    control: Control | None,
    who: tuple[str, str],
) -> Answer:
    """Run ``work`` in a thread and return its answer, or what is known when it had to be left behind.

    Parameters
    ----------
    work
        Blocks until it has an answer; looks at the :class:`Watch` it is given.
    options, control
        Where events go, and what ends the run.
    seconds
        Wall time the solver may take; None without a limit.
    who
        Name and version of the solver, for messages.

    Raises
    ------
    SolverError
        ``work`` raised; its message is kept. ``InputError`` and ``SolverError`` pass unchanged.
    """
    watch = Watch(seconds, keep_points=options.on_incumbent is not None)
    done = threading.Event()
    outcome: list[Answer] = []
    failure: list[BaseException] = []

    def target() -> None:
        try:
            outcome.append(work(watch))
        except BaseException as error:
            failure.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=target, name=f"hetopt-{who[0]}", daemon=True)
    thread.start()
    try:
        _wait(watch, done, options, control)
    except BaseException:  # an event handler raised: the solver must not run on unseen
        watch.stop("interrupted")
        done.wait(GRACE)
        raise
    finally:
        if not done.is_set():
            _left_behind.append(thread)
            release(thread.ident)
    if failure:
        error = failure[0]
        if isinstance(error, (SolverError, InputError)):
            raise error
        raise SolverError(f"{who[0]} {who[1]} failed: {type(error).__name__}: {error}") from error
    if outcome:
        return outcome[0]
    return _given_up(watch, who)


def _wait(watch: Watch, done: threading.Event, options: Options, control: Control | None) -> None:
    """Wait until the work is done or has been given up."""
    memory = _resident() if options.memory_limit is not None else None
    give_up: float | None = None
    while give_up is None or time.monotonic() < give_up:
        try:
            finished = done.wait(TICK)
            watch.deliver(options)
            if finished:
                return
            if watch.cause is None:
                cause = _cause(watch, options, control, memory)
                if cause is not None:
                    watch.stop(cause)
            if watch.cause is not None:
                give_up = give_up or time.monotonic() + GRACE
                watch.insist()
        except KeyboardInterrupt:
            if watch.cause == "interrupted":  # the second Ctrl-C: do not wait any longer
                return
            if control is not None:
                control.cancel()
            watch.stop("interrupted")


def _cause(watch: Watch, options: Options, control: Control | None, memory: int | None) -> Cause | None:
    """Why the solver should stop now, or None."""
    if watch.remaining == 0.0:
        return "time"
    if memory is not None and options.memory_limit is not None and (_resident() or 0) - memory > options.memory_limit:
        return "memory"
    if control is not None and control.should_stop():
        return "interrupted" if control.cancelled.is_set() else "gap" if control.closed else "time"
    return None


def _given_up(watch: Watch, who: tuple[str, str]) -> Answer:
    reason, limit = VERDICTS[watch.cause or "interrupted"]
    note = f"{who[0]} did not stop within {GRACE:g} s of being asked and was left behind in its thread"
    return Answer(reason, *who, "left behind", limit, watch.best_x, None, watch.best_bound, notes=(note,))


def abandoned() -> int:
    """How many solver threads that were left behind are still running."""
    _left_behind[:] = [thread for thread in _left_behind if thread.is_alive()]
    return len(_left_behind)


def _resident() -> int | None:
    """Resident memory of this process in bytes; None where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
