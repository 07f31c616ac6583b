"""The evaluator of inference latency: cases worked by hand, and broken plans that must be caught."""

from __future__ import annotations

import math

import numpy as np

from hetopt.verify.latency import check_latency


def chain(**more):
    """Tasks 0 -> 1 -> 2 -> 3 of 2, 3, 4, 5 seconds, ten times as long on the host (device 2), outputs of 1."""
    case = {
        "time": np.array([[2.0, 2, 20], [3, 3, 30], [4, 4, 40], [5, 5, 50]]),
        "size": np.array([10.0, 20, 30, 40]),
        "edges": np.array([(0, 1), (1, 2), (2, 3)]),
        "output": np.ones(4),
        "memory": [60.0, 100, np.inf],
        "host": [False, False, True],
        "rate_in": [1.0, 1, 0],
        "rate_out": [2.0, 2, 0],
        "placement": [0, 0, 1, 1],
    }
    return check_latency(**case | more)


def test_subgraphs_pay_for_what_they_send_and_receive():
    """0, 1 on device 0: 2 + 3, sends at twice the price: 7. Then 2, 3 on device 1: receives 1, 4 + 5: until 17."""
    report = chain()
    assert report.violations == ()
    assert report.runs == ((0, 1, 0, 7, 7), (1, 1, 7, 17, 10))
    assert report.ready == [7, 7, 17, 17]
    assert report.value == 17
    assert isinstance(report.value, int)
    assert report.memory == [30, 70, 0]


def test_a_host_runs_tasks_side_by_side_and_pays_nothing():
    report = chain(placement=[2, 2, 2, 2], edges=np.array([(0, 3), (1, 3), (2, 3)]))
    assert report.ready == [20, 30, 40, 90]
    assert report.runs == ()


def test_an_output_is_paid_once_a_subgraph():
    """Task 0 on the host feeds 1, 2 and 3 together: one arrival."""
    report = chain(placement=[2, 1, 1, 1], edges=np.array([(0, 1), (0, 2), (0, 3)]))
    assert report.runs == ((1, 1, 20, 33, 1 + 3 + 4 + 5),)


def test_a_subgraph_waits_for_all_its_inputs():
    """1 and 3 on an accelerator, 0 and 2 on the host: nothing of it starts before 40."""
    report = chain(placement=[2, 0, 2, 0], edges=np.array([(0, 1), (2, 3)]))
    assert report.ready == [20, 40 + 2 + 3 + 5, 40, 50]


def test_a_subgraph_that_is_not_convex_never_ends():
    report = chain(placement=[0, 1, 0, 1], memory=[np.inf] * 3)
    assert report.value == math.inf
    assert len(report.violations) == 1
    assert report.violations[0].startswith("the plan never ends: ")
    assert "subgraph 1 of device 1 waits for subgraph 1 of device 0" in report.violations[0]


def test_two_subgraphs_run_in_the_order_of_their_numbers():
    """0 | 1 | 2, 3 with 0 and 2, 3 on device 0: 2 + 2, then 1 on device 1: 1 + 3 + 2, then 1 + 4 + 5."""
    more = {"placement": [0, 1, 0, 0], "memory": [80.0, 100, np.inf], "most": 2}
    report = chain(subgraph=[1, 1, 2, 2], **more)
    assert report.violations == ()
    assert report.runs == ((0, 1, 0, 4, 4), (1, 1, 4, 10, 6), (0, 2, 10, 20, 10))
    assert "never ends" in chain(subgraph=[2, 1, 1, 1], **more).violations[0]
    found = chain(subgraph=[1, 1, 3, 2], **more).violations
    assert found == ("task 2 is in subgraph 3 of device 0; expected a number from 1 to 2",)


def test_subgraphs_of_one_accelerator_do_not_overlap_and_share_its_memory():
    """Two independent tasks in two subgraphs: one after the other; 50 bytes together are 1 too many for 49."""
    case = {"placement": [2, 2, 0, 0], "edges": np.zeros((0, 2)), "subgraph": [1, 1, 2, 1], "most": 2}
    report = chain(memory=[70.0, 0, np.inf], **case)
    assert report.runs == ((0, 1, 0, 5, 5), (0, 2, 5, 9, 4))
    assert chain(memory=[69.0, 0, np.inf], **case).violations == ("device 0 holds 70 of memory, 1 more than its 69",)


def test_a_group_shares_a_device_and_a_task_must_be_able_to_run():
    assert chain(group=[-1, 4, 4, -1]).violations == ("group 4 is split: task 1 on device 0 and task 2 on device 1",)
    time = np.array([[2.0, 2, 20], [np.inf, 3, 30], [4, 4, 40], [5, 5, 50]])
    report = chain(time=time)
    assert report.violations == ("task 1 cannot run on device 0",)
    assert report.value == math.inf


def test_a_task_left_out_is_named():
    assert chain(placement=[0, 0, -1, 1], tasks=list("abcd")).violations == ("task c is on no device",)
    assert chain(placement=[0, 0, 1]).violations[0] == "the plan places 3 tasks; there are 4"
