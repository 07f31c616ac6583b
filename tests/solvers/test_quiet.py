"""Nothing a solver prints reaches standard output, seen from outside the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hetopt import solvers

ROOT = Path(__file__).resolve().parents[2]


def run(code: str) -> str:
    """What a Python process with this code writes to its standard output."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "solvers")])}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_solver_prints_to_standard_output():
    """All in one process: constructed, run, failed, and with native options that ask for output."""
    said = run("""
from solver_cases import CASES
from hetopt import solvers
from hetopt.solvers import Options
for name in solvers.with_capability():
    adapter = solvers.get(name)
    for case in CASES:
        if case.name in ("knapsack", "two-rows-max", "infeasible"):
            try:
                adapter.solve(case.model)
            except solvers.SolverError:
                pass
try:
    solvers.highs.iis(next(case.model for case in CASES if case.name == "infeasible"))
finally:
    print("done")
""")
    assert said == "done\n"


@pytest.mark.skipif("highs" not in solvers.with_capability("lp"), reason="HiGHS is not installed")
def test_the_banner_is_real_so_that_the_test_above_means_something():
    assert "HiGHS" in run("import highspy; highspy.Highs()")


def test_blocks_nest_and_the_last_one_out_restores():
    said = run("""
import os
from hetopt.solvers.quiet import quiet
print("before", flush=True)
with quiet() as real:
    os.write(1, b"lost 1\\n")
    with quiet():
        print("lost 2")
    os.write(1, b"lost 3\\n")
    os.write(real, b"kept\\n")
print("after", flush=True)
try:
    with quiet():
        raise KeyError
except KeyError:
    print("restored")
""")
    assert said == "before\nkept\nafter\nrestored\n"


def test_blocks_that_overlap_in_threads():
    said = run("""
import os, threading
from hetopt.solvers.quiet import quiet
inside, leave = threading.Event(), threading.Event()
def other():
    with quiet():
        inside.set()
        leave.wait()
thread = threading.Thread(target=other)
thread.start()
inside.wait()
with quiet():
    pass
os.write(1, b"lost\\n")
leave.set()
thread.join()
os.write(1, b"kept\\n")
""")
    assert said == "kept\n"


def test_a_solver_left_behind_does_not_keep_standard_output():
    """Its block is still open when the run is over, and closes later without harm."""
    said = run("""
import os, threading
from hetopt.solvers import Options, watch
from hetopt.solvers.quiet import quiet
watch.GRACE = 0.1
leave, left = threading.Event(), threading.Event()
def work(look):
    with quiet():
        leave.wait()
    left.set()
watch.supervise(work, Options(), 0.1, None, ("fake", "1"))
os.write(1, b"kept\\n")
with quiet():
    leave.set()
    left.wait()
    os.write(1, b"lost\\n")
os.write(1, b"kept too\\n")
""")
    assert said == "kept\nkept too\n"


def test_output_can_go_to_another_descriptor(tmp_path):
    path = tmp_path / "out.txt"
    run(f"""
import os
from hetopt.solvers.quiet import quiet
with open({str(path)!r}, "w") as file, quiet(file.fileno()):
    os.write(1, b"moved\\n")
""")
    assert path.read_text() == "moved\n"


def test_a_process_without_standard_output_is_not_disturbed():
    said = run("""
import os
from hetopt.solvers.quiet import quiet
keep = os.dup(1)
os.close(1)
with quiet() as real:
    os.write(keep, repr(real).encode())
""")
    assert said == "None"
