"""Make the committed instances again, byte for byte: ``python instances/make.py`` (``--check`` compares and writes nothing).

Each file is one call of a generator; ``hetopt generate KIND ... -o FILE`` with the options below makes the same file, but for
its name. After a change here, run ``python instances/index.py``.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from hetopt.instance import Instance
from hetopt.io import generators
from hetopt.io.atomic import atomic_write
from hetopt.io.instances import encode

FOLDER = Path(__file__).resolve().parent


def _unrelated(kind: str, jobs: int, machines: int, **more: Any) -> tuple[str, str, dict[str, Any]]:
    variant = "".join(f"-{word}" for word in ("memory", "eligible", "pins") if word in more)
    variant += f"-{more['question']}" if "question" in more else ""
    options = {"kind": kind, "jobs": jobs, "machines": machines, "seed": 1, **more}
    return f"assignment/{kind}-{jobs}x{machines}{variant}.json", "unrelated", options


def _graph(shape: str, tasks: int, **more: Any) -> tuple[str, str, dict[str, Any]]:
    name = f"{shape}-{tasks}{'-training' if more.get('training') else ''}"
    name += "-latency" if more.get("question") == "inference-latency" else ""
    return f"partition/{name}.json", "random-graph", {"shape": shape, "tasks": tasks, "seed": 1, **more}


def _cluster(question: str, **more: Any) -> tuple[str, str, dict[str, Any]]:
    name = f"{question.removeprefix('sharing-')}-{more.get('jobs', 24)}x3"
    return f"sharing/{name}.json", "cluster", {"question": question, "seed": 1, **more}


def _mapping(question: str) -> tuple[str, str, dict[str, Any]]:
    options = {"shape": "wired", "tasks": 30, "devices": 3, "unrelated": True, "ccr": 0.5, "seed": 1}
    return f"partition/{question}-30x3.json", "task-graph", {**options, "question": question}


# file, generator, options
FILES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    *(_unrelated(kind, 50, 10) for kind in ("u1_100", "u10_100", "u100_120", "u100_200", "u1000_1100", "jobcorr", "maccorr")),
    *(_unrelated(kind, 100, 10) for kind in ("u10_100", "u100_200", "jobcorr", "maccorr")),
    *(_unrelated(kind, 200, 20) for kind in ("u1_100", "u1000_1100", "jobcorr", "maccorr")),
    _unrelated("jobcorr", 1000, 50),
    _unrelated("u_c_hihi", 50, 10),
    _unrelated("u_i_lohi", 100, 10),
    _unrelated("u_s_hilo", 200, 20),
    _unrelated("u10_100", 100, 10, memory=1.02),
    _unrelated("u1_100", 100, 10, eligible=0.4),
    _unrelated("jobcorr", 50, 10, pins=20),
    _unrelated("u100_200", 200, 20, memory=1.05, eligible=0.5, pins=20),
    _unrelated("u1_100", 40, 4, question="weighted-completion"),
    _unrelated("jobcorr", 20, 4, question="preemptive-makespan"),
    _unrelated("u1_100", 30, 6, question="bottleneck"),
    _unrelated("u1_100", 12, 3, question="setup-makespan"),
    _unrelated("u10_100", 40, 5, question="budget-makespan"),
    _unrelated("u10_100", 40, 5, question="least-cost"),
    ("assignment/tardiness-8x4.json", "tardiness", {"jobs": 8, "machines": 4, "seed": 1}),
    ("assignment/tardiness-30x5.json", "tardiness", {"jobs": 30, "machines": 5, "seed": 1}),
    ("assignment/graph-balancing-40x10.json", "restricted", {"jobs": 40, "machines": 10, "degree": 2, "seed": 1}),
    ("assignment/restricted-60x12.json", "restricted", {"jobs": 60, "machines": 12, "degree": 4, "seed": 1}),
    ("assignment/sharding-52x4.json", "sharding", {"seed": 1}),
    ("assignment/sharding-12x2-mixed.json", "sharding", {"fleet": "a100-sxm-40:1,v100-sxm2-16:1", "tables": 12, "seed": 1}),
    ("partition/resnet50.json", "resnet50", {}),
    ("partition/resnet50-training.json", "resnet50", {"training": True}),
    ("partition/bert-large.json", "bert-large", {}),
    ("partition/bert-large-training.json", "bert-large", {"training": True}),
    ("partition/gpt2-xl.json", "gpt2-xl", {}),
    ("partition/llama70b-mixed.json", "llama3-70b", {}),
    ("partition/mobile-trio.json", "mobile-trio", {}),
    ("partition/moe-offload.json", "moe-offload", {}),
    ("selection/block-library-12.json", "block-library", {"layers": 12}),
    ("selection/operator-sharding-4x4.json", "operator-sharding", {"layers": 4, "seed": 1}),
    ("splitting/federated-8x40.json", "federated", {"devices": 8, "shards": 40, "seed": 1}),
    ("splitting/federated-8x40-classes.json", "federated",
     {"devices": 8, "shards": 40, "classes": 6, "question": "shards-classes", "seed": 1}),
    ("splitting/batch-profiles-2x4.json", "batch-profiles", {"seed": 1}),
    ("splitting/star-6.json", "star", {"seed": 1}),
    ("selection/parallel-degrees-8x4.json", "parallel-degrees", {}),
    ("partition/decoder-training.json", "decoder-training", {}),
    ("partition/provision-12x3.json", "rented-pools", {}),
    ("partition/pareto-10x2.json", "rented-pools", {"question": "pareto", "layers": 10, "pools": 2, "units": 4}),
    _graph("chain", 20),
    _graph("layered", 24, unsupported=0.1),
    _graph("layered", 24, training=True),
    _graph("series-parallel", 30, cpus=2),
    _graph("series-parallel", 24, question="inference-latency"),
    *(_cluster(question) for question in ("max-min-fairness", "sharing-makespan", "finish-time-fairness", "sharing-cost")),
    _cluster("max-min-fairness", jobs=240, kinds=12),
    _cluster("packed-max-min-fairness", jobs=60, kinds=8),
    *(_cluster(question, jobs=12) for question in ("nash-welfare", "strategy-proof", "mean-completion", "shortest-job-first")),
    ("schedule/layered-40x4.json", "task-graph", {"tasks": 40, "devices": 4, "seed": 1}),
    ("schedule/tree-31x3.json", "task-graph", {"shape": "tree", "tasks": 31, "devices": 3, "degree": 2, "ccr": 0.1, "seed": 1}),
    ("schedule/wired-24x3.json", "task-graph", {"shape": "wired", "tasks": 24, "devices": 3, "seed": 1}),
    ("schedule/wired-18x3-room.json", "task-graph", {"shape": "wired", "tasks": 18, "devices": 3, "room": 0.4, "seed": 1}),
    ("schedule/stream-4x3.json", "job-stream", {"jobs": 4, "tasks": 4, "cores": 1, "seed": 1}),
    ("schedule/stream-8x5-speeds.json", "job-stream", {"speeds": True, "seed": 1}),
    ("schedule/phone-3x3.json", "phone", {"seed": 6}),
    ("schedule/phone-3x3-drops.json", "phone", {"pace": 120, "question": "periodic-drops", "seed": 6}),
    ("schedule/phone-3x3-rate.json", "phone", {"question": "periodic-rate", "seed": 6}),
    ("schedule/kernels-8x2.json", "kernel-graph", {"kernels": 8, "seed": 1}),
    ("schedule/kernels-12x3-split.json", "kernel-graph", {"accelerators": 2, "copy": 1, "grain": 4, "seed": 1}),
    ("schedule/phone-split-24x3.json", "phone-split", {"seed": 1}),
    ("sharing/gangs-20x8.json", "gangs", {"seed": 1}),
    ("sharing/gangs-10x8-nodes.json", "gangs", {"question": "gang-nodes", "gangs": 10, "seed": 1}),
    ("sharing/colocation-40x3.json", "colocation", {"seed": 1}),
    ("sharing/coschedule-24.json", "colocation", {"question": "coschedule", "jobs": 24, "seed": 1}),
    *(_mapping(question) for question in ("mapping", "mapping-throughput")),
    ("partition/serving-10.json", "serving", {"nodes": 10, "layers": 24, "types": 3, "clusters": 2, "slow": 0.2, "seed": 2}),
)  # fmt: skip


def made(file: str) -> Instance:
    """The instance of a committed file, made afresh."""
    kind, options = next((kind, options) for name, kind, options in FILES if name == file)
    return replace(generators.get(kind).make(**options), name=Path(file).stem)


def main(arguments: list[str]) -> int:
    """Write all files, or with ``--check`` return 1 when one differs from what would be written."""
    stale = 0
    for file, _, _ in FILES:
        path, text = FOLDER / file, encode(made(file))
        if arguments == ["--check"]:
            if not path.is_file() or path.read_bytes() != text:
                print(f"{file} differs; run python instances/make.py", file=sys.stderr)
                stale = 1
        else:
            path.parent.mkdir(exist_ok=True)
            atomic_write(path, text)
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
