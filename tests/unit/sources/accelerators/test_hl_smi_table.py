"""The output of hl-smi is parsed, from published samples to garbage."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.sources.accelerators.scripted import give
from trainvitals.sources.accelerators.hl_smi_table import (
    CORE_FIELDS,
    MORE_FIELDS,
    Table,
    parse_number,
    parse_row,
    split_cells,
)
from trainvitals.sources.accelerators.row import EMPTY_ROW

ALL_FIELDS = CORE_FIELDS + tuple(field for group in MORE_FIELDS for field in group)
UUID = "01P4-HL3090A0-18-U4V193-22-07-00"
LINE = f"3, {UUID}, HL-325L, 0000:61:00.0, 1.22.1-97ec1a4, 86, 63, 131072, 672, 130400, 226"
MORE = ", 850, 1600, 1650, 5, 0, 4, x8, 5, x16"
HEADER = ", ".join(CORE_FIELDS)
WHOLE = {
    "temperature_core_celsius": 86,
    "utilization_ratio": 0.63,
    "memory_total_bytes": 137_438_953_472,
    "memory_used_bytes": 704_643_072,
    "memory_free_bytes": 136_734_310_400,
    "power_watts": 226,
}


def read(
    text: str, fields: Sequence[str] = CORE_FIELDS
) -> tuple[list[tuple[int, str | None]], list[dict[str, object]], list[str]]:
    """Return the index and UUID of each card, the cards' readings, and the unparsable cells."""
    cards = Table(fields, text).cards
    rows = [parse_row(card.named) for card in cards]
    troubles = [trouble for _, found in rows for trouble in found]
    return [(card.index, card.uuid) for card in cards], [give(row) for row, _ in rows], troubles


# -- cells -----------------------------------------------------------------------------------------


def test_a_row_is_read_in_the_documented_units():
    """All fields of a row are converted from their documented units to base units."""
    more = {
        "power_limit_watts": 850,
        "clock_core_hertz": 1_600_000_000,
        "clock_core_max_hertz": 1_650_000_000,
        "ecc_corrected_errors_total": 5,
        "ecc_uncorrected_errors_total": 0,
        "pcie_link_generation": 4,
        "pcie_link_width": 8,
        "pcie_link_generation_max": 5,
        "pcie_link_width_max": 16,
    }
    assert read(LINE + MORE, ALL_FIELDS) == ([(3, UUID)], [WHOLE | more], [])


def test_a_cell_may_repeat_its_documented_unit():
    """A cell is read even if it contains its unit, as some versions print despite nounits."""
    line = LINE.replace("131072", "131072 MiB").replace("86", "86 C").replace("63", "63 %")
    assert read(line)[1:] == ([WHOLE], [])


def test_utilization_past_its_bound_is_full():
    """A utilization above 100 % is limited to 1."""
    assert read(LINE.replace(" 63,", " 137,"))[1] == [WHOLE | {"utilization_ratio": 1.0}]


@pytest.mark.parametrize(
    ("old", "new", "trouble"),
    [
        (" 86,", " N/A,", None),
        (" 86,", " warm,", "'warm'"),
        (" 86,", " -1,", "'-1'"),
        (" 86,", " 359.6 K,", "'359.6 K'"),
        (" 86,", ",", "''"),
        ("226", "9" * 400, repr("9" * 40)),
        ("672", "0.6 GiB", "'0.6 GiB'"),
    ],
)
def test_a_cell_that_is_no_number_in_its_unit_costs_itself(old, new, trouble):
    """A cell that is no number in its unit loses its metric and is reported, unless it is N/A."""
    lost = {" 86,": "temperature_core_celsius", "226": "power_watts", "672": "memory_used_bytes"}
    field = {" 86,": "temperature.aip", "226": "power.draw", "672": "memory.used"}[old]
    expected = {name: value for name, value in WHOLE.items() if name != lost[old]}
    _, rows, troubles = read(LINE.replace(old, new))
    assert rows == [expected]
    assert troubles == ([] if trouble is None else [f"{field} is {trouble}"])


def test_memory_in_another_unit_is_not_known():
    """All memory metrics are unknown if the total memory is too large to be in MiB."""
    _, rows, troubles = read(LINE.replace("131072", "137438953472"))
    assert rows == [{name: value for name, value in WHOLE.items() if "memory" not in name}]
    assert troubles == ["memory.total is not in MiB: 137438953472"]


def test_a_field_without_public_samples_may_look_like_anything():
    """Unparsable cells in the optional fields do not prevent the reading of the core fields."""
    line = LINE + ", max, fast, [Not Supported], five, zero, Gen4, wide, Gen5, x"
    assert read(line, ALL_FIELDS)[1:] == ([WHOLE], [])


def test_an_empty_row_is_what_nothing_known_gives():
    """A card without any numeric cell has an empty row."""
    assert parse_row({"index": "0", "uuid": UUID}) == (list(EMPTY_ROW), [])


# -- lines -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        HEADER,
        HEADER.upper(),
        HEADER.replace("power.draw", "power.draw [W]").replace("total", "total [MiB]"),
    ],
)
def test_a_header_is_no_card(header):
    """A header, with or without units and on any line, is not a card."""
    other = LINE.replace("3, 01P4", "4, 02P4")
    table = Table(CORE_FIELDS, f"{header}\n{LINE}\n{header}\n\n{other}\n")
    assert [card.index for card in table.cards] == [3, 4]
    assert (table.strange_lines, table.strange_columns) == ([], [])
    assert give(parse_row(table.cards[1].named)[0]) == WHOLE


def test_a_header_says_which_columns_there_are():
    """The header determines the columns, even if other columns were requested."""
    text = "name, uuid, power.draw [W], index, module_id\nHL-325L, " + UUID + ", 226, 3, 9\n"
    assert read(text) == ([(3, UUID)], [{"power_watts": 226}], [])


def test_a_column_in_another_unit_is_not_known():
    """A column with an unexpected unit is reported, and the other columns are read."""
    header = HEADER.replace("power.draw", "power.draw [mW]")
    table = Table(CORE_FIELDS, f"{header}\n{LINE}")
    assert table.strange_columns == ["power.draw [mW]"]
    assert give(parse_row(table.cards[0].named)[0]).keys() == WHOLE.keys() - {"power_watts"}


def test_a_row_of_another_length_is_a_card_only_by_its_address():
    """A row with the wrong number of cells is a card only if it contains a bus address."""
    for garbled in (LINE.replace(", 226", ""), LINE.replace("226", "226, 7")):
        table = Table(CORE_FIELDS, garbled)
        assert not table.fits
        (card,) = table.cards
        assert (card.index, card.uuid, card.named) == (3, None, {})
    without = LINE.replace("0000:61:00.0, ", "")
    table = Table(CORE_FIELDS, without)
    assert (table.cards, table.strange_lines) == ([], [without])


def test_a_lost_card_is_one():
    """A row of N/A cells is a lost card if it contains an index."""
    for row in ("3, N/A, N/A, 0000:61:00.0" + ", N/A" * 7, "3" + ", N/A" * 10):
        (card,) = Table(CORE_FIELDS, row).cards
        assert (card.index, card.uuid) == (3, None)
    assert Table(CORE_FIELDS, "N/A" + ", N/A" * 10).cards == []


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: the driver is newer than hl-smi",
        "+-----------------------------------------------------------------------------+",
        "|   0  HL-325L             N/A  | 0000:61:00.0     N/A |                   0  |",
        "[C], [%], [MiB], [W]",
        "C, %, MiB, MiB, MiB, W, , , , ,",
        "Usage: hl-smi [-Q FIELD,FIELD] [-f csv[,noheader][,nounits]]",
        "total, 8, cards, 0, lost, 0, hung, 0, of, 8, all",
    ],
)
def test_any_other_line_is_no_card(line):
    """A line that is neither a card nor a header is kept to be reported."""
    table = Table(CORE_FIELDS, f"{line}\n{LINE}")
    assert [card.uuid for card in table.cards] == [UUID]
    assert len(table.strange_lines) == 1


# -- anything --------------------------------------------------------------------------------------


@given(st.integers(0, 10**19), st.sampled_from(["", " ", "MiB", " MiB"]))
def test_a_whole_number_is_read_exactly(number, unit):
    """An integer is read exactly, with or without its unit."""
    if unit == " ":
        with pytest.raises(ValueError, match="not a number"):
            parse_number(f"{number}{unit}")
    else:
        assert parse_number(f"{number}{unit}", "MiB") == number


@given(st.text(max_size=30))
def test_any_cell_is_a_number_unknown_or_refused(cell):
    """Any cell is a finite number of at least 0, unknown, or refused."""
    try:
        number = parse_number(cell, "C")
    except ValueError:
        return
    assert number is None if cell == "N/A" else number is not None and 0 <= number < 10**20


@given(st.text())
def test_any_output_is_split_into_cells(text):
    """Any output is split into stripped cells, and lines without cells are omitted."""
    for line in split_cells(text):
        assert line
        assert all(cell == cell.strip() and "," not in cell for cell in line)


@given(st.lists(st.sampled_from([LINE, HEADER, LINE + MORE, "3, N/A", "x", "0000:61:00.0, x"])))
def test_every_line_is_a_card_a_header_or_strange(lines):
    """Every line is counted exactly once: as a card, as a header or as a strange line."""
    table = Table(CORE_FIELDS, "\n".join(lines))
    headers = sum(line == HEADER for line in lines)
    assert len(table.cards) + len(table.strange_lines) + headers == len(lines)


@given(
    st.dictionaries(
        st.sampled_from(ALL_FIELDS), st.text(alphabet="0123456789.N/A MCx%-", max_size=8)
    )
)
def test_any_cells_are_a_row(named):
    """Any cells can be parsed, and all numbers in the row are at least 0."""
    row, _ = parse_row(named)
    assert all(isinstance(number, (int, float)) and number >= 0 for number in give(row).values())
