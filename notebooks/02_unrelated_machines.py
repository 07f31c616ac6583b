# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Jobs on unrelated machines: the published classes, with peers side by side
#
# Each job takes its own time on each machine, and the last one should be done as early as possible. The literature tests on
# seven classes of random times, from "anything from 1 to 100" to times that go with the job or with the machine. Here they
# are small, so that everything runs in half a minute; the full runs are at the end.

# %%
import csv
import os
import sys
from pathlib import Path

from IPython.display import Markdown, display

import hetopt
from hetopt import solvers
from hetopt.io import generators, importers
from hetopt.plot import figure

# %matplotlib inline

sys.path.append("../benchmarks")
from _clock import ProcessorControl

CLASSES = ("u1_100", "u10_100", "u100_120", "u100_200", "u1000_1100", "jobcorr", "maccorr")


def table(head, rows):
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, ["---"] * len(head), *rows)]
    return Markdown("\n".join(lines))


def told(result):
    value, bound = ("none" if v is None else f"{v:.0f}" for v in (result.objective, result.bound))
    return f"{value} / {bound}" + (" proved" if result.status == "optimal" else "")


# %% [markdown]
# ## Seven classes, live
#
# The same processor second for everyone, value / bound. *greedy* is the best list rule (it has no bound of its own), *LST* the
# rounding of Lenstra, Shmoys and Tardos, at most twice its bound; HiGHS and CP-SAT get the full model, as users would state it.
# *hetopt* is the automatic climb: bounds and annealing in turns, each bound replayed without a solver. "Proved" means that
# value and bound meet.

# %%
SECONDS, JOBS, MACHINES = 1, 60, 8
make = generators.get("unrelated").make
contestants = {
    "greedy": {"method": "greedy"},
    "LST": {"method": "lst"},
    "HiGHS": {"method": "milp"},
    "CP-SAT": {"method": "cpsat"},
    "hetopt": {},
}
for how in contestants.values():  # compiles the kernels
    hetopt.solve(make(kind="u1_100", jobs=10, machines=3, seed=0), time_limit=SECONDS, **how)

rows, last = [], None
for kind in CLASSES:
    instance = make(kind=kind, jobs=JOBS, machines=MACHINES, seed=1)
    row = [kind]
    for how in contestants.values():
        result = hetopt.solve(instance, control=ProcessorControl(SECONDS), **how)
        if result.solution is not None:
            hetopt.verify(instance, result)
        row.append(told(result))
    rows.append(row)
    last = instance, result
display(table([f"{JOBS} x {MACHINES}, {SECONDS} s", *contestants], rows))

# %% [markdown]
# A picture of the last plan, with its value and the bound.

# %%
display(figure(*last))

# %% [markdown]
# The same model through PuLP to CBC, in a child process:

# %%
instance = make(kind="jobcorr", jobs=JOBS, machines=MACHINES, seed=1)
if solvers.available()["pulp"] is None:
    cbc = hetopt.solve(instance, method="milp", solver="pulp", time_limit=2 * SECONDS)
    print("jobcorr by PuLP and CBC:", told(cbc))
else:
    print("PuLP is not installed here: the run with CBC is left out")

# %% [markdown]
# ## Braun's twelve matrices, 512 tasks on 16 machines
#
# Times are decimals, so a bound cannot be rounded up and no plan is expected to meet it. They are third-party files and not part
# of this repository; with the folder that holds `hcsp` in `HETOPT_DATA` this cell compares a second each with the best listed
# values, otherwise it says that it did not.

# %%
folder = Path(os.environ.get("HETOPT_DATA", "nowhere")) / "hcsp"
if not folder.is_dir():
    print("SKIPPED: HETOPT_DATA does not name a folder that holds hcsp, so nothing was compared with Braun's matrices")
else:
    with (folder / "best_known_512x16.csv").open() as stream:
        listed = {row["inst"]: min(float(row["MS_best"]), float(row["CPR"])) for row in csv.DictReader(stream)}
    rows = []
    for file in sorted((folder / "512x16").iterdir()):
        instance = importers.get("hcsp").load(file)
        result = hetopt.solve(instance, control=ProcessorControl(SECONDS))
        best = listed[file.name]
        rows.append(
            [
                file.name,
                f"{result.objective:.1f}",
                f"{best:.1f}",
                f"{result.objective / best - 1:+.3%}",
                f"{result.bound:.1f}",
            ]
        )
    display(table(["matrix", f"value in {SECONDS} s", "best listed", "difference", "bound"], rows))

# %% [markdown]
# ## The full runs
#
# What longer runs on the large sizes gave is kept in `benchmarks/README.md` with the commands; its sections on these questions:


# %%
def sections(*scripts):
    """The sections of the benchmark page that one of the scripts made."""
    page = (Path("..") / "benchmarks" / "README.md").read_text(encoding="utf-8")
    parts = page.split("\n## ")[1:]
    return [f"### {part.strip()}" for part in parts if any(f"python benchmarks/{script}" in part for script in scripts)]


found = sections("makespan_classes.py", "braun.py")
display(
    Markdown(
        "\n\n".join(found or ["No full run is recorded yet; `python benchmarks/makespan_classes.py --help` makes one."])
    )
)
