"""Find the address of a container engine, and connect to the engine."""

from __future__ import annotations

import errno
import grp
import os
import socket
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trainvitals.errors import ConfigurationError
from trainvitals.sources.files import Roots

if TYPE_CHECKING:
    import ssl

NO_ENGINE = "none"
_SOCKETS = ("/var/run/docker.sock", "/run/podman/podman.sock")
_OWN_SOCKETS = ("docker.sock", "podman/podman.sock")
_PID_FILE = "run/docker.pid"
_SCHEMES = ("tcp", "http", "https")
_PORT = 2375
_TLS_PORT = 2376
_PROXY = "--containers.engine=tcp://HOST:PORT of a read-only proxy"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a container engine.

    Attributes:
        text: The address as text; the address of a Unix socket begins with `unix://`.
        path: The path of the engine's Unix socket; empty for a TCP connection.
        host: The host name or IP address of the engine; empty for a Unix socket.
        port: The TCP port of the engine; 0 for a Unix socket.
        tls: The TLS context, which verifies the server; None for an unencrypted connection.
    """

    text: str
    path: str = ""
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None

    @property
    def authority(self) -> str:
        """The value of the HTTP header `Host` for requests to the engine."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{name}:{self.port}" if self.host else "localhost"

    def connect(self, timeout_seconds: float) -> socket.socket:
        """Connect to the engine and return the socket.

        Raises:
            OSError: No server listens at the address, this user has no permission to connect, or
                the connection times out.
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


def find_engine(address: str | None, *, environ: Mapping[str, str], rootfs: Path) -> str | None:
    """Return the address of the container engine to query.

    Args:
        address: The configured address: `unix:///PATH`, `/PATH`, `tcp://HOST:PORT`, `http://…`,
            `https://…` or `none`; None to detect the address.
        environ: The environment, from which `DOCKER_HOST` and `XDG_RUNTIME_DIR` are read;
            `DOCKER_HOST` takes precedence over the usual sockets.
        rootfs: The host's root directory. The usual sockets are searched for only if this directory
            is `/`, because sockets in a container are not the host's sockets.

    Returns:
        The engine's address; None if no engine was found, or if only Docker's own client can use
        the value of `DOCKER_HOST` (`ssh://`). This user may lack permission to use the address.

    Raises:
        ConfigurationError: The configured address is invalid.
    """
    if address:
        return None if address == NO_ENGINE else parse_address(address, environ).text
    if configured := environ.get("DOCKER_HOST"):
        try:
            return parse_address(configured, environ).text
        except ConfigurationError:
            return None
    if rootfs != Path("/"):
        return None
    own = environ.get("XDG_RUNTIME_DIR")
    paths = _SOCKETS + (tuple(f"{own}/{name}" for name in _OWN_SOCKETS) if own else ())
    return next((f"unix://{path}" for path in paths if _is_socket(path)), None)


def _is_socket(path: str) -> bool:
    with suppress(OSError):
        return stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116 - the path is text
    return False


def parse_address(text: str, environ: Mapping[str, str]) -> Address:
    """Parse the address of a container engine.

    Args:
        text: The engine address: `unix:///PATH`, `/PATH`, `tcp://HOST:PORT`, `http://…` or
            `https://…`.
        environ: The environment, which is interpreted in the same way as by Docker's own client. If
            `DOCKER_TLS_VERIFY` is set, `tcp://` connections are secured with the files `ca.pem`,
            `cert.pem` and `key.pem` in `DOCKER_CERT_PATH`.

    Raises:
        ConfigurationError: The address is invalid, or a certificate cannot be read.
    """
    path = text.removeprefix("unix://")
    if path.startswith("/"):
        return Address(f"unix://{path}", path=path)
    try:
        parts = urlsplit(text)
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
        is_plain = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
    except ValueError:  # the port is not numeric, or the brackets do not match
        scheme, host, port, is_plain = "", "", None, False
    if scheme not in _SCHEMES or not host or not is_plain:
        raise ConfigurationError(
            f"cannot reach an engine at {_mask(text)}: write unix:///PATH, tcp://HOST:PORT or none"
        )
    if scheme == "http" or (scheme == "tcp" and not environ.get("DOCKER_TLS_VERIFY")):
        return Address(text, host=host, port=port or _PORT)
    return Address(text, host=host, port=port or _TLS_PORT, tls=_read_certificates(environ))


def _read_certificates(environ: Mapping[str, str]) -> ssl.SSLContext:
    import ssl  # noqa: PLC0415 - slow to import, and rarely needed

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
    """Return the reason why the engine at an address could not be reached, and a remedy."""
    place = _mask(address.text)
    if isinstance(error, TimeoutError | BlockingIOError):  # the latter: the backlog is full
        return f"{place} does not answer", "look with `docker version` whether the engine hangs"
    if address.tls is not None and (reason := getattr(error, "reason", None)):
        return f"{place}: {reason}", "check DOCKER_TLS_VERIFY and DOCKER_CERT_PATH"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return f"permission denied for {place}", _describe_permission(address.path)
    if error.errno in {errno.ENOENT, errno.ECONNREFUSED, errno.ENOTSOCK, errno.ENOTDIR}:
        return (
            f"no engine listens at {place}",
            "start it (`systemctl start docker`), or say with --containers.engine where it is",
        )
    why = error.strerror or str(error) or type(error).__name__
    return f"{place}: {why}", "check --containers.engine or DOCKER_HOST"


def _mask(text: str) -> str:
    from trainvitals.masking import mask_text  # noqa: PLC0415 - needed only after a failure

    return mask_text(text)


def _describe_permission(path: str) -> str:
    try:
        group = os.stat(path).st_gid  # noqa: PTH116 - the path is the user's text
    except OSError:
        return f"run as root, or give {_PROXY}"
    if group == 0:
        return f"run as root, or give {_PROXY}"
    try:
        name = f"the group {grp.getgrgid(group).gr_name} (gid {group})"
    except KeyError:
        name = f"the group with gid {group}"
    return f"add this user to {name}, or give {_PROXY}"


def find_engine_start(address: str, roots: Roots) -> float | None:
    """Return the time when the Docker daemon wrote its PID file; None if the time is unknown.

    Args:
        address: The engine's address. For a Unix socket other than Docker's, the result is None.
        roots: The paths of the host's file systems.
    """
    if address.startswith("unix://") and not address.endswith("/run/docker.sock"):
        return None
    try:
        return (roots.rootfs / _PID_FILE).stat().st_mtime
    except OSError:
        return None
