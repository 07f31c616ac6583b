"""One mode a task under budgets: worked by hand, brute force, diverse choices, prices, broken plans."""

from __future__ import annotations

import numpy as np
import pytest

import hetopt
from hetopt import InputError, Instance, Solution
from hetopt.io.generators import block_library
from hetopt.records import Device, Job, Mode, Task
from hetopt.registry import problem

TASKS = [
    Task(
        name=name,
        time=[1],
        modes=[
            Mode(name="full", time=[10], memory=100, score=0),
            Mode(name="half", time=[6], memory=50, score=score),
            Mode(name="none", time=[1], memory=0, score=3 * score),
        ],
    )
    for name, score in (("a", 1), ("b", 2), ("c", 4))
]


def asked(memory=None, **question) -> Instance:
    return Instance.build(
        [Device(name="gpu", memory=memory)],
        [Job(name="net", tasks=TASKS)],
        question={"objective": "multichoice", **question},
    )


def chosen(result):
    return [result.solution.details["modes"][name] for name in "abc"]


@pytest.mark.parametrize(
    ("memory", "question", "modes", "score"),
    [
        (None, {}, ["full", "full", "full"], 0),
        (250, {}, ["half", "full", "full"], 1),
        (200, {}, ["half", "half", "full"], 3),
        (200, {"time": 21.5}, ["none", "full", "full"], 3),
        (None, {"time": 22}, ["half", "half", "full"], 3),
    ],
    ids=["free", "memory", "less", "both", "time"],
)
def test_by_hand(memory, question, modes, score):
    result = hetopt.solve(asked(memory, **question))
    assert (result.status, result.objective) == ("optimal", score)
    assert chosen(result) == modes or score == 3
    hetopt.verify(asked(memory, **question), result)


def test_budgets_that_nothing_meets():
    result = hetopt.solve(asked(time=2.5))
    assert result.status == "infeasible"
    assert result.infeasible == ("time: the thriftiest modes need 3, the budget is 2.5: 0.5 short",)


def test_diverse_choices_differ_and_get_no_better():
    results = hetopt.diverse(asked(250), 3, 2)
    assert len(results) == 3
    assert [r.objective for r in results] == sorted(r.objective for r in results)
    for i, a in enumerate(results):
        for b in results[:i]:
            assert sum(x != y for x, y in zip(chosen(a), chosen(b), strict=True)) >= 2


@pytest.mark.parametrize("seed", range(300, 340))
def test_against_all_choices(seed):
    one = problem("selection.multichoice")
    instance = one.sample(seed)
    question = one.question(instance)
    judged = [one.judge(instance, question, plan) for plan in one.every_plan(instance, question)]
    values = [each.value for each in judged if not each.violations]
    for method in ("auto", "milp", "branch", "lp", "prices"):
        result = hetopt.solve(instance, method=method)
        if not values:
            assert result.solution is None
            assert result.status == "infeasible" or method in ("lp", "prices")
            continue
        if method in ("auto", "milp", "branch"):
            assert result.status == "optimal"
            assert result.objective == min(values)
        assert result.objective is None or result.objective >= min(values)
        assert result.bound is None or result.bound <= min(values) + 1e-9
        hetopt.verify(instance, result)


def test_a_library_of_the_published_size_is_proved():
    instance = block_library.make()
    assert (instance.n_tasks, len(instance.task(0).modes)) == (80, 16)
    result = hetopt.solve(instance, time_limit=60)
    assert result.status == "optimal"
    hetopt.verify(instance, result)


@pytest.mark.parametrize("method", ["auto", "milp", "branch"])
def test_budgets_that_cannot_be_met_together_say_by_how_much(method):
    """Two tasks, each quick and large or slow and small; eleven seconds ask for a quick one, ten bytes for two slow ones."""
    modes = [Mode(name="quick", time=[1], memory=10, score=1), Mode(name="slow", time=[10], memory=1, score=0)]
    instance = Instance.build(
        [Device(name="gpu", memory=10)],
        [Job(name="net", tasks=[Task(name=name, modes=modes) for name in "ab"])],
        question={"objective": "multichoice", "time": 11},
    )
    result = hetopt.solve(instance, method=method)
    assert result.status == "infeasible"
    told = " ".join(result.infeasible)
    assert "memory: the other limits kept, the modes need 11 at least, the budget is 10: 1 short" in told
    assert "time: the other limits kept, the modes need 20 at least, the budget is 11: 9 short" in told


def test_a_mode_far_beyond_a_budget_is_out_of_the_others_way():
    """The solver takes coefficients of 1e-15 for zero: a mode of 1e12 seconds would leave those of a microsecond none."""
    modes = [Mode(name="never", time=[1e12], score=0), Mode(name="now", time=[1e-6], score=2)]
    instance = Instance.build(
        [Device(name="gpu")], [Job(name="net", tasks=[Task(name="a", modes=modes)])],
        question={"objective": "multichoice", "time": 2},
    )  # fmt: skip
    result = hetopt.solve(instance, method="milp")
    assert (result.status, result.objective) == ("optimal", 2)


class TestWhatIsNotStated:
    """It is refused, never taken as 0."""

    def test_a_budget_of_what_no_mode_states(self):
        with pytest.raises(InputError, match="mode 'full' of task 'a' has no energy on 'gpu', and there is a budget"):
            hetopt.solve(asked(energy=5))

    def test_a_mode_without_a_score(self):
        job = Job(name="net", tasks=[Task(name="a", modes=[Mode(name="m", time=[1])])])
        with pytest.raises(InputError, match="a score of task 'a' is missing"):
            hetopt.solve(Instance.build([Device(name="gpu")], [job], question={"objective": "multichoice"}))

    def test_a_difference_from_nothing(self):
        with pytest.raises(InputError, match=r"differ is 1, and the file has no earlier choices"):
            hetopt.solve(asked(differ=1))

    def test_an_earlier_choice_of_no_mode(self):
        instance = asked(differ=1)
        wrong = Instance.build(
            instance.devices, instance.jobs(), tables={"earlier": [["full", "half", "ful"]]}, question=instance.question
        )
        with pytest.raises(InputError, match=r"earlier\[0\]\[2\] is 'ful', which is no mode of task 'c'"):
            hetopt.solve(wrong)


class TestBrokenPlans:
    def told(self, modes, **question) -> str:
        instance = asked(250, **question)
        one = problem("selection.multichoice")
        return " ".join(one.judge(instance, one.question(instance), Solution(details={"modes": modes})).violations)

    def test_a_good_one(self):
        assert self.told({"a": "half", "b": "full", "c": "full"}) == ""

    def test_too_much(self):
        assert "memory adds up to 300, the budget is 250: 50 too much" in self.told(dict.fromkeys("abc", "full"))
        assert "time adds up to 26" in self.told({"a": "half", "b": "full", "c": "full"}, time=20)

    def test_a_task_without_a_mode(self):
        assert "task 'c' has no mode None" in self.told({"a": "half", "b": "half"})
        assert "no mode 'double'" in self.told({"a": "half", "b": "half", "c": "double"})
        assert "'z', which is no task" in self.told({"a": "half", "b": "half", "c": "half", "z": "half"})

    @pytest.mark.parametrize("prices", [{"memory": -1}, {}, {"memory": 1, "time": 1}, {"memory": np.inf}], ids=str)
    def test_prices_that_prove_nothing(self, prices):
        instance = asked(250)
        one = problem("selection.multichoice")
        with pytest.raises(ValueError, match="price"):
            one.replay(instance, one.question(instance), {"kind": "prices", "prices": prices})


def test_a_mode_without_bytes_takes_its_tasks():
    """The only task takes 9 bytes in each mode that states none; 8 are there."""
    modes = [Mode(name="plain", score=1), Mode(name="small", memory=4, score=5)]
    job = Job(name="net", tasks=[Task(name="t", time=[1], memory=9, modes=modes)])
    instance = Instance.build([Device(name="gpu", memory=8)], [job], question={"objective": "multichoice"})
    result = hetopt.solve(instance)
    assert (result.objective, result.solution.details["modes"]) == (5, {"t": "small"})
