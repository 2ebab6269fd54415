"""A real HAProxy with the committed configuration, in front of an engine's socket."""

import os
import re
import shutil
import socket
import subprocess
import threading
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.processes import ENDS_WITH_PARENT
from tests.support.waiting import wait_until
from trainvitals.errors import StackError
from trainvitals.stack import debian
from trainvitals.stack.apt import _DEPENDS, Apt, run_tool
from trainvitals.stack.programs import find_free_ports

CONFIGURATION = Path(__file__).parents[3] / "deploy/docker-proxy/haproxy.cfg"
# The libraries of HAProxy that a minimal Debian may not have.
_LIBRARIES = re.compile(r"^lib(?:lua|opentracing|jemalloc|pcre2)[a-z0-9.+-]*$", re.MULTILINE)


@pytest.fixture(scope="session")
def haproxy():
    """Return the command of HAProxy, either the installed one or Debian's unpacked package."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin"
    if installed := shutil.which("haproxy", path=path):
        return (installed,)
    try:
        return _fetch()
    except StackError as error:
        if os.environ.get("CI"):
            raise
        return pytest.skip(f"needs haproxy: {error}")


def _fetch():
    cache = debian._cache_dir(os.environ)
    root = cache / "haproxy"
    with debian._locked(cache):
        if not root.exists():
            downloads, unpacked = cache / "haproxy.debs", cache / "haproxy.partial"
            for leftover in (downloads, unpacked):
                shutil.rmtree(leftover, ignore_errors=True)
            downloads.mkdir()
            apt = Apt(cache, os.environ)
            if error := apt.update():
                raise error
            depends = apt._run("apt-cache", "depends", *_DEPENDS, "haproxy")
            libraries = sorted(set(_LIBRARIES.findall(depends)))
            apt._run("apt-get", "-qq", "download", "haproxy", *libraries, directory=downloads)
            for package in downloads.glob("*.deb"):
                run_tool(("dpkg-deb", "-x", str(package), str(unpacked)), os.environ)
            unpacked.rename(root)
            shutil.rmtree(downloads)
    libraries = {str(path.parent) for path in root.rglob("*.so.*")}
    return ("env", f"LD_LIBRARY_PATH={':'.join(libraries)}", str(root / "usr/sbin/haproxy"))


class Engine:
    """A stand-in for Docker on a Unix socket, which keeps every byte that it receives.

    The stand-in responds with `ok`. A followed log and the events send nothing until the test
    releases `speak`. A request with `slow` in its query gets its response after 15 s.
    """

    def __init__(self, path):
        self.heard = deque()
        self.ended = threading.Event()
        self.closed = threading.Event()
        self.speak = threading.Semaphore(0)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        """Close the socket, as a daemon does that is stopped."""
        self.closed.set()
        self._socket.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, suppress(OSError):
            said = b""
            while b"\r\n\r\n" not in said:
                if not (more := connection.recv(65536)):
                    return
                said += more
            self.heard.append(said)
            if b"/events" in said or b"follow=1" in said:
                self._stream(connection)
                return
            if b"slow" in said:
                self.closed.wait(15)
            body = b"" if said.startswith(b"HEAD") else b"ok"
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + body)
            # More bytes would be a second request.
            connection.settimeout(0.2)
            while more := connection.recv(65536):
                self.heard.append(more)

    def _stream(self, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.settimeout(0.05)
        while True:
            if self.speak.acquire(blocking=False):
                connection.sendall(b"5\r\nword\n\r\n")
            with suppress(TimeoutError):
                if not connection.recv(1):
                    self.ended.set()
                    return


@pytest.fixture(scope="module")
def engine_stand_in(tmp_path_factory):
    """A stand-in for an engine, whose socket is at `path`."""
    directory = tmp_path_factory.mktemp("engine")
    engine = Engine(directory / "docker.sock")
    engine.path = directory / "docker.sock"
    yield engine
    engine.close()


@contextmanager
def run_proxy(haproxy, path, directory, **seconds):
    """Run HAProxy in front of a socket and yield HAProxy's port.

    Args:
        haproxy: The command of HAProxy.
        path: The path of the socket.
        directory: The directory for the configuration and the log.
        seconds: Timeouts that replace configured ones, by the second word of their names.
    """
    port = find_free_ports(1)[0]
    text = CONFIGURATION.read_text(encoding="utf-8")
    changes = {"bind *:2375": f"bind 127.0.0.1:{port}", "unix@/var/run/docker.sock": f"unix@{path}"}
    for name, value in seconds.items():
        changes[f"timeout {name} 30s"] = f"timeout {name} {value}s"
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    config, log = directory / "haproxy.cfg", directory / "haproxy.log"
    config.write_text(text, encoding="utf-8")
    with (
        log.open("w") as output,
        subprocess.Popen(
            (*ENDS_WITH_PARENT, *haproxy, "-db", "-f", config), stdout=output, stderr=output
        ) as process,
    ):
        try:
            wait_until(lambda: process.poll() is not None or _listens(port))
            assert process.poll() is None, log.read_text()
            yield port
        finally:
            process.terminate()


def _listens(port):
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def send(port, data):
    """Send bytes and return the whole answer."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        with suppress(OSError):  # the proxy may refuse a request before it has read all of it
            connection.sendall(data)
        answer = b""
        with suppress(ConnectionResetError):
            while more := connection.recv(65536):
                answer += more
        return answer
