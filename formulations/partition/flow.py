"""Serving by flow: nodes keep intervals of a model's layers, requests flow from interval to interval, as many as possible.

Sets and data
    i in N      nodes (devices)
    L           layers of the model: ``tables.layers``
    t_i(k)      rate of node i when it keeps k layers: ``tables.throughput[i][k]``, k = 0.., 0 where it cannot keep so many
    c_ij        capacity of the link from node i to node j; c_si, c_it to and from the coordinator (``"host"`` in ``links``);
                ``"bandwidth": null`` is unlimited, no entry is no link

Variables
    s_i, k_i    node i keeps layers s_i .. s_i + k_i - 1 (k_i = 0: it is left out)
    f_ij >= 0   flow on a link

Maximise the flow from source to sink subject to

    flow through i <= t_i(k_i)                                                      (1)  node
    f_ij <= c_ij, and f_ij = 0 unless s_i + k_i = s_j                               (2)  link
    f_si <= c_si, and f_si = 0 unless s_i = 0;  f_it <= c_it, and 0 unless s_i + k_i = L    (3)  ends

With ``partial`` a request may join a node inside its interval: (2) becomes s_j <= s_i + k_i < s_j + k_j. A plan lists its
intervals: ``details.start`` and ``details.hold`` by node name.

``configuration`` proves a rate impossible by prices of layers: every layer of a plan with that rate is carried by nodes whose
rates add up to it, and no mix of nodes is cheap enough to do so; the prices are replayed in integers without a solver.
``blocks`` builds plans from blocks of parallel lanes found by the same prices; ``rules`` are the placement rules of serving
systems.

Source: Y. Mei et al., Helix: serving large language models over heterogeneous GPUs and network via max-flow, ASPLOS 2025, for
(1)-(3); bounds and construction are this project's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import Evaluation, Method, Option, Outcome, Problem, Question, RunOptions, Step
from hetopt.instance import HOST, Instance
from hetopt.io.serving import instance_of
from hetopt.solution import Solution

__all__ = ["PROBLEM", "Blocks", "Configuration", "Flow", "Rules", "network_of"]


@lru_cache(maxsize=4)
def network_of(instance: Instance, partial: bool) -> ServingNetwork:
    """The serving network that an instance states.

    Raises
    ------
    InputError
        ``tables.layers`` or ``tables.throughput`` is missing or not what it should be.
    """
    d = instance.n_devices
    layers, table = instance.tables.get("layers"), instance.tables.get("throughput")
    if isinstance(layers, bool) or not isinstance(layers, int) or layers < 1:
        raise InputError(f"$.tables.layers is {layers!r}, expected the number of layers, a whole number from 1 on")
    try:
        rates = np.array(table, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"$.tables.throughput is no table of numbers: {error}") from None
    if rates.ndim != 2 or len(rates) != d:
        raise InputError(f"$.tables.throughput has shape {rates.shape}, expected a row for each of the {d} devices")
    link, source, sink = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    rank = np.full((d + 1, d + 1), -1)
    for entry in instance.links:
        pairs = ((entry.source, entry.target), (entry.target, entry.source))
        for a, b in pairs[: 2 if entry.both else 1]:
            capacity = np.inf if entry.bandwidth is None else float(entry.bandwidth)
            for i, first in _ends(instance, a):
                for j, second in _ends(instance, b):
                    if i == j or first + second <= rank[i, j]:
                        continue
                    rank[i, j] = first + second
                    if i < d and j < d:
                        link[i, j] = capacity
                    elif j < d:
                        source[j] = capacity
                    else:
                        sink[i] = capacity
    try:
        return ServingNetwork(layers, rates, link, source, sink, instance.device_names, partial)
    except ValueError as error:
        raise InputError(f"$.tables.throughput and $.links do not state a serving network: {error}") from None


def _ends(instance: Instance, pattern: str) -> list[tuple[int, int]]:
    """(device number, how specific the pattern is) of what a link's end stands for; the number of devices is the host."""
    d = instance.n_devices
    if pattern == HOST:
        return [(d, 2)]
    if pattern in instance.device_index:
        return [(instance.device_index[pattern], 2)]
    if pattern == "*":
        return [(i, 0) for i in range(d)]
    return [(i, 1) for i, device in enumerate(instance.devices) if device.type == pattern]


def _solution(network: ServingNetwork, start: Any, hold: Any) -> Solution:
    keep = np.asarray(hold) > 0
    return Solution(
        details={
            "start": {n: int(s) for n, s, k in zip(network.names, start, keep, strict=True) if k},
            "hold": {n: int(h) for n, h, k in zip(network.names, hold, keep, strict=True) if k},
        }
    )


class Rules(Method):
    """Even split, Petals-like, Swarm-like, separate pipelines."""

    name = "rules"
    title = "placement rules of serving systems: even split, Petals-like, Swarm-like, separate pipelines"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Each rule once."""
        from hetopt.algorithms.serving_baselines import baselines

        network = network_of(instance, question["partial"])
        for plan in baselines(network).values():
            if control.should_stop():
                return Outcome("limit", "time")
            if plan.hold.any():
                control.report_plan(_solution(network, plan.start, plan.hold))
        return Outcome()


class Configuration(Method):
    """Prices of layers that refute a rate."""

    name = "configuration"
    title = "layer-configuration bound by prices, replayed in integers"
    kind = "relaxation"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Bisection over the rate from the best plan's value on."""
        from hetopt.algorithms.serving_bound import configuration_bound
        from hetopt.solvers.quiet import quiet

        network = network_of(instance, question["partial"])
        with quiet():
            certificate = configuration_bound(
                network, above=control.value or 0.0, precision=5e-7, should_stop=control.should_stop
            )
        if certificate is not None:
            control.report_bound(_replay(network, certificate), "replayed", certificate)
        return Outcome("limit", "time") if control.should_stop() and not control.closed else Outcome()


class Blocks(Method):
    """Plans from blocks of lanes, raised towards the bound."""

    name = "blocks"
    title = "plans from blocks of parallel lanes chosen by layer prices, whole network and clusters apart"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Build at rates between the best plan and the bound."""
        from hetopt.algorithms.serving_baselines import baselines
        from hetopt.algorithms.serving_construct import Candidate, build
        from hetopt.algorithms.serving_flow import plan_value
        from hetopt.solvers.quiet import quiet

        network = network_of(instance, question["partial"])
        best = Candidate(0.0, np.zeros(network.n, np.int64), np.zeros(network.n, np.int64))
        for plan in baselines(network).values():
            value = plan_value(network, plan.start, plan.hold) if plan.hold.any() else 0.0
            best = max(best, Candidate(value, plan.start, plan.hold), key=lambda c: c.value)

        def report(found: Candidate) -> None:
            if found.hold.any():
                control.report_plan(_solution(network, found.start, found.hold))

        report(best)
        high = control.bound if control.bound is not None else float(network.throughput.max(axis=1).sum())
        with quiet():
            report(
                build(
                    network,
                    best,
                    high,
                    seed=control.seed,
                    workers=control.threads,
                    should_stop=control.should_stop,
                    report=report,
                )
            )
        return Outcome("limit", "time") if control.should_stop() and not control.closed else Outcome()


class Flow(Problem):
    """Max-flow serving with layer intervals."""

    name = "partition.flow"
    objectives = ("serving-flow",)
    title = "layer intervals on serving nodes, as much flow from the first layer to the last as possible"
    sense = "max"
    unit = "requests per second"
    uses = frozenset({"time", "links", "tables.layers", "tables.throughput"})
    options = (Option("partial", bool, False, "a request may join a node inside its interval"),)
    methods = (Rules(), Blocks(), Configuration())

    def fits(self, instance: Instance) -> str | None:
        """Tables of layers and rates."""
        missing = [f"tables.{name}" for name in ("layers", "throughput") if name not in instance.tables]
        return f"the file has no {' and no '.join(missing)}" if missing else None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Largest flow of the plan's intervals, exactly."""
        from hetopt.verify.serving import max_flow

        network = network_of(instance, question["partial"])
        parts = []
        for key in ("start", "hold"):
            given = solution.details.get(key)
            if not isinstance(given, Mapping):
                return Evaluation(0.0, (f"the plan has no details.{key}: a map from node to a whole number",))
            strangers = [name for name in given if name not in instance.device_index]
            if strangers:
                return Evaluation(0.0, (f"details.{key} names {strangers[0]!r}, which is no device",))
            if any(isinstance(v, bool) or not isinstance(v, int) for v in given.values()):
                return Evaluation(0.0, (f"details.{key} holds something that is no whole number",))
            parts.append(np.array([given.get(name, 0) for name in instance.device_names], np.int64))
        try:
            flow = max_flow(network, *parts)
        except ValueError as error:
            return Evaluation(0.0, (str(error),))
        devices = {
            name: {"first": int(s), "layers": int(k), "flow": float(f), "rate": float(network.throughput[i, k])}
            for i, (name, s, k, f) in enumerate(zip(instance.device_names, *parts, flow.node, strict=True))
        }
        full = [instance.device_names[i] for i in flow.full_nodes]
        return Evaluation(flow.value, (), {"devices": devices, "full_nodes": full})

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Rules for a start, the bound, then blocks between the two."""
        return (
            Step("rules", "the rules of serving systems cost nothing", share=0.1),
            Step("configuration", "a bound with a stored proof, and the prices that guide the search", share=0.4),
            Step("blocks", "plans from blocks, from the best rule towards the bound"),
        )

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays layer prices."""
        return _replay(network_of(instance, question["partial"]), certificate)

    def sample(self, seed: int) -> Instance:
        """Up to three nodes and three layers; whole-number rates and capacities."""
        rng = np.random.default_rng(seed)
        n, layers = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        rates = np.zeros((n, layers + 1))
        for i in range(n):
            most = int(rng.integers(1, layers + 1))
            rates[i, 1 : most + 1] = rng.integers(1, 20, most)
        link = rng.integers(0, 15, (n, n)).astype(float) * (rng.random((n, n)) < 0.8)
        np.fill_diagonal(link, 0.0)
        source, sink = (rng.integers(1, 15, n).astype(float) for _ in range(2))
        return instance_of(ServingNetwork(layers, rates, link, source, sink, tuple(f"n{i}" for i in range(n))))

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All intervals on all nodes."""
        network = network_of(instance, question["partial"])
        choices = [
            [(0, 0)]
            + [
                (s, k)
                for k in range(1, min(network.layers, network.throughput.shape[1] - 1) + 1)
                if network.throughput[i, k] > 0
                for s in range(network.layers - k + 1)
            ]
            for i in range(network.n)
        ]
        for plan in itertools.product(*choices):
            yield _solution(network, [s for s, _ in plan], [k for _, k in plan])


def _replay(network: ServingNetwork, certificate: Mapping[str, Any]) -> float:
    from hetopt.verify.serving_bound import check_bound

    return check_bound(network, certificate)


PROBLEM = Flow()
