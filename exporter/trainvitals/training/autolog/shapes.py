"""Counts the samples and tokens of batches without a `DataLoader`, from the loss's graph.

Each node in the autograd graph contains the shape of its operation's result in the forward pass.
The embedding or convolution furthest from the loss is the model's first layer. The first dimension
of that layer's result is the batch. In a model without embeddings and convolutions, the linear
layer furthest from the loss is the first layer. Nothing is computed, and no saved tensor is read.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

_READ_SECONDS = 10.0
_MOST_NODES = 20000
# The layers that show the size of a batch, with the minimum number of dimensions of their results.
# The first of these layers that the graph contains is used. A graph that is compiled as a whole is
# one node.
_LAYERS = {
    "EmbeddingBackward": 3,
    "ConvolutionBackward": 3,
    "CompiledFunctionBackward": 3,
    "AddmmBackward": 2,
    "MmBackward": 2,
}
_RECURRENT = ("RnnLayerBackward", "RnnBackward")
_VIEWS = ("ViewBackward", "UnsafeViewBackward")
Counts = tuple[int, int | None]


class ShapeReader:
    """Reads the numbers of samples and tokens in a backward pass, at most every ten seconds.

    Args:
        monotonic: A function that returns the time of a monotonic clock, in seconds.
    """

    __slots__ = ("_counts", "_due", "_monotonic")

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._due = 0.0
        self._counts: Counts = (0, None)

    def read(self, loss: Any) -> Counts:  # noqa: ANN401 - any value of the program
        """Return the numbers of samples and tokens in a backward pass, as `count_in_graph` does.

        If the last reading is less than ten seconds old, its result is returned again.
        """
        now = self._monotonic()
        if now >= self._due:
            self._due = now + _READ_SECONDS
            self._counts = count_in_graph(getattr(loss, "grad_fn", None))
        return self._counts


def count_in_graph(root: Any) -> Counts:  # noqa: ANN401 - a node of PyTorch
    """Return the numbers of samples and tokens from which a loss was computed.

    In a model with a recurrent layer, the numbers are unknown, because the first dimension of the
    layer's input may be the time. The number of tokens is known only if the first layer is an
    embedding.

    Args:
        root: The node of the loss in the autograd graph; None if the loss has no graph.

    Returns:
        The number of samples, or 0 if it is unknown, and the number of tokens, or None if it is
        unknown.
    """
    furthest: dict[str, tuple[int, ...]] = {}
    for node, user in _iterate_nodes(root):
        name = _name(node)
        if name.endswith(_RECURRENT):
            return 0, None
        if name in _LAYERS:
            shape = _find_shape(node)
            if user is not None and _name(user) in _VIEWS:  # a linear layer flattens its input
                shape = max(shape, _find_shape(user), key=len)
            if len(shape) >= _LAYERS[name]:
                furthest[name] = shape
    for name in _LAYERS:
        if name in furthest:
            samples, length, *_ = furthest[name]
            return samples, samples * length if name == "EmbeddingBackward" else None
    return 0, None


def _name(node: Any) -> str:  # noqa: ANN401 - as above
    name: str = node.name()
    return name.rstrip("0123456789")


def _find_shape(node: Any) -> tuple[int, ...]:  # noqa: ANN401 - as above
    """Return the shape with the most dimensions among an operation's results."""
    shapes = (tuple(each.shape) for each in node._input_metadata)  # noqa: SLF001 - no public one
    return max(shapes, key=len, default=())


def _iterate_nodes(root: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - as above
    """Yield each node from the loss to the inputs, with a node that uses the node's result."""
    if root is None:
        return
    queue, seen = deque([(root, None)]), {root}
    while queue and len(seen) < _MOST_NODES:
        node, user = queue.popleft()
        yield node, user
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                queue.append((following, node))
