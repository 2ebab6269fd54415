"""Tests that computed sizes agree with screenshots of Grafana 12.4 that are 1600 pixels wide."""

import pytest

from grafana.build import sizes

# Titles of panels three columns wide, in a window without the menu: such a panel has 188 pixels.
WHOLE = (
    "Fullest disk",
    "Energy, 24 h",
    "Restarts, 1 h",
    "Faulty, 24 h",
    "Monitoring",
    "Hosts down",
)
CUT = (
    *("Expected end", "Last progress", "Runs in trouble", "Fullest memory", "Lost or missing"),
    *("OOM kills, 24 h", "Waits for memory", "Accelerators busy"),
)
# Titles of the same panels beside the docked menu: such a panel has 151 pixels.
WHOLE_BESIDE = ("State", "Verdict", "Step", "Loss", "Runs", "Power")
CUT_BESIDE = ("Monitoring", "Progress", "Hosts down", "Throughput", "Expected end")


@pytest.mark.parametrize("title", [*WHOLE, *CUT])
def test_titles_are_cut_as_seen_without_the_menu(title):
    """Without the docked menu, the titles that are too long are those that the screenshot cuts."""
    room = 188 - (sizes.measure_panel(3) - sizes.measure_title_room(3))
    assert (sizes.measure_text(title) <= room) == (title in WHOLE)


@pytest.mark.parametrize("title", [*WHOLE_BESIDE, *CUT_BESIDE])
def test_titles_are_cut_as_seen_beside_the_menu(title):
    """Beside the docked menu, the titles that are too long are those that the screenshot cuts."""
    assert sizes.measure_panel(3) == pytest.approx(151, abs=1)
    assert (sizes.measure_text(title) <= sizes.measure_title_room(3)) == (title in WHOLE_BESIDE)


@pytest.mark.parametrize(
    ("title", "pixels", "is_whole"),
    [
        ("To slowdown", 90, False),
        ("Slowed down", 90, False),
        ("Last Xid", 90, True),
        ("Slowdown", 91, True),
        ("Highest (scores)", 98, False),
        ("Lowest (losses)", 98, False),
    ],
)
def test_heads_of_columns_are_cut_as_seen(title, pixels, is_whole):
    """A column shows its full header if it is at least as wide as computed."""
    assert (sizes.measure_column(title) <= pixels) == is_whole


@pytest.mark.parametrize(("height", "rows"), [(8, 5.5), (6, 3.4)])
def test_tables_show_as_many_rows_as_seen(height, rows):
    """The number of visible table rows agrees with the screenshot, including the cut last row."""
    assert sizes.count_table_rows(height) == pytest.approx(rows, abs=0.1)


def test_legends_show_as_many_series_as_seen():
    """A legend below a graph of height 8 shows two series, a legend beside it at least nine."""
    assert sizes.count_legend_rows(8, is_beside=False) == 2
    assert sizes.count_legend_rows(8, is_beside=True) >= 9
