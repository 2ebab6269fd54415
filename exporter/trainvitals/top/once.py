"""One frame, or one document, for scripts and logs."""

from __future__ import annotations

from rich.color import ColorSystem
from rich.console import Console

from trainvitals.overview.picture import Picture
from trainvitals.top.canvas import make_canvas, write_lines
from trainvitals.top.frame import Source, draw_all
from trainvitals.top.view import View


def write_once(
    picture: Picture,
    view: View,
    words: str,
    *,
    width: int,
    colors: ColorSystem | None,
    is_ascii: bool,
) -> str:
    """Write the whole picture as lines, none of them too long and nothing left out.

    Args:
        picture: What is written.
        view: How it is sorted.
        words: Where it is from.
        width: How many columns there are.
        colors: Which colours there are; None for no escape codes at all.
        is_ascii: What is not ASCII is replaced.
    """
    lines = draw_all(picture, view, Source(words), width=width)
    canvas = make_canvas(lines, Console(color_system=None), is_ascii=is_ascii)
    return "\n".join(write_lines(canvas, colors))
