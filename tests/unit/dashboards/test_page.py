"""Tests for docs/dashboards.md, and of `make pictures` without Grafana."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BOARDS = sorted((ROOT / "grafana/dashboards").glob("*.json"))
SCRIPT = ROOT / "docs/build/board_pictures.py"


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_board_has_its_picture(path):
    """docs/dashboards.md shows each dashboard in a picture below 420 kB and names the version."""
    name = path.stem.removeprefix("trainvitals-")
    section = read_page().partition(f"](pictures/{name}.png)")[2].partition("\n## ")[0]
    assert "Grafana 12.4.0 with `make demo`" in section
    assert (ROOT / f"docs/pictures/{name}.png").stat().st_size < 420_000


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:9"])
def test_without_grafana_the_pictures_stay(url):
    """Without a responding Grafana, the script prints one line, exits with 2 and keeps pictures."""
    before = {path: path.stat().st_mtime_ns for path in (ROOT / "docs/pictures").iterdir()}
    done = subprocess.run(
        [sys.executable, SCRIPT],
        env={**os.environ, "GRAFANA_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"pictures: .*; docs/pictures stays as it is\n", done.stderr)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def read_page() -> str:
    """Return the text of docs/dashboards.md."""
    return (ROOT / "docs/dashboards.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_the_page_has_the_rows_of_every_board(path):
    """The page lists the rows of each dashboard in order and marks the closed ones."""
    board = json.loads(path.read_text(encoding="utf-8"))
    heading = board["title"].removeprefix("Vitals / ")
    section = read_page().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    listed = [
        line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if "|" in line
    ]
    rows = [one for one in board["panels"] if one["type"] == "row"]
    titles = [one["title"] + (" (closed)" if one["collapsed"] else "") for one in rows]
    assert listed[2:] == titles


def test_the_page_has_every_switch_and_variable():
    """The page lists the label of each variable and the name of each annotation."""
    boards = [json.loads(path.read_text()) for path in BOARDS]
    labels = {one["label"] for board in boards for one in board["templating"]["list"]}
    switches = {
        one["name"]
        for board in boards
        for one in board["annotations"]["list"]
        if not one.get("builtIn")
    }
    cells = {
        word.strip()
        for line in read_page().splitlines()
        if line.startswith("| ")
        for word in line.split(" | ")[0].removeprefix("| ").split(",")
    }
    assert labels | switches <= cells


def test_the_panels_that_the_page_names_exist():
    """Each bold name in the walkthrough is the title of a panel, except the dashboard Fleet."""
    boards = [json.loads(path.read_text()) for path in BOARDS]
    panels = [one for board in boards for one in board["panels"]]
    titles = {panel["title"] for one in panels for panel in (one, *one.get("panels", ()))}
    walk = read_page().partition("\n## From ")[2].partition("\n## ")[0]
    named = set(re.findall(r"\*\*(.+?)\*\*", walk))
    assert len(named) > 8
    assert named - titles == {"Fleet"}
