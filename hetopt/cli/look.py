"""Commands that show: list, explain, model, plot, replay, versions, devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetopt.cli.group import INTERRUPTED, main
from hetopt.cli.running import print_json, read_instance, running, user_formulation, writable
from hetopt.cli.values import FILE, FORMULATION, JSON, QUESTION, Seconds
from hetopt.errors import InputError, VerificationError

if TYPE_CHECKING:
    pass

__all__ = ["devices", "explain", "list_", "model", "plot", "replay", "versions"]


@main.command("list")
@click.option(
    "--for", "file", type=click.Path(path_type=Path), help="Only what fits this instance, with sizes and reasons."
)
@FORMULATION
@JSON
def list_(file: Path | None, formulation: Path | None, as_json: bool) -> int:
    """Show the questions that can be asked, and the methods that answer them."""
    from hetopt import report

    user_formulation(formulation)
    instance = read_instance(file, None) if file else None
    rows = report.catalogue(instance)
    if as_json:
        print_json(rows)
    else:
        report.print_catalogue(rows, instance)
    return 0


@main.command()
@FILE
@QUESTION
@click.option("--quick", is_flag=True, help="What can be said without solving.")
@click.option("--time-limit", type=Seconds(), default=20.0, show_default=True, help="Time for solving.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of random numbers.")
@JSON
def explain(
    file: Path, objective: str | None, options: Any, formulation: Path | None, quick: bool, time_limit: float, seed: int,
    as_json: bool,
) -> int:  # fmt: skip
    """Say why there is no plan and what would mend it, or what holds the plan back and what more would buy."""
    import hetopt
    from hetopt import report

    instance = read_instance(file, formulation)
    told = hetopt.explain(instance, objective=objective, options=dict(options))
    found = None
    if not quick:
        with running(as_json) as control:
            found = hetopt.diagnose(
                instance, objective=objective, options=dict(options), time_limit=time_limit, seed=seed, control=control
            )
    if as_json:
        print_json({**told.to_json(), **({"diagnosis": found.to_json()} if found else {})})
    else:
        report.print_explanation(told, found)
    if found is not None and control.cancelled.is_set():
        return INTERRUPTED
    if told.infeasible or (found is not None and found.result.status == "infeasible"):
        return 3
    return 4 if found is not None and found.result.solution is None else 0


@main.command()
@FILE
@QUESTION
@click.option("--method", metavar="M", help="Linear formulation to write; the first that fits otherwise.")
@click.option("--relax", is_flag=True, help="Write the LP relaxation.")
@click.option("--output", "-o", type=click.Path(path_type=Path), required=True, help="MODEL.mps or MODEL.lp")
def model(
    file: Path,
    objective: str | None,
    options: Any,
    formulation: Path | None,
    method: str | None,
    relax: bool,
    output: Path,
) -> int:
    """Write the mathematical model of FILE as an MPS or LP file with readable names."""
    from hetopt.formulation import LinearFormulation
    from hetopt.registry import problem_for

    instance = read_instance(file, formulation)
    problem = problem_for(instance, objective)
    question = problem.question(instance, {**dict(options), **({"objective": objective} if objective else {})})
    linear = [m for m in problem.methods if isinstance(m, LinearFormulation) and m.fits(instance, question) is None]
    fitting = ", ".join(m.name for m in linear) or "there is none"
    chosen = problem.method(method) if method else (linear[0] if linear else None)
    if not isinstance(chosen, LinearFormulation):
        what = (
            f"{method!r} is no linear formulation" if method else f"{problem.name} has no linear formulation that fits"
        )
        raise InputError(f"{what}; only those can be written: {fitting}")
    why_not = chosen.fits(instance, question)
    if why_not:
        raise InputError(f"method {method!r} of {problem.name} does not fit this instance: {why_not}")
    writable(output)
    built = chosen.build(instance, question)
    if relax:
        built = built.relax()
    built.write(output)
    numbers = built.statistics()
    click.echo(
        f"{output}: {numbers.rows} rows, {numbers.columns} columns ({numbers.integer_columns} integer), "
        f"{numbers.nonzeros} nonzeros",
        err=True,
    )
    return 0


@main.command()
@FILE
@click.argument("result", type=click.Path(path_type=Path), required=False)
@FORMULATION
@click.option("--output", "-o", type=click.Path(path_type=Path), required=True, help="PICTURE.png, .svg or .pdf")
def plot(file: Path, result: Path | None, formulation: Path | None, output: Path) -> int:
    """Draw the instance in FILE, or the plan in RESULT, which is verified first."""
    import hetopt
    from hetopt import plot as drawing

    instance = read_instance(file, formulation)
    writable(output)
    claimed = hetopt.read_result(result, instance) if result else None
    if claimed is not None:
        hetopt.verify(instance, claimed)
    drawing.save(instance, claimed, output)
    click.echo(f"{output}: written", err=True)
    return 0


@main.command()
@FILE
@click.argument("result", type=click.Path(path_type=Path))
@click.option("--trace", type=click.Path(path_type=Path), help="Trace to write, for Perfetto or chrome://tracing.")
@FORMULATION
@JSON
def replay(file: Path, result: Path, trace: Path | None, formulation: Path | None, as_json: bool) -> int:
    """Run the plan in RESULT event by event: latencies, misses, utilisation, memory over time.

    A second opinion: what cannot start as planned, or a value that comes out other than claimed, is an error.
    """
    import json

    import hetopt
    from hetopt import report
    from hetopt.io.atomic import atomic_write
    from hetopt.replay import chrome_trace, replayed

    instance = read_instance(file, formulation)
    writable(trace)
    found = replayed(instance, hetopt.read_result(result, instance))
    if trace is not None:
        atomic_write(trace, json.dumps(chrome_trace(instance, found)) + "\n")
        click.echo(f"{trace}: {len(found.runs)} runs, {len(found.transfers)} transfers", err=True)
    if as_json:
        print_json(found.to_json(instance))
    else:
        report.print_replay(found.to_json(instance))
    if found.complaints:
        raise VerificationError(found.complaints)
    return 0


@main.command()
@JSON
def versions(as_json: bool) -> int:
    """Show versions of hetopt, its solvers and this machine: what a bug report needs."""
    from hetopt import report, solvers
    from hetopt.versions import machine
    from hetopt.versions import versions as installed

    record = {"versions": installed(), "machine": machine(), "solvers": solvers.overview()}
    if as_json:
        print_json(record)
    else:
        report.print_versions(record)
    return 0


@main.command()
@click.argument("name", required=False)
@click.option("--file", type=click.Path(path_type=Path), help="Your own devices and prices; they override these.")
@JSON
def devices(name: str | None, file: Path | None, as_json: bool) -> int:
    """Show the catalogue of devices, or the data sheet of NAME (any case and punctuation; a unique beginning will do).

    Memory in GB, as sold and usable; bandwidth of memory, of the link to the host and between peers in GB/s; dense fp16 in
    TFLOPS, int8 in TOPS.
    """
    import msgspec

    from hetopt.costs import catalogue

    sheets = catalogue.catalogue(file)
    if name is not None:
        sheet = catalogue.find(name, sheets)
        sheets = {sheet.name: sheet}
    if as_json:
        print_json({"format": catalogue.FORMAT, "devices": [msgspec.structs.asdict(s) for s in sheets.values()]})
    else:
        click.echo(catalogue.table(sheets) if name is None else catalogue.describe(sheet))
    return 0
