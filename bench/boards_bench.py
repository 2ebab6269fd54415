"""What boards cost when they open, on 64 machines of 8 accelerators and 6 hours (goal 23).

Prometheus holds the past that `fleet_history` makes; nothing is scraped meanwhile. A board is asked
as a browser does it with Grafana: variables first, then annotations and the panels of open rows,
six at a time, with the steps of a page 1440 pixels wide that shows all 6 hours.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from bench.client import HOST
from bench.figures import Figures, is_quick, percentile, spread
from bench.fleet_history import BLOCK_SECONDS, DEVICES, STEP_SECONDS, Fleet, write_blocks
from bench.subjects import ROOT, START_SECONDS, Subject, find_port, find_program, run_subject
from docs.build.pictures.asking import Load, open_board
from docs.build.pictures.prometheus import Prometheus, write_request
from docs.build.pictures.times import Window
from grafana.build.queries import find_metrics

HOSTS, QUICK_HOSTS = 64, 8
SECONDS = 3 * BLOCK_SECONDS
ROUNDS, QUICK_ROUNDS = 7, 3
SLOWEST = 3

# The goals, in the order of the boards.
_GOALS = {
    "trainvitals-fleet": "23a",
    "trainvitals-run": "23b",
    "trainvitals-accelerators": "23c",
    "trainvitals-host": "23d",
    "trainvitals-containers": "23e",
}


def read_boards() -> dict[str, dict[str, object]]:
    """Read every board by its uid."""
    paths = (ROOT / "grafana/dashboards" / f"{uid}.json" for uid in _GOALS)
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def find_wanted() -> set[str]:
    """Name every metric that a board asks for."""
    paths = (ROOT / "grafana/dashboards").glob("*.json")
    return {name for path in paths for name in find_metrics(path.read_text(encoding="utf-8"))}


@contextmanager
def history(fleet: Fleet, figures: Figures) -> Iterator[tuple[Prometheus, Subject]]:
    """Start a Prometheus that holds a fleet's past."""
    with tempfile.TemporaryDirectory(prefix="trainvitals-bench-") as directory:
        data, config = Path(directory) / "data", Path(directory) / "prometheus.yml"
        data.mkdir()
        began = time.monotonic()
        written = write_blocks(
            fleet, find_wanted(), data, report=lambda text: print(f"       {text}")
        )
        figures.tell("written in", f"{time.monotonic() - began:.0f} s")
        figures.tell("not made, asked by closed rows", ", ".join(sorted(written.missing)))
        config.write_text("{}")
        port = find_port()
        command = [
            find_program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={data}",
            f"--web.listen-address={HOST}:{port}",
        ]
        with run_subject("prometheus", command, port) as subject:
            server = Prometheus(f"http://{HOST}:{port}")
            wait_until_ready(server, fleet)
            size = f"{written.series} series, {written.samples / 1e6:.0f} million samples"
            figures.tell("history", f"{fleet.hosts} machines of {DEVICES} accelerators, {size}")
            yield server, subject


def wait_until_ready(server: Prometheus, fleet: Fleet) -> None:
    """Wait until all machines are there.

    Raises:
        RuntimeError: They are not.
    """
    question = [("query", "count(up)"), ("time", fleet.end - STEP_SECONDS)]
    until = time.monotonic() + START_SECONDS
    while server.fetch(write_request("query", question))[0] != HTTPStatus.OK:
        if time.monotonic() > until:
            raise RuntimeError(f"Prometheus is not ready within {START_SECONDS:.0f} s")
        time.sleep(0.1)
    found = server.ask(write_request("query", question))["result"]
    if [one["value"][1] for one in found] != [str(fleet.hosts)]:
        raise RuntimeError(f"{fleet.hosts} machines were written, and {found} are there")


class Opened(NamedTuple):
    """A board that was opened.

    Attributes:
        load: What it got, and when.
        cpu_seconds: What that took of Prometheus' processor time.
    """

    load: Load
    cpu_seconds: float


def load_in_turn(
    server: Prometheus, subject: Subject, window: Window, rounds: int
) -> dict[str, list[Opened]]:
    """Open all boards so many times, one after the other.

    Raises:
        RuntimeError: A query failed.
    """
    opened: dict[str, list[Opened]] = {uid: [] for uid in _GOALS}
    boards = read_boards()
    for _ in range(rounds):
        for uid, board in boards.items():
            before = subject.tree.cpu_seconds()
            load = open_board(board, server, window)
            for answer in (one for one in load.answers if one.error):
                raise RuntimeError(f"{uid}: {answer.query.place}: {answer.error}")
            opened[uid].append(Opened(load, subject.tree.cpu_seconds() - before))
    return opened


def list_slowest(loads: Sequence[Load]) -> str:
    """Name the queries that take longest, with their medians."""
    seconds: dict[str, list[float]] = {}
    for answer in (one for load in loads for one in load.answers):
        place = f"{answer.query.place} {answer.query.target.get('refId', '')}".strip()
        seconds.setdefault(place, []).append(answer.seconds)
    medians = {place: statistics.median(several) for place, several in seconds.items()}
    slowest = sorted(medians, key=lambda place: -medians[place])[:SLOWEST]
    return ", ".join(f"{place} {medians[place] * 1e3:.0f} ms" for place in slowest)


def find_widest(load: Load) -> str:
    """Name the graph with most series."""
    counts = {
        answers[0].query.place: sum(len(one.series) for one in answers)
        for answers in load.panels.values()
        if any(one.query.request.path == "query_range" for one in answers)
    }
    widest = max(counts, key=lambda place: counts[place])
    return f"{widest} {counts[widest]}"


def report(figures: Figures, opened: dict[str, list[Opened]]) -> None:
    """Enter the figures."""
    for uid, several in opened.items():
        first, loads = several[0].load, [one.load for one in several]
        asked = len(first.answers) + len(first.variable_seconds)
        figures.reach(
            _GOALS[uid],
            spread([load.seconds for load in loads]),
            note=f"{asked} queries; the first time {first.seconds:.2f} s; Prometheus computes for "
            f"{statistics.median(one.cpu_seconds for one in several):.2f} s",
        )
        empty = sum(not any(one.series for one in answers) for answers in first.panels.values())
        figures.tell(f"{uid}, slowest queries", list_slowest(loads))
        figures.tell(f"{uid}, most series in a graph", find_widest(first))
        figures.tell(f"{uid}, panels without data", f"{empty} of {len(first.panels)}")
    each = [
        1e3 * answer.seconds
        for several in opened.values()
        for one in several
        for answer in one.load.answers
    ]
    half = f"half of {len(each)} within {statistics.median(each):.0f} ms"
    figures.reach("23f", percentile(each, 0.95), note=f"{half}, the slowest {max(each):.0f} ms")


def main() -> None:
    """Measure."""
    quick = is_quick("boards")
    figures = Figures("boards", quick=quick)
    end = int(time.time()) // BLOCK_SECONDS * BLOCK_SECONDS
    fleet = Fleet(QUICK_HOSTS if quick else HOSTS, SECONDS, end)
    window = Window(end - SECONDS, end - STEP_SECONDS, STEP_SECONDS)
    with history(fleet, figures) as (server, subject):
        rounds = QUICK_ROUNDS if quick else ROUNDS
        report(figures, load_in_turn(server, subject, window, rounds))
    figures.write()


if __name__ == "__main__":
    main()
