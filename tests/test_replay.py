"""Replay: what happens when, by hand; plans of every question of the family; broken plans; traces; the command line."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import hetopt
from hetopt import InputError, Instance, Solution
from hetopt.cli import main
from hetopt.io.generators import phone
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.registry import problem
from hetopt.replay import chrome_trace, follow, replay, replayed
from hetopt.replay.events import Work, execute
from hetopt.verify.streams import Way, streams_of


def two_devices(**facts) -> Instance:
    """a and b on p and q, 6 bytes between them, latency 1 and 2 bytes a second: c(a, b) = 1 + 3."""
    tasks = [Task(name="a", time=[3, 9], output=6, memory=10), Task(name="b", time=[9, 2], memory=20)]
    job = Job(name="j", tasks=tasks, edges=[Edge(source="a", target="b")], **facts)
    links = [Link(source="*", target="*", bandwidth=2, latency=1)]
    return Instance.build(
        [Device(name="p"), Device(name="q")], [job], links, question={"objective": "schedule-latency"}
    )


def plan(placement, start) -> Solution:
    return Solution(placement=np.array(placement), start=np.array(start, float))


class TestOnce:
    def test_a_transfer_and_what_is_held_meanwhile(self):
        seen = replay(two_devices(), plan([0, 1], [0, 7]), "schedule.latency", {})
        assert (seen.objective, seen.complaints, seen.misses) == (9, (), 0)
        assert [(r.name, r.device, r.start, r.end) for r in seen.runs] == [("a", 0, 0, 3), ("b", 1, 7, 9)]
        assert [(t.start, t.end, t.data) for t in seen.transfers] == [(3, 7, 6)]
        assert seen.busy == (3, 2)
        assert seen.peak == (10 + 6, 20 + 6)

    def test_what_comes_too_early_is_late_and_told(self):
        seen = replay(two_devices(), plan([0, 1], [0, 5]), "schedule.latency", {})
        assert seen.objective == 9
        assert seen.complaints == ("b starts on 'q' at 7, planned for 5: what it reads is there at 7",)

    def test_two_at_a_time_are_told(self):
        jobs = [Job(name=v, time=[3]) for v in "xy"]
        instance = Instance.build([Device(name="p")], jobs)
        seen = replay(instance, plan([0, 0], [0, 2]), "schedule.latency", {})
        assert seen.complaints == ("y starts on 'p' at 3, planned for 2: x runs until 3",)
        assert seen.objective == 6

    def test_before_its_release(self):
        seen = replay(two_devices(release=2), plan([0, 0], [0, 5]), "schedule.latency", {})
        assert "before its release at 2" in seen.complaints[0]

    def test_no_length_takes_no_time_of_a_device(self):
        jobs = [Job(name="long", time=[5]), Job(name="mark", time=[0])]
        seen = replay(Instance.build([Device(name="p")], jobs), plan([0, 0], [0, 2]), "schedule.latency", {})
        assert (seen.complaints, seen.objective) == ((), 5)

    def test_another_way_through_the_host(self):
        tasks = [Task(name="a", time=[1, None], output=4), Task(name="b", time=[None, 1])]
        job = Job(name="j", tasks=tasks, edges=[Edge(source="a", target="b")])
        links = [Link(source="p", target="host", bandwidth=2), Link(source="host", target="q", bandwidth=4, latency=1)]
        instance = Instance.build([Device(name="p"), Device(name="q")], [job], links)
        assert replay(instance, plan([0, 1], [0, 5]), "schedule.latency", {}).objective == 1 + 2 + 2 + 1
        with pytest.raises(InputError, match="no way leads from 'p' to 'q'"):
            replay(
                Instance.build([Device(name="p"), Device(name="q")], [job]),
                plan([0, 1], [0, 5]),
                "schedule.latency",
                {},
            )

    @pytest.mark.parametrize("name", ["schedule.latency", "partition.mapping", "schedule.online"])
    @pytest.mark.parametrize("seed", range(4))
    def test_plans_come_to_their_value(self, name, seed):
        one = problem(name)
        instance = one.sample(seed)
        result = hetopt.solve(instance, objective=name)
        if result.solution is None:
            pytest.skip("no plan")
        seen = replayed(instance, result)
        assert seen.complaints == ()
        assert seen.objective == pytest.approx(result.objective, rel=1e-9)

    def test_another_value_than_claimed(self):
        instance = two_devices()
        result = hetopt.solve(instance)
        seen = replayed(instance, replace(result, objective=result.objective - 1))
        assert "the replay comes to the value" in seen.complaints[0]

    def test_what_cannot_be_replayed(self):
        instance = two_devices()
        with pytest.raises(InputError, match="has no start times"):
            replay(instance, plan([0, 1], [0, 7]), "assignment.makespan", {})
        with pytest.raises(InputError, match="not a device and a start for each"):
            replay(instance, Solution.assign([0, 1]), "schedule.latency", {})
        result = hetopt.solve(instance)
        with pytest.raises(InputError, match="another instance"):
            replayed(two_devices(release=1), result)
        with pytest.raises(InputError, match="no plan"):
            replayed(instance, replace(result, solution=None))


class TestEngine:
    def test_a_policy_takes_the_smallest_key(self):
        works = [Work(str(k), k, 0, 2.0, 0.0, key=(float(3 - k),)) for k in range(3)]
        execute(works, 1, [1.0])
        assert [w.start for w in works] == [5.0, 3.0, 1.0]

    def test_a_dropped_frame_runs_no_further(self):
        works = [
            Work("a", 0, 0, 2.0, 0.0),
            Work("b", 0, 0, 2.0, 0.0, inputs=[(0, 0.0, 0.0)]),
            Work("c", 1, 0, 1.0, 0.0),
        ]
        execute(works, 1, [0.0], late=lambda work, now: work.name == "b")
        assert [works[0].start, works[2].start] == [0.0, 2.0]
        assert np.isnan(works[1].start)


class TestPolicies:
    def streams(self, due: float | None = None) -> Instance:
        jobs = [Job(name="x", time=[2], period=4, deadline=due), Job(name="y", time=[3], period=8)]
        return Instance.build([Device(name="p")], jobs)

    def ways(self):
        return [[Way(0, 0, 0, "", 2.0)], [Way(1, 1, 0, "", 3.0)]]

    @pytest.mark.parametrize(
        ("policy", "ends"), [("edf", [2, 7, 5]), ("fifo", [2, 7, 5]), ("rate-monotonic", [2, 7, 5])]
    )
    def test_one_hyperperiod(self, policy, ends):
        seen, starts = follow(self.streams(), self.ways(), policy, turns=1)
        assert [f.latency + f.release for f in seen.frames] == ends
        assert [[s for _, s in row] for row in starts] == [[0], [5], [2]]
        assert seen.misses == 0

    def test_a_deadline_is_missed_or_the_frame_dropped(self):
        seen, _ = follow(self.streams(due=2.5), self.ways(), "edf", turns=1)
        assert (seen.misses, seen.drops) == (1, 0)
        seen, starts = follow(self.streams(due=2.5), self.ways(), "edf", turns=1, may_drop=True)
        assert (seen.misses, seen.drops) == (0, 1)
        assert starts[1] == []

    def test_a_faster_rate(self):
        seen, _ = follow(self.streams(), self.ways(), "fifo", turns=1, rate=1.25)
        assert seen.seconds == pytest.approx(6.4)
        assert seen.frames[1].release == pytest.approx(3.2)


class TestCyclic:
    @pytest.mark.parametrize("question", phone.QUESTIONS)
    def test_the_phone(self, question):
        instance = phone.make(seed=6, question=question)
        result = hetopt.solve(instance, method="fifo")
        seen = replayed(instance, result)
        assert (seen.complaints, seen.misses) == ((), 0)
        assert seen.objective == pytest.approx(result.objective, rel=1e-9)
        told = seen.to_json(instance)
        assert told["frames"] == 7
        assert all(0 <= row["utilisation"] <= 1 for row in told["devices"].values())
        assert streams_of(instance).hyperperiod == pytest.approx(0.1)

    def test_a_start_moved_is_told(self):
        instance = phone.make(seed=6)
        result = hetopt.solve(instance, method="fifo")
        frames = json.loads(json.dumps(result.solution.details["frames"]))
        frames["eyes"][1][0]["start"] -= 0.02
        seen = replay(instance, Solution(details={"frames": frames}), result.problem, result.question)
        assert seen.complaints
        with pytest.raises(InputError, match="no segment"):
            frames["eyes"][0][0]["device"] = "tpu"
            replay(instance, Solution(details={"frames": frames}), result.problem, result.question)


class TestTrace:
    def test_events(self):
        instance = two_devices()
        text = json.loads(
            json.dumps(chrome_trace(instance, replay(instance, plan([0, 1], [0, 7]), "schedule.latency", {})))
        )
        events = text["traceEvents"]
        names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        assert names == {0: "p", 1: "q"}
        work = [(e["name"], e["pid"], e["ts"], e["dur"]) for e in events if e.get("cat") == "work"]
        assert work == [("a", 0, 0, 3e6), ("b", 1, 7e6, 2e6)]
        flows = [(e["ph"], e["pid"], e["id"]) for e in events if e["ph"] in "sf"]
        assert flows == [("s", 0, 0), ("f", 1, 0)]
        sent = next(e for e in events if e["ph"] == "X" and e["cat"] == "transfer")
        assert (sent["ts"], sent["dur"], sent["args"]["bytes"]) == (3e6, 4e6, 6)
        for event in events:
            assert {"ph", "pid", "tid", "name"} <= set(event)
            assert event["ph"] == "M" or event["ts"] >= 0

    def test_on_the_command_line(self, tmp_path):
        instance, result = tmp_path / "i.json", tmp_path / "r.json"
        hetopt.write(two_devices(), instance)
        run = CliRunner().invoke
        assert run(main, ["solve", str(instance), "-o", str(result)]).exit_code == 0
        done = run(main, ["replay", str(instance), str(result), "--trace", str(tmp_path / "t.json"), "--json"])
        assert done.exit_code == 0
        assert json.loads(done.stdout)["misses"] == 0
        assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
        done = run(main, ["replay", str(instance), str(result)])
        assert "0 late" in done.stdout
        bad = json.loads(result.read_text())
        bad["solution"]["start"]["b"] = 1.0
        result.write_text(json.dumps(bad))
        done = run(main, ["replay", str(instance), str(result)])
        assert done.exit_code == 1
        assert "planned for 1" in done.stderr
        done = run(main, ["replay", str(instance), str(result), "--trace", str(tmp_path / "none" / "t.json")])
        assert done.exit_code == 1
