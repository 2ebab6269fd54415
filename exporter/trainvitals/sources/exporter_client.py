"""An HTTP client for an exporter, and the exporter's address and credentials."""

from __future__ import annotations

import http.client
import netrc
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from trainvitals.errors import ConfigurationError, TrainvitalsError
from trainvitals.sources.http_client import (
    TooLargeError,
    encode_basic,
    read_bounded,
    read_secret_file,
)
from trainvitals.units import format_bytes, format_duration

if TYPE_CHECKING:
    import ssl

_DEFAULT_PORT = 9200
_PASSWORD_VARIABLE = "TRAINVITALS_PASSWORD"  # noqa: S105 - the name of a variable
_PORTS = {"http": 80, "https": 443}
_PATH = "/api/v1/overview"
_PATIENCE_SECONDS = 10.0
_MOST_BYTES = 32 << 20
_WORDS = {
    401: "requires another user and password: set them with --user and --password-file",
    403: "does not permit this user",
    404: f"has no {_PATH}: it is not a trainvitals exporter, or an older one",
    503: "is too busy to answer",
}
_QUICK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an exporter.

    Attributes:
        is_tls: Whether the exporter uses TLS.
        host: The exporter's hostname or IP address.
        port: The exporter's port.
        prefix: The prefix of the exporter's URL paths, which a proxy may require; empty if the
            paths have no prefix.
        user: The user name in the URL; None if the URL contains no user name.
    """

    is_tls: bool
    host: str
    port: int
    prefix: str = ""
    user: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}{self.prefix}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials for an exporter: a user name and a password.

    Attributes:
        user: The user name to send to the exporter.
        password: The password to send to the exporter.
    """

    user: str
    password: str = field(repr=False)

    def write_header(self) -> str:
        """Return the value of the `Authorization` header for these credentials."""
        return encode_basic(f"{self.user}:{self.password}")


def parse_url(text: str) -> Address:
    """Parse the value of `--url`.

    Examples of the value are `http://HOST:PORT`, `https://HOST` and `HOST`. If the value does not
    contain a scheme, the default port is 9200.

    Raises:
        ConfigurationError: The text is not a valid URL, or it contains a password. Other users of
            the machine could see the password.
    """
    is_bare = "://" not in text
    try:
        parts = urlsplit(f"http://{text}" if is_bare else text)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"--url {text}: {error}; write http://HOST:PORT") from error
    if parts.password is not None:
        raise ConfigurationError(
            "--url: every user of this machine can see a password there; put it into a file and name "
            f"it with --password-file, or set ${_PASSWORD_VARIABLE}"
        )
    host = parts.hostname or ""
    if parts.scheme not in _PORTS or not host.isprintable() or not host or " " in host:
        raise ConfigurationError(f"--url {text}: write http://HOST:PORT or https://HOST:PORT")
    if parts.query or parts.fragment or not parts.path.isascii() or not parts.path.isprintable():
        raise ConfigurationError(f"--url {text}: leave out what follows the port or path")
    return Address(
        is_tls=parts.scheme == "https",
        host=host,
        port=port or (_DEFAULT_PORT if is_bare else _PORTS[parts.scheme]),
        prefix=parts.path.rstrip("/"),
        user=unquote(parts.username) if parts.username else None,
    )


def find_credentials(
    address: Address,
    *,
    user: str | None,
    password_file: Path | None,
    environ: Mapping[str, str],
    netrc_path: Path,
) -> Credentials | None:
    """Return the credentials for an exporter; None if no credentials are configured.

    The flags, the user name in the URL and the environment take precedence over `~/.netrc`.

    Args:
        address: The exporter's address.
        user: The value of `--user`; None if `--user` is not set.
        password_file: The value of `--password-file`, a file whose first line is the password; None
            if `--password-file` is not set.
        environ: The environment, which may contain `TRAINVITALS_PASSWORD`.
        netrc_path: The path of `~/.netrc`, which need not exist.

    Raises:
        ConfigurationError: A user is set and no password is found, `--password-file` is set without
            a user, or a file cannot be read.
    """
    known = _read_netrc(netrc_path, address.host)
    user = user or address.user
    password = environ.get(_PASSWORD_VARIABLE) or None
    if password_file is not None:
        text = read_secret_file(password_file, "--password-file")
        password = text.partition("\n")[0].rstrip("\r")
    if user is None and password is None:
        return known
    if user is None:
        if password_file is not None:
            raise ConfigurationError("--password-file without a user: name them with --user")
        return known
    if password is not None:
        return Credentials(user, password)
    if known is not None and known.user == user:
        return known
    raise ConfigurationError(
        f"no password for {user}: name a file with --password-file, set ${_PASSWORD_VARIABLE}, or add "
        f"a line for {address.host} to ~/.netrc"
    )


def _read_netrc(path: Path, host: str) -> Credentials | None:
    try:
        found = netrc.netrc(str(path)).authenticators(host)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, netrc.NetrcParseError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}; mend it or move it away") from error
    return None if found is None else Credentials(found[0], found[2] or "")


HERE = Address(is_tls=False, host="127.0.0.1", port=_DEFAULT_PORT)


def listens(address: Address) -> bool:
    """Return whether a server at an address accepts a connection within a short timeout."""
    with suppress(OSError), socket.create_connection((address.host, address.port), _QUICK_SECONDS):
        return True
    return False


class RemoteError(TrainvitalsError):
    """The error that is raised if an exporter does not answer or its answer is invalid."""


class ExporterClient:
    """Queries an exporter over a new connection for each request.

    Args:
        address: The exporter's address.
        credentials: The user name and password; None to send no credentials.
        context: The TLS context; None if the exporter does not use TLS.

    Attributes:
        address: The exporter's address.
    """

    def __init__(
        self,
        address: Address,
        *,
        credentials: Credentials | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address
        self._credentials = credentials
        self._context = context

    def fetch(self) -> bytes:
        """Return the exporter's overview document.

        Raises:
            RemoteError: The document cannot be fetched. The message states the reason and, if
                known, the remedy.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        connection = self._connect()
        try:
            connection.request("GET", f"{self.address.prefix}{_PATH}", headers=self._headers())
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                words = _WORDS.get(answer.status, f"answers {answer.status}")
                raise RemoteError(f"{self.address} {words}")
            return read_bounded(answer, deadline=deadline, most_bytes=_MOST_BYTES)
        except TooLargeError as error:
            raise RemoteError(
                f"{self.address} sends more than {format_bytes(_MOST_BYTES)}"
            ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RemoteError(f"{self.address} {self._explain(error)}") from error
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        # `urllib` is not used, because it would use a proxy from the environment.
        host, port, timeout = self.address.host, self.address.port, _PATIENCE_SECONDS
        if self._context is None:
            return http.client.HTTPConnection(host, port, timeout=timeout)
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)

    def _headers(self) -> Mapping[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "trainvitals"}
        if self._credentials is not None:
            headers["Authorization"] = self._credentials.write_header()
        return headers

    def _explain(self, error: Exception) -> str:
        if isinstance(error, ConnectionRefusedError):
            return "refuses connections: is `trainvitals serve` running there, on this address?"
        if isinstance(error, TimeoutError):
            return f"does not answer within {format_duration(_PATIENCE_SECONDS)}"
        if isinstance(error, socket.gaierror):
            return f"is not to be found: {error.strerror}"
        if self._context is not None:
            return _explain_tls(error)
        if isinstance(error, http.client.BadStatusLine | ConnectionResetError):
            return "does not answer in HTTP; if it speaks TLS, write https://"
        return f"cannot be asked: {_name(error)}"


def make_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return the TLS context for connections to an exporter.

    Args:
        ca_file: A PEM file with the trusted certificate authorities; None to trust the system's
            certificate authorities.

    Raises:
        ConfigurationError: `ca_file` cannot be read or contains no certificate.
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
