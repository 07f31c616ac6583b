"""ResNet-50 (version 1.5: the stride of a block is in its 3x3 convolution) on images of 224 x 224.

Source of the architecture: He, Zhang, Ren, Sun, "Deep residual learning for image recognition", CVPR 2016.
"""

from __future__ import annotations

from hetopt.instance import Instance
from hetopt.io.generators._model import Model, common_options
from hetopt.io.kinds import Option, whole

__all__ = ["NAME", "OPTIONS", "TITLE", "make", "model"]

NAME = "resnet50"
TITLE = "ResNet-50, a convolution a task, on mixed GPUs and a CPU; inference or training."
FLEET = "l4:2,t4:3,epyc-9654:1"
OPTIONS: tuple[Option, ...] = (
    Option("--batch", int, 32, "Images in a (micro-)batch."),
    Option("--training", bool, False, "Add the backward pass."),
    *common_options(FLEET),
)


def model(batch: int) -> Model:
    """The graph; 25,557,032 parameters as published, 8.2 billion operations an image."""
    net = Model()

    def convolution(name: str, source: list[int], inside: int, outside: int, kernel: int, side: int) -> int:
        """A convolution with ``side`` x ``side`` results, its normalisation and activation."""
        result = batch * outside * side * side
        weights = kernel * kernel * inside * outside
        return net.add(
            name, source, result=result, flops=2 * result * kernel * kernel * inside, weights=weights + 2 * outside
        )

    at = convolution("conv1", [], 3, 64, 7, 112)
    at = net.add("pool1", [at], result=batch * 64 * 56 * 56, flops=9 * batch * 64 * 56 * 56)
    channels, side = 64, 56
    for stage, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
        for block in range(blocks):
            name = f"stage{stage + 1}.{block + 1}"
            before = side
            side = side // 2 if block == 0 and stage > 0 else side
            a = convolution(f"{name}.reduce", [at], channels, width, 1, before)
            b = convolution(f"{name}.conv", [a], width, width, 3, side)
            c = convolution(f"{name}.expand", [b], width, 4 * width, 1, side)
            past = convolution(f"{name}.skip", [at], channels, 4 * width, 1, side) if block == 0 else at
            channels = 4 * width
            elements = batch * channels * side * side
            at = net.add(f"{name}.add", [c, past], result=elements, flops=2 * elements)
    at = net.add("pool", [at], result=batch * 2048, flops=batch * 2048 * 49)
    net.add("classify", [at], result=batch * 1000, flops=2 * batch * 2048 * 1000, weights=2048 * 1000 + 1000)
    return net


def make(*, batch: int = 32, training: bool = False, fleet: str = FLEET, noise: float = 0.0, seed: int = 0) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`."""
    whole("--batch", batch, 1, 65536)
    return model(batch).instance(
        fleet,
        name="resnet50-training" if training else "resnet50",
        description=f"ResNet-50, half precision, batches of {batch} images, {'training' if training else 'inference'}.",
        training=training,
        noise=noise,
        seed=seed,
    )
