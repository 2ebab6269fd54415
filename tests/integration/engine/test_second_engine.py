"""The exporter watches an engine that is stopped, restarted, hung, unreachable or busy."""

from __future__ import annotations

import http
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.integration.engine.conftest import Watch
from tests.integration.engine.provocations import EATS_WHEN_TOLD, ENDS_WHEN_TOLD, WAITS
from tests.integration.engine.stage import Stage, ask_engine
from tests.support.engines import Environment, SecondEngine, make_second_engine
from tests.support.exporter_process import ExporterProcess, Page
from tests.support.waiting import wait_until

LONG = os.environ.get("TRAINVITALS_TEST_LONG") == "1"
MANY = 100 if LONG else 20
BIRTHS = 1000 if LONG else 40
NAMES = 100 if LONG else 10  # fewer than the limit of 128, which has a test of its own

# The timeout of a scrape, and the longest time that a scrape takes if it does not wait for the
# engine.
_TIMEOUT_SECONDS = 50
_DEADLINE_SECONDS = 15.0
_REMOVE_BRIDGE = """
import fcntl, socket, struct
SIOCSIFFLAGS, SIOCBRDELBR = 0x8914, 0x89A1
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"docker0", 0))
    fcntl.ioctl(any_socket, SIOCBRDELBR, struct.pack("16s", b"docker0"))
"""
_MOST_SERIES_EACH = 25
_MIB = 1 << 20


@pytest.fixture(scope="module")
def lasting_second(engine: Environment, python_image: str) -> Iterator[SecondEngine]:
    """Start an engine with an image, whose containers outlive its daemon, as under systemd."""
    with make_second_engine(engine, {"live-restore": True}, has_own_containerd=True) as second:
        second.load(python_image)
        yield second


@pytest.fixture
def second(lasting_second: SecondEngine) -> Iterator[SecondEngine]:
    """Yield the lasting engine; afterwards, restart it if necessary and remove its containers."""
    yield lasting_second
    if not lasting_second.answers:
        lasting_second.restart_daemon()
    made = lasting_second.docker("ps", "--all", "--quiet").split()
    if made:
        lasting_second.docker("rm", "--force", *made)


@pytest.fixture
def on_second(second: SecondEngine, python_image: str) -> Callable[[str], Stage]:
    """Return a function that creates the `Stage` of a container name on the second engine."""
    return lambda name: Stage(name, second.environment, python_image, socket=str(second.socket))


def test_what_dies_while_the_engine_is_down_is_shown_when_it_is_back(
    second: SecondEngine, on_second: Callable[[str], Stage], watch_second: Callable[..., Watch]
):
    """Deaths while the engine is down have the right exit code and reason, and count as a gap.

    A container that survives the engine's downtime has no death.
    """
    watch = watch_second(second.address)
    ends, eats, shot, stays = map(on_second, ("ends", "eats", "shot", "stays"))
    assert not ends.run((), ENDS_WHEN_TOLD)
    assert not eats.run(("--memory=48m",), EATS_WHEN_TOLD)
    assert not shot.run((), WAITS)
    assert not stays.run((), WAITS)
    for stage in (ends, eats, shot, stays):
        stage.wait_for("ready")
    pids = {stage.name: stage.pid for stage in (ends, eats, shot)}
    before = watch.exporter.scrape_until(lambda page: _is_connected(page) and _runs(page, 4))

    second.stop_daemon()
    os.kill(pids["ends"], signal.SIGUSR1)
    os.kill(pids["eats"], signal.SIGUSR1)
    os.kill(pids["shot"], signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid) for pid in pids.values() if psutil.pid_exists(pid)], 30)
    watch.exporter.scrape_until(lambda page: not _is_connected(page), "container")
    _scrape_in_time(watch.exporter)
    second.start_daemon()

    page = watch.exporter.scrape_until(
        lambda page: all(_reason(page, name) for name in pids) and _is_connected(page),
        "container",
    )
    assert page.value("container_last_exit_code", name="ends") == 7
    assert _reason(page, "eats") in {"oom-cgroup", "oom-missed"}
    assert _reason(page, "shot") == "kill-outside"
    assert _reason(page, "stays") is None
    assert page.value("container_state", name="stays", state="running") == 1
    gaps = "trainvitals_containers_events_gaps_total"
    assert (page.value(gaps) or 0) >= (before.value(gaps) or 0) + 1
    for name in pids:
        assert watch.diagnose(name)["reason"] == _reason(page, name)


def test_a_hung_engine_stops_no_scrape(
    second: SecondEngine, on_second: Callable[[str], Stage], watch_second: Callable[..., Watch]
):
    """Each scrape is answered while the daemon is stopped by SIGSTOP, and no death is lost."""
    watch = watch_second(second.address)
    ends = on_second("ends")
    assert not ends.run((), ENDS_WHEN_TOLD)
    ends.wait_for("ready")
    pid = ends.pid
    watch.exporter.scrape_until(lambda page: _is_connected(page) and _runs(page, 1))

    second.signal_daemon(signal.SIGSTOP)
    os.kill(pid, signal.SIGUSR1)
    until = time.monotonic() + (60 if LONG else 6)
    while time.monotonic() < until:
        _scrape_in_time(watch.exporter)
        time.sleep(0.5)
    second.signal_daemon(signal.SIGCONT)

    page = watch.exporter.scrape_until(
        lambda page: bool(_reason(page, "ends")) and _is_connected(page), "container"
    )
    assert page.value("container_last_exit_code", name="ends") == 7
    assert page.value("container_deaths_total", name="ends") == 1


def test_it_starts_beside_a_hung_engine(
    second: SecondEngine, on_second: Callable[[str], Stage], watch_second: Callable[..., Watch]
):
    """The exporter starts beside a hung engine and shows its containers when the engine resumes."""
    stays = on_second("stays")
    assert not stays.run((), WAITS)
    second.signal_daemon(signal.SIGSTOP)
    watch = watch_second(second.address)
    _scrape_in_time(watch.exporter)
    time.sleep(3)
    page = _scrape_in_time(watch.exporter)
    assert not _is_connected(page)
    second.signal_daemon(signal.SIGCONT)
    watch.exporter.scrape_until(lambda page: _is_connected(page) and _runs(page, 1), "container")


def test_a_socket_that_is_removed_and_made_anew_is_found_again(
    second: SecondEngine, on_second: Callable[[str], Stage], watch_second: Callable[..., Watch]
):
    """Each scrape is answered without the socket, and the next death is shown with a new socket."""
    watch = watch_second(second.address)
    ends = on_second("ends")
    assert not ends.run((), ENDS_WHEN_TOLD)
    ends.wait_for("ready")
    watch.exporter.scrape_until(lambda page: _is_connected(page) and _runs(page, 1))

    second.socket.unlink()
    for _ in range(4):
        _scrape_in_time(watch.exporter)
        time.sleep(0.5)
    second.restart_daemon()
    watch.exporter.scrape_until(lambda page: _is_connected(page) and _runs(page, 1))
    os.kill(ends.pid, signal.SIGUSR1)
    page = watch.exporter.scrape_until(lambda page: bool(_reason(page, "ends")), "container")
    assert page.value("container_last_exit_code", name="ends") == 7


def test_a_restart_that_ends_containers_is_no_fault_of_theirs(
    second_engine: Callable[..., SecondEngine],
    python_image: str,
    watch_second: Callable[..., Watch],
):
    """A restart of the engine without live-restore stops its containers, which is not an OOM."""
    with second_engine() as engine:
        engine.load(python_image)
        watch = watch_second(engine.address)
        heeds = Stage("heeds", engine.environment, python_image, socket=str(engine.socket))
        assert not heeds.run(("--memory=48m", "--init"), WAITS)
        heeds.wait_for("ready")
        watch.exporter.scrape_until(lambda page: _is_connected(page) and _runs(page, 1))
        engine.restart_daemon()
        page = watch.exporter.scrape_until(
            lambda page: bool(_reason(page, "heeds")) and _is_connected(page), "container"
        )
        assert _reason(page, "heeds") in {"stop-graceful", "term-outside", "daemon-lost"}
        assert watch.diagnose("heeds")["reason"] == _reason(page, "heeds")


def test_a_bridge_that_is_gone_explains_a_start_that_failed(
    second: SecondEngine, on_second: Callable[[str], Stage], watch_second: Callable[..., Watch]
):
    """The exporter and `diagnose` both report `start-network` if the bridge does not exist."""
    watch = watch_second(second.address)
    second.run_in_network(sys.executable, "-c", _REMOVE_BRIDGE)
    complaint = on_second("cut").run((), ("true",))
    second.restart_daemon()  # creates the bridge again for the following tests
    assert "could not find bridge docker0" in complaint
    page = watch.exporter.scrape_until(lambda page: bool(_reason(page, "cut")), "container")
    assert _reason(page, "cut") == "start-network"
    assert watch.diagnose("cut")["reason"] == "start-network"


def test_a_burst_of_events_loses_nothing(
    second: SecondEngine, on_second: Callable[[str], Stage], watch_second: Callable[..., Watch]
):
    """A death after 300 signals, more events than the engine keeps, is shown without a gap."""
    watch = watch_second(second.address)
    stage = on_second("busy")
    assert not stage.run((), WAITS)
    before = watch.exporter.scrape_until(lambda page: _is_connected(page) and _runs(page, 1))
    with ThreadPoolExecutor(1) as pool:
        burst = pool.submit(_signal_often, second, "busy", 300)
        while not burst.done():
            _scrape_in_time(watch.exporter)
            time.sleep(0.2)
        burst.result()
    stage.docker("kill", "busy")
    page = watch.exporter.scrape_until(lambda page: bool(_reason(page, "busy")), "container")
    assert _reason(page, "busy") == "kill-operator"
    gaps = "trainvitals_containers_events_gaps_total"
    assert page.value(gaps) == before.value(gaps)


def test_many_containers_cost_a_scrape_next_to_nothing(
    second: SecondEngine, watch_second: Callable[..., Watch], python_image: str
):
    """All containers are shown with a bounded number of series each, and the scrape stays fast."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: _bear(second, python_image, f"many-{n}", "sleep 600"), range(MANY)))
    watch = watch_second(second.address)
    page = watch.exporter.scrape_until(
        lambda page: (
            _runs(page, MANY) and len(page.find("container_memory_working_set_bytes")) >= MANY
        ),
        "container",
    )
    series = [sample for sample in page.samples if sample.labels.get("name", "").startswith("many")]
    assert len(series) <= MANY * _MOST_SERIES_EACH
    times = []
    for _ in range(10):
        _scrape_in_time(watch.exporter)
        page = watch.exporter.scrape("container")
        times.append(page.value("trainvitals_collector_duration_seconds", collector="container"))
        time.sleep(0.1)
    # bench/RESULTS.md has the time on an idle machine.
    assert min(times) < 0.1, times


def test_births_and_deaths_leave_nothing_behind(
    second: SecondEngine, watch_second: Callable[..., Watch], python_image: str
):
    """Memory, files, threads and series of the exporter do not grow with births and deaths."""
    watch = watch_second(second.address)
    watch.exporter.scrape_until(_is_connected, "container")
    _live_and_die(second, python_image, NAMES)
    before = _wait_for_count(watch, NAMES)
    at_first = _footprint(watch.exporter)
    _live_and_die(second, python_image, BIRTHS)
    after = _wait_for_count(watch, NAMES + BIRTHS)
    at_last = _footprint(watch.exporter)
    print(f"{BIRTHS} births: {at_first} -> {at_last}")
    assert len(after.samples) <= len(before.samples) + 10  # new reasons of death add series
    assert len(after.find("container_info")) == NAMES
    assert at_last["threads"] <= at_first["threads"] + 3  # worker threads start when needed
    assert at_last["files"] <= at_first["files"] + 2  # a stream may still be closing
    assert at_last["bytes"] - at_first["bytes"] < 8 * _MIB


def _reason(page: Page, name: str) -> str | None:
    found = page.find("container_last_death_info", name=name)
    return found[0].labels["reason"] if found else None


def _is_connected(page: Page) -> bool:
    return page.value("trainvitals_containers_events_connected") == 1


def _runs(page: Page, number: int) -> bool:
    return len(page.find("container_state", state="running")) >= number


def _scrape_in_time(exporter: ExporterProcess) -> Page:
    page = exporter.scrape("container", timeout=_TIMEOUT_SECONDS)
    assert page.status == 200
    assert page.seconds < _DEADLINE_SECONDS, page.text
    return page


def _send(second: SecondEngine, path: str, body: object = None) -> tuple[int, bytes]:
    """Post a request to the engine, much faster than `docker` does; return status and answer."""
    answer = ask_engine(str(second.socket), path, "POST", body or {})
    return answer.status_code, answer.content


def _post(second: SecondEngine, path: str, body: object = None) -> dict[str, object]:
    """Post a request to the engine that must succeed, and return its answer."""
    status, text = _send(second, path, body)
    assert status < 400, text
    given: dict[str, object] = json.loads(text) if text else {}
    return given


def _signal_often(second: SecondEngine, name: str, times: int) -> None:
    """Send signals that the container ignores; each of them is an event."""
    for _ in range(times):
        _post(second, f"/containers/{name}/kill?signal=WINCH")


def _bear(second: SecondEngine, image: str, name: str, script: str, *, waits: bool = False) -> None:
    """Start a container that is removed when it ends, and wait for its removal if `waits`."""
    host = {"AutoRemove": True, "NetworkMode": "none"}
    body = {"Image": image, "Cmd": ["sh", "-c", script], "HostConfig": host}
    made = _create(second, name, body)
    _post(second, f"/containers/{made}/start")
    if waits:
        _wait_for_removal(Stage(made, second.environment, image, socket=str(second.socket)))


def _create(second: SecondEngine, name: str, body: object) -> str:
    """Create a container; retry while the engine still holds the name of a removed container."""

    def create() -> tuple[int, bytes] | None:
        answer = _send(second, f"/containers/create?name={name}", body)
        return None if answer[0] == http.HTTPStatus.CONFLICT else answer

    status, text = wait_until(create, 60, pause=0.05)
    assert status < 400, text
    return str(json.loads(text)["Id"])


def _wait_for_removal(stage: Stage) -> None:
    def is_over() -> bool:
        found = stage.inspect()
        return found is None or bool(found["State"]["Dead"])

    def is_gone() -> bool:
        # The engine sometimes cannot remove the folder of a container that ends while it starts;
        # it also refuses a removal while another one is in progress, and keeps the name.
        if stage.inspect() is not None:
            stage.docker("rm", "--force", stage.name, is_checked=False)
        return stage.inspect() is None

    stage.wait_until(is_over, "removed")
    stage.wait_until(is_gone, "gone")


def _live_and_die(second: SecondEngine, image: str, number: int) -> None:
    """Run containers, four at a time, that end in five ways, are removed and reuse their names."""
    scripts = ("exit 0", "exit 3", "kill -9 $$; exit 137", "echo boom >&2; exit 1", "sleep 0.2")

    def live(first: int) -> None:
        for n in range(first, number, 4):
            _bear(second, image, f"life-{n % NAMES}", scripts[n % 5], waits=True)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(live, range(4)))


def _wait_for_count(watch: Watch, number: int) -> Page:
    """Wait until exactly this number of deaths is counted: none is missing or counted twice."""

    def count(page: Page) -> float:
        return sum(sample.value for sample in page.find("container_deaths_total"))

    page = watch.exporter.scrape_until(lambda page: count(page) >= number, "container")
    time.sleep(1)
    page = watch.exporter.scrape("container")
    assert count(page) == number
    return page


def _footprint(exporter: ExporterProcess) -> dict[str, int]:
    process = psutil.Process(exporter.pid)
    with process.oneshot():
        return {
            "threads": process.num_threads(),
            "files": process.num_fds(),
            "bytes": process.memory_info().rss,
        }
