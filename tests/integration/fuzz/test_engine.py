"""Damaged answers of a container engine, to `diagnose` and to the exporter."""

import json
import re
import socket
import socketserver
import threading
import time
from contextlib import suppress

import psutil
import pytest

from tests.integration.fuzz.fuzzing import CANARY, TIMEOUT, fuzz, refusal
from tests.support.container_stage import ID, OTHER, write_inspection
from tests.support.engine_stand_in import write_event, write_frame
from tests.support.exporter_process import ExporterProcess
from tests.support.mutations import Mutations
from tests.support.run_files import ROOT
from trainvitals.errors import TrainvitalsError
from trainvitals.sources.containers.lookup import find_container
from trainvitals.sources.containers.survey import survey_machine
from trainvitals.sources.files import Roots
from trainvitals.verdicts.causes.diagnosis import diagnose_container, diagnose_last, list_deaths
from trainvitals.views.death.document import format_deaths_document, format_document
from trainvitals.views.death.markdown import format_markdown
from trainvitals.views.death.report import format_deaths, format_report

pytestmark = TIMEOUT
INSPECTIONS = ROOT / "tests/fixtures/inspections"
NAMES = ("ping", "version", "info", "list", "inspect", "logs", "events")
# An input has the answers to some requests, one section for each.
SECTION = re.compile(rb"^-- (\w+) --\n", re.MULTILINE)
DAY_SECONDS = 86_400.0


class Engine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A server that answers each request with prepared bytes.

    Args:
        path: Path of the Unix socket.
        answers: Whole HTTP answers, with their headers, by name.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, path, answers):
        self.answers = answers
        super().__init__(str(path), Handler)

    def handle_error(self, request, client_address):
        """Ignore errors such as a client that closes the connection."""


class Handler(socketserver.StreamRequestHandler):
    """A request handler that answers one request."""

    server: Engine

    def handle(self):
        """Read the request's head, send the answer and close the connection."""
        line = self.rfile.readline().decode()
        while self.rfile.readline().strip():
            pass
        with suppress(OSError):
            self.wfile.write(self.server.answers[choose(line)])
            self.connection.shutdown(socket.SHUT_WR)


def choose(line):
    """Return the name of the answer to a request line."""
    path = line.split()[1].partition("?")[0]
    kinds = {"/json": "inspect", "/logs": "logs", "/events": "events", "/info": "info"}
    if path.endswith("/containers/json"):
        return "list"
    return next(
        (name for end, name in kinds.items() if path.endswith(end)),
        "version" if path.endswith("/version") else "ping",
    )


def write_answers(data):
    """Return all HTTP answers, with those in the input in place of the good ones."""
    parts = SECTION.split(data)
    bodies = {
        **list_good(),
        **dict(zip((name.decode() for name in parts[1::2]), parts[2::2], strict=True)),
    }
    answers = {}
    for name in NAMES:
        body = bodies[name]
        if body.startswith(b"HTTP/"):
            answers[name] = body
        else:
            kind = b"multiplexed-stream" if name == "logs" else b"json"
            head = b"Content-Type: application/%s\r\nContent-Length: %d\r\n" % (kind, len(body))
            answers[name] = b"HTTP/1.1 200 OK\r\n" + head + b"Connection: close\r\n\r\n" + body
    return answers


def list_good():
    """Return an engine's good answers about a container that was killed."""
    now = time.time()
    inspection = write_inspection(now - 100, now - 40, environ=(f"TOKEN={CANARY}",))
    events = [
        (now - 100, "start", {}),
        (now - 40.1, "oom", {}),
        (now - 40, "die", {"exitCode": "137"}),
    ]
    listed = [{"Id": ID, "Names": ["/train"], "State": "exited", "Image": "acme/train:1"}]
    lines = (b"epoch 1\n", b"Traceback (most recent call last):\n", b"ValueError: 0.5\n")
    return {
        "ping": b"OK",
        "version": b'{"Version": "26.1.5", "ApiVersion": "1.45", "Components": [{"Name": "Engine"}]}',
        "info": b'{"LoggingDriver": "json-file", "CgroupVersion": "2", "CgroupDriver": "systemd"}',
        "list": write_json([*listed, {"Id": OTHER, "Names": ["/other"], "State": "running"}]),
        "inspect": write_json(inspection),
        "logs": b"".join(write_frame(line) for line in lines),
        "events": b"".join(
            write_event(action, time_nano=int(at * 1e9), **{"name": "train", **attributes})
            for at, action, attributes in events
        ),
    }


def write_json(value):
    """Return a value as JSON with a newline, as an engine writes it."""
    return json.dumps(value).encode() + b"\n"


def list_corpus():
    """Return inputs: good answers with and without headers, and inspections of real engines."""
    good = list_good()
    whole = write_answers(b"")
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"%x\r\n%s\r\n0\r\n\r\n" % (len(good["inspect"]), good["inspect"])
    return [
        b"".join(b"-- %s --\n%s" % (name.encode(), body) for name, body in good.items()),
        *(b"-- %s --\n%s" % (name.encode(), body) for name, body in good.items()),
        *(b"-- %s --\n%s" % (name.encode(), body) for name, body in whole.items()),
        b"-- inspect --\n" + chunked,
        *(b"-- inspect --\n" + path.read_bytes() for path in sorted(INSPECTIONS.iterdir())),
    ]


@pytest.fixture
def engine(tmp_path):
    """Start an engine that sends good answers until a test replaces them."""
    with Engine(tmp_path / "engine.sock", write_answers(b"")) as engine:
        thread = threading.Thread(target=engine.serve_forever, args=(0.01,))
        thread.start()
        yield engine
        engine.shutdown()
        thread.join()


def test_no_answer_of_an_engine_costs_a_diagnosis_or_a_scrape(engine, tmp_path):
    """Damaged answers are diagnosed or refused in one line, and the exporter keeps working."""
    address = f"unix://{engine.server_address}"
    kmsg = tmp_path / "kmsg"
    kmsg.write_text("")

    def take(data):
        engine.answers = write_answers(data)
        try:
            return examine()
        except TrainvitalsError as error:
            return refusal(error)

    def examine():
        survey = survey_machine(
            engine=address,
            journal=tmp_path / "deaths",
            since_seconds=DAY_SECONDS,
            environ={},
            roots=Roots(tmp_path / "proc", tmp_path / "sys", tmp_path),
            kmsg=kmsg,
        )
        deaths = list_deaths(survey, since_seconds=DAY_SECONDS)
        known = find_container(survey, "train")
        found = [diagnose_last(survey, since_seconds=DAY_SECONDS)]
        if known is not None:
            found.append(diagnose_container(survey, known, since_seconds=DAY_SECONDS))
        texts = [format_deaths_document(deaths, survey.time - DAY_SECONDS)]
        texts.append(format_deaths(deaths, width=80, asked=survey.time, since_seconds=DAY_SECONDS))
        for each in filter(None, found):
            texts += [format_report(each, width=80, lines=50), format_markdown(each, lines=50)]
            texts.append(format_document(each))
        return "".join(texts)

    assert "ValueError: 0.5" in take(b"")
    flag = f"--containers.engine={address}"
    with ExporterProcess(tmp_path, arguments=(flag,)) as exporter:
        exporter.scrape_until(lambda page: page.find("container_info"), "container")
        corpus = Mutations(list_corpus(), [b"-- inspect --\n", b"-- logs --\n", b"\r\n", b"ff\r\n"])
        memory = psutil.Process(exporter.pid)
        fuzz("engine", corpus, take, clock=time.monotonic, memory=memory)
        engine.answers = write_answers(b"")
        assert exporter.scrape("cpu", "container").value(
            "trainvitals_collector_success", collector="cpu"
        )
        assert "Traceback" not in exporter.log
        assert CANARY not in exporter.log
