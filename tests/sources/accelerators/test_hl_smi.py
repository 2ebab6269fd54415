"""What hl-smi prints, from rows as public samples show them to hostile ones, and how it is run."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.machine import FakeMachine
from trainvitals.sources.accelerators.hl_smi import (
    HlSmiFailedError,
    HlSmiSession,
    choose_fields,
    find_hl_smi,
    open_hl_smi,
    run_hl_smi,
)
from trainvitals.sources.accelerators.hl_smi_table import (
    CORE_FIELDS,
    MORE_FIELDS,
    parse_number,
    parse_row,
    split_cells,
)
from trainvitals.sources.accelerators.row import (
    EMPTY_ROW,
    ROW_FIELDS,
    DeviceError,
    DriverAbsentError,
    DriverGoneError,
)

# Python 3.12 advises against a fork beside other threads, which is well done here.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

ALL_FIELDS = CORE_FIELDS + tuple(field for group in MORE_FIELDS for field in group)
UUID = "01P4-HL3090A0-18-U4V193-22-07-00"
LINE = f"3, {UUID}, HL-325L, 0000:61:00.0, 1.22.1-97ec1a4, 86, 63, 131072, 672, 130400, 226"
MORE = ", 850, 1600, 1650, 5, 0, 4, x8, 5, x16"


def give(row: Sequence[object]) -> dict[str, object]:
    """Give what a row reports, by name."""
    pairs = zip(ROW_FIELDS, row, strict=True)
    return {
        name: value for name, value in pairs if value is not None and not isinstance(value, tuple)
    }


def cells(line: str) -> list[str]:
    """Give the cells of one line."""
    (found,) = split_cells(line)
    return found


def test_a_row_is_read_in_the_documented_units():
    """MiB are bytes, percent a ratio, megahertz hertz; throttling and energy are not asked for."""
    assert give(parse_row(ALL_FIELDS, cells(LINE + MORE))) == {
        "temperature_core_celsius": 86,
        "utilization_ratio": 0.63,
        "memory_total_bytes": 137_438_953_472,
        "memory_used_bytes": 704_643_072,
        "memory_free_bytes": 136_734_310_400,
        "power_watts": 226,
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


def test_a_cell_may_repeat_its_documented_unit():
    """Some versions print it in spite of nounits."""
    line = LINE.replace("131072", "131072 MiB").replace("86", "86 C").replace("63", "63 %")
    row = give(parse_row(CORE_FIELDS, cells(line)))
    assert row["memory_total_bytes"] == 137_438_953_472
    assert (row["temperature_core_celsius"], row["utilization_ratio"]) == (86, 0.63)


def test_utilization_past_its_bound_is_full():
    """The driver may say more than 100 %."""
    row = give(parse_row(CORE_FIELDS, cells(LINE.replace(" 63,", " 137,"))))
    assert row["utilization_ratio"] == 1.0


def test_what_is_not_known_is_none():
    """Each cell of its own."""
    row = give(parse_row(CORE_FIELDS, cells(LINE.replace(" 86,", " N/A,"))))
    assert "temperature_core_celsius" not in row
    assert row["power_watts"] == 226


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (" 86,", " warm,"),
        (" 86,", " -1,"),
        (" 86,", " 359.6 K,"),
        (" 86,", ","),
        ("131072", "137438953472"),
        ("131072", "128 GiB"),
        ("226", "226, 7"),
        (", 226", ""),
        ("226", "9" * 400),
    ],
)
def test_a_row_that_cannot_be_trusted_is_refused(old, new):
    """Another unit, a missing cell, one too many, bytes where MiB are documented."""
    with pytest.raises(ValueError):
        parse_row(CORE_FIELDS, cells(LINE.replace(old, new)))


def test_a_field_without_public_samples_may_look_like_anything():
    """It is not known then, and the card is read."""
    line = LINE + ", max, fast, [Not Supported], five, zero, Gen4, wide, Gen5, x"
    assert set(give(parse_row(ALL_FIELDS, cells(line)))) == {
        "temperature_core_celsius",
        "utilization_ratio",
        "memory_total_bytes",
        "memory_used_bytes",
        "memory_free_bytes",
        "power_watts",
    }


@given(st.integers(0, 10**19), st.sampled_from(["", " ", "MiB", " MiB"]))
def test_a_whole_number_is_read_exactly(number, unit):
    """With the unit or without."""
    if unit == " ":
        with pytest.raises(ValueError, match="not a number"):
            parse_number(f"{number}{unit}")
    else:
        assert parse_number(f"{number}{unit}", "MiB") == number


@given(st.text(max_size=30))
def test_any_cell_is_a_number_unknown_or_refused(cell):
    """Never negative, never infinite, never anything else."""
    try:
        number = parse_number(cell, "C")
    except ValueError:
        return
    assert number is None if cell == "N/A" else number is not None and 0 <= number < 10**20


@given(st.text())
def test_any_output_is_split_into_cells(text):
    """Lines without any are left out, nothing is lost but blanks around cells."""
    for line in split_cells(text):
        assert line
        assert all(cell == cell.strip() and "," not in cell for cell in line)


@given(st.lists(st.text(alphabet="0123456789.N/A MCx%-", max_size=8), min_size=0, max_size=24))
def test_any_cells_are_a_row_or_refused(row):
    """Whatever the command prints."""
    try:
        numbers = give(parse_row(ALL_FIELDS, row))
    except ValueError:
        return
    assert all(isinstance(number, (int, float)) and number >= 0 for number in numbers.values())


@given(st.text(max_size=300))
def test_any_output_opens_and_reads(text):
    """A card is read, lost or unsupported."""
    session = HlSmiSession(lambda _: text, CORE_FIELDS, text)
    assert len(session.devices) + len(session.unreadable) == len(split_cells(text))
    for device in session.devices:
        with pytest.raises(DeviceError):
            device.read(None)


class Screen:
    """What a command would print, changed by a test, and the fields it knows."""

    def __init__(self, *lines: str, known: Sequence[str] = ALL_FIELDS) -> None:
        self.lines = list(lines)
        self.known = known
        self.runs = 0

    def __call__(self, fields: Sequence[str]) -> str:
        """Print the lines, or fail on a field that is not known."""
        self.runs += 1
        for field in fields:
            if field not in self.known:
                raise HlSmiFailedError(f"unknown query {field}")
        return "\n".join(self.lines)


def second(line: str = LINE) -> str:
    """Give a line of another card."""
    return line.replace("3, 01P4", "4, 02P4").replace(":61:", ":62:")


def test_one_run_serves_one_reading_of_every_card():
    """And the next reading is from the next run."""
    screen = Screen(LINE, second())
    session = HlSmiSession(screen, CORE_FIELDS, screen(CORE_FIELDS))
    for runs in (2, 3):
        for device in session.devices:
            device.read(None)
        assert screen.runs == runs
    assert [device.identity[1] for device in session.devices] == [3, 4]


def test_a_garbled_row_is_its_cards_trouble_alone():
    """Whether a number is none, or a cell is missing."""
    screen = Screen(LINE, second())
    session = HlSmiSession(screen, CORE_FIELDS, screen(CORE_FIELDS))
    first, other = session.devices
    for garbled in (LINE.replace(" 86,", " ?,"), LINE.replace(", 226", "")):
        screen.lines[0] = garbled
        with pytest.raises(DeviceError, match="unsupported"):
            first.read(None)
        assert give(other.read(None)[0])["power_watts"] == 226


def test_a_card_without_its_row_is_lost():
    """And the reader is outdated, as for a new one."""
    screen = Screen(LINE, second())
    session = HlSmiSession(screen, CORE_FIELDS, screen(CORE_FIELDS))
    assert session.is_current()
    del screen.lines[0]
    with pytest.raises(DeviceError, match="lost"):
        session.devices[0].read(None)
    assert not session.is_current()
    screen.lines[:] = [LINE.replace("01P4", "09P4"), second()]
    with pytest.raises(DeviceError, match="lost"):
        session.devices[0].read(None)
    assert not session.is_current()


def test_the_first_card_of_a_machine_is_noticed():
    """Though there is none to be read."""
    screen = Screen()
    session = HlSmiSession(screen, CORE_FIELDS, "")
    assert session.is_current()
    screen.lines.append(LINE)
    assert not session.is_current()
    screen.known = ()
    with pytest.raises(DriverGoneError, match="hl-smi failed"):
        session.is_current()


def test_a_row_of_nothing_known_is_a_lost_card():
    """Open or not yet."""
    gone = "3, N/A, N/A, 0000:61:00.0, N/A, N/A, N/A, N/A, N/A, N/A, N/A"
    screen = Screen(LINE)
    session = HlSmiSession(screen, CORE_FIELDS, screen(CORE_FIELDS))
    screen.lines[0] = gone
    with pytest.raises(DeviceError, match="lost"):
        session.devices[0].read(None)
    ((identity, state),) = HlSmiSession(screen, CORE_FIELDS, gone).unreadable
    assert (identity[1], identity[2], state) == (3, "unknown-3", "lost")


def test_a_card_that_tells_nothing_but_its_name_is_unsupported():
    """A row without a number is no reading."""
    screen = Screen(LINE)
    session = HlSmiSession(screen, CORE_FIELDS, screen(CORE_FIELDS))
    screen.lines[0] = f"3, {UUID}, HL-325L, 0000:61:00.0, 1.22.1, N/A, N/A, N/A, N/A, N/A, N/A"
    with pytest.raises(DeviceError, match="unsupported"):
        session.devices[0].read(None)


def test_a_failing_command_is_a_driver_that_is_gone():
    """Once it was open."""
    screen = Screen(LINE)
    session = HlSmiSession(screen, CORE_FIELDS, screen(CORE_FIELDS))
    screen.known = ()
    with pytest.raises(DriverGoneError, match="hl-smi failed: unknown query index"):
        session.devices[0].read(None)


def test_older_versions_are_asked_for_what_they_know():
    """Each group of fields is tried; nothing else is lost."""
    known = [field for field in ALL_FIELDS if field not in ("power.max", "pcie.link.gen.max")]
    fields, text = choose_fields(Screen(LINE, known=known))
    assert fields == CORE_FIELDS + MORE_FIELDS[1] + MORE_FIELDS[2] + MORE_FIELDS[3]
    assert text == LINE
    assert choose_fields(Screen(LINE, known=CORE_FIELDS))[0] == CORE_FIELDS
    screen = Screen(LINE)
    assert choose_fields(screen)[0] == ALL_FIELDS
    assert screen.runs == 1


def write_command(folder: Path, script: str) -> str:
    """Make an hl-smi of a few lines of shell."""
    command = folder / "hl-smi"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return str(command)


def test_the_command_is_run_without_header_and_units(tmp_path):
    """With the fields separated by commas."""
    command = write_command(tmp_path, 'echo "$@"')
    assert run_hl_smi(command, ("index", "uuid")) == "-Q index,uuid -f csv,noheader,nounits\n"


def test_what_a_failing_command_says_is_kept(tmp_path):
    """Its first line, from whichever stream."""
    for script in ("echo no such query >&2; exit 1", "echo no such query; echo more; exit 1"):
        with pytest.raises(HlSmiFailedError, match=r"^no such query$"):
            run_hl_smi(write_command(tmp_path, script), CORE_FIELDS)


def test_a_command_that_does_not_end_is_killed(tmp_path):
    """With all that it started."""
    command = write_command(tmp_path, f"sleep 71.25 & echo $! > {tmp_path}/pid; wait")
    with pytest.raises(DeviceError, match="hung"):
        run_hl_smi(command, CORE_FIELDS, timeout_seconds=0.3)
    time.sleep(0.05)
    assert not is_running(int((tmp_path / "pid").read_text()))


def is_running(pid: int) -> bool:
    """Tell whether there is such a process that has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_command_that_cannot_be_run_is_a_driver_that_is_gone(tmp_path):
    """As while the driver's packages are replaced."""
    with pytest.raises(DriverGoneError, match="No such file"):
        run_hl_smi(f"{tmp_path}/hl-smi", CORE_FIELDS)


def test_the_command_is_found_on_the_path(tmp_path, monkeypatch):
    """Where it can be run."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/hl-smi").write_text("")
    (tmp_path / "b").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/a:{tmp_path}/b")
    assert find_hl_smi() is None
    assert find_hl_smi() != write_command(tmp_path / "b", "true")
    assert find_hl_smi() == f"{tmp_path}/b/hl-smi"


@pytest.fixture
def machine(tmp_path) -> Iterator[FakeMachine]:
    """Two Gaudi cards, of which only hl-smi tells."""
    with FakeMachine(tmp_path, gpus=0, hpus=2) as machine:
        yield machine


def test_a_driver_that_is_not_loaded_is_absent(machine):
    """The command alone is nothing to report; another error is."""
    command = f"{machine.hl_smi_directory()}/hl-smi"
    machine.unload_driver("hpu")
    with pytest.raises(DriverAbsentError, match="driver is not loaded"):
        open_hl_smi(command)
    write_command(Path(command).parent, "echo permission denied >&2; exit 1")
    with pytest.raises(DriverGoneError, match="hl-smi failed: permission denied"):
        open_hl_smi(command)


def test_there_is_never_a_second_run_beside_one(machine, tmp_path):
    """Readings of several cards at once wait for the same run."""
    session = open_hl_smi(f"{machine.hl_smi_directory()}/hl-smi")
    machine.reset_calls()
    machine.hang("hl-smi", milliseconds=200)
    powers: list[object] = []

    def read(device) -> None:
        powers.append(give(device.read(None)[0])["power_watts"])

    threads = [threading.Thread(target=read, args=(device,)) for device in session.devices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert powers == [226, 226]
    assert machine.calls("hl-smi") == 1


def test_the_command_dies_with_its_reader(tmp_path):
    """A killed exporter leaves no hung command behind."""
    command = write_command(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 72.5")
    program = (
        "from trainvitals.sources.accelerators.hl_smi import run_hl_smi;"
        f"run_hl_smi({command!r}, ['index'])"
    )
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    reader = subprocess.Popen([sys.executable, "-c", program], env=variables)
    until = time.monotonic() + 10
    while not (tmp_path / "pid").exists() and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.05)
    pid = int((tmp_path / "pid").read_text())
    assert is_running(pid)
    reader.kill()
    reader.wait()
    while is_running(pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not is_running(pid)


def test_an_empty_row_is_what_nothing_known_gives():
    """All cells but names."""
    row = parse_row(("index", "uuid"), ("0", UUID))
    assert row == list(EMPTY_ROW)
