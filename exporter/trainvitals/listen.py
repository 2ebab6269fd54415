"""Where the exporter listens: addresses as the flag writes them, and the sockets bound to them."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

from trainvitals.errors import ConfigurationError

_FLAG = "--web.listen-address"
_FORMS = "write it as 127.0.0.1:9200, [::1]:9200, localhost:9200 or, for all addresses, :9200"


class Address(NamedTuple):
    """One address to listen on.

    Attributes:
        host: An IP address or a name; empty for every address of the machine.
        port: From 0 to 65535; 0 lets the system choose a free one.
    """

    host: str
    port: int

    def __str__(self) -> str:
        """Write the address as the flag takes it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read one value of `--web.listen-address`.

    Raises:
        ConfigurationError: It is not HOST:PORT.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host and "/" not in host:
        raise ConfigurationError(f"{_FLAG} {text}: an IPv6 address needs brackets; {_FORMS}")
    if not colon or any(character in "[]/ " for character in host):
        raise ConfigurationError(f"{_FLAG} {text}: this is not HOST:PORT; {_FORMS}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 1 << 16):  # noqa: PLR2004
        raise ConfigurationError(f"{_FLAG} {text}: the port is not a number up to 65535; {_FORMS}")
    return Address(host, int(port))


def open_listeners(
    addresses: Sequence[Address],
    *,
    backlog: int,
    find_holder: Callable[[int], tuple[int, str] | None] | None = None,
) -> tuple[socket.socket, ...]:
    """Listen on every address, or on none.

    Args:
        addresses: Where to listen.
        backlog: How many connections may wait to be accepted.
        find_holder: Names the process that listens on a port already.

    Raises:
        ConfigurationError: One address cannot be listened on; those before it are closed again.
    """
    listeners: list[socket.socket] = []
    try:
        for address in addresses:
            listeners.append(_open(address, backlog))
            listeners[-1].settimeout(0)
    except (OSError, UnicodeError) as error:  # names that cannot be are refused by the IDNA codec
        # Asked while the listeners are open, which may themselves hold the port.
        reason = _explain(error, address, find_holder or find_port_holder)
        for listener in listeners:
            listener.close()
        raise ConfigurationError(f"cannot listen on {address}: {reason}") from error
    return tuple(listeners)


def bound_address(listener: socket.socket) -> Address:
    """Give the address that a socket is really bound to."""
    host, port = listener.getsockname()[:2]
    return Address(host, port)


def find_port_holder(port: int) -> tuple[int, str] | None:
    """Find who listens on a TCP port.

    Returns:
        The process id and the name; None where nobody does or we may not know. Source: psutil.
    """
    import psutil  # noqa: PLC0415 - only a start that fails needs it

    try:
        holders = {
            connection.pid
            for connection in psutil.net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:2] == (port,)
        }
        for pid in holders:
            if pid is not None:
                return pid, psutil.Process(pid).name()
    except (psutil.Error, OSError):
        return None
    return None


def _open(address: Address, backlog: int) -> socket.socket:
    if not address.host:
        return _open_everywhere(address.port, backlog)
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # A name with addresses of both kinds is served on the older one, as other exporters do.
    family, _, _, _, where = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return socket.create_server(where, family=family, backlog=backlog)


def _open_everywhere(port: int, backlog: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True
            )
        except OSError as error:
            # A kernel may know IPv6 and have it switched off.
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
    return socket.create_server(("", port), backlog=backlog)


def _explain(
    error: OSError | UnicodeError,
    address: Address,
    find_holder: Callable[[int], tuple[int, str] | None],
) -> str:
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return f"nobody knows the name {address.host}; correct {_FLAG}"
    if error.errno == errno.EADDRINUSE:
        return _explain_taken(find_holder(address.port))
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"permission denied; ports below 1024 need CAP_NET_BIND_SERVICE,"
            f" choose a higher one with {_FLAG}"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"this machine has no such address; correct {_FLAG}"
    return f"{os.strerror(error.errno or 0)}; choose another with {_FLAG}"


def _explain_taken(holder: tuple[int, str] | None) -> str:
    if holder is None:
        return f"the port is held by another process; stop it or choose another with {_FLAG}"
    pid, name = holder
    if pid == os.getpid():
        return f"{_FLAG} names it twice; give each address once"
    return f"the port is held by {name} (pid {pid}); stop it or choose another with {_FLAG}"
