"""The arrows between the rooms of the house, read from the imports themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

GROUND, FIRST, SECOND, THIRD, TOP = range(5)
FLOORS = {
    "hetopt": GROUND,
    "hetopt._columns": GROUND,
    "hetopt._filling": GROUND,
    "hetopt.blocks": GROUND,
    "hetopt.clock": GROUND,
    "hetopt.control": GROUND,
    "hetopt.errors": GROUND,
    "hetopt.instance": GROUND,
    "hetopt.linear": GROUND,
    "hetopt.records": GROUND,
    "hetopt.result": GROUND,
    "hetopt.solution": GROUND,
    "hetopt.versions": GROUND,
    "hetopt.algorithms": FIRST,
    "hetopt.changes": FIRST,
    "hetopt.costs": FIRST,
    "hetopt.formulation": FIRST,
    "hetopt.io": FIRST,
    "hetopt.registry": FIRST,
    "hetopt.replay": FIRST,
    "hetopt.solvers": FIRST,
    "hetopt.verify": FIRST,
    "formulations": SECOND,
    "hetopt.comparison": THIRD,
    "hetopt.diagnose": THIRD,
    "hetopt.explain": THIRD,
    "hetopt.plan": THIRD,
    "hetopt.plan_stages": THIRD,
    "hetopt.rounds": THIRD,
    "hetopt.run": THIRD,
    "hetopt.solve": THIRD,
    "hetopt.sweep": THIRD,
    "hetopt.warm": THIRD,
    "hetopt.__main__": TOP,
    "hetopt.cli": TOP,
    "hetopt.plot": TOP,
    "hetopt.report": TOP,
    "hetopt.report_comparison": TOP,
    "hetopt.report_plan": TOP,
    "hetopt.report_rounds": TOP,
}

# ``model.write(path)`` is a method of the model, and files are written one floor higher.
UPWARD = {("hetopt.linear", "hetopt.io.models")}

# On the first floor, who may not use whom while running: kernels see arrays only, and a checker that shared code with what
# it checks would repeat its mistakes.
APART = {
    "hetopt.algorithms": ("hetopt.io", "hetopt.solvers", "hetopt.formulation", "hetopt.registry"),
    "hetopt.verify": ("hetopt.io", "hetopt.solvers", "hetopt.algorithms"),
    "hetopt.solvers": ("hetopt.io", "hetopt.formulation", "hetopt.registry", "hetopt.verify", "hetopt.algorithms"),
}

HEAVY = {
    "clarabel", "cvxpy", "distributed", "highspy", "matplotlib", "networkx", "onnx", "ortools", "pulp", "pyscipopt", "torch",
    "transformers",
}  # fmt: skip


@dataclass(frozen=True)
class Import:
    """``source`` imports ``target``; ``lazy`` inside a function, ``typing`` only for type checkers."""

    source: str
    target: str
    line: int
    lazy: bool
    typing: bool


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """Every Python file of both packages by its dotted name."""
    files = [*(ROOT / "hetopt").rglob("*.py"), *(ROOT / "formulations").rglob("*.py")]
    return {name_of(path): path for path in sorted(files)}


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text(encoding="utf-8"))


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def walk(name: str, node: ast.AST, lazy: bool = False, typing: bool = False) -> Iterator[Import]:
    """Imports below ``node``, ``from package import module`` taken as the module where there is one."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(name, alias.name, child.lineno, lazy, typing)
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            if child.level:
                package = name if modules()[name].name == "__init__.py" else name.rpartition(".")[0]
                for _ in range(child.level - 1):
                    package = package.rpartition(".")[0]
                base = f"{package}.{base}".rstrip(".")
            for alias in child.names:
                inner = f"{base}.{alias.name}"
                yield Import(name, inner if inner in modules() else base, child.lineno, lazy, typing)
        else:
            inside = lazy or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            types = typing or (isinstance(child, ast.If) and is_type_checking(child.test))
            yield from walk(name, child, inside, types)


@cache
def imports() -> tuple[Import, ...]:
    return tuple(found for name in modules() for found in walk(name, tree(name)))


def inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def floor(name: str) -> int:
    """Floor of a module, by the longest name in FLOORS that contains it."""
    while name not in FLOORS:
        name = name.rpartition(".")[0]
    return FLOORS[name]


def ours(name: str) -> bool:
    return name in modules()


def test_every_module_of_the_engine_is_on_a_floor():
    lost = [name for name in modules() if inside(name, "hetopt") and floor(name) == GROUND and name not in FLOORS]
    assert not lost, f"say in FLOORS on which floor these live: {lost}"


def test_no_arrow_points_up():
    up = [
        f"{i.source}:{i.line} imports {i.target}"
        for i in imports()
        if ours(i.target) and floor(i.target) > floor(i.source) and not i.typing and (i.source, i.target) not in UPWARD
    ]
    assert not up, "\n".join(up)


def test_the_ground_has_no_arrow_up_even_for_types():
    up = [
        f"{i.source}:{i.line} imports {i.target}"
        for i in imports()
        if i.source != "hetopt"  # names its public functions for type checkers
        and ours(i.target)
        and floor(i.source) == GROUND
        and floor(i.target) > GROUND
        and (i.source, i.target) not in UPWARD
    ]
    assert not up, "\n".join(up)


@pytest.mark.parametrize("room", APART)
def test_rooms_of_the_first_floor_keep_apart(room):
    found = [
        f"{i.source}:{i.line} imports {i.target}"
        for i in imports()
        if inside(i.source, room)
        and not i.typing
        and any(inside(i.target, other) for other in APART[room])
        # the verifier of results asks the problem that the registry finds
        and (i.source, i.target) != ("hetopt.verify.result", "hetopt.registry")
    ]
    assert not found, "\n".join(found)


def test_the_engine_names_no_formulation():
    found = [
        f"{i.source}:{i.line}" for i in imports() if inside(i.source, "hetopt") and inside(i.target, "formulations")
    ]
    assert not found
    for name in modules():
        if not inside(name, "hetopt"):
            continue
        texts = {
            node.value
            for node in ast.walk(tree(name))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        named = [text for text in texts if text.startswith("formulations.") and text != "formulations."]
        assert not named, f"{name} names {named}"


def test_heavy_packages_are_imported_only_inside_functions():
    found = [
        f"{i.source}:{i.line} imports {i.target}"
        for i in imports()
        if i.target.partition(".")[0] in HEAVY and not i.lazy and not i.typing
    ]
    assert not found, "\n".join(found)


def test_no_circles_between_files():
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for i in imports():
        if ours(i.target) and i.target != i.source and not i.typing and (i.source, i.target) not in UPWARD:
            graph[i.source].add(i.target)
    state: dict[str, int] = {}
    trail: list[str] = []

    def visit(name: str) -> None:
        state[name] = 1
        trail.append(name)
        for other in sorted(graph[name]):
            if state.get(other) == 1:
                pytest.fail("circle: " + " -> ".join([*trail[trail.index(other) :], other]))
            if other not in state:
                visit(other)
        trail.pop()
        state[name] = 2

    for name in graph:
        if name not in state:
            visit(name)


@pytest.mark.parametrize("room", ["hetopt.algorithms", "hetopt.verify"])
def test_kernels_and_checkers_neither_print_nor_touch_files(room):
    forbidden_calls = {"print", "open", "input"}
    forbidden_modules = {
        "click",
        "io",
        "logging",
        "msgspec",
        "os",
        "pathlib",
        "rich",
        "shutil",
        "subprocess",
        "tempfile",
    }
    methods = {
        "open",
        "read_text",
        "read_bytes",
        "write_text",
        "write_bytes",
        "tofile",
        "fromfile",
        "loadtxt",
        "savetxt",
    }
    found = [
        f"{i.source}:{i.line} imports {i.target}"
        for i in imports()
        if inside(i.source, room)
        and i.target.partition(".")[0] in forbidden_modules
        # the kernel decorator reads one environment variable
        and (i.source, i.target) != ("hetopt.algorithms.jit", "os")
    ]
    for name in modules():
        for node in ast.walk(tree(name)) if inside(name, room) else ():
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            if (isinstance(called, ast.Name) and called.id in forbidden_calls) or (
                isinstance(called, ast.Attribute) and called.attr in methods
            ):
                found.append(f"{name}:{node.lineno} calls {ast.unparse(called)}")
    assert not found, "\n".join(found)


def test_every_module_says_what_it_is_for():
    bare = [name for name in modules() if not ast.get_docstring(tree(name))]
    assert not bare


@pytest.mark.parametrize("arguments", [["--help"], ["solve", "--help"], ["--version"], ["nonsense"]])
def test_help_imports_neither_numpy_nor_a_solver(arguments):
    code = (
        "import sys\n"
        "from hetopt.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit as end:\n    code = end.code\n"
        "heavy = {'numpy', 'scipy', 'msgspec', 'rich', 'numba', 'highspy', 'ortools', 'cvxpy', 'pulp', 'matplotlib'}\n"
        "assert not heavy & set(sys.modules), sorted(heavy & set(sys.modules))\n"
        "assert 'formulations' not in sys.modules\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_asking_for_problems_imports_no_solver():
    """Nor ``scipy.stats``, which alone costs as long as all the rest."""
    code = (
        "import sys\nfrom hetopt.registry import problems\nassert list(problems())\n"
        f"heavy = {sorted({*HEAVY, 'scipy.stats'})!r}\n"
        "loaded = sorted(set(heavy) & set(sys.modules))\nassert not loaded, loaded\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_public_verbs_stay_functions_after_their_modules_are_imported():
    code = (
        "import importlib, hetopt\n"
        "for module in ('hetopt.solve', 'hetopt.verify', 'hetopt.verify.result', 'hetopt.explain'):\n"
        "    importlib.import_module(module)\n"
        "import hetopt.solve, hetopt.verify.bounds, hetopt.explain\n"
        "from hetopt.verify import bounds\n"
        "from hetopt.solve import compare\n"
        "import types\n"
        "for name in hetopt.__all__:\n"
        "    assert not isinstance(getattr(hetopt, name), types.ModuleType), name\n"
        "inst = hetopt.Instance.from_times([[3, 1], [2, 4], [2, 2]])\n"
        "res = hetopt.solve(inst)\n"
        "assert (res.status, res.objective, res.bound) == ('optimal', 3.0, 3.0), res\n"
        "assert hetopt.verify(inst, res).objective == 3.0\n"
        "assert hetopt.explain(inst).problem == 'assignment.makespan'\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_public_names_are_listed_once_and_exist():
    import hetopt

    assert sorted(hetopt.__all__) == sorted({*hetopt._HOME, "__version__"})
    assert all(getattr(hetopt, name) is not None for name in hetopt.__all__)
    assert set(hetopt.__all__) <= set(dir(hetopt))
    with pytest.raises(AttributeError, match="no attribute 'slove'"):
        _ = hetopt.slove
