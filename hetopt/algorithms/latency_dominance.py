"""Keep a label or drop it: its numbers are raised, bounded and compared with those of its ideal.

A label stands when it may end before the cap and no label of the ideal is no later anywhere with no more accelerators; those it
beats are taken off their lists. Part of :mod:`hetopt.algorithms.latency_labels`.
"""

from __future__ import annotations

import numpy as np

from hetopt.algorithms import latency_state as at
from hetopt.algorithms.jit import inner
from hetopt.algorithms.latency_graph import NEVER

__all__ = ["keep"]


@inner
def _crowded(h, m, x, s):  # type: ignore[no-untyped-def]
    """Whether list ``h`` is full of labels no later than ``s.made``; if it is full of others, the latest is dropped."""
    count = 0
    worst = 0
    for i in range(m):
        worst = max(worst, s.made[1 + i])
    drop = -1
    drop_before = -1
    before = -1
    p = s.head[h]
    while p >= 0:
        count += 1
        latest = 0
        for i in range(m):
            latest = max(latest, x.number[x.at[p] + 1 + i])
        if latest > worst:
            worst = latest
            drop = p
            drop_before = before
        before = p
        p = x.after[p]
    if count < s.state[at.BEAM]:
        return False
    s.state[at.LOST] += 1
    if drop < 0:
        return True
    x.alive[drop] = False
    if drop_before < 0:
        s.head[h] = x.after[drop]
    else:
        x.after[drop_before] = x.after[drop]
    return False


@inner
def _raise(j, k, s):  # type: ignore[no-untyped-def]
    """Raise each ready time in ``s.made`` to the earliest moment that any node which waits for it can start."""
    first = k.front_ptr[j]
    m = k.front_ptr[j + 1] - first
    for i in range(m):
        s.value[i] = s.made[1 + i]
    for i in range(m):
        least = NEVER
        for q in range(k.wait_ptr[first + i], k.wait_ptr[first + i + 1]):
            start = max(k.wait_from[q], s.value[i])
            bits = k.wait[q]
            z = 0
            while bits:
                if bits & np.uint64(1):
                    start = max(start, s.value[z])
                bits >>= np.uint64(1)
                z += 1
            least = min(least, start)
        s.made[1 + i] = least


@inner
def _least_end(j, used, k, s, layers):  # type: ignore[no-untyped-def]
    """Bound on the end of any plan that goes on from the numbers in ``s.made``: by tails and by barriers."""
    unused = layers - 1 - used
    first = k.front_ptr[j]
    m = k.front_ptr[j + 1] - first
    end = s.made[0]
    low = NEVER
    high = 0
    for i in range(m):
        ready = s.made[1 + i]
        low = min(low, ready)
        high = max(high, ready)
        u = k.front[first + i]
        for q in range(k.succ_ptr[u], k.succ_ptr[u + 1]):
            if not s.where[k.succ[q]]:
                end = max(end, ready + k.tail[k.succ[q]])
    if m > 0:
        if low >= k.reached[layers - 1, j]:
            end = max(end, low + k.left[unused, j])
        end = max(end, high + k.open_left[unused, j], k.open_total[unused, j])
    elif j < len(k.ptr) - 2:
        end = max(end, k.open_total[unused, j])
    return end


@inner
def _beaten(j, used, m, x, s, layers):  # type: ignore[no-untyped-def]
    """Whether a label of the ideal with no more accelerators is no later anywhere than ``s.made``."""
    for fewer in range(used + 1):
        p = s.head[j * layers + fewer]
        while p >= 0:
            s.state[at.WORK] += 1
            base = x.at[p]
            better = True
            for i in range(m + 1):
                if x.number[base + i] > s.made[i]:
                    better = False
                    break
            if better:
                return True
            p = x.after[p]
    return False


@inner
def _drop_beaten(j, used, m, x, s, layers):  # type: ignore[no-untyped-def]
    """Take the labels of the ideal with no fewer accelerators that are nowhere earlier than ``s.made`` off their lists."""
    for more in range(used, layers):
        h = j * layers + more
        p = s.head[h]
        before = -1
        while p >= 0:
            s.state[at.WORK] += 1
            base = x.at[p]
            worse = True
            for i in range(m + 1):
                if x.number[base + i] < s.made[i]:
                    worse = False
                    break
            if worse:
                x.alive[p] = False
                if before < 0:
                    s.head[h] = x.after[p]
                else:
                    x.after[before] = x.after[p]
            else:
                before = p
            p = x.after[p]


@inner
def keep(j, used, parent, runs, k, x, s, layers):  # type: ignore[no-untyped-def]
    """Raise, bound and compare the numbers in ``s.made``; store them as a label of ideal ``j`` if they are of use."""
    state = s.state
    m = k.front_ptr[j + 1] - k.front_ptr[j]
    if m > 1:
        _raise(j, k, s)
    state[at.WORK] += 4 * m + 4
    if _least_end(j, used, k, s, layers) >= state[at.CAP] or _beaten(j, used, m, x, s, layers):
        return
    _drop_beaten(j, used, m, x, s, layers)
    if state[at.BEAM] > 0 and _crowded(j * layers + used, m, x, s):
        return
    c = state[at.LABELS]
    base = state[at.NUMBERS]
    for i in range(m + 1):
        x.number[base + i] = s.made[i]
    x.at[c] = base
    x.ideal[c] = j
    x.parent[c] = parent
    x.runs[c] = runs
    x.alive[c] = True
    x.after[c] = s.head[j * layers + used]
    s.head[j * layers + used] = c
    state[at.LABELS] = c + 1
    state[at.NUMBERS] = base + m + 1
    if j == len(k.ptr) - 2:
        state[at.CAP] = s.made[0]
        state[at.BEST] = c
