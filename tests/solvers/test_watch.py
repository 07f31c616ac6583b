"""The thread that waits: events, limits, Ctrl-C, and solvers that do not obey."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from solver_cases import hard

from hetopt import clock, solvers
from hetopt.control import Control
from hetopt.solvers import Answer, Options, watch

ROOT = Path(__file__).resolve().parents[2]
WHO = ("fake", "1")


def answer(**said) -> Answer:
    return Answer(**{"reason": "optimal", "solver": "fake", "version": "1", "status": "done", **said})


def obedient(look):
    """A solver that has a point and a bound, then works until it is told to stop."""
    look.incumbent(np.array([1.0]))
    look.bound(7.0)
    while not look.stopped:
        time.sleep(0.001)
    return answer(reason="interrupted", x=np.array([1.0]))


def stubborn(release: threading.Event):
    def work(look):
        look.incumbent(np.array([1.0, 2.0]))
        look.bound(7.0)
        release.wait(30)
        return answer()

    return work


@pytest.fixture
def release():
    event = threading.Event()
    yield event
    event.set()


def test_events_are_delivered_in_order_with_copies():
    seen = []

    def work(look):
        x = np.zeros(1)
        for k in range(5):
            x[0] = k
            look.incumbent(x)
            look.bound(float(k // 2))
        look.bound(np.inf)
        return answer()

    options = Options(on_incumbent=lambda x: seen.append(x[0]), on_bound=lambda b: seen.append(f"b{b:g}"))
    watch.supervise(work, options, None, None, WHO)
    assert [v for v in seen if not isinstance(v, str)] == [0, 1, 2, 3, 4]
    assert [v for v in seen if isinstance(v, str)] == ["b0", "b1", "b2"]


def test_the_deadline_stops_a_solver_and_its_answer_counts():
    started = time.monotonic()
    got = watch.supervise(obedient, Options(), 0.1, None, WHO)
    assert got.x.tolist() == [1.0]
    assert time.monotonic() - started < 2


def test_a_solver_that_is_told_rather_than_asked():
    told = threading.Event()

    def work(look):
        look.on_stop = told.set
        told.wait(20)
        return answer(status="told")

    assert watch.supervise(work, Options(), 0.05, None, WHO).status == "told"


@pytest.mark.parametrize(
    ("act", "verdict"),
    [
        (lambda control: control.cancel(), ("interrupted", None)),
        (lambda control: setattr(control, "deadline", clock.now()), ("limit", "time")),
        (lambda control: (setattr(control, "value", 5.0), setattr(control, "bound", 5.0)), ("limit", "gap")),
    ],
    ids=["cancelled", "deadline", "closed"],
)
def test_the_runs_own_stop_sign_is_obeyed_and_told_apart(act, verdict, release, monkeypatch):
    monkeypatch.setattr(watch, "GRACE", 0.1)
    control = Control()
    threading.Timer(0.1, act, [control]).start()
    got = watch.supervise(stubborn(release), Options(), None, control, WHO)
    assert (got.reason, got.limit) == verdict


def test_a_solver_that_does_not_obey_is_left_behind_with_its_best_point(release, monkeypatch):
    monkeypatch.setattr(watch, "GRACE", 0.1)
    settle()
    got = watch.supervise(stubborn(release), Options(), 0.05, None, WHO)
    assert (got.reason, got.limit, got.x.tolist(), got.bound) == ("limit", "time", [1.0, 2.0], 7.0)
    assert "left behind" in got.notes[0]
    assert watch.abandoned() == 1
    release.set()
    settle()


def settle():
    """Wait until no solver is left behind."""
    for _ in range(250):
        if watch.abandoned() == 0:
            return
        time.sleep(0.02)
    pytest.fail("a solver that was released is still running")


def test_an_event_handler_that_raises_stops_the_solver_and_is_heard():
    stopped = threading.Event()

    def work(look):
        obedient(look)
        stopped.set()
        return answer()

    def handler(x):
        raise LookupError("the judge died")

    with pytest.raises(LookupError, match="the judge died"):
        watch.supervise(work, Options(on_incumbent=handler), None, None, WHO)
    assert stopped.is_set()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="this system does not tell resident memory")
def test_the_memory_limit_stops_a_solver_that_grows(release, monkeypatch):
    monkeypatch.setattr(watch, "GRACE", 0.1)

    def work(look):
        hoard = []
        while not look.stopped:
            hoard.append(np.ones(2**18))
            time.sleep(0.001)
        return answer(reason="limit", limit=watch.VERDICTS[look.cause][1])

    got = watch.supervise(work, Options(memory_limit=50 * 2**20), 20.0, None, WHO)
    assert (got.reason, got.limit) == ("limit", "memory")


@pytest.mark.skipif(os.name == "nt", reason="signals to oneself work differently there")
@pytest.mark.parametrize("name", ["highs", "cpsat", "pulp"])
def test_ctrl_c_returns_the_best_point_and_cancels_the_run(name):
    control, model = Control(), hard()
    pressed: list[bool] = []

    def press(x=None):
        if not pressed:
            pressed.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    if name == "pulp":  # it tells nothing on the way
        threading.Timer(1.0, press).start()
    got = solvers.get(name).solve(model, Options(time_limit=30, on_incumbent=press), control)
    assert got.reason == "interrupted"
    assert control.cancelled.is_set()
    assert got.seconds < 10
    if name != "pulp":
        assert model.check(got.x) == []
        assert got.bound <= got.objective


@pytest.mark.parametrize(("name", "native"), [("highs", {"solver": "simplex"}), ("highs", {"solver": "ipm"}), ("glop", {}),
                                              ("pdlp", {})])  # fmt: skip
def test_linear_programs_stop_when_cancelled(name, native):
    """Simplex, interior point and first-order methods each look up between iterations."""
    model = hard(3000, 30).relax()
    control = Control()
    timer = threading.Timer(0.3, control.cancel)
    timer.start()
    got = solvers.get(name).solve(model, Options(native=native, time_limit=60), control)
    timer.cancel()
    if got.reason == "optimal":
        pytest.skip("the machine was faster than the interruption")
    assert got.reason == "interrupted"
    assert got.x is None or model.check(got.x) == []


@pytest.mark.skipif(os.name == "nt", reason="signals to oneself work differently there")
def test_a_second_ctrl_c_does_not_wait():
    """In a process of its own: two interrupts during a phase that cannot be interrupted."""
    code = """
import os, signal, threading, time
from hetopt.solvers import Options, watch, Answer
def work(look):
    time.sleep(30)
    return Answer("optimal", "fake", "1", "done")
for delay in (0.2, 0.5):
    threading.Timer(delay, os.kill, [os.getpid(), signal.SIGINT]).start()
started = time.monotonic()
got = watch.supervise(work, Options(), None, None, ("fake", "1"))
assert time.monotonic() - started < 2.5, time.monotonic() - started
print(got.reason, watch.abandoned(), flush=True)
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("interrupted 1\n", 0), done.stderr
