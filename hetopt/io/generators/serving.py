"""Clusters of unequal nodes that serve a model, for the maximum-flow question; nothing here is a measured device.

The numbers are drawn by :func:`hetopt.io.generate_serving.serving`; this file makes an instance of them.
"""

from __future__ import annotations

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.generate_serving import serving
from hetopt.io.kinds import Option, whole
from hetopt.io.serving import instance_of

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "serving"
TITLE = "Nodes of several kinds, in clusters with slow links between them, that serve a model by maximum flow."
OPTIONS: tuple[Option, ...] = (
    Option("--nodes", int, 12, "Number of nodes."),
    Option("--layers", int, 32, "Layers of the model."),
    Option("--types", int, 3, "Device types, 1 to 7."),
    Option("--clusters", int, 1, "Clusters; links between them are slow."),
    Option(
        "--slow", float, 0.25, "Capacity of a slow link, as a share of what all nodes could serve if evenly loaded."
    ),
    Option(
        "--density", float, 1.0, "Probability of a link between two nodes; below 1 a third of the nodes face the host."
    ),
    Option("--spare", float, 3.0, "How often all nodes together can hold the model, at least 1."),
    Option("--seed", int, 0, "Seed."),
)
MOST_NODES, MOST_LAYERS = 500, 1000


def make(
    *,
    nodes: int = 12,
    layers: int = 32,
    types: int = 3,
    clusters: int = 1,
    slow: float = 0.25,
    density: float = 1.0,
    spare: float = 3.0,
    seed: int = 0,
) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        A number out of its range.
    """
    whole("--nodes", nodes, 1, MOST_NODES)
    whole("--layers", layers, 1, MOST_LAYERS)
    whole("--seed", seed, 0, 2**32)
    try:
        network = serving(nodes, layers, seed, types=types, clusters=clusters, slow=slow, density=density, spare=spare)
    except ValueError as error:
        raise InputError(f"--nodes, --types, --clusters, --slow, --density, --spare: {error}") from None
    return instance_of(
        network, name=f"serving-{nodes}x{layers}-{seed}", source=f"generated with seed {seed}; no measured device"
    )
