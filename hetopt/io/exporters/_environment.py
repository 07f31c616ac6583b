"""Which accelerator is which rank, as the variables that CUDA programs read. Shared by targets that number ranks by devices."""

from __future__ import annotations

from collections.abc import Sequence

from hetopt.io.exporters._plan import Plan

__all__ = ["lines", "visible"]

_ORDER, _VISIBLE = "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"


def lines(plan: Plan, ranks: Sequence[int]) -> list[str]:
    """Shell lines after which rank k runs on device ``ranks[k]``; the instance lists accelerators in bus order.

    Raises
    ------
    InputError
        A rank is a CPU.
    """
    indices = plan.indices(ranks)
    return [
        f"# devices in the order of the bus: {plan.legend(ranks)}",
        f"export {_ORDER}=PCI_BUS_ID",
        f"export {_VISIBLE}={','.join(map(str, indices))}",
    ]


def visible(text: str) -> list[int]:
    """Device index of each rank, read from such lines."""
    prefix = f"export {_VISIBLE}="
    value = next(line for line in text.splitlines() if line.startswith(prefix))
    return [int(part) for part in value.removeprefix(prefix).split(",")]
