"""Where an engine listens, and how to get through to it."""

from __future__ import annotations

import errno
import grp
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trainvitals.errors import ConfigurationError
from trainvitals.masking import mask_text

_SCHEMES = ("tcp", "http", "https")
_PORT = 2375
_TLS_PORT = 2376
_PROXY = "--containers.engine=tcp://HOST:PORT of a read-only proxy"


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine listens.

    Attributes:
        text: As it was written.
        path: The path of its Unix socket; empty for none.
        host: The host; empty with a Unix socket.
        port: The port.
        tls: How to make sure of the other side; None for a connection in the clear.
    """

    text: str
    path: str = ""
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None

    @property
    def authority(self) -> str:
        """What HTTP calls the host."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{name}:{self.port}" if self.host else "localhost"

    def connect(self, timeout_seconds: float) -> socket.socket:
        """Connect.

        Raises:
            OSError: Nobody listens there, this user may not, or it takes too long.
        """
        if not self.path:
            plain = socket.create_connection((self.host, self.port), timeout_seconds)
            return self._secure(plain)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_seconds)
            connection.connect(self.path)
        except OSError:
            connection.close()
            raise
        return connection

    def _secure(self, plain: socket.socket) -> socket.socket:
        if self.tls is None:
            return plain
        try:
            return self.tls.wrap_socket(plain, server_hostname=self.host)
        except OSError:
            plain.close()
            raise


def parse_address(text: str, environ: Mapping[str, str]) -> Address:
    """Read `unix:///PATH`, `/PATH`, `tcp://HOST:PORT`, `http://…` or `https://…`.

    Args:
        text: The address.
        environ: As Docker's own client reads it: with `DOCKER_TLS_VERIFY`, `tcp://` is secured
            with the `ca.pem`, `cert.pem` and `key.pem` in `DOCKER_CERT_PATH`.

    Raises:
        ConfigurationError: No address is written like this, or a certificate cannot be read.
    """
    path = text.removeprefix("unix://")
    if path.startswith("/"):
        return Address(f"unix://{path}", path=path)
    try:
        parts = urlsplit(text)
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
        is_plain = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
    except ValueError:  # a port that is no number, brackets that do not match
        scheme, host, port, is_plain = "", "", None, False
    if scheme not in _SCHEMES or not host or not is_plain:
        raise ConfigurationError(
            f"cannot reach an engine at {mask_text(text)}: write unix:///PATH, tcp://HOST:PORT "
            "or none"
        )
    if scheme == "http" or (scheme == "tcp" and not environ.get("DOCKER_TLS_VERIFY")):
        return Address(text, host=host, port=port or _PORT)
    return Address(text, host=host, port=port or _TLS_PORT, tls=_read_certificates(environ))


def _read_certificates(environ: Mapping[str, str]) -> ssl.SSLContext:
    folder = environ.get("DOCKER_CERT_PATH")
    if not folder:
        return ssl.create_default_context()
    authority, certificate, key = (
        Path(folder) / name for name in ("ca.pem", "cert.pem", "key.pem")
    )
    try:
        context = ssl.create_default_context(cafile=authority)
        if certificate.exists():
            context.load_cert_chain(certificate, key)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the certificates in {folder}: {error.strerror or error}; "
            "check DOCKER_CERT_PATH"
        ) from error
    return context


def describe_failure(address: Address, error: OSError) -> tuple[str, str]:
    """Say why nobody could be reached at an address, and what to do about it."""
    place = mask_text(address.text)
    if isinstance(error, TimeoutError | BlockingIOError):  # the latter: its backlog is full
        return f"{place} does not answer", "look with `docker version` whether the engine hangs"
    if isinstance(error, ssl.SSLError):  # whose numbers are OpenSSL's own
        return f"{place}: {error.reason or error}", "check DOCKER_TLS_VERIFY and DOCKER_CERT_PATH"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return f"permission denied for {place}", _describe_permission(address.path)
    if error.errno in {errno.ENOENT, errno.ECONNREFUSED, errno.ENOTSOCK, errno.ENOTDIR}:
        return (
            f"no engine listens at {place}",
            "start it (`systemctl start docker`), or say with --containers.engine where it is",
        )
    why = error.strerror or str(error) or type(error).__name__
    return f"{place}: {why}", "check --containers.engine or DOCKER_HOST"


def _describe_permission(path: str) -> str:
    try:
        group = os.stat(path).st_gid  # noqa: PTH116 - a path that nobody promised to be one
    except OSError:
        return f"run as root, or give {_PROXY}"
    if group == 0:
        return f"run as root, or give {_PROXY}"
    try:
        name = f"the group {grp.getgrgid(group).gr_name} (gid {group})"
    except KeyError:
        name = f"the group with gid {group}"
    return f"add this user to {name}, or give {_PROXY}"
