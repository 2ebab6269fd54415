"""An exporter, asked over HTTP."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.errors import ConfigurationError, TrainvitalsError
from trainvitals.overview.document import read_document
from trainvitals.overview.picture import Picture
from trainvitals.top.address import Address, Credentials

if TYPE_CHECKING:
    import ssl

_PATH = "/api/v1/overview"
_PATIENCE_SECONDS = 10.0
_MOST_BYTES = 32 << 20
_PIECE_BYTES = 1 << 16
_WORDS = {
    401: "wants a user and a password, and not these: --user and --password-file name them",
    403: "does not let this user look",
    404: f"has no {_PATH}: it is no exporter of trainvitals, or an older one",
    503: "is too busy to answer",
}


class RemoteError(TrainvitalsError):
    """An exporter does not tell what it was asked for."""


class RemoteOrigin:
    """Asks an exporter, with a new connection each time.

    Args:
        address: Which one.
        credentials: Who asks; None for nobody.
        context: Whom TLS trusts; None without TLS.
        patience_seconds: How long an answer may take.

    Attributes:
        words: Who it is, as the head of the screen says it.
    """

    def __init__(
        self,
        address: Address,
        *,
        credentials: Credentials | None = None,
        context: ssl.SSLContext | None = None,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        self.words = f"exporter at {address}"
        self._address = address
        self._credentials = credentials
        self._context = context
        self._patience_seconds = patience_seconds

    def fetch(self) -> bytes:
        """Give the document of the overview.

        Raises:
            RemoteError: It cannot be had; it says why and what to do.
        """
        until = time.monotonic() + self._patience_seconds
        connection = self._connect()
        try:
            connection.request("GET", f"{self._address.prefix}{_PATH}", headers=self._headers())
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                words = _WORDS.get(answer.status, f"answers {answer.status}")
                raise RemoteError(f"{self._address} {words}")
            return self._read(answer, until)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RemoteError(f"{self._address} {self._explain(error)}") from error
        finally:
            connection.close()

    def look(self) -> Picture:
        """Give the picture as the exporter has it now.

        Raises:
            TrainvitalsError: It cannot be had, or is none.
        """
        return read_document(self.fetch())

    def close(self) -> None:
        """Let go of nothing: each look has a connection of its own."""

    def _connect(self) -> http.client.HTTPConnection:
        # No urllib: it would send the request to a proxy that the environment names.
        host, port, timeout = self._address.host, self._address.port, self._patience_seconds
        if self._context is None:
            return http.client.HTTPConnection(host, port, timeout=timeout)
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)

    def _headers(self) -> Mapping[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "trainvitals"}
        if self._credentials is not None:
            headers["Authorization"] = self._credentials.write_header()
        return headers

    def _read(self, answer: http.client.HTTPResponse, until: float) -> bytes:
        pieces = []
        size = 0
        while piece := answer.read1(_PIECE_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > _MOST_BYTES:
                raise RemoteError(f"{self._address} sends more than {_MOST_BYTES >> 20} MiB")
            if time.monotonic() > until:
                raise TimeoutError
        return b"".join(pieces)

    def _explain(self, error: Exception) -> str:
        if isinstance(error, ConnectionRefusedError):
            return "refuses connections: is `trainvitals serve` running there, on this address?"
        if isinstance(error, TimeoutError):
            return f"does not answer within {self._patience_seconds:g} s"
        if isinstance(error, socket.gaierror):
            return f"is not to be found: {error.strerror}"
        if self._context is not None:
            return _explain_tls(error)
        if isinstance(error, http.client.BadStatusLine | ConnectionResetError):
            return "does not answer in HTTP; if it speaks TLS, write https://"
        return f"cannot be asked: {_name(error)}"


def make_context(ca_file: Path | None) -> ssl.SSLContext:
    """Make the settings of TLS.

    Args:
        ca_file: Who is trusted, in PEM; None for those that the system trusts.

    Raises:
        ConfigurationError: The file cannot be used.
    """
    import ssl  # noqa: PLC0415 - only with https

    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or "it has no certificate in PEM"
        raise ConfigurationError(f"--ca-file {ca_file}: {why}") from error


def _explain_tls(error: Exception) -> str:
    import ssl  # noqa: PLC0415

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"is not trusted: {error.verify_message}; name its authority with --ca-file"
    if isinstance(error, ssl.SSLError):
        return f"does not speak TLS as it should ({error.reason}); if it has none, write http://"
    return f"cannot be asked: {_name(error)}"


def _name(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
