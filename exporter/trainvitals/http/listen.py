"""The addresses in `--web.listen-address`, and their listening sockets."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_numbers import read_digits

_HIGHEST_PORT = (1 << 16) - 1
_FLAG = "--web.listen-address"
_FORMS = "write it as 127.0.0.1:9200, [::1]:9200, localhost:9200 or, for all addresses, :9200"


class Address(NamedTuple):
    """An address on which the server listens.

    Attributes:
        host: An IP address or a host name; an empty string for all addresses of the machine.
        port: A TCP port; if the port is 0, the system chooses a free port.
    """

    host: str
    port: int

    def __str__(self) -> str:
        """Return the address in the format of `--web.listen-address`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse an address in the format of `--web.listen-address`.

    Raises:
        ConfigurationError: The text does not have the form HOST:PORT.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host and "/" not in host:
        raise ConfigurationError(f"{_FLAG} {text}: an IPv6 address needs brackets; {_FORMS}")
    if not colon or any(character in "[]/ " for character in host):
        raise ConfigurationError(f"{_FLAG} {text}: this is not HOST:PORT; {_FORMS}")
    number = read_digits(port, _HIGHEST_PORT)
    if number is None:
        raise ConfigurationError(f"{_FLAG} {text}: the port is not a number up to 65535; {_FORMS}")
    return Address(host, number)


def open_listeners(
    addresses: Sequence[Address],
    *,
    backlog: int,
    find_holder: Callable[[int], PortHolder | None] | None = None,
) -> tuple[socket.socket, ...]:
    """Open a listening socket for each address.

    Args:
        addresses: The addresses on which to listen.
        backlog: The maximum number of connections that wait to be accepted.
        find_holder: A function that returns the process that listens on a port; None for
            `find_port_holder`.

    Raises:
        ConfigurationError: The server cannot listen on one of the addresses. The sockets that were
            already opened are closed.
    """
    listeners: list[socket.socket] = []
    try:
        for address in addresses:
            listeners.append(_open(address, backlog))
            listeners[-1].settimeout(0)
    except (OSError, UnicodeError) as error:  # the IDNA codec rejects invalid names
        # The process that uses the port is determined before the listeners are closed, because one
        # of these listeners may use the port.
        reason = _explain(error, address, find_holder or find_port_holder)
        for listener in listeners:
            listener.close()
        raise ConfigurationError(f"cannot listen on {address}: {reason}") from error
    return tuple(listeners)


def bound_address(listener: socket.socket) -> Address:
    """Return the address to which a socket is bound."""
    host, port = listener.getsockname()[:2]
    return Address(host, port)


class PortHolder(NamedTuple):
    """A process that listens on a port.

    Attributes:
        pid: The ID of the process.
        name: The name of the process.
    """

    pid: int
    name: str

    def __str__(self) -> str:
        """Return `NAME (pid PID)`."""
        return f"{self.name} (pid {self.pid})"


def find_port_holder(port: int) -> PortHolder | None:
    """Return the process that listens on a TCP port, according to psutil.

    Returns:
        The process; None if no process listens on the port, or if the process belongs to another
        user.
    """
    import psutil  # noqa: PLC0415 - only a failing start needs psutil

    try:
        holders = {
            connection.pid
            for connection in psutil.net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:2] == (port,)
        }
        for pid in holders:
            if pid is not None:
                return PortHolder(pid, psutil.Process(pid).name())
    except (psutil.Error, OSError):
        return None
    return None


def _open(address: Address, backlog: int) -> socket.socket:
    if not address.host:
        return _open_everywhere(address.port, backlog)
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # If a name has IPv4 and IPv6 addresses, the socket is bound to IPv4, as in other exporters.
    family, _, _, _, where = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return socket.create_server(where, family=family, backlog=backlog)


def _open_everywhere(port: int, backlog: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True
            )
        except OSError as error:
            # A kernel may support IPv6 although IPv6 is disabled.
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
    return socket.create_server(("", port), backlog=backlog)


def _explain(
    error: OSError | UnicodeError,
    address: Address,
    find_holder: Callable[[int], PortHolder | None],
) -> str:
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return f"the name {address.host} cannot be resolved; correct {_FLAG}"
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


def _explain_taken(holder: PortHolder | None) -> str:
    if holder is None:
        return f"the port is held by another process; stop it or choose another with {_FLAG}"
    if holder.pid == os.getpid():
        return f"{_FLAG} names it twice; give each address once"
    return f"the port is held by {holder}; stop it or choose another with {_FLAG}"
