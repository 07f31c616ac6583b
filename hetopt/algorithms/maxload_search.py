"""Plans by local search: assign classes to devices, contiguous or not, so that the largest load is small.

:func:`improve` is a large-neighbourhood search from a given plan. Its main move takes two devices and divides what they hold
anew, in the best of all ways (:mod:`hetopt.algorithms.maxload_resplit`). Best is meant under a potential: what loads exceed a
target a little below the best value, plus a small share of all load. The share saves communication, and that makes room for
the next device to come below the target. Between descents, and where frontiers are too wide to divide a pair,
:func:`~hetopt.algorithms.maxload_anneal.anneal` moves single classes, connected clusters and swaps.

What this is not: a bound. Nothing here says how good a plan is; :mod:`hetopt.algorithms.maxload_columns` does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.maxload_anneal import anneal, device_loads, devices, fits
from hetopt.algorithms.maxload_resplit import resplit
from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["improve"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Pair = tuple[int, int]

_EFFORT = 3_000_000  # pairs of loads that one division may look at, about 0.06 s
_BETTER = 1.0 - 1e-9  # what counts as an improvement, so that rounding does not
_SHARES = (0.0004, 0.002, 0.006, 0.03)  # worth of a second of load, against a second beyond the target
_GAPS = (1e-4, 1e-3)  # target below the best value, relatively


def improve(
    graph: StageGraph,
    device: IntArray,
    order: IntArray,
    *,
    rounds: int = 1 << 60,
    target: float = 0.0,
    seed: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[float, IntArray], None] = lambda value, device: None,
) -> tuple[IntArray, float]:
    """Large-neighbourhood search from a plan that fits.

    Parameters
    ----------
    graph
        Classes, nets and types.
    device
        (n,) device of each class; respects memory.
    order
        (n,) order of small frontier width, for the divisions.
    rounds
        Descents, with a kick between two.
    target
        Stop when the largest load is at most this (a proved bound).
    seed
        For the choices.
    should_stop, report
        Asked, and told of better plans, between moves.

    Returns
    -------
    tuple
        Best plan and its largest load, recomputed from the arrays.
    """
    search = _Search(graph, device, order, seed, should_stop, report)
    for number in range(rounds):
        if number:
            search.kick()
        search.descend()
        if should_stop() or search.value <= target * (2.0 - _BETTER) or not search.pairs:
            break
    return search.best, search.value


class _Search:
    """Current and best plan of :func:`improve`, and the pairs of devices that may still gain from a division."""

    def __init__(
        self,
        graph: StageGraph,
        device: IntArray,
        order: IntArray,
        seed: int,
        should_stop: Callable[[], bool],
        report: Callable[[float, IntArray], None],
    ) -> None:
        self.graph, self.order, self.should_stop, self.report = graph, order, should_stop, report
        self.kind = devices(graph).type
        self.nets = graph.nets_of_classes()
        self.random = np.random.default_rng(seed)
        self.device, self.load = device.copy(), device_loads(graph, device)
        self.best, self.value = device.copy(), float(self.load.max(initial=0.0))
        self.pairs = [(a, b) for a in range(len(self.kind)) for b in range(a)]
        self.unsettled = set(self.pairs)
        self.share, self.gap = _SHARES[1], _GAPS[0]
        self.calm = False  # no pair of the best plan can gain under the present potential
        # A division looks at about (classes of the pair) * (states) * (buckets) pairs of loads.
        per_pair = max(1.0, 2.0 * graph.n / max(1, len(self.kind)))
        self.buckets = int(np.clip(_EFFORT / (10 * per_pair), 40, 400))

    def descend(self) -> None:
        """Divide pairs anew until no pair can lower the potential."""
        while self.unsettled and self.value > 0.0 and not self.should_stop():
            top = int(self.load.argmax())
            choice = sorted(pair for pair in self.unsettled if top in pair)
            if not choice or self.random.random() < 0.5:
                choice = sorted(self.unsettled)
            pair = choice[int(self.random.integers(len(choice)))]
            self.unsettled.discard(pair)
            a, b = pair if self.random.random() < 0.5 else pair[::-1]
            limit = max(float(self.load[a]), float(self.load[b]), self.value * _BETTER)
            before = float(self._potential(self.load[[a, b]]).sum())
            if self._divide(a, b, limit, before - (1.0 - _BETTER) * self.value):
                self.unsettled.discard(pair)
        self.calm = self.calm or np.array_equal(self.device, self.best)

    def kick(self) -> None:
        """From the best plan, one or two random divisions, or an annealing walk; now and then another potential."""
        self._move_to(self.best.copy())
        if self.random.random() < 0.3:
            self.share = float(self.random.choice(_SHARES))
            self.gap = float(self.random.choice(_GAPS))
            self.calm = False
        self.unsettled = set() if self.calm else set(self.pairs)
        if self.random.random() < 0.5:
            for _ in range(int(self.random.integers(1, 3))):
                a, b = self.random.choice(len(self.kind), 2, replace=False).tolist()
                slack = float(self.random.choice([1.001, 1.003, 1.01, 1.03, 1.3]))
                self._divide(a, b, max(slack * self.value, float(self.load[a]), float(self.load[b])), None)
            return
        hot = float(10.0 ** self.random.uniform(-2.0, 0.5))
        steps = int(self.random.choice([200, 2_000, 20_000], p=[0.5, 0.4, 0.1]))
        met, last = anneal(
            self.graph, self.device, steps=steps, hot=hot, cold=hot / 100, seed=int(self.random.integers(1 << 62)),
            should_stop=self.should_stop,
        )  # fmt: skip
        self._move_to(met)
        self._move_to(last)

    def _potential(self, load: FloatArray) -> FloatArray:
        """(k,) what loads cost: seconds beyond the target, many of them on one device more, and a share of all."""
        target = self.value * (1.0 - self.gap)
        beyond = np.maximum(load - target, 0.0)
        return np.asarray(beyond + 100.0 * beyond * beyond / max(target, 1e-300) + self.share * load)

    def _divide(self, a: int, b: int, limit: float, below: float | None) -> bool:
        """Divide two devices' classes with the least potential, if that is below a number; None: at random."""
        types = (int(self.kind[a]), int(self.kind[b]))
        found = resplit(
            self.graph, self.nets, self.device, (a, b), types, self.order, limit, buckets=self.buckets, effort=_EFFORT
        )
        if found is None:
            return False
        if below is not None:
            worth = self._potential(found.first) + self._potential(found.second)
        else:
            # Among five ways at random the one with the least communication.
            drawn = self.random.integers(len(found.first), size=5)
            worth = np.full(len(found.first), np.inf)
            worth[drawn] = found.first[drawn] + found.second[drawn]
        k = int(worth.argmin())
        if below is not None and not worth[k] < below:
            return False
        device = self.device.copy()
        device[found.classes] = np.where(found.choice(k), a, b)
        return self._move_to(device)

    def _move_to(self, device: IntArray) -> bool:
        """Take a plan if it fits, unsettle the pairs of devices that change, and keep it if it is the best so far."""
        if not fits(self.graph, device):
            return False
        moved = device != self.device
        touched = set(np.concatenate([device[moved], self.device[moved]]).tolist())
        self.unsettled.update(pair for pair in self.pairs if pair[0] in touched or pair[1] in touched)
        self.device, self.load = device, device_loads(self.graph, device)
        value = float(self.load.max(initial=0.0))
        if value < self.value * _BETTER:
            self.best, self.value, self.calm = device.copy(), value, False
            self.report(value, self.best)
        return True
