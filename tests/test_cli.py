"""The command line's contract: what is printed where, which exit code, and what is left behind when something is wrong."""

from __future__ import annotations

import csv
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from fakes import Scripted, Toy, plan

import hetopt
from hetopt import Instance, Solution
from hetopt import registry as registered
from hetopt.cli import main
from hetopt.control import Control
from hetopt.formulation import Outcome
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.solvers import SolverError

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = sorted(main.commands)
KEYS = [
    "status", "objective", "bound", "gap", "bound_proof", "verified", "method", "solver", "seconds", "instance", "solution",
]  # fmt: skip
SMALL = Instance.from_times([[3, 1], [2, 4], [2, 2]], name="small")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HETOPT_DEBUG", raising=False)
    monkeypatch.setattr(registered, "_extra", dict(registered._extra))


@pytest.fixture
def small():
    hetopt.write(SMALL, "small.json")
    return "small.json"


def call(*arguments) -> object:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def process(*arguments, **more) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "hetopt", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **more,
    )


def refused(*arguments, code: int = 1) -> str:
    """The one sentence on standard error of a call that is refused; nothing may be printed, nothing written."""
    before = sorted(os.listdir())
    run = call(*arguments)
    lines = run.stderr.splitlines()
    assert run.exit_code == code, run.output
    assert len(lines) == 1, run.stderr
    assert lines[0].startswith("error: ")
    assert "Traceback" not in run.output
    assert "internal error" not in run.output
    if "--json" in arguments:
        record = json.loads(run.stdout)
        assert set(KEYS) <= set(record)
        assert (record["status"], record["verified"], record["messages"]) == ("error", False, [lines[0][7:]])
    else:
        assert run.stdout == ""
    assert sorted(os.listdir()) == before, "something was left behind"
    return lines[0][7:]


class TestHelp:
    @pytest.mark.parametrize("command", COMMANDS)
    def test_each_command_says_what_it_does(self, command):
        run = call(command, "--help")
        assert run.exit_code == 0
        assert run.stderr == ""
        text = main.commands[command].help
        assert text
        assert text.splitlines()[0].rstrip(".").split()[0] in run.stdout
        for option in main.commands[command].params:
            assert isinstance(option, click.Argument) or option.help, f"{command} {option.name} has no help"

    def test_all_commands_of_the_contract(self):
        assert {
            "solve", "bound", "compare", "list", "explain", "verify", "model", "plot", "import", "generate", "versions",
        } <= set(COMMANDS)  # fmt: skip

    @pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)], ids=str)
    def test_called_alone_it_shows_its_help(self, arguments):
        run = call(*arguments)
        assert (run.exit_code, run.stderr) == (0, "")
        assert all(command in run.stdout for command in COMMANDS)

    @pytest.mark.parametrize("group", ["import", "generate"])
    def test_kinds_are_listed_and_described(self, group):
        run = call(group)
        assert run.exit_code == 0
        names = main.commands[group].list_commands(None)
        assert len(names) >= 3
        for name in names:
            assert name in run.stdout
            described = call(group, name, "--help")
            assert described.exit_code == 0
            assert "--output" in described.stdout

    def test_version(self):
        run = call("--version")
        assert (run.exit_code, run.stdout) == (0, f"hetopt, version {hetopt.__version__}\n")


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["solv"], "there is no command 'solv'; did you mean 'solve'?"),
            (["imprt", "csv"], "there is no command 'imprt'; did you mean 'import'?"),
            (["import", "cvs"], "there is no kind 'cvs'; did you mean 'csv'?"),
            (["generate", "unrelatd"], "there is no kind 'unrelatd'; did you mean 'unrelated'?"),
            (["--jsn"], "no such option '--jsn'"),
            (["solve"], "missing argument 'FILE'"),
            (["solve", "F", "more"], "got unexpected extra argument (more)"),
            (["solve", "F", "--metod", "x"], "'--method'"),
            (["solve", "F", "--method", "cpsatt"], "has no method 'cpsatt'; did you mean 'cpsat'?"),
            (["solve", "F", "--solver", "hihgs"], "there is no solver 'hihgs'; did you mean 'highs'?"),
            (["solve", "F", "--method", "milp", "--solver", "glop"], "the solver 'glop' cannot take the milp model"),
            (["solve", "F", "--objective", "makspan"], "there is no objective 'makspan'; did you mean 'makespan'?"),
            (["solve", "F", "--objective", "throughput", "-O", "contigous=none"], "did you mean 'contiguous'?"),
            (["solve", "F", "--objective", "throughput", "-O", "contiguous=idels"], "did you mean 'ideals'?"),
            (["solve", "F", "-O", "contiguous=none"], "unknown key 'contiguous'; there are none"),
            (["solve", "F", "-O", "contiguous"], "'contiguous' is no setting; expected KEY=VALUE"),
            (
                ["solve", "F", "--time-limit", "soon"],
                "'soon' is no duration; expected seconds, or a number with s, m or h",
            ),
            (["solve", "F", "--time-limit", "-3"], "'-3' is no duration"),
            (["solve", "F", "--time-limit", "inf"], "'inf' is no duration"),
            (["solve", "F", "--time-limit", "nan"], "'nan' is no duration"),
            (["solve", "F", "--time-limit", ""], "'' is no duration"),
            (["solve", "F", "--time-limit"], "option '--time-limit' requires an argument"),
            (["solve", "F", "--gap", "1%%"], "'1%%' is no gap; expected a number such as 0.01, or 1%"),
            (["solve", "F", "--gap", "-1"], "'-1' is no gap"),
            (["solve", "F", "--gap", "nan"], "'nan' is no gap"),
            (["solve", "F", "--gap", "1.5"], "'1.5' would be 150 %; expected 1.5%, or a number up to 1"),
            (["simulate", "F"], "sweep, verify, versions"),
            (["solve", "F", "--threads", "0"], "0 is not in the range x>=1"),
            (["solve", "F", "--threads", "two"], "'two' is not a valid integer"),
            (["solve", "F", "--seed", "-1"], "-1 is not in the range"),
            (["solve", "F", "--memory-limit", "8Q"], "'8Q' is no size; expected bytes, or a number with K, M or G"),
            (["solve", "F", "--native", "presolve"], "'presolve' is no setting"),
            (["solve", "F", "--method", "milp", "--native", "presolv=off"], "highs has no option 'presolv'"),
            (["solve", "F", "--hint", "none.json"], "cannot read 'none.json': No such file"),
            (["solve", "F", "--formulation", "none.py"], "--formulation 'none.py' is no Python file"),
            (["solve", "F", "--log-file", "none/log"], "the folder 'none' is missing or not writable"),
            (["bound", "F", "--method", "lpp"], "has no method 'lpp'; did you mean 'lp'?"),
            (["compare", "F", "--methods", "milp,cpsatt"], "has no method 'cpsatt'"),
            (["model", "F"], "missing option '--output' / '-o'"),
            (["model", "F", "-o", "m.txt"], "the name must end in .mps or .lp"),
            (["model", "F", "-o", "m.mps", "--method", "cpsat"], "'cpsat' is no linear formulation; only those"),
            (["model", "F", "-o", "none/m.mps"], "the folder 'none' is missing or not writable"),
            (["plot", "F", "-o", "p.gif"], "expected .png, .svg or .pdf"),
            (["verify", "F"], "missing argument 'RESULT'"),
            (["verify", "F", "F"], "$.format is 'hetopt-instance/1', expected 'hetopt-result/1'"),
            (["generate", "unrelated", "--jobs", "many"], "'many' is not a valid integer"),
            (["generate", "unrelated", "--jobs", "0"], "jobs"),
            (["generate", "unrelated", "--jobs", "3", "-o", "none/i.json"], "the folder 'none' is missing"),
            (["import", "csv", "none.csv"], "none.csv"),
        ],
        ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
    )
    def test_a_mistake_is_one_sentence(self, small, arguments, told):
        assert told in refused(*[small if a == "F" else a for a in arguments])

    def test_with_json_the_sentence_is_in_the_object_too(self, small):
        refused("solve", small, "--method", "nonsense", "--json")
        refused("solve", "--json")
        refused("bound", small, "--method", "nonsense", "--json")

    def test_an_output_that_is_a_folder(self, small):
        Path("folder").mkdir()
        assert "it is a directory; give a file name" in refused("solve", small, "-o", "folder")
        assert "the folder 'small.json' is missing or not writable" in refused("solve", small, "-o", "small.json/r")

    @pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind this user")
    def test_a_folder_without_permission(self, small):
        Path("closed").mkdir(mode=0o500)
        assert "missing or not writable" in refused("solve", small, "-o", "closed/r.json")

    def test_a_fault_of_our_own_is_told_as_such(self, small, monkeypatch):
        def broken(*_, **__):
            raise ZeroDivisionError("division by zero")

        monkeypatch.setattr(hetopt, "solve", broken)
        run = call("solve", small, "--json")
        assert run.exit_code == 5
        assert run.stderr.startswith(
            "error: internal error: ZeroDivisionError: division by zero (this is a fault of hetopt"
        )
        assert json.loads(run.stdout)["status"] == "error"
        monkeypatch.setenv("HETOPT_DEBUG", "1")
        assert isinstance(call("solve", small).exception, ZeroDivisionError)

    def test_out_of_memory(self, small, monkeypatch):
        def greedy(*_, **__):
            raise MemoryError

        monkeypatch.setattr(hetopt, "solve", greedy)
        assert "out of memory" in refused("solve", small, code=5)


BAD = {
    "not JSON": ("{", "not JSON"),
    "empty file": ("", "JSON"),
    "wrong tag": ('{"format": "hetopt-result/1"}', "expected 'hetopt-instance/1'"),
    "no tag": ('{"devices": [], "jobs": []}', "format"),
    "a list": ("[]", "$"),
    "unknown key": ({"devcies": []}, "did you mean 'devices'"),
    "NaN": ('{"format":"hetopt-instance/1","devices":[{"name":"d"}],"jobs":[{"name":"j","time":[NaN]}]}', "JSON"),
    "negative time": ({"jobs": [{"name": "j", "time": [1, -2]}]}, "$.jobs[0].time"),
    "cycle": ({"jobs": [{"name": "m", "tasks": "ab", "edges": ["ab", "ba"]}]}, "cycle"),
    "edge to nowhere": ({"jobs": [{"name": "m", "tasks": "ab", "edges": ["ac"]}]}, "'c'"),
    "duplicate tasks": ({"jobs": [{"name": "m", "tasks": "aa", "edges": []}]}, "'a'"),
    "duplicate jobs": ({"jobs": [{"name": "j", "time": [1, 1]}, {"name": "j", "time": [1, 1]}]}, "'j'"),
    "duplicate devices": ({"devices": [{"name": "d"}, {"name": "d"}]}, "'d'"),
    "eligible nowhere": ({"jobs": [{"name": "j", "time": [None, None]}]}, "can run nowhere"),
    "no time": ({"jobs": [{"name": "j"}]}, "$.jobs[0] has no `time`"),
    "no devices": ({"devices": []}, "device"),
    "no jobs": ({"jobs": []}, "expected at least one"),
    "times of the wrong length": ({"jobs": [{"name": "j", "time": [1]}]}, "$.jobs[0].time"),
    "a device that is not there": ({"jobs": [{"name": "j", "time": {"gpu": 1}}]}, "'gpu'"),
    "a number too large": ({"jobs": [{"name": "j", "time": [1, 10**400]}]}, "$.jobs[0].time"),
    "deep nesting": ("[" * 100_000, "$"),
}


def bad_text(content) -> str:
    if isinstance(content, str):
        return content
    record = {
        "format": "hetopt-instance/1",
        "devices": [{"name": "d0"}, {"name": "d1"}],
        "jobs": [{"name": "j", "time": [1, 2]}],
        "question": {"objective": "makespan"},
        **content,
    }
    for job in record["jobs"]:
        if isinstance(job.get("tasks"), str):
            job["tasks"] = [{"name": name, "time": [1, 1]} for name in job["tasks"]]
            job["edges"] = [{"from": a, "to": b} for a, b in job["edges"]]
    return json.dumps(record)


class TestBadInput:
    @pytest.mark.parametrize("what", BAD)
    def test_file(self, what):
        content, told = BAD[what]
        Path("bad.json").write_text(bad_text(content))
        sentence = refused("solve", "bad.json", "-o", "r.json")
        assert sentence.startswith("bad.json: ")
        assert told in sentence
        assert len(sentence) < 600

    @pytest.mark.parametrize(
        "command",
        [
            ["bound", "bad.json"], ["compare", "bad.json"], ["explain", "bad.json"], ["list", "--for", "bad.json"],
            ["model", "bad.json", "-o", "m.mps"], ["verify", "bad.json", "bad.json"], ["plot", "bad.json", "-o", "p.png"],
            ["solve", "bad.json", "--json"],
        ],
        ids=lambda command: command[0],
    )  # fmt: skip
    def test_whatever_the_command(self, command):
        Path("bad.json").write_text("{")
        assert "JSON" in refused(*command)

    def test_a_large_file_cut_in_half(self):
        hetopt.write(Instance.from_times(np.arange(200_000).reshape(100_000, 2)), "large.json")
        data = Path("large.json").read_bytes()
        Path("large.json").write_bytes(data[: len(data) // 2])
        assert refused("solve", "large.json", "-o", "r.json").startswith("large.json: $")

    def test_a_packed_file_cut_in_half(self):
        hetopt.write(SMALL, "small.json.gz")
        data = Path("small.json.gz").read_bytes()
        Path("small.json.gz").write_bytes(data[: len(data) // 2])
        assert "gzip data are broken" in refused("solve", "small.json.gz")

    def test_a_directory_and_a_file_that_is_not_there(self):
        Path("folder").mkdir()
        assert refused("solve", "folder") == "cannot read 'folder': it is a directory; expected a file"
        assert refused("solve", "none.json") == "cannot read 'none.json': No such file or directory"

    def test_without_permission_to_read(self, small):
        os.chmod(small, 0)
        if os.access(small, os.R_OK):
            pytest.skip("permissions do not bind this user")
        assert refused("solve", small) == "cannot read 'small.json': Permission denied"

    def test_a_link_that_is_missing(self):
        tasks = [Task(name="a", time=[1, 1], output=5), Task(name="b", time=[1, 1])]
        job = Job(name="m", tasks=tasks, edges=[Edge(source="a", target="b")])
        hetopt.write(
            Instance.build([Device(name="x"), Device(name="y")], [job], question={"objective": "throughput"}), "i.json"
        )
        sentence = refused("solve", "i.json", "-o", "r.json")
        assert "$.links: no entry matches" in sentence

    def test_no_question(self):
        hetopt.write(SMALL.with_question({}), "i.json")
        assert "choose one with --objective: " in refused("solve", "i.json")

    def test_memory_that_is_short_names_the_shortfall(self):
        hetopt.write(Instance.from_times([[1, 1]] * 3, memory=[4] * 3, capacity=[5, 6]), "i.json")
        told = "all tasks need 12 bytes, and all devices have 11: 1 bytes short"
        run = call("solve", "i.json", "-o", "r.json")
        assert run.exit_code == 3
        assert run.stdout.splitlines()[0].startswith("infeasible")
        assert told in run.stdout
        record = json.loads(call("solve", "i.json", "--json").stdout)
        assert (record["status"], record["infeasible"], record["solution"]) == ("infeasible", [told], None)
        assert call("verify", "i.json", "r.json").stdout == f"there is no plan, shown again: {told}\n"
        assert told in call("explain", "i.json").stdout
        assert call("explain", "i.json").exit_code == 3
        assert call("bound", "i.json").exit_code == 3


class TestSolve:
    def test_json_is_one_object_and_nothing_else(self, small):
        run = call("solve", small, "--json", "-o", "r.json")
        assert (run.exit_code, run.stderr) == (0, "")
        assert run.stdout.count("\n") == 1
        record = json.loads(run.stdout)
        assert list(record)[: len(KEYS)] == KEYS
        assert (record["status"], record["objective"], record["bound"], record["gap"]) == ("optimal", 3.0, 3.0, 0.0)
        assert record["verified"] is True
        assert record["bound_proof"] in ("replayed", "algorithm", "solver")
        assert record["instance"] == {"name": "small", "digest": SMALL.digest}
        assert set(record["solution"]["placement"]) == {"j0", "j1", "j2"}
        assert record["seconds"] > 0
        written = json.loads(Path("r.json").read_text())
        assert written["format"] == "hetopt-result/1"
        assert written["solution"] == record["solution"]

    def test_for_people(self, small):
        run = call("solve", small, "-o", "r.json")
        assert (run.exit_code, run.stderr) == (0, "")
        lines = run.stdout.splitlines()
        assert lines[0] == "optimal  assignment.makespan"
        assert re.fullmatch(r" *value +3 seconds, recomputed from the instance", lines[1])
        assert any(line.strip().startswith("method") and "(" in line for line in lines), "the reason for the method"
        assert any("written to  r.json" in line for line in lines)
        assert any(line.split()[:1] == ["d0"] for line in lines), "what each device holds"

    @pytest.mark.parametrize(
        ("action", "more", "status", "code"),
        [
            (lambda c: (c.report_plan(plan(1)), c.report_bound(1.0, "algorithm")), [], "optimal", 0),
            (lambda c: (c.report_plan(plan(2)), c.report_bound(1.9, "algorithm")), ["--gap", "5%"], "feasible", 0),
            (lambda c: (c.report_plan(plan(2)), c.report_bound(1.9, "algorithm")), ["--gap", "0.04"], "feasible", 2),
            (lambda c: c.report_plan(plan(2)), [], "feasible", 2),
            (lambda c: c.report_plan(plan(3)), [], "unknown", 4),
            (lambda c: Outcome("infeasible", infeasible=("there is no room",)), [], "infeasible", 3),
            (lambda c: Outcome("limit", "time"), ["--time-limit", "1m"], "unknown", 4),
            (lambda c: raising(SolverError("highs 1.0 crashed")), [], "error", 5),
            (lambda c: (c.report_plan(plan(2)), raising(SolverError("highs 1.0 crashed"))), [], "feasible", 5),
            (lambda c: (c.report_plan(plan(2)), raising(MemoryError())), [], "feasible", 5),
            (lambda c: (c.report_plan(plan(2)), raising(RuntimeError("nonsense"))), [], "feasible", 5),
            (lambda c: (c.report_plan(plan(2)), c.cancel()), [], "feasible", 130),
            (lambda c: c.cancel(), [], "unknown", 130),
        ],
        ids=lambda value: "act" if callable(value) else str(value),
    )
    @pytest.mark.parametrize("as_json", [True, False], ids=["json", "people"])
    def test_exit_codes(self, action, more, status, code, as_json):
        def act(control, options):
            outcome = action(control)
            return outcome if isinstance(outcome, Outcome) else None

        registered._extra["toy.sum"] = Toy(Scripted("fake", act))
        hetopt.write(Instance.from_times([[1.0] * 4], question={"objective": "toy"}), "toy.json")
        run = call("solve", "toy.json", "-o", "r.json", *more, *["--json"] * as_json)
        assert run.exit_code == code, run.output
        assert "Traceback" not in run.output
        told = json.loads(run.stdout)["status"] if as_json else run.stdout.split()[0]
        assert told == status
        kept = hetopt.read_result("r.json", hetopt.read("toy.json"))
        assert kept.status == status
        if kept.solution is not None:
            assert call("verify", "toy.json", "r.json").exit_code == 0
        if code == 5:
            assert run.stderr.startswith("note: fake")

    @pytest.mark.parametrize(
        ("text", "seconds"), [("60", 60.0), ("0.5", 0.5), ("5m", 300.0), ("1h", 3600.0), ("2 s", 2.0), ("1.5M", 90.0)]
    )
    def test_time_limits(self, small, monkeypatch, text, seconds):
        seen = {}
        monkeypatch.setattr(hetopt, "solve", lambda *_, **given: seen.update(given) or raising(MemoryError()))
        call(
            "solve", small, "--time-limit", text, "--gap", "1%", "--memory-limit", "8G", "--seed", "3", "--threads", "2"
        )
        assert seen["time_limit"] == seconds
        assert (seen["gap"], seen["memory_limit"], seen["seed"], seen["threads"]) == (0.01, 8 << 30, 3, 2)

    def test_options_reach_the_question(self):
        tasks = [Task(name=t, time=[1, 1], output=1) for t in "abc"]
        job = Job(name="m", tasks=tasks, edges=[Edge(source="a", target="b"), Edge(source="b", target="c")])
        links = [Link(source="*", target="host", bandwidth=1, both=True)]
        devices = [Device(name="x"), Device(name="y")]
        hetopt.write(Instance.build(devices, [job], links, question={"objective": "throughput"}), "i.json")
        for option, value in (("none", "none"), ("false", "none"), ("ideals", "ideals")):
            record = json.loads(call("solve", "i.json", "-O", f"contiguous={option}", "--json").stdout)
            assert record["question"]["contiguous"] == value
        record = json.loads(call("solve", "i.json", "--objective", "makespan", "--json").stdout)
        assert record["problem"] == "assignment.makespan"
        assert "the file also holds edges" in record["messages"][0]

    def test_a_hint_is_judged(self, small):
        hint = Solution.assign([0, 1, 0])
        result = hetopt.solve(SMALL, method="greedy", hint=hint)
        hetopt.write_result(result, SMALL, "h.json")
        run = call("solve", small, "--hint", "h.json", "--json")
        assert (run.exit_code, json.loads(run.stdout)["objective"]) == (0, 3.0)
        stale = json.loads(Path("h.json").read_text())
        stale["solution"]["placement"].pop("j1")
        Path("h.json").write_text(json.dumps(stale))
        run = call("solve", small, "--hint", "h.json", "--json")
        assert (run.exit_code, json.loads(run.stdout)["objective"]) == (0, 3.0)
        assert "note: the hint is no valid plan and is not used: hint: task 'j1' is not placed" in run.stderr
        stale["solution"] = stale["objective"] = None
        stale["verified"], stale["status"] = False, "unknown"
        Path("h.json").write_text(json.dumps(stale))
        assert "holds no plan" in refused("solve", small, "--hint", "h.json")
        assert "expected 'hetopt-result/1'" in refused("solve", small, "--hint", small)

    def test_own_formulation(self, small):
        template = ROOT / "formulations" / "_template.py"
        run = call("solve", small, "--formulation", template, "--objective", "total-time", "--json", "-o", "r.json")
        assert json.loads(run.stdout)["objective"] == 5.0
        assert call("verify", small, "r.json", "--formulation", template).exit_code == 0
        listed = call("list", "--formulation", template)
        assert "template.total" in listed.stdout

    def test_own_formulation_beside_another_question_is_told(self, small):
        template = ROOT / "formulations" / "_template.py"
        told = f"note: the question is 'makespan'; --objective total-time asks that of '{template}'\n"
        assert call("solve", small, "--formulation", template).stderr == told
        assert call("solve", small, "--formulation", template, "--objective", "total-time").stderr == ""

    def test_a_fault_in_an_own_formulation_names_the_line(self, small):
        text = (ROOT / "formulations" / "_template.py").read_text()
        Path("mine.py").write_text(text.replace("        return model\n", "        return modle\n"))
        line = text[: text.index("        return model\n")].count("\n") + 1
        run = call("solve", small, "--formulation", "mine.py", "--objective", "total-time", "--method", "milp")
        told = f"note: milp failed with NameError: name 'modle' is not defined (mine.py, line {line})\n"
        assert (run.exit_code, run.stderr) == (5, told)

    def test_output_replaces_a_file_whole(self, small):
        Path("r.json").write_text("old")
        assert call("solve", small, "-o", "r.json").exit_code == 0
        assert json.loads(Path("r.json").read_text())["status"] == "optimal"
        assert sorted(os.listdir()) == ["r.json", "small.json"]

    def test_a_result_that_cannot_be_written_is_printed(self, small, monkeypatch):
        def full(*_, **__):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        run = call("solve", small, "-o", "r.json")
        assert run.exit_code == 1
        assert run.stderr.startswith("error: cannot write 'r.json': No space left on device; nothing was written\n")
        assert json.loads(run.stdout)["format"] == "hetopt-result/1"
        assert sorted(os.listdir()) == ["small.json"]
        run = call("solve", small, "-o", "r.json", "--json")
        assert (run.exit_code, json.loads(run.stdout)["status"]) == (1, "optimal")


def raising(error):
    raise error


class TestSweep:
    def test_a_folder_of_answers(self, small, tmp_path):
        run = call("sweep", small, "-o", "out", "--json")
        assert run.exit_code == 0
        assert json.loads(run.stdout)[small]["status"] == "optimal"
        assert call("verify", small, "out/small.result.json").exit_code == 0

    def test_a_file_that_is_not_there(self, small):
        run = call("sweep", "nowhere.json", small, "-o", "out")
        assert run.exit_code == 1
        assert "nowhere.json" in run.stderr
        assert "optimal" in run.stderr


class TestVerify:
    def test_again_runs_the_prover_once_more(self, small):
        call("solve", small, "--method", "cpsat", "-o", "r.json")
        run = call("verify", small, "r.json", "--again", "--time-limit", "20")
        assert run.exit_code == 0
        assert "confirmed" in run.stdout or "replayed" in run.stdout

    def test_accepts_and_rejects(self, small):
        call("solve", small, "-o", "r.json")
        run = call("verify", small, "r.json")
        assert (run.exit_code, run.stderr) == (0, "")
        assert run.stdout.startswith("assignment.makespan: valid plan of value 3, bound 3 (")
        record = json.loads(call("verify", small, "r.json", "--json").stdout)
        assert (record["valid"], record["objective"], record["bound"]) == (True, 3.0, 3.0)
        placement = json.loads(Path("r.json").read_text())["solution"]["placement"]
        for task, device in placement.items():
            changed = json.loads(Path("r.json").read_text())
            changed["solution"]["placement"][task] = {"d0": "d1", "d1": "d0"}[device]
            Path("moved.json").write_text(json.dumps(changed))
            run = call("verify", small, "moved.json")
            assert (run.exit_code, run.stdout) == (1, "")
            assert run.stderr.startswith("rejected: the result claims the value 3.0, but its plan has")
            run = call("verify", small, "moved.json", "--json")
            assert (run.exit_code, json.loads(run.stdout)["valid"]) == (1, False)

    def test_a_plan_written_by_hand(self, small):
        """It answers the file's own question and claims nothing; a task that it leaves out is told."""
        plan = {"format": "hetopt-result/1", "solution": {"placement": {"j0": "d1", "j1": "d0", "j2": "d0"}}}
        Path("own.json").write_text(json.dumps(plan))
        run = call("verify", small, "own.json")
        assert (run.exit_code, run.stdout) == (0, "valid plan of value 4, no bound\n")
        del plan["solution"]["placement"]["j2"]
        Path("own.json").write_text(json.dumps(plan))
        assert call("verify", small, "own.json").stderr == "rejected: task 'j2' is not placed on any device\n"
        Path("own.json").write_text(json.dumps({**plan, "instance": {"digest": "sha256:0"}}))
        assert "belongs to an instance with digest sha256:0" in call("verify", small, "own.json").stderr

    def test_instance_and_result_the_wrong_way_round(self, small):
        call("solve", small, "-o", "r.json")
        assert "a result comes behind its instance" in refused("verify", "r.json", small)
        assert "the instance comes before the result" in refused("verify", small, small)

    def test_another_instances_result(self, small):
        call("solve", small, "-o", "r.json")
        hetopt.write(Instance.from_times([[3, 1], [2, 4], [2, 3]]), "other.json")
        run = call("verify", "other.json", "r.json")
        assert run.exit_code == 1
        assert run.stderr.startswith("rejected: the result belongs to an instance with digest")

    def test_a_picture_of_a_false_claim_is_refused(self, small):
        pytest.importorskip("matplotlib")
        call("solve", small, "-o", "r.json")
        assert call("plot", small, "r.json", "-o", "p.svg").exit_code == 0
        assert Path("p.svg").read_text().startswith("<?xml")
        changed = json.loads(Path("r.json").read_text())
        changed["objective"] = changed["bound"] = 2.0
        Path("r.json").write_text(json.dumps(changed))
        assert call("plot", small, "r.json", "-o", "q.svg").exit_code == 1
        assert not Path("q.svg").exists()


class TestLooking:
    def test_bound(self, small):
        run = call("bound", small, "--json", "-o", "b.json")
        record = json.loads(run.stdout)
        assert (run.exit_code, record["bound"], record["bound_proof"]) == (0, 3.0, "replayed")
        assert "bound 3 (replayed from the certificate)" in call("verify", small, "b.json").stdout
        assert json.loads(call("bound", small, "--method", "lp", "--json").stdout)["solution"] is None

    def test_compare(self, small):
        run = call("compare", small, "--json", "--time-limit", "60")
        rows = json.loads(run.stdout)
        assert run.exit_code == 0
        assert rows["milp"]["objective"] == rows["cpsat"]["objective"] == 3.0
        assert rows["lp"]["objective"] is None
        assert all(set(KEYS) - {"solution"} <= set(row) for row in rows.values())
        table = call("compare", small, "--methods", "lp,milp").stdout.splitlines()
        assert [line.split()[0] for line in table] == ["method", "lp", "milp", "best"]

    def test_list(self, small):
        everything = json.loads(call("list", "--json").stdout)
        assert {row["name"] for row in everything} == {p.name for p in registered.problems()}
        here = json.loads(call("list", "--for", small, "--json").stdout)
        (row,) = [row for row in here if row["name"] == "assignment.makespan"]
        assert all({"name", "kind", "title", "why_not", "size"} <= set(method) for method in row["methods"])
        text = call("list", "--for", small).stdout
        assert here[0]["asked"]
        assert [row["name"] for row in here if row["asked"]] == ["assignment.makespan"]
        for row in here:
            assert row["name"] in text
            assert all(method["name"] in text for method in row["methods"])

    def test_list_uses_the_files_own_options(self):
        hetopt.write(SMALL.with_question({"objective": "throughput", "contiguous": "none"}), "i.json")
        rows = {row["name"]: row for row in json.loads(call("list", "--for", "i.json", "--json").stdout)}
        methods = {m["name"]: m["why_not"] for m in rows["partition.maxload"]["methods"]}
        assert methods["contiguous"] is None
        assert methods["dp"] is not None

    def test_explain(self, small):
        record = json.loads(call("explain", small, "--json").stdout)
        assert record["problem"] == "assignment.makespan"
        assert record["steps"]
        text = call("explain", small).stdout
        assert "--method auto would run:" in text
        assert all(step["why"] in text for step in record["steps"])

    def test_versions(self):
        record = json.loads(call("versions", "--json").stdout)
        assert record["versions"]["hetopt"] == hetopt.__version__
        assert {row["name"] for row in record["solvers"]} >= {"highs", "cpsat", "scipy"}
        text = call("versions").stdout
        assert all(row["name"] in text for row in record["solvers"])


class TestWarm:
    def test_a_line_a_question(self):
        run = call("warm", "assignment.bottleneck", "splitting.shards")
        assert run.exit_code == 0
        assert [line.split()[0] for line in run.stdout.splitlines()] == ["assignment.bottleneck", "splitting.shards"]

    def test_a_question_that_is_none(self):
        run = call("warm", "assignment.makespam")
        assert run.exit_code == 1
        assert "assignment.makespan" in run.stderr


class TestModel:
    @pytest.mark.parametrize("suffix", ["mps", "lp"])
    def test_read_back_by_highs(self, small, suffix):
        import highspy

        run = call("model", small, "-o", f"m.{suffix}")
        assert (run.exit_code, run.stdout) == (0, "")
        assert run.stderr == f"m.{suffix}: 5 rows, 7 columns (6 integer), 14 nonzeros\n"
        highs = highspy.Highs()
        highs.silent()
        highs.readModel(f"m.{suffix}")
        highs.run()
        assert highs.getInfo().objective_function_value == pytest.approx(3.0)

    def test_relaxed(self, small):
        run = call("model", small, "-o", "m.mps", "--relax")
        assert "(0 integer)" in run.stderr
        assert call("model", small, "-o", "m.mps", "--method", "lp").stderr == run.stderr

    def test_a_method_that_does_not_fit(self):
        class Picky(Toy):
            def fits(self, instance):
                return None

        linear = registered.problem("assignment.makespan").method("milp")

        class Refusing(type(linear)):
            def fits(self, instance, question):
                return "too large"

        registered._extra["toy.sum"] = Picky(Refusing())
        hetopt.write(Instance.from_times([[1.0]], question={"objective": "toy"}), "i.json")
        assert "does not fit this instance: too large" in refused("model", "i.json", "-o", "m.mps", "--method", "milp")
        assert "has no linear formulation that fits" in refused("model", "i.json", "-o", "m.mps")


class TestMaking:
    def test_generate_repeats_itself(self):
        for name in ("a.json", "b.json"):
            run = call("generate", "unrelated", "--jobs", 5, "--machines", 2, "--seed", 3, "-o", name)
            assert (run.exit_code, run.stdout) == (0, "")
            assert run.stderr == f"{name}: 5 tasks, 2 devices, 0 edges\n"
        assert Path("a.json").read_bytes() == Path("b.json").read_bytes()
        assert (
            call("generate", "unrelated", "--jobs", 5, "--machines", 2, "--seed", 3).stdout
            == Path("a.json").read_text()
        )
        assert call("solve", "a.json").exit_code == 0

    def test_import_csv(self):
        with open("t.csv", "w", newline="") as file:
            csv.writer(file).writerows([["job", "gpu", "cpu"], ["a", 3, 1], ["b", 2, ""], ["c", 2, 2]])
        run = call("import", "csv", "t.csv", "-o", "i.json")
        assert run.exit_code == 0, run.output
        instance = hetopt.read("i.json")
        assert instance.labels == ("a", "b", "c")
        assert instance.device_names == ("gpu", "cpu")
        assert instance.time.tolist() == [[3, 1], [2, np.inf], [2, 2]]
        assert json.loads(call("solve", "i.json", "--json").stdout)["objective"] == 3.0

    def test_an_import_that_fails_leaves_nothing(self):
        Path("t.csv").write_text("job,gpu\na,fast\n")
        refused("import", "csv", "t.csv", "-o", "i.json")
        Path("t.json").write_text("{")
        refused("import", "dnn-partitioning", "t.json", "-o", "i.json")


class TestProcess:
    """What only a process of its own can show."""

    @staticmethod
    def hard(name: str = "hard.json") -> str:
        """An instance that no method here closes in minutes."""
        rng = np.random.default_rng(0)
        times = rng.integers(1000, 1100, (60, 7))
        hetopt.write(Instance.from_times(times), name)
        return name

    def test_python_m(self, small):
        child = process("solve", small, "--json")
        out, err = child.communicate(timeout=60)
        assert (child.returncode, err) == (0, "")
        assert json.loads(out)["objective"] == 3.0

    def test_a_pipe(self):
        made = process("generate", "unrelated", "--jobs", "4", "--machines", "2")
        solved = process("solve", "-", "--json", stdin=made.stdout)
        record = json.loads(solved.communicate(timeout=120)[0])
        assert (record["status"], made.wait(timeout=120)) == ("optimal", 0)

    @pytest.mark.parametrize("method", ["milp", "lp"])
    def test_no_banner_on_standard_output(self, small, method):
        child = process("solve", small, "--method", method, "--solver", "highs", "--json")
        out, err = child.communicate(timeout=60)
        assert out.count("\n") == 1
        assert json.loads(out)["bound"] == 3.0
        assert err == ""

    @pytest.mark.parametrize("method", ["milp", "cpsat"])
    def test_ctrl_c_writes_the_best_plan_first(self, method):
        instance = hetopt.read(self.hard())
        start = hetopt.solve(instance, method="greedy")
        hetopt.write_result(start, instance, "h.json")
        child = process("solve", "hard.json", "--method", method, "--hint", "h.json", "-o", "r.json", "--json",
                        "--log-file", "log.txt")  # fmt: skip
        wait_for(lambda: Path("log.txt").exists(), child)
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
        assert child.returncode == 130, err
        assert "Traceback" not in err
        record = json.loads(out)
        assert (record["status"], record["reason"], record["verified"]) == ("feasible", "interrupted", True)
        assert record["objective"] <= start.objective
        written = hetopt.read_result("r.json", instance)
        assert written.objective == record["objective"]
        assert hetopt.verify(instance, written).objective == record["objective"]
        assert sorted(os.listdir()) == ["h.json", "hard.json", "log.txt", "r.json"]

    def test_a_time_limit_keeps_the_best_plan(self):
        child = process("solve", self.hard(), "--method", "cpsat", "--time-limit", "2", "-o", "r.json", "--json")
        out, err = child.communicate(timeout=60)
        record = json.loads(out)
        assert child.returncode in (2, 4), err
        assert (record["reason"], record["limit"]) == ("limit", "time")
        assert child.returncode == (4 if record["solution"] is None else 2)

    def test_a_solvers_child_that_is_killed(self):
        """``kill -9`` of PuLP's process: an error that names the signal, the incumbent kept, nothing half written."""
        pytest.importorskip("pulp")
        instance = hetopt.read(self.hard())
        start = hetopt.solve(instance, method="greedy")
        hetopt.write_result(start, instance, "h.json")
        child = process(
            "solve", "hard.json", "--method", "milp", "--solver", "pulp", "--hint", "h.json", "-o", "r.json", "--json"
        )
        found = []
        wait_for(lambda: found.extend(children(child.pid, "_pulp_child")) or found, child)
        time.sleep(0.3)
        os.kill(found[0], signal.SIGKILL)
        out, err = child.communicate(timeout=60)
        assert child.returncode == 5, err
        assert "killed by signal 9 (SIGKILL)" in err
        assert "Traceback" not in err
        record = json.loads(out)
        assert (record["status"], record["objective"], record["verified"]) == ("feasible", start.objective, True)
        assert hetopt.verify(instance, hetopt.read_result("r.json", instance)).objective == start.objective
        assert sorted(os.listdir()) == ["h.json", "hard.json", "r.json"]

    def test_a_disk_that_is_full(self, small):
        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))

        child = process("solve", small, "-o", "r.json", preexec_fn=limited)
        out, err = child.communicate(timeout=60)
        assert child.returncode == 1
        assert err.splitlines()[0] == "error: cannot write 'r.json': File too large; nothing was written"
        assert json.loads(out)["status"] == "optimal", "the result is printed instead"
        assert sorted(os.listdir()) == ["small.json"]
        child = process("generate", "unrelated", "--jobs", 99, "-o", "i.json", preexec_fn=limited)
        out, err = child.communicate(timeout=60)
        assert (child.returncode, out) == (1, "")
        assert err == "error: cannot write 'i.json': File too large; nothing was written\n"
        assert sorted(os.listdir()) == ["small.json"]

    def test_standard_output_that_nobody_reads_or_that_is_full(self, small):
        read, write = os.pipe()
        os.close(read)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "hetopt", "list"]
        run = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, env=environment)
        os.close(write)
        assert (run.returncode, run.stderr) == (0, "")
        if Path("/dev/full").exists():
            with open("/dev/full", "w") as full:
                run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
            assert run.returncode == 1
            assert run.stderr == "error: cannot write to standard output: No space left on device\n"


def wait_for(condition, child, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def children(parent: int, word: str) -> list[int]:
    """Numbers of the processes below ``parent`` whose command line holds ``word``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(state[1]) == parent and word in (entry / "cmdline").read_text():
                found.append(int(entry.name))
        except (OSError, IndexError, ValueError):
            continue
    return found


def test_a_control_made_elsewhere_can_be_cancelled_from_a_signal_handler():
    control = Control()
    before = signal.signal(signal.SIGUSR1, lambda *_: control.cancel())
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert control.should_stop()
    finally:
        signal.signal(signal.SIGUSR1, before)
