"""TLS and basic authentication of a real exporter, used by requests, curl and Prometheus."""

import shutil
import socket
import subprocess
import time

import bcrypt
import pytest
import requests

from tests.support.certificates import make_certificate
from tests.support.exporter_process import ExporterProcess
from tests.support.local_http import get
from tests.support.processes import ENDS_WITH_PARENT
from trainvitals.errors import StackError
from trainvitals.stack.debian import find_program

PASSWORD = "long enough"

PROMETHEUS_CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: right
    scheme: https
    basic_auth: {{username: prometheus, password: {password}}}
    tls_config: {{ca_file: {folder}/cert.pem}}
    static_configs: [{{targets: ["localhost:{port}"]}}]
  - job_name: wrong
    scheme: https
    basic_auth: {{username: prometheus, password: guessed}}
    tls_config: {{ca_file: {folder}/cert.pem}}
    static_configs: [{{targets: ["localhost:{port}"]}}]
"""


@pytest.fixture
def exporter(tmp_path):
    """Start an exporter with a certificate and one user."""
    make_certificate(tmp_path)
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(rounds=6)).decode()
    config = tmp_path / "web.yml"
    config.write_text(
        "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"
        f"basic_auth_users: {{prometheus: {hashed}}}\n"
    )
    with ExporterProcess(tmp_path, arguments=(f"--web.config.file={config}",)) as process:
        yield process


def call_curl(exporter, folder, *options):
    """Fetch /metrics with curl and return the status code."""
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}"]
    url = f"https://localhost:{exporter.port}/metrics"
    done = subprocess.run(
        [*command, "--cacert", folder / "cert.pem", *options, url],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_requests(exporter, tmp_path):
    """Requests verifies the certificate, logs in and unpacks a compressed answer."""
    url = f"https://localhost:{exporter.port}/metrics"
    with requests.Session() as session:
        session.trust_env = False
        session.auth, session.verify = ("prometheus", PASSWORD), str(tmp_path / "cert.pem")
        answers = [session.get(url, timeout=60) for _ in range(2)]
        head = session.head(url, timeout=60)
        assert session.get(url, auth=("prometheus", "guessed"), timeout=60).status_code == 401
    assert all(answer.ok and "memory_total_bytes " in answer.text for answer in answers)
    assert answers[0].headers["Content-Encoding"] == "gzip"
    assert (head.status_code, head.content) == (200, b"")
    with pytest.raises(requests.exceptions.SSLError):
        get(url)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(exporter, tmp_path):
    """Curl is answered with the right password, and refused with a wrong one or none."""
    assert call_curl(exporter, tmp_path, "-u", f"prometheus:{PASSWORD}") == "200"
    assert call_curl(exporter, tmp_path, "-u", "prometheus:guessed") == "401"
    assert call_curl(exporter, tmp_path) == "401"


def test_prometheus_basic_auth(exporter, tmp_path):
    """Prometheus scrapes with its basic_auth, and a target with a wrong password is down."""
    try:
        program = find_program("prometheus")
    except StackError as error:
        pytest.skip(str(error))
    config = tmp_path / "prometheus.yml"
    config.write_text(
        PROMETHEUS_CONFIG.format(password=PASSWORD, folder=tmp_path, port=exporter.port)
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        *ENDS_WITH_PARENT,
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
    ]
    with subprocess.Popen(
        [*command, f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as prometheus:
        try:
            health = wait_for_both_targets(port)
        finally:
            prometheus.kill()

    assert health == {"right": "1", "wrong": "0"}


def wait_for_both_targets(port):
    """Return the last `up` of each job after both were scraped."""
    url = f"http://127.0.0.1:{port}/api/v1/query?query=up"
    for _ in range(300):
        try:
            found = get(url, timeout=2).json()["data"]["result"]
        except (requests.RequestException, KeyError):
            found = []
        if len(found) == 2:
            return {each["metric"]["job"]: each["value"][1] for each in found}
        time.sleep(0.1)
    return {}
