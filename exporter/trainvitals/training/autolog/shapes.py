"""The samples and tokens of batches that no `DataLoader` returned, from the graph of the loss.

Each node of the graph knows the shape of what its operation returned in the forward pass. The
embedding or the convolution that is the furthest from the loss is the first layer of the model, and
its result begins with the dimension of the batch; in a model without these, that is the linear layer
that is the furthest. Nothing is computed, and no saved tensor is read.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

_READ_SECONDS = 10.0
_MOST_NODES = 20000
# The layers by which a batch is recognised, of which the first that is found counts, each with the number of
# dimensions of its result. A graph that is compiled as a whole is one node.
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
    """A reader of the samples and tokens in a backward pass, which looks every ten seconds.

    Args:
        monotonic: A clock that never jumps, in seconds.
    """

    __slots__ = ("_counts", "_due", "_monotonic")

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._due = 0.0
        self._counts: Counts = (0, None)

    def read(self, loss: Any) -> Counts:  # noqa: ANN401 - any value of the program
        """Return the number of samples, 0 if unknown, and of tokens, None if unknown."""
        now = self._monotonic()
        if now >= self._due:
            self._due = now + _READ_SECONDS
            self._counts = count_in_graph(getattr(loss, "grad_fn", None))
        return self._counts


def count_in_graph(root: Any) -> Counts:  # noqa: ANN401 - a node of PyTorch
    """Return the numbers of samples and tokens that the graph of a loss was computed from.

    The batches of a recurrent layer may begin with the dimension of the time, so that the samples
    of a model with such a layer are unknown.
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
    """Return the shape with the most dimensions that an operation returned."""
    shapes = (tuple(each.shape) for each in node._input_metadata)  # noqa: SLF001 - no public one
    return max(shapes, key=len, default=())


def _iterate_nodes(root: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - as above
    """Yield the nodes of a graph from the loss to the inputs, each with one that uses its result."""
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
