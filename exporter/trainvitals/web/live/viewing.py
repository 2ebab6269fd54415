"""Answers those who look at the machine: one picture a second, however many they are.

`/` is the whole page, `/live` the part of it that is drawn anew, and `/api/v1/overview` the same
picture for programs. Nothing is collected while nobody asks. Who asks while a picture is being made
gets that one; a finished one serves for `KEPT_SECONDS`.

A picture is there within `DEADLINE_SECONDS`: what a collector that hangs would have told is missing
from it, and the page says so.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Literal

from trainvitals.crew import attempt
from trainvitals.overview.document import write_document
from trainvitals.overview.observer import Observer, Seen
from trainvitals.overview.picture import Picture
from trainvitals.web.live.assets import GUARDS
from trainvitals.web.live.firing import FiringAlerts
from trainvitals.web.live.page import write_fragment, write_page
from trainvitals.web.messages import Reply, Request, Response
from trainvitals.web.negotiation import accepts_gzip

KEPT_SECONDS = 0.9
DEADLINE_SECONDS = 2.0
_GZIP_LEVEL = 1
_GZIP_WINDOW_BITS = 31
_TYPES = {
    "page": "text/html; charset=utf-8",
    "fragment": "text/html; charset=utf-8",
    "document": "application/json",
}
_KEEPING = (("Cache-Control", "no-cache"), ("Vary", "Accept-Encoding"))
_FAILED = Response(
    500,
    (("Content-Type", "text/plain; charset=utf-8"),),
    b"a bug keeps this page from being written; see the log\n",
)

Ask = Callable[[float, Callable[[Seen], None]], None]
What = Literal["page", "fragment", "document"]

_log = logging.getLogger(__name__)


class _Shot:
    """A picture and what was written of it, each once."""

    def __init__(self, picture: Picture, made_at: float) -> None:
        self.made_at = made_at
        self.tag = f'"{picture.time:.3f}"'
        self._picture = picture
        self._written: dict[tuple[What, bool], bytes] = {}

    def write(self, what: What, *, gzip: bool) -> bytes:
        """Give what is asked for as it is sent."""
        found = self._written.get((what, gzip))
        if found is None:
            found = _pack(self.write(what, gzip=False)) if gzip else self._write(what)
            self._written[what, gzip] = found
        return found

    def _write(self, what: What) -> bytes:
        if what == "document":
            return write_document(self._picture)
        if what == "page":
            return write_page(self._picture, self.write("fragment", gzip=False))
        return write_fragment(self._picture)


class Viewing:
    """Answers those who look.

    Args:
        ask: Has the collectors read within so many seconds and hands over what was found.
        observer: Draws it.
        alerts: Knows what fires; None where no Prometheus is known.
        clock: Tells Unix seconds.
        monotonic: Seconds that never go back.
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
        self._lock = threading.Lock()
        self._shot: _Shot | None = None
        self._waiting: list[Callable[[_Shot | None], None]] = []
        self._logged = ""

    def answer(self, what: What, request: Request, reply: Reply) -> None:
        """Answer with the whole page, with the part that is drawn anew, or with the picture as JSON.

        Who sends the tag of the latest picture along is told that there is no newer one (304).
        """
        give = partial(self._give, what, request, reply)
        with self._lock:
            shot, is_first = self._shot, False
            if shot is not None and self._monotonic() - shot.made_at >= KEPT_SECONDS:
                shot = None
            if shot is None:
                is_first = not self._waiting
                self._waiting.append(give)
        if shot is not None:
            give(shot)
        elif is_first:
            self._begin()

    def _begin(self) -> None:
        asked = attempt("question", partial(self._ask, DEADLINE_SECONDS, self._take))
        if asked.error is not None:
            self._finish(None, asked.error)

    def _take(self, seen: Seen) -> None:
        drawn = attempt("picture", partial(self._draw, seen))
        self._finish(drawn.value, drawn.error)

    def _draw(self, seen: Seen) -> _Shot:
        fired, trouble = (None, "") if self._alerts is None else self._alerts.latest()
        picture = self._observer.picture(seen, self._clock(), alerts=fired, alerts_trouble=trouble)
        return _Shot(picture, self._monotonic())

    def _finish(self, shot: _Shot | None, error: Exception | None) -> None:
        """Give the picture to all who wait, or tell them that there is none."""
        with self._lock:
            self._shot = shot
            waiting, self._waiting = self._waiting, []
        for give in waiting:
            give(shot)
        self._tell(error)

    def _give(self, what: What, request: Request, reply: Reply, shot: _Shot | None) -> None:
        if shot is None:
            reply(_FAILED)
            return
        tag = ("ETag", shot.tag)
        if request.headers.get("if-none-match") == shot.tag:
            reply(Response(304, (tag, *_KEEPING), b""))
            return
        gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
        written = attempt(what, partial(shot.write, what, gzip=gzip))
        self._tell(written.error)
        if written.value is None:
            reply(_FAILED)
            return
        encoding = (("Content-Encoding", "gzip"),) if gzip else ()
        headers = (("Content-Type", _TYPES[what]), tag, *encoding, *_KEEPING, *GUARDS)
        reply(Response(200, headers, written.value))

    def _tell(self, error: Exception | None) -> None:
        """Log what went wrong, once for each time that it begins."""
        if error is not None and repr(error) != self._logged:
            self._logged = repr(error)
            _log.error("the live page could not be written", exc_info=error)


def _pack(plain: bytes) -> bytes:
    press = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW_BITS)
    return press.compress(plain) + press.flush()
