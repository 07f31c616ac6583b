"""Trace events for chrome://tracing and Perfetto: a process for each device, an arrow for each transfer."""

from __future__ import annotations

import math
from typing import Any

from hetopt.instance import Instance
from hetopt.replay.report import Replay

__all__ = ["chrome_trace"]

_MICRO = 1e6


def chrome_trace(instance: Instance, found: Replay) -> dict[str, Any]:
    """``{"traceEvents": [...]}`` of a replay, times in microseconds.

    A device's work is in its thread 1, what arrives there in threads 2 and up, as many as arrive at a time. A flow (``s``, ``f``)
    leads from the end of a run over a transfer to the run that reads it.
    """
    events: list[dict[str, Any]] = []
    for p, name in enumerate(instance.device_names):
        events.append({"ph": "M", "pid": p, "tid": 0, "name": "process_name", "args": {"name": name}})
        events.append({"ph": "M", "pid": p, "tid": 0, "name": "process_sort_index", "args": {"sort_index": p}})
        events.append({"ph": "M", "pid": p, "tid": 1, "name": "thread_name", "args": {"name": "work"}})
    for run in found.runs:
        frame = run.frame
        events.append(
            {
                "ph": "X", "pid": run.device, "tid": 1, "name": run.name, "cat": "work",
                "ts": run.start * _MICRO, "dur": (run.end - run.start) * _MICRO,
                "args": {
                    "job": instance.columns.job_name[frame.job], "frame": frame.number, "release_s": frame.release,
                    "latency_s": frame.latency if math.isfinite(frame.latency) else None,
                    "deadline_s": frame.deadline if math.isfinite(frame.deadline) else None,
                },
            }
        )  # fmt: skip
    lanes: list[list[float]] = [[] for _ in instance.devices]
    for number, sent in enumerate(found.transfers):
        source, target = found.runs[sent.source], found.runs[sent.target]
        lane = next((k for k, end in enumerate(lanes[target.device]) if end <= sent.start), len(lanes[target.device]))
        lanes[target.device][lane : lane + 1] = [sent.end]
        flow = {"cat": "transfer", "name": "data", "id": number}
        events += [
            {
                "ph": "X", "pid": target.device, "tid": 2 + lane, "name": f"{source.name} -> {target.name}",
                "cat": "transfer", "ts": sent.start * _MICRO, "dur": (sent.end - sent.start) * _MICRO,
                "args": {"bytes": sent.data, "from": instance.device_names[source.device]},
            },
            {"ph": "s", "pid": source.device, "tid": 1, "ts": source.start * _MICRO, **flow},
            {"ph": "f", "bp": "e", "pid": target.device, "tid": 1, "ts": target.start * _MICRO, **flow},
        ]  # fmt: skip
    for p, row in enumerate(lanes):
        for k in range(len(row)):
            lane_name = {"name": "arriving" if k == 0 else f"arriving {k + 1}"}
            events.append({"ph": "M", "pid": p, "tid": 2 + k, "name": "thread_name", "args": lane_name})
    return {"traceEvents": events, "displayTimeUnit": "ms"}
