"""What to measure next: spanning trees and covers against every choice there is."""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
import pytest

from hetopt import InputError
from hetopt.costs.measuring import anchors, anchors_greedy, connecting, covered

MANY = 200 if os.environ.get("HETOPT_LONG_TESTS") else 20


def draw(seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    n, m = int(random.integers(2, 5)), int(random.integers(2, 4))
    known = random.random((n, m)) < 0.35
    return known, random.integers(1, 9, (n, m)).astype(float)


def choices(known: Any) -> Any:
    cells = np.argwhere(~known).tolist()
    for count in range(len(cells) + 1):
        for chosen in itertools.combinations(cells, count):
            then = known.copy()
            for i, j in chosen:
                then[i, j] = True
            yield then


def connected(known: Any) -> bool:
    n, m = known.shape
    seen, left = {0}, [0]
    while left:
        at = left.pop()
        near = (n + np.flatnonzero(known[at])) if at < n else np.flatnonzero(known[:, at - n])
        for other in near.tolist():
            if other not in seen:
                seen.add(other)
                left.append(other)
    return len(seen) == int(n + m)


@pytest.mark.parametrize("seed", range(MANY))
def test_the_cheapest_entries_that_connect_everything(seed: int) -> None:
    known, cost = draw(seed)
    found = connecting(known, cost)
    assert connected(known | found.chosen)
    assert not (known & found.chosen).any()
    best = min(float(cost[then & ~known].sum()) for then in choices(known) if connected(then))
    assert found.cost == found.bound == best


@pytest.mark.parametrize("seed", range(MANY))
def test_the_cheapest_anchors_and_the_most_within_a_budget(seed: int) -> None:
    known, cost = draw(seed)
    n, m = known.shape
    wanted = 1 + seed % 2
    classes = np.arange(n) % 2 if seed % 3 == 0 else None
    size = np.bincount(classes) if classes is not None else np.array([n])
    full = int(np.minimum(size, wanted).sum()) * (m - 1)
    enough = [then for then in choices(known) if covered(then, 0, wanted, classes) == full and then.any(axis=1).all()]
    best = min(float(cost[then & ~known].sum()) for then in enough)
    found = anchors(known, cost, 0, wanted, classes=classes)
    assert (found.cost, found.anchors) == (best, full)
    budget = float(best // 2)
    most = max(covered(then, 0, wanted, classes) for then in choices(known) if cost[then & ~known].sum() <= budget)
    within = anchors(known, cost, 0, wanted, classes=classes, budget=budget)
    assert within.cost <= budget
    assert within.anchors == most
    rule = anchors_greedy(known, cost, 0, wanted, budget, classes=classes)
    assert rule.cost <= budget
    assert rule.anchors <= most


@pytest.mark.parametrize("seed", range(MANY))
def test_the_greedy_choice_keeps_its_promise(seed: int) -> None:
    """Equal costs and a reference that is measured everywhere: at least 1 - 1/e of the best."""
    known, _ = draw(seed)
    known[:, 0] = True
    cost = np.ones(known.shape)
    start = covered(known, 0, 2)
    best = anchors(known, cost, 0, 2, budget=2.0).anchors - start
    assert anchors_greedy(known, cost, 0, 2, 2.0).anchors - start >= (1 - 1 / np.e) * best


def test_bad_input() -> None:
    with pytest.raises(InputError, match="expected the same"):
        connecting([[True, False]], [[1.0]])
    with pytest.raises(InputError, match="leaves 2 parts"):
        connecting([[True, False]], [[1.0, np.inf]])
    with pytest.raises(InputError, match="below 0"):
        connecting([[True, False]], [[1.0, -1.0]])
    with pytest.raises(InputError, match="ask for fewer"):
        anchors([[True, False]], [[1.0, np.inf]], 0, 1)
    with pytest.raises(InputError, match="expected a type"):
        anchors([[True, False]], [[1.0, 1.0]], 5, 1)
