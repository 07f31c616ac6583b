"""Methods and plans beside each other: judged for the same question, kept as they end, and why each ended."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes import Scripted, Toy, plan, toy_instance

import hetopt
from hetopt import Instance, registry
from hetopt.cli import main
from hetopt.control import Control
from hetopt.formulation import Outcome
from hetopt.report_comparison import print_comparison
from hetopt.solvers import SolverError

SMALL = Instance.from_times([[3, 1], [2, 4], [2, 2]], name="small")


def ends(*plans, bound=None, limit=None, error=None):
    """A method that reports plans and a bound, and ends as it is told."""

    def run(control, options):
        for one in plans:
            control.report_plan(one)
        if bound is not None:
            control.report_bound(bound, "algorithm")
        if error is not None:
            raise SolverError(error)
        return Outcome("limit", limit) if limit else None

    return run


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """The toy as a question of the command line, with methods of the test; the file is toy.json."""
    monkeypatch.chdir(tmp_path)
    hetopt.write(toy_instance(), "toy.json")

    def made(*methods):
        problem = Toy(*methods)
        monkeypatch.setattr(registry, "_extra", {"toy.sum": problem})
        return problem

    return made


def call(*arguments):
    return CliRunner().invoke(main, ["compare", "toy.json", *map(str, arguments)])


def by_hand(name, placement):
    Path(name).write_text(json.dumps({"format": "hetopt-result/1", "solution": {"placement": placement}}))


class TestTable:
    def test_each_row_says_how_it_ended(self, toy):
        toy(
            Scripted("a", ends(plan(1), bound=1)),
            Scripted("b", ends(plan(2), limit="memory")),
            Scripted("c", ends(error="the licence is gone")),
            Scripted("d", ends(bound=0.5), kind="relaxation"),
        )
        run = call()
        rows = {line.split()[0]: line.split() for line in run.stdout.splitlines()}
        assert run.exit_code == 0
        assert [rows[name][1] for name in "abcd"] == ["optimal", "feasible", "error", "bound"]
        assert "finished" in rows["a"]
        assert rows["b"][-4:-2] == ["memory", "limit"]
        assert rows["c"][-3] == "error"
        assert "note: c: c: the licence is gone" in run.stderr.splitlines()
        assert "best value 1 by a, best bound 1 by a: gap 0 %" in run.stdout

    def test_what_all_say_is_said_once(self, toy):
        heavy = Instance.from_times([[1.0] * 4], memory=[3], capacity=[9] * 4, question={"objective": "toy"})
        hetopt.write(heavy, "toy.json")
        toy(Scripted("a", ends(plan(1))), Scripted("b", ends(plan(2))))
        (told,) = call().stderr.splitlines()
        assert told.startswith("note: the file also holds memory")

    def test_the_best_of_all_may_be_two_rows(self, toy, monkeypatch):
        toy(Scripted("a", ends(plan(2), bound=0.5)), Scripted("b", ends(plan(10), bound=1)))
        out = io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        print_comparison(hetopt.compare(hetopt.read("toy.json")))
        assert "best value 2 by a, best bound 1 by b: gap 50 %" in out.getvalue()


class TestPlans:
    def test_a_plan_is_a_row_of_its_own(self, toy):
        toy(Scripted("a", ends(plan(2), bound=1)))
        by_hand("mine.json", {"j0": "d1"})
        run = call("--plan", "mine.json", "--json")
        rows = json.loads(run.stdout)
        assert run.exit_code == 0
        assert list(rows) == ["mine", "a"]
        assert (rows["mine"]["objective"], rows["mine"]["bound"], rows["mine"]["verified"]) == (1.0, None, True)
        text = call("--plan", "mine.json").stdout
        assert "judged only" in text
        assert "best value 1 by mine, best bound 1 by a: gap 0 %" in text

    def test_one_that_breaks_a_rule_says_which(self, toy):
        toy(Scripted("a", ends(plan(2), bound=1)))
        by_hand("bad.json", {"j0": "d3"})
        run = call("--plan", "bad.json")
        assert run.exit_code == 1
        assert "note: bad: task 0 is on device 3" in run.stderr.splitlines()
        (row,) = [line.split() for line in run.stdout.splitlines() if line.startswith("bad")]
        assert row[1:3] == ["refused", "-"]
        assert "best value 2 by a" in run.stdout

    def test_what_a_result_file_claims_does_not_count(self, toy):
        toy(Scripted("a", ends(plan(1), bound=1)))
        call("-o", "kept")
        record = json.loads(Path("kept/a.result.json").read_text())
        record.update(objective=0.25, bound=0.25, bound_proof="none", status="feasible")
        Path("claimed.json").write_text(json.dumps(record))
        rows = json.loads(call("--plan", "claimed.json", "--json").stdout)
        assert (rows["claimed"]["objective"], rows["claimed"]["bound"]) == (1.0, None)

    def test_a_plan_of_another_instance_is_told(self, toy):
        toy(Scripted("a", ends(plan(1), bound=1)))
        hetopt.write(Instance.from_times([[7.0] * 4], question={"objective": "toy"}), "other.json")
        CliRunner().invoke(main, ["solve", "other.json", "-o", "other.result.json"])
        run = call("--plan", "other.result.json")
        assert "note: other was made for another instance, and is judged for this one" in run.stderr
        assert run.exit_code == 0

    @pytest.mark.parametrize(
        ("names", "told"),
        [
            (["a.json"], "the name of a method that is compared"),
            (["one/x.json", "two/x.json"], "two files of --plan are called 'x'"),
            (["missing.json"], "cannot read 'missing.json'"),
        ],
    )
    def test_names_must_tell_rows_apart(self, toy, names, told):
        toy(Scripted("a", ends(plan(1), bound=1)))
        for name in names:
            Path(name).parent.mkdir(exist_ok=True)
            if "missing" not in name:
                by_hand(name, {"j0": "d1"})
        run = call("-o", "kept", *[word for name in names for word in ("--plan", name)])
        assert (run.exit_code, run.stdout) == (1, "")
        assert told in run.stderr
        assert not Path("kept").exists()

    def test_a_plan_refutes_a_bound(self, toy):
        """A method's bound is only as good as every plan that is known lets it be."""
        toy(Scripted("a", ends(plan(2), bound=2)), Scripted("b", ends(plan(1))))
        results = hetopt.compare(hetopt.read("toy.json"), plans={"own": hetopt.Solution.assign([1])})
        assert (results["a"].status, results["a"].bound, results["a"].bound_proof) == ("feasible", None, "none")
        assert "contradicts the verified plan of own of value 1" in results["a"].messages[-1]
        call("-o", "kept")
        assert json.loads(Path("kept/a.result.json").read_text())["bound"] is None, "written again without it"


class TestFolder:
    def test_each_result_is_written_as_it_ends(self, toy):
        seen = []
        toy(
            Scripted("a", ends(plan(1), bound=1)),
            Scripted(
                "b", lambda control, options: seen.extend(os.listdir("new/kept")) or ends(plan(2))(control, options)
            ),
        )
        run = call("-o", "new/kept", "--json")
        rows = json.loads(run.stdout)
        assert seen == ["a.result.json"]
        assert rows["b"]["file"] == str(Path("new/kept/b.result.json"))
        for name in "ab":
            instance = hetopt.read("toy.json")
            kept = hetopt.read_result(rows[name]["file"], instance)
            assert hetopt.verify(instance, kept).objective == rows[name]["objective"]

    def test_no_folder_no_files(self, toy):
        toy(Scripted("a", ends(plan(1), bound=1)))
        assert "file" not in json.loads(call("--json").stdout)["a"]
        assert os.listdir() == ["toy.json"]

    def test_a_file_in_its_place(self, toy):
        toy(Scripted("a", ends(plan(1), bound=1)))
        run = call("-o", "toy.json")
        assert (run.exit_code, run.stdout) == (1, "")
        assert "cannot make the folder 'toy.json': it is a file" in run.stderr

    def test_what_cannot_be_written_is_told_and_nothing_is_lost(self, toy):
        toy(Scripted("a", ends(plan(1), bound=1)), Scripted("b", ends(plan(2), bound=1)))
        Path("kept/a.result.json").mkdir(parents=True)
        run = call("-o", "kept", "--json")
        assert run.exit_code == 1
        assert "cannot write" in run.stderr
        assert set(json.loads(run.stdout)) == {"a", "b"}
        assert Path("kept/b.result.json").is_file()


class TestInterrupted:
    def test_methods_that_never_ran_are_named(self, toy):
        def stopped(control, options):
            control.report_plan(plan(2))
            control.cancel()

        toy(Scripted("a", stopped), Scripted("b", ends(plan(1))), Scripted("c", ends(plan(1))))
        run = call("-o", "kept")
        assert run.exit_code == 130
        assert "note: interrupted before these methods ran: b, c" in run.stderr
        assert "interrupted" in run.stdout
        assert os.listdir("kept") == ["a.result.json"]

    def test_the_caller_sees_what_runs(self, toy):
        outer = Control()
        seen = []

        def look(control, options):
            control.report_plan(plan(2))
            seen.append((outer.method, outer.value, outer.bound))

        toy(Scripted("a", look), Scripted("b", look))
        hetopt.compare(hetopt.read("toy.json"), control=outer)
        assert seen == [("a", 2.0, None), ("b", 2.0, None)]
