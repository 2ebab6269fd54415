"""The live page, for which about one snapshot per second is taken for all viewers together.

`/` is the whole page, `/live` is the part of the page that is refreshed, and `/api/v1/overview` is
the snapshot as JSON. Data is collected only on request. Requests that arrive while a snapshot is
being created share this snapshot, and a finished snapshot is reused for `KEPT_SECONDS`.

A snapshot is finished within `DEADLINE_SECONDS`. It lacks the readings of unresponsive collectors,
and the page names the missing readings. Prometheus is queried for alerts in parallel. The first
snapshot after a pause waits for the response of Prometheus for at most `ALERTS_SECONDS`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Literal

from trainvitals.http.messages import FAILED, GUARDS, Reply, Request, Response
from trainvitals.http.negotiation import accepts_gzip, compress
from trainvitals.sources.alerts import FiringAlerts
from trainvitals.views.machine.document import write_document
from trainvitals.views.machine.observer import Observer, Scrape
from trainvitals.views.machine.picture import Picture
from trainvitals.views.page.page import PageWriter
from trainvitals.workers import attempt

KEPT_SECONDS = 0.9
DEADLINE_SECONDS = 2.0
ALERTS_SECONDS = 1.0
_TYPES = {
    "page": "text/html; charset=utf-8",
    "fragment": "text/html; charset=utf-8",
    "document": "application/json",
}
_KEEPING = (("Cache-Control", "no-cache"), ("Vary", "Accept-Encoding"))

Ask = Callable[[float, Callable[[Scrape], None]], None]
What = Literal["page", "fragment", "document"]

_log = logging.getLogger(__name__)


class _Shot:
    """A machine snapshot with a cache of its renderings."""

    def __init__(self, picture: Picture, made_at: float, writer: PageWriter) -> None:
        self.made_at = made_at
        self.tag = f'"{picture.time:.3f}"'
        self._picture = picture
        self._writer = writer
        self._written: dict[tuple[What, bool], bytes] = {}

    def write(self, what: What, *, gzip: bool) -> bytes:
        """Render and encode the snapshot, or return the cached result."""
        found = self._written.get((what, gzip))
        if found is None:
            found = compress(self.write(what, gzip=False)) if gzip else self._write(what)
            self._written[what, gzip] = found
        return found

    def _write(self, what: What) -> bytes:
        if what == "document":
            return write_document(self._picture)
        if what == "page":
            return self._writer.write_page(self._picture, self.write("fragment", gzip=False))
        return self._writer.write_fragment(self._picture)


class Viewing:
    """The endpoints of the live page, which answer viewers' requests.

    Args:
        ask: A function that reads the collectors within a number of seconds and delivers the
            snapshot.
        observer: The observer that derives the state of the machine (`Picture`) from collector
            snapshots.
        alerts: The source of the alerts that Prometheus reports; None if no Prometheus is
            configured.
        clock: A function that returns the current time in Unix seconds.
        monotonic: A function that returns the time of a monotonic clock, in seconds.
    """

    def __init__(
        self,
        ask: Ask,
        observer: Observer,
        alerts: FiringAlerts | None = None,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._observer = observer
        self._alerts = alerts
        self._clock = clock
        self._monotonic = monotonic
        self._writer = PageWriter()
        self._lock = threading.Lock()
        self._shot: _Shot | None = None
        self._waiting: list[Callable[[_Shot | None], None]] = []
        self._wait_until = 0.0
        self._logged = ""

    def answer(self, what: What, request: Request, reply: Reply) -> None:
        """Answer a request with the page, its refreshed part, or the snapshot as JSON.

        The response's status code is 304 if the request contains the entity tag of the latest
        snapshot.
        """
        respond = partial(self._respond, what, request, reply)
        with self._lock:
            shot, is_first = self._shot, False
            if shot is not None and self._monotonic() - shot.made_at >= KEPT_SECONDS:
                shot = None
            if shot is None:
                is_first = not self._waiting
                self._waiting.append(respond)
        if shot is not None:
            respond(shot)
        elif is_first:
            self._begin()

    def _begin(self) -> None:
        if self._alerts is not None:
            self._alerts.latest()  # starts a query of Prometheus
        self._wait_until = self._monotonic() + ALERTS_SECONDS
        asked = attempt("question", partial(self._ask, DEADLINE_SECONDS, self._take))
        if asked.error is not None:
            self._finish(None, asked.error)

    def _take(self, seen: Scrape) -> None:
        if self._alerts is not None and self._alerts.is_unknown:
            # This function is called in the runner's thread, which must not wait.
            threading.Thread(target=self._show, args=(seen,), name="view", daemon=True).start()
        else:
            self._show(seen)

    def _show(self, seen: Scrape) -> None:
        drawn = attempt("picture", partial(self._draw, seen))
        self._finish(drawn.value, drawn.error)

    def _draw(self, seen: Scrape) -> _Shot:
        fired, trouble = None, ""
        if self._alerts is not None:
            fired, trouble = self._alerts.latest(self._wait_until - self._monotonic())
        picture = self._observer.picture(seen, self._clock(), alerts=fired, alerts_trouble=trouble)
        return _Shot(picture, self._monotonic(), self._writer)

    def _finish(self, shot: _Shot | None, error: Exception | None) -> None:
        """Answer all waiting requests with the snapshot, or with an error if there is none."""
        with self._lock:
            self._shot = shot
            waiting, self._waiting = self._waiting, []
        for respond in waiting:
            respond(shot)
        self._log_error(error)

    def _respond(self, what: What, request: Request, reply: Reply, shot: _Shot | None) -> None:
        if shot is None:
            reply(FAILED)
            return
        tag = ("ETag", shot.tag)
        if request.headers.get("if-none-match") == shot.tag:
            reply(Response(304, (tag, *_KEEPING), b""))
            return
        gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
        written = attempt(what, partial(shot.write, what, gzip=gzip))
        self._log_error(written.error)
        if written.value is None:
            reply(FAILED)
            return
        encoding = (("Content-Encoding", "gzip"),) if gzip else ()
        headers = (("Content-Type", _TYPES[what]), tag, *encoding, *_KEEPING, *GUARDS)
        reply(Response(200, headers, written.value))

    def _log_error(self, error: Exception | None) -> None:
        """Log an error, unless it equals the last logged error."""
        if error is not None and repr(error) != self._logged:
            self._logged = repr(error)
            _log.error("the live page could not be written", exc_info=error)
