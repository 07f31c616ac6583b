"""MobileNetV2 on a phone's CPU, GPU and NPU, one image at a time.

CPU and GPU compute in half precision, the NPU in 8-bit integers; the softmax at the end is not in the NPU's repertoire. What
is handed between the CPU's memory and an accelerator is in half precision. Source of the architecture: Sandler, Howard, Zhu,
Zhmoginov, Chen, "MobileNetV2: inverted residuals and linear bottlenecks", CVPR 2018.
"""

from __future__ import annotations

from hetopt.instance import Instance
from hetopt.io.generators._model import Model, common_options
from hetopt.io.kinds import Option, whole

__all__ = ["NAME", "OPTIONS", "TITLE", "make", "model"]

NAME = "mobile-trio"
TITLE = "MobileNetV2 on a phone's CPU, GPU and NPU; frames in a pipeline."
FLEET = "snapdragon-8-gen-3-npu:1,adreno-750:1,snapdragon-8-gen-3-cpu:1"
OPTIONS: tuple[Option, ...] = (
    Option("--batch", int, 1, "Images in a batch."),
    *common_options(FLEET),
)

# expansion, channels, repeats, stride: table 2 of the paper
BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def model(batch: int) -> Model:
    """The graph; 3,504,872 parameters as published, 0.6 billion operations an image."""
    net = Model()

    def convolution(
        name: str, source: list[int], inside: int, outside: int, kernel: int, side: int, groups: int = 1
    ) -> int:
        result = batch * outside * side * side
        fan = kernel * kernel * inside // groups
        return net.add(name, source, result=result, flops=2 * result * fan, weights=fan * outside + 2 * outside)

    side, channels = 112, 32
    at = convolution("stem", [], 3, channels, 3, side)
    for stage, (expansion, outside, repeats, stride) in enumerate(BLOCKS):
        for block in range(repeats):
            name, start = f"stage{stage + 1}.{block + 1}", at
            wide = channels * expansion
            if expansion > 1:
                at = convolution(f"{name}.expand", [at], channels, wide, 1, side)
            side = side // stride if block == 0 else side
            at = convolution(f"{name}.depth", [at], wide, wide, 3, side, groups=wide)
            at = convolution(f"{name}.project", [at], wide, outside, 1, side)
            if block:
                elements = batch * outside * side * side
                at = net.add(f"{name}.add", [at, start], result=elements, flops=elements)
            channels = outside
    at = convolution("last", [at], channels, 1280, 1, side)
    at = net.add("pool", [at], result=batch * 1280, flops=batch * 1280 * side * side)
    at = net.add("classify", [at], result=batch * 1000, flops=2 * batch * 1280 * 1000, weights=1280 * 1000 + 1000)
    net.add("softmax", [at], result=batch * 1000, flops=4 * batch * 1000)
    return net


def make(*, batch: int = 1, fleet: str = FLEET, noise: float = 0.0, seed: int = 0) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`."""
    whole("--batch", batch, 1, 65536)
    return model(batch).instance(
        fleet,
        name="mobile-trio",
        description=f"MobileNetV2 on a phone, {batch} image{'s' if batch > 1 else ''} at a time: half precision on CPU and GPU, "
        "8-bit integers on the NPU.",
        own_precision={"snapdragon-8-gen-3-npu": "int8"},
        only={"softmax": ("cpu", "gpu")},
        noise=noise,
        seed=seed,
    )
