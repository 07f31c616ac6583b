"""Ways to a max-load partition without a model: the dynamic program, first plans, bounds, and the search for any sets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from formulations._jobs import jobs_of
from formulations.partition._pipeline import Pipeline, pipeline_of
from formulations.partition._stage_rules import plain_rules, unused_facts
from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance

__all__ = ["DP", "Balance", "Contiguous", "Cut", "Exchange", "MinCut", "replay_balance", "replay_maxload"]

# A state of the ideal lattice is a word of bits a class; beyond this, listing is refused and a chain of ideals is used.
IDEAL_LIMIT = 1_000_000


class DP(Method):
    """Exact dynamic program over order ideals, several device types, no table of pairs."""

    name = "dp"
    title = "dynamic program over order ideals; plan and bound also when there are too many"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Only for chains of ideals."""
        if question["contiguous"] != "ideals":
            return "it answers contiguous=ideals only"
        return plain_rules(instance, question)

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Run the program; its bound is an algorithm's word, the balance bound is replayed."""
        return _chain_of_ideals(instance, question, control, bounds=True)


class Cut(Method):
    """Classes in topological order, cut where devices are evenly loaded; nothing that has to be compiled first."""

    name = "cut"
    title = "a topological order cut evenly, a plan within a second also after a fresh installation"
    kind = "heuristic"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Memory must not depend on the stage's place."""
        return "its stages take no account of inputs in flight" if question["in_flight"] != "none" else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One plan, or none where memory is tight."""
        from hetopt.algorithms.maxload_first import first_plan

        pipeline = pipeline_of(instance, "ideals", question["transfers"])
        device = first_plan(pipeline.graph)
        if device is not None:
            control.report_plan(pipeline.solution(device))
        return Outcome(notes=unused_facts(instance, question))


class Contiguous(Method):
    """The best chain of ideals as a plan for the questions that allow more."""

    name = "contiguous"
    title = "best chain of ideals, a plan that is valid under every kind of contiguity"
    kind = "heuristic"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Where more than chains of ideals is allowed, or rules that dp does not know; transfers are then as plain as it can."""
        if question["in_flight"] != "none":
            return "its stages take no account of inputs in flight"
        if question["contiguous"] == "ideals" and plain_rules(instance, question) is None:
            return "use dp, which also proves it"
        return None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Run the program and keep only its plan."""
        return _chain_of_ideals(instance, question, control, bounds=False)


class Balance(Method):
    """Balance bound: every device equally busy, no transfers."""

    name = "balance"
    title = "balance bound by prices of device types, replayed without a solver"
    kind = "relaxation"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Best prices, then the exact value they prove."""
        _report_balance(instance, question, control)
        return Outcome()


class MinCut(Method):
    """Least load of a device that holds a class, by a minimum cut; the largest over classes."""

    name = "min-cut"
    title = "min-cut bound: the least load of a device that holds the dearest class"
    kind = "relaxation"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Loads must be sums, of both passes, on a device of their own."""
        if question["overlap"] or question["replicas"] > 1 or question["transfers"] == "direct":
            return "its cuts add compute and transfers through the host on one device a stage"
        return "it bounds the sum of passes only" if question["passes"] == "max" else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Cuts in integers that round down."""
        from hetopt.algorithms.maxload_bounds import min_cut
        from hetopt.algorithms.stagecosts import integer_costs

        costs, unit = integer_costs(pipeline_of(instance, "none").graph)
        least, _ = min_cut(costs, should_stop=control.should_stop)
        control.report_bound(least * unit, "algorithm")
        return Outcome()


class Exchange(Method):
    """Search for any sets of classes, and column generation for the proof, in turns."""

    name = "exchange"
    title = "annealing and column generation in turns, for any sets of tasks; bounds replayed"
    kind = "search"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Without contiguity, both passes together."""
        if question["contiguous"] != "none":
            return "it answers contiguous=none only"
        return "it knows the sum of passes only" if question["passes"] == "max" else plain_rules(instance, question)

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Until value and bound meet, the time is up, or nothing moves any more."""
        from hetopt.algorithms.maxload_noncontiguous import solve_noncontiguous
        from hetopt.solvers.quiet import quiet

        pipeline = pipeline_of(instance, "none")
        start = None
        if control.plan is not None and control.plan.placement is not None:
            start = pipeline.classes(control.plan)

        def better(value: float, device: np.ndarray[Any, Any]) -> None:
            control.report_plan(pipeline.solution(device))

        with quiet():
            answer = solve_noncontiguous(
                pipeline.graph,
                start=start,
                should_stop=lambda: control.cancelled.is_set() or control.remaining <= 0,
                report=better,
                seed=control.seed,
            )
        if answer.device is not None:
            better(answer.value, answer.device)
        if answer.certificate is not None:
            certificate = {"kind": "maxload", "claim": dict(answer.certificate)}
            control.report_bound(replay_maxload(instance, certificate), "replayed", certificate)
        if answer.optimal:
            # They meet as closely as a replay in 64-bit integers resolves; no later step has anything to add.
            control.relative_gap = max(control.relative_gap, 1e-7)
        return Outcome("limit", "time") if control.remaining <= 0 else Outcome()


def replay_maxload(instance: Instance, certificate: Mapping[str, Any]) -> float:
    """The bound that a stored claim proves; ValueError when it does not hold."""
    from hetopt.verify.maxload_certificates import replay

    claim = certificate.get("claim")
    if not isinstance(claim, Mapping):
        raise ValueError("the max-load certificate has no claim")
    return replay(pipeline_of(instance, "none").graph, claim)


def _chain_of_ideals(instance: Instance, question: Question, control: Control, *, bounds: bool) -> Outcome:
    from hetopt.algorithms.maxload_dp import solve_contiguous

    pipeline = pipeline_of(instance, "ideals", question["transfers"])
    if bounds:
        _report_balance(instance, question, control)

    reported = None

    def better(value: float, device: np.ndarray[Any, Any]) -> None:
        nonlocal reported
        reported = device
        control.report_plan(pipeline.solution(device))

    answer = solve_contiguous(
        pipeline.graph,
        variant=question["passes"],
        seed=control.seed,
        should_stop=lambda: control.cancelled.is_set() or control.remaining <= 0,
        report=better,
        ideal_limit=IDEAL_LIMIT,
    )
    if answer.device is not None and (reported is None or (answer.device != reported).any()):
        better(answer.value, answer.device)
    statistics = {"classes": pipeline.graph.n, "nets": len(pipeline.graph.net_weight), **answer.stats}
    if bounds and math.isfinite(answer.bound):
        control.report_bound(answer.bound, "algorithm")
    if answer.optimal or (answer.device is None and math.isinf(answer.bound)):
        if answer.device is None and bounds:
            why = str(
                answer.stats.get("reason") or "the dynamic program found no chain of ideals that fits the memories"
            )
            return Outcome("infeasible", statistics=statistics, infeasible=(why,))
        return Outcome(notes=unused_facts(instance, question) if bounds else (), statistics=statistics)
    note = answer.stats.get("reason")
    return Outcome("limit", "other", notes=(f"dp: {note}",) if note else (), statistics=statistics)


def _report_balance(instance: Instance, question: Question, control: Control) -> None:
    from hetopt.algorithms.maxload_bounds import balance

    graph = _balanced(instance, question).graph
    _, prices = balance(graph.time, graph.count)
    certificate = {"kind": "balance", "prices": prices.tolist()}
    proved = replay_balance(instance, question, certificate)
    if math.isfinite(proved):
        control.report_bound(proved, "replayed", certificate)


def _balanced(instance: Instance, question: Question) -> Pipeline:
    """Classes that the balance bound adds up: in a chain of ideals those on a common cycle share a device."""
    return pipeline_of(instance, "ideals" if question["contiguous"] == "ideals" else "none", question["transfers"])


def replay_balance(instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
    """sum_v min_t c_t p_vt / sum_t n_t c_t for prices c >= 0 of device types, rounded down.

    A device of type t with load at most T holds tasks worth at most c_t T, where a task is worth min_t c_t p_vt. It holds
    under every rule: transfers, latency and sync only add, overlap leaves compute, and r devices that share a stage have r
    times the seconds.
    """
    pipeline = _balanced(instance, question)
    prices = np.asarray(certificate.get("prices"), np.float64)
    count = np.bincount(pipeline.kind).astype(np.float64)
    if prices.shape != count.shape or not np.isfinite(prices).all() or (prices < 0).any() or not (prices > 0).any():
        raise ValueError(f"the balance certificate needs {len(count)} prices >= 0, not all 0")
    first = np.unique(pipeline.kind, return_index=True)[1]
    jobs = jobs_of(instance)
    seconds = jobs.time[:, first]
    with np.errstate(invalid="ignore"):
        worth = np.where(np.isfinite(seconds), seconds * prices, np.inf).min(axis=1)
    # A product is off by half a unit in the last place, fsum by half of one, the quotient by another: 2^-50 covers them.
    return math.fsum(worth) / math.fsum(prices * count) * (1 - 2.0**-50)
