"""Run a CP-SAT model for a serving question: fixed seed, an effort instead of a clock, and an ear for the stop sign.

Effort is CP-SAT's deterministic time (about a second each on a common machine), so that the same model gives the same answer.
ortools is imported on the first call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

__all__ = ["SatAnswer", "solve_model"]

_TICK = 0.05  # seconds between looks at the stop sign


class SatAnswer(NamedTuple):
    """How a run ended, the value of a variable in its best solution (when there is one), and the objective's bound.

    The bound is that of a maximisation, ``inf`` until there is one.
    """

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    value: Callable[[Any], int]
    bound: float

    @property
    def found(self) -> bool:
        """Is there a solution?"""
        return self.status in ("optimal", "feasible")


def solve_model(
    model: Any,
    *,
    seed: int,
    effort: float,
    workers: int = 1,
    hint: Sequence[tuple[Any, int]] = (),
    should_stop: Callable[[], bool] = lambda: False,
) -> SatAnswer:
    """Solve within an effort.

    Parameters
    ----------
    model
        A ``CpModel``.
    effort
        Deterministic time.
    workers
        Threads; answers are the same from run to run only with one.
    hint
        Values to try first.
    """
    from ortools.sat.python import cp_model

    model.clear_hints()
    for variable, value in hint:
        model.add_hint(variable, value)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = effort
    told: list[float] = []
    solver.best_bound_callback = told.append
    done = threading.Event()

    def listen() -> None:
        while not done.wait(_TICK):
            if should_stop():
                solver.stop_search()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        status = solver.solve(model)
    finally:
        done.set()
        listener.join()
    words: dict[Any, Literal["optimal", "feasible", "infeasible", "unknown"]] = {
        cp_model.OPTIMAL: "optimal",
        cp_model.FEASIBLE: "feasible",
        cp_model.INFEASIBLE: "infeasible",
    }
    word = words.get(status, "unknown")
    # a run that ends before the search has no bound, and CP-SAT reports 0 in its place
    bound = solver.best_objective_bound if told or word in ("optimal", "feasible") else float("inf")
    return SatAnswer(word, lambda variable: int(solver.value(variable)), bound)
