"""The step on all ideals against loads summed from the graph, for every pair of nested ideals."""

from __future__ import annotations

import numpy as np
import pytest
from stage_cases import random_case

from hetopt.algorithms import maxload_lattice
from hetopt.algorithms.contraction import contract
from hetopt.algorithms.ideals import enumerate_ideals
from hetopt.algorithms.maxload_kernels import Limits, Reached
from hetopt.algorithms.maxload_lattice import expand_lattice
from hetopt.algorithms.maxload_layers import Family, Problem, stage_loads
from hetopt.algorithms.stagecosts import NEVER


def family_of(seed: int, n: int, passes: bool) -> tuple[Problem, Family]:
    case = random_case(np.random.default_rng(seed), n, directed=bool(seed % 2), training=True)
    graph = contract(**case, merge_zero_time=False)
    problem = Problem(graph, passes, sizes_up=False)
    ideals = enumerate_ideals(graph.pred_ptr, graph.pred)
    family = Family.of_ideals(problem, ideals, lambda: False)
    assert family is not None
    assert sorted(map(tuple, map(family.members, range(family.number)))) == sorted(
        map(tuple, map(ideals.members, range(family.number)))
    )
    return problem, family


def reach(problem: Problem, family: Family, start: int, kind: int, caps: tuple[int, int, int], which: int, step=None):
    """Best value of each ideal from one entry of value 1, without windows."""
    k = family.potential.shape[1]
    limits = Limits(
        np.array(caps), problem.room[kind : kind + 1], np.array([which]), np.full(k, -np.inf), np.full(k, np.inf),
        np.full(k, np.inf), np.array([0]),
    )  # fmt: skip
    reached = Reached(
        np.full(family.number, NEVER), np.full(family.number, -1, np.int32), np.full(family.number, -1, np.int8)
    )
    entries, values = np.array([start], np.int32), np.array([1])
    done = (step or expand_lattice)(
        entries, values, 0, kind, 10**6, problem.costs, limits, family.table, family.potential, reached
    )
    assert done == 1
    return reached


@pytest.mark.parametrize("passes", [False, True])
def test_every_stage_between_nested_ideals_has_the_load_of_its_classes(passes):
    pairs = 0
    for seed in range(12):
        problem, family = family_of(seed, 7, passes)
        sets = [frozenset(family.members(j).tolist()) for j in range(family.number)]
        assert (sets[0], sets[-1]) == (frozenset(), frozenset(range(len(problem.size))))
        for start in range(family.number):
            for kind in range(len(problem.types)):
                for which in range(1 + passes):
                    reached = reach(problem, family, start, kind, (NEVER - 1,) * 3, which)
                    for j in range(family.number):
                        stage = np.array(sorted(sets[j] - sets[start]), np.int64)
                        loads = stage_loads(problem.costs, stage, kind)
                        fits = problem.size[stage].sum() <= problem.room[kind] and loads[0] < NEVER
                        if sets[start] < sets[j] and fits:
                            assert reached.best[j] == max(1, loads[which])
                            assert (reached.back[j], reached.kind[j]) == (0, kind)
                            pairs += 1
                        else:
                            assert (reached.best[j], reached.kind[j]) == (NEVER, -1)
    assert pairs > 1000


def test_caps_of_each_pass_and_of_both_together_leave_out_exactly_the_stages_above_them():
    left_out = 0
    for seed in range(6):
        problem, family = family_of(seed, 6, True)
        for kind in range(len(problem.types)):
            free = reach(problem, family, 0, kind, (NEVER - 1,) * 3, 0)
            stages = [family.members(j) for j in np.flatnonzero(free.kind >= 0)]
            loads = np.array([stage_loads(problem.costs, stage, kind) for stage in stages]).reshape(-1, 2)
            for row, column in ((0, loads[:, 0]), (1, loads[:, 1]), (2, loads.sum(axis=1))):
                cap = max(1, int(np.sort(column)[len(column) // 2])) if len(column) else 1
                caps = [NEVER - 1] * 3
                caps[row] = cap
                capped = reach(problem, family, 0, kind, tuple(caps), 0)
                assert (capped.kind >= 0).sum() == (column <= cap).sum()
                left_out += int((column > cap).sum())
    assert left_out > 50


def test_compiled_steps_equal_their_plain_twins(monkeypatch):
    for seed in range(4):
        problem, family = family_of(seed, 7, True)
        compiled = [reach(problem, family, s, 0, (NEVER - 1,) * 3, 0) for s in range(family.number)]
        with monkeypatch.context() as patch:
            for name in ("_holds", "_loads", "_row", "_upper_end", "_cut_nets"):
                patch.setattr(maxload_lattice, name, getattr(maxload_lattice, name).py_func)
            _, other = family_of(seed, 7, True)
            for name in family.table._fields:
                if name not in ("row", "made"):
                    np.testing.assert_array_equal(getattr(family.table, name), getattr(other.table, name))
            for s, one in enumerate(compiled):
                plain = reach(problem, other, s, 0, (NEVER - 1,) * 3, 0, expand_lattice.py_func)
                for a, b in zip(one, plain, strict=True):
                    np.testing.assert_array_equal(a, b)


def test_more_than_64_ideals_and_classes_are_found_across_words():
    # two chains of 70 classes each: 71 * 71 ideals, bits in three words
    n = 140
    edges = [(a, a + 1) for a in range(n - 1) if a != 69]
    graph = contract(
        np.ones((n, 1)), np.ones(n), edges, np.ones(n), np.full(n, -1), np.zeros(n, bool), [3], [np.inf], [1.0], [1.0]
    )
    problem = Problem(graph, False, sizes_up=False)
    family = Family.of_ideals(problem, enumerate_ideals(graph.pred_ptr, graph.pred), lambda: False)
    assert family is not None and family.number == 71 * 71
    random = np.random.default_rng(0)
    for start in random.integers(0, family.number, 5).tolist():
        reached = reach(problem, family, start, 0, (NEVER - 1,) * 3, 0)
        members = set(family.members(start).tolist())
        above = 0
        for j in range(family.number):
            stage = set(family.members(j).tolist()) - members
            if j != start and members <= set(family.members(j).tolist()):
                above += 1
                if above % 37 == 0:
                    assert reached.best[j] == max(1, stage_loads(problem.costs, np.array(sorted(stage)), 0)[0])
            else:
                assert reached.kind[j] == -1
        assert (reached.kind >= 0).sum() == above
