"""PuLP in a child process: the door to CBC and to every solver PuLP knows.

PuLP is never imported here. It loads HiGHS's library into the process in a way that has crashed other solvers, it writes
scratch files, and a solver it starts may die; so it works in a child with a private folder, and a crash is an error
message. Standard output of the child goes to the log file or nowhere.

``native={"solver": "HiGHS"}`` names one of PuLP's solvers (:func:`installed` lists the usable ones); by default CBC is
taken where there is one. The other native options are arguments of that solver's class in PuLP.

PuLP 3.3 calls a run that ended at its time limit "Optimal". The second status it keeps tells these runs apart, and a run
that used up its time without a bound that meets the value is never called optimal here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.linear import LinearModel
from hetopt.solvers.adapter import Adapter
from hetopt.solvers.base import Answer, Capability, Options, SolverError, Verdict
from hetopt.solvers.watch import VERDICTS, Watch

__all__ = ["STATUS", "Pulp", "installed", "solve"]

STATUS: dict[str, Verdict] = {
    # PuLP 3: LpStatus and LpSolution. "Not Solved" comes with "no solution exists", which it does not mean.
    "Optimal, optimal solution found": ("optimal", None),
    "Optimal, solution found": ("limit", "other"),
    "Not Solved, no solution found": ("limit", "other"),
    "Not Solved, no solution exists": ("limit", "other"),
    "Not Solved, solution found": ("limit", "other"),
    "Infeasible, no solution found": ("infeasible", None),
    "Infeasible, no solution exists": ("infeasible", None),
    "Unbounded, solution is unbounded": ("unbounded", None),
    "Unbounded, no solution found": ("unbounded", None),
    "Undefined, no solution found": ("limit", "other"),
    "Undefined, no solution exists": ("limit", "other"),
    # PuLP 4: LpSolveStatus
    "NotSolved": ("limit", "other"),
    "Optimal": ("optimal", None),
    "Infeasible": ("infeasible", None),
    "Unbounded": ("unbounded", None),
    "Undefined": ("limit", "other"),
    "TimeLimit": ("limit", "time"),
    "MemoryLimit": ("limit", "memory"),
    "NodeLimit": ("limit", "nodes"),
    "GapLimit": ("limit", "gap"),
    "IterationLimit": ("limit", "iterations"),
    "SolutionLimit": ("limit", "other"),
    "Interrupted": ("interrupted", None),
    "Stopped": ("limit", "other"),
    "NumericalError": ("error", None),
}

PATIENCE = 2.0  # seconds after the deadline in which the child may hand over what its solver found


class Pulp(Adapter):
    """Linear and mixed-integer models by PuLP's solvers, in a child process."""

    name: ClassVar[str] = "pulp"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(("lp", "mip", "hint", "interrupt", "deterministic"))
    package: ClassVar[str] = "pulp"
    distribution: ClassVar[str] = "PuLP"
    status_table: ClassVar[Mapping[str, Verdict]] = STATUS

    def run(self, model: LinearModel, options: Options, watch: Watch) -> Answer:
        """Write the request, wait for the child, translate its answer; see :meth:`Adapter.solve`."""
        request = {
            "maximize": model.sense == "max",
            "deadline": None if watch.remaining is None else time.time() + watch.remaining,
            "relative_gap": options.relative_gap,
            "threads": 1 if options.deterministic else options.threads,
            "seed": options.seed,
            "log": options.log_file is not None,
            "native": dict(options.native),
        }
        arrays = _arrays(model)
        if options.hint is not None:
            arrays["hint"] = np.asarray(options.hint, np.float64)
        answer, x = _ask(request, arrays, options.log_file, watch)
        if answer is None:
            reason, limit = VERDICTS[watch.cause or "interrupted"]
            return Answer(reason, self.name, self.version(), "child ended", limit)
        return self._translated(answer, x, model, options, watch)

    def _translated(self, answer: dict[str, Any], x: Any, model: LinearModel, options: Options, watch: Watch) -> Answer:
        word, bound = str(answer["status"]), answer["bound"]
        reason, limit = self.verdict(word)
        if reason == "error":
            raise SolverError(f"pulp {self.version()} failed: {answer['solver']} ended with {word}")
        late = watch.remaining is not None and watch.remaining <= 0.05 * answer["seconds"]
        if bound is not None:
            bound += model.offset
        if reason == "optimal" and bound is None:
            if model.is_mip and options.relative_gap > 0:
                reason, limit = "limit", "gap"  # within the gap asked for, but of an unknown bound
            elif model.is_mip and late:
                reason, limit = "limit", "time"
            elif x is not None:
                bound = model.objective(x)
        if (reason, limit) == ("limit", "other") and late:
            limit = "time"
        status = f"{word} ({answer['solver']})"
        told = Answer(reason, self.name, self.version(), status, limit, notes=tuple(answer["notes"]))
        if reason == "infeasible" and word != "Infeasible":
            reason = "infeasible_or_unbounded"  # PuLP 3 has one word for both
        reason = self.told_apart(reason, model, options, watch)
        if reason in ("infeasible", "unbounded", "infeasible_or_unbounded"):
            return replace(told, reason=reason)
        return replace(told, x=x, bound=bound)


def solve(model: LinearModel, options: Options | None = None, control: Control | None = None) -> Answer:
    """Solve a linear model with PuLP; see :meth:`Adapter.solve`."""
    return Pulp().solve(model, options, control)


def installed() -> list[str]:
    """Names of PuLP's solvers that can be used on this machine; starts a child process to ask.

    Raises
    ------
    SolverError
        PuLP is not installed or cannot be imported.
    """
    Pulp().require("lp", "a question about PuLP's solvers")
    answer, _ = _ask({"list": True}, {}, None, Watch())
    return list(answer["solvers"]) if answer else []


def _arrays(model: LinearModel) -> dict[str, np.ndarray[Any, Any]]:
    """The model without rows that have no entries: CBC fails on them, and here they say nothing any more."""
    kept = np.diff(model.matrix.indptr) > 0
    a = model.matrix[kept]
    return {
        "indptr": a.indptr,
        "indices": a.indices,
        "data": a.data,
        "lower": model.lower,
        "upper": model.upper,
        "integrality": model.integrality,
        "cost": model.cost,
        "row_lower": model.row_lower[kept],
        "row_upper": model.row_upper[kept],
    }


def _ask(
    request: dict[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]], log_file: str | None, watch: Watch
) -> tuple[dict[str, Any] | None, Any]:
    """The child's answer and point; (None, None) when it was ended because the watch said so."""
    with tempfile.TemporaryDirectory(prefix="hetopt-pulp-") as name:
        folder = Path(name)
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        np.savez(folder / "model.npz", **arrays)  # type: ignore[arg-type]
        with open(log_file or os.devnull, "wb") as log, open(folder / "errors.txt", "w+b") as errors:
            with _child(folder, log, errors) as process:
                try:
                    ended = _wait(process, watch)
                finally:
                    _kill(process)  # also when it ended by itself: a child that was killed leaves its solver running
            said = (folder / "errors.txt").read_text(encoding="utf-8", errors="replace")
        if ended:
            return None, None
        try:
            answer: dict[str, Any] = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise SolverError(_post_mortem(process.returncode, said)) from None
        if "refused" in answer:
            raise InputError(answer["refused"])
        point = folder / "x.npy"
        return answer, np.load(point, allow_pickle=False) if point.exists() else None


def _child(folder: Path, log: Any, errors: Any) -> subprocess.Popen[bytes]:
    """Start the child in a process group of its own; its scratch files go to the private folder."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", "hetopt.solvers._pulp_child", str(folder)],
        stdin=subprocess.PIPE,  # stays open; its end tells the child that this process is gone
        stdout=log,
        stderr=errors,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)},
        start_new_session=True,
    )


def _wait(process: subprocess.Popen[bytes], watch: Watch) -> bool:
    """Wait for the child, which is not reaped; False when it ended by itself, True when the watch stopped."""
    give_up = None
    while not _ended(process):
        time.sleep(0.01)
        if watch.stopped:
            patience = PATIENCE if watch.cause == "time" else 0.0
            give_up = give_up or time.monotonic() + patience
            if time.monotonic() >= give_up:
                return True
    return False


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the child has ended. Until it is reaped no other process gets its number, which names its group too."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the child, the solver it started and whatever else is in their group, and reap the child."""
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except (
        ProcessLookupError,
        PermissionError,
    ):  # nobody left; some systems say so of a group of zombies in other words
        pass
    process.wait()


def _post_mortem(code: int, said: str) -> str:
    """A sentence about a child that left no answer."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "unknown"
        hint = "; the machine may be out of memory" if name == "SIGKILL" else ""
        return f"pulp's process was killed by signal {-code} ({name}) before it could answer{hint}"
    lines = [line for line in said.splitlines() if line.strip()]
    return f"pulp's process ended with code {code} and no answer: {lines[-1] if lines else 'it said nothing'}"
