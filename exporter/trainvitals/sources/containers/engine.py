"""A container engine: Docker, or Podman by Docker's API.

It is only ever asked: one function sends, and it knows no other method than GET.
What is asked is without a version in its path.
So an engine of any age answers in its own version, where a fixed one is refused by those that do
not speak it, and Podman takes it too; of an answer, only what all of them have is read.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote, urlencode

from trainvitals.causes.evidence import Gap
from trainvitals.errors import ConfigurationError, SourceError
from trainvitals.masking import mask_text
from trainvitals.sources.containers.address import describe_failure, parse_address
from trainvitals.sources.containers.documents import Document, as_mapping, get_text, parse_json
from trainvitals.sources.containers.framing import FramingError, LastLines, LogDecoder
from trainvitals.sources.containers.reading import Usage
from trainvitals.sources.containers.statistics import parse_statistics
from trainvitals.sources.containers.stream import Stream

NO_ENGINE = "none"
_SOCKETS = ("/var/run/docker.sock", "/run/podman/podman.sock")
_OWN_SOCKETS = ("docker.sock", "podman/podman.sock")

_MIB = 1 << 20
_MOST_BYTES = 4 * _MIB
_MOST_LIST_BYTES = 32 * _MIB
_LOG_BYTES = 1 << 16
_COMPLAINT_LENGTH = 300
# How many times the patience for one part of an answer is had for all of it.
_PARTS = 5
# Docker 20.10 takes a second or two for what newer engines know at once.
_STATISTICS_TIMEOUT_SECONDS = 5.0

_OK = 200
_REMEDIES = {
    401: "let its proxy pass GET of /_ping, /version, /info, /events and /containers",
    403: "let its proxy pass GET of /_ping, /version, /info, /events and /containers",
    404: "look with `docker ps --all` what there is; what is removed is known only to an exporter "
    "that watched it",
    409: "its log goes with it; start it without --rm, or have an exporter follow it",
    501: "have it log with the driver json-file or local; see `trainvitals docker-logging`",
}
_OTHER_REMEDY = "look at the engine's own log, such as `journalctl -u docker`"


class EngineError(SourceError):
    """The engine could not be asked, or would not tell.

    Args:
        act: What was to be done, such as `read the log`.
        why: Why it could not be done.
        remedy: What to do about it.
        status: The status of the engine's answer; None where there was no answer.
    """

    def __init__(self, act: str, why: str, remedy: str, *, status: int | None = None) -> None:
        super().__init__(f"cannot {act}: {why}; {remedy}")
        self.why = why
        self.remedy = remedy
        self.status = status

    def to_gap(self, what: str) -> Gap:
        """Tell it as something that could not be read."""
        return Gap(what, self.why, self.remedy)


def find_engine(address: str | None, *, environ: Mapping[str, str], rootfs: Path) -> str | None:
    """Find the engine to ask.

    Args:
        address: What was asked for: `unix:///PATH`, `/PATH`, `tcp://HOST:PORT`, `http://…`,
            `https://…` or `none`; None to look for one.
        environ: Has `DOCKER_HOST`, which goes before the usual sockets, and `XDG_RUNTIME_DIR`.
        rootfs: The host's root directory. Sockets are looked for only where that is `/`: those
            in a container are not the host's.

    Returns:
        Its address; None where there is none, and for a `DOCKER_HOST` that only Docker's own
        client can use (`ssh://`). That there is a socket does not mean that this user may use it.

    Raises:
        ConfigurationError: No address is written like the one that was asked for.
    """
    if address:
        return None if address == NO_ENGINE else parse_address(address, environ).text
    if told := environ.get("DOCKER_HOST"):
        try:
            return parse_address(told, environ).text
        except ConfigurationError:
            return None
    if rootfs != Path("/"):
        return None
    own = environ.get("XDG_RUNTIME_DIR")
    paths = _SOCKETS + (tuple(f"{own}/{name}" for name in _OWN_SOCKETS) if own else ())
    return next((f"unix://{path}" for path in paths if _is_socket(path)), None)


def _is_socket(path: str) -> bool:
    with suppress(OSError):
        return stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116 - a path as text, like its kin
    return False


class EngineClient:
    """Asks an engine.

    Each question has a connection of its own, so that any number of threads may ask.

    Args:
        address: Where it listens, as `find_engine` gives it.
        timeout_seconds: How long to wait for a connection and for each part of an answer. An
            engine that was stopped takes connections and never answers.
        environ: Has `DOCKER_TLS_VERIFY` and `DOCKER_CERT_PATH`, for `tcp://`.

    Raises:
        ConfigurationError: No address is written like this, or the certificates cannot be read.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout_seconds: float = 2.0,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._address = parse_address(address, environ)
        self._timeout_seconds = timeout_seconds

    @property
    def address(self) -> str:
        """Where the engine listens."""
        return self._address.text

    def ping(self) -> None:
        """Have the engine show that it answers.

        Raises:
            EngineError: It does not.
        """
        self.ask("reach the engine", "/_ping")

    def version(self) -> Document:
        """Ask what the engine is: `/version`.

        Raises:
            EngineError: It could not be asked.
        """
        return self._ask_for_mapping("ask for the engine's version", "/version")

    def info(self) -> Document:
        """Ask how the engine is set up: `/info`.

        Raises:
            EngineError: It could not be asked.
        """
        return self._ask_for_mapping("ask how the engine is set up", "/info")

    def list_containers(self) -> tuple[Document, ...]:
        """Ask for all containers, also those that do not run: `/containers/json?all=1`.

        Raises:
            EngineError: It could not be asked.
        """
        act = "list the containers"
        body = self.ask(act, "/containers/json", {"all": "1"}, most_bytes=_MOST_LIST_BYTES)
        found = _parse(act, body)
        if not isinstance(found, list):
            raise _not_understood(act)
        return tuple(as_mapping(entry) for entry in found)

    def inspect(self, container: str) -> Document:
        """Ask for everything about a container: `/containers/{id}/json`.

        Args:
            container: Its ID, the beginning of it, or its name.

        Raises:
            EngineError: It could not be asked; its status is 404 where there is no such container.
        """
        return self._ask_for_mapping(
            f"inspect container {container[:64]}", _path_of(container, "json")
        )

    def stats(self, container: str) -> Usage | None:
        """Ask what a container uses: `/containers/{id}/stats`; Docker before 23 takes a second.

        Returns:
            What it uses; None where it does not run.

        Raises:
            EngineError: It could not be asked.
        """
        act = f"ask what container {container[:64]} uses"
        body = self.ask(
            act,
            _path_of(container, "stats"),
            {"stream": "0", "one-shot": "1"},
            timeout_seconds=_STATISTICS_TIMEOUT_SECONDS,
        )
        return parse_statistics(as_mapping(_parse(act, body)))

    def logs(
        self,
        container: str,
        *,
        tail: int = 500,
        since: float | None = None,
        until: float | None = None,
    ) -> tuple[str, ...]:
        """Read the last lines of a container's log, standard output and error as they came.

        Args:
            container: Its ID or name.
            tail: How many lines.
            since: Only lines from then on, seconds since 1970, such as its last start.
            until: Only lines up to then.

        Returns:
            The lines, the oldest first, masked; at most 64 KiB, of very long ones both ends.

        Raises:
            EngineError: They could not be read: with status 404 or 409 because the container was
                removed, with 501 because its log driver keeps nothing that can be read.
        """
        act = f"read the log of container {container[:64]}"
        target = f"{_path_of(container, 'logs')}?{urlencode(log_query(tail, since, until))}"
        decoder = LogDecoder()
        lines = LastLines(most_lines=tail, most_bytes=_LOG_BYTES)
        try:
            for data in self._receive_body(act, target, _MOST_LIST_BYTES, self._timeout_seconds):
                lines.add(decoder.feed(data))
        except FramingError as error:
            raise _not_understood(act) from error
        lines.add(decoder.unfinished)
        return mask_lines(lines.read())

    def ask(
        self,
        act: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        most_bytes: int = _MOST_BYTES,
        timeout_seconds: float | None = None,
    ) -> bytes:
        """Ask for something and wait for the whole answer.

        Args:
            act: What for, for the error: `list the containers`.
            path: The path, percent-encoded.
            query: Names and values behind it.
            most_bytes: The longest answer that is read.
            timeout_seconds: How long to wait for each part of it; None for the client's own.

        Raises:
            EngineError: There is no answer, not all of it, or another than 200.
        """
        patience = timeout_seconds or self._timeout_seconds
        return b"".join(self._receive_body(act, _join(path, query), most_bytes, patience))

    def open_stream(
        self,
        act: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        waits: bool = True,
    ) -> Stream:
        """Ask for something that comes bit by bit, and may never end.

        Args:
            act: What for, for the error.
            path: The path, percent-encoded.
            query: Names and values behind it.
            waits: Wait until the engine has begun to answer. Of a log that is followed it does so
                only with the first line: who does not wait, must look at the status.

        Raises:
            EngineError: There is no answer, or another than 200.
        """
        stream = self._get(act, _join(path, query))
        if waits:
            try:
                self._await_good(act, stream, self._timeout_seconds)
            except EngineError:
                stream.close()
                raise
        return stream

    def _ask_for_mapping(self, act: str, path: str) -> Document:
        found = _parse(act, self.ask(act, path))
        if not isinstance(found, dict):
            raise _not_understood(act)
        return found

    def _receive_body(
        self, act: str, target: str, most_bytes: int, patience_seconds: float
    ) -> Iterator[bytes]:
        until = time.monotonic() + _PARTS * patience_seconds
        with closing(self._get(act, target)) as stream:
            self._await_good(act, stream, patience_seconds)
            while data := self._receive(act, stream, patience_seconds, until):
                most_bytes -= len(data)
                if most_bytes < 0:
                    raise EngineError(act, "the answer is too long", _OTHER_REMEDY)
                yield data
            if stream.ends_by_itself and not stream.is_complete:
                raise EngineError(act, "the answer broke off", _OTHER_REMEDY)

    def _receive(self, act: str, stream: Stream, patience_seconds: float, until: float) -> bytes:
        try:
            data = stream.receive(patience_seconds)
        except FramingError as error:
            raise _not_understood(act) from error
        if data is None or time.monotonic() > until:
            raise self._failed(act, TimeoutError())
        return data

    def _await_good(self, act: str, stream: Stream, patience_seconds: float) -> None:
        try:
            stream.await_head(patience_seconds)
        except TimeoutError as error:
            raise self._failed(act, error) from error
        except FramingError as error:
            raise _not_understood(act) from error
        if stream.status != _OK:
            raise _refused(act, stream, patience_seconds)

    def _get(self, act: str, target: str) -> Stream:
        head = f"{target} HTTP/1.1\r\nHost: {self._address.authority}\r\nConnection: close\r\n\r\n"
        try:
            connection = self._address.connect(self._timeout_seconds)
        except OSError as error:
            raise self._failed(act, error) from error
        try:
            connection.sendall(b"GET " + head.encode("ascii"))
        except OSError as error:
            connection.close()
            raise self._failed(act, error) from error
        return Stream(connection)

    def _failed(self, act: str, error: OSError) -> EngineError:
        return EngineError(act, *describe_failure(self._address, error))


def log_query(tail: int, since: float | None = None, until: float | None = None) -> dict[str, str]:
    """Give what to ask of a log: both streams, without times, the last lines in a span of time."""
    query = {"stdout": "1", "stderr": "1", "timestamps": "0", "tail": str(tail)}
    if since is not None:
        query["since"] = f"{since:.9f}"
    if until is not None:
        query["until"] = f"{until:.9f}"
    return query


def mask_lines(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Mask lines of a log together, since a secret may have more than one line."""
    return tuple(mask_text("\n".join(lines)).split("\n")) if lines else ()


def _path_of(container: str, name: str) -> str:
    return f"/containers/{quote(container, safe='')}/{name}"


def _join(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _parse(act: str, body: bytes) -> object:
    try:
        return parse_json(body)
    except ValueError as error:
        raise _not_understood(act) from error


def _not_understood(act: str) -> EngineError:
    return EngineError(
        act, "the answer is none of an engine", "check --containers.engine or DOCKER_HOST"
    )


def _refused(act: str, stream: Stream, patience_seconds: float) -> EngineError:
    """Give the error for another answer than 200, with the engine's own words."""
    status = stream.status
    with suppress(FramingError, ValueError):
        told = as_mapping(parse_json(stream.receive(patience_seconds) or b""))
        message = mask_text(get_text(told, "message"))[:_COMPLAINT_LENGTH]
        if message:
            why = f"the engine says {status} {message}"
            return EngineError(act, why, _remedy(status), status=status)
    return EngineError(act, f"the engine says {status}", _remedy(status), status=status)


def _remedy(status: int | None) -> str:
    return _REMEDIES.get(status or 0, _OTHER_REMEDY)
