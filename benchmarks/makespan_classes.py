"""R||Cmax on the seven published classes: value, bound and gap, and four peers on the full model at equal processor time.

    python benchmarks/makespan_classes.py --log FILE [--sizes 100x10,...] [--classes jobcorr,...] [--seeds 1,2,...]
                                          [--time 60] [--peers highs,cpsat,cbc,pyjobshop] [--peer-time 20] [--table]

Each run is a process of its own with one thread, limited by its processor seconds; instances come from
``hetopt.io.generators`` (``unrelated``). A run's figures are appended to FILE as a line of JSON as soon as they are known, and
runs that stand there already are not made again; ``--table`` only prints the tables of FILE. Our plans and bounds are
verified; a peer's value is that of its plan, its bound is taken as it claims it. Ours is compared with a peer at
the peer's processor time. HiGHS, CP-SAT and CBC (PuLP) get the model of the formulation, PyJobShop a job with a mode for each
machine; a peer that is not installed is left out, which is said.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any

from _clock import ProcessorControl

import hetopt
from hetopt.io.generators.unrelated import make

CLASSES = ("u1_100", "u10_100", "u100_120", "u100_200", "u1000_1100", "jobcorr", "maccorr")
SIZES = ("100x10", "200x20", "500x20", "1000x50")
PEERS = ("highs", "cpsat", "cbc", "pyjobshop")
Row = dict[str, Any]


def main() -> int:
    """Make the runs that the log lacks, print a line for each, then the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--classes", default=",".join(CLASSES))
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--time", type=float, default=60.0, help="processor seconds of ours a run")
    parser.add_argument("--peers", default="", help=f"any of {','.join(PEERS)}")
    parser.add_argument("--peer-time", type=float, default=20.0, help="processor seconds of a peer a run")
    parser.add_argument("--log", type=Path, help="file of JSON lines to resume from and to append to")
    parser.add_argument("--table", action="store_true", help="make no runs")
    parser.add_argument("--run", help=argparse.SUPPRESS)  # the child: who,class,size,seed
    asked = parser.parse_args()
    if asked.run:
        who, kind, size, seed = asked.run.split(",")
        seconds = asked.time if who == "ours" else asked.peer_time
        print(
            json.dumps(
                {"who": who, "kind": kind, "size": size, "seed": int(seed)} | run(who, kind, size, int(seed), seconds)
            )
        )
        return 0
    rows: list[Row] = []
    if asked.log and asked.log.exists():
        rows = [json.loads(line) for line in asked.log.read_text().splitlines()]
    done = {(row["who"], row["kind"], row["size"], row["seed"]) for row in rows}
    whos = ["ours", *filter(None, asked.peers.split(","))]
    for seed in map(int, asked.seeds.split(",")) if not asked.table else ():
        for size in asked.sizes.split(","):
            for kind in asked.classes.split(","):
                for who in whos:
                    if (who, kind, size, seed) in done:
                        continue
                    row = child(f"{who},{kind},{size},{seed}", asked.time, asked.peer_time)
                    print(json.dumps(row), flush=True)
                    if "error" in row:
                        continue
                    rows.append(row)
                    if asked.log:
                        with asked.log.open("a") as stream:
                            stream.write(json.dumps(row) + "\n")
    print("\n".join(tables(rows)))
    return 0


def child(run: str, seconds: float, peer_seconds: float) -> Row:
    """One run in a process of its own."""
    command = [sys.executable, __file__, "--run", run, "--time", str(seconds), "--peer-time", str(peer_seconds)]
    ended = subprocess.run(command, capture_output=True, text=True)
    lines = ended.stdout.splitlines()
    if ended.returncode == 0 and lines and lines[-1].startswith("{"):
        return dict(json.loads(lines[-1]))
    return {"run": run, "error": (ended.stderr.splitlines() or ["no output"])[-1]}


def run(who: str, kind: str, size: str, seed: int, seconds: float) -> Row:
    """Figures of one run: value, bound, processor seconds, and for ours the course."""
    n, m = map(int, size.split("x"))
    instance = make(kind=kind, jobs=n, machines=m, seed=seed)
    if who == "pyjobshop":
        return pyjobshop(instance, seconds)
    if who == "ours":  # kernels compiled and libraries loaded before the clock starts
        hetopt.solve(make(kind=kind, jobs=40, machines=4, seed=0), method="climb", control=ProcessorControl(0.5))
    began, spent = time.process_time(), children()
    method, solver, native = {
        "ours": ("climb", None, {}),
        "highs": ("milp", "highs", {}),
        "cpsat": ("cpsat", None, {}),
        "cbc": ("milp", "pulp", {"timeMode": "cpu", "timeLimit": seconds}),
    }[who]
    # CBC is a process of its own and watches its own processor time.
    control = ProcessorControl(seconds if who != "cbc" else math.inf)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log") if who == "cbc" else None
        result = hetopt.solve(
            instance,
            method=method,
            solver=solver,
            native=native,
            control=control,
            log_file=None if log is None else str(log),
        )
        told = re.findall(r"^(?:Lower|Best possible) bound: +(\S+)", log.read_text(), re.M) if log else []
    if result.reason == "error":
        raise RuntimeError("; ".join(result.messages))
    row: Row = {
        "value": result.objective,
        "bound": float(told[-1]) if told and result.bound is None else result.bound,
        "seconds": round(time.process_time() - began + children() - spent, 2),
        "limit": seconds,
    }
    if who == "ours":
        hetopt.verify(instance, result)
        row["proof"] = result.bound_proof
        row["course"] = [[round(at, 2), value, bound] for at, value, bound in result.trajectory]
    return row


def children() -> float:
    """Processor seconds of the processes that this one has started and that have ended."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def pyjobshop(instance: hetopt.Instance, seconds: float) -> Row:
    """PyJobShop's own model of the instance; CP-SAT below it is stopped when the processor time is used up."""
    import importlib
    import threading

    from ortools.sat.python import cp_model

    below: Any = importlib.import_module("pyjobshop.solvers.ortools.CPModel")  # the module; the package hides it
    began = time.process_time()

    class Watched(cp_model.CpSolver):  # type: ignore[misc]
        def solve(self, *args: Any, **options: Any) -> Any:
            def watch() -> None:
                while not over.wait(0.05):
                    if time.process_time() - began > seconds:
                        self.stop_search()

            over = threading.Event()
            threading.Thread(target=watch, daemon=True).start()
            try:
                return super().solve(*args, **options)
            finally:
                over.set()

    below.CpSolver = Watched
    model: Any = importlib.import_module("pyjobshop").Model()
    machines = [model.add_machine() for _ in range(instance.n_devices)]
    for times in instance.columns.time:
        task = model.add_task()
        for machine, duration in zip(machines, times.tolist(), strict=True):
            model.add_mode(task, machine, int(duration))
    result = model.solve(display=False, num_workers=1)
    value = float(result.objective)
    return {
        "value": value if math.isfinite(value) else None,
        "bound": float(result.lower_bound),
        "seconds": round(time.process_time() - began, 2),
        "limit": seconds,
    }


def tables(rows: list[Row]) -> Iterator[str]:
    """Ours by size and class, then each peer against ours at the peer's time."""
    place = lambda row: (SIZES.index(row["size"]), CLASSES.index(row["kind"]))  # noqa: E731
    ours = sorted((row for row in rows if row["who"] == "ours"), key=place)
    yield "\n| size | class | seeds | value | bound | mean gap % | worst gap % (units) | proved | gap % at 10 s | CPU s |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for _, group in groupby(ours, key=place):
        some = sorted(group, key=lambda row: row["seed"])
        gaps = [100 * (row["value"] - row["bound"]) / row["value"] for row in some]
        early = [_gap(*at(row, 10.0)) for row in some]
        units = max(row["value"] - row["bound"] for row in some)
        yield (
            f"| {some[0]['size']} | {some[0]['kind']} | {','.join(str(row['seed']) for row in some)} "
            f"| {_list(row['value'] for row in some)} | {_list(row['bound'] for row in some)} "
            f"| {mean(gaps):.3f} | {max(gaps):.3f} ({units:.0f}) | {sum(gap <= 0 for gap in gaps)} "
            f"| {max(early):.3f} | {mean(row['seconds'] for row in some):.1f} |"
        )
    mine = {(row["kind"], row["size"], row["seed"]): row for row in ours}
    peers = [row for row in rows if row["who"] != "ours" and (row["kind"], row["size"], row["seed"]) in mine]
    if not peers:
        return
    yield "\n| size | class | peer | its value | its bound | its CPU s | our value | our bound | value | bound |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in sorted(peers, key=lambda row: (place(row), PEERS.index(row["who"]), row["seed"])):
        value, bound = at(mine[row["kind"], row["size"], row["seed"]], row["limit"])
        yield (
            f"| {row['size']} | {row['kind']} {row['seed']} | {row['who']} | {_text(row['value'])} "
            f"| {_text(row['bound'])} | {row['seconds']:.1f} | {value:.0f} | {bound:.0f} "
            f"| {_sign(-value, None if row['value'] is None else -row['value'])} "
            f"| {_sign(bound, None if row['bound'] is None else math.ceil(row['bound'] - 1e-6))} |"
        )


def at(row: Row, seconds: float) -> tuple[float, float]:
    """Value and bound that stood at this moment of our run."""
    past = [point for point in row["course"] if point[0] <= seconds] or row["course"][:1]
    value = [point[1] for point in past if point[1] is not None] or [row["value"]]
    bound = [point[2] for point in past if point[2] is not None] or [0.0]
    return value[-1], bound[-1]


def _gap(value: float, bound: float) -> float:
    return 100 * (value - bound) / value


def _list(numbers: Any) -> str:
    return ", ".join(f"{number:.0f}" for number in numbers)


def _text(number: float | None) -> str:
    return "none" if number is None else f"{number:.0f}"


def _sign(mine: float, other: float | None) -> str:
    return "better" if other is None or mine > other else "equal" if mine == other else "WORSE"


if __name__ == "__main__":
    sys.exit(main())
