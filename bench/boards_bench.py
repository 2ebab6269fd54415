"""Times to load each dashboard with 64 machines of 8 accelerators over 6 hours (goal 23).

Prometheus holds the history that `fleet.copies` writes, and scrapes nothing during the benchmark.
Each dashboard is loaded as Grafana loads it in a browser: the variables come first, then the
annotations and the panels of open rows, six queries at a time, with the query step of a page 1440
pixels wide that shows all 6 hours. The queries of each dashboard are determined once and sent again
in each measured round.
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
    """Return the names of all metrics that any dashboard queries."""
    paths = DASHBOARDS.glob("*.json")
    return {name for path in paths for name in find_metrics(path.read_text(encoding="utf-8"))}


@contextmanager
def history(fleet: Fleet, figures: Figures) -> Iterator[Server]:
    """Start a Prometheus that holds the history of a fleet."""
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
    """Check that Prometheus has data of every machine.

    Raises:
        RuntimeError: Data of a machine is missing.
    """
    answer = server.ask("query", query="count(up)", time=str(fleet.end - STEP_SECONDS))
    found = [each["value"][1] for each in answer["data"]["result"]]
    if found != [str(fleet.hosts)]:
        raise RuntimeError(f"{fleet.hosts} machines were written, and {found} are there")


class Request(NamedTuple):
    """A request to the HTTP API of Prometheus.

    Attributes:
        place: The panel or annotation that sends the request.
        path: The path below `/api/v1/`.
        method: `GET` or `POST`.
        words: The request's parameters.
    """

    place: str
    path: str
    method: str
    words: dict[str, Any]


class Answer(NamedTuple):
    """A response of Prometheus.

    Attributes:
        request: The request that it answers.
        series: The number of series in the response.
        seconds: The duration of the request.
    """

    request: Request
    series: int
    seconds: float


class Load(NamedTuple):
    """One load of a dashboard.

    Attributes:
        answers: The responses to its annotations and panels.
        variables: The responses to its variables.
        seconds: The duration of all requests together.
        cpu_seconds: The CPU time that Prometheus used for them.
    """

    answers: Sequence[Answer]
    variables: Sequence[Answer]
    seconds: float
    cpu_seconds: float

    @property
    def panels(self) -> dict[str, list[Answer]]:
        """The responses by panel, without those of annotations."""
        panels: dict[str, list[Answer]] = {}
        for answer in self.answers:
            if ", query " in answer.request.place:
                panels.setdefault(answer.request.place.partition(", query ")[0], []).append(answer)
        return panels


class Listener:
    """A wrapper of a Prometheus server that records each request.

    Args:
        server: The server that answers the requests.

    Attributes:
        place: The panel or annotation whose requests are recorded at present.
        requests: The recorded requests.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.place = ""
        self.requests: list[Request] = []

    def ask(self, path: str, method: str = "POST", **words: Any) -> dict[str, Any]:
        """Record a request and return the server's response."""
        self.requests.append(Request(self.place, path, method, words))
        return self._server.ask(path, method, **words)


class Plan(NamedTuple):
    """The requests of a dashboard: the variables in turn, then the other queries in parallel."""

    variables: Sequence[Request]
    queries: Sequence[Request]


def plan_opening(server: Server, board: Board, look: Look) -> Plan:
    """Load a dashboard once and return the requests that it sends."""
    listener = Listener(server)
    asked = Asked(listener)
    choices = choose(asked, board, "all", {}, look)
    # `choose` requests some values in two ways and compares them; Grafana sends only the first.
    variables = [request for request in listener.requests if request.path != "series"]
    listener.requests.clear()
    look = Look(look.end, look.seconds, choices, look.scrape_seconds)
    for question in filter(is_asked, board.questions):
        listener.place = str(question.place)
        ask(Asked(listener), question, look)
    return Plan(variables, listener.requests)


def is_asked(question: Question) -> bool:
    """Return whether the query belongs to an enabled annotation or to a panel in an open row."""
    if question.kind == "annotation":
        return bool(question.json.get("enable"))
    panel = question.panel
    return panel is not None and not panel.is_closed and not question.json.get("hide")


def open_board(server: Server, tree: Tree, plan: Plan) -> Load:
    """Send the requests of a dashboard and return their timing.

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
    """Send one request and return the response with its timing."""
    began = time.perf_counter()
    answer = server.ask(request.path, request.method, **request.words)
    if answer["status"] != "success":
        raise RuntimeError(f"{request.place}: {answer.get('error')}")
    data = answer["data"]
    series = data["result"] if isinstance(data, dict) else data
    return Answer(request, len(series), time.perf_counter() - began)


def load_in_turn(server: Server, look: Look, rounds: int) -> dict[str, list[Load]]:
    """Load all dashboards in turn for the given number of rounds."""
    tree = Tree(server.pid)
    plans = {board.uid: plan_opening(server, board, look) for board in read_boards()}
    opened: dict[str, list[Load]] = {uid: [] for uid in _GOALS}
    for _ in range(rounds):
        for uid, loads in opened.items():
            loads.append(open_board(server, tree, plans[uid]))
    return opened


def list_slowest(loads: Sequence[Load]) -> str:
    """Return the names and median durations of the slowest queries."""
    seconds: dict[str, list[float]] = {}
    for answer in (one for load in loads for one in load.answers):
        seconds.setdefault(answer.request.place, []).append(answer.seconds)
    medians = {place: statistics.median(several) for place, several in seconds.items()}
    slowest = sorted(medians, key=lambda place: -medians[place])[:SLOWEST]
    return ", ".join(f"{place} {medians[place] * 1e3:.0f} ms" for place in slowest)


def find_widest(load: Load) -> str:
    """Return the name of the graph with the most series, and their number."""
    counts = {
        place: sum(one.series for one in answers)
        for place, answers in load.panels.items()
        if any(one.request.path == "query_range" for one in answers)
    }
    widest = max(counts, key=lambda place: counts[place])
    return f"{widest} {counts[widest]}"


def report(figures: Figures, opened: dict[str, list[Load]]) -> None:
    """Record the results of each dashboard."""
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
    """Run the benchmark and write its results."""
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
