"""What every problem must keep, whoever wrote it: found through the registry, tested on its own tiny samples.

A problem is covered by being there. Its brute force is :meth:`Problem.every_plan` judged by its own evaluator; the evaluator
itself is tested beside the problem, with cases worked out by hand.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tampering import slips

import hetopt
from hetopt import InputError, Instance, Solution, VerificationError, solvers
from hetopt.control import Control
from hetopt.formulation import ConstraintModel, LinearFormulation, Problem, Question
from hetopt.io.instances import decode, encode
from hetopt.io.results import decode_result, encode_result
from hetopt.records import Edge, Job, Link, Mode, Task
from hetopt.registry import problem, problems

ROOT = Path(__file__).resolve().parents[1]
NAMES = [p.name for p in problems()]


def variants(one: Problem) -> list[dict[str, object]]:
    """Every combination of the options that have a few choices, the usual one first."""
    choices = [
        (option.name, sorted(words, key=lambda word: word != option.default))
        for option in one.options
        if (words := (False, True) if option.kind is bool else option.kind) and isinstance(words, tuple)
    ]
    return [
        dict(zip([name for name, _ in choices], words, strict=True))
        for words in itertools.product(*[words for _, words in choices])
    ]


LEAST, MOST = (6, 12) if os.environ.get("HETOPT_LONG_TESTS") else (3, 4)


def seeds(one: Problem) -> range:
    """Enough samples that combinations of options come up, within reason; more with ``HETOPT_LONG_TESTS=1``."""
    return range(max(LEAST, min(len(variants(one)), MOST)))


CASES = [(p.name, seed) for p in problems() for seed in seeds(p)]
METHODS = [(p.name, m.name) for p in problems() for m in p.methods]
METHOD_CASES = [(p.name, m.name, seed) for p in problems() for m in p.methods for seed in seeds(p)]

UNREAD = [(p.name, fact) for p in problems() for fact in ("group", "release", "available_from") if fact not in p.uses]

cases = pytest.mark.parametrize(("name", "seed"), CASES, ids=str)
few = pytest.mark.parametrize(("name", "seed"), [case for case in CASES if case[1] < 3], ids=str)
every_method = pytest.mark.parametrize(("name", "method"), METHODS, ids=str)
every_method_and_case = pytest.mark.parametrize(("name", "method", "seed"), METHOD_CASES, ids=str)


@cache
def sample(name: str, seed: int) -> tuple[Problem, Instance, Question]:
    """A problem, one of its samples, and a question about it: what the sample asks, or the seed's combination of options."""
    one = problem(name)
    instance = one.sample(seed)
    asked = variants(one)[seed % len(variants(one))]
    instance = instance.with_question({"objective": name, **asked, **instance.question})
    return one, instance, one.question(instance)


@cache
def best(name: str, seed: int) -> tuple[float | None, tuple[Solution, ...]]:
    """Optimum by trying every plan, None when none is valid; and the best plan with a few others that are valid."""
    one, instance, question = sample(name, seed)
    optimum, kept = None, []
    for k, plan in enumerate(one.every_plan(instance, question)):
        assert k < 100_000, f"{name} has too many plans on sample {seed} for a contract test"
        evaluation = one.evaluate(instance, question, plan)
        if evaluation.violations:
            continue
        if optimum is None or (evaluation.value < optimum if one.sense == "min" else evaluation.value > optimum):
            optimum = evaluation.value
            kept.insert(0, plan)
        elif len(kept) < 8:
            kept.append(plan)
    return optimum, tuple(kept[:8])


def same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=0.0) or a == b


def not_beyond(bound: float, value: float, sense: str) -> bool:
    slack = 1e-9 * max(abs(bound), abs(value))
    return bound <= value + slack if sense == "min" else bound >= value - slack


def check_result(result, name: str, seed: int) -> None:
    """What must be true of any result, whatever method made it and however it ended."""
    one, instance, question = sample(name, seed)
    optimum, _ = best(name, seed)
    assert result.reason != "error", result.messages
    assert not [text for text in result.messages if "rejected" in text or "discarded" in text], result.messages
    if result.bound is not None and optimum is not None:
        assert not_beyond(result.bound, optimum, one.sense), f"bound {result.bound} beyond the optimum {optimum}"
    if result.status == "infeasible":
        assert optimum is None, f"called infeasible, but there is a plan of value {optimum}"
        assert result.infeasible
        assert all(sentence.strip() for sentence in result.infeasible)
    if result.solution is not None:
        assert optimum is not None, "a plan where brute force finds none"
        assert result.verified
        assert not one.evaluate(instance, question, result.solution).violations
        assert not_beyond(optimum, result.objective, one.sense), f"value {result.objective} better than {optimum}"
    if result.status == "optimal":
        assert same(result.objective, optimum)
    report = hetopt.verify(instance, decode_result(encode_result(result, instance), instance))
    assert (report.objective, report.bound) == (result.objective, result.bound)


class TestSamples:
    @cases
    def test_fits_and_repeats(self, name, seed):
        one, instance, question = sample(name, seed)
        assert one.fits(instance) is None
        assert one.sample(seed).digest == instance.digest
        assert dict(one.question(decode(encode(instance)))) == dict(question)

    @pytest.mark.parametrize("name", NAMES)
    def test_samples_differ_and_most_have_a_plan(self, name):
        tried = range(max(6, len(seeds(problem(name)))))
        assert len({sample(name, seed)[1].digest for seed in tried}) >= len(tried) - 1
        assert sum(best(name, seed)[0] is not None for seed in tried) * 2 >= len(tried)

    @cases
    def test_a_glance_that_sees_no_plan_is_right(self, name, seed):
        one, instance, question = sample(name, seed)
        if one.precheck(instance, question):
            assert best(name, seed)[0] is None


class TestMethods:
    @every_method_and_case
    def test_answer(self, name, method, seed):
        """Exact: the optimum, proved. Relaxation: a bound that holds. Heuristic: a valid plan that is not too good."""
        one, instance, question = sample(name, seed)
        chosen = one.method(method)
        why_not = chosen.fits(instance, question)
        if why_not is not None:
            pytest.skip(why_not)
        assert chosen.size(instance, question) >= 0
        limit = 0.1 if chosen.kind in ("search", "heuristic") else None  # searches that go on as long as they may
        result = hetopt.solve(instance, objective=name, method=method, time_limit=limit)
        check_result(result, name, seed)
        optimum, _ = best(name, seed)
        if chosen.kind == "exact":
            assert result.status == ("infeasible" if optimum is None else "optimal")
        if chosen.kind == "relaxation":
            assert result.solution is None
            assert result.bound is not None or result.status == "infeasible"
        if chosen.kind == "heuristic":
            assert result.bound is None
        if chosen.kind == "approximation" and optimum is not None:
            assert result.solution is not None
            assert result.bound is not None

    @every_method
    def test_without_any_time_nothing_wrong_is_said(self, name, method):
        for seed in range(3):
            one, instance, question = sample(name, seed)
            if one.method(method).fits(instance, question) is None:
                check_result(hetopt.solve(instance, objective=name, method=method, time_limit=0), name, seed)

    @every_method
    def test_cancelled_before_it_starts_it_still_returns(self, name, method):
        one, instance, question = sample(name, 0)
        if one.method(method).fits(instance, question) is not None:
            pytest.skip("does not fit")
        control = Control()
        control.cancel()
        result = hetopt.solve(instance, objective=name, method=method, control=control)
        check_result(result, name, 0)
        assert result.exit_code in (3, 130)

    @cases
    def test_the_automatic_climb(self, name, seed):
        one, instance, question = sample(name, seed)
        result = hetopt.solve(instance)
        check_result(result, name, seed)
        if any(m.kind == "exact" and m.fits(instance, question) is None for m in one.methods):
            assert result.status == ("infeasible" if best(name, seed)[0] is None else "optimal")
        assert result.method_why

    @few
    def test_all_bounds_together(self, name, seed):
        one, instance, question = sample(name, seed)
        if one.bounds(instance, question):
            check_result(hetopt.bound(instance), name, seed)

    @few
    def test_a_hint_never_binds(self, name, seed):
        optimum, plans = best(name, seed)
        if optimum is None:
            pytest.skip("there is no plan")
        _, instance, _ = sample(name, seed)
        result = hetopt.solve(instance, hint=plans[-1])
        check_result(result, name, seed)
        assert not [text for text in result.messages if "hint" in text]
        assert result.status != "unknown"


def at_plan(method, instance: Instance, question: Question, plan: Solution) -> tuple[Solution, float] | None:
    """The plan that a method's model reads back when it is held to what ``encode`` says of a plan, and the value there.

    None when the method does not encode the plan.
    """
    if isinstance(method, LinearFormulation):
        model = method.build(instance, question)
        point = method.encode(instance, model, plan)
        if point is None:
            return None
        assert point.shape == (model.n_columns,)
        known = ~np.isnan(point)
        assert known.any()
        held = model.with_scaled_objective(1.0)
        lower, upper = np.where(known, point, model.lower), np.where(known, point, model.upper)
        assert (lower >= model.lower - 1e-9).all(), "the plan's point lies outside the model's bounds"
        assert (upper <= model.upper * (1 + 1e-9) + 1e-9).all(), "the plan's point lies outside the model's bounds"
        held.__dict__.update(lower=lower, upper=upper)
        answer = solvers.get("highs").solve(held)
        assert answer.reason == "optimal", "the plan is no point of the model"
        return method.decode(instance, model, answer.x), answer.objective
    program = method.program(instance, question, Control(sense=question.problem.sense))
    point = method.encode(instance, question, program, plan)
    if point is None:
        return None
    assert point.shape == (len(program.variables),)
    for variable, value in zip(program.variables, point.tolist(), strict=True):
        if not math.isnan(value):
            program.model.add(variable == int(value))
    answer = solvers.get("cpsat").solve(program)
    assert answer.reason == "optimal", "the plan is no point of the model"
    return method.decode(instance, question, program, answer.x), answer.objective


class TestModels:
    @every_method_and_case
    def test_decode_encode(self, name, method, seed):
        """A valid plan is a point of the model with the plan's value, and is read back as it was.

        Where a model leaves out plans that another one dominates, that other one may come back instead, and be as good.
        """
        one, instance, question = sample(name, seed)
        chosen = one.method(method)
        if not isinstance(chosen, (LinearFormulation, ConstraintModel)) or not chosen.gives_plan:
            pytest.skip("no model whose points are plans")
        if chosen.fits(instance, question) is not None:
            pytest.skip("does not fit")
        for plan in best(name, seed)[1][:3]:
            value = one.evaluate(instance, question, plan).value
            found = at_plan(chosen, instance, question, plan)
            if found is None:
                continue
            back, model_value = found
            back_value = one.evaluate(instance, question, back)
            assert not back_value.violations
            assert not_beyond(back_value.value, value, one.sense)
            if chosen.kind == "exact":
                assert same(model_value, back_value.value)
            if back != plan:
                assert chosen.kind == "exact", "a restriction or heuristic that changes a plan is no model of it"

    @every_method
    def test_models_have_readable_unique_names(self, name, method):
        one, instance, question = sample(name, 1)
        chosen = one.method(method)
        if not isinstance(chosen, LinearFormulation) or chosen.fits(instance, question) is not None:
            pytest.skip("no linear model")
        model = chosen.build(instance, question)
        for names in (model.column_names(), model.row_names()):
            assert len(set(names)) == len(names)
        assert chosen.build(instance).sense == one.sense


def rearranged(instance: Instance, seed: int) -> Instance:
    """The same question with devices, jobs and tasks in another order and under other names."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(instance.n_devices).tolist()
    name = {v.name: f"machine {k}" for k, v in enumerate(instance.devices)}
    devices = [msgspec.structs.replace(instance.devices[i], name=name[instance.devices[i].name]) for i in order]

    def names(word):
        if word is None or isinstance(word, str):
            return name.get(word, word)
        return [name.get(one, one) for one in word]

    def table(row):
        if row is None:
            return None
        return [row[i] for i in order] if isinstance(row, list) else {name.get(k, k): v for k, v in row.items()}

    def mode(one: Mode) -> Mode:
        tables = {key: table(getattr(one, key)) for key in ("time", "cost", "energy")}
        return msgspec.structs.replace(one, **tables)

    def moved(record: Job | Task, new: str):
        tables = {key: table(getattr(record, key)) for key in ("time", "cost", "energy")}
        return msgspec.structs.replace(
            record,
            name=new,
            group=None if record.group is None else f"group of {record.group}",
            pin=names(record.pin),
            forbid=names(record.forbid),
            modes=[mode(one) for one in record.modes],
            **tables,
        )

    jobs = []
    for j, job in enumerate(instance.jobs()):
        if job.tasks is None:
            jobs.append(moved(job, f"work {j}"))
            continue
        new = {task.name: f"step {k}" for k, task in enumerate(job.tasks)}
        tasks = [moved(task, new[task.name]) for task in job.tasks]
        edges = [Edge(source=new[e.source], target=new[e.target], data=e.data) for e in job.edges]
        jobs.append(
            msgspec.structs.replace(
                job,
                name=f"work {j}",
                tasks=[tasks[k] for k in rng.permutation(len(tasks))],
                edges=[edges[k] for k in rng.permutation(len(edges))],
            )
        )
    links = [msgspec.structs.replace(v, source=name.get(v.source, v.source), target=name.get(v.target, v.target))
             for v in instance.links]  # fmt: skip
    return Instance.build(
        devices, [jobs[k] for k in rng.permutation(len(jobs))], links, question=instance.question, name="rearranged"
    )


def scaled(instance: Instance, factor: float) -> Instance:
    """Every duration times ``factor``, every rate divided by it."""

    def table(row):
        if isinstance(row, list):
            return [None if v is None else v * factor for v in row]
        return None if row is None else {k: None if v is None else v * factor for k, v in row.items()}

    def times(value):
        return None if value is None else value * factor

    def work(record):
        changed = {"time": table(record.time)}
        changed["modes"] = [msgspec.structs.replace(m, time=table(m.time)) for m in record.modes]
        return msgspec.structs.replace(record, **changed)

    jobs = []
    for job in instance.jobs():
        dates = {key: times(getattr(job, key)) for key in ("release", "due", "deadline", "period")}
        tasks = None if job.tasks is None else [work(task) for task in job.tasks]
        jobs.append(msgspec.structs.replace(work(job), tasks=tasks, **dates))
    devices = [
        msgspec.structs.replace(v, available_from=v.available_from * factor, due=times(v.due)) for v in instance.devices
    ]
    links = [
        Link(
            source=v.source, target=v.target, latency=v.latency * factor, both=v.both,
            bandwidth=None if v.bandwidth is None else v.bandwidth / factor,
        )
        for v in instance.links
    ]  # fmt: skip
    return Instance.build(devices, jobs, links, question=instance.question)


class TestInvariance:
    @cases
    def test_names_and_order_do_not_matter(self, name, seed):
        _, instance, _ = sample(name, seed)
        if instance.tables:
            pytest.skip("a table's order is its problem's own")
        other = rearranged(instance, seed)
        result = hetopt.solve(other)
        optimum, _ = best(name, seed)
        assert result.reason != "error", result.messages
        if optimum is None:
            assert result.solution is None
        elif result.status == "optimal":
            assert same(result.objective, optimum)

    @cases
    @pytest.mark.parametrize("factor", [2.0**-30, 2.0**30, 1000.0], ids=["2^-30", "2^30", "1000"])
    def test_another_unit_of_time_scales_the_value(self, name, seed, factor):
        one, instance, question = sample(name, seed)
        if one.unit != "seconds" or instance.tables:
            pytest.skip("not a question of durations alone")
        other = scaled(instance, factor)
        optimum, plans = best(name, seed)
        for plan in plans:
            if plan.details or plan.shares is not None:
                continue  # what they say in seconds is the problem's own
            value = one.evaluate(instance, question, plan).value
            later = plan if plan.start is None else replace(plan, start=plan.start * factor)
            evaluation = one.evaluate(other, question, later)
            assert not evaluation.violations
            assert math.isclose(evaluation.value, value * factor, rel_tol=1e-9)
        result = hetopt.solve(other)
        assert result.reason != "error", result.messages
        if optimum is None:
            assert result.solution is None
        elif result.status == "optimal":
            assert same(result.objective, optimum * factor)
        exact = any(m.kind == "exact" and m.fits(other, question) is None for m in one.methods)
        if exact and optimum is not None:
            assert result.status == "optimal"
        for step in one.bounds(other, question) if optimum is not None else ():
            bounded = hetopt.bound(other, method=step.method)
            assert bounded.reason != "error", bounded.messages
            assert bounded.bound is None or not_beyond(bounded.bound, optimum * factor, one.sense)


def damages(plan: Solution) -> list[Solution]:
    """The plan with a part taken away, or with something else in its place, one at a time."""
    junk = [None, [], {}, "x", -1, 10**9, 0.5, True, [None], [[]], {"x": 1}, [["x", -1, 10**9]]]
    out = [Solution()]
    for part in ("placement", "start", "shares"):
        array = getattr(plan, part)
        if array is None:
            continue
        out += [replace(plan, **{part: None}), replace(plan, **{part: array[:-1]}), replace(plan, **{part: -1 - array})]
        if part != "placement":
            with np.errstate(invalid="ignore"):
                out += [replace(plan, **{part: array * wrong}) for wrong in (0.0, 2.0, np.nan, np.inf)]
    if plan.details:
        out += [replace(plan, details={}), replace(plan, details={**plan.details, "no such key": 1})]
    for key, value in plan.details.items():
        out += [replace(plan, details={**plan.details, key: other}) for other in junk]
        for k in range(len(value) if isinstance(value, list) else 0):
            out += [
                replace(plan, details={**plan.details, key: [*value[:k], *other, *value[k + 1 :]]})
                for other in ([], *([one] for one in junk))
            ]
        for inner in list(value) if isinstance(value, dict) else ():
            rest = {k: v for k, v in value.items() if k != inner}
            out += [replace(plan, details={**plan.details, key: rest})]
            out += [replace(plan, details={**plan.details, key: {**rest, inner: other}}) for other in junk]
    return out


class TestResults:
    @cases
    def test_round_trip_and_verification(self, name, seed):
        _, instance, _ = sample(name, seed)
        result = hetopt.solve(instance)
        again = decode_result(encode_result(result, instance), instance)
        assert encode_result(again, instance) == encode_result(result, instance)
        assert (again.status, again.solution, again.bound) == (result.status, result.solution, result.bound)
        report = hetopt.verify(decode(encode(instance)), again)
        assert report.objective == result.objective
        if result.bound_proof == "replayed":
            assert report.bound_proof == "replayed"

    @few
    def test_bounds_are_verified(self, name, seed):
        one, instance, question = sample(name, seed)
        for step in one.bounds(instance, question):
            result = hetopt.bound(instance, method=step.method)
            report = hetopt.verify(instance, decode_result(encode_result(result, instance), instance))
            assert report.bound_proof == result.bound_proof

    @cases
    def test_any_one_task_moved_is_caught(self, name, seed):
        """Wherever a task goes, the plan breaks a constraint or has another value, or is as good; only the last may pass."""
        one, instance, question = sample(name, seed)
        result = hetopt.solve(instance)
        if result.solution is None or result.solution.placement is None:
            pytest.skip("there is no placement")
        for task, device in itertools.product(range(instance.n_tasks), range(-1, instance.n_devices)):
            placement = np.array(result.solution.placement)
            if placement[task] == device:
                continue
            placement[task] = device
            moved = replace(result.solution, placement=placement)
            evaluation = one.evaluate(instance, question, moved)
            assert device >= 0 or evaluation.violations, "a task left out is no violation"
            try:
                hetopt.verify(instance, replace(result, solution=moved))
            except VerificationError:
                continue
            assert not evaluation.violations
            assert same(evaluation.value, result.objective)

    @cases
    def test_a_damaged_plan_is_a_sentence(self, name, seed):
        """Whatever a result file says in place of a plan, it is told, and never an accident."""
        _, instance, _ = sample(name, seed)
        result = hetopt.solve(instance)
        if result.solution is None:
            pytest.skip("there is no plan")
        slipped = slips(instance, result.solution, seed, 12)
        for damaged in (*damages(result.solution), *(plan for plan in slipped if not isinstance(plan, str))):
            try:
                report = hetopt.verify(instance, replace(result, solution=damaged))
            except (VerificationError, InputError) as error:
                assert str(error).strip()
            else:
                assert same(report.objective, result.objective)

    @few
    def test_a_wrong_value_or_bound_is_caught(self, name, seed):
        one, instance, _ = sample(name, seed)
        result = hetopt.solve(instance)
        if result.solution is None or not result.objective:
            pytest.skip("there is no value to change")
        sign = 1 if one.sense == "min" else -1
        step = sign * 0.1 * abs(result.objective)
        for wrong in (
            {"objective": result.objective - step},
            {"objective": result.objective + step},
            {"objective": None},
            {"bound": result.objective + step, "bound_proof": "solver", "certificate": None},
            {"bound_proof": "replayed", "certificate": None},
            {"certificate": {"kind": "none such"}, "bound": result.objective},
            {"instance_digest": "sha256:0"},
            {"sense": "max" if one.sense == "min" else "min"},
        ):
            with pytest.raises(VerificationError):
                hetopt.verify(instance, replace(result, **wrong))


class TestFacts:
    @pytest.mark.parametrize(("name", "fact"), UNREAD, ids=str)
    def test_what_a_plan_must_keep_is_kept_or_refused(self, name, fact):
        """A question that does not read a fact says so before, not by turning down the plans of its own methods."""
        one = problem(name)
        file = json.loads(encode(max((one.sample(seed) for seed in range(3)), key=lambda each: each.n_tasks)))
        where = {
            "group": (file["jobs"][0].get("tasks") or file["jobs"])[:3],
            "release": file["jobs"],
            "available_from": file["devices"],
        }[fact]
        for record in where:
            record[fact] = "together" if fact == "group" else 3
        try:
            instance = decode(json.dumps(file))
        except InputError:  # a group without a device in common
            return
        if one.fits(instance) is None:
            result = hetopt.solve(instance, objective=name, time_limit=20, gap=0.5)
            assert not [text for text in result.messages if "rejected" in text], result.messages


class TestWords:
    @pytest.mark.parametrize("name", NAMES)
    def test_a_problem_says_what_it_is(self, name):
        one = problem(name)
        module = sys.modules[type(one).__module__]
        assert one.name.count(".") == 1
        assert one.title
        assert "\n" not in one.title
        assert one.objectives
        assert all(word == word.lower() and " " not in word for word in one.objectives)
        text = module.__doc__ or ""
        assert "(1)" in text, "the module's docstring is the mathematics, numbered"
        assert any(word in text for word in ("inimise", "aximise"))
        assert "Source" in text
        assert one.methods
        assert len({m.name for m in one.methods}) == len(one.methods)
        for method in one.methods:
            assert method.title
            assert "\n" not in method.title
            assert method.kind in ("exact", "relaxation", "approximation", "search", "heuristic")
            assert method.name == method.name.lower()
            assert method.name != "auto"
        for option in one.options:
            assert option.help
            assert option.check(option.default) == option.default

    @pytest.mark.parametrize("name", NAMES)
    def test_documentation_names_it(self, name):
        pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
        pages += [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.py")]
        generated = any("problems()" in page for page in pages)
        assert generated or any(name in page for page in pages)


PLANS = """
import json, sys
import hetopt
from hetopt.io.results import plain
from hetopt.registry import problems
told = {}
for one in problems():
    for seed in (0, 1):
        instance = one.sample(seed)
        question = one.question(instance)
        for method in one.methods:
            if method.fits(instance, question) is None and (seed == 0 or method.kind not in ("search", "heuristic")):
                r = hetopt.solve(instance, objective=one.name, method=method.name, seed=3)
                plan = None if r.solution is None else r.solution.to_json(instance)
                told[f"{one.name} {method.name} {seed}"] = [plan, r.objective, r.bound, r.status, r.certificate]
json.dump(plain(told), sys.stdout, sort_keys=True)
"""


def test_the_same_seed_gives_the_same_plan_whatever_the_order_of_hashing():
    told = []
    for seed in ("0", "1"):
        run = subprocess.run(
            [sys.executable, "-c", PLANS],
            cwd=ROOT,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        )
        assert run.returncode == 0, run.stderr
        told.append(json.loads(run.stdout))
    differing = [key for key in told[0] if told[0][key] != told[1][key]]
    assert not differing
