"""`trainvitals serve` as a process, and hostile clients."""

import itertools
import socket
import threading
from base64 import b64encode
from contextlib import contextmanager, suppress

import bcrypt
import psutil
import pytest

from tests.support.exporter_process import ExporterProcess
from tests.support.waiting import wait_until

SCRAPE_SECONDS = 10.0
# A slow machine checks 49 passwords of this cost within a scrape timeout.
ANN = bcrypt.hashpw(b"right", bcrypt.gensalt(8)).decode()

PATHS = ("/metrics", "/", "/live", "/api/v1/overview", "/api/v1/readings", "/health", "/runbooks/")


@pytest.mark.parametrize("path", PATHS)
def test_a_page_that_rebinds_its_name_reads_nothing(exporter, path):
    """Every path is refused for a foreign Host header and served for `localhost`."""
    assert exporter.get(path, host=f"evil.example:{exporter.port}").status == 403
    assert exporter.get(path, host=f"localhost:{exporter.port}").status == 200


@pytest.fixture(scope="module")
def exporter(tmp_path_factory):
    """Start an exporter on a loopback address."""
    with ExporterProcess(tmp_path_factory.mktemp("exporter")) as exporter:
        yield exporter


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (("--web.allowed-host=gpu-07", "--web.allowed-host=proxy.example"), {}),
        ((), {"TRAINVITALS_WEB_ALLOWED_HOST": "gpu-07,proxy.example"}),
    ],
)
def test_further_names_are_configured(tmp_path, arguments, environ):
    """Host names from the flag or the environment variable are accepted, and others refused."""
    with ExporterProcess(tmp_path, arguments=arguments, environ=environ) as exporter:
        found = {
            host: exporter.get("/-/healthy", host=host).status
            for host in ("gpu-07:9200", "proxy.example", "evil.example")
        }
    assert found == {"gpu-07:9200": 200, "proxy.example": 200, "evil.example": 403}


def test_an_emptied_web_configuration_keeps_the_door_shut(tmp_path):
    """An emptied web configuration disables no passwords; log, metric and restart report it."""
    path = tmp_path / "web.yml"
    path.write_text(f"basic_auth_users: {{ann: {ANN}}}\n")
    flag = f"--web.config.file={path}"
    with ExporterProcess(tmp_path, arguments=(flag,)) as exporter:
        assert exporter.get("/metrics").status == 401
        path.write_text("")
        complaint = wait_until(lambda: refused_reason(exporter))
        assert "passwords can only be turned off by a restart" in complaint
        assert complaint in exporter.log
        assert exporter.get("/metrics").status == 401
    with pytest.raises(AssertionError, match="the file is empty; restore it"):
        ExporterProcess(tmp_path, arguments=(flag,))


def refused_reason(exporter):
    """Return the failure reason of the process collector, or None if it succeeds."""
    page = exporter.get("/metrics?collect[]=process", authorization=login("ann", "right"))
    found = page.find("trainvitals_collector_failure_info", collector="process")
    return found[0].labels["reason"] if found else None


def test_the_first_right_password_passes_48_guessers(tmp_path):
    """A correct password is accepted within the scrape timeout while 48 clients guess passwords."""
    path = tmp_path / "web.yml"
    path.write_text(f"basic_auth_users: {{ann: {ANN}}}\n")
    flag = f"--web.config.file={path}"
    with ExporterProcess(tmp_path, arguments=(flag,)) as exporter, hostile(exporter, 48, guess):
        page = exporter.get("/metrics", authorization=login("ann", "right"), timeout=SCRAPE_SECONDS)
        assert page.status == 200
        assert exporter.get("/metrics", authorization=login("ann", "right")).seconds < 5
        assert "failed login from 127.0.0.1 as ann" in exporter.log
    assert exporter.log.count("failed login") <= 2


@pytest.mark.parametrize("path", ["/metrics", "/"])
def test_clients_that_never_read_cost_no_scrape(exporter, path):
    """Each scrape succeeds while 280 clients send requests and never read the answers."""
    requests = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 200

    def ask_without_reading(exporter, _number, stop):
        with connect(exporter) as client:
            client.settimeout(0.5)
            while not stop.is_set():
                with suppress(TimeoutError):
                    client.send(requests)

    with hostile(exporter, 280, ask_without_reading):
        pages = [exporter.scrape(timeout=SCRAPE_SECONDS) for _ in range(10)]
    assert [page.status for page in pages] == [200] * 10
    assert max(page.seconds for page in pages) < SCRAPE_SECONDS


@contextmanager
def hostile(exporter, count, attack):
    """Run attacking clients until the block ends; a client that is cut off starts again."""
    stop, begun = threading.Event(), threading.Barrier(count + 1)

    def run(number):
        begun.wait()
        while not stop.is_set():
            with suppress(OSError):
                attack(exporter, number, stop)

    threads = [threading.Thread(target=run, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    begun.wait()
    wait_until(lambda: len(psutil.Process(exporter.pid).net_connections()) > count // 2)
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def connect(exporter):
    """Return a connection to the exporter."""
    return socket.create_connection(("127.0.0.1", exporter.port), timeout=30)


def guess(exporter, number, stop):
    """Guess passwords over one connection, each right after the refusal of the previous one."""
    with connect(exporter) as client:
        client.settimeout(2)
        for count in itertools.count():
            if stop.is_set():
                return
            head = f"Host: localhost\r\nAuthorization: {login('ann', f'{number}-{count}')}"
            client.sendall(f"GET /metrics HTTP/1.1\r\n{head}\r\n\r\n".encode())
            if not client.recv(1 << 16):
                return


def login(name, password):
    """Return the `Authorization` header of a name and a password."""
    return "Basic " + b64encode(f"{name}:{password}".encode()).decode()
