"""The HTTP endpoints of the exporter, one method for each path.

`/metrics` accepts the parameter `collect[]=NAME`, which selects a collector, or `exclude[]=NAME`,
which excludes a collector. The header `X-Prometheus-Scrape-Timeout-Seconds` sets the deadline of
the scrape.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
import zlib
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trainvitals import __version__
from trainvitals.http.messages import FAILED, GUARDS, Reply, Request, Response, plain_response
from trainvitals.http.negotiation import accepts_gzip, compress, prefers_openmetrics
from trainvitals.metrics.exposition import Exposition
from trainvitals.metrics.runner import Runner, Snapshot
from trainvitals.runfile import Record
from trainvitals.sources.accelerators.reading import Kind
from trainvitals.sources.files import Roots
from trainvitals.sources.runs.reading import describe_record
from trainvitals.workers import attempt

# Modules that /metrics does not need are imported only when they are used, so that the exporter
# starts quickly.
if TYPE_CHECKING:
    from trainvitals.http.health import Verdict
    from trainvitals.http.runbooks import Handbook
    from trainvitals.http.viewers import Viewing, What
    from trainvitals.sources.alerts import FiringAlerts
    from trainvitals.verdicts.machine import Alerts
    from trainvitals.views.machine.observer import Observer

DEADLINE_SECONDS = 5.0
RUNBOOKS = "/runbooks/"
_LONGEST_DEADLINE_SECONDS = 55.0
_SHORTEST_DEADLINE_SECONDS = 0.1
_LONGEST_MARGIN_SECONDS = 0.5
_MARGIN_RATIO = 0.1
_GZIP_FROM_BYTES = 1024
_JSON = ("Content-Type", "application/json")
_ASSETS = Path(__file__).parents[1] / "views/page"
_ASSET_TYPES = {"live.css": "text/css; charset=utf-8", "live.js": "text/javascript; charset=utf-8"}


class Readable(Protocol):
    """A real or simulated machine that the endpoints describe."""

    @property
    def runner(self) -> Runner:
        """The runner that calls the machine's collectors."""
        ...

    @property
    def expected(self) -> Mapping[Kind, int]:
        """The number of accelerators of each kind that the machine is expected to have."""
        ...


class Endpoints:
    """The endpoints that answer HTTP requests about a machine.

    Args:
        machine: The real or simulated machine that the responses describe.
        handbook: The runbooks; None for the runbooks that are part of this package.
        observe: A function that creates the observer, which keeps the history of readings for
            viewers. The function is called after the first response. None for `observe_machine`.
        alerts: The source of the alerts that Prometheus reports; None if no Prometheus is
            configured.
        clock: A function that returns the current time in Unix seconds.
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
        self._handbook = handbook
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
        """Answer a request, either immediately or after the collectors have read the machine."""
        answer = self._paths.get(request.path)
        if answer is None and request.path.startswith(RUNBOOKS):
            answer = self._paths[RUNBOOKS]
        if answer is None:
            paths = ", ".join(self._paths)
            reply(plain_response(404, f"no such path; there are {paths}"))
        else:
            answer(request, reply)

    def _answer_alive(self, _: Request, reply: Reply) -> None:
        reply(plain_response(200, "trainvitals is healthy"))

    def _answer_metrics(self, request: Request, reply: Reply) -> None:
        try:
            names = self._choose_collectors(request)
        except ValueError as error:
            reply(plain_response(400, str(error)))
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
        from trainvitals.http.health import judge_health  # noqa: PLC0415

        def judge(snapshot: Snapshot, expected: Mapping[Kind, int]) -> Verdict:
            now = self._clock()
            judged = self._find_observer().judge(snapshot, now, self._find_alerts())
            return judge_health(snapshot, expected, judged, now=now)

        self._find_alerts()  # starts a query of Prometheus without waiting
        self._judge(reply, judge)

    def _find_alerts(self) -> Alerts:
        from trainvitals.verdicts.machine import Alerts  # noqa: PLC0415

        return Alerts() if self._alerts is None else Alerts(*self._alerts.latest())

    def _answer_ready(self, _: Request, reply: Reply) -> None:
        from trainvitals.http.health import judge_readiness  # noqa: PLC0415

        self._judge(reply, judge_readiness)

    def _judge(self, reply: Reply, judge: Callable[..., Verdict]) -> None:
        def write(snapshot: Snapshot) -> Response:
            verdict = judge(snapshot, self._machine.expected)
            return _write_json(verdict.document, 200 if verdict.good else 503)

        self._ask(reply, write)

    def _answer_readings(self, _: Request, reply: Reply) -> None:
        self._ask(reply, lambda snapshot: _write_json(describe_readings(snapshot), 200))

    def _answer_runbooks(self, request: Request, reply: Reply) -> None:
        from trainvitals.http.runbooks import HEADERS, Handbook  # noqa: PLC0415

        handbook = self._handbook or Handbook()
        name = request.path.removeprefix(RUNBOOKS)
        page = handbook.write_runbook(name) if name else handbook.write_list()
        if page is None:
            reply(Response(404, HEADERS, handbook.write_missing(name)))
        else:
            reply(Response(200, HEADERS, page))

    def _answer_viewer(self, what: What, request: Request, reply: Reply) -> None:
        self._find_viewing().answer(what, request, reply)

    def _find_viewing(self) -> Viewing:
        from trainvitals.http.viewers import Viewing  # noqa: PLC0415 - often unused

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
        """Reply with a rendered page.

        If rendering fails, the reply is an error page, and the exception is then raised.
        """
        page = attempt("page", partial(write, snapshot))
        reply(page.value or FAILED)
        self._find_observer().note(snapshot, self._clock())
        if page.error is not None:
            raise page.error


def observe_machine(
    roots: Roots = Roots(),  # noqa: B008 - immutable
    thresholds: Path | None = None,
) -> Observer:
    """Return the observer for this machine.

    Args:
        roots: The root directories of the file systems to read.
        thresholds: The path of the thresholds file; None for the file in force.
    """
    # These imports take milliseconds and are not needed for the first scrape.
    from trainvitals.verdicts.thresholds import ThresholdsFile  # noqa: PLC0415
    from trainvitals.views.machine.observer import Observer  # noqa: PLC0415

    return Observer(__version__, roots=roots, thresholds=ThresholdsFile(thresholds))


def choose_deadline(scrape_timeout: str | None) -> float:
    """Return the time within which a scrape must finish, in seconds.

    Args:
        scrape_timeout: The scrape timeout that Prometheus sends in the request's header; None if
            the request has no such header. A tenth of the timeout, but at most half a second, is
            reserved for the transfer.
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
    """Return the readings and outcomes of all collectors, ready to be encoded as JSON.

    Infinite values and NaN become null, because JSON cannot represent these values.
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
    """Return a reading converted to types that JSON can represent."""
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
    body, tag = _read_asset(name)
    headers = (("ETag", tag), ("Cache-Control", "no-cache"))
    if request.headers.get("if-none-match") == tag:
        reply(Response(304, headers, b""))
    else:
        reply(Response(200, (("Content-Type", _ASSET_TYPES[name]), *headers, *GUARDS), body))


@cache
def _read_asset(name: str) -> tuple[bytes, str]:
    body = (_ASSETS / name).read_bytes()
    return body, f'"{zlib.crc32(body):08x}"'


def _write_metrics(snapshot: Snapshot, exposition: Exposition, *, gzip: bool) -> Response:
    plain = snapshot.written.get(exposition)
    if plain is None:
        plain = snapshot.written[exposition] = exposition.write(snapshot.blocks)
    type_ = ("Content-Type", exposition.content_type)
    if not gzip or len(plain) < _GZIP_FROM_BYTES:
        return Response(200, (type_, ("Vary", "Accept, Accept-Encoding")), plain)
    packed = snapshot.written.get((exposition, "gzip"))
    if packed is None:
        packed = snapshot.written[exposition, "gzip"] = compress(plain)
    encoding = ("Content-Encoding", "gzip")
    return Response(200, (type_, encoding, ("Vary", "Accept, Accept-Encoding")), packed)


def _write_json(document: dict[str, object], status: int) -> Response:
    import json  # noqa: PLC0415

    return Response(status, (_JSON,), json.dumps(document, indent=1).encode() + b"\n")
