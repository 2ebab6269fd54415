"""TLS and basic authentication of the real exporter, as curl and Prometheus use them."""

import http.client
import json
import shutil
import socket
import subprocess
import time
from urllib.parse import quote

import bcrypt
import pytest

from tests.certificates import make_certificate
from tests.exporter_process import ExporterProcess
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
    """The exporter with a certificate and one user."""
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
    """Have curl fetch /metrics and give the status code."""
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}"]
    url = f"https://localhost:{exporter.port}/metrics"
    done = subprocess.run(
        [*command, "--cacert", folder / "cert.pem", *options, url],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(exporter, tmp_path):
    """Curl is answered with the right password, and refused with a wrong one or none."""
    assert call_curl(exporter, tmp_path, "-u", f"prometheus:{PASSWORD}") == "200"
    assert call_curl(exporter, tmp_path, "-u", "prometheus:guessed") == "401"
    assert call_curl(exporter, tmp_path) == "401"


def test_prometheus_basic_auth(exporter, tmp_path):
    """Prometheus scrapes with its own basic_auth; with a wrong password its target is down."""
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
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
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
    """Give the last `up` of each job, once both were scraped."""
    query = f"/api/v1/query?query={quote('up')}"
    for _ in range(300):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", query)
            found = json.loads(connection.getresponse().read())["data"]["result"]
        except (OSError, KeyError, ValueError):
            found = []
        finally:
            connection.close()
        if len(found) == 2:
            return {each["metric"]["job"]: each["value"][1] for each in found}
        time.sleep(0.1)
    return {}
