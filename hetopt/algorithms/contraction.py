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
4. *Zero-time classes.* A class r that takes no time is merged into a class m when moving r to the device of m is feasible
   and no more costly in *every* plan: m is the only precedence neighbour of r (or r has none), every net with a pin in r
   has a pin in m, r runs in zero time wherever m runs, and r has no size or memory cannot bind. When a rate in differs
   from a rate out, the nets that r sends must go to m only. Lossless, memory included: a part is at most as loaded, in
   compute, in, out and per training pass, as it was.
5. *Nets.* A task's output with all its consumers, projected onto the classes; nets inside one class disappear, equal nets
   are added up (also with different sources when no type's rates differ by direction). Lossless.

Source of the problem: Tarnawski, Phanishayee, Devanur, Mahajan, Nina Paravecino, "Efficient algorithms for device placement
of DNN graph operators", NeurIPS 2020. Every step is linear in tasks and edges up to sorting.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from hetopt.algorithms.jit import njit
from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["contract", "equal_nets"]

_CANDIDATES = 64  # partners that step 4 tries for a class without precedence neighbours

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


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
    if merge_zero_time:
        nets = _nets(label, pairs, amount, second_pass, directed)
        root = _merge_zero_time(label, seconds, bytes_, memories, precedence, nets, directed)
        label, precedence = root[label], _distinct(root[precedence])
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
    nets = _nets(label, pairs, amount, second_pass, directed)
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


def _nets(label: Ints, edges: Ints, weight: Floats, backward: Bools, directed: bool) -> _Nets:
    """Project each output onto classes, drop the ones inside a class, add up equal ones."""
    sends = edges[weight[edges[:, 0]] > 0]
    classes = int(label.max(initial=-1)) + 1
    owner = np.concatenate([sends[:, 0], sends[:, 0]])
    key = np.unique(owner * max(classes, 1) + label[np.concatenate([sends[:, 0], sends[:, 1]])])
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
    label: Ints, time: Floats, size: Floats, memory: Floats, precedence: Ints, nets: _Nets, directed: bool
) -> Ints:
    """Dense number of the class that each class ends in after step 4."""
    classes = int(label.max(initial=-1)) + 1
    seconds, bytes_ = _sum_rows(label, time, classes), _sums(label, size, classes)
    if not classes or not (seconds == 0).any():
        return np.arange(classes)
    # memory of a type cannot bind when everything that may run there fits one device, rounding of the sum included
    roomy = np.array([bytes_[np.isfinite(s)].sum() * (1 + 1e-9) <= m for s, m in zip(seconds.T, memory, strict=True)])
    both = np.concatenate([precedence, precedence[:, ::-1]])
    near_ptr, near = _csr(both[:, 0], both[:, 1], classes)
    net_number = np.repeat(np.arange(len(nets.weight)), np.diff(nets.ptr))
    in_ptr, in_net = _csr(nets.pin, net_number, classes)
    root = _peel(seconds, bytes_, roomy, near_ptr, near, nets.ptr, nets.pin, nets.source, in_ptr, in_net, directed)
    return _dense(np.asarray(root, np.int64))


@njit
def _contains(pin, low, high, wanted):  # type: ignore[no-untyped-def]
    """Whether the ascending ``pin[low:high]`` holds ``wanted``."""
    while low < high:
        middle = (low + high) // 2
        if pin[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low < len(pin) and pin[low] == wanted


@njit
def _peel(time, size, roomy, near_ptr, near, net_ptr, net_pin, net_source, in_ptr, in_net, directed):  # type: ignore[no-untyped-def]
    """Peel zero-time classes off, one at a time, each into its neighbour; O((edges + pins) log pins).

    A merged class vanishes from its neighbour's list and from its nets, so the graph stays the contracted one without
    being rebuilt: the neighbour already has a pin in each of those nets.
    """
    n, types = time.shape
    root = np.arange(n)
    alive = np.ones(n, np.bool_)
    degree = near_ptr[1:] - near_ptr[:-1]
    pins = net_ptr[1:] - net_ptr[:-1]
    source = net_source.copy()
    waiting = np.zeros(n, np.bool_)
    stack = np.empty(n, np.int64)
    top = 0
    for v in range(n - 1, -1, -1):
        if (time[v] == 0).any():
            stack[top] = v
            waiting[v] = True
            top += 1
    left = n
    size = size.copy()
    while top > 0:
        top -= 1
        r = stack[top]
        waiting[r] = False
        if not alive[r] or degree[r] > 1 or left == 1:
            continue
        best = -1
        # candidates: the only neighbour; without one, the first pins of the first net; without one, the first classes
        low, high, kind = 0, n, 2
        if degree[r] == 1:
            low, high, kind = near_ptr[r], near_ptr[r + 1], 0
        else:
            for q in range(in_ptr[r], in_ptr[r + 1]):
                if pins[in_net[q]] > 1:
                    low, high, kind = net_ptr[in_net[q]], net_ptr[in_net[q] + 1], 1
                    break
        for p in range(low, high if kind == 0 else min(high, low + _CANDIDATES)):
            m = p
            if kind == 0:
                m = near[p]
            elif kind == 1:
                m = net_pin[p]
            if m == r or not alive[m]:
                continue
            fits = True
            for t in range(types):
                if np.isfinite(time[m, t]) and (time[r, t] != 0 or (size[r] > 0 and not roomy[t])):
                    fits = False
            for q in range(in_ptr[r], in_ptr[r + 1]):
                h = in_net[q]
                if pins[h] > 1 and not (
                    _contains(net_pin, net_ptr[h], net_ptr[h + 1], m)
                    and (not directed or source[h] != r or pins[h] == 2)
                ):
                    fits = False
                    break
            if fits:
                best = m
                break
        if best < 0:
            continue
        root[r] = best
        alive[r] = False
        size[best] += size[r]
        left -= 1
        for q in range(in_ptr[r], in_ptr[r + 1]):
            h = in_net[q]
            pins[h] -= 1
            if source[h] == r:
                source[h] = best
        for p in range(near_ptr[r], near_ptr[r + 1]):
            degree[near[p]] -= 1
        # fewer neighbours or smaller nets may free the neighbour and every class that shares a net with it
        if (time[best] == 0).any() and not waiting[best]:
            stack[top] = best
            waiting[best] = True
            top += 1
    for v in range(n):
        w = v
        while root[w] != w:
            w = root[w]
        root[v] = w
    return root


def _topological_rank(pairs: Ints, classes: int) -> Ints:
    """Position of each class in a depth-first topological order; classes on cycles come last, by number."""
    ptr, succ = _csr(pairs[:, 0], pairs[:, 1], classes)
    return np.asarray(_rank(ptr, succ, np.bincount(pairs[:, 1], minlength=classes)), np.int64)


@njit
def _rank(ptr, succ, missing):  # type: ignore[no-untyped-def]
    n = len(ptr) - 1
    rank = np.full(n, -1)
    stack = np.empty(n, np.int64)
    top = 0
    for v in range(n - 1, -1, -1):
        if missing[v] == 0:
            stack[top] = v
            top += 1
    placed = 0
    while top > 0:
        top -= 1
        v = stack[top]
        rank[v] = placed
        placed += 1
        for p in range(ptr[v + 1] - 1, ptr[v] - 1, -1):
            w = succ[p]
            missing[w] -= 1
            if missing[w] == 0:
                stack[top] = w
                top += 1
    for v in range(n):
        if rank[v] < 0:
            rank[v] = placed
            placed += 1
    return rank
