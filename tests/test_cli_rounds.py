"""`hetopt rounds`: a trace under several policies, by hand, and what is kept when it is stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import hetopt
from hetopt import Instance
from hetopt import rounds as simulated
from hetopt.cli import main
from hetopt.records import Device, Job


@pytest.fixture(autouse=True)
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of 20 s due at 25 and one of 10 s arriving at 1, on one worker: trace.json."""
    monkeypatch.chdir(tmp_path)
    jobs = [Job(name="long", time=[1], steps=20, deadline=25), Job(name="short", time=[1], steps=10, release=1)]
    question = {"objective": "shortest-job-first"}
    hetopt.write(Instance.build([Device(name="a", slots=1)], jobs, question=question), "trace.json")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["rounds", "trace.json", "--round", "5", *arguments])


def test_policies_beside_each_other() -> None:
    """First come: long until 20, short until 30. Shortest first: short from 5 to 15, long 0-5 and 15-30, which is late."""
    run = call("--objective", "first-in-first-out, shortest-job-first")
    head, *rows = [line.split() for line in run.stdout.splitlines()]
    assert run.exit_code == 0
    assert head[:3] == ["policy", "mean", "s"]
    assert head[-1] == "a"
    assert rows[0][:6] == ["first-in-first-out", "24.5", "30", "2", "of", "2"]
    assert rows[1][:6] == ["shortest-job-first", "22", "30", "2", "of", "2"]
    assert [row[6] for row in rows] == ["0", "1"]


def test_completions_are_printed_and_kept() -> None:
    run = call("--json", "-o", "told.json")
    record = json.loads(run.stdout)
    assert list(record["policies"]) == ["shortest-job-first"], "the file's own question"
    told = record["policies"]["shortest-job-first"]
    assert told["finish"] == {"long": 30, "short": 15}
    assert told["late"] == ["long"]
    assert (record["round_seconds"], record["rule"], record["errors"]) == (5, "priority", {})
    kept = json.loads(Path("told.json").read_text())
    assert kept["policies"] == record["policies"]
    assert kept["instance"]["digest"] == hetopt.read("trace.json").digest


def test_a_horizon_leaves_jobs_undone() -> None:
    run = call("--horizon", "20s")
    assert run.exit_code == 0
    assert "note: shortest-job-first: 1 jobs were not done at the end, 'long' among them" in run.stderr
    assert "1 of 2" in run.stdout


def test_ctrl_c_keeps_what_was_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled in the third round of the second policy: the first is whole, the second in part, the third is named."""
    whole = simulated.simulate

    def stopped(instance: Instance, **given: Any) -> Any:
        shown, control = given["on_round"], given["control"]

        def look(moment: Any) -> None:
            shown(moment)
            if given["objective"] == "shortest-job-first" and moment.round == 2:
                assert control.method == "shortest-job-first: round 2, second 10, 2 jobs there, 0 done"
                control.cancel()

        return whole(instance, **{**given, "on_round": look})

    monkeypatch.setattr(simulated, "simulate", stopped)
    run = call("--objective", "first-in-first-out,shortest-job-first,max-min-fairness", "-o", "told.json")
    assert run.exit_code == 130
    assert "note: interrupted before these were simulated: max-min-fairness" in run.stderr
    kept = json.loads(Path("told.json").read_text())["policies"]
    assert kept["first-in-first-out"]["makespan"] == 30
    assert kept["shortest-job-first"]["finish"] == {"long": None, "short": 15}
    assert len(run.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--objective", "first-in-first-out,shortest-jobb-first"], "'shortest-jobb-first'"),
        (["-O", "luck=1"], "luck"),
        (["--rule", "luck"], "luck"),
        (["-o", "missing/told.json"], "missing or not writable"),
        (["--objective", "sharing-cost"], "needs a price"),
    ],
    ids=range(5),
)
def test_bad_input(arguments: list[str], words: str) -> None:
    run = call(*arguments)
    (line,) = run.stderr.splitlines()
    assert (run.exit_code, run.stdout) == (1, "")
    assert line.startswith("error: ")
    assert words in line
    assert os.listdir() == ["trace.json"]


def test_a_policy_that_cannot_go_on_leaves_the_others() -> None:
    run = call("--objective", "first-in-first-out,mean-completion", "--json")
    record = json.loads(run.stdout)
    assert run.exit_code == 1
    assert record["policies"]["first-in-first-out"]["makespan"] == 30
    assert "gave no shares" in record["errors"]["mean-completion"]
