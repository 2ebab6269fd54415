"""The sparklines of the page, of reports and of the terminal."""

from __future__ import annotations

import math

from tests.unit.views.page.pages import read_html
from trainvitals.views.sparkline import sparkline_svg, sparkline_text


def test_an_svg_has_a_stroke_for_each_stretch():
    """An SVG has a stroke for each stretch of values, a dash for a single point, and the limit."""
    svg = sparkline_svg((0.0, 1.0, None, 1.0), "a<b", low=0.0, high=2.0, limit=1.0, columns=90)
    (drawn,) = read_html(svg).find("svg")
    limit, trace = drawn.find("path")
    assert trace.attributes["d"] == "M86 225L87 120M89 120h1"
    assert limit.attributes["d"] == "M0 120H90"
    assert drawn.attributes["aria-label"] == "a<b"


def test_an_svg_stays_within_its_frame():
    """Values outside the range are drawn at the edge."""
    svg = sparkline_svg((-9.0, 9.0), "", low=0.0, high=2.0)
    assert read_html(svg).find("path")[0].attributes["d"] == "M0 225L1 15"


def test_an_svg_without_points_is_an_empty_frame():
    """An SVG without values has no paths."""
    for points in ((), (None, None)):
        assert not read_html(sparkline_svg(points, "", low=0.0, high=1.0)).find("path")


def test_text_has_a_blank_where_nothing_is_known():
    """Unknown points are blank, the newest is on the right, and a column is a mean."""
    assert sparkline_text((0.0, None, 1.0), 5, low=0.0, high=1.0) == "  ▁ █"
    assert sparkline_text((0.0, 0.2, None, 1.0), 2, low=0.0, high=1.0) == "▁█"
    assert sparkline_text((), 3) == "   "


def test_text_without_bounds_runs_from_its_least_to_its_greatest_value():
    """Without bounds, the range is that of the values, and constant values are drawn low."""
    assert sparkline_text((2.0, 2.0), 2) == "▁▁"
    assert sparkline_text((None, math.nan, 2.0, 5.0), 4) == "  ▁█"
