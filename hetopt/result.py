"""How a run ended: why it stopped x which limit x plan or None x objective or None x bound or None.

Nothing here is a solver's verdict. ``status`` is derived: "optimal" needs a verified plan and a bound that meet within the
stated tolerance, whatever a solver said. Unknown is None, never 0, inf or -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hetopt.control import NOISE
from hetopt.solution import Solution

__all__ = ["RESULT_FORMAT", "TOLERANCE", "Result", "Status"]

RESULT_FORMAT = "hetopt-result/1"
TOLERANCE = 1e-6

Status = Literal["optimal", "feasible", "infeasible", "unknown", "error"]
Reason = Literal["finished", "infeasible", "limit", "interrupted", "error"]
Proof = Literal["replayed", "algorithm", "solver", "none"]


@dataclass(frozen=True)
class Result:
    """The end of one run.

    Attributes
    ----------
    problem
        Name of the problem that was solved, such as ``"assignment.makespan"``.
    question
        Objective and options in force.
    sense
        ``"min"`` or ``"max"``.
    reason, limit
        Why the run stopped, and at which limit.
    solution, objective
        The best plan and its value recomputed from the instance by the verifier; None when there is none.
    bound, bound_proof, certificate
        A bound on every plan's value; how it is proved (``replayed`` without a solver, by an exact ``algorithm``, the
        ``solver``'s word, or ``none``), and the data for the replay.
    verified
        Whether the verifier accepted the plan.
    infeasible
        Sentences that say why no plan exists, the decisive one first.
    method, method_why, solver
        What ran last to effect, why it was chosen, and by which solver.
    seconds, cpu_seconds
        Wall and processor time of the whole run.
    instance_name, instance_digest
        What was solved.
    asked_gap
        Relative gap at which the run was told to stop.
    tolerance
        Relative gap up to which value and bound are said to meet; at most :data:`TOLERANCE` counts.
    messages
        Warnings and errors, one sentence each.
    evaluation
        Details from the verifier, such as the load of each device.
    run
        Options, versions, machine and model statistics.
    trajectory
        (seconds, objective, bound) at each improvement.
    """

    problem: str
    question: Mapping[str, Any]
    sense: Literal["min", "max"]
    reason: Reason
    limit: str | None = None
    solution: Solution | None = None
    objective: float | None = None
    bound: float | None = None
    bound_proof: Proof = "none"
    certificate: Mapping[str, Any] | None = None
    verified: bool = False
    infeasible: tuple[str, ...] = ()
    method: str = ""
    method_why: str = ""
    solver: str | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    instance_name: str = ""
    instance_digest: str = ""
    asked_gap: float = 0.0
    tolerance: float = TOLERANCE
    messages: tuple[str, ...] = ()
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    trajectory: tuple[tuple[float, float | None, float | None], ...] = ()

    @property
    def gap(self) -> float | None:
        """Distance of objective and bound relative to the objective; None while either is unknown, 0 when they meet."""
        if self.objective is None or self.bound is None:
            return None
        distance = self.objective - self.bound if self.sense == "min" else self.bound - self.objective
        if distance <= 0:
            return 0.0
        return distance / abs(self.objective) if self.objective else None

    @property
    def bound_method(self) -> str:
        """Name of the method whose bound this is."""
        return self.method.rpartition(", bound by ")[2]

    @property
    def status(self) -> Status:
        """One word, derived: optimal, feasible, infeasible, unknown or error."""
        if self.solution is not None and self.verified:
            near = self.gap is not None and self.gap <= min(self.tolerance, TOLERANCE)
            return "optimal" if near and self.bound_proof != "none" else "feasible"
        if self.reason == "error":
            return "error"
        return "infeasible" if self.reason == "infeasible" else "unknown"

    @property
    def exit_code(self) -> int:
        """Exit code of the command line: 0, 2, 3, 4, 5 or 130 (bad input, 1, never makes a Result)."""
        if self.reason == "interrupted":
            return 130
        if self.reason == "error":
            return 5
        if self.status == "optimal":
            return 0
        if self.status == "feasible":
            asked = self.asked_gap + NOISE if self.asked_gap > 0 else 0.0
            return 0 if self.gap is not None and self.bound_proof != "none" and self.gap <= asked else 2
        return 3 if self.status == "infeasible" else 4
