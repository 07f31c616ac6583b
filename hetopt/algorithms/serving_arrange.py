"""Put chosen parts in an order and their slots on nodes, so that every hand-over finds the links it needs.

A part (:class:`~hetopt.algorithms.serving_chain.Part`) says which classes of nodes serve which layers with what flow. Which part
follows which, and which node of a class takes a slot, is one CP-SAT model: a circuit through the parts, and for every slot
the *place* of its node (nodes of a place are exchangeable). A hand-over from ending to beginning slots is possible for some
combinations of places, found by enumerating cuts; the others are forbidden. No flow variables are needed, as the flows
are known. The result is a plan, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.serving_chain import ChainProgram, Part
from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.algorithms.serving_sat import solve_model
from hetopt.algorithms.serving_view import transport

__all__ = ["arrange"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_COMBINATIONS = 1500  # of places at a hand-over; beyond, fixed pairs of slots must be linked
_SLACK = 1 - 1e-9


def arrange(
    network: ServingNetwork,
    program: ChainProgram,
    walks: list[list[Part]],
    *,
    seed: int,
    effort: float,
    workers: int = 1,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[Ints, Ints] | None:
    """An order for the parts of each walk, and nodes for all.

    Returns
    -------
    tuple or None
        Start and hold of every node (hold 0 where left out); None when there is no arrangement or none was found.
    """
    return _Arrangement(network, program, walks).solve(seed, effort, workers, should_stop)


class _Arrangement:
    def __init__(self, network: ServingNetwork, program: ChainProgram, walks: list[list[Part]]) -> None:
        from ortools.sat.python import cp_model

        self.network, self.program = network, program
        self.parts = parts = [part for walk in walks for part in walk]
        self.model = cp_model.CpModel()
        self.slots = [(b, s) for b, part in enumerate(parts) for s in part.slots]
        self.of_part = [[i for i, (b, _) in enumerate(self.slots) if b == part] for part in range(len(parts))]
        self.capacity = self._capacities()
        self._forbidden = program.impossible
        self._places()
        for b, part in enumerate(parts):
            if part.first[0] == part.last[0]:  # the hand-over inside a gateway is settled
                for layer in range(1, part.layers):
                    self._join(self._ending(b, layer), self._starting(b, layer), None)
        self.arcs: list[list[tuple[int, int, Any]]] = []
        first = 0
        for walk in walks:
            self.arcs.append(self._circuit(range(first, first + len(walk))))
            first += len(walk)

    def _capacities(self) -> Floats:
        """(places, places) what a link between nodes of two places carries; 0 inside a place of one node."""
        place = self.program.view.place
        number = int(place.max()) + 1
        capacity = np.zeros((number, number))
        members = [np.flatnonzero(place == p) for p in range(number)]
        for p in range(number):
            for q in range(number):
                j = members[q][-1]  # another node than the first where p = q
                capacity[p, q] = self.network.link[members[p][0], j] if members[p][0] != j else 0.0
        return np.minimum(capacity, self.program.view.rate)

    def _places(self) -> None:
        """One place for every slot, and no place more often than it has nodes of the kind."""
        place = self.program.view.place
        _, self.kind_of_class = np.unique(self.program.classes[:, :3], axis=0, return_inverse=True)
        self.kind_of_class = self.kind_of_class.ravel()
        self.kind = self.kind_of_class[self.program.of_node]  # rates, cluster and leaf; links to the outside may differ
        self.options: list[list[int]] = []
        self.at: dict[tuple[int, int], Any] = {}
        taken: dict[tuple[int, int], list[Any]] = {}
        for i, (_, slot) in enumerate(self.slots):
            kind = int(self.kind_of_class[slot.of_class])
            nodes = np.array([slot.node]) if slot.node >= 0 else np.flatnonzero(self.kind == kind)
            self.options.append(sorted(set(place[nodes].tolist())))
            for p in self.options[-1]:
                self.at[i, p] = self.model.new_bool_var("")
                taken.setdefault((kind, p), []).append(self.at[i, p])
            self.model.add_exactly_one(self.at[i, p] for p in self.options[-1])
        for (kind, p), literals in taken.items():
            self.model.add(sum(literals) <= int(((self.kind == kind) & (place == p)).sum()))

    def _ending(self, b: int, layer: int) -> list[int]:
        return [i for i in self.of_part[b] if self.slots[i][1].start + self.slots[i][1].keep == layer]

    def _starting(self, b: int, layer: int) -> list[int]:
        return [i for i in self.of_part[b] if self.slots[i][1].start == layer]

    def _join(self, ending: list[int], starting: list[int], literal: Any) -> bool:
        """Forbid the places with which a hand-over is impossible (while ``literal`` holds); False when all are."""
        if not ending:
            return True
        both = ending + starting
        give = np.array([self.slots[i][1].flow for i in ending])
        take = np.array([self.slots[i][1].flow for i in starting])
        unless = [] if literal is None else [~literal]
        if len(both) == 2 or np.prod([len(self.options[i]) for i in both]) > _COMBINATIONS:
            return self._join_pairs(ending, starting, give, take, unless)
        key = (tuple(tuple(self.options[i]) for i in both), give.tobytes(), take.tobytes())
        if key not in self._forbidden:
            self._forbidden[key] = [
                places
                for places in product(*(self.options[i] for i in both))
                if transport(give, take, self.capacity[np.ix_(places[: len(ending)], places[len(ending) :])])
                < give.sum() * _SLACK
            ]
        for places in self._forbidden[key]:
            self.model.add_bool_or([*(~self.at[i, p] for i, p in zip(both, places, strict=True)), *unless])
        return bool(len(self._forbidden[key]) < np.prod([len(self.options[i]) for i in both]))

    def _join_pairs(
        self, ending: list[int], starting: list[int], give: Floats, take: Floats, unless: list[Any]
    ) -> bool:
        """The same with one fixed way to split the flows (north-west corner): each pair that shares flow must be linked."""
        give, take = give.copy(), take.copy()
        clauses = []
        i = j = 0
        while i < len(give) and j < len(take):
            flow = min(give[i], take[j])
            s, t = ending[i], starting[j]
            carries = self.capacity[np.ix_(self.options[s], self.options[t])] >= flow * _SLACK
            if not carries.any():
                return False
            for p, row in zip(self.options[s], carries, strict=True):
                if not row.all():
                    onward = [self.at[t, q] for q, good in zip(self.options[t], row, strict=True) if good]
                    clauses.append([~self.at[s, p], *onward, *unless])
            last = give[i] <= take[j], take[j] <= give[i]
            give[i] -= flow
            take[j] -= flow
            i, j = i + last[0], j + last[1]
        for clause in clauses:
            self.model.add_bool_or(clause)
        return True

    def _circuit(self, which: range) -> list[tuple[int, int, Any]]:
        """Arcs of one round through the outside (node 0) and every part of a walk (node b + 1)."""
        arcs = []
        for b in which:
            for d in which:
                if b == d or self.parts[b].last[0] != self.parts[d].first[0]:
                    continue
                literal = self.model.new_bool_var("")
                if self._join(self._ending(b, self.parts[b].layers), self._starting(d, 0), literal):
                    arcs.append((b + 1, d + 1, literal))
            enter, leave = self.model.new_bool_var(""), self.model.new_bool_var("")
            arcs += [(0, b + 1, enter), (b + 1, 0, leave)]
            self._touch(self._starting(b, 0), self.network.source, enter)
            self._touch(self._ending(b, self.parts[b].layers), self.network.sink, leave)
        self.model.add_circuit(arcs)
        return arcs

    def _touch(self, slots: list[int], outside: Floats, literal: Any) -> None:
        """While ``literal`` holds, these slots need nodes whose link to the outside carries their flow."""
        place = self.program.view.place
        for i in slots:
            for p in self.options[i]:
                if outside[np.flatnonzero(place == p)[0]] < self.slots[i][1].flow * _SLACK:
                    self.model.add_bool_or([~literal, ~self.at[i, p]])

    def solve(
        self, seed: int, effort: float, workers: int, should_stop: Callable[[], bool]
    ) -> tuple[Ints, Ints] | None:
        """Solve, put the parts one after another, trim and name the nodes."""
        answer = solve_model(self.model, seed=seed, effort=effort, workers=workers, should_stop=should_stop)
        if not answer.found:
            return None
        node = self._nodes(answer.value)
        start = np.zeros(self.network.n, dtype=np.int64)
        hold = np.zeros(self.network.n, dtype=np.int64)
        for arcs in self.arcs:
            following = {a: b for a, b, v in arcs if answer.value(v)}
            walk, b = [], following[0]
            while b:
                walk.append(b - 1)
                b = following[b]
            if not self._lay(walk, node, start, hold):
                return None
        return start, hold

    def _nodes(self, value: Callable[[Any], int]) -> list[int]:
        """A node for every slot: settled ones first, then any free one of the kind at the place chosen."""
        place = self.program.view.place
        free = np.ones(self.network.n, dtype=bool)
        node = [slot.node for _, slot in self.slots]
        free[[i for i in node if i >= 0]] = False
        for i, (_, slot) in enumerate(self.slots):
            if node[i] < 0:
                p = next(p for p in self.options[i] if value(self.at[i, p]))
                node[i] = int(np.flatnonzero(free & (self.kind == self.kind_of_class[slot.of_class]) & (place == p))[0])
                free[node[i]] = False
        return node

    def _lay(self, walk: list[int], node: list[int], start: Ints, hold: Ints) -> bool:
        """Lay parts one after another and take layers out until L are left; False when none can be taken."""
        which: list[int] = []
        offset: list[int] = []
        total = 0
        for b in walk:
            which += self.of_part[b]
            offset += [total] * len(self.of_part[b])
            total += self.parts[b].layers
        at = np.array([node[i] for i in which])
        flow = np.array([self.slots[i][1].flow for i in which])
        keep = np.array([self.slots[i][1].keep for i in which])
        begin = np.array(offset) + [self.slots[i][1].start for i in which]
        while total > self.network.layers:
            rate = self.network.throughput[at, np.maximum(keep - 1, 0)]
            room = np.divide(rate, flow, out=np.full(len(flow), np.inf), where=flow > 0)
            room[keep <= 1] = 0.0
            slack = [room[(begin <= layer) & (layer < begin + keep)].min() for layer in range(total)]
            layer = int(np.argmax(slack))
            if slack[layer] < _SLACK:
                return False
            keep[(begin <= layer) & (layer < begin + keep)] -= 1
            begin[begin > layer] -= 1
            total -= 1
        start[at], hold[at] = begin, keep
        return True
