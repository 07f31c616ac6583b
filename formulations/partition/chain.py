"""A sequence of layers cut into stages on devices: throughput, latency, room for KV cache, or price.

A plan cuts the sequence into consecutive stages and gives each a device of its own. Four questions are asked of it:
``partition.chain`` (seconds between two results of a full pipeline), ``partition.chain_latency`` (seconds one input takes),
``partition.chain_tokens`` (tokens of KV cache that all stages have room for), ``partition.chain_cost`` (price of the devices
used). Each can be limited in the others' terms: ``period``, ``tokens``. A graph that is no sequence is asked ``maxload``.

Sets and data
    k in 1..n   layers in the order of the edges; boundary q is behind layer q, and S = (i, q, p) is device i with layers q+1..p
    i in D      devices
    p_ki        seconds of layer k on device i, absent where it cannot run
    s_k, c_k    bytes of weights (``memory``), bytes of KV cache per token (``kv_bytes_per_token``)
    M_i, g_i    usable bytes (memory less reserved), price
    l_ijq       seconds to pass boundary q from i to j: latency + data / bandwidth of their link. Without a link nothing can be
                passed on, and nothing needs to be: 0 where there are no data, forbidden where there are.

Stages are those with a cut allowed at both ends (``Task.cut``, no ``group`` cut apart), all layers able to run on i, and
    sum s_k + tokens * sum c_k <= M_i,   sum p_ki <= period                                              (0)
What only the first or the last stage holds (embedding, head, workspace) is a layer of its own at that end of the sequence, with
its own time and memory; ``cut: false`` behind the first (before the last) glues it to its neighbour.

Variables
    z_S in {0, 1}     stage S is in the plan
    y_ijq in {0, 1}   boundary q is passed from i to j; for ``order = fixed`` only where j comes after i (``tables.order``, else
                      the file), next to it when no device may stay empty
    T, N              busiest device or transfer; blocks of tokens

Constraints
    sum z_S over stages from boundary 0 = 1                                                              (1)  start
    sum z_S over stages of i that end at q = sum_j y_ijq               for each device, 0 < q < n        (2)  leave
    sum_j y_jiq = sum z_S over stages of i from q                      for each device, 0 < q < n        (3)  enter
    sum z_S over stages of i <= 1 (= 1 when ``empty`` is false)        for each device                   (4)  once

Objectives
    chain-bottleneck  minimise T,  sum_S p_S z_S <= T,  sum_jq l_ijq y_ijq <= T  for each i              (5)  busy, passing
    chain-latency     minimise sum p_S z_S + sum l_ijq y_ijq                                             (6)
    chain-tokens      maximise block * N,  N <= floor((M_i - s_S) / (c_S * block))  for the stages chosen  (7)  room
    chain-cost        minimise sum g_i z_S                                                               (8)

Transfers and computation overlap: a link is busy as a device is. With ``replicas`` > 1 (chain-bottleneck, order = free) up to so
many equal devices of one type share a stage: each takes its share of the inputs, p_S is divided by their number, each holds all
weights (and the KV cache asked for by ``tokens``), and transfers count in full. ``then`` breaks ties between plans of least T
(most N): ``stages`` fewest stages, ``balance`` the least busy used device as busy as possible; verify cannot see it.

``dp``: states are the devices used so far (by numbers of each type where the order is free) with the boundary reached; for T, N
bisection over "can it be done within", for sums shortest paths with monotone windows. Bounds are in integer ticks, rounded
down; for T and N verify walks through all states again in exact numbers, as far as that takes seconds (``refuted``).

Sources: S. Bokhari, Partitioning problems in parallel, pipelined, and distributed computing, IEEE Trans. Computers 37 (1988);
A. Pinar, C. Aykanat, Fast optimal load balancing algorithms for 1D partitioning, J. Parallel Distrib. Comput. 64 (2004): probing;
A. Benoit, Y. Robert, Mapping pipeline skeletons onto heterogeneous platforms, J. Parallel Distrib. Comput. 68 (2008).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from formulations.partition._chain import MOST_REPLICAS, OPTIONS, Chain, Ticks, chain_of, rules_of
from formulations.partition._chain_methods import (
    DP,
    ChainProblem,
    Count,
    Latest,
    Orders,
    Tie,
    fewest_stages,
    halted,
    prove,
    shortest,
    stopper,
)
from formulations.partition._chain_models import LP, MILP
from hetopt.control import Control
from hetopt.formulation import Option, Question
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.chain import ChainReport, ChainRules, check_chain
from hetopt.verify.chain_proof import possible

__all__ = ["PROBLEMS", "Bottleneck", "Cost", "Latency", "Tokens"]


class Bottleneck(ChainProblem):
    """Least seconds between two results."""

    name = "partition.chain"
    objectives = ("chain-bottleneck",)
    title = "a sequence of layers on devices, the busiest device or transfer as little busy as possible"
    options = (
        *OPTIONS,
        Option("replicas", int, 1, f"largest number of equal devices that share a stage, at most {MOST_REPLICAS}"),
        Option(
            "then", ("any", "stages", "balance"), "any", "among the best plans: any, fewest stages, or least uneven"
        ),
    )
    methods = (
        DP(),
        MILP("bottleneck"),
        LP("bottleneck"),
        Count("balance bound by prices of device types, replayed without a solver"),
        Orders(),
    )

    def value(self, report: ChainReport, instance: Instance) -> float:
        """Seconds of the busiest device or transfer."""
        return report.bottleneck

    def program(
        self, instance: Instance, question: Question, chain: Chain, rules: ChainRules, control: Control
    ) -> bool:
        """Bisection; then the ties."""
        from hetopt.algorithms.chain_program import least_bottleneck, widest_balance

        ticks = Ticks.of(chain, rules.period)
        limits = ticks.limits(chain, chain.windows(rules))
        latest = Latest(chain, control)
        stop = stopper(control)
        refuted, best = least_bottleneck(chain.states, limits, stop, latest, refuted=_refuted(chain, ticks))
        if best is None:
            return False
        latest.flush()
        bound = ticks.seconds(refuted + 1)
        control.report_bound(bound, "algorithm")
        if not halted(control):
            prove(instance, question, chain, control, bound)
        if question["then"] == "stages" and not halted(control):
            fewest_stages(chain, limits.low, ticks, best, control)
        elif question["then"] == "balance" and not halted(control):
            tidy = Tie(chain, control)
            widest_balance(chain.states, limits, best, stop, tidy)
            tidy.settle()
        return True

    def count(self, instance: Instance, question: Question) -> dict[str, Any]:
        """Prices of device types, or the piece without a cut that takes longest where it is fastest: whichever says more."""
        from hetopt.algorithms.maxload_bounds import balance

        chain = chain_of(instance, ChainRules())
        _, prices = balance(chain.time, np.array(list(map(len, chain.members)), np.int64))
        at = np.flatnonzero(chain.cut)
        fastest = np.add.reduceat(chain.time, at[:-1], axis=0).min(axis=1)
        k = int(np.argmax(np.where(np.isfinite(fastest), fastest, -1.0)))
        certificates: list[dict[str, Any]] = [
            {"kind": "balance", "prices": np.asarray(prices).tolist()},
            {"kind": "piece", "start": int(at[k]), "end": int(at[k + 1])},
        ]
        return max(certificates, key=lambda one: self.replay(instance, question, one))

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays prices, refuted values and linear duals."""
        if certificate.get("kind") == "balance":
            return _replay_balance(instance, certificate)
        if certificate.get("kind") == "piece":
            return _replay_piece(instance, question["replicas"], certificate)
        if certificate.get("kind") != "refuted":
            return super().replay(instance, question, certificate)
        value = _number(certificate)
        if possible(instance, rules_of(instance, question), below=value):
            raise ValueError(f"a plan with every device and transfer busy for less than {value:.9g} s is not refuted")
        return value

    def asks(self, seed: int) -> dict[str, Any]:
        """Shared stages now and then."""
        return {"replicas": 2 + seed % 2} if seed % 4 == 1 else super().asks(seed)

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All placements, with every way to let devices that hold nothing share a stage."""
        names = instance.device_names
        for plain in super().every_plan(instance, question):
            yield plain
            assert plain.placement is not None
            used = sorted(set(plain.placement.tolist()))
            spare = [k for k in range(instance.n_devices) if k not in used] if question["replicas"] > 1 else []
            for leaders in itertools.product([None, *used], repeat=len(spare)):
                shared: dict[str, list[str]] = {}
                for device, leader in zip(spare, leaders, strict=True):
                    if leader is not None:
                        shared.setdefault(names[leader], []).append(names[device])
                if shared:
                    yield Solution(plain.placement, details={"replicas": shared})


class Latency(ChainProblem):
    """Least seconds from end to end."""

    name = "partition.chain_latency"
    objectives = ("chain-latency",)
    title = "a sequence of layers on devices, one input through all of them as fast as possible"
    methods = (
        DP(),
        MILP("latency"),
        LP("latency"),
        Count("every layer on its fastest device, nothing passed on"),
        Orders(),
    )

    def value(self, report: ChainReport, instance: Instance) -> float:
        """All layers and transfers."""
        return report.latency

    def program(
        self, instance: Instance, question: Question, chain: Chain, rules: ChainRules, control: Control
    ) -> bool:
        """One shortest path."""
        ticks = Ticks.of(chain, rules.period)
        fee = np.zeros(len(chain.copies), np.int64)
        least = shortest(chain, chain.windows(rules), ticks.prefix[chain.owner], fee, ticks.transfer, control)
        if least is not None:
            control.report_bound(ticks.seconds(least), "algorithm")
        return least is not None

    def count(self, instance: Instance, question: Question) -> dict[str, Any]:
        """Nothing to remember."""
        return {"kind": "fastest"}

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays the sum of fastest times, and linear duals."""
        if certificate.get("kind") != "fastest":
            return super().replay(instance, question, certificate)
        total = math.fsum(instance.time.min(axis=1).tolist())
        return total if instance.integral and total < 2.0**53 else math.nextafter(total, 0.0)


class Tokens(ChainProblem):
    """Most tokens that all stages have room for."""

    name = "partition.chain_tokens"
    objectives = ("chain-tokens",)
    title = "a sequence of layers on devices, room for as many tokens of KV cache as possible on every stage"
    sense = "max"
    unit = "tokens"
    options = (
        *OPTIONS,
        Option("then", ("any", "stages"), "any", "among the best plans: any, or fewest stages"),
    )
    methods = (
        DP(),
        MILP("tokens"),
        LP("tokens"),
        Count("all memories together hold all weights and all cache"),
        Orders(),
    )

    def fits(self, instance: Instance) -> str | None:
        """Some cache, and memories that end."""
        if not (instance.columns.kv_bytes_per_token > 0).any():
            return "no layer has kv_bytes_per_token, so tokens take no room"
        if np.isinf(instance.capacity).any():
            return f"device {instance.device_names[int(np.argmax(instance.capacity))]!r} has no `memory`: its room never ends"
        return super().fits(instance)

    def value(self, report: ChainReport, instance: Instance) -> float:
        """Least room of a stage."""
        return float(report.tokens)

    def program(
        self, instance: Instance, question: Question, chain: Chain, rules: ChainRules, control: Control
    ) -> bool:
        """Bisection over blocks; then the ties."""
        from hetopt.algorithms.chain_program import bisect, reach, reached_plan

        latest, stop = Latest(chain, control), stopper(control)
        passes = chain.passing() <= (1.7e308 if rules.period is None else rules.period)
        high = np.tile(np.arange(-1, len(chain.sequence)), (len(chain.copies), 1))

        def probe(negative: int) -> int | None:
            low = chain.windows(replace(rules, tokens=max(rules.tokens, -negative * rules.block)))
            reached = reach(chain.states, low, high, passes, chain.cut, stop)
            stages = None if reached is None else reached_plan(chain.states, low, high, passes, reached)
            if stages is None:
                return None
            latest(stages)
            report = check_chain(instance, chain.solution(stages).placement, {}, rules)
            return -int(report.tokens) // rules.block

        known = probe(0)
        if known is None:
            return False
        most = _pool(instance, rules.block) // rules.block + 1
        refuted, known = bisect(min(-most, known) - 1, known, probe, stop)
        latest.flush()
        bound = float(-(refuted + 1) * rules.block)
        control.report_bound(bound, "algorithm")
        if not halted(control):
            prove(instance, question, chain, control, bound)
        if question["then"] == "stages" and not halted(control):
            low = chain.windows(replace(rules, tokens=max(rules.tokens, -known * rules.block)))
            ticks = Ticks.of(chain, rules.period)
            fewest_stages(chain, low, ticks, 2**60, control)
        return True

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """Whole blocks."""
        block = question["block"]
        return float(math.floor((bound + slack) / block) * block)

    def count(self, instance: Instance, question: Question) -> dict[str, Any]:
        """Nothing to remember."""
        return {"kind": "pool"}

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays the pool of memories, refuted values and linear duals."""
        rules = rules_of(instance, question)
        if certificate.get("kind") == "pool":
            return float(_pool(instance, rules.block))
        if certificate.get("kind") != "refuted":
            return super().replay(instance, question, certificate)
        value = _number(certificate)
        if value < 0 or value % rules.block:
            raise ValueError(f"the certificate's value is {value!r}, expected whole blocks of tokens")
        if possible(instance, replace(rules, tokens=max(rules.tokens, int(value) + rules.block))):
            raise ValueError(f"a plan with room for more than {value:.9g} tokens is not refuted")
        return value


class Cost(ChainProblem):
    """Least price of the devices used."""

    name = "partition.chain_cost"
    objectives = ("chain-cost",)
    title = "a sequence of layers on the cheapest devices that keep the period and have the room asked for"
    unit = "currency per hour"
    methods = (DP(), MILP("cost"), LP("cost"), Orders())

    def fits(self, instance: Instance) -> str | None:
        """Every device has a price."""
        unpriced = [device.name for device in instance.devices if device.price is None]
        return f"device {unpriced[0]!r} has no `price`" if unpriced else super().fits(instance)

    def value(self, report: ChainReport, instance: Instance) -> float:
        """Prices of all devices of all stages."""
        return math.fsum(float(instance.devices[k].price or 0.0) for members in report.stages for k in members)

    def program(
        self, instance: Instance, question: Question, chain: Chain, rules: ChainRules, control: Control
    ) -> bool:
        """One shortest path."""
        from hetopt.algorithms.chain_program import FAR

        total = float(sum(price * len(group) for price, group in zip(chain.price, chain.members, strict=True)))
        whole = bool((chain.price == np.floor(chain.price)).all())
        unit = 1.0 if whole or not total else 2.0 ** (math.frexp(total)[1] - 58)
        ticks = Ticks.of(chain, rules.period)
        fee = np.floor(chain.price / unit).astype(np.int64)[chain.owner]
        free = np.where(ticks.transfer < FAR, 0, FAR)
        spent = np.zeros((len(chain.copies), len(chain.cut)), np.int64)
        least = shortest(chain, chain.windows(rules), spent, fee, free, control)
        if least is not None:
            control.report_bound(float(least) if whole else math.nextafter(least * unit, 0.0), "algorithm")
        return least is not None


def _number(certificate: Mapping[str, Any]) -> float:
    value = certificate.get("value")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"the certificate's value is {value!r}, expected a finite number")
    return float(value)


def _pool(instance: Instance, block: int) -> int:
    """Tokens, in blocks, for which all memories together have room beside all weights; at least 0."""
    facts = (instance.capacity, instance.memory, instance.columns.kv_bytes_per_token)
    has, weights, cache = (sum(map(Fraction, values.tolist()), Fraction(0)) for values in facts)
    return max(0, math.floor((has - weights) / (cache * block))) * block


def _replay_balance(instance: Instance, certificate: Mapping[str, Any]) -> float:
    """sum_k min_t c_t p_kt / sum_t n_t c_t for prices c >= 0 of device types, rounded down; sharing a stage changes no work."""
    chain = chain_of(instance, ChainRules())
    prices, count = np.asarray(certificate.get("prices"), np.float64), np.array(list(map(len, chain.members)))
    if prices.shape != count.shape or not np.isfinite(prices).all() or (prices < 0).any() or not (prices > 0).any():
        raise ValueError(f"the balance certificate needs {len(count)} prices >= 0, not all 0")
    with np.errstate(invalid="ignore"):
        worth = np.where(np.isfinite(chain.time), chain.time * prices, np.inf).min(axis=1)
    return math.fsum(worth) / math.fsum(prices * count) * (1 - 2.0**-50)


def _replay_piece(instance: Instance, replicas: int, certificate: Mapping[str, Any]) -> float:
    """min_t sum p_kt over layers start+1..end that no cut divides, shared by at most ``replicas`` devices, rounded down."""
    chain = chain_of(instance, ChainRules())
    start, end = (at if type(at) is int else -1 for at in map(certificate.get, ("start", "end")))
    if not 0 <= start < end < len(chain.cut) or chain.cut[start + 1 : end].any():
        raise ValueError(f"the piece certificate names layers {start!r} to {end!r}, expected some that no cut divides")
    able = np.isfinite(chain.time[start:end]).all(axis=0)
    if not able.any():
        return 0.0
    exact = min(sum(map(Fraction, column)) for column in chain.time[start:end, able].T.tolist()) / replicas
    near = float(exact)
    return near if Fraction(near) <= exact else math.nextafter(near, 0.0)


def _refuted(chain: Chain, ticks: Ticks) -> int:
    """Ticks that no plan keeps: some device runs the dearest layer, and all layers together keep all devices busy."""
    from hetopt.algorithms.chain_program import FAR

    least = np.where(np.isinf(chain.time.T), FAR, np.diff(ticks.prefix, axis=1)).min(axis=0)
    devices = sum(map(len, chain.members))
    return int(max(int(least.max()) // int(chain.copies.max()), sum(least.tolist()) // devices)) - 1


PROBLEMS = (Bottleneck(), Latency(), Tokens(), Cost())
