"""One run of a question: its methods step by step, each plan judged, each bound kept with its proof, the end told.

The engine trusts nobody. Each plan that a method reports is judged by the problem's verifier before it counts; each bound
carries the word of its proof; a bound that a verified plan contradicts is thrown away with a message. Whatever happens (a
limit, Ctrl-C, a solver that dies), the best verified plan and the best bound come back in the Result. Which steps are run is
not decided here (:mod:`hetopt.solve`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hetopt import clock
from hetopt.control import Control, Event
from hetopt.errors import InputError
from hetopt.formulation import Evaluation, Method, Outcome, Problem, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.result import TOLERANCE, Result
from hetopt.solution import Solution

__all__ = ["Run"]

_MOMENT = 1.0  # seconds more for each quick method, where a limit was too short for a plan and a bound


class Run:
    """One run of some steps on one question; called once, with the steps.

    ``control`` is the caller's own (to cancel from elsewhere), or None; limits given here override the ones it has.

    Raises
    ------
    InputError
        A limit or a seed out of range.
    """

    def __init__(
        self,
        instance: Instance,
        question: Question,
        options: RunOptions | None = None,
        *,
        control: Control | None = None,
        time_limit: float | None = None,
        gap: float = 0.0,
        threads: int = 1,
        seed: int = 0,
        memory_limit: int | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        for name, value, least in (
            ("time_limit", time_limit, 0),
            ("gap", gap, 0),
            ("threads", threads, 1),
            ("seed", seed, 0),
            ("memory_limit", memory_limit, 1),
        ):
            if value is not None and not least <= value < np.inf:
                raise InputError(f"{name} is {value!r}, expected a finite number >= {least}")
        if seed >= 2**31:
            raise InputError(f"seed is {seed!r}, expected a number below 2^31")
        self.instance, self.question, self.options = instance, question, options or RunOptions()
        self.problem = question.problem
        self.control = control or Control()
        self.control.sense = self.problem.sense
        self.control.judge = self.judge
        self.control.time_limit = time_limit if time_limit is not None else self.control.time_limit
        self.control.memory_limit = memory_limit if memory_limit is not None else self.control.memory_limit
        self.control.on_event = on_event or self.control.on_event
        self.control.threads, self.control.seed = threads, seed
        self.control.relative_gap = gap
        self.cpu, self.compiled = time.process_time(), clock.compiled()
        self.messages: list[str] = list(_unused_facts(self.problem, instance))
        self.statistics: dict[str, Any] = {}

    def judge(self, plan: Solution) -> float:
        """Value of a plan, recomputed; ValueError with the first violation when it breaks a constraint."""
        if not isinstance(plan, Solution):
            raise ValueError(f"what was reported is {type(plan).__name__}, not a Solution")
        evaluation = self.problem.judge(self.instance, self.question, plan)
        if evaluation.violations:
            raise ValueError(evaluation.violations[0])
        if not np.isfinite(evaluation.value):
            raise ValueError(f"the plan's value is {evaluation.value!r}")
        return evaluation.value

    def __call__(self, steps: Sequence[Step], quick: Sequence[Step] = ()) -> Result:
        """Climb the steps until one closes the gap or a limit is met; whatever happens, what was found comes back.

        Where the limit passes before there is a plan and a bound, ``quick`` ones have a moment more.
        """
        infeasible = self.problem.precheck(self.instance, self.question)
        if infeasible:
            return self.result(
                "infeasible", Outcome("infeasible", infeasible=infeasible), Step("precheck", "a count shows it")
            )
        if self.options.hint is not None:
            self.control.method = "hint"
            if not self.control.report_plan(self.options.hint):
                self.messages.append(f"the hint is no valid plan and is not used: {self.control.rejected[-1]}")
                self.options = replace(self.options, hint=None)
        reason, last, step = "finished", Outcome(), steps[0]
        for number, step in enumerate(steps):
            self.control.method = step.method
            left = self.control.remaining
            self.control.deadline = (
                clock.now() + left * step.share if number + 1 < len(steps) and left < float("inf") else None
            )
            reason, last = self.step(step)
            self.control.deadline = None
            self.drop_contradicted_bound()
            if reason in ("infeasible", "interrupted") or self.control.closed or self.control.remaining <= 0:
                break  # after a failure the next step is tried all the same
        if self.control.cancelled.is_set():
            reason = "interrupted"
        elif reason not in ("error", "infeasible") and not self.control.closed and self.control.remaining <= 0:
            reason, last = "limit", Outcome("limit", "time", last.solver, last.notes, last.statistics)
            self.stretch(quick)
        if (
            reason == "finished"
            and not last.notes
            and self.problem.method(step.method).kind == "exact"
            and self.apart()
        ):
            self.messages.append(
                f"{step.method} is through, and its rounding leaves value and bound apart: the numbers of this instance lie too "
                "many orders of magnitude from each other for it"
            )
        if reason == "infeasible" and self.control.plan is not None:
            self.messages.append(
                f"{step.method} said that no plan exists, but a verified plan does; its word is discarded"
            )
            reason = "error"
        return self.result(reason, last, step)

    def apart(self) -> bool:
        """Whether there are a plan and a bound that do not meet."""
        control = self.control
        if control.value is None or control.bound is None or control.closed:
            return False
        return abs(control.value - control.bound) > TOLERANCE * abs(control.value)

    def stretch(self, quick: Sequence[Step]) -> None:
        """A plan and a bound even where the limit was too short for them: each quick method has a second for what lacks."""
        limit = self.control.time_limit
        if not limit or self.options.deterministic:  # a moment more by the clock would not be the same each time
            return
        for step in quick:
            kind, control = self.problem.method(step.method).kind, self.control
            lacks = (control.plan is None and kind != "relaxation") or (control.bound is None and kind != "heuristic")
            if lacks and not control.cancelled.is_set():
                self.control.method, self.control.time_limit = step.method, self.control.elapsed + _MOMENT
                self.step(step)
                self.drop_contradicted_bound()
        self.control.time_limit = limit
        if self.control.elapsed > limit + _MOMENT:
            self.messages.append(
                f"the limit of {limit:g} s passed before there was a plan and a bound, and was stretched"
            )

    def step(self, step: Step) -> tuple[str, Outcome]:
        """Run one method; a failure becomes a message, and what was found before stays."""
        from hetopt.solvers.base import SolverError

        method = self.problem.method(step.method)
        before = len(self.control.rejected)
        self.tell_unused(method)
        limits = self.control.time_limit, self.control.deadline
        options = self.options
        if options.deterministic and limits[0] is not None and method.engine != "algorithm":
            # The solver counts its work instead of reading the clock, so the clock must not stop it either.
            options = replace(options, work_limit=limits[0] * step.share)
            self.control.time_limit = self.control.deadline = None
        try:
            outcome = method.run(self.instance, self.question, self.control, options)
        except KeyboardInterrupt:
            self.control.cancel()
            outcome = Outcome("interrupted")
        except InputError:
            raise
        except MemoryError:
            return self.failed(f"{step.method} ran out of memory", before)
        except SolverError as error:
            return self.failed(f"{step.method}: {error}", before)
        except Exception as error:  # whatever a method does, what was found before it counts
            if os.environ.get("HETOPT_DEBUG"):
                raise
            return self.failed(f"{step.method} failed with {type(error).__name__}: {error}{_line_of(error)}", before)
        finally:
            self.control.time_limit, self.control.deadline = limits
        self.tell_rejected(before)
        self.messages += [note for note in outcome.notes if note not in self.messages]
        self.statistics.update({step.method: dict(outcome.statistics)} if outcome.statistics else {})
        if outcome.reason == "infeasible" and method.kind in ("search", "heuristic"):
            return "finished", replace(outcome, reason="finished")  # a heuristic proves nothing
        return outcome.reason, outcome

    def tell_unused(self, method: Method) -> None:
        """Options that play no part are told, not dropped in silence."""
        runner = {"linear": None, "convex": None, "cp": "CP-SAT", "algorithm": "an algorithm of its own"}[method.engine]
        solver, native = self.options.solver, self.options.native
        if runner and solver is not None and not (method.engine == "cp" and solver == "cpsat"):
            self.messages.append(f"{method.name} is run by {runner}; the solver {solver!r} is not used")
        if method.engine == "algorithm" and native:
            self.messages.append(
                f"{method.name} is run by {runner}; the native options {', '.join(native)} are not used"
            )

    def failed(self, sentence: str, before: int) -> tuple[str, Outcome]:
        self.messages.append(sentence)
        self.tell_rejected(before)
        return "error", Outcome("finished")

    def tell_rejected(self, before: int) -> None:
        for text in self.control.rejected[before:][:3]:
            self.messages.append(f"a plan was rejected by the verifier: {text}")

    def drop_contradicted_bound(self) -> None:
        """A bound that a verified plan beats is wrong: discard it and say so."""
        control = self.control
        if control.value is None or control.bound is None:
            return
        over = control.bound - control.value if control.sense == "min" else control.value - control.bound
        scale = max(abs(control.value), abs(control.bound))
        if over > TOLERANCE * scale:
            self.messages.append(
                f"the bound {control.bound:.9g} ({control.bound_proof}, {control.bound_from}) contradicts a verified plan of "
                f"value {control.value:.9g}; the bound is discarded"
            )
            control.bound = control.bound_proof = control.bound_from = control.certificate = None
        elif over > 0 and control.bound_proof == "solver":
            control.bound = control.value

    def result(self, reason: str, outcome: Outcome, step: Step) -> Result:
        control = self.control
        evaluation = Evaluation(0.0)
        if control.plan is not None:
            evaluation = self.problem.judge(self.instance, self.question, control.plan)
        decisive = control.plan_from or step.method
        compiled = clock.compiled() - self.compiled
        if compiled > 0.5:
            self.messages.append(
                f"kernels were compiled for {compiled:.0f} s, once on this machine; no limit counts that, and "
                "`hetopt warm` does it beforehand"
            )
        how = decisive if control.bound_from in (None, decisive) else f"{decisive}, bound by {control.bound_from}"
        return Result(
            problem=self.problem.name,
            question=self.question.to_json(),
            sense=self.problem.sense,
            reason=reason,  # type: ignore[arg-type]
            limit=outcome.limit if reason == "limit" else None,
            solution=control.plan,
            objective=evaluation.value if control.plan is not None else None,
            bound=control.bound,
            bound_proof=control.bound_proof or "none",  # type: ignore[arg-type]
            certificate=control.certificate,
            verified=control.plan is not None and not evaluation.violations,
            infeasible=outcome.infeasible if reason == "infeasible" else (),
            method=how,
            method_why=f"{step.method}: {step.why}",
            solver=outcome.solver,
            seconds=control.elapsed,
            cpu_seconds=time.process_time() - self.cpu,
            instance_name=self.instance.name,
            instance_digest=self.instance.digest,
            asked_gap=control.relative_gap,
            messages=tuple(self.messages),
            evaluation=evaluation.details,
            run={
                "options": {
                    "time_limit": control.time_limit,
                    "gap": control.relative_gap,
                    "threads": control.threads,
                    "seed": control.seed,
                    "solver": self.options.solver,
                    "deterministic": self.options.deterministic,
                    "native": dict(self.options.native),
                },
                "model": self.statistics,
            },
            trajectory=tuple((event.seconds, event.objective, event.bound) for event in control.events),
        )


def _line_of(error: Exception) -> str:
    """Where in a formulation of the user's own a fault was raised; empty for a fault elsewhere."""
    places = []
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).startswith("hetopt_user_"):
            places.append(f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}, line {trace.tb_lineno})")
        trace = trace.tb_next
    return places[-1] if places else ""


def _unused_facts(problem: Problem, instance: Instance) -> list[str]:
    """A sentence that lists the facts in the file which the question does not read; empty when it reads them all."""
    c = instance.columns
    present = {
        "edges": len(instance.edges) > 0,
        "memory": bool((instance.memory > 0).any()) and bool(np.isfinite(instance.capacity).any()),
        "group": bool((instance.group >= 0).any()),
        "weight": bool((c.weight != 1).any()),
        "release": bool((c.release > 0).any()),
        "due": bool(np.isfinite(c.due).any()),
        "deadline": bool(np.isfinite(c.deadline).any()),
        "period": bool(np.isfinite(c.period).any()),
        "backward": bool(instance.backward.any()),
        "cost": c.cost is not None,
        "energy": c.energy is not None,
        "modes": bool(c.modes),
        "available_from": bool(instance.available_from.any()),
        "max_tasks": any(device.max_tasks is not None for device in instance.devices),
        "slots": any(device.slots > 1 for device in instance.devices),
        **{f"tables.{name}": True for name in instance.tables},
    }
    unused = [name for name, there in present.items() if there and name not in problem.uses]
    if not unused:
        return []
    return [f"the file also holds {', '.join(unused)}, which the question {problem.name} does not use"]
