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
        super().__init__()
        self.seconds, self.began = seconds, time.process_time()

    @property
    def elapsed(self) -> float:
        """Processor seconds since the start."""
        return time.process_time() - self.began

    @property
    def remaining(self) -> float:
        """Wall seconds that the rest of the processor time may take at most."""
        return (self.seconds - self.elapsed) * _PATIENCE
