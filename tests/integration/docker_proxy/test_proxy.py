"""The proxy in front of the Docker socket: the requests that it forwards and that it refuses."""

import json
import re
import socket
import subprocess
import time

import pytest

from tests.integration.docker_proxy.conftest import CONFIGURATION, run_proxy, send
from tests.support.waiting import wait_until
from trainvitals.sources.containers.engine import EngineClient, EngineError

HOST = b"Host: docker-proxy\r\n"
LONG = "a" * 64

ALLOWED = (
    "GET /_ping",
    "HEAD /_ping",
    "GET /v1.41/_ping",
    "GET /version",
    "GET /v1.24/version",
    "GET /info",
    "GET /v1.52/info",
    "GET /containers/json",
    "GET /containers/json?all=1&filters=%7B%22status%22%3A%5B%22exited%22%5D%7D",
    "GET /v1.45/containers/json?limit=5",
    f"GET /containers/{LONG}/json",
    "GET /containers/train_1.a-b/json",
    "GET /v1.41/containers/train/json?size=0",
    "GET /containers/train/stats?stream=0&one-shot=1",
    "GET /containers/train/logs?stdout=1&stderr=1&tail=500",
    "GET /v1.41/containers/train/logs?since=1760000000.5",
    # A container may be called `json`.
    "GET /containers/json/json",
)

REFUSED = (
    # Methods that write, and other unsupported methods.
    "POST /containers/json",
    "POST /containers/train/kill",
    "POST /v1.41/containers/create",
    "POST /containers/train/exec",
    "PUT /containers/train/archive?path=/",
    "DELETE /containers/train",
    "PATCH /containers/train/json",
    "OPTIONS /info",
    "HEAD /info",
    "HEAD /containers/json",
    "HEAD /v1.41/_ping",
    "get /info",
    "GETX /info",
    "POST /build",
    "POST /commit",
    "POST /session",
    "POST /auth",
    # Paths of data that monitoring does not need.
    "GET /containers/train/export",
    "GET /containers/train/archive?path=/etc/shadow",
    "GET /containers/train/attach/ws",
    "GET /containers/train/attach",
    "GET /containers/train/top",
    "GET /containers/train/changes",
    "GET /exec/a1/json",
    "GET /images/json",
    "GET /images/a/get",
    "GET /volumes",
    "GET /networks",
    "GET /secrets",
    "GET /v1.41/configs",
    "GET /swarm",
    "GET /nodes",
    "GET /plugins",
    "GET /system/df",
    "GET /distribution/a/json",
    "GET /",
    "GET /v1.41",
    # Paths that another program may interpret as a different path.
    "GET /containers/../containers/json",
    "GET /containers/../info/json",
    "GET /containers/./json",
    "GET //containers/json",
    "GET /containers//json",
    "GET /containers/train/json/",
    "GET /containers/train%2fjson",
    "GET /containers/a%2f..%2f..%2fimages/json",
    "GET /containers/%2e%2e/json",
    "GET /containers/train/json%3fx",
    "GET /containers/train;x/json",
    "GET /containers/train\\json",
    "GET /containers/-train/json",
    "GET /INFO",
    "GET /info#/images/json",
    "GET /v1.41/v1.41/info",
    "GET /v1/info",
    "GET /v1.999/info",
    "GET /xv1.41/info",
    "GET /infox",
    f"GET /containers/{'a' * 300}/json",
    # Targets of another form than a path.
    "GET http://docker-proxy/info",
    "GET http://docker-proxy/containers/json",
    "GET http:///info",
    "GET *",
    "OPTIONS *",
    "CONNECT docker-proxy:2375",
)

# Whole requests that are refused for their headers, bodies or form, not only for their target.
TRICKS = (
    b"GET /info HTTP/1.1\r\n" + HOST + b"Upgrade: tcp\r\nConnection: Upgrade\r\n\r\n",
    b"GET /info HTTP/1.1\r\n" + HOST + b"Connection: keep-alive, Upgrade\r\n\r\n",
    b"GET /info HTTP/1.1\r\n" + HOST + b"Upgrade: websocket\r\n\r\n",
    b"GET /info HTTP/1.1\r\n"
    + HOST
    + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
    b"GET /info HTTP/1.1\r\n" + HOST + b"X-HTTP-Method-Override: POST\r\n\r\n",
    b"GET /info HTTP/1.1\r\n" + HOST + b"x-http-method: DELETE\r\n\r\n",
    b"GET /info HTTP/1.1\r\n" + HOST + b"X-Method-Override: PUT\r\n\r\n",
    b"GET /info HTTP/1.1\r\n" + HOST + b"X-Original-URL: /images/json\r\n\r\n",
    b"GET /info HTTP/1.1\r\n" + HOST + b"X-Rewrite-URL: /images/json\r\n\r\n",
    # Bodies, which may hide another request.
    b"GET /info HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 45\r\n\r\nPOST /containers/a/kill HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /info HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\n\r\n",
    b"GET /info HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /info HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nPOST /x HTTP/1.1\r\n\r\n",
    b"GET /info HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\nContent-Length: 30\r\n\r\n",
    b"GET /info HTTP/1.1\r\n" + HOST + b"Content-Length: +5\r\n\r\nPOST ",
    b"GET /info HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"GET /info HTTP/1.1\r\n" + HOST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    b"GET /info HTTP/1.1\r\n" + HOST + b"Transfer_Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /info HTTP/1.1\r\n" + HOST + b"Content_Length: 5\r\n\r\nPOST ",
    b"GET /info\x00/images HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /info HTTP/1.1 HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /info\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)


@pytest.fixture(scope="module")
def proxy(haproxy, engine_stand_in, tmp_path_factory):
    """The port of a proxy in front of the stand-in for an engine."""
    with run_proxy(haproxy, engine_stand_in.path, tmp_path_factory.mktemp("proxy")) as port:
        yield port


def ask(port, line):
    """Send a request with this first line, and return the status of the response."""
    answer = send(port, f"{line} HTTP/1.1\r\nHost: docker-proxy\r\n\r\n".encode())
    return int(answer.split(b" ", 2)[1])


def test_the_configuration_is_valid_without_a_warning(haproxy):
    """HAProxy accepts the committed configuration file without a warning."""
    said = subprocess.run(
        (*haproxy, "-dW", "-c", "-f", CONFIGURATION), capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("line", ALLOWED)
def test_what_reads_reaches_the_engine(proxy, engine_stand_in, line):
    """The engine receives an allowed request once, with the same target and `Connection: close`."""
    engine_stand_in.heard.clear()
    assert ask(proxy, line) == 200
    (heard,) = engine_stand_in.heard
    assert heard.startswith(line.encode() + b" HTTP/1.1\r\n")
    assert b"\r\nconnection: close\r\n" in heard.lower()


@pytest.mark.parametrize("line", REFUSED)
def test_everything_else_is_refused(proxy, engine_stand_in, line):
    """Any other request gets status 403 or 400, and does not reach the engine."""
    engine_stand_in.heard.clear()
    assert ask(proxy, line) in {400, 403}
    assert not engine_stand_in.heard


@pytest.mark.parametrize("data", TRICKS)
def test_tricks_are_refused(proxy, engine_stand_in, data):
    """No header changes the method, path or protocol, and no body hides another request."""
    engine_stand_in.heard.clear()
    answer = send(proxy, data)
    assert not answer or answer.split(b" ", 2)[1] in {b"400", b"403", b"405", b"501", b"505"}
    assert not engine_stand_in.heard


def test_a_second_request_on_a_connection_is_not_heard(proxy, engine_stand_in):
    """A second request that follows an allowed one on its connection does not reach the engine."""
    engine_stand_in.heard.clear()
    line = b" HTTP/1.1\r\nHost: docker-proxy\r\n\r\n"
    answer = send(proxy, b"GET /info" + line + b"POST /containers/create" + line)
    assert answer.count(b"HTTP/1.1 ") == 1
    time.sleep(0.3)
    assert [said.split(b"\r\n")[0] for said in engine_stand_in.heard] == [b"GET /info HTTP/1.1"]


@pytest.mark.parametrize(
    ("line", "header"),
    [
        (b"GET /info HTTP/1.1", b"X: a\r\n Transfer-Encoding: chunked\r\n"),
        (b"GET  /info HTTP/1.1", b""),
        (b"GET /info HTTP/9.9", b""),
    ],
)
def test_what_is_written_loosely_is_written_anew(proxy, engine_stand_in, line, header):
    """The engine receives a loosely written request in its normal form, without folded headers."""
    engine_stand_in.heard.clear()
    assert b" 200 " in send(proxy, line + b"\r\n" + HOST + header + b"\r\n")
    (heard,) = engine_stand_in.heard
    assert heard.startswith(b"GET /info HTTP/1.1\r\n")
    assert not any(each.lower().lstrip().startswith(b"transfer") for each in heard.split(b"\r\n"))


def test_a_refusal_has_a_reason(proxy):
    """A refusal has the form of Docker's own errors, so that clients show its message."""
    answer = send(proxy, b"POST /containers/create HTTP/1.1\r\nHost: a\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 ")
    assert json.loads(body)["message"] == (
        "the proxy before Docker lets through what reads, and not this"
    )


def test_only_what_was_refused_is_logged(haproxy, engine_stand_in, tmp_path):
    """A refused request is logged with its method and target, and an answered one is not logged."""
    with run_proxy(haproxy, engine_stand_in.path, tmp_path) as port:
        assert ask(port, "GET /info") == 200
        assert ask(port, "DELETE /containers/train") == 403
        wait_until(lambda: " got " in (tmp_path / "haproxy.log").read_text())
    lines = (tmp_path / "haproxy.log").read_text().splitlines()
    assert [line for line in lines if " got " in line] == ['DELETE "/containers/train" got 403, LR']


@pytest.mark.parametrize("target", ["/events", "/v1.41/containers/a/logs?follow=1&stdout=1"])
def test_a_silent_stream_is_not_cut(haproxy, engine_stand_in, tmp_path, target):
    """A stream without data for longer than all other timeouts stays open for later data."""
    short = {"client": 1, "server": 1}
    engine_stand_in.ended.clear()
    with run_proxy(haproxy, engine_stand_in.path, tmp_path, **short) as port:
        with socket.create_connection(("127.0.0.1", port), 30) as connection:
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
            time.sleep(2.5)
            engine_stand_in.speak.release()
            assert b"word\n" in connection.recv(65536)
            assert not engine_stand_in.ended.is_set()
        # If the client closes its connection, the engine's connection ends, even without data.
        assert engine_stand_in.ended.wait(30)


def test_an_engine_that_hangs_holds_no_connection(haproxy, engine_stand_in, tmp_path):
    """If the engine does not respond in time, the proxy responds with 504."""
    with run_proxy(haproxy, engine_stand_in.path, tmp_path, client=1, server=1) as port:
        began = time.monotonic()
        assert ask(port, "GET /info?slow") == 504
        assert time.monotonic() - began < 12


def test_without_an_engine_it_is_unavailable(haproxy, tmp_path):
    """Without an engine, the proxy responds with 503, which its health check detects."""
    with run_proxy(haproxy, tmp_path / "gone.sock", tmp_path) as port:
        assert ask(port, "GET /_ping") == 503


def test_a_slow_request_is_ended(haproxy, engine_stand_in, tmp_path):
    """A client that does not complete its request in time gets status 408."""
    text = CONFIGURATION.read_text(encoding="utf-8")
    assert re.search(r"^    timeout http-request 5s$", text, re.MULTILINE)
    with (
        run_proxy(haproxy, engine_stand_in.path, tmp_path, client=1) as port,
        socket.create_connection(("127.0.0.1", port), 30) as connection,
    ):
        connection.sendall(b"GET /in")
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")


def test_the_exporters_client_gets_through_to_a_real_engine(haproxy, engine, tmp_path):
    """A real engine answers the requests of the exporter's client, and the proxy refuses others."""
    host = engine.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    assert host.startswith("unix://")
    with run_proxy(haproxy, host.removeprefix("unix://"), tmp_path) as port:
        client = EngineClient(f"tcp://127.0.0.1:{port}", environ={})
        assert client.version()["ApiVersion"]
        assert client.info()["Driver"]
        client.list_containers()
        with pytest.raises(EngineError) as raised:
            client.inspect("trainvitals-test-no-such-container")
        assert raised.value.status == 404
        with pytest.raises(EngineError) as raised:
            client.ask("list the images", "/images/json")
        assert raised.value.status == 403
        stream = client.open_stream("follow the events", "/events", {"since": "0"})
        stream.close()
        said = subprocess.run(
            ("docker", "run", "--rm", "busybox"),
            env={**engine, "DOCKER_HOST": f"tcp://127.0.0.1:{port}"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert said.returncode != 0
    assert "the proxy before Docker lets through what reads" in said.stderr
