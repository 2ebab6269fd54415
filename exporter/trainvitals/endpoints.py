"""What the exporter answers: one function for each path.

`/metrics` takes `collect[]=NAME` (only these collectors) or `exclude[]=NAME` (all but these), and
the header `X-Prometheus-Scrape-Timeout-Seconds`, from which its deadline follows.
"""

from __future__ import annotations

import dataclasses
import json
import math
import threading
import time
import zlib
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from trainvitals import __version__
from trainvitals.crew import attempt
from trainvitals.exposition import Exposition
from trainvitals.health import Verdict, judge_health, judge_readiness
from trainvitals.runfile import Record
from trainvitals.scrape import Runner, Snapshot
from trainvitals.sources.accelerators.reading import Kind
from trainvitals.sources.files import Roots
from trainvitals.sources.training.reading import describe_record
from trainvitals.web.handbook import Handbook
from trainvitals.web.live.assets import answer_asset
from trainvitals.web.messages import Reply, Request, Response
from trainvitals.web.negotiation import accepts_gzip, prefers_openmetrics

if TYPE_CHECKING:
    from trainvitals.overview.observer import Observer
    from trainvitals.web.live.firing import FiringAlerts
    from trainvitals.web.live.viewing import Viewing, What

DEADLINE_SECONDS = 5.0
RUNBOOKS = "/runbooks/"
_LONGEST_DEADLINE_SECONDS = 55.0
_SHORTEST_DEADLINE_SECONDS = 0.1
_LONGEST_MARGIN_SECONDS = 0.5
_MARGIN_RATIO = 0.1
_GZIP_LEVEL = 1
_GZIP_FROM_BYTES = 1024
_GZIP_WINDOW_BITS = 30  # a window of 14 bits, which is enough here and quicker, and 16 for gzip
_JSON = ("Content-Type", "application/json")
_TEXT = ("Content-Type", "text/plain; charset=utf-8")
_HTML = ("Content-Type", "text/html; charset=utf-8")
_FAILED = Response(500, (_TEXT,), b"a bug keeps this page from being written; see the log\n")


class Readable(Protocol):
    """What can be told about: a machine, or one that is simulated."""

    @property
    def runner(self) -> Runner:
        """What asks the collectors."""
        ...

    @property
    def expected(self) -> Mapping[Kind, int]:
        """How many accelerators of each kind there should be."""
        ...


class Endpoints:
    """Answers requests about a machine.

    Args:
        machine: What to tell about.
        handbook: What to do about alerts.
        observe: Makes what remembers the scrapes for those who look at the machine; it is called
            after the first answer.
        alerts: Knows what fires; None where no Prometheus is known.
        clock: Tells Unix seconds.
    """

    def __init__(
        self,
        machine: Readable,
        handbook: Handbook | None = None,
        *,
        observe: Callable[[], Observer] | None = None,
        alerts: FiringAlerts | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._machine = machine
        self._observe = observe or observe_machine
        self._alerts = alerts
        self._clock = clock
        self._lock = threading.Lock()
        self._observer: Observer | None = None
        self._viewing: Viewing | None = None
        self._handbook = handbook or Handbook()
        self._text = Exposition()
        self._openmetrics = Exposition(openmetrics=True)
        self._paths: dict[str, Callable[[Request, Reply], None]] = {
            "/": partial(self._answer_viewer, "page"),
            "/live": partial(self._answer_viewer, "fragment"),
            "/live.css": partial(_answer_asset, "live.css"),
            "/live.js": partial(_answer_asset, "live.js"),
            "/metrics": self._answer_metrics,
            "/health": self._answer_health,
            "/ready": self._answer_ready,
            "/-/healthy": self._answer_alive,
            "/api/v1/overview": partial(self._answer_viewer, "document"),
            "/api/v1/readings": self._answer_readings,
            RUNBOOKS: self._answer_runbooks,
        }

    def answer(self, request: Request, reply: Reply) -> None:
        """Answer a request, at once or when the machine has been read."""
        answer = self._paths.get(request.path)
        if answer is None and request.path.startswith(RUNBOOKS):
            answer = self._paths[RUNBOOKS]
        if answer is None:
            paths = ", ".join(self._paths)
            reply(Response(404, (_TEXT,), f"no such path; there are {paths}\n".encode()))
        else:
            answer(request, reply)

    def _answer_alive(self, _: Request, reply: Reply) -> None:
        reply(Response(200, (_TEXT,), b"trainvitals is healthy\n"))

    def _answer_metrics(self, request: Request, reply: Reply) -> None:
        try:
            names = self._choose_collectors(request)
        except ValueError as error:
            reply(Response(400, (_TEXT,), f"{error}\n".encode()))
            return
        openmetrics = prefers_openmetrics(request.headers.get("accept", ""))
        exposition = self._openmetrics if openmetrics else self._text
        gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
        deadline = choose_deadline(request.headers.get("x-prometheus-scrape-timeout-seconds"))
        write = partial(_write_metrics, exposition=exposition, gzip=gzip)
        self._machine.runner.request(names, deadline, partial(self._deliver, reply, write))

    def _choose_collectors(self, request: Request) -> tuple[str, ...]:
        known = self._machine.runner.names
        collect = [value for key, value in request.query if key == "collect[]"]
        exclude = [value for key, value in request.query if key == "exclude[]"]
        if collect and exclude:
            raise ValueError("collect[] and exclude[] cannot be used together: choose one")
        for name in (*collect, *exclude):
            if name not in known:
                raise ValueError(f"no collector {name!r}; there are {', '.join(known)}")
        if collect:
            return tuple(name for name in known if name in collect)
        return tuple(name for name in known if name not in exclude)

    def _answer_health(self, _: Request, reply: Reply) -> None:
        self._judge(reply, judge_health)

    def _answer_ready(self, _: Request, reply: Reply) -> None:
        self._judge(reply, judge_readiness)

    def _judge(self, reply: Reply, judge: Callable[..., Verdict]) -> None:
        def write(snapshot: Snapshot) -> Response:
            verdict = judge(snapshot, self._machine.expected)
            return _write_json(verdict.document, 200 if verdict.good else 503)

        self._ask(reply, write)

    def _answer_readings(self, _: Request, reply: Reply) -> None:
        self._ask(reply, lambda snapshot: _write_json(describe_readings(snapshot), 200))

    def _answer_runbooks(self, request: Request, reply: Reply) -> None:
        name = request.path.removeprefix(RUNBOOKS)
        page = self._handbook.write_runbook(name) if name else self._handbook.write_list()
        if page is None:
            reply(Response(404, (_HTML,), self._handbook.write_missing(name)))
        else:
            reply(Response(200, (_HTML,), page))

    def _answer_viewer(self, what: What, request: Request, reply: Reply) -> None:
        self._find_viewing().answer(what, request, reply)

    def _find_viewing(self) -> Viewing:
        from trainvitals.web.live.viewing import Viewing  # noqa: PLC0415 - perhaps nobody looks

        observer = self._find_observer()
        with self._lock:
            if self._viewing is None:
                self._viewing = Viewing(
                    self._request_all, observer, self._alerts, clock=self._clock
                )
            return self._viewing

    def _find_observer(self) -> Observer:
        with self._lock:
            if self._observer is None:
                self._observer = self._observe()
            return self._observer

    def _request_all(self, seconds: float, deliver: Callable[[Snapshot], None]) -> None:
        self._machine.runner.request(self._machine.runner.names, seconds, deliver)

    def _ask(self, reply: Reply, write: Callable[[Snapshot], Response]) -> None:
        self._request_all(DEADLINE_SECONDS, partial(self._deliver, reply, write))

    def _deliver(
        self, reply: Reply, write: Callable[[Snapshot], Response], snapshot: Snapshot
    ) -> None:
        """Reply with the page, or say that there is none before the bug goes its way to the log."""
        page = attempt("page", partial(write, snapshot))
        reply(page.value or _FAILED)
        self._find_observer().note(snapshot, self._clock())
        if page.error is not None:
            raise page.error


def observe_machine(roots: Roots = Roots()) -> Observer:  # noqa: B008 - immutable
    """Make what remembers the scrapes of this machine.

    Args:
        roots: Where the processes that hold accelerators are found.
    """
    # What takes milliseconds to import must not make the start longer.
    from trainvitals.overview.observer import Observer  # noqa: PLC0415

    return Observer(__version__, roots=roots)


def choose_deadline(scrape_timeout: str | None) -> float:
    """Choose how long a scrape may take, in seconds.

    Args:
        scrape_timeout: The header in which Prometheus says when it will stop listening; a tenth
            of it, at most half a second, is kept for the way back.
    """
    try:
        timeout = float(scrape_timeout) if scrape_timeout else 0.0
    except ValueError:
        timeout = 0.0
    if not 0 < timeout < float("inf"):
        return DEADLINE_SECONDS
    deadline = timeout - min(_LONGEST_MARGIN_SECONDS, _MARGIN_RATIO * timeout)
    return min(_LONGEST_DEADLINE_SECONDS, max(_SHORTEST_DEADLINE_SECONDS, deadline))


def describe_readings(snapshot: Snapshot) -> dict[str, object]:
    """Give every reading, by collector, with how it was obtained; ready for JSON.

    A number that JSON does not have (infinite, not a number) is null.
    """
    collectors: dict[str, object] = {}
    for report in snapshot.reports:
        collectors[report.collector] = {
            "success": report.success,
            "reason": report.reason,
            "duration_seconds": report.seconds,
            "last_success_timestamp_seconds": report.last_success,
            "reading": _simplify(snapshot.readings.get(report.collector)),
        }
    return {"version": __version__, "collectors": collectors}


def _simplify(value: object) -> object:
    """Make of a reading what JSON has words for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, Record):
        value = describe_record(value)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: _simplify(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): _simplify(entry) for key, entry in value.items()}
    if isinstance(value, Collection) and not isinstance(value, bytes):
        return [_simplify(entry) for entry in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _answer_asset(name: str, request: Request, reply: Reply) -> None:
    reply(answer_asset(name, request))


def _write_metrics(snapshot: Snapshot, exposition: Exposition, *, gzip: bool) -> Response:
    plain = snapshot.written.get(exposition)
    if plain is None:
        plain = snapshot.written[exposition] = exposition.write(snapshot.blocks)
    type_ = ("Content-Type", exposition.content_type)
    if not gzip or len(plain) < _GZIP_FROM_BYTES:
        return Response(200, (type_, ("Vary", "Accept, Accept-Encoding")), plain)
    packed = snapshot.written.get((exposition, "gzip"))
    if packed is None:
        press = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW_BITS)
        packed = snapshot.written[exposition, "gzip"] = press.compress(plain) + press.flush()
    encoding = ("Content-Encoding", "gzip")
    return Response(200, (type_, encoding, ("Vary", "Accept, Accept-Encoding")), packed)


def _write_json(document: dict[str, object], status: int) -> Response:
    return Response(status, (_JSON,), json.dumps(document, indent=1).encode() + b"\n")
