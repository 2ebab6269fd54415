"""Paths of the files shipped with the package: rules, dashboards, runbooks and Compose files.

A wheel contains these files in `trainvitals/stack/files`. A checkout contains the files at the root
of the repository.
"""

from __future__ import annotations

from pathlib import Path

from trainvitals.errors import StackError

PACKAGE = Path(__file__).parent


def find_shipped(name: str, package: Path = PACKAGE) -> Path:
    """Return the path of a shipped file or directory, in the package or else in the checkout.

    Args:
        name: The path relative to the root of the repository, such as `prometheus` or
            `docker-compose.yml`.
        package: The directory of the package `trainvitals`.

    Raises:
        StackError: The file or directory is neither in the package nor in the checkout.
    """
    places = (package / "stack/files" / name, package.parents[1] / name)
    for place in places:
        if place.exists():
            return place
    raise StackError(
        f"no {name} in {places[0].parent} or {places[1].parent}: install trainvitals again, "
        "or run from a whole checkout"
    )
