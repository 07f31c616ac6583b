"""Small serving questions by HiGHS: every interval of every node, flows indexed by the boundary where they change hands.

    max  F
    (1)  sum_{s,k} x(i, s, k) <= 1                                  one interval for each node
    (2)  sum_b h(i, s, k, b) <= rate_i(k) x(i, s, k)                  h: flow that enters at layer b of the interval
    (3)  sum of h(i, s, k, b) over b <= l < s + k  =  F               for each layer l
    (4)  sum_j g(i, j, b) = sum of h(i, ..) over intervals that end at b
    (5)  sum_i g(i, j, b) = sum of h(j, .., b)                        entering at b (0 from the source, L to the sink)
    (6)  g(i, j, b) <= c_ij sum of x(i, ..) over intervals that end at b,
         g(i, j, b) <= c_ij sum of x(j, ..) over intervals that may be joined at b

Without joining inside an interval b is s. Rows (3) and (6) follow from the others for whole x, and make the relaxation
strong. The bound is the solver's word, widened by its tolerance. For a handful of nodes; :func:`options` says how large
the model would be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.serving_network import ServingNetwork

__all__ = ["Exact", "options", "solve_small"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_TOLERANCE = 2e-7  # relative; flows are counted in the known bound


class Exact(NamedTuple):
    """A plan (None when none was found) and a rate that no plan exceeds, on the solver's word."""

    start: Ints | None
    hold: Ints | None
    bound: float


def options(network: ServingNetwork) -> int:
    """Columns of the model, about: intervals that nodes can keep, times the layers at which a request may join them, and
    boundaries of each link."""
    count = 0
    for k in range(1, network.layers + 1):
        if k < network.throughput.shape[1]:
            nodes = int((network.throughput[:, k] > 0).sum())
            count += nodes * (network.layers - k + 1) * (k if network.partial else 1)
    return count + int((network.link > 0).sum()) * (network.layers - 1)


def solve_small(
    network: ServingNetwork,
    high: float,
    *,
    hint: tuple[Ints, Ints] | None = None,
    seed: int = 0,
    effort: int = 1000,
    should_stop: Callable[[], bool] = lambda: False,
) -> Exact:
    """Solve the model.

    Parameters
    ----------
    high
        A bound on the value of any plan.
    hint
        Start and hold of a plan to begin with.
    effort
        Nodes of the branch and bound.
    """
    model = _Model(network, high)
    return model.solve(hint, seed, effort, should_stop)


class _Model:
    """Columns and rows, collected as lists and handed to HiGHS at once."""

    def __init__(self, network: ServingNetwork, high: float) -> None:
        self.network, self.high = network, high
        self.upper: list[float] = []
        self.rows: list[tuple[float, float, list[int], list[float]]] = []
        self.x: dict[tuple[int, int, int], int] = {}
        self.ending: dict[tuple[int, int], list[int]] = {}  # intervals of a node that end at a boundary
        self.joined: dict[tuple[int, int], list[int]] = {}  # that may be joined there
        self.entering: dict[tuple[int, int], list[int]] = {}  # flows into a node there
        self.leaving: dict[tuple[int, int], list[int]] = {}  # and out of it
        self.total = self._column(1.0)
        self._intervals()
        self._links()

    def _share(self, value: float) -> float:
        """A capacity in the known bound, at most 1; rounded up."""
        return 1.0 if value >= self.high else float(min(value / self.high * (1 + 1e-15), 1.0))

    def _column(self, upper: float) -> int:
        self.upper.append(upper)
        return len(self.upper) - 1

    def _row(self, low: float, high: float, columns: list[int], values: list[float]) -> None:
        self.rows.append((low, high, columns, values))

    def _intervals(self) -> None:
        """x and h with (1)-(3)."""
        network = self.network
        serving: list[list[int]] = [[] for _ in range(network.layers)]
        for i in range(network.n):
            mine = []
            for k in range(1, min(network.layers, network.throughput.shape[1] - 1) + 1):
                rate = self._share(network.throughput[i, k])
                for s in range(network.layers - k + 1) if rate > 0 else ():
                    x = self.x[i, s, k] = self._column(1.0)
                    mine.append(x)
                    self.ending.setdefault((i, s + k), []).append(x)
                    flows = []
                    for b in range(s, s + k if network.partial else s + 1):
                        h = self._column(rate)
                        flows.append(h)
                        self.joined.setdefault((i, b), []).append(x)
                        self.entering.setdefault((i, b), []).append(h)
                        self.leaving.setdefault((i, s + k), []).append(h)
                        for layer in range(b, s + k):
                            serving[layer].append(h)
                    self._row(-np.inf, 0.0, [*flows, x], [1.0] * len(flows) + [-rate])
            self._row(-np.inf, 1.0, mine, [1.0] * len(mine))
        for flows in serving:
            self._row(0.0, 0.0, [*flows, self.total], [1.0] * len(flows) + [-1.0])

    def _links(self) -> None:
        """g with (4)-(6), and the links to the outside."""
        network = self.network
        for b in range(1, network.layers):
            onward: dict[int, list[int]] = {}
            for i in range(network.n):
                if (i, b) not in self.leaving:
                    continue
                out = []
                for j in np.flatnonzero(network.link[i]).tolist():
                    if (j, b) not in self.entering:
                        continue
                    capacity = self._share(network.link[i, j])
                    g = self._column(capacity)
                    out.append(g)
                    onward.setdefault(j, []).append(g)
                    for intervals in (self.ending[i, b], self.joined[j, b]):
                        self._row(-np.inf, 0.0, [g, *intervals], [1.0] + [-capacity] * len(intervals))
                self._equal(self.leaving[i, b], out)
            for j in range(network.n):
                if (j, b) in self.entering:
                    self._equal(self.entering[j, b], onward.get(j, []))
        for i in range(network.n):
            for flows, capacity in (
                (self.entering.get((i, 0), []), network.source[i]),
                (self.leaving.get((i, network.layers), []), network.sink[i]),
            ):
                self._row(-np.inf, self._share(capacity), flows, [1.0] * len(flows))

    def _equal(self, one: list[int], other: list[int]) -> None:
        self._row(0.0, 0.0, one + other, [1.0] * len(one) + [-1.0] * len(other))

    def solve(self, hint: tuple[Ints, Ints] | None, seed: int, effort: int, should_stop: Callable[[], bool]) -> Exact:
        """Run HiGHS until it ends, has used its effort or is stopped."""
        import highspy

        highs = highspy.Highs()
        for name, value in (
            ("output_flag", False),
            ("threads", 1),
            ("random_seed", seed % 2**31),
            ("mip_rel_gap", 0.0),
            ("mip_abs_gap", 0.0),
            ("mip_feasibility_tolerance", 1e-9),
            ("primal_feasibility_tolerance", 1e-9),
            ("dual_feasibility_tolerance", 1e-9),
            ("mip_max_nodes", effort),
        ):
            highs.setOptionValue(name, value)
        highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
        number = len(self.upper)
        nothing = np.zeros(0, dtype=np.int32)
        cost = np.zeros(number)
        cost[self.total] = 1.0
        highs.addCols(number, cost, np.zeros(number), np.array(self.upper), 0, nothing, nothing, np.zeros(0))
        whole = np.array(list(self.x.values()), dtype=np.int32)
        kinds = np.full(len(whole), int(highspy.HighsVarType.kInteger), dtype=np.uint8)
        highs.changeColsIntegrality(len(whole), whole, kinds)
        lengths = np.array([len(columns) for _, _, columns, _ in self.rows])
        highs.addRows(
            len(self.rows),
            np.array([row[0] for row in self.rows]),
            np.array([row[1] for row in self.rows]),
            int(lengths.sum()),
            np.append(0, np.cumsum(lengths)[:-1]).astype(np.int32),
            np.array([c for row in self.rows for c in row[2]], dtype=np.int32),
            np.array([v for row in self.rows for v in row[3]]),
        )
        if hint is not None:
            chosen = np.array([float(hint[0][i] == s and hint[1][i] == k) for i, s, k in self.x])
            highs.setSolution(len(whole), whole, chosen)
        _listen(highs, should_stop)
        highs.run()
        info = highs.getInfo()
        bound = float(info.mip_dual_bound)
        bound = self.high if not np.isfinite(bound) else min(self.high, bound * self.high * (1 + _TOLERANCE))
        if info.primal_solution_status != 2:  # no feasible point
            return Exact(None, None, bound)
        point = np.array(highs.getSolution().col_value)
        start, hold = np.zeros(self.network.n, dtype=np.int64), np.zeros(self.network.n, dtype=np.int64)
        for (i, s, k), x in self.x.items():
            if point[x] > 0.5:
                start[i], hold[i] = s, k
        return Exact(start, hold, bound)


def _listen(highs: Any, should_stop: Callable[[], bool]) -> None:
    """Have HiGHS ask whether to stop."""
    import highspy

    def callback(kind: int, message: str, out: Any, back: Any, user: Any) -> None:
        if back is not None and should_stop():
            back.user_interrupt = True

    kinds = highspy.cb.HighsCallbackType
    highs.setCallback(callback, None)
    for kind in (kinds.kCallbackMipInterrupt, kinds.kCallbackSimplexInterrupt, kinds.kCallbackIpmInterrupt):
        highs.startCallback(kind)
