"""Launch lines for torchrun, srun and mpiexec from degrees of parallelism, and the same plan read back from a line.

Each line starts one process a GPU, binds it to its NUMA domain by ``numactl`` and hands the degrees to the script. Nothing is
started here; :func:`write` refuses a plan that :func:`read` would read otherwise. mpiexec is Open MPI's. Sources: the manuals of
torchrun, srun, Open MPI's mpiexec and numactl.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from hetopt.errors import InputError, nearest

__all__ = ["LAUNCHERS", "Launch", "read", "write"]

LAUNCHERS = ("torchrun", "srun", "mpiexec")
_RANK = {"torchrun": "LOCAL_RANK", "srun": "SLURM_LOCALID", "mpiexec": "OMPI_COMM_WORLD_LOCAL_RANK"}
_FLAGS = ("data-parallel-size", "tensor-parallel-size", "pipeline-parallel-size")


@dataclass(frozen=True)
class Launch:
    """Degrees, nodes, processes a node, cores a process, NUMA domain of each process of a node (empty: not bound)."""

    data: int
    tensor: int
    pipeline: int
    nodes: int
    processes: int
    cpus: int = 1
    binding: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        numbers = (self.data, self.tensor, self.pipeline, self.nodes, self.processes, self.cpus)
        if any(isinstance(v, bool) or not isinstance(v, int) or v < 1 for v in numbers):
            raise InputError(f"degrees, nodes, processes and cores are {numbers}, expected whole numbers, 1 or more")
        if self.data * self.tensor * self.pipeline != self.nodes * self.processes:
            degrees = f"{self.data} x {self.tensor} x {self.pipeline}"
            raise InputError(f"{degrees} is not {self.nodes} nodes of {self.processes} processes")
        if self.binding and len(self.binding) != self.processes:
            raise InputError(f"the binding names {len(self.binding)} domains for {self.processes} processes")


def write(launch: Launch, launcher: str, script: str = "train.py") -> str:
    """One line for a shell.

    Raises
    ------
    InputError
        An unknown launcher.
    """
    if launcher not in LAUNCHERS:
        raise InputError(f"there is no launcher {launcher!r}; {nearest(launcher, LAUNCHERS, what='the launchers')}")
    sizes = (launch.data, launch.tensor, launch.pipeline)
    own = " ".join([shlex.quote(script), *(f"--{flag} {size}" for flag, size in zip(_FLAGS, sizes, strict=True))])
    bound = f"exec python {own}"
    if launch.binding:
        here = "${d[$" + _RANK[launcher] + "]}"
        domains = " ".join(map(str, launch.binding))
        bound = f"d=({domains}); exec numactl --cpunodebind={here} --membind={here} python {own}"
    wrapped = f"bash -c {shlex.quote(bound)}"
    n, p, c = launch.nodes, launch.processes, launch.cpus
    head = {
        "torchrun": f"OMP_NUM_THREADS={c} torchrun --nnodes {n} --nproc-per-node {p} --rdzv-backend c10d "
        "--rdzv-endpoint $HEAD:29500 --no-python",
        "srun": f"srun --nodes={n} --ntasks-per-node={p} --gpus-per-node={p} --cpus-per-task={c}",
        "mpiexec": f"mpiexec -n {n * p} --map-by ppr:{p}:node:PE={c} --bind-to none",
    }[launcher]
    line = f"{head} {wrapped}"
    if read(line) != launch:
        raise InputError(f"the line for {launcher} would be read as another plan")
    return line


def read(line: str) -> Launch:
    """The plan that a line states.

    Raises
    ------
    InputError
        A launcher or number is missing.
    """
    words = shlex.split(line)
    launcher = next((word for word in words if word in LAUNCHERS), None)
    if launcher is None:
        raise InputError(f"the line starts none of {', '.join(LAUNCHERS)}")

    def number(pattern: str, text: str) -> int:
        found = re.search(pattern, text)
        if found is None:
            raise InputError(f"the line for {launcher} lacks {pattern.partition('(')[0].strip(' =')}")
        return int(found[1])

    head, inner = " ".join(words[:-1]), words[-1]
    data, tensor, pipeline = (number(rf"--{flag} (\d+)", inner) for flag in _FLAGS)
    if launcher == "torchrun":
        nodes, processes = number(r"--nnodes (\d+)", head), number(r"--nproc-per-node (\d+)", head)
        cpus = number(r"OMP_NUM_THREADS=(\d+)", head)
    elif launcher == "srun":
        nodes, processes = number(r"--nodes=(\d+)", head), number(r"--ntasks-per-node=(\d+)", head)
        cpus = number(r"--cpus-per-task=(\d+)", head)
    else:
        processes, cpus = number(r"ppr:(\d+):node", head), number(r"PE=(\d+)", head)
        nodes = number(r"-n (\d+)", head) // processes
    domains = re.search(r"d=\(([\d ]+)\)", inner)
    binding = tuple(map(int, domains[1].split())) if domains else ()
    return Launch(data, tensor, pipeline, nodes, processes, cpus, binding)
