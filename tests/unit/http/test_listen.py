"""Tests for parsing listen addresses and of opening listeners."""

import errno
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.errors import ConfigurationError
from trainvitals.http.listen import (
    Address,
    bound_address,
    find_port_holder,
    open_listeners,
    parse_address,
)

HOLD_A_PORT = """
import socket, sys
held = socket.create_server(("127.0.0.1", 0))
print(held.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder():
    """Yield the port on which another process listens, and this process."""
    command = [sys.executable, "-c", HOLD_A_PORT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield int(process.stdout.readline()), process
        process.stdin.close()


def refuse(*addresses, **seams):
    """Try to listen on the addresses and return the message of the error."""
    with pytest.raises(ConfigurationError) as refused:
        open_listeners(addresses, backlog=1, **seams)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9200", "127.0.0.1", 9200),
        (":9200", "", 9200),
        ("[::1]:9200", "::1", 9200),
        ("[::]:0", "::", 0),
        ("localhost:65535", "localhost", 65535),
    ],
)
def test_address_forms(text, host, port):
    """Every form of a listen address is parsed and formatted unchanged."""
    address = parse_address(text)
    assert address == (host, port)
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("9200", "not HOST:PORT"),
        ("localhost", "not HOST:PORT"),
        ("http://localhost:9200", "not HOST:PORT"),
        ("::1:9200", "an IPv6 address needs brackets"),
        ("localhost:", "not a number up to 65535"),
        ("localhost:http", "not a number up to 65535"),
        ("localhost:65536", "not a number up to 65535"),
        ("localhost:-1", "not a number up to 65535"),
        ("localhost:٣", "not a number up to 65535"),
        ("a/b:9200", "not HOST:PORT"),
        ("[::1:9200", "an IPv6 address needs brackets"),
    ],
)
def test_address_refused(text, reason):
    """An invalid listen address is refused in one line with the flag and a valid example."""
    with pytest.raises(ConfigurationError) as refused:
        parse_address(text)
    message = str(refused.value)
    assert message.startswith(f"--web.listen-address {text}: ")
    assert reason in message
    assert "127.0.0.1:9200" in message
    assert "\n" not in message


def test_port_zero_is_free_port():
    """Port 0 binds a free port on the given address."""
    (listener,) = open_listeners([Address("127.0.0.1", 0)], backlog=5)
    with listener:
        host, port = bound_address(listener)
        assert host == "127.0.0.1"
        assert port > 0
        socket.create_connection((host, port), timeout=30).close()


def test_every_address():
    """An empty host accepts connections over IPv4 and, if the machine has IPv6, over IPv6."""
    (listener,) = open_listeners([Address("", 0)], backlog=5)
    with listener:
        port = bound_address(listener).port
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
        if socket.has_dualstack_ipv6():
            socket.create_connection(("::1", port), timeout=30).close()


def test_name_prefers_ipv4():
    """A name with an IPv4 and an IPv6 address is bound on its IPv4 address."""
    (listener,) = open_listeners([Address("localhost", 0)], backlog=5)
    with listener:
        assert bound_address(listener).host == "127.0.0.1"


def test_taken_port_names_holder(holder):
    """A port in use is refused with the name and the id of the process that holds it."""
    port, process = holder
    name = Path(f"/proc/{process.pid}/comm").read_text().strip()
    assert find_port_holder(port) == (process.pid, name)
    assert refuse(Address("127.0.0.1", port)) == (
        f"cannot listen on 127.0.0.1:{port}: the port is held by {name} (pid {process.pid});"
        " stop it or choose another with --web.listen-address"
    )


def test_taken_port_unknown_holder(holder):
    """If the process that holds a port is unknown, the message says "another process"."""
    port, _ = holder
    assert refuse(Address("127.0.0.1", port), find_holder=lambda _port: None) == (
        f"cannot listen on 127.0.0.1:{port}: the port is held by another process;"
        " stop it or choose another with --web.listen-address"
    )


def test_same_address_twice(holder):
    """An address that is given twice has a different error than a port in use."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    message = refuse(Address("127.0.0.1", port), Address("127.0.0.1", port))
    assert "names it twice" in message
    with socket.create_server(("127.0.0.1", port)):
        pass  # the first listener was closed again


def test_unknown_name():
    """A host name that cannot be resolved is refused."""
    assert refuse(Address("no-such-host.invalid", 9200)) == (
        "cannot listen on no-such-host.invalid:9200: the name no-such-host.invalid cannot be resolved;"
        " correct --web.listen-address"
    )
    assert "cannot be resolved" in refuse(Address("a" * 64 + ".example", 9200))


def test_foreign_address():
    """An address of another machine is refused."""
    assert refuse(Address("192.0.2.1", 9200)) == (
        "cannot listen on 192.0.2.1:9200: this machine has no such address;"
        " correct --web.listen-address"
    )


def test_no_permission(monkeypatch):
    """A port that may not be bound is refused with the name of the required capability."""

    def refuse_bind(*_arguments, **_keywords):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refuse_bind)
    assert refuse(Address("127.0.0.1", 80)) == (
        "cannot listen on 127.0.0.1:80: permission denied; ports below 1024 need"
        " CAP_NET_BIND_SERVICE, choose a higher one with --web.listen-address"
    )
