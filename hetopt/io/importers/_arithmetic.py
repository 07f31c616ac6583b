"""Arithmetic operations of the usual operators from the shapes they work on; a multiply-add counts two.

What is not dense linear algebra counts little: one operation a result, or what the table says. That is below what its memory
traffic costs on every device of the catalogue, so that the roofline's time hardly depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

__all__ = ["attention", "contraction", "convolution", "elements", "matrix_product", "recurrent", "spread"]

Shape = Sequence[int]


def elements(shape: Shape) -> int:
    """Number of elements."""
    return math.prod(shape)


def matrix_product(left: Shape, result: Shape) -> float:
    """Result elements times the length of the sum, which is the last dimension of the left factor."""
    return 2.0 * elements(result) * (left[-1] if left else 1)


def convolution(weight: Shape, result: Shape) -> float:
    """Each result is a sum over a filter: the weight's dimensions but the first, groups already divided out."""
    return 2.0 * elements(result) * elements(weight[1:])


def spread(source: Shape, weight: Shape) -> float:
    """Transposed convolution: each source element is spread over a filter."""
    return 2.0 * elements(source) * elements(weight[1:])


def attention(query: Shape, key: Shape, result: Shape) -> float:
    """Scores and weighted sum over all keys; masks save nothing."""
    length = key[-2] if len(key) > 1 else 1
    return 2.0 * length * (elements(query) + elements(result))


def recurrent(source: Shape, weights: Sequence[Shape]) -> float:
    """Every weight matrix is used once for each step and sequence."""
    return 2.0 * elements(source[:2]) * sum(elements(shape) for shape in weights)


def contraction(equation: str, sources: Sequence[Shape], result: Shape) -> float:
    """An Einstein sum: result elements times the lengths of the indices that are summed over."""
    left, _, right = equation.replace(" ", "").partition("->")
    length: dict[str, int] = {}
    for term, shape in zip(left.split(","), sources, strict=False):
        before, dots, after = term.partition("...")
        length |= dict(zip(before, shape, strict=False))
        if dots and after:
            length |= dict(zip(reversed(after), reversed(shape), strict=False))
    return 2.0 * elements(result) * _summed(length, right)


def _summed(length: Mapping[str, int], kept: str) -> int:
    return math.prod(size for index, size in length.items() if index not in kept)
