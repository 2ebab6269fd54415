"""Tests for the check of the Host header."""

import socket
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.http.test_server import (
    GET_AND_CLOSE,
    exchange,
    read_to_end,
    serving,
    status_of,
)
from trainvitals.errors import ConfigurationError
from trainvitals.http.connection import find_network
from trainvitals.http.host_names import HostNames, parse_names
from trainvitals.http.http1 import KeptHeads, RefusalError, RequestReader
from trainvitals.http.listen import Address

LOOPBACK = (
    "localhost",
    "LocalHost:9200",
    "localhost.",
    "localhost.:9200",
    "gpu.localhost:80",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.8.9.10:9200",
    "[::1]",
    "[::1]:9200",
    "[::ffff:127.0.0.1]:9200",
)
FOREIGN = (
    "evil.example",
    "evil.example:9200",
    "127.0.0.1.evil.example",
    "127.0.0.1.nip.io:9200",
    "localhost.evil.example",
    "notlocalhost",
    "localhost:9200.evil.example",
    "localhost@evil.example",
    "evil.example#localhost",
    "0.0.0.0:9200",
    "127.1:9200",
    "2130706433",
    "0x7f.0.0.1",
    "[::]:9200",
    "[fe80::1]",
    "10.0.0.7:9200",
    "a, localhost",
    "[",
    ":",
    "\xe9",
    "\0",
)


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_listener_is_asked_by_loopback_names(host):
    """A loopback listener accepts every loopback name in the Host header, with any port."""
    assert HostNames().allows(host, is_loopback=True)
    assert HostNames(parse_names(["gpu-07"])).allows(host, is_loopback=True)


@pytest.mark.parametrize("host", FOREIGN)
def test_loopback_listener_is_not_asked_by_another_name(host):
    """A loopback listener refuses any other name, which a web page could rebind by DNS."""
    assert not HostNames().allows(host, is_loopback=True)
    assert not HostNames(parse_names(["gpu-07"])).allows(host, is_loopback=True)


@pytest.mark.parametrize("host", [None, *LOOPBACK, *FOREIGN])
def test_other_listener_is_asked_by_any_name(host):
    """Without configured names, a listener on a non-loopback address accepts any Host header."""
    assert HostNames().allows(host, is_loopback=False)


@pytest.mark.parametrize("is_loopback", [True, False])
def test_configured_names(is_loopback):
    """Configured names are accepted by every listener, in any case and with any port."""
    names = HostNames(parse_names(["GPU-07.example.org.", "exporter, ::2,[::3],"]))
    for host in ("gpu-07.Example.org:443", "exporter:9200", "[::2]:9200", "[::3]", "localhost"):
        assert names.allows(host, is_loopback=is_loopback), host
    for host in ("gpu-07", "evil.example", "a.gpu-07.example.org"):
        assert not names.allows(host, is_loopback=is_loopback), host


def test_address_cannot_be_rebound():
    """A listener on a non-loopback address accepts an IP address in the Host header."""
    names = HostNames(parse_names(["exporter"]))
    for host in ("10.0.0.7:9200", "[2001:db8::7]:9200"):
        assert names.allows(host, is_loopback=False)


def test_any_name():
    """An asterisk as the configured name disables the check."""
    assert HostNames(parse_names(["*"])).allows("evil.example", is_loopback=True)


def test_no_name():
    """A request without a Host header, as in HTTP/1.0, is accepted."""
    assert HostNames().allows(None, is_loopback=True)


@pytest.mark.parametrize("text", ["http://gpu-07", "gpu-07:9200", "a b", "*.example", "a/b", "é"])
def test_bad_names_are_refused(text):
    """An invalid configured name is refused with an example of a valid name."""
    with pytest.raises(ConfigurationError, match="this is not a name; write a name as in"):
        parse_names([text])


@given(text=st.text(), host=st.text())
def test_any_text(text, host):
    """Any text is parsed or refused as a list of names, and any Host header is checked."""
    names = frozenset()
    with suppress(ConfigurationError):
        names = parse_names([text])
    assert HostNames(names).allows(host, is_loopback=True) in (True, False)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:9200\r\n", 200),
        (b"GET / HTTP/1.1\r\nHost: evil.example:9200\r\n", 403),
        (b"HEAD / HTTP/1.1\r\nHost: evil.example\r\n", 403),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n", 403),
        (b"GET http://localhost/ HTTP/1.1\r\nHost: evil.example\r\n", 200),
        (b"GET / HTTP/1.0\r\n", 200),
    ],
)
def test_server_refuses_other_names(sent, status):
    """The server answers 403 if the host of a request is not a loopback name."""
    with serving(names=HostNames()) as server:
        response = exchange(server, sent + b"Connection: close\r\n\r\n")
    assert status_of(response) == status
    assert (b"up 1" in response) is (status == 200)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "127.0.0.2"])
def test_each_listener_has_its_own_check(host):
    """A listener on all addresses checks the Host header of requests to a loopback address."""
    addresses = [Address("127.0.0.1", 0), Address(host, 0)]
    sent = GET_AND_CLOSE.replace(b"here", b"evil.example")
    with serving(addresses=addresses, names=HostNames()) as server:
        statuses = []
        for bound, address in zip(server.bound, addresses, strict=True):
            with socket.create_connection((address.host or "127.0.0.1", bound.port), 30) as client:
                client.sendall(sent)
                statuses.append(status_of(read_to_end(client)))
    assert statuses == [403, 403]


@pytest.mark.parametrize(
    "host", ["[::1]evil.example", "[::1]:80evil.example", "[::1].evil.example:80", "[::1"]
)
def test_what_follows_a_bracket_is_a_port_or_nothing(host):
    """After an IPv6 address in brackets, the Host header may contain only a port."""
    assert not HostNames().allows(host, is_loopback=True)
    for right in ("[::1]", "[::1]:9200", "[::1]:"):
        assert HostNames().allows(right, is_loopback=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.2"])
def test_loopback_is_one_network(host):
    """All loopback addresses count as one network, as one process can use all of them."""
    assert find_network(host) == find_network("127.0.0.1")
    assert find_network("128.0.0.1") != find_network("127.0.0.1")


def test_a_request_without_an_authority_is_refused():
    """A request with an absolute URL without a host is refused with 400."""
    reader = RequestReader(KeptHeads(), head_bytes=4096, target_bytes=1024)
    reader.feed(b"GET http:///metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    with pytest.raises(RefusalError, match="400"):
        reader.next_head()
