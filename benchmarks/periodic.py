"""Models with periods: the phone scenario and the published XRBench scenarios, every plan replayed.

    python benchmarks/periodic.py phone [SECONDS] [SEED]   greatest rate: bound, CP-SAT, annealing, policies, fixed mappings
    python benchmarks/periodic.py xrbench [SECONDS]        greatest rate and mean latency of each scenario, 6 blocks a network

SECONDS are processor seconds for a method (30 by default). A row says the value, the bound, and what the replay saw: frames,
misses, and its own value; the run ends with 1 when a replay complains. ``xrbench`` needs the reference data (``HETOPT_DATA``).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _clock import ProcessorControl

import hetopt
from hetopt.instance import Instance
from hetopt.io import importers
from hetopt.io.generators import phone
from hetopt.replay import replayed

DATA = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[2] / "shared" / "data"))
POLICIES = ("edf", "fifo", "rate-monotonic", "best-device-edf", "one-device-edf")


def row(name: str, instance: Instance, objective: str, method: str, seconds: float) -> bool:
    """Solve, replay, print; True when the replay has nothing to say against the plan."""
    result = hetopt.solve(instance, objective=objective, method=method, control=ProcessorControl(seconds))
    value = "-" if result.objective is None else f"{result.objective:.6g}"
    bound = "-" if result.bound is None else f"{result.bound:.6g}"
    told, fine = "no plan", True
    if result.solution is not None:
        seen = replayed(instance, result)
        fine = not seen.complaints and seen.misses == 0
        told = f"{len(seen.frames)} frames, {seen.misses} missed, value {seen.objective:.6g}"
        told += "".join(f"; {sentence}" for sentence in seen.complaints[:2])
    print(
        f"| {name} | {method} | {result.status} | {value} | {bound} | {result.cpu_seconds:.1f} | {told} |", flush=True
    )
    return fine


def main(arguments: list[str]) -> int:
    """Print a table."""
    what = arguments[0] if arguments else "phone"
    seconds = float(arguments[1]) if len(arguments) > 1 else 30.0
    fine = True
    print("| scenario | method | status | value | bound | cpu s | replay |\n|---|---|---|---|---|---|---|")
    if what == "phone":
        instance = phone.make(seed=int(arguments[2]) if len(arguments) > 2 else 6)
        for method in ("bounds", "cpsat", "annealing", *POLICIES):
            fine &= row("phone, rate", instance, "periodic-rate", method, seconds)
        for method in ("bounds", "cpsat", "annealing", *POLICIES):
            fine &= row("phone, mean latency", instance, "periodic-latency", method, seconds)
        return 0 if fine else 1
    for file in sorted((DATA / "xrbench" / "usage_scenarios").glob("*.m")):
        instance = importers.get("xrbench").load(file)
        for objective in ("periodic-rate", "periodic-latency"):
            for method in ("edf", "one-device-edf", "auto"):
                fine &= row(f"{file.stem}, {objective.partition('-')[2]}", instance, objective, method, seconds)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
