"""How problems are found: shipped, by the words of an objective, and in a user's own file."""

from __future__ import annotations

import textwrap

import pytest
from fakes import Toy

from hetopt import InputError, Instance
from hetopt import registry as registered

MINE = """
    from __future__ import annotations
    from dataclasses import dataclass
    from hetopt.formulation import Evaluation, Problem

    @dataclass(frozen=True)
    class Unit:
        seconds: float = 1.0

    class Mine(Problem):
        name = "{name}"
        objectives = ("mine",)
        title = "mine"

        def evaluate(self, instance, question, solution):
            return Evaluation(Unit().seconds)

    PROBLEM = Mine()
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setattr(registered, "_extra", {})


@pytest.fixture
def file(tmp_path):
    def write(text=MINE, name="user.mine", stem="mine"):
        path = tmp_path / f"{stem}.py"
        path.write_text(textwrap.dedent(text).format(name=name))
        return path

    return write


class TestFiles:
    def test_a_file_offers_a_problem(self, file):
        registered.add_file(file())
        assert registered.problem("user.mine").objectives == ("mine",)
        assert registered.problem_for(Instance.from_times([[1]]), "mine").name == "user.mine"

    def test_loaded_again_it_replaces_itself(self, file):
        registered.add_file(file())
        registered.add_file(file(name="user.renamed"))
        names = [p.name for p in registered.problems()]
        assert "user.renamed" in names
        assert "user.mine" not in names

    def test_several_problems(self, file):
        text = MINE + "\n    class Second(Mine):\n        name = 'user.second'\n\n    PROBLEMS = (Second(),)\n"
        registered.add_file(file(text))
        assert {"user.mine", "user.second"} <= {p.name for p in registered.problems()}

    @pytest.mark.parametrize("name", ["assignment.makespan", "user.taken"])
    def test_a_name_that_is_taken(self, file, name):
        registered._extra["user.taken"] = Toy()
        with pytest.raises(InputError, match=f"two formulations offer the problem '{name}'"):
            registered.add_file(file(name=name))

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("x = 1", "sets no PROBLEM"),
            ("PROBLEM = 3", "sets no PROBLEM"),
            ("1 / 0", "does not run: ZeroDivisionError: division by zero"),
            ("import no_such_module", "does not run: ModuleNotFoundError"),
            ("def broken(", "does not run: SyntaxError"),
        ],
    )
    def test_a_file_that_is_no_formulation(self, file, text, told):
        with pytest.raises(InputError, match=told):
            registered.add_file(file(text))
        assert registered._extra == {}

    def test_no_such_file(self, tmp_path):
        for path in (tmp_path / "none.py", tmp_path, tmp_path / "text.txt"):
            with pytest.raises(InputError, match="is no Python file"):
                registered.add_file(path)


class TestObjectives:
    instance = Instance.from_times([[1, 2]])

    def test_by_word_and_by_name(self):
        assert registered.problem_for(self.instance, "makespan").name == "assignment.makespan"
        assert registered.problem_for(self.instance, "assignment.makespan").name == "assignment.makespan"
        assert registered.problem_for(self.instance).name == "assignment.makespan"

    def test_none_asked(self):
        with pytest.raises(InputError, match=r"asks no question; choose one with --objective: .*makespan"):
            registered.problem_for(self.instance.with_question({}))

    def test_a_path_in_place_of_an_instance(self):
        with pytest.raises(InputError, match=r"the instance is a str; hetopt\.read\(path\)"):
            registered.problem_for("jobs.json", "makespan")

    def test_none_such(self):
        with pytest.raises(InputError, match="there is no objective 'makespam'; did you mean 'makespan'"):
            registered.problem_for(self.instance, "makespam")
        with pytest.raises(InputError, match=r"there is no problem 'assignment.makespam'; did you mean"):
            registered.problem("assignment.makespam")

    def test_no_word(self):
        with pytest.raises(InputError, match=r"\$.question.objective is 3, expected a word"):
            registered.problem_for(self.instance.with_question({"objective": 3}))

    def test_one_word_for_two_problems_means_the_one_that_fits(self):
        class Other(Toy):
            name = "toy.other"

            def fits(self, instance):
                return "too many devices" if instance.n_devices > 2 else None

        class Third(Toy):
            name = "toy.third"

            def fits(self, instance):
                return None if instance.n_devices > 2 else "too few devices"

        registered._extra.update({"toy.other": Other(), "toy.third": Third()})
        assert registered.problem_for(self.instance, "toy").name == "toy.other"
        assert registered.problem_for(Instance.from_times([[1, 2, 3]]), "toy").name == "toy.third"
        registered._extra["toy.sum"] = Toy()
        with pytest.raises(
            InputError, match=r"asked by several problems that fit \(toy.other, toy.sum\); give the full name"
        ):
            registered.problem_for(self.instance, "toy")
        del registered._extra["toy.other"], registered._extra["toy.sum"]
        with pytest.raises(
            InputError, match=r"objective 'toy' \(toy.third\) does not fit this instance: too few devices"
        ):
            registered.problem_for(self.instance, "toy")
        with pytest.raises(InputError, match=r"toy.third does not fit this instance: too few devices"):
            registered.problem_for(self.instance, "toy.third")

    def test_all_names_are_unique_and_sorted(self):
        names = [p.name for p in registered.problems()]
        assert names == sorted(set(names))
