"""The command rounds: a trace of jobs under several policies."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetopt.cli.group import BAD_INPUT, INTERRUPTED, main
from hetopt.cli.running import print_json, read_instance, running, writable
from hetopt.cli.values import FILE, FORMULATION, JSON, OPTIONS, Seconds
from hetopt.errors import InputError

if TYPE_CHECKING:
    from hetopt.control import Control
    from hetopt.instance import Instance
    from hetopt.rounds import Moment, Simulation

__all__ = ["rounds"]


@main.command()
@FILE
@click.option(
    "--objective", metavar="O[,O...]", help="Policies: objectives whose plans are shares; the file's own otherwise."
)
@OPTIONS
@FORMULATION
@click.option("--method", metavar="M", default="auto", show_default=True, help="Method of every plan.")
@click.option("--round", "seconds", type=Seconds(), default=360.0, show_default=True, help="Length of a round.")
@click.option(
    "--rule", type=click.Choice(["priority", "matching"]), default="priority", show_default=True,
    help="Who has the next round: who is furthest behind, as published, or a matching, which keeps shares closer.",
)  # fmt: skip
@click.option(
    "--horizon", type=Seconds(), help="Second after which no round begins; until all jobs are done otherwise."
)
@click.option("--output", "-o", type=click.Path(path_type=Path), help="JSON file with each job's completion.")
@JSON
def rounds(
    file: Path, objective: str | None, options: Any, formulation: Path | None, method: str, seconds: float, rule: str,
    horizon: float | None, output: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Simulate the trace in FILE, jobs with release and steps, that shares a cluster in rounds; a row for each policy.

    Ctrl-C keeps what was simulated by then. The exit code is 1 when a policy could not go on.
    """
    from hetopt.io.atomic import atomic_write
    from hetopt.report_rounds import print_rounds
    from hetopt.rounds import simulate

    instance = read_instance(file, formulation)
    writable(output)
    policies = _policies(instance, objective, dict(options))
    told: dict[str, Simulation] = {}
    bad: dict[str, str] = {}
    with running(as_json) as control:
        for name in policies:
            if control.cancelled.is_set():
                break
            try:
                told[name] = simulate(
                    instance, objective=name, options=dict(options), method=method, round_seconds=seconds, rule=rule,
                    horizon=math.inf if horizon is None else horizon, on_round=_Shown(control, name), control=control,
                )  # fmt: skip
            except InputError as error:
                bad[name] = str(error)
            if output is not None and told:
                atomic_write(output, _text(told, instance, seconds, rule))
    for name, one in told.items():
        for sentence in one.notes:
            click.echo(f"note: {name}: {sentence}", err=True)
    for name, sentence in bad.items():
        click.echo(f"error: {name}: {sentence}", err=True)
    if left := [name for name in policies if name not in told and name not in bad]:
        click.echo(f"note: interrupted before these were simulated: {', '.join(left)}", err=True)
    if as_json:
        print_json({**_record(told, instance, seconds, rule), "errors": bad})
    elif told:
        print_rounds(told)
    if control.cancelled.is_set():
        return INTERRUPTED
    return BAD_INPUT if bad else 0


def _policies(instance: Instance, objective: str | None, options: dict[str, Any]) -> list[str]:
    """The objectives asked for, each known and able to take the options; InputError otherwise, before any is simulated."""
    from hetopt.registry import problem_for

    own = instance.question.get("objective") or problem_for(instance).objectives[0]
    names = [name.strip() for name in objective.split(",")] if objective else [own]
    for name in names:
        problem_for(instance, name).question(instance, {**options, "objective": name})
    return list(dict.fromkeys(names))


class _Shown:
    """Where a simulation is, in the line of progress."""

    def __init__(self, control: Control, policy: str) -> None:
        self.control, self.policy = control, policy

    def __call__(self, moment: Moment) -> None:
        jobs = f"{moment.active} jobs there, {moment.done} done"
        self.control.method = f"{self.policy}: round {moment.round}, second {moment.seconds:g}, {jobs}"


def _record(told: dict[str, Simulation], instance: Instance, seconds: float, rule: str) -> dict[str, Any]:
    """The object that ``--json`` prints and ``-o`` keeps."""
    from dataclasses import asdict

    return {
        "instance": {"name": instance.name, "digest": instance.digest},
        "round_seconds": seconds,
        "rule": rule,
        "policies": {name: asdict(one) for name, one in told.items()},
    }


def _text(told: dict[str, Simulation], instance: Instance, seconds: float, rule: str) -> bytes:
    import msgspec

    from hetopt.io.results import plain

    return msgspec.json.encode(plain(_record(told, instance, seconds, rule))) + b"\n"
