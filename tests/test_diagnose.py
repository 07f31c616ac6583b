"""Why there is no plan and what mends it; what is scarce and what more buys: each amount against brute force."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import hetopt
from hetopt import Instance
from hetopt.changes import extra_devices, fewer_tokens, looser_rules, more_memory
from hetopt.diagnose import irreducible
from hetopt.records import Device, Link
from hetopt.registry import problem

TIGHT = Instance.from_times([[1, 1]] * 3, memory=[4] * 3, capacity=[5, 6])
ROOMY = Instance.from_times([[3, 1], [2, 4], [5, 5], [1, 2]], memory=[4] * 4, capacity=[8, 8])


@cache
def diagnosed(instance):
    return hetopt.diagnose(instance, time_limit=60)


def by_words(found):
    return {m.sentence.partition(" (")[0]: m for m in found.mends}


class TestNoPlan:
    @pytest.fixture
    def found(self):
        return diagnosed(TIGHT)

    def test_the_least_amounts(self, found):
        mends = by_words(found)
        assert mends["3 bytes more memory on d0"].too_little == 2
        assert mends["2 bytes more memory on d1"].too_little == 1
        assert mends["2 bytes more memory on each device"].too_little == 1
        assert "one more d0" in mends

    def test_the_conflict_is_irreducible(self, found):
        assert set(found.conflict) == {"assign[j0]", "assign[j1]", "assign[j2]", "memory[d0]", "memory[d1]"}

    def test_words_and_data_say_the_same(self, found):
        lines = found.lines()
        assert lines[0] == "there is no plan:"
        assert "  3 bytes more memory on d0 (2 bytes is proved too little)" in lines
        record = json.loads(json.dumps(found.to_json()))
        assert record["mends"][0]["amount"] == 3

    @pytest.mark.parametrize("seed", range(3))
    def test_against_brute_force(self, seed):
        rng = np.random.default_rng(seed)
        need = rng.integers(2, 9, 4)
        room = rng.integers(1, 9, 2)
        instance = Instance.from_times(np.ones((4, 2)), memory=need, capacity=room)
        found = hetopt.diagnose(instance, time_limit=60)
        least = []
        if found.result.solution is None:
            sums = [sum(chosen) for k in range(5) for chosen in itertools.combinations(need.tolist(), k)]
            for own, other in ((0, 1), (1, 0)):
                least.append(min(max(0, need.sum() - rest - room[own]) for rest in sums if rest <= room[other]))
        amounts = [m.amount for m in found.mends if "on d" in m.sentence and "more memory" in m.sentence]
        assert amounts == least

    def test_groups_that_cannot_share_a_device(self):
        pair = Instance.from_graph([[1, 1]] * 2, np.empty((0, 2)), memory=[3, 3], capacity=[4, 4], group=["g", "g"])
        found = hetopt.diagnose(pair, objective="makespan", time_limit=60)
        assert "letting the tasks of a group run apart" in by_words(found)


class TestAPlan:
    @pytest.fixture
    def found(self):
        return diagnosed(ROOMY)

    def test_what_is_scarce(self, found):
        assert any(sentence.startswith("time: d") for sentence in found.binding)
        assert "memory: d0 uses 8 bytes of 8 bytes" in found.binding

    def test_gains_are_those_of_solving_the_changed_instance(self, found):
        more = hetopt.solve(
            Instance.from_times([[3, 1, 3], [2, 4, 2], [5, 5, 5], [1, 2, 1]], memory=[4] * 4, capacity=[8, 8, 8])
        )
        gain = next(g for g in found.gains if g.change == "one more d0")
        assert gain.value == more.objective
        assert gain.sentence.startswith("one more d0: ")

    def test_no_gain_is_said_when_it_is_proved(self, found):
        assert any(g.sentence.endswith("gains nothing (proved)") for g in found.gains)

    def test_prices_come_from_the_relaxation(self, found):
        assert all(sentence.startswith("shadow price in the") for sentence in found.prices)


class TestChanges:
    def test_amount_zero_changes_nothing(self):
        kind = problem("assignment.makespan")
        grouped = Instance.from_graph([[1, 1]] * 2, np.empty((0, 2)), memory=[3, 3], capacity=[4, 4], group=["g", "g"])
        for change in [*more_memory(grouped, kind), *extra_devices(grouped), *looser_rules(grouped, kind)]:
            assert change.apply(grouped, 0.0).digest == grouped.digest

    def test_a_twin_has_the_times_and_links_of_its_kind(self):
        devices = [Device(name="a", type="gpu"), Device(name="b")]
        links = (Link(source="a", target="b", bandwidth=1.0), Link(source="b", target="gpu", bandwidth=2.0))
        instance = replace(Instance.from_times([[3, 7]], devices=devices), links=links)
        first, second = (change.apply(instance, 1.0) for change in extra_devices(instance))
        assert first.time.tolist() == [[3, 7, 3]]
        assert first.devices[2].type == "gpu"
        assert first.link("b", "a+1").bandwidth == 2.0
        assert second.time.tolist() == [[3, 7, 7]]
        assert second.link("a", "b+1").bandwidth == 1.0
        assert second.link("b+1", "a").bandwidth == 2.0

    def test_a_type_with_slots_says_how_many_come_with_it(self):
        instance = Instance.from_times([[3, 7]], devices=[Device(name="a", slots=5), Device(name="b")])
        assert [change.say(1.0) for change in extra_devices(instance)] == ["one more a with 5 slots", "one more b"]

    def test_tables_by_device_stop_twins(self):
        assert list(extra_devices(replace(TIGHT, tables={"setup": []}))) == []

    def test_fewer_tokens_where_they_are_counted(self):
        chain = problem("partition.chain")
        asked = TIGHT.with_question({"objective": "chain-bottleneck", "tokens": 100})
        (change,) = fewer_tokens(asked, chain)
        assert change.apply(asked, 40).question["tokens"] == 60
        assert change.say(40) == "60 tokens of context instead of 100"
        assert list(fewer_tokens(TIGHT, problem("assignment.makespan"))) == []


class TestConflict:
    def test_a_feasible_relaxation_has_none(self):
        makespan = problem("assignment.makespan").method("milp")
        assert irreducible(makespan.build(Instance.from_times([[1, 2], [2, 1]]))) == ()

    def test_leaving_any_row_out_mends_it(self):
        model = problem("assignment.makespan").method("milp").build(TIGHT)
        names = irreducible(model)
        rows = [model.row_names().index(name) for name in names]
        from hetopt.control import Control
        from hetopt.solvers import Options, get

        assert get("highs").solve(model.only(rows), Options(), Control()).reason == "infeasible"
        for row in rows:
            rest = [r for r in rows if r != row]
            assert get("highs").solve(model.only(rest), Options(), Control()).reason == "optimal"
