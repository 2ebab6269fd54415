"""A section of small gauges, side by side in as many columns as there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from trainvitals.overview.picture import Trace
from trainvitals.top.bars import draw_bar, draw_trace
from trainvitals.top.table import INDENT, Left, Sorting, add_mark, fit

_NARROWEST, _NARROWEST_ALONE = 38, 76
_LABEL, _LABEL_ALONE, _BAR = 11, 40, 6


@dataclass(frozen=True, slots=True)
class Gauge:
    """One thing with a number.

    Attributes:
        label: Its name.
        words: The number.
        ratio: What the bar shows; None for no bar.
        style: How the bar looks.
        trace: Its past, which stands instead of the number; empty for none.
        full: What the top of its past stands for.
    """

    label: str
    words: str
    ratio: float | None = None
    style: str = "green"
    trace: Trace = ()
    full: float = 1.0


@dataclass(frozen=True, slots=True)
class Flow:
    """A section of gauges.

    Attributes:
        number: The key that shows it alone.
        title: What it is about.
        gauges: The most telling first.
        is_wide: There is room for long names.
        empty: What stands there when there are none.
        noun: What a gauge is.
        sortable: Nothing.
        least: How many lines it needs at least.
    """

    number: int
    title: str
    gauges: Sequence[Gauge]
    is_wide: bool = False
    empty: str = "nothing is known of it"
    noun: str = "figure"
    sortable: tuple[str, ...] = ()
    least: int = 2

    def count_rows(self, width: int) -> int:
        """Tell how many lines it would have."""
        return 1 + -(-len(self.gauges) // self._count_across(width))

    def count_lines(self, width: int) -> int:
        """Tell how many lines it would have."""
        return self.count_rows(width)

    def draw(
        self, width: int, height: int, sorting: Sorting, *, scroll: int = 0, is_active: bool = False
    ) -> list[Text]:
        """Draw as many lines as there is room for, and say in the first how many are missing.

        Args:
            width: How many columns there are.
            height: How many lines.
            sorting: Has no effect.
            scroll: How many gauges are above the first that is shown.
            is_active: Whether keys act on it.
        """
        del sorting
        mark = "▸" if is_active else " "
        head = Text(f"{self.number}{mark}{self.title}", "bold cyan" if is_active else "bold")
        if not self.gauges:
            return [Text.assemble(head, f"  {self.empty}")]
        across = self._count_across(width)
        share = (width - len(INDENT)) // across
        shown = self.gauges[scroll : scroll + (height - 1) * across]
        left = Left(above=scroll, below=len(self.gauges) - scroll - len(shown))
        lines = [
            Text.assemble(INDENT, *(self._draw(gauge, share) for gauge in shown[at : at + across]))
            for at in range(0, len(shown), across)
        ]
        return [add_mark(head, left, width), *lines]

    def limit_scroll(self, scroll: int) -> int:
        """Give the nearest place that can be scrolled to."""
        return max(0, min(scroll, len(self.gauges) - 1))

    def _count_across(self, width: int) -> int:
        narrowest = _NARROWEST_ALONE if self.is_wide else _NARROWEST
        return max(1, (width - len(INDENT)) // narrowest)

    def _draw(self, gauge: Gauge, width: int) -> Text:
        room = _LABEL_ALONE if self.is_wide else _LABEL
        loud = gauge.style if gauge.style not in {"green", "cyan"} else ""
        parts: list[Text | str] = [fit(Text(keep_end(gauge.label, room), "dim"), room), " "]
        if gauge.ratio is not None:
            parts += [draw_bar(gauge.ratio, _BAR, gauge.style), " "]
        if gauge.trace:
            left = min(len(gauge.trace), width - room - 2)
            parts.append(draw_trace(gauge.trace, left, low=0.0, high=gauge.full))
        else:
            parts.append(Text(gauge.words, loud))
        return Text.assemble(fit(Text.assemble(*parts), width - 1), " ")


def keep_end(path: str, width: int) -> str:
    """Cut a path at its beginning, for its end tells more."""
    if cell_len(path) <= width:
        return path
    end = path
    while cell_len(end) > width - 1:
        end = end[1:]
    return f"…{end}"
