# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # One input through a split model, as soon as possible
#
# A pipeline's rate is one question; how long a single input takes is another. Here an accelerator runs one convex part of
# the graph: it begins when all inputs of the part are there, pays for what it reads and hands on, and gives everything at
# its end. A CPU runs each of its tasks as soon as the task's inputs are there, any number at a time. The question is the
# second one of Tarnawski et al. (NeurIPS 2020); hetopt answers it exactly where the graph is nearly a chain.

# %%
import matplotlib.pyplot as plt

import hetopt
from hetopt.plot import COLOURS

# %% [markdown]
# ## A small graph, live
#
# Twenty-four made-up tasks in series and parallel, three accelerators with memory limits, a CPU that is 3 to 12 times as
# slow.

# %%
graph = hetopt.read("../instances/partition/series-parallel-24-latency.json")
result = hetopt.solve(graph)
print(hetopt.verify(graph, result).statement)
print(f"value {result.objective:g}, bound {result.bound:g} ({result.bound_proof})")

# %% [markdown]
# The same accelerators may run two parts each, one after the other, starting from the plan above. This is harder; the bound
# holds all the same.

# %%
twice = hetopt.solve(graph, options={"subgraphs": 2}, hint=result.solution, time_limit=6)
print(f"value {twice.objective:g}, bound {twice.bound:g} ({twice.status})")


# %%
def picture(instance, results):
    """Subgraphs over time, one row an accelerator; the number of tasks in each."""
    _, axes = plt.subplots(1, len(results), figsize=(11, 2.6), sharey=True, layout="constrained")
    for axis, (title, one) in zip(axes, results.items(), strict=True):
        names = [name for name, host in zip(instance.device_names, instance.is_host, strict=True) if not host]
        for run in one.evaluation["runs"]:
            row = names.index(run["device"])
            width = run["end"] - run["start"]
            axis.barh(row, width, left=run["start"], color=COLOURS[row], edgecolor="white")
            axis.text(run["start"] + width / 2, row, f"load {run['load']:g}", ha="center", va="center", fontsize=7)
        axis.axvline(one.objective, color="black", linewidth=1)
        axis.set(yticks=range(len(names)), yticklabels=names, xlabel="time", title=f"{title}: {one.objective:g}")
    plt.show()


picture(graph, {"one subgraph an accelerator": result, "up to two": twice})

# %% [markdown]
# ## The published workloads
#
# `HETOPT_DATA=... python benchmarks/latency.py` imports the latency workloads of the paper (`hetopt import
# dnn-partitioning`) and solves each for one subgraph an accelerator. Each plan is judged task by task by code that shares
# nothing with the search. On 2026-12-01, processor seconds of the whole run on a busy machine:
#
# | workload | tasks | value | bound | processor s |
# |---|---|---|---|---|
# | layers, bert24 | 32 | 100.2185 | proved | 0.1 |
# | layers, gnmt | 96 | 225.6479 | proved | 0.2 |
# | layers, resnet50 | 177 | 1156.8813 | proved | 0.4 |
# | layers, Inception-v3 | 326 | 1199.7035 | proved | 13.7 |
# | operators, bert 3 | 235 | 408.4744 | proved | 15.9 |
# | operators, bert 6 | 418 | 438.0625 | proved | 29.5 |
# | operators, bert 12 | 783 | 729.5646 | proved | 20.6 |
# | operators, resnet50 | 604 | 651.1208 | proved | 0.4 |
#
# With two subgraphs an accelerator Inception is proved at 1186.5481 (8.6 processor s); the other three layer graphs gain nothing.
