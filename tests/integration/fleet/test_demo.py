"""The whole demo as a user starts it: the real programs, on free ports, with a short history.

`make test-long` runs it with the history and the intervals of `make demo`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from fleet.machines import MACHINES
from fleet.stack import Wishes, bring_up, find_lasting_port, list_addresses, remove
from tests.integration.dashboards.live.choosing import choose, list_options
from tests.integration.dashboards.live.grafana import Asked, Look, ask_board, read_seconds
from tests.integration.dashboards.live.showing import group_by_panel
from tests.support.local_http import get, request
from tests.support.waiting import wait_until
from tests.unit.dashboards.boards import is_multiple, read_boards
from trainvitals.errors import StackError
from trainvitals.sources.http_client import fetch_page
from trainvitals.stack.supervision import find_processes

ROOT = Path(__file__).parents[3]
LONG = os.environ.get("TRAINVITALS_TEST_LONG") == "1"
HOURS = 6 if LONG else 1.25  # GPU 5 was lost 70 minutes ago
SCRAPE_SECONDS, EVALUATION_SECONDS = (15, 15) if LONG else (5, 2)
RATE_SECONDS = 15.0  # the scrape interval in Grafana's data source
PATIENCE_SECONDS = 300  # on a machine that is not busy
# Time limit of a command: more than any command takes on a busy machine, unless it hangs.
LONGEST_SECONDS = 1200

# Panels that the demo is not meant to fill, and the reasons.
MEANT_EMPTY = {
    "Energy per day": "it takes a whole day",
    "Targets that are not heard": "all machines answer",
    "Messages that fail": "the demo sends no messages",
    "Remote write is behind": "nothing is sent on",
    "Rules that fail": "all rules are healthy",
    "What devices need": "no driver asks for anything",
}

pytestmark = [pytest.mark.timeout(2 * LONGEST_SECONDS), pytest.mark.long]


@dataclass(frozen=True, slots=True)
class Demo:
    """A running demo.

    Attributes:
        state_dir: Directory with all files of the demo.
        ports: Port of each program, by the program's name.
        ready: `time.monotonic()` when the demo had started.
        patience_seconds: Time limit for later steps, which is longer if the start was slow.
        said: Standard output of the start command.
    """

    state_dir: Path
    ports: dict[str, int]
    ready: float
    patience_seconds: float
    said: str

    def ask(self, path, method="POST", **words):
        """Query Prometheus' API, as `tests.integration.dashboards.live.server.Server` does."""
        pairs = {f"{key}[]" if key == "match" else key: value for key, value in words.items()}
        url = f"http://127.0.0.1:{self.ports['prometheus']}/api/v1/{path}"
        where = {"params" if method == "GET" else "data": pairs}
        return request(method, url, **where).json()

    def name_firing(self):
        """Return the names of the alerts that fire, except Watchdog, which always fires."""
        alerts = self.ask("alerts", "GET")["data"]["alerts"]
        firing = {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}
        return firing - {"Watchdog"}


def command(*words):
    """Return the command line of a demo command."""
    return (sys.executable, "-m", "fleet", *words)


def environment():
    """Return an environment in which Python imports the demo of this checkout."""
    slack = {"SLACK_WEBHOOK_URL": "http://127.0.0.1:9/slack"}
    return {**os.environ, **slack, "PYTHONPATH": f"{ROOT / 'exporter'}:{ROOT}"}


def run(*words):
    """Run a demo command and return the completed process."""
    return subprocess.run(
        command(*words),
        cwd="/",
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory, prometheus, alertmanager):
    """Start the demo as `make demo` does, and stop it afterwards."""
    state_dir = tmp_path_factory.mktemp("demo") / "state"
    names = ("exporter", "prometheus", "alertmanager", "grafana")
    ports = {name: find_lasting_port() for name in names}
    flags = [f"--{name}-port={port}" for name, port in ports.items()]
    flags += [f"--scrape-seconds={SCRAPE_SECONDS}", f"--evaluation-seconds={EVALUATION_SECONDS}"]
    began = time.monotonic()
    done = run("up", f"--state-dir={state_dir}", f"--hours={HOURS}", *flags)
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        ready = time.monotonic()
        patience_seconds = max(PATIENCE_SECONDS, 3 * (ready - began))
        yield Demo(state_dir, ports, ready, patience_seconds, done.stdout)
    finally:
        run("down", f"--state-dir={state_dir}")


def test_it_says_where_everything_is(demo):
    """Each address that the demo prints answers, and each machine is listed with its address."""
    words = (word.rstrip(",") for word in demo.said.split())
    addresses = [word for word in words if word.startswith("http://127.0.0.1")]
    assert len(addresses) > len(MACHINES)
    for address in dict.fromkeys(addresses):
        assert get(address).ok, address
    for module in MACHINES:
        assert f"  {module.__name__.rpartition('.')[2]}: " in demo.said


def test_at_least_ten_different_alerts_fire(demo):
    """Alerts whose condition held for their real `for` before the start fire at once."""
    firing = demo.name_firing()
    assert len(firing) >= 10, firing
    assert firing >= {"AcceleratorLost", "GPUHighTemperature", "ContainerOOMKilled"}
    assert all(name in demo.said for name in firing & {"AcceleratorLost", "GPUHighTemperature"})
    assert time.monotonic() < demo.ready + demo.patience_seconds


def test_the_past_and_the_present_are_one(demo):
    """No gap between history and live scrapes exceeds 45 s, and no counter is reset."""
    asked = {"query": 'up{instance="orion"}[20m]'}
    (series,) = demo.ask("query", **asked)["data"]["result"]
    moments = [float(moment) for moment, _ in series["values"]]
    assert max(late - early for early, late in pairwise(moments)) < 45
    resets = demo.ask("query", query='resets(host_cpu_seconds_total{job="trainvitals"}[1h])')
    assert {value for each in resets["data"]["result"] for value in each["value"][1:]} == {"0"}


def test_every_panel_that_is_meant_to_be_filled_is(demo):
    """Every dashboard panel, except the listed ones, has data for at least one machine or run."""
    boards = read_boards()
    assert len(boards) == 5
    empty = {}

    def list_unmeant():
        for board in boards:
            names, filled = look_at(Asked(demo), board)
            empty[board.uid] = (empty.get(board.uid) or names) - filled
        return {title for titles in empty.values() for title in titles} - MEANT_EMPTY.keys()

    wait_until(lambda: not list_unmeant(), demo.patience_seconds, pause=5, describe=lambda: empty)


def look_at(asked, board):
    """Query a dashboard for each host or run; return its panel titles and those with data."""
    look = Look(
        time.time(),
        read_seconds(board.json["time"]["from"]),
        choices={},
        scrape_seconds=RATE_SECONDS,
    )
    singles = [
        variable["name"]
        for variable in board.variables
        if variable["name"] in {"instance", "run"} and not is_multiple(variable)
    ]
    choices = choose(asked, board, "all", {}, look)
    wanted = [{}]
    for name in singles[:1]:
        options = list_options(asked, board, name, replace(look, choices=choices))
        wanted = [{name: option} for option in options]
    names, filled = set(), set()
    for each in wanted:
        chosen = choose(asked, board, "all", each, look)
        for found in group_by_panel(ask_board(asked, board, replace(look, choices=chosen))):
            assert not [answer.error for answer in found.answers if answer.error]
            names.add(found.panel.title)
            filled |= {found.panel.title} if found.has_data else set()
    return names, filled


def test_a_second_start_changes_nothing(demo):
    """A second `up` prints that the demo is running and its addresses, and starts no process."""
    before = find_processes(demo.state_dir)
    done = run("up", f"--state-dir={demo.state_dir}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("already running\n")
    assert f"http://127.0.0.1:{demo.ports['prometheus']}/" in done.stdout
    assert find_processes(demo.state_dir) == before


def test_it_sends_no_message(demo):
    """No Alertmanager receiver of the demo has an address, even if the environment names one."""
    text = (demo.state_dir / "config/alertmanager/alertmanager.yml").read_text()
    assert "http" not in text.replace("http://localhost", "")
    assert "_configs" not in text


def test_it_ends_and_leaves_nothing_behind(demo):
    """`down` leaves no process, no open port and no file of the demo."""
    done = run("down", f"--state-dir={demo.state_dir}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "stopped alertmanager, exporter, prometheus\n"
    assert not demo.state_dir.exists()
    assert find_processes(demo.state_dir) == {}
    assert [fetch_page(port, "/") for port in demo.ports.values()] == [None] * 4
    again = run("down", f"--state-dir={demo.state_dir}")
    assert (again.returncode, again.stdout) == (0, "nothing is running\n")


def test_an_interrupted_start_leaves_nothing_behind(tmp_path, prometheus, alertmanager):
    """Ctrl-C while the history is written leaves no process and no file of the demo."""
    state_dir = tmp_path / "state"
    process = subprocess.Popen(
        command("up", f"--state-dir={state_dir}"),
        cwd="/",
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: list(state_dir.glob("past/*.txt")), LONGEST_SECONDS)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=LONGEST_SECONDS)
    assert (process.returncode, said) == (2, "demo: interrupted\n")
    assert not state_dir.exists()
    ours = [each for each in psutil.process_iter(["cmdline"]) if str(state_dir) in str(each.info)]
    assert ours == []


def test_without_prometheus_there_are_the_live_pages(tmp_path):
    """The demo starts only the exporter, which serves every machine, if Prometheus is missing."""

    def find(name):
        raise StackError(f"no {name} here")

    said = []
    wishes = Wishes(tmp_path / "state", exporter_port=find_lasting_port())
    programs = bring_up(wishes, report=said.append, find=find)
    try:
        assert [program.name for program in programs] == ["exporter"]
        addresses = list_addresses(programs)
        assert list(addresses) == ["vega", "atlas", "orion", "hera", "lyra"]
        page = fetch_page(urlsplit(addresses["hera"]).port, "/metrics")
        assert b"\nhpu_utilization_percent{" in page
    finally:
        remove(wishes.state_dir, report=said.append)


@pytest.mark.parametrize("what", ["up", "down"])
def test_a_directory_of_somebody_else_stays(tmp_path, what):
    """`up` and `down` refuse a directory with files that the demo did not create."""
    (tmp_path / "thesis.tex").write_text("a year")
    done = run(what, f"--state-dir={tmp_path}")
    assert done.returncode == 2
    assert "has files that are not the demo's" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_port_that_is_taken_is_named(tmp_path, prometheus, alertmanager):
    """The demo refuses a port that is in use before it writes any history."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("up", f"--state-dir={tmp_path / 'state'}", f"--prometheus-port={port}")
    assert done.returncode == 2
    assert f"cannot start prometheus: port {port} is in use by" in done.stderr
    assert "writing" not in done.stdout
