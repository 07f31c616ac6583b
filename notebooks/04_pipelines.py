# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Pipelines: a model's layers over devices that differ
#
# A model is cut into stages, one a device; a result leaves as often as the slowest stage allows. Where to cut, and on which
# device each piece belongs, is decided exactly here: the value is recomputed by a verifier, the bound comes with a proof,
# and "optimal" is said when they meet.

# %%
import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import hetopt
from hetopt.io import importers
from hetopt.plot import COLOURS

INSTANCES = Path("../instances/partition")

# %% [markdown]
# ## Model graphs, live
#
# Graphs that come with hetopt: operators of public architectures with roofline times, and two random ones. Contiguous stages (no
# data flows back to an earlier one), and stages of any shape.

# %%
print(f"{'graph':28}{'tasks':>6}  {'contiguous':>22}  {'any shape':>22}")
for name in ("resnet50", "resnet50-training", "bert-large", "gpt2-xl", "layered-24", "series-parallel-30"):
    instance = hetopt.read(INSTANCES / f"{name}.json")
    row = f"{name:28}{instance.n_tasks:6}"
    for shape in ("whole", "none"):
        result = hetopt.solve(instance, options={"contiguous": shape} if shape == "none" else {}, time_limit=1.5)
        row += f"  {result.objective:12.6g} {result.status[:8]:>9}"
    print(row)

# %% [markdown]
# The sixteen published workloads (operator and layer graphs of BERT, GNMT, ResNet-50 and Inception; Tarnawski et al., NeurIPS
# 2020) are third-party data and not part of hetopt. The full run, with the command that made it:


# %%
def section(heading):
    """A section of the benchmarks page."""
    text = Path("../benchmarks/README.md").read_text(encoding="utf-8")
    start = text.index(f"## {heading}")
    end = text.find("\n## ", start + 3)
    return text[start : end if end > 0 else None].strip()


print(section("Pipeline throughput: the 16 published workloads"))

# %% [markdown]
# ## A model of 70 billion parameters on a mixed home cluster
#
# All that is needed of a published model is its `config.json`; the devices are named, and their data sheets come with hetopt. Two
# desktops with cards of four kinds, joined by a gigabit network; weights in four bits.

# %%
config = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "config.json"
    path.write_text(json.dumps(config))
    home = importers.get("hf").load(
        path, devices="rtx4090:1,rtx3090:2/rtx3090:1,t4:2", network="1gbe", quantisation="int4", context=4096
    )
print(home)
best = hetopt.solve(home, time_limit=10)
print(best.status, "value", best.objective, "bound", best.bound, f"({best.bound_proof})")
print(hetopt.verify(home, best).statement)

# %% [markdown]
# An even split by number of layers, the rule of many tools, beside it:


# %%
def even(instance):
    """The same number of layers on every device, in file order."""
    from hetopt.verify.chain import layer_sequence

    order = layer_sequence(instance)
    placement = np.empty(instance.n_tasks, np.int64)
    for device, part in enumerate(np.array_split(order, instance.n_devices)):
        placement[part] = device
    return hetopt.Solution.assign(placement)


rule = even(home)
try:
    told = hetopt.verify(home, rule)
    print("even split:", told.statement)
except hetopt.VerificationError as error:
    print("even split rejected:", error)


# %%
def stages(instance, plans):
    """Each plan's stages over the layers: a bar's height is its seconds, its text the memory it fills."""
    from hetopt.verify.chain import layer_sequence

    order = layer_sequence(instance)
    kinds = sorted({device.type or device.name for device in instance.devices})
    _, axes = plt.subplots(len(plans), 1, figsize=(10, 2.6 * len(plans)), sharex=True, layout="constrained")
    for axis, (title, placement) in zip(np.atleast_1d(axes), plans.items(), strict=True):
        where = placement[order]
        starts = np.flatnonzero(np.r_[True, where[1:] != where[:-1]])
        for a, b in zip(starts, np.r_[starts[1:], len(where)], strict=True):
            device = instance.devices[where[a]]
            seconds = instance.time[order[a:b], where[a]].sum() * 1e3
            filled = instance.memory[order[a:b]].sum() / instance.capacity[where[a]]
            colour = COLOURS[kinds.index(device.type or device.name) % len(COLOURS)]
            axis.bar(a, seconds, width=b - a, align="edge", color=colour, edgecolor="white")
            axis.text(
                (a + b) / 2,
                seconds,
                f"{device.name}\n{b - a} parts, {filled:.0%}",
                ha="center",
                va="bottom",
                fontsize=7,
            )
        axis.set(title=title, ylabel="ms a token")
        axis.margins(y=0.35)
    np.atleast_1d(axes)[-1].set_xlabel("parts of the model, in order")
    plt.show()


stages(home, {f"best plan: {best.objective * 1e3:.2f} ms": best.solution.placement, "even split": rule.placement})

# %% [markdown]
# Which device is in the way, and what would one more buy? `diagnose` solves the instance again with each change, and only
# says what value and bound of both prove:

# %%
for line in hetopt.diagnose(home, time_limit=10).lines():
    print(line)

# %% [markdown]
# `hetopt plan` does all of this in one command and writes the settings for the tool that will run the model (vLLM, llama.cpp,
# accelerate, ...), after reading them back through the tool's own mapping.
