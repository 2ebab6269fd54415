"""The screen at every size: whole, honest about what is missing, and never torn."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.top.pictures import BAD_DAY, EMPTY, GOOD_DAY, PICTURES
from trainvitals.overview.picture import Picture
from trainvitals.top.frame import Source, draw_all, draw_screen, list_sections
from trainvitals.top.keys import end_keys, read_keys
from trainvitals.top.table import Sorting
from trainvitals.top.view import View, press

SOURCE = Source("exporter at http://gpu-07:9200")


def screen(picture, width=80, height=24, view=None):
    """Draw a screen as text."""
    lines = draw_screen(picture, view or View(), SOURCE, width=width, height=height)
    return [line.plain for line in lines]


def build(kind: Any) -> st.SearchStrategy[Any]:
    """Give whatever fits an annotation."""
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return st.builds(kind, **{name: build(hint) for name, hint in hints.items()})
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        if inner[-1] is Ellipsis:
            return st.lists(build(inner[0]), max_size=2).map(tuple)
        return st.tuples(*map(build, inner))
    if type(None) in get_args(kind):
        return st.none() | build(get_args(kind)[0])
    if get_args(kind):
        return st.sampled_from(get_args(kind))
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(max_size=8),
        int: st.integers(-(1 << 63), 1 << 63),
        float: st.floats() | st.floats(0.0, 2e9),
        bool: st.booleans(),
    }
    return plain[kind]


@given(build(Picture), st.integers(1, 210), st.integers(1, 70), st.integers(1, 7), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_picture_fits_any_terminal(picture, width, height, active, is_alone):
    """Exactly as many lines as there are, each exactly as wide, whatever an exporter tells."""
    view = View(active=active, is_alone=is_alone)
    lines = draw_screen(picture, view, SOURCE, width=width, height=height)
    assert [line.cell_len for line in lines] == [width] * height
    assert draw_all(picture, view, SOURCE, width=max(40, width))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200])
@pytest.mark.parametrize("name", PICTURES)
def test_what_is_not_shown_is_counted(name, width):
    """At every height, rows that are shown and those that are counted are all there are."""
    picture = PICTURES[name]
    for height in range(8, 60, 3):
        lines = screen(picture, width, height)[2:-1]
        for section in list_sections(picture, lists_all=False):
            heads = [line for line in lines if line.startswith(f"{section.number}")]
            if not heads or section.number == 5:
                continue
            (head,) = heads
            begin = lines.index(head) + 1
            end = next(
                (at for at, line in enumerate(lines) if at >= begin and not line.startswith("  ")),
                len(lines),
            )
            rows = [
                line for line in lines[begin:end] if not line.startswith("    ") and line.strip()
            ]
            more = head.rpartition("+")[2] if " more" in head else "0"
            hidden = int(head.partition(" more")[0].rpartition("+")[2]) if " more" in head else 0
            assert len(rows) + hidden >= len(section.items), (more, lines)


def test_what_matters_most_is_shown_first():
    """Of eight GPUs in five lines the lost, the hot and the full one come first."""
    lines = screen(BAD_DAY, 80, 20)
    begin = next(at for at, line in enumerate(lines) if line.startswith("1"))
    assert lines[begin + 1].startswith("  gpu1    lost")
    assert lines[begin + 2].startswith("  gpu3 ")
    assert lines[1].startswith("4 alerts, gpu1 lost, gpu3 too hot, 1 run died, ")


def test_all_sections_stand_in_the_list_of_once():
    """Nothing is left out where there is no height to keep."""
    text = "\n".join(line.plain for line in draw_all(BAD_DAY, View(), SOURCE, width=80))
    for words in ("gpu7", "nothing moves for 5m12s", "oom-cgroup", "4028", "/mnt/nfs", "yes"):
        assert words in text
    assert re.search(r"\+\d+ more", text) is None


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_quiet_machine_is_quiet(width):
    """An empty machine says what it has not, in as many lines."""
    text = "\n".join(screen(EMPTY, width))
    assert "nothing is wrong that can be seen here" in text
    assert "1▸DEVICE  none here" in text
    assert "none holds memory of an accelerator" in text


def test_missing_accelerators_are_missed():
    """Where there should be eight and are six, two are missing."""
    picture = dataclasses.replace(GOOD_DAY, accelerators=GOOD_DAY.accelerators[:6])
    assert "2 of 8 gpu missing" in screen(picture)[1]
    none = dataclasses.replace(GOOD_DAY, accelerators=())
    assert "1▸DEVICE  none here, and there should be 8 gpu" in "\n".join(screen(none))


@pytest.mark.parametrize(
    ("column", "is_reversed", "first"),
    [
        (None, False, "gpu0"),
        ("DEVICE", True, "gpu7"),
        ("TEMP", False, "gpu3"),
        ("POWER", True, "gpu2"),
        ("MEMORY", False, "gpu7"),
    ],
)
def test_a_section_is_sorted_as_told(column, is_reversed, first):
    """Numbers with the largest first, names from A, what is not known last."""
    view = View(is_alone=True, orders={1: Sorting(column, is_reversed)})
    lines = screen(BAD_DAY, 80, 30, view)
    assert lines[3].split()[0] == first
    if column is not None and column != "DEVICE":
        assert [line.split()[0] for line in lines[3:15] if line.startswith("  gpu")][-1] == "gpu1"


def test_the_devices_are_sorted_by_number():
    """gpu10 comes behind gpu9."""
    gpus = tuple(dataclasses.replace(GOOD_DAY.accelerators[0], device=at) for at in range(12))
    view = View(is_alone=True, orders={1: Sorting("DEVICE")})
    lines = screen(dataclasses.replace(GOOD_DAY, accelerators=gpus), 80, 30, view)
    assert [line.split()[0] for line in lines[3:15]] == [f"gpu{at}" for at in range(12)]


def test_keys_are_read_as_terminals_send_them():
    """Whole ones are taken, a half one is kept, others are left alone."""
    assert read_keys("q\x1b[A\x1bOB\x1b[5~x\x1b[Z") == (
        ["quit", "up", "down", "page up", "back tab"],
        "",
    )
    assert read_keys("s\x1b[") == (["sort"], "\x1b[")
    assert read_keys("\x1b") == ([], "\x1b")
    assert (end_keys("\x1b"), end_keys("\x1b[")) == (["all"], [])
    assert read_keys("\x1b[200~r\x1b[<0;1;1M") == (["reverse"], "")


def test_keys_change_the_view():
    """One section alone and back, through columns and around, and never beyond the last row."""
    section = list_sections(GOOD_DAY, lists_all=False)[1]
    view = View()
    view = press(view, "1", section, page=10)
    assert view.is_alone
    view = press(view, "1", section, page=10)
    assert not view.is_alone
    for _ in range(len(section.sortable)):
        view = press(view, "next", section, page=10)
    assert view.sorting(1).column == section.sortable[-1]
    assert press(view, "next", section, page=10).sorting(1).column is None
    assert press(view, "previous", section, page=10).sorting(1).column == section.sortable[-2]
    assert press(view, "end", section, page=10).scroll(1) == 7
    assert press(view, "page up", section, page=10).scroll(1) == 0
    assert press(view, "back tab", section, page=10).active == 7
    assert press(press(view, "help", section, page=1), "quit", section, page=1) == view
