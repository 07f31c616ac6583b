"""Serving by flow: the published Helix layouts, and generated clusters against the placement rules of serving systems.

    python benchmarks/helix.py [--seconds S] [LAYOUT ...]       published layouts, 60 seconds each by default
    python benchmarks/helix.py --generated N [--seconds S]      N generated clusters of 3 to 60 nodes, 15 seconds each by default

The first needs the folder ``helix`` of the reference data (``HETOPT_DATA``). Every value is checked twice more: by networkx'
maximum flow on a graph built here, and by fixing the plan's starts and numbers of layers in the published .lp and maximising the
flow with HiGHS. Seconds, limits too, are processor seconds of this process after a warm-up solve.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

import hetopt
from formulations.partition._flow import network_of
from hetopt.algorithms.serving_baselines import baselines
from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.control import Control
from hetopt.io import generators, importers
from hetopt.solvers.quiet import quiet
from hetopt.verify.serving import max_flow

LAYOUTS = ("quality", "raw_24", "no_prune_24", "raw_42")
SAME = 1e-6  # relative; HiGHS' tolerances are absolute and the .lp holds capacities of 5e8


class ProcessorTime(Control):
    """Limits in processor seconds, so that a figure is the same on a busy machine."""

    @property
    def remaining(self) -> float:
        """Processor seconds left."""
        return (self.time_limit or 0.0) - time.process_time()


def solve(instance: hetopt.Instance, seconds: float) -> tuple[hetopt.Result, float]:
    """A verified result and the processor seconds it took."""
    began = time.process_time()
    control = ProcessorTime(sense="max", time_limit=began + seconds)
    result = hetopt.solve(instance, control=control)
    spent = time.process_time() - began
    hetopt.verify(instance, result)
    return result, spent


def networkx_flow(network: ServingNetwork, start: Any, hold: Any) -> float:
    """Value of a plan by networkx, on a graph of its own: entry and exit of each node that is in use."""
    graph = nx.DiGraph()
    graph.add_nodes_from(["source", "sink"])
    used = [i for i in range(network.n) if hold[i] > 0]
    for i in used:
        graph.add_edge(("in", i), ("out", i), capacity=float(network.throughput[i, hold[i]]))
        if start[i] == 0 and network.source[i] > 0:
            graph.add_edge("source", ("in", i), capacity=float(network.source[i]))
        if start[i] + hold[i] == network.layers and network.sink[i] > 0:
            graph.add_edge(("out", i), "sink", capacity=float(network.sink[i]))
        for j in used:
            if start[i] + hold[i] == start[j] and network.link[i, j] > 0:
                graph.add_edge(("out", i), ("in", j), capacity=float(network.link[i, j]))
    return float(nx.maximum_flow_value(graph, "source", "sink"))


def published_flow(file: Path, network: ServingNetwork, start: Any, hold: Any) -> float:
    """Largest flow of the published program with the plan's starts and numbers of layers fixed.

    The program lets every node keep some layers: one that the plan leaves out keeps the fewest it can, from layer 0 on.
    """
    import highspy

    with quiet():
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("threads", 1)
        highs.readModel(str(file))
    column = {name: k for k, name in enumerate(highs.getLp().col_names_)}
    for i in range(network.n):
        possible = np.flatnonzero(network.throughput[i]).tolist()
        keeps = int(hold[i]) or possible[0]
        highs.changeColBounds(column[f"start_{i}"], float(start[i]), float(start[i]))
        for k in possible:
            highs.changeColBounds(column[f"hold_{i}_{k}"], float(k == keeps), float(k == keeps))
    highs.run()
    return float(highs.getInfo().objective_function_value)


def published(data: Path, names: list[str], seconds: float) -> int:
    """A row for each layout; returns 1 when a check fails."""
    load = importers.get("helix").load
    folder = data / "helix" / "layouts"
    solve(load(folder / "quality"), 10.0)
    print("| layout | nodes | status | value | bound | gap | proof | by networkx | in the .lp | processor s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    failed = 0
    for name in names:
        instance = load(folder / name)
        result, spent = solve(instance, seconds)
        assert result.solution is not None
        assert result.objective is not None
        assert result.gap is not None
        network = network_of(instance, False)
        details = result.solution.details
        start, hold = (np.array([details[key].get(v, 0) for v in network.names]) for key in ("start", "hold"))
        others = (
            networkx_flow(network, start, hold),
            published_flow(folder / name / "ilp_model.lp", network, start, hold),
        )
        failed += any(abs(v - result.objective) > SAME * v for v in others)
        print(
            f"| {name} | {network.n} | {result.status} | {result.objective:.6f} | {result.bound:.6f} | {result.gap:.2%} | "
            f"{result.bound_proof} | {others[0]:.6f} | {others[1]:.6f} | {spent:.1f} |",
            flush=True,
        )
    return int(failed > 0)


def family(number: int) -> dict[str, Any]:
    """Options of the n-th generated cluster: sizes rise, and all kinds of clusters come up."""
    rng = np.random.default_rng([2026, number])
    nodes = 3 + (number * 57) // 39 if number < 40 else int(rng.integers(3, 61))
    clusters = 1 if number % 3 == 0 else int(rng.integers(2, min(5, nodes) + 1))
    return {
        "nodes": nodes,
        "layers": int(rng.choice([24, 32, 48, 80])),
        "types": 1 + number % 7,
        "clusters": clusters,
        "slow": float(rng.choice([0.02, 0.1, 0.4])),
        "density": float(rng.choice([1.0, 1.0, 0.4, 0.15])) if nodes > 5 else 1.0,
        "spare": float(rng.choice([1.3, 2.0, 3.5])),
        "seed": number,
    }


def generated(count: int, seconds: float) -> int:
    """A row for each cluster; returns 1 when a rule beats the search."""
    make = generators.get("serving").make
    solve(make(nodes=8, clusters=2, slow=0.1), 10.0)
    print(
        "| nodes | layers | types | clusters | slow | density | spare | best rule | value | bound | gap | processor s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    worse, gaps, gains = 0, [], []
    for number in range(count):
        options = family(number)
        instance = make(**options)
        network = network_of(instance, False)
        rule = max(max_flow(network, *plan).value for plan in baselines(network).values())
        result, spent = solve(instance, seconds)
        assert result.solution is not None
        assert result.objective is not None
        details = result.solution.details
        start, hold = (np.array([details[key].get(v, 0) for v in network.names]) for key in ("start", "hold"))
        assert abs(networkx_flow(network, start, hold) - result.objective) <= SAME * result.objective
        worse += result.objective < rule
        gap = "none served"
        if result.gap is not None:
            gaps.append(result.gap)
            gap = f"{result.gap:.2%}"
        if rule > 0:
            gains.append(result.objective / rule)
        cells = [str(v) for k, v in options.items() if k != "seed"]
        cells += [f"{v:.4f}" for v in (rule, result.objective, result.bound)]
        print(f"| {' | '.join(cells)} | {gap} | {spent:.1f} |", flush=True)
    closed = sum(g <= 1e-6 for g in gaps)
    print(
        f"\n{count} clusters: {worse} worse than the best rule, {closed} proved optimal, gap {np.mean(gaps):.2%} on average, "
        f"{np.median(gaps):.2%} in the middle, {max(gaps):.2%} at worst; {np.exp(np.mean(np.log(gains))):.2f} times the best "
        f"rule (geometric mean of the {len(gains)} where a rule serves anything)"
    )
    return int(worse > 0)


def main() -> int:
    """Print the table; returns 1 when a check fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layouts", nargs="*", help=f"of {', '.join(LAYOUTS)}")
    parser.add_argument("--generated", type=int, metavar="N", help="N generated clusters instead")
    parser.add_argument("--seconds", type=float, help="time limit of each solve")
    asked = parser.parse_args()
    if asked.generated is not None:
        return generated(asked.generated, asked.seconds or 15.0)
    data = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (data / "helix").is_dir():
        print("reference data not found: set HETOPT_DATA to the folder that holds helix", file=sys.stderr)
        return 1
    return published(data, asked.layouts or list(LAYOUTS), asked.seconds or 60.0)


if __name__ == "__main__":
    sys.exit(main())
