"""From a model, a way of using it and devices to an instance: what each layer takes, and where each number is from.

A :class:`Recipe` keeps the three apart, so that the same model can be asked about on other devices; :meth:`Recipe.instance`
is the sequence of modules with times by the roofline, weights, KV cache a token and what is handed on, under the question
asked for. The instance's ``source`` names the origin of every estimate.

``want`` is ``throughput`` (seconds between two results of a full pipeline), ``latency`` (seconds through all stages),
``tokens`` (most tokens of KV cache that every stage has room for) or ``cost`` (least price of the devices used). All but
``tokens`` ask for room for the caches of ``batch * context`` tokens in each micro-batch in flight; a full pipeline has one
for each stage, so as many as there are devices are counted unless the recipe says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import msgspec

from hetopt.costs.cluster import Cluster, Unit, to_host
from hetopt.costs.precision import KV_BYTES
from hetopt.costs.roofline import Factors, walls
from hetopt.costs.transformer import Model, Module, Work
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.records import Device, Edge, Job, Task

__all__ = ["WANTS", "Recipe"]

WANTS = {
    "throughput": "chain-bottleneck",
    "latency": "chain-latency",
    "tokens": "chain-tokens",
    "cost": "chain-cost",
}
"""Objective by what is wanted."""

KV_BLOCK = 16  # tokens; caches are kept in blocks of so many
_MOST = 2**53


@dataclass(frozen=True)
class Recipe:
    """A model, its use, devices.

    Attributes
    ----------
    name
        Of the instance.
    model, work, cluster
        What runs, how it is used, where. ``work.in_flight`` of 0 leaves the number to :meth:`used`.
    want
        A key of :data:`WANTS`.
    period
        Most seconds that a device may be busy for one micro-batch; None for no limit.
    factors
        Factors of the roofline by data sheet, where they are not the catalogue's.
    origin
        Where the model is from.
    """

    name: str
    model: Model
    work: Work
    cluster: Cluster
    want: str = "throughput"
    period: float | None = None
    factors: Mapping[str, Factors] = field(default_factory=dict)
    origin: str = ""

    @property
    def used(self) -> Work:
        """The work, with the number of micro-batches in flight."""
        if self.work.in_flight:
            return self.work
        full = self.want == "throughput" or self.work.training
        return replace(self.work, in_flight=len(self.cluster.units) if full else 1)

    @property
    def hosts(self) -> list[str]:
        """Names of the CPUs."""
        return [unit.name for unit in self.cluster.units if unit.sheet.kind == "cpu"]

    def without_hosts(self) -> Recipe:
        """The same on accelerators alone.

        Raises
        ------
        InputError
            There are none.
        """
        units = tuple(unit for unit in self.cluster.units if unit.sheet.kind != "cpu")
        if not units:
            raise InputError(
                "--devices names no accelerator, and the tools asked for run on accelerators only; add one"
            )
        return replace(self, cluster=replace(self.cluster, units=units))

    def instance(self, *, first_on_host: bool = False, copied: bool = False) -> Instance:
        """The instance.

        Parameters
        ----------
        first_on_host
            Pin the embedding to a CPU, alone if need be, so that what else a CPU holds are the first layers.
        copied
            What a CPU holds is copied to the first accelerator for each use and runs there; that one keeps room for the largest
            module.

        Raises
        ------
        InputError
            A data sheet lacks what times, links or prices need; or sizes are beyond 2^53 bytes.
        """
        work = self.used
        workspace = max(work.workspace(module) for module in self.model.modules)
        cluster = replace(self.cluster, workspace=workspace)
        alone = len(cluster.units) == 1
        runner = next((unit for unit in cluster.units if unit.sheet.kind != "cpu"), None) if copied else None
        clock = self._clock(cluster, runner)
        tasks = []
        for k, module in enumerate(self.model.modules):
            size, out = work.memory(module), work.output(module)
            if module.shares and alone and not work.training:
                size -= work.matrix_bytes(module)  # one device keeps the tied matrix once
            if max(size, out, work.cache(module) * work.cached_tokens) > _MOST:
                raise InputError(
                    f"{module.name} would take more than 2^53 bytes with --batch {work.batch} and --context {work.context}; "
                    "make them smaller"
                )
            free = first_on_host and k == 0
            tasks.append(
                Task(
                    name=module.name,
                    time=clock(module),
                    memory=size,
                    output=out if k + 1 < len(self.model.modules) else 0,
                    cut=free or not module.glued,
                    kv_bytes_per_token=work.cache(module),
                    pin=self.hosts if free else None,
                )
            )
        names = [task.name for task in tasks]
        edges = [Edge(source=a, target=b) for a, b in pairwise(names)]
        largest = max(work.weights(module) for module in self.model.modules)
        return Instance.build(
            self._devices(cluster, {runner.name: largest} if runner is not None and self.hosts else {}),
            [Job(name=self.model.family, tasks=tasks, edges=edges)],
            cluster.links(),
            question=self._question(work),
            name=self.name,
            description=self.description,
            source="\n".join(
                [*self.notes(cluster), *([f"host memory: copied to {runner.name} for each use"] if runner else [])]
            ),
        )

    def _clock(self, cluster: Cluster, runner: Unit | None) -> Callable[[Module], dict[str, float | int | None]]:
        """Seconds of a module by kind of device, in nanoseconds' steps; for hosts those of the ``runner`` and a copy to it."""
        work = self.used
        rates = {name: walls(sheet, self.factors.get(name)) for name, sheet in cluster.sheets.items()}

        def seconds(module: Module, name: str) -> float:
            if runner is None or cluster.sheets[name].kind != "cpu":
                return work.seconds(module, rates[name])
            return work.seconds(module, rates[runner.sheet.name]) + to_host(runner.sheet).seconds(work.weights(module))

        return lambda module: {name: round(seconds(module, name), 9) for name in rates}

    def _devices(self, cluster: Cluster, room: Mapping[str, int]) -> list[Device]:
        """The devices, priced where cost is asked for; ``room`` is reserved by name besides."""
        devices = [msgspec.structs.replace(v, reserved=v.reserved + room.get(v.name, 0)) for v in cluster.devices()]
        if self.want != "cost":
            return devices
        lost = sorted({v.type or v.name for v in devices if v.price is None and not v.host})
        if lost:
            raise InputError(
                f"the price of {' and '.join(lost)} is not known; state it in a file of your own (--catalogue)"
            )
        return [msgspec.structs.replace(v, price=0) if v.price is None else v for v in devices]

    def _question(self, work: Work) -> dict[str, Any]:
        question: dict[str, Any] = {"objective": WANTS[self.want], "order": "free"}
        if self.want == "tokens":
            if not self.model.caches:
                raise InputError(
                    f"--want tokens: {self.model.family} keeps no KV cache; want throughput, latency or cost"
                )
            question["block"] = KV_BLOCK
        elif self.model.caches and not work.training:
            question["tokens"] = work.cached_tokens
        if self.want in ("throughput", "tokens"):
            question["then"] = "stages"
        if self.period is not None:
            question["period"] = self.period
        return question

    @property
    def description(self) -> str:
        """What is asked about, in a sentence."""
        work, model = self.used, self.model
        size = f"{model.parameters / 1e9:.4g} billion parameters"
        active = f" ({model.active / 1e9:.4g} active)" if model.active < model.parameters else ""
        weights = work.scheme or work.precision
        what = {
            "decode": f"decode steps of {work.batch} sequences with {work.context} tokens each",
            "prefill": f"prompts of {work.context} tokens, {work.batch} at once",
            "train": f"training on {work.batch} sequences of {work.context} tokens a micro-batch",
        }[work.phase]
        flight = f", {work.in_flight} micro-batches in flight" if work.in_flight > 1 else ""
        return f"{model.family} of {size}{active}, weights in {weights}, {what}{flight}."

    def notes(self, cluster: Cluster | None = None) -> list[str]:
        """Where each number is from, a line a fact."""
        cluster, work = cluster or self.cluster, self.used
        shown = [
            f"model: {self.origin or self.model.family}; {self.model.parameters} parameters by the shapes of its public "
            "configuration class",
            f"weights: {work.scheme or work.precision}"
            + (f", ends and norms {work.precision}" if work.scheme else "")
            + (", 16 bytes a parameter in training" if work.training else ""),
        ]
        if self.model.caches and not work.training:
            capped = sum(m.attention is not None and work.bounded(m.attention) for m in self.model.modules)
            windows = f"; the caches of {capped} layers end at their window and count as memory" if capped else ""
            shown.append(f"KV cache: elements of {KV_BYTES[work.kv]} bytes ({work.kv}){windows}")
        if any(module.shares for module in self.model.modules) and len(cluster.units) > 1:
            shown.append("tied embedding: its matrix is counted where the embedding is and again where the head is")
        if any(p.copies > p.used for module in self.model.modules for p in module.products):
            shown.append("experts: tokens choose at random, so a batch reads 1 - (1 - k/E)^n of the weights")
        for name, sheet in cluster.sheets.items():
            factors = self.factors.get(name) or Factors.of(sheet)
            shown.append(
                f"times on {name}: roofline, {factors.efficiency:.3g} of the peak and {factors.streaming:.3g} of the bandwidth "
                f"reached, {factors.overhead * 1e6:.3g} us an operation ({factors.note})"
            )
        room = f"usable memory: share of the data sheet less {cluster.context / 1e9:g} GB of context on GPUs"
        return [*shown, f"{room} and {cluster.workspace / 1e9:.3g} GB of workspace", *cluster.notes()]


def layer_of(model: Model) -> Module:
    """The middle layer: the most usual shape."""
    layers = [m for m in model.modules if m.attention is not None and not m.once]
    return layers[len(layers) // 2]
