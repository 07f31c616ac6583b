"""Import a published Helix layout: node rates, links and layers from the folder's ``ilp_model.lp``.

The reading itself is in :mod:`hetopt.io.helix`; this file makes an instance of it.
"""

from __future__ import annotations

from pathlib import Path

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.helix import read_layout
from hetopt.io.kinds import Option
from hetopt.io.serving import instance_of

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "helix"
TITLE = "A serving cluster from a published Helix layout (maximum flow over layer intervals)."
SOURCE_HELP = "layout folder (or its ilp_model.lp)."
OPTIONS: tuple[Option, ...] = ()


def load(source: str | Path) -> Instance:
    """Instance of a layout folder; nodes are ``node0, node1, ...``, the question is the serving flow.

    Raises
    ------
    InputError
        The file is missing or is not a model of this kind; the message names the row.
    """
    try:
        network = read_layout(source)
    except OSError as error:
        raise InputError(f"cannot read {str(source)!r}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(str(error)) from error
    name = Path(source).name
    return instance_of(network, name=name, source=f"imported from the Helix layout {name}")
