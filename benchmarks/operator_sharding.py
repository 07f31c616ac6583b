"""Operator sharding with resharding costs against the same program stated in PuLP and solved by CBC: a row each.

    python benchmarks/operator_sharding.py [SECONDS]

Decoder layers of the generator (their memory does not bind, the relaxation is tight), then random costs on chains with chords,
six ways an operator, memory that binds. CPU seconds of building and solving, CBC's of its child process included; one thread,
the same limit for both.
"""

from __future__ import annotations

import resource
import sys

import numpy as np

import hetopt
from hetopt.io.generators import operator_sharding
from hetopt.records import Device, Edge, Job, Mode, Task


def cpu() -> float:
    """CPU seconds of this process and its children so far."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def random(n: int, seed: int = 1) -> hetopt.Instance:
    """n operators in a chain with n / 3 chords."""
    rng = np.random.default_rng(seed)
    modes = [
        [Mode(name=f"m{m}", time=[int(rng.integers(0, 100))], memory=int(rng.integers(1, 100))) for m in range(6)]
        for _ in range(n)
    ]
    pairs = {(k, k + 1) for k in range(n - 1)}
    pairs |= {tuple(sorted(rng.choice(n, 2, replace=False).tolist())) for _ in range(n // 3)}
    tasks = [Task(name=f"t{k}", time=[1], modes=own) for k, own in enumerate(modes)]
    edges = [Edge(source=f"t{a}", target=f"t{b}") for a, b in sorted(pairs)]
    devices, jobs = [Device(name="mesh", memory=30 * n)], [Job(name="net", tasks=tasks, edges=edges)]
    labels = hetopt.Instance.build(devices, jobs).labels
    table = [
        {"from": labels[a], "to": labels[b], "seconds": rng.integers(0, 60, (6, 6)).tolist()} for a, b in sorted(pairs)
    ]
    question = {"objective": "operator-sharding"}
    return hetopt.Instance.build(devices, jobs, tables={"resharding": table}, question=question)


def by_cbc(instance: hetopt.Instance, seconds: float) -> tuple[str, float | None]:
    """The textbook program in PuLP."""
    import pulp

    modes = {label: instance.task(k).modes for k, label in enumerate(instance.labels)}
    program = pulp.LpProblem("sharding", pulp.LpMinimize)
    x = {(t, m): pulp.LpVariable(f"x_{i}_{m}", cat="Binary") for i, t in enumerate(modes) for m in range(len(modes[t]))}
    cost = [mode.time[0] * x[t, m] for t in modes for m, mode in enumerate(modes[t])]
    for e, row in enumerate(instance.tables["resharding"]):
        a, b, matrix = row["from"], row["to"], row["seconds"]
        z = [[pulp.LpVariable(f"z_{e}_{m}_{k}", 0, 1) for k in range(len(matrix[0]))] for m in range(len(matrix))]
        cost += [matrix[m][k] * z[m][k] for m in range(len(matrix)) for k in range(len(matrix[0]))]
        for m in range(len(matrix)):
            program += pulp.lpSum(z[m]) == x[a, m]
        for k in range(len(matrix[0])):
            program += pulp.lpSum(line[k] for line in z) == x[b, k]
    program += pulp.lpSum(cost)
    for t in modes:
        program += pulp.lpSum(x[t, m] for m in range(len(modes[t]))) == 1
    program += pulp.lpSum(mode.memory * x[t, m] for t in modes for m, mode in enumerate(modes[t])) <= float(
        instance.capacity[0]
    )
    status = program.solve(pulp.PULP_CBC_CMD(msg=False, threads=1, timeLimit=seconds))
    return pulp.LpStatus[status], pulp.value(program.objective)


def main(arguments: list[str]) -> int:
    """Layers from 4 to 96, then random ones."""
    limit = float(arguments[0]) if arguments else 60.0
    print("instance      operators  hetopt value / bound / status / CPU s           PuLP + CBC value / says / CPU s")
    cases = [(f"layers {n}", operator_sharding.make(layers=n)) for n in (4, 12, 24, 48, 96)]
    cases += [(f"random {n}", random(n)) for n in (20, 40, 80)]
    for name, instance in cases:
        before = cpu()
        ours = hetopt.solve(instance, time_limit=limit)
        spent, before = cpu() - before, cpu()
        says, value = by_cbc(instance, limit)
        mine = f"{ours.objective:.2f} / {ours.bound:.2f} / {ours.status} / {spent:.2f}"
        print(f"{name:12s}  {instance.n_tasks:9d}  {mine:45s}  {value} / {says} / {cpu() - before:.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
