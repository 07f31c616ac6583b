"""Rolling-horizon planning of a stream: at each arrival, what has not started is planned anew from what is known then.

A task that has started stays. The others, of the jobs that have arrived, are planned again by CP-SAT, of the earliest jobs first
where there are many; the rest keeps its place behind them. A task whose device changes has its inputs sent again from that moment
on. Nothing of a job is looked at before its release, neither in the plan nor in the model's scale. The work at each arrival is
limited by CP-SAT's own count, so that a run repeats.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.schedule._online import plan_of, stream, value_of
from formulations.schedule._online_cpsat import Part, part_model
from hetopt.algorithms.dag_list import upward_rank
from hetopt.algorithms.online_dispatch import Stream
from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance

__all__ = ["Rolling"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_TASKS = 60  # planned at one arrival
_WORK = 0.25  # CP-SAT's seconds of work at each arrival


class Rolling(Method):
    """Replanning at each arrival."""

    name = "rolling"
    title = "rolling horizon: at each arrival CP-SAT plans anew what has not started, without knowing what comes; no guarantee"
    kind = "heuristic"
    engine = "cp"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough arrivals."""
        arrivals = len(np.unique(instance.columns.release))
        return f"{arrivals:,} arrivals are more than 5,000" if arrivals > 5000 else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass over the arrivals; after a stop the rest is dispatched without a solver."""
        data = stream(instance, question)
        known = _Known(data)
        for moment in np.unique(data.graph.release).tolist():
            known.advance(moment)
            if not control.should_stop():
                _improve(known, control)
        control.report_plan(plan_of(instance, data, known.way, known.start))
        return Outcome("limit", "time") if control.should_stop() and not control.closed else Outcome()


class _Known:
    """What is planned at a moment: way, start and end of the tasks of all jobs that have arrived."""

    def __init__(self, data: Stream) -> None:
        n = len(data.job)
        self.data, self.now, self.rank = data, 0.0, upward_rank(data.graph)
        self.way, self.start, self.end = np.full(n, -1, np.int64), np.zeros(n), np.zeros(n)
        self.decided = np.zeros(n)  # moment at which a task's device was chosen
        self.pending = np.zeros(0, np.int64)
        self.early = np.zeros((0, len(data.graph.free)))
        self.inputs = [
            list(range(data.graph.pred_start[v], data.graph.pred_start[v + 1])) for v in range(n)
        ]  # fmt: skip
        self.least = data.energy.min(axis=1)

    def advance(self, moment: float) -> None:
        """Time passes; the jobs released now are put behind what is planned, by their ways to the end."""
        g, planned = self.data.graph, self.way >= 0
        self.now = moment
        old = np.flatnonzero(planned & (self.start >= moment))
        new = np.flatnonzero(~planned & (g.release == moment))
        self.pending = np.concatenate([old, new])
        self.early = self._early()
        order = [*old[np.lexsort((self.place()[old], self.start[old]))].tolist(), *self._by_rank(new)]
        self.put(order, {v: int(self.way[v]) for v in old.tolist()})

    def put(self, order: list[int], wish: dict[int, int]) -> None:
        """Plan the pending tasks in ``order``, each behind those before it, on its wish or where it ends first."""
        data, g = self.data, self.data.graph
        row = {v: k for k, v in enumerate(self.pending.tolist())}
        tail, left = self.tails(), self.left()
        np.subtract.at(left, data.job[self.pending], self.least[self.pending])
        for v in order:
            best: tuple[float, float, int, float] | None = None
            j = int(data.job[v])
            may = np.isfinite(data.time[v]) & (data.energy[v] <= max(self.least[v], left[j] + self.least[v]))
            for q in [wish[v]] if v in wish and may[wish[v]] else np.flatnonzero(may).tolist():
                p, length, energy = int(data.device[q]), float(data.time[v, q]), float(data.energy[v, q])
                moment = max(float(self.early[row[v], p]), float(tail[p]) if length > 0 else 0.0)
                for e in self.inputs[v]:
                    u = int(g.pred[e])
                    if u in row:
                        a = int(data.device[self.way[u]])
                        late = g.latency[a, p] + g.pred_data[e] * g.slowness[a, p] if a != p else 0.0
                        moment = max(moment, float(self.end[u] + late))
                cost = data.weight[j] * (moment + length) + data.price * energy
                if best is None or (cost, moment + length) < best[:2]:
                    best = (cost, moment + length, q, moment)
            assert best is not None
            _, end, q, moment = best
            p = int(data.device[q])
            if self.way[v] < 0 or data.device[self.way[v]] != p:
                self.decided[v] = self.now
            self.way[v], self.start[v], self.end[v] = q, moment, end
            left[j] -= data.energy[v, q] - self.least[v]
            if data.time[v, q] > 0:
                tail[p] = end

    def started(self) -> Ints:
        """Tasks that stay as they are."""
        return np.flatnonzero((self.way >= 0) & ~np.isin(np.arange(len(self.way)), self.pending))

    def tails(self) -> Floats:
        """(m,) when each device is free of what has started."""
        data, mine = self.data, self.started()
        tail = data.graph.free.copy()
        takes = mine[data.time[mine, self.way[mine]] > 0]
        np.maximum.at(tail, data.device[self.way[takes]], self.end[takes])
        return tail

    def left(self) -> Floats:
        """(jobs,) joules that are left to each job after what has started."""
        data, mine = self.data, self.started()
        spent = np.bincount(data.job[mine], weights=data.energy[mine, self.way[mine]], minlength=len(data.weight))
        return np.asarray(data.most - spent)

    def _early(self) -> Floats:
        """(pending, m) from when each pending task may start on each device, given what has started; inf where it cannot run."""
        data, g, now = self.data, self.data.graph, self.now
        early = np.where(np.isfinite(g.time[self.pending]), np.maximum(now, g.free)[None, :], np.inf)
        inside = set(self.pending.tolist())
        for k, v in enumerate(self.pending.tolist()):
            sent = np.full(len(g.free), now)
            if self.way[v] >= 0:
                sent[data.device[self.way[v]]] = self.decided[v]
            for e in self.inputs[v]:
                u = int(g.pred[e])
                if u in inside:
                    continue
                a = int(data.device[self.way[u]])
                late = g.latency[a] + g.pred_data[e] * g.slowness[a]
                late[a] = 0.0
                sent_at = np.where(np.arange(len(sent)) == a, self.end[u], np.maximum(self.end[u], sent))
                early[k] = np.maximum(early[k], sent_at + late)
        return early

    def place(self) -> Ints:
        """(n,) place of each task in a topological order."""
        place = np.empty(len(self.way), np.int64)
        place[self.data.graph.topological] = np.arange(len(place))
        return place

    def _by_rank(self, tasks: Ints) -> list[int]:
        place = self.place()
        return [int(v) for v in tasks[np.lexsort((place[tasks], -self.rank[tasks]))]]


def _improve(known: _Known, control: Control) -> None:
    """Plan the pending tasks again, those of the earliest jobs by CP-SAT; keep what is better."""
    from hetopt import solvers

    data = known.data
    chosen: list[int] = []
    jobs = sorted({int(data.job[v]) for v in known.pending.tolist()}, key=lambda j: (_release(data, j), j))
    for j in jobs:
        mine = known.pending[data.job[known.pending] == j].tolist()
        if chosen and len(chosen) + len(mine) > _MOST_TASKS:
            break
        chosen += mine
    tasks = np.array(sorted(chosen), np.int64)
    row = {v: k for k, v in enumerate(known.pending.tolist())}
    early = known.early[[row[v] for v in tasks.tolist()]]
    early = np.where(data.graph.time[tasks] > 0, np.maximum(early, known.tails()[None, :]), early)
    part = Part(tasks, early, np.maximum(known.left(), 0.0))
    built = part_model(data, part)
    answer = _answer(solvers.get("cpsat"), built, _hint(known, built, tasks), control)
    if answer.x is None:
        return
    points = [(v, q) for v, literals in zip(tasks.tolist(), built.ways, strict=True) for q in literals]
    taken = {v: q for (v, q), value in zip(points, answer.x.tolist(), strict=False) if value == 1}
    begin = dict(zip(tasks.tolist(), answer.x[len(points) :].tolist(), strict=True))
    place = known.place()
    order = sorted(tasks.tolist(), key=lambda v: (begin[v], place[v]))
    rest = [v for v in known.pending.tolist() if v not in begin]
    order += sorted(rest, key=lambda v: (known.start[v], place[v]))
    before = value_of(data, known.way, known.start, known.pending)
    kept = known.way.copy(), known.start.copy(), known.end.copy(), known.decided.copy()
    known.put(order, {**{v: int(known.way[v]) for v in rest}, **taken})
    if value_of(data, known.way, known.start, known.pending) > before:
        known.way, known.start, known.end, known.decided = kept


def _hint(known: _Known, built: Any, tasks: Ints) -> Floats:
    literals = [known.way[v] == q for v, ways in zip(tasks.tolist(), built.ways, strict=True) for q in ways]
    return np.array([*literals, *np.round(known.start[tasks] / built.units.seconds).tolist()], np.float64)


def _answer(adapter: Any, built: Any, hint: Floats, control: Control) -> Any:
    from hetopt.solvers import Options
    from hetopt.solvers.cpsat import CpProgram

    points = [literal for literals in built.ways for literal in literals.values()]
    program = CpProgram(built.model, [*points, *built.starts], name="rolling")
    return adapter.solve(program, Options(time_limit=_WORK, seed=control.seed, hint=hint, deterministic=True), control)


def _release(data: Stream, job: int) -> float:
    return float(data.graph.release[int(np.argmax(data.job == job))])
