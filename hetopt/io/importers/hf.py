"""Import a published ``config.json`` with devices: a transformer's layers, timed by the roofline, as a sequence to be cut.

No weights are read, nothing is downloaded, and none of the model's own packages is needed. What a layer is and holds:
:mod:`hetopt.io.hf_families`; what it takes: :mod:`hetopt.costs.transformer`; the devices: :mod:`hetopt.costs.cluster`.
"""

from __future__ import annotations

import re
from pathlib import Path

from hetopt.costs.calibration import Measurement, calibrate
from hetopt.costs.catalogue import Sheet, catalogue, find
from hetopt.costs.cluster import CONTEXT, cluster
from hetopt.costs.links import network as network_of
from hetopt.costs.precision import KV_BYTES, PRECISIONS, SCHEMES
from hetopt.costs.roofline import Factors
from hetopt.costs.transformer import PHASES, Model, Work
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.hf_families import model_of
from hetopt.io.hf_fields import Fields, read_fields
from hetopt.io.kinds import Option, chosen, whole
from hetopt.io.measurements import read_measurements
from hetopt.io.recipe import WANTS, Recipe, layer_of

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load", "recipe"]

NAME = "hf"
TITLE = "A transformer from its config.json, on devices of the catalogue."
SOURCE_HELP = (
    "config.json of a model, or its folder (Llama, Mistral, Mixtral, Qwen, DeepSeek, Gemma, GPT-2, BERT, ViT)."
)
OPTIONS: tuple[Option, ...] = (
    Option(
        "--devices",
        str,
        "rtx4090:2,rtx3090,cpu",
        "Devices as name:count,name; nodes with / between (`hetopt devices`).",
    ),
    Option("--want", tuple(WANTS), "throughput", "What the question asks for."),
    Option(
        "--phase", ("auto", *PHASES), "auto", "What the model does; auto: decode where it has a KV cache, else prefill."
    ),
    Option("--context", int, None, "Tokens of a sequence; 4096, or what the model is made for, if less."),
    Option("--batch", int, 1, "Sequences that go through a stage at once (a micro-batch)."),
    Option("--in-flight", int, 0, "Micro-batches held at once; 0: as many as devices in a full pipeline, else one."),
    Option("--precision", ("auto", *PRECISIONS), "auto", "What is not quantised; auto: as the config says, else bf16."),
    Option("--quantisation", ("auto", "none", *SCHEMES), "auto", "How weights are stored; auto: as the config says."),
    Option("--kv", ("auto", *KV_BYTES), "auto", "Elements of the KV cache; auto: as the precision."),
    Option("--at-most", float, None, "Most seconds that a stage may be busy for one micro-batch."),
    Option(
        "--recompute",
        bool,
        False,
        "Training: the backward pass runs each layer again instead of keeping its activations.",
    ),
    Option("--mtp", bool, False, "Take in the layers for multi-token prediction, on the last stage."),
    Option("--text-only", bool, False, "Leave out towers for pictures and sound."),
    Option("--network", str, "10gbe", "Between nodes: a name such as 10gbe or ndr, or GBIT:MICROSECONDS."),
    Option("--bridges", bool, False, "Cards that take an NVLink bridge have one, in pairs."),
    Option(
        "--utilisation",
        float,
        None,
        "Share of each device's memory that may be used; as its data sheet says otherwise.",
    ),
    Option("--reserve", int, CONTEXT, "Bytes of context on each GPU, besides that share."),
    Option("--catalogue", str, None, "Your own devices and prices, as `hetopt devices --file` reads them."),
    Option("--calibration", str, None, "Your measurements, which replace assumed efficiencies."),
)
_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def load(source: str | Path, **options: object) -> Instance:
    """Instance of a config; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        As :func:`recipe`.
    """
    return recipe(source, **options).instance()  # type: ignore[arg-type]


def recipe(
    source: str | Path,
    *,
    devices: str = "rtx4090:2,rtx3090,cpu",
    want: str = "throughput",
    phase: str = "auto",
    context: int | None = None,
    batch: int = 1,
    in_flight: int = 0,
    precision: str = "auto",
    quantisation: str = "auto",
    kv: str = "auto",
    at_most: float | None = None,
    recompute: bool = False,
    mtp: bool = False,
    text_only: bool = False,
    network: str = "10gbe",
    bridges: bool = False,
    utilisation: float | None = None,
    reserve: int = CONTEXT,
    catalogue: str | None = None,
    calibration: str | None = None,
) -> Recipe:
    """A config with its use and devices; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        The config cannot be read, its family is not known or a field cannot be; an option is out of range or contradicts another;
        a device is not known; measurements do not fit.
    """
    chosen("--want", want, tuple(WANTS))
    config = read_fields(source)
    try:
        model = model_of(config, mtp=mtp, text_only=text_only)
        work = Work(
            phase=_phase(model, phase),
            batch=whole("--batch", batch, 1, 1 << 16),
            context=_context(model, context),
            in_flight=whole("--in-flight", in_flight, 0, 4096),
            precision=(usual := _precision(config, precision)),
            scheme=_scheme(config, quantisation),
            kv=usual if chosen("--kv", kv, ("auto", *KV_BYTES)) == "auto" else kv,
            recompute=recompute,
        )
    except InputError as error:
        raise InputError(str(error) if str(error).startswith("--") else f"{source}: {error}") from error
    if work.training and work.scheme is not None:
        raise InputError(
            f"--phase train with weights in {work.scheme}: training keeps them whole; add --quantisation none"
        )
    if recompute and not work.training:
        raise InputError("--recompute is for --phase train; leave it out")
    if at_most is not None and not 0 < at_most < 1e12:
        raise InputError(f"--at-most is {at_most!r}, expected seconds > 0")
    sheets = _sheets(catalogue)
    crew = cluster(
        devices, sheets, between=network_of(network), bridges=bridges, utilisation=utilisation,
        context=whole("--reserve", reserve, 0, 1 << 40),
    )  # fmt: skip
    factors = _factors(calibration, model, work, sheets)
    return Recipe(_name(source), model, work, crew, want, at_most, factors, f"config {Path(source).name}")


def _sheets(file: str | None) -> dict[str, Sheet]:
    return catalogue(file)


def _name(source: str | Path) -> str:
    path = Path(source)
    name = path.parent.name if path.name == "config.json" else path.stem
    return re.sub(r"[^\w.-]+", "-", name) or "model"


def _phase(model: Model, phase: str) -> str:
    chosen("--phase", phase, ("auto", *PHASES))
    if phase == "decode" and not model.caches:
        raise InputError(f"--phase is 'decode', and {model.family} keeps no KV cache; expected prefill or train")
    return phase if phase != "auto" else "decode" if model.caches else "prefill"


def _context(model: Model, context: int | None) -> int:
    if model.tokens is not None:
        if context not in (None, model.tokens):
            raise InputError(
                f"--context is {context}, and {model.family} always sees {model.tokens} tokens; leave it out"
            )
        return model.tokens
    longest = model.longest if model.longest is not None else 1 << 24
    if context is None:
        return min(4096, longest)
    whole("--context", context, 1, 1 << 24)
    if context > longest:
        raise InputError(
            f"--context is {context}, and the model is made for {longest} tokens (max_position_embeddings)"
        )
    return context


def _precision(config: Fields, precision: str) -> str:
    if chosen("--precision", precision, ("auto", *PRECISIONS)) != "auto":
        return precision
    text = config.inner("text_config")
    for fields in (config, *([text] if text is not None else [])):
        for name in ("dtype", "torch_dtype"):
            word = fields.word(name)
            if word is not None:
                if word.removeprefix("torch.") not in _DTYPES:
                    raise InputError(f"{fields.path}.{name} is {word[:40]!r}; say --precision fp32, fp16 or bf16")
                return _DTYPES[word.removeprefix("torch.")]
    return "bf16"


def _scheme(config: Fields, quantisation: str) -> str | None:
    """How weights are stored, as asked, or as the config says."""
    if chosen("--quantisation", quantisation, ("auto", "none", *SCHEMES)) != "auto":
        return None if quantisation == "none" else quantisation
    stored = config.inner("quantization_config")
    if stored is None:
        return None
    method, bits = stored.word("quant_method"), stored.get("bits")
    group = stored.get("group_size")
    if method in ("fp8", "fbgemm_fp8", "mxfp4"):
        return "mxfp4" if method == "mxfp4" else "fp8"
    if method in ("gptq", "awq") and bits == 8:
        return "int8"
    if method in ("gptq", "awq") and bits == 4 and group in (None, -1, 128):
        return "int4"
    if method == "bitsandbytes":
        return "nf4" if stored.flag("load_in_4bit") else "int8"
    what = f"{stored.path}.quant_method is {method!r}" + (f" with {bits} bits in groups of {group}" if bits else "")
    raise InputError(f"{what}, which is not known; say --quantisation with the scheme nearest to it, no smaller")


def _factors(file: str | None, model: Model, work: Work, sheets: dict[str, Sheet]) -> dict[str, Factors]:
    """Factors by data sheet, from a file of measurements of this model."""
    if file is None:
        return {}
    measured: dict[str, list[Measurement]] = {}
    for one in read_measurements(file):
        use = Work(one.phase, one.batch, one.context, 1, work.precision, work.scheme, work.kv)
        if one.phase == "decode" and not model.caches:
            raise InputError(f"{file}: a decode step of {model.family} is measured, which keeps no KV cache")
        modules = [layer_of(model)] if one.what == "layer" else model.modules
        operations = [op for module in modules for _ in range(module.blocks) for op in use.operations(module)]
        measured.setdefault(find(one.device, sheets).name, []).append(Measurement(operations, one.seconds))
    return {name: calibrate(sheets[name], several) for name, several in measured.items()}
