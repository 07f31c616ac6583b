"""Build serving plans at ever higher rates: chains of blocks, pipelines side by side, clusters apart.

At one rate, :class:`~hetopt.algorithms.serving_chain.ChainProgram` finds parts that cover all layers and
:func:`~hetopt.algorithms.serving_arrange.arrange` gives them an order and nodes. Here the rate is searched between a plan at hand
and a bound, for one chain and for several pipelines of equal rate; and where links between clusters are slow, every
grouping of clusters that could be better is built from plans of its groups. Heuristic throughout; each plan is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.serving_arrange import arrange
from hetopt.algorithms.serving_bound import configuration_bound
from hetopt.algorithms.serving_chain import ChainProgram
from hetopt.algorithms.serving_flow import plan_value
from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.algorithms.serving_paths import find_paths
from hetopt.algorithms.serving_program import LayerProgram, equal_rates
from hetopt.algorithms.serving_view import look

__all__ = ["Attempt", "Candidate", "build", "build_apart", "by_blocks", "by_paths", "pipelines"]

Ints = NDArray[np.int64]

_EFFORT = (3.0, 2.0, 1.0)  # of a choice, of an arrangement, of paths
_GAP = 5e-4  # the search of the rate ends here
_MOST_CLUSTERS = 5
_PROBES = (0.1, 0.01)  # shares of the way up; the second only where nothing serves anything yet


class Candidate(NamedTuple):
    """A plan and its value."""

    value: float
    start: Ints
    hold: Ints


Attempt = Callable[[float], Candidate | None]


def build(
    best: Candidate,
    high: float,
    attempt: Attempt,
    *,
    rates: int = 14,
    probe: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[Candidate], None] = lambda _: None,
) -> Candidate:
    """Raise the rate from ``best`` towards ``high`` by halving.

    Parameters
    ----------
    best
        A plan at hand (value 0 when there is none).
    high
        No plan has this value or more.
    attempt
        Makes a plan for a rate, see :func:`by_blocks` and :func:`by_paths`.
    rates
        How many to try.
    probe
        Try a rate a little above ``best`` first, and no more when nothing better comes of it; then one right below ``high``.

    Returns
    -------
    Candidate
        ``best`` or a better plan.
    """
    failed = high
    pending: list[float] = []
    if probe:
        for share in _PROBES if best.value <= 0.0 else _PROBES[:1]:
            rate = best.value + share * (high - best.value)
            found = None if should_stop() else attempt(rate)
            if found is not None and found.value > best.value:
                best = found
                report(best)
                break
            failed = rate
        else:
            return best
        pending = [high * (1 - 1e-6)] if failed == high else []
    for _ in range(rates):
        if should_stop() or failed - best.value <= _GAP * high:
            break
        rate = pending.pop() if pending else (failed + best.value) / 2
        found = attempt(rate)
        if found is not None and found.value > best.value:
            best = found
            report(best)
        if found is None or found.value < rate * (1 - 1e-6):
            failed = rate
    return best


def by_blocks(
    network: ServingNetwork,
    *,
    copies: int = 1,
    strict: bool = False,
    tries: int = 6,
    seed: int = 0,
    workers: int = 1,
    should_stop: Callable[[], bool] = lambda: False,
) -> Attempt:
    """Plans of ``copies`` chains of blocks each.

    Parameters
    ----------
    strict
        How clusters are told apart, see :func:`~hetopt.algorithms.serving_view.look`. Where that makes no clusters, or too
        many, nothing is tried.
    tries
        Choices of parts at a rate before it is given up.
    """

    def attempt(rate: float) -> Candidate | None:
        view = look(network, rate / copies, strict=strict)
        if strict and not 0 < view.cluster.max() < _MOST_CLUSTERS:
            return None
        program = ChainProgram(network, view, copies=copies, top=300 if view.leaf.any() else 1000)
        if program.generate(should_stop=should_stop) < copies * network.layers * (1 - 1e-9):
            return None
        best = None
        for number in range(seed, seed + tries):
            if should_stop():
                break
            walks = program.choose(seed=number, effort=_EFFORT[0], workers=workers, should_stop=should_stop)
            if walks is None:
                break
            plan = arrange(
                network, program, walks, seed=number, effort=_EFFORT[1], workers=workers, should_stop=should_stop
            )
            if plan is None:
                continue
            value = plan_value(network, *plan)
            if best is None or value > best.value:
                best = Candidate(value, *plan)
            if value >= rate * (1 - 1e-6):
                break
        return best

    return attempt


def by_paths(
    network: ServingNetwork,
    *,
    copies: int = 1,
    seed: int = 0,
    workers: int = 1,
    should_stop: Callable[[], bool] = lambda: False,
) -> Attempt:
    """Plans of ``copies`` chains of single nodes each, along real links."""

    def attempt(rate: float) -> Candidate | None:
        plan = find_paths(
            network, rate / copies, copies, seed=seed, effort=_EFFORT[2], workers=workers, should_stop=should_stop
        )
        return None if plan is None else Candidate(plan_value(network, *plan), *plan)

    return attempt


def pipelines(network: ServingNetwork, rate: float) -> list[int]:
    """Numbers of pipelines worth trying: one, two where layers are served by several nodes, and those with one to four
    nodes a layer each."""
    program = LayerProgram(network, rate, equal_rates(network), links=False)
    program.solve(to_the_end=True)
    wide = float((program.usage * np.arange(program.usage.shape[1])).sum() / network.layers)  # nodes that serve a layer
    several = {2} if wide >= 1.3 else set()
    return sorted({1} | several | {max(round(wide / w), 1) for w in (1.0, 2.0, 4.0) if wide >= 3.0})


def build_apart(
    network: ServingNetwork,
    cluster: Ints,
    best: Candidate,
    *,
    seed: int = 0,
    workers: int = 1,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[Candidate], None] = lambda _: None,
) -> Candidate:
    """Plans whose clusters, or groups of clusters, serve requests of their own.

    Groupings are tried in the order of the sum of their groups' bounds, until that is below the best plan.

    Parameters
    ----------
    cluster
        (n,) clusters; at most five are told apart, else nothing is tried.
    """
    number = int(cluster.max()) + 1
    if not 1 < number <= _MOST_CLUSTERS:
        return best
    bound: dict[tuple[int, ...], float] = {}
    plan: dict[tuple[int, ...], Candidate] = {}
    nodes_of = {g: np.flatnonzero(np.isin(cluster, g)) for g in _subsets(number)}
    for g, nodes in nodes_of.items():
        part = network.restricted(nodes)
        usable = network.source[nodes].any() and network.sink[nodes].any()
        found = configuration_bound(part, precision=1e-3, links=False, should_stop=should_stop)
        bound[g] = float(found["rate"]) if usable else 0.0
        if should_stop():
            return best
    groupings = sorted(_partitions(list(range(number))), key=lambda p: (-sum(bound[g] for g in p), p))
    for grouping in groupings:
        if len(grouping) == 1 or should_stop():
            continue
        if sum(bound[g] for g in grouping) <= best.value * (1 + 1e-6):
            break
        for g in grouping:
            if g not in plan and bound[g] > 0:
                part = network.restricted(nodes_of[g])
                empty = Candidate(0.0, np.zeros(part.n, dtype=np.int64), np.zeros(part.n, dtype=np.int64))
                attempt = by_blocks(part, seed=seed, workers=workers, should_stop=should_stop)
                plan[g] = build(empty, bound[g], attempt, should_stop=should_stop)
        start = np.zeros(network.n, dtype=np.int64)
        hold = np.zeros(network.n, dtype=np.int64)
        for g in grouping:
            if g in plan:
                start[nodes_of[g]], hold[nodes_of[g]] = plan[g].start, plan[g].hold
        value = plan_value(network, start, hold)
        if value > best.value:
            best = Candidate(value, start, hold)
            report(best)
    return best


def _subsets(number: int) -> list[tuple[int, ...]]:
    """All non-empty sets of clusters."""
    return [tuple(i for i in range(number) if mask >> i & 1) for mask in range(1, 1 << number)]


def _partitions(items: list[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """All ways to group the items, each group ascending."""
    if not items:
        yield ()
        return
    first, rest = items[0], items[1:]
    for mask in range(1 << len(rest)):
        group = (first, *(x for i, x in enumerate(rest) if mask >> i & 1))
        for others in _partitions([x for x in rest if x not in group]):
            yield (group, *others)
