"""`trainvitals top` in scripts: `--once`, `--json` and one-line errors."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from rich.color import ColorSystem

from tests.fakes.machine import FakeMachine
from tests.integration.views.terminal.stage import ROOT, PictureServer
from tests.support.certificates import make_certificate
from tests.unit.views.terminal.pictures import BAD_DAY, GOOD_DAY, HOSTILE
from trainvitals.errors import ConfigurationError
from trainvitals.sources.exporter_client import Address, Credentials, find_credentials, parse_url
from trainvitals.views.machine.document import write_document
from trainvitals.views.terminal.terminal import choose_colors, is_ascii


@pytest.fixture
def server():
    """An exporter that serves the picture of a machine in trouble."""
    with PictureServer(BAD_DAY) as server:
        yield server


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A folder with a certificate for this machine and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


def top(*arguments, **environ):
    """Run `trainvitals top` without a terminal."""
    variables = {"PYTHONPATH": str(ROOT / "exporter"), "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    # pytest or a shell may have set COLUMNS.
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        [sys.executable, "-m", "trainvitals", "top", *arguments],
        env={**inherited, **variables, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )


def fail(*arguments, **environ):
    """Run `trainvitals top`, which must fail, and return its one line of error."""
    done = top(*arguments, **environ)
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    return line


def test_once_through_a_pipe_has_no_escape_codes(server):
    """In a pipe, `--once` prints no escape codes and lines as wide as needed or as COLUMNS."""
    done = top("--once", "--url", server.url, COLUMNS="80")
    text = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search(r" $", text, re.MULTILINE)
    wide = top("--once", "--url", server.url, COLUMNS="").stdout.decode()
    assert max(map(len, wide.splitlines())) > 200
    assert "…" not in wide


def test_once_has_colours_where_they_are_asked_for(server):
    """`--color always` prints colours into a pipe, for example for `less -R`."""
    text = top("--once", "--url", server.url, "--color", "always").stdout.decode()
    assert "\x1b[1;31mgpu1\x1b[0m" in text


def test_once_is_ascii_where_the_locale_is(server):
    """In an ASCII locale, `--once` prints only ASCII characters."""
    server.picture = HOSTILE
    done = top("--once", "--url", server.url, LC_ALL="C")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert b"#########" in done.stdout


def test_json_is_the_document_of_the_overview(server):
    """`--json` prints the exporter's overview document unchanged."""
    done = top("--json", "--url", server.url)
    assert done.returncode == 0
    assert done.stdout == write_document(BAD_DAY)


def test_it_reads_this_machine_itself(tmp_path):
    """With `--local`, the command reads this machine itself, with rates and without an exporter."""
    environ = {"TRAINVITALS_JOURNAL_DIR": str(tmp_path / "deaths")}
    with FakeMachine(tmp_path, gpus=2) as machine:
        environ |= machine.environment()
        done = top("--json", "--local", "--containers.engine=none", **environ)
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert [device["device"] for device in document["accelerators"]] == [0, 1]
    assert document["host"]["cpu_percent"] is not None
    assert document["hostname"] == socket.gethostname()


def test_limits_of_this_machine_are_judged_without_an_exporter_too(tmp_path):
    """With `--local`, limits come from the exporter's variables, and an invalid one is an error."""
    environ = {
        "TRAINVITALS_JOURNAL_DIR": str(tmp_path / "deaths"),
        "ACCELERATOR_MEMORY_LIMIT": "1MB",
        "ACCELERATOR_TEMPERATURE_LIMIT": "50",
    }
    arguments = ("--json", "--local", "--containers.engine=none")
    with FakeMachine(tmp_path, gpus=1) as machine:
        machine.gpu(0).temperature = 51
        document = json.loads(top(*arguments, **environ, **machine.environment()).stdout)
    found = {each["alert"] for each in document["troubles"]}
    assert {"AcceleratorMemoryOverLimit", "AcceleratorTemperatureOverLimit"} <= found
    assert document["accelerators"][0]["temperature_limit_celsius"] == 50
    line = fail(*arguments, **{**environ, "ACCELERATOR_TEMPERATURE_LIMIT": "warm"})
    assert "ACCELERATOR_TEMPERATURE_LIMIT" in line


def test_a_prometheus_that_does_not_answer_is_told(tmp_path):
    """If Prometheus does not answer, the output says that alerts are not known, and why."""
    environ = {"TRAINVITALS_JOURNAL_DIR": str(tmp_path / "deaths")}
    arguments = ("--containers.engine=none", "--prometheus=http://127.0.0.1:1")
    text = top("--once", *arguments, **environ).stdout.decode()
    assert "alerts not known" in text
    assert "no Prometheus answers at http://127.0.0.1:1: Connection refused" in text


def test_alerts_are_there_at_the_first_call(tmp_path):
    """A single call shows the alerts of a Prometheus that answers after 1.5 s."""
    alerts = [{"labels": {"alertname": "Hot", "severity": "critical"}, "annotations": {},
               "state": "firing", "activeAt": ""}]  # fmt: skip

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self):
            """Answer after 1.5 s."""
            time.sleep(1.5)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"data": {"alerts": alerts}}).encode())

        def log_message(self, *_):
            """Log nothing."""

    prometheus = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=prometheus.serve_forever, args=(0.02,), daemon=True).start()
    environ = {"TRAINVITALS_JOURNAL_DIR": str(tmp_path / "deaths")}
    url = f"http://127.0.0.1:{prometheus.server_port}"
    done = top("--json", "--containers.engine=none", f"--prometheus={url}", **environ)
    prometheus.shutdown()
    prometheus.server_close()
    assert [each["name"] for each in json.loads(done.stdout)["alerts"]] == ["Hot"]


def test_sorting_is_told_by_name(server):
    """`--sort memory` sorts every section that has the column."""
    text = top("--once", "--url", server.url, "--sort", "memory").stdout.decode()
    assert len(re.findall("MEMORY▼", text)) == 3
    assert "there are alert, severity, device" in fail("--once", "--sort", "weight")


def test_without_a_terminal_it_says_what_there_is_instead():
    """Without a terminal, the error names `--once` and `--json`."""
    assert "use --once or --json" in fail()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--interval=0.1",), "--interval=0.1: write a number of seconds from 0.5 to 3600"),
        (("--once", "--url=ftp://x"), "--url ftp://x: write http://HOST:PORT"),
        (("--once", "--url=http://x:99999"), "--url http://x:99999: Port out of range"),
        (
            ("--once", "--url=http://ann:pw@x"),
            "every user of this machine can see a password there",
        ),
        (("--once", "--url=x", "--local"), "--url is for an exporter"),
        (("--once", "--user=ann"), "are for --url"),
        (("--once", "--prometheus=x"), "--prometheus is not the address of a Prometheus"),
        (("--once", "--url=x", "--user=ann"), "no password for ann"),
        (("--once", "--url=http://x", "--ca-file=ca.pem"), "write https://"),
        (("--once", "--url=https://x", "--ca-file=/nowhere"), "--ca-file /nowhere: No such file"),
        (("--once", "--url=no-such-host.invalid"), "http://no-such-host.invalid:9200 is not to be"),
    ],
)
def test_wrong_usage_is_told_in_a_line(arguments, words):
    """Wrong usage prints one line with the remedy, and the exit code is 2."""
    assert words in fail(*arguments, TRAINVITALS_PASSWORD="", HOME="/nonexistent")


def test_a_server_that_is_no_exporter_is_told_in_a_line(server):
    """A server that is no exporter, or does not answer, causes a one-line error."""
    server.picture = b"<html>"
    assert "no JSON" in fail("--once", "--url", server.url)
    server.picture = b'{"format": 99}'
    assert "its format is 99" in fail("--once", "--url", server.url)
    assert "it is not a trainvitals exporter" in fail("--once", "--url", f"{server.url}/elsewhere")
    server.status = 500
    assert fail("--once", "--url", server.url).endswith("answers 500")
    server.close()
    assert "is `trainvitals serve` running there" in fail("--once", "--url", server.url)


def test_a_user_has_a_password_from_a_file_the_environment_or_netrc(tmp_path):
    """The password is read from a file, the environment or netrc, never from an argument."""
    (tmp_path / "password").write_text("s3cret\n")
    with PictureServer(GOOD_DAY, credentials="ann:s3cret") as server:
        url = server.url
        asked = ("--once", "--url", url)
        assert "requires another user and password" in fail(*asked, HOME=str(tmp_path))
        with_file = ("--user=ann", f"--password-file={tmp_path}/password")
        assert top(*asked, *with_file).returncode == 0
        assert top(*asked, "--user=ann", TRAINVITALS_PASSWORD="s3cret").returncode == 0
        assert "requires another user" in fail(*asked, "--user=ann", TRAINVITALS_PASSWORD="wrong")
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ann password s3cret\n")
        (tmp_path / ".netrc").chmod(0o600)
        assert top(*asked, HOME=str(tmp_path)).returncode == 0


def test_tls_is_trusted_only_as_told(authority):
    """A certificate of an unknown authority is refused, and the error names `--ca-file`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
    with PictureServer(GOOD_DAY, context=context) as server:
        assert "name its authority with --ca-file" in fail("--once", "--url", server.url)
        done = top("--once", "--url", server.url, "--ca-file", str(authority / "cert.pem"))
        assert (done.returncode, done.stderr) == (0, b"")
        plain = server.url.replace("https", "http")
        assert "if it speaks TLS, write https://" in fail("--once", "--url", plain)
    with PictureServer(GOOD_DAY) as server:
        line = fail("--once", "--url", server.url.replace("http", "https"))
        assert "if it has none, write http://" in line


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("gpu-07", Address(is_tls=False, host="gpu-07", port=9200)),
        ("gpu-07:9300", Address(is_tls=False, host="gpu-07", port=9300)),
        ("http://gpu-07", Address(is_tls=False, host="gpu-07", port=80)),
        ("https://[::1]:9200/a/", Address(is_tls=True, host="::1", port=9200, prefix="/a")),
        ("http://ann@x:1", Address(is_tls=False, host="x", port=1, user="ann")),
    ],
)
def test_a_url_is_read(text, address):
    """A URL is parsed as in a browser, and a bare host has the exporter's port."""
    assert parse_url(text) == address


def test_an_address_is_written_without_its_user():
    """The text of an address does not contain the user, so that it can be logged."""
    assert str(parse_url("https://ann@[::1]:9200/a")) == "https://[::1]:9200/a"


def test_a_password_is_not_shown_by_accident():
    """The repr of credentials, which tracebacks may show, does not contain the password."""
    assert "s3cret" not in repr(Credentials("ann", "s3cret"))


def test_a_broken_netrc_is_named(tmp_path):
    """The error of an invalid netrc names the file and the remedy."""
    path = tmp_path / "netrc"
    path.write_text("password first\n")
    address = parse_url("x")
    with pytest.raises(ConfigurationError, match=r"cannot read .*netrc: .*; mend it"):
        find_credentials(address, user=None, password_file=None, environ={}, netrc_path=path)


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_colours_are_where_they_are_wanted():
    """Colours depend on the terminal, NO_COLOR and the `--color` option."""
    screen, pipe = _Terminal(), io.StringIO()
    some = ColorSystem.STANDARD
    assert choose_colors("auto", screen, {"TERM": "xterm"}) is some
    assert choose_colors("auto", screen, {"TERM": "xterm", "NO_COLOR": "1"}) is None
    assert choose_colors("auto", screen, {"TERM": "dumb"}) is None
    assert choose_colors("auto", screen, {}) is None
    assert choose_colors("auto", pipe, {"TERM": "xterm"}) is None
    assert choose_colors("always", pipe, {"NO_COLOR": "1"}) is some
    assert choose_colors("never", screen, {"TERM": "xterm"}) is None


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"LANG": "en_US.UTF-8"}, False),
        ({"LANG": "C.utf8"}, False),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
        ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, True),
        ({"LANG": "en_US.ISO-8859-1"}, True),
    ],
)
def test_ascii_is_drawn_where_the_locale_knows_no_more(environ, expected):
    """ASCII is used if the locale in the environment has no UTF-8."""
    assert is_ascii(_Terminal(), environ) is expected


def test_a_stream_of_another_encoding_is_ascii():
    """ASCII is used if the stream's encoding is not UTF-8, whatever the locale is."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    assert is_ascii(stream, {"LANG": "en_US.UTF-8"})


def test_the_exporter_of_this_machine_is_asked_first(tmp_path):
    """By default the local exporter is asked, and without one this machine is read directly."""
    try:
        server = PictureServer(replace(GOOD_DAY, hostname="asked"), port=9200)
    except OSError:
        pytest.skip("port 9200 is taken")
    environ = {"TRAINVITALS_JOURNAL_DIR": str(tmp_path / "deaths")}
    with server:
        head = top("--once", **environ).stdout.decode().splitlines()[0]
        assert head.startswith("asked  2026-11-22 14:23:20 UTC  exporter at http://127.0.0.1:9200")
        server.status = 404
        head = top("--once", **environ, DOCKER_HOST="none").stdout.decode().splitlines()[0]
        assert "read here, no exporter of trainvitals at http://127.0.0.1:9200" in head
    head = top("--once", **environ, DOCKER_HOST="none").stdout.decode().splitlines()[0]
    assert "read here, no exporter at http://127.0.0.1:9200" in head


def test_a_user_without_a_home_can_ask_an_exporter(server):
    """The command works without a home directory, as in a container without HOME."""
    done = top("--once", "--url", server.url, HOME="~")
    assert (done.returncode, done.stderr) == (0, b"")
