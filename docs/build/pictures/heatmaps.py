"""Heatmaps: how values are spread over time, from buckets that count up to a bound each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import PowerNorm

from docs.build.pictures.asking import Answer, Load
from docs.build.pictures.axes import LETTERS, draw_times, style
from docs.build.pictures.canvas import Box, Canvas, measure, write_note
from docs.build.pictures.events import draw_events
from docs.build.pictures.fields import Numbers
from docs.build.pictures.units import write_value

Json = Mapping[str, Any]

_SCALE: Final = 24.0


def draw(canvas: Canvas, box: Box, panel: Json, load: Load) -> None:
    """Draw a panel of the kind `heatmap`."""
    (answer,) = load.panels[panel["id"]]
    if not answer.series:
        write_note(canvas, box, str(panel["fieldConfig"]["defaults"].get("noValue") or "No data"))
        return
    options = panel["options"]
    times, bounds, counts = _read(answer)
    counts = np.ma.masked_less_equal(counts, options["filterValues"]["le"])
    texts = [_write_bound(bound, options["yAxis"].get("unit") or "short") for bound in bounds]
    left = max(measure(text, LETTERS) for text in texts) + 10
    cells = box.shrink(left, 6, 6, 20 + _SCALE)
    axes = canvas.add_graph(cells)
    style(axes)
    window, step = answer.query.pace.window, answer.query.pace.step
    highest = float(counts.max()) if counts.count() else 1.0
    colour = options["color"]
    norm = PowerNorm(colour.get("exponent", 0.5), vmin=0, vmax=highest)
    colours = colormaps[str(colour["scheme"]).lower()]
    edges = np.append(times, times[-1] + step)
    axes.pcolormesh(edges, np.arange(len(bounds) + 1), counts, cmap=colours, norm=norm)
    every = max(1, round(14 * len(bounds) / cells.height))
    places = [place for place in range(len(bounds)) if place % every == 0]
    axes.set_yticks([place + 1 for place in places], [texts[place] for place in places])
    draw_times(axes, window, cells.width)
    draw_events(axes, load)
    scale = canvas.add_graph(Box(cells.left, box.bottom - 12, 0.3 * cells.width, 6))
    scale.imshow(np.linspace(0, 1, 64)[None, :], aspect="auto", cmap=colours)
    scale.set_axis_off()
    middle = box.bottom - 9
    canvas.write("0", cells.left - 6, middle, size=10, side="right")
    canvas.write(write_value(highest, "short"), cells.left + 0.3 * cells.width + 6, middle, size=10)


def _read(answer: Answer) -> tuple[Numbers, Sequence[float], Numbers]:
    """Give the times, the upper bounds and what is in each bucket alone."""
    found = {
        float(one["metric"]["le"]): {float(at): float(value) for at, value in one["values"]}
        for one in answer.series
    }
    times = np.array(sorted({at for points in found.values() for at in points}))
    bounds = sorted(found)
    upto = np.array([[found[bound].get(at, np.nan) for at in times] for bound in bounds])
    below = np.vstack([np.zeros(len(times)), upto[:-1]])
    return times, bounds, np.nan_to_num(upto - below)


def _write_bound(bound: float, unit: str) -> str:
    return "+Inf" if np.isinf(bound) else write_value(bound, unit)
