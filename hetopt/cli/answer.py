"""Commands that answer a question: solve, bound, verify, sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetopt.cli.group import BAD_INPUT, INTERRUPTED, main
from hetopt.cli.running import (
    finish,
    print_json,
    read_instance,
    running,
    tell_unasked,
    user_formulation,
    value_of,
    writable,
)
from hetopt.cli.values import FILE, FORMULATION, JSON, LIMITS, OUTPUT, QUESTION, Bytes, Gap, Pair, Seconds
from hetopt.errors import InputError, VerificationError

if TYPE_CHECKING:
    from hetopt.result import Result

__all__ = ["bound", "solve", "sweep", "verify"]


@main.command()
@FILE
@QUESTION
@click.option(
    "--method", metavar="M", default="auto", show_default=True, help="Method, as `hetopt list --for FILE` names it."
)
@click.option("--solver", metavar="S", help="Solver for linear formulations, as `hetopt versions` names it.")
@LIMITS
@click.option("--gap", type=Gap(), default=0.0, show_default=True, help="Stop at this relative gap (0.01 or 1%).")
@click.option(
    "--hint", type=click.Path(path_type=Path), help="Result file whose plan is the start; never a constraint."
)
@click.option("--memory-limit", type=Bytes(), help="Memory a solver may take (8G), where it can be told.")
@click.option("--log-file", type=click.Path(path_type=Path), help="Write the solver's own log here.")
@click.option("--deterministic", is_flag=True, help="Same plan on each run: one thread, work limits instead of time.")
@click.option(
    "--native", type=Pair(), multiple=True, help="The solver's own option by its native name; may be repeated."
)
@OUTPUT
@JSON
def solve(
    file: Path, objective: str | None, options: Any, formulation: Path | None, method: str, solver: str | None,
    time_limit: float | None, threads: int, seed: int, gap: float, hint: Path | None, memory_limit: int | None,
    log_file: Path | None, deterministic: bool, native: Any, output: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Find a plan for the instance in FILE, and prove how good it is."""
    import hetopt

    instance = read_instance(file, formulation)
    tell_unasked(instance, formulation, objective)
    start = hetopt.read_result(hint, instance).solution if hint else None
    if hint and start is None:
        raise InputError(f"--hint {str(hint)!r} holds no plan; give a result file with a solution")
    writable(output)
    writable(log_file)
    with running(as_json) as control:
        result = hetopt.solve(
            instance, objective=objective, options=dict(options), method=method, solver=solver, time_limit=time_limit,
            gap=gap, threads=threads, seed=seed, hint=start, memory_limit=memory_limit,
            log_file=str(log_file) if log_file else None, deterministic=deterministic,
            native={key: value_of(text) for key, text in native}, control=control,
        )  # fmt: skip
    return finish(result, instance, output, as_json)


@main.command()
@FILE
@QUESTION
@click.option("--method", metavar="M", help="Relaxation to use; all that fit otherwise.")
@LIMITS
@OUTPUT
@JSON
def bound(
    file: Path, objective: str | None, options: Any, formulation: Path | None, method: str | None,
    time_limit: float | None, threads: int, seed: int, output: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Prove a bound on every plan's value, without looking for a plan."""
    import hetopt

    instance = read_instance(file, formulation)
    tell_unasked(instance, formulation, objective)
    writable(output)
    with running(as_json) as control:
        result = hetopt.bound(
            instance, objective=objective, options=dict(options), method=method, time_limit=time_limit, threads=threads,
            seed=seed, control=control,
        )  # fmt: skip
    code = finish(result, instance, output, as_json)
    return 0 if result.bound is not None and code in (2, 4) else code


@main.command()
@FILE
@click.argument("result", type=click.Path(path_type=Path))
@click.option(
    "--again", is_flag=True, help="Run the method whose word the bound is once more, where none can be replayed."
)
@click.option("--time-limit", type=Seconds(), help="Time for --again.")
@FORMULATION
@JSON
def verify(
    file: Path, result: Path, again: bool, time_limit: float | None, formulation: Path | None, as_json: bool
) -> int:
    """Check the plan and the bound in RESULT against the instance in FILE. Needs no solver."""
    import hetopt

    instance = read_instance(file, formulation)
    claimed = hetopt.read_result(result, instance)
    statement = []
    try:
        checked = hetopt.verify(instance, claimed)
        statement.append(checked.statement)
        if again and checked.bound is not None and checked.bound_proof in ("algorithm", "solver"):
            with running(as_json) as control:
                second = hetopt.prove_again(instance, claimed, time_limit=time_limit, control=control)
            statement.append(_compared(checked.bound, claimed.sense, second))
    except VerificationError as error:
        if as_json:
            print_json({"valid": False, "violations": list(error.violations)})
        raise
    if as_json:
        record = {
            "valid": True,
            "objective": checked.objective,
            "bound": checked.bound,
            "bound_proof": checked.bound_proof,
        }
        print_json({**record, "statement": "; ".join(statement)})
    else:
        click.echo("\n".join(statement))
    return 0


def _compared(bound: float, sense: str, second: Result) -> str:
    """What a second run says about a claimed bound; VerificationError when it refutes it."""
    from hetopt.result import TOLERANCE

    sign = 1.0 if sense == "min" else -1.0
    slack = TOLERANCE * abs(bound)
    if second.objective is not None and sign * (bound - second.objective) > slack:
        raise VerificationError(
            [
                f"run again, {second.method} found a plan of value {second.objective:.9g}, better than the bound {bound:.9g}"
            ]
        )
    if second.bound is not None and sign * (bound - second.bound) <= slack:
        return f"run again, it gave the bound {second.bound:.9g} in {second.seconds:.1f} s: confirmed"
    got = "no bound" if second.bound is None else f"only the bound {second.bound:.9g}"
    return f"run again, it gave {got} in {second.seconds:.1f} s: not confirmed"


@main.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@QUESTION
@click.option("--method", metavar="M", default="auto", show_default=True, help="Method for every file.")
@LIMITS
@click.option("--gap", type=Gap(), default=0.0, show_default=True, help="Stop each at this relative gap.")
@click.option("--dask", metavar="ADDRESS", help="Scheduler to spread the files over (tcp://host:8786), or local.")
@click.option("--output", "-o", type=click.Path(path_type=Path), required=True, help="Folder for the result files.")
@JSON
def sweep(
    files: tuple[Path, ...], objective: str | None, options: Any, formulation: Path | None, method: str,
    time_limit: float | None, threads: int, seed: int, gap: float, dask: str | None, output: Path, as_json: bool,
) -> int:  # fmt: skip
    """Solve many FILES, each with the same limits; a file whose result is in the folder is not solved again.

    The exit code is 1 when a file was no good, else the largest of the single runs' codes.
    """
    from hetopt import report
    from hetopt.io.results import summary
    from hetopt.report_comparison import print_comparison
    from hetopt.sweep import sweep as run

    user_formulation(formulation)
    if formulation is not None and dask is not None:
        raise InputError(
            "--formulation is not known to Dask's workers; leave out --dask, or offer it as an entry point"
        )
    answers: dict[str, Result] = {}
    bad: dict[str, str] = {}
    with running(as_json) as control:
        for file, answer in run(
            files, output=output, dask=dask, cancelled=control.cancelled, objective=objective, options=dict(options),
            method=method, time_limit=time_limit, gap=gap, threads=threads, seed=seed,
        ):  # fmt: skip
            if isinstance(answer, InputError):
                bad[str(file)] = str(answer)
                click.echo(f"error: {answer}", err=True)
            else:
                answers[str(file)] = answer
                click.echo(f"{file}: {answer.status} {report.number(answer.objective)}", err=True)
    if as_json:
        rows = {name: summary(r, None) for name, r in answers.items()}
        print_json({**rows, **{name: {"status": "error", "messages": [text]} for name, text in bad.items()}})
    elif answers:
        print_comparison({f.stem: answers[str(f)] for f in files if str(f) in answers}, "file")
    if control.cancelled.is_set():
        return INTERRUPTED
    return BAD_INPUT if bad else max((r.exit_code for r in answers.values()), default=0)
