"""Draws the headline for a machine state, and chooses the styles for tones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.text import Text

from trainvitals.foreign_text import clean_text
from trainvitals.verdicts.trouble import PLURALS, SubjectKind
from trainvitals.views.machine.headline import TONES, find_tone, make_headline
from trainvitals.views.machine.picture import Picture, Tone

STYLES: Mapping[Tone, str] = {
    "bad": "bold red",
    "warning": "yellow",
    "busy": "cyan",
    "good": "green",
    "unknown": "dim",
}
_NOT_KNOWN = "magenta"
Finding = tuple[str, str]


def draw_headline(picture: Picture, width: int, *, most_lines: int | None = None) -> list[Text]:
    """Return lines with the titles of the problems, most severe first, and of unknown subjects.

    Args:
        picture: The machine state to draw.
        width: The width of the headline, in columns.
        most_lines: The maximum number of lines; the number of omitted titles is shown. None means
            that the number of lines is not limited.
    """
    findings = [*_list_troubles(picture), *_list_unknowns(picture)]
    headline = make_headline(picture)
    if not headline.count:
        findings.insert(0, (headline.words, "" if picture.unknowns else STYLES[headline.tone]))
    lines = [Text(*findings.pop(0))]
    for at, (words, style) in enumerate(findings):
        left = len(findings) - at - 1
        is_last = len(lines) == most_lines
        room = width - len(f", +{left} more") if is_last and left else width
        if lines[-1].cell_len + 2 + len(words) <= room:
            lines[-1] = Text.assemble(lines[-1], ", ", (words, style))
        elif is_last:
            lines[-1] = Text.assemble(lines[-1], (f", +{left + 1} more", STYLES["bad"]))
            break
        else:
            lines.append(Text(words, style))
    return lines


def find_style(
    picture: Picture, kind: SubjectKind, subject: str, *alerts: str, well: Tone = "good"
) -> str:
    """Return the style for a subject's most severe problem; arguments are those of `find_tone`."""
    return STYLES[find_tone(picture, kind, subject, *alerts, well=well)]


def _list_troubles(picture: Picture) -> Iterator[Finding]:
    """Yield the titles of the problems; problems with the same name share one title."""
    alike: dict[tuple[SubjectKind, str, Tone], list[str]] = {}
    for trouble in picture.troubles:
        key = (trouble.subject_kind, trouble.name, TONES[trouble.severity])
        alike.setdefault(key, []).append(trouble.title)
    for (kind, name, tone), titles in alike.items():
        many = f"{len(titles)} {PLURALS[kind]} {name}"
        yield clean_text(titles[0] if len(titles) == 1 else many), STYLES[tone]


def _list_unknowns(picture: Picture) -> Iterator[Finding]:
    """Yield the titles of the unknown subjects; for runs, the titles include the reasons."""
    words = (
        clean_text(each.words if each.subject_kind == "run" else each.title)
        for each in picture.unknowns
    )
    for line in dict.fromkeys(words):
        yield line, _NOT_KNOWN
