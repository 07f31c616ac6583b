"""What people see: numbers as they read them, progress while a run lasts, nothing where nobody looks."""

from __future__ import annotations

import io
import math
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hetopt
from hetopt import Instance, registry, report
from hetopt.control import Control

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), (3.0, "3"), (-2.0, "-2"), (0.0, "0"), (0.1 + 0.2, "0.3"), (123456789.0, "123456789"),
        (1234567.891, "1234568"), (1e-9, "1e-09"), (1e20, "1e+20"), (math.inf, "inf"),
    ],
)  # fmt: skip
def test_numbers(value, text):
    assert report.number(value) == text


@pytest.mark.parametrize(
    ("gap", "text"), [(None, "-"), (0.0, "0 %"), (0.01234, "1.23 %"), (1e-7, "1e-05 %"), (2.0, "200 %")]
)
def test_gaps(gap, text):
    assert report.percent(gap) == text


class TestResult:
    def shown(self, instance, monkeypatch, **given) -> str:
        out = io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        report.print_result(hetopt.solve(instance, **given), instance, None)
        return out.getvalue()

    def test_names_are_shown_as_they_are(self, monkeypatch):
        """Brackets are no markup, and long names are not cut to pieces."""
        instance = Instance.from_times([[1, 2]], jobs=["[bold]x[/bold]"], devices=["[red]gpu", "cpu:smile:"])
        text = self.shown(instance, monkeypatch)
        assert "[red]gpu" in text
        assert "cpu:smile:" in text

    def test_many_devices_are_summed_up(self, monkeypatch):
        instance = Instance.from_times(np.ones((2, 60)))
        text = self.shown(instance, monkeypatch, method="greedy")
        assert "d39" in text
        assert "... 20 more" in text

    def test_whose_word_a_bound_is(self, monkeypatch):
        instance = Instance.from_times([[3, 1], [2, 4], [2, 2]])
        assert "the word of highs" in self.shown(instance, monkeypatch, method="milp")
        assert "proof stored, replayed by `hetopt verify`" in self.shown(instance, monkeypatch, method="lp")

    def test_an_approximation_says_what_it_promises_and_what_came_out(self, monkeypatch):
        """Shares of a half bound the three unit jobs by 3/2, rounded up to 2, which the plan has."""
        instance = Instance.from_times(np.ones((3, 2)))
        text = self.shown(instance, monkeypatch, method="lst")
        assert "guarantee   at most 2 - 1/d times its own bound; here 1 times" in text
        assert "guarantee" not in self.shown(instance, monkeypatch, method="milp")

    def test_an_infeasible_one_says_why(self, monkeypatch):
        instance = Instance.from_times([[1]], memory=[2], capacity=[1])
        text = self.shown(instance, monkeypatch)
        assert "1 bytes short" in text
        assert "what would mend it: `hetopt explain`" in text


def test_no_progress_where_nobody_looks(capfd):
    with report.progress(Control(), show=False):
        pass
    assert capfd.readouterr() == ("", "")


def test_progress_on_a_terminal(tmp_path):
    """Elapsed time, value, bound and gap on standard error, the result on standard output."""
    hetopt.write(Instance.from_times(np.random.default_rng(0).integers(1000, 1100, (60, 7))), tmp_path / "hard.json")
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "hetopt", "solve", "hard.json", "--method", "cpsat", "--time-limit", "1.5"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"}
    child = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=follower, env=environment, text=True)
    os.close(follower)
    seen = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
    out, _ = child.communicate(timeout=60)
    os.close(leader)
    text = seen.decode(errors="replace")
    assert " s  value " in text
    assert "bound" in text
    assert "gap" in text
    assert "cpsat" in text
    assert out.splitlines()[0].split()[1] == "assignment.makespan"


def test_every_approximation_states_its_guarantee():
    for problem in registry.problems():
        for method in problem.methods:
            assert (method.kind == "approximation") == bool(method.guarantee), f"{problem.name} {method.name}"
            assert method.guarantee in method.title
