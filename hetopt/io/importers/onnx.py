"""Import an ONNX model: a task an operator, times by the roofline on the devices asked for.

Shapes are those that ONNX's own inference finds; a dimension that is only named gets its size from ``--dims batch=1,seq=128``,
and one that stays unknown is refused, for its cost would be a guess. Whatever is computed from constants alone (weights,
shapes) is a constant and belongs to the operators that read it; an initialiser that is also an input counts as a constant.
External data are never opened: their shapes are in the model. Functions of the model are unfolded; loops and branches are
refused. Operators of foreign domains need the shapes that their exporter wrote down, and count one operation a result.

Needs the package ``onnx``: ``pip install "hetopt[onnx]"``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.importers import _arithmetic as count
from hetopt.io.importers._devices import CATALOGUE, DEVICES, PRECISION, crew
from hetopt.io.importers._graph import MAX_OPERATORS, Operator, Tensor, checked, graph_instance
from hetopt.io.instances import load_bytes
from hetopt.io.kinds import Option

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "dimensions", "graph", "load"]

NAME = "onnx"
TITLE = "An ONNX model: a task an operator, times by the roofline (needs the package onnx)."
SOURCE_HELP = "ONNX file; weights in other files are not opened."
OPTIONS: tuple[Option, ...] = (
    DEVICES,
    CATALOGUE,
    PRECISION,
    Option("--dims", str, "", "Sizes of named dimensions, as batch=1,seq=128."),
)

MAX_BYTES = (1 << 31) - 1  # protobuf's own limit
FOLLOWS_SHAPES = 15  # operator set from which inference follows shapes that are computed
KEPT = 1 << 16  # bytes of a constant whose values shape inference may need

# What only renames its input; what reads as much of a constant as it hands on; what moves and does not compute.
_FREE = frozenset({"Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_ROWS = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})
_MOVES = _ROWS | {
    "Cast", "Concat", "ConstantOfShape", "DepthToSpace", "Expand", "Pad", "SpaceToDepth", "Split", "Tile", "Transpose",
}  # fmt: skip
_RANDOM = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
})  # fmt: skip
_CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_EACH = {"BatchNormalization": 2, "InstanceNormalization": 6, "LayerNormalization": 8, "LogSoftmax": 5, "Softmax": 5}
_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})


def load(
    source: str | Path,
    *,
    devices: str = DEVICES.default,
    catalogue: str | None = None,
    precision: str = PRECISION.default,
    dims: str = "",
) -> Instance:
    """Instance of a model, asking for throughput.

    Parameters
    ----------
    devices, precision
        Such as ``"rtx4090:2,cpu"``; ``fp16`` or ``int8``.
    dims
        Sizes of named dimensions.

    Raises
    ------
    InputError
        The package ``onnx`` is missing, the file cannot be read or is no ONNX model, an option is wrong, a shape stays
        unknown, the graph has loops or branches, or an operator reads what nothing before it makes.
    """
    members, sizes = crew(devices, precision, catalogue, one_node=True), dimensions(dims)
    path = Path(source)
    try:
        found = graph(load_bytes(source, limit=MAX_BYTES), sizes)
        return graph_instance(*found, members, precision, name=path.stem[:200], source=f"the ONNX model {path.name}")
    except InputError as error:
        if str(error).startswith(("cannot read", "importing ONNX")):
            raise
        raise InputError(f"{source}: {error}") from error


def graph(data: bytes, sizes: dict[str, int]) -> tuple[list[Operator], dict[str, Tensor], frozenset[str]]:
    """Operators, tensors and names of constants of a model's bytes; raises InputError as :func:`load` does."""
    model = _inferred(data, sizes)
    shapes = _Shapes(model.graph, sizes)
    wanted = {label for node in model.graph.node for label in node.input} | {out.name for out in model.graph.output}
    operators: list[Operator] = []
    for node in model.graph.node:
        name = node.name or node.op_type or "operator"
        reads = [label for label in node.input if label]
        # a result that nobody reads (the mask of a dropout) may have an unknown shape
        makes = [label for label in node.output if label and (label in wanted or label in shapes.tensor)]
        if shapes.fold(node, reads, makes):
            continue
        tensors = [shapes.need(label, name) for label in (*reads, *makes)]
        kind = node.op_type
        operators.append(
            Operator(
                name,
                tuple(reads),
                tuple(makes),
                _arithmetic(node, shapes, tensors[len(reads) :]),
                free=kind in _FREE,
                rows=kind in _ROWS,
            )
        )
    used = {label for op in operators for label in (*op.inputs, *op.results)}
    return operators, {label: shapes.tensor[label] for label in sorted(used)}, frozenset(shapes.constant & used)


class _Shapes:
    """What is known of a graph's tensors while walking through it."""

    def __init__(self, graph: Any, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.tensor: dict[str, Tensor] = {}
        self.unknown: dict[str, str] = {}
        for value in (*graph.input, *graph.output, *graph.value_info):
            self.add(value)
        for tensor in graph.initializer:
            self.tensor[tensor.name] = _tensor(tensor.name, tensor.data_type, tuple(tensor.dims))
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            held = _tensor(name, sparse.values.data_type, tuple(sparse.values.dims))
            indices = _tensor(name, sparse.indices.data_type, tuple(sparse.indices.dims))
            stored = math.ceil(held.elements * held.width + indices.elements * indices.width)
            self.tensor[name] = checked(name, held._replace(shape=tuple(sparse.dims), stored=stored))
        self.constant = {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}

    def add(self, value: Any) -> None:
        """Take the shape that a value states, or note which of its dimensions is unknown."""
        kind = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not kind.elem_type or not kind.HasField("shape"):
            self.unknown.setdefault(value.name, "its shape cannot be inferred")
            return
        shape = []
        for dim in kind.shape.dim:
            size = dim.dim_value if dim.HasField("dim_value") else self.sizes.get(dim.dim_param, -1)
            if size < 0:
                called = f"its dimension {dim.dim_param[:60]!r} has no size; say --dims {dim.dim_param[:60]}=..."
                self.unknown.setdefault(
                    value.name, called if dim.dim_param else "a dimension of it has neither size nor name"
                )
                return
            shape.append(size)
        self.tensor.setdefault(value.name, _tensor(value.name, kind.elem_type, tuple(shape)))

    def need(self, label: str, name: str) -> Tensor:
        """A tensor; InputError that says why its shape is unknown."""
        if label not in self.tensor:
            why = self.unknown.get(label, "its shape cannot be inferred")
            raise InputError(f"the tensor {label[:80]!r} of the operator {name[:80]!r}: {why}")
        return self.tensor[label]

    def fold(self, node: Any, reads: list[str], makes: list[str]) -> bool:
        """Whether a node computes constants only; then its results are constants too."""
        if node.op_type in _RANDOM:
            return False
        if node.op_type in ("Shape", "Size"):
            fixed = all(label in self.tensor for label in reads)
        else:
            fixed = node.op_type == "Constant" or (bool(reads) and self.constant.issuperset(reads))
        if fixed:
            self.constant.update(makes)
            for label in makes:
                tensor = self.need(label, node.name or node.op_type)
                if node.op_type == "DequantizeLinear":  # stays as it is stored
                    held = self.tensor[reads[0]]
                    self.tensor[label] = tensor._replace(width=held.width, stored=held.stored)
        return fixed


def _arithmetic(node: Any, shapes: _Shapes, results: list[Tensor]) -> float:
    """Arithmetic of an operator."""
    kind, size = node.op_type, sum(tensor.elements for tensor in results)
    if kind in _FREE or kind in _MOVES or not results:
        return 0.0
    sources = [shapes.tensor[label].shape if label else () for label in node.input]
    made = results[0].shape
    rules: dict[str, Callable[[], float]] = {
        "MatMul": lambda: count.matrix_product(sources[0], made),
        "MatMulInteger": lambda: count.matrix_product(sources[0], made),
        "QLinearMatMul": lambda: count.matrix_product(sources[0], made),
        "Gemm": lambda: 2.0 * count.elements(made) * sources[0][0 if _attribute(node, "transA", 0) else -1],
        "Conv": lambda: count.convolution(sources[1], made),
        "ConvInteger": lambda: count.convolution(sources[1], made),
        "QLinearConv": lambda: count.convolution(sources[3], made),
        "ConvTranspose": lambda: count.spread(sources[0], sources[1]),
        "Attention": lambda: count.attention(sources[0], sources[1], made),
        "Einsum": lambda: count.contraction(
            _attribute(node, "equation", b"").decode("ascii", "replace"), sources, made
        ),
        **dict.fromkeys(("GRU", "LSTM", "RNN"), lambda: count.recurrent(sources[0], sources[1:3])),
    }
    try:
        if kind in rules and node.domain in ("", "ai.onnx"):
            return rules[kind]()
    except IndexError:
        raise InputError(f"the operator {(node.name or kind)[:80]!r} has too few inputs for a {kind}") from None
    if kind in _POOLS:
        window = count.elements(_attribute(node, "kernel_shape", ()))
        return float(size) * min(max(1, window), count.elements(sources[0]) if sources else 1)
    if kind.startswith(("Global", "Reduce", "Arg")) and sources:
        return float(count.elements(sources[0]))
    return float(size) * _EACH.get(kind, 1)


def _attribute(node: Any, name: str, default: Any) -> Any:
    for attribute in node.attribute:
        if attribute.name == name:
            return {2: attribute.i, 3: attribute.s, 7: list(attribute.ints)}.get(attribute.type, default)
    return default


# Parsing and inference ------------------------------------------------------------------------------------------------


def _inferred(data: bytes, sizes: dict[str, int]) -> Any:
    """The model with functions unfolded, large constants emptied and shapes inferred."""
    try:
        import onnx
        from onnx import inliner, shape_inference, version_converter
    except ImportError as error:
        raise InputError(
            'importing ONNX models needs the package onnx; install it with: pip install "hetopt[onnx]"'
        ) from error
    try:
        model = onnx.load_model_from_string(data)
        _refuse_large(model)
        for tensor in model.graph.initializer:
            _empty(tensor)
        for node in model.graph.node:
            for attribute in node.attribute:
                _empty(attribute.t)
        if model.functions:
            model = inliner.inline_local_functions(model)
        _refuse_disorder(model.graph)
        if _computes_shapes(model):
            model = version_converter.convert_version(model, FOLLOWS_SHAPES)
        for value in model.graph.input:
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in sizes:
                    dim.dim_value = sizes[dim.dim_param]
        return shape_inference.infer_shapes(model, data_prop=True)
    except InputError:
        raise
    except Exception as error:  # what protobuf's and ONNX's C++ code throws has no common type
        raise InputError(f"not an ONNX model that can be read: {_line(error)}") from error


def _refuse_disorder(graph: Any) -> None:
    """Refuse control flow, and operators that read what nothing before them makes or make what is there already."""
    known = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    known |= {sparse.values.name for sparse in graph.sparse_initializer}
    words = known.union(*((node.name, node.op_type, *node.input, *node.output) for node in graph.node))
    if any(not isinstance(word, str) for word in words):  # protobuf hands out bytes where a text is not UTF-8
        raise InputError("a name in the graph is not UTF-8 text; export it again")
    for node in graph.node:
        name = (node.name or node.op_type)[:80]
        if node.op_type in _CONTROL or any(part.HasField("g") or part.graphs for part in node.attribute):
            raise InputError(
                f"the operator {name!r} is a {node.op_type[:40]}, whose cost depends on data; unroll it first"
            )
        for label in filter(None, node.input):
            if label not in known:
                raise InputError(f"the operator {name!r} reads {label[:80]!r}, which nothing before it makes")
        for label in filter(None, node.output):
            if label in known:
                raise InputError(
                    f"the operator {name!r} makes {label[:80]!r}, which is there already; names are unique"
                )
            known.add(label)


def _computes_shapes(model: Any) -> bool:
    """Whether a model of an operator set through which inference does not follow computed shapes has any."""
    old = any(entry.domain in ("", "ai.onnx") and entry.version < FOLLOWS_SHAPES for entry in model.opset_import)
    return old and any(node.op_type == "Shape" for node in model.graph.node)


def _empty(tensor: Any) -> None:
    """Drop the data of a large constant: only its shape matters."""
    if len(tensor.raw_data) > KEPT:
        tensor.ClearField("raw_data")
    for field in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data"):
        if len(getattr(tensor, field)) > KEPT:
            tensor.ClearField(field)


def _refuse_large(model: Any) -> None:
    """Refuse more operators than are allowed, counted as if every function were unfolded where it is called."""
    bodies = {(f.domain, f.name, f.overload): f.node for f in model.functions}
    sizes: dict[tuple[str, str, str], int] = {}

    def size(key: tuple[str, str, str], depth: int) -> int:
        if depth > 64:
            raise InputError("the model's functions call each other more than 64 deep; expected no recursion")
        if key not in sizes:
            sizes[key] = total(bodies[key], depth)
        return sizes[key]

    def total(nodes: Any, depth: int) -> int:
        keys = ((node.domain, node.op_type, node.overload) for node in nodes)
        return sum(size(key, depth + 1) if key in bodies else 1 for key in keys)

    if total(model.graph.node, 0) > MAX_OPERATORS:
        raise InputError(f"the model has more than {MAX_OPERATORS} operators; split it")


def _tensor(label: str, code: int, shape: tuple[int, ...]) -> Tensor:
    """Shape with the width of an ONNX element type."""
    width, floating = _TYPES.get(code, (0.0, False))
    if not width:
        raise InputError(f"the tensor {label[:80]!r} has the element type {code}, expected numbers or truth values")
    return checked(label, Tensor(shape, width, floating))


# Bytes an element and whether in floating point, by TensorProto.DataType.
_TYPES: dict[int, tuple[float, bool]] = {
    1: (4, True), 2: (1, False), 3: (1, False), 4: (2, False), 5: (2, False), 6: (4, False), 7: (8, False), 9: (1, False),
    10: (2, True), 11: (8, True), 12: (4, False), 13: (8, False), 14: (8, True), 15: (16, True), 16: (2, True), 17: (1, True),
    18: (1, True), 19: (1, True), 20: (1, True), 21: (0.5, False), 22: (0.5, False), 23: (0.5, True), 24: (1, True),
    25: (0.25, False), 26: (0.25, False),
}  # fmt: skip


def dimensions(text: str) -> dict[str, int]:
    """``batch=1,seq=128`` as a dictionary."""
    sizes: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, number = part.rpartition("=")
        if not sign or not name or not (number.isascii() and number.isdigit() and len(number) < 10) or int(number) < 1:
            raise InputError(f"--dims holds {part[:60]!r}, expected name=size with a whole number from 1 on")
        sizes[name.strip()] = int(number)
    return sizes


def _line(error: Exception) -> str:
    """First line of a foreign message, for one sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
