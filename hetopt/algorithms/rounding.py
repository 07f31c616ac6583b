"""Round a fractional assignment of jobs to unrelated machines into a plan, at a proven distance from its loads.

The input is any matrix of shares, from whatever solver; it need not be a vertex. Where the shares come from, and the lower
bound that turns a distance into an approximation ratio, is :mod:`hetopt.algorithms.deadline_lp`'s business.

=================================  ===============================================================  =====================
function                           guarantee, T = largest load by share, p = longest time of share  with T >= p a bound
=================================  ===============================================================  =====================
:func:`lenstra_shmoys_tardos`      load of each machine <= its load by share + one split job        2
:func:`shchepin_vakhania`          makespan <= T + (1 - 1/m) p, and the best of all roundings        2 - 1/m
                                   of the same forest
:func:`shmoys_tardos`              the first line's, and cost <= cost by share                      (2, cost exact)
=================================  ===============================================================  =====================

Each function checks its guarantee on the plan that it returns and raises ``ArithmeticError`` rather than break it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hetopt.algorithms.forest import Joint, SplitForest, check_shares, load_by_share, split_forest
from hetopt.algorithms.times import FloatArray, IntArray, check_ready, check_times, machine_loads

__all__ = ["lenstra_shmoys_tardos", "shchepin_vakhania", "shmoys_tardos"]

_SLACK = 1e-9  # relative; sums in another order differ by less


def lenstra_shmoys_tardos(
    time: ArrayLike, x: ArrayLike, target: float | None = None, *, ready: ArrayLike | None = None
) -> IntArray:
    """Match each split job with a machine of its own that has a share of it.

    The split jobs and machines form a forest (:func:`~hetopt.algorithms.forest.split_forest`). Rooted at a machine, each
    job has machines below it that no other job has above, and takes the one where it ends earliest.

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.
    x
        (n, m) shares, rows of sum 1.
    target
        Deadline T that the shares were made for: loads and times of the shares used are checked against it, and the
        makespan is then at most 2 T.
    ready
        (m,) times from which the machines are free; zero if None.

    Returns
    -------
    ndarray
        (n,) machine of each job. Machine i's load is at most its load by share plus the time of the one split job that it
        got.

    Raises
    ------
    ValueError
        When the arrays are malformed or the shares do not keep the target.

    Notes
    -----
    O(n m) for a vertex, plus the purification of :func:`~hetopt.algorithms.forest.split_forest` otherwise. Source:
    Lenstra, Shmoys and Tardos, "Approximation algorithms for scheduling unrelated parallel machines", Mathematical
    Programming 46 (1990). No ratio below 3/2 is possible unless P = NP (same paper).
    """
    matrix = check_times(time)
    forest = split_forest(matrix, x, ready)
    if target is not None:
        ends = matrix[forest.split] + check_ready(ready, matrix.shape[1])
        _check_target(float(target), _largest_load(forest), ends, forest.share, forest.split)
    plan, load = forest.plan.copy(), forest.whole_load.copy()
    longest = np.zeros_like(load)
    for joint in forest.joints():
        job = forest.split[joint.row]
        machine = min(joint.children, key=lambda i: load[i] + matrix[job, i])
        plan[job] = machine
        load[machine] += matrix[job, machine]
        longest[machine] = matrix[job, machine]
    _confirm(load, forest.load + longest)
    return plan


def shchepin_vakhania(
    time: ArrayLike, x: ArrayLike, target: float | None = None, *, ready: ArrayLike | None = None
) -> IntArray:
    """Round a forest of split jobs optimally: smallest makespan of all plans that use only positive shares of the forest.

    For a makespan theta the leaves decide: a job takes a machine below it when it ends by theta there, for that machine has
    no other job to wait for, and else the one above. The smallest theta that works is found by bisection; a failed theta
    names the next one at which any decision would change, so that the end is exact.

    Arguments, return value and errors as in :func:`lenstra_shmoys_tardos`.

    Notes
    -----
    The makespan is at most ``T + (1 - 1/M) p``, with T the largest load by share, p the longest time of a share and M the
    machines of a tree, because some rounding is that good: going from the leaves inwards, say that a machine is *charged*
    c/M when jobs from below were forced on it that c machines below, now out of the game, could not take. Job j takes a
    child i if its missing share ``1 - x_ij`` and i's charge ``c_i / M`` come to at most ``1 - 1/M``. Otherwise
    ``x_ij < (c_i + 1)/M`` at all its children, so the parent misses less than ``sum (c_i + 1)/M`` of it and is charged with
    exactly the machines that leave the game. At the root at most M - 1 are gone. A machine charged c/M exceeds its load
    by share by at most ``p c/M``, which proves the bound; it is the best possible for roundings.

    O(n m) for a vertex, plus O(m) for each of some 60 steps of bisection. Source of the ratio: Shchepin and Vakhania, "An
    optimal rounding gives a better approximation for scheduling unrelated machines", Operations Research Letters 33 (2005).
    """
    matrix = check_times(time)
    forest = split_forest(matrix, x, ready)
    machines = matrix.shape[1]
    if target is not None:
        ends = matrix[forest.split] + check_ready(ready, machines)
        _check_target(float(target), _largest_load(forest), ends, forest.share, forest.split)
    joints = forest.joints()
    times = matrix[forest.split]
    held = np.bincount(forest.plan[forest.plan >= 0], minlength=machines) > 0
    lowest = float(forest.whole_load[held].max(initial=0.0))
    best, chosen, _ = _round_for(np.inf, lowest, joints, times, forest.whole_load)
    while lowest < best:
        theta = min(lowest / 2 + best / 2, float(np.nextafter(best, 0.0)))
        value, choice, retry = _round_for(theta, lowest, joints, times, forest.whole_load)
        if value <= theta:
            best, chosen = value, choice
        else:
            lowest = retry
    plan = forest.plan.copy()
    plan[forest.split] = chosen
    longest = float(times[forest.share > 0].max(initial=0.0))
    _confirm(best, _largest_load(forest) + (1 - 1 / machines) * longest)
    return plan


def shmoys_tardos(
    time: ArrayLike, cost: ArrayLike, x: ArrayLike, target: float | None = None, *, ready: ArrayLike | None = None
) -> IntArray:
    """Round without raising the cost: the generalised assignment problem.

    A machine's parts of split jobs, longest job first, fill slots of size 1; a cheapest matching of split jobs with slots
    costs no more than the shares, which are a fractional matching themselves. All jobs of a slot but the first are no
    longer than those of the slot before, so a machine's load rises by at most one job of the first.

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.
    cost
        (n, m) cost of each job on each machine, of any sign; only looked at where the job has a share.
    x
        (n, m) shares, rows of sum 1.
    target, ready
        As in :func:`lenstra_shmoys_tardos`: loads are then at most 2 T.

    Returns
    -------
    ndarray
        (n,) machine of each job. Its cost is at most ``(cost * x).sum()``, and machine i's load at most its load by share
        plus the longest time of a split job with a share of i.

    Raises
    ------
    ValueError
        When the arrays are malformed, a cost that counts is not finite, or the shares do not keep the target.

    Notes
    -----
    Needs no vertex and no forest. O(n m) plus a sparse matching of the split jobs (at most 2 m at a vertex) with their
    slots. Source: Shmoys and Tardos, "An approximation algorithm for the generalized assignment problem", Mathematical
    Programming 62 (1993).
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    matrix = check_times(time)
    share = check_shares(matrix, x)
    start = check_ready(ready, matrix.shape[1])
    prices = np.asarray(cost, dtype=np.float64)
    if prices.shape != matrix.shape:
        raise ValueError(f"costs have shape {prices.shape}, times {matrix.shape}")
    used = share > 0
    if not np.isfinite(prices[used]).all():
        job, machine = np.argwhere(used & ~np.isfinite(prices))[0]
        raise ValueError(f"cost[{job}, {machine}] is {prices[job, machine]}, but the job has a share of that machine")
    by_share = start + load_by_share(matrix, share)
    plan = np.where(used.sum(axis=1) == 1, share.argmax(axis=1), -1)
    split = np.flatnonzero(plan < 0)
    if target is not None:
        largest = float(by_share[used.any(axis=0)].max(initial=0.0))
        _check_target(float(target), largest, matrix[split] + start, share[split], split)
    longest = np.where(used[split], matrix[split], 0.0).max(axis=0, initial=0.0)
    if split.size:
        job, slot, machine_of_slot = _slots(matrix[split], share[split])
        weight = prices[split[job], machine_of_slot[slot]]
        # The matching takes positive weights; a constant more for each job changes nothing.
        weight = weight - weight.min() + max(1.0, float(np.ptp(weight)))
        graph = csr_array((weight, (job, slot)), shape=(len(split), len(machine_of_slot)))
        matched, slots = min_weight_full_bipartite_matching(graph)
        plan[split[matched]] = machine_of_slot[slots]
    _confirm(machine_loads(matrix, plan, start), by_share + longest)
    rows = np.arange(len(plan))
    _confirm(
        float(prices[rows, plan].sum()), float((prices[used] * share[used]).sum()), float(np.abs(prices[used]).sum())
    )
    return plan


def _slots(time: FloatArray, share: FloatArray) -> tuple[IntArray, IntArray, IntArray]:
    """Pairs (job, slot) of the slot graph of :func:`shmoys_tardos`, and the machine of each slot.

    A part that ends within 1e-9 of a slot's end ends there. Such slips are far from adding up to a whole job, so that
    Hall's condition, a matter of integers, holds as it does for exact shares.
    """
    jobs: list[int] = []
    slots: list[int] = []
    machine_of_slot: list[int] = []
    for i in range(time.shape[1]):
        parts = np.flatnonzero(share[:, i] > 0)
        parts = parts[np.argsort(-time[parts, i], kind="stable")]
        upto = np.cumsum(share[parts, i])
        number = max(1, int(np.ceil(upto[-1] - _SLACK))) if parts.size else 0
        first = len(machine_of_slot)
        for j, end, size in zip(parts.tolist(), upto.tolist(), share[parts, i].tolist(), strict=True):
            low = min(int(np.floor(end - size + _SLACK)), number - 1)
            high = min(max(low, int(np.ceil(end - _SLACK)) - 1), number - 1)
            for k in range(low, high + 1):
                jobs.append(j)
                slots.append(first + k)
        machine_of_slot += [i] * number
    return np.array(jobs), np.array(slots), np.array(machine_of_slot)


def _round_for(
    theta: float, whole: float, joints: list[Joint], times: FloatArray, whole_load: FloatArray
) -> tuple[float, IntArray, float]:
    """Round for a makespan ``theta``: the makespan reached, the machines, and the least theta above that decides otherwise.

    ``whole`` is the makespan of the whole jobs alone. Unless the first result is at most ``theta``, no rounding is.
    """
    load = whole_load.copy()
    chosen = np.full(len(times), -1, dtype=np.int64)
    value, retry = whole, np.inf
    for row, parent, children in joints:
        time = times[row]
        machine = min(children, key=lambda i: load[i] + time[i])
        if load[machine] + time[machine] > theta:
            retry = min(retry, load[machine] + time[machine])
            machine = parent
        chosen[row] = machine
        load[machine] += time[machine]
        value = max(value, load[machine])
    return value, chosen, min(retry, value)


def _largest_load(forest: SplitForest) -> float:
    """Largest load by share among the machines that have a job or a part of one."""
    used = np.zeros(len(forest.load), dtype=bool)
    used[forest.plan[forest.plan >= 0]] = True
    used[np.nonzero(forest.share)[1]] = True
    return float(forest.load[used].max(initial=0.0))


def _check_target(target: float, load: float, ends: FloatArray, share: FloatArray, split: IntArray) -> None:
    """Refuse shares that do not keep a target: ``load`` is the largest by share, ``ends`` when a split job alone ends."""
    if load > target * (1 + _SLACK):
        raise ValueError(f"the shares load a machine with {load}, above the target {target}")
    late = np.argwhere((share > 0) & (ends > target * (1 + _SLACK)))
    if late.size:
        row, machine = late[0]
        raise ValueError(f"job {split[row]} has a share of machine {machine}, where it ends after the target")


def _confirm(value: float | FloatArray, bound: float | FloatArray, scale: float = 0.0) -> None:
    """Raise unless ``value <= bound`` up to rounding errors: shares summed in another order, never a wrong plan."""
    if np.any(value > bound + _SLACK * (np.abs(bound) + scale)):
        raise ArithmeticError(
            "the rounded plan misses its guarantee: the shares are not an assignment in floating point"
        )
