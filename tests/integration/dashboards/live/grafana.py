"""What Grafana sends to Prometheus when a board is opened, and what comes back.

As Grafana 13.2 and its Prometheus data source do it: how the step follows from the time range and
the width of a panel, what `$__rate_interval` becomes, how the values of variables are found and
written into queries, that a range begins at a multiple of its step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.integration.dashboards.live.hurry import hurry
from tests.integration.dashboards.live.server import Json, Server
from tests.unit.dashboards.boards import Board, Question
from tests.unit.dashboards.filling import VARIABLE

Samples = tuple[tuple[float, float], ...]

SCREEN_PIXELS, COLUMNS = 1440, 24
_WORKERS = 4
_LEAST_STEPS = 5
_FRESH_STEPS = 10
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"(\d+)(ms|[smhdw])")
_SPECIAL_IN_STRINGS = re.compile(r"[$^*{}\[\]'+?.()|]")
_SPECIAL = re.compile(r"[\\^$*+?.()|\[\]{}/]")
# Below how many seconds an interval becomes which: `roundInterval` of @grafana/data.
_ROUNDED = (
    *((0.75, 0.5), (1.5, 1), (3.5, 2), (7.5, 5), (12.5, 10), (17.5, 15), (25, 20), (45, 30)),
    *((90, 60), (210, 120), (450, 300), (750, 600), (1050, 900), (1500, 1200), (2700, 1800)),
    *((5400, 3600), (9000, 7200), (16200, 10800), (32400, 21600), (64800, 43200)),
    *((345600, 86400), (604800, 86400)),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is chosen for a variable.

    Attributes:
        values: The values.
        is_multiple: Whether it may have several.
        all_value: What stands for all of them, where all are chosen and something does.
    """

    values: tuple[str, ...]
    is_multiple: bool = False
    all_value: str = ""

    def write(self, style: str = "") -> str:
        """Write it into a query; `style` is what stands behind the colon in `${name:style}`.

        Raises:
            ValueError: The style is none that our boards have.
        """
        if self.all_value:
            return self.all_value
        match style:
            case "":
                escape = _escape_in_strings if self.is_multiple else _escape_backslashes
            case "regex":
                escape = _escape
            case "raw":
                escape = str
            case _:
                raise ValueError(style)
        written = [escape(value) for value in self.values]
        return written[0] if len(written) == 1 else f"({'|'.join(written)})"


Choices = Mapping[str, Choice]


@dataclass(frozen=True, slots=True)
class Look:
    """What is on the screen: a time range and what is chosen.

    Attributes:
        end: Where the time range ends, Unix seconds.
        seconds: How long it is.
        choices: What is chosen for each variable of the board.
        scrape_seconds: What the data source says is the scrape interval.
        is_hurried: Whether what is sent looks back a sixtieth as far; see `hurry.py`.
    """

    end: float
    seconds: float
    choices: Choices
    scrape_seconds: float = 1.0
    is_hurried: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer.

    Attributes:
        labels: Its labels.
        samples: Times and values.
    """

    labels: Mapping[str, str]
    samples: Samples


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        question: What was asked.
        expr: The PromQL that was sent.
        series: The series.
        error: What Prometheus complains of; empty: nothing.
        until: How old its last sample may be for the value of now, Unix seconds.
    """

    question: Question
    expr: str
    until: float
    series: tuple[Series, ...] = ()
    error: str = ""


@dataclass
class Asked:
    """Asks Prometheus, and asks nothing twice.

    Attributes:
        server: The Prometheus.
    """

    server: Server
    _known: dict[tuple[str, ...], Json] = field(default_factory=dict)

    def ask(self, path: str, method: str = "POST", **words: str | Sequence[str]) -> Json:
        """Ask the API, or remember the answer."""
        key = (path, *(f"{name}={value}" for name, value in words.items()))
        if key not in self._known:
            self._known[key] = self.server.ask(path, method, **words)
        return self._known[key]


def ask_board(asked: Asked, board: Board, look: Look) -> tuple[Answer, ...]:
    """Ask everything that a board asks, its annotations and closed rows too, but no variables."""
    questions = [one for one in board.questions if one.kind != "variable" and not _is_hidden(one)]
    with ThreadPoolExecutor(_WORKERS) as pool:
        return tuple(pool.map(lambda one: ask(asked, one, look), questions))


def ask(asked: Asked, question: Question, look: Look) -> Answer:
    """Ask one query of a panel, or an annotation."""
    seconds = _find_range(question, look)
    step = find_step(question, seconds, look)
    expr = write_query(question.expr, look, step, seconds)
    until = look.end - _FRESH_STEPS * max(step, look.scrape_seconds)
    if question.json.get("instant") and not question.json.get("range"):
        found = asked.ask("query", query=expr, time=f"{look.end:.3f}")
    else:
        start, end = (math.floor(at / step) * step for at in (look.end - seconds, look.end))
        words = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        found = asked.ask("query_range", query=expr, **words)
    if found["status"] != "success":
        return Answer(question, expr, until, error=str(found.get("error")))
    return Answer(question, expr, until, tuple(_read_series(found["data"])))


def write_query(text: str, look: Look, step: float, seconds: float) -> str:
    """Write a query out."""
    rate_interval = max(step + look.scrape_seconds, 4 * look.scrape_seconds)
    times = {
        "__rate_interval": f"{rate_interval:g}s",
        "__interval": f"{step:g}s",
        "__interval_ms": f"{step * 1000:g}",
        "__range": f"{math.ceil(seconds)}s",
        "__range_s": f"{math.ceil(seconds)}",
        "__range_ms": f"{math.ceil(seconds) * 1000}",
        "__from": f"{(look.end - seconds) * 1000:.0f}",
        "__to": f"{look.end * 1000:.0f}",
    }

    def write(found: re.Match[str]) -> str:
        name = found["plain"] or found["name"] or found["old"]
        if name in look.choices:
            return look.choices[name].write(found["format"] or "")
        return times.get(name, found[0])  # `$1` of label_replace stays

    return VARIABLE.sub(write, hurry(text) if look.is_hurried else text)


def read_seconds(text: str) -> float:
    """Read a duration such as `1h`, or the distance in `now-6h`.

    Raises:
        ValueError: It is none.
    """
    found = _DURATION.fullmatch(text.removeprefix("now-"))
    if found is None:
        raise ValueError(text)
    return int(found[1]) * _UNITS[found[2]]


def round_interval(seconds: float) -> float:
    """Round an interval as Grafana does; below half a second it does not matter here."""
    return next((rounded for below, rounded in _ROUNDED if seconds < below), 604800)


def _find_range(question: Question, look: Look) -> float:
    own = question.panel.json.get("timeFrom") if question.panel else None
    return _read_own(str(own), look) if own else look.seconds


def find_step(question: Question, seconds: float, look: Look) -> float:
    """Find the step in seconds: an annotation tells it, for a panel it follows from its width."""
    if question.kind == "annotation":
        return _bound(read_seconds(str(question.json.get("step") or "60s")), look)
    panel = question.panel.json if question.panel else {}
    width = panel.get("gridPos", {}).get("w", COLUMNS)
    points = panel.get("maxDataPoints") or SCREEN_PIXELS * width / COLUMNS
    own = panel.get("interval")
    least = _bound(_read_own(str(own), look), look) if own else look.scrape_seconds
    return max(round_interval(seconds / points), least)


def _bound(step: float, look: Look) -> float:
    """Who is in a hurry takes no step that is longer than the recording: it would step over it."""
    return min(step, look.seconds // _LEAST_STEPS) if look.is_hurried else step


def _read_own(text: str, look: Look) -> float:
    return read_seconds(hurry(text) if look.is_hurried else text)


def _is_hidden(question: Question) -> bool:
    return bool(question.json.get("hide")) and question.kind == "target"


def _escape(value: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", value)


def _escape_in_strings(value: str) -> str:
    """`prometheusSpecialRegexEscape`: a regular expression in a string of PromQL."""
    return _SPECIAL_IN_STRINGS.sub(r"\\\\\g<0>", value.replace("\\", "\\\\\\\\"))


def _escape_backslashes(value: str) -> str:
    """`prometheusRegularEscape`: a text in a string of PromQL."""
    return value.replace("\\", "\\\\").replace("'", "\\\\'")


def _read_series(data: Json) -> Iterator[Series]:
    if data["resultType"] == "scalar":
        time, value = data["result"]
        yield Series({}, ((float(time), float(value)),))
        return
    for each in data["result"]:
        pairs = each["values"] if "values" in each else [each["value"]]
        labels = {key: value for key, value in each["metric"].items() if key != "__name__"}
        yield Series(labels, tuple((float(time), float(value)) for time, value in pairs))
