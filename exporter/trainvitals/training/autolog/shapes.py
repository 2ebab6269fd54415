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
_LAYERS = {"EmbeddingBackward": 3, "ConvolutionBackward": 3, "AddmmBackward": 2, "MmBackward": 2}
# A graph that is compiled as a whole is one node, whose largest result has the dimension.
_COMPILED = "CompiledFunctionBackward"
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
    """Return the numbers of samples and tokens that the graph of a loss was computed from."""
    furthest: dict[str, tuple[int, ...]] = {}
    for node in _iterate_nodes(root):
        name = node.name().rstrip("0123456789")
        if name != _COMPILED and name not in _LAYERS:
            continue
        shapes = [tuple(each.shape) for each in node._input_metadata]  # noqa: SLF001 - no public one
        shape = max(shapes, key=len, default=())
        if len(shape) >= _LAYERS.get(name, 3):
            furthest[name] = shape
    for name in ("EmbeddingBackward", "ConvolutionBackward", _COMPILED):
        if name in furthest:
            samples, length, *_ = furthest[name]
            return samples, samples * length if name == "EmbeddingBackward" else None
    linear = furthest.get("AddmmBackward") or furthest.get("MmBackward") or (0,)
    return linear[0], None


def _iterate_nodes(root: Any) -> Iterator[Any]:  # noqa: ANN401 - as above
    """Yield the nodes of a graph from the loss to the inputs; nothing of a very large graph."""
    if root is None:
        return
    queue, seen = deque([root]), {root}
    while queue and len(seen) < _MOST_NODES:
        node = queue.popleft()
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                queue.append(following)
