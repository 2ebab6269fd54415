"""The expected result of each panel on each machine, from `expectations.yml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from tests.unit.dashboards.boards import Board, Place

FILE = Path(__file__).with_name("expectations.yml")

Return = Literal["data", "empty", "either"]


@dataclass(frozen=True, slots=True)
class View:
    """A dashboard with chosen variables.

    Attributes:
        board: The dashboard's uid.
        name: The name of the selection, such as a machine, a run or `everything`.
        wanted: The chosen values of some variables.
        returns: The default result of the view's panels.
        before: Whether the time range lies before the recording.
        empties: The maximum number of empty panels on the first screen.
    """

    board: str
    name: str
    wanted: Mapping[str, str]
    returns: Return
    before: bool = False
    empties: int = 0

    def __str__(self) -> str:
        """Return the view's name in the IDs of tests."""
        return f"{self.board.removeprefix('trainvitals-')}-{self.name}"


@dataclass(frozen=True, slots=True)
class Other:
    """Panels whose expected result differs from the default of their view.

    Attributes:
        board: The dashboard's uid.
        views: The names of the views.
        returns: The expected result.
        panels: Row and title of each panel, such as `CPU > Busy`.
        reason: The reason.
    """

    board: str
    views: Sequence[str]
    returns: Return
    panels: Sequence[str]
    reason: str


@dataclass(frozen=True, slots=True)
class Silent:
    """Queries that return nothing on any recorded machine.

    Attributes:
        board: The dashboard's uid.
        queries: Row, panel and query, such as `CPU > Busy, query A`.
        reason: The reason.
        always: Whether they return nothing in any recording, not only in some recordings.
    """

    board: str
    queries: Sequence[str]
    reason: str
    always: bool = True


@dataclass(frozen=True, slots=True)
class Meant:
    """An expected fault.

    Attributes:
        board: The dashboard's uid.
        kind: The fault's kind.
        at: Row, panel and, if the fault has one, query.
        reason: The reason.
    """

    board: str
    kind: str
    at: str
    reason: str


@dataclass(frozen=True, slots=True)
class Expectations:
    """The content of `expectations.yml`.

    Attributes:
        views: Every view.
        others: The panels that differ from the default of their view.
        silent: The queries that return nothing.
        meant: The expected faults.
    """

    views: tuple[View, ...]
    others: tuple[Other, ...]
    silent: tuple[Silent, ...]
    meant: tuple[Meant, ...]

    def find(self, view: View, place: Place) -> Return:
        """Return the expected result of a panel."""
        told = [
            other.returns
            for other in self.others
            if other.board == view.board
            and view.name in other.views
            and shorten(place) in other.panels
        ]
        return told[0] if told else view.returns

    def is_meant(self, board: str, kind: str, place: Place) -> bool:
        """Return whether a fault is expected."""
        found = (board, kind, shorten(place))
        return any((each.board, each.kind, each.at) == found for each in self.meant)

    def find_mistakes(self, boards: Mapping[str, Board]) -> Iterator[str]:
        """Yield the entries that name missing items, are repeated, or equal a default."""
        views = {(view.board, view.name): view for view in self.views}
        panels = {
            (uid, shorten(panel.place)) for uid, board in boards.items() for panel in board.panels
        }
        said: set[tuple[str, str, str]] = set()
        for other in self.others:
            for name in other.views:
                for panel in other.panels:
                    key = (other.board, name, panel)
                    view = views.get((other.board, name))
                    if view is None or (other.board, panel) not in panels:
                        yield f"there is no {' > '.join(key)}"
                    elif view.returns == other.returns or key in said:
                        yield f"it goes without saying: {' > '.join(key)}"
                    said.add(key)
        questions = {
            (uid, shorten(question.place))
            for uid, board in boards.items()
            for question in board.questions
        }
        named = [(each.board, query) for each in self.silent for query in each.queries]
        named += [(each.board, each.at) for each in self.meant]
        yield from (
            f"there is no {' > '.join(one)}" for one in named if one not in questions | panels
        )


def shorten(place: Place) -> str:
    """Return the name of a place without its dashboard."""
    path = " > ".join(part for part in (place.row, place.panel) if part)
    return f"{path}, query {place.query}" if place.query else path


def read_expectations(path: Path = FILE) -> Expectations:
    """Return the expectations in a file.

    Raises:
        TypeError: An entry of the file has an unknown key, or lacks a key.
    """
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    views = tuple(
        View(
            board,
            str(name),
            {key: str(value) for key, value in (view.get("choose") or {}).items()},
            view["returns"],
            before=bool(view.get("before")),
            empties=int(view.get("empties", 0)),
        )
        for board, named in document["views"].items()
        for name, view in named.items()
    )
    return Expectations(
        views,
        tuple(Other(**each) for each in document["otherwise"] or ()),
        tuple(Silent(**each) for each in document["silent"] or ()),
        tuple(Meant(**each) for each in document["meant"] or ()),
    )
