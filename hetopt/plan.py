"""From a model and devices to a plan that a framework accepts, in one go: import, solve, verify, export.

Tools differ in what they can follow, and the plan is made for those that are asked for: vLLM and its like run on accelerators
only, so CPUs are left out; llama.cpp keeps the first layers in host memory, so a CPU holds the first stage or none (both are
tried); accelerate copies what is in host memory to the first GPU and runs it there (llama.cpp's way counts when both are asked
for). Where there is no plan, changes of the call are tried (a shorter context, smaller weights, one more device), and those after
which a verified plan exists are told; :func:`hetopt.diagnose` looks closer at the instance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io import exporters
from hetopt.io.atomic import atomic_write
from hetopt.io.importers import hf
from hetopt.io.instances import write
from hetopt.io.results import write_result
from hetopt.plan_stages import Stage, binding, rates, stages_of
from hetopt.result import Result
from hetopt.solve import solve
from hetopt.verify.result import verify

if TYPE_CHECKING:
    from hetopt.io.recipe import Recipe

__all__ = ["Planned", "plan", "settings_file", "write_plan"]

_ACCELERATORS_ONLY = ("deepspeed", "edgetpu", "megatron", "torch", "torchrun", "vllm")
_SUFFIXES = {
    "accelerate": "json", "deepspeed": "py", "edgetpu": "json", "kubernetes": "json", "onnxruntime": "json", "ray": "py",
    "torch": "py",
}  # fmt: skip
_SMALLER = ("int8", "int4")  # weights that are tried when there is no plan
_PATIENCE = 5.0  # seconds for each change that is tried


@dataclass(frozen=True)
class Planned:
    """What came of it.

    Attributes
    ----------
    instance, result
        The instance that was solved, and the verified answer.
    stages
        In the order of the model; empty without a plan.
    rates
        What the plan's value means: tokens or sequences a second, seconds a token, as (name, value).
    binding
        Sentences on what holds the plan back.
    settings
        Text for each tool asked for.
    refused
        Why a tool cannot follow the plan, by tool.
    mends
        Changes of the call after which there is a plan; where there is none.
    notes
        What was decided on the way.
    """

    instance: Instance
    result: Result
    stages: tuple[Stage, ...] = ()
    rates: tuple[tuple[str, float], ...] = ()
    binding: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    mends: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def plan(
    source: str | Path,
    *,
    to: Sequence[str] = (),
    time_limit: float | None = 60.0,
    gap: float = 0.0,
    threads: int = 1,
    seed: int = 0,
    control: Control | None = None,
    **options: Any,
) -> Planned:
    """Plan a published model on some devices.

    Parameters
    ----------
    source
        Its ``config.json``, or the folder that holds it.
    to
        Tools whose settings are wanted (:func:`hetopt.io.exporters.names`).
    time_limit, gap, threads, seed, control
        As for :func:`hetopt.solve`; the limit is for all that is solved.
    options
        As for ``hetopt import hf``: ``devices``, ``want``, ``context`` and so on.

    Raises
    ------
    InputError
        The config, a device, an option or a tool is not known or cannot be.
    """
    for target in to:
        exporters.get(target)
    recipe = hf.recipe(source, **options)
    tried: list[tuple[Instance, Result]] = []
    notes: list[str] = []
    variants = list(_variants(recipe, to, notes))
    for _, variant, how in variants:
        own = control if control is None or len(variants) == 1 else Control(cancelled=control.cancelled)
        limit = None if time_limit is None else time_limit / len(variants)
        instance = variant.instance(**how)
        result = solve(instance, control=own, time_limit=limit, gap=gap, threads=threads, seed=seed)
        tried.append((instance, result))
    instance, result = _best(tried)
    notes += [f"{why}: {_said(r)}" for (why, *_), (_, r) in zip(variants, tried, strict=True) if len(variants) > 1]
    if result.solution is None:
        stopped = control is not None and control.cancelled.is_set()
        mends = tuple(_mends(recipe, to, seed, control, notes)) if result.status == "infeasible" and not stopped else ()
        return Planned(instance, result, mends=mends, notes=tuple(notes))
    verify(instance, result)
    settings, refused = {}, {}
    for target in to:
        try:
            settings[target] = exporters.export(instance, result, target)
        except InputError as error:
            refused[target] = str(error)
    stages = stages_of(instance, result)
    return Planned(
        instance, result, stages, tuple(rates(recipe.used, stages)), tuple(binding(recipe.want, instance, stages)),
        settings, refused, (), tuple(notes),
    )  # fmt: skip


def settings_file(target: str) -> str:
    """Name of the file for a tool's settings."""
    return f"{target}.{_SUFFIXES.get(target, 'sh')}"


def write_plan(planned: Planned, folder: str | Path) -> None:
    """Write ``instance.json``, ``result.json`` and a file for each tool's settings into a folder, which is made if need be.

    Raises
    ------
    InputError
        A file cannot be written.
    """
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder {str(target)!r}: {error.strerror or error}; choose another"
        ) from error
    write(planned.instance, target / "instance.json")
    write_result(planned.result, planned.instance, target / "result.json")
    for name, text in planned.settings.items():
        atomic_write(target / settings_file(name), text)


# What is tried --------------------------------------------------------------------------------------------------------


def _variants(recipe: Recipe, to: Sequence[str], notes: list[str]) -> Iterator[tuple[str, Recipe, dict[str, bool]]]:
    """What the tools can follow: a word on it, a recipe, and how its instance is made."""
    only = [target for target in to if target in _ACCELERATORS_ONLY]
    hosts = ", ".join(recipe.hosts)
    if not recipe.hosts or not (only or "llama.cpp" in to or "accelerate" in to):
        yield "as given", recipe, {}
        return
    if only:
        notes.append(f"{' and '.join(only)} run{'s' * (len(only) == 1)} on accelerators only: {hosts} left out")
    if only or len(recipe.hosts) < len(recipe.cluster.units):
        yield "on accelerators", recipe.without_hosts(), {}
    if not only and "llama.cpp" in to:
        yield "with the first layers in host memory", recipe, {"first_on_host": True}
    elif not only:
        yield "with layers copied from host memory to the first GPU", recipe, {"copied": True}


def _best(tried: Sequence[tuple[Instance, Result]]) -> tuple[Instance, Result]:
    """The best plan; without one, an answer that leaves hope before one that proves there is none."""
    planned = [one for one in tried if one[1].solution is not None]
    if planned:
        sign = 1 if planned[0][1].sense == "min" else -1
        return min(planned, key=lambda one: sign * one[1].objective)  # type: ignore[operator]
    return next((one for one in tried if one[1].status != "infeasible"), tried[-1])


def _said(result: Result) -> str:
    if result.solution is None:
        return f"no plan ({result.status})"
    return (
        f"{result.objective:.6g}, bound {result.bound:.6g}" if result.bound is not None else f"{result.objective:.6g}"
    )


def _mends(recipe: Recipe, to: Sequence[str], seed: int, control: Control | None, notes: list[str]) -> Iterator[str]:
    """Changes of the call after which there is a plan, each verified; ``notes`` says where the search was cut short."""
    if control is not None:
        control.method = "there is no plan; trying what would mend it"
    unsettled: list[str] = []
    for mend in _possible_mends(recipe, to, seed, unsettled):
        if mend:
            yield mend
        if control is not None and control.cancelled.is_set():
            notes.append("the search for what would mend it was interrupted; more may")
            break
    if unsettled:
        notes.append(f"whether it would help was not settled in {_PATIENCE:g} s each: {'; '.join(unsettled)}")


def _possible_mends(recipe: Recipe, to: Sequence[str], seed: int, unsettled: list[str]) -> Iterator[str]:
    """Each change that helps, and an empty word for each tried in vain; ``unsettled`` has those that were not settled."""
    used = recipe.used
    if recipe.want != "tokens" and recipe.model.caches and not used.training:
        most = _longest(recipe, to, seed)
        change = f"--context {most} (instead of {used.context})"
        yield (
            change
            if 0 < most < used.context and _helps(change, _with(recipe, context=most), to, seed, unsettled)
            else ""
        )
    stored = used.scheme
    for scheme in _SMALLER if not used.training and stored not in ("int4", "nf4") else ():
        change = f"--quantisation {scheme} (instead of {stored or used.precision})"
        if scheme != stored and _helps(change, _with(recipe, scheme=scheme), to, seed, unsettled):
            yield change
            break
        yield ""
    for name in recipe.cluster.sheets:
        more = _one_more(recipe, name)
        change = f"one more {name}"
        yield change if more.cluster.sheets[name].kind != "cpu" and _helps(change, more, to, seed, unsettled) else ""


def _with(recipe: Recipe, **changes: Any) -> Recipe:
    return replace(recipe, work=replace(recipe.work, **changes))


def _one_more(recipe: Recipe, name: str) -> Recipe:
    units = recipe.cluster.units
    last = max(k for k, unit in enumerate(units) if unit.sheet.name == name)
    count = sum(unit.sheet.name == name for unit in units)
    more = replace(units[last], name=f"{name}-{count}")
    return replace(recipe, cluster=replace(recipe.cluster, units=(*units[: last + 1], more, *units[last + 1 :])))


def _helps(change: str, recipe: Recipe, to: Sequence[str], seed: int, unsettled: list[str]) -> bool:
    """Whether there is a plan after a change; the change is added to ``unsettled`` where that was not settled."""
    settled = True
    for _, variant, how in _variants(recipe, to, []):
        result = solve(variant.instance(**how), time_limit=_PATIENCE, seed=seed)
        if result.solution is not None:
            return True
        settled = settled and result.status == "infeasible"
    if not settled:
        unsettled.append(change)
    return False


def _longest(recipe: Recipe, to: Sequence[str], seed: int) -> int:
    """Tokens of each sequence for whose caches some plan has room; 0 when there is none."""
    found = [0]
    for _, variant, how in _variants(recipe, to, []):
        work = variant.used
        asked = replace(variant, want="tokens", work=work).instance(**how)
        room = solve(asked, options={"block": 1}, time_limit=_PATIENCE, seed=seed).objective
        found.append(int(room or 0) // (work.batch * work.in_flight))
    return max(found)
