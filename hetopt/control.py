"""What a running method is told and what it tells: limits, seed, the incumbent, the bound, the events.

One :class:`Control` lives for one solve. Adapters and algorithms ask it whether to stop and report what they find; the
best plan and the best bound are kept here, so that an exception, a limit or Ctrl-C loses nothing. Values are in the
question's own sense (``"min"`` or ``"max"``).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from hetopt import clock

__all__ = ["Control", "Event"]

NOISE = 1e-9  # relative difference that floating-point sums may make


@dataclass(frozen=True)
class Event:
    """A moment of a run: seconds since the start, best value and best bound so far (None while unknown)."""

    seconds: float
    objective: float | None
    bound: float | None


@dataclass
class Control:
    """Limits and state of one run.

    Attributes
    ----------
    sense
        ``"min"`` or ``"max"``.
    time_limit
        Seconds of :mod:`hetopt.clock` from ``started``; None means no limit.
    relative_gap
        The run may end when |value - bound| <= relative_gap * |value| (or they differ by rounding noise).
    threads, seed
        Threads a method may use, and the seed of its random numbers.
    memory_limit
        Bytes a solver may take, where it can be told; None means no limit.
    judge
        Called with each plan reported, returns its value recomputed from the instance, or raises ValueError when the plan
        breaks a constraint; None trusts the reporter (only for use without an instance).
    on_event
        Called after each improvement.
    """

    sense: Literal["min", "max"] = "min"
    time_limit: float | None = None
    relative_gap: float = 0.0
    threads: int = 1
    seed: int = 0
    memory_limit: int | None = None
    judge: Callable[[Any], float] | None = None
    on_event: Callable[[Event], None] | None = None
    started: float = field(default_factory=clock.now)
    plan: Any = None
    value: float | None = None
    plan_from: str | None = None
    bound: float | None = None
    bound_proof: str | None = None
    bound_from: str | None = None
    certificate: dict[str, Any] | None = None
    events: list[Event] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    method: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)
    deadline: float | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since the run started."""
        return clock.now() - self.started

    @property
    def remaining(self) -> float:
        """Seconds left until the limit (or the current step's own deadline); ``inf`` without one."""
        ends = [self.started + self.time_limit] if self.time_limit is not None else []
        if self.deadline is not None:
            ends.append(self.deadline)
        return min(ends) - clock.now() if ends else float("inf")

    def should_stop(self) -> bool:
        """Whether the method should return now: limit reached, interrupted, or the gap asked for is met."""
        return self.cancelled.is_set() or self.remaining <= 0 or self.closed

    def cancel(self) -> None:
        """Ask the run to end at the next chance; safe to call from a signal handler."""
        self.cancelled.set()

    @property
    def closed(self) -> bool:
        """Whether value and bound meet within the gap asked for."""
        if self.value is None or self.bound is None:
            return False
        distance = self.value - self.bound if self.sense == "min" else self.bound - self.value
        return distance <= (self.relative_gap + NOISE) * abs(self.value)

    def better(self, value: float, than: float | None) -> bool:
        """Whether ``value`` is a strictly better objective than ``than`` (anything is better than None)."""
        return than is None or (value < than if self.sense == "min" else value > than)

    def report_plan(self, plan: Any) -> bool:
        """Offer a plan; it is judged, kept when it is the best so far, and True is returned when it was kept."""
        try:
            value = self.judge(plan) if self.judge else float(plan.value)
        except ValueError as error:
            self.rejected.append(f"{self.method}: {error}")
            return False
        if not self.better(value, self.value):
            return False
        self.plan, self.value, self.plan_from = plan, value, self.method
        self._tell()
        return True

    def report_bound(self, bound: float, proof: str, certificate: dict[str, Any] | None = None) -> bool:
        """Offer a bound with its proof (``"replayed"``, ``"algorithm"`` or ``"solver"``); kept when it is the best so far.

        Between bounds that differ by rounding noise only, the stronger proof wins.
        """
        rank = {"solver": 0, "algorithm": 1, "replayed": 2}
        if not math.isfinite(bound):
            return False
        if self.bound is not None:
            gain = bound - self.bound if self.sense == "min" else self.bound - bound
            stronger = rank[proof] - rank.get(self.bound_proof or "", -1)
            noise = NOISE * max(abs(bound), abs(self.bound))
            if not (gain > (0.0 if stronger >= 0 else noise) or (stronger > 0 and gain >= -noise)):
                return False
        self.bound, self.bound_proof, self.certificate, self.bound_from = float(bound), proof, certificate, self.method
        self._tell()
        return True

    def _tell(self) -> None:
        event = Event(self.elapsed, self.value, self.bound)
        self.events.append(event)
        if self.on_event:
            self.on_event(event)
