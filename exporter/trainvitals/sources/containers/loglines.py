"""Keep the last log lines of containers by reading the logs while the containers are running.

When a container that was started with `--rm` ends, the engine removes the container's log before
the log can be read. The log of a watched container is therefore followed from the container's
start.

Following requires one connection for each container, and one thread in total. The thread pauses ten
times as long as it works, so it never uses more than about a tenth of a core. A pause delays the
engine but not the container, because the engine reads from the log file, independently of the
container's writes. The engine keeps the file open even if the file is rotated in the meantime.

If a container writes faster than its log can be read for ten seconds, the log is no longer
followed. Instead, the container's last log lines are read every 30 seconds. The very last lines may
then be missing if the container was started with `--rm`.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from urllib.parse import quote

from trainvitals.sources.containers.engine import EngineClient, EngineError, log_query, mask_lines
from trainvitals.sources.containers.framing import FramingError, LastLines, LogDecoder
from trainvitals.sources.containers.stream import Stream

_OK = 200
_ROUND_BYTES = 1 << 15  # the maximum number of bytes read from each container per round
# The engine refills a full pipe as soon as it has room. If a pipe is not refilled, the log has been
# read to its current end.
_FULL_BYTES = 1 << 10
_REFILL_SECONDS = 0.02
_REST_SECONDS = 0.1
_REST_RATIO = 10
_MOST_BYTES = 1 << 16  # the maximum total size of a container's lines
_RETRY_SECONDS = 10.0
_FLOOD_SECONDS = 10.0
_POLL_SECONDS = 30.0
_EARLY_SECONDS = 0.2  # engines wait longer before they restart a container
_JOIN_SECONDS = 1.0


class _Followed:
    """The state of a container whose log is followed.

    Attributes:
        container: The ID of the container.
        since: The time of the container's last start; None to keep the log lines of all starts.
        lines: The container's last log lines; None if the log has not been requested yet or cannot
            be read.
        decoder: The decoder for the log's stream.
        is_fresh: Whether no data has been received from the current stream yet. The stream begins
            at the same time in the log as the previous stream, so its first data replaces `lines`.
        stream: The current stream of the log; None if no stream is open.
        due: The time at which to open the next stream or to poll the log; None if neither is
            planned.
        read_at: The time when the log was last read.
        behind_seconds: The time in which the container wrote faster than the log was read, minus
            the time in which it did not; at least 0.
        is_flooding: Whether the log is polled instead of followed, because the container writes
            faster than the log can be read.
        ended: An event that is set when the log has been read to its end or cannot be read.
    """

    __slots__ = (
        "behind_seconds",
        "container",
        "decoder",
        "due",
        "ended",
        "is_flooding",
        "is_fresh",
        "lines",
        "read_at",
        "since",
        "stream",
    )

    def __init__(self, container: str, since: float | None, now: float) -> None:
        self.container = container
        self.since = since
        self.lines: LastLines | None = None
        self.decoder = LogDecoder()
        self.is_fresh = True
        self.stream: Stream | None = None
        self.due: float | None = now
        self.read_at = now
        self.behind_seconds = 0.0
        self.is_flooding = False
        self.ended = threading.Event()

    @property
    def reads_from(self) -> float | None:
        """The time from which the log is read; None for the whole log."""
        return None if self.since is None else self.since - _EARLY_SECONDS


class LogRing:
    """Keeps the last log lines of the watched containers.

    Any thread may call the methods of this class. Only `await_end` and `close` block. All requests
    are sent by the thread of this object.

    Args:
        client: The client for the container engine.
        most_containers: The maximum number of containers that are followed at the same time. Beyond
            this number, a new container replaces the oldest container that has ended or, if no
            container has ended, the oldest container.
        most_lines: The maximum number of log lines that are kept for each container.
        retry_seconds: The time after which a failed request for a log is repeated, in seconds.
        flood_seconds: The maximum time, in seconds, for which a container may write faster than its
            log is read.
        poll_seconds: The interval at which a container's last log lines are read after
            `flood_seconds` was exceeded, in seconds.
    """

    def __init__(
        self,
        client: EngineClient,
        *,
        most_containers: int = 64,
        most_lines: int = 500,
        retry_seconds: float = _RETRY_SECONDS,
        flood_seconds: float = _FLOOD_SECONDS,
        poll_seconds: float = _POLL_SECONDS,
    ) -> None:
        self._client = client
        self._most_containers = most_containers
        self._most_lines = most_lines
        self._retry_seconds = retry_seconds
        self._flood_seconds = flood_seconds
        self._poll_seconds = poll_seconds
        self._followed: dict[str, _Followed] = {}
        self._dropped: list[_Followed] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._selector = DefaultSelector()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.settimeout(0)
        self._wake_sender.settimeout(0)
        self._selector.register(self._wake_receiver, EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="container-logs", daemon=True)

    def start(self) -> None:
        """Start the thread that reads the logs."""
        self._thread.start()

    def watch(self, container: str, *, since: float | None = None) -> None:
        """Follow a container's log as soon as possible.

        A second call for the same container has no effect, unless the container was restarted in
        the meantime or its stream has ended. The stream of a container that has not been started
        yet ends immediately.

        Args:
            container: The container's full ID.
            since: The time of the container's last start; None to keep all lines. Lines that were
                written more than 0.2 s before this time are dropped. The container may write its
                first lines before the engine determines the time of the start.
        """
        now = time.monotonic()
        with self._lock:
            followed = self._followed.get(container)
            if followed is not None and followed.since == since:
                if followed.stream is None and not followed.is_flooding:
                    followed.due = now
                    followed.ended.clear()
            else:
                if followed is not None:
                    self._drop(container)
                elif len(self._followed) >= self._most_containers:
                    self._drop(self._choose_replaced())
                self._followed[container] = _Followed(container, since, now)
        self._wake()

    def lines(self, container: str) -> tuple[str, ...] | None:
        """Return the last log lines of a watched container.

        Returns:
            The masked log lines, the oldest first; None if the container is not watched or its log
            cannot be read.
        """
        with self._lock:
            followed = self._followed.get(container)
            if followed is None or followed.lines is None:
                return None
            lines = followed.lines.read(followed.decoder.unfinished)
        return mask_lines(lines)

    def await_end(self, container: str, patience_seconds: float) -> bool:
        """Wait until a container's log has been read to the end.

        Returns:
            True if the log has been read to its end or cannot be read; False if the container is
            not watched or the wait timed out.
        """
        with self._lock:
            followed = self._followed.get(container)
        return followed is not None and followed.ended.wait(patience_seconds)

    def forget(self, container: str) -> None:
        """Stop following a container's log, and drop the container's log lines."""
        with self._lock:
            if container in self._followed:
                self._drop(container)
        self._wake()

    def close(self) -> None:
        """Stop the thread that reads the logs, and close all streams."""
        self._closing.set()
        self._wake()
        if self._thread.ident is None:  # the thread was never started
            self._end()
        else:
            self._thread.join(_JOIN_SECONDS)

    def _choose_replaced(self) -> str:
        ended = (name for name, followed in self._followed.items() if followed.ended.is_set())
        return next(ended, next(iter(self._followed)))

    def _drop(self, container: str) -> None:
        self._dropped.append(self._followed.pop(container))

    def _wake(self) -> None:
        try:
            self._wake_sender.send(b"!")
        except OSError:  # the pipe is closed, or is full and wakes the thread anyway
            return

    def _run(self) -> None:
        while not self._closing.is_set():
            self._close_dropped()
            self._open_due()
            ready = self._selector.select(self._find_wait())
            if self._closing.is_set():
                break
            began = time.thread_time()
            for key, _ in ready:
                if key.data is None:
                    self._drain_wake()
                else:
                    self._read(key.data)
            if any(key.data for key, _ in ready):
                worked = time.thread_time() - began
                self._closing.wait(max(_REST_SECONDS, _REST_RATIO * worked))
        self._end()

    def _find_wait(self) -> float | None:
        with self._lock:
            due = [followed.due for followed in self._followed.values() if followed.due is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _drain_wake(self) -> None:
        try:
            while self._wake_receiver.recv(64):
                pass
        except BlockingIOError:
            return

    def _close_dropped(self) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, []
        for followed in dropped:
            self._close_stream(followed)

    def _open_due(self) -> None:
        now = time.monotonic()
        with self._lock:
            due = [entry for entry in self._followed.values() if entry.due and entry.due <= now]
        for followed in due:
            if self._closing.is_set():
                return
            try:
                if followed.is_flooding:
                    self._poll(followed)
                else:
                    self._open(followed)
            except EngineError as error:
                if error.status is None:
                    # The engine does not answer, so requests for other logs would also fail.
                    _put_off(due, time.monotonic() + self._retry_seconds)
                    return
                followed.due = None
                followed.ended.set()

    def _open(self, followed: _Followed) -> None:
        query = {**log_query(self._most_lines, followed.reads_from), "follow": "1"}
        path = f"/containers/{quote(followed.container, safe='')}/logs"
        stream = self._client.open_stream("follow a log", path, query, waits=False)
        followed.due = None
        followed.stream = stream
        followed.read_at = time.monotonic()
        followed.behind_seconds = 0.0
        self._selector.register(stream, EVENT_READ, followed)
        followed.is_fresh = True
        with self._lock:
            if followed.lines is None:
                followed.lines = self._make_lines()

    def _poll(self, followed: _Followed) -> None:
        followed.due = time.monotonic() + self._poll_seconds
        found = self._client.logs(
            followed.container, tail=self._most_lines, since=followed.reads_from
        )
        lines = self._make_lines()
        lines.add(line.encode() for line in found)
        with self._lock:
            followed.decoder = LogDecoder()
            followed.lines = lines

    def _read(self, followed: _Followed) -> None:
        stream = followed.stream
        taken = 0
        while stream is not None and taken < _ROUND_BYTES:
            data: bytes | None = b""
            with suppress(FramingError):
                data = stream.receive(_REFILL_SECONDS if taken > _FULL_BYTES else 0)
                if data and stream.status == _OK:
                    self._keep(followed, data)
            if data is None:
                break
            if not data or stream.status != _OK:
                self._end_stream(followed, stream)
                return
            taken += len(data)
        self._check_flooding(followed, is_behind=taken >= _ROUND_BYTES)

    def _check_flooding(self, followed: _Followed, *, is_behind: bool) -> None:
        now = time.monotonic()
        passed = now - followed.read_at
        followed.read_at = now
        behind = followed.behind_seconds + (passed if is_behind else -passed)
        followed.behind_seconds = max(0.0, behind)
        if behind > self._flood_seconds:
            self._close_stream(followed)
            followed.is_flooding = True
            followed.due = now

    def _keep(self, followed: _Followed, data: bytes) -> None:
        with self._lock:
            if followed.is_fresh or followed.lines is None:
                followed.is_fresh = False
                followed.decoder = LogDecoder()
                followed.lines = self._make_lines()
            followed.lines.add(followed.decoder.feed(data))

    def _end_stream(self, followed: _Followed, stream: Stream) -> None:
        """Close a stream that has ended; request the log again later if it was interrupted."""
        self._close_stream(followed)
        is_refused = stream.status not in {_OK, None}
        with self._lock:
            if is_refused and followed.lines is not None and not followed.lines.read():
                followed.lines = None
        if is_refused or stream.is_complete:
            followed.ended.set()
        else:
            followed.due = time.monotonic() + self._retry_seconds

    def _close_stream(self, followed: _Followed) -> None:
        if followed.stream is not None:
            self._selector.unregister(followed.stream)
            followed.stream.close()
            followed.stream = None

    def _make_lines(self) -> LastLines:
        return LastLines(most_lines=self._most_lines, most_bytes=_MOST_BYTES)

    def _end(self) -> None:
        with self._lock:
            for followed in (*self._followed.values(), *self._dropped):
                self._close_stream(followed)
        self._selector.close()
        self._wake_receiver.close()
        self._wake_sender.close()


def _put_off(due: list[_Followed], until: float) -> None:
    for followed in due:
        if followed.due is not None:
            followed.due = until
