"""Choose blocks that cover all layers at a rate: column generation, then whole numbers.

For a rate T every block (:mod:`hetopt.algorithms.serving_blocks`) is an arc from the *state* it begins in, a cluster and the
kind of its first boundary, to the state it ends in. A gateway is an arc between clusters. Boundaries that can be joined
are arcs too, and a plan is a walk:

    max  sum_b layers(b) z_b
    (1)  sum_b nodes(b, c) z_b <= N(c)      for each class c of nodes (rates, cluster, leaf, links to the outside)
    (2)  z and the joints form a flow of ``copies`` units from the source to the sink

The linear program finds the blocks and CP-SAT chooses among them; :mod:`hetopt.algorithms.serving_arrange` puts them in order and
picks nodes. Heuristic: states are a coarse picture of the links, and only blocks that were found are chosen from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.serving_blocks import Block, BlockTable, Kinds, Piece, leaf_kinds, plain_kinds
from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.algorithms.serving_sat import solve_model
from hetopt.algorithms.serving_view import Gateway, View, gateways

__all__ = ["ChainProgram", "Part", "Slot"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
State = tuple[int, int]

_PENALTY = 1000.0
_ROUNDS = 60
_GAIN = 0.02  # layers; columns that promise less are not waited for
_CUTS = 8
_POOL = 2500


class Slot(NamedTuple):
    """An interval that waits for a node: first layer counted from its part's, layers kept, class of nodes, flow.

    ``node`` is the node itself where it is settled, else -1.
    """

    start: int
    keep: int
    of_class: int
    flow: float
    node: int = -1


class Part(NamedTuple):
    """A stretch of layers with full hand-overs at both ends."""

    layers: int
    first: State
    last: State
    slots: tuple[Slot, ...]


class ChainProgram:
    """The walk of blocks and gateways at one rate.

    Parameters
    ----------
    view
        What the links look like at the rate T that each walk is to have.
    copies
        Number of walks, all of rate T and L layers (several pipelines side by side).
    longest, top
        Longest block, and the grid of rates, see :class:`~hetopt.algorithms.serving_blocks.BlockTable`.

    Attributes
    ----------
    classes, of_node, nodes
        (c, 5) rate group, cluster, leaf, link from the source, link to the sink; (n,) class of each node; (c,) their number.
    impossible
        What arrangements at this rate found out about hand-overs.
    """

    def __init__(
        self, network: ServingNetwork, view: View, *, copies: int = 1, longest: int = 16, top: int = 300
    ) -> None:
        self.layers, self.copies, self.view, self.top = network.layers, copies, view, top
        self.longest = min(longest, network.layers)
        self.kinds: Kinds = leaf_kinds() if view.leaf.any() else plain_kinds()
        key = np.column_stack([view.group, view.cluster, view.leaf, network.source > 0, network.sink > 0]).astype(
            np.int64
        )
        self.classes, self.of_node = np.unique(key, axis=0, return_inverse=True)
        self.of_node = self.of_node.ravel()
        self.nodes = np.bincount(self.of_node).astype(np.int64)
        first = np.array([int(np.flatnonzero(self.of_node == c)[0]) for c in range(len(self.nodes))])
        columns = min(self.longest, network.throughput.shape[1] - 1) + 1
        whole = np.minimum(np.floor(network.throughput[first][:, :columns] * top / view.rate * (1 + 1e-12)), top)
        self._at, self._keep = np.nonzero(whole >= 1)
        self._rate = whole[self._at, self._keep].astype(np.int64)
        self.parts: list[Part] = []
        self._used: list[Ints] = []
        self._seen: set[tuple[object, ...]] = set()
        self.impossible: dict[object, list[tuple[int, ...]]] = {}
        self._setup()
        if view.cluster.max() > 0:
            for gateway in gateways(network, view):
                self._add(self._through(gateway))

    def _setup(self) -> None:
        """Rows of (1) and (2), and the arcs of the joints."""
        import highspy

        self._highs = highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("threads", 1)
        highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
        for count in self.nodes:
            highs.addRow(-highs.inf, float(count), 0, [], [])
        clusters = range(int(self.view.cluster.max()) + 1)
        self.states = [(c, x) for c in clusters for x in range(self.kinds.number)]
        rows = len(self.nodes) + np.arange(2 * len(self.states) + 2)
        self._begin = dict(zip(self.states, rows[: len(self.states)].tolist(), strict=True))
        self._finish = dict(zip(self.states, rows[len(self.states) : -2].tolist(), strict=True))
        for _ in range(2 * len(self.states)):
            highs.addRow(0.0, 0.0, 0, [], [])
        for _ in range(2):
            highs.addRow(float(self.copies), float(self.copies), 0, [], [])
        self.joints = [
            ((c, x), (c, y)) for c, x in self.states for y in range(self.kinds.number) if self.kinds.join[x, y]
        ]
        for ending, beginning in self.joints:
            self._column(0.0, [self._finish[ending], self._begin[beginning]], [-1.0, 1.0])
        for row in rows[-2:].tolist():
            self._column(-_PENALTY, [row], [1.0])
        self.opening = [s for s in self.states if self.classes[self.classes[:, 1] == s[0], 3].any()]
        self.closing = [s for s in self.states if self.classes[self.classes[:, 1] == s[0], 4].any()]
        for state in self.opening:
            self._column(0.0, [self._begin[state], int(rows[-2])], [1.0, 1.0])
        for state in self.closing:
            self._column(0.0, [self._finish[state], int(rows[-1])], [-1.0, 1.0])
        self._first_part = highs.getNumCol()
        self._loss = np.zeros(0)

    def _column(self, cost: float, rows: list[int], values: list[float]) -> None:
        self._highs.addCol(cost, 0.0, self._highs.inf, len(rows), np.array(rows, dtype=np.int32), np.array(values))

    def generate(self, *, should_stop: Callable[[], bool] = lambda: False) -> float:
        """Blocks until none improves the linear program; the layers it covers (``-inf`` when stopped before)."""
        price = np.array([self.view.price[self.of_node == c].mean() for c in range(len(self.nodes))]).clip(1e-4)
        value = -np.inf
        dual = np.zeros(self._highs.getNumRow())
        for turn in range(_ROUNDS):
            fresh, most = 0, 0.0
            for cluster in range(int(self.view.cluster.max()) + 1):
                if should_stop():
                    return value
                here = np.flatnonzero(self.classes[self._at, 1] == cluster)
                kind = self.classes[self._at[here], 2] * (self.kinds.number - 1)
                table = BlockTable(
                    self._keep[here], self._rate[here], price[self._at[here]], kind, self.kinds, self.longest, self.top
                )
                for cost, block in table.blocks():
                    part = self._from_block(cluster, here, block)
                    gain = block.layers - cost + dual[self._begin[part.first]] - dual[self._finish[part.last]]
                    if turn == 0 or gain > 1e-6:
                        fresh += self._add(part)
                        most = max(most, gain)
            self._highs.run()
            value = float(self._highs.getInfo().objective_function_value)
            dual = np.array(self._highs.getSolution().row_dual)
            self._loss = -np.array(self._highs.getSolution().col_dual)[self._first_part :]
            if fresh == 0 or (turn > 0 and most < _GAIN):
                break
            price = np.maximum(dual[: len(self.nodes)], 1e-4)
        return value

    def _from_block(self, cluster: int, here: Ints, block: Block) -> Part:
        """A part of one cluster, whose items are numbered within ``here``."""

        def slot(p: Piece) -> Slot:
            return Slot(p.start, p.keep, int(self._at[here[p.item]]), p.rate * self.view.rate / self.top)

        return Part(block.layers, (cluster, block.first), (cluster, block.last), tuple(slot(p) for p in block.pieces))

    def _through(self, gateway: Gateway) -> Part:
        """A part that leads from a cluster to another; its nodes are settled."""
        before = [
            Slot(0, gateway.exit_keep, int(self.of_node[i]), f, i)
            for i, f in zip(gateway.exits, gateway.exit_flow, strict=True)
        ]
        after = [
            Slot(gateway.exit_keep, gateway.entry_keep, int(self.of_node[i]), f, i)
            for i, f in zip(gateway.entries, gateway.entry_flow, strict=True)
        ]
        return Part(
            gateway.exit_keep + gateway.entry_keep,
            (int(self.view.cluster[gateway.exits[0]]), 0),
            (int(self.view.cluster[gateway.entries[0]]), 0),
            tuple(before + after),
        )

    def _add(self, part: Part) -> bool:
        """A column for the part, unless one like it is there."""
        used = np.bincount([s.of_class for s in part.slots], minlength=len(self.nodes)).astype(np.int64)
        settled = tuple(s.node for s in part.slots if s.node >= 0)
        key = (part.layers, part.first, part.last, used.tobytes(), settled)
        if key in self._seen:
            return False
        self._seen.add(key)
        self.parts.append(part)
        self._used.append(used)
        classes = np.flatnonzero(used)
        rows = [*classes.tolist(), self._begin[part.first], self._finish[part.last]]
        self._column(float(part.layers), rows, [*used[classes].astype(float).tolist(), -1.0, 1.0])
        return True

    def choose(
        self, *, seed: int, effort: float, workers: int = 1, should_stop: Callable[[], bool] = lambda: False
    ) -> list[list[Part]] | None:
        """Parts for ``copies`` walks that cover L layers or more each, or None when CP-SAT finds none within its effort.

        Call :meth:`generate` first. Only the parts that the linear program likes best are looked at.
        """
        from ortools.sat.python import cp_model

        likely = np.argsort(self._loss, kind="stable")  # layers lost by using a part, in the linear program's eyes
        pool = [i for i in likely.tolist() if (self._used[i] <= self.nodes).all()][: _POOL // self.copies]
        model = cp_model.CpModel()
        walks = [_Walk(self, model, pool) for _ in range(self.copies)]
        chosen = [(self.parts[i], self._used[i], v) for walk in walks for i, v in zip(pool, walk.z, strict=True)]
        for c in range(len(self.nodes)):
            model.add(sum(int(u[c]) * v for _, u, v in chosen if u[c]) <= int(self.nodes[c]))
        for i in range(len(self.of_node)):
            model.add(sum(v for p, _, v in chosen if any(s.node == i for s in p.slots)) <= 1)
        model.maximize(sum(walk.covered for walk in walks))
        for _ in range(_CUTS):
            answer = solve_model(model, seed=seed, effort=effort, workers=workers, should_stop=should_stop)
            if not answer.found or any(answer.value(walk.covered) < self.layers for walk in walks):
                return None
            if not [w for w in walks if w.forbid_round_trips(answer.value)]:
                return [walk.picked(answer.value) for walk in walks]
        return None

    def touches(self, part: Part, side: int) -> bool:
        """Have all nodes at the part's beginning (side 3) or end (side 4) a link to the outside?"""
        return all(
            self.classes[s.of_class, side]
            for s in part.slots
            if (s.start == 0 if side == 3 else s.start + s.keep == part.layers)
        )


class _Walk:
    """Variables and constraints (2) of one walk in the whole-number program."""

    def __init__(self, program: ChainProgram, model: Any, pool: list[int]) -> None:
        self.model = model
        self.parts = [program.parts[i] for i in pool]
        self.most = int(program.nodes.sum())
        self.z = []
        for i, part in zip(pool, self.parts, strict=True):
            used = program._used[i]
            settled = any(s.node >= 0 for s in part.slots)
            most = 1 if settled else int(min(program.nodes[c] // used[c] for c in np.flatnonzero(used)))
            self.z.append(model.new_int_var(0, most, ""))
        both = list(zip(self.parts, self.z, strict=True))
        self.joint = {j: model.new_int_var(0, self.most, "") for j in program.joints}
        self.begin = {s: model.new_bool_var("") for s in program.opening}
        finish = {s: model.new_bool_var("") for s in program.closing}
        model.add_exactly_one(self.begin.values())
        model.add_exactly_one(finish.values())
        for s in program.states:
            starting = sum(v for p, v in both if p.first == s)
            model.add(sum(v for (_, b), v in self.joint.items() if b == s) + self.begin.get(s, 0) == starting)
            ending = sum(v for p, v in both if p.last == s)
            model.add(sum(v for (e, _), v in self.joint.items() if e == s) + finish.get(s, 0) == ending)
            if s in self.begin:
                model.add(self.begin[s] <= sum(v for p, v in both if p.first == s and program.touches(p, 3)))
            if s in finish:
                model.add(finish[s] <= sum(v for p, v in both if p.last == s and program.touches(p, 4)))
        self.covered = model.new_int_var(0, program.layers, "")
        model.add(self.covered <= sum(p.layers * v for p, v in both))

    def picked(self, value: Callable[[Any], int]) -> list[Part]:
        """The walk's parts, each as often as it is used."""
        return [p for p, v in zip(self.parts, self.z, strict=True) for _ in range(value(v))]

    def forbid_round_trips(self, value: Callable[[Any], int]) -> bool:
        """Demand an entrance to round trips that the walk does not reach; False when there are none."""
        arcs = [(p.first, p.last) for p in self.picked(value)] + [j for j, v in self.joint.items() if value(v)]
        inside = _unreached([s for s, v in self.begin.items() if value(v)], arcs)
        if inside:
            both = list(zip(self.parts, self.z, strict=True))
            entrances = [v for p, v in both if p.first not in inside and p.last in inside]
            entrances += [v for (e, b), v in self.joint.items() if e not in inside and b in inside]
            entrances += [v for s, v in self.begin.items() if s in inside]
            self.model.add(sum(v for p, v in both if p.first in inside) <= self.most * sum(entrances))
        return bool(inside)


def _unreached(start: list[State], arcs: list[tuple[State, State]]) -> set[State]:
    """States that parts begin in and that no walk from ``start`` comes to."""
    reached: set[State] = set()
    pending = list(start)
    while pending:
        state = pending.pop()
        if state not in reached:
            reached.add(state)
            pending += [b for a, b in arcs if a == state]
    return {a for a, _ in arcs} - reached
