"""The series of Gaudi cards, read by a real exporter through HLML or through hl-smi alone."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.fakes.libraries import library_path
from tests.fakes.machine import FakeMachine
from tests.support.exporter_process import ExporterProcess, Page
from tests.support.waiting import wait_until

GIB = 1 << 30
SETTLED_SECONDS = 0.3  # the time after which an exporter reads the cards again
ALL = {str(index) for index in range(8)}
UUID = "01P4-HL3090A0-18-U4V193-03-07-00"
LABELS = {"kind": "hpu", "device": "3", "uuid": UUID}

Start = Callable[..., ExporterProcess]


class Machine(FakeMachine):
    """Eight Gaudi cards, whose driver is found through its library or through its command.

    Args:
        directory: The directory for the machine's files.
        variables: A function that returns the variables with which a machine's driver is found.
    """

    def __init__(self, directory: Path, variables: Callable[[FakeMachine], dict[str, str]]) -> None:
        super().__init__(directory, gpus=0, hpus=8)
        self._variables = variables

    def environment(self, vendors: object = None) -> dict[str, str]:  # noqa: ARG002 - the way to find the driver is fixed
        """Return the variables with which a process finds the driver."""
        return self._variables(self)


def by_library(machine: FakeMachine) -> dict[str, str]:
    """Return variables with which a process finds the library by the loader, but no command."""
    environ = FakeMachine.environment(machine)
    return {name: value for name, value in environ.items() if name != "LD_PRELOAD"}


def by_command(machine: FakeMachine) -> dict[str, str]:
    """Return variables with which a process finds hl-smi on the path, but no library."""
    return {"PATH": f"{machine.hl_smi_directory()}:{os.environ['PATH']}"}


@pytest.fixture(params=[by_library, by_command])
def machine(request, tmp_path) -> Iterator[Machine]:
    """A machine, once with the library and once with the command alone."""
    with Machine(tmp_path, request.param) as machine:
        yield machine


@pytest.fixture
def library_machine(tmp_path) -> Iterator[Machine]:
    """A machine with the library alone."""
    with Machine(tmp_path, by_library) as machine:
        yield machine


@pytest.fixture
def command_machine(tmp_path) -> Iterator[Machine]:
    """A machine with hl-smi alone."""
    with Machine(tmp_path, by_command) as machine:
        yield machine


@pytest.fixture
def start(tmp_path) -> Iterator[Start]:
    """Yield a function that starts exporters, which end with the test."""
    with ExitStack() as stack:

        def start(
            machine: FakeMachine, environ: Mapping[str, str] | None = None
        ) -> ExporterProcess:
            return stack.enter_context(ExporterProcess(tmp_path, machine, environ=environ))

        yield start


def up(page: Page) -> set[str]:
    """Return the devices that are up."""
    return {device for device, is_up in page.values("accelerator_up", "device").items() if is_up}


def states(page: Page) -> dict[str, str]:
    """Return the state of each device whose state is not `ok`."""
    found = {
        sample.labels["device"]: sample.labels["state"] for sample in page.find("accelerator_state")
    }
    return {device: state for device, state in found.items() if state != "ok"}


def load(machine: FakeMachine) -> None:
    """Set a load, memory use, power and a high temperature of the fourth card."""
    card = machine.hpu(3)
    card.utilization = 87
    card.memory_used_bytes = 96 * GIB
    card.temperature = 86
    card.power_milliwatts = 612_000


def test_the_five_hpu_names_and_the_schema_have_a_cards_numbers(machine, start):
    """A card's values appear under the `hpu_` names and, in base units, under the new names."""
    load(machine)
    page = start(machine).scrape_until(lambda page: up(page) == ALL)
    assert page.status == 200
    old = {"device": "3", "uuid": UUID}
    assert page.value("hpu_utilization_percent", **old) == 87.0
    assert page.value("hpu_memory_used_bytes", **old) == 103_079_215_104.0
    assert page.value("hpu_memory_total_bytes", **old) == 137_438_953_472.0
    assert page.value("hpu_temperature_celsius", **old) == 86.0
    assert page.value("hpu_power_watts", **old) == 612.0
    assert f'hpu_temperature_celsius{{device="3",uuid="{UUID}"}} 86.0\n' in page.text
    assert page.value("accelerator_utilization_ratio", **LABELS) == 0.87
    assert page.value("accelerator_memory_used_bytes", **LABELS) == 103_079_215_104.0
    assert page.value("accelerator_memory_total_bytes", **LABELS) == 137_438_953_472.0
    assert page.value("accelerator_memory_free_bytes", **LABELS) == 34_359_738_368.0
    assert page.value("accelerator_temperature_celsius", sensor="core", **LABELS) == 86.0
    assert page.value("accelerator_power_watts", **LABELS) == 612.0
    assert page.value("accelerator_power_limit_watts", **LABELS) == 850.0
    assert page.value("accelerator_clock_hertz", clock="core", **LABELS) == 1.6e9
    assert page.value("accelerator_pcie_link_width", **LABELS) == 16.0
    assert page.value("accelerator_ecc_uncorrected_errors_total", **LABELS) == 0.0
    assert page.value("accelerator_devices", kind="hpu") == 8.0
    assert page.value("trainvitals_collector_success", collector="accelerator") == 1.0
    (info,) = page.find("accelerator_info", **LABELS)
    assert info.labels["model"] == "HL-325L"
    assert info.labels["bus_id"] == "0000:61:00.0"
    assert info.labels["driver"] == "1.22.1-97ec1a4"


def test_what_a_card_does_not_report_is_not_on_the_page(machine, start):
    """A value that a card does not report is absent, instead of zero, under both names."""
    machine.hpu(3).power_milliwatts = None
    machine.hpu(3).temperature = None
    page = start(machine).scrape_until(lambda page: up(page) == ALL)
    assert page.find("hpu_power_watts", device="3") == []
    assert page.find("hpu_temperature_celsius", device="3") == []
    assert page.find("accelerator_temperature_celsius", device="3", sensor="core") == []
    assert page.find("accelerator_temperature_celsius", sensor="memory") == []
    assert len(page.find("hpu_power_watts")) == 7


def test_only_the_library_counts_energy_and_throttling(library_machine, start):
    """Through the library, energy and throttling are exact counters, which hl-smi does not have."""
    card = library_machine.hpu(3)
    card.energy_millijoules = 5_000_000
    card.throttle("thermal", 0.5)
    library_machine.stop_clock()
    exporter = start(library_machine)
    page = exporter.scrape_until(lambda page: up(page) == ALL)
    assert page.value("accelerator_energy_joules_total", **LABELS) >= 5000.0
    assert page.value("accelerator_temperature_slowdown_celsius", **LABELS) == 90.0
    assert page.value("accelerator_temperature_headroom_celsius", **LABELS) == 54.0
    before = page.value("accelerator_throttle_seconds_total", reason="hw_thermal", **LABELS)
    library_machine.advance(2.0)
    time.sleep(SETTLED_SECONDS)
    after = exporter.scrape_until(lambda page: up(page) == ALL)
    throttled = after.value("accelerator_throttle_seconds_total", reason="hw_thermal", **LABELS)
    assert throttled - before == pytest.approx(1.0)


def test_one_hung_card_leaves_seven(library_machine, start):
    """While a driver call about one card hangs, the other seven are read without a wait."""
    load(library_machine)
    exporter = start(library_machine)
    exporter.scrape_until(lambda page: up(page) == ALL)
    library_machine.hang("hlml_device_get_temperature", 5)
    for _ in range(2):
        time.sleep(SETTLED_SECONDS)
        assert exporter.scrape(timeout=50.0).seconds < 20
    page = exporter.scrape_until(lambda page: up(page) == ALL - {"5"})
    assert states(page) == {"5": "hung"}
    assert page.find("hpu_temperature_celsius", device="5") == []
    assert page.value("hpu_temperature_celsius", device="3") == 86.0
    library_machine.heal()
    exporter.scrape_until(lambda page: up(page) == ALL)


def test_a_lost_card_is_lost_alone_and_comes_back(machine, start):
    """Only the lost card is reported as lost, and it returns without a restart of the exporter."""
    exporter = start(machine)
    exporter.scrape_until(lambda page: up(page) == ALL)
    machine.lose(6, "hpu")
    page = exporter.scrape_until(lambda page: up(page) == ALL - {"6"})
    assert states(page) == {"6": "lost"}
    machine.restore(6, "hpu")
    exporter.scrape_until(lambda page: up(page) == ALL)


def test_a_reloaded_driver_is_taken_up(machine, start):
    """Counters continue after a reload of the driver, whose own counters start from zero."""
    for index in range(8):
        machine.hpu(index).corrected_volatile_errors = 7
    exporter = start(machine)
    before = exporter.scrape_until(lambda page: up(page) == ALL)
    assert before.value("accelerator_ecc_corrected_errors_total", **LABELS) == 7.0
    machine.unload_driver("hpu")
    page = exporter.scrape_until(lambda page: set(states(page).values()) == {"no_driver"})
    assert up(page) == set()
    assert page.status == 200
    machine.load_driver("hpu")
    machine.hpu(3).corrected_volatile_errors = 2
    after = exporter.scrape_until(lambda page: up(page) == ALL, seconds=30.0)
    assert after.value("accelerator_ecc_corrected_errors_total", **LABELS) == 9.0
    joules = after.value("accelerator_energy_joules_total", **LABELS)
    assert joules is None or joules >= before.value("accelerator_energy_joules_total", **LABELS)


def test_a_new_card_is_shown(machine, start):
    """A ninth card appears on the page once the driver reports it."""
    machine.see_added_at_once("hpu")
    exporter = start(machine)
    exporter.scrape_until(lambda page: up(page) == ALL)
    machine.add_hpu()
    exporter.scrape_until(lambda page: up(page) == ALL | {"8"})


def commands_of(machine: FakeMachine) -> list[psutil.Process]:
    """Return the running processes of the fake hl-smi that read this machine."""
    wanted = str(machine.path)
    return [
        process
        for process in psutil.process_iter(["cmdline", "environ"])
        if any("fakes/hl-smi" in part for part in process.info["cmdline"] or ())
        and (process.info["environ"] or {}).get("FAKE_ACCELERATORS") == wanted
    ]


def test_a_hung_command_is_never_run_twice(command_machine, start):
    """While hl-smi hangs, a single process of it runs, and pages show all cards as not `ok`."""
    exporter = start(command_machine)
    exporter.scrape_until(lambda page: up(page) == ALL)
    command_machine.hang("hl-smi")
    exporter.scrape_until(lambda page: set(states(page).values()) == {"hung"})
    for _ in range(3):
        time.sleep(SETTLED_SECONDS)
        page = exporter.scrape("accelerator", timeout=1.5)
        assert page.status == 200
        assert set(states(page)) == ALL
        assert len(commands_of(command_machine)) == 1
    command_machine.heal()
    exporter.scrape_until(lambda page: up(page) == ALL)


def test_a_hung_command_ends_with_the_exporter(command_machine, start):
    """A hung hl-smi process ends with the exporter."""
    exporter = start(command_machine)
    exporter.scrape_until(lambda page: up(page) == ALL)
    command_machine.hang("hl-smi")
    exporter.scrape_until(lambda page: set(states(page).values()) == {"hung"})
    assert len(commands_of(command_machine)) == 1
    exporter.end()
    wait_until(lambda: not commands_of(command_machine))


LEAK = """
#include <stdlib.h>
#include <string.h>
#include <dlfcn.h>
int hlml_device_get_temperature(void *device, unsigned sensor, unsigned *celsius)
{
    static int (*real)(void *, unsigned, unsigned *);
    if (!real)
        real = (int (*)(void *, unsigned, unsigned *))dlsym(RTLD_NEXT, "hlml_device_get_temperature");
    memset(malloc(2 << 20), 1, 2 << 20);
    return real(device, sensor, celsius);
}
"""


def build_leaking_library(folder: Path) -> dict[str, str]:
    """Build a library that leaks 2 MiB at each temperature reading, and return its variables."""
    folder.mkdir()
    (folder / "leak.c").write_text(LEAK)
    fake = library_path("habana")
    command = ["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", "libhlml.so", "leak.c"]
    command += ["-Wl,--no-as-needed", str(fake)]
    subprocess.run(command, cwd=folder, check=True)
    return {"LD_LIBRARY_PATH": str(folder), "LD_PRELOAD": str(fake)}


def test_a_reader_whose_library_leaks_is_replaced(library_machine, start, tmp_path):
    """A reader whose library leaks memory is replaced, and every page meanwhile has all cards."""
    exporter = start(library_machine, build_leaking_library(tmp_path / "leak"))
    exporter.scrape_until(lambda page: up(page) == ALL)
    (first,) = exporter.children()
    for _ in range(12):
        exporter.scrape_until(lambda page: up(page) == ALL, "accelerator")
        time.sleep(SETTLED_SECONDS)
        children = exporter.children()
        assert sum(child.memory_info().rss for child in children) < 190 << 20
    assert first.pid not in [child.pid for child in children]
