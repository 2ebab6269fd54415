"""Visits to boards: each view is looked at in several ways, and nothing is asked twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tests.integration.dashboards.live.choosing import Way, choose, list_options
from tests.integration.dashboards.live.expectations import Expectations, View
from tests.integration.dashboards.live.grafana import Answer, Asked, Look, ask_board, read_seconds
from tests.integration.dashboards.live.judging import OF_A_FLEET, OF_A_HOST, judge
from tests.integration.dashboards.live.recording import Recording
from tests.integration.dashboards.live.showing import group_by_panel
from tests.unit.dashboards.boards import Board

FLEET = "trainvitals-fleet"
_BEFORE_SECONDS = 30 * 24 * 3600.0

# The recorded minute as it is, the same hurried, and the time range that the board opens with.
Range = Literal["minute", "hurried", "usual"]
WAYS: Sequence[tuple[Way, Range]] = (
    ("all", "minute"),
    ("all", "hurried"),
    ("all", "usual"),
    ("one", "minute"),
    ("several", "minute"),
)


@dataclass
class Visits:
    """Looks at boards.

    Attributes:
        recording: What was recorded.
        boards: The boards by uid.
        expectations: What they are meant to return.
    """

    recording: Recording
    boards: Mapping[str, Board]
    expectations: Expectations
    _asked: Asked = field(init=False)
    _known: dict[tuple[str, Way, Range], Sequence[Answer]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin to remember."""
        self._asked = Asked(self.recording.server)

    def visit(self, view: View, way: Way = "all", over: Range = "minute") -> Sequence[Answer]:
        """Ask all that a board asks when a view is opened."""
        key = (str(view), way, over)
        if key not in self._known:
            board = self.boards[view.board]
            look = self._look(view, over)
            choices = choose(self._asked, board, way, view.wanted, look)
            self._known[key] = ask_board(self._asked, board, replace(look, choices=choices))
        return self._known[key]

    def find_faults(self, view: View) -> Iterator[str]:
        """Yield what is wrong with a view, whatever it is meant to return."""
        bounds = OF_A_FLEET if view.board == FLEET else OF_A_HOST
        for way, over in WAYS:
            for fault in judge(self.visit(view, way, over), bounds):
                # Hours with a minute in them give a single value, which may well be NaN.
                is_one_value = over == "usual" and fault.kind in ("nan", "stale")
                is_meant = self.expectations.is_meant(view.board, fault.kind, fault.place)
                if not is_one_value and not is_meant:
                    where = f"{fault.place} on {view.name} ({way}, {over})"
                    yield f"{where}: {fault.kind}: {fault.says}"

    def find_surprises(self, view: View) -> Iterator[str]:
        """Yield which panels return data where they should be empty, or nothing where they should not."""
        visits = [group_by_panel(self.visit(view, over=over)) for over in ("minute", "hurried")]
        for minute, hurried in zip(*visits, strict=True):
            panel = minute.panel
            expected = self.expectations.find(view, panel.place)
            found = "data" if minute.has_data or hurried.has_data else "empty"
            if expected not in ("either", found):
                word = panel.defaults.get("noValue")
                says = f'it is empty: "{word}"' if found == "empty" else "it is not empty"
                yield f"{panel.place} on {view.name}: {says}"

    def find_empties(self, view: View) -> Iterator[str]:
        """Name the panels of the first screen that are empty, with what they say.

        A panel with a value a minute may have none in the recorded minute, and has some if hurried.
        """
        visits = [group_by_panel(self.visit(view, over=over)) for over in ("minute", "hurried")]
        for minute, hurried in zip(*visits, strict=True):
            if not (minute.panel.is_closed or minute.has_data or hurried.has_data):
                yield f"{minute.panel.title}: {minute.panel.defaults.get('noValue')}"

    def find_silent(self, uid: str) -> Iterator[str]:
        """Name the queries that no view gets an answer to, by row, panel and letter."""
        answered: set[str] = set()
        asked: dict[str, None] = {}
        for view in self.expectations.views:
            if view.board != uid:
                continue
            for way, over in WAYS:
                for answer in self.visit(view, way, over):
                    place = str(replace(answer.question.place, board="")).strip()
                    asked[place] = None
                    if answer.series:
                        answered.add(place)
        yield from (place for place in asked if place not in answered)

    def look_at(self, uid: str, wanted: Mapping[str, str]) -> Look:
        """Look at the recorded minute of a board, with some values chosen and all of the others."""
        look = self._look(View(uid, "", wanted, "either"), "minute")
        choices = choose(self._asked, self.boards[uid], "all", wanted, look)
        return replace(look, choices=choices)

    def list_options(self, uid: str, variable: str, look: Look) -> Sequence[str]:
        """Return what a variable offers."""
        return list_options(self._asked, self.boards[uid], variable, look)

    def _look(self, view: View, over: Range) -> Look:
        board = self.boards[view.board]
        seconds = self.recording.end - self.recording.begin
        end = self.recording.end - (_BEFORE_SECONDS if view.before else 0)
        if over == "usual":
            seconds = read_seconds(str(board.json["time"]["from"]))
        return Look(end, seconds, {}, is_hurried=over == "hurried")
