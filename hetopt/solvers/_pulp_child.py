"""The process PuLP lives in: reads a model from a folder, solves it, leaves the answer there.

    python -m hetopt.solvers._pulp_child FOLDER

``FOLDER`` holds ``request.json`` and ``model.npz``; ``answer.json`` and, where there is a point, ``x.npy`` are written
beside them. It works with PuLP 3.3, whose variables live on their own, and with PuLP 4, whose variables belong to
a problem. The process ends itself when its parent is gone: that is seen as the end of standard input.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from hetopt.errors import InputError
from hetopt.solvers.base import check_native

# Who is asked when nobody is named: CBC where it is there, because HiGHS has an adapter of its own.
PREFERRED = ("PULP_CBC_CMD", "COIN_CMD", "HiGHS")


def main(folder: Path) -> None:
    """Solve the request in ``folder``; every outcome, errors included, is written to ``answer.json``."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    with np.load(folder / "model.npz", allow_pickle=False) as data:
        arrays = {name: data[name] for name in data.files}
    try:
        answer, x = _solve(request, arrays)
    except InputError as error:
        answer, x = {"refused": str(error)}, None
    if x is not None:
        np.save(folder / "x.npy", x, allow_pickle=False)
    part = folder / "answer.part"
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.replace(folder / "answer.json")


def _end_with_parent() -> None:
    """End this process and the solver's own, which share a process group, when standard input ends."""
    os.read(0, 1)
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _solve(request: dict[str, Any], arrays: dict[str, np.ndarray[Any, Any]]) -> tuple[dict[str, Any], Any]:
    import pulp

    if request.get("list"):
        return {"solvers": pulp.listSolvers(onlyAvailable=True)}, None
    solver, notes = _solver(pulp, request, arrays)
    problem, variables = _problem(pulp, request, arrays)
    if solver.optionsDict.get("warmStart"):
        for variable, value in zip(variables, arrays["hint"].tolist(), strict=True):
            variable.setInitialValue(value, check=False)
    started = time.monotonic()
    stats = problem.solve(solver)
    seconds = time.monotonic() - started
    if hasattr(pulp, "LpSolveStatus"):
        word, found = stats.status.name, stats.has_solution
    else:
        word = f"{pulp.LpStatus[problem.status]}, {pulp.LpSolution[problem.sol_status].lower()}"
        found = problem.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
    answer = {
        "status": word,
        "solver": solver.name,
        "seconds": seconds,
        "bound": _bound(problem, stats, request["maximize"]),
        "notes": notes,
    }
    return answer, _point(variables, arrays) if found else None


def _solver(pulp: Any, request: dict[str, Any], arrays: dict[str, np.ndarray[Any, Any]]) -> tuple[Any, list[str]]:
    """The solver object with the common options under the names its constructor knows, and notes on the others."""
    usable = pulp.listSolvers(onlyAvailable=True)
    native = dict(request["native"])
    name = str(native.pop("solver", "") or next((name for name in PREFERRED if name in usable), "any"))
    if name not in usable:
        raise InputError(f"pulp has no solver {name!r} here; it has {', '.join(usable) or 'none'}")
    if name == "CPSAT":
        raise InputError("pulp's CPSAT rounds data and continuous columns without a word; use the solver cpsat")
    parameters = inspect.signature(getattr(pulp, name).__init__).parameters
    free = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    known = [key for key in parameters if key not in ("self", "solverParams")]
    if name == "HiGHS":
        import highspy

        known += [key for key in dir(highspy.HighsOptions()) if not key.startswith("_")]
    if not free or name == "HiGHS":
        check_native(f"pulp's {name}", native, ["solver", *known])
    wishes = {
        "msg": request["log"],
        "gapRel": request["relative_gap"],
        "gapAbs": 0.0,
        "threads": request["threads"],
        "timeLimit": _left(request),
    }
    seed = {"HiGHS": "random_seed", "COIN_CMD": "randomSeed", "PULP_CBC_CMD": "randomSeed"}.get(name)
    if request["seed"] and seed in known:
        wishes[seed] = request["seed"]
    notes = []
    if request["seed"] and seed not in known:
        notes.append(f"pulp's {name} takes no seed; it was ignored")
    if "hint" in arrays:
        if "warmStart" in known and np.isfinite(arrays["hint"]).all():
            wishes["warmStart"] = True
        else:
            notes.append(
                f"pulp's {name} takes complete start hints only"
                if "warmStart" in known
                else f"pulp's {name} takes no start hint; it was ignored"
            )
    if request["relative_gap"] and "gapRel" not in known:
        notes.append(f"pulp's {name} takes no relative gap; it was ignored")
    wishes = {key: value for key, value in wishes.items() if key in known and value is not None}
    return pulp.getSolver(name, **{**wishes, **native}), notes


def _left(request: dict[str, Any]) -> float | None:
    """Seconds until the deadline; building the model has used some of the time."""
    return None if request["deadline"] is None else max(request["deadline"] - time.time(), 0.05)


def _problem(pulp: Any, request: dict[str, Any], arrays: dict[str, np.ndarray[Any, Any]]) -> tuple[Any, list[Any]]:
    """The model in PuLP's terms. PuLP has no two-sided rows, so each side is a row of its own."""
    problem = pulp.LpProblem("hetopt", pulp.LpMaximize if request["maximize"] else pulp.LpMinimize)
    bounds = zip(arrays["lower"].tolist(), arrays["upper"].tolist(), arrays["integrality"].tolist(), strict=True)
    add = problem.add_variable if hasattr(problem, "add_variable") else pulp.LpVariable
    variables = [
        add(f"x{k}", _finite(low), _finite(high), pulp.LpInteger if whole else pulp.LpContinuous)
        for k, (low, high, whole) in enumerate(bounds)
    ]
    expression = getattr(pulp.LpAffineExpression, "from_list", pulp.LpAffineExpression)
    cost = arrays["cost"]
    problem += expression([(variables[k], float(cost[k])) for k in np.flatnonzero(cost)])
    starts, columns, values = (arrays[name].tolist() for name in ("indptr", "indices", "data"))
    sides = zip(arrays["row_lower"].tolist(), arrays["row_upper"].tolist(), strict=True)
    for k, (low, high) in enumerate(sides):
        span = range(starts[k], starts[k + 1])
        pairs = [(variables[columns[e]], values[e]) for e in span]
        if low == high:
            problem += expression(pairs) == low, f"r{k}"
            continue
        if np.isfinite(low):
            problem += expression(pairs) >= low, f"r{k}l"
        if np.isfinite(high):
            problem += expression(pairs) <= high, f"r{k}u"
    return problem, variables


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _bound(problem: Any, stats: Any, maximize: bool) -> float | None:
    """The bound on a MIP where it can be had: from PuLP 4's statistics, or from the HiGHS object PuLP 3 keeps."""
    if not problem.isMIP():
        return None
    bound = getattr(stats, "best_bound", None)
    solver: Any = getattr(problem, "solverModel", None)
    if bound is None and hasattr(solver, "getInfo"):
        minimised = solver.getObjectiveSense()[1].name == "kMinimize"  # PuLP 3 negates the costs of a maximisation
        bound = solver.getInfo().mip_dual_bound * (-1.0 if maximize and minimised else 1.0)
    return float(bound) if bound is not None and np.isfinite(bound) else None


def _point(variables: list[Any], arrays: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """(columns,) values; PuLP leaves out columns that no row and no cost mentions, where any value will do."""
    low, high = arrays["lower"], arrays["upper"]
    anywhere = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, 0.0))
    mentioned = arrays["cost"] != 0
    mentioned[arrays["indices"]] = True
    x = np.array([np.nan if variable.varValue is None else variable.varValue for variable in variables])
    return np.where(np.isnan(x) & ~mentioned, anywhere, x)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
