"""Ask a question: :func:`solve`, :func:`bound`, :func:`compare`, and two verbs made of them.

Each finds the problem, checks what is asked, chooses the methods' steps, and leaves them to a :class:`hetopt.run.Run`, which
verifies all that comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hetopt.comparison import judged, unrefuted
from hetopt.control import Control, Event
from hetopt.errors import InputError, nearest
from hetopt.formulation import Problem, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.registry import problem_for
from hetopt.result import Result
from hetopt.run import Run
from hetopt.solution import Solution

__all__ = ["bound", "compare", "diverse", "methods_compared", "prove_again", "solve"]


def solve(
    instance: Instance,
    *,
    objective: str | None = None,
    options: Mapping[str, Any] | None = None,
    method: str = "auto",
    solver: str | None = None,
    time_limit: float | None = None,
    gap: float = 0.0,
    threads: int = 1,
    seed: int = 0,
    hint: Solution | None = None,
    memory_limit: int | None = None,
    log_file: str | None = None,
    deterministic: bool = False,
    native: Mapping[str, Any] | None = None,
    on_event: Callable[[Event], None] | None = None,
    control: Control | None = None,
) -> Result:
    """Answer the instance's question (or another one) with a verified plan and a bound.

    Parameters
    ----------
    instance
        What is to be placed.
    objective, options
        The question; by default the instance's own. ``options`` are the question's, such as ``{"contiguous": "none"}``.
    method
        ``"auto"`` (the problem's own climb), or a method's name as ``hetopt list`` shows it.
    solver
        Adapter for linear formulations; the formulation's default otherwise.
    time_limit
        Seconds of wall time; None runs until the gap is closed.
    gap
        Relative gap at which to stop; 0 asks for proof.
    threads, seed
        One thread and a fixed seed give the same plan each time.
    hint
        A plan to start from: judged first, kept if nothing better is found, never a constraint.
    memory_limit
        Bytes a solver may take, where it can be told.
    log_file, deterministic, native
        For the solver: where its log goes, work limits instead of wall time, its own options by their native names.
    on_event
        Called at each improvement.
    control
        A control made by the caller (to cancel from elsewhere); built from the limits otherwise.

    Raises
    ------
    InputError
        A question, method, solver or option that does not exist or does not fit.
    """
    problem, question = _question(instance, objective, options)
    if solver is not None:
        _known_solver(solver)
    run = Run(
        instance, question, RunOptions(solver, log_file, deterministic, dict(native or {}), hint), control=control,
        time_limit=time_limit, gap=gap, threads=threads, seed=seed, memory_limit=memory_limit, on_event=on_event,
    )  # fmt: skip
    if method == "auto":
        steps = list(problem.plan(instance, question))
        if not steps:
            reasons = "; ".join(f"{m.name}: {m.fits(instance, question)}" for m in problem.methods)
            raise InputError(f"no method of {problem.name} fits this instance ({reasons})")
        return run(steps, _quick(problem, instance, question, steps))
    return run([_asked_for(problem, instance, question, method)])


def bound(
    instance: Instance,
    *,
    objective: str | None = None,
    options: Mapping[str, Any] | None = None,
    method: str | None = None,
    time_limit: float | None = None,
    threads: int = 1,
    seed: int = 0,
    on_event: Callable[[Event], None] | None = None,
    control: Control | None = None,
) -> Result:
    """A bound on every plan's value, with its proof; from ``method`` or from all the problem's relaxations.

    Parameters are those of :func:`solve`. The Result has a plan only when a method found one on the way.
    """
    problem, question = _question(instance, objective, options)
    run = Run(instance, question, control=control, time_limit=time_limit, threads=threads, seed=seed, on_event=on_event)
    steps = [_asked_for(problem, instance, question, method)] if method else list(problem.bounds(instance, question))
    if not steps:
        raise InputError(
            f"{problem.name} has no relaxation that fits this instance; `hetopt solve` gives a bound as well"
        )
    return run(steps)


def compare(
    instance: Instance,
    *,
    objective: str | None = None,
    options: Mapping[str, Any] | None = None,
    methods: Sequence[str] | None = None,
    plans: Mapping[str, Solution] | None = None,
    time_limit: float | None = 10.0,
    gap: float = 0.0,
    threads: int = 1,
    seed: int = 0,
    on_result: Callable[[str, Result], None] | None = None,
    control: Control | None = None,
) -> dict[str, Result]:
    """Run several methods one after the other, each alone and each with the same limits; by default all that fit.

    Returns the Result of each method by name. ``on_result`` is called as each one ends; other parameters as in
    :func:`solve`. A bound that another one's verified plan beats is dropped, with a message.

    Parameters
    ----------
    plans
        Plans of your own by name, judged for the same question and returned first; one that breaks a constraint is told so in
        the ``messages`` of its Result.
    control
        To cancel from elsewhere; methods whose turn had not come are not in what is returned. It shows the method that runs.

    Raises
    ------
    InputError
        A method that does not exist or does not fit, or a plan with the name of a method.
    """
    problem, question = _question(instance, objective, options)
    names = methods_compared(instance, objective=objective, options=options, methods=methods, plans=plans or ())
    results: dict[str, Result] = {}
    for name, plan in (plans or {}).items():
        results[name] = judged(instance, question, name, plan)
        if on_result:
            on_result(name, results[name])
    for name in names:
        if control is not None and control.cancelled.is_set():
            break
        results[name] = solve(
            instance, objective=objective, options=options, method=name, time_limit=time_limit, gap=gap, threads=threads,
            seed=seed, control=_own(control, problem.sense, name),
        )  # fmt: skip
        results = unrefuted(results)
        if on_result:
            on_result(name, results[name])
    return results


def methods_compared(
    instance: Instance,
    *,
    objective: str | None = None,
    options: Mapping[str, Any] | None = None,
    methods: Sequence[str] | None = None,
    plans: Collection[str] = (),
) -> list[str]:
    """Names of the methods that :func:`compare` runs, in order; raises InputError as it does."""
    problem, question = _question(instance, objective, options)
    if methods:
        names = list(dict.fromkeys(_asked_for(problem, instance, question, name).method for name in methods))
    else:
        names = [m.name for m in problem.methods if m.fits(instance, question) is None]
    if taken := [name for name in plans if name in names]:
        raise InputError(f"the plan {taken[0]!r} has the name of a method that is compared; give it another")
    return names


def _own(control: Control | None, sense: Any, name: str) -> Control | None:
    """A control of one method in a comparison, cancelled with the caller's, which shows what the method has found so far."""
    if control is None:
        return None
    outer = control
    outer.sense, outer.method, outer.value, outer.bound = sense, name, None, None

    def show(event: Event) -> None:
        outer.value, outer.bound = event.objective, event.bound

    return Control(cancelled=outer.cancelled, on_event=show)


def diverse(instance: Instance, count: int, differ: int, **options: Any) -> list[Result]:
    """The best choice of modes, then the best that differs from those before in at least ``differ`` tasks, and so on.

    For questions with an option ``differ`` and ``tables.earlier`` (:mod:`formulations.selection.multichoice`); ``options`` go to
    :func:`solve`. Ends early when there is no further choice.

    Raises
    ------
    InputError
        The instance asks another kind of question.
    """
    problem = problem_for(instance, options.get("objective"))
    if "differ" not in {option.name for option in problem.options}:
        raise InputError(
            f"{problem.name} has no option `differ`; several choices can be asked of selection.multichoice"
        )
    found: list[Result] = []
    before = list(instance.tables.get("earlier", []))
    for _ in range(count):
        asked = replace(instance, tables={**instance.tables, "earlier": before})
        result = solve(asked, **{**options, "options": {**options.get("options", {}), "differ": differ}})
        if result.solution is None:
            break
        found.append(result)
        before = [*before, [result.solution.details["modes"][label] for label in instance.labels]]
    return found


def prove_again(
    instance: Instance, result: Result, *, time_limit: float | None = None, control: Control | None = None
) -> Result:
    """Run the method whose word a result's bound is once more, with the result's own question, threads and seed.

    What comes back is that run's own Result: its ``bound`` is as good as the claimed one, or the claim stays unconfirmed. A
    plan better than the claimed bound refutes it.

    Raises
    ------
    InputError
        The result has no bound, or its method does not exist or does not fit.
    """
    if result.bound is None:
        raise InputError("the result has no bound, so there is nothing to prove again")
    problem = problem_for(instance.with_question({}), result.problem)
    question = problem.question(instance.with_question({}), result.question)
    ran = result.run.get("options", {})
    run = Run(
        instance, question, RunOptions(ran.get("solver")), control=control, time_limit=time_limit,
        threads=ran.get("threads", 1), seed=ran.get("seed", 0),
    )  # fmt: skip
    return run([_asked_for(problem, instance, question, result.bound_method)])


def _quick(problem: Problem, instance: Instance, question: Question, steps: Sequence[Step]) -> list[Step]:
    """Heuristics, those of the steps first, then relaxations, then all steps: what gives a plan and a bound soonest."""
    fit = [m for m in problem.methods if m.kind == "heuristic" and m.fits(instance, question) is None]
    plans = sorted(fit, key=lambda method: method.name not in [step.method for step in steps])
    why = "the limit passed before there was a plan and a bound"
    return [*(Step(m.name, why) for m in plans), *problem.bounds(instance, question), *steps]


def _asked_for(problem: Problem, instance: Instance, question: Question, name: str) -> Step:
    why_not = problem.method(name).fits(instance, question)
    if why_not:
        raise InputError(f"method {name!r} of {problem.name} does not fit this instance: {why_not}")
    return Step(name, "asked for")


def _known_solver(name: str) -> None:
    from hetopt import solvers

    if name not in solvers.names():
        raise InputError(f"there is no solver {name!r}; {nearest(name, solvers.names(), what='solvers')}")


def _question(instance: Instance, objective: str | None, options: Mapping[str, Any] | None) -> tuple[Problem, Question]:
    problem = problem_for(instance, objective)
    given = dict(options or {})
    if objective is not None:
        given["objective"] = objective
    return problem, problem.question(instance, given)
