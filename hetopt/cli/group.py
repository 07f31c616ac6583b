"""The group of all commands: every failure becomes one sentence and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

import click

from hetopt import __version__
from hetopt.errors import InputError, VerificationError, nearest

__all__ = ["BAD_INPUT", "FAILURE", "INTERRUPTED", "Group", "main"]

BAD_INPUT, FAILURE, INTERRUPTED = 1, 5, 130


class Group(click.Group):
    """A group that shows its help when it is called alone, and names the nearest command when there is none."""

    what = "command"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = nearest(args[0], self.list_commands(ctx), what=f"{self.what}s")
            raise click.UsageError(f"there is no {self.what} {args[0]!r}; {near}")
        return super().resolve_command(ctx, args)


class Main(Group):
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
    text = error.format_message()
    text = text if text.endswith("...") else text.removesuffix(".")
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


@click.group(cls=Main, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="hetopt")
def main() -> None:
    """Decide which work runs on which device: verified plans with bounds.

    \b
    Try:  hetopt generate unrelated --jobs 100 --machines 10 -o jobs.json
          hetopt solve jobs.json --time-limit 10
    """
