"""Solve many instance files one after the other, or spread over a Dask cluster, and lose nothing on the way.

Each answer is written to the output folder the moment it is there, and a file that has its answer already is not solved
again: a sweep that was stopped goes on where it stood. What this is not: a benchmark. Workers that share a machine share its
time; ``benchmarks/`` measures.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.result import Result

__all__ = ["sweep"]


def sweep(
    files: Iterable[str | Path],
    *,
    output: str | Path,
    dask: str | None = None,
    cancelled: threading.Event | None = None,
    **options: Any,
) -> Iterator[tuple[Path, Result | InputError]]:
    """Solve each file; yields (file, Result) as they end, or (file, InputError) where a file is no good.

    Parameters
    ----------
    files
        Instance files. Their stems name the results and must differ.
    output
        Folder for the results, ``STEM.result.json`` each; made when missing. A result there is taken as it is when it
        belongs to the very instance and question; otherwise an error says so.
    dask
        Address of a Dask scheduler (``tcp://host:8786``) whose workers see the same files; ``"local"`` starts one worker a
        processor here. None solves one file after the other.
    cancelled
        Set it to end: the file being solved keeps its best plan (and is solved again the next time), the rest is left.
    options
        As for :func:`hetopt.solve`: objective, options, method, time_limit, gap, threads, seed, ...

    Raises
    ------
    InputError
        Two files share a stem, the folder cannot be made, or Dask is asked for and not there.
    """
    todo = _targets([Path(file) for file in files], Path(output))
    cancelled = cancelled or threading.Event()
    if dask is None:
        for file, target in todo.items():
            if cancelled.is_set():
                return
            yield file, _answer(file, target, options, cancelled)
        return
    with _client(dask) as client:
        from distributed import as_completed

        futures = {
            client.submit(_answer, file, target, options, key=f"hetopt-{file}", pure=False): file
            for file, target in todo.items()
        }
        try:
            for future in as_completed(futures):
                if cancelled.is_set():
                    return
                yield futures[future], future.result()
        finally:
            client.cancel(list(futures))


def _targets(files: list[Path], folder: Path) -> dict[Path, Path]:
    """Where each file's result goes."""
    todo: dict[Path, Path] = {}
    owner: dict[Path, Path] = {}
    for file in files:
        target = folder / f"{file.stem}.result.json"
        if owner.setdefault(target, file) != file:
            raise InputError(f"{owner[target]} and {file} would share the result {target}; sweep them into two folders")
        todo[file] = target
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    return todo


def _answer(
    file: Path, target: Path, options: Mapping[str, Any], cancelled: threading.Event | None = None
) -> Result | InputError:
    """The result that is there already, or a new one, written before it is returned."""
    import hetopt

    try:
        instance = hetopt.read(file)
        if target.exists():
            found = hetopt.read_result(target, instance)
            hetopt.verify(instance, found)
            asked = options.get("objective")
            if asked not in (None, found.problem, found.question.get("objective")):
                raise InputError(f"{target} answers {found.problem}, not {asked}; sweep into another folder")
            if found.reason != "interrupted":
                return found
        control = Control(cancelled=cancelled) if cancelled is not None else None
        result = hetopt.solve(instance, control=control, **options)
        hetopt.write_result(result, instance, target)
        return result
    except hetopt.VerificationError as error:
        return InputError(f"{target} does not verify: {error.violations[0]}")
    except InputError as error:
        return error


@contextmanager
def _client(address: str) -> Iterator[Any]:
    """A client of a scheduler, or of one started here with a worker process a processor."""
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise InputError(
            "a sweep over Dask needs the package distributed; install it with: pip install 'hetopt[dask]'"
        ) from error
    if address == "local":
        with LocalCluster(threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
            yield client
        return
    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler answers at {address!r}: {error}") from error
    with client:
        yield client
