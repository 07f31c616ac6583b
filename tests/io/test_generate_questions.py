"""Instances for questions other than the makespan: same times, facts as documented, a plan within every limit."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hetopt
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io import generators
from hetopt.io.generate_questions import QUESTIONS
from hetopt.io.instances import decode, encode
from hetopt.registry import problem_for


def make(kind: str, /, **options) -> Instance:
    return generators.get(kind).make(**options)


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_times_are_those_of_the_makespan_and_the_question_fits(question):
    one = make("unrelated", jobs=9, machines=3, eligible=0.7, seed=5, question=question)
    plain = make("unrelated", jobs=9, machines=3, eligible=0.7, seed=5)
    assert (one.time == plain.time).all()
    assert one.question["objective"] == question
    problem = problem_for(one)
    asked = problem.question(one)
    assert problem.fits(one) is None
    assert problem.precheck(one, asked) == ()
    assert decode(encode(one)).digest == one.digest
    result = hetopt.solve(one, time_limit=5)
    assert result.solution is not None
    assert not [told for told in result.messages if "compiled" not in told]


def test_facts_are_as_documented():
    weights = make("unrelated", jobs=50, machines=2, question="weighted-completion").columns.weight
    assert (weights.min(), weights.max()) == (1, 10)
    assert {device.slots for device in make("unrelated", jobs=7, machines=3, question="bottleneck").devices} == {3}
    setup = np.array(make("unrelated", jobs=9, machines=2, question="setup-makespan").tables["setup"])
    assert setup.shape == (2, 9, 9)
    assert setup.max() <= 49
    assert (setup[:, ~np.eye(9, dtype=bool)] >= 1).all()
    priced = make("unrelated", kind="u10_100", jobs=20, machines=3, question="budget-makespan")
    assert np.corrcoef(priced.time.ravel(), priced.columns.cost.ravel())[0, 1] < -0.3  # quick machines are dear
    assert priced.columns.cost.min(axis=1).sum() <= priced.question["budget"] < priced.columns.cost.max(axis=1).sum()


@pytest.mark.parametrize("kind", ["restricted", "sharding"])
def test_seed_and_options_decide(kind):
    generator = generators.get(kind)
    spelled = {option.flag[2:].replace("-", "_"): option.default for option in generator.OPTIONS}
    assert generator.make(**spelled).digest == generator.make().digest
    assert encode(make(kind, seed=4)) == encode(make(kind, seed=4))
    assert make(kind, seed=4).digest != make(kind, seed=5).digest
    assert make(kind).source


def test_restricted_jobs_have_one_length_and_their_degree():
    instance = make("restricted", jobs=30, machines=6, degree=3, sizes="two", longest=7)
    able = instance.eligible
    assert (able.sum(axis=1) == 3).all()
    assert set(instance.time[able].tolist()) == {1.0, 7.0}
    assert all(len(set(row[ok].tolist())) == 1 for row, ok in zip(instance.time, able, strict=True))
    assert instance.question["objective"] == "restricted-makespan"
    with pytest.raises(InputError, match="--degree is 7"):
        make("restricted", machines=6, degree=7)


def test_tables_fit_and_their_seconds_are_those_of_the_bandwidth():
    instance = make("sharding", fleet="a100-sxm-40:2,v100-sxm2-16:1", tables=10, batch=100, seed=2)
    assert instance.n_tasks == 10
    assert [device.type for device in instance.devices] == ["a100-sxm-40", "a100-sxm-40", "v100-sxm2-16"]
    assert (instance.time[:, 0] == instance.time[:, 1]).all()
    assert (instance.time[:, 0] < instance.time[:, 2]).all()  # the V100's memory is slower
    assert instance.memory.max() <= 0.8 * instance.capacity.min()
    dimension = instance.output / (100 * 4)
    assert set(dimension.tolist()) <= {16.0, 32.0, 64.0, 96.0, 128.0}
    pooling = instance.columns.activation / instance.output
    assert (pooling == np.floor(pooling)).all()
    curve = instance.tables["fusion"]["a100-sxm-40"]
    assert curve[0] == [1.0, 0.0]
    assert curve[1][1] < 0 and math.isclose(curve[2][1] / curve[1][1], (0.9 * 7 + 0.5 * 2) / (0.9 * 7))
    assert len(make("sharding", fleet="a100-sxm-40:2").time) == 26
    with pytest.raises(InputError, match="use fewer tables or more GPUs"):
        make("sharding", fleet="v100-sxm2-16:1", tables=200)
    with pytest.raises(InputError, match="expected GPUs with both"):
        make("sharding", fleet="snapdragon-8-gen-3-npu:1")
