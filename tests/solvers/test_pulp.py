"""PuLP's child process: honest statuses, a killed child, time that runs out, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from solver_cases import CASES, hard, verify

from hetopt.errors import InputError
from hetopt.solvers import Options, SolverError, pulp

ROOT = Path(__file__).resolve().parents[2]
needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds child processes through /proc")


@pytest.fixture(scope="module")
def solver_names() -> list[str]:
    return pulp.installed()


def children(pid: int) -> list[int]:
    """Child processes of ``pid``, from /proc."""
    found = [
        int(text) for task in Path(f"/proc/{pid}/task").iterdir() for text in (task / "children").read_text().split()
    ]
    return found + [grandchild for child in found for grandchild in children(child)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_pulp_is_never_imported_here():
    """Its copy of HiGHS would crash OR-Tools later; the child's modules are not ours."""
    code = (
        "import sys; sys.path.insert(0, 'tests/solvers'); from solver_cases import CASES\n"
        "from hetopt.solvers import pulp\n"
        "pulp.solve(CASES[0].model); pulp.installed()\n"
        "assert 'pulp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_every_installed_solver_agrees(solver_names):
    """All of PuLP's solvers found on this machine, on a model with a two-sided row, an equality and a free column."""
    assert "HiGHS" in solver_names
    cases = [case for case in CASES if case.name in ("ranges", "mixed")]
    for name in solver_names:
        for case in cases if name != "CPSAT" else []:
            verify(case, pulp.solve(case.model, Options(native={"solver": name})))


def test_a_solver_that_rounds_data_is_refused():
    with pytest.raises(InputError, match=r"pulp's CPSAT rounds data|pulp has no solver 'CPSAT' here"):
        pulp.solve(CASES[0].model, Options(native={"solver": "CPSAT"}))


def test_an_unknown_solver_lists_those_there_are():
    with pytest.raises(InputError, match=r"pulp has no solver 'SOLVEIT' here; it has .*HiGHS"):
        pulp.solve(CASES[0].model, Options(native={"solver": "SOLVEIT"}))


@pytest.mark.parametrize("name", ["HiGHS", "PULP_CBC_CMD", "COIN_CMD"])
def test_a_run_that_used_its_time_up_is_not_called_optimal(name, solver_names):
    """PuLP 3.3 says "Optimal" of each of these."""
    if name not in solver_names:
        pytest.skip(f"{name} is not installed")
    model = hard()
    answer = pulp.solve(model, Options(time_limit=2.5, native={"solver": name}))
    assert (answer.reason, answer.limit) == ("limit", "time")
    assert answer.x is None or model.check(answer.x) == []
    assert answer.bound is None or answer.bound <= 109


def members(group: int) -> list[int]:
    """Processes of a group that run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(words[2]) == group and words[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@needs_proc
def test_a_killed_child_is_an_error_that_says_so_and_its_solver_ends(solver_names):
    own = any("CBC" in name or "COIN" in name for name in solver_names)  # a program of its own, the child's child
    killed: list[int] = []

    def kill() -> None:
        for _ in range(1000):
            found = children(os.getpid())
            if len(found) > own:
                time.sleep(0.2)
                killed.append(found[0])
                os.kill(found[0], signal.SIGKILL)
                return
            time.sleep(0.01)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(SolverError, match=r"pulp's process was killed by signal 9 \(SIGKILL\) before it could answer"):
        pulp.solve(hard(), Options(time_limit=30))
    thread.join()
    for _ in range(500):  # a signal takes effect a moment later
        if not members(killed[0]):
            break
        time.sleep(0.01)
    assert members(killed[0]) == []


@needs_proc
def test_the_child_and_its_solver_end_with_the_parent():
    code = (
        "import sys; sys.path.insert(0, 'tests/solvers'); from solver_cases import hard\n"
        "from hetopt.solvers import Options, pulp\n"
        "pulp.solve(hard(), Options(time_limit=60))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    found: list[int] = []
    for _ in range(1000):
        found = children(parent.pid)
        if found:
            break
        time.sleep(0.01)
    time.sleep(1.0)
    found = children(parent.pid)
    assert found
    parent.kill()
    parent.wait()
    for _ in range(500):
        if not any(alive(pid) for pid in found):
            break
        time.sleep(0.01)
    assert not any(alive(pid) for pid in found)


def test_the_private_folder_is_gone_afterwards_and_nobody_else_could_read_it(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modes: list[int] = []
    start = pulp._child

    def spy(folder, *rest):
        modes.append(folder.stat().st_mode & 0o777)
        return start(folder, *rest)

    monkeypatch.setattr(pulp, "_child", spy)
    verify(CASES[0], pulp.solve(CASES[0].model))
    assert list(tmp_path.iterdir()) == []
    if os.name != "nt":
        assert modes == [0o700]


def test_a_child_that_fails_says_why(monkeypatch):
    monkeypatch.setattr(pulp.sys, "executable", sys.executable)
    monkeypatch.setattr(pulp, "_arrays", lambda model: {"lower": np.zeros(1)})
    with pytest.raises(SolverError, match="ended with code 1 and no answer: KeyError"):
        pulp.solve(CASES[0].model)


def test_columns_that_nothing_mentions_take_a_value_within_their_bounds():
    model = CASES[0].model
    model.continuous("idle", 3, lower=[2, -np.inf, -np.inf], upper=[9, 4, np.inf])
    answer = pulp.solve(model)
    assert answer.reason == "optimal"
    assert model.check(answer.x) == []
