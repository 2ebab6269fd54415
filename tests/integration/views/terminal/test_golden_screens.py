"""The output of `trainvitals top` in a real terminal equals golden files.

`make golden` writes the golden files again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.views.terminal.stage import ROOT, PictureServer, show
from tests.unit.views.terminal.pictures import BAD_DAY, EMPTY, GAUDI, GOOD_DAY, HOSTILE

GOLDEN = ROOT / "tests/golden/top"
SCREENS = {
    "good-80x24": (GOOD_DAY, 80, 24, ()),
    "good-120x40": (GOOD_DAY, 120, 40, ()),
    "good-200x60": (GOOD_DAY, 200, 60, ()),
    "bad-80x24": (BAD_DAY, 80, 24, ()),
    "bad-120x40": (BAD_DAY, 120, 40, ()),
    "bad-200x60": (BAD_DAY, 200, 60, ()),
    "empty-80x24": (EMPTY, 80, 24, ()),
    "gaudi-120x40": (GAUDI, 120, 40, ()),
    "hostile-120x40": (HOSTILE, 120, 40, ()),
    "containers-80x24": (BAD_DAY, 80, 24, ("3",)),
    "help-80x24": (BAD_DAY, 80, 24, ("h",)),
}


@pytest.mark.parametrize("name", SCREENS)
def test_the_screen_is_the_golden_one(request, name):
    """The screen of `trainvitals top` equals its golden file for each picture and terminal size."""
    picture, width, height, keys = SCREENS[name]
    with (
        PictureServer(picture) as server,
        show("--url", server.url, width=width, height=height) as tmux,
    ):
        shown = tmux.wait_for("q quit")
        for key in keys:
            tmux.type(key)
            shown = tmux.wait_for("3▸" if key == "3" else "any key goes back")
    lines = [line.replace(server.url, "http://gpu-07:9200") for line in shown.splitlines()]
    assert len(lines) == height
    compare(request, GOLDEN / f"{name}.txt", "\n".join(lines) + "\n")


def test_once_prints_the_golden_lines(request):
    """`top --once` prints the lines of its golden file, without escape codes."""
    with PictureServer(BAD_DAY) as server:
        done = subprocess.run(
            [sys.executable, "-m", "trainvitals", "top", "--once", "--url", server.url],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "exporter"),
                "TZ": "UTC",
                "COLUMNS": "120",
                "LC_ALL": "C.UTF-8",
            },
            capture_output=True,
            timeout=60,
            check=True,
        )
    text = done.stdout.decode().replace(server.url, "http://gpu-07:9200")
    assert "\x1b" not in text
    compare(request, GOLDEN / "once-120.txt", text)


def compare(request: pytest.FixtureRequest, golden: Path, text: str) -> None:
    """Compare a text with a golden file, or write the file with --update-golden."""
    if request.config.getoption("--update-golden"):
        golden.write_text(text, encoding="utf-8")
    assert text.splitlines() == golden.read_text(encoding="utf-8").splitlines()
