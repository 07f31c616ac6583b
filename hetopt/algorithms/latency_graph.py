"""The graph that inference latency is searched on: what it keeps of the tasks, and what it decides beforehand.

A *node* is one task, or a group of tasks that acts as one task wherever it is put. A host runs a node when its inputs are
there; an accelerator runs one convex set S of nodes once all inputs of S are there, and hands on all of S at its end, after

    load(S) = sum of acc over S + arrive of each output from outside that S reads + send of each output of S read outside.

Costs are integers that round down (one power of two for all of them, 60 bits together), so that an exact search over them
proves a bound on the true problem. What this module does to the set of plans:

1. *Groups.* A group is one node when this changes nothing: it has at most one task r that takes a host any time, what
   comes in leads to r (or ends in it), and what goes out comes from r (or follows it). Any other group is *awkward*:
   :func:`choices` lists its places, and each combination of them is a graph of its own. On an accelerator the group is
   one node, fused with everything between its tasks; on a host its tasks are single nodes. Lossless together.
2. *Sources.* A source that only a host can run is ready at a time that no choice changes; it leaves the graph, and its
   readers get a release time and, on an accelerator, pay for its output. A source that takes a host no time and whose
   output costs nothing goes to the host. Then the same holds for the sources that are left. Lossless.
3. *Sinks.* A sink that takes no time and no memory anywhere follows its only predecessor. Lossless. Where sinks with
   a memory of their own make too many ideals, they can be made to follow too, either for nothing (``"light"``, a relaxation)
   or with their bytes (``"heavy"``, a restriction, in whose plans they do so).

It assumes one subgraph an accelerator and equal accelerators; with other instances, use the least time and cost, the
largest memory and no groups: then the graph is a relaxation. O(tasks + edges) operations, times the awkward groups' choices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["NEVER", "LatencyGraph", "LatencyTasks", "awkward_groups", "build", "choices", "linear_extension"]

NEVER = 1 << 61
"""Integer time of a node where it cannot run, larger than the sum of all others."""

_BITS = 60

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Sinks = Literal["own", "light", "heavy"]
Place = int
"""An awkward group's place: -1 for an accelerator, else the column of its host."""


class LatencyTasks(NamedTuple):
    """``n`` tasks on ``count`` equal accelerators and ``h`` hosts.

    Attributes
    ----------
    acc, host
        (n,) and (n, h) seconds; ``inf`` where a task cannot run.
    size
        (n,) bytes on an accelerator.
    arrive, send
        (n,) seconds to bring a task's output to, and from, an accelerator.
    edges
        (e, 2) pairs (producer, consumer), without cycles.
    group
        (n,) tasks with the same number share a device; -1 for none.
    count, room
        Accelerators, and bytes of each (``inf`` without limit).
    """

    acc: Floats
    host: Floats
    size: Floats
    arrive: Floats
    send: Floats
    edges: Ints
    group: Ints
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of a record
    room: float


class LatencyGraph(NamedTuple):
    """``n`` nodes in topological order, ``h`` nets; integers are multiples of ``unit`` seconds (sizes of their own unit).

    Attributes
    ----------
    acc, host
        (n,) time, ``NEVER`` where a node cannot run.
    release, floor
        (n,) and (1,) earliest start of a node, and of the plan's end, for the sake of what left the graph in step 2.
    size, room
        (n,) and (1,) bytes in integers that round down; ``room`` is ``NEVER`` when memory cannot bind.
    pred_ptr, pred, enter
        CSR of predecessors, with what node v pays at least when it reads from that one across a device.
    succ_ptr, succ
        CSR of successors.
    leave
        (n,) the least that a node's outputs cost when some successor is elsewhere.
    net_ptr, net_source, arrive, send
        Number of pins by CSR differences, (h,) source (-1: it left the graph) and costs of each output.
    in_ptr, in_net
        CSR of the nets that have a pin in each node.
    count
        Accelerators.
    unit
        Seconds.
    member
        (tasks,) node of each task, -1 when it is on the host in any case.
    home
        (tasks,) host column of each task when its node is on the host, -1 when it never is.
    """

    acc: Ints
    host: Ints
    release: Ints
    floor: Ints
    size: Ints
    room: Ints
    pred_ptr: Ints
    pred: Ints
    enter: Ints
    succ_ptr: Ints
    succ: Ints
    leave: Ints
    net_ptr: Ints
    net_source: Ints
    arrive: Ints
    send: Ints
    in_ptr: Ints
    in_net: Ints
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of a record
    unit: float
    member: Ints
    home: Ints

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.acc)

    def seconds(self, value: int) -> float:
        """An integer time in seconds, rounded down."""
        whole = float(value)
        return (math.nextafter(whole, 0.0) if int(whole) > value else whole) * self.unit


def awkward_groups(tasks: LatencyTasks) -> list[list[int]]:
    """Groups of several tasks that a host does not run as if they were one task; each in ascending order."""
    members: dict[int, list[int]] = {}
    for v, g in enumerate(tasks.group.tolist()):
        if g >= 0:
            members.setdefault(g, []).append(v)
    before, after = _neighbours(len(tasks.acc), tasks.edges.tolist())
    found = []
    for group in (g for g in members.values() if len(g) > 1):
        inside = set(group)
        busy = [v for v in group if any(0 < t < math.inf for t in tasks.host[v].tolist())]
        come = {v for v in group if any(u not in inside for u in before[v])}
        go = {v for v in group if any(w not in inside for w in after[v])}
        if len(busy) > 1 or not any(
            come <= _reach(r, before, inside) and go <= _reach(r, after, inside) for r in busy or group
        ):
            found.append(group)
    return found


def choices(tasks: LatencyTasks, awkward: list[list[int]]) -> Iterator[tuple[Place, ...]]:
    """Every way to place the awkward groups: the hosts that can take a group first, an accelerator last."""
    options = []
    for group in awkward:
        hosts = [h for h in range(tasks.host.shape[1]) if np.isfinite(tasks.host[group, h]).all()]
        options.append(hosts + ([-1] if tasks.count and np.isfinite(tasks.acc[group]).all() else []))
    yield from itertools.product(*options)


def build(
    tasks: LatencyTasks, awkward: list[list[int]], places: tuple[Place, ...], sinks: Sinks = "own"
) -> LatencyGraph | None:
    """Graph with the awkward groups at ``places``; None when no plan has them there. ``sinks``: see step 3."""
    n, hosts = tasks.host.shape
    scale = _time_bits(tasks)
    acc = _integers(tasks.acc, scale) if tasks.count else np.full(n, NEVER)
    host = _integers(tasks.host, scale)
    arrive, send = _integers(tasks.arrive, scale), _integers(tasks.send, scale)
    size, room = _sizes(tasks)
    label = np.arange(n)
    apart = {v for group in awkward for v in group}
    leader: dict[int, int] = {}
    for v, g in enumerate(tasks.group.tolist()):
        if g >= 0 and v not in apart:
            label[v] = leader.setdefault(g, v)
    forced = np.zeros(n, np.bool_)
    for group, place in zip(awkward, places, strict=True):
        if place < 0:
            label[group] = group[0]
            forced[group] = True
        else:
            acc[group] = NEVER
            others = np.arange(hosts) != place
            host[np.ix_(group, others)] = NEVER
    label = _fuse(label, tasks.edges, forced)
    members: dict[int, list[int]] = {}
    for v, c in enumerate(label.tolist()):
        members.setdefault(c, []).append(v)
    on_acc, on_host, home = {}, {}, np.full(n, -1)
    for c, group in members.items():
        on_acc[c] = NEVER if (acc[group] >= NEVER).any() else int(acc[group].sum())
        columns = np.where((host[group] >= NEVER).any(axis=0), NEVER, host[group].sum(axis=0))
        best = int(np.argmin(columns)) if hosts and not forced[group].any() else -1
        on_host[c] = NEVER if best < 0 else int(columns[best])
        if on_host[c] < NEVER:
            home[group] = best
        elif on_acc[c] >= NEVER:
            return None
    weight = {c: int(size[group].sum()) for c, group in members.items()}
    nets: dict[tuple[int, frozenset[int]], list[int]] = {}
    pairs = label[tasks.edges]
    read: dict[int, set[int]] = {}
    for u, c in zip(tasks.edges[:, 0].tolist(), pairs[:, 1].tolist(), strict=True):
        read.setdefault(u, set()).add(c)
    for u, readers in sorted(read.items()):
        source, pins = int(label[u]), readers - {int(label[u])}
        fixed = on_acc[source] >= NEVER
        if fixed:
            pins = {c for c in pins if on_acc[c] < NEVER}
        if pins and (arrive[u] or (send[u] and not fixed)):
            cost = nets.setdefault((source, frozenset(pins)), [0, 0])
            cost[0] += int(arrive[u])
            cost[1] += 0 if fixed else int(send[u])
    edges = {(a, b) for a, b in pairs.tolist() if a != b}
    onto, nets, release, floor = _presolve(members, edges, nets, on_acc, on_host, weight, sinks)
    kept = [c for c in members if onto[c] == c]
    alive = set(kept)
    edges = {(a, b) for a, b in edges if a in alive and b in alive}
    order = {c: k for k, c in enumerate(_topological(kept, edges))}
    number = {c: -1 if onto[c] < 0 else order[onto[c]] for c in members}
    return _arrays(
        list(order), order, edges, nets, on_acc, on_host, release, floor, weight, room, tasks.count, math.ldexp(1.0, -scale),
        np.array([number[c] for c in label.tolist()], np.int64), home,
    )  # fmt: skip


def linear_extension(graph: LatencyGraph, rng: np.random.Generator | None) -> Ints:
    """A topological order of the nodes: their numbers, or a random one that stays near where it was."""
    if rng is None:
        return np.arange(graph.n)
    missing = np.diff(graph.pred_ptr)
    ready = [int(v) for v in rng.permutation(np.flatnonzero(missing == 0))]
    order = []
    while ready:
        v = ready.pop()
        order.append(v)
        for w in rng.permutation(graph.succ[graph.succ_ptr[v] : graph.succ_ptr[v + 1]]).tolist():
            missing[w] -= 1
            if missing[w] == 0:
                ready.append(w)
    return np.array(order, np.int64)


def _neighbours(n: int, edges: Iterable[tuple[int, int]]) -> tuple[list[list[int]], list[list[int]]]:
    before: list[list[int]] = [[] for _ in range(n)]
    after: list[list[int]] = [[] for _ in range(n)]
    for u, v in edges:
        before[v].append(u)
        after[u].append(v)
    return before, after


def _reach(start: int, neighbours: list[list[int]], inside: set[int]) -> set[int]:
    """Tasks of a group that lead to ``start`` (or follow it) within the group, and itself."""
    seen, stack = {start}, [start]
    while stack:
        for w in neighbours[stack.pop()]:
            if w in inside and w not in seen:
                seen.add(w)
                stack.append(w)
    return seen


def _time_bits(tasks: LatencyTasks) -> int:
    every = np.column_stack([tasks.acc[:, None], tasks.host])
    whole = float(np.where(np.isfinite(every), every, 0.0).max(axis=1, initial=0.0).sum())
    whole += float(tasks.arrive.sum() + tasks.send.sum())
    return _BITS - math.frexp(whole)[1] if whole > 0 else 0


def _integers(values: Floats, bits: int) -> Ints:
    finite = np.isfinite(values)
    return np.where(finite, np.floor(np.ldexp(np.where(finite, values, 0.0), bits)).astype(np.int64), NEVER)


def _sizes(tasks: LatencyTasks) -> tuple[Ints, int]:
    """Sizes and room in integers that round down: parts that do not fit in them do not fit."""
    whole = float(tasks.size.sum())
    bits = _BITS - math.frexp(whole)[1] if whole > 0 else 0
    if tasks.room >= whole * (1 + 1e-9):
        return np.zeros(len(tasks.size), np.int64), NEVER
    return _integers(tasks.size, bits), math.floor(math.ldexp(tasks.room, bits))


def _fuse(label: Ints, edges: Ints, forced: NDArray[np.bool_]) -> Ints:
    """Give a node that an accelerator must run as a whole everything between its tasks; updates ``forced``."""
    if not forced.any():
        return label
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = len(label)
    pairs = label[edges]
    matrix = csr_array((np.ones(len(pairs), np.int8), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    component = connected_components(matrix, directed=True, connection="strong")[1][label]
    fused = np.unique(component[forced])
    forced |= np.isin(component, fused)
    first = np.full(n, n)
    np.minimum.at(first, component, np.arange(n))
    return np.where(forced, first[component], label)


Nets = dict[tuple[int, frozenset[int]], list[int]]


def _presolve(
    members: dict[int, list[int]],
    edges: set[tuple[int, int]],
    nets: Nets,
    acc: dict[int, int],
    host: dict[int, int],
    size: dict[int, int],
    sinks: Sinks,
) -> tuple[dict[int, int], Nets, dict[int, int], int]:
    """Steps 2 and 3: where each node goes (-1: the host), the nets that remain, releases and floor; adds up ``size``."""
    before: dict[int, set[int]] = {c: set() for c in members}
    after: dict[int, set[int]] = {c: set() for c in members}
    for a, b in edges:
        after[a].add(b)
        before[b].add(a)
    fed_once = {c for c in members if len(before[c]) == 1}
    costly = {source for source, _ in nets}
    release, floor = dict.fromkeys(members, 0), 0
    onto = {c: c for c in members}
    work = sorted(members, reverse=True)
    while work:
        c = work.pop()
        if onto[c] != c:
            continue
        if not before[c] and (acc[c] >= NEVER or (host[c] == 0 and c not in costly)):
            onto[c] = -1
            ready = release[c] + host[c]
            floor = max(floor, ready)
            for w in after[c]:
                before[w].discard(c)
                release[w] = max(release[w], ready)
            work += sorted(after[c], reverse=True)
        elif host[c] == 0 and acc[c] == 0 and not after[c] and c in fed_once and len(before[c]) == 1:
            if size[c] and sinks == "own":
                continue
            (u,) = before[c]
            onto[c] = u
            if sinks == "heavy":
                size[u] += size[c]
            after[u].discard(c)
            work.append(u)
    for c in members:
        while onto[c] not in (-1, onto.get(onto[c])):
            onto[c] = onto[onto[c]]
    left: Nets = {}
    for (source, pins), cost in nets.items():
        pins = frozenset(p for p in pins if onto[p] == p)
        if pins:
            gone = onto[source] < 0
            total = left.setdefault((-1 if gone else source, pins), [0, 0])
            total[0] += cost[0]
            total[1] += 0 if gone else cost[1]
    return onto, left, release, floor


def _topological(nodes: list[int], edges: set[tuple[int, int]]) -> list[int]:
    """Depth-first topological order, which keeps what belongs together near each other."""
    after: dict[int, list[int]] = {c: [] for c in nodes}
    missing = dict.fromkeys(nodes, 0)
    for a, b in sorted(edges):
        after[a].append(b)
        missing[b] += 1
    stack = [c for c in reversed(nodes) if not missing[c]]
    order = []
    while stack:
        c = stack.pop()
        order.append(c)
        for w in reversed(after[c]):
            missing[w] -= 1
            if not missing[w]:
                stack.append(w)
    return order


def _arrays(
    nodes: list[int],
    order: dict[int, int],
    edges: set[tuple[int, int]],
    nets: Nets,
    acc: dict[int, int],
    host: dict[int, int],
    release: dict[int, int],
    floor: int,
    size: dict[int, int],
    room: int,
    count: int,
    unit: float,
    member: Ints,
    home: Ints,
) -> LatencyGraph:
    n = len(nodes)
    pairs = np.array(sorted((order[a], order[b]) for a, b in edges), np.int64).reshape(-1, 2)
    toward: dict[tuple[int, int], list[int]] = {}
    outputs = sorted((order.get(s, -1), sorted(order[p] for p in pins), cost) for (s, pins), cost in nets.items())
    for source, pins, cost in outputs:
        for p in pins:
            both = toward.setdefault((source, p), [0, 0])
            both[0] += cost[0]
            both[1] += cost[1]
    incoming = pairs[np.lexsort((pairs[:, 0], pairs[:, 1]))]
    leave = np.full(n, NEVER)
    for a, b in pairs.tolist():
        leave[a] = min(int(leave[a]), toward.get((a, b), (0, 0))[1])
    nets_of: list[list[int]] = [[] for _ in range(n)]
    for k, (source, pins, _) in enumerate(outputs):
        for v in pins if source < 0 else (source, *pins):
            nets_of[v].append(k)
    return LatencyGraph(
        acc=np.array([acc[c] for c in nodes], np.int64),
        host=np.array([host[c] for c in nodes], np.int64),
        release=np.array([release[c] for c in nodes], np.int64),
        floor=np.array([floor], np.int64),
        size=np.array([size[c] for c in nodes], np.int64),
        room=np.array([room], np.int64),
        pred_ptr=_ptr(np.bincount(incoming[:, 1], minlength=n)),
        pred=np.ascontiguousarray(incoming[:, 0]),
        enter=np.array([toward.get((a, b), (0, 0))[0] for a, b in incoming.tolist()], np.int64),
        succ_ptr=_ptr(np.bincount(pairs[:, 0], minlength=n)),
        succ=np.ascontiguousarray(pairs[:, 1]),
        leave=np.where(leave >= NEVER, 0, leave),
        net_ptr=_ptr([1 + len(pins) for _, pins, _ in outputs]),
        net_source=np.array([source for source, _, _ in outputs], np.int64),
        arrive=np.array([cost[0] for _, _, cost in outputs], np.int64),
        send=np.array([cost[1] for _, _, cost in outputs], np.int64),
        in_ptr=_ptr([len(k) for k in nets_of]),
        in_net=np.array([k for one in nets_of for k in one], np.int64),
        count=count,
        unit=unit,
        member=member,
        home=home,
    )


def _ptr(lengths: Iterable[int] | Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(np.asarray(list(lengths), np.int64))]).astype(np.int64)
