"""`trainvitals top` in a real terminal, with keys, faults and signals."""

from __future__ import annotations

import re
import shlex
import signal
import sys
import time
from dataclasses import replace

import psutil
import pytest

from tests.fakes.machine import FakeMachine
from tests.integration.views.terminal.stage import PictureServer, open_terminal, show
from tests.unit.views.terminal.pictures import BAD_DAY, GOOD_DAY, NOW

SHELL = re.compile(r"^code=(\d+)$", re.MULTILINE)


@pytest.fixture
def server():
    """Start a server with the picture of a good day."""
    with PictureServer(GOOD_DAY) as server:
        yield server


def find_process(server):
    """Return the `trainvitals top` process of a server's URL."""
    return next(
        process
        for process in psutil.process_iter(["cmdline"])
        if server.url in (process.info["cmdline"] or ())
        and "trainvitals" in process.info["cmdline"]
    )


def is_given_back(tmux):
    """Return whether the terminal has its normal screen, its cursor and echo again."""
    tmux.type("echo typed-$((40+2))", "Enter")
    shown = tmux.wait_for("typed-42")
    flags = [tmux.ask(name) for name in ("alternate_on", "cursor_flag", "wrap_flag")]
    return flags == ["0", "1", "1"] and "echo typed-$((40+2))" in shown


def test_q_ends_it_and_leaves_the_terminal_as_it_was(server):
    """The key q ends `top` with exit code 0 and restores the terminal."""
    with show("--url", server.url) as tmux:
        tmux.wait_for("q quit")
        assert [tmux.ask("alternate_on"), tmux.ask("cursor_flag")] == ["1", "0"]
        tmux.type("q")
        assert SHELL.search(tmux.wait_for(lambda shown: SHELL.search(shown) is not None))[1] == "0"
        assert "DEVICE" not in tmux.capture()
        assert is_given_back(tmux)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_and_leaves_the_terminal_as_it_was(server, number):
    """SIGTERM, SIGHUP and SIGINT each end `top` and restore the terminal."""
    with show("--url", server.url) as tmux:
        tmux.wait_for("q quit")
        find_process(server).send_signal(number)
        tmux.wait_for(lambda shown: SHELL.search(shown) is not None)
        assert is_given_back(tmux)


def test_ctrl_c_ends_it(server):
    """Ctrl-C as a key ends `top` and restores the terminal."""
    with show("--url", server.url) as tmux:
        tmux.wait_for("q quit")
        tmux.type("C-c")
        tmux.wait_for(lambda shown: SHELL.search(shown) is not None)
        assert is_given_back(tmux)


def test_ctrl_z_stops_it_and_fg_goes_on(server):
    """Ctrl-Z stops `top` and restores the terminal for the shell, and `fg` resumes `top`."""
    with show("--url", server.url) as tmux:
        tmux.wait_for("q quit")
        tmux.type("C-z")
        tmux.wait_for(lambda shown: "Stopped" in shown or "Suspended" in shown)
        assert is_given_back(tmux)
        tmux.type("fg", "Enter")
        tmux.wait_for("q quit")
        assert tmux.ask("alternate_on") == "1"
        tmux.type("q")
        tmux.wait_for(lambda shown: "DEVICE" not in shown)
        assert is_given_back(tmux)


def test_a_line_that_takes_nothing_does_not_hold_up_the_end(server):
    """SIGTERM ends `top` and restores the terminal even after Ctrl-S stopped its output."""
    with show("--url", server.url, "--interval", "0.5") as tmux:
        tmux.wait_for("q quit")
        process = find_process(server)
        tmux.type("C-s")
        server.picture = BAD_DAY
        asked = server.asked
        while server.asked < asked + 3:
            time.sleep(0.02)
        assert "gpu1 lost" not in tmux.capture()
        process.terminate()
        tmux.wait_for(lambda shown: SHELL.search(shown) is not None)
        assert is_given_back(tmux)


def test_it_ends_with_its_window(server):
    """The `top` process ends when its terminal is closed."""
    with show("--url", server.url) as tmux:
        tmux.wait_for("q quit")
        process = find_process(server)
    process.wait(timeout=30)


def test_a_crash_leaves_the_terminal_as_it_was(server):
    """An unexpected exception in `top` restores the terminal."""
    fault = """
import trainvitals.views.terminal.screen as screen
from trainvitals.cli import main

draw, calls = screen.draw_screen, []

def fail(*arguments, **options):
    calls.append(1)
    return draw(*arguments, **options) if len(calls) < 3 else calls[99]

screen.draw_screen = fail
main(["top", "--url", "URL"])
"""
    program = shlex.join([sys.executable, "-c", fault.replace("URL", server.url)])
    with open_terminal(program) as tmux:
        tmux.wait_for("q quit")
        tmux.type("s", "s", "s")
        tmux.wait_for("IndexError")
        assert is_given_back(tmux)


def test_a_resized_window_is_drawn_anew(server):
    """`top` redraws its screen for a larger, a very small and the original window size."""
    with show("--url", server.url) as tmux:
        tmux.wait_for("q quit")
        tmux.resize(120, 40)
        assert "TEMP 15 MIN" in tmux.wait_for(lambda shown: "TEMP 15 MIN" in shown)
        tmux.resize(20, 4)
        tmux.wait_for("too small: at")
        tmux.resize(80, 24)
        shown = tmux.wait_for("1▸DEVICE")
        assert shown.splitlines()[2].startswith("1▸DEVICE")
        assert "TEMP 15 MIN" not in shown


def test_keys_choose_sort_scroll_and_pause(server):
    """Keys choose a table, sort, reverse, scroll, reset and pause as the help describes."""
    server.picture = BAD_DAY
    with show("--url", server.url, "--interval", "0.5") as tmux:
        tmux.wait_for("q quit")
        tmux.type("2")
        assert "1 DEVICE" not in tmux.wait_for("2▸RUN")
        tmux.type("s")
        tmux.wait_for("2▸RUN▲")
        tmux.type("r")
        tmux.wait_for("2▸RUN▼")
        tmux.type("Down")
        tmux.wait_for("1 above")
        tmux.type("Escape")
        tmux.wait_for("1 DEVICE")
        tmux.type("BTab")
        tmux.wait_for("1▸DEVICE")
        tmux.type("p")
        tmux.wait_for("PAUSED")
        server.picture = replace(BAD_DAY, hostname="another")
        asked = server.asked
        while server.asked < asked + 3:
            time.sleep(0.02)
        assert "another" not in tmux.capture()
        tmux.type("p")
        tmux.wait_for("another")


def test_an_exporter_that_falls_silent_is_named_and_asked_again(server):
    """Without an answer the last picture stays, in grey and dated, until the exporter answers."""
    with show("--url", server.url, "--interval", "0.5") as tmux:
        tmux.wait_for("q quit")
        server.status = 503
        shown = tmux.wait_for("is too busy to answer")
        assert re.search(r"NO ANSWER since \d\d:\d\d:\d\d \([\d.]+m?s\)", shown, re.MULTILINE)
        assert "gpu7" in shown
        assert "\x1b[90m" in tmux.capture(colors=True)
        port = server.port
        server.close()
        tmux.wait_for("refuses connections")
        with PictureServer(replace(GOOD_DAY, time=NOW + 60), port=port):
            shown = tmux.wait_for(lambda shown: "NO ANSWER" not in shown)
            assert "14:24:20" in shown


def test_an_exporter_that_hangs_does_not_hold_up_the_keys(server):
    """Keys sort the table and quit `top` while the exporter does not answer."""
    with show("--url", server.url, "--interval", "0.5") as tmux:
        tmux.wait_for("q quit")
        server.picture = None
        tmux.wait_for("NO ANSWER")
        tmux.type("s")
        tmux.wait_for("DEVICE▲")
        tmux.type("q")
        tmux.wait_for(lambda shown: SHELL.search(shown) is not None)


def test_it_goes_on_drawing_beside_a_hung_driver(tmp_path):
    """`top --local` shows a hung GPU as hung, refreshes all other values and reacts to keys."""
    environ = {"TRAINVITALS_JOURNAL_DIR": str(tmp_path / "deaths")}
    machine = FakeMachine(tmp_path, gpus=2)
    with machine:
        environ |= machine.environment()
        arguments = ("--local", "--containers.engine=none", "--interval", "0.5")
        with show(*arguments, environ=environ) as tmux:
            tmux.wait_for(lambda shown: "gpu1" in shown and "read here" in shown)
            machine.hang("nvml*", device=1)
            tmux.wait_for("gpu1 hung")
            shown = tmux.wait_for("hung: a call to its driver does not return")
            clocks = {re.search(r"\d\d:\d\d:\d\d", shown)[0]}
            tmux.wait_for(
                lambda shown: clocks.add(re.search(r"\d\d:\d\d:\d\d", shown)[0]) or len(clocks) > 2
            )
            assert re.search(r"^  gpu0 .*\d+%.*GiB", tmux.capture(), re.MULTILINE)
            assert "cpu " in tmux.capture()
            machine.unhang("nvml*", device=1)
            tmux.wait_for(lambda shown: "hung" not in shown)
            machine.hang("nvml*")
            tmux.wait_for("hung")
            tmux.type("5")
            tmux.wait_for("5▸HOST")
            tmux.type("q")
            tmux.wait_for(lambda shown: SHELL.search(shown) is not None)
            assert is_given_back(tmux)


def test_a_refresh_is_one_repaint_and_only_when_something_changed(server, tmp_path):
    """A change is one repaint of less than 8 KB, and without a change no output is sent."""
    typescript = tmp_path / "typescript"
    with show("--url", server.url, "--interval", "0.5") as tmux:
        tmux.wait_for("q quit")
        tmux._tmux("pipe-pane", "-o", f"cat > {typescript}")
        asked = server.asked
        while server.asked < asked + 3:
            time.sleep(0.02)
        assert not typescript.exists() or typescript.stat().st_size == 0
        gpus = tuple(replace(gpu, power_watts=498.0) for gpu in GOOD_DAY.accelerators)
        server.picture = replace(GOOD_DAY, time=NOW + 5, accelerators=gpus)
        shown = tmux.wait_for(lambda shown: shown.count("498 / 700 W") == 8)
        assert "14:23:25" in shown
        tmux.type("q")
        tmux.wait_for(lambda shown: SHELL.search(shown) is not None)
    frame, *rest = typescript.read_bytes().split(b"\x1b[?1049l")[0].split(b"\x1b[H")[1:]
    assert rest == []
    assert 2000 < len(frame) < 8000
