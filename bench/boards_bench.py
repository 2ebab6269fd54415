"""What boards cost when they open, on 64 machines of 8 accelerators and 6 hours (goal 23).

Prometheus holds the past that `fleet.copies` makes; nothing is scraped meanwhile. A board is asked
as a browser does it with Grafana: variables first, then annotations and the panels of open rows,
six at a time, with the steps of a page 1440 pixels wide that shows all 6 hours. What Grafana would
ask is found out once; the rounds that are measured send it again.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.figures import Figures, is_quick, percentile, spread
from bench.processes import Tree
from bench.subjects import find_program
from fleet.copies import BLOCK_SECONDS, DEVICES, STEP_SECONDS, Fleet, write_blocks
from grafana.build.queries import find_metrics
from tests.integration.dashboards.live.choosing import choose
from tests.integration.dashboards.live.grafana import Asked, Look, ask
from tests.integration.dashboards.live.server import Server
from tests.unit.dashboards.boards import DASHBOARDS, Board, Question, read_boards

HOSTS, QUICK_HOSTS = 64, 8
SECONDS = 3 * BLOCK_SECONDS
ROUNDS, QUICK_ROUNDS = 7, 3
SLOWEST = 3
AT_ONCE = 6

# The goals, in the order of the boards.
_GOALS = {
    "trainvitals-fleet": "23a",
    "trainvitals-run": "23b",
    "trainvitals-accelerators": "23c",
    "trainvitals-host": "23d",
    "trainvitals-containers": "23e",
}


def find_wanted() -> set[str]:
    """Return the names of all metrics that a board asks for."""
    paths = DASHBOARDS.glob("*.json")
    return {name for path in paths for name in find_metrics(path.read_text(encoding="utf-8"))}


@contextmanager
def history(fleet: Fleet, figures: Figures) -> Iterator[Server]:
    """Start a Prometheus that holds a fleet's past."""
    with tempfile.TemporaryDirectory(prefix="trainvitals-bench-") as path:
        directory = Path(path)
        (directory / "data").mkdir()
        began = time.monotonic()
        written = write_blocks(
            fleet,
            find_wanted(),
            directory / "data",
            promtool=Path(find_program("promtool")),
            report=print,
        )
        figures.tell("written in", f"{time.monotonic() - began:.0f} s")
        figures.tell("not made, asked by closed rows", ", ".join(sorted(written.missing)))
        with Server(Path(find_program("prometheus")), directory) as server:
            check_history(server, fleet)
            size = f"{written.series} series, {written.samples / 1e6:.0f} million samples"
            figures.tell("history", f"{fleet.hosts} machines of {DEVICES} accelerators, {size}")
            yield server


def check_history(server: Server, fleet: Fleet) -> None:
    """Check that all machines are there.

    Raises:
        RuntimeError: They are not.
    """
    answer = server.ask("query", query="count(up)", time=str(fleet.end - STEP_SECONDS))
    found = [each["value"][1] for each in answer["data"]["result"]]
    if found != [str(fleet.hosts)]:
        raise RuntimeError(f"{fleet.hosts} machines were written, and {found} are there")


class Request(NamedTuple):
    """A question to Prometheus.

    Attributes:
        place: What asks it.
        path: Below `/api/v1/`.
        method: `GET` or `POST`.
        words: Its parameters.
    """

    place: str
    path: str
    method: str
    words: dict[str, Any]


class Answer(NamedTuple):
    """What came back.

    Attributes:
        request: The question.
        series: How many series it has.
        seconds: How long it took.
    """

    request: Request
    series: int
    seconds: float


class Load(NamedTuple):
    """A board that was opened.

    Attributes:
        answers: What came back to its annotations and panels.
        variables: What came back to its variables.
        seconds: How long all took together.
        cpu_seconds: What that took of Prometheus' processor time.
    """

    answers: Sequence[Answer]
    variables: Sequence[Answer]
    seconds: float
    cpu_seconds: float

    @property
    def panels(self) -> dict[str, list[Answer]]:
        """The answers by panel; those of annotations are left out."""
        panels: dict[str, list[Answer]] = {}
        for answer in self.answers:
            if ", query " in answer.request.place:
                panels.setdefault(answer.request.place.partition(", query ")[0], []).append(answer)
        return panels


class Listener:
    """A Prometheus that notes what it is asked.

    Args:
        server: The one that answers.

    Attributes:
        place: What asks at present.
        requests: What was asked.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.place = ""
        self.requests: list[Request] = []

    def ask(self, path: str, method: str = "POST", **words: Any) -> dict[str, Any]:
        """Return the server's answer."""
        self.requests.append(Request(self.place, path, method, words))
        return self._server.ask(path, method, **words)


class Plan(NamedTuple):
    """What a board asks when it opens: its variables in turn, then the rest side by side."""

    variables: Sequence[Request]
    queries: Sequence[Request]


def plan_opening(server: Server, board: Board, look: Look) -> Plan:
    """Return what a board asks, found out by asking it once."""
    listener = Listener(server)
    asked = Asked(listener)
    choices = choose(asked, board, "all", {}, look)
    # Where values can be had in two ways, the tests compare both; Grafana asks the first.
    variables = [request for request in listener.requests if request.path != "series"]
    listener.requests.clear()
    look = Look(look.end, look.seconds, choices, look.scrape_seconds)
    for question in filter(is_asked, board.questions):
        listener.place = str(question.place)
        ask(Asked(listener), question, look)
    return Plan(variables, listener.requests)


def is_asked(question: Question) -> bool:
    """Return whether a panel in an open row asks it, or an annotation that is switched on."""
    if question.kind == "annotation":
        return bool(question.json.get("enable"))
    panel = question.panel
    return panel is not None and not panel.is_closed and not question.json.get("hide")


def open_board(server: Server, tree: Tree, plan: Plan) -> Load:
    """Ask what a board asks.

    Raises:
        RuntimeError: A query failed.
    """
    before, began = tree.cpu_seconds(), time.perf_counter()
    variables = [send(server, request) for request in plan.variables]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda request: send(server, request), plan.queries))
    seconds = time.perf_counter() - began
    return Load(answers, variables, seconds, tree.cpu_seconds() - before)


def send(server: Server, request: Request) -> Answer:
    """Ask one question."""
    began = time.perf_counter()
    answer = server.ask(request.path, request.method, **request.words)
    if answer["status"] != "success":
        raise RuntimeError(f"{request.place}: {answer.get('error')}")
    data = answer["data"]
    series = data["result"] if isinstance(data, dict) else data
    return Answer(request, len(series), time.perf_counter() - began)


def load_in_turn(server: Server, look: Look, rounds: int) -> dict[str, list[Load]]:
    """Open all boards so many times, one after the other."""
    tree = Tree(server.pid)
    plans = {board.uid: plan_opening(server, board, look) for board in read_boards()}
    opened: dict[str, list[Load]] = {uid: [] for uid in _GOALS}
    for _ in range(rounds):
        for uid, loads in opened.items():
            loads.append(open_board(server, tree, plans[uid]))
    return opened


def list_slowest(loads: Sequence[Load]) -> str:
    """Name the queries that take longest, with their medians."""
    seconds: dict[str, list[float]] = {}
    for answer in (one for load in loads for one in load.answers):
        seconds.setdefault(answer.request.place, []).append(answer.seconds)
    medians = {place: statistics.median(several) for place, several in seconds.items()}
    slowest = sorted(medians, key=lambda place: -medians[place])[:SLOWEST]
    return ", ".join(f"{place} {medians[place] * 1e3:.0f} ms" for place in slowest)


def find_widest(load: Load) -> str:
    """Name the graph with most series."""
    counts = {
        place: sum(one.series for one in answers)
        for place, answers in load.panels.items()
        if any(one.request.path == "query_range" for one in answers)
    }
    widest = max(counts, key=lambda place: counts[place])
    return f"{widest} {counts[widest]}"


def report(figures: Figures, opened: dict[str, list[Load]]) -> None:
    """Enter the figures."""
    for uid, loads in opened.items():
        first = loads[0]
        asked = len(first.answers) + len(first.variables)
        figures.reach(
            _GOALS[uid],
            spread([load.seconds for load in loads]),
            note=f"{asked} queries; the first time {first.seconds:.2f} s; Prometheus computes for "
            f"{statistics.median(load.cpu_seconds for load in loads):.2f} s",
        )
        empty = sum(not any(one.series for one in answers) for answers in first.panels.values())
        figures.tell(f"{uid}, slowest queries", list_slowest(loads))
        figures.tell(f"{uid}, most series in a graph", find_widest(first))
        figures.tell(f"{uid}, panels without data", f"{empty} of {len(first.panels)}")
    each = [
        1e3 * answer.seconds
        for loads in opened.values()
        for load in loads
        for answer in load.answers
    ]
    half = f"half of {len(each)} within {statistics.median(each):.0f} ms"
    figures.reach("23f", percentile(each, 0.95), note=f"{half}, the slowest {max(each):.0f} ms")


def main() -> None:
    """Measure."""
    quick = is_quick("boards")
    figures = Figures("boards", quick=quick)
    end = int(time.time()) // BLOCK_SECONDS * BLOCK_SECONDS
    fleet = Fleet(QUICK_HOSTS if quick else HOSTS, SECONDS, end)
    look = Look(end - STEP_SECONDS, SECONDS - STEP_SECONDS, {}, scrape_seconds=STEP_SECONDS)
    with history(fleet, figures) as server:
        report(figures, load_in_turn(server, look, QUICK_ROUNDS if quick else ROUNDS))
    figures.write()


if __name__ == "__main__":
    main()
