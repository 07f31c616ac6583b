"""hetopt decides which work runs on which device, and proves how good the decision is.

>>> import hetopt
>>> result = hetopt.solve(hetopt.Instance.from_times([[3, 1], [2, 4], [2, 2]]))
>>> result.status, result.objective, result.bound
('optimal', 3.0, 3.0)
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Names are imported on first use, so that `import hetopt` and `hetopt --help` cost next to nothing.
_HOME = {
    "Device": "records",
    "Edge": "records",
    "InputError": "errors",
    "Instance": "instance",
    "Job": "records",
    "LinearModel": "linear",
    "Link": "records",
    "Result": "result",
    "Solution": "solution",
    "Task": "records",
    "VerificationError": "errors",
    "bound": "solve",
    "diagnose": "diagnose",
    "diverse": "solve",
    "explain": "explain",
    "export": "io.exporters",
    "compare": "solve",
    "plan": "plan",
    "prove_again": "solve",
    "read": "io.instances",
    "read_result": "io.results",
    "write": "io.instances",
    "write_result": "io.results",
    "solve": "solve",
    "verify": "verify.result",
}
_MODULES = ("algorithms", "costs", "formulation", "io", "linear", "plot", "registry", "report", "solvers", "sweep")

__all__ = [
    "Device",
    "Edge",
    "InputError",
    "Instance",
    "Job",
    "LinearModel",
    "Link",
    "Result",
    "Solution",
    "Task",
    "VerificationError",
    "__version__",
    "bound",
    "compare",
    "diagnose",
    "diverse",
    "explain",
    "export",
    "plan",
    "prove_again",
    "read",
    "read_result",
    "solve",
    "verify",
    "write",
    "write_result",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"hetopt.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"hetopt.{name}")
    raise AttributeError(f"module 'hetopt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])


class _Package(ModuleType):
    """`hetopt.solve` is the function; importing the module of that name must not hide it. So too for others."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in ("diagnose", "explain", "plan", "solve", "verify") and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

if TYPE_CHECKING:
    from hetopt.diagnose import diagnose
    from hetopt.errors import InputError, VerificationError
    from hetopt.explain import explain
    from hetopt.instance import Instance
    from hetopt.io.exporters import export
    from hetopt.io.instances import read, write
    from hetopt.io.results import read_result, write_result
    from hetopt.linear import LinearModel
    from hetopt.plan import plan
    from hetopt.records import Device, Edge, Job, Link, Task
    from hetopt.result import Result
    from hetopt.solution import Solution
    from hetopt.solve import bound, compare, diverse, prove_again, solve
    from hetopt.verify.result import verify
