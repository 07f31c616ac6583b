# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Task graphs in time: a workflow, a stream, frames of a phone, kernels and their copies
#
# List schedules are what workflow systems and phones use. Here each has a bound beside it, and a discrete-event replay runs
# every plan once more before it is believed.

# %%
from pathlib import Path

import hetopt
from hetopt import plot
from hetopt.replay import replayed

INSTANCES = Path("../instances/schedule")

# %% [markdown]
# ## One graph, done as early as possible
#
# A task runs on one device at its speed there, results travel over links. HEFT and its relatives, annealing from the best of
# them, and a bound that is replayed from the file without a solver:

# %%
RULES = ("heft", "cpop", "peft", "etf", "mct", "min-min")
print(f"{'graph':16}" + "".join(f"{rule:>10}" for rule in RULES) + f"{'annealing':>11}{'bound':>10}")
for name in ("layered-40x4", "wired-24x3", "tree-31x3"):
    graph = hetopt.read(INSTANCES / f"{name}.json")
    values = [hetopt.solve(graph, method=rule).objective for rule in RULES]
    annealed = hetopt.solve(graph, method="annealing", time_limit=1)
    bound = hetopt.bound(graph, method="paths").bound
    print(f"{name:16}" + "".join(f"{v:10.4g}" for v in values) + f"{annealed.objective:11.4g}{bound:10.4g}")

# %%
graph = hetopt.read(INSTANCES / "wired-24x3.json")
best = hetopt.solve(graph, method="annealing", time_limit=1)
again = replayed(graph, best)
print("replayed:", again.objective, "complaints:", again.complaints, "transfers:", len(again.transfers))
plot.figure(graph, best)

# %% [markdown]
# ## A stream of jobs, decided as they come
#
# Online rules know a job from its release on. The optimum of the whole stream, as if all arrivals were known, is the yardstick.

# %%
stream = hetopt.read(INSTANCES / "stream-4x3.json")
optimum = hetopt.solve(stream, time_limit=10)
print(f"{'all arrivals known':20}{optimum.objective:11.3e}  {optimum.status}, bound {optimum.bound:.3e}")
for rule in ("met", "eft", "etf", "rank-eft", "rolling"):
    online = hetopt.solve(stream, method=rule, time_limit=5)
    print(f"{rule:20}{online.objective:11.3e}  {online.objective / optimum.objective:.3f} times")

# %% [markdown]
# ## Three networks with frame rates on a phone
#
# Eye tracking, segmentation and speech on CPU, GPU and NPU (made up), after the questions of Kang, Lee and Kim (2025) and Gao
# et al. (2025): cuts, devices and starts of a schedule that repeats. How many times faster could the frames come?

# %%
phone = hetopt.read(INSTANCES / "phone-3x3-rate.json")
print("bound:", f"{hetopt.bound(phone, method='bounds').bound:.4f}")
rates = {}
for method in ("cpsat", "annealing", "edf", "fifo", "rate-monotonic", "best-device-edf", "one-device-edf"):
    rates[method] = hetopt.solve(phone, method=method, time_limit=8)
    rate = rates[method].objective
    print(
        f"{method:18}"
        + (f"{rate:8.4f} times as fast, {rates[method].status}" if rate is not None else "    no schedule")
    )

# %%
plan = max((r for r in rates.values() if r.objective is not None), key=lambda r: r.objective)
run = replayed(phone, plan)
print(f"replayed: {len(run.frames)} frames, {run.misses} misses, {run.drops} drops, complaints {run.complaints}")
plot.figure(phone, plan)

# %% [markdown]
# ## Kernels and their copies
#
# Copies to and from an accelerator take as long as computing; with several command queues they hide behind it (Ghose et al.,
# 2020).

# %%
kernels = hetopt.read(INSTANCES / "kernels-8x2.json")
overlapped = hetopt.solve(kernels, time_limit=8)
print(overlapped.status, overlapped.objective, "bound", overlapped.bound, f"({overlapped.bound_proof})")

# %% [markdown]
# ## Measured
#
# Standard task graphs, workflow traces and the schedules of another package, with the commands:


# %%
def section(heading):
    """A section of the benchmarks page."""
    text = Path("../benchmarks/README.md").read_text(encoding="utf-8")
    start = text.index(f"## {heading}")
    end = text.find("\n## ", start + 3)
    return text[start : end if end > 0 else None].strip()


print(section("Task graphs in time"))
