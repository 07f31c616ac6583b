"""Task graphs: list schedules beside SAGA's, standard task graphs proved, bounds on workflow traces.

    python benchmarks/dag.py saga [PYTHON]     HEFT, CPoP, MCT, min-min: values on 100 graphs, processor seconds at n = 1,000
    python benchmarks/dag.py stg [EVERY]       share of the standard task graphs proved in 6 processor seconds each
    python benchmarks/dag.py wfcommons [EVERY] mean bound over value on the traces, 8 devices, communication ratio 0.1, 1, 5
    python benchmarks/dag.py room [TASKS...]   wired graphs on 3 devices with memory over time: proved, and by annealing

``saga`` needs anrg-saga 2.0.2 in an environment of its own, whose interpreter is PYTHON (this one by default): it is asked in a
child process, and our rules then run on the same numbers. Its MCT takes tasks in the order of networkx's topological sort, which
is told by the child, as graphs have many. ``stg`` and ``wfcommons`` need the reference data (``HETOPT_DATA``).
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _clock import ProcessorControl

import hetopt
from hetopt.algorithms.dag_graph import TaskGraph, graph_of
from hetopt.algorithms.dag_list import in_order, list_schedule
from hetopt.io import generators, importers
from hetopt.io.generators.task_graph import SHAPES, edges_of
from hetopt.io.importers._related import on_related_devices

DATA = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[2] / "shared" / "data"))

ASK = """
import json, sys, time
from saga import Network, TaskGraph
from saga.schedulers.cpop import CpopScheduler
from saga.schedulers.heft import HeftScheduler
from saga.schedulers.mct import MCTScheduler
from saga.schedulers.minmin import MinMinScheduler
rules = {"heft": HeftScheduler, "cpop": CpopScheduler, "mct": MCTScheduler, "min-min": MinMinScheduler}
for line in sys.stdin:
    case = json.loads(line)
    started = time.process_time()
    network = Network.create(
        nodes=[(f"d{i}", s) for i, s in enumerate(case["speed"])],
        edges=[(f"d{a}", f"d{b}", case["rate"][a][b]) for a in range(len(case["speed"])) for b in range(a + 1)
               if a != b])
    graph = TaskGraph.create(
        tasks=[(f"t{v}", w) for v, w in enumerate(case["work"])],
        dependencies=[(f"t{u}", f"t{v}", x) for (u, v), x in zip(case["edges"], case["data"])])
    told = {"build": time.process_time() - started, "order": [t.name for t in graph.topological_sort()]}
    for name in case["rules"]:
        started = time.process_time()
        plan = rules[name]().schedule(network, graph)
        told[name] = [plan.makespan, time.process_time() - started]
    print(json.dumps(told), flush=True)
"""


def cases(count: int, n: int, m: int) -> Iterator[tuple[dict[str, Any], TaskGraph]]:
    """Graphs in SAGA's terms (speeds, symmetric links, work) and the same as arrays, no numbers equal."""
    for seed in range(count):
        random = np.random.default_rng([seed, n, m])
        edges = edges_of(SHAPES[seed % len(SHAPES)], n, 3, random)
        work, speed = random.uniform(1, 20, n), random.uniform(1, 4, m)
        data = random.uniform(1, 20, len(edges))
        rate = random.uniform(0.5, 5, (m, m))
        rate = (rate + rate.T) / 2
        slowness = 1 / rate
        np.fill_diagonal(slowness, 0.0)
        graph = graph_of(work[:, None] / speed, edges, data, np.zeros((m, m)), slowness)
        yield {"work": work.tolist(), "speed": speed.tolist(), "rate": rate.tolist(), "edges": edges,
               "data": data.tolist(), "rules": ["heft", "cpop", "mct", "min-min"]}, graph  # fmt: skip


def saga(python: str) -> int:
    """Compare values, then processor seconds."""
    child = subprocess.Popen([python, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None

    def asked(case: dict[str, Any]) -> dict[str, Any]:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(case) + "\n")
        child.stdin.flush()
        return json.loads(child.stdout.readline())  # type: ignore[no-any-return]

    equal: dict[str, int] = {}
    differ: list[str] = []
    for seed, (case, graph) in enumerate(cases(100, 40, 5)):
        told = asked(case)
        for rule in case["rules"]:
            ours = _ours(graph, rule, told["order"], len(case["work"]))
            same = abs(ours - told[rule][0]) <= 1e-9 * ours
            equal[rule] = equal.get(rule, 0) + same
            if not same:
                differ.append(f"graph {seed}, {rule}: ours {ours:.9g}, SAGA {told[rule][0]:.9g}")
    print("equal makespans of 100: " + ", ".join(f"{rule} {count}" for rule, count in equal.items()))
    print("\n".join(differ[:20]))
    for case, graph in cases(1, 1000, 8):
        told = asked(case)
        for rule in case["rules"]:
            times = []
            for _ in range(20):
                started = time.process_time()
                value = _ours(graph, rule, told["order"], 1000)
                times.append(time.process_time() - started)
            mine, theirs = sorted(times)[10], told[rule][1]
            print(f"n = 1000, m = 8, {rule}: value {value:.6g} and {told[rule][0]:.6g}, {1e3 * mine:.2f} ms "
                  f"against {1e3 * theirs:.0f} ms: {theirs / max(mine, 1e-6):.0f} times")  # fmt: skip
    child.stdin.close()
    return child.wait()


def _ours(graph: TaskGraph, rule: Any, order: list[str], n: int) -> float:
    if rule == "mct":
        number = {f"t{v}": v for v in range(n)}
        found = in_order(graph, np.array([number[name] for name in order if name in number]), insertion=False)
    else:
        found = list_schedule(graph, rule, rank="saga")
    assert found is not None
    return found.makespan


def stg(every: int) -> int:
    """Each graph on 2, 4, 8, 16 processors: value, bound, what is published."""
    proved = count = reproduced = contradicted = closed = better = 0
    for size in ("50", "100"):
        for file in sorted((DATA / "stg" / size).glob("*.stg"))[::every]:
            for m in (2, 4, 8, 16):
                instance = importers.get("stg").load(file, devices=m)
                result = hetopt.solve(instance, control=ProcessorControl(6))
                assert result.objective is not None
                assert result.bound is not None
                hetopt.verify(instance, result)
                low, high = _published(size, m)[f"{size}/{file.name}"]
                optimal = result.status == "optimal"
                count, proved = count + 1, proved + optimal
                contradicted += result.objective < low - 1e-6 or result.bound > high + 1e-6
                reproduced += low == high and optimal and result.objective == high
                closed += low < high and optimal
                better += low < high and result.objective < high
    print(f"{proved} of {count} proved ({proved / count:.1%}); {reproduced} published optima reproduced, {contradicted} "
          f"contradicted; of those listed as open {closed} closed, {better} with a better value")  # fmt: skip
    return 0


def _published(size: str, m: int) -> dict[str, tuple[float, float]]:
    found = {}
    with (DATA / "stg" / "Optimal_values" / f"Case{size}_{m}_OPT.csv").open() as stream:
        for row in csv.reader(stream):
            if len(row) >= 3:
                found[row[0]] = (float(row[2]), float(row[-1]))
    return found


def wfcommons(every: int) -> int:
    """A line for each ratio."""
    files = sorted((DATA / "wfcommons").glob("*.json.gz"))[::every]
    for ccr in (0.1, 1.0, 5.0):
        ratios, gains, spent = [], [], time.process_time()
        for file in files:
            trace = json.loads(gzip.decompress(file.read_bytes()))
            names = [f"{k}" for k in range(len(trace["tasks"]))]
            instance = on_related_devices(
                names, [max(1e-3, task[1]) for task in trace["tasks"]], [(names[u], names[v], x) for u, v, x in trace["edges"]],
                devices=8, ccr=ccr, seed=0, name=file.name, source="",
            )  # fmt: skip
            bound = hetopt.bound(instance, method="paths").bound
            heft = hetopt.solve(instance, method="heft").objective
            value = hetopt.solve(instance, method="annealing", control=ProcessorControl(0.2)).objective
            assert bound is not None
            assert value is not None
            assert heft is not None
            ratios.append(bound / value)
            gains.append(heft / value)
        print(f"communication ratio {ccr:g}: mean bound/value {np.mean(ratios):.4f} over {len(files)} traces, least "
              f"{min(ratios):.3f}; HEFT/value {np.mean(gains):.4f}; {time.process_time() - spent:.0f} CPU s")  # fmt: skip
    return 0


def room(sizes: list[int], seeds: int = 5, seconds: float = 10.0) -> int:
    """Graphs whose devices have 0.4 of all bytes each: CP-SAT alone, annealing for a second, list schedules with a plan."""
    for n in sizes:
        proved, without, spent, ratios, planned, listed = 0, 0, [], [], 0, 0
        for seed in range(1, seeds + 1):
            instance = generators.get("task-graph").make(shape="wired", tasks=n, devices=3, room=0.4, seed=seed)
            annealed = hetopt.solve(instance, method="annealing", control=ProcessorControl(1.0)).objective
            exact = hetopt.solve(instance, method="cpsat", control=ProcessorControl(seconds))
            listed += hetopt.solve(instance, method="heft").objective is not None
            planned += annealed is not None
            proved += exact.status in ("optimal", "infeasible")
            without += exact.status == "infeasible"
            spent.append(exact.cpu_seconds)
            ratios += [annealed / exact.objective] if annealed is not None and exact.status == "optimal" else []
        above = f"{100 * (np.mean(ratios) - 1):.1f} % above the optimum" if ratios else "no optimum beside it"
        print(
            f"{n} tasks: {proved} of {seeds} settled in {seconds:g} CPU s (mean {np.mean(spent):.1f}), {without} of them without "
            f"a plan; annealing for 1 CPU s has a plan of {planned}, {above}; HEFT has one of {listed}",
            flush=True,
        )
    return 0


def main(arguments: list[str]) -> int:
    """Run one part."""
    part, *rest = arguments or ["saga"]
    if part == "room":
        return room([int(n) for n in rest] or [12, 18, 24, 30])
    if part == "saga":
        return saga(rest[0] if rest else sys.executable)
    if not (DATA / part).is_dir():
        print(f"reference data not found: set HETOPT_DATA to the folder that holds {part}", file=sys.stderr)
        return 1
    every = int(rest[0]) if rest else 1
    return stg(every) if part == "stg" else wfcommons(every)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
