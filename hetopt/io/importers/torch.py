"""Import a program that PyTorch exported: a task an operator, times by the roofline on the devices asked for.

What is accepted: the archive that ``torch.export.save(program, "model.pt2")`` writes, of which only the JSON text of the graph
is read (``models/*.json``, or ``serialized_exported_program.json`` in older archives), or that JSON text itself, with schema
version 8. From Python also the program (:func:`from_exported`), which may have been exported on meta tensors. Weights, sample
inputs and pickles in the archive are never opened, nothing is evaluated, and reading a file needs no PyTorch.

A symbolic dimension has the size that it had in the export. Operators that hold graphs (``cond``, loops) are refused.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io import strict
from hetopt.io.importers import _arithmetic as count
from hetopt.io.importers._devices import CATALOGUE, DEVICES, PRECISION, Crew, crew
from hetopt.io.importers._graph import Operator, Tensor, checked, graph_instance
from hetopt.io.instances import load_bytes
from hetopt.io.kinds import Option

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "from_exported", "load"]

NAME = "torch"
TITLE = "A program exported by PyTorch: a task an operator, times by the roofline."
SOURCE_HELP = "archive written by torch.export.save (.pt2), or the JSON text of its graph; no pickle is opened."
OPTIONS: tuple[Option, ...] = (DEVICES, CATALOGUE, PRECISION)

SCHEMA = 8
MAX_BYTES = 128 << 20
_PREFIX = "torch.ops."

_FREE = frozenset({
    "_unsafe_view", "alias", "chunk", "contiguous", "detach", "dropout", "expand", "flatten", "lift_fresh_copy", "permute",
    "reshape", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unflatten", "unsqueeze",
    "view",
})  # fmt: skip
_ROWS = frozenset({"embedding", "gather", "index", "index_select"})
_MOVES = _ROWS | {
    "_to_copy", "arange", "cat", "clone", "constant_pad_nd", "copy", "empty", "full", "ones", "pad", "repeat", "stack", "to",
    "zeros",
}  # fmt: skip
_EACH = {"batch_norm": 2, "_native_batch_norm_legit_no_training": 2, "group_norm": 8, "layer_norm": 8, "native_layer_norm": 8,
         "rms_norm": 6, "softmax": 5, "_softmax": 5, "log_softmax": 5, "_log_softmax": 5, "gelu": 8, "silu": 5}  # fmt: skip
_REDUCES = ("adaptive_", "amax", "amin", "argmax", "avg_pool", "max_pool", "mean", "sum")


class _Expression(msgspec.Struct):
    expr_str: str
    hint: dict[str, Any] | None = None


class _Size(msgspec.Struct):
    as_int: int | None = None
    as_expr: _Expression | None = None


class _Meta(msgspec.Struct):
    dtype: int
    sizes: list[_Size]


class _Input(msgspec.Struct):
    arg: dict[str, Any]
    name: str = ""


class _Node(msgspec.Struct):
    target: str
    inputs: list[_Input]
    outputs: list[dict[str, Any]]
    metadata: dict[str, Any] = {}


class _Graph(msgspec.Struct):
    inputs: list[dict[str, Any]]
    nodes: list[_Node]
    tensor_values: dict[str, _Meta]


class _Signature(msgspec.Struct):
    input_specs: list[dict[str, dict[str, Any]]]


class _Module(msgspec.Struct):
    graph: _Graph
    signature: _Signature


class _Version(msgspec.Struct):
    major: int


class _Program(msgspec.Struct):
    graph_module: _Module
    schema_version: _Version


_program = msgspec.json.Decoder(_Program)


def load(
    source: str | Path,
    *,
    devices: str = DEVICES.default,
    catalogue: str | None = None,
    precision: str = PRECISION.default,
) -> Instance:
    """Instance of an exported program, asking for throughput.

    Raises
    ------
    InputError
        The file cannot be read, is neither such an archive nor its JSON text, has another schema version, an operator holds a
        graph or reads what nothing before it makes, a tensor's size is not known, or an option is wrong.
    """
    members = crew(devices, precision, catalogue, one_node=True)
    path = Path(source)
    try:
        return _instance(_text(path), path.stem[:200], f"the exported program {path.name}", members, precision)
    except InputError as error:
        if str(error).startswith(("cannot read", "--")):
            raise
        raise InputError(f"{source}: {error}") from error


def _instance(text: bytes, name: str, source: str, members: Crew, precision: str) -> Instance:
    program = strict.decode(_program, text)
    if program.schema_version.major != SCHEMA:
        found = program.schema_version.major
        raise InputError(
            f"$.schema_version.major is {found}, expected {SCHEMA} which current PyTorch writes; export it again"
        )
    operators, tensors, constants = _walk(program.graph_module)
    return graph_instance(operators, tensors, constants, members, precision, name=name, source=source)


def _text(path: Path) -> bytes:
    """JSON text of the graph, from an archive or as it stands."""
    try:
        return _unpacked(path) if path.is_file() and zipfile.is_zipfile(path) else load_bytes(path, limit=MAX_BYTES)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror or error}") from error


def _unpacked(archive: Path | io.BytesIO) -> bytes:
    """JSON text of the only graph in an archive."""
    try:
        with zipfile.ZipFile(archive) as pack:
            found = [info for info in pack.infolist() if _is_graph(info.filename)]
            if len(found) != 1:
                raise InputError(
                    f"the archive has {len(found)} graphs in models/, expected one: written by torch.export.save"
                )
            with pack.open(found[0]) as stream:
                text = stream.read(MAX_BYTES + 1)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        struct.error,
        ValueError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the archive is broken ({str(error)[:100]}); export it again") from error
    if len(text) > MAX_BYTES:
        raise InputError(f"the graph's text has more than {MAX_BYTES >> 20} MiB; split the model")
    return text


def _is_graph(name: str) -> bool:
    parts = name.split("/")
    return (parts[-2:-1] == ["models"] and name.endswith(".json")) or parts[-1] == "serialized_exported_program.json"


def _walk(module: _Module) -> tuple[list[Operator], dict[str, Tensor], frozenset[str]]:
    """Operators, tensors and constants of the decoded graph."""
    graph = module.graph
    tensors = {name: _tensor(name, meta) for name, meta in graph.tensor_values.items()}
    constants = {
        str(name)
        for spec in module.signature.input_specs
        for kind in ("parameter", "buffer", "tensor_constant")
        for name in _names({"as_tensor": spec.get(kind, {}).get("arg")})
    }
    known = {name for entry in graph.inputs for name in _names(entry)}
    operators: list[Operator] = []
    for k, node in enumerate(graph.nodes):
        where = f"$.graph_module.graph.nodes[{k}]"
        reads = [name for entry in node.inputs for name in _names(entry.arg)]
        makes = [name for entry in node.outputs for name in _names(entry)]
        if any("as_graph" in entry.arg for entry in node.inputs):
            raise InputError(
                f"{where} ({node.target[:60]!r}) holds a graph, whose cost depends on data; export without it"
            )
        for name in reads:
            if name not in known:
                raise InputError(f"{where} reads {name[:80]!r}, which nothing before it makes")
        for name in makes:
            if name in known:
                raise InputError(f"{where} makes {name[:80]!r}, which is there already; names are unique")
        for name in (*reads, *makes):
            if name not in tensors:
                raise InputError(f"{where} uses {name[:80]!r}, expected it in $.graph_module.graph.tensor_values")
        known.update(makes)
        if makes:  # what makes no tensor computes with sizes
            operators.append(_operator(node, reads, makes, tensors, constants, where))
    used = {name for op in operators for name in (*op.inputs, *op.results)}
    return operators, {name: tensors[name] for name in sorted(used)}, frozenset(constants & used)


def _called(node: _Node, makes: list[str]) -> str:
    """``layers.0.mlp: linear_3``: the innermost module that the export names, and the result."""
    stack = node.metadata.get("nn_module_stack")
    module = stack.rsplit(";", 1)[-1].split(",") if isinstance(stack, str) else []
    return f"{module[1]}: {makes[0]}" if len(module) > 2 and module[1] else makes[0]


def _names(argument: Any) -> Iterator[str]:
    """Names of the tensors in an argument, whatever the kind of list."""
    if not isinstance(argument, dict):
        return
    for kind in ("as_tensor", "as_optional_tensor", "as_tensors", "as_optional_tensors", "as_nested_tensors"):
        pending = [argument[kind]] if kind in argument else []
        while pending:
            value = pending.pop()
            if isinstance(value, list):
                pending.extend(reversed(value))
            elif isinstance(value, dict) and isinstance(value.get("name"), str):
                yield value["name"]
            elif isinstance(value, dict):
                pending.extend(value[key] for key in ("as_tensor",) if key in value)


def _tensor(name: str, meta: _Meta) -> Tensor:
    where = f"$.graph_module.graph.tensor_values.{name[:80]}"
    if meta.dtype not in _TYPES:
        raise InputError(f"{where}.dtype is {meta.dtype}, which is no known type of element")
    shape = []
    for size in meta.sizes:
        hint = size.as_expr.hint if size.as_expr is not None else None
        value = size.as_int if size.as_expr is None else (hint or {}).get("as_int")
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"{where}.sizes holds one that is not known; export with sizes, or with examples for them")
        shape.append(value)
    width, floating = _TYPES[meta.dtype]
    return checked(name, Tensor(tuple(shape), width, floating))


# Bytes an element and whether in floating point, by the schema's ScalarType; and by PyTorch's name.
_TYPES: dict[int, tuple[float, bool]] = {
    1: (1, False), 2: (1, False), 3: (2, False), 4: (4, False), 5: (8, False), 6: (2, True), 7: (4, True), 8: (8, True),
    9: (4, True), 10: (8, True), 11: (16, True), 12: (1, False), 13: (2, True), 28: (2, False), 29: (1, True), 30: (1, True),
    31: (1, True), 32: (1, True),
}  # fmt: skip


def _operator(
    node: _Node, reads: list[str], makes: list[str], tensors: dict[str, Tensor], constants: set[str], where: str
) -> Operator:
    """An operator with its arithmetic."""
    kind = node.target.removeprefix(_PREFIX).removeprefix("aten.").split(".")[0]
    held = [tensors[label].shape for label in reads if label in constants]
    options = {entry.name: entry.arg.get("as_string", entry.arg.get("as_bool")) for entry in node.inputs}
    try:
        flops = _arithmetic(
            kind, [tensors[label] for label in reads], [tensors[label] for label in makes], held, options
        )
    except IndexError:
        raise InputError(f"{where} has too few inputs for {node.target[:60]!r}") from None
    return Operator(_called(node, makes), tuple(reads), tuple(makes), flops, free=kind in _FREE, rows=kind in _ROWS)


def _arithmetic(
    kind: str, sources: list[Tensor], results: list[Tensor], held: list[tuple[int, ...]], options: dict[str, Any]
) -> float:
    shapes, made = [tensor.shape for tensor in sources], results[0].shape
    size = float(sum(tensor.elements for tensor in results))
    if kind in _FREE or kind in _MOVES:
        return 0.0
    if kind in ("linear", "mm", "bmm", "matmul", "dot", "mv"):
        return count.matrix_product(shapes[0], made)
    if kind in ("addmm", "baddbmm", "addbmm", "addmv"):
        return count.matrix_product(shapes[1], made)
    if kind.startswith("conv_transpose") or (kind == "convolution" and options.get("transposed") is True):
        return count.spread(shapes[0], shapes[1])
    if kind in ("conv1d", "conv2d", "conv3d", "convolution"):
        return count.convolution(shapes[1], made)
    if "scaled_dot_product" in kind:
        return count.attention(shapes[0], shapes[1], made)
    if kind in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        return count.recurrent(shapes[0], [shape for shape in held if len(shape) > 1])
    if kind == "einsum":
        return count.contraction(str(options.get("equation")), shapes, made)
    if kind.startswith(_REDUCES) and sources:
        return max(size, float(sources[0].elements))
    return size * _EACH.get(kind, 1)


def from_exported(
    program: Any,
    *,
    devices: str = DEVICES.default,
    catalogue: str | None = None,
    precision: str = PRECISION.default,
    name: str = "model",
) -> Instance:
    """Instance of a ``torch.export.ExportedProgram`` in memory.

    ``torch.export.save`` writes it into memory, and the text is read as :func:`load` reads it; export on meta tensors
    (``with torch.device("meta")``), so that there are no weights to copy.

    Raises
    ------
    InputError
        PyTorch is missing, or as in :func:`load`.
    """
    try:
        import torch
    except ImportError as error:
        raise InputError('a program in memory needs PyTorch; install it with: pip install "hetopt[torch]"') from error
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    members = crew(devices, precision, catalogue, one_node=True)
    return _instance(_unpacked(buffer), name, "an exported program", members, precision)
