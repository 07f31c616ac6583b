"""A question about an instance: its objective and options, each checked and with its default filled in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hetopt.control import Control
from hetopt.errors import InputError, nearest
from hetopt.instance import Instance

if TYPE_CHECKING:
    from hetopt.formulation.problem import Problem

__all__ = ["Option", "Question"]


_WORDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}


@dataclass(frozen=True)
class Option:
    """One option of a question, such as ``contiguous``.

    ``kind`` is a type (bool, int, float, str, list, dict) or a tuple of allowed strings; ``default`` holds when the
    question is silent; ``aliases`` are other words for some choices.
    """

    name: str
    kind: type | tuple[str, ...]
    default: Any
    help: str
    aliases: Mapping[str, str] = field(default_factory=dict)

    def check(self, value: Any) -> Any:
        """``value`` in the option's type; InputError when it is not.

        Text from a command line is read as the option's type.
        """
        if value is None and self.default is None:
            return None
        if isinstance(self.kind, tuple):
            if isinstance(value, bool):
                value = str(value).lower()
            value = self.aliases.get(value, value) if isinstance(value, str) else value
            if value not in self.kind:
                raise InputError(
                    f"$.question.{self.name} is {value!r}; {nearest(str(value), self.kind, what='the choices')}"
                )
            return value
        if isinstance(value, str) and self.kind is not str:
            value = _parsed(value)
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            try:
                value = float(value)
            except OverflowError:
                raise InputError(f"$.question.{self.name} is beyond 1e308, expected a smaller number") from None
        if not isinstance(value, self.kind) or (isinstance(value, bool) and self.kind is not bool):
            raise InputError(f"$.question.{self.name} is {value!r}, expected {_WORDS[self.kind]}")
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(
                f"$.question.{self.name} is {value!r}, expected a finite number; leave it out for no limit"
            )
        return value


@dataclass(frozen=True)
class Question(Mapping[str, Any]):
    """A problem's question about one instance: objective, and every option with its value (defaults filled in)."""

    problem: Problem
    objective: str
    options: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.options[name]

    def __iter__(self) -> Any:
        return iter(self.options)

    def __len__(self) -> int:
        return len(self.options)

    def prove(self, instance: Instance, control: Control, certificate: dict[str, Any]) -> float:
        """Replay a certificate, then report the bound it proves: what is called replayed has been. Returns the bound.

        Raises
        ------
        ValueError
            The certificate does not hold.
        """
        bound = self.problem.replay(instance, self, certificate)
        control.report_bound(bound, "replayed", certificate)
        return bound

    def to_json(self) -> dict[str, Any]:
        """``{"objective": ..., option: value, ...}``, as in an instance file."""
        return {"objective": self.objective, **self.options}


def _parsed(text: str) -> Any:
    """A command line's word as JSON where it is JSON (numbers, true, false, lists), else the word itself."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
