"""The output of hl-smi is parsed, from published samples to garbage, and hl-smi is run safely."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fakes.machine import FakeMachine
from tests.support.waiting import wait_until
from tests.unit.sources.accelerators.scripted import give
from trainvitals.sources.accelerators.device_pool import DevicePool
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
    Table,
    split_cells,
)
from trainvitals.sources.accelerators.row import (
    DeviceError,
    DriverAbsentError,
    DriverGoneError,
)

# Python 3.12 warns about a fork in a process with several threads, which is safe here.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

ALL_FIELDS = CORE_FIELDS + tuple(field for group in MORE_FIELDS for field in group)
UUID = "01P4-HL3090A0-18-U4V193-22-07-00"
LINE = f"3, {UUID}, HL-325L, 0000:61:00.0, 1.22.1-97ec1a4, 86, 63, 131072, 672, 130400, 226"
CELLS = (LINE + ", 850, 1600, 1650, 5, 0, 4, x8, 5, x16").split(", ")


@given(st.text(max_size=300))
@example("PCIE.LINK.GEN.MAX")
def test_any_output_opens_and_reads(text):
    """Any output is parsed without an unexpected error, and unknown lines are reported."""
    session = HlSmiSession(lambda _: text, CORE_FIELDS, text)
    cards = len(session.devices) + len(session.unreadable)
    assert cards <= len(split_cells(text))
    assert cards or bool(session.troubles) == bool(Table(CORE_FIELDS, text).strange_lines)
    for device in session.devices:
        with pytest.raises(DeviceError):
            device.read(None)


class Screen:
    """A fake hl-smi that prints the given lines and knows only some fields."""

    def __init__(self, *lines: str, known: Sequence[str] = ALL_FIELDS) -> None:
        self.lines = list(lines)
        self.known = known
        self.runs = 0

    def __call__(self, fields: Sequence[str]) -> str:
        """Return the lines, or raise `HlSmiFailedError` for an unknown field."""
        self.runs += 1
        for field in fields:
            if field not in self.known:
                raise HlSmiFailedError(f"unknown query {field}")
        return "\n".join(self.lines)


def second(line: str = LINE) -> str:
    """Return the given line changed to that of another card."""
    return line.replace("3, 01P4", "4, 02P4").replace(":61:", ":62:")


def test_one_run_serves_one_reading_of_every_card():
    """One run of hl-smi serves all cards, and the next reading uses a new run."""
    screen = Screen(LINE, second())
    session = HlSmiSession(screen, CORE_FIELDS, screen(CORE_FIELDS))
    for runs in (2, 3):
        for device in session.devices:
            device.read(None)
        assert screen.runs == runs
    assert [device.identity[1] for device in session.devices] == [3, 4]


def test_a_garbled_row_is_its_cards_trouble_alone():
    """A row with a missing or an extra cell makes only its own card unsupported."""
    screen = Screen(LINE, second())
    session = HlSmiSession(screen, CORE_FIELDS, screen(CORE_FIELDS))
    first, other = session.devices
    for garbled in (LINE.replace(", 226", ""), LINE.replace("HL-325L", "HL, 325L")):
        screen.lines[0] = garbled
        with pytest.raises(DeviceError, match="unsupported"):
            first.read(None)
        assert give(other.read(None)[0])["power_watts"] == 226
        assert session.is_current()


def test_a_cell_that_is_not_understood_costs_itself_and_is_said():
    """An unparsable cell is reported and removes only one metric of one card."""
    screen = Screen(LINE, second())
    session = HlSmiSession(screen, CORE_FIELDS, screen(CORE_FIELDS))
    pool = DevicePool(session)
    assert pool.read(5.0, {})[1:] == ([], True, [])
    screen.lines[0] = LINE.replace(" 86,", " 359 K,")
    rows, states, is_current, troubles = pool.read(5.0, {})
    whole, other = give(rows[0][1]), give(rows[1][1])
    assert whole.keys() == other.keys() - {"temperature_core_celsius"}
    assert (states, is_current) == ([], True)
    assert troubles == [
        f"hl-smi printed what is not understood ({UUID}: temperature.aip is '359 K')"
    ]
    screen.lines[0] = LINE
    assert pool.read(5.0, {})[1:] == ([], True, [])
    pool.close()


def test_a_card_without_its_row_is_lost():
    """A card whose row disappeared is lost, and the reader is outdated."""
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
    """A reader without cards is outdated when the first card appears."""
    screen = Screen()
    session = HlSmiSession(screen, CORE_FIELDS, "")
    assert session.is_current()
    screen.lines.append(LINE)
    assert not session.is_current()
    screen.known = ()
    with pytest.raises(DriverGoneError, match="hl-smi failed"):
        session.is_current()


def test_a_row_of_nothing_known_is_a_lost_card():
    """A row with only an index and an address is a lost card, before and after the opening."""
    gone = "3, N/A, N/A, 0000:61:00.0, N/A, N/A, N/A, N/A, N/A, N/A, N/A"
    screen = Screen(LINE)
    session = HlSmiSession(screen, CORE_FIELDS, screen(CORE_FIELDS))
    screen.lines[0] = gone
    with pytest.raises(DeviceError, match="lost"):
        session.devices[0].read(None)
    ((identity, state),) = HlSmiSession(screen, CORE_FIELDS, gone).unreadable
    assert (identity[1], identity[2], state) == (3, "unknown-3", "lost")


def test_a_card_that_tells_nothing_but_its_name_is_unsupported():
    """A card whose row contains an identity but no number is unsupported."""
    screen = Screen(LINE)
    session = HlSmiSession(screen, CORE_FIELDS, screen(CORE_FIELDS))
    screen.lines[0] = f"3, {UUID}, HL-325L, 0000:61:00.0, 1.22.1, N/A, N/A, N/A, N/A, N/A, N/A"
    with pytest.raises(DeviceError, match="unsupported"):
        session.devices[0].read(None)


def test_a_failing_command_is_a_driver_that_is_gone():
    """A failure of hl-smi after the opening means that the driver is gone."""
    screen = Screen(LINE)
    session = HlSmiSession(screen, CORE_FIELDS, screen(CORE_FIELDS))
    screen.known = ()
    with pytest.raises(DriverGoneError, match="hl-smi failed: unknown query index"):
        session.devices[0].read(None)


class Version:
    """A fake version of hl-smi that knows only some fields.

    Args:
        unknown: The fields that this version does not know.
        fails: Whether an unknown field is an error; otherwise its cell is omitted.
    """

    def __init__(self, *unknown: str, fails: bool = True) -> None:
        self._known = {
            field: cell
            for field, cell in zip(ALL_FIELDS, CELLS, strict=True)
            if field not in unknown
        }
        self._fails = fails
        self.runs = 0

    def __call__(self, fields: Sequence[str]) -> str:
        """Return the row of one card, or raise `HlSmiFailedError`."""
        self.runs += 1
        if self._fails and not set(fields) <= set(self._known):
            raise HlSmiFailedError("unknown query")
        return ", ".join(self._known[field] for field in fields if field in self._known)


@pytest.mark.parametrize("fails", [True, False])
def test_older_versions_are_asked_for_what_they_know(fails):
    """A group with a field that hl-smi does not know is omitted, and all other groups are read."""
    older = Version("power.max", "pcie.link.gen.max", fails=fails)
    fields, text = choose_fields(older)
    assert fields == CORE_FIELDS + MORE_FIELDS[1] + MORE_FIELDS[2] + MORE_FIELDS[3]
    (device,) = HlSmiSession(older, fields, text).devices
    row = give(device.read(None)[0])
    assert (row["clock_core_max_hertz"], row["pcie_link_width"]) == (1_650_000_000, 8)
    oldest = Version(*ALL_FIELDS[len(CORE_FIELDS) :], fails=fails)
    assert choose_fields(oldest) == (CORE_FIELDS, LINE)
    newest = Version()
    assert choose_fields(newest)[0] == ALL_FIELDS
    assert newest.runs == 1


def write_command(folder: Path, script: str) -> str:
    """Write a shell script as hl-smi and return its path."""
    command = folder / "hl-smi"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return str(command)


def test_the_command_is_run_without_header_and_units(tmp_path):
    """The command requests comma-separated fields without a header and units."""
    command = write_command(tmp_path, 'echo "$@"')
    assert run_hl_smi(command, ("index", "uuid")) == "-Q index,uuid -f csv,noheader,nounits\n"


def test_what_a_failing_command_says_is_kept(tmp_path):
    """The error message of a failing command is the first line of either output stream."""
    for script in ("echo no such query >&2; exit 1", "echo no such query; echo more; exit 1"):
        with pytest.raises(HlSmiFailedError, match=r"^no such query$"):
            run_hl_smi(write_command(tmp_path, script), CORE_FIELDS)


def test_a_command_that_does_not_end_is_killed(tmp_path):
    """A command that exceeds the timeout is killed together with its child processes."""
    command = write_command(tmp_path, f"sleep 71.25 & echo $! > {tmp_path}/pid; wait")
    with pytest.raises(DeviceError, match="hung"):
        run_hl_smi(command, CORE_FIELDS, timeout_seconds=0.3)
    time.sleep(0.05)
    assert not is_running(int((tmp_path / "pid").read_text()))


def is_running(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_command_that_cannot_be_run_is_a_driver_that_is_gone(tmp_path):
    """A missing command means that the driver is gone, e.g. during a package update."""
    with pytest.raises(DriverGoneError, match="No such file"):
        run_hl_smi(f"{tmp_path}/hl-smi", CORE_FIELDS)


def test_the_command_is_found_on_the_path(tmp_path, monkeypatch):
    """hl-smi is found in the first directory of `PATH` in which it is executable."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/hl-smi").write_text("")
    (tmp_path / "b").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/a:{tmp_path}/b")
    assert find_hl_smi() is None
    assert find_hl_smi() != write_command(tmp_path / "b", "true")
    assert find_hl_smi() == f"{tmp_path}/b/hl-smi"


@pytest.fixture
def machine(tmp_path) -> Iterator[FakeMachine]:
    """A machine with two Gaudi cards that are read through hl-smi."""
    with FakeMachine(tmp_path, gpus=0, hpus=2) as machine:
        yield machine


def test_a_driver_that_is_not_loaded_is_absent(machine):
    """A driver that is not loaded is absent, and any other error of hl-smi is a failure."""
    command = f"{machine.hl_smi_directory()}/hl-smi"
    machine.unload_driver("hpu")
    with pytest.raises(DriverAbsentError, match="driver is not loaded"):
        open_hl_smi(command)
    write_command(Path(command).parent, "echo permission denied >&2; exit 1")
    with pytest.raises(DriverGoneError, match="hl-smi failed: permission denied"):
        open_hl_smi(command)


HEADER, UNITS, TABLE, REMARK = 1, 2, 4, 8
STRANGE = "hl-smi printed what is not understood (19 x no card: '+-----"


@pytest.mark.parametrize("prints", [HEADER, UNITS, REMARK, HEADER + UNITS + REMARK])
def test_a_card_is_a_card_whatever_is_printed_around_it(machine, prints):
    """Headers, units and remarks in the output neither hide cards nor count as cards."""
    machine.scenario.habana.hl_smi_prints = prints
    pool = DevicePool(open_hl_smi(f"{machine.hl_smi_directory()}/hl-smi"))
    rows, states, is_current, troubles = pool.read(5.0, {})
    pool.close()
    assert [row[0] for row in rows] == [machine.hpu(0).uuid, machine.hpu(1).uuid]
    assert {give(row[1])["power_watts"] for row in rows} == {226}
    assert {give(row[1])["memory_total_bytes"] for row in rows} == {137_438_953_472}
    assert (states, is_current, troubles) == ([], True, [])


@pytest.mark.parametrize("before", [0, TABLE])
def test_a_table_for_people_is_no_card_and_is_said(machine, before):
    """The human-readable table of hl-smi contains no cards and is reported as not understood."""
    machine.scenario.habana.hl_smi_prints = before
    session = open_hl_smi(f"{machine.hl_smi_directory()}/hl-smi")
    cards = 0 if before else 2
    assert (len(session.devices), session.unreadable) == (cards, [])
    machine.scenario.habana.hl_smi_prints = TABLE
    pool = DevicePool(session)
    rows, states, is_current, (trouble,) = pool.read(5.0, {})
    # Output that cannot be parsed does not mean that cards are gone, so the reader is current.
    assert (rows, is_current) == ([], True)
    assert [state for _, state in states] == ["unsupported"] * cards
    assert trouble.startswith(STRANGE)
    machine.scenario.habana.hl_smi_prints = 0
    rows, _, is_current, troubles = pool.read(5.0, {})
    pool.close()
    assert (len(rows), is_current, troubles) == (cards, cards == 2, [])


def test_a_lost_card_beside_a_header_is_one(machine):
    """A line with only an index and an address is a lost card, even if a header is printed."""
    machine.scenario.habana.hl_smi_prints = HEADER
    machine.lose(1, "hpu")
    session = open_hl_smi(f"{machine.hl_smi_directory()}/hl-smi")
    assert [device.identity[1] for device in session.devices] == [0]
    assert [(identity[1], state) for identity, state in session.unreadable] == [(1, "lost")]
    assert session.troubles == []


def test_there_is_never_a_second_run_beside_one(machine, tmp_path):
    """Concurrent readings of several cards share one run of hl-smi."""
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
    """A hung hl-smi is killed when its reader process is killed."""
    command = write_command(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 72.5")
    program = (
        "from trainvitals.sources.accelerators.hl_smi import run_hl_smi;"
        f"run_hl_smi({command!r}, ['index'])"
    )
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    reader = subprocess.Popen([sys.executable, "-c", program], env=variables)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    assert is_running(pid)
    reader.kill()
    reader.wait()
    wait_until(lambda: not is_running(pid))
