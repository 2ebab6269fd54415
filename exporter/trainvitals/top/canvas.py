"""Lines as cells of a terminal, and the fewest bytes that turn one screen into the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from rich.text import Text

Cell = tuple[str, Style | None]  # the second half of a wide letter is empty
Canvas = list[list[Cell]]

BEGIN_FRAME, END_FRAME = "\x1b[?2026h", "\x1b[?2026l"  # terminals that do not know them ignore them
CLEAR = "\x1b[0m\x1b[2J"
_BLANK: Cell = (" ", None)
_NEAR = 6  # a gap of so many cells is cheaper to write than to jump over
_ASCII = str.maketrans(
    {
        "█": "#", "░": ".", "…": "~", "▸": ">", "▲": "^", "▼": "v", "°": " ", "↑": "^", "↓": "v",
        "▁": "_", "▂": ".", "▃": ":", "▄": "-", "▅": "=", "▆": "+", "▇": "*",
    }
)  # fmt: skip


def make_canvas(lines: Sequence[Text], console: Console, *, is_ascii: bool = False) -> Canvas:
    """Cut lines into cells.

    Args:
        lines: The lines.
        console: Knows what the names of styles mean.
        is_ascii: What is not ASCII becomes what resembles it, or `?`.
    """
    return [list(_cut(line, console, is_ascii=is_ascii)) for line in lines]


def write_lines(canvas: Canvas, colors: ColorSystem | None) -> list[str]:
    """Write a screen as lines for a file or a terminal that scrolls, without blanks at their ends."""
    return [_write_cells(_strip(row), colors) for row in canvas]


def write_changes(before: Canvas | None, after: Canvas, colors: ColorSystem | None) -> str:
    """Write what turns a screen into another of the same size.

    Args:
        before: What the terminal shows; None for what is not known.
        after: What it is to show.
        colors: Which colours it has; None for none.
    """
    parts = [] if before is not None else [CLEAR]
    blank = [[_BLANK] * len(row) for row in after]
    for line, (old, new) in enumerate(zip(before or blank, after, strict=True), 1):
        for begin, end in _find_spans(old, new):
            parts.append(f"\x1b[{line};{begin + 1}H{_write_cells(new[begin:end], colors)}")
    if not parts:
        return ""
    return f"{BEGIN_FRAME}{''.join(parts)}{END_FRAME}"


def _cut(line: Text, console: Console, *, is_ascii: bool) -> Iterator[Cell]:
    for segment in line.render(console):
        style = segment.style or None
        held = ""  # a letter that marks may follow
        for letter in segment.text:
            size = cell_len(letter)
            if size == 0:
                held += letter if held and not is_ascii else ""
                continue
            if held:
                yield held, style
            held = _resemble(letter) if is_ascii else letter
            if size > 1:
                yield held, style
                yield " " if is_ascii else "", style
                held = ""
        if held:
            yield held, style


def _resemble(letter: str) -> str:
    plain = letter.translate(_ASCII)
    return plain if plain.isascii() else "?"


def _find_spans(old: list[Cell], new: list[Cell]) -> Iterator[tuple[int, int]]:
    """Give where two lines differ; places that are near each other are one."""
    changed = [at for at, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    while changed:
        begin = end = changed.pop(0)
        while changed and changed[0] - end <= _NEAR:
            end = changed.pop(0)
        while begin and not new[begin][0]:
            begin -= 1
        end += 1
        while end < len(new) and not new[end][0]:
            end += 1
        yield begin, end


def _write_cells(cells: Sequence[Cell], colors: ColorSystem | None) -> str:
    parts = []
    for style, group in groupby(cells, key=lambda cell: cell[1]):
        text = "".join(letter for letter, _ in group)
        parts.append(
            text if style is None or colors is None else style.render(text, color_system=colors)
        )
    return "".join(parts)


def _strip(row: list[Cell]) -> list[Cell]:
    end = len(row)
    while end and row[end - 1][0] == " ":
        end -= 1
    return row[:end]
