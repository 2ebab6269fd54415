"""What is sent to the terminal: few bytes, and the right ones."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.console import Console
from rich.text import Text

from tests.top.pictures import BAD_DAY, HOSTILE
from trainvitals.top.canvas import make_canvas, write_changes, write_lines
from trainvitals.top.frame import Source, draw_screen
from trainvitals.top.table import fit
from trainvitals.top.view import View

CONSOLE = Console(color_system=None)
WIDTH = 12
JUMP = re.compile(r"\x1b\[(\d+);(\d+)H([^\x1b]*)")
LINES = st.lists(st.text(st.sampled_from("ab -訓🔥e\u0301█"), max_size=14), min_size=3, max_size=3)


def canvas_of(lines):
    """Make a canvas of plain lines."""
    return make_canvas([fit(Text(line), WIDTH) for line in lines], CONSOLE)


@given(LINES, LINES)
def test_changes_turn_one_screen_into_the_other(before, after):
    """Whatever changes, wide letters and accents among it, the terminal ends up right."""
    old, new = canvas_of(before), canvas_of(after)
    sent = write_changes(old, new, None)
    rows = [[letter for letter, _ in row] for row in old]
    for line, column, text in JUMP.findall(sent):
        cells = make_canvas([Text(text)], CONSOLE)[0]
        at = int(column) - 1
        rows[int(line) - 1][at : at + len(cells)] = [letter for letter, _ in cells]
    assert rows == [[letter for letter, _ in row] for row in new]
    assert (sent == "") == (old == new)


def test_only_what_changed_is_sent():
    """One digit costs its place and itself."""
    old, new = canvas_of(["cpu 12%", "same", ""]), canvas_of(["cpu 13%", "same", ""])
    assert write_changes(old, new, None) == "\x1b[?2026h\x1b[1;6H3\x1b[?2026l"
    assert write_changes(new, new, None) == ""


def test_colours_are_sixteen_and_end_where_they_should():
    """A bold red word is reset behind it; without colours there is no code."""
    canvas = make_canvas([Text.assemble(("lost", "bold red"), " gpu1")], CONSOLE)
    assert write_lines(canvas, ColorSystem.STANDARD) == ["\x1b[1;31mlost\x1b[0m gpu1"]
    assert write_lines(canvas, None) == ["lost gpu1"]


def test_ascii_keeps_the_columns():
    """Bars and dots become what resembles them, a wide letter becomes two places."""
    line = Text("███░ ▁▄█ 訓é▸…")
    (written,) = write_lines(make_canvas([line], CONSOLE, is_ascii=True), None)
    assert written == "###. _-# ? ?>~"


def test_a_hostile_picture_sends_no_escape_of_its_own():
    """All escapes are ours: places, sixteen colours, the frame around it."""
    for picture in (HOSTILE, BAD_DAY):
        lines = draw_screen(picture, View(), Source("x"), width=120, height=60)
        sent = write_changes(None, make_canvas(lines, CONSOLE), ColorSystem.STANDARD)
        rest = re.sub(r"\x1b\[(?:\?2026[hl]|0m|2J|\d+;\d+H|[\d;]+m)", "", sent)
        assert [letter for letter in rest if not letter.isprintable()] == []
