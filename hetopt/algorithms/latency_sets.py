"""Sets of one accelerator above an ideal, node by node: what they pay, and whether larger ones can still end in time.

The search goes from ideal to ideal along covers and back; what has arrived stays paid, while what is sent may still be kept
inside by a larger set. Part of :mod:`hetopt.algorithms.latency_labels`.
"""

from __future__ import annotations

from hetopt.algorithms import latency_state as at
from hetopt.algorithms.jit import inner
from hetopt.algorithms.latency_graph import NEVER

__all__ = ["begin_sets", "grow"]


@inner
def begin_sets(k, s):  # type: ignore[no-untyped-def]
    """Begin with the empty set above the ideal at hand."""
    state = s.state
    state[at.TURN] += 1
    state[at.DEPTH] = 0
    s.stack[0, 0] = state[at.IDEAL]
    s.stack[0, 1] = k.ptr[state[at.IDEAL]]
    s.stack[0, 2] = -1
    s.stack[0, 3] = 0
    s.stamp[state[at.IDEAL]] = state[at.TURN]


@inner
def _give_back(v, k, s):  # type: ignore[no-untyped-def]
    """Take node ``v`` out of the set at hand."""
    state = s.state
    state[at.SURE] -= k.acc[v]
    state[at.SIZE] -= k.size[v]
    state[at.HELD] -= k.cut[v]
    state[at.SINKS] -= k.succ_ptr[v] == k.succ_ptr[v + 1]
    s.where[v] = 0
    for q in range(k.in_ptr[v], k.in_ptr[v + 1]):
        h = k.in_net[q]
        if s.sends[h] and s.pins[h] == k.net_ptr[h + 1] - k.net_ptr[h]:
            state[at.SEND] += k.send[h]
        s.pins[h] -= 1
        if k.net_source[h] == v:
            s.sends[h] = False
            state[at.SEND] -= k.send[h]
        elif s.pins[h] == 0:
            state[at.SURE] -= k.arrive[h]


@inner
def _take(v, k, s):  # type: ignore[no-untyped-def]
    """Put node ``v`` into the set at hand: what arrived stays paid, what is sent may still be kept inside."""
    state = s.state
    state[at.SURE] += k.acc[v]
    state[at.SIZE] += k.size[v]
    state[at.HELD] += k.cut[v]
    state[at.SINKS] += k.succ_ptr[v] == k.succ_ptr[v + 1]
    s.where[v] = 2
    for q in range(k.in_ptr[v], k.in_ptr[v + 1]):
        h = k.in_net[q]
        if k.net_source[h] == v:
            s.sends[h] = True
            state[at.SEND] += k.send[h]
        elif s.pins[h] == 0:
            state[at.SURE] += k.arrive[h]
        s.pins[h] += 1
        if s.sends[h] and s.pins[h] == k.net_ptr[h + 1] - k.net_ptr[h]:
            state[at.SEND] -= k.send[h]


@inner
def grow(uncut, k, x, s, layers):  # type: ignore[no-untyped-def]
    """One step of the search over sets of an accelerator: take a cover, or give the last node back.

    ``uncut``: sets without a cut, for each label at hand; otherwise sets with a cut, for the leads. Whether there is a new
    set at hand, for step (2) with the labels or the leads; if it and larger ones cannot end before the cap, there is none.
    """
    state = s.state
    depth = state[at.DEPTH]
    current = s.stack[depth, 0]
    p = s.stack[depth, 1]
    state[at.WORK] += 1
    if p == k.ptr[current + 1]:
        state[at.DEPTH] = depth - 1
        if s.stack[depth, 2] >= 0:
            _give_back(s.stack[depth, 2], k, s)
        return False
    s.stack[depth, 1] = p + 1
    j = k.cover[p]
    v = k.node[p]
    if (
        s.stamp[j] == state[at.TURN]
        or k.acc[v] >= NEVER
        or state[at.SIZE] + k.size[v] > k.room[0]
        or (uncut and k.cut[v])
    ):
        return False
    s.stamp[j] = state[at.TURN]
    _take(v, k, s)
    depth += 1
    state[at.DEPTH] = depth
    s.stack[depth, 0] = j
    s.stack[depth, 1] = k.ptr[j]
    s.stack[depth, 2] = v
    s.stack[depth, 3] = max(s.stack[depth - 1, 3], k.release[v])
    unused = layers - 2 - state[at.USED]
    least = NEVER
    if uncut:
        here = state[at.HERE]
        for t in range(here):
            start = max(x.start[(depth - 1) * here + t], k.release[v])
            base = x.at[x.here[t]]
            for q in range(k.pred_ptr[v], k.pred_ptr[v + 1]):
                if s.where[k.pred[q]] == 1:
                    start = max(start, x.number[base + s.place[k.pred[q]]])
            x.start[depth * here + t] = start
            least = min(least, start + k.grow_inner[unused, j])
        state[at.WORK] += 2 * here
    else:
        for used in range(layers - 1):
            if s.lead[used, 0] >= 0:
                start = max(s.lead[used, 1], s.stack[depth, 3])
                rest = k.grow[layers - 2 - used, j] if state[at.HELD] > 0 else k.grow_open[layers - 2 - used, j]
                least = min(least, start + rest)
        state[at.WORK] += layers
    if least + state[at.SURE] >= state[at.CAP]:
        s.stack[depth, 1] = k.ptr[j + 1]
        return False
    return uncut or state[at.HELD] > 0
