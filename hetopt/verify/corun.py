"""Jobs that run on a node in sets, one configuration of the node each: what an instance states, and a plan, checked.

``tables.corun`` has a row ``[names, configuration, watts, seconds]`` for each set of jobs that was measured or predicted
together: under that configuration (how the node is divided, a word) and that power cap, all of them are done after so many
seconds. Names are kinds of ``tables.kind``; a job that has none is its own kind. Alone with the whole node, a job takes its
``time`` at the device's ``power``. A plan's ``details.sets`` has a row ``[[job, ...], configuration, watts]`` for each set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["ALONE", "CoRuns", "Set", "Told", "check_sets", "coruns_of"]

ALONE = "whole"


class Set(NamedTuple):
    """A configuration of a set: sorted kinds, the node's configuration, watts, seconds."""

    kinds: tuple[int, ...]
    configuration: str
    watts: float
    seconds: float


class CoRuns(NamedTuple):
    """(n,) kind of each job, kinds' names, all sets in order, and the number of each set by kinds, configuration and watts."""

    kind: NDArray[np.int64]
    names: tuple[str, ...]
    sets: tuple[Set, ...]
    number: Mapping[tuple[tuple[int, ...], str, float], int]


class Told(NamedTuple):
    """Seconds of all sets together, watts of all sets together, and a sentence for each broken rule."""

    seconds: float
    watts: float
    violations: tuple[str, ...]


@lru_cache(maxsize=4)
def coruns_of(instance: Instance) -> CoRuns:
    """Kinds and sets of an instance.

    Raises
    ------
    InputError
        A table is no such table, a row says nothing that can be, or repeats another's set, configuration and watts.
    """
    kind_of = instance.tables.get("kind", {})
    if not isinstance(kind_of, Mapping) or not all(isinstance(word, str) for word in kind_of.values()):
        raise InputError("$.tables.kind is no such table, expected a kind by job")
    for name in kind_of:
        if name not in instance.task_index:
            raise InputError(f"$.tables.kind names {name!r}, which is no job of the instance")
    words = [kind_of.get(name, name) for name in instance.labels]
    names = tuple(sorted(set(words)))
    number = {name: k for k, name in enumerate(names)}
    rows = instance.tables.get("corun")
    if not isinstance(rows, list):
        raise InputError(
            f"$.tables.corun is {type(rows).__name__}, expected rows [names, configuration, watts, seconds]"
        )
    kind = np.array([number[word] for word in words], np.int64)
    first = np.unique(kind, return_index=True)[1]
    power = float(instance.devices[0].power or 0.0)
    sets = [Set((k,), ALONE, power, float(instance.time[job, 0])) for k, job in enumerate(first.tolist())]
    index = {(one.kinds, one.configuration, one.watts): k for k, one in enumerate(sets)}
    for job, k in enumerate(kind.tolist()):
        if instance.time[job, 0] != sets[k].seconds:
            raise InputError(
                f"jobs {instance.labels[first[k]]!r} and {instance.labels[job]!r} are of one kind and take different times alone"
            )
    for r, row in enumerate(rows):
        path = f"$.tables.corun[{r}]"
        right = (
            isinstance(row, list) and len(row) == 4 and isinstance(row[0], list) and row[0] and isinstance(row[1], str)
        )
        if not right or not all(isinstance(name, str) for name in row[0]):
            raise InputError(f"{path} is {row!r:.80}, expected [[name, ...], configuration, watts, seconds]")
        for k, least in ((2, 0.0), (3, 1e-12)):
            if isinstance(row[k], bool) or not isinstance(row[k], (int, float)) or not least <= row[k] <= 1e12:
                what = "watts, 0 or more" if k == 2 else "seconds, above 0"
                raise InputError(f"{path}[{k}] is {row[k]!r:.40}, expected {what}")
        if not all(name in number for name in row[0]):
            continue  # a kind of which there is no job says nothing
        one = Set(tuple(sorted(number[name] for name in row[0])), row[1], float(row[2]), float(row[3]))
        key = (one.kinds, one.configuration, one.watts)
        if key in index:
            raise InputError(f"{path} repeats an earlier row's jobs, configuration and watts")
        index[key] = len(sets)
        sets.append(one)
    return CoRuns(kind, names, tuple(sets), index)


def check_sets(instance: Instance, solution: Solution, *, cap: float | None, site: float | None, group: int) -> Told:
    """A plan's seconds, recomputed, and every rule it breaks.

    Parameters
    ----------
    cap, group
        Most watts, and most jobs, of a set.
    site
        Most watts of all sets together, when they run at once, each on a node of its own; None when they run one by one.
    """
    rows, known, labels = solution.details.get("sets"), coruns_of(instance), instance.labels
    if not isinstance(rows, list):
        return Told(math.inf, math.inf, ("the plan's details.sets is no list of [[job, ...], configuration, watts]",))
    wrong: list[str] = []
    times, seconds, watts = np.zeros(instance.n_tasks, np.int64), [], []
    for row in rows:
        if not isinstance(row, list) or len(row) != 3 or not isinstance(row[0], list) or isinstance(row[2], bool):
            raise ValueError(f"details.sets has the row {row!r:.60}, expected [[job, ...], configuration, watts]")
        jobs = [instance.task_index[name] for name in row[0]]
        for job in jobs:
            times[job] += 1
        which = known.number.get((tuple(sorted(known.kind[jobs].tolist())), row[1], float(row[2])))
        if which is None:
            wrong.append(f"the instance has no row for {row[0]} under {row[1]!r} at {row[2]} W")
            continue
        one = known.sets[which]
        seconds.append(one.seconds)
        watts.append(one.watts)
        if cap is not None and one.watts > cap * (1 + 1e-12):
            wrong.append(f"{row[0]} take {one.watts:g} W, and a set may take {cap:g} W")
        if len(jobs) > group:
            wrong.append(f"{row[0]} are {len(jobs)} jobs, and a set has {group} at most")
    wrong += [
        f"job {labels[job]!r} is in {times[job]} sets, expected 1" for job in np.flatnonzero(times != 1)[:20].tolist()
    ]
    total, nodes = math.fsum(watts), instance.devices[0].slots
    if site is not None and total > site * (1 + 1e-9):
        wrong.append(f"all sets together take {total:g} W, and there are {site:g} W: {total - site:g} W too many")
    if site is not None and len(rows) > nodes:
        wrong.append(f"{len(rows)} sets run at once, and there are {nodes} nodes")
    return Told(math.fsum(seconds), total, tuple(wrong))
