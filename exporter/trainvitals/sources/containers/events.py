"""Read and follow the engine's container events, from `/events`.

An engine keeps only its last 256 events, and loses all events when it is restarted. A restart of
the engine ends the event stream without an error. Because events can be lost, the engine's list of
containers is compared with the known containers after each connection. Each end of the stream
counts as a gap.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from signal import Signals

from trainvitals.sources.containers.documents import (
    Document,
    as_mapping,
    get_mapping,
    get_number,
    get_text,
    parse_json,
)
from trainvitals.sources.containers.engine import EngineClient, EngineError
from trainvitals.sources.containers.evidence import EngineEvent
from trainvitals.sources.containers.framing import FramingError, LineSplitter
from trainvitals.sources.containers.inspection import find_compose
from trainvitals.sources.containers.stream import Stream

ACTIONS = (
    "create",
    "start",
    "restart",
    "oom",
    "kill",
    "die",
    "stop",
    "destroy",
    "pause",
    "unpause",
    "health_status",
    "rename",
    "update",
    "died",  # Podman's names for die and destroy
    "remove",
)
_OTHER_WORDS = {"died": "die", "remove": "destroy"}
_HEALTH = "health_status"
_NANOSECONDS = 1_000_000_000
_MOST_EVENT_BYTES = 1 << 20  # labels may be very long
_REMEMBERED = 512  # an engine can repeat 256 events

_FIRST_WAIT_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 30.0
_QUIET_SECONDS = 10.0
_HUNG_SECONDS = 1.0
_JOIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """One event about a container, as the engine reported it.

    Attributes:
        time: The time of the event according to the engine's clock, in seconds since 1970.
        action: The action that the event reports, under Docker's name even for Podman: `start`,
            `die`, `destroy`, `health_status: unhealthy`, ...
        id: The container's full ID.
        name: The name of the container.
        image: The name of the container's image.
        compose_project: The container's Compose project; empty if the container belongs to no
            project.
        compose_service: The container's Compose service; empty if the container belongs to no
            service.
        exit_code: The exit code in a `die` event; None for other actions.
        signal: The signal in a `kill` event; None for other actions, or if the engine does not
            report the signal.
    """

    time: float
    action: str
    id: str
    name: str = ""
    image: str = ""
    compose_project: str = ""
    compose_service: str = ""
    exit_code: int | None = None
    signal: int | None = None

    def to_evidence(self) -> EngineEvent:
        """Return the event in the form that is used in evidence."""
        return EngineEvent(self.time, self.action, self.exit_code, self.signal)


def parse_event(line: bytes | str) -> ContainerEvent | None:
    """Parse one engine event from a line of JSON.

    Returns:
        The event; None if the event is invalid or does not concern a container.
    """
    try:
        document = as_mapping(parse_json(line))
    except ValueError:
        return None
    actor = get_mapping(document, "Actor")
    container = get_text(actor, "ID") or get_text(document, "id")
    action = get_text(document, "Action") or get_text(document, "status")
    nanoseconds = get_number(document, "timeNano")
    if nanoseconds is None:
        nanoseconds = (get_number(document, "time") or 0) * _NANOSECONDS
    if get_text(document, "Type") not in {"container", ""} or not container or not action:
        return None
    attributes = get_mapping(actor, "Attributes")
    project, service = find_compose(attributes)
    return ContainerEvent(
        time=nanoseconds / _NANOSECONDS,
        action=_name_action(action, attributes),
        id=container,
        name=get_text(attributes, "name"),
        image=get_text(attributes, "image") or get_text(document, "from"),
        compose_project=project,
        compose_service=service,
        exit_code=_find_exit_code(action, attributes),
        signal=_find_signal(action, attributes),
    )


def read_events(client: EngineClient, *, since: float, until: float) -> tuple[ContainerEvent, ...]:
    """Return the engine's past container events; an engine keeps at most 256 events.

    Args:
        client: The client for the container engine.
        since: The time of the earliest event to return, in seconds since 1970.
        until: The time of the latest event to return, in seconds since 1970. If the current time is
            earlier, the current time is used.

    Raises:
        EngineError: The events could not be read.
    """
    query = _write_query(since)
    query["until"] = f"{min(until, time.time()):.9f}"
    lines = client.ask("read the events", "/events", query).splitlines()
    return tuple(event for event in map(parse_event, lines) if event is not None)


class EventFollower:
    """Follows an engine's events on a thread, and reconnects after each interruption.

    While no events arrive, the engine is pinged periodically on another connection, because a hung
    engine also keeps its connections open and sends no events. No event is lost while the engine
    hangs, so a hang does not count as a gap.

    The callbacks `on_event`, `on_connect` and `on_gap` are called on the follower's thread, one
    after another.

    Args:
        client: The client for the container engine.
        on_event: A function that is called once with each event.
        on_connect: A function that is called after each connection, and when a hung engine responds
            again. From then on, no event is missed, so the function can compare the engine's list
            of containers with the known containers.
        on_gap: A function that is called with the reason after the event stream was interrupted.
        first_wait_seconds: The time to wait before the first attempt to reconnect. The time doubles
            with each attempt, up to 30 s.
        quiet_seconds: The time without an event after which the engine is pinged.
    """

    def __init__(
        self,
        client: EngineClient,
        *,
        on_event: Callable[[ContainerEvent], None],
        on_connect: Callable[[], None],
        on_gap: Callable[[str], None],
        first_wait_seconds: float = _FIRST_WAIT_SECONDS,
        quiet_seconds: float = _QUIET_SECONDS,
    ) -> None:
        self._client = client
        self._on_event = on_event
        self._on_connect = on_connect
        self._on_gap = on_gap
        self._first_wait_seconds = first_wait_seconds
        self._quiet_seconds = quiet_seconds
        self._closing = threading.Event()
        self._stream: Stream | None = None
        self._since = 0.0
        self._seen: OrderedDict[tuple[float, str, str], None] = OrderedDict()
        self._thread = threading.Thread(target=self._run, name="container-events", daemon=True)
        self._is_connected = False
        self._complaint: str | None = None
        self._gaps = 0

    @property
    def is_connected(self) -> bool:
        """Whether the event stream is connected and the engine is not known to hang."""
        return self._is_connected

    @property
    def complaint(self) -> str | None:
        """The reason why the event stream is not connected.

        The reason is None if the stream is connected or no attempt to connect has ended yet.
        """
        return self._complaint

    @property
    def gaps(self) -> int:
        """The number of times that the event stream was interrupted."""
        return self._gaps

    def start(self) -> None:
        """Start the thread that follows events."""
        self._thread.start()

    def close(self) -> None:
        """Stop following events immediately; no further callback is started.

        If a request to a hung engine is in progress, the request ends after its timeout.
        """
        self._closing.set()
        if self._stream is not None:
            self._stream.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        wait = self._first_wait_seconds
        while not self._closing.is_set():
            began = time.monotonic()
            try:
                self._stream = self._subscribe()
            except EngineError as error:
                self._complaint = str(error)
            else:
                self._follow(self._stream)
                self._stream.close()
            self._is_connected = False
            if time.monotonic() - began > _LONGEST_WAIT_SECONDS:
                wait = self._first_wait_seconds
            self._closing.wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)

    def _subscribe(self) -> Stream:
        # Start at the last event or now: events could occur after the engine's answer and before
        # its subscription.
        query = _write_query(self._since or time.time())
        return self._client.open_stream("follow the events", "/events", query)

    def _follow(self, stream: Stream) -> None:
        lines = LineSplitter(_MOST_EVENT_BYTES)
        why = "the engine ended the events"
        self._connect()
        while not self._closing.is_set():
            try:
                data = stream.receive(self._quiet_seconds if self._is_connected else _HUNG_SECONDS)
            except FramingError as error:
                why = f"the events were broken by {error}"
                break
            if data is None:
                self._check_hanging()
                continue
            if not data:
                break
            if not self._is_connected:
                self._connect()
            for line in lines.feed(data):
                self._take(line)
        if not self._closing.is_set():
            self._gaps += 1
            self._complaint = why
            self._is_connected = False
            self._on_gap(why)

    def _connect(self) -> None:
        self._is_connected = True
        self._complaint = None
        if not self._closing.is_set():
            self._on_connect()

    def _check_hanging(self) -> None:
        try:
            self._client.ping()
        except EngineError as error:
            if error.status is None:  # any answer shows that the engine does not hang
                self._is_connected = False
                self._complaint = str(error)
                return
        if not self._is_connected:
            self._connect()

    def _take(self, line: bytes) -> None:
        event = parse_event(line)
        if event is None:
            return
        key = (event.time, event.id, event.action)
        if key in self._seen:  # the engine repeats events after a connection
            return
        self._seen[key] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        self._since = max(self._since, event.time)
        if not self._closing.is_set():
            self._on_event(event)


def _write_query(since: float) -> dict[str, str]:
    filters = {"type": ["container"], "event": list(ACTIONS)}
    return {"filters": json.dumps(filters), "since": f"{since:.9f}"}


def _name_action(action: str, attributes: Document) -> str:
    status = get_text(attributes, _HEALTH)
    if action == _HEALTH and status:
        return f"{_HEALTH}: {status}"
    return _OTHER_WORDS.get(action, action)


def _find_exit_code(action: str, attributes: Document) -> int | None:
    if action not in {"die", "died"}:
        return None
    text = get_text(attributes, "exitCode") or get_text(attributes, "containerExitCode")
    return _parse_small(text)


def _find_signal(action: str, attributes: Document) -> int | None:
    text = get_text(attributes, "signal") if action == "kill" else ""
    if text in Signals.__members__:
        return int(Signals[text])
    return _parse_small(text)


def _parse_small(text: str) -> int | None:
    """Parse a small integer such as an exit code or a signal; return None for other text."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 5 else None  # noqa: PLR2004
