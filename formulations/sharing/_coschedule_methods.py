"""Methods for co-scheduling beside the program: Edmonds's matching, odd sets, a greedy rule, nobody together, and reasons.

Numbers of equations are those of :mod:`formulations.sharing.coschedule`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._queue import Queue, plan_of, queue_of
from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution
from hetopt.verify.corun import coruns_of

__all__ = ["Alone", "Greedy", "Matching", "OddSets", "explained", "price_bound"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
MOST_JOBS = 200  # Edmonds's algorithm in Python cannot be interrupted, and takes seconds for more
MOST_KINDS = 60  # connected by fractions, up to which odd sets are looked for by minimum cuts
BROKEN = 1e-7  # by which an odd set must be broken to be added
PATIENCE = 10.0  # seconds for each question about a missing plan
ROUNDING = 2.0**-40  # of all that is added up in (5)


class Matching(Method):
    """Sets of one or two jobs as a minimum-weight perfect matching, in exact arithmetic."""

    name = "matching"
    title = "Edmonds's minimum-weight matching of the jobs (networkx), in integers; sets of one or two, no `site`"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Pairs, one after another, not too many jobs."""
        if question["site"] is not None:
            return "power of all sets together is no matter of a matching"
        if queue_of(instance, question).has.sum(axis=1).max(initial=0) > 2:
            return "sets of more than two jobs are no matching"
        return None if instance.n_tasks <= MOST_JOBS else f"{instance.n_tasks} jobs, more than {MOST_JOBS}"

    def size(self, instance: Instance, question: Question) -> int:
        """Pairs of jobs."""
        return instance.n_tasks**2 // 2

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One matching of greatest saving; seconds are binary fractions, so a power of two makes integers of them."""
        import networkx as nx

        if control.should_stop():
            return Outcome("limit", "time")
        queue, kind = queue_of(instance, question), coruns_of(instance).kind.tolist()
        exact = [Fraction(s) for s in queue.seconds.tolist()]
        unit = math.lcm(1, *(value.denominator for value in exact))
        best: dict[tuple[int, ...], int] = {one.kinds: c for c, one in enumerate(queue.sets)}
        cost = [int(value * unit) for value in exact]
        never = 1 + 2 * sum(cost) * len(kind)  # for a job that cannot be alone
        alone = [cost[best[(k,)]] if (k,) in best else never for k in kind]
        graph = nx.Graph()
        graph.add_nodes_from(range(len(kind)))
        for i, a in enumerate(kind):
            for j in range(i + 1, len(kind)):
                which = best.get((a, kind[j]) if a <= kind[j] else (kind[j], a))
                if which is not None and (saving := alone[i] + alone[j] - cost[which]) > 0:
                    graph.add_edge(i, j, weight=saving)
        pairs = sorted(tuple(sorted(pair)) for pair in nx.max_weight_matching(graph))
        mate = {i for pair in pairs for i in pair}
        single = [i for i in range(len(kind)) if i not in mate]
        stranded = [instance.labels[i] for i in single if alone[i] == never]
        if stranded:
            told = f"matching: at least one of the jobs cannot be in a set, for example {stranded[0]!r}, whatever the others do"
            return explained(instance, question, Outcome("infeasible", infeasible=(told,)))
        chosen: list[tuple[tuple[int, ...], int]] = [((i,), best[(kind[i],)]) for i in single]
        chosen += [((i, j), best[(kind[i], kind[j]) if kind[i] <= kind[j] else (kind[j], kind[i])]) for i, j in pairs]
        rows = [
            [[instance.labels[i] for i in jobs], queue.sets[c].configuration, queue.sets[c].watts]
            for jobs, c in sorted(chosen)
        ]
        control.report_plan(Solution(details={"sets": rows}))
        control.report_bound(float(sum((exact[c] for _, c in chosen), Fraction(0))), "algorithm")
        return Outcome(solver=f"networkx {nx.__version__}")


def price_bound(queue: Queue, certificate: Mapping[str, Any]) -> float:
    """(5) of the prices in a certificate, rounded down.

    Raises
    ------
    ValueError
        The certificate does not belong to these kinds, or holds a price that cannot be.
    """
    u = np.asarray(certificate["kinds"], np.float64)
    watts, nodes = float(certificate["power"]), float(certificate["nodes"])
    odd = [(sorted({int(k) for k in members}), float(y)) for members, y in certificate["sets"]]
    prices = np.array([watts, nodes, *(y for _, y in odd)])
    if u.shape != queue.size.shape or not np.isfinite(u).all() or not np.isfinite(prices).all() or (prices < 0).any():
        raise ValueError(f"expected a finite price for each of {len(queue.size)} kinds, and others of 0 or more")
    if any(members and not 0 <= members[0] <= members[-1] < len(u) for members, _ in odd):
        raise ValueError("an odd set names a kind that is not there")
    if queue.site is None and (watts or nodes):
        raise ValueError("a price of power or nodes without a site")
    reduced = queue.seconds - queue.has @ u + watts * queue.watts + nodes
    size = queue.seconds + queue.has @ np.abs(u) + watts * queue.watts + nodes
    terms = [*(queue.size * u).tolist(), -watts * (queue.site or 0.0), -nodes * queue.nodes]
    for members, y in odd:
        reduced = reduced + y * (queue.has[:, members].sum(axis=1) // 2)
        terms.append(-y * (int(queue.size[members].sum()) // 2))
    size = size + sum(y for _, y in odd) * queue.has.sum(axis=1)
    share = np.minimum(0.0, (reduced - ROUNDING * size) / queue.has.sum(axis=1))
    least = np.where(queue.has > 0, share[:, None], 0.0).min(axis=0, initial=0.0)
    terms += (queue.size * least).tolist()
    return math.fsum(terms) - ROUNDING * math.fsum(abs(v) for v in terms)


class OddSets(Method):
    """The relaxation with the odd sets that it breaks."""

    name = "odd-sets"
    title = "LP of (1)-(3) and of the odd sets (4) that are broken, found by minimum odd cuts; bound (5) replayed"
    kind = "relaxation"

    def size(self, instance: Instance, question: Question) -> int:
        """As the program."""
        return 4 * len(coruns_of(instance).sets)

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Linear programs until no odd set is found that is broken."""
        from hetopt import solvers

        queue, rounds, solver = queue_of(instance, question), 0, None
        odd: list[list[int]] = []
        while not control.should_stop():
            model = _relaxation(queue, odd)
            answer = solvers.get("highs").solve(model, solvers.Options(), control)
            solver = f"{answer.solver} {answer.version}"
            if answer.reason == "infeasible":
                told = (f"{solver} proved that (1)-(4) have no solution",)
                return explained(instance, question, Outcome("infeasible", solver=solver, infeasible=told))
            if answer.reason != "optimal" or answer.row_dual is None or answer.x is None:
                return Outcome("limit", "time" if control.should_stop() else "other", solver)
            rounds += 1
            dual = answer.row_dual
            limit = -np.minimum(dual[model.rows_of("limits")], 0.0) if queue.site is not None else np.zeros(2)
            y = -np.minimum(dual[model.rows_of("odd")], 0.0) if odd else np.zeros(0)
            certificate = {
                "kind": "odd-sets",
                "kinds": dual[model.rows_of("jobs")].tolist(),
                "sets": [[members, price] for members, price in zip(odd, y.tolist(), strict=True) if price > 0],
                "power": float(limit[0]),
                "nodes": float(limit[1]),
            }
            question.prove(instance, control, certificate)
            more = [members for members in _broken(queue, answer.x) if members not in odd]
            if not more:
                return Outcome(solver=solver, statistics={"odd sets": len(odd), "rounds": rounds})
            odd += more
        return Outcome("limit", "time", solver)


def _relaxation(queue: Queue, odd: list[list[int]]) -> LinearModel:
    """(1)-(3) and (4) of some sets of kinds."""
    model = LinearModel("odd-sets")
    x = model.continuous("sets", len(queue.seconds), lower=0)
    c, k = np.nonzero(queue.has)
    model.rows("jobs", len(queue.size), [(k, x[c], queue.has[c, k])], lower=queue.size, upper=queue.size)  # (1)
    if queue.site is not None:
        terms: list[Any] = [(np.zeros_like(x), x, queue.watts), (np.ones_like(x), x, 1.0)]
        model.rows("limits", 2, terms, upper=np.array([queue.site, queue.nodes]))  # (2), (3)
    if odd:
        half = np.array([queue.has[:, members].sum(axis=1) // 2 for members in odd])
        most = np.array([int(queue.size[members].sum()) // 2 for members in odd])
        row, column = np.nonzero(half)
        model.rows("odd", len(odd), [(row, x[column], half[row, column])], upper=most)  # (4)
    model.minimize(x, queue.seconds)
    return model


def _broken(queue: Queue, x: Floats) -> list[list[int]]:
    """Sets of kinds whose (4) a point breaks."""
    found = {tuple(members) for members in _candidates(queue, x)}
    out = []
    for members in sorted(found):
        inside = queue.has[:, list(members)].sum(axis=1) // 2
        if inside @ x > int(queue.size[list(members)].sum()) // 2 + BROKEN:
            out.append(list(members))
    return out


def _candidates(queue: Queue, x: Floats) -> Iterator[list[int]]:
    """All kinds, and in each connected part the sides of minimum odd cuts; all sorted.

    A broken set is crossed by less than one, so kinds between which there is one or more are on one side: they are one node.
    """
    import networkx as nx

    outside = len(queue.size)  # a node for what is not paired
    yield list(range(outside))
    edges: dict[tuple[int, int], float] = {}
    for c in np.flatnonzero(x > 1e-9).tolist():
        kinds = sorted(set(queue.sets[c].kinds))
        for pair in itertools.pairwise([*kinds, outside] if queue.has[c].sum() == 1 else kinds):
            edges[pair] = edges.get(pair, 0.0) + float(x[c])
    heavy = nx.Graph(pair for pair, weight in edges.items() if weight >= 1 - 1e-9)
    heavy.add_nodes_from(range(outside + 1))
    node = {kind: min(part) for part in map(sorted, nx.connected_components(heavy)) for kind in part}
    graph = nx.Graph()
    graph.add_nodes_from(sorted(set(node.values())))
    for (one, two), weight in sorted(edges.items()):
        a, b = node[one], node[two]
        if a != b:
            graph.add_edge(a, b, weight=weight + (graph.edges[a, b]["weight"] if graph.has_edge(a, b) else 0.0))
    members: dict[int, list[int]] = {}
    for kind in range(outside):
        members.setdefault(node[kind], []).append(kind)
    end = node[outside]
    inner = graph.subgraph(sorted(set(graph) - {end}))
    for part in sorted(map(sorted, nx.connected_components(inner))):
        yield sorted(kind for a in part for kind in members[a])
        if 1 < len(part) <= MOST_KINDS:
            for side in _sides(graph.subgraph([*part, end]), end):
                yield sorted(kind for a in side for kind in members[a])


def _sides(graph: Any, end: int) -> Iterator[list[int]]:
    """The side without ``end`` of each cut of a Gomory-Hu tree: a minimum odd cut is among them."""
    import networkx as nx

    tree = nx.gomory_hu_tree(graph, capacity="weight")
    for a, b in sorted(tuple(sorted(pair)) for pair in tree.edges):
        without = tree.copy()
        without.remove_edge(a, b)
        side = nx.node_connected_component(without, a)
        yield sorted(set(tree.nodes) - side if end in side else side)


class Greedy(Method):
    """Sets that save most first."""

    name = "greedy"
    title = "sets that save most seconds first; under `site`, then the configurations that save watts most cheaply"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass over the sets; a second one pairs what is left while nodes are too few."""
        queue = queue_of(instance, question)
        alone, width = queue.alone(), queue.has.sum(axis=1)
        with np.errstate(invalid="ignore"):
            apart = np.where(queue.has > 0, queue.has * alone, 0.0).sum(axis=1)
        saving = np.where(width > 1, apart - queue.seconds, 0.0)
        left, times = np.array(queue.size), np.zeros(len(width), np.int64)
        order = np.lexsort((np.arange(len(width)), -saving / width, width == 1))
        for c in order.tolist():
            mine = queue.has[c] > 0
            wanted = int((left[mine] // queue.has[c][mine]).min())
            if width[c] > 1 and saving[c] <= 0:
                short = 0 if queue.site is None else int(times.sum() + left.sum()) - queue.nodes
                wanted = max(0, min(wanted, -(-short // (int(width[c]) - 1))))
            times[c] += wanted
            left -= wanted * queue.has[c]
        if (left == 0).all() and _cooled(queue, times):
            control.report_plan(plan_of(instance, queue, times))
        return Outcome()


def _cooled(queue: Queue, times: Numbers) -> bool:
    """Change configurations to ones of fewer watts, the cheapest change first, until ``site`` is kept; whether it is."""
    if queue.site is None:
        return True
    while queue.watts @ times > queue.site:
        best: tuple[float, int, int] | None = None
        for c in np.flatnonzero(times).tolist():
            for d in range(len(times)):
                if queue.sets[d].kinds == queue.sets[c].kinds and queue.watts[d] < queue.watts[c]:
                    price = (queue.seconds[d] - queue.seconds[c]) / (queue.watts[c] - queue.watts[d])
                    best = min(best or (math.inf, 0, 0), (float(price), c, d))
        if best is None:
            return False
        times[best[1]] -= 1
        times[best[2]] += 1
    return int(times.sum()) <= queue.nodes


class Alone(Method):
    """Every job by itself."""

    name = "alone"
    title = "one job at a time with the whole node; baseline"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One plan, where every job may be alone."""
        queue = queue_of(instance, question)
        times = np.zeros(len(queue.sets), np.int64)
        for k, most in enumerate(queue.size.tolist()):
            single = [c for c, one in enumerate(queue.sets) if one.kinds == (k,)]
            if not single:
                return Outcome(notes=(f"{queue.names[k]!r} may not be alone",))
            times[single[0]] = most
        if _cooled(queue, times):
            control.report_plan(plan_of(instance, queue, times))
        return Outcome()


def explained(instance: Instance, question: Question, outcome: Outcome) -> Outcome:
    """An outcome; where there is no plan, with the fewest watts and nodes that would do under ``site``, or the least ``cap``."""
    from hetopt import solvers

    if outcome.reason != "infeasible":
        return outcome
    queue, found = queue_of(instance, question), []
    for what, costs, there in _lacks(queue):
        model = LinearModel(what)
        x = model.integer("sets", len(queue.sets), lower=0, upper=queue.most())
        c, k = np.nonzero(queue.has)
        model.rows("jobs", len(queue.size), [(k, x[c], queue.has[c, k])], lower=queue.size, upper=queue.size)
        if what == "watts":
            model.rows("nodes", 1, [(np.zeros_like(x), x, 1.0)], upper=queue.nodes)
        model.minimize(x, costs)
        answer = solvers.get("highs").solve(model, solvers.Options(time_limit=PATIENCE))
        if answer.reason == "optimal" and answer.objective is not None and answer.objective > there:
            found.append(f"site: all jobs take {answer.objective:.9g} {what} at least, there are {there:g}")
    if not found and question["cap"] is not None:
        found = _least_cap(instance, question)
    return replace(outcome, infeasible=(*found, *outcome.infeasible))


def _least_cap(instance: Instance, question: Question) -> list[str]:
    """The least watts of a set with which all jobs find one, by halving the watts that there are."""
    from hetopt import solvers

    cap = float(question["cap"])
    levels = sorted({one.watts for one in coruns_of(instance).sets if one.watts > cap})
    enough, low, high = None, 0, len(levels) - 1
    while low <= high:
        middle = (low + high) // 2
        queue = queue_of(instance, {**question, "cap": levels[middle]})
        model = LinearModel("cap")
        x = model.integer("sets", len(queue.sets), lower=0, upper=queue.most())
        c, k = np.nonzero(queue.has)
        model.rows("jobs", len(queue.size), [(k, x[c], queue.has[c, k])], lower=queue.size, upper=queue.size)
        for what, costs, there in _lacks(queue):
            model.rows(what, 1, [(np.zeros_like(x), x, costs)], upper=there)
        answer = solvers.get("highs").solve(model, solvers.Options(time_limit=PATIENCE))
        if answer.x is not None:
            enough, high = levels[middle], middle - 1
        elif answer.reason == "infeasible":
            low = middle + 1
        else:
            return []
    if enough is None:
        return []
    return [
        f"cap: sets of {enough:g} W are enough for all jobs, fewer are not, and a set may take {cap:g} W: "
        f"{enough - cap:g} W short"
    ]


def _lacks(queue: Queue) -> Iterable[tuple[str, Floats, float]]:
    """What may be too little under a site, what a set takes of it, and how much there is."""
    if queue.site is None:
        return ()
    return (("nodes", np.ones(len(queue.sets)), float(queue.nodes)), ("watts", queue.watts, queue.site))
