"""The screen: what matters most has its lines first, and nothing is left out in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo

from rich.text import Text

from trainvitals.overview.picture import Picture
from trainvitals.top.sections.accelerators import list_accelerators
from trainvitals.top.sections.alerts import list_alerts
from trainvitals.top.sections.collectors import list_collectors
from trainvitals.top.sections.containers import list_containers
from trainvitals.top.sections.host import show_host
from trainvitals.top.sections.processes import list_processes
from trainvitals.top.sections.runs import list_runs
from trainvitals.top.table import fit, wrap
from trainvitals.top.verdict import draw_verdict
from trainvitals.top.view import Section, View
from trainvitals.top.words import make_harmless, write_duration

NARROWEST, LOWEST = 40, 8
_MOST_TROUBLE_LINES = 2
# Sections by their numbers: alerts, accelerators, runs, containers; host, collectors, processes.
_FIRST, _THEN = (7, 1, 2, 3), (5, 6, 4)
_ENOUGH = 1 << 20
_LATEST = 4e9
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
    ("tab, shift tab", "choose the section that the following keys act on; ▸ marks it"),
    ("z, enter", "show the chosen section alone, and all again"),
    ("0, esc", "show all sections"),
    ("s, > and <", "sort by the next or previous column; none of them: the usual order"),
    ("r", "the other way round"),
    ("↑ ↓ PgUp PgDn Home End", "scroll"),
    ("p, space", "let the picture stand still, and go on"),
    ("ctrl l", "draw all anew"),
    ("q, ctrl c", "quit"),
)
_MORE_HELP = (
    "Sparklines show the last 15 minutes, the newest on the right; a gap: nobody looked.",
    "- is not known.  … is cut short.  +3 more are not shown: make room, or show one section.",
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where the picture is from.

    Attributes:
        words: As `the exporter at http://gpu-07:9200`.
        silent_since: When the last answer came, seconds since 1970; None while answers come.
        trouble: Why there are none.
        now: The time, seconds since 1970.
    """

    words: str
    silent_since: float | None = None
    trouble: str = ""
    now: float = 0.0


def list_sections(picture: Picture, *, lists_all: bool) -> list[Section]:
    """Give the sections, those that matter most first.

    Args:
        picture: What they show.
        lists_all: What does not matter now, too.
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


def draw_screen(
    picture: Picture,
    view: View,
    source: Source,
    *,
    width: int,
    height: int,
    zone: tzinfo | None = None,
) -> list[Text]:
    """Draw exactly as many lines as the terminal has.

    Args:
        picture: What is shown.
        view: What a person has chosen to see of it.
        source: Where it is from.
        width: How many columns there are.
        height: How many lines.
        zone: The time zone of the clock; the machine's when None.
    """
    if width < NARROWEST or height < LOWEST:
        lines = [Text("too small a terminal:"), Text(f"{NARROWEST} x {LOWEST} at least, q quits")]
    else:
        top = [_draw_head(picture, source, width, zone, is_paused=view.is_paused)]
        top += _say_trouble(source, width) or draw_verdict(picture, width, most_lines=1)
        lines = _draw_body(picture, view, width, height - len(top) - 1)
        if source.silent_since is not None:
            lines = [Text(line.plain, "bright_black") for line in lines]
        lines = [*top, *lines]
        lines = [*lines, *([Text("")] * (height - 1 - len(lines)))][: height - 1]
        lines.append(_draw_keys(width))
    lines = [*lines, *([Text("")] * height)][:height]
    return [fit(line, width) for line in lines]


def draw_all(
    picture: Picture, view: View, source: Source, *, width: int, zone: tzinfo | None = None
) -> list[Text]:
    """Draw everything, in as many lines as it takes."""
    lines = [
        _draw_head(picture, source, width, zone, is_paused=False),
        *draw_verdict(picture, width),
    ]
    for section in list_sections(picture, lists_all=True):
        lines.append(Text(""))
        lines += section.draw(width, _ENOUGH, view.sorting(section.number))
    return [fit(line, width) for line in lines]


def _draw_body(picture: Picture, view: View, width: int, height: int) -> list[Text]:
    if view.shows_help:
        return _draw_help()
    sections = list_sections(picture, lists_all=view.is_alone)
    if view.is_alone:
        section = next(one for one in sections if one.number == view.active)
        return _draw_section(section, view, width, height)
    if not picture.alerts and view.active != sections[0].number:
        sections = sections[1:]
    heights = _share_out(sections, width, height)
    is_airy = sum(heights) + len(sections) <= height
    lines: list[Text] = []
    for section, room in zip(sections, heights, strict=True):
        if room:
            lines += [Text("")] if is_airy else []
            lines += _draw_section(section, view, width, room)
    hidden = [str(one.number) for one, room in zip(sections, heights, strict=True) if not room]
    if hidden:
        lines.append(Text(f"  +{len(hidden)} sections: press {' '.join(hidden)}", "dim"))
    return lines


def _draw_section(section: Section, view: View, width: int, height: int) -> list[Text]:
    number = section.number
    return section.draw(
        width,
        height,
        view.sorting(number),
        scroll=section.limit_scroll(view.scroll(number)),
        is_active=number == view.active,
    )


def _share_out(sections: Sequence[Section], width: int, height: int) -> list[int]:
    """Give each section its lines: what it needs; then rows and notes of those that matter most."""
    least = [section.least for section in sections]
    heights = [0] * len(sections)
    room = height - 1 if sum(least) > height else height  # a line says which sections are missing
    for at, want in enumerate(least):
        if want <= room:
            heights[at], room = want, room - want
    for numbers, has_notes in ((_FIRST, False), (_FIRST, True), (_THEN, True)):
        for number in numbers:
            for at, section in enumerate(sections):
                if section.number == number and heights[at]:
                    want = section.count_lines(width) if has_notes else section.count_rows(width)
                    more = min(room, want - heights[at])
                    heights[at], room = heights[at] + more, room - more
    return heights


def _draw_head(
    picture: Picture, source: Source, width: int, zone: tzinfo | None, *, is_paused: bool
) -> Text:
    clock = _write_clock(picture.time, zone)
    parts: list[str | tuple[str, str]] = [(make_harmless(picture.hostname), "bold"), f"  {clock}"]
    if is_paused:
        parts.append(("  PAUSED", "bold yellow"))
    if source.silent_since is None:
        parts.append((f"  {source.words}", "dim"))
    else:
        since = _write_clock(source.silent_since, zone).split(" ")[1]
        age = write_duration(source.now - source.silent_since)
        parts.append((f"  NO ANSWER since {since} ({age})", "bold red"))
    left = Text.assemble(*parts)
    right = Text(f"trainvitals {make_harmless(picture.version)}", "dim")
    gap = width - left.cell_len - right.cell_len
    return Text.assemble(left, " " * gap, right) if gap > 1 else left


def _say_trouble(source: Source, width: int) -> list[Text]:
    """Say why the picture is old; nothing where it is new."""
    if source.silent_since is None:
        return []
    lines = wrap(make_harmless(source.trouble), width)[:_MOST_TROUBLE_LINES]
    return [Text(line, "bold red") for line in lines]


def _write_clock(seconds: float, zone: tzinfo | None) -> str:
    if not 0 <= seconds < _LATEST:
        return "no-date no-time"
    when = datetime.fromtimestamp(seconds, timezone.utc).astimezone(zone)
    return f"{when:%Y-%m-%d %H:%M:%S}"


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
