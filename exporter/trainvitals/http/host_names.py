"""A check whether the `Host` header of a request contains an allowed name of the server.

After a browser has loaded a web page, the host name of the page may be changed to resolve to
127.0.0.1 (DNS rebinding). The browser then treats this server as the page's origin, and allows the
page's scripts to read the responses. The `Host` header of such a request contains the page's host
name, which a script cannot change.

A listener on a loopback address accepts loopback names and configured names. Other listeners check
the header only if names are configured. These listeners also accept IP addresses, because an
address cannot be rebound.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from trainvitals.errors import ConfigurationError
from trainvitals.http.messages import Response, plain_response

FLAG = "--web.allowed-host"
VARIABLE = "TRAINVITALS_WEB_ALLOWED_HOST"
ANY = "*"

_FORMS = "write a name as in an URL, without the port: gpu-07.example.org; or * for any name"
MAPPED = bytes(10) + b"\xff\xff"  # before an IPv4 address in an IPv6 address
_LOOPBACK_V6 = bytes(15) + b"\1"
_LOOPBACK_V4, _V4_BYTES = 127, 4
_MOST_CHARACTERS = 255


def parse_names(texts: Iterable[str]) -> frozenset[str]:
    """Return the names in the values of `--web.allowed-host`, which are comma-separated lists.

    Raises:
        ConfigurationError: A text is not a host name.
    """
    names = [name.strip() for text in texts for name in text.split(",")]
    return frozenset(_parse_name(name) for name in names if name)


def _parse_name(text: str) -> str:
    name = text.lower().removesuffix(".")
    inner = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    if _read_address(inner) is not None:
        return inner
    is_plain = name.isascii() and not set(name) & set("/:[]@ \t\"'") and ("*" not in name)
    if name != ANY and not (name and is_plain and len(name) <= _MOST_CHARACTERS):
        raise ConfigurationError(f"{FLAG} {text}: this is not a name; {_FORMS}")
    return name


class HostNames:
    """The names by which clients may address a server.

    Args:
        names: The configured names, as `parse_names` returns them.
    """

    def __init__(self, names: frozenset[str] = frozenset()) -> None:
        self._names = names

    def allows(self, host: str | None, *, is_loopback: bool) -> bool:
        """Return whether a request with this `Host` header may be answered.

        Args:
            host: The value of the `Host` header; None if the request does not contain the header,
                which browsers always send.
            is_loopback: Whether the request was sent to a loopback address.
        """
        if not host or ANY in self._names or not (is_loopback or self._names):
            return True
        name = split_host(host)
        if name in self._names or is_loopback_name(name):
            return True
        return not is_loopback and _read_address(name) is not None


def refuse_host() -> Response:
    """Return the response to a request that is refused because of its `Host` header."""
    return plain_response(
        403,
        f"this server is not known by the name in the request; ask 127.0.0.1 or localhost,"
        f" or allow the name with {FLAG}",
    )


def split_host(host: str) -> str:
    """Return a `Host` header's name in lower case, without port, brackets or final dot."""
    host = host.strip().lower()
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        is_whole = bracket and (
            not port or (port[0] == ":" and port[1:].isdecimal()) or port == ":"
        )
        return name if is_whole else host
    name, _, port = host.rpartition(":")
    if name and ":" not in name and (not port or port.isdecimal()):
        host = name
    return host.removesuffix(".")


def is_loopback_name(name: str) -> bool:
    """Return whether a name or an address denotes the loopback interface.

    No name can be registered below `.localhost`, and browsers resolve such names themselves.
    """
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _read_address(name)
    return address is not None and _is_loopback(address)


def _read_address(name: str) -> bytes | None:
    """Return an IP address as bytes; None if the name is not an IP address."""
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in name else socket.AF_INET, name)
    except (OSError, ValueError):  # the name is not ASCII, or contains a zero byte
        return None


def _is_loopback(address: bytes) -> bool:
    address = address.removeprefix(MAPPED)
    return address == _LOOPBACK_V6 or (len(address) == _V4_BYTES and address[0] == _LOOPBACK_V4)
