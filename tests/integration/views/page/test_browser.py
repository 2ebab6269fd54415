"""The live page of a real exporter in a real browser."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleet.exporter import build_collectors
from fleet.machines import build_machines
from tests.fakes.machine import FakeMachine
from tests.integration.views.page.browser import open_browser, visit
from tests.support.exporter_process import ExporterProcess
from trainvitals import __version__
from trainvitals.http.endpoints import Endpoints
from trainvitals.http.listen import parse_address
from trainvitals.http.server import Server
from trainvitals.metrics.runner import Runner
from trainvitals.sources.files import Roots
from trainvitals.views.machine.observer import Observer

SOURCE_ROOT = Path(__file__).resolve().parents[4] / "exporter"
HOSTILE = "<img src=x onerror=document.title='owned'>\"'&lt;"
TRAINER = """
import sys
from trainvitals import TrainingMonitor
monitor = TrainingMonitor(run=sys.argv[1], rank=0, world_size=1)
monitor.start_epoch()
for _ in range(20):
    monitor.update_batch(batch_size=8, loss=2.0)
print("trains", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Start Chromium for all tests of the module."""
    with open_browser(tmp_path_factory.mktemp("home")) as browser:
        yield browser


@pytest.fixture
def machine(tmp_path):
    """Start a fake machine with two GPUs under load."""
    with FakeMachine(tmp_path, gpus=2) as machine:
        machine.constant_load(0, 80)
        machine.constant_load(1, 40)
        yield machine


class Recorded:
    """A server with the pages of a simulated machine, whose readings a test may change."""

    def __init__(self, name, change=lambda _name, reading: reading):
        machine = next(each for each in build_machines(time.time() // 15 * 15) if each.name == name)
        for each in (collectors := build_collectors(machine)):
            each._read = _changed(each.name, each._read, change)
        self.runner = Runner(collectors)
        nowhere = Roots(Path("/nonexistent"), Path("/nonexistent"), Path("/nonexistent"))
        observer = Observer(__version__, roots=nowhere, name_host=lambda: name)
        endpoints = Endpoints(
            SimpleNamespace(runner=self.runner, expected={}), observe=lambda: observer
        )
        self.server = Server([parse_address("127.0.0.1:0")], endpoints.answer)
        self.server.bind()
        self.url = f"http://{self.server.bound[0]}/"
        self._thread = threading.Thread(target=self.server.run)
        self._thread.start()

    def close(self):
        """Stop the server."""
        self.server.stop()
        self._thread.join()
        self.server.close()
        self.runner.close()


def _changed(name, read, change):
    return lambda moment: change(name, read(moment))


@pytest.fixture
def record():
    """Return a function that serves a simulated machine until the test ends."""
    with ExitStack() as stack:

        def open_machine(*arguments):
            recorded = Recorded(*arguments)
            stack.callback(recorded.close)
            return recorded

        yield open_machine


def test_values_change_and_a_lost_gpu_is_shown(browser, machine, tmp_path):
    """New values and a lost GPU appear on the page without a reload and without a console error."""
    machine.gpu(0).temperature = 61
    with ExporterProcess(tmp_path, machine) as exporter:
        url = f"http://127.0.0.1:{exporter.port}/"
        with visit(browser, url) as seen:
            seen.wait_for("document.querySelector('#accelerators').innerText.includes('61')")
            machine.gpu(0).temperature = 73
            seen.wait_for("document.querySelector('#accelerators').innerText.includes('73')")
            machine.lose(1)
            seen.wait_for("document.querySelector('#headline').innerText.includes('gpu1 lost')")
            assert seen.text("#headline .chip").endswith("1 thing needs attention")
            assert seen.page.title().startswith("(1) ")
            machine.restore(1)
            seen.wait_for("!document.querySelector('#headline').innerText.includes('gpu1')")
            assert seen.complaints == []
            assert {each.split("?")[0] for each in seen.requests} == {
                url,
                f"{url}live.css",
                f"{url}live.js",
                f"{url}live",
            } | {each for each in seen.requests if each.startswith("data:")}


def test_it_says_when_the_exporter_is_gone_and_goes_on_when_it_is_back(browser, machine, tmp_path):
    """The page is marked as stale while the exporter is down, and recovers without a reload."""
    with ExporterProcess(tmp_path, machine) as exporter:
        port = exporter.port
        with visit(browser, f"http://127.0.0.1:{port}/") as seen:
            seen.wait_for("document.body.classList.contains('running')")
            exporter.end()
            seen.wait_for("document.querySelector('#notice').innerText.includes('no answer since')")
            seen.wait_for("document.body.classList.contains('stale')")
            assert "GPU 0" in seen.text("#accelerators")
            address = f"--web.listen-address=127.0.0.1:{port}"
            with ExporterProcess(tmp_path, machine, arguments=(address,)):
                seen.wait_for("document.querySelector('#notice').innerText === ''")
                seen.wait_for("!document.body.classList.contains('stale')")


def test_a_hostile_run_name_stays_text(browser, tmp_path):
    """A run name with HTML, from the run file of a real trainer, is shown as text."""
    with ExporterProcess(tmp_path) as exporter:
        environ = {"PYTHONPATH": str(SOURCE_ROOT), "TRAINVITALS_RUN_DIR": str(tmp_path / "runs")}
        with subprocess.Popen(
            [sys.executable, "-c", TRAINER, HOSTILE],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as trainer:
            assert trainer.stdout.readline() == "trains\n"
            with visit(browser, f"http://127.0.0.1:{exporter.port}/") as seen:
                seen.wait_for("document.querySelector('article.run h3')")
                assert seen.text("article.run h3") == HOSTILE
                assert seen.page.locator("img").count() == 0
                assert seen.page.title() != "owned"
                assert seen.complaints == []
            trainer.stdin.close()


def test_hostile_container_names_stay_text(browser, record):
    """Container names and images with HTML are shown as text."""

    def spoil(name, reading):
        if name != "container":
            return reading
        first, *others = reading.containers
        first = replace(first, name=HOSTILE, image=HOSTILE)
        return replace(reading, containers=(first, *others))

    with visit(browser, record("orion", spoil).url) as seen:
        seen.wait_for("document.body.classList.contains('running')")
        names = seen.page.locator(".containers h3").all_inner_texts()
        assert HOSTILE in names
        assert seen.page.locator("img").count() == 0
        assert seen.complaints == []


def wait_until_whole(seen):
    """Wait until a refresh no longer changes the page's height, as late readings do."""
    height = None
    while height != (height := seen.page.evaluate("document.documentElement.scrollHeight")):
        first = seen.text("#pulse")
        seen.wait_for("(first) => document.querySelector('#pulse').innerText !== first", first)


def test_focus_selection_folds_and_place_stay_while_it_is_drawn_anew(browser, record):
    """A refresh of the page keeps focus, selection, open folds and the scroll position."""
    with visit(browser, record("orion").url, viewport={"width": 800, "height": 400}) as seen:
        page = seen.page
        wait_until_whole(seen)
        # The fold is open at first if a collector was late, as on a busy machine.
        was_open = page.evaluate("document.querySelector('details').open")
        page.locator("summary").focus()
        page.keyboard.press("Enter")
        seen.wait_for("(was) => document.querySelector('details').open !== was", was_open)
        page.evaluate(
            "() => { const node = document.querySelector('.containers h3');"
            " getSelection().selectAllChildren(node); window.kept = node; window.scrollTo(0, 200); }"
        )
        top = "Math.round(window.kept.getBoundingClientRect().top)"
        chosen, place, scrolled = page.evaluate(f"[getSelection().toString(), {top}, scrollY]")
        first = seen.text("#pulse")
        seen.wait_for("(first) => document.querySelector('#pulse').innerText !== first", first)
        assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
        assert page.evaluate("document.querySelector('details').open") is not was_open
        assert page.evaluate("getSelection().toString()") == chosen
        # If a line above appears or disappears, the browser keeps the selected text in its place.
        assert page.evaluate("scrollY") == scrolled or abs(page.evaluate(top) - place) <= 1
        assert page.evaluate("window.kept.isConnected")


def test_it_can_be_paused_by_keyboard(browser, record):
    """The Pause button is reached by Tab, and no request is sent until it is pressed again."""
    with visit(browser, record("vega").url) as seen:
        page = seen.page
        seen.wait_for("document.body.classList.contains('running')")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.innerText") == "Pause"
        page.keyboard.press("Enter")
        seen.wait_for("document.querySelector('#notice').innerText.includes('paused')")
        asked = len(seen.requests)
        page.wait_for_timeout(1500)
        assert len(seen.requests) <= asked + 1  # one request may already have started
        page.keyboard.press("Enter")
        seen.wait_for("document.querySelector('#notice').innerText === ''")


def test_who_does_not_look_does_not_ask(browser, record):
    """The page sends no requests while its tab is in the background."""
    recorded = record("vega")
    with visit(browser, recorded.url) as seen:
        seen.wait_for("document.body.classList.contains('running')")
        seen.page.evaluate(
            "() => { Object.defineProperty(document, 'visibilityState', {get: () => 'hidden',"
            " configurable: true}); document.dispatchEvent(new Event('visibilitychange')); }"
        )
        seen.wait_for("!document.body.classList.contains('running')")
        asked = len(seen.requests)
        seen.page.wait_for_timeout(1500)
        assert len(seen.requests) <= asked + 1
        seen.page.evaluate(
            "() => { delete document.visibilityState;"
            " document.dispatchEvent(new Event('visibilitychange')); }"
        )
        seen.wait_for("document.body.classList.contains('running')")


def test_without_javascript_it_is_a_page(browser, record):
    """Without JavaScript the page shows all data as of its load."""
    wanted = ("orion", "bert-large", "sweep-worker-1", "GPU 0", "Without JavaScript")
    with visit(browser, record("orion").url, java_script_enabled=False) as seen:
        for _ in range(10):  # a busy machine may miss the deadline of the first reading
            text = seen.page.locator("body").inner_text()
            if all(words in text for words in wanted):
                break
            seen.page.wait_for_timeout(1000)
            seen.page.reload()
    assert [words for words in wanted if words not in text] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1440])
@pytest.mark.parametrize("name", ["atlas", "orion"])
def test_nothing_keeps_anybody_from_reading_it(browser, record, name, width, scheme):
    """The page breaks no rule of axe-core, fits the screen's width and logs no error."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    window = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with visit(browser, record(name).url, **window) as seen:
        seen.wait_for("document.body.classList.contains('running')")
        found = axe.Axe().run(seen.page).response["violations"]
        told = [(each["id"], each["impact"], each["nodes"][0]["html"]) for each in found]
        assert told == []
        assert seen.page.evaluate("document.documentElement.scrollWidth") == width
        assert seen.complaints == []


def test_a_runbook_is_drawn_with_its_style(browser, tmp_path):
    """The browser applies a runbook's inline style, which the Content Security Policy allows."""
    with ExporterProcess(tmp_path) as exporter:
        for path in ("runbooks/", "runbooks/HostDiskFull"):
            with visit(browser, f"http://127.0.0.1:{exporter.port}/{path}") as seen:
                width = "getComputedStyle(document.body).maxWidth"
                assert seen.page.evaluate(width) == "640px"
                assert not [each for each in seen.complaints if "Security Policy" in each]
