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
    options = {"kind": kind, "jobs": jobs, "machines": machines, "seed": 1, **more}
    return f"assignment/{kind}-{jobs}x{machines}{variant}.json", "unrelated", options


def _graph(shape: str, tasks: int, **more: Any) -> tuple[str, str, dict[str, Any]]:
    name = f"{shape}-{tasks}{'-training' if more.get('training') else ''}"
    return f"partition/{name}.json", "random-graph", {"shape": shape, "tasks": tasks, "seed": 1, **more}


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
    ("partition/resnet50.json", "resnet50", {}),
    ("partition/resnet50-training.json", "resnet50", {"training": True}),
    ("partition/bert-large.json", "bert-large", {}),
    ("partition/bert-large-training.json", "bert-large", {"training": True}),
    ("partition/gpt2-xl.json", "gpt2-xl", {}),
    ("partition/llama70b-mixed.json", "llama3-70b", {}),
    ("partition/mobile-trio.json", "mobile-trio", {}),
    _graph("chain", 20),
    _graph("layered", 24, unsupported=0.1),
    _graph("layered", 24, training=True),
    _graph("series-parallel", 30, cpus=2),
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
