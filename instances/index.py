"""Keep ``index.json``: size, digest, question and best known answer of each committed instance.

    python instances/index.py                              refresh sizes and digests, keep what is known of each instance
    python instances/index.py --solve [SECONDS] [FILE...]  solve as well, and keep the better value and the better bound

A value is one of a verified plan, recomputed from the instance; a bound has the word of its proof beside it (``replayed`` or
``algorithm``: proved here; ``solver``: the solver's word). What is known is dropped when the digest or the question changes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import hetopt
from hetopt.io.atomic import atomic_write

FOLDER = Path(__file__).resolve().parent
INDEX = FOLDER / "index.json"
SECONDS = 60.0

UNKNOWN = {
    "objective": None,
    "method": None,
    "bound": None,
    "bound_proof": "none",
    "bound_method": None,
    "optimal": False,
}
STRENGTH = ("none", "solver", "algorithm", "replayed")


def files() -> list[str]:
    """Names of the committed instances, below this folder."""
    return sorted(str(path.relative_to(FOLDER).as_posix()) for path in FOLDER.glob("*/*.json"))


def facts(file: str) -> dict[str, Any]:
    """What is said of an instance without solving it."""
    instance = hetopt.read(FOLDER / file)
    return {
        "name": instance.name,
        "file": file,
        "digest": instance.digest,
        "tasks": instance.n_tasks,
        "devices": instance.n_devices,
        "edges": len(instance.edges),
        "question": dict(instance.question),
    }


def better(known: dict[str, Any], result: hetopt.Result) -> dict[str, Any]:
    """What is known after a run: the better value, the better bound (at equal bounds, the better proof)."""
    known = dict(known)
    sign = 1 if result.sense == "min" else -1
    value = result.objective if result.verified else None
    if value is not None and (known["objective"] is None or sign * value < sign * known["objective"]):
        known |= {"objective": value, "method": result.method.partition(",")[0]}
    if result.bound is not None:
        rank = (sign * result.bound, STRENGTH.index(result.bound_proof))
        if known["bound"] is None or rank > (sign * known["bound"], STRENGTH.index(known["bound_proof"])):
            method = result.method.rpartition("bound by ")[2]
            known |= {"bound": result.bound, "bound_proof": result.bound_proof, "bound_method": method}
    if known["objective"] is not None and known["bound"] is not None:
        known["optimal"] = sign * (known["objective"] - known["bound"]) <= result.tolerance * abs(known["objective"])
    return known


def save(entries: list[dict[str, Any]]) -> None:
    """Write the index, an instance a line."""
    text = ",\n".join(json.dumps(entry) for entry in entries)
    atomic_write(INDEX, f"[\n{text}\n]\n")


def main(arguments: list[str]) -> int:
    """Refresh the index, solving when asked to."""
    before = {entry["file"]: entry for entry in json.loads(INDEX.read_text())} if INDEX.exists() else {}
    solving = arguments[:1] == ["--solve"]
    rest = arguments[1:] if solving else []
    limit = float(rest.pop(0)) if rest and rest[0].replace(".", "").isdigit() else SECONDS
    entries = []
    for file in files():
        entry = facts(file)
        old = before.get(file, {})
        same = all(old.get(key) == entry[key] for key in ("digest", "question"))
        entries.append(entry | {key: old.get(key, value) if same else value for key, value in UNKNOWN.items()})
    save(entries)
    for entry in entries if solving else []:
        if not entry["optimal"] and (not rest or entry["file"] in rest):
            entry |= better(entry, hetopt.solve(hetopt.read(FOLDER / entry["file"]), time_limit=limit))
            save(entries)
            print(f"{entry['file']}: {entry['objective']} (bound {entry['bound']})", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
