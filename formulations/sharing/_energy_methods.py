"""Methods for least power beside the program over all configurations: prices with columns as they pay, a greedy rule, reasons.

Numbers of equations are those of :mod:`formulations.sharing.energy`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._configurations import Classes, Columns, classes_of, gathered, plan_of
from formulations.sharing._energy_program import program
from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.accelerators import SLACK

__all__ = ["ALL", "Greedy", "Prices", "explained"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
ALL = 300_000  # pairs up to which all configurations are written down
FEW = 20_000  # pairs up to which prices start from all of them
PER_CLASS = 3  # columns of a class and type that are added at once
PATIENCE = 10.0  # seconds for each question about a missing plan
GAIN = 1e-7  # watts, in parts of a price, below which a column is not added


class Prices(Method):
    """(5) and (3) as a linear program whose columns are found as they pay, then the program over those found."""

    name = "prices"
    title = "prices of (5) by columns that pay, then the MILP over these; bound (6) replayed over all configurations"
    kind = "search"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Every job on one accelerator."""
        several = classes_of(instance, question["caution"]).many
        return f"{int(several.sum())} jobs may have several accelerators" if several.any() else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Linear programs until no column pays; a price is at most what leaving a job out would cost in the first ones."""
        from hetopt import solvers

        classes, move = classes_of(instance, question["caution"]), float(question["move"])
        columns = gathered(_first(classes, move))
        penalty = 4.0 * max(float(columns.watts.max(initial=0.0)), 1.0)
        adapter, rounds, solver = solvers.get("highs"), 0, None
        while not control.should_stop():
            model = program(instance, classes, columns, move, out=penalty).relax()
            answer = adapter.solve(model, solvers.Options(), control)
            if answer.reason != "optimal" or answer.row_dual is None:
                return Outcome("limit", "time" if control.should_stop() else "other", solver)
            rounds, solver = rounds + 1, f"{answer.solver} {answer.version}"
            prices = np.asarray(answer.row_dual[model.rows_of("class")])
            question.prove(instance, control, {"kind": "configuration-prices", "classes": prices.tolist()})
            more = _paying(classes, move, prices, np.abs(answer.row_dual[model.rows_of("accelerators")]))
            if not len(more.device):
                break
            columns = gathered(iter((columns, more)))
        told = {"classes": len(classes.first), "columns": len(columns.device), "rounds": rounds}
        if control.should_stop():
            return Outcome("limit", "time", solver, statistics=told)
        whole = program(instance, classes, columns, move)

        def incumbent(x: Floats) -> None:
            count = np.rint(x[whole.columns("accelerators")]).astype(np.int64)
            control.report_plan(plan_of(instance, classes, columns, count))

        wishes = solvers.Options(
            relative_gap=max(control.relative_gap, 1e-9),
            threads=control.threads,
            seed=control.seed,
            on_incumbent=incumbent,
        )
        answer = adapter.solve(whole, wishes, control)
        if answer.x is not None:
            incumbent(answer.x)
        return Outcome(solver=solver, statistics=told)


def _first(classes: Classes, move: float) -> Iterator[Columns]:
    """Columns to begin with: all where they are few, else jobs alone."""
    blocks = classes.blocks(move)
    yield next(blocks)
    if classes.n_pairs <= FEW:
        yield from blocks


def _paying(classes: Classes, move: float, prices: Floats, rooms: Floats) -> Columns:
    """Columns that pay at the prices, the best few of each class on each type."""
    found = []
    k, m = len(classes.first), len(rooms)
    for block in classes.blocks(move):
        offer = np.bincount(block.column, prices[block.member], len(block.device)) - block.watts - rooms[block.device]
        keep = offer > GAIN * np.abs(prices).max(initial=1.0)
        block, offer = block.chosen(keep), offer[keep]
        cell = block.member * m + block.device[block.column]
        order = np.lexsort((-offer[block.column], cell))
        rank = np.arange(len(order)) - np.searchsorted(cell[order], np.arange(k * m))[cell[order]]
        best = np.zeros(len(offer), bool)
        best[block.column[order[rank < PER_CLASS]]] = True
        found.append(block.chosen(best))
    return gathered(found)


class Greedy(Method):
    """Jobs one by one, each where it takes the fewest more watts."""

    name = "greedy"
    title = "jobs with the fewest choices first, each alone or beside another where it adds the fewest watts"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass; where a job finds no place, another in which jobs go together wherever they can."""
        classes, move = classes_of(instance, question["caution"]), float(question["move"])
        lost = None
        for close in (False, True):
            if control.should_stop():
                return Outcome("limit", "time")
            rows, lost = _dealt(classes, move, close, control)
            if lost is None:
                names, labels = instance.device_names, instance.labels
                plan = [[names[i], [labels[k] for k in sorted(jobs)]] for i, jobs in rows]
                control.report_plan(Solution(details={"accelerators": plan}))
                return Outcome()
        if control.should_stop():
            return Outcome("limit", "time")
        return Outcome(notes=(f"the rule finds no place for {instance.labels[lost or 0]!r}",))


def _dealt(
    classes: Classes, move: float, close: bool, control: Control
) -> tuple[list[tuple[int, list[int]]], int | None]:
    """Accelerators with their jobs, and the job that finds no place; ``close``: together wherever it can be.

    A job that may have several accelerators takes single ones until its floor is met.
    """
    facts = classes.facts
    alone = facts.rate[classes.first]
    serves = (alone >= classes.floor[:, None] * (1 - SLACK)) & (classes.most > 0)[:, None]
    watts = facts.watts[classes.first] - facts.idle + move * classes.away
    order = np.lexsort((np.arange(len(alone)), (alone / classes.floor[:, None]).max(axis=1), serves.sum(axis=1)))
    free = facts.workers.copy()
    rows: list[tuple[int, list[int]]] = []
    single: dict[tuple[int, int], list[int]] = {}  # rows with one job, by its class and type
    for c in order.tolist():
        choices = _company(classes, c, watts, move)
        for job in classes.jobs[c]:
            if control.should_stop():
                return rows, job
            if classes.many[c]:
                if not _several(classes, c, job, free, rows):
                    return rows, job
                continue
            new = np.where(serves[c] & (free > 0), watts[c], np.inf)
            i = int(new.argmin())
            cost, there = next(((cost, there) for cost, there in choices if single.get(there)), (np.inf, (c, i)))
            if cost < np.inf and (close or cost <= new[i]):
                rows[single[there].pop()][1].append(job)
            elif new[i] < np.inf:
                free[i] -= 1
                single.setdefault((c, i), []).append(len(rows))
                rows.append((i, [job]))
            else:
                return rows, job
    return rows, None


def _several(classes: Classes, c: int, job: int, free: Numbers, rows: list[tuple[int, list[int]]]) -> bool:
    """Give a job accelerators of its own, those on which it is fastest first, until its floor is met; whether it is."""
    alone, got, left = classes.facts.rate[classes.first[c]], 0.0, int(classes.most[c])
    for i in np.argsort(-alone, kind="stable").tolist():
        while free[i] > 0 and left > 0 and alone[i] > 0 and got < classes.floor[c]:
            rows.append((i, [job]))
            free[i] -= 1
            left -= 1
            got += alone[i]
    return bool(got >= classes.floor[c])


def _company(classes: Classes, c: int, watts: Floats, move: float) -> list[tuple[float, tuple[int, int]]]:
    """Watts more, class and type, where a job of class c can join one that is alone; fewest watts first."""
    if classes.many[c]:
        return []
    facts, pairs = classes.facts, classes.facts.pairs
    kinds = pairs.kind[classes.first]
    kind, able = int(kinds[c]), facts.rate[classes.first] > 0
    found = []
    for row in np.flatnonzero((pairs.first == kind) | (pairs.second == kind)).tolist():
        i, ahead = int(pairs.type[row]), pairs.first[row] == kind
        own, other = (pairs.rate[row], pairs.other[row]) if ahead else (pairs.other[row], pairs.rate[row])
        mates = np.flatnonzero(kinds == (pairs.second[row] if ahead else pairs.first[row]))
        if not able[c, i] or not classes.enough(np.array([c]), np.array([own]))[0]:
            continue
        mates = mates[able[mates, i] & ~classes.many[mates] & classes.enough(mates, np.full(len(mates), other))]
        both = facts.pair_watts[row] - facts.idle[i] + move * (classes.away[c, i] + classes.away[mates, i])
        found += [
            (float(more), (d, i)) for more, d in zip((both - watts[mates, i]).tolist(), mates.tolist(), strict=True)
        ]
    return sorted(found)


def explained(instance: Instance, classes: Classes, move: float, outcome: Outcome) -> Outcome:
    """An outcome; where there is no plan, with the fewest accelerators that are missing and the fewest jobs to leave out."""
    from hetopt import solvers

    if outcome.reason != "infeasible":
        return outcome
    columns, found = gathered(classes.blocks(move)), []
    wishes = solvers.Options(time_limit=PATIENCE)
    more = program(instance, classes, columns, move, more=1.0, watts=False)
    answer = solvers.get("highs").solve(more, wishes)
    if answer.reason == "optimal" and answer.x is not None:
        count = np.rint(answer.x[more.columns("more")]).astype(np.int64)
        told = ", ".join(f"{count[i]} of {instance.device_names[i]!r}" for i in np.flatnonzero(count).tolist())
        found.append(f"accelerators: {count.sum()} too few for all floors; with {told} more there is a plan")
    out = program(instance, classes, columns, move, out=1.0, watts=False)
    answer = solvers.get("highs").solve(out, wishes)
    if answer.reason == "optimal" and answer.x is not None:
        count = np.rint(answer.x[out.columns("out")]).astype(np.int64)
        who = [instance.labels[job] for c in np.flatnonzero(count).tolist() for job in classes.jobs[c][: count[c]]]
        told = ", ".join(repr(name) for name in who[:10]) + (", ..." if len(who) > 10 else "")
        found.append(f"floors: at least {len(who)} of {classes.size.sum()} jobs must be left out, for example {told}")
    return replace(outcome, infeasible=(*found, *outcome.infeasible))
