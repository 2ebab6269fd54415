"""What each panel is meant to return on each machine: `expectations.yml`, read."""

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
    """A board with what is chosen in it.

    Attributes:
        board: The board's uid.
        name: What is looked at: a machine, a run, everything.
        wanted: What is chosen for some variables.
        returns: What its panels return, if nothing else is said.
        before: Whether the time range lies before the recording.
        empties: How many panels of its first screen may be empty.
    """

    board: str
    name: str
    wanted: Mapping[str, str]
    returns: Return
    before: bool = False
    empties: int = 0

    def __str__(self) -> str:
        """Name it for a test."""
        return f"{self.board.removeprefix('trainvitals-')}-{self.name}"


@dataclass(frozen=True, slots=True)
class Other:
    """Panels that return something else than their view's others.

    Attributes:
        board: The board's uid.
        views: The names of the views.
        returns: What they return.
        panels: Row and title, as `CPU > Busy`.
        reason: Why.
    """

    board: str
    views: Sequence[str]
    returns: Return
    panels: Sequence[str]
    reason: str


@dataclass(frozen=True, slots=True)
class Silent:
    """Queries that no recorded machine answers.

    Attributes:
        board: The board's uid.
        queries: Row, panel and query, as `CPU > Busy, query A`.
        reason: Why.
        always: Whether they are never answered, or just not in each recording.
    """

    board: str
    queries: Sequence[str]
    reason: str
    always: bool = True


@dataclass(frozen=True, slots=True)
class Meant:
    """A fault that is meant.

    Attributes:
        board: The board's uid.
        kind: The fault's kind.
        at: Row, panel and, where the fault has one, query.
        reason: Why.
    """

    board: str
    kind: str
    at: str
    reason: str


@dataclass(frozen=True, slots=True)
class Expectations:
    """What the file says.

    Attributes:
        views: Every view.
        others: What is otherwise.
        silent: What no machine answers.
        meant: What is meant to be odd.
    """

    views: tuple[View, ...]
    others: tuple[Other, ...]
    silent: tuple[Silent, ...]
    meant: tuple[Meant, ...]

    def find(self, view: View, place: Place) -> Return:
        """Return what a panel is meant to return."""
        told = [
            other.returns
            for other in self.others
            if other.board == view.board
            and view.name in other.views
            and shorten(place) in other.panels
        ]
        return told[0] if told else view.returns

    def is_meant(self, board: str, kind: str, place: Place) -> bool:
        """Return whether a fault is meant."""
        found = (board, kind, shorten(place))
        return any((each.board, each.kind, each.at) == found for each in self.meant)

    def find_mistakes(self, boards: Mapping[str, Board]) -> Iterator[str]:
        """Yield where the file names what there is not, says something twice, or nothing new."""
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
    """Name a place without its board."""
    path = " > ".join(part for part in (place.row, place.panel) if part)
    return f"{path}, query {place.query}" if place.query else path


def read_expectations(path: Path = FILE) -> Expectations:
    """Read the file.

    Raises:
        TypeError: It has a key that nothing has, or lacks one.
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
