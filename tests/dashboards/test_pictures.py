"""The pictures of the boards show what Grafana would show, and refuse what they do not know."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import isnan, nan
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from PIL import Image

from docs.build.pictures.__main__ import main, save
from docs.build.pictures.asking import Load, count_pixels, open_board
from docs.build.pictures.colours import colour_series
from docs.build.pictures.events import list_events
from docs.build.pictures.page import CAPTION, draw_board
from docs.build.pictures.prometheus import Prometheus
from docs.build.pictures.rows import read_sheet
from docs.build.pictures.times import Window, find_pace
from docs.build.pictures.units import write_value
from docs.build.pictures.variables import Choice, write_variables
from grafana.build.layout import Annotation, Board, Row, Variable, describe_board
from grafana.build.palette import CRITICAL, OK, WARNING, State
from grafana.build.panels import (
    About,
    Column,
    Key,
    bar_gauge,
    dash_series,
    heatmap,
    stat,
    state_timeline,
    table,
    timeseries,
)
from grafana.build.queries import in_buckets, now, over_time

ROOT = Path(__file__).parents[2]
END = 1_700_000_040
WINDOW = Window(END - 3600, END)
ABOUT = About("It is.", "it is.", "do.")
STATES = (State(1, "training", OK), State(9, "died", CRITICAL))

# What the stand-in answers, by how a query begins: labels, and a value or the values over time.
ANSWERS: dict[str, list[tuple[dict[str, str], list[float]]]] = {
    "busy": [({"device": "0"}, [0.5] * 100 + [0.634]), ({"device": "1"}, [0.2] * 101)],
    "state": [({"run": "bert"}, [1.0] * 50 + [9.0] * 51)],
    "held": [({"host": "a", "device": "0"}, [2.0**35]), ({"host": "a", "device": "1"}, [2.0**34])],
    "heat": [({"host": "a", "device": "1"}, [91.0])],
    "full": [({"mount": "/data"}, [0.95])],
    "buckets": [({"le": "0.5"}, [3.0] * 101), ({"le": "+Inf"}, [8.0] * 101)],
    "ALERTS": [({"alertname": "TooHot"}, [1.0] * 30 + [nan] * 41 + [1.0] * 30)],
}


class StandIn(BaseHTTPRequestHandler):
    """A Prometheus that knows a few queries, with a point each 36 seconds of an hour."""

    def do_POST(self) -> None:
        """Answer a query."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        query = parse_qs(body)["query"][0]
        self.server.asked.append(query)  # type: ignore[attr-defined]
        if query.startswith("wrong"):
            return self._say({"status": "error", "error": "no such thing"})
        found = next((ANSWERS[key] for key in ANSWERS if query.startswith(key)), [])
        is_range = self.path.endswith("query_range")
        results = [self._write(labels, values, is_range) for labels, values in found]
        kind = "matrix" if is_range else "vector"
        return self._say({"status": "success", "data": {"resultType": kind, "result": results}})

    def do_GET(self) -> None:
        """Answer what values a label has."""
        self._say({"status": "success", "data": ["gpu-10", "gpu-2"]})

    def _write(self, labels: dict[str, str], values: list[float], is_range: bool):  # noqa: FBT001
        if not is_range:
            return {"metric": labels, "value": [END, str(values[-1])]}
        first = END - 36 * (len(values) - 1)
        points = [[first + 36 * at, str(v)] for at, v in enumerate(values) if not isnan(v)]
        return {"metric": labels, "values": points}

    def _say(self, answer: object) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """A running stand-in, with the queries that it was asked."""
    with ThreadingHTTPServer(("127.0.0.1", 0), StandIn) as running:
        running.asked = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def prometheus(server: ThreadingHTTPServer) -> Prometheus:
    """Give a client of it."""
    return Prometheus(f"http://127.0.0.1:{server.server_port}")


def write_board(*panels, annotations=(), variables=(), closed=()) -> dict:
    """Give the JSON of a board with an open row, and a closed one."""
    rows = (Row("Open", panels), Row("Closed", closed, is_collapsed=True))
    return describe_board(
        Board("trainvitals-try", "Vitals / Try", "Is it?", tuple(variables), annotations, rows)
    )


def open_one(prometheus: Prometheus, *panels, **parts) -> Load:
    """Ask what a board of these panels asks."""
    return open_board(write_board(*panels, **parts), prometheus, WINDOW)


def read_texts(load: Load) -> list[str]:
    """Draw a board and give every text on its picture."""
    canvas = draw_board(load)
    return [text.get_text() for axes in canvas.figure.axes for text in axes.texts]


BUSY = timeseries("Busy", ABOUT, over_time("busy{}", "gpu {{device}}"), empty="no GPU here")


@pytest.mark.parametrize(
    ("seconds", "pixels", "step", "rate"),
    [
        (3600, 464, 10, 20),
        (6 * 3600, 464, 60, 65),
        (7 * 86_400, 1408, 300, 305),
        (300, 1408, 5, 20),
    ],
)
def test_a_step_is_rounded_as_grafana_rounds_it(seconds, pixels, step, rate):
    """And `$__rate_interval` is a step and a scrape, or four scrapes."""
    pace = find_pace(Window(END - seconds, END), pixels)
    assert (pace.step, pace.rate_seconds) == (step, rate)
    assert pace.start % step == pace.end % step == 0


def test_a_third_of_the_page_has_464_pixels():
    """A page is 1440 wide; gaps of 8 stand between panels."""
    assert count_pixels({"gridPos": {"w": 8}}) == 464


# Recorded from @grafana/data 13.2.2: getDisplayProcessor.
RECORDED = """
short | 0.1234 | 0.123
short | 25120 | 25.1 K
locale | 25120 | 25,120
percentunit | 0.634 | 63.4%
percentunit | 12.345 | 1235%
bytes | 85900000000 | 80.0 GiB
bytes | 512 | 512 B
Bps | 1234.5 | 1.23 kB/s
s | 0.00042 | 420 µs
s | 12.345 | 12.3 s
s | 86400 | 1 day
s | 90061 | 1.04 days
celsius | 63.44 | 63.4 °C
watt | 25120 | 25.1 kW
watth | 0.5 | 500 mWh
hertz | 1500000 | 1.50 MHz
cps | 1234.5 | 1.23K c/s
sci | 0.00042 | 4.2e-4
bool_yes_no | 1 | Yes
suffix:samples/s | 25120 | 25120 samples/s
short | 99.95 | 100.0
short | -3.5 | -3.50
"""


@pytest.mark.parametrize("line", RECORDED.strip().splitlines())
def test_a_value_is_written_as_grafana_writes_it(line):
    """With its unit, and three digits that count."""
    unit, value, text = line.split(" | ")
    assert write_value(float(value), unit) == text


def test_an_age_is_written_as_grafana_writes_it():
    """Recorded from the same: 45 seconds are a minute, 22 hours a day."""
    ages = [(44, "a few seconds ago"), (90, "2 minutes ago"), (2700, "an hour ago")]
    for seconds, text in [*ages, (79_200, "a day ago"), (-5400, "in 2 hours")]:
        assert write_value(1000 * (END - seconds), "dateTimeFromNow", now=END) == text


def test_a_series_gets_the_colour_that_grafana_gives_its_name():
    """Recorded from the same: getFieldSeriesColor of `palette-classic-by-name`."""
    colours = {"user": "#FA6400", "node-00": "#82B5D8", "load, 1 min": "#F9934E"}
    assert {name: colour_series(name, {}) for name in colours} == colours


def test_variables_are_written_as_grafana_writes_them():
    """One value as it is, several as a regular expression, all as the board says."""
    choices = {
        "run": Choice(("bert (1)",)),
        "host": Choice(("a.b", "c"), is_multiple=True),
        "job": Choice(("x",), is_multiple=True, every=".+"),
    }
    text = "$run ${run:regex} $host $job $1 $__range"
    expected = r"bert (1) bert \(1\) (a\\.b|c) .+ $1 3600s"
    assert write_variables(text, choices, {"__range": "3600s"}) == expected


def test_the_first_value_is_chosen_in_natural_order(prometheus, server):
    """`gpu-2` stands before `gpu-10`."""
    variable = Variable("host", "Host", "label_values(up, host)", "Machines")
    panel = stat("One", ABOUT, now('busy{host=~"$host"}'), empty="no GPU here")
    load = open_one(prometheus, panel, variables=[variable])
    assert load.choices["host"].values == ("gpu-2",)
    assert server.asked == ['busy{host=~"gpu-2"}']


def test_a_closed_row_asks_nothing(prometheus, server):
    """Until it is opened."""
    load = open_one(prometheus, closed=(BUSY,))
    assert server.asked == []
    assert "(1 panel, closed)" in read_texts(load)


def test_rows_are_put_together_by_their_labels(prometheus):
    """A device that one query does not tell of has an empty cell there."""
    keys = (Key("host", "Host"), Key("device", "Device"))
    columns = (Column("Held", "held{}", "bytes"), Column("Heat", "heat{}", "celsius"))
    load = open_one(
        prometheus, table("All", ABOUT, keys=keys, columns=columns, sort_by="Held", empty="no GPU")
    )
    (panel,) = [one for one in load.board["panels"] if one["type"] == "table"]
    sheet = read_sheet(panel, load.panels[panel["id"]])
    assert [column.title for column in sheet.columns] == ["Host", "Device", "Held", "Heat"]
    assert [row.get("Heat") for row in sheet.rows] == [None, 91.0]
    assert [row["Device"] for row in sheet.rows] == ["0", "1"]


def test_an_alert_that_ends_and_comes_back_is_two_regions(prometheus):
    """A region ends where the next point is more than a step away."""
    alerts = Annotation("Alerts", "ALERTS{}", CRITICAL, "{{alertname}}", "")
    board = write_board(annotations=(alerts,))
    board["annotations"]["list"][1]["step"] = "36s"
    events = list_events(open_board(board, prometheus, WINDOW))
    assert [event.title for event in events] == ["TooHot", "TooHot"]
    assert [event.end - event.start for event in events] == [29 * 36, 29 * 36]


def test_every_kind_of_panel_is_drawn(prometheus, tmp_path):
    """With its title, its values in their units, its states by their names."""
    steps = ((None, OK), (0.6, WARNING))
    load = open_one(
        prometheus,
        stat("Now", ABOUT, now("busy{device='0'}"), unit="percentunit", steps=steps, empty="no"),
        stat("None", ABOUT, now("nothing{}"), empty="no accelerator here"),
        BUSY,
        timeseries(
            "Limits",
            ABOUT,
            over_time("busy{}", "limit {{device}}"),
            unit="percentunit",
            steps=steps,
            least=0,
            most=1,
            is_stacked=True,
            overrides=[dash_series("limit", CRITICAL)],
            empty="no GPU here",
        ),
        timeseries("Bars", ABOUT, over_time("busy{}", "b"), is_bars=True, empty="no GPU here"),
        timeseries("Log", ABOUT, over_time("busy{}", "l"), is_logarithmic=True, empty="no GPU"),
        timeseries("Empty", ABOUT, over_time("nothing{}", ""), empty="no run in this range"),
        state_timeline("States", ABOUT, over_time("state{}", "{{run}}"), states=STATES, empty="no"),
        bar_gauge(
            "Full",
            ABOUT,
            now("full{}", "{{mount}}"),
            unit="percentunit",
            steps=steps,
            empty="no disk",
        ),
        heatmap("Spread", ABOUT, in_buckets("buckets{}"), unit="percentunit", empty="no GPU"),
        table(
            "Table",
            ABOUT,
            keys=(Key("device", "Device"),),
            columns=(Column("Held", "held{}", "bytes", look="gauge", most=2.0**36),),
            empty="no GPU here",
        ),
        annotations=(Annotation("Alerts", "ALERTS{}", CRITICAL, "{{alertname}}", ""),),
    )
    texts = read_texts(load)
    for text in ("Now", "63.4%", "no accelerator here", "gpu 0", "Mean", "0.501", "training"):
        assert text in texts
    for text in ("no run in this range", "bert", "died", "/data", "95%", "32 GiB", "5", CAPTION):
        assert text in texts
    target = tmp_path / "try.png"
    size = save(draw_board(load), target)
    with Image.open(target) as picture:
        assert picture.width == 1440
        assert size < 300_000


def test_a_query_that_fails_is_shown_and_told(prometheus, server, tmp_path, monkeypatch, capsys):
    """The picture has the error, and the command ends with 1."""
    panel = stat("Wrong", ABOUT, now("wrong{}"), empty="no GPU here")
    board = write_board(panel)
    assert "no such thing: wrong{}" in " ".join(read_texts(open_board(board, prometheus, WINDOW)))
    (tmp_path / "trainvitals-try.json").write_text(json.dumps(board))
    monkeypatch.setattr("docs.build.pictures.__main__.BOARDS", tmp_path)
    where = f"--prometheus=http://127.0.0.1:{server.server_port}"
    assert main([where, f"--output={tmp_path}", "try"]) == 1
    assert "Open / Wrong: no such thing" in capsys.readouterr().err


def test_nothing_is_drawn_that_is_not_known(prometheus):
    """A kind of panel, a unit, a transformation or a colour: it is refused by its name."""
    with pytest.raises(ValueError, match="'furlongs' is not known"):
        write_value(1.0, "furlongs")
    load = open_one(prometheus, BUSY)
    (panel,) = [one for one in load.board["panels"] if one["type"] == "timeseries"]
    panel["type"] = "candlestick"
    with pytest.raises(ValueError, match="'Busy' is of the kind 'candlestick'"):
        draw_board(load)


@pytest.mark.parametrize("path", sorted((ROOT / "grafana/dashboards").glob("*.json")), ids=str)
def test_every_board_has_its_picture(path):
    """It is in the page of the boards, small enough, and said to be no picture of Grafana."""
    name = path.stem.removeprefix("trainvitals-")
    page = (ROOT / "docs/dashboards.md").read_text(encoding="utf-8")
    picture = ROOT / f"docs/pictures/{name}.png"
    assert f"](pictures/{name}.png)" in page
    assert page.count("not Grafana itself") >= 5
    assert picture.stat().st_size < 300_000
    with Image.open(picture) as image:
        assert image.width == 1440


def read_page() -> str:
    """Read the page of the boards."""
    return (ROOT / "docs/dashboards.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((ROOT / "grafana/dashboards").glob("*.json")), ids=str)
def test_the_page_has_the_rows_of_every_board(path):
    """In their order, and says which are closed."""
    board = json.loads(path.read_text(encoding="utf-8"))
    heading = board["title"].removeprefix("Vitals / ")
    section = read_page().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    listed = [
        line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if "|" in line
    ]
    rows = [one for one in board["panels"] if one["type"] == "row"]
    titles = [one["title"] + (" (closed)" if one["collapsed"] else "") for one in rows]
    assert listed[2:] == titles


def test_the_page_has_every_switch_and_variable():
    """By the names under which they stand at the top of a board."""
    boards = [json.loads(path.read_text()) for path in (ROOT / "grafana/dashboards").glob("*.json")]
    labels = {one["label"] for board in boards for one in board["templating"]["list"]}
    switches = {
        one["name"]
        for board in boards
        for one in board["annotations"]["list"]
        if not one.get("builtIn")
    }
    cells = {
        word.strip()
        for line in read_page().splitlines()
        if line.startswith("| ")
        for word in line.split(" | ")[0].removeprefix("| ").split(",")
    }
    assert labels | switches <= cells


def test_the_panels_that_the_page_names_exist():
    """What stands in bold in the walk is a panel or a board."""
    boards = [json.loads(path.read_text()) for path in (ROOT / "grafana/dashboards").glob("*.json")]
    panels = [one for board in boards for one in board["panels"]]
    titles = {panel["title"] for one in panels for panel in (one, *one.get("panels", ()))}
    walk = read_page().partition("\n## From ")[2].partition("\n## ")[0]
    named = set(re.findall(r"\*\*(.+?)\*\*", walk))
    assert len(named) > 8
    assert named - titles == {"Fleet"}
