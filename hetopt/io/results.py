"""Read and write ``hetopt-result/1`` files, and the object that ``--json`` prints."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hetopt.errors import InputError, nearest
from hetopt.instance import Instance
from hetopt.io.atomic import atomic_write
from hetopt.io.instances import load_bytes
from hetopt.records import FORMAT
from hetopt.result import RESULT_FORMAT, TOLERANCE, Result
from hetopt.solution import Solution
from hetopt.versions import machine, versions

__all__ = ["decode_result", "encode_result", "read_result", "summary", "write_result"]

# Derived when read back, so that a file cannot claim them.
_DERIVED = ("status", "gap")
_REASONS = ("finished", "infeasible", "limit", "interrupted", "error")
_PROOFS = ("none", "replayed", "algorithm", "solver")


def summary(result: Result, instance: Instance | None) -> dict[str, Any]:
    """The object that ``--json`` prints: the answer, without the record of the run; without an instance, without the plan."""
    return {
        "status": result.status,
        "objective": result.objective,
        "bound": result.bound,
        "gap": result.gap,
        "bound_proof": result.bound_proof,
        "verified": result.verified,
        "method": result.method,
        "solver": result.solver,
        "seconds": round(result.seconds, 6),
        "instance": {"name": result.instance_name, "digest": result.instance_digest},
        "solution": result.solution.to_json(instance) if result.solution is not None and instance is not None else None,
        "problem": result.problem,
        "sense": result.sense,
        "question": dict(result.question),
        "reason": result.reason,
        "limit": result.limit,
        "infeasible": list(result.infeasible),
        "messages": list(result.messages),
        "evaluation": dict(result.evaluation),
    }


def encode_result(result: Result, instance: Instance) -> bytes:
    """Text of a result file: everything in :func:`summary`, plus the proof and the record of the run."""
    record = {
        "format": RESULT_FORMAT,
        **summary(result, instance),
        "method_why": result.method_why,
        "cpu_seconds": round(result.cpu_seconds, 6),
        "asked_gap": result.asked_gap,
        "tolerance": result.tolerance,
        "certificate": result.certificate,
        "run": dict(result.run),
        "versions": versions(),
        "machine": machine(),
        "trajectory": [list(entry) for entry in result.trajectory],
    }
    return msgspec.json.encode(plain(record)) + b"\n"


def write_result(result: Result, instance: Instance, path: str | Path) -> None:
    """Write a result file whole or not at all."""
    atomic_write(path, encode_result(result, instance))


def read_result(path: str | Path, instance: Instance) -> Result:
    """Read a result file that belongs to ``instance``. What it says is a claim; :func:`hetopt.verify` checks it.

    Raises
    ------
    InputError
        The file cannot be read or decoded, has another format tag, names tasks or devices that the instance lacks, or
        states a status that does not follow from the rest of it. That the digest differs is left to the verifier to say.
    """
    try:
        return decode_result(load_bytes(path), instance)
    except InputError as error:
        if str(error).startswith("cannot read"):
            raise
        raise InputError(f"{path}: {error}") from error


def decode_result(data: bytes, instance: Instance) -> Result:
    """Result from the text of a file; raises InputError as :func:`read_result` does."""
    try:
        record = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"$ is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise InputError(f"$ is {type(record).__name__}, expected an object")
    if record.get("format") != RESULT_FORMAT:
        hint = "; the instance comes before the result" if record.get("format") == FORMAT else ""
        raise InputError(f"$.format is {record.get('format')!r}, expected {RESULT_FORMAT!r}{hint}")
    known = {part.name for part in fields(Result)} | {"format", "instance", "versions", "machine", *_DERIVED}
    for key in record:
        if key not in known:
            raise InputError(f"$ has the unknown key {key!r}; {nearest(key, known, what='the keys')}")
    about = _typed(record, "instance", dict, {})
    solution = record.get("solution")
    result = Result(
        problem=_typed(record, "problem", str, ""),
        question=_typed(record, "question", dict, {}),
        sense=_choice(record, "sense", ("min", "max")),
        reason=_choice(record, "reason", _REASONS),
        limit=_typed(record, "limit", str, None),
        solution=None if solution is None else Solution.from_json(instance, solution),
        objective=_number(record, "objective", None),
        bound=_number(record, "bound", None),
        bound_proof=_choice(record, "bound_proof", _PROOFS),
        certificate=_typed(record, "certificate", dict, None),
        verified=_typed(record, "verified", bool, False),
        infeasible=tuple(map(str, _typed(record, "infeasible", list, []))),
        method=_typed(record, "method", str, ""),
        method_why=_typed(record, "method_why", str, ""),
        solver=_typed(record, "solver", str, None),
        seconds=_number(record, "seconds", 0.0),
        cpu_seconds=_number(record, "cpu_seconds", 0.0),
        instance_name=str(about.get("name", "")),
        instance_digest=str(about.get("digest", "")),
        asked_gap=_number(record, "asked_gap", 0.0),
        tolerance=_number(record, "tolerance", TOLERANCE),
        messages=tuple(map(str, _typed(record, "messages", list, []))),
        evaluation=_typed(record, "evaluation", dict, {}),
        run=_typed(record, "run", dict, {}),
        trajectory=tuple(_event(record, k) for k in range(len(_typed(record, "trajectory", list, [])))),
    )
    if record.get("status", result.status) != result.status:
        raise InputError(f"$.status is {record['status']!r}, but what else the file says makes it {result.status!r}")
    return result


def plain(value: Any) -> Any:
    """JSON data from numpy scalars, arrays and tuples; a number that JSON lacks (inf, nan) becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _typed(record: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = record.get(key)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise InputError(f"$.{key} is {type(value).__name__}, expected {kind.__name__}")
    return value


def _number(record: Mapping[str, Any], key: str, default: Any) -> Any:
    return default if record.get(key) is None else _real(record[key], f"$.{key}")


def _real(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise InputError(f"{path} is {value!r:.40}, expected a finite number")
    return float(value)


def _event(record: Mapping[str, Any], k: int) -> tuple[float, float | None, float | None]:
    entry, path = record["trajectory"][k], f"$.trajectory[{k}]"
    if not isinstance(entry, list) or len(entry) != 3:
        raise InputError(f"{path} is {entry!r:.40}, expected [seconds, objective, bound]")
    seconds, objective, bound = (None if value is None else _real(value, path) for value in entry)
    return seconds or 0.0, objective, bound


def _choice(record: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> Any:
    value = record.get(key, choices[0])
    if value not in choices:
        raise InputError(f"$.{key} is {value!r}, expected one of {', '.join(choices)}")
    return value
