"""Import a job graph and a system on a chip in the text format of DS3 and SoCRATES.

Job file: ``job_name``, ``add_new_tasks``, for each task ``name id predecessors...``, and ``comm_vol from to volume``. The lines
with HEAD, TAIL, earliest start and deadline are hints to DS3's simulator and are not kept. SoC file: ``add_new_resource TYPE name
id capacity functions [governor]``, ``opp`` lines (not kept: times are those at the highest frequency), ``task time power`` for
each task it can run, ``comm_band from to bandwidth``. A resource of capacity c is c devices. The resource of type MEM is the
shared memory: where two elements have no bandwidth of their own, data pass through it, in and out. Bandwidth 0 is no link.
Source of the format: S. Arda et al., IEEE Transactions on Computers 69 (2020).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hetopt.errors import InputError
from hetopt.instance import HOST, Instance
from hetopt.io.importers._text import MAX_CELLS, load_text, number
from hetopt.io.kinds import Option
from hetopt.records import Device, Edge, Job, Link, Task

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "ds3"
TITLE = "A job graph on a system on a chip (DS3 and SoCRATES text files)."
SOURCE_HELP = "text file of the job (job_name, add_new_tasks, comm_vol)."
OPTIONS: tuple[Option, ...] = (Option("--soc", str, None, "Text file of the chip (add_new_resource, comm_band)."),)

Row = tuple[str, list[str]]


def load(source: str | Path, *, soc: str | Path | None = None) -> Instance:
    """Instance of a job file on a chip; names are those of the files; the question is when the last task is done.

    Raises
    ------
    InputError
        No chip is named; a file cannot be read; a line, task or resource is not as expected.
    """
    if soc is None:
        raise InputError("--soc is missing, expected the text file of the chip")
    name, tasks, edges = _job(list(_rows(source)))
    devices, links, times = _chip(list(_rows(soc)))
    if len(tasks) * len(devices) > MAX_CELLS:
        raise InputError(f"{len(tasks)} tasks on {len(devices)} devices are more than {MAX_CELLS} times")
    records = [
        Task(name=task, time={device: row[task] for device, row in times.items() if task in row}) for task in tasks
    ]
    return Instance.build(
        devices,
        [Job(name=name, tasks=records, edges=edges)],
        links,
        question={"objective": "schedule-latency"},
        name=name,
        source=f"imported from the DS3 files {Path(source).name} and {Path(soc).name}",
    )


def _rows(source: str | Path) -> Iterator[Row]:
    """Place and words of each line that says something."""
    for k, line in enumerate(load_text(source).splitlines(), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            yield f"{source}: line {k}", words


def _job(rows: list[Row]) -> tuple[str, list[str], list[Edge]]:
    name = "job"
    tasks: list[str] = []
    data: dict[tuple[int, int], float | None] = {}
    wanted: list[tuple[str, int, int]] = []
    for place, words in rows:
        if words[0] == "job_name":
            name = words[1] if len(words) > 1 else name
        elif words[0] == "comm_vol":
            if len(words) != 4:
                raise InputError(f"{place} is {' '.join(words)[:60]!r}, expected 'comm_vol from to volume'")
            data[_whole(words[1], place), _whole(words[2], place)] = _number(words[3], place)
        elif words[0] != "add_new_tasks" and len(words) > 1 and words[1] not in ("HEAD", "TAIL", "earliest_start"):
            if _whole(words[1], place) != len(tasks):
                raise InputError(
                    f"{place} gives the task {words[0][:60]!r} the number {words[1][:20]}, expected {len(tasks)}"
                )
            wanted += [(place, _whole(word, place), len(tasks)) for word in words[2:]]
            tasks.append(words[0])
    for place, u, _ in wanted:
        if u >= len(tasks):
            raise InputError(f"{place} names the predecessor {u}, and there are {len(tasks)} tasks")
    arcs = {(u, v) for _, u, v in wanted}
    for u, v in data:
        if (u, v) not in arcs:
            raise InputError(f"comm_vol {u} {v} joins tasks of which none precedes the other")
    return name, tasks, [Edge(source=tasks[u], target=tasks[v], data=data.get((u, v), 0)) for u, v in sorted(arcs)]


def _chip(rows: list[Row]) -> tuple[list[Device], list[Link], dict[str, dict[str, float]]]:
    devices: list[Device] = []
    end: dict[int, str] = {}
    times: dict[str, dict[str, float]] = {}
    band: dict[tuple[int, int], float] = {}
    mine: dict[str, float] = {}
    for place, words in rows:
        if words[0] == "add_new_resource":
            if len(words) < 6:
                raise InputError(
                    f"{place} has {len(words)} words, expected 'add_new_resource TYPE name id capacity functions'"
                )
            kind, name, key, count = words[1], words[2], _whole(words[3], place), _whole(words[4], place)
            if key in end or count > 1000:
                raise InputError(f"{place} repeats the number {key}, or has a capacity above 1000")
            end[key], mine = (HOST if kind == "MEM" else name), {}
            for k in range(count if kind != "MEM" else 0):
                device = Device(name=name if count == 1 else f"{name}.{k}", type=name)
                devices.append(device)
                times[device.name] = mine
        elif words[0] == "comm_band":
            if len(words) != 4:
                raise InputError(f"{place} is {' '.join(words)[:60]!r}, expected 'comm_band from to bandwidth'")
            band[_whole(words[1], place), _whole(words[2], place)] = _number(words[3], place)
        elif words[0] != "opp" and len(words) == 3:
            mine[words[0]] = _number(words[1], place)
    links = []
    for (a, b), rate in band.items():
        if a not in end or b not in end:
            raise InputError(f"comm_band {a} {b} names a resource that is not there")
        if rate > 0 and not end[a] == end[b] == HOST:
            both = a != b and HOST in (end[a], end[b]) and (b, a) not in band
            links.append(Link(source=end[a], target=end[b], bandwidth=rate, both=both))
    return devices, links, times


def _whole(word: str, place: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 10):
        raise InputError(f"{place} holds {word[:40]!r}, expected a whole number")
    return int(word)


def _number(word: str, place: str) -> float:
    value = number(word)
    if value is None or value < 0:
        raise InputError(f"{place} holds {word[:40]!r}, expected a number >= 0")
    return value
