# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Work that can be split, and settings that can be chosen
#
# Shards of a data set on phones, batch sizes of processors that train together, a load that is sent before it is worked on;
# then one variant a layer under budgets, a sharding for each operator, and degrees of parallelism with the launch line that
# follows. All the instances are made up by generators that come with hetopt; each answer below is verified and carries a bound.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import hetopt
from formulations.splitting.batch import curve
from hetopt.io import generators
from hetopt.io.launch import LAUNCHERS, Launch, read, write

INSTANCES = Path("../instances")

# %% [markdown]
# ## Shards: a round ends with the slowest
#
# Each device's seconds are a curve that bends when the device runs warm, and some batteries bind (Wang, Yang and Zhou, TPDS
# 2021). The threshold search and OLAR (Lima Pilla, IPDPS 2021) are exact and must agree; equal parts are what happens without
# either.

# %%
round_ = generators.get("federated").make(devices=12, shards=120, seed=1)
answers = {name: hetopt.solve(round_, method=name) for name in ("threshold", "olar", "equal")}
for name, answer in answers.items():
    print(f"{name:10} {answer.status:9} value {answer.objective:8.3f}  bound {answer.bound}")
assert answers["threshold"].objective == answers["olar"].objective

# %%
table = round_.tables["shards"]
_, axis = plt.subplots(figsize=(9, 3.2), layout="constrained")
for place, name in ((-0.2, "threshold"), (0.2, "equal")):
    shards = answers[name].solution.details["shards"]
    seconds = [table[device]["seconds"][count] for device, count in shards.items()]
    bars = axis.bar(np.arange(len(shards)) + place, seconds, 0.38, label=f"{name}: {answers[name].objective:.1f} s")
    axis.bar_label(bars, [str(count) for count in shards.values()], fontsize=7)
axis.set(
    xticks=range(len(table)), xticklabels=list(table), ylabel="seconds; shards above", title="A round on twelve phones"
)
axis.legend()
plt.show()

# %% [markdown]
# ## Batch sizes: how much balance costs
#
# A CPU with a small batch makes many more updates than a GPU with a large one, and the model drifts to what the CPU saw; Ma and
# Rusu (2020) balance the updates at a loss of samples a second. The whole curve, each point exact:

# %%
profiles = hetopt.read(INSTANCES / "splitting/batch-profiles-2x4.json")
print(f"{'balance':>8}  {'samples a second':>16}  {'utilisation':>11}")
for balance, point in curve(profiles, [1, 1.5, 2, 4, 8, 16]):
    if point.objective is None:
        print(f"{balance:8}  {point.status}: {'; '.join(point.infeasible)}")
    else:
        print(f"{balance:8}  {point.objective:16.1f}  {point.evaluation['utilisation']:11.3f}")

# %% [markdown]
# ## A load that is sent first
#
# The host sends each worker its part, one after the other. Who first, and how much?

# %%
star = hetopt.read(INSTANCES / "splitting/star-6.json")
sent = hetopt.solve(star)
print(sent.status, f"{sent.objective:.6f}", "bound", f"{sent.bound:.6f}", sent.solution.details["order"])

# %% [markdown]
# ## One variant a layer
#
# Eighty layers with sixteen variants each, under budgets of memory and time (the question of Puzzle's distillation search, ICML
# 2025; the losses are made up). The prices of the two budgets prove a bound that needs no solver, the MILP closes the rest.
# Three choices that differ in at least eight layers each:

# %%
library = generators.get("block-library").make(layers=80)
best = hetopt.solve(library, time_limit=20)
print(best.status, "loss", best.objective, "bound", best.bound, f"({best.bound_proof}, {best.method})")
priced = hetopt.bound(library, method="prices")
print("by prices alone:", priced.bound, f"({priced.bound_proof})")
for other in hetopt.diverse(hetopt.read(INSTANCES / "selection/block-library-12.json"), 3, differ=4, time_limit=5):
    print("loss", other.objective, other.status)

# %%
kept = [modes.split("-") for modes in best.solution.details["modes"].values()]
_, axis = plt.subplots(figsize=(9, 2.4), layout="constrained")
colours = ["#1f77b4" if attention == "attention" else "#bbbbbb" for attention, _ in kept]
axis.bar(range(80), [max(float(size), 1.0) for _, size in kept], color=colours)
axis.set(xlabel="layer", ylabel="feed-forward kept, %", title="Blue: attention kept")
plt.show()

# %% [markdown]
# ## A sharding for each operator, and the launch line
#
# One mode for each operator with the seconds to lay tensors out anew in between (the question of Alpa's intra-operator pass),
# and degrees of data, tensor and pipeline parallelism by a table. A launch line is handed out only after it was read back to
# the plan.

# %%
sharded = hetopt.solve(hetopt.read(INSTANCES / "selection/operator-sharding-4x4.json"))
print("operator sharding:", sharded.status, sharded.objective, "by", sharded.method)
degrees = hetopt.solve(hetopt.read(INSTANCES / "selection/parallel-degrees-8x4.json"))
details = dict(degrees.solution.details)
launch = Launch(**{**details, "binding": tuple(details["binding"])})
print("degrees:", degrees.status, degrees.objective, details)
for launcher in LAUNCHERS:
    line = write(launch, launcher)
    assert read(line) == launch
    print(line)
