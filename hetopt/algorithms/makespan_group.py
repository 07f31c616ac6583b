"""Jobs of some or all machines placed anew by a mixed-integer program over cheap pairs; a step of the makespan search.

Where times are decimals that differ widely, the last tenth of a per cent is a matter of sums that meet closely, and branch
and bound over few pairs finds them better than exchanges do. Nothing here is a bound: the program leaves out pairs, and its
effort is limited by nodes, so that the same call gives the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.makespan_lp import Floats

__all__ = ["place_anew"]

Ints = NDArray[np.int64]

_SCALE = 1000.0  # the makespan in units that suit the solver's tolerances
_WHOLE = 1e5  # integer makespans up to here are taken as they are


def place_anew(
    time: Floats,
    ready: Floats,
    plan: Ints,
    group: Ints,
    allowed: NDArray[np.bool_],
    *,
    nodes: int,
    least: float | None = None,
    seed: int = 0,
    should_stop: Callable[[], bool] | None = None,
) -> Ints | None:
    """Lower the largest load of a group of machines by placing their jobs anew.

    Parameters
    ----------
    time
        (n, m) processing times.
    ready
        (m,) loads of the empty machines.
    plan
        (n,) machine of each job.
    group
        Machines, ascending; the others and their jobs stay as they are.
    allowed
        (n, m) pairs that the program may use besides the plan's own.
    nodes
        Most nodes of branch and bound.
    least
        Known bound on the group's largest load where times are integers: the program then asks for a whole number, at least
        this and below the plan's, and ends when there is none. None for decimals.
    seed
        Of the solver's ties.
    should_stop
        Asked during the solve.

    Returns
    -------
    ndarray or None
        A plan whose largest load in the group is smaller, or None when none was found.
    """
    import highspy

    jobs = np.flatnonzero(np.isin(plan, group))
    if len(jobs) == 0:
        return None
    n, m = len(jobs), len(group)
    needs = time[np.ix_(jobs, group)]
    here = np.searchsorted(group, plan[jobs])
    usable = allowed[np.ix_(jobs, group)] & np.isfinite(needs)
    usable[np.arange(n), here] = True
    job, machine = np.nonzero(usable)
    value = float((ready[group] + np.bincount(here, needs[np.arange(n), here], m)).max())
    if value <= 0:
        return None
    whole = least is not None and value <= _WHOLE
    unit, k = (1.0 if whole else value / _SCALE), len(job)
    solver: Any = highspy.Highs()
    for name, option in {
        "output_flag": False,
        "threads": 1,
        "mip_rel_gap": 0.0 if whole else 1e-6,
        "mip_heuristic_effort": 0.3,
        "mip_max_nodes": nodes,
        "random_seed": seed % (1 << 31),
        "objective_bound": value - 0.5 if whole else value / unit,
    }.items():
        solver.setOptionValue(name, option)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = k + 1, n + m
    model.col_cost_ = np.r_[np.zeros(k), 1.0]
    model.col_lower_ = np.r_[np.zeros(k), 0.0 if least is None else least / unit]
    model.col_upper_ = np.r_[np.ones(k), value / unit]
    model.row_lower_ = np.r_[np.ones(n), np.full(m, -highspy.kHighsInf)]
    model.row_upper_ = np.r_[np.ones(n), -ready[group] / unit]
    load_type = highspy.HighsVarType.kInteger if whole else highspy.HighsVarType.kContinuous
    model.integrality_ = [highspy.HighsVarType.kInteger] * k + [load_type]
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.r_[2 * np.arange(k + 1), 2 * k + m].astype(np.int32)
    rows = np.stack([job, n + machine], axis=1).ravel()
    model.a_matrix_.index_ = np.r_[rows, n + np.arange(m)].astype(np.int32)
    entries = np.stack([np.ones(k), needs[job, machine] / unit], axis=1).ravel()
    model.a_matrix_.value_ = np.r_[entries, np.full(m, -1.0)]
    solver.passModel(model)
    start = highspy.HighsSolution()
    start.col_value = [*(machine == here[job]).astype(float).tolist(), value / unit]
    solver.setSolution(start)
    if should_stop is not None:

        def ask(event: Any) -> None:
            if should_stop():
                event.interrupt()

        solver.cbMipInterrupt.subscribe(ask)
    solver.run()
    point = np.asarray(solver.getSolution().col_value, dtype=np.float64)[:k]
    chosen = point > 0.5
    if len(point) < k or chosen.sum() != n:
        return None
    found = np.empty(n, dtype=np.int64)
    found[job[chosen]] = machine[chosen]
    load = ready[group] + np.bincount(found, needs[np.arange(n), found], m)
    if not load.max() < value:
        return None
    anew = plan.copy()
    anew[jobs] = group[found]
    return anew
