"""A run's limit in processor seconds instead of wall time, so that figures of a busy machine can be compared."""

from __future__ import annotations

import time

from hetopt.control import Control

__all__ = ["ProcessorControl"]

_PATIENCE = 1e4  # wall seconds that a processor second may take


class ProcessorControl(Control):
    """Ends after ``seconds`` processor seconds of this process; the events count processor seconds too.

    What is left is told to solvers that only know wall time as so much that it never ends them; they are stopped when the
    processor time is used up.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.began, self.step_end = seconds, time.process_time(), float("inf")
        super().__init__()

    @property
    def elapsed(self) -> float:
        """Processor seconds since the start."""
        return time.process_time() - self.began

    @property
    def remaining(self) -> float:
        """Wall seconds that the rest of the processor time, of the step's share of it, may take at most."""
        return (min(self.seconds, self.step_end) - self.elapsed) * _PATIENCE

    @property  # type: ignore[override]
    def deadline(self) -> float | None:
        """Wall moment at which the present step would have used its share, None without one."""
        return None if self.step_end == float("inf") else time.monotonic() + (self.step_end - self.elapsed) * _PATIENCE

    @deadline.setter
    def deadline(self, moment: float | None) -> None:
        left = float("inf") if moment is None else (moment - time.monotonic()) / _PATIENCE
        self.step_end = self.elapsed + left
