"""The round trip of a dashboard through Grafana's own models, to find unknown keys.

grafana-foundation-sdk is generated from Grafana's schema, and its models drop unknown keys at any
depth. The round trip therefore finds misspelt keys, which Grafana would ignore. Values are not
validated.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from tests.unit.dashboards.boards import Board, Json

# Keys that Grafana 13.2 reads but that the SDK, with the panels of Grafana 11.6, does not know. The
# keys are given by the end of their path, with the reason.
ALLOWED: Mapping[str, str] = MappingProxyType({})


def send_through(document: Json) -> Json:
    """Read a dashboard into the SDK's models and return the models as JSON."""
    with warnings.catch_warnings():
        # The SDK deprecates schema 1, but Grafana does not read schema 2 from files.
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: PLC0415 - warns
        from grafana_foundation_sdk.cog.plugins import register_default_plugins  # noqa: PLC0415
        from grafana_foundation_sdk.models.dashboard import Dashboard  # noqa: PLC0415

        register_default_plugins()
        read = Dashboard.from_json(json.loads(json.dumps(document)))
    written: Json = json.loads(json.dumps(read, cls=JSONEncoder))
    return written


def find_losses(board: Board) -> list[str]:
    """Return the paths of all values that are lost or changed in the round trip.

    Values that the SDK adds, such as Grafana's defaults, are not losses.
    """
    return list(_compare(board.json, send_through(board.json), ()))


def is_allowed(path: str) -> bool:
    """Return whether a loss is expected."""
    return any(path.endswith(ending) for ending in ALLOWED)


def _compare(before: object, after: object, path: Sequence[str]) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in after:
                yield from _compare(value, after[key], (*path, key))
            else:
                yield "/".join((*path, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for one, other in zip(before, after, strict=True):
            yield from _compare(one, other, (*path, _name(one, before.index(one))))
    elif before != after:
        yield f"{'/'.join(path)}: {before!r} became {after!r}"


def _name(element: object, at: int) -> str:
    """Return a readable name of a list's element, such as a panel's title or a query's letter."""
    named = element if isinstance(element, dict) else {}
    names = (named.get(key) for key in ("title", "refId", "name", "id"))
    return str(next((name for name in names if isinstance(name, str)), at))
