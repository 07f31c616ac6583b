"""Plans by local search: assign classes to devices, contiguous or not, so that the largest load is small.

:func:`improve` is a large-neighbourhood search from a given plan. Its main move takes two devices and divides what they hold
anew, in the best of all ways (:mod:`hetopt.algorithms.maxload_resplit`), under the potential ``sum_d (load_d / reference) ** p``
with p changing from descent to descent: a large p follows the largest load, a small one saves communication, which makes
room everywhere. Between descents, and where frontiers are too wide to divide a pair,
:func:`~hetopt.algorithms.maxload_anneal.anneal` moves single classes,
connected clusters and swaps. Both know several device types, different rates in and out, memory and classes that cannot
run everywhere. Memory O(nets * devices).

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

IntArray = NDArray[np.int64]

_EFFORT = 3_000_000  # pairs of loads that one division may look at, about 0.06 s
_POWERS = (3.0, 8.0, 20.0, 60.0, 150.0)
_BETTER = 1.0 - 1e-9  # what counts as an improvement, so that rounding does not


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
        Descents, each followed by a kick.
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
        search.descend(20.0 if number == 0 else float(search.random.choice(_POWERS)))
        if should_stop() or search.value <= target * (2.0 - _BETTER) or len(search.kind) < 2:
            break
        search.kick()
    return search.best, search.value


class _Search:
    """Current and best plan of :func:`improve`."""

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
        self.best = device.copy()
        self.value = float(device_loads(graph, device).max(initial=0.0))
        self.device, self.load = device.copy(), device_loads(graph, device)
        # A division looks at about (classes of the pair) * (states) * (buckets) pairs of loads.
        per_pair = max(1.0, 2.0 * graph.n / max(1, len(self.kind)))
        self.buckets = int(np.clip(_EFFORT / (10 * per_pair), 40, 1000))

    def descend(self, power: float) -> None:
        """Divide pairs anew until no pair can lower the potential."""
        count = len(self.kind)
        settled: set[tuple[int, int]] = set()
        while len(settled) < count * (count - 1) and not self.should_stop():
            top = int(self.load.argmax())
            a = top if self.random.random() < 0.4 else int(self.random.integers(count))
            b = int(self.random.integers(count - 1))
            b += b >= a
            if (a, b) in settled:
                left = [(c, d) for c in range(count) for d in range(count) if c != d and (c, d) not in settled]
                a, b = left[int(self.random.integers(len(left)))]
            settled.add((a, b))
            reference = float(self.load.max())
            if reference <= 0.0:
                return
            before = (self.load[a] / reference) ** power + (self.load[b] / reference) ** power
            if self._divide(a, b, reference, power, before * _BETTER):
                settled = {pair for pair in settled if a not in pair and b not in pair} | {(a, b), (b, a)}

    def kick(self) -> None:
        """From the best plan, a few random divisions, or an annealing walk."""
        self._move_to(self.best.copy())
        if self.random.random() < 0.5:
            for _ in range(int(self.random.integers(1, 4))):
                a, b = self.random.choice(len(self.kind), 2, replace=False).tolist()
                slack = float(self.random.choice([1.003, 1.01, 1.03]))
                self._divide(a, b, max(slack * self.value, float(self.load[a]), float(self.load[b])), 0.0, np.inf)
            return
        hot = float(10.0 ** self.random.uniform(-2.0, 0.5))
        steps = int(self.random.choice([200, 2_000, 20_000]))
        best, last = anneal(
            self.graph, self.device, steps=steps, hot=hot, cold=hot / 100, power=float(self.random.choice(_POWERS)),
            seed=int(self.random.integers(1 << 62)), should_stop=self.should_stop,
        )  # fmt: skip
        self._move_to(best)
        self._move_to(last)

    def _divide(self, a: int, b: int, limit: float, power: float, below: float) -> bool:
        """Divide two devices' classes in the way of least potential, if that is below a number; power 0: at random."""
        types = (int(self.kind[a]), int(self.kind[b]))
        found = resplit(
            self.graph, self.nets, self.device, (a, b), types, self.order, limit, buckets=self.buckets, effort=_EFFORT
        )
        if found is None:
            return False
        if power:
            worth = (found.first / limit) ** power + (found.second / limit) ** power
        else:
            # Among five ways at random the one with the least communication.
            worth = np.full(len(found.first), np.inf)
            drawn = self.random.integers(len(worth), size=5)
            worth[drawn] = found.first[drawn] + found.second[drawn]
        k = int(worth.argmin())
        if not worth[k] < below:
            return False
        device = self.device.copy()
        device[found.classes] = np.where(found.choice(k), a, b)
        return self._move_to(device)

    def _move_to(self, device: IntArray) -> bool:
        """Take a plan if it fits, and keep it if it is the best so far."""
        if not fits(self.graph, device):
            return False
        self.device, self.load = device, device_loads(self.graph, device)
        value = float(self.load.max())
        if value < self.value * _BETTER:
            self.best, self.value = device.copy(), value
            self.report(value, self.best)
        return True
