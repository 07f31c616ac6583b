"""Import memory by operator as ONNX Runtime measured it (``session.collect_node_memory_stats_to_file``).

The file has a line an operator: ``#name,input_sizes,initializers_sizes,total_dynamic_sizes,total_temp_allocations``, in bytes. An
operator's memory is the sum of the four, as ONNX Runtime's own budget counts it. A name is the operator's, an underscore, a hash.

With ``--model`` the ONNX model says edges and arithmetic (as ``import onnx`` does), and each of its operators must be in the
file. Without it the operators are independent jobs under the makespan, and their times, of the bytes alone, lower estimates.
"""

from __future__ import annotations

import re
from pathlib import Path

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.importers import onnx
from hetopt.io.importers._devices import CATALOGUE, DEVICES, PRECISION, crew, ordered
from hetopt.io.importers._graph import MAX_OPERATORS, graph_instance
from hetopt.io.importers._text import load_text
from hetopt.io.instances import load_bytes
from hetopt.io.kinds import Option
from hetopt.records import Job

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "ort-stats"
TITLE = "Memory by operator as ONNX Runtime measured it; with --model the whole graph."
SOURCE_HELP = "CSV file that ONNX Runtime collects."
OPTIONS: tuple[Option, ...] = (
    DEVICES,
    CATALOGUE,
    PRECISION,
    Option("--model", str, "", "The ONNX model that was measured."),
    Option("--dims", str, "", "Sizes of the model's named dimensions, as batch=1,seq=128."),
)

HEADER = ("name", "input_sizes", "initializers_sizes", "total_dynamic_sizes", "total_temp_allocations")
_HASH = re.compile(r"(.+)_[0-9]{1,20}")


def load(
    source: str | Path,
    *,
    devices: str = DEVICES.default,
    catalogue: str | None = None,
    precision: str = PRECISION.default,
    model: str | Path = "",
    dims: str = "",
) -> Instance:
    """Instance of a file of statistics.

    Raises
    ------
    InputError
        A file cannot be read, a line is not as expected, a name stands twice, an operator of the model is not in the file, or
        what ``import onnx`` refuses.
    """
    members = crew(devices, precision, catalogue, one_node=True)
    path = Path(source)
    try:
        rows = _rows(load_text(source))
        names = _names(list(rows))
        memory = dict(zip(names, map(sum, rows.values()), strict=True))
        if model:
            operators, tensors, constants = onnx.graph(load_bytes(model, limit=onnx.MAX_BYTES), onnx.dimensions(dims))
            called = ordered([op.name for op in operators])
            missing = next((name for name in called if name not in memory), None)
            if missing is not None:
                raise InputError(f"the model's operator {missing[:80]!r} has no line; expected one for each operator")
            operators = [op._replace(name=name) for op, name in zip(operators, called, strict=True)]
            about = f"the ONNX model {Path(model).name}, memory as measured in {path.name}"
            return graph_instance(
                operators, tensors, constants, members, precision, name=path.stem[:200], source=about, measured=memory
            )
        jobs = [
            Job(name=name, time=members.times(0.0, sum(sizes[:3])), memory=memory[name])
            for name, sizes in zip(names, rows.values(), strict=True)
        ]
        return Instance.build(
            members.devices(host_limit=False),
            jobs,
            members.links(),
            question={"objective": "makespan"},
            name=path.stem[:200],
            description="memory as measured; times are those of the bytes alone, arithmetic is not known: lower estimates",
            source=f"imported from the statistics {path.name}; roofline: {members.source()}",
        )
    except InputError as error:
        if str(error).startswith(("cannot read", "--", "importing ONNX")):
            raise
        raise InputError(f"{source}: {error}") from error


def _rows(text: str) -> dict[str, tuple[int, ...]]:
    """Four numbers of bytes by name."""
    rows: dict[str, tuple[int, ...]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if line.startswith("#"):
            if tuple(line[1:].strip().split(",")) != HEADER:
                raise InputError(f"line {number} is {line[:80]!r}, expected '#{','.join(HEADER)}'")
            continue
        name, *cells = line.rsplit(",", 4)
        sizes = tuple(
            int(cell) for cell in map(str.strip, cells) if cell.isascii() and cell.isdigit() and len(cell) < 16
        )
        if not name.strip() or len(sizes) != 4:
            raise InputError(f"line {number} is {line[:80]!r}, expected a name and four whole numbers of bytes")
        if name in rows:
            raise InputError(f"line {number} repeats {name[:80]!r}; expected each operator once")
        if len(rows) >= MAX_OPERATORS:
            raise InputError(f"there are more than {MAX_OPERATORS} operators; split the model")
        rows[name] = sizes
    if not rows:
        raise InputError("there is no operator; expected a line for each")
    return rows


def _names(keys: list[str]) -> list[str]:
    """Operators' own names, without the hash, where that is unique; else as they stand."""
    plain = [match[1] if (match := _HASH.fullmatch(key)) else key for key in keys]
    count: dict[str, int] = {}
    for name in (*plain, *keys):
        count[name] = count.get(name, 0) + 1
    return ordered([name if count[name] == 1 or name == key else key for name, key in zip(plain, keys, strict=True)])
