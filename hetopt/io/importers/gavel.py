"""Import a published throughput oracle of a GPU cluster (steps a second of training jobs by GPU type) and draw jobs from it.

The oracle is ``{worker type: {"('MODEL (batch size B)', GPUS)": {"null": alone, "('OTHER', GPUS)": [own, other's], ...}}}``.
Jobs are drawn as the published generator describes: 1, 2, 4 or 8 GPUs with probability 0.7, 0.1, 0.15, 0.05; a run of 60 times
10^U(1.5, 3) seconds on a V100, for one job in five 60 times 10^U(3, 4); a model among those measured on so many GPUs. The
draws are this project's own (PCG64), not the published program's. Prices an hour are the cloud's that the paper used.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.importers._text import load_text
from hetopt.io.kinds import Option, chosen, whole
from hetopt.records import Device, Job

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "gavel"
TITLE = "Jobs drawn from a published throughput oracle of a GPU cluster (Gavel)."
SOURCE_HELP = "throughput oracle (JSON)."
OBJECTIVES = (
    "max-min-fairness", "water-filling", "sharing-makespan", "finish-time-fairness", "sharing-cost", "sharing-cost-ratio",
    "packed-max-min-fairness", "packed-makespan", "nash-welfare", "strategy-proof", "first-in-first-out", "shortest-job-first",
    "mean-completion",
)  # fmt: skip
OPTIONS: tuple[Option, ...] = (
    Option("--jobs", int, 20, "Jobs to draw."),
    Option("--seed", int, 0, "Seed."),
    Option("--capacity", str, "4,4,4", "GPUs: K80,P100,V100; 0 leaves a type out."),
    Option("--noise", float, 0.0, "Spread of log-normal noise on every rate, which makes all jobs different."),
    Option("--priorities", bool, False, "One job in five has the priority 5."),
    Option("--deadlines", float, 0.0, "Part of the jobs with a deadline of 1.2, 2 or 10 times their run on a V100."),
    Option(
        "--pairs",
        bool,
        False,
        "Only jobs on one GPU, with the rates of two that share a GPU; packed questions imply it.",
    ),
    Option("--objective", OBJECTIVES, "max-min-fairness", "Question to put into the file."),
)
TYPES = ("k80", "p100", "v100")
PRICES = {"k80": 0.45, "p100": 1.46, "v100": 2.48}
GPUS, CHANCE = (1, 2, 4, 8), (0.7, 0.1, 0.15, 0.05)
_FASTEST = 1e12  # steps a second; more is no measurement, and an integer of hundreds of digits is no float
_KEY = re.compile(r"\('([^']*)', (\d{1,4})\)")

Kind = tuple[str, int]
Oracle = dict[str, dict[Kind, dict[str, Any]]]


def load(
    source: str | Path,
    *,
    jobs: int = 20,
    seed: int = 0,
    capacity: str = "4,4,4",
    noise: float = 0.0,
    priorities: bool = False,
    deadlines: float = 0.0,
    pairs: bool = False,
    objective: str = "max-min-fairness",
) -> Instance:
    """An instance of drawn jobs on the GPU types of which there are any; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        The file is no such oracle, or an option is out of its range.
    """
    workers = _capacity(capacity)
    whole("--jobs", jobs, 1, 1_000_000)
    whole("--seed", seed, 0, 2**32)
    if not 0 <= noise <= 1:
        raise InputError(f"--noise is {noise!r}, expected a number from 0 to 1")
    if not 0 <= deadlines <= 1:
        raise InputError(f"--deadlines is {deadlines!r}, expected a number from 0 to 1")
    chosen("--objective", objective, OBJECTIVES)
    pairs = pairs or objective.startswith("packed")
    oracle = _oracle(source, tuple(workers))
    kinds = sorted(kind for kind in oracle["v100"] if _alone(oracle, "v100", kind) > 0 and _runs(oracle, workers, kind))
    single = pairs or objective == "mean-completion"
    if single:
        kinds = [kind for kind in kinds if kind[1] == 1]
    by_gpus = {gpus: [kind for kind in kinds if kind[1] == gpus] for gpus in GPUS}
    missing = [gpus for gpus in ((1,) if single else GPUS) if not by_gpus[gpus]]
    if missing:
        raise InputError(
            f"{source}: no job on {missing[0]} GPUs was measured on these types and on v100; none can be drawn"
        )
    random = np.random.default_rng(seed)
    drawn = [_draw(random, by_gpus, single) for _ in range(jobs)]
    records, of = [], {}
    for k, (kind, seconds) in enumerate(drawn):
        jitter = np.exp(random.normal(0.0, noise, len(workers))) if noise else np.ones(len(workers))
        rates = [_alone(oracle, name, kind) * float(wave) for name, wave in zip(workers, jitter, strict=True)]
        late = float(seconds * random.choice([1.2, 2.0, 10.0])) if random.random() < deadlines else None
        records.append(
            Job(
                name=f"job{k}",
                time=[1.0 / rate if rate > 0 else None for rate in rates],
                scale=kind[1],
                weight=5 if priorities and random.random() < 0.2 else 1,
                steps=max(1, round(seconds * _alone(oracle, "v100", kind))),
                deadline=late,
            )
        )
        of[f"job{k}"] = kind[0]
    devices = [Device(name=name, slots=count, price=PRICES[name]) for name, count in workers.items()]
    tables = {"kind": of, "together": _together(oracle, workers, sorted({kind for kind, _ in drawn}))} if pairs else {}
    return Instance.build(
        devices, records, tables=tables, question={"objective": objective},
        name=f"{Path(source).stem}-{jobs}-{seed}",
        source=f"drawn with seed {seed} from the throughput oracle {Path(source).name} (Narayanan et al., OSDI 2020)",
    )  # fmt: skip


def _capacity(text: str) -> dict[str, int]:
    words = text.split(",")
    if len(words) != len(TYPES) or not all(re.fullmatch(r"\s*\d{1,6}\s*", word) for word in words):
        raise InputError(f"--capacity is {text!r}, expected three numbers of GPUs, K80,P100,V100, such as 4,4,4")
    workers = {name: int(word) for name, word in zip(TYPES, words, strict=True) if int(word) > 0}
    if not workers:
        raise InputError(f"--capacity is {text!r}, and a cluster has at least one GPU")
    return workers


def _draw(random: np.random.Generator, by_gpus: dict[int, list[Kind]], single: bool) -> tuple[Kind, float]:
    """A kind of job, and its seconds on a V100."""
    gpus = 1 if single else int(random.choice(GPUS, p=CHANCE))
    low, high = (3.0, 4.0) if random.random() < 0.2 else (1.5, 3.0)
    seconds = 60.0 * 10.0 ** float(random.uniform(low, high))
    return by_gpus[gpus][int(random.integers(len(by_gpus[gpus])))], seconds


def _oracle(source: str | Path, needed: tuple[str, ...]) -> Oracle:
    try:
        raw = json.loads(load_text(source))
    except (ValueError, RecursionError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{source}: not a JSON text: {error}") from error
    if not isinstance(raw, dict):
        raise InputError(f"{source}: $ is {type(raw).__name__}, expected an object of worker types")
    oracle: Oracle = {}
    for name in sorted({*needed, "v100"}):
        table = raw.get(name)
        if not isinstance(table, dict):
            raise InputError(f"{source}: $.{name} is missing or no object; expected rates by job")
        oracle[name] = {}
        for key, row in table.items():
            kind = _kind(source, name, key)
            if not isinstance(row, dict) or "null" not in row:
                raise InputError(f"{source}: $.{name}.{key} has no rate alone; expected an object with the key 'null'")
            _rate(row["null"], f"{source}: $.{name}.{key}.null")
            oracle[name][kind] = row
    return oracle


def _kind(source: str | Path, name: str, key: str) -> Kind:
    found = _KEY.fullmatch(key)
    if found is None:
        raise InputError(f"{source}: $.{name} has the key {key!r}, expected \"('MODEL', GPUS)\"")
    return found[1], int(found[2])


def _rate(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _FASTEST:
        raise InputError(f"{where} is {value!r:.40}, expected steps a second, from 0 to {_FASTEST:g}")
    if 0 < value < 1e-12:
        raise InputError(f"{where} is {value!r}; a step would take more than 1e12 seconds")
    return float(value)


def _alone(oracle: Oracle, name: str, kind: Kind) -> float:
    return float(oracle[name].get(kind, {"null": 0.0})["null"])


def _runs(oracle: Oracle, workers: dict[str, int], kind: Kind) -> bool:
    return any(_alone(oracle, name, kind) > 0 for name in workers)


def _together(oracle: Oracle, workers: dict[str, int], kinds: list[Kind]) -> list[list[Any]]:
    """Rows [type, kind, other kind, seconds a step, other's seconds a step] of pairs that both make progress."""
    rows = []
    for name in workers:
        for a, first in enumerate(kinds):
            for second in kinds[a:]:
                pair = oracle[name].get(first, {}).get(str(second))
                if pair is None:
                    continue
                if not isinstance(pair, list) or len(pair) != 2:
                    raise InputError(f"$.{name}.{first}.{second} is {pair!r}, expected two rates")
                own, other = (_rate(value, f"$.{name}.{first}.{second}") for value in pair)
                if own > 0 and other > 0:
                    rows.append([name, first[0], second[0], 1.0 / own, 1.0 / other])
    return rows
