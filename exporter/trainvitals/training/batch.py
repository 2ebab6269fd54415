"""How many samples and tokens are in a batch, whatever a data loader makes of it.

Only shapes and lengths are looked at, so that no device is waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_DEEPEST = 4


def count_samples(batch: object, *, depth: int = _DEEPEST) -> int | None:
    """Count the samples of a batch.

    The first dimension of what has a shape counts; in a collection that of its members, or their
    number where they differ (sequences of several lengths) or have no shape (texts).

    Args:
        batch: Anything.
        depth: How deep collections may be nested.

    Returns:
        The number; None where nothing tells it.
    """
    graphs = getattr(batch, "num_graphs", None)
    if isinstance(graphs, int):
        return graphs
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if depth == 0 or isinstance(batch, str | bytes):
        return None
    return _count_in_collection(batch, depth)


def _count_in_collection(batch: object, depth: int) -> int | None:
    members = _list_members(batch)
    first: int | None = None
    for member in members:
        shape = getattr(member, "shape", None)
        if shape is None or not len(shape):
            continue
        if first is None:
            first = int(shape[0])
        elif first != shape[0] and isinstance(batch, Sequence):
            return len(batch)
    if first is not None:
        return first
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


def _list_members(batch: object) -> Sequence[object]:
    if isinstance(batch, list | tuple):
        return batch
    if isinstance(batch, Mapping):
        return list(batch.values())
    if isinstance(batch, Sequence):
        return batch
    return list(getattr(batch, "__dict__", {}).values())
