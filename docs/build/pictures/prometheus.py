"""A Prometheus that is asked, over connections that are kept."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit


class AskingError(Exception):
    """Prometheus does not answer, or answers that it cannot; says which query it was."""


@dataclass(frozen=True, slots=True)
class Request:
    """A question.

    Attributes:
        path: Below `/api/v1/`.
        parameters: With their names.
    """

    path: str
    parameters: tuple[tuple[str, str], ...]


class Prometheus:
    """A Prometheus by its address. Each thread has a connection of its own.

    Args:
        url: As `http://127.0.0.1:9090`, with the path below which it lives.
        timeout: In seconds.
    """

    def __init__(self, url: str, *, timeout: float = 30.0) -> None:
        self._address = urlsplit(url if "://" in url else f"http://{url}")
        self._timeout = timeout
        self._own = threading.local()

    def ask(self, request: Request) -> Any:  # noqa: ANN401 - JSON
        """Give what an answer holds as `data`.

        Raises:
            AskingError: There is no answer, or an error.
        """
        status, body = self.fetch(request)
        try:
            answer = json.loads(body)
        except ValueError:
            raise AskingError(f"{request.path}: HTTP {status}, and no JSON") from None
        if answer.get("status") != "success":
            query = dict(request.parameters).get("query", request.path)
            raise AskingError(f"{answer.get('error')}: {query}")
        return answer["data"]

    def fetch(self, request: Request) -> tuple[int, bytes]:
        """Give an answer's status and body, as they come.

        Raises:
            AskingError: There is none.
        """
        try:
            return self._post(request)
        except (OSError, HTTPException):
            self._own.connection = None  # the server may have closed one that was idle
        try:
            return self._post(request)
        except (OSError, HTTPException) as error:
            where = self._address.geturl()
            raise AskingError(f"no Prometheus answers at {where}: {error}") from None

    def close(self) -> None:
        """Close the connection of this thread."""
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            connection.close()
        self._own.connection = None

    def _post(self, request: Request) -> tuple[int, bytes]:
        connection = self._connect()
        path = f"{self._address.path.rstrip('/')}/api/v1/{request.path}"
        body = urlencode(request.parameters)
        if request.path.startswith("label/"):  # which takes no POST
            connection.request("GET", f"{path}?{body}")
        else:
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", path, body, kind)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def _connect(self) -> HTTPConnection:
        connection: HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is None:
            kind = HTTPSConnection if self._address.scheme == "https" else HTTPConnection
            connection = kind(self._address.netloc, timeout=self._timeout)
            self._own.connection = connection
        return connection


def write_request(path: str, parameters: Sequence[tuple[str, object]]) -> Request:
    """Make a question, with all values as text."""
    return Request(path, tuple((name, str(value)) for name, value in parameters))
