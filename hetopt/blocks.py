"""Named blocks of columns or rows: a row is read back as ``memory[gpu1]``, a column as ``x[layer3,gpu1]``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["Block", "Blocks", "Labels"]

Labels = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Block:
    """Consecutive columns or rows that share a name.

    Attributes
    ----------
    name
        The block's name, for example ``"memory"``.
    start
        Index of its first column or row.
    shape
        Shape of the block; ``()`` for a single column or row.
    labels
        One sequence of labels per axis, or None for plain numbers.
    """

    name: str
    start: int
    shape: tuple[int, ...]
    labels: Labels | None = None

    @property
    def indices(self) -> NDArray[np.int64]:
        """Indices of its columns or rows, in its shape."""
        return np.arange(self.start, self.start + self.size, dtype=np.int64).reshape(self.shape)

    @property
    def size(self) -> int:
        """Number of columns or rows in the block."""
        return int(np.prod(self.shape, dtype=np.int64))

    def label(self, index: int) -> str:
        """Readable name of the block's element ``index`` (0 <= index < size), such as ``x[layer3,gpu1]``."""
        if not self.shape:
            return self.name
        where = np.unravel_index(index, self.shape)
        axes = self.labels or [range(k) for k in self.shape]
        return f"{self.name}[{','.join(str(axis[int(k)]) for axis, k in zip(axes, where, strict=True))}]"

    def names(self) -> list[str]:
        """Readable names of all elements in order."""
        if not self.shape:
            return [self.name]
        axes = self.labels or [range(k) for k in self.shape]
        return [f"{self.name}[{','.join(where)}]" for where in product(*([str(v) for v in axis] for axis in axes))]


class Blocks(Sequence[Block]):
    """The blocks of a model's columns, or of its rows (``what``), one after the other; their names are unique."""

    def __init__(self, what: str, blocks: Iterable[Block] = ()) -> None:
        self.what = what
        self._blocks = list(blocks)

    @overload
    def __getitem__(self, index: int) -> Block: ...

    @overload
    def __getitem__(self, index: slice) -> list[Block]: ...

    def __getitem__(self, index: int | slice) -> Block | list[Block]:
        return self._blocks[index]

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def size(self) -> int:
        """Number of columns or rows in all blocks."""
        return self._blocks[-1].start + self._blocks[-1].size if self._blocks else 0

    def next(self, name: str, shape: int | tuple[int, ...], labels: Labels | None) -> Block:
        """The block that would follow the others; it is not one of them yet (:meth:`append`).

        Raises
        ------
        ValueError
            Another block has this name, or the labels do not fit the shape.
        """
        if any(block.name == name for block in self._blocks):
            raise ValueError(f"the model already has a {self.what} block named {name!r}; block names are unique")
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if labels is not None and [len(axis) for axis in labels] != list(shape):
            raise ValueError(
                f"labels of block {name!r} have lengths {[len(axis) for axis in labels]}, the block has shape {shape}"
            )
        return Block(name, self.size, shape, labels)

    def append(self, block: Block) -> None:
        """Take a block in that :meth:`next` made."""
        self._blocks.append(block)

    def copy(self) -> Blocks:
        """The same blocks, to which others can be added."""
        return Blocks(self.what, self._blocks)

    def name(self, index: int) -> str:
        """Readable name of column or row ``index``; IndexError when there is none."""
        starts = [block.start for block in self._blocks]
        k = int(np.searchsorted(starts, index, side="right")) - 1
        while k >= 0 and self._blocks[k].size == 0:
            k -= 1
        if k < 0 or not 0 <= index - self._blocks[k].start < self._blocks[k].size:
            raise IndexError(f"the model has no {self.what} {index}")
        return self._blocks[k].label(index - self._blocks[k].start)

    def names(self) -> list[str]:
        """Readable names of all columns or rows in order."""
        return [name for block in self._blocks for name in block.names()]

    def indices(self, name: str) -> NDArray[np.int64]:
        """Indices of the block ``name``, in its shape; KeyError that lists the blocks when there is none."""
        for block in self._blocks:
            if block.name == name:
                return block.indices
        there = ", ".join(block.name for block in self._blocks) or "none"
        raise KeyError(f"the model has no {self.what} block {name!r}; it has {there}")
