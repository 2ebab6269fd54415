"""Tests for requests to an engine, with a stand-in that answers, refuses, hangs or stops."""

from __future__ import annotations

import ast
import errno
import grp
import json
import os
import shutil
import socket
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.certificates import make_certificate
from tests.support.engine_stand_in import ID, EngineStandIn, Request, write_frame
from trainvitals.errors import ConfigurationError
from trainvitals.sources import containers
from trainvitals.sources.containers.address import describe_failure, find_engine, parse_address
from trainvitals.sources.containers.engine import EngineClient, EngineError
from trainvitals.sources.containers.evidence import Gap

ROOT = Path("/")
LOGS = f"/containers/{ID}/logs"


@pytest.fixture
def client(engine: EngineStandIn) -> EngineClient:
    """A client with a timeout that is long enough for a busy machine."""
    return EngineClient(engine.address, timeout_seconds=30)


def answer_once(data: bytes, path: Path) -> threading.Thread:
    """Answer one connection to a socket with the given bytes, and close the connection."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        with listener, listener.accept()[0] as connection:
            connection.recv(1 << 16)
            with suppress(BrokenPipeError):  # the client has stopped reading
                connection.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def count_descriptors() -> int:
    """Return the number of file descriptors that this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_only_one_place_sends_and_it_says_get():
    """Only one call in the package sends data to an engine, and its method is a literal GET."""
    folder = Path(containers.__path__[0])
    sending = {"send", "sendall", "sendto", "sendmsg", "sendfile", "request", "putrequest"}
    calls = {
        (path.name, ast.unparse(node))
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in sending | {"urlopen", "write", "Request"}
    }
    assert {call for call in calls if "write" not in call[1]} == {
        ("engine.py", "connection.sendall(decoder.request)"),
        ("framing.py", "h11.Request(method='GET', target=target, headers=headers)"),
        ("framing.py", "self._connection.send(question)"),
        ("framing.py", "self._connection.send(h11.EndOfMessage())"),
        ("loglines.py", "self._wake_sender.send(b'!')"),  # to its own thread
    }
    text = "".join(path.read_text() for path in folder.glob("*.py"))
    assert not any(name in text for name in ("urllib.request", "HTTPConnection", "subprocess"))


def test_whatever_is_asked_is_asked_by_get(engine: EngineStandIn, client: EngineClient):
    """Every request of the client, including streams, is a GET, and the answers are returned."""
    engine.put(f"/containers/{ID}/json", {"Id": ID})
    engine.put(f"/containers/{ID}/stats", {"read": "0001-01-01T00:00:00Z"})
    engine.put("/containers/json", [{"Id": ID}, None])
    engine.put(LOGS, write_frame(b"step 1\n") + write_frame(b"oh\n", channel=2))
    client.ping()
    assert client.version()["Version"] == "26.1.5"
    assert client.info() == {"LoggingDriver": "json-file"}
    assert client.list_containers() == ({"Id": ID}, {})
    assert client.inspect(ID) == {"Id": ID}
    assert client.stats(ID) is None
    assert client.logs(ID, since=1.5, until=2) == ("step 1", "oh")
    client.open_stream("follow", "/events", {"filters": "{}"}).close()
    client.open_stream("follow", LOGS, {"follow": "1"}, waits=False).close()
    engine.await_streams(LOGS)
    log = {"stdout": "1", "stderr": "1", "timestamps": "0", "tail": "500"}
    span = {"since": "1.500000000", "until": "2.000000000"}
    assert engine.requests == [
        Request("GET", "/_ping", {}),
        Request("GET", "/version", {}),
        Request("GET", "/info", {}),
        Request("GET", "/containers/json", {"all": "1"}),
        Request("GET", f"/containers/{ID}/json", {}),
        Request("GET", f"/containers/{ID}/stats", {"stream": "0", "one-shot": "1"}),
        Request("GET", LOGS, log | span),
        Request("GET", "/events", {"filters": "{}"}),
        Request("GET", LOGS, {"follow": "1"}),
    ]
    assert engine.methods == {"GET"}


def test_names_are_encoded(engine: EngineStandIn, client: EngineClient):
    """A container name is encoded, so it can neither change the path nor add another request."""
    with pytest.raises(EngineError):
        client.inspect("../info?x=1 HTTP/1.1\r\n\r\nDELETE /containers/\N{SNOWMAN}")
    path = engine.requests[0].path
    assert path.startswith("/containers/..%2Finfo%3Fx%3D1%20HTTP%2F1.1%0D%0A%0D%0ADELETE%20")
    assert len(engine.requests) == 1


def test_a_refusal_has_the_engine_s_own_words(engine: EngineStandIn, client: EngineClient):
    """The error contains the HTTP status, the engine's message and a remedy."""
    engine.put(f"/containers/{ID}/json", {"message": "No such container: x"}, status=404)
    with pytest.raises(EngineError) as caught:
        client.inspect(ID)
    assert caught.value.status == 404
    assert str(caught.value) == (
        f"cannot inspect container {ID}: the engine says 404 No such container: x; look with "
        "`docker ps --all` what there is; what is removed is known only to an exporter that "
        "watched it"
    )


@pytest.mark.parametrize(
    ("status", "message", "remedy"),
    [
        (409, "can not get logs from container which is dead", "start it without --rm"),
        (501, "configured logging driver does not support reading", "trainvitals docker-logging"),
        (403, "", "let its proxy pass GET"),
        (500, "Authorization: Bearer abcdefghijklmnop", "journalctl -u docker"),
    ],
)
def test_a_log_that_cannot_be_read_is_a_gap(
    engine: EngineStandIn, client: EngineClient, status: int, message: str, remedy: str
):
    """The gap names the missing log, the reason and a remedy, and secrets in it are masked."""
    engine.put(LOGS, {"message": message}, status=status)
    with pytest.raises(EngineError) as caught:
        client.logs(ID)
    assert caught.value.status == status
    gap = caught.value.to_gap("the log")
    assert isinstance(gap, Gap)
    assert gap.what == "the log"
    assert gap.why.startswith(f"the engine says {status}")
    assert "abcdefghijklmnop" not in gap.why
    assert remedy in gap.remedy


def test_an_engine_that_hangs_is_given_up(engine: EngineStandIn, client: EngineClient):
    """A request to an engine that accepts the connection but never answers times out."""
    impatient = EngineClient(engine.address, timeout_seconds=0.3)
    with engine.hanging():
        began = time.monotonic()
        with pytest.raises(EngineError, match="does not answer; look with `docker version`"):
            impatient.ping()
        with pytest.raises(EngineError, match=r"cannot follow: .* does not answer"):
            impatient.open_stream("follow", "/events")
        assert 0.5 < time.monotonic() - began < 10
    client.ping()


def test_an_engine_that_answers_by_drops_is_given_up(tmp_path: Path):
    """An answer that arrives byte by byte is given up if it takes too long as a whole."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "slow.sock"))
    listener.listen()

    def drip() -> None:
        with listener, listener.accept()[0] as connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
            for _ in range(100):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return
                time.sleep(0.03)

    thread = threading.Thread(target=drip)
    thread.start()
    began = time.monotonic()
    with pytest.raises(EngineError, match="does not answer"):
        EngineClient(str(tmp_path / "slow.sock"), timeout_seconds=0.1).ping()
    assert 0.4 < time.monotonic() - began < 12.5
    thread.join()


def test_an_engine_that_is_not_there_says_so(tmp_path: Path):
    """If no engine listens at an address, the error says how to start the engine."""
    gone = EngineStandIn(tmp_path / "gone.sock")
    gone.start()
    gone.stop()
    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for address in (
        "unix:///nowhere/engine.sock",
        gone.address,
        str(tmp_path / "file"),
        f"tcp://127.0.0.1:{port}",
    ):
        with pytest.raises(EngineError, match=r"no engine listens at .*systemctl start docker"):
            EngineClient(address).ping()


def test_a_path_that_is_too_long_is_an_error(tmp_path: Path):
    """A socket path that is longer than the kernel's limit of 107 bytes raises an error."""
    with pytest.raises(EngineError, match="too long"):
        EngineClient(f"/{'x' * 200}").ping()


def test_permission_denied_names_the_group(tmp_path: Path):
    """The remedy names the group that owns the socket, or else root, and a read-only proxy."""
    path = tmp_path / "engine.sock"
    path.touch()
    refused = PermissionError(errno.EACCES, "Permission denied")
    os.chown(path, -1, 0)
    assert describe_failure(parse_address(str(path), {}), refused) == (
        f"permission denied for unix://{path}",
        "run as root, or give --containers.engine=tcp://HOST:PORT of a read-only proxy",
    )
    nobody = grp.getgrall()[-1]
    os.chown(path, -1, nobody.gr_gid)
    _, remedy = describe_failure(parse_address(str(path), {}), refused)
    assert remedy == (
        f"add this user to the group {nobody.gr_name} (gid {nobody.gr_gid}), "
        "or give --containers.engine=tcp://HOST:PORT of a read-only proxy"
    )
    os.chown(path, -1, 654321)
    _, remedy = describe_failure(parse_address(str(path), {}), refused)
    assert remedy.startswith("add this user to the group with gid 654321, or")
    _, remedy = describe_failure(parse_address("/nowhere/x.sock", {}), refused)
    assert remedy.startswith("run as root, or")


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "broke off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{", "not that of an engine"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "not that of an engine"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, "not that of an engine"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nx\r\n",
            "not that of an engine",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (5 << 20), "too long"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 5\r\n\r\n<htm>", "engine says 500;"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n\r\n", "not that of an engine"),
        (b"", "not that of an engine"),
    ],
)
def test_an_answer_that_is_none_is_an_error(tmp_path: Path, data: bytes, complaint: str):
    """A truncated, invalid, oversized or empty answer raises an error that gives the reason."""
    path = tmp_path / "odd.sock"
    thread = answer_once(data, path)
    with pytest.raises(EngineError, match=complaint):
        EngineClient(str(path)).version()
    thread.join()


def test_an_answer_that_lasts_as_long_as_the_connection_is_one(tmp_path: Path):
    """An answer without a length, as old proxies send it, ends with the connection."""
    thread = answer_once(b'HTTP/1.0 200 OK\r\n\r\n{"Version": "4.3.1"}', tmp_path / "old.sock")
    assert EngineClient(str(tmp_path / "old.sock")).version() == {"Version": "4.3.1"}
    thread.join()


def test_a_log_is_bounded_and_masked(engine: EngineStandIn, client: EngineClient):
    """The last 64 KiB of a log are returned with any unfinished last line; secrets are masked."""
    lines = b"".join(b"%06d %b\n" % (number, b"x" * 993) for number in range(500))
    engine.put(LOGS, write_frame(lines) + write_frame(b"HF_TOKEN=hf_0123456789abcdefABCDEF"))
    log = client.logs(ID)
    assert log[-1] == "HF_TOKEN=***"
    assert log[0].startswith("000435 x")
    assert len(log) == 66


def test_an_empty_log_has_no_lines(engine: EngineStandIn, client: EngineClient):
    """An empty log is returned as no lines, not as one empty line."""
    engine.put(LOGS, b"")
    assert client.logs(ID) == ()


def test_a_log_of_broken_frames_is_an_error(engine: EngineStandIn, client: EngineClient):
    """A log raises an error if other bytes follow its first frame."""
    engine.put(LOGS, write_frame(b"step 1\n") + b"and then something else")
    with pytest.raises(EngineError, match="not that of an engine"):
        client.logs(ID)


def test_a_stream_is_ended_from_another_thread(engine: EngineStandIn, client: EngineClient):
    """Closing a stream wakes a thread that waits for data, and closes the file descriptor."""
    stream = client.open_stream("follow", "/events")
    assert stream.receive(0) is None
    threading.Timer(0.1, stream.close).start()
    began = time.monotonic()
    assert stream.receive(60) == b""
    assert time.monotonic() - began < 30
    assert stream.fileno() == -1
    assert stream.receive(30) == b""
    stream.close()


def test_a_stream_tells_how_it_ended(engine: EngineStandIn, client: EngineClient):
    """A stream that ended regularly is complete, and a stream that was cut off is not."""
    for end, is_complete in ((engine.end, True), (engine.cut, False)):
        stream = client.open_stream("follow", "/events")
        engine.await_streams("/events")
        engine.send("/events", b"one")
        assert stream.receive(5) == b"one"
        end("/events")
        assert stream.receive(5) == b""
        assert stream.is_complete is is_complete
        stream.close()
        engine.await_streams("/events", 0)


def test_a_stream_that_is_refused_is_an_error(engine: EngineStandIn, client: EngineClient):
    """If the engine refuses a stream, the error contains the engine's message."""
    engine.refuse("/events", 403, "by rule")
    with pytest.raises(EngineError, match="403 by rule; let its proxy pass GET"):
        client.open_stream("follow", "/events")


@pytest.mark.parametrize(
    ("address", "environ", "found"),
    [
        ("none", {"DOCKER_HOST": "tcp://10.0.0.1:2375"}, None),
        ("unix:///run/x.sock", {}, "unix:///run/x.sock"),
        ("/run/x.sock", {}, "unix:///run/x.sock"),
        ("tcp://proxy:2375", {"DOCKER_HOST": "tcp://10.0.0.1:2375"}, "tcp://proxy:2375"),
        ("http://[::1]:2375", {}, "http://[::1]:2375"),
        (None, {"DOCKER_HOST": "tcp://10.0.0.1:2375"}, "tcp://10.0.0.1:2375"),
        (None, {"DOCKER_HOST": "ssh://me@host"}, None),
    ],
)
def test_an_engine_is_found_by_its_address(
    address: str | None, environ: dict[str, str], found: str | None
):
    """An address in the options takes precedence over `DOCKER_HOST`."""
    assert find_engine(address, environ=environ, rootfs=Path("/host")) == found


def test_an_engine_is_found_by_its_socket(engine: EngineStandIn, tmp_path: Path):
    """The user's socket is found after the system's sockets; other files are ignored."""
    (tmp_path / "run" / "podman").mkdir(parents=True)
    (tmp_path / "run" / "docker.sock").touch()
    (tmp_path / "run" / "podman" / "podman.sock").symlink_to(engine.path)
    environ = {"XDG_RUNTIME_DIR": str(tmp_path / "run")}
    found = find_engine(None, environ=environ, rootfs=ROOT)
    own = f"unix://{tmp_path}/run/podman/podman.sock"
    assert found in {own, "unix:///var/run/docker.sock", "unix:///run/podman/podman.sock"}
    assert find_engine(None, environ=environ, rootfs=Path("/host")) is None


@pytest.mark.parametrize(
    "address",
    [
        "ssh://me@host",
        "tcp://",
        "tcp://host:many",
        "tcp://host:2375/path",
        "tcp://user:hunter2@host",
        "unix://relative/path",
        "docker.sock",
        "http://[::1",
    ],
)
def test_an_address_that_is_none_is_refused(address: str):
    """The error for an invalid address shows the valid forms, and contains no password."""
    with pytest.raises(ConfigurationError, match="write unix:///PATH") as caught:
        find_engine(address, environ={}, rootfs=ROOT)
    assert "hunter2" not in str(caught.value)


def test_an_engine_is_asked_through_tls(tmp_path: Path):
    """TLS uses the client's certificate, and an untrusted server certificate is refused."""
    make_certificate(tmp_path)
    shutil.copy(tmp_path / "cert.pem", tmp_path / "ca.pem")
    environ = {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path)}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    context.load_verify_locations(tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    server = socket.create_server(("127.0.0.1", 0))
    address = f"tcp://127.0.0.1:{server.getsockname()[1]}"

    def serve() -> None:
        body = json.dumps({"Version": "26.1.5", "Filler": "x" * 100_000}).encode()
        with server:
            plain, _ = server.accept()
            with context.wrap_socket(plain, server_side=True) as connection:
                connection.recv(1 << 16)
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
                )
            plain, _ = server.accept()
            with plain, pytest.raises(ssl.SSLError):
                context.wrap_socket(plain, server_side=True)

    thread = threading.Thread(target=serve)
    thread.start()
    assert EngineClient(address, environ=environ).version()["Version"] == "26.1.5"
    stranger = {**environ, "DOCKER_CERT_PATH": ""}
    with pytest.raises(EngineError, match=r"CERTIFICATE_VERIFY_FAILED; check DOCKER"):
        EngineClient(address, environ=stranger).version()
    thread.join()
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(ConfigurationError, match="check DOCKER_CERT_PATH"):
        EngineClient(address, environ=environ)


def test_hundreds_of_questions_leave_nothing_open(engine: EngineStandIn, client: EngineClient):
    """Answered, refused and broken requests leave no file descriptor open."""
    engine.put("/info", b"{")
    client.ping()
    before = count_descriptors()
    for _ in range(100):
        client.ping()
        for ask in (client.info, lambda: client.inspect(ID)):
            with pytest.raises(EngineError):
                ask()
    assert count_descriptors() <= before + 2  # those of the server's last threads
