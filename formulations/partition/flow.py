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

``search`` puts everything together: placement rules and climbing for a first plan, bounds, plans built between the two, an
exact model where the network is small. Bounds are by prices of layers (``configuration``): every layer of a plan with rate T is
carried by nodes whose flows add up to T, and no mix of nodes is cheap enough to do that on all L layers; the prices are replayed
in integers without a solver. Links count too: where no link carries T between clusters of nodes, some layer is carried by
several nodes, and flow into and out of groups of nodes needs links (the argument is in :mod:`hetopt.verify.serving_bound`).
Where memory is short, few nodes are to spare beside a chain that keeps all layers, and a crossing of slow links between clusters
can only be a few nodes wide (:mod:`hetopt.verify.serving_handover`). First plans are disjoint chains of single nodes along real
links, laid one after another and anew. Others are built at a rate T from

* *blocks*: K layers served by lanes side by side and one after another, whose rates add up to T at every layer, cut like a
  board by guillotine cuts; the cheapest block for every K comes out of a dynamic program with the bound's prices,
* *gateways*: up to three nodes of a cluster beside up to three of another whose slow links together carry T,
* *hubs and leaves*, where some nodes are only linked with the others: flow at leaves must come from hubs and go to hubs,
* *paths* of single nodes where links are few,

and an integer program chooses blocks whose layers add up to L, a second one their order and nodes on the real links.
Clusters, hubs and gateways are read off rates and links. ``rules`` are the placement rules of serving systems, and ``milp``
the published program.

Source: Y. Mei et al., Helix: serving large language models over heterogeneous GPUs and network via max-flow, ASPLOS 2025, for
(1)-(3); bounds and construction are this project's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from formulations.partition._flow import network_of, solution_of
from formulations.partition._flow_milp import MILP
from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.control import Control
from hetopt.formulation import Evaluation, Method, Option, Outcome, Problem, Question, RunOptions, Step
from hetopt.instance import HOST, Instance
from hetopt.io.serving import instance_of
from hetopt.solution import Solution

__all__ = ["MILP", "PROBLEM", "Configuration", "Flow", "Rules", "Search"]


class Search(Method):
    """Plans and bounds in turns."""

    name = "search"
    title = "plans from blocks, gateways and paths, climbing, and bounds by layer prices, in turns; exact for small networks"
    kind = "search"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Until value and bound meet, the time is up, or the methods are through."""
        from hetopt.algorithms.serving import solve_serving
        from hetopt.solvers.quiet import quiet

        network = network_of(instance, question["partial"])
        with quiet():
            answer = solve_serving(
                network,
                plan=None if control.plan is None else _arrays(instance, control.plan),
                should_stop=control.should_stop,
                report=lambda start, hold: control.report_plan(solution_of(network, start, hold)),
                report_bound=control.report_bound,
                seed=control.seed,
                workers=control.threads,
            )
        notes = (_nothing(network),) if control.value == 0.0 else ()
        told = _highs() if answer.proof == "solver" else None
        limited = control.should_stop() and not control.closed
        return Outcome("limit" if limited else "finished", "time" if limited else None, told, notes)


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
                control.report_plan(solution_of(network, plan.start, plan.hold))
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


class Flow(Problem):
    """Max-flow serving with layer intervals."""

    name = "partition.flow"
    objectives = ("serving-flow",)
    title = "layer intervals on serving nodes, as much flow from the first layer to the last as possible"
    sense = "max"
    unit = "requests per second"
    uses = frozenset({"time", "links", "tables.layers", "tables.throughput"})
    options = (Option("partial", bool, False, "a request may join a node inside its interval"),)
    methods = (Search(), MILP(), Configuration(), Rules())

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
        ends = (*instance.device_names, HOST)  # -1 and n are the outside
        full = {
            "full_nodes": [ends[i] for i in flow.full_nodes],
            "full_links": [[ends[i], ends[j]] for i, j in flow.full_links],
        }
        return Evaluation(flow.value, (), {"devices": devices, **full})

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The search: rules, bounds and everything else are in it."""
        return (Step("search", "it has rules, bounds and construction in it, and proves small networks optimal"),)

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
            yield solution_of(network, [s for s, _ in plan], [k for _, k in plan])


def _arrays(instance: Instance, plan: Solution) -> tuple[Any, Any]:
    """(n,) first layers and numbers of layers of a plan."""
    start, hold = (
        np.array([plan.details[key].get(name, 0) for name in instance.device_names], np.int64)
        for key in ("start", "hold")
    )
    return start, hold


def _highs() -> str:
    """Whose word a bound of the exact model is."""
    from importlib.metadata import version

    return f"highs {version('highspy')}"


def _nothing(network: ServingNetwork) -> str:
    """Why the best plan found serves nothing."""
    most = (
        np.arange(network.layers + 1)[: network.throughput.shape[1]] * (network.throughput[:, : network.layers + 1] > 0)
    ).max(axis=1)
    if most.sum() < network.layers:
        return f"nothing can be served: the nodes together keep at most {most.sum()} of {network.layers} layers"
    if not _joined(network):
        return "nothing can be served: no links join nodes that keep all layers one after another, from host to host"
    return (
        "no plan that serves anything was found: see whether links join nodes that keep all layers, from host to host"
    )


def _joined(network: ServingNetwork) -> bool:
    """Is there a way from host to host along links through intervals of all layers, were nodes allowed to come up twice?"""
    layers, rates = network.layers, network.throughput
    linked = network.link > 0
    ending = np.zeros((layers + 1, network.n), np.bool_)  # an interval of the node may end here
    for end in range(1, layers + 1):
        for k in range(1, min(end, rates.shape[1] - 1) + 1):
            start = end - k
            entered = network.source > 0 if start == 0 else linked[ending[start]].any(axis=0)
            if network.partial and start > 0:  # joined anywhere inside
                entered = entered | linked[ending[start:end].any(axis=0)].any(axis=0)
            ending[end] |= entered & (rates[:, k] > 0)
    return bool((ending[layers] & (network.sink > 0)).any())


def _replay(network: ServingNetwork, certificate: Mapping[str, Any]) -> float:
    from hetopt.verify.serving_bound import check_bound

    return check_bound(network, certificate)


PROBLEM = Flow()
