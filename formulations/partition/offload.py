r"""Offloading: which layers, and which experts, lie on which accelerator or on the host, for one stream of tokens.

Asked of a model larger than its accelerators' memory. A sequence of tasks, such as each layer's dense part and its experts, is
split over accelerators in their order; each task lies on its accelerator or on a host. Both choices are made together:
"experts of the first layers on the CPU" empties one accelerator and overfills another.

    sets, data
    t = 1..n          tasks in sequence, m_t bytes, o_t bytes handed on (the edge's ``data``, or the task's ``output``); a cut is
                      allowed behind some of them
    g = 1..G          accelerators in the order of tables.order, or of the file
    h = 1..H          hosts (devices that say ``host``);  M_i bytes that device i has
    s = (g, r)        state: g is the accelerator reached, the task lies on g (r = 0) or on host r
    p_ts              seconds of task t in state s: on the device where it lies (in-place); or, of a task on a host, on
                      accelerator 1 with the copy of its m_t bytes (swap)
    q_tab             seconds to hand o_t from the device that computes in state a to that of state b, 0 if it is the same
    A                 pairs of states (a, b) that may follow each other: g stays, or grows behind an allowed cut

    variables
    u_ts  in {0,1}    task t is in state s;      z_tab in [0,1]  and t + 1 in state b after t in a
    R >= 0            room kept on accelerator 1 for what is copied there (swap)

    minimise    sum_ts p_ts u_ts + sum_tab q_tab z_tab                                                  (offload)
    or          C,  C >= bytes on each accelerator                                                      (offload-memory)
    subject to  sum_s u_1s = 1                                                                      (1)  start
                sum_b z_tab = u_ta,   sum_a z_tab = u_(t+1)b      (a, b) in A                       (2)  leave, (3) enter
                sum_{t, s lies on i} m_t u_ts (+ R on accelerator 1)  <=  M_i                       (4)  memory
                R >= m_t sum_{s on a host} u_ts                                                     (5)  room
                sum_{t, s on a host} u_ts = K          when ``hosted = K`` is asked for             (6)  hosted
                sum_{s lies on i} u_ts = sum_{s lies on i} u_t's    for t, t' of a group, device i  (7)  group

For fixed u the z are those of one path, so only u need be integral. Without (4)-(7) the program is a shortest path; pricing
(4) gives the bound of ``prices`` (:mod:`hetopt.algorithms.offload`), replayed from the prices alone.

Sources: placement semantics of accelerate's device maps (offloaded modules are copied to the main device) and of llama.cpp's
layer split with tensor overrides (they run on the host). The program is ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import in_mebibytes, time_unit
from hetopt.control import Control
from hetopt.formulation import (
    Evaluation,
    LinearFormulation,
    Method,
    Option,
    Outcome,
    Problem,
    Question,
    Relaxed,
    RunOptions,
    Step,
)
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.solution import Solution
from hetopt.verify.chain import layer_sequence
from hetopt.verify.offload import accelerators, check_offload, handed_on, may_reside

MOST_STATES = 48
MOST_ARCS = 2_000_000
_ROUNDING = 2.0**-40  # of the magnitudes summed, far above what shortest paths of any length here can lose


@lru_cache(maxsize=4)
def _line(instance: Instance, swap: bool) -> Any:
    """The instance as a :class:`hetopt.algorithms.offload.Sequence`, tasks in order."""
    from hetopt.algorithms import offload

    sequence = layer_sequence(instance)
    assert sequence is not None
    on = np.array(_states(instance), np.int64)
    place = {g: k for k, g in enumerate(accelerators(instance))}
    reached, lies = np.array([place[g] for g in on[:, 0].tolist()], np.int64), on[:, 1]
    runs = np.where(instance.is_host[lies], accelerators(instance)[0], lies) if swap else lies
    latency, slowness = _ways(instance)
    memory = instance.memory[sequence]
    seconds = instance.columns.time[sequence][:, runs].copy()
    if swap:
        copied = instance.is_host[lies]
        copy = latency[lies, runs][None, :] + memory[:, None] * slowness[lies, runs][None, :]
        seconds[:, copied] += copy[:, copied]
    seconds[~may_reside(instance, swap)[sequence][:, lies]] = np.inf
    return offload.Sequence(
        seconds, runs, lies, reached, memory, handed_on(instance)[sequence], instance.columns.cut[sequence], latency, slowness,
        instance.capacity,
    )  # fmt: skip


def _ways(instance: Instance) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(d, d) latency and seconds a byte of each pair of devices; ``inf`` latency and 0 where no link matches."""
    d, names = instance.n_devices, instance.device_names
    latency, slowness = np.full((d, d), np.inf), np.zeros((d, d))
    np.fill_diagonal(latency, 0.0)
    for a in range(d):
        for b in range(d):
            link = instance.link(names[a], names[b]) if a != b else None
            if link is not None:
                latency[a, b] = link.latency
                slowness[a, b] = 1.0 / link.bandwidth if link.bandwidth else 0.0
    return latency, slowness


def _states(instance: Instance) -> list[tuple[int, int]]:
    """(accelerator reached, device where the task lies) of each state."""
    host = np.flatnonzero(instance.is_host).tolist()
    return [(g, i) for g in accelerators(instance) for i in (g, *host)]


def _swap(question: Question | None) -> bool:
    return question is not None and question["execute"] == "swap"


def _homeless(instance: Instance, may: NDArray[np.bool_]) -> tuple[str, ...]:
    """The first group that has no room on any device where all of it may lie."""
    for g, name in enumerate(instance.columns.group_name):
        inside = instance.group == g
        able = may[inside].all(axis=0)
        if not able.any():
            return (f"group {name!r}: no device may hold all of its {int(inside.sum())} tasks",)
        where = int(np.argmax(np.where(able, instance.capacity, -np.inf)))
        need, has = math.fsum(instance.memory[inside].tolist()), float(instance.capacity[where])
        if need > has * (1.0 + 1e-12):
            return (
                f"memory: group {name!r} needs {need:.12g} bytes, and {instance.device_names[where]!r} offers {has:.12g}: "
                f"{need - has:.12g} bytes short{in_mebibytes(need - has)}",
            )
    return ()


def _too_many_bytes(instance: Instance, may: NDArray[np.bool_]) -> tuple[str, ...]:
    """Tasks that have together more bytes than the devices on which any of them may lie; the largest shortfall."""
    whole = bool((instance.memory == np.floor(instance.memory)).all())
    most, told = 0.0, ""
    for devices in np.unique(may, axis=0):
        tied = ~(may & ~devices).any(axis=1)
        need, there = math.fsum(instance.memory[tied].tolist()), math.fsum(instance.capacity[devices].tolist())
        short = need - there * (1.0 if whole else 1.0 + 1e-12)
        if short > most:
            who, has, most = f"the tasks that lie {_where(instance, devices)} need", "there are", short
            if devices.all():
                who, has = "all tasks need", "all devices have"
            told = f"memory: {who} {need:.12g} bytes, and {has} {there:.12g}: {need - there:.12g} bytes short"
            told += in_mebibytes(need - there)
    return (told,) if told else ()


def _where(instance: Instance, devices: NDArray[np.bool_]) -> str:
    names = [instance.device_names[k] for k in np.flatnonzero(devices).tolist()]
    return f"on {' or '.join(map(repr, names[:4]))}" + (f" or {len(names) - 4} more" if len(names) > 4 else "")


class MILP(LinearFormulation):
    """(1)-(7)."""

    name = "milp"
    title = "MILP (1)-(7): a path of states under memory limits"
    kind = "exact"

    def __init__(self, objective: str) -> None:
        self.objective = objective

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough arcs."""
        size = self.size(instance, question)
        return f"it would have up to {size:,} arcs, more than {MOST_ARCS:,}" if size > MOST_ARCS else None

    def size(self, instance: Instance, question: Question) -> int:
        """Arcs at most."""
        hosts = int(instance.is_host.sum())
        states = (instance.n_devices - hosts) * (1 + hosts)
        return instance.n_tasks * states * (states + 1) // 2

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``state[task, state]``, ``next[arc]``, ``room``, and ``largest`` for the memory objective."""
        question = question if question is not None else PROBLEMS[0].question(instance.with_question({}))
        line = _line(instance, _swap(question))
        n, s = line.seconds.shape
        names, sequence = instance.device_names, layer_sequence(instance)
        assert sequence is not None
        tasks = [instance.labels[k] for k in sequence.tolist()]
        labels = [f"{names[g]}:{names[i]}" for g, i in _states(instance)]
        finite = np.isfinite(line.seconds)
        model = LinearModel(question.objective)
        u = model.binary("state", (n, s), upper=finite, labels=(tasks, labels))
        t, a, b = _arcs(line)
        z = model.continuous("next", len(t), lower=0, upper=1)
        model.rows("start", 1, [(0, u[0], 1.0)], lower=1, upper=1)  # (1)
        model.rows(
            "leave", (n - 1, s), [(t * s + a, z, 1.0), (np.arange((n - 1) * s), u[:-1].ravel(), -1.0)], lower=0, upper=0
        )  # (2)
        model.rows(
            "enter", (n - 1, s), [(t * s + b, z, 1.0), (np.arange((n - 1) * s), u[1:].ravel(), -1.0)], lower=0, upper=0
        )  # (3)
        unit = time_unit(float(line.memory.max(initial=0.0)))
        heavy = line.memory / unit
        row = np.broadcast_to(line.lies[None, :], (n, s))
        terms: list[tuple[Any, Any, Any]] = [(row, u, np.broadcast_to(heavy[:, None], (n, s)))]
        on_host = instance.is_host[line.lies]
        main = accelerators(instance)[0]
        if _swap(question):
            room = model.continuous("room", 1, lower=0, upper=float(heavy.max(initial=0.0)))
            terms.append((np.array([main]), room, 1.0))
            each = np.broadcast_to(np.arange(n)[:, None], (n, int(on_host.sum())))
            swapped = (each, u[:, on_host], -np.broadcast_to(heavy[:, None], each.shape))
            model.rows(
                "room", n, [(np.arange(n), np.broadcast_to(room, (n,)), 1.0), swapped], lower=0, labels=(tasks,)
            )  # (5)
        d = instance.n_devices
        model.rows("memory", d, terms, upper=instance.capacity / unit, labels=(names,))  # (4)
        if question["hosted"] is not None:
            model.rows(
                "hosted", 1, [(0, u[:, on_host].ravel(), 1.0)], lower=question["hosted"], upper=question["hosted"]
            )  # (6)
        first, other = _grouped(instance.group[sequence])
        pair = np.arange(len(other))[:, None] * d + line.lies
        model.rows("group", (len(other), d), [(pair, u[other], 1.0), (pair, u[first], -1.0)], lower=0, upper=0)  # (7)
        if self.objective == "memory":
            largest = model.continuous("largest", 1, lower=0, upper=2.0 * float(heavy.sum()))
            gpus = np.flatnonzero(~instance.is_host)
            place = np.full(d, -1)
            place[gpus] = np.arange(len(gpus))
            mine = [(place[r[keep]], c[keep], v[keep]) for r, c, v in map(_flat, terms) for keep in (place[r] >= 0,)]
            all_of = (np.arange(len(gpus)), np.broadcast_to(largest, (len(gpus),)), -1.0)
            model.rows("largest", len(gpus), [*mine, all_of], upper=0, labels=([names[g] for g in gpus.tolist()],))
            model.minimize(largest, unit)
            return model
        move = line.latency[line.runs[a], line.runs[b]] + line.output[t] * line.slowness[line.runs[a], line.runs[b]]
        seconds = np.where(finite, line.seconds, 0.0)
        model.minimize(np.concatenate([u.ravel(), z]), np.concatenate([seconds.ravel(), move]))
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Each task where its state lies."""
        sequence = layer_sequence(instance)
        assert sequence is not None
        lies = np.array([i for _, i in _states(instance)], np.int64)
        state = x[model.columns("state")].reshape(instance.n_tasks, -1).argmax(axis=1)
        placement = np.empty(instance.n_tasks, np.int64)
        placement[sequence] = lies[state]
        return Solution.assign(placement)

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """States of a plan; the accelerator reached is the last one used, at first the first one that will be."""
        sequence = layer_sequence(instance)
        if sequence is None or solution.placement is None:
            return None
        states = _states(instance)
        number = {state: k for k, state in enumerate(states)}
        where, cut = solution.placement[sequence].tolist(), instance.columns.cut[sequence].tolist()
        ahead, n = [0] * len(where), len(where)  # the next accelerator used, from each task on
        last = states[0][0]
        for t in range(n - 1, -1, -1):
            last = last if instance.is_host[where[t]] else where[t]
            ahead[t] = last
        reached = ahead[0]
        x = np.full(model.n_columns, np.nan)
        block = np.zeros((instance.n_tasks, len(states)))
        for t, i in enumerate(where):
            reached = (
                i
                if not instance.is_host[i]
                else ahead[t]
                if t and cut[t - 1] and _later(states, reached, ahead[t])
                else reached
            )
            block[t, number[reached, i]] = 1.0
        x[model.columns("state")] = block.reshape(x[model.columns("state")].shape)
        return x


def _grouped(group: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of places in the sequence that share a device: the first of each group with each other one of it."""
    inside = np.flatnonzero(group >= 0)
    _, first, number = np.unique(group[inside], return_index=True, return_inverse=True)
    head = inside[first][number]
    return head[head != inside], inside[head != inside]


def _arcs(line: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(task, state, next state) of every arc in A with a link where one is needed."""
    n = len(line.seconds)
    a, b = np.divmod(np.arange(len(line.reached) ** 2), len(line.reached))
    linked = np.isfinite(line.latency[line.runs[a], line.runs[b]])
    stays, grows = line.reached[a] == line.reached[b], line.reached[a] < line.reached[b]
    found = []
    for cut in (False, True):
        pairs = np.flatnonzero(linked & (stays | (grows & cut)))
        tasks = np.flatnonzero(line.cut[: n - 1] == cut)
        found.append((np.repeat(tasks, len(pairs)), np.tile(a[pairs], len(tasks)), np.tile(b[pairs], len(tasks))))
    t, a, b = (np.concatenate(parts) for parts in zip(*found, strict=True))
    open_ends = np.isfinite(line.seconds[t, a]) & np.isfinite(line.seconds[t + 1, b])
    return t[open_ends], a[open_ends], b[open_ends]


def _later(states: list[tuple[int, int]], a: int, b: int) -> bool:
    """Whether accelerator ``b`` comes after ``a``."""
    order = [g for g, i in states if g == i]
    return order.index(b) > order.index(a)


def _flat(term: tuple[Any, Any, Any]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    row, column, value = np.broadcast_arrays(*term)
    return row.ravel(), column.ravel(), value.ravel().astype(np.float64)


class Prices(Method):
    """Shortest paths under prices of memory."""

    name = "prices"
    title = "shortest paths under memory prices, repaired; bound replayed from the prices"
    kind = "search"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Climb, reporting plans and bounds; with ``hosted`` asked for, other counts are left to the MILP."""
        from hetopt.algorithms.offload import price, split

        sequence = layer_sequence(instance)
        assert sequence is not None
        problem = question.problem
        line = _line(instance, _swap(question))

        def plan(state: NDArray[np.int64]) -> float | None:
            placement = np.empty(instance.n_tasks, np.int64)
            placement[sequence] = line.lies[state]
            solution = Solution.assign(placement)
            seen = problem.judge(instance, question, solution)
            if seen.violations:
                return None
            control.report_plan(solution)
            return seen.value

        def proves(prices: NDArray[np.float64]) -> float:
            certificate = {"kind": "prices", "prices": prices.tolist()}
            bound = problem.replay(instance, question, certificate)
            control.report_bound(bound, "replayed", certificate)
            return bound

        pieces = split(line)
        if pieces is not None:
            plan(pieces)
        price(line, control.should_stop, plan, proves)
        return Outcome()


class Offload(Problem):
    """Least seconds of one pass through the sequence."""

    name = "partition.offload"
    objectives = ("offload",)
    title = "parts of layers on accelerators or the host, least seconds a token"
    uses = frozenset({"time", "memory", "group", "pin", "forbid", "edges", "output", "links", "tables.order"})
    options = (
        Option(
            "execute",
            ("in-place", "swap"),
            "in-place",
            "where tasks on a host run: there, or copied to the first accelerator",
        ),
        Option("hosted", int, None, "exact number of tasks on hosts; any when left out"),
    )
    methods = (MILP("seconds"), Relaxed(MILP("seconds"), "(1)-(7)"), Prices())

    def fits(self, instance: Instance) -> str | None:
        """A sequence, an accelerator, and a host."""
        if layer_sequence(instance) is None:
            return "the tasks do not form one sequence: each but the last needs one edge, to the next"
        hosts = int(instance.is_host.sum())
        if hosts == 0 or hosts == instance.n_devices:
            return "it needs a device that says host, to offload to, and one that does not"
        states = (instance.n_devices - hosts) * (1 + hosts)
        accelerators(instance)
        return f"{states} states a task are more than {MOST_STATES}" if states > MOST_STATES else None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Seconds, every constraint checked."""
        report = check_offload(instance, solution.placement, swap=_swap(question), hosted=question["hosted"])
        rows = zip(instance.device_names, report.load.tolist(), report.memory.tolist(), strict=True)
        devices = {name: {"load": load, "memory": memory} for name, load, memory in rows}
        details = {"devices": devices, "transfers": report.transfers, "seconds": report.seconds}
        return Evaluation(self.value(instance, report), report.violations, details)

    def value(self, instance: Instance, report: Any) -> float:
        """Seconds of a pass."""
        return float(report.seconds)

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A task or a group that has no room anywhere; tasks with more bytes than the devices that may hold them."""
        swap, hosted = _swap(question), question["hosted"]
        if hosted is not None and not 0 <= hosted <= instance.n_tasks:
            return (f"hosted={hosted} is asked for, and there are {instance.n_tasks} tasks",)
        may = may_reside(instance, swap)
        main = accelerators(instance)[0]
        capacity = instance.capacity
        room = np.where(instance.is_host, np.minimum(capacity, capacity[main]) if swap else capacity, capacity)
        best = np.where(may, room[None, :], -np.inf)
        most = best.max(axis=1)
        for k in np.flatnonzero(instance.memory > most).tolist():
            where = instance.device_names[int(best[k].argmax())]
            short = instance.memory[k] - most[k]
            kept = f" (copied to {instance.device_names[main]!r} it needs as much there)" if swap else ""
            return (
                f"memory: task {instance.labels[k]!r} needs {instance.memory[k]:.12g} bytes, and {where!r} offers "
                f"{most[k]:.12g}{kept}: {short:.12g} bytes short{in_mebibytes(short)}",
            )
        return _homeless(instance, may) or _too_many_bytes(instance, may)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Prices first, then the program."""
        steps = [Step("prices", "a plan and a bound in moments", 0.3)]
        if self.method("milp").fits(instance, question) is None:
            steps.append(Step("milp", "exact"))
        return steps

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays prices of memory and linear duals."""
        if certificate.get("kind") != "prices":
            return super().replay(instance, question, certificate)
        from hetopt.algorithms.offload import shortest

        prices = np.asarray(certificate["prices"], dtype=np.float64)
        if prices.shape != (instance.n_devices,) or not np.isfinite(prices).all() or (prices < 0).any():
            raise ValueError(f"expected {instance.n_devices} finite prices >= 0")
        line = _line(instance, _swap(question))
        limited = np.isfinite(line.capacity)
        if (prices[~limited] > 0).any():
            raise ValueError("a device without a memory limit has a price")
        total, _ = shortest(line, prices)
        spent = math.fsum((prices[limited] * line.capacity[limited]).tolist())
        bound = total - spent - _ROUNDING * (abs(total) + abs(spent))
        if not math.isfinite(bound):
            raise ValueError("the prices prove nothing")
        return bound

    def sample(self, seed: int) -> Instance:
        """Up to five tasks on one or two accelerators and one or two hosts."""
        rng = np.random.default_rng(seed)
        n, gpus, hosts = (
            int(rng.integers(1, 6)),
            int(rng.integers(1, 3)),
            int(rng.integers(1, 3)) if seed % 3 == 0 else 1,
        )
        devices = [Device(name=f"g{k}", memory=int(rng.integers(4, 12))) for k in range(gpus)]
        devices += [
            Device(name=f"h{k}", host=True, memory=[None, int(rng.integers(6, 20))][int(rng.random() < 0.4)])
            for k in range(hosts)
        ]
        tasks = [
            Task(
                name=f"t{k}",
                time=[*rng.integers(1, 9, gpus).tolist(), *(rng.integers(5, 20, hosts)).tolist()],
                memory=int(rng.integers(1, 7)),
                output=int(rng.integers(0, 4)),
                cut=bool(rng.random() < 0.7),
            )
            for k in range(n)
        ]
        edges = [Edge(source=f"t{k}", target=f"t{k + 1}") for k in range(n - 1)]
        question: dict[str, Any] = {"objective": self.objectives[0], "execute": ["in-place", "swap"][seed % 2]}
        if seed % 4 == 3:
            question["hosted"] = int(rng.integers(0, n + 1))
        links = [Link(source="*", target="*", bandwidth=2, latency=1)]
        tables = {"order": [v.name for v in devices[:gpus]][:: 1 if seed % 2 else -1]}
        return Instance.build(
            devices, [Job(name="m", tasks=tasks, edges=edges)], links, tables=tables, question=question
        )

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All residences."""
        import itertools

        may = may_reside(instance, _swap(question))
        for placement in itertools.product(*(np.flatnonzero(row).tolist() for row in may)):
            yield Solution.assign(placement)


class OffloadMemory(Offload):
    """Least bytes on the fullest accelerator."""

    name = "partition.offload_memory"
    objectives = ("offload-memory",)
    title = "parts of layers on accelerators or the host, least bytes on the fullest accelerator"
    unit = "bytes"
    methods = (MILP("memory"), Relaxed(MILP("memory"), "(1)-(7)"))  # type: ignore[assignment]

    def value(self, instance: Instance, report: Any) -> float:
        """Bytes on the fullest accelerator, with the room kept for copies."""
        return float(report.memory[~instance.is_host].max())

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The program."""
        return (Step("milp", "exact"),) if self.method("milp").fits(instance, question) is None else ()


PROBLEMS = (Offload(), OffloadMemory())
