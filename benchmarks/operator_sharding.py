"""Operator sharding with resharding costs against the same program stated in PuLP and solved by CBC: a row each.

    python benchmarks/operator_sharding.py [SECONDS]

CPU seconds of building and solving, CBC's of its child process included; one thread, the same limit for both.
"""

from __future__ import annotations

import resource
import sys

import hetopt
from hetopt.io.generators import operator_sharding


def cpu() -> float:
    """CPU seconds of this process and its children so far."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


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
    """Layers from 4 to 96, memory that binds."""
    limit = float(arguments[0]) if arguments else 60.0
    print("layers  operators  hetopt value / bound / status / CPU s           PuLP + CBC value / says / CPU s")
    for layers in (4, 12, 24, 48, 96):
        instance = operator_sharding.make(layers=layers, memory=0.45)
        before = cpu()
        ours = hetopt.solve(instance, time_limit=limit)
        spent, before = cpu() - before, cpu()
        says, value = by_cbc(instance, limit)
        mine = f"{ours.objective:.2f} / {ours.bound:.2f} / {ours.status} / {spent:.2f}"
        print(
            f"{layers:6d}  {instance.n_tasks:9d}  {mine:45s}  {value:.2f} / {says} / {cpu() - before:.2f}", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
