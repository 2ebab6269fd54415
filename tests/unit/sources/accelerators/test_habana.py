"""The HLML reader runs in a real child process with the real binding and a fake library."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.libraries import library_path
from tests.fakes.machine import FakeMachine
from trainvitals.sources.accelerators.habana import parse_link_speed, parse_link_width
from trainvitals.sources.accelerators.process import ReaderProcess
from trainvitals.sources.accelerators.reader import Answer, Opener
from trainvitals.sources.accelerators.row import ROW_FIELDS, THROTTLE_REASONS

OPENER = Opener("trainvitals.sources.accelerators.habana", "open_habana")
FIRST = "01P4-HL3090A0-18-U4V193-00-07-00"
SECOND = "01P4-HL3090A0-18-U4V193-01-07-00"
GIB = 1 << 30
ADVICE = "libhlml.so needs its Python binding: pip install 'trainvitals[habana]'"

Start = Callable[..., ReaderProcess]


@pytest.fixture
def machine(tmp_path) -> Iterator[FakeMachine]:
    """A machine with two Gaudi cards and no GPU."""
    with FakeMachine(tmp_path, gpus=0, hpus=2) as machine:
        yield machine


@pytest.fixture
def start(machine) -> Iterator[Start]:
    """A function that starts a reader process and waits until it has tried to open the driver."""
    with ExitStack() as stack:

        def start(environ: Mapping[str, str] | None = None) -> ReaderProcess:
            variables = {"PATH": "/usr/bin:/bin", **machine.environment()}
            reader = ReaderProcess(OPENER, environ=variables if environ is None else environ)
            stack.callback(reader.end)
            reader.wait_until_opened(time.monotonic() + 20)
            return reader

        yield start


def ask(reader: ReaderProcess, patience: float = 5.0) -> Answer:
    """Return the reader's answer about all cards."""
    reader.ask(patience, {})
    answer = reader.take_answer(time.monotonic() + patience + 5)
    assert answer is not None, reader.gone
    return answer


def read(reader: ReaderProcess, uuid: str = FIRST) -> dict[str, object]:
    """Read all cards and return the values of one card by name."""
    rows = {row[0]: row[1] for row in ask(reader).rows}
    return dict(zip(ROW_FIELDS, rows[uuid], strict=True))


def by_reason(values: object) -> dict[str, object]:
    """Return the known values by throttle reason."""
    assert isinstance(values, tuple)
    pairs = zip(THROTTLE_REASONS, values, strict=True)
    return {reason: value for reason, value in pairs if value is not None}


def test_the_identity_of_a_card_is_what_hlml_says(start):
    """The index, UUID, model, bus ID, driver and firmware of each card are read from HLML."""
    reader = start()
    assert [who.uuid for who in reader.identities] == [FIRST, SECOND]
    second = reader.identities[1]
    assert (second.kind, second.index, second.model) == ("hpu", 1, "HL-325L")
    assert (second.bus_id, second.driver) == ("0000:43:00.0", "1.22.1-97ec1a4")
    assert second.firmware == "Preboot version hl-gaudi3-1.22.1-fw-61.4.2-sec-10"
    assert reader.unreadable == []


def test_every_number_is_in_base_units(machine, start):
    """Milliwatts, millijoules, megahertz, percent and nanoseconds are converted."""
    machine.stop_clock()
    card = machine.hpu(0)
    card.utilization = 63
    card.memory_used_bytes = 5 * GIB
    card.temperature = 86
    card.slowdown_threshold = 95
    card.power_milliwatts = 612_500
    card.power_limit_milliwatts = 800_000
    card.energy_millijoules = 8_500_250
    card.soc_clock, card.maximum_soc_clock = 800, 1700
    card.throttle_reasons = 0b10
    card.power_cap_nanoseconds, card.thermal_nanoseconds = 1_500_000_000, 250_000_000
    card.corrected_volatile_errors, card.uncorrected_volatile_errors = 5, 6
    card.corrected_aggregate_errors, card.uncorrected_aggregate_errors = 70, 80
    card.corrected_remapped_rows, card.uncorrected_remapped_rows = 3, 4
    card.remapping_pending = 1
    card.pcie_generation, card.pcie_width, card.pcie_replays = 4, 8, 12
    row = read(start())
    throttle_active = by_reason(row.pop("throttle_active"))
    throttle_seconds = by_reason(row.pop("throttle_seconds_total"))
    row.pop("link_errors_total")
    assert {name: value for name, value in row.items() if value is not None} == {
        "utilization_ratio": 0.63,
        "memory_total_bytes": 137_438_953_472,
        "memory_used_bytes": 5_368_709_120,
        "memory_free_bytes": 132_070_244_352,
        "temperature_core_celsius": 86,
        "temperature_slowdown_celsius": 95,
        "temperature_headroom_celsius": 9,
        "power_watts": 612.5,
        "power_limit_watts": 800.0,
        "energy_joules_total": 8500.25,
        "clock_core_hertz": 800_000_000,
        "clock_core_max_hertz": 1_700_000_000,
        "ecc_corrected_errors_total": 5,
        "ecc_uncorrected_errors_total": 6,
        "rows_remapped_corrected": 3,
        "rows_remapped_uncorrected": 4,
        "row_remap_pending": 1,
        "pcie_link_generation": 4,
        "pcie_link_generation_max": 5,
        "pcie_link_width": 8,
        "pcie_link_width_max": 16,
        "pcie_replays_total": 12,
    }
    assert throttle_active == {"sw_power_cap": 0, "hw_thermal": 1}
    assert throttle_seconds == {"sw_power_cap": 1.5, "hw_thermal": 0.25}


def test_utilization_past_its_bound_is_full(machine, start):
    """A utilization above 100 % is limited to 1."""
    machine.hpu(0).utilization = 137
    assert read(start())["utilization_ratio"] == 1.0


def test_what_a_card_does_not_report_is_none(machine, start):
    """An unsupported value is None, and does not affect the other values."""
    card = machine.hpu(0)
    card.power_milliwatts = card.temperature = card.pcie_generation = card.energy_millijoules = None
    card.thermal_nanoseconds = None
    row = read(start())
    assert row["power_watts"] is None
    assert row["temperature_core_celsius"] is None
    assert row["temperature_headroom_celsius"] is None
    assert row["pcie_link_generation"] is None
    assert row["energy_joules_total"] is None
    assert row["pcie_link_width"] == 16
    assert by_reason(row["throttle_seconds_total"]) == {"sw_power_cap": 0.0}


def test_a_number_that_is_none_costs_itself(machine, start):
    """A value with all bits set means "not available" and removes only its own metrics."""
    machine.stop_clock()
    whole = read(start())
    card = machine.hpu(0)
    card.temperature = card.soc_clock = card.corrected_volatile_errors = -1
    card.slowdown_threshold = 0
    card.memory_used_bytes = 1 << 50
    strange = read(start())
    assert {name for name, value in whole.items() if value != strange[name]} == {
        "temperature_core_celsius",
        "temperature_slowdown_celsius",
        "temperature_headroom_celsius",
        "clock_core_hertz",
        "ecc_corrected_errors_total",
        "memory_used_bytes",
        "memory_free_bytes",
    }
    assert strange["temperature_headroom_celsius"] is None
    assert strange["memory_used_bytes"] is strange["memory_free_bytes"] is None


def test_the_default_limit_stands_in_for_the_limit(machine, start):
    """The default power limit is used if the card does not report the enforced limit."""
    machine.hpu(0).power_limit_milliwatts = None
    machine.hpu(0).default_power_limit_milliwatts = 600_000
    assert read(start())["power_limit_watts"] == 600.0


def test_what_is_not_supported_is_asked_for_once(machine, start):
    """An unsupported sensor is queried only once, because each refused query takes milliseconds."""
    reader = start()
    for _ in range(3):
        ask(reader)
    assert machine.calls("hlml_device_get_temperature", 0) == 4


def test_slow_calls_are_never_made(machine, start):
    """PCIe throughput and NIC statistics are never queried, since each call takes 25 to 100 ms."""
    ask(start())
    assert machine.calls("hlml_device_get_pcie_throughput") == 0
    assert machine.calls("hlml_nic_get_statistics") == 0
    assert machine.calls("hlml_nic_get_link") == 0


def test_cards_are_read_one_after_the_other(machine, start):
    """Cards are read in turn, since parallel calls would only slow each other down."""
    machine.delay(2_000, kind="hpu")
    reader = start()
    ask(reader)
    begin = time.monotonic()  # before the reset: a loaded machine may pause between the two
    machine.reset_calls()
    ask(reader)
    calls = sum(machine.calls_by_function().values())
    assert time.monotonic() - begin >= (calls - 1) * 0.002


def test_a_hung_card_does_not_keep_the_other(machine, start):
    """A hung card does not delay the other card, and is read again when it responds."""
    reader = start()
    ask(reader)
    machine.hang("hlml_device_get_power_usage", 0)
    for _ in range(2):
        answer = ask(reader)
        assert [row[0] for row in answer.rows] == [SECOND]
        assert answer.states == [(FIRST, "hung")]
    machine.unhang("hlml_device_get_power_usage", 0)
    time.sleep(0.1)
    assert [row[0] for row in ask(reader).rows] == [FIRST, SECOND]


def test_a_lost_card_is_lost_alone(machine, start):
    """The error `AIP_IS_LOST` marks one card as lost; when reopened, that card has no UUID."""
    reader = start()
    machine.lose(0, "hpu")
    answer = ask(reader)
    assert [row[0] for row in answer.rows] == [SECOND]
    assert answer.states == [(FIRST, "lost")]
    (unknown, state), *others = start().unreadable
    assert (unknown.uuid, unknown.index, state, others) == ("unknown-0", 0, "lost", [])


def test_a_card_in_reset_is_resetting(machine, start):
    """A card whose operation status is "in reset" is resetting."""
    reader = start()
    machine.hpu(1).operation_status = "in reset"
    assert ask(reader).states == [(SECOND, "resetting")]


def test_a_card_that_tells_nothing_is_unsupported(machine, start):
    """A card for which every query fails is unsupported."""
    machine.fail("hlml*", 1, 49)
    reader = start()
    assert [(who.uuid, state) for who, state in reader.unreadable] == [("unknown-1", "unsupported")]
    machine.fail("hlml*", 1, 0)
    reader = start()
    ask(reader)
    machine.fail("hlml*", 1, 49)
    assert ask(reader).states == [(SECOND, "unsupported")]


def test_a_card_without_a_uuid_is_named_by_its_address(machine, start):
    """A card whose UUID cannot be read is identified by its bus address, and is read."""
    machine.fail("hlml_device_get_uuid", 1, 3)
    reader = start()
    assert [who.uuid for who in reader.identities] == [FIRST, "0000:43:00.0"]
    assert len(ask(reader).rows) == 2


def test_one_card_that_says_that_the_driver_is_gone_costs_only_itself(machine, start):
    """A card that reports an uninitialized driver is skipped if the other card still answers."""
    machine.fail("hlml_device_get_uuid", 0, 1)
    reader = start()
    assert [who.uuid for who in reader.identities] == [SECOND]
    assert [state for _, state in reader.unreadable] == ["unsupported"]
    machine.heal()
    reader = start()
    machine.fail("hlml_device_get_power_usage", 0, 1)
    answer = ask(reader)
    assert ([row[0] for row in answer.rows], answer.states) == ([SECOND], [(FIRST, "no_driver")])


def test_a_count_that_fails_for_the_moment_says_nothing(machine, start):
    """If counting the cards fails, the open cards are still read, but a new reader cannot open."""
    reader = start()
    machine.fail("hlml_device_get_count", None, 49)
    answer = ask(reader)
    assert (len(answer.rows), answer.is_current) == (2, True)
    assert start().gone == "hlmlDeviceGetCount failed with code 49"


def test_a_hostile_name_is_text(machine, start):
    """Bytes of a card's name that are not valid UTF-8 are replaced."""
    machine.hpu(0).name = b"HL-\xff325L"
    assert start().identities[0].model == "HL-\ufffd325L"


def test_a_driver_that_is_not_loaded_is_absent(machine, start):
    """A machine with the library but without a loaded driver has no driver."""
    machine.unload_driver("hpu")
    assert start().absent == "driver not loaded"


def test_a_driver_that_refuses_is_gone(machine, start):
    """An unexpected error of `hlml_init` is reported as a failure, not as an absent driver."""
    machine.fail("hlml_init", None, 49)
    assert start().gone == "hlmlInit failed with code 49"


def test_a_driver_that_is_unloaded_is_gone(machine, start):
    """An unloaded driver is recognized by either of the two HLML error codes."""
    for code, words in ((1, "HLML_ERROR_UNINITIALIZED"), (9, "HLML_ERROR_DRIVER_NOT_LOADED")):
        reader = start()
        ask(reader)
        machine.unload_driver("hpu", code)
        reader.ask(5.0, {})
        assert reader.take_answer(time.monotonic() + 10) is None
        assert words in (reader.gone or "")
        machine.load_driver("hpu")


def test_a_new_card_makes_the_reader_outdated(machine, start):
    """A reader is outdated as soon as the driver counts a new card."""
    machine.see_added_at_once("hpu")
    reader = start()
    assert ask(reader).is_current
    machine.add_hpu()
    assert not ask(reader).is_current


def test_the_library_is_found_through_the_loader(machine, start, tmp_path):
    """The library is found through `LD_LIBRARY_PATH`, although the binding uses a fixed path."""
    path = library_path("habana")
    own, plain = b"/usr/lib/habanalabs/libhlml.so\0", b"libhlml.so\0"
    library = path.read_bytes()
    assert library.count(own) == 1
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "libhlml.so").write_bytes(library.replace(own, plain.ljust(len(own), b"\0")))
    environ = {"FAKE_ACCELERATORS": str(machine.path), "LD_LIBRARY_PATH": str(folder)}
    assert [who.uuid for who in start(environ).identities] == [FIRST, SECOND]


def test_the_library_is_found_at_its_installed_path(machine, start):
    """The library is found at its installed path without `LD_LIBRARY_PATH`."""
    environ = {k: v for k, v in machine.environment().items() if k != "LD_LIBRARY_PATH"}
    assert [who.uuid for who in start(environ).identities] == [FIRST, SECOND]


@pytest.fixture
def without_binding(monkeypatch) -> None:
    """Hide all installed packages from child processes."""
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not p.endswith("-packages")])


def test_without_the_binding_it_says_what_to_install(start, without_binding):
    """Without the Python binding and hl-smi, the message names the package to install."""
    assert start().gone == ADVICE


def test_the_forerunner_of_the_binding_is_not_used(start, without_binding, monkeypatch, tmp_path):
    """The old package pyhlml, whose buffers are too small, is not imported as the binding."""
    package = tmp_path / "old/pyhlml"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def hlmlInit():\n    raise SystemExit(7)\n")
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    assert start().gone == ADVICE


def test_without_the_binding_hl_smi_is_used(machine, start, without_binding):
    """Without the Python binding, hl-smi is read, which reports fewer metrics in the same units."""
    path = f"{machine.hl_smi_directory()}:/usr/bin:/bin"
    reader = start({**machine.environment(), "PATH": path})
    machine.hpu(1).temperature = 71
    row = read(reader, SECOND)
    assert (row["temperature_core_celsius"], row["power_watts"]) == (71, 226)
    assert row["energy_joules_total"] is None


def test_with_neither_library_nor_command_it_is_absent(start):
    """A machine without libhlml.so and hl-smi has no driver, which is not an error."""
    reader = start({"PATH": "/nowhere"})
    assert reader.absent == "neither libhlml.so nor hl-smi is installed"


@pytest.mark.parametrize(
    ("text", "generation"),
    [("2.5GT/s", 1), ("16.0 GT/s PCIe", 4), ("32.0GT/s", 5), ("Unknown", None), ("", None)],
)
def test_a_link_speed_is_a_generation(text, generation):
    """A link speed is converted to a PCIe generation in the driver's and in the sysfs notation."""
    assert parse_link_speed(text) == generation


@pytest.mark.parametrize(("text", "lanes"), [("x16", 16), ("8", 8), ("x0", None), ("wide", None)])
def test_a_link_width_is_a_number_of_lanes(text, lanes):
    """A link width is parsed with or without the leading x."""
    assert parse_link_width(text) == lanes


def test_what_the_library_prints_reaches_nobody(start):
    """The standard output of the reader process is discarded, since the library prints messages."""
    assert Path(f"/proc/{start().pid}/fd/1").resolve() == Path("/dev/null")
