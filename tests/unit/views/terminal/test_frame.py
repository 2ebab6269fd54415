"""The screen of `top` at every size, the output of `--once`, and the keys."""

from __future__ import annotations

import dataclasses
import io
import re
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.color import ColorSystem

from tests.unit.views.terminal.pictures import (
    BAD_DAY,
    EMPTY,
    GOOD_DAY,
    HOSTILE,
    PICTURES,
    make_gpu,
)
from trainvitals.errors import ConfigurationError
from trainvitals.sources.accelerators.reading import Idleness
from trainvitals.verdicts.trouble import Trouble
from trainvitals.views.machine.picture import Picture
from trainvitals.views.terminal.frame import (
    Source,
    choose_sorting,
    draw_screen,
    list_sections,
    write_all,
)
from trainvitals.views.terminal.table import Sorting
from trainvitals.views.terminal.terminal import make_console, to_ascii
from trainvitals.views.terminal.view import View, end_keys, press, read_keys

SOURCE = Source("exporter at http://gpu-07:9200")


def screen(picture, width=80, height=24, view=None):
    """Return the lines of the screen as text."""
    console = make_console(io.StringIO(), None, width=width)
    lines = draw_screen(console, picture, view or View(), SOURCE, width=width, height=height)
    return ["".join(part.text for part in line) for line in lines]


def print_all(picture, width=None, colors=None):
    """Return the output of `--once`."""
    text = io.StringIO()
    console = make_console(text, colors, width=width or 4096)
    write_all(console, picture, View(), SOURCE, width=width)
    return text.getvalue()


def build(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for all values of a type annotation."""
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
@settings(max_examples=60)
def test_any_picture_fits_any_terminal(picture, width, height, active, is_alone):
    """Any picture fills the terminal's lines and columns exactly."""
    view = View(active=active, is_alone=is_alone)
    lines = screen(picture, width, height, view)
    assert [cell_len(line) for line in lines] == [width] * height
    assert print_all(picture, max(40, width))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200])
@pytest.mark.parametrize("name", PICTURES)
def test_what_is_not_shown_is_counted(name, width):
    """At every height, the shown rows and the counted ones together are all rows.

    A screen that ends in a blank line would only get more of them in a higher terminal.
    """
    picture = PICTURES[name]
    sections = list_sections(picture, lists_all=False)
    for height in range(8, 60, 3):
        lines = screen(picture, width, height)[2:-1]
        for section in sections:
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
        if not lines[-1].strip():
            break


def test_what_matters_most_is_shown_first():
    """On a small screen, GPUs that are lost or too hot are shown first."""
    lines = screen(BAD_DAY, 80, 20)
    begin = next(at for at, line in enumerate(lines) if line.startswith("1"))
    assert lines[begin + 1].startswith("  gpu1    lost")
    assert lines[begin + 2].startswith("  gpu3 ")
    assert lines[1].startswith("gpu1 lost, gpu3 too hot, llama-ft is stalled, ")


def test_all_sections_stand_in_the_list_of_once():
    """`--once` prints all rows of all sections."""
    text = print_all(BAD_DAY, 80)
    for words in ("gpu7", "is stalled: no progress", "oom-cgroup", "4028", "/mnt/nfs", "yes"):
        assert words in text
    assert re.search(r"\+\d+ more", text) is None


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_quiet_machine_is_quiet(width):
    """An empty machine has one line for each empty section."""
    text = "\n".join(screen(EMPTY, width))
    assert "but not all is known, alerts not known" in text
    assert "1▸DEVICE  none here" in text
    assert "none holds memory of an accelerator" in text


def test_an_idle_accelerator_says_why_once():
    """The reason of an idle accelerator is shown once, in a note or in the trouble."""
    idle = Idleness("stopped", "python (PID 4021) is stopped by a signal", 4021)
    device = make_gpu(0, idle=idle)
    summary = f"50% of its memory are held, and nothing has run for 10 minutes; {idle.summary}"
    trouble = Trouble(
        "accelerator", "gpu0", "held but idle", "info", summary, "AcceleratorHeldIdle"
    )
    alone = print_all(dataclasses.replace(EMPTY, accelerators=(device,), troubles=()))
    assert alone.count(f"idle: {idle.summary}") == 1
    explained = print_all(dataclasses.replace(EMPTY, accelerators=(device,), troubles=(trouble,)))
    assert f"; {idle.summary}" in explained
    assert "idle: python" not in explained


def test_missing_accelerators_are_missed():
    """If expected accelerators are missing, their section says so."""
    summary = "0 of 8 expected gpus are there"
    missing = Trouble("accelerator", "gpu", "missing", "critical", summary, "AcceleratorMissing")
    none = dataclasses.replace(GOOD_DAY, accelerators=(), troubles=(missing,))
    assert f"1▸DEVICE  {summary}" in "\n".join(screen(none))


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
    """Numbers are sorted from the largest, names from A, and unknown values last."""
    view = View(is_alone=True, orders={1: Sorting(column, is_reversed)})
    lines = screen(BAD_DAY, 80, 30, view)
    assert lines[3].split()[0] == first
    if column is not None and column != "DEVICE":
        assert [line.split()[0] for line in lines[3:15] if line.startswith("  gpu")][-1] == "gpu1"


def test_the_devices_are_sorted_by_number():
    """Devices are sorted by number, so that gpu10 follows gpu9."""
    gpus = tuple(dataclasses.replace(GOOD_DAY.accelerators[0], device=at) for at in range(12))
    view = View(is_alone=True, orders={1: Sorting("DEVICE")})
    lines = screen(dataclasses.replace(GOOD_DAY, accelerators=gpus), 80, 30, view)
    assert [line.split()[0] for line in lines[3:15]] == [f"gpu{at}" for at in range(12)]


def test_once_without_a_width_cuts_nothing():
    """Without a width, `--once` cuts no line and prints no trailing spaces."""
    text = print_all(BAD_DAY)
    assert "…" not in text
    assert " 12,300/50,000 " in text
    assert "GPU 1 no longer answers." in text
    assert "does not answer" in text
    assert not re.search(r" $", text, re.MULTILINE)


def test_colours_are_sixteen_and_end_where_they_should():
    """A coloured word is followed by a reset, and without colours there is no escape code."""
    assert "\x1b[1;31mgpu1\x1b[0m" in print_all(BAD_DAY, 80, ColorSystem.STANDARD)
    assert "\x1b" not in print_all(BAD_DAY, 80)


def test_a_hostile_picture_sends_no_escape_of_its_own():
    """With malicious names, the output contains only colour codes and printable characters."""
    for width in (None, 80, 200):
        text = re.sub(r"\x1b\[[\d;]+m", "", print_all(HOSTILE, width, ColorSystem.STANDARD))
        assert [letter for letter in text if not letter.isprintable()] == ["\n"] * text.count("\n")


def test_ascii_keeps_the_columns():
    """ASCII replacements have the same width as the original characters."""
    assert to_ascii("███░ ▁▄█ 訓e\u0301▸…") == "###. _-# ? e>~"


def test_a_column_is_found_by_its_title():
    """A column is found in any case, with a dash for a space, in every section that has it."""
    assert choose_sorting("last-death", is_reversed=True) == {
        3: Sorting("LAST DEATH", is_reversed=True)
    }
    assert set(choose_sorting("Memory", is_reversed=False)) == {1, 3, 4}
    assert choose_sorting(None, is_reversed=True) == {}
    with pytest.raises(ConfigurationError, match="there are alert, severity, device"):
        choose_sorting("weight", is_reversed=False)


def test_keys_are_read_as_terminals_send_them():
    """Complete key sequences are read, incomplete ones are kept and unknown ones ignored."""
    assert read_keys("q\x1b[A\x1bOB\x1b[5~x\x1b[Z") == (
        ["quit", "up", "down", "page up", "back tab"],
        "",
    )
    assert read_keys("s\x1b[") == (["sort"], "\x1b[")
    assert read_keys("\x1b") == ([], "\x1b")
    assert (end_keys("\x1b"), end_keys("\x1b[")) == (["all"], [])
    assert read_keys("\x1b[200~r\x1b[<0;1;1M") == (["reverse"], "")


def test_keys_change_the_view():
    """Keys open a single section, change the sorting and scroll up to the last row."""
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
