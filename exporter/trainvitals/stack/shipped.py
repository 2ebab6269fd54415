"""The files that come with the package: configuration, rules, dashboards, the Compose file."""

from __future__ import annotations

from pathlib import Path

from trainvitals.errors import StackError


def find_shipped(name: str, package: Path = Path(__file__).parent) -> Path:
    """Give the path of a shipped file or directory: the installed one, else the checkout's.

    Args:
        name: Its path from the root of the repository, as `prometheus` or `docker-compose.yml`.
        package: This package's directory, installed or in a checkout.

    Raises:
        StackError: It is in neither place.
    """
    places = (package / "files" / name, package.parents[2] / name)
    for place in places:
        if place.exists():
            return place
    raise StackError(
        f"no {name} in {places[0].parent} or {places[1].parent}: install trainvitals again, "
        "or run from a whole checkout"
    )
