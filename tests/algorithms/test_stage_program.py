"""Shared stages, in-flight memory, latencies, overlap: the program against every chain of stages, and cases by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from hetopt.algorithms.ideals import TooManyIdeals
from hetopt.algorithms.stage_program import StageProblem, solve_stages


def chain(times: list[float], *, devices: int, copies: int = 1, sync: float = 0.0, **more: object) -> StageProblem:
    """Classes in a sequence on equal devices, each hand-over one second on both sides."""
    n = len(times)
    given = {
        "time": np.array(times)[:, None],
        "size": np.ones(n),
        "activation": np.zeros(n),
        "pred_ptr": np.array([0, *range(n)]),
        "pred": np.arange(n - 1),
        "net_ptr": 2 * np.arange(n),
        "net_pin": np.array([v for k in range(n - 1) for v in (k, k + 1)], dtype=np.int64),
        "net_source": np.arange(n - 1),
        "arrive": np.ones((1, n - 1)),
        "leave": np.ones((1, n - 1)),
        "count": np.array([devices]),
        "memory": np.array([math.inf]),
        "sync_byte": np.array([[sync * k for k in range(copies)]]),
        "sync_once": np.zeros((1, copies)),
    }
    return StageProblem(**(given | more))


def random_problem(rng: np.random.Generator) -> StageProblem:
    n, types, copies = int(rng.integers(1, 6)), int(rng.integers(1, 3)), int(rng.integers(1, 4))
    count = rng.integers(1, 3, types)
    time = rng.integers(0, 12, (n, types)).astype(float)
    time[rng.random((n, types)) < 0.1] = np.inf
    time[np.isinf(time).all(axis=1)] = 5.0
    before = [[u for u in range(v) if rng.random() < 0.4] for v in range(n)]
    pins = [[u, *(v for v in range(u + 1, n) if rng.random() < 0.5)] for u in range(n)]
    pins = [p for p in pins if len(p) > 1]
    h = len(pins)
    unit = float(rng.choice([1.0, 0.37]))
    return StageProblem(
        time=time * unit,
        size=rng.integers(0, 5, n).astype(float),
        activation=rng.integers(0, 3, n).astype(float),
        pred_ptr=np.concatenate([[0], np.cumsum([len(b) for b in before])]).astype(np.int64),
        pred=np.array([u for b in before for u in b], dtype=np.int64),
        net_ptr=np.concatenate([[0], np.cumsum([len(p) for p in pins])]).astype(np.int64),
        net_pin=np.array([v for p in pins for v in p], dtype=np.int64),
        net_source=np.array([p[0] for p in pins], dtype=np.int64),
        arrive=rng.integers(0, 4, (types, h)) * unit,
        leave=rng.integers(0, 4, (types, h)) * unit,
        count=count,
        memory=np.where(rng.random(types) < 0.5, np.inf, rng.integers(5, 20, types)),
        sync_byte=np.sort(rng.integers(0, 3, (types, copies)), axis=1) * np.arange(copies) * 0.3,
        sync_once=np.arange(copies) * rng.integers(0, 2, (types, 1)) * 0.5,
        overlap=bool(rng.integers(2)),
        in_flight=bool(rng.integers(2)),
    )


def load(p: StageProblem, part: list[int], t: int, r: int, behind: int) -> float:
    """Load of a stage, ``inf`` where it cannot be: the definition, class by class and net by net."""
    flight = behind + 1 if p.in_flight else 1
    if p.size[part].sum() + flight * p.activation[part].sum() > p.memory[t]:
        return math.inf
    transfer = 0.0
    for h, source in enumerate(p.net_source.tolist()):
        pins = p.net_pin[p.net_ptr[h] : p.net_ptr[h + 1]].tolist()
        if source in part and any(v not in part for v in pins):
            transfer += p.leave[t, h]
        if source not in part and any(v in part for v in pins):
            transfer += p.arrive[t, h]
    compute = p.time[part, t].sum()
    busy = max(compute, transfer) if p.overlap else compute + transfer
    return busy / r + p.sync_byte[t, r - 1] * p.size[part].sum() + p.sync_once[t, r - 1]


def chains(p: StageProblem, left: frozenset[int], free: tuple[int, ...]) -> Iterator[list[tuple[list[int], int, int]]]:
    if not left:
        yield []
        return
    items = sorted(left)
    for bits in range(1, 1 << len(items)):
        part = [v for k, v in enumerate(items) if bits >> k & 1]
        rest = left - set(part)
        if any(u in rest for v in part for u in p.pred[p.pred_ptr[v] : p.pred_ptr[v + 1]].tolist()):
            continue
        for t in range(len(free)):
            for r in range(1, min(free[t], p.sync_byte.shape[1]) + 1):
                after = tuple(f - r * (s == t) for s, f in enumerate(free))
                for tail in chains(p, rest, after):
                    yield [(part, t, r), *tail]


def worst(p: StageProblem, plan: list[tuple[list[int], int, int]]) -> float:
    return max((load(p, part, t, r, len(plan) - 1 - k) for k, (part, t, r) in enumerate(plan)), default=0.0)


@pytest.mark.parametrize("seed", range(150))
def test_every_chain_of_stages(seed: int) -> None:
    p = random_problem(np.random.default_rng(seed))
    best = min(
        (worst(p, plan) for plan in chains(p, frozenset(range(len(p.size))), tuple(p.count.tolist()))), default=math.inf
    )
    answer = solve_stages(p)
    assert answer.optimal
    if math.isinf(best):
        assert answer.stages is None and answer.bound == math.inf
        return
    assert answer.bound <= best * (1 + 1e-12)
    plan = [(part.tolist(), t, r) for part, t, r in answer.stages]
    assert sorted(v for part, _, _ in plan for v in part) == list(range(len(p.size)))
    assert worst(p, plan) == pytest.approx(best)
    assert answer.bound == pytest.approx(best)


def test_two_devices_share_the_long_stage() -> None:
    """2, 8, 2 on four devices: 2 + 1, (8 + 2) / 2, 2 + 1 with the middle shared by two."""
    alone = solve_stages(chain([2.0, 8.0, 2.0], devices=4))
    shared = solve_stages(chain([2.0, 8.0, 2.0], devices=4, copies=2))
    assert alone.bound == pytest.approx(10.0)
    assert shared.bound == pytest.approx(5.0)
    assert [(part.tolist(), r) for part, _, r in shared.stages] == [([0], 1), ([1], 2), ([2], 1)]
    assert solve_stages(chain([2.0, 8.0, 2.0], devices=4, copies=2, sync=1.0)).bound == pytest.approx(6.0)


def test_transfers_beside_compute() -> None:
    """3 + 1 and 3 + 1 in sequence; 3 beside 1."""
    two = chain([3.0, 3.0], devices=2)
    assert solve_stages(two).bound == pytest.approx(4.0)
    assert solve_stages(replace(two, overlap=True)).bound == pytest.approx(3.0)


def test_early_stages_hold_more_inputs() -> None:
    """Three layers of 1 byte with activations of 1: 1 + 3 in the first of three stages, 2 + 2 in the second of two."""
    free = {"arrive": np.zeros((1, 2)), "leave": np.zeros((1, 2))}
    three = chain([1.0] * 3, devices=3, activation=np.ones(3), memory=np.array([4.0]), in_flight=True, **free)
    assert solve_stages(three).bound == pytest.approx(1.0)
    tight = replace(three, memory=np.array([3.0]))
    assert solve_stages(tight).bound == math.inf
    assert solve_stages(replace(tight, in_flight=False)).bound == pytest.approx(1.0)


def test_too_many_ideals_are_refused_and_stops_are_heeded() -> None:
    wide = chain([1.0] * 20, devices=2, pred_ptr=np.zeros(21, np.int64), pred=np.zeros(0, np.int64))
    with pytest.raises(TooManyIdeals):
        solve_stages(wide, ideal_limit=1000)
    answer = solve_stages(chain([1.0] * 5, devices=2), should_stop=lambda: True)
    assert answer.stages is None and not answer.optimal and answer.bound <= 3.0
