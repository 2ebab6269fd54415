"""Visits to dashboards: the answers for each view with several choices and time ranges."""

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

# The recorded minute, the same with hurried queries, and the dashboard's default time range.
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
    """The dashboards and the answers to their queries, each of which is sent only once.

    Attributes:
        recording: The recording.
        boards: The dashboards by uid.
        expectations: The expected results.
    """

    recording: Recording
    boards: Mapping[str, Board]
    expectations: Expectations
    _asked: Asked = field(init=False)
    _known: dict[tuple[str, Way, Range], Sequence[Answer]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Create the client that remembers answers."""
        self._asked = Asked(self.recording.server)

    def visit(self, view: View, way: Way = "all", over: Range = "minute") -> Sequence[Answer]:
        """Return the answers to all queries of a view's dashboard."""
        key = (str(view), way, over)
        if key not in self._known:
            board = self.boards[view.board]
            look = self._look(view, over)
            choices = choose(self._asked, board, way, view.wanted, look)
            self._known[key] = ask_board(self._asked, board, replace(look, choices=choices))
        return self._known[key]

    def find_faults(self, view: View) -> Iterator[str]:
        """Yield the faults in the answers for a view, whatever the expected results are."""
        bounds = OF_A_FLEET if view.board == FLEET else OF_A_HOST
        for way, over in WAYS:
            for fault in judge(self.visit(view, way, over), bounds):
                # Over hours, the recorded minute gives a single value, which may be NaN.
                is_one_value = over == "usual" and fault.kind in ("nan", "stale")
                is_meant = self.expectations.is_meant(view.board, fault.kind, fault.place)
                if not is_one_value and not is_meant:
                    where = f"{fault.place} on {view.name} ({way}, {over})"
                    yield f"{where}: {fault.kind}: {fault.says}"

    def find_surprises(self, view: View) -> Iterator[str]:
        """Yield the panels that return data or nothing contrary to the expectations."""
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
        """Yield the empty panels of the first screen, with the texts that they show.

        A panel with one value a minute may be empty for the recorded minute, but not if hurried.
        """
        visits = [group_by_panel(self.visit(view, over=over)) for over in ("minute", "hurried")]
        for minute, hurried in zip(*visits, strict=True):
            if not (minute.panel.is_closed or minute.has_data or hurried.has_data):
                yield f"{minute.panel.title}: {minute.panel.defaults.get('noValue')}"

    def find_silent(self, uid: str) -> Iterator[str]:
        """Yield the queries that return nothing in any view, by row, panel and letter."""
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
        """Return a look at the recorded minute, with wanted values and all values of the others."""
        look = self._look(View(uid, "", wanted, "either"), "minute")
        choices = choose(self._asked, self.boards[uid], "all", wanted, look)
        return replace(look, choices=choices)

    def list_options(self, uid: str, variable: str, look: Look) -> Sequence[str]:
        """Return the options of a variable."""
        return list_options(self._asked, self.boards[uid], variable, look)

    def _look(self, view: View, over: Range) -> Look:
        board = self.boards[view.board]
        seconds = self.recording.end - self.recording.begin
        end = self.recording.end - (_BEFORE_SECONDS if view.before else 0)
        if over == "usual":
            seconds = read_seconds(str(board.json["time"]["from"]))
        return Look(end, seconds, {}, is_hurried=over == "hurried")
