"""Plans with one thing changed, as a slip of the pen would: a number, a name, an entry left out, repeated or exchanged.

Made from the plan as its file tells it, so that whatever a question's plans consist of is changed, without knowing what it means.
Whether a changed plan is wrong is not known here: some are as good as the plan was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hetopt import InputError, Instance, Solution

__all__ = ["slips"]


def slips(instance: Instance, plan: Solution, seed: int, count: int) -> list[Solution | str]:
    """Up to ``count`` of all plans with one thing changed; the sentence instead of the plan where reading refuses it."""
    told = plan.to_json(instance)
    words = sorted({*instance.device_names, *_words(told)})
    every = [other for other in _changed(told, words) if other != told]
    chosen = np.random.default_rng(seed).permutation(len(every))[:count]
    found: list[Solution | str] = []
    for k in sorted(chosen.tolist()):
        try:
            found.append(Solution.from_json(instance, every[k]))
        except InputError as error:
            found.append(str(error))
    return found


def _words(value: Any) -> set[str]:
    """Every text that a plan holds, names of keys not among them."""
    if isinstance(value, dict):
        return set().union(*map(_words, value.values()))
    if isinstance(value, list):
        return set().union(*map(_words, value))
    return {value} if isinstance(value, str) else set()


def _changed(value: Any, words: list[str]) -> Iterator[Any]:
    """The value with one thing in it changed, in every way."""
    if isinstance(value, bool) or value is None:
        yield not value
    elif isinstance(value, (int, float)):
        yield from (value + 1, value - 1, value * 1.125, value * 0.875, 2 * value, 0, -value)
    elif isinstance(value, str):
        yield from (None, *words)
    elif isinstance(value, dict):
        for key in value:
            yield {other: one for other, one in value.items() if other != key}
        for a, b in zip(value, list(value)[1:], strict=False):
            yield {**value, a: value[b], b: value[a]}
        for key, one in value.items():
            yield from ({**value, key: other} for other in _changed(one, words))
    elif isinstance(value, list):
        for k in range(len(value)):
            yield value[:k] + value[k + 1 :]
            yield [*value[: k + 1], *value[k:]]
        for k in range(len(value) - 1):
            yield [*value[:k], value[k + 1], value[k], *value[k + 2 :]]
        for k, one in enumerate(value):
            yield from ([*value[:k], other, *value[k + 1 :]] for other in _changed(one, words))
