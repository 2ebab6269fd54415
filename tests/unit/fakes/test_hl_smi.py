"""Tests that the fake `hl-smi` prints the same rows as the real program."""

import subprocess

import pytest

from tests.fakes.machine import FakeMachine

QUERY = "index,uuid,name,memory.total,memory.used,power.draw,temperature.aip,utilization.aip"


@pytest.fixture
def ask(machine):
    """Return a function that runs the fake `hl-smi` of the machine."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [machine.hl_smi_directory() / "hl-smi", *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    return run


def test_a_query_gives_a_header_and_a_row_for_each_card(machine, ask):
    """The columns are separated by comma and space, and values are integers with units."""
    machine.hpu(1).utilization = 93
    machine.hpu(1).power_milliwatts = 612_900
    answer = ask("-Q", QUERY, "-f", "csv")
    header, *rows = answer.stdout.splitlines()
    assert header == (
        "index, uuid, name, memory.total [MiB], memory.used [MiB], power.draw [W],"
        " temperature.aip [C], utilization.aip [%]"
    )
    assert rows == [
        "0, 01P4-HL3090A0-18-U4V193-00-07-00, HL-325L, 131072 MiB, 672 MiB, 226 W, 36 C, 0 %",
        "1, 01P4-HL3090A0-18-U4V193-01-07-00, HL-325L, 131072 MiB, 672 MiB, 612 W, 36 C, 93 %",
    ]


def test_header_and_units_can_be_left_out(ask):
    """`nounits` and `noheader` are supported, and `-i` selects one card."""
    assert ask("-Q", "name, power.draw", "-f", "csv,nounits", "-i", "0000:43:00.0").stdout == (
        "name, power.draw [W]\nHL-325L, 226\n"
    )
    assert ask("-Q", "bus_id", "-f", "csv,noheader").stdout == "0000:1b:00.0\n0000:43:00.0\n"


def test_a_lost_card_has_no_values(machine, ask):
    """A lost card prints N/A instead of values; the other card prints its values."""
    machine.lose(0, "hpu")
    assert ask("-Q", "index,power.draw", "-f", "csv,noheader").stdout == "0, N/A\n1, 226 W\n"


def test_what_cannot_be_answered_fails(machine, ask):
    """An unknown query and an unloaded driver make `hl-smi` exit with 1 and print no rows."""
    unknown = ask("-Q", "name,mood", "-f", "csv")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr == "hl-smi: unknown query mood\n"
    machine.unload_driver("hpu")
    absent = ask("-Q", "name", "-f", "csv")
    assert (absent.returncode, absent.stdout) == (1, "")


def test_it_hangs_when_told_so(machine: FakeMachine, ask):
    """`hl-smi` hangs until the machine stops the hang, and its calls are counted."""
    machine.hang("hl-smi")
    command = [machine.hl_smi_directory() / "hl-smi", "-Q", "name", "-f", "csv,noheader"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)
        machine.unhang("hl-smi")
        assert process.communicate(timeout=30)[0] == "HL-325L\nHL-325L\n"
    assert machine.calls("hl-smi") == 1
