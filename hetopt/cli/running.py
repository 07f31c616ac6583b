"""What commands share around the function they call: reading, Ctrl-C, writing the result, printing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetopt.cli.group import BAD_INPUT
from hetopt.errors import InputError

if TYPE_CHECKING:
    from hetopt.control import Control
    from hetopt.instance import Instance
    from hetopt.result import Result

__all__ = [
    "finish",
    "made_folder",
    "print_json",
    "read_instance",
    "running",
    "tell_unasked",
    "user_formulation",
    "value_of",
    "writable",
]


def user_formulation(formulation: Path | None) -> None:
    """Load the file of ``--formulation``, if one is given."""
    if formulation is not None:
        from hetopt.registry import add_file

        add_file(formulation)


def read_instance(file: Path, formulation: Path | None) -> Instance:
    """The instance in FILE, after the user's formulation is known."""
    import hetopt

    user_formulation(formulation)
    return hetopt.read(file)


def tell_unasked(instance: Instance, formulation: Path | None, objective: str | None) -> None:
    """Say so when a formulation was given, and the question is another one."""
    if formulation is None:
        return
    from hetopt.registry import from_file

    words = [word for one in from_file(formulation) for word in (*one.objectives, one.name)]
    asked = objective or instance.question.get("objective")
    if words and asked not in words:
        told = f"note: the question is {asked!r}; --objective {words[0]} asks that of {str(formulation)!r}"
        click.echo(told, err=True)


def value_of(text: str) -> Any:
    """A word of the command line as JSON where it is JSON, else the word."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def writable(output: Path | None) -> None:
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


def made_folder(output: Path | None) -> Path | None:
    """The folder that results go to, made if need be, before hours are spent on them."""
    if output is not None:
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = "it is a file" if output.exists() else error.strerror or error
            raise InputError(f"cannot make the folder {str(output)!r}: {why}; choose another") from error
        if not os.access(output, os.W_OK):
            raise InputError(f"cannot write into the folder {str(output)!r}; choose another")
    return output


@contextmanager
def running(as_json: bool) -> Iterator[Control]:
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


def finish(result: Result, instance: Instance, output: Path | None, as_json: bool) -> int:
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
                print_json(summary(result, instance))
            return BAD_INPUT
    if as_json:
        print_json(summary(result, instance))
    else:
        report.print_result(result, instance, output)
    return code


def print_json(record: Any) -> None:
    """Write one object and a line end to standard output."""
    import msgspec

    from hetopt.io.results import plain

    sys.stdout.buffer.write(msgspec.json.encode(plain(record)) + b"\n")
    sys.stdout.buffer.flush()
