"""Check plans that cut a sequence of layers into stages on pools of equal units, and say what they take, exactly.

A pool is a device with ``slots``: so many equal units, of which a stage takes some. What this is for: reading such a plan, and
evaluating it for the questions that ask for one: cost under a floor of throughput (:func:`check_provision`), period and energy
(:func:`check_pareto`). What it is not: an optimiser. It shares nothing with :mod:`hetopt.algorithms`; sums are fractions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.verify.assignment import placement_violations
from hetopt.verify.chain import layer_sequence

__all__ = [
    "ParetoReport",
    "PoolStage",
    "ProvisionFacts",
    "ProvisionReport",
    "check_pareto",
    "check_provision",
    "provision_facts",
    "read_stages",
    "speedups",
]

HOUR = 3600
TOLERANCE = Fraction(1, 10**9)  # relative, by which a plan may miss a floor or a limit: what rounding may cost


@dataclass(frozen=True)
class PoolStage:
    """Consecutive layers (task numbers) on ``units`` units of a pool (device number)."""

    layers: tuple[int, ...]
    pool: int
    units: int


@dataclass(frozen=True, eq=False)
class ProvisionFacts:
    """What ``tables.provision`` says: (n, d) seconds of data transfer, and shares of both times that units divide."""

    batch: float
    samples: float
    data_time: NDArray[np.float64]
    compute_share: NDArray[np.float64]
    data_share: NDArray[np.float64]


@dataclass(frozen=True)
class ProvisionReport:
    """Seconds a sample of each stage; price of all units for an hour; sentences about what is wrong."""

    seconds: tuple[float, ...] = ()
    rate: float = math.inf
    period: float = math.inf
    cost: float = math.inf
    violations: tuple[str, ...] = ()


@dataclass(frozen=True)
class ParetoReport:
    """Seconds an item of each stage, with what it receives; seconds between items; joules an item; what is wrong."""

    seconds: tuple[float, ...] = ()
    period: float = math.inf
    energy: float = math.inf
    violations: tuple[str, ...] = ()


def read_stages(
    instance: Instance, placement: NDArray[np.int64] | None, details: Mapping[str, Any], *, shared: bool = True
) -> tuple[list[PoolStage], list[str]]:
    """Stages of a plan, and what is wrong with it; ``shared``: stages on the same pool share its units.

    ``placement`` (n,) is the pool of each layer; ``details`` holds ``layers`` and ``units``, a number for each stage in order.
    """
    wrong = [*placement_violations(instance, placement, limits=False)]
    if set(details) != {"layers", "units"}:
        wrong.append(f"the plan's details hold {sorted(map(str, details))}, expected 'layers' and 'units'")
    sequence = layer_sequence(instance)
    if wrong or placement is None or sequence is None:
        return [], wrong or ["the tasks do not form one sequence"]
    for key in ("layers", "units"):
        given = details[key]
        if not isinstance(given, list) or not all(type(number) is int and number >= 1 for number in given):
            wrong.append(f"the plan's {key} are {given!r}, expected a list of whole numbers from 1 on")
    if wrong:
        return [], wrong
    layers, units = details["layers"], details["units"]
    if len(layers) != len(units) or sum(layers) != len(sequence):
        return [], [
            f"the plan has {len(layers)} stages of {sum(layers)} layers in all and units for {len(units)}; "
            f"expected units for each stage and {len(sequence)} layers"
        ]
    stages, names = [], instance.device_names
    used = [0] * instance.n_devices
    for at, ((begin, end), number) in enumerate(zip(pairwise([0, *accumulate(layers)]), units, strict=True)):
        part = sequence[begin:end].tolist()
        pools = sorted({int(placement[k]) for k in part})
        if len(pools) > 1:
            wrong.append(f"stage {at + 1} is on {len(pools)} pools, expected one")
        stages.append(PoolStage(tuple(part), pools[0], number))
        if end < len(sequence) and not instance.columns.cut[part[-1]]:
            wrong.append(f"the sequence is cut behind {instance.labels[part[-1]]!r}, where no cut is allowed")
        used[pools[0]] = used[pools[0]] + number if shared else max(used[pools[0]], number)
    for pool, number in enumerate(used):
        if number > instance.devices[pool].slots:
            each = "" if shared else " for a stage"
            wrong.append(
                f"pool {names[pool]!r} has {instance.devices[pool].slots} units, and the plan takes {number}{each}: "
                f"{number - instance.devices[pool].slots} too many"
            )
    return stages, wrong


@lru_cache(maxsize=8)
def provision_facts(instance: Instance) -> ProvisionFacts:
    """``tables.provision``, ``{"batch", "samples", "data_time", "compute_share", "data_share"}``.

    The last three are lists, a row for each task in the order of the file, a number for each device.

    Raises
    ------
    InputError
        The table is missing or not what it should be.
    """
    table = instance.tables.get("provision")
    rows = ("data_time", "compute_share", "data_share")
    if not isinstance(table, Mapping) or set(table) != {"batch", "samples", *rows}:
        raise InputError(f"$.tables.provision is not an object with batch, samples, {', '.join(rows)}; expected that")
    for key in ("batch", "samples"):
        value = table[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 2.0**53:
            raise InputError(f"$.tables.provision.{key} is {value!r}, expected a number of samples above 0")
    arrays = []
    for key in rows:
        try:
            array = np.array(table[key], np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"$.tables.provision.{key} is no table of numbers: {error}") from None
        if array.shape != instance.time.shape:
            n, d = instance.time.shape
            raise InputError(f"$.tables.provision.{key} has shape {array.shape}, expected {n} tasks x {d} devices")
        most = np.inf if key == "data_time" else 1.0
        if not (np.isfinite(array) & (array >= 0) & (array <= most)).all():
            words = "seconds >= 0" if key == "data_time" else "shares from 0 to 1"
            raise InputError(f"$.tables.provision.{key} holds a number out of range; expected {words}")
        arrays.append(array)
    return ProvisionFacts(table["batch"], table["samples"], *arrays)


def check_provision(
    instance: Instance,
    placement: NDArray[np.int64] | None,
    details: Mapping[str, Any],
    *,
    floor: float,
    shared: bool,
) -> ProvisionReport:
    """Evaluate a plan: seconds a sample of each stage by Amdahl's law, cost of all samples at the slowest stage's pace."""
    facts = provision_facts(instance)
    stages, wrong = read_stages(instance, placement, details, shared=shared)
    if not stages:
        return ProvisionReport(violations=tuple(wrong))
    for at, (one, other) in enumerate(pairwise(stages)):
        if one.pool == other.pool:
            wrong.append(
                f"stages {at + 1} and {at + 2} are on the same pool; consecutive layers on one pool are one stage"
            )
    if wrong:
        return ProvisionReport(violations=tuple(wrong))
    seconds, rate = [], Fraction(0)
    for stage in stages:
        times = [
            sum((_amdahl(table[k, stage.pool], share[k, stage.pool], stage.units) for k in stage.layers), Fraction(0))
            for table, share in ((instance.time, facts.compute_share), (facts.data_time, facts.data_share))
        ]
        seconds.append(max(times) / Fraction(facts.batch))
        rate += Fraction(instance.devices[stage.pool].price or 0) * stage.units
    period = max(seconds)
    if floor and period * Fraction(floor) > 1 + TOLERANCE:
        wrong.append(
            f"the slowest stage takes {float(period):.9g} s a sample, {float(1 / period):.9g} samples a second, "
            f"{float(Fraction(floor) - 1 / period):.9g} fewer than the floor of {floor:.9g}"
        )
    cost = Fraction(facts.samples) * period / HOUR * rate
    return ProvisionReport(tuple(map(float, seconds)), float(rate), float(period), float(cost), tuple(wrong))


def _amdahl(seconds: float, share: float, units: int) -> Fraction:
    part = Fraction(float(share))
    return Fraction(float(seconds)) * (1 - part + part / units)


def speedups(instance: Instance) -> tuple[tuple[float, ...], ...]:
    """By how much 1, 2, ... units of each pool are faster than one: ``tables.speedup[pool]``, else their number.

    Raises
    ------
    InputError
        The table names no pool, is shorter than the pool's units, does not begin with 1, or holds a number that is not positive.
    """
    table = instance.tables.get("speedup", {})
    if not isinstance(table, Mapping):
        raise InputError(f"$.tables.speedup is {type(table).__name__}, expected lists by device name")
    for name in table:
        if name not in instance.device_index:
            raise InputError(f"$.tables.speedup names {name!r}, which is no device")
    out = []
    for device in instance.devices:
        row = table.get(device.name)
        if row is None:
            out.append(tuple(float(k) for k in range(1, device.slots + 1)))
            continue
        good = isinstance(row, list) and all(type(s) in (int, float) and 0 < s < 2.0**53 for s in row)
        if not good or len(row) < device.slots or row[0] != 1:
            raise InputError(
                f"$.tables.speedup.{device.name} is {row!r}, expected at least {device.slots} numbers above 0, the first 1"
            )
        out.append(tuple(float(s) for s in row[: device.slots]))
    return tuple(out)


def check_pareto(
    instance: Instance,
    placement: NDArray[np.int64] | None,
    details: Mapping[str, Any],
    *,
    period: float | None,
    energy: float | None,
) -> ParetoReport:
    """Evaluate a plan: seconds between two items, joules an item; ``period`` and ``energy`` are the most that are allowed."""
    stages, wrong = read_stages(instance, placement, details)
    if wrong:
        return ParetoReport(violations=tuple(wrong))
    faster, names = speedups(instance), instance.device_names
    data = {u: size for (u, _), size in zip(instance.edges.tolist(), instance.edge_data.tolist(), strict=True)}
    busy, seconds, before = [], [], None
    for stage in stages:
        work = sum((Fraction(float(instance.time[k, stage.pool])) for k in stage.layers), Fraction(0))
        busy.append(work / Fraction(faster[stage.pool][stage.units - 1]))
        received = Fraction(0)
        if before is not None:
            received = _pass(instance, names[before.pool], names[stage.pool], data[before.layers[-1]], wrong)
        seconds.append(busy[-1] + received)
        need = sum((Fraction(float(instance.memory[k])) for k in stage.layers), Fraction(0))
        has = float(instance.capacity[stage.pool])
        if need > has:
            over = float(need - Fraction(has))
            wrong.append(
                f"a unit of {names[stage.pool]!r} needs {float(need):.12g} bytes and has {has:.12g}: {over:.12g} too many"
            )
        before = stage
    slowest = max(seconds)
    joules = Fraction(0)
    for stage, work in zip(stages, busy, strict=True):
        device = instance.devices[stage.pool]
        active, idle = Fraction(device.power or 0), Fraction(device.idle_power or 0)
        joules += stage.units * (active * work + idle * (slowest - work))
    for what, value, most, unit in (("period", slowest, period, "s"), ("energy", joules, energy, "J")):
        if most is not None and value > Fraction(most) * (1 + TOLERANCE):
            over = float(value - Fraction(most))
            wrong.append(
                f"the {what} is {float(value):.9g} {unit} an item, {over:.9g} more than the {most:.9g} allowed"
            )
    return ParetoReport(tuple(map(float, seconds)), float(slowest), float(joules), tuple(wrong))


def _pass(instance: Instance, source: str, target: str, size: float, wrong: list[str]) -> Fraction:
    """Seconds to pass ``size`` bytes on; without a link nothing can be passed, and without data nothing needs to be."""
    link = instance.link(source, target)
    if link is None:
        if size:
            wrong.append(f"there is no link {source!r} -> {target!r} to pass {size:.9g} bytes on")
        return Fraction(0)
    speed = Fraction(0) if link.bandwidth is None else Fraction(size) / Fraction(link.bandwidth)
    return Fraction(link.latency) + speed
