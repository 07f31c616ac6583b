"""From tasks to the stage graph: which tasks must share a device, which precedences contiguity speaks of, which nets remain.

What it is for: every pipeline-partition kernel works on classes, not tasks; this module makes the classes from the arrays
of an instance. What it is not: it chooses no device and drops no constraint.

Steps, in order, and what each does to the set of plans:

1. *Groups.* Tasks of one group become one class (the question asks for it). Training graphs put a forward task and its
   backward task into one group. Lossless.
2. *Precedence.* An edge between two forward tasks orders their classes. A class without forward tasks (an *orphan*) has no
   such edge; with ``mirror_orphans`` the backward edges of an orphan count reversed, as if it had a forward twin. That is
   what the reference code of Tarnawski et al. (NeurIPS 2020) does. **Restricts**: a plan that places an orphan elsewhere
   is lost. Without it nothing is lost, but every orphan multiplies the number of ideals.
3. *Cycles.* Classes on a common cycle of the precedence graph are fused. In a chain of ideals they share a stage in any
   case: lossless there. Under contiguity per device it **restricts** (two groups may interleave without a path that
   returns); under no contiguity it is not done (``contiguous=False``, which also leaves the precedence empty).
4. *Zero-time classes.* A class r that takes no time joins a class m when, in *every* plan, moving r to the device of m is
   feasible and makes no device dearer. Feasible: m is the only predecessor or the only successor of r (or r has neither),
   r takes no time wherever m runs, and r has no size or memory cannot bind there. No dearer: what the device that r leaves
   and the one it joins save on the nets between r and m alone covers the nets of r without m, in each training pass.
   Where a type's rates in and out differ, the comparison by weight fails; then every net with a pin in r must have one in
   m, and what r sends must go to m alone. Lossless, memory included.
5. *Nets.* A task's output with all its consumers, projected onto the classes; nets inside one class disappear, equal nets
   are added up (also with different sources when no type's rates differ by direction). Lossless.

Source of the problem: Tarnawski, Phanishayee, Devanur, Mahajan, Nina Paravecino, "Efficient algorithms for device placement
of DNN graph operators", NeurIPS 2020; step 4 is stronger than theirs and, unlike theirs, respects memory. Each step takes
O((tasks + edges) log) time; step 4 has rounds, as many as zero-time classes follow each other at worst, limited to 60.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["contract", "equal_nets"]

_ROUNDS = 60  # a limit for odd graphs; stopping early only leaves more classes

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class _Sends(NamedTuple):
    edges: Ints
    weight: Floats
    backward: Bools


class _Nets(NamedTuple):
    ptr: Ints
    pin: Ints
    source: Ints
    weight: Floats
    backward: Bools


def contract(
    time: ArrayLike,
    size: ArrayLike,
    edges: ArrayLike,
    weight: ArrayLike,
    group: ArrayLike,
    backward: ArrayLike,
    count: ArrayLike,
    memory: ArrayLike,
    rate_in: ArrayLike,
    rate_out: ArrayLike,
    *,
    contiguous: bool = True,
    mirror_orphans: bool = True,
    merge_zero_time: bool = True,
) -> StageGraph:
    """Contract ``n`` tasks on ``t`` device types to a stage graph.

    Parameters
    ----------
    time
        (n, t) seconds of a task on a device of the type; ``inf`` where it cannot run.
    size
        (n,) bytes a task needs on a device with a memory limit.
    edges
        (e, 2) pairs (producer, consumer).
    weight
        (n,) bytes of a task's output (or seconds, when rates are one); at most once in and once out per device.
    group
        (n,) tasks with the same number share a device; -1 for no group.
    backward
        (n,) whether a task belongs to the backward pass; contiguity speaks of the others.
    count, memory, rate_in, rate_out
        (t,) devices, bytes per device (``inf`` without limit), seconds per unit of weight received and sent.
    contiguous
        Keep the precedence. Otherwise the graph has none and no cycle is fused: for problems without contiguity.
    mirror_orphans
        Give classes without forward tasks the reversed precedence of their backward edges (see the module docstring).
    merge_zero_time
        Do step 4.

    Raises
    ------
    ValueError
        If a shape does not fit, a number is NaN or negative, or an edge names a task that does not exist.
    """
    seconds, bytes_, pairs = np.asarray(time, np.float64), np.asarray(size, np.float64), _edge_array(edges)
    amount, colour = np.asarray(weight, np.float64), np.asarray(group, np.int64)
    second_pass = np.asarray(backward, np.bool_)
    types = [np.asarray(x, np.float64) for x in (count, memory, rate_in, rate_out)]
    _check(seconds, bytes_, pairs, amount, colour, second_pass, types)
    counts, memories, into, out = types
    if not (into.any() or out.any()):
        amount = np.zeros_like(amount)

    label = _dense(np.where(colour >= 0, colour, colour.max(initial=0) + 1 + np.arange(len(colour))))
    precedence = np.zeros((0, 2), np.int64)
    if contiguous:
        precedence = _precedence(label, pairs, second_pass, mirror_orphans)
        fused = _strong_components(precedence, int(label.max(initial=-1)) + 1)
        label, precedence = fused[label], _distinct(fused[precedence])
    directed = bool((into != out).any())
    sends = _Sends(pairs[amount[pairs[:, 0]] > 0], amount, second_pass)
    if merge_zero_time:
        label, precedence = _merge_zero_time(label, seconds, bytes_, memories, precedence, sends, directed)
    classes = int(label.max(initial=-1)) + 1
    if contiguous:
        rank = _topological_rank(precedence, classes)
    else:
        position = _topological_rank(_distinct(pairs), len(label))
        first = np.full(classes, len(label))
        np.minimum.at(first, label, position)
        rank = np.empty(classes, np.int64)
        rank[np.argsort(first, kind="stable")] = np.arange(classes)
    label, precedence = rank[label], rank[precedence]
    nets = _nets(label, sends, directed)
    trained = bool(second_pass.any())
    pred_ptr, pred = _csr(precedence[:, 1], precedence[:, 0], classes)
    return StageGraph(
        time=_sum_rows(label, seconds, classes),
        size=_sums(label, bytes_, classes),
        pred_ptr=pred_ptr,
        pred=pred,
        net_ptr=nets.ptr,
        net_pin=nets.pin,
        net_source=nets.source,
        net_weight=nets.weight,
        count=counts.astype(np.int64),
        memory=memories,
        rate_in=into,
        rate_out=out,
        member=label,
        backward_time=_sum_rows(label[second_pass], seconds[second_pass], classes) if trained else None,
        net_backward=nets.backward if trained else None,
    )


def _edge_array(edges: ArrayLike) -> Ints:
    pairs = np.asarray(edges, np.int64)
    return pairs.reshape(0, 2) if pairs.size == 0 else pairs


def _check(
    time: Floats, size: Floats, edges: Ints, weight: Floats, group: Ints, backward: Bools, types: list[Floats]
) -> None:
    if time.ndim != 2:
        raise ValueError(f"time has shape {time.shape}; expected one row a task and one column a device type")
    n, t = time.shape
    for name, array in (("size", size), ("weight", weight), ("group", group), ("backward", backward)):
        if array.shape != (n,):
            raise ValueError(f"{name} has shape {array.shape}; expected ({n},), one number a task")
    for name, array in zip(("count", "memory", "rate_in", "rate_out"), types, strict=True):
        if array.shape != (t,):
            raise ValueError(f"{name} has shape {array.shape}; expected ({t},), one number a device type")
    names = ("time", "size", "weight", "count", "memory", "rate_in", "rate_out")
    for name, array in zip(names, (time, size, weight, *types), strict=True):
        if not (array >= 0).all():
            raise ValueError(f"{name} holds a negative number or NaN; expected numbers that are at least 0")
        if name not in ("time", "memory") and np.isinf(array).any():
            raise ValueError(f"{name} holds an infinite number; expected finite ones")
    if (types[0] != np.floor(types[0])).any():
        raise ValueError("count holds a fraction; expected whole devices")
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise ValueError(f"edges has shape {edges.shape}; expected pairs (producer, consumer)")
    if edges.size and (edges.min() < 0 or edges.max() >= n):
        raise ValueError(f"edges names task {edges.min() if edges.min() < 0 else edges.max()}; there are {n} tasks")


def _dense(label: Ints) -> Ints:
    return np.unique(label, return_inverse=True)[1].astype(np.int64)


def _distinct(pairs: Ints) -> Ints:
    """Pairs without loops and repetitions, sorted."""
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    if not len(pairs):
        return pairs
    base = int(pairs.max()) + 1
    key = np.unique(pairs[:, 0] * base + pairs[:, 1])
    return np.stack([key // base, key % base], axis=1)


def _csr(row: Ints, column: Ints, rows: int) -> tuple[Ints, Ints]:
    order = np.lexsort((column, row))
    ptr = np.zeros(rows + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=rows), out=ptr[1:])
    return ptr, column[order]


def _sums(label: Ints, values: Floats, rows: int) -> Floats:
    return np.asarray(np.bincount(label, values, rows), np.float64)


def _sum_rows(label: Ints, values: Floats, rows: int) -> Floats:
    columns = [_sums(label, values[:, t], rows) for t in range(values.shape[1])]
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0))


def _precedence(label: Ints, edges: Ints, backward: Bools, mirror_orphans: bool) -> Ints:
    """Pairs (earlier class, later class): forward edges, and reversed backward edges at orphans."""
    producer, consumer = edges[:, 0], edges[:, 1]
    classes = label[edges]
    kept = classes[~backward[producer] & ~backward[consumer]]
    if mirror_orphans:
        orphan = np.bincount(label, ~backward) == 0
        mirrored = backward[producer] & backward[consumer] & orphan[classes].any(axis=1)
        kept = np.concatenate([kept, classes[mirrored][:, ::-1]])
    return _distinct(kept)


def _strong_components(pairs: Ints, classes: int) -> Ints:
    if not len(pairs):
        return np.arange(classes)
    matrix = csr_array((np.ones(len(pairs), np.int8), (pairs[:, 0], pairs[:, 1])), shape=(classes, classes))
    return np.asarray(connected_components(matrix, directed=True, connection="strong")[1], np.int64)


def _nets(label: Ints, sends: _Sends, directed: bool) -> _Nets:
    """Project each output onto classes, drop the ones inside a class, add up equal ones."""
    edges, weight, backward = sends
    classes = int(label.max(initial=-1)) + 1
    owner = np.concatenate([edges[:, 0], edges[:, 0]])
    key = np.unique(owner * max(classes, 1) + label[np.concatenate([edges[:, 0], edges[:, 1]])])
    task, pin = key // max(classes, 1), key % max(classes, 1)
    pins = np.bincount(task, minlength=len(label))
    kept = pins[task] > 1
    task, pin = task[kept], pin[kept]
    tasks = np.flatnonzero(pins > 1)
    length = pins[tasks]
    start = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    source, passes = label[tasks], backward[tasks]
    same = equal_nets(start, pin, passes + 2 * (source if directed else 0 * source))
    first = np.flatnonzero(same == np.arange(len(tasks)))
    number = np.zeros(len(tasks), np.int64)
    number[first] = np.arange(len(first))
    total = _sums(number[same], weight[tasks], len(first))
    chosen = np.repeat(same == np.arange(len(tasks)), length)
    ptr = np.concatenate([[0], np.cumsum(length[first])]).astype(np.int64)
    return _Nets(ptr, pin[chosen], source[first], total, passes[first])


def equal_nets(start: Ints, pin: Ints, kind: Ints) -> Ints:
    """For each net (CSR ``start``, ``pin``) the first one of the same ``kind`` with the same pins in the same order.

    A hash proposes, a comparison decides; two nets that only share a hash are left apart. O(pins).
    """
    length = np.diff(start)
    nets = len(length)
    if not nets:
        return np.zeros(0, np.int64)
    code = np.random.default_rng(1).integers(0, 2**63, int(pin.max()) + 1, dtype=np.uint64)
    digest = np.add.reduceat(code[pin], start[:-1]) + kind.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    _, first, proposal = np.unique(digest, return_index=True, return_inverse=True)
    like = first[proposal]
    equal = (length == length[like]) & (kind == kind[like])
    row = np.repeat(np.arange(nets), length)
    within = np.arange(len(pin)) - start[row]
    comparable = equal[row]
    differs = np.zeros(len(pin), np.bool_)
    differs[comparable] = pin[comparable] != pin[start[like[row[comparable]]] + within[comparable]]
    equal &= np.bincount(row, differs, nets) == 0
    return np.where(equal, like, np.arange(nets))


def _merge_zero_time(
    label: Ints, time: Floats, size: Floats, memory: Floats, precedence: Ints, sends: _Sends, directed: bool
) -> tuple[Ints, Ints]:
    """Step 4, in rounds until nothing more can be merged: new class of each task, new precedence."""
    idle = 0
    for turn in range(_ROUNDS):
        classes = int(label.max(initial=-1)) + 1
        seconds, bytes_ = _sum_rows(label, time, classes), _sums(label, size, classes)
        if idle == 3 or classes < 2:
            break
        # memory of a type cannot bind when all that may run there fits one device
        whole = np.array([bytes_[np.isfinite(column)].sum() for column in seconds.T])
        roomy = whole * _margin(bytes_) <= memory
        nets = _nets(label, sends, directed)
        root = _merge_round(turn % 3, seconds, bytes_, roomy, precedence, nets, directed)
        idle = idle + 1 if len(root) == int(root.max()) + 1 else 0
        label, precedence = root[label], _distinct(root[precedence])
    return label, precedence


def _merge_round(
    direction: int, time: Floats, size: Floats, roomy: Bools, precedence: Ints, nets: _Nets, directed: bool
) -> Ints:
    """Class that each class ends in after merging zero-time classes in one direction of step 4.

    Direction 0: into the only predecessor; 1: into the only successor; 2: classes without precedence, into a class they
    share their smallest net with. All merges of a round are judged on the graph before it. They may be done together:
    taken from the roots of the pointers outwards, each one still meets its condition, for pins and neighbours of a merged
    class pass to the class it is merged into, and that class runs in fewer places.
    """
    n = len(size)
    target = np.full(n, -1)
    degree = np.stack([np.bincount(precedence[:, 1 - end], minlength=n) for end in (0, 1)])
    if direction < 2:
        single = degree[direction][precedence[:, 1 - direction]] == 1
        target[precedence[single, 1 - direction]] = precedence[single, direction]
    else:
        target = np.where(degree.sum(axis=0) == 0, _partner(nets, n), -1)
    moves = np.flatnonzero((target >= 0) & (time == 0).any(axis=1))
    onto = target[moves]
    runs = np.isfinite(time[onto])
    free = (size[moves] == 0)[:, None] | roomy[None, :]
    moves = moves[(~runs | ((time[moves] == 0) & free)).all(axis=1)]
    moves = moves[_no_dearer(moves, target, nets, directed, n)]
    if direction == 2:
        merging = np.isin(target[moves], moves)
        moves = moves[~merging | (target[moves] < moves)]
    root = np.arange(n)
    root[moves] = target[moves]
    while (root[root] != root).any():
        root = root[root]
    return _dense(root)


def _margin(values: Floats) -> float:
    """Factor that makes up for the rounding of a sum: none for whole numbers, whose sums are exact."""
    return 1.0 if (values == np.floor(values)).all() and values.sum() < 2.0**53 else 1 + 1e-9


def _partner(nets: _Nets, classes: int) -> Ints:
    """For each class another pin of its smallest net (the heaviest of those); without nets, class 0 (or 1)."""
    partner = np.where(np.arange(classes) == 0, min(1, classes - 1), 0)
    length = np.diff(nets.ptr)
    net = np.repeat(np.arange(len(length)), length)
    best = np.lexsort((-nets.weight[net], length[net], nets.pin))
    pin, first = np.unique(nets.pin[best], return_index=True)
    chosen = net[best[first]]
    start = nets.pin[nets.ptr[chosen]]
    partner[pin] = np.where(start != pin, start, nets.pin[nets.ptr[chosen] + 1])
    return np.where(partner == np.arange(classes), -1, partner)


def _no_dearer(moves: Ints, target: Ints, nets: _Nets, directed: bool, classes: int) -> Bools:
    """Whether no device can get dearer when each class in ``moves`` joins the device of its target, one at a time."""
    moving = np.zeros(classes, np.bool_)
    moving[moves] = True
    length = np.diff(nets.ptr)
    net = np.repeat(np.arange(len(length)), length)
    key = net * classes + nets.pin
    at = np.flatnonzero(moving[nets.pin])
    net, pin = net[at], nets.pin[at]
    wanted = net * classes + target[pin]
    place = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    shared = key[place] == wanted if len(key) else np.zeros(0, np.bool_)
    alone = shared & (length[net] == 2)
    if directed:
        bad = ~shared | ((nets.source[net] == pin) & ~alone)
        return np.asarray(np.bincount(pin[bad], minlength=classes)[moves] == 0)
    kind = 2 * pin + nets.backward[net]
    weight = nets.weight[net]
    saved = _sums(kind[alone], weight[alone], 2 * classes)
    added = _sums(kind[~shared], weight[~shared], 2 * classes)
    terms = np.maximum(*(np.bincount(kind[mask], minlength=2 * classes) for mask in (alone, ~shared)))
    fine = np.asarray(added * np.where(terms > 1, _margin(nets.weight), 1.0) <= saved).reshape(classes, 2).all(axis=1)
    return np.asarray(np.asarray(fine)[moves])


def _topological_rank(pairs: Ints, classes: int) -> Ints:
    """Position of each class in a depth-first topological order; classes on cycles come last, by number."""
    # Plain Python, so that a first plan needs no compiler; O(classes + pairs), 0.1 s for 50,000 classes.
    ptr, succ = (array.tolist() for array in _csr(pairs[:, 0], pairs[:, 1], classes))
    missing = np.bincount(pairs[:, 1], minlength=classes).tolist()
    rank = [-1] * classes
    stack = [v for v in range(classes - 1, -1, -1) if missing[v] == 0]
    placed = 0
    while stack:
        v = stack.pop()
        rank[v] = placed
        placed += 1
        for w in reversed(succ[ptr[v] : ptr[v + 1]]):
            missing[w] -= 1
            if missing[w] == 0:
                stack.append(w)
    for v in range(classes):
        if rank[v] < 0:
            rank[v] = placed
            placed += 1
    return np.array(rank, np.int64)
