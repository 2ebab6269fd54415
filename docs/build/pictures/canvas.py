"""A page in pixels, drawn with matplotlib: boxes, texts that fit, and places for graphs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle
from matplotlib.textpath import TextPath

from docs.build.pictures.colours import FAINT, PAGE, TEXT

DOTS: Final = 100  # per inch; a pixel is a pixel whatever this is
_POINTS: Final = 72 / DOTS
_WEIGHTS: Final = {"normal": 400, "bold": 700}

Weight = Literal["normal", "bold"]
Side = Literal["left", "center", "right"]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of a page, in pixels from its upper left corner."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.top + self.height

    def shrink(self, left: float, top: float, right: float, bottom: float) -> Box:
        """Give what is left of it inside these margins."""
        return Box(
            self.left + left,
            self.top + top,
            max(1.0, self.width - left - right),
            max(1.0, self.height - top - bottom),
        )


class Canvas:
    """A page.

    Args:
        width: In pixels.
        height: In pixels.
    """

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure = Figure((width / DOTS, height / DOTS), DOTS, facecolor=PAGE)
        FigureCanvasAgg(self.figure)
        self._page = self.figure.add_axes((0, 0, 1, 1), frameon=False)
        self._page.set(xlim=(0, width), ylim=(height, 0), xticks=(), yticks=())

    def fill(self, box: Box, colour: str, *, radius: float = 0.0, opacity: float = 1.0) -> None:
        """Fill a rectangle."""
        at, size = (box.left, box.top), (box.width, box.height)
        if radius:
            style = f"round,pad=0,rounding_size={radius}"
            patch: Rectangle | FancyBboxPatch = FancyBboxPatch(at, *size, boxstyle=style)
        else:
            patch = Rectangle(at, *size)
        patch.set(facecolor=colour, edgecolor="none", linewidth=0, alpha=opacity)
        self._page.add_patch(patch)

    def frame(self, box: Box, colour: str, edge: str, *, radius: float = 2.0) -> None:
        """Fill a rectangle and draw its edge."""
        self.fill(box, edge, radius=radius)
        self.fill(box.shrink(1, 1, 1, 1), colour, radius=radius)

    def shape(self, points: list[tuple[float, float]], colour: str) -> None:
        """Fill a polygon."""
        self._page.add_patch(Polygon(points, facecolor=colour, edgecolor="none", linewidth=0))

    def write(
        self,
        text: str,
        left: float,
        middle: float,
        *,
        size: float = 12.0,
        colour: str = TEXT,
        weight: Weight = "normal",
        side: Side = "left",
        room: float | None = None,
    ) -> float:
        """Write a line, cut off with an ellipsis where it has no room; give its width.

        Args:
            text: What.
            left: Where it begins, ends or has its middle, as `side` says.
            middle: The height of its middle.
            size: Of the letters, in pixels.
            colour: Its colour.
            weight: Its weight.
            side: What `left` means.
            room: How wide it may be.
        """
        shown = text if room is None else shorten(text, room, size, weight)
        self._page.text(
            left,
            middle,
            shown,
            fontsize=size * _POINTS,
            color=colour,
            weight=weight,
            ha=side,
            va="center_baseline",
            parse_math=False,
        )
        return measure(shown, size, weight)

    def add_graph(self, box: Box) -> Axes:
        """Give a place for a graph."""
        return self.figure.add_axes(
            (
                box.left / self.width,
                1 - box.bottom / self.height,
                box.width / self.width,
                box.height / self.height,
            )
        )


@lru_cache(maxsize=20_000)
def measure(text: str, size: float = 12.0, weight: Weight = "normal") -> float:
    """Give the width of a text in pixels."""
    if not text.strip():
        return size * 0.3 * len(text)
    font = FontProperties(weight=_WEIGHTS[weight])
    path = TextPath((0, 0), text.replace("$", "S"), size=100, prop=font)
    # A line is a little wider than its letters: these are drawn on whole pixels, with room beside.
    return 1.03 * float(path.get_extents().width) * size / 100 + 0.1 * size


def shorten(text: str, room: float, size: float = 12.0, weight: Weight = "normal") -> str:
    """Cut a text off where it has no room."""
    if measure(text, size, weight) <= room:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        fits = measure(text[:middle].rstrip() + "…", size, weight) <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return text[:low].rstrip() + "…" if low else ""


def wrap(text: str, room: float, size: float = 12.0) -> list[str]:
    """Break a text into lines that fit."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and measure(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def write_note(canvas: Canvas, box: Box, text: str, colour: str = FAINT) -> None:
    """Write a text into the middle, on as many lines as it needs."""
    lines = wrap(text, box.width - 16, 13)
    middle = box.top + box.height / 2 - (len(lines) - 1) * 9
    for at, line in enumerate(lines):
        center = box.left + box.width / 2
        canvas.write(line, center, middle + 18 * at, size=13, colour=colour, side="center")
