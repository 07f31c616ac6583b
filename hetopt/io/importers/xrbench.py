"""Import a usage scenario of XRBench: networks with frame rates, on the processors of a headset or phone.

Read: each ``Network NAME { FPS: n  Probability: p  Dependency: { names }  Layer NAME { Type: CONV  Dimensions: {...} } ... }``.
A network becomes a job whose period is 1 / FPS and whose deadline is the next frame; its layers, merged into ``--blocks`` runs of
about equal arithmetic, become a sequence of tasks. Times are those of the roofline, in half precision where a processor has a
peak for it, else in 8-bit integers; results travel through shared memory in half precision. A network that depends on another
one of the same rate follows it in the same job. Probabilities are not kept: a plan must be ready for the frames that come.
Dimensions: N batch, K and C channels out and in, Y and X positions, R and S kernel; strides are not told, so that positions are
taken as those of the result. Source of the format: H. Kwon et al., XRBench, MLSys (2023), and MAESTRO (ISCA 2019).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from hetopt.costs.roofline import Processor, seconds
from hetopt.costs.roofline import fleet as processors
from hetopt.errors import InputError, nearest
from hetopt.instance import Instance
from hetopt.io.importers._text import MAX_CELLS, load_text, number
from hetopt.io.kinds import Option, whole
from hetopt.records import Device, Edge, Job, Link, Task

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "xrbench"
TITLE = "A scenario of networks with frame rates (XRBench) on a phone's or headset's processors."
SOURCE_HELP = "text file of a usage scenario (Network, FPS, Layer)."
FLEET = "snapdragon-8-gen-3-npu:1,adreno-750:1,snapdragon-8-gen-3-cpu:1"
OPTIONS: tuple[Option, ...] = (
    Option("--fleet", str, FLEET, "Processors and how many of each, as name:count,name:count."),
    Option("--blocks", int, 6, "Tasks of a network at most; 0 keeps each layer."),
)

WIDTH = 2  # bytes of a number that travels
_AXES = ("N", "K", "C", "Y", "X", "R", "S")
_FIELDS = ("FPS", "Probability", "Dependency", "Layer")
_MOST = 100_000_000


class _Layer(NamedTuple):
    """Arithmetic operations, numbers of weights, of inputs and of results."""

    flops: int
    weights: int
    read: int
    written: int


@dataclass
class _Network:
    name: str
    rate: float = 0.0
    after: list[str] = field(default_factory=list)
    layers: list[_Layer] = field(default_factory=list)


def load(source: str | Path, *, fleet: str = FLEET, blocks: int = 6) -> Instance:
    """Instance of a scenario; the question is the mean latency of its networks.

    Raises
    ------
    InputError
        The file cannot be read, a line is not as expected, or a network depends on one of another rate.
    """
    most = whole("--blocks", blocks, 0, 10_000)
    crew = processors(fleet, 64)
    try:
        networks = _networks(_Tokens(load_text(source)))
        jobs = [_job(group, [p for p, _ in crew], most) for group in _groups(networks)]
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    devices = [
        Device(name=p.name if count == 1 else f"{p.name}-{k}", type=p.name, host=p.kind == "cpu", power=p.power)
        for p, count in crew
        for k in range(count)
    ]
    links = [Link(source=p.name, target="host", bandwidth=p.link, both=True) for p, _ in crew if p.link is not None]
    if sum(len(job.tasks or ()) for job in jobs) * len(devices) > MAX_CELLS:
        raise InputError(f"the scenario has more than {MAX_CELLS} times; take fewer --blocks")
    return Instance.build(
        devices,
        jobs,
        links,
        question={"objective": "periodic-latency"},
        name=Path(source).stem,
        source=f"imported from the XRBench scenario {Path(source).name}; times by the roofline on data sheets: "
        + "; ".join(f"{p.name}: {p.source} ({p.confidence})" for p, _ in crew),
    )


class _Tokens:
    """Words and marks of a text, with the lines they are on."""

    def __init__(self, text: str) -> None:
        self.words = list(_words(text))
        self.at = 0

    def peek(self) -> str:
        """The next word, empty at the end."""
        return self.words[self.at][0] if self.at < len(self.words) else ""

    def line(self) -> int:
        """Where it is."""
        return self.words[min(self.at, len(self.words) - 1)][1] if self.words else 1

    def take(self, expected: str = "") -> str:
        """The next word, which must be ``expected`` where that is said."""
        word, line = self.peek(), self.line()
        if not word or (expected and word != expected):
            found = repr(word[:40]) if word else "the end of the file"
            raise InputError(f"line {line} has {found}, expected {expected or 'a word'!r}")
        self.at += 1
        return word

    def skip(self) -> None:
        """A value that is not kept: a word, or all between braces."""
        depth = 0
        while True:
            word = self.take()
            depth += (word == "{") - (word == "}")
            if depth <= 0:
                return


def _words(text: str) -> Iterator[tuple[str, int]]:
    for k, line in enumerate(text.splitlines(), 1):
        for word in re.findall(r"[{}:,]|[^\s{}:,]+", line.partition("//")[0]):
            if word != ",":
                yield word, k


def _networks(tokens: _Tokens) -> list[_Network]:
    found: dict[str, _Network] = {}
    while tokens.peek():
        line = tokens.line()
        tokens.take("Network")
        network = _network(tokens)
        if network.name in found or len(network.name) > 200:
            raise InputError(f"line {line} has a second network {network.name[:60]!r}, or a name of over 200 letters")
        if not network.layers or not network.rate:
            raise InputError(f"line {line}: the network {network.name[:60]!r} has no layers or no FPS")
        found[network.name] = network
    if not found:
        raise InputError("the file has no networks, expected Network NAME { ... }")
    for network in found.values():
        for name in network.after:
            if name not in found:
                raise InputError(
                    f"{network.name!r} depends on {name[:60]!r}; {nearest(name, list(found), what='the networks')}"
                )
    return list(found.values())


def _network(tokens: _Tokens) -> _Network:
    network = _Network(tokens.take())
    tokens.take("{")
    while tokens.peek() != "}":
        line, word = tokens.line(), tokens.take()
        if word == "FPS":
            tokens.take(":")
            value = number(text := tokens.take())
            if value is None or not 1e-3 <= value <= 1e6:
                raise InputError(f"line {line} has the FPS {text[:40]!r}, expected frames a second from 0.001 to 1e6")
            network.rate = value
        elif word == "Dependency":
            tokens.take(":")
            tokens.take("{")
            while tokens.peek() != "}":
                network.after.append(tokens.take())
            tokens.take("}")
        elif word == "Probability":
            tokens.take(":")
            tokens.skip()
        elif word == "Layer":
            tokens.take()
            network.layers.append(_layer(tokens))
        else:
            raise InputError(f"line {line} has {word[:40]!r}; {nearest(word, _FIELDS, what='what a network has')}")
    tokens.take("}")
    return network


def _layer(tokens: _Tokens) -> _Layer:
    kind, size, line = "CONV", dict.fromkeys(_AXES, 1), tokens.line()
    tokens.take("{")
    while tokens.peek() != "}":
        word = tokens.take()
        if tokens.peek() == ":":
            tokens.take(":")
        if word == "Type":
            kind = tokens.take()
        elif word == "Dimensions":
            tokens.take("{")
            while tokens.peek() != "}":
                line, axis = tokens.line(), tokens.take()
                tokens.take(":")
                text = tokens.take()
                if axis not in _AXES or not (text.isascii() and text.isdigit()) or not 1 <= int(text[:12]) <= _MOST:
                    raise InputError(
                        f"line {line} has {axis[:20]}: {text[:20]}, expected N, K, C, Y, X, R, S from 1 to {_MOST}"
                    )
                size[axis] = int(text[:12])
            tokens.take("}")
        else:
            tokens.skip()
    tokens.take("}")
    if kind not in ("CONV", "DSCONV"):
        raise InputError(f"line {line} has a layer of type {kind[:40]!r}, expected CONV or DSCONV")
    n, k, c, y, x, r, s = size.values()
    fan = r * s * (c if kind == "CONV" else 1)
    written = n * y * x * k
    if written * fan > 10**18:
        raise InputError(f"line {line} has a layer of {written * fan:.3g} multiplications, expected 1e18 at most")
    return _Layer(2 * written * fan, fan * k, n * c * y * x, written)


def _groups(networks: list[_Network]) -> list[list[_Network]]:
    """Networks that follow each other in one job: each behind the one it depends on."""
    by = {network.name: network for network in networks}
    head: dict[str, list[_Network]] = {}
    groups: list[list[_Network]] = []
    waiting = list(networks)
    while waiting:
        left = []
        for network in waiting:
            if not network.after:
                head[network.name] = [network]
                groups.append(head[network.name])
            elif len(network.after) > 1 or by[network.after[0]].rate != network.rate:
                raise InputError(
                    f"{network.name!r} depends on networks of other rates, or on several; expected one of the same FPS"
                )
            elif network.after[0] in head:
                head[network.name] = head[network.after[0]]
                head[network.name].append(network)
            else:
                left.append(network)
        if len(left) == len(waiting):
            raise InputError(f"the networks {', '.join(n.name for n in left[:5])} depend on each other in a circle")
        waiting = left
    return groups


def _job(group: list[_Network], crew: list[Processor], blocks: int) -> Job:
    tasks: list[Task] = []
    for network in group:
        for layers in _runs(network.layers, blocks):
            times: dict[str, int | float | None] = {}
            for p in crew:
                precision = "fp16" if "fp16" in p.peak else "int8"
                width = WIDTH if precision == "fp16" else 1
                each = (seconds(p, v.flops, width * (v.weights + v.read + v.written), precision) for v in layers)
                times[p.name] = round(sum(each), 9)
            name = f"{network.name}.{len(tasks)}" if len(group) > 1 else f"b{len(tasks)}"
            memory = WIDTH * sum(v.weights for v in layers)
            tasks.append(Task(name=name, time=times, output=WIDTH * layers[-1].written, memory=memory))
    edges = [Edge(source=a.name, target=b.name) for a, b in pairwise(tasks)]
    return Job(name="+".join(network.name for network in group), tasks=tasks, edges=edges, period=1.0 / group[0].rate)


def _runs(layers: list[_Layer], blocks: int) -> Iterator[list[_Layer]]:
    """Up to ``blocks`` runs of about equal arithmetic; each layer by itself for 0."""
    total, done = sum(layer.flops for layer in layers), 0
    runs: dict[int, list[_Layer]] = {}
    for k, layer in enumerate(layers):
        runs.setdefault(done * blocks // total if blocks else k, []).append(layer)
        done += layer.flops
    yield from runs.values()
