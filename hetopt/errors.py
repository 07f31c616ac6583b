"""Errors that are meant for the user: each message is a sentence that says what, where, what was expected and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["InputError", "VerificationError", "nearest"]


LONGEST = 1500
"""Characters of a message; a longer one quotes something endless, and loses its middle."""
_MOST = 24  # names that a sentence lists


def _line(message: str) -> str:
    """One line that a terminal prints as it stands: what is not printable (it may be quoted from a file) as its escape."""
    half = LONGEST // 2
    short = message if len(message) <= LONGEST else f"{message[:half]} ... {message[-half:]}"
    if short.isprintable():
        return short
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in short)


class InputError(ValueError):
    """Bad input or usage: a file, a flag or an argument that cannot be right. The command line exits with 1."""

    def __init__(self, message: str) -> None:
        super().__init__(_line(message))


class VerificationError(ValueError):
    """A plan breaks a constraint, a claimed value is wrong, or a stored bound does not replay.

    Attributes
    ----------
    violations
        Every violation found, as sentences; the first is the message.
    """

    def __init__(self, violations: Iterable[str]) -> None:
        self.violations = tuple(violations)
        more = len(self.violations) - 1
        super().__init__(self.violations[0] + (f" (and {more} more)" if more > 0 else ""))


def nearest(word: str, known: Iterable[str], *, what: str = "known") -> str:
    """End of an error sentence that names the known word nearest to ``word``, or lists what there is.

    Examples
    --------
    >>> nearest("makspan", ["makespan", "throughput"])
    "did you mean 'makespan'?"
    """
    names = sorted(set(known))
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    if not names:
        return "there are none"
    shown = ", ".join(names[:_MOST]) + (", ..." if len(names) > _MOST else "")
    return f"{what} are: {shown}"
