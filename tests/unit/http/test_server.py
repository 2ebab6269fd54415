"""Tests for the HTTP server over real sockets, with well-behaved and misbehaving clients."""

import http.client
import logging
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from base64 import b64encode
from contextlib import contextmanager, suppress
from pathlib import Path

import bcrypt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.certificates import make_certificate
from tests.support.waiting import wait_until
from trainvitals.http.http1 import KeptHeads, RefusalError, RequestReader, format_date
from trainvitals.http.listen import Address
from trainvitals.http.loop import Loop
from trainvitals.http.messages import Request, Response
from trainvitals.http.server import Limits, Server
from trainvitals.http.web_config import WebConfigFile

GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
GET_AND_CLOSE = b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
LOOPBACK = (Address("127.0.0.1", 0),)
PAGE = Response(200, (("Content-Type", "text/plain"),), b"up 1\n")


def answer_at_once(_request, reply):
    """Answer every request with the same page."""
    reply(PAGE)


@contextmanager
def serving(answer=answer_at_once, *, addresses=LOOPBACK, **keywords):
    """Run a server on a free loopback port in a thread for the duration of the block."""
    server = Server(addresses, answer, **keywords)
    server.bind()
    server.thread = threading.Thread(target=server.run)
    server.thread.start()
    server.port = server.bound[0].port
    try:
        yield server
    finally:
        server.stop()
        server.thread.join(30)
        assert not server.thread.is_alive()


def connect(server):
    """Connect to a server."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def read_to_end(client):
    """Read until the server closes."""
    received = bytearray()
    while part := client.recv(1 << 16):
        received += part
    return bytes(received)


def exchange(server, sent):
    """Send bytes over a new connection and read until the server closes."""
    with connect(server) as client:
        client.sendall(sent)
        return read_to_end(client)


def read_one(client):
    """Read one response with a Content-Length and return its head and its body."""
    stream = client.makefile("rb")
    head = b"".join(iter(stream.readline, b"\r\n"))
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line[:15] == b"Content-Length:")
    return head, stream.read(length)


def status_of(response):
    """Return the status of a response as sent."""
    return int(response.split(b" ", 2)[1])


def ask_in_time(server):
    """Make one ordinary request, which must be answered before the socket's timeout."""
    assert exchange(server, GET_AND_CLOSE).endswith(b"\r\n\r\nup 1\n")


# Ordinary requests.


def test_get():
    """A request is answered with the headers and the body of the response, its length and date."""
    with serving() as server:
        head, _, body = exchange(server, GET_AND_CLOSE).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[:3] == ["HTTP/1.1 200 OK", "Content-Type: text/plain", "Content-Length: 5"]
    assert lines[3].startswith("Date: ")
    assert lines[4:] == ["Connection: close"]
    assert body == b"up 1\n"


def test_date():
    """A date is written as the HTTP specification's own example."""
    assert format_date(784111777) == "Sun, 06 Nov 1994 08:49:37 GMT"


def test_request_as_sent():
    """The path is decoded, blank parameters are kept and repeated headers are joined."""
    requests = []

    def answer(request, reply):
        requests.append(request)
        reply(PAGE)

    with serving(answer) as server:
        exchange(
            server,
            b"GET /a%20b/%C3%A9?collect[]=cpu&collect[]=&x=1+2 HTTP/1.1\r\nHost: here\r\n"
            b"Accept: a\r\nACCEPT: b\r\nX-Name: \xe9\r\nConnection: close\r\n\r\n",
        )
        exchange(
            server,
            b"GET http://here/metrics?a=b HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n",
        )
    assert requests[0] == Request(
        method="GET",
        path="/a b/é",
        query=(("collect[]", "cpu"), ("collect[]", ""), ("x", "1 2")),
        headers={"host": "here", "accept": "a, b", "x-name": "é", "connection": "close"},
    )
    assert requests[1].path == "/metrics"
    assert requests[1].query == (("a", "b"),)


def test_head():
    """HEAD is answered with the headers of GET and no body, and the connection stays open."""
    with serving() as server, connect(server) as client:
        client.sendall(GET.replace(b"GET", b"HEAD") + GET_AND_CLOSE)
        first, second, body = read_to_end(client).split(b"\r\n\r\n")
    assert b"Content-Length: 5" in first
    assert second.startswith(b"HTTP/1.1 200 OK")
    assert body == b"up 1\n"


def test_no_content():
    """A response without content has neither a body nor a length."""
    with serving(lambda _, reply: reply(Response(204, (), b""))) as server:
        response = exchange(server, GET_AND_CLOSE)
    assert response.startswith(b"HTTP/1.1 204 No Content\r\n")
    assert b"Content-Length" not in response


def test_keep_alive():
    """One connection carries several requests, equal or different."""
    with serving(lambda request, reply: reply(Response(200, (), request.path.encode()))) as server:
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        client.connect()
        first = client.sock
        for path in ("/a", "/a", "/b", "/c?d=e", "/a"):
            client.request("GET", path)
            assert client.getresponse().read() == path.partition("?")[0].encode()
        assert client.sock is first
        client.close()


@pytest.mark.parametrize(
    "request_head",
    [
        GET_AND_CLOSE,
        b"GET / HTTP/1.0\r\n\r\n",
        GET.replace(b"here\r\n", b"here\r\nConnection: a, Close\r\n"),
    ],
)
def test_close(request_head):
    """The connection closes after the answer if the client requests this or uses HTTP/1.0."""
    with serving() as server:
        response = exchange(server, request_head)
    assert response.startswith(b"HTTP/1.1 200 OK")
    assert b"Connection: close" in response


@pytest.mark.parametrize(
    "header",
    [b"Content-Length: 0", b"Expect: 100-continue", b"Upgrade: websocket\r\nConnection: upgrade"],
)
def test_harmless_headers(header):
    """An empty body, Expect and Upgrade are accepted, and the connection stays open."""
    with serving() as server, connect(server) as client:
        client.sendall(GET.replace(b"here\r\n", b"here\r\n" + header + b"\r\n") + GET_AND_CLOSE)
        assert read_to_end(client).count(b"HTTP/1.1 200 OK") == 2


def test_pipelining():
    """Requests sent at once are answered in order, however long each of them takes."""

    def answer(request, reply):
        page = Response(200, (), request.path.encode())
        threading.Timer(float(request.path[1:]) / 1000, reply, [page]).start()

    with serving(answer) as server, connect(server) as client:
        client.sendall(b"".join(GET.replace(b"/ ", b"/%d " % ms) for ms in (60, 0, 30)))
        client.shutdown(socket.SHUT_WR)
        bodies = [
            part.split(b"\r\n\r\n")[1] for part in read_to_end(client).split(b"HTTP/1.1 ")[1:]
        ]
    assert bodies == [b"/60", b"/0", b"/30"]


def test_thousand_pipelined():
    """A thousand requests sent without reading are all answered."""
    with serving() as server, connect(server) as client:
        sender = threading.Thread(target=client.sendall, args=[GET * 999 + GET_AND_CLOSE])
        sender.start()
        assert read_to_end(client).count(b"HTTP/1.1 200 OK") == 1000
        sender.join()


def test_bytewise():
    """A head that arrives byte by byte is accepted."""
    with serving() as server, connect(server) as client:
        for byte in GET_AND_CLOSE:
            client.sendall(bytes([byte]))
        assert read_to_end(client).startswith(b"HTTP/1.1 200 OK")


def test_two_hundred_at_once():
    """Two hundred concurrent requests are all answered with the same response."""
    replies, body = [], b"x" * 100_000

    def answer(_request, reply):
        replies.append(reply)
        if len(replies) == 200:
            page = Response(200, (), body)
            threading.Thread(target=lambda: [reply(page) for reply in replies]).start()

    with serving(answer) as server:
        clients = [connect(server) for _ in range(200)]
        for client in clients:
            client.sendall(GET_AND_CLOSE)
        for client in clients:
            assert read_to_end(client).endswith(b"\r\n\r\n" + body)
            client.close()


def test_several_addresses():
    """The server listens on every address, each with its own port."""
    with serving() as first:
        server = Server([Address("127.0.0.1", 0), Address("localhost", 0)], answer_at_once)
        server.bind()
        assert len({first.port, *(address.port for address in server.bound)}) == 3
        server.close()


# Replies.


def test_reply_twice():
    """Later replies to the same request are ignored, even after the next request has begun."""
    replies = []

    def answer(request, reply):
        replies.append(reply)
        if request.path == "/1":
            reply(PAGE)
            reply(Response(500, (), b"first again"))
        else:
            replies[0](Response(500, (), b"first once more"))
            reply(PAGE)

    with serving(answer) as server, connect(server) as client:
        for path in (b"/1 ", b"/2 "):
            client.sendall(GET.replace(b"/ ", path))
            assert read_one(client)[1] == b"up 1\n"


def test_reply_too_late():
    """A reply is dropped if the client has disconnected or the server has stopped."""
    replies, asked = [], threading.Event()

    def answer(request, reply):
        if request.path == "/":
            replies.append(reply)
            asked.set()
        else:
            reply(PAGE)

    with serving(answer, limits=Limits(grace_seconds=0.1)) as server:
        with connect(server) as client:
            client.sendall(GET)
            assert asked.wait(30)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        replies[0](PAGE)
        assert b"up 1" in exchange(server, GET_AND_CLOSE.replace(b"/ ", b"/other "))
        asked.clear()
        with connect(server) as client:
            client.sendall(GET)
            assert asked.wait(30)
            server.stop()
            server.thread.join(30)
        replies[1](PAGE)


def test_no_reply():
    """A request that is never answered is refused with 503."""
    with serving(lambda *_: None, limits=Limits(answer_seconds=0.1)) as server:
        assert status_of(exchange(server, GET_AND_CLOSE)) == 503


def test_impossible_header(caplog):
    """A header with a line break is never sent; the client gets an error instead."""
    page = Response(200, (("X-Name", "a\r\nX-Evil: b"),), b"up 1\n")
    with serving(lambda _, reply: reply(page)) as server:
        response = exchange(server, GET_AND_CLOSE)
    assert status_of(response) == 500
    assert b"Evil" not in response
    assert "line break" in caplog.text


# Requests that are refused.


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"CONNECT here:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 413),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + b"a" * 1000000, 413),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: rot13\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX y: b\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"\0" * 20000, 400),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 20000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 10000 + b"\r\n", 431),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else None,
)
def test_refused(sent, status, caplog):
    """An invalid request is refused with the reason, and the connection then closes in order."""
    caplog.set_level(logging.INFO, "trainvitals")
    with serving() as server:
        response = exchange(server, sent)
        ask_in_time(server)
    assert status_of(response) == status
    assert b"\r\nConnection: close\r\n" in response
    assert (b"\r\nAllow: GET, HEAD\r\n" in response) == (status == 405)
    assert caplog.text == ""


def test_refused_after_answer():
    """A bad request after a good request is refused after the good request was answered."""
    with serving() as server:
        response = exchange(server, GET + b"garbage\r\n\r\n")
    assert response.count(b"HTTP/1.1 200 OK") == 1
    assert response.count(b"HTTP/1.1 400 Bad Request") == 1


def test_one_debug_line(caplog):
    """A bad request is logged in one line at debug level."""
    caplog.set_level(logging.DEBUG, "trainvitals")
    with serving() as server:
        exchange(server, b"garbage\r\n\r\n")
    refused = [record for record in caplog.records if record.message.startswith("refused ")]
    assert len(refused) == 1


def test_endless_body():
    """A client that never stops sending is disconnected."""
    limits = Limits(linger_bytes=1 << 20)
    with serving(limits=limits) as server, connect(server) as client:
        sent = 0
        with suppress(OSError):
            while sent < 100 << 20:
                sent += client.send(b"a" * 65536)
        assert sent < 100 << 20
        ask_in_time(server)


@given(
    content=st.one_of(
        st.binary(max_size=300),
        st.lists(
            st.sampled_from(
                b"GET|HEAD|POST| |/|%|?a=b|HTTP/1.1|HTTP/1.0|\r\n|\n|\r|:|Host: a|Content-Length: 1|"
                b"Connection: |close|Transfer-Encoding: chunked|Expect: 100-continue|\0|\xff|"
                b"Upgrade: h2c|GET / HTTP/1.1\r\nHost: here\r\n\r\n".split(b"|")
            ),
            max_size=30,
        ).map(b"".join),
    ),
    cut=st.integers(0, 300),
)
@settings(max_examples=200)
def test_any_bytes(any_server, content, cut):
    """Any bytes get an answer or a closed connection, and the next request is answered."""
    with connect(any_server) as client:
        client.sendall(content[:cut])
        client.sendall(content[cut:])
        client.shutdown(socket.SHUT_WR)
        response = read_to_end(client)
    assert response == b"" or response.startswith(b"HTTP/1.1 ")
    assert exchange(any_server, GET_AND_CLOSE).endswith(b"up 1\n")


@pytest.fixture(scope="module")
def any_server():
    """Yield one server for all examples."""
    with serving() as server:
        yield server


@given(
    cuts=st.lists(st.integers(0, 250), max_size=6),
    paths=st.lists(st.sampled_from([b"/a", b"/b?c=d", b"/e"]), min_size=1, max_size=4),
)
def test_any_cuts(cuts, paths):
    """The parsed requests do not depend on how the bytes are split."""
    content = b"".join(b"GET %s HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n" % path for path in paths)
    reader = RequestReader(KeptHeads(), head_bytes=1000, target_bytes=100)
    targets, places = [], sorted(cuts)
    for start, end in zip([0, *places], [*places, len(content)], strict=True):
        reader.feed(content[start:end])
        while head := reader.next_head():
            query = "".join(f"?{name}={value}" for name, value in head.request.query)
            targets.append(f"{head.request.path}{query}".encode())
    assert targets == paths


def test_kept_heads():
    """A repeated head is parsed once, except a head with a password, which is not cached."""
    kept = KeptHeads()
    for header, alike in ((b"X: y", True), (b"Authorization: Basic YTpi", False)):
        content = b"GET / HTTP/1.1\r\nHost: a\r\n" + header + b"\r\n\r\n"
        heads = []
        for _ in range(2):
            reader = RequestReader(kept, head_bytes=1000, target_bytes=100)
            reader.feed(content)
            heads.append(reader.next_head())
        assert heads[0] == heads[1]
        assert (heads[0] is heads[1]) is alike


def test_head_limit_is_exact():
    """The size limit of a head applies to the sum of its headers."""
    reader = RequestReader(KeptHeads(), head_bytes=200, target_bytes=100)
    reader.feed(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 40 + b"\r\n")
    with pytest.raises(RefusalError, match="431"):
        reader.next_head()


# Misbehaving clients.


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /metrics HTTP/1.1\r\nHost: here\r\nX-Slow: ", GET, b"\x16"],
    ids=["silent", "unfinished head", "idle", "half a byte of TLS"],
)
def test_five_hundred_idle_connections(sent):
    """Five hundred idle or unfinished connections do not prevent an ordinary request."""
    with serving() as server:
        clients = []
        for _ in range(500):
            clients.append(connect(server))
            with suppress(OSError):
                clients[-1].sendall(sent)
        ask_in_time(server)
        assert len(server._connections) <= 256
        for client in clients:
            client.close()


def test_place_of_request_in_flight():
    """A connection with a request in flight keeps its place when others need one."""
    replies, asked = [], threading.Event()

    def answer(request, reply):
        if request.path == "/slow":
            replies.append(reply)
            asked.set()
        else:
            reply(PAGE)

    with serving(answer, limits=Limits(connections=4)) as server, connect(server) as client:
        client.sendall(GET_AND_CLOSE.replace(b"/ ", b"/slow "))
        assert asked.wait(30)
        others = [connect(server) for _ in range(20)]
        ask_in_time(server)
        replies[0](PAGE)
        assert read_to_end(client).endswith(b"up 1\n")
        for other in others:
            other.close()


def test_all_places_in_flight():
    """If every place has a request in flight, new connections wait until one is answered."""
    replies = []
    with serving(lambda _, reply: replies.append(reply), limits=Limits(connections=2)) as server:
        clients = []
        for number in (1, 2, 2):
            clients.append(connect(server))
            clients[-1].sendall(GET_AND_CLOSE)
            wait_until(lambda number=number: len(replies) == number)
        wait_until(lambda: not server._acceptance._is_listening)
        replies[1](PAGE)
        wait_until(lambda: len(replies) == 3)
        for reply in replies:
            reply(PAGE)
        for client in clients:
            assert read_to_end(client).endswith(b"up 1\n")
            client.close()


def test_a_request_that_waits_to_be_accepted_keeps_its_place():
    """A connection whose request has already arrived is not closed for the next connection."""
    is_busy, is_free = threading.Event(), threading.Event()

    def keep_busy():
        is_busy.set()
        is_free.wait(30)

    with serving(limits=Limits(connections=1)) as server:
        server._loop.call_soon(keep_busy)
        assert is_busy.wait(30)
        clients = [connect(server) for _ in range(3)]
        for client in clients:
            client.sendall(GET_AND_CLOSE)
        is_free.set()
        for client in clients:
            assert read_to_end(client).endswith(b"up 1\n")
            client.close()


def read_to_end_or_reset(client):
    """Read until the server closes or resets the connection."""
    with suppress(ConnectionResetError):
        return read_to_end(client)
    return b""


@pytest.mark.parametrize(
    ("sent", "answers"),
    [(b"", 0), (b"GET / HTTP/1.1\r\n", 0), (GET, 1), (GET + b"GET", 1)],
)
@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # a stalled client is also too slow
def test_too_slow(sent, answers):
    """A client that does not finish a head, or sends none, is disconnected after the timeout."""
    limits = Limits(head_seconds=0.1, idle_seconds=0.1)
    with serving(limits=limits) as server, connect(server) as client:
        client.sendall(sent)
        assert read_to_end(client).count(b"200 OK") == answers


def test_trickling_head():
    """The timeout applies to the whole head; single bytes do not extend the timeout."""
    with serving(limits=Limits(head_seconds=0.2)) as server, connect(server) as client:
        started = time.monotonic()
        with suppress(OSError):
            while time.monotonic() - started < 30:
                client.sendall(b"a")
                time.sleep(0.02)
        assert time.monotonic() - started < 20


def test_slow_reader():
    """A client that does not read its answer is disconnected, and others are not affected."""
    page = Response(200, (), b"x" * (32 << 20))

    def answer(request, reply):
        reply(page if request.path == "/big" else PAGE)

    with serving(answer, limits=Limits(write_seconds=0.2)) as server, connect(server) as client:
        client.sendall(GET.replace(b"/ ", b"/big "))
        ask_in_time(server)
        wait_until(lambda: not server._connections)
        ask_in_time(server)


def test_big_answer():
    """An answer larger than any buffer is sent completely."""
    body = os.urandom(1 << 20) * 16
    with serving(lambda _, reply: reply(Response(200, (), body))) as server:
        assert exchange(server, GET_AND_CLOSE).endswith(b"\r\n\r\n" + body)


# Idle behaviour.


def switches(thread):
    """Return the number of voluntary context switches of a thread."""
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(status.split("voluntary_ctxt_switches:")[1].split()[0])


def is_at_rest(thread):
    """Return whether a thread sleeps for half a second from now on."""
    before = switches(thread)
    time.sleep(0.5)
    return switches(thread) == before


def test_rest():
    """Without clients, or with an idle client, the thread of the server does not wake up."""
    with serving() as server:
        wait_until(lambda: switches(server.thread) > 0)
        wait_until(lambda: is_at_rest(server.thread))
        with connect(server) as client:
            client.sendall(GET)
            read_one(client)
            wait_until(lambda: is_at_rest(server.thread))


def test_calls_share_a_wake_up():
    """One turn of the loop makes all calls that another thread has queued."""
    loop, calls = Loop(), []
    caller = threading.Thread(
        target=lambda: [loop.call_soon(lambda n=n: calls.append(n)) for n in range(100)]
    )
    caller.start()
    caller.join()
    loop.turn()
    assert calls == list(range(100))
    loop.deadlines.set("end", 0.05, lambda: calls.append("end"))
    loop.turn()
    assert calls[-1] == "end"
    loop.close()


def test_start_no_thread():
    """The server uses only the thread in which it runs."""
    before = threading.active_count()
    with serving() as server:
        ask_in_time(server)
        assert threading.active_count() == before + 1


def test_light_imports():
    """The server imports TLS, YAML and bcrypt only if the web configuration requires them."""
    code = (
        "import sys, trainvitals.http.server, trainvitals.http.web_config;"
        "print({'ssl', 'yaml', 'bcrypt', 'hashlib', 'psutil', 'asyncio', 'http.client'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", code]
    # Coverage measurement in the process would import further modules.
    others = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}
    environment = {**others, "PYTHONPATH": "exporter"}
    ran = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    assert ran.stdout == "set()\n"


SERVE_WITH_FEW_DESCRIPTORS = """
import os, resource, signal, sys, threading
from trainvitals.http.listen import Address
from trainvitals.http.server import Server
from trainvitals.http.messages import Response

page = Response(200, (), b"up 1\\n")
server = Server([Address("127.0.0.1", 0)], lambda request, reply: reply(page))
server.bind()
signal.signal(signal.SIGTERM, lambda *_: server.stop())
room = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + room, 4096))
signal.signal(
    signal.SIGUSR1, lambda *_: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
)
print(server.bound[0].port, flush=True)
server.run()
"""


@contextmanager
def serving_elsewhere(room):
    """Run a server in another process that may open only a few more file descriptors."""
    command = [sys.executable, "-c", SERVE_WITH_FEW_DESCRIPTORS, str(room)]
    environment = {**os.environ, "PYTHONPATH": "exporter"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.port = int(process.stdout.readline())
        yield process
        process.terminate()
        assert process.wait(30) == 0


def cpu_seconds(process):
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_few_descriptors():
    """If the process runs out of file descriptors, the longest idle connection is closed."""
    with serving_elsewhere(20) as server:
        clients = [connect(server) for _ in range(100)]
        ask_in_time(server)
        for client in clients:
            client.close()


def test_no_descriptor():
    """Without a free file descriptor, the server waits without spinning and then continues."""
    with serving_elsewhere(0) as server, connect(server) as client:
        client.sendall(GET_AND_CLOSE)
        time.sleep(0.2)
        before = cpu_seconds(server)
        time.sleep(1.0)
        assert cpu_seconds(server) - before <= 0.3
        server.send_signal(signal.SIGUSR1)
        assert read_to_end(client).endswith(b"up 1\n")
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 100


# Stopping.


def test_stop():
    """Requests in flight are answered, idle connections closed and new ones refused."""
    replies = []
    with serving(lambda _, reply: replies.append(reply)) as server:
        with connect(server) as busy, connect(server) as idle, connect(server) as amid:
            amid.sendall(b"GET / HT")
            busy.sendall(GET)
            wait_until(lambda: replies)
            server.stop()
            assert idle.recv(1) == b""
            assert read_to_end_or_reset(amid) == b""
            with pytest.raises(ConnectionRefusedError):
                connect(server)
            assert server.thread.is_alive()
            replies[0](PAGE)
            response = read_to_end(busy)
            assert response.endswith(b"up 1\n")
            assert b"Connection: close" in response
        server.thread.join(30)
        assert not server.thread.is_alive()


def test_stop_gives_up():
    """A stopping server waits for an answer no longer than its grace period."""
    asked = threading.Event()
    limits = Limits(grace_seconds=0.2)
    with serving(lambda *_: asked.set(), limits=limits) as server, connect(server) as client:
        client.sendall(GET)
        assert asked.wait(30)
        started = time.monotonic()
        server.stop()
        assert read_to_end(client) == b""
        assert 0.1 < time.monotonic() - started < 30


def test_stop_before_run():
    """A server that was stopped before it runs returns at once."""
    server = Server([Address("127.0.0.1", 0)], answer_at_once)
    server.stop()
    server.run()


def test_stop_in_signal():
    """A signal handler may stop the server."""
    with serving_elsewhere(10) as server:
        ask_in_time(server)


# TLS and passwords.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Return a directory with the server's certificate and a client certificate."""
    folder = make_certificate(tmp_path_factory.mktemp("certificate"))
    return make_certificate(folder, name="client", sans="DNS:node1,IP:::1", stem="client-")


def configure(folder, text):
    """Write a web configuration file; `TLS:` in the text stands for the certificate's settings."""
    path = folder / "web.yml"
    path.write_text(
        text.replace("TLS:", "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem")
    )
    return WebConfigFile(path)


def wrap(client, certificate, *, own=""):
    """Return a TLS connection of a client that trusts the server's certificate."""
    context = ssl.create_default_context(cafile=certificate / "cert.pem")
    if own:
        context.load_cert_chain(certificate / f"{own}cert.pem", certificate / f"{own}key.pem")
    return context.wrap_socket(client, server_hostname="localhost")


def exchange_secretly(server, certificate, sent, **keywords):
    """Send bytes over a new TLS connection and read until the server closes."""
    with connect(server) as client, wrap(client, certificate, **keywords) as secret:
        secret.sendall(sent)
        return read_to_end(secret)


def test_tls(certificate):
    """Requests, refusals and large answers work over TLS as without TLS."""
    body = os.urandom(1 << 20) * 4

    def answer(request, reply):
        reply(Response(200, (), body) if request.path == "/big" else PAGE)

    with serving(answer, web_config=configure(certificate, "TLS:\n")) as server:
        assert exchange_secretly(server, certificate, GET + GET_AND_CLOSE).count(b"up 1") == 2
        big = GET_AND_CLOSE.replace(b"/ ", b"/big ")
        assert exchange_secretly(server, certificate, big).endswith(b"\r\n\r\n" + body)
        long = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * (1 << 18)
        assert status_of(exchange_secretly(server, certificate, long)) == 431


@pytest.mark.parametrize(
    "sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"?" * 99]
)
def test_tls_unkind(certificate, sent):
    """Five hundred clients that do not finish their TLS handshake do not block others."""
    with serving(web_config=configure(certificate, "TLS:\n")) as server:
        clients = [connect(server) for _ in range(500)]
        for client in clients:
            with suppress(OSError):
                client.sendall(sent)
        assert exchange_secretly(server, certificate, GET_AND_CLOSE).endswith(b"up 1\n")
        for client in clients:
            client.close()


def test_handshake_has_its_time(certificate):
    """A TLS handshake that does not finish in time is closed."""
    web_config = configure(certificate, "TLS:\n")
    with serving(web_config=web_config, limits=Limits(head_seconds=0.1)) as server:
        assert exchange(server, b"\x16\x03\x01\x02\x00") == b""


def test_plain_http_to_tls(certificate):
    """A client that sends plain HTTP to a TLS server gets a 400 in plain HTTP."""
    with serving(web_config=configure(certificate, "TLS:\n")) as server:
        response = exchange(server, GET)
    assert status_of(response) == 400
    assert response.endswith(b"\r\n\r\nonly HTTPS is spoken here.\n")


CLIENTS = (
    "TLS:\n  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: client-cert.pem\n"
)


def test_client_certificate(certificate):
    """If client certificates are required, only a client with a trusted certificate is answered."""
    with serving(web_config=configure(certificate, CLIENTS)) as server:
        response = exchange_secretly(server, certificate, GET_AND_CLOSE, own="client-")
        assert response.endswith(b"up 1\n")
        for own in ({}, {"own": ""}):
            with pytest.raises(OSError):
                exchange_secretly(server, certificate, GET_AND_CLOSE, **own)


@pytest.mark.parametrize(
    ("sans", "welcome"), [("[other, node1]", True), ("['::1']", True), ("[other]", False)]
)
def test_client_names(certificate, sans, welcome):
    """If client names are configured, the client's certificate must contain one of them."""
    web_config = configure(certificate, f"{CLIENTS}  client_allowed_sans: {sans}\n")
    response = b""
    with serving(web_config=web_config) as server, suppress(OSError):
        response = exchange_secretly(server, certificate, GET_AND_CLOSE, own="client-")
    assert response.endswith(b"up 1\n") is welcome


def test_extra_headers(certificate):
    """The headers of the web configuration are sent with every response, including refusals."""
    text = "http_server_config: {headers: {X-Frame-Options: deny}}\n"
    with serving(web_config=configure(certificate, text)) as server:
        for sent in (GET_AND_CLOSE, b"garbage\r\n\r\n"):
            assert b"\r\nX-Frame-Options: deny\r\n" in exchange(server, sent)


def test_basic_authentication(certificate):
    """Only a correct password is accepted, and no request waits for the check of another."""
    users = {
        name: bcrypt.hashpw(name.encode(), bcrypt.gensalt(cost)).decode()
        for name, cost in (("ann", 4), ("bob", 12))
    }
    lines = "".join(f"  {name}: {hashed}\n" for name, hashed in users.items())
    text = f"basic_auth_users:\n{lines}"

    def ask(name, password):
        credentials = b"Authorization: Basic " + b64encode(f"{name}:{password}".encode())
        return GET_AND_CLOSE.replace(b"here", b"here\r\n" + credentials)

    with serving(web_config=configure(certificate, text)) as server:
        refused = exchange(server, GET_AND_CLOSE)
        assert status_of(refused) == 401
        assert b"\r\nWWW-Authenticate: Basic " in refused
        assert status_of(exchange(server, ask("ann", "ann"))) == 200
        assert status_of(exchange(server, ask("ann", "wrong"))) == 401
        assert status_of(exchange(server, ask("eve", "eve"))) == 401
        with connect(server) as slow:
            slow.sendall(ask("bob", "bob"))
            assert status_of(exchange(server, ask("ann", "ann"))) == 200
            slow.settimeout(0)
            with pytest.raises(BlockingIOError):
                slow.recv(1)
            slow.settimeout(10)
            assert status_of(read_to_end(slow)) == 200
