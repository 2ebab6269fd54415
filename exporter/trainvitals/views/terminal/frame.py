"""Draws the screen and the output of `--once`; the sections share the height by importance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment, SegmentLines
from rich.style import Style
from rich.text import Text

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_text import clean_text
from trainvitals.units import format_clock, format_duration, format_time
from trainvitals.views.machine.picture import Picture
from trainvitals.views.terminal.accelerators import list_accelerators, list_processes
from trainvitals.views.terminal.alerts import list_alerts, list_collectors
from trainvitals.views.terminal.containers import list_containers
from trainvitals.views.terminal.headline import draw_headline
from trainvitals.views.terminal.host import show_host
from trainvitals.views.terminal.runs import list_runs
from trainvitals.views.terminal.table import NO_LIMIT, Line, Sorting, render
from trainvitals.views.terminal.view import Section, View

NARROWEST, LOWEST = 40, 8
_MOST_TROUBLE_LINES = 2
# The sections that receive more lines first (alerts, accelerators, runs, containers), and the
# sections that receive more lines after them (host, collectors, processes).
_FIRST, _THEN = (7, 1, 2, 3), (5, 6, 4)
_ENOUGH = 1 << 20
_OLD = Style.parse("bright_black")
_KEYS = (
    "q quit",
    "1-7 one section",
    "0 all",
    "tab next",
    "s sort",
    "r reverse",
    "p pause",
    "h help",
    "↑↓ scroll",
)
_HELP = (
    ("1 to 7", "show one section alone; again: all of them"),
    ("tab, shift tab", "select a section for the keys below; ▸ marks it"),
    ("z, enter", "show the selected section alone; again: all of them"),
    ("0, esc", "show all sections"),
    ("s, > and <", "sort by the next or previous column"),
    ("r", "reverse the order"),
    ("↑ ↓ PgUp PgDn Home End", "scroll"),
    ("p, space", "pause and continue"),
    ("ctrl l", "redraw"),
    ("q, ctrl c", "quit"),
)
_MORE_HELP = (
    "Sparklines show 15 minutes, the newest on the right; a gap has no reading.",
    "- is unknown, … is cut; +3 more: enlarge the window, or press 1 to 7.",
)


@dataclass(frozen=True, slots=True)
class Source:
    """The source of the machine state, and whether the source responds.

    Attributes:
        words: The name of the source, such as `exporter at http://gpu-07:9200`.
        silent_since: The time of the source's last response, in Unix seconds; None while the source
            responds.
        trouble: The reason why the source does not respond.
        now: The current time, in Unix seconds.
    """

    words: str
    silent_since: float | None = None
    trouble: str = ""
    now: float = 0.0


def list_sections(picture: Picture, *, lists_all: bool) -> list[Section]:
    """Return the sections of the screen, from top to bottom.

    Args:
        picture: The machine state to draw.
        lists_all: Whether the sections list rows that are otherwise only counted.
    """
    return [
        list_alerts(picture, lists_all=lists_all),
        list_accelerators(picture),
        list_runs(picture),
        list_containers(picture),
        list_processes(picture),
        show_host(picture, lists_all=lists_all),
        list_collectors(picture, lists_all=lists_all),
    ]


def choose_sorting(name: str | None, *, is_reversed: bool) -> dict[int, Sorting]:
    """Return the sorting of each section that contains the column, by section number.

    Args:
        name: The value of `--sort`, which is a column title in upper or lower case, with blanks or
            `-`; None means that no section is sorted.
        is_reversed: Whether the order of the rows is reversed.

    Raises:
        ConfigurationError: No section contains a column with this title.
    """
    if name is None:
        return {}
    sections = list_sections(Picture(0.0, "", ""), lists_all=True)
    wanted = _simplify(name)
    found = {
        section.number: Sorting(title, is_reversed)
        for section in sections
        for title in section.sortable
        if _simplify(title) == wanted
    }
    if not found:
        titles = dict.fromkeys(_simplify(title) for one in sections for title in one.sortable)
        raise ConfigurationError(f"--sort {name}: no such column; there are {', '.join(titles)}")
    return found


def _simplify(title: str) -> str:
    return title.lower().replace(" ", "-")


def draw_screen(
    console: Console,
    picture: Picture,
    view: View,
    source: Source,
    *,
    width: int,
    height: int,
    zone: tzinfo | None = None,
) -> list[Line]:
    """Return the lines of the screen, which fill the height and the width of the terminal.

    Args:
        console: The console for which the lines are rendered.
        picture: The machine state to draw.
        view: The user's view of the screen.
        source: The source of the machine state.
        width: The number of terminal columns.
        height: The number of terminal lines.
        zone: The time zone of the clock; None means the machine's time zone.
    """
    if width < NARROWEST or height < LOWEST:
        words = ("too small: at least", f"{NARROWEST} x {LOWEST}; q quits")
        lines = _render_all(console, map(Text, words), width)
    else:
        top = [_draw_head(picture, source, width, zone, is_paused=view.is_paused)]
        top += _explain_silence(console, source, width) or draw_headline(
            picture, width, most_lines=1
        )
        lines = _draw_body(console, picture, view, width, height - len(top) - 1)
        if source.silent_since is not None:
            lines = [[Segment(part.text, _OLD) for part in line] for line in lines]
        lines = [*_render_all(console, top, width), *lines]
        blank = [[Segment(" " * width)]] * (height - 1 - len(lines))
        lines = [*lines, *blank][: height - 1] + render(console, _draw_keys(width), width)
    lines = [*lines, *([[]] * height)][:height]
    return [Segment.adjust_line_length(line, width) for line in lines]


def write_all(
    console: Console,
    picture: Picture,
    view: View,
    source: Source,
    *,
    width: int | None,
    zone: tzinfo | None = None,
) -> None:
    """Print all sections, in as many lines as needed, without trailing blanks.

    Args:
        console: The console on which the sections are printed.
        picture: The machine state to draw.
        view: The view; only the sorting is used.
        source: The source of the machine state.
        width: The number of columns in a line; None means that the width is not limited.
        zone: The time zone of the clock; None means the machine's time zone.
    """
    room = width or NO_LIMIT
    top = [_draw_head(picture, source, width, zone, is_paused=False), *draw_headline(picture, room)]
    lines = _render_all(console, top, room)
    for section in list_sections(picture, lists_all=True):
        lines += [[], *section.draw(console, width, _ENOUGH, view.sorting(section.number))]
    console.print(SegmentLines(map(_strip, lines), new_lines=True), end="", crop=False)


def _strip(line: Line) -> Line:
    length = Segment.get_line_length(line)
    blank = len(text := "".join(part.text for part in line)) - len(text.rstrip())
    return Segment.adjust_line_length(line, length - blank)


def _render_all(console: Console, texts: Iterable[Text], width: int) -> list[Line]:
    return [line for text in texts for line in render(console, text, width)]


def _draw_body(
    console: Console, picture: Picture, view: View, width: int, height: int
) -> list[Line]:
    if view.shows_help:
        return _render_all(console, _draw_help(), width)
    sections = list_sections(picture, lists_all=view.is_alone)
    if view.is_alone:
        section = next(one for one in sections if one.number == view.active)
        return _draw_section(console, section, view, width, height)
    if not picture.alerts and view.active != sections[0].number:
        sections = sections[1:]
    heights = _share_out(console, sections, width, height)
    is_airy = sum(heights) + len(sections) <= height
    lines: list[Line] = []
    for section, room in zip(sections, heights, strict=True):
        if room:
            lines += [[Segment(" " * width)]] if is_airy else []
            lines += _draw_section(console, section, view, width, room)
    hidden = [str(one.number) for one, room in zip(sections, heights, strict=True) if not room]
    if hidden:
        words = f"  +{len(hidden)} sections: press {' '.join(hidden)}"
        lines += render(console, Text(words, "dim"), width)
    return lines


def _draw_section(
    console: Console, section: Section, view: View, width: int, height: int
) -> list[Line]:
    number = section.number
    return section.draw(
        console,
        width,
        height,
        view.sorting(number),
        scroll=section.limit_scroll(view.scroll(number)),
        is_active=number == view.active,
    )


def _share_out(console: Console, sections: Sequence[Section], width: int, height: int) -> list[int]:
    """Return the height of each section: the minimum, plus further lines in order of importance."""
    least = [section.least for section in sections]
    heights = [0] * len(sections)
    room = height - 1 if sum(least) > height else height  # a line for hidden sections
    for at, want in enumerate(least):
        if want <= room:
            heights[at], room = want, room - want
    for numbers, has_notes in ((_FIRST, False), (_FIRST, True), (_THEN, True)):
        for number in numbers:
            for at, section in enumerate(sections):
                if section.number == number and heights[at]:
                    want = _count(console, section, width, has_notes=has_notes)
                    more = min(room, want - heights[at])
                    heights[at], room = heights[at] + more, room - more
    return heights


def _count(console: Console, section: Section, width: int, *, has_notes: bool) -> int:
    return section.count_lines(console, width) if has_notes else section.count_rows(width)


def _draw_head(
    picture: Picture, source: Source, width: int | None, zone: tzinfo | None, *, is_paused: bool
) -> Text:
    clock = format_time(picture.time, zone)
    parts: list[str | tuple[str, str]] = [(clean_text(picture.hostname), "bold"), f"  {clock}"]
    if is_paused:
        parts.append(("  PAUSED", "bold yellow"))
    if source.silent_since is None:
        parts.append((f"  {source.words}", "dim"))
    else:
        since = format_clock(source.silent_since, source.now, zone)
        age = format_duration(source.now - source.silent_since)
        parts.append((f"  NO ANSWER since {since} ({age})", "bold red"))
    version = f"trainvitals {clean_text(picture.version)}"
    left = Text.assemble(*parts)
    gap = 2 if width is None else width - left.cell_len - cell_len(version)
    return Text.assemble(left, " " * gap, (version, "dim")) if gap > 1 else left


def _explain_silence(console: Console, source: Source, width: int) -> list[Text]:
    """Return lines that explain why the source does not respond; no lines while it responds."""
    if source.silent_since is None:
        return []
    words = Text(clean_text(source.trouble), "bold red")
    return list(words.wrap(console, width))[:_MOST_TROUBLE_LINES]


def _draw_keys(width: int) -> Text:
    line = Text("")
    for words in _KEYS:
        key, _, act = words.partition(" ")
        part = Text.assemble((key, "bold"), (f" {act}  ", "dim"))
        if line.cell_len + part.cell_len - 2 <= width:
            line = Text.assemble(line, part)
    return line


def _draw_help() -> list[Text]:
    lines = [Text(""), Text("  keys", "bold")]
    lines += [Text.assemble((f"  {keys:<24}", "bold"), act) for keys, act in _HELP]
    lines += [Text(""), *(Text(f"  {line}") for line in _MORE_HELP)]
    return [*lines, Text(""), Text("  any key goes back", "dim")]
