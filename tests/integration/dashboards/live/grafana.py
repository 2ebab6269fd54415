"""The queries that Grafana sends to Prometheus when a dashboard is opened, and their answers.

The module does what Grafana 13.2 and its Prometheus data source do: the step follows from the time
range and the width of a panel, `$__rate_interval` follows from the step, the values of variables
are found and written into queries, and a range begins at a multiple of its step.
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
# The upper bound and the rounded interval in seconds, as in `roundInterval` of @grafana/data.
_ROUNDED = (
    *((0.75, 0.5), (1.5, 1), (3.5, 2), (7.5, 5), (12.5, 10), (17.5, 15), (25, 20), (45, 30)),
    *((90, 60), (210, 120), (450, 300), (750, 600), (1050, 900), (1500, 1200), (2700, 1800)),
    *((5400, 3600), (9000, 7200), (16200, 10800), (32400, 21600), (64800, 43200)),
    *((345600, 86400), (604800, 86400)),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice of a variable.

    Attributes:
        values: The chosen values.
        is_multiple: Whether the variable may have several values.
        all_value: The variable's own value for all, if all are chosen; else empty.
    """

    values: tuple[str, ...]
    is_multiple: bool = False
    all_value: str = ""

    def write(self, style: str = "") -> str:
        """Return the text of the choice in a query; `style` is the format in `${name:style}`.

        Raises:
            ValueError: The dashboards do not use this style.
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
    """The time range and the chosen variables with which a dashboard is opened.

    Attributes:
        end: The end of the time range, Unix seconds.
        seconds: The length of the time range.
        choices: The choice of each variable of the dashboard.
        scrape_seconds: The scrape interval in the settings of the data source.
        is_hurried: Whether the queries look back only a sixtieth as far; see `hurry.py`.
    """

    end: float
    seconds: float
    choices: Choices
    scrape_seconds: float = 1.0
    is_hurried: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """A series of an answer.

    Attributes:
        labels: The labels.
        samples: Times and values.
    """

    labels: Mapping[str, str]
    samples: Samples


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a query.

    Attributes:
        question: The query of the dashboard.
        expr: The PromQL that was sent.
        series: The series.
        error: The error message of Prometheus; empty without an error.
        until: The least time of a last sample that counts as current, Unix seconds.
    """

    question: Question
    expr: str
    until: float
    series: tuple[Series, ...] = ()
    error: str = ""


@dataclass
class Asked:
    """A client of Prometheus that sends no request twice.

    Attributes:
        server: The Prometheus.
    """

    server: Server
    _known: dict[tuple[str, ...], Json] = field(default_factory=dict)

    def ask(self, path: str, method: str = "POST", **words: str | Sequence[str]) -> Json:
        """Return the API's answer to a request, from memory if possible."""
        key = (path, *(f"{name}={value}" for name, value in words.items()))
        if key not in self._known:
            self._known[key] = self.server.ask(path, method, **words)
        return self._known[key]


def ask_board(asked: Asked, board: Board, look: Look) -> tuple[Answer, ...]:
    """Return the answers to all queries of a dashboard, even of closed rows, except variables."""
    questions = [one for one in board.questions if one.kind != "variable" and not _is_hidden(one)]
    with ThreadPoolExecutor(_WORKERS) as pool:
        return tuple(pool.map(lambda one: ask(asked, one, look), questions))


def ask(asked: Asked, question: Question, look: Look) -> Answer:
    """Return the answer to a query of a panel or an annotation."""
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
    """Return a query with its variables filled in."""
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
    """Return the seconds of a duration such as `1h`, or of the distance in `now-6h`.

    Raises:
        ValueError: The text is no duration.
    """
    found = _DURATION.fullmatch(text.removeprefix("now-"))
    if found is None:
        raise ValueError(text)
    return int(found[1]) * _UNITS[found[2]]


def round_interval(seconds: float) -> float:
    """Return an interval rounded as by Grafana; values below half a second do not occur."""
    return next((rounded for below, rounded in _ROUNDED if seconds < below), 604800)


def _find_range(question: Question, look: Look) -> float:
    own = question.panel.json.get("timeFrom") if question.panel else None
    return _read_own(str(own), look) if own else look.seconds


def find_step(question: Question, seconds: float, look: Look) -> float:
    """Return the step in seconds, from the setting of an annotation or the width of a panel."""
    if question.kind == "annotation":
        return _bound(read_seconds(str(question.json.get("step") or "60s")), look)
    panel = question.panel.json if question.panel else {}
    width = panel.get("gridPos", {}).get("w", COLUMNS)
    points = panel.get("maxDataPoints") or SCREEN_PIXELS * width / COLUMNS
    own = panel.get("interval")
    least = _bound(_read_own(str(own), look), look) if own else look.scrape_seconds
    return max(round_interval(seconds / points), least)


def _bound(step: float, look: Look) -> float:
    """Return the step, limited to a part of the recording if the look is hurried."""
    return min(step, look.seconds // _LEAST_STEPS) if look.is_hurried else step


def _read_own(text: str, look: Look) -> float:
    return read_seconds(hurry(text) if look.is_hurried else text)


def _is_hidden(question: Question) -> bool:
    return bool(question.json.get("hide")) and question.kind == "target"


def _escape(value: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", value)


def _escape_in_strings(value: str) -> str:
    """Escape a regular expression in a PromQL string, as `prometheusSpecialRegexEscape` does."""
    return _SPECIAL_IN_STRINGS.sub(r"\\\\\g<0>", value.replace("\\", "\\\\\\\\"))


def _escape_backslashes(value: str) -> str:
    """Escape a text in a PromQL string, as `prometheusRegularEscape` does."""
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
