"""Label search below ascending targets: what ``labels`` (one subgraph) and ``packed`` (several) have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from hetopt.control import Control

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hetopt.algorithms.latency_graph import LatencyGraph
    from hetopt.algorithms.latency_lattice import Lattice

__all__ = ["Climbed", "climb", "lattice_of_graph", "stopped"]

_IDEALS = 200_000
_NUMBERS = 4_000_000  # ideals times accelerators that bounds are kept for
# Targets of the label search, as excess over the barrier bound; a search below a low target is quick.
_TARGETS = (0.004, 0.016, 0.064)
_BEAM = 3  # labels of an ideal in the run that looks for a plan before a search that may be long


class Climbed(NamedTuple):
    """``finished`` when everything below ``best`` is ruled out; otherwise ``note`` says why not, if it was not the limit."""

    finished: bool
    best: int
    labels: int = 0
    ideals: int = 0
    note: str | None = None


def stopped(control: Control) -> bool:
    """Whether time is up; a gap that is met does not stop a search that proves more."""
    return control.cancelled.is_set() or control.remaining <= 0


def lattice_of_graph(graph: LatencyGraph, control: Control) -> Lattice | None:
    """All ideals; None when there is no time, TooManyIdeals when there are too many."""
    from hetopt.algorithms.ideals import enumerate_ideals
    from hetopt.algorithms.latency_lattice import lattice_of

    limit = min(_IDEALS, _NUMBERS // (graph.count + 1))
    ideals = enumerate_ideals(graph.pred_ptr, graph.pred, max(limit, 1), lambda: stopped(control))
    return None if ideals is None else lattice_of(graph, ideals)


def climb(
    graphs: Iterable[LatencyGraph],
    control: Control,
    best: int,
    take: Callable[[LatencyGraph, NDArray[np.int64]], None],
    *,
    bounds: bool,
    until: float = 0.0,
) -> Climbed:
    """Search each graph below ascending targets up to ``best``; plans go to ``take``, proved bounds to ``control``.

    It ends when ``until`` seconds are left. A barrier bound comes first. Before the last search a beam looks for a plan that
    makes it shorter.
    """
    from hetopt.algorithms.latency_barrier import barriers
    from hetopt.algorithms.latency_graph import NEVER
    from hetopt.algorithms.latency_labels import search_labels
    from hetopt.algorithms.latency_lattice import cuts

    def late() -> bool:
        return stopped(control) or control.remaining < until

    parts = []
    lower = NEVER
    for graph in graphs:
        lattice = lattice_of_graph(graph, control)
        known = lattice and barriers(graph, lattice, best, late, backward=False)
        if lattice is None or not known:
            return Climbed(False, best)
        parts.append((graph, lattice, cuts(graph)))
        lower = min(lower, int(known.reached[-1, -1]))
    if not parts:
        return Climbed(True, NEVER)
    ideals, labels = max(len(p[1].words) for p in parts), 0

    def tell(value: int) -> None:
        if bounds and value < NEVER:
            control.report_bound(parts[0][0].seconds(value), "algorithm")

    if lower < best:
        tell(lower)
    targets = [lower + int(excess * lower) + 1 for excess in _TARGETS] if lower < best else []
    # A target nearer to the best plan than to the bound costs as much as the last search.
    for target in [*(t for t in targets if t - lower < best - t), NEVER]:
        cap, found = min(target, best), False
        for graph, lattice, cut in parts:
            known = None
            for beam in (_BEAM, 0) if target >= best else (0,):
                if known is None or cap < known.cap:
                    known = barriers(graph, lattice, cap, late)
                if known is None:
                    return Climbed(False, best, labels, ideals)
                if known.reached[-1, -1] >= cap:
                    break
                answer = search_labels(graph, lattice, known, cut, cap, beam=beam, should_stop=late)
                labels += answer.labels
                if answer.value is not None and answer.place is not None:
                    take(graph, answer.place)
                    found, cap = True, answer.value
                if late():
                    return Climbed(False, best, labels, ideals)
                if not beam and not answer.finished:
                    return Climbed(False, best, labels, ideals, "no room for more labels")
        tell(cap if found else min(target, best))
        if found or target >= best:
            best = min(best, cap)
            break
    return Climbed(True, best, labels, ideals)
