"""Small files of every format that an importer reads, made here: what the tests read, and what the fuzz test mutates."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = [
    "SOURCES",
    "exported",
    "gguf_file",
    "llama_tensors",
    "onnx_model",
    "pt2_archive",
    "safetensors_file",
    "trace_of",
]


# GGUF -----------------------------------------------------------------------------------------------------------------


def gguf_text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_value(value: Any) -> bytes:
    """Type and value: text, truth, whole number (u32), float, list of whole numbers (i32) or of texts."""
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(gguf_text, value))
    return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)


def gguf_file(
    meta: Mapping[str, Any],
    tensors: Sequence[tuple[str, tuple[int, ...], int, int]],
    *,
    version: int = 3,
    data: bool = True,
) -> bytes:
    """A file with tensors (name, shape as GGUF orders it, type, bytes); the data are zeros."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(meta))
    head += b"".join(gguf_text(key) + gguf_value(value) for key, value in meta.items())
    offset = 0
    for name, shape, kind, size in tensors:
        head += gguf_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        offset += -(-size // 32) * 32
    return head + bytes(-len(head) % 32) + (bytes(offset) if data else b"")


LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": 3,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "tokenizer.ggml.tokens": ["a", "b", "c"],
    "general.file_type": 1,
}


def llama_tensors(layers: int = 3) -> list[tuple[str, tuple[int, ...], int, int]]:
    """Half precision but for the norms (32 bits) and one matrix a layer in Q8_0 (34 bytes for 32)."""
    found = [("token_embd.weight", (64, 100), 1, 64 * 100 * 2)]
    for k in range(layers):
        found += [
            (f"blk.{k}.attn_norm.weight", (64,), 0, 256),
            (f"blk.{k}.attn_q.weight", (64, 64), 1, 64 * 64 * 2),
            (f"blk.{k}.ffn_up.weight", (64, 128), 8, 64 * 128 // 32 * 34),
        ]
    return [*found, ("output_norm.weight", (64,), 0, 256), ("output.weight", (64, 100), 1, 64 * 100 * 2)]


# safetensors ----------------------------------------------------------------------------------------------------------

WIDTH = {"F16": 2, "F32": 4, "I32": 4, "U8": 1}


def safetensors_file(tensors: Mapping[str, tuple[str, Sequence[int]]], **more: Any) -> bytes:
    """A file with tensors (type, shape), one behind the other; the data are zeros."""
    header: dict[str, Any] = dict(more)
    end = 0
    for name, (dtype, shape) in tensors.items():
        size = WIDTH[dtype]
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)


DECODER: dict[str, tuple[str, Sequence[int]]] = {
    "model.embed_tokens.weight": ("F16", (100, 64)),
    **{
        f"model.layers.{k}.{part}.weight": ("F16", shape)
        for k in range(3)
        for part, shape in {
            "input_layernorm": (64,),
            "self_attn.q_proj": (64, 64),
            "self_attn.k_proj": (32, 64),
            "self_attn.v_proj": (32, 64),
            "mlp.up_proj": (128, 64),
        }.items()
    },
    "model.norm.weight": ("F16", (64,)),
    "lm_head.weight": ("F16", (100, 64)),
}


# ONNX -----------------------------------------------------------------------------------------------------------------


def onnx_model(batch: int | str = 2, opset: int = 15) -> bytes:
    """Two matrix products, bias and relu between; the second weight is computed from constants, a shape from the input."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("ConstantOfShape", ["size"], ["w2"], "fill"),
        helper.make_node("MatMul", ["x", "w1"], ["h0"], "first"),
        helper.make_node("Add", ["h0", "b1"], ["h1"], "bias"),
        helper.make_node("Relu", ["h1"], ["h2"]),
        helper.make_node("Shape", ["h2"], ["s"], "shape"),
        helper.make_node("Reshape", ["h2", "s"], ["h3"], "same"),
        helper.make_node("MatMul", ["h3", "w2"], ["y"], "second"),
    ]
    graph = helper.make_graph(
        nodes,
        "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4])],
        [
            helper.make_tensor("w1", TensorProto.FLOAT, [8, 16], bytes(4 * 8 * 16), raw=True),
            helper.make_tensor("b1", TensorProto.FLOAT, [16], bytes(4 * 16), raw=True),
            helper.make_tensor("size", TensorProto.INT64, [2], [16, 4]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return bytes(model.SerializeToString())


# torch.export ---------------------------------------------------------------------------------------------------------


def exported() -> dict[str, Any]:
    """The graph's JSON as ``torch.export.save`` writes it, of ``cat(relu(linear(x)), split...)``, cut down to what matters."""

    def tensor(name: str) -> dict[str, Any]:
        return {"as_tensor": {"name": name}}

    def meta(*sizes: int, dtype: int = 7) -> dict[str, Any]:
        return {"dtype": dtype, "sizes": [{"as_int": size} for size in sizes], "requires_grad": False}

    def node(
        target: str, name: str, *arguments: tuple[str, dict[str, Any]], outputs: Any = None, module: str = ""
    ) -> Any:
        stack = {"nn_module_stack": f"L__self__,,Net;L__self__{module},{module},torch.nn.Linear"} if module else {}
        inputs = [{"name": key, "arg": value, "kind": 1} for key, value in arguments]
        return {
            "target": target,
            "inputs": inputs,
            "outputs": outputs or [tensor(name)],
            "metadata": stack,
            "name": name,
        }

    nodes = [
        node("torch.ops.aten.linear.default", "linear", ("input", tensor("x")), ("weight", tensor("p_w")),
             ("bias", tensor("p_b")), module="up"),
        node("torch.ops.aten.split.Tensor", "split", ("self", tensor("linear")), ("split_size", {"as_int": 8}),
             outputs=[{"as_tensors": [{"name": "left"}, {"name": "right"}]}]),
        node("torch.ops.aten.relu.default", "relu", ("self", tensor("left"))),
        node("torch.ops.aten.cat.default", "cat", ("tensors", {"as_tensors": [{"name": "relu"}, {"name": "right"}]})),
        node("torch.ops.aten.mm.default", "mm", ("self", tensor("cat")), ("mat2", tensor("b_m"))),
    ]  # fmt: skip
    values = {
        "x": {"dtype": 7, "sizes": [{"as_expr": {"expr_str": "s0", "hint": {"as_int": 2}}}, {"as_int": 8}]},
        "p_w": meta(16, 8), "p_b": meta(16), "b_m": meta(16, 4, dtype=6), "linear": meta(2, 16), "left": meta(2, 8),
        "right": meta(2, 8), "relu": meta(2, 8), "cat": meta(2, 16), "mm": meta(2, 4),
    }  # fmt: skip
    inputs = [tensor(name) for name in ("p_w", "p_b", "b_m", "x")]
    specs = [
        {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "up.weight"}},
        {"parameter": {"arg": {"name": "p_b"}, "parameter_name": "up.bias"}},
        {"buffer": {"arg": {"name": "b_m"}, "buffer_name": "m", "persistent": True}},
        {"user_input": {"arg": tensor("x")}},
    ]
    graph = {"inputs": inputs, "outputs": [tensor("mm")], "nodes": nodes, "tensor_values": values, "sym_int_values": {}}
    return {
        "graph_module": {
            "graph": graph,
            "signature": {"input_specs": specs, "output_specs": []},
            "module_call_graph": [],
        },
        "opset_version": {"aten": 10},
        "range_constraints": {},
        "schema_version": {"major": 8, "minor": 20},
        "torch_version": "2.13.0",
    }


def pt2_archive(program: Any, name: str = "models/model.json") -> bytes:
    """The archive around it, with a pickle that must not be opened."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as pack:
        pack.writestr(f"net/{name}", json.dumps(program))
        pack.writestr("net/data/sample_inputs/model.pt", b"cos\nsystem\n(S'exit 7'\ntR.")
        pack.writestr("net/archive_format", "pt2")
    return buffer.getvalue()


# Traces, statistics, tables -------------------------------------------------------------------------------------------


def trace_of(*events: tuple[str, float, float], cat: str = "user_annotation", **more: Any) -> bytes:
    """A trace with complete events (name, start, duration) on one track."""
    found = [
        {"ph": "X", "cat": cat, "name": n, "ts": t, "dur": d, "pid": 1, "tid": 2, "args": {}} for n, t, d in events
    ]
    return json.dumps(
        {"schemaVersion": 1, "traceEvents": [{"ph": "M", "name": "process_name"}, *found], **more}
    ).encode()


STATISTICS = b"""#name,input_sizes,initializers_sizes,total_dynamic_sizes,total_temp_allocations
first_123456789,64,512,128,32
bias_11,128,64,128,0
Relu_2,128,0,128,0
same_3,128,0,128,0
second_4,128,256,32,1000
"""

WORKLOAD: dict[str, Any] = {
    "maxSizePerFPGA": 100.5,
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "nodes": [
        {
            "id": 7,
            "name": "conv",
            "supportedOnFpga": 1,
            "cpuLatency": 6.9,
            "fpgaLatency": 0.7,
            "colorClass": 3,
            "size": 40.25,
        },
        {"id": 2, "name": "relu", "supportedOnFpga": True, "cpuLatency": 2, "fpgaLatency": 1, "isBackwardNode": False},
        {"id": 5, "name": "relu", "supportedOnFpga": 0, "cpuLatency": 4, "isBackwardNode": 1, "colorClass": 3},
    ],
    "edges": [
        {"sourceId": 7, "destId": 2, "cost": 0.125, "size": 99},
        {"sourceId": 7, "destId": 5, "cost": 0.125},
        {"sourceId": 2, "destId": 5, "cost": 0.5},
    ],
}

LAYOUT = b"""Maximize
  flow_0_sink
Subject To
hold_constraint_0: hold_0_1 + hold_0_2 = 1
end_constraint_0: start_0 + hold_0_1 + 2 hold_0_2 <= 2
node_throughput_constraint_0: flow_source_0 - 10 hold_0_1 - 6 hold_0_2 <= 0
edge_flow_constr_source_0: flow_source_0 - 100 switch_source_0 <= 0
edge_flow_constr_0_sink: flow_0_sink - 100 switch_0_sink <= 0
node_flow_constraint_0: flow_source_0 - flow_0_sink = 0
edge_disable_constr_source_0: start_0 + 2 switch_source_0 <= 2
edge_disable_constr_0_sink: 2 switch_0_sink - start_0 - hold_0_1 - 2 hold_0_2 <= 0
Bounds
End
"""

STAGES = {
    "maxDevices": 3,
    "maxMemoryPerDevice": 100.0,
    "bandwidth": 25.0,
    "mbsInBatch": 4,
    "nodes": [
        {
            "id": k,
            "name": name,
            "TMPCs": {
                degree: [
                    {"id": "vanilla", "timePerSample": 1.5, "parameterSize": 3, "memoryUsageA": 2, "memoryUsageB": 7.5,
                     "syncTimeFw": {"0": 0.5} if k else {}, "syncTimeBw": {} if k else {"7": 0.25}}
                ]
                for degree in ("1", "2")
            },
        }
        for k, name in ((0, "embed"), (7, "head"))
    ],
    "edges": [{"sourceId": 0, "destId": 7, "communicationCost": 2}],
}  # fmt: skip

ORACLE = {
    kind: {
        f"('net (batch size {b})', {gpus})": {
            "null": rate * b * gpus,
            **({f"('net (batch size {c})', 1)": [rate * b / 2, rate * c / 2 * (b != c or kind != "k80")] for c in (1, 2)}
               if gpus == 1 else {}),
        }
        for b in (1, 2) for gpus in (1, 2, 4, 8)
    }
    for kind, rate in (("k80", 0.5), ("p100", 1.5), ("v100", 4.0))
}  # fmt: skip
"""Rates of two models on up to eight GPUs of three types; two of a kind do not fit a K80 together."""

TRACE = {
    "name": "small",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {"id": "a", "children": ["b"], "outputFiles": ["f", "g"], "parents": [], "inputFiles": []},
                {"id": "b", "children": [], "inputFiles": ["f", "h"], "parents": ["a"], "outputFiles": []},
            ],
            "files": [{"id": "f", "sizeInBytes": 4000}, {"id": "g", "sizeInBytes": 7}, {"id": "h", "sizeInBytes": 9}],
        },
        "execution": {"tasks": [{"id": "a", "runtimeInSeconds": 2.5}, {"id": "b", "runtimeInSeconds": 4}]},
    },
}

JOB = b"""# a job
job_name two
add_new_tasks 2
up 0
up HEAD
up earliest_start 0 deadline 2
down 1 0
down TAIL
comm_vol 0 1 6
"""

CHIP = b"""add_new_resource CPU P1 0 2 2 performance
opp 600 900
up 4 1
down 7.5 1
add_new_resource ACC A1 1 1 1
down 2 1
add_new_resource MEM M1 2 1 1 none
None 0 0
comm_band 0 0 100
comm_band 2 2 0
comm_band 0 2 2
comm_band 1 2 3
"""

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "max_position_embeddings": 2048,
}

MIXTURE = {**LLAMA, "llama.expert_count": 4, "llama.expert_used_count": 2, "llama.attention.head_count_kv": [2, 4, 0]}
PARTS = {"a.safetensors": dict(list(DECODER.items())[:7]), "b.safetensors": dict(list(DECODER.items())[7:])}


def index() -> bytes:
    """Index of the decoder's two files."""
    return json.dumps(
        {"metadata": {}, "weight_map": {name: file for file, part in PARTS.items() for name in part}}
    ).encode()


CEDR = {
    "AppName": "chain",
    "Variables": {"x": {"bytes": 8, "is_ptr": False}},
    "DAG": {
        "head": {
            "arguments": ["x"],
            "predecessors": [],
            "successors": [{"name": "fft", "edgecost": 3}],
            "platforms": [{"name": "cpu", "nodecost": 4, "runfunc": "head"}],
        },
        "fft": {
            "arguments": ["x"],
            "predecessors": [{"name": "head", "edgecost": 5}],
            "successors": [],
            "platforms": [{"name": "cpu", "nodecost": 20.5}, {"name": "fft", "nodecost": 6}],
        },
    },
}
"""Two nodes, the second of which an accelerator runs faster; the ends of the edge do not agree on its cost."""


class Source(NamedTuple):
    """A valid source of an importer: file name, its bytes, options, and files beside it."""

    name: str
    make: Callable[[], bytes]
    options: Mapping[str, Any] = {}
    beside: Mapping[str, Callable[[], bytes]] = {}


SCENE = """Network eyes {

FPS: 60
Layer conv1 {
\tType: CONV
\tDimensions: { N: 1, K: 32, C: 3, Y: 80, X: 60, R: 3, S: 3 }
}
Layer conv2 { Type: DSCONV Stride { X: 2, Y: 2 } Dimensions: { K: 32, C: 1, Y: 80, X: 60, R: 3, S: 3 } }
}
Network gaze { // behind the eyes
FPS: 60
Probability: 0.5
Dependency: {
\teyes
}
Layer fc { Type: CONV Dimensions: { N: 1, K: 512, C: 512, Y: 12, X: 1, R: 1, S: 1 } }
}
Network hands { FPS: 45 Layer conv1 { Type: CONV Dimensions: { K: 64, C: 3, Y: 128, X: 128, R: 7, S: 7 } } }
"""

SOURCES: dict[str, list[Source]] = {
    "csv": [Source("table.csv", lambda: b'job,gpu,cpu\na,1,2\n"b, c",,4.5\nd,3e2,5\n'), Source("t", lambda: b"1;2\n3;\n")],
    "cedr": [
        Source("app.json", lambda: json.dumps(CEDR).encode()),
        Source("app.json", lambda: json.dumps(CEDR).encode(), {"workers": "cpu=2,fft=1", "jobs": 3, "every": 2.5}),
    ],
    "dnn-partitioning": [Source("workload.json", lambda: json.dumps(WORKLOAD).encode())],
    "gavel": [
        Source("oracle.json", lambda: json.dumps(ORACLE).encode(), {"jobs": 5}),
        Source("pairs.json", lambda: json.dumps(ORACLE).encode(), {"jobs": 5, "pairs": True, "capacity": "1,0,2"}),
    ],
    "ds3": [Source("job.txt", lambda: JOB, {"soc": "chip.txt"}, {"chip.txt": lambda: CHIP})],
    "gguf": [
        Source("model.gguf", lambda: gguf_file(LLAMA, llama_tensors())),
        Source("mix.gguf", lambda: gguf_file(MIXTURE, [*llama_tensors(), ("blk.0.up_exps.w", (32, 2, 4), 8, 272)])),
        Source("m-00001-of-00002.gguf", lambda: gguf_file({**LLAMA, "split.count": 2}, llama_tensors()[:4]),
               {}, {"m-00002-of-00002.gguf": lambda: gguf_file({"split.count": 2}, llama_tensors()[4:])}),
    ],
    "hcsp": [Source("u_c_hihi.0", lambda: b"2 3 0\n1\n2.5\n3\n4\n5e1\n6\n")],
    "helix": [Source("ilp_model.lp", lambda: LAYOUT)],
    "hf": [Source("config.json", lambda: json.dumps(CONFIG).encode())],
    "onnx": [
        Source("model.onnx", onnx_model),
        Source("old.onnx", lambda: onnx_model(opset=11)),
        Source("named.onnx", lambda: onnx_model("N"), {"dims": "N=3"}),
    ],
    "ort-stats": [
        Source("stats.csv", lambda: STATISTICS),
        Source("graph.csv", lambda: STATISTICS, {"model": "two.onnx"}, {"two.onnx": onnx_model}),
    ],
    "piper": [Source("stages.json", lambda: json.dumps(STAGES).encode())],
    "safetensors": [
        Source("model.safetensors", lambda: safetensors_file(DECODER, __metadata__={"format": "pt"})),
        Source("model.safetensors.index.json", index, {},
               {file: (lambda part=part: safetensors_file(part)) for file, part in PARTS.items()}),
    ],
    "stg": [Source("g.stg", lambda: b"2\n0 0 0\n1 4 1 0\n2 3 2 0 1\n3 0 1 2\n# end\n", {"devices": 3})],
    "torch": [
        Source("model.json", lambda: json.dumps(exported()).encode()),
        Source("model.pt2", lambda: pt2_archive(exported())),
    ],
    "trace": [
        Source("cpu.json", lambda: trace_of(("model", 0, 10), ("up", 1, 4), ("down", 5, 4), ("model", 20, 10))),
        Source("gpu.json.gz", lambda: gzip.compress(trace_of(("a", 0, 1), ("b", 2, 1), cat="kernel"), mtime=0),
               {"boundary": 8, "bandwidth": 1e9}),
    ],
    "twct": [Source("a.json", lambda: b'{"name": "a", "weights": [1, 2], "processing_time_by_machine": [[3, 4], [5, 6.5]]}')],
    "upmsp": [Source("I_2_2", lambda: b"2 2 1\n2\n0 3 1 4\n0 5 1 6\nSSD\nM0\n0 1\n2 0\nM1\n0 3\n4 0\n")],
    "xrbench": [Source("scene.m", lambda: SCENE.encode(), {"fleet": "adreno-750:1,snapdragon-8-gen-3-cpu:2", "blocks": 2})],
    "wfformat": [Source("trace.json", lambda: json.dumps(TRACE).encode(), {"devices": 3, "ccr": 0.5})],
}  # fmt: skip
"""Valid sources of each importer."""
