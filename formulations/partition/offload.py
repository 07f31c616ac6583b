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

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import in_mebibytes
from formulations.partition._offload import OPTIONS, homeless, line_of, swaps, too_many_bytes
from formulations.partition._offload_milp import MILP
from hetopt.control import Control
from hetopt.formulation import Evaluation, Method, Outcome, Problem, Question, Relaxed, RunOptions, Step
from hetopt.instance import Instance
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.solution import Solution
from hetopt.verify.chain import layer_sequence
from hetopt.verify.offload import accelerators, check_offload, may_reside

MOST_STATES = 48
_ROUNDING = 2.0**-40  # of the magnitudes summed, far above what shortest paths of any length here can lose


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
        line = line_of(instance, swaps(question))

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
            return question.prove(instance, control, {"kind": "prices", "prices": prices.tolist()})

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
    options = OPTIONS
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
        report = check_offload(instance, solution.placement, swap=swaps(question), hosted=question["hosted"])
        rows = zip(instance.device_names, report.load.tolist(), report.memory.tolist(), strict=True)
        devices = {name: {"load": load, "memory": memory} for name, load, memory in rows}
        details = {"devices": devices, "transfers": report.transfers, "seconds": report.seconds}
        return Evaluation(self.value(instance, report), report.violations, details)

    def value(self, instance: Instance, report: Any) -> float:
        """Seconds of a pass."""
        return float(report.seconds)

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A task or a group that has no room anywhere; tasks with more bytes than the devices that may hold them."""
        swap, hosted = swaps(question), question["hosted"]
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
        return homeless(instance, may) or too_many_bytes(instance, may)

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
        line = line_of(instance, swaps(question))
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
        may = may_reside(instance, swaps(question))
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
