"""What is left of a board that goes through Grafana's own models.

grafana-foundation-sdk is generated from Grafana's schema: whatever it does not know is lost on the
way through it, at any depth. That finds a name that is misspelt and that Grafana would not read. It
does not look at values.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from tests.unit.dashboards.boards import Board, Json

# Keys that the SDK, whose kinds of panels are those of Grafana 11.6, does not know and 13.2 reads,
# by the end of their path, with the reason.
ALLOWED: Mapping[str, str] = MappingProxyType({})


def send_through(document: Json) -> Json:
    """Read a board into the SDK's models and write it again."""
    with warnings.catch_warnings():
        # The SDK would have everybody move to schema 2, which Grafana does not read from files.
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: PLC0415 - warns
        from grafana_foundation_sdk.cog.plugins import register_default_plugins  # noqa: PLC0415
        from grafana_foundation_sdk.models.dashboard import Dashboard  # noqa: PLC0415

        register_default_plugins()
        read = Dashboard.from_json(json.loads(json.dumps(document)))
    written: Json = json.loads(json.dumps(read, cls=JSONEncoder))
    return written


def find_losses(board: Board) -> list[str]:
    """Return the path of everything that is lost or comes back as something else.

    What the SDK adds, such as Grafana's defaults, is no loss.
    """
    return list(_compare(board.json, send_through(board.json), ()))


def is_allowed(path: str) -> bool:
    """Return whether a loss is meant."""
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
    """Name an element of a list as people know it: a panel by its title, a query by its letter."""
    named = element if isinstance(element, dict) else {}
    names = (named.get(key) for key in ("title", "refId", "name", "id"))
    return str(next((name for name in names if isinstance(name, str)), at))
