"""How many samples and tokens are in a batch, whatever a data loader makes of it.

Only shapes and lengths are looked at, so that no device is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

_DEEPEST = 4
_MOST_MEMBERS = 64  # enough to know what they are


def count_samples(batch: object, *, depth: int = _DEEPEST) -> int | None:
    """Count the samples of a batch.

    The first dimension of what has a shape counts; in a collection that of its first member with
    one. Tensors that differ in their first dimension alone are sequences of several lengths, each
    a sample, as are members without a shape (texts).

    Args:
        batch: Anything.
        depth: How deep collections may be nested.

    Returns:
        The number; None where nothing tells it.
    """
    graphs = getattr(batch, "num_graphs", None)
    if isinstance(graphs, int):
        return graphs
    shape = _find_shape(batch)
    if shape is not None:
        return int(shape[0]) if shape else None
    if depth == 0 or isinstance(batch, str | bytes):
        return None
    return _count_in_collection(batch, depth)


def _count_in_collection(batch: object, depth: int) -> int | None:
    members = list(islice(_iterate_members(batch), _MOST_MEMBERS))
    shapes = [shape for member in members if (shape := _find_shape(member))]
    if shapes:
        lengths = {shape[0] for shape in shapes}
        is_ragged = len(lengths) > 1 and len({shape[1:] for shape in shapes}) == 1
        return len(batch) if is_ragged and isinstance(batch, Sequence) else int(shapes[0][0])
    counts = (count_samples(member, depth=depth - 1) for member in members)
    found = next((count for count in counts if count is not None), None)
    if found is None and isinstance(batch, Sequence):
        return len(batch) or None
    return found


def count_tokens(batch: object, *, depth: int = 2) -> int | None:
    """Count the elements of `input_ids`, padding included; None where a batch has none."""
    ids = (
        batch.get("input_ids") if isinstance(batch, Mapping) else getattr(batch, "input_ids", None)
    )
    numel = getattr(ids, "numel", None)
    if callable(numel):
        return int(numel())
    if depth > 0 and isinstance(batch, list | tuple):
        counts = (count_tokens(member, depth=depth - 1) for member in batch)
        return next((count for count in counts if count is not None), None)
    return None


def _find_shape(value: object) -> tuple[int, ...] | None:
    shape = getattr(value, "shape", None)
    return shape if isinstance(shape, tuple) else None


def _iterate_members(batch: object) -> Iterator[object]:
    if isinstance(batch, Mapping):
        return iter(batch.values())
    if isinstance(batch, Sequence):
        return iter(batch)
    return iter(getattr(batch, "__dict__", {}).values())
