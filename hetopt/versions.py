"""Which versions and which machine: what a result file records and ``hetopt versions`` shows. Imports no solver."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

__all__ = ["PACKAGES", "machine", "versions"]

PACKAGES = (
    "numpy", "scipy", "msgspec", "click", "rich", "highspy", "ortools", "cvxpy", "clarabel", "pulp", "numba", "networkx",
    "matplotlib", "onnx", "torch", "distributed",
)  # fmt: skip


def versions() -> dict[str, str | None]:
    """Version of hetopt, Python and each package it may use; None where a package is not installed."""
    from hetopt import __version__

    found: dict[str, str | None] = {"hetopt": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def machine() -> dict[str, str | int | None]:
    """What the figures of a run were made on: system, processor and cores this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"system": f"{platform.system()} {platform.release()}", "processor": platform.machine(), "cores": usable}
