"""A client for a container engine: Docker, or Podman through Docker's API.

Access is read-only, because `AnswerDecoder` writes the requests and supports only the method GET.
The request paths contain no API version, because an engine refuses versions that it does not
support. Each engine answers in its default version. Only members that exist in all versions,
including Podman's, are read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from urllib.parse import quote, urlencode

from trainvitals.errors import SourceError
from trainvitals.masking import mask_text
from trainvitals.sources.containers.address import describe_failure, parse_address
from trainvitals.sources.containers.documents import Document, as_mapping, get_text, parse_json
from trainvitals.sources.containers.evidence import Gap
from trainvitals.sources.containers.framing import (
    AnswerDecoder,
    FramingError,
    LastLines,
    LogDecoder,
)
from trainvitals.sources.containers.reading import Usage
from trainvitals.sources.containers.statistics import parse_statistics
from trainvitals.sources.containers.stream import Stream

_MIB = 1 << 20
_MOST_BYTES = 4 * _MIB
_MOST_LIST_BYTES = 32 * _MIB
_LOG_BYTES = 1 << 16
_COMPLAINT_LENGTH = 300
# The maximum time for a whole answer, as a multiple of the maximum time for one part.
_PARTS = 5
# Without `one-shot`, an engine takes two samples, one second apart, for the CPU share that
# `docker stats` shows (moby/moby#40478). Engines before API 1.41 ignore the option, and some later
# engines are slow as well.
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
    """A request to the engine failed or was refused.

    Args:
        act: The action that failed, such as `read the log`.
        why: The reason for the failure.
        remedy: The action with which the user can fix the failure.
        status: The HTTP status of the engine's answer; None if the engine did not answer.
    """

    def __init__(self, act: str, why: str, remedy: str, *, status: int | None = None) -> None:
        super().__init__(f"cannot {act}: {why}; {remedy}")
        self.why = why
        self.remedy = remedy
        self.status = status

    def to_gap(self, what: str) -> Gap:
        """Return the error as a gap in the evidence."""
        return Gap(what, self.why, self.remedy)


class EngineClient:
    """Sends requests to a container engine.

    Each request opens a new connection, so any number of threads may use a client.

    Args:
        address: The engine's address, in the form that `find_engine` returns.
        timeout_seconds: The maximum time to wait for a connection and for each part of an answer,
            in seconds. The socket of a suspended engine accepts connections, but the engine never
            answers.
        environ: The environment, from which `DOCKER_TLS_VERIFY` and `DOCKER_CERT_PATH` are read for
            `tcp://`.

    Raises:
        ConfigurationError: The address is invalid, or the certificates cannot be read.
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
        """The address of the container engine."""
        return self._address.text

    def ping(self) -> None:
        """Check that the engine answers a request.

        Raises:
            EngineError: The engine does not answer the request.
        """
        self.ask("reach the engine", "/_ping")

    def version(self) -> Document:
        """Return the engine's answer to `/version`.

        Raises:
            EngineError: The request to the engine failed.
        """
        return self._ask_for_mapping("ask for the engine's version", "/version")

    def info(self) -> Document:
        """Return the engine's answer to `/info`.

        Raises:
            EngineError: The request to the engine failed.
        """
        return self._ask_for_mapping("ask how the engine is set up", "/info")

    def list_containers(self) -> tuple[Document, ...]:
        """Return the entries of all containers, including stopped ones.

        The entries are read from `/containers/json?all=1`.

        Raises:
            EngineError: The request to the engine failed.
        """
        act = "list the containers"
        body = self.ask(act, "/containers/json", {"all": "1"}, most_bytes=_MOST_LIST_BYTES)
        found = _parse(act, body)
        if not isinstance(found, list):
            raise _not_understood(act)
        return tuple(as_mapping(entry) for entry in found)

    def inspect(self, container: str) -> Document:
        """Return a container's inspection from `/containers/{id}/json`.

        Args:
            container: The container's ID, a prefix of the ID, or the container's name.

        Raises:
            EngineError: The request failed; the error's status is 404 if the container does not
                exist.
        """
        return self._ask_for_mapping(
            f"inspect container {container[:64]}", _path_of(container, "json")
        )

    def stats(self, container: str) -> Usage | None:
        """Return a container's resource usage from `/containers/{id}/stats`.

        Docker before version 23 takes a second to answer this request.

        Returns:
            The container's resource usage; None if the container is not running.

        Raises:
            EngineError: The request to the engine failed.
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
        """Return the last lines of a container's standard output and standard error, in order.

        Args:
            container: The ID or name of the container.
            tail: The maximum number of lines to return.
            since: The time after which lines are returned, in seconds since 1970, such as the time
                of the last start; None for no limit.
            until: The time before which lines are returned, in seconds since 1970; None for no
                limit.

        Returns:
            The masked log lines, the oldest first, at most 64 KiB in total. The middle of a very
            long line is omitted.

        Raises:
            EngineError: The log could not be read. The error's status is 404 or 409 if the
                container was removed, and 501 if the log driver keeps no readable log.
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
        """Send a request and return the complete body of the answer.

        Args:
            act: The purpose of the request, such as `list the containers`, for error messages.
            path: The URL path of the request, percent-encoded.
            query: The query parameters of the request.
            most_bytes: The maximum size of the answer, in bytes.
            timeout_seconds: The maximum time to wait for each part of the answer, in seconds; None
                for the client's timeout.

        Raises:
            EngineError: The engine did not answer, the answer is truncated or too long, or the
                answer's status is not 200.
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
        """Request an answer as a stream, which may never end.

        Args:
            act: The purpose of the request, for error messages.
            path: The URL path of the request, percent-encoded.
            query: The query parameters of the request.
            waits: Whether to wait until the engine starts to answer. For a followed log, the engine
                starts to answer only when the first line is written. A caller that does not wait
                must check the answer's status.

        Raises:
            EngineError: The engine could not be reached. If `waits` is True, the error is also
                raised if the engine does not answer or answers with a status other than 200.
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
        decoder = AnswerDecoder(target, host=self._address.authority)
        try:
            connection = self._address.connect(self._timeout_seconds)
        except OSError as error:
            raise self._failed(act, error) from error
        try:
            connection.sendall(decoder.request)
        except OSError as error:
            connection.close()
            raise self._failed(act, error) from error
        return Stream(connection, decoder)

    def _failed(self, act: str, error: OSError) -> EngineError:
        return EngineError(act, *describe_failure(self._address, error))


def log_query(tail: int, since: float | None = None, until: float | None = None) -> dict[str, str]:
    """Return the query parameters that request the last log lines in a time range.

    The parameters request standard output and standard error, without timestamps.
    """
    query = {"stdout": "1", "stderr": "1", "timestamps": "0", "tail": str(tail)}
    if since is not None:
        query["since"] = f"{since:.9f}"
    if until is not None:
        query["until"] = f"{until:.9f}"
    return query


def mask_lines(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Mask the secrets in log lines, including secrets that span several lines."""
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
        act, "the answer is not that of an engine", "check --containers.engine or DOCKER_HOST"
    )


def _refused(act: str, stream: Stream, patience_seconds: float) -> EngineError:
    """Return the error for an answer with a status other than 200.

    The error contains the engine's message, if the answer contains a message.
    """
    status = stream.status
    with suppress(FramingError, ValueError):
        answer = as_mapping(parse_json(stream.receive(patience_seconds) or b""))
        message = mask_text(get_text(answer, "message"))[:_COMPLAINT_LENGTH]
        if message:
            why = f"the engine says {status} {message}"
            return EngineError(act, why, _remedy(status), status=status)
    return EngineError(act, f"the engine says {status}", _remedy(status), status=status)


def _remedy(status: int | None) -> str:
    return _REMEDIES.get(status or 0, _OTHER_REMEDY)
