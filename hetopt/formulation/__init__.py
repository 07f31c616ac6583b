"""What a problem and its methods must offer, and the generic way a linear or CP formulation is run.

A *problem* (one file under ``formulations/``) states a question: its objective, its options, which facts it uses, and an
evaluator that recomputes a plan's value and finds every broken constraint. Its *methods* answer the question: an exact
model, a relaxation (its optimum is a bound), a restriction or heuristic (its answer is a plan), an approximation (both).
Methods report plans and bounds into a :class:`~hetopt.control.Control`; the engine (:mod:`hetopt.solve`) judges them.

Nothing here knows a problem by name; :mod:`hetopt.registry` finds them.
"""

from __future__ import annotations

from hetopt.formulation.method import Method, Outcome, RunOptions
from hetopt.formulation.models import ConstraintModel, LinearFormulation, Relaxed
from hetopt.formulation.problem import Evaluation, Problem, Step
from hetopt.formulation.question import Option, Question

__all__ = [
    "ConstraintModel",
    "Evaluation",
    "LinearFormulation",
    "Method",
    "Option",
    "Outcome",
    "Problem",
    "Question",
    "Relaxed",
    "RunOptions",
    "Step",
]
