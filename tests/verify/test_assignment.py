"""Each constraint of a placement: a case worked out by hand, and a broken plan that must be caught."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.instance import Instance
from hetopt.records import Device, Job, Task
from hetopt.verify.assignment import device_details, device_sums, loads, placement_violations


def check(instance: Instance, placement) -> tuple[str, ...]:
    return placement_violations(instance, np.asarray(placement))


class TestPlacement:
    instance = Instance.from_times([[3, 1], [2, 4]])

    def test_a_valid_one(self):
        assert check(self.instance, [1, 0]) == ()
        assert loads(self.instance, np.array([1, 0])).tolist() == [2.0, 1.0]
        assert loads(self.instance, np.array([0, 0])).tolist() == [5.0, 0.0]

    def test_none(self):
        assert placement_violations(self.instance, None) == ("the plan has no placement",)

    @pytest.mark.parametrize("placement", [[0], [0, 1, 1], [[0, 1]]], ids=str)
    def test_wrong_shape(self, placement):
        (sentence,) = check(self.instance, placement)
        assert sentence == f"the placement has shape {np.shape(placement)}, expected (2,)"

    @pytest.mark.parametrize("nowhere", [-1, 2, -7, 2**40])
    def test_a_task_left_out(self, nowhere):
        assert check(self.instance, [0, nowhere]) == ("task 'j1' is not placed on any device",)
        assert loads(self.instance, np.array([0, nowhere])).tolist() == [3.0, 0.0]

    def test_at_most_so_many_sentences_of_a_kind(self):
        many = Instance.from_times(np.ones((50, 1)))
        assert len(placement_violations(many, np.full(50, -1), most=7)) == 7


class TestEligibility:
    instance = Instance.build(
        [Device(name="gpu", type="accelerator"), Device(name="cpu")],
        [
            Job(name="never", time=[None, 2]),
            Job(name="pinned", time=[1, 2], pin="accelerator"),
            Job(name="shy", time=[1, 2], forbid="cpu"),
        ],
    )

    def test_where_each_may_run(self):
        assert check(self.instance, [1, 0, 0]) == ()

    @pytest.mark.parametrize(
        ("placement", "sentence"),
        [
            ([0, 0, 0], "task 'never' cannot run on 'gpu': no time is given there"),
            ([1, 1, 0], "task 'pinned' cannot run on 'cpu': it is pinned to 'accelerator'"),
            ([1, 0, 1], "task 'shy' cannot run on 'cpu': 'cpu' is forbidden"),
        ],
    )
    def test_each_broken(self, placement, sentence):
        assert check(self.instance, placement) == (sentence,)

    def test_time_where_it_cannot_run_is_not_counted(self):
        assert loads(self.instance, np.array([0, 1, 0])).tolist() == [1.0, 0.0]


class TestGroups:
    instance = Instance.build(
        [Device(name="a"), Device(name="b")],
        [
            Job(name="x", time=[1, 1], group="g"),
            Job(name="y", time=[1, 1]),
            Job(name="z", time=[1, 1], group="g"),
            Job(name="u", time=[1, 1], group="h"),
            Job(name="v", time=[1, 1], group="h"),
        ],
    )

    @pytest.mark.parametrize("placement", [[0, 1, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]], ids=str)
    def test_together(self, placement):
        assert check(self.instance, placement) == ()

    def test_apart(self):
        assert check(self.instance, [0, 0, 1, 1, 1]) == ("tasks 'x' and 'z' of group 'g' are on different devices",)
        assert len(check(self.instance, [0, 0, 1, 0, 1])) == 2

    def test_one_of_a_group_left_out(self):
        assert check(self.instance, [0, 0, -1, 1, 1]) == (
            "task 'z' is not placed on any device",
            "tasks 'x' and 'z' of group 'g' are on different devices",
        )


class TestMemory:
    instance = Instance.build(
        [Device(name="small", memory=10, reserved=3), Device(name="big", memory=None)],
        [
            Job(name="a", time=[1, 1], memory=4),
            Job(name="b", time=[1, 1], memory=3),
            Job(name="c", time=[1, 1], memory=1),
        ],
    )

    def test_exactly_full(self):
        assert check(self.instance, [0, 0, 1]) == ()

    def test_one_byte_too_many(self):
        assert check(self.instance, [0, 0, 0]) == ("device 'small' needs 8 bytes of memory and has 7: 1 too many",)

    def test_no_limit(self):
        assert check(self.instance, [1, 1, 1]) == ()

    def test_reserved_more_than_there_is(self):
        full = Instance.build([Device(name="d", memory=2, reserved=5)], [Job(name="a", time=[1], memory=1)])
        assert check(full, [0]) == ("device 'd' needs 1 bytes of memory and has 0: 1 too many",)

    def test_bytes_are_exact_where_floating_point_sums_are_not(self):
        """2^53 + 1 + 1 bytes: added one by one as floats, both ones would vanish."""
        jobs = [
            Job(name="a", time=[1], memory=2**53),
            Job(name="b", time=[1], memory=1),
            Job(name="c", time=[1], memory=1),
        ]
        fits = Instance.build([Device(name="d", memory=float(2**53 + 2))], jobs)
        assert check(fits, [0, 0, 0]) == ()
        short = Instance.build([Device(name="d", memory=2**53)], jobs)
        assert len(check(short, [0, 0, 0])) == 1

    def test_tenths_that_fill_a_device_exactly(self):
        tenths = Instance.from_times(np.ones((10, 1)), memory=[0.1] * 10, capacity=[1.0])
        assert check(tenths, [0] * 10) == ()


class TestTaskLimits:
    instance = Instance.build(
        [Device(name="a", max_tasks=1), Device(name="b", max_tasks=0), Device(name="c")],
        [Job(name="x", time=[1, 1, 1]), Job(name="y", time=[1, 1, 1])],
    )

    def test_at_the_limit(self):
        assert check(self.instance, [0, 2]) == ()

    def test_above(self):
        assert check(self.instance, [0, 0]) == ("device 'a' holds 2 tasks, at most 1 are allowed",)
        assert check(self.instance, [1, 2]) == ("device 'b' holds 1 tasks, at most 0 are allowed",)


def test_details_name_what_each_device_holds():
    instance = Instance.build(
        [Device(name="a", memory=9), Device(name="b")],
        [Job(name="x", time=[2, 3], memory=4), Job(name="y", time=[2, 3], memory=5), Job(name="z", time=[7, None])],
    )
    placement = np.array([0, 1, 1])  # z cannot run on b
    assert device_details(instance, placement, loads(instance, placement)) == {
        "a": {"load": 2.0, "memory": 4.0, "tasks": 1},
        "b": {"load": 3.0, "memory": 5.0, "tasks": 1},
    }


def test_tasks_of_graphs_are_named_in_full():
    job = Job(name="net", tasks=[Task(name="in", time=[1, None]), Task(name="out", time=[1, 1])])
    instance = Instance.build([Device(name="a"), Device(name="b")], [job, Job(name="alone", time=[1, 1])])
    assert check(instance, [1, 0, 0]) == ("task 'net/in' cannot run on 'b': no time is given there",)


NUMBERS = st.one_of(
    st.integers(0, 50).map(float), st.integers(0, 2**53).map(float), st.floats(0, 1e9), st.sampled_from([0.1, 0.2, 0.3])
)


@given(st.lists(st.tuples(NUMBERS, st.integers(0, 2)), max_size=12))
def test_sums_are_exactly_rounded(pairs):
    values = np.array([v for v, _ in pairs], float)
    where = np.array([i for _, i in pairs], np.int64)
    exact = [sum((Fraction(v) for v, i in pairs if i == device), Fraction(0)) for device in range(3)]
    assert device_sums(values, where, 3).tolist() == [float(total) for total in exact]


@st.composite
def instances(draw):
    n, d = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    devices = [
        Device(name=f"d{i}", memory=draw(st.none() | st.integers(0, 12)), max_tasks=draw(st.none() | st.integers(0, n)))
        for i in range(d)
    ]
    jobs = []
    for j in range(n):
        time = draw(st.lists(st.none() | st.integers(0, 9), min_size=d, max_size=d).filter(any_number))
        jobs.append(
            Job(name=f"j{j}", time=time, memory=draw(st.integers(0, 6)), group=draw(st.sampled_from([None, None, "g"])))
        )
    return Instance.build(devices, jobs)


def any_number(row) -> bool:
    return any(entry is not None for entry in row)


@given(instances(), st.data())
def test_agrees_with_the_constraints_read_word_by_word(instance, data):
    d = instance.n_devices
    placement = [data.draw(st.integers(-1, d)) for _ in range(instance.n_tasks)]
    jobs = list(instance.jobs())
    valid = True
    for job, i in zip(jobs, placement, strict=True):
        valid &= 0 <= i < d and job.time[i] is not None
    groups = {i for job, i in zip(jobs, placement, strict=True) if job.group}
    valid &= len(groups) <= 1
    for i, device in enumerate(instance.devices):
        mine = [job for job, where in zip(jobs, placement, strict=True) if where == i]
        valid &= device.memory is None or sum(job.memory for job in mine) <= device.memory
        valid &= device.max_tasks is None or len(mine) <= device.max_tasks
    assert (check(instance, placement) == ()) == valid
