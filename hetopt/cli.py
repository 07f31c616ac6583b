"""The command line. It parses, calls the Python function of the same name, prints, and sets the exit code; nothing more.

Exit codes: 0 optimal or, with a gap asked for, feasible within it; 1 bad input or usage; 2 feasible, not proved; 3 proved
infeasible; 4 nothing found in the limit; 5 solver failure; 130 interrupted (the best plan so far is written first).

``--json`` writes one object to standard output and nothing else does; logs and errors go to standard error. Modules are
imported inside the commands, so that ``hetopt --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from hetopt import __version__
from hetopt.errors import InputError, VerificationError, nearest

if TYPE_CHECKING:
    from hetopt.control import Control
    from hetopt.instance import Instance
    from hetopt.result import Result

__all__ = ["main"]

BAD_INPUT, FAILURE, INTERRUPTED = 1, 5, 130


class _Group(click.Group):
    """A group that shows its help when it is called alone, and names the nearest command when there is none."""

    what = "command"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = nearest(args[0], self.list_commands(ctx), what=f"{self.what}s")
            raise click.UsageError(f"there is no {self.what} {args[0]!r}; {near}")
        return super().resolve_command(ctx, args)


class _Main(_Group):
    """Turns every failure into one sentence on standard error and the right exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        given = args[0] if args else extra.get("args")
        argv = list(sys.argv[1:] if given is None else given)
        named = {key: value for key, value in extra.items() if key == "prog_name"}
        if sys.stdout is None or sys.stderr is None:  # closed by the caller
            sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
        try:
            code = super().main(args=argv, standalone_mode=False, **named)
        except click.exceptions.Exit as ended:
            _leave(ended.exit_code)
        except click.ClickException as error:
            _fail(_usage(error), argv, BAD_INPUT)
        except (click.Abort, KeyboardInterrupt):
            _fail("interrupted", argv, INTERRUPTED)
        except VerificationError as error:
            for sentence in error.violations:
                click.echo(f"rejected: {sentence}", err=True)
            _leave(BAD_INPUT)
        except InputError as error:
            _fail(str(error), argv, BAD_INPUT)
        except BrokenPipeError:
            _drop_output()
            _leave(0)
        except OSError as error:
            _drop_output()
            _fail(f"cannot write to standard output: {error.strerror or error}", argv, BAD_INPUT)
        except MemoryError:
            _fail("out of memory; try a smaller instance or --memory-limit", argv, FAILURE)
        except Exception as error:  # the last line of defence: a sentence, never a traceback
            if os.environ.get("HETOPT_DEBUG"):
                raise
            if type(error).__name__ in ("SolverError", "SolverMissing"):
                _fail(str(error), argv, FAILURE)
            fault = f"internal error: {type(error).__name__}: {error}"
            _fail(f"{fault} (this is a fault of hetopt; set HETOPT_DEBUG=1 to see where)", argv, FAILURE)
        _leave(code if isinstance(code, int) else 0)


def _usage(error: click.ClickException) -> str:
    text = error.format_message().rstrip(".")
    return text[0].lower() + text[1:] if text else "wrong usage"


def _fail(sentence: str, argv: list[str], code: int) -> NoReturn:
    click.echo(f"error: {sentence}", err=True)
    if "--json" in argv:
        import json

        empty = dict.fromkeys(("objective", "bound", "gap", "method", "solver", "seconds", "instance", "solution"))
        record = {"status": "error", **empty, "bound_proof": "none", "verified": False, "messages": [sentence]}
        click.echo(json.dumps(record))
    _leave(code)


def _leave(code: int) -> NoReturn:
    """End the process, at once when a solver is still at work in a thread: native code must not see the interpreter end."""
    watch = sys.modules.get("hetopt.solvers.watch")
    if watch is not None and watch.abandoned() and sys.stdout is sys.__stdout__:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _nowhere() -> Any:
    return open(os.devnull, "w", encoding="utf-8")  # open until the process ends


def _drop_output() -> None:
    """Nobody reads standard output, or it is full: what is still in its buffer goes nowhere, without a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


# Values of flags ------------------------------------------------------------------------------------------------------


class _Seconds(click.ParamType):  # type: ignore[type-arg]
    name = "SEC"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        unit = {"s": 1.0, "m": 60.0, "h": 3600.0}
        text = str(value).strip()
        scale = unit.get(text[-1:].lower(), 1.0)
        try:
            seconds = float(text[:-1] if text[-1:].lower() in unit else text) * scale
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            self.fail(f"{value!r} is no duration; expected seconds, or a number with s, m or h", param, ctx)
        return seconds


class _Gap(click.ParamType):  # type: ignore[type-arg]
    name = "GAP"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        text = str(value).strip()
        try:
            gap = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            gap = -1.0
        if not 0 <= gap < float("inf"):
            self.fail(f"{value!r} is no gap; expected a number such as 0.01, or 1%", param, ctx)
        return gap


class _Bytes(click.ParamType):  # type: ignore[type-arg]
    name = "BYTES"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        unit = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
        text = str(value).strip().lower().removesuffix("ib").removesuffix("b")
        try:
            size = float(text[:-1]) * unit[text[-1]] if text[-1:] in unit else float(text)
        except ValueError:
            size = -1.0
        if not 0 < size < 2**63:
            self.fail(f"{value!r} is no size; expected bytes, or a number with K, M or G", param, ctx)
        return int(size)


class _Pair(click.ParamType):  # type: ignore[type-arg]
    name = "KEY=VALUE"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, rest = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is no setting; expected KEY=VALUE", param, ctx)
        return key.strip(), rest.strip()


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


FILE = click.argument("file", type=click.Path(path_type=Path))
FORMULATION = click.option(
    "--formulation", type=click.Path(path_type=Path), help="Python file with a formulation of your own; it is run."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON object to standard output, nothing else.")
QUESTION = _options(
    click.option("--objective", metavar="O", help="Objective, instead of the file's own (see `hetopt list`)."),
    click.option(
        "--option",
        "-O",
        "options",
        type=_Pair(),
        multiple=True,
        help="Option of the question (contiguous=none); may be repeated.",
    ),
    FORMULATION,
)
LIMITS = _options(
    click.option("--time-limit", type=_Seconds(), help="Stop after this time (60, 5m, 1h) with the best plan."),
    click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads a solver may use."),
    click.option(
        "--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of random numbers."
    ),
)
OUTPUT = click.option("--output", "-o", type=click.Path(path_type=Path), help="Write the result file here.")


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="hetopt")
def main() -> None:
    """Decide which work runs on which device: verified plans with bounds.

    \b
    Try:  hetopt generate unrelated --jobs 100 --machines 10 -o jobs.json
          hetopt solve jobs.json --time-limit 10
    """


# Answering ------------------------------------------------------------------------------------------------------------


@main.command()
@FILE
@QUESTION
@click.option(
    "--method", metavar="M", default="auto", show_default=True, help="Method, as `hetopt list --for FILE` names it."
)
@click.option("--solver", metavar="S", help="Solver for linear formulations, as `hetopt versions` names it.")
@LIMITS
@click.option("--gap", type=_Gap(), default=0.0, show_default=True, help="Stop at this relative gap (0.01 or 1%).")
@click.option(
    "--hint", type=click.Path(path_type=Path), help="Result file whose plan is the start; never a constraint."
)
@click.option("--memory-limit", type=_Bytes(), help="Memory a solver may take (8G), where it can be told.")
@click.option("--log-file", type=click.Path(path_type=Path), help="Write the solver's own log here.")
@click.option("--deterministic", is_flag=True, help="Same plan on each run: one thread, work limits instead of time.")
@click.option(
    "--native", type=_Pair(), multiple=True, help="The solver's own option by its native name; may be repeated."
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

    instance = _read(file, formulation)
    start = hetopt.read_result(hint, instance).solution if hint else None
    if hint and start is None:
        raise InputError(f"--hint {str(hint)!r} holds no plan; give a result file with a solution")
    _writable(output)
    _writable(log_file)
    with _running(as_json) as control:
        result = hetopt.solve(
            instance, objective=objective, options=dict(options), method=method, solver=solver, time_limit=time_limit,
            gap=gap, threads=threads, seed=seed, hint=start, memory_limit=memory_limit,
            log_file=str(log_file) if log_file else None, deterministic=deterministic,
            native={key: _value(text) for key, text in native}, control=control,
        )  # fmt: skip
    return _finish(result, instance, output, as_json)


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

    instance = _read(file, formulation)
    _writable(output)
    with _running(as_json) as control:
        result = hetopt.bound(
            instance, objective=objective, options=dict(options), method=method, time_limit=time_limit, threads=threads,
            seed=seed, control=control,
        )  # fmt: skip
    code = _finish(result, instance, output, as_json)
    return 0 if result.bound is not None and code in (2, 4) else code


@main.command()
@FILE
@QUESTION
@click.option("--methods", metavar="M,M,...", help="Methods to compare; all that fit otherwise.")
@LIMITS
@click.option("--gap", type=_Gap(), default=0.0, show_default=True, help="Stop each at this relative gap.")
@JSON
def compare(
    file: Path, objective: str | None, options: Any, formulation: Path | None, methods: str | None,
    time_limit: float | None, threads: int, seed: int, gap: float, as_json: bool,
) -> int:  # fmt: skip
    """Run several methods on FILE, each alone with the same limits (10 s each unless said otherwise)."""
    import hetopt
    from hetopt import report

    instance = _read(file, formulation)
    with _running(as_json) as control:
        results = hetopt.compare(
            instance, objective=objective, options=dict(options), methods=methods.split(",") if methods else None,
            time_limit=10.0 if time_limit is None else time_limit, gap=gap, threads=threads, seed=seed, control=control,
        )  # fmt: skip
    if as_json:
        from hetopt.io.results import summary

        rows = {name: {k: v for k, v in summary(r, instance).items() if k != "solution"} for name, r in results.items()}
        _print_json(rows)
    else:
        report.print_comparison(results)
    return INTERRUPTED if control.cancelled.is_set() else 0


@main.command()
@FILE
@click.argument("result", type=click.Path(path_type=Path))
@click.option(
    "--again", is_flag=True, help="Run the method whose word the bound is once more, where none can be replayed."
)
@click.option("--time-limit", type=_Seconds(), help="Time for --again.")
@FORMULATION
@JSON
def verify(
    file: Path, result: Path, again: bool, time_limit: float | None, formulation: Path | None, as_json: bool
) -> int:
    """Check the plan and the bound in RESULT against the instance in FILE. Needs no solver."""
    import hetopt

    instance = _read(file, formulation)
    claimed = hetopt.read_result(result, instance)
    statement = []
    try:
        checked = hetopt.verify(instance, claimed)
        statement.append(checked.statement)
        if again and checked.bound is not None and checked.bound_proof in ("algorithm", "solver"):
            with _running(as_json) as control:
                second = hetopt.prove_again(instance, claimed, time_limit=time_limit, control=control)
            statement.append(_compared(checked.bound, claimed.sense, second))
    except VerificationError as error:
        if as_json:
            _print_json({"valid": False, "violations": list(error.violations)})
        raise
    if as_json:
        record = {
            "valid": True,
            "objective": checked.objective,
            "bound": checked.bound,
            "bound_proof": checked.bound_proof,
        }
        _print_json({**record, "statement": "; ".join(statement)})
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
@click.option("--gap", type=_Gap(), default=0.0, show_default=True, help="Stop each at this relative gap.")
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
    from hetopt.sweep import sweep as run

    _user_formulation(formulation)
    if formulation is not None and dask is not None:
        raise InputError(
            "--formulation is not known to Dask's workers; leave out --dask, or offer it as an entry point"
        )
    answers: dict[str, Result] = {}
    bad: dict[str, str] = {}
    with _running(as_json) as control:
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
        _print_json({**rows, **{name: {"status": "error", "messages": [text]} for name, text in bad.items()}})
    elif answers:
        report.print_comparison({f.stem: answers[str(f)] for f in files if str(f) in answers}, "file")
    if control.cancelled.is_set():
        return INTERRUPTED
    return BAD_INPUT if bad else max((r.exit_code for r in answers.values()), default=0)


class _Modelled(click.Command):
    """A command that also takes the options of an importer, which are read when it is run or explained."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from hetopt.io.importers import hf

        own = super().get_params(ctx)
        return [*own[:1], *_kind_options(hf), *own[1:]]


@main.command(cls=_Modelled)
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--to", "targets", multiple=True, metavar="TOOL", help="Tools to write settings for: vllm,llama.cpp,accelerate, ..."
)
@LIMITS
@click.option("--gap", type=_Gap(), default=0.0, show_default=True, help="Stop at this relative gap (0.01 or 1%).")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Folder for instance, result and settings.")
@JSON
def plan(
    model: Path, targets: tuple[str, ...], time_limit: float | None, threads: int, seed: int, gap: float, output: Path | None,
    as_json: bool, **options: Any,
) -> int:  # fmt: skip
    """Plan a published model on some devices: import, solve, verify and export in one go.

    MODEL: config.json of a published model, or its folder.
    """
    from hetopt import report_plan
    from hetopt.plan import plan, write_plan

    if output is not None and output.exists() and not output.is_dir():
        raise InputError(f"cannot write into {str(output)!r}: it is a file; give a folder")
    names = [name.strip() for text in targets for name in text.split(",")]
    with _running(as_json) as control:
        planned = plan(
            model, to=names, time_limit=60.0 if time_limit is None else time_limit, gap=gap, threads=threads, seed=seed,
            control=control, **options,
        )  # fmt: skip
    if output is not None:
        write_plan(planned, output)
    for message in (*planned.result.messages, *planned.refused.values()):
        click.echo(f"note: {message}", err=True)
    if as_json:
        _print_json(report_plan.record(planned))
    else:
        report_plan.print_plan(planned, output)
    return BAD_INPUT if planned.refused else planned.result.exit_code


# Looking --------------------------------------------------------------------------------------------------------------


@main.command("list")
@click.option(
    "--for", "file", type=click.Path(path_type=Path), help="Only what fits this instance, with sizes and reasons."
)
@FORMULATION
@JSON
def list_(file: Path | None, formulation: Path | None, as_json: bool) -> int:
    """Show the questions that can be asked, and the methods that answer them."""
    from hetopt import report

    _user_formulation(formulation)
    instance = _read(file, None) if file else None
    rows = report.catalogue(instance)
    if as_json:
        _print_json(rows)
    else:
        report.print_catalogue(rows, instance)
    return 0


@main.command()
@FILE
@QUESTION
@click.option("--quick", is_flag=True, help="What can be said without solving.")
@click.option("--time-limit", type=_Seconds(), default=20.0, show_default=True, help="Time for solving.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of random numbers.")
@JSON
def explain(
    file: Path, objective: str | None, options: Any, formulation: Path | None, quick: bool, time_limit: float, seed: int,
    as_json: bool,
) -> int:  # fmt: skip
    """Say why there is no plan and what would mend it, or what holds the plan back and what more would buy."""
    import hetopt
    from hetopt import report

    instance = _read(file, formulation)
    told = hetopt.explain(instance, objective=objective, options=dict(options))
    found = None
    if not quick:
        with _running(as_json) as control:
            found = hetopt.diagnose(
                instance, objective=objective, options=dict(options), time_limit=time_limit, seed=seed, control=control
            )
    if as_json:
        _print_json({**told.to_json(), **({"diagnosis": found.to_json()} if found else {})})
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

    instance = _read(file, formulation)
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
    _writable(output)
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

    instance = _read(file, formulation)
    _writable(output)
    claimed = hetopt.read_result(result, instance) if result else None
    if claimed is not None:
        hetopt.verify(instance, claimed)
    drawing.save(instance, claimed, output)
    click.echo(f"{output}: written", err=True)
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
        _print_json(record)
    else:
        report.print_versions(record)
    return 0


# Importing and generating ---------------------------------------------------------------------------------------------


class _Kinds(_Group):
    """One subcommand for each importer or generator, made from its own description when it is asked for."""

    what = "kind"

    def __init__(self, *args: Any, package: str, **extra: Any) -> None:
        super().__init__(*args, **extra)
        self.package = package

    def _registry(self) -> Any:
        import importlib

        return importlib.import_module(self.package)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._registry().names())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        registry = self._registry()
        return _kind_command(registry.get(cmd_name)) if cmd_name in registry.names() else None


def _kind_command(kind: Any) -> click.Command:
    """A click command for an importer (has SOURCE_HELP) or a generator."""
    importing = hasattr(kind, "SOURCE_HELP")

    def run(**given: Any) -> int:
        import hetopt

        output = given.pop("output")
        _writable(output)
        instance = kind.load(given.pop("source"), **given) if importing else kind.make(**given)
        if output is None:
            from hetopt.io.instances import encode

            sys.stdout.buffer.write(encode(instance))
            return 0
        hetopt.write(instance, output)
        size = f"{instance.n_tasks} tasks, {instance.n_devices} devices, {len(instance.edges)} edges"
        click.echo(f"{output}: {size}", err=True)
        return 0

    params: list[click.Parameter] = [click.Argument(["source"], type=click.Path(path_type=Path))] if importing else []
    params += _kind_options(kind)
    params.append(
        click.Option(
            ["--output", "-o"],
            type=click.Path(path_type=Path),
            help="Instance file to write; else standard output.",
        )
    )
    text = f"{kind.TITLE}\n\nSOURCE: {kind.SOURCE_HELP}" if importing else kind.TITLE
    return click.Command(kind.NAME, params=params, callback=run, help=text)


def _kind_options(kind: Any) -> list[click.Parameter]:
    """Options of an importer or a generator."""
    found: list[click.Parameter] = []
    for flag, kind_of, default, text in kind.OPTIONS:
        if isinstance(kind_of, tuple):
            kind_of = click.Choice(list(kind_of))
        shown = default is not None and default is not False
        found.append(
            click.Option([flag], is_flag=True, default=False, help=text)
            if kind_of is bool
            else click.Option([flag], type=kind_of, default=default, help=text, show_default=shown)
        )
    return found


@main.group("import", cls=_Kinds, package="hetopt.io.importers")
def import_() -> None:
    """Read another format and write an instance file."""


@main.group("generate", cls=_Kinds, package="hetopt.io.generators")
def generate() -> None:
    """Make an instance from a published distribution or public dimensions."""


# Exporting and devices ------------------------------------------------------------------------------------------------


@main.command()
@FILE
@click.argument("result", type=click.Path(path_type=Path))
@click.option("--to", "target", metavar="TARGET", required=True, help="Tool to write for; a wrong name lists them.")
@FORMULATION
@click.option("--output", "-o", type=click.Path(path_type=Path), help="File to write; else standard output.")
def export(file: Path, result: Path, target: str, formulation: Path | None, output: Path | None) -> int:
    """Write the plan in RESULT as the setting of another tool (vllm, llama.cpp, ...), or say why it cannot follow it.

    The plan is verified first; the text is read back as the tool would read it, and must come back as the plan.
    """
    import hetopt
    from hetopt.io import exporters
    from hetopt.io.atomic import atomic_write

    title = exporters.get(target).TITLE
    instance = _read(file, formulation)
    _writable(output)
    text = hetopt.export(instance, hetopt.read_result(result, instance), to=target)
    if output is None:
        sys.stdout.buffer.write(text.encode())
        return 0
    atomic_write(output, text)
    click.echo(f"{output}: {title}", err=True)
    return 0


@main.command()
@click.argument("name", required=False)
@click.option("--file", type=click.Path(path_type=Path), help="Your own devices and prices; they override these.")
@JSON
def devices(name: str | None, file: Path | None, as_json: bool) -> int:
    """Show the catalogue of devices, or the data sheet of NAME (any case and punctuation; a unique beginning will do)."""
    import msgspec

    from hetopt.costs import catalogue

    sheets = catalogue.catalogue(file)
    if name is not None:
        sheet = catalogue.find(name, sheets)
        sheets = {sheet.name: sheet}
    if as_json:
        _print_json({"format": catalogue.FORMAT, "devices": [msgspec.structs.asdict(s) for s in sheets.values()]})
    else:
        click.echo(catalogue.table(sheets) if name is None else catalogue.describe(sheet))
    return 0


# Shared by the commands -----------------------------------------------------------------------------------------------


def _user_formulation(formulation: Path | None) -> None:
    if formulation is not None:
        from hetopt.registry import add_file

        add_file(formulation)


def _read(file: Path, formulation: Path | None) -> Instance:
    import hetopt

    _user_formulation(formulation)
    return hetopt.read(file)


def _value(text: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _writable(output: Path | None) -> None:
    """Refuse an output that could not be written before hours are spent on it."""
    if output is None:
        return
    if output.is_dir():
        raise InputError(f"cannot write {str(output)!r}: it is a directory; give a file name")
    folder = output.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(
            f"cannot write {str(output)!r}: the folder {str(folder)!r} is missing or not writable; choose another"
        )


@contextmanager
def _running(as_json: bool) -> Iterator[Control]:
    """A control that Ctrl-C cancels (a second one ends at once), shown live on a terminal, with solver banners kept away."""
    import signal

    from hetopt import report
    from hetopt.control import Control
    from hetopt.solvers.quiet import quiet

    control = Control()

    def cancel(number: int, frame: Any) -> None:
        if control.cancelled.is_set():
            raise KeyboardInterrupt
        control.cancel()

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            before[number] = signal.signal(number, cancel)
        except ValueError:  # not in the main thread: the caller handles signals
            break
    try:
        with quiet(), report.progress(control, show=not as_json and sys.stderr.isatty()):
            yield control
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _finish(result: Result, instance: Instance, output: Path | None, as_json: bool) -> int:
    """Write and print a result; a result file that cannot be written is printed instead, so that nothing is lost."""
    from hetopt import report
    from hetopt.io.results import encode_result, summary, write_result

    code = result.exit_code
    for message in result.messages:
        click.echo(f"note: {message}", err=True)
    if output is not None:
        try:
            write_result(result, instance, output)
        except InputError as error:
            click.echo(f"error: {error}", err=True)
            if not as_json:
                click.echo("the result file's text follows on standard output", err=True)
                sys.stdout.buffer.write(encode_result(result, instance))
            else:
                _print_json(summary(result, instance))
            return BAD_INPUT
    if as_json:
        _print_json(summary(result, instance))
    else:
        report.print_result(result, instance, output)
    return code


def _print_json(record: Any) -> None:
    import msgspec

    from hetopt.io.results import plain

    sys.stdout.buffer.write(msgspec.json.encode(plain(record)) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
