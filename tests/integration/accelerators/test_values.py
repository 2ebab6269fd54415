"""The series of NVIDIA GPUs, which have the driver's values in base units."""

from __future__ import annotations

import time

import pytest

from tests.fakes.machine import FakeMachine
from tests.integration.accelerators.scene import (
    BUSY,
    LAST_SEEN,
    MIB,
    UUID_OF_3,
    is_whole,
    names_of,
    scrape,
    scrape_until,
    success,
)
from tests.support.exporter_process import ExporterProcess, Page
from tests.support.waiting import wait_until

INFO = (
    ("bus_id", "00000000:61:00.0"),
    ("driver", "570.124.06"),
    ("firmware", "96.00.99.00.01"),
    ("model", "NVIDIA H100 80GB HBM3"),
)
THROTTLED_SECONDS = {
    "sw_power_cap": 0.5,
    "sync_boost": 1.25,
    "board_limit": 0.0,
    "reliability": 2.0,
    "sw_thermal": 3.5,
    "hw_thermal": 0.25,
    "hw_power_brake": 4.0,
}


def set_everything(machine: FakeMachine) -> None:
    """Set every value of the fourth GPU."""
    gpu = machine.gpu(3)
    gpu.constant_load(37)
    gpu.memory_utilization = 12
    gpu.encoder_utilization, gpu.decoder_utilization = 3, 4
    gpu.memory_used_bytes = 70_000 * MIB
    gpu.temperature, gpu.memory_temperature = 61, 73
    gpu.power_milliwatts = 612_345
    gpu.power_limit_milliwatts = 650_000
    gpu.energy_millijoules = 123_456_789
    gpu.sm_clock, gpu.memory_clock = 1755, 2619
    gpu.throttle_reasons = 0x4 | 0x40
    gpu.power_cap_nanoseconds = 500_000_000
    gpu.sync_boost_nanoseconds = 1_250_000_000
    gpu.board_limit_nanoseconds = 0
    gpu.reliability_nanoseconds = 2_000_000_000
    gpu.software_thermal_nanoseconds = 3_500_000_000
    gpu.hardware_thermal_nanoseconds = 250_000_000
    gpu.power_brake_nanoseconds = 4_000_000_000
    gpu.corrected_volatile_errors, gpu.uncorrected_volatile_errors = 11, 2
    gpu.corrected_remapped_rows, gpu.uncorrected_remapped_rows = 5, 6
    gpu.remapping_pending, gpu.remapping_failed = 1, 1
    gpu.recovery_action = 4
    gpu.pcie_generation, gpu.pcie_width, gpu.pcie_replays = 4, 8, 9
    gpu.nvlink_transmit_kib, gpu.nvlink_receive_kib = 3_000_000_000, 1_000_000_000
    gpu.nvlink_crc_flit_errors, gpu.nvlink_crc_data_errors = 21, 22
    gpu.nvlink_replay_errors, gpu.nvlink_recovery_errors = 23, 24
    gpu.nvlink_down_mask = 0b101
    gpu.performance_state = 2
    machine.processes(3, [(4711, 2 * MIB)])


HOLDERS = "accelerator_process_info"


def is_read(page: Page) -> bool:
    """Return whether every accelerator was read."""
    return success(page) == 1


def test_every_value_is_the_drivers_in_base_units(scene):
    """A GPU has exactly the expected series, each with the driver's value in base units."""
    scene.machine.stop_clock()
    set_everything(scene.machine)
    before = time.time()
    page = scrape_until(scene.start(), is_read)
    common = {"kind": "gpu", "device": "3", "uuid": UUID_OF_3}
    series = {
        (sample.name, *sorted(sample.labels.items() - common.items())): sample.value
        for sample in page.find(device="3")
        if sample.name != HOLDERS  # depends on whether this machine has such a process
    }
    assert page.values(HOLDERS, "pid", device="3") == {"4711": 1}
    last_seen = series.pop((LAST_SEEN,))
    assert before <= last_seen <= time.time()
    assert series == {
        ("accelerator_info", *INFO): 1,
        ("accelerator_up",): 1,
        ("accelerator_state", ("state", "ok")): 1,
        ("accelerator_utilization_ratio",): 0.37,
        ("accelerator_memory_utilization_ratio",): 0.12,
        ("accelerator_busy_seconds_total",): 0,
        ("accelerator_busy_unobserved_seconds_total",): 0,
        ("accelerator_memory_total_bytes",): 85_520_809_984,
        ("accelerator_memory_used_bytes",): 73_400_320_000,
        ("accelerator_memory_reserved_bytes",): 577_765_376,
        ("accelerator_memory_free_bytes",): 11_542_724_608,
        ("accelerator_temperature_celsius", ("sensor", "core")): 61,
        ("accelerator_temperature_celsius", ("sensor", "memory")): 73,
        ("accelerator_temperature_slowdown_celsius",): 87,
        # 26 below the target of 87, and the hardware slows down 2 above the target
        ("accelerator_temperature_headroom_celsius",): 28,
        ("accelerator_power_watts",): 612.345,
        ("accelerator_power_limit_watts",): 650,
        ("accelerator_energy_joules_total",): 123_456.789,
        ("accelerator_clock_hertz", ("clock", "core")): 1_755_000_000,
        ("accelerator_clock_hertz", ("clock", "memory")): 2_619_000_000,
        ("accelerator_clock_max_hertz", ("clock", "core")): 1_980_000_000,
        ("accelerator_clock_max_hertz", ("clock", "memory")): 2_619_000_000,
        ("accelerator_throttle_active", ("reason", "sw_power_cap")): 1,
        ("accelerator_throttle_active", ("reason", "sw_thermal")): 0,
        ("accelerator_throttle_active", ("reason", "hw_thermal")): 1,
        ("accelerator_throttle_active", ("reason", "hw_power_brake")): 0,
        ("accelerator_throttle_active", ("reason", "hw_slowdown")): 0,
        **{
            ("accelerator_throttle_seconds_total", ("reason", reason)): seconds
            for reason, seconds in THROTTLED_SECONDS.items()
        },
        ("accelerator_ecc_corrected_errors_total",): 11,
        ("accelerator_ecc_uncorrected_errors_total",): 2,
        ("accelerator_row_remap_pending",): 1,
        ("accelerator_row_remap_failed",): 1,
        ("accelerator_remapped_rows", ("cause", "corrected")): 5,
        ("accelerator_remapped_rows", ("cause", "uncorrected")): 6,
        ("accelerator_recovery_action",): 4,
        ("accelerator_pcie_link_generation",): 4,
        ("accelerator_pcie_link_generation_max",): 5,
        ("accelerator_pcie_link_width",): 8,
        ("accelerator_pcie_link_width_max",): 16,
        ("accelerator_pcie_replays_total",): 9,
        ("accelerator_links_active",): 16,
        ("accelerator_links_expected",): 16,
        ("accelerator_link_bytes_total", ("direction", "receive")): 1_024_000_000_000,
        ("accelerator_link_bytes_total", ("direction", "transmit")): 3_072_000_000_000,
        ("accelerator_link_errors_total", ("type", "crc_flit")): 21,
        ("accelerator_link_errors_total", ("type", "crc_data")): 22,
        ("accelerator_link_errors_total", ("type", "replay")): 23,
        ("accelerator_link_errors_total", ("type", "recovery")): 24,
        ("accelerator_encoder_utilization_ratio",): 0.03,
        ("accelerator_decoder_utilization_ratio",): 0.04,
        ("accelerator_performance_state",): 2,
        ("accelerator_processes",): 1,
        ("accelerator_process_memory_used_bytes", ("pid", "4711")): 2_097_152,
        ("accelerator_process_utilization_ratio", ("pid", "4711")): 0,
        ("gpu_utilization_percent",): 37,
        ("gpu_memory_used_bytes",): 73_400_320_000,
        ("gpu_memory_total_bytes",): 85_520_809_984,
        ("gpu_temperature_celsius",): 61,
        ("gpu_power_watts",): 612.345,
    }
    assert page.values("accelerator_devices", "kind") == {"gpu": 8, "hpu": 0}
    assert success(page) == 1


def test_both_kinds_of_reader_agree(scene):
    """A reader in a process has the same series as a reader on a thread."""
    scene.machine.stop_clock()
    set_everything(scene.machine)
    one, other = [
        [
            (sample.name, sample.labels, sample.value)
            for sample in scrape_until(exporter, is_read).find(kind="gpu")
            if sample.name != LAST_SEEN
        ]
        for exporter in scene.start_both()
    ]
    assert one == other


def test_counters_follow_the_driver(scene):
    """Energy, throttling and busy time grow with the time on the driver's clock."""
    machine = scene.machine
    machine.stop_clock()
    gpu = machine.gpu(0)
    gpu.power_milliwatts = 400_000
    gpu.throttle("hw_thermal", 0.5)
    gpu.constant_load(80)
    exporter = scene.start()
    before = scrape_until(exporter, is_read)
    machine.advance(10.0)
    after = scrape_until(exporter, is_read)

    def growth(name: str, **labels: str) -> float:
        then, now = (page.value(name, device="0", **labels) for page in (before, after))
        return now - then

    assert growth("accelerator_energy_joules_total") == pytest.approx(4000, abs=0.01)
    assert growth("accelerator_throttle_seconds_total", reason="hw_thermal") == pytest.approx(5)
    # Whole sample periods of 1/6 s are counted: between 59 and 61 of them.
    assert growth(BUSY) == pytest.approx(8.0, abs=0.14)
    assert growth("accelerator_busy_unobserved_seconds_total") == 0


def test_what_a_model_does_not_report_is_absent(tmp_path):
    """A GeForce has a series for its fan, none for ECC or NVLink, and a headroom of 92 - 34 °C."""
    pages = {}
    for model in ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090"):
        directory = tmp_path / model
        directory.mkdir()
        with (
            FakeMachine(directory, gpus=1, model=model) as machine,
            ExporterProcess(directory, machine) as exporter,
        ):
            pages[model] = [scrape_until(exporter, is_read) for _ in range(2)]
    (h100, _), (a100, _), (geforce, again) = pages.values()
    assert h100.value("accelerator_temperature_headroom_celsius") == 55
    assert a100.value("accelerator_temperature_headroom_celsius") == 53
    assert geforce.value("accelerator_temperature_headroom_celsius") == 58
    assert names_of(a100, "0") == names_of(h100, "0")
    assert names_of(h100, "0") - names_of(geforce, "0") == {
        "accelerator_ecc_corrected_errors_total",
        "accelerator_ecc_uncorrected_errors_total",
        "accelerator_link_bytes_total",
        "accelerator_link_errors_total",
        "accelerator_links_active",
        "accelerator_links_expected",
        "accelerator_remapped_rows",
        "accelerator_row_remap_failed",
        "accelerator_row_remap_pending",
    }
    assert names_of(geforce, "0") - names_of(h100, "0") == {"accelerator_fan_speed_ratio"}
    assert geforce.value("accelerator_fan_speed_ratio") == 0.3
    assert names_of(again, "0") == names_of(geforce, "0")


def test_processes_are_bounded_and_what_was_left_out_is_counted(scene):
    """The eight largest processes of each GPU are shown, and the omitted ones are counted."""
    scene.machine.processes(0, [(100 + n, n * MIB) for n in range(1, 12)] + [(99, -1)])
    scene.machine.processes(1, [(500, MIB)])
    page = scrape_until(scene.start(), is_read)
    name = "accelerator_process_memory_used_bytes"
    assert page.values(name, "pid", device="0") == {
        "111": 11 * MIB,
        "110": 10 * MIB,
        "109": 9 * MIB,
        "108": 8 * MIB,
        "107": 7 * MIB,
        "106": 6 * MIB,
        "105": 5 * MIB,
        "104": 4 * MIB,
    }
    assert page.values(name, "pid", device="1") == {"500": MIB}
    assert page.value("accelerator_processes", device="0") == 12
    assert page.value("trainvitals_collector_omitted_labels", collector="accelerator") == 4


def test_expected_accelerators_are_shown_and_missed_by_readiness(scene):
    """`--accelerators.expected` has a series, and `/ready` returns 503 while a GPU is missing."""
    exporter = scene.start("--accelerators.expected=gpu=8")
    page = exporter.scrape_until(is_whole)
    assert page.values("accelerator_devices_expected", "kind") == {"gpu": 8}
    wait_until(lambda: exporter.get("/ready").status == 200)
    scene.machine.lose(4)
    wait_until(lambda: exporter.get("/ready").status == 503)


def test_the_limits_of_flags_go_before_those_of_the_environment(tmp_path):
    """The series of a limit has the flag's value or, without a flag, that of the environment."""
    names = ("accelerator_memory_limit_bytes", "accelerator_temperature_limit_celsius")
    flags = ("--accelerators.memory-limit=7.5GB", "--accelerators.temperature-limit=82.5")
    environ = {"ACCELERATOR_MEMORY_LIMIT": "40GiB", "ACCELERATOR_TEMPERATURE_LIMIT": "80"}
    limits = []
    for arguments in ((), flags):
        with ExporterProcess(tmp_path, arguments=arguments, environ=environ) as exporter:
            page = exporter.scrape()
            limits.append(tuple(page.value(name) for name in names))
    assert limits == [(42_949_672_960, 80), (7_500_000_000, 82.5)]


def test_a_machine_without_accelerators_is_quiet_and_healthy(tmp_path):
    """Without accelerators, there are counts of 0, one line in the log and no reader process."""
    with ExporterProcess(tmp_path) as exporter:
        pages = [scrape(exporter) for _ in range(3)]
        assert exporter.children() == []
        log = exporter.log
    for page in pages:
        assert page.values("accelerator_devices", "kind") == {"gpu": 0, "hpu": 0}
        names = {name for name in page.families if name.startswith(("accelerator", "gpu", "hpu"))}
        assert names == {"accelerator_devices"}
        assert success(page) == 1
    assert log.count("no accelerator driver found") == 1
    assert "nvidia" not in log
    assert "warning" not in log


def test_a_library_without_a_driver_is_quiet_and_not_opened_again_and_again(scene):
    """A library without a driver is opened once in several scrapes, and logged in one line."""
    scene.machine.unload_driver()
    exporters = scene.start_both()
    for exporter in exporters * 3:
        page = scrape(exporter)
        assert page.find("accelerator_up") == []
        assert success(page) == 1
    assert scene.machine.calls("nvmlInit") == 2
    for exporter in exporters:
        assert exporter.log.count("no accelerator driver found") == 1
        assert exporter.children() == []
