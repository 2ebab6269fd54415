"""Tests for the fake NVML library with the real pynvml binding."""

import time

import pytest

from tests.fakes.console import Console
from tests.fakes.machine import FakeMachine

FIELD = "(lambda v: [v.nvmlReturn, v.valueType, {}])(nvml.nvmlDeviceGetFieldValues(gpu, [{}])[0])"
SAMPLES = (
    "[[s.timeStamp, s.sampleValue.uiVal]"
    " for s in nvml.nvmlDeviceGetSamples(gpu, nvml.NVML_GPU_UTILIZATION_SAMPLES, {})[1]]"
)
MEGABYTE = 1 << 20


def field(console, number, member="v.value.ullVal"):
    """Return the error code, the type and the value of one field."""
    return console(FIELD.format(member, number))


# -- identity and gauges ---------------------------------------------------------------------------


def test_each_gpu_has_an_identity_of_its_own(console):
    """The binding returns the names, UUIDs, bus ids and versions of the fake machine."""
    assert console("nvml.nvmlDeviceGetCount()") == 2
    assert console("nvml.nvmlSystemGetDriverVersion()") == "570.124.06"
    assert console("nvml.nvmlSystemGetNVMLVersion()") == "12.570.124.06"
    assert console("nvml.nvmlSystemGetCudaDriverVersion()") == 12080
    assert console("nvml.nvmlDeviceGetName(gpu)") == "NVIDIA H100 80GB HBM3"
    assert console("nvml.nvmlDeviceGetUUID(gpu)") == "GPU-00000000-5e1f-4d3a-9c07-0000a0000000"
    assert console("nvml.nvmlDeviceGetSerial(gpu)") == "1650324000000"
    assert console("nvml.nvmlDeviceGetVbiosVersion(gpu)") == "96.00.99.00.01"
    assert console("nvml.nvmlDeviceGetCudaComputeCapability(gpu)") == [9, 0]
    assert console("nvml.nvmlDeviceGetArchitecture(gpu)") == 9
    console("pci = nvml.nvmlDeviceGetPciInfo(nvml.nvmlDeviceGetHandleByIndex(1))")
    assert console("[pci.busId, pci.busIdLegacy, pci.bus]") == [
        "00000000:43:00.0",
        "0000:43:00.0",
        0x43,
    ]
    assert console("hex(pci.pciDeviceId)") == "0x233010de"


def test_a_gpu_is_found_by_index_uuid_and_bus_id(console):
    """A GPU is found by index, UUID or bus id, and an unknown GPU is an error."""
    find = "nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleBy{})"
    assert console(find.format("Index(1)")) == 1
    assert console(find.format("UUID(b'GPU-00000001-5e1f-4d3a-9c07-0000a0000001')")) == 1
    assert console(find.format("PciBusId(b'0000:43:00.0')")) == 1
    assert console.code_of("nvml.nvmlDeviceGetHandleByIndex(2)") == 2
    assert console.code_of("nvml.nvmlDeviceGetHandleByUUID(b'GPU-none')") == 6
    assert console.code_of("nvml.nvmlDeviceGetName(None)") == 2


def test_a_change_is_seen_by_the_next_call_of_every_process(machine, console, open_console):
    """A change of a value is visible to the next call of every running process."""
    other = open_console()
    machine.gpu(0).temperature = 91
    machine.gpu(0).name = "GPU of the day"
    for process in (console, other):
        assert process("nvml.nvmlDeviceGetTemperature(gpu, 0)") == 91
        assert process("nvml.nvmlDeviceGetName(gpu)") == "GPU of the day"


def test_memory_version_two_leaves_the_reserved_part_out_of_used(machine, console):
    """Version 1 counts reserved bytes as used, version 2 does not; both add up to the total."""
    machine.gpu(0).memory_used_bytes = 1000 * MEGABYTE
    console("one = nvml.nvmlDeviceGetMemoryInfo(gpu)")
    console("two = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)")
    assert console("[x >> 20 for x in (one.total, one.used, one.free)]") == [81559, 1551, 80008]
    assert console("[x >> 20 for x in (two.total, two.reserved, two.used, two.free)]") == [
        81559,
        551,
        1000,
        80008,
    ]


def test_a_structure_of_another_version_is_refused(console):
    """An unknown version of a structure is refused with ARGUMENT_VERSION_MISMATCH."""
    assert console.code_of("nvml.nvmlDeviceGetMemoryInfo(gpu, version=1)") == 25
    console("from ctypes import byref")
    console("margin = nvml.c_nvmlMarginTemperature_v1_t(); margin.version = 7")
    assert console("nvml.nvmlLib.nvmlDeviceGetMarginTemperature(gpu, byref(margin))") == 25
    console("heat = nvml.c_nvmlTemperature_v1_t(); heat.version = 7")
    assert console("nvml.nvmlLib.nvmlDeviceGetTemperatureV(gpu, byref(heat))") == 25


GAUGES = {
    "GetUtilizationRates(gpu).gpu": ("utilization", 63, 63),
    "GetUtilizationRates(gpu).memory": ("memory_utilization", 41, 41),
    "GetEncoderUtilization(gpu)": ("encoder_utilization", 7, [7, 166667]),
    "GetDecoderUtilization(gpu)": ("decoder_utilization", 8, [8, 166667]),
    "GetPowerUsage(gpu)": ("power_milliwatts", 512_345, 512_345),
    "GetEnforcedPowerLimit(gpu)": ("power_limit_milliwatts", 600_000, 600_000),
    "GetPowerManagementLimit(gpu)": ("power_limit_milliwatts", 600_000, 600_000),
    "GetPowerManagementDefaultLimit(gpu)": ("default_power_limit_milliwatts", 1, 1),
    "GetPowerManagementLimitConstraints(gpu)": ("minimum_power_limit_milliwatts", 3, [3, 700_000]),
    "GetTemperatureV(gpu, 0)": ("temperature", 77, 77),
    "GetTemperatureThreshold(gpu, 0)": ("shutdown_threshold", 99, 99),
    "GetTemperatureThreshold(gpu, 1)": ("slowdown_threshold", 98, 98),
    "GetTemperatureThreshold(gpu, 2)": ("memory_maximum_threshold", 97, 97),
    "GetTemperatureThreshold(gpu, 3)": ("maximum_operating_threshold", 96, 96),
    "GetMarginTemperature(gpu)": ("temperature", 90, -3),
    "GetPerformanceState(gpu)": ("performance_state", 2, 2),
    "GetClockInfo(gpu, 0)": ("graphics_clock", 1000, 1000),
    "GetClockInfo(gpu, 1)": ("sm_clock", 1001, 1001),
    "GetClockInfo(gpu, 2)": ("memory_clock", 1002, 1002),
    "GetClockInfo(gpu, 3)": ("video_clock", 1003, 1003),
    "GetMaxClockInfo(gpu, 1)": ("maximum_sm_clock", 2001, 2001),
    "GetApplicationsClock(gpu, 2)": ("maximum_memory_clock", 2002, 2002),
    "GetCurrentClocksThrottleReasons(gpu)": ("throttle_reasons", 0x24, 0x24),
    "GetCurrentClocksEventReasons(gpu)": ("throttle_reasons", 0x40, 0x40),
    "GetSupportedClocksThrottleReasons(gpu)": ("supported_throttle_reasons", 0xFF, 0xFF),
    "GetPersistenceMode(gpu)": ("persistence_mode", 0, 0),
    "GetCurrPcieLinkGeneration(gpu)": ("pcie_generation", 3, 3),
    "GetMaxPcieLinkGeneration(gpu)": ("maximum_pcie_generation", 4, 4),
    "GetCurrPcieLinkWidth(gpu)": ("pcie_width", 8, 8),
    "GetMaxPcieLinkWidth(gpu)": ("maximum_pcie_width", 4, 4),
    "GetPcieReplayCounter(gpu)": ("pcie_replays", 12, 12),
    "GetEccMode(gpu)": ("ecc_pending", 0, [1, 0]),
    "GetTotalEccErrors(gpu, 0, 0)": ("corrected_volatile_errors", 5, 5),
    "GetTotalEccErrors(gpu, 1, 0)": ("uncorrected_volatile_errors", 6, 6),
    "GetTotalEccErrors(gpu, 0, 1)": ("corrected_aggregate_errors", 7, 7),
    "GetTotalEccErrors(gpu, 1, 1)": ("uncorrected_aggregate_errors", 8, 8),
    "GetMemoryErrorCounter(gpu, 1, 1, 2)": ("uncorrected_aggregate_errors", 8, 8),
    "GetRemappedRows(gpu)": ("uncorrected_remapped_rows", 2, [0, 2, 0, 0]),
    "GetRetiredPages(gpu, 1)": ("uncorrected_retired_pages", 2, [65536, 131072]),
    "GetRetiredPagesPendingStatus(gpu)": ("retirement_pending", 1, 1),
    "GetNvLinkState(gpu, 2)": ("nvlink_down_mask", 0b100, 0),
    "GetNvLinkState(gpu, 3)": ("nvlink_down_mask", 0b100, 1),
    "GetNvLinkVersion(gpu, 0)": ("nvlink_version", 5, 5),
    "GetNvLinkErrorCounter(gpu, 0, 0)": ("nvlink_replay_errors", 37, 3),
    "GetComputeMode(gpu)": ("compute_mode", 3, 3),
    "GetDisplayActive(gpu)": ("display_active", 1, 1),
    "GetDisplayMode(gpu)": ("display_mode", 1, 1),
    "GetMigMode(gpu)": ("mig_mode", 1, [1, 1]),
    "GetAccountingMode(gpu)": ("accounting_mode", 1, 1),
    "GetMinorNumber(gpu)": ("minor_number", 4, 4),
    "GetBrand(gpu)": ("brand", 5, 5),
}


def test_gauges_answer_what_is_set(machine, console):
    """Each call of the binding returns the attribute that was set on the fake GPU."""
    for call, (attribute, value, expected) in GAUGES.items():
        gpu = machine.gpu(0)
        before = getattr(gpu, attribute)
        setattr(gpu, attribute, value)
        assert console(f"nvml.nvmlDevice{call}") == expected, call
        setattr(gpu, attribute, before)


def test_what_is_none_is_not_supported(machine, console):
    """The call for an attribute that is None returns NOT_SUPPORTED."""
    gpu = machine.gpu(0)
    gpu.slowdown_threshold = gpu.ecc_enabled = gpu.energy_millijoules = gpu.mig_mode = None
    gpu.memory_temperature = gpu.power_milliwatts = gpu.target_temperature = None
    for call in (
        "TemperatureThreshold(gpu, 1)",
        "EccMode(gpu)",
        "TotalEccErrors(gpu, 0, 0)",
        "TotalEnergyConsumption(gpu)",
        "MigMode(gpu)",
        "PowerUsage(gpu)",
        "MarginTemperature(gpu)",
        "FanSpeed(gpu)",
        "FanSpeed_v2(gpu, 0)",
        "NvLinkUtilizationCounter(gpu, 0, 0)",
    ):
        assert console.code_of(f"nvml.nvmlDeviceGet{call}") == 3, call
    assert field(console, 82) == [3, 1, 0]
    assert field(console, 83)[0] == 3


def test_a_consumer_card_lacks_what_a_consumer_card_lacks(tmp_path):
    """A fake RTX 4090 has fans, but no ECC, NVLink, MIG, serial number or memory sensor."""
    machine = FakeMachine(tmp_path, gpus=1, model="NVIDIA GeForce RTX 4090")
    with Console(machine) as console:
        console("nvml.nvmlInit(); gpu = nvml.nvmlDeviceGetHandleByIndex(0)")
        assert console("nvml.nvmlDeviceGetFanSpeed_v2(gpu, 2)") == 30
        assert console("nvml.nvmlDeviceGetNumFans(gpu)") == 3
        assert console("nvml.nvmlDeviceGetMemoryInfo(gpu).total >> 20") == 24564
        for call in ("EccMode(gpu)", "NvLinkState(gpu, 0)", "MigMode(gpu)", "Serial(gpu)"):
            assert console.code_of(f"nvml.nvmlDeviceGet{call}") == 3, call
        assert field(console, 82)[0] == 3
        assert field(console, 138)[0] == 3


def test_a_call_that_measures_takes_its_time(machine, console):
    """The call for the PCIe throughput takes 20 ms and returns the byte counter's rate in KB/s."""
    machine.gpu(0).grow("pcie_transmit_bytes", per_second=2048_000)
    begin = time.monotonic()
    assert console("nvml.nvmlDeviceGetPcieThroughput(gpu, 0)") == 2000
    assert time.monotonic() - begin >= 0.02


def test_processes_come_with_their_memory(machine, console):
    """Processes are listed with their memory, which is None if unknown; the list may be empty."""
    ask = "[[p.pid, p.usedGpuMemory] for p in nvml.nvmlDeviceGet{}RunningProcesses(gpu)]"
    assert console(ask.format("Compute")) == []
    machine.processes(0, [(101, 5 * MEGABYTE), (102, -1), (103, 7)])
    assert console(ask.format("Compute")) == [[101, 5 * MEGABYTE], [102, None], [103, 7]]
    assert console(ask.format("Graphics")) == []
    machine.gpu(0).set_processes([(104, 9)], kind=1, sm_percent=55)
    assert console(ask.format("Compute")) == []
    assert console(ask.format("Graphics")) == [[104, 9]]
    assert console("[[s.pid, s.smUtil] for s in nvml.nvmlDeviceGetProcessUtilization(gpu, 0)]") == [
        [104, 55]
    ]
    assert console.code_of("nvml.nvmlDeviceGetProcessUtilization(gpu, 1 << 62)") == 6


def test_older_versions_of_the_process_lists_have_their_own_entries(machine, console):
    """Version 2 of the process lists has entries of 24 bytes, version 1 entries of 16 bytes."""
    expected = [[101, 5 * MEGABYTE], [102, 6 * MEGABYTE]]
    console("from ctypes import byref, c_uint, create_string_buffer; import struct")
    for kind, name in enumerate(("Compute", "Graphics", "MPSCompute")):
        machine.gpu(0).set_processes([tuple(pair) for pair in expected], kind=kind)
        function = f"nvml.nvmlDeviceGet{name}RunningProcesses"
        assert console(f"[[p.pid, p.usedGpuMemory] for p in {function}_v2(gpu)]") == expected
        console("count, data = c_uint(2), create_string_buffer(32)")
        call = function.replace("nvml.", "nvml.nvmlLib.")
        assert console(f"{call}(gpu, byref(count), data)") == 0
        assert console("list(map(list, struct.iter_unpack('=I4xQ', data.raw)))") == expected


# -- counters and fields ---------------------------------------------------------------------------


def test_energy_is_power_over_time(machine, console):
    """The energy is the power integrated over time: 100 W for 10 s and 250 W for 4 s are 2000 J."""
    gpu = machine.gpu(0)
    machine.stop_clock()
    gpu.energy_millijoules = 0
    gpu.power_milliwatts = 100_000
    machine.advance(10)
    gpu.power_milliwatts = 250_000
    assert console("nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)") == 1_000_000
    machine.advance(4)
    assert console("nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)") == 2_000_000
    assert field(console, "nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION") == [0, 3, 2_000_000]
    assert gpu.energy_millijoules == 2_000_000
    machine.start_clock()
    assert 2_000_000 <= console("nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)") < 2_500_000


def test_throttling_is_counted_in_nanoseconds_for_each_reason(machine, console):
    """The counter of a throttle reason grows by the throttled time, and the others stay at 0."""
    machine.stop_clock()
    machine.gpu(0).throttle("sw_power_cap", 0.25)
    machine.gpu(0).throttle("hw_power_brake", 1.0)
    machine.advance(8)
    ids = [74, 76, 77, 78, 79, 269, 270, 271]
    console(f"entries = nvml.nvmlDeviceGetFieldValues(gpu, {ids})")
    assert console("[e.value.ullVal for e in entries]") == [
        2_000_000_000,
        0,
        0,
        0,
        0,
        0,
        0,
        8_000_000_000,
    ]
    assert console("[e.valueType for e in entries]") == [3] * 8
    assert console("nvml.nvmlDeviceGetViolationStatus(gpu, 0).violationTime") == 2_000_000_000
    assert console.code_of("nvml.nvmlDeviceGetViolationStatus(gpu, 10)") == 3


def test_nvlink_traffic_is_summed_or_by_link(machine, console):
    """Scope 0xffffffff is the sum of 18 links; the raw counters also include the overhead."""
    machine.stop_clock()
    machine.gpu(0).grow("nvlink_transmit_kib", per_second=1800)
    machine.gpu(0).grow("nvlink_receive_kib", per_second=3600)
    machine.advance(2)
    assert field(console, "(138, 0xffffffff)") == [0, 3, 3600]
    assert field(console, "(139, 0xffffffff)") == [0, 3, 7200]
    assert field(console, "(140, 0xffffffff)") == [0, 3, 4050]
    assert field(console, "(138, 17)") == [0, 3, 200]
    assert field(console, "(138, 18)")[0] == 2


def test_a_pcie_byte_counter_may_wrap(machine, console):
    """A PCIe byte counter of 32 bits wraps: 5 GiB are read as 1 GiB."""
    machine.stop_clock()
    machine.gpu(0).pcie_transmit_bytes = 5 << 30
    assert field(console, 197) == [0, 3, 5 << 30]
    machine.gpu(0).pcie_counter_bits = 32
    assert field(console, 197) == [0, 3, 1 << 30]


FIELDS = {
    "NVML_FI_DEV_ECC_CURRENT": ("ecc_enabled", 1, 1),
    "NVML_FI_DEV_ECC_PENDING": ("ecc_pending", 0, 1),
    "NVML_FI_DEV_ECC_SBE_VOL_TOTAL": ("corrected_volatile_errors", 11, 3),
    "NVML_FI_DEV_ECC_DBE_VOL_TOTAL": ("uncorrected_volatile_errors", 12, 3),
    "NVML_FI_DEV_ECC_SBE_AGG_TOTAL": ("corrected_aggregate_errors", 13, 3),
    "NVML_FI_DEV_ECC_DBE_AGG_TOTAL": ("uncorrected_aggregate_errors", 14, 3),
    "NVML_FI_DEV_RETIRED_SBE": ("corrected_retired_pages", 15, 1),
    "NVML_FI_DEV_RETIRED_DBE": ("uncorrected_retired_pages", 16, 1),
    "NVML_FI_DEV_RETIRED_PENDING": ("retirement_pending", 1, 1),
    "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": ("nvlink_crc_flit_errors", 21, 3),
    "NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": ("nvlink_crc_data_errors", 22, 3),
    "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": ("nvlink_replay_errors", 23, 3),
    "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": ("nvlink_recovery_errors", 24, 3),
    "NVML_FI_DEV_PERF_POLICY_POWER": ("power_cap_nanoseconds", 31, 3),
    "NVML_FI_DEV_PERF_POLICY_SYNC_BOOST": ("sync_boost_nanoseconds", 32, 3),
    "NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT": ("board_limit_nanoseconds", 33, 3),
    "NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION": ("low_utilization_nanoseconds", 34, 3),
    "NVML_FI_DEV_PERF_POLICY_RELIABILITY": ("reliability_nanoseconds", 35, 3),
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN": ("software_thermal_nanoseconds", 36, 3),
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN": ("hardware_thermal_nanoseconds", 37, 3),
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN": ("power_brake_nanoseconds", 38, 3),
    "NVML_FI_DEV_MEMORY_TEMP": ("memory_temperature", 88, 1),
    "NVML_FI_DEV_NVLINK_LINK_COUNT": ("nvlink_count", 12, 1),
    "NVML_FI_DEV_PCIE_REPLAY_COUNTER": ("pcie_replays", 9, 1),
    "NVML_FI_DEV_REMAPPED_COR": ("corrected_remapped_rows", 41, 1),
    "NVML_FI_DEV_REMAPPED_UNC": ("uncorrected_remapped_rows", 42, 1),
    "NVML_FI_DEV_REMAPPED_PENDING": ("remapping_pending", 1, 1),
    "NVML_FI_DEV_REMAPPED_FAILURE": ("remapping_failed", 1, 1),
    "NVML_FI_DEV_POWER_AVERAGE": ("power_milliwatts", 300_000, 1),
    "NVML_FI_DEV_POWER_INSTANT": ("instant_power_milliwatts", 310_000, 1),
    "NVML_FI_DEV_POWER_CURRENT_LIMIT": ("power_limit_milliwatts", 500_000, 1),
    "NVML_FI_DEV_ENERGY": ("energy_millijoules", 51, 3),
    "NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT": ("shutdown_margin", -8, 5),
    "NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT": ("slowdown_margin", -2, 5),
    "NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT": ("memory_maximum_margin", 1, 5),
    "NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT": ("maximum_operating_margin", 2, 5),
    "NVML_FI_DEV_PCIE_COUNT_TX_BYTES": ("pcie_transmit_bytes", 61, 3),
    "NVML_FI_DEV_PCIE_COUNT_RX_BYTES": ("pcie_receive_bytes", 62, 3),
    "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": ("recovery_action", 4, 1),
}


def test_each_field_is_the_one_the_binding_names(machine, console):
    """Each field of pynvml returns the attribute that was set, in the union member of its type."""
    machine.stop_clock()
    for name, (attribute, value, value_type) in FIELDS.items():
        setattr(machine.gpu(0), attribute, value)
        member = {1: "v.value.uiVal", 3: "v.value.ullVal", 5: "v.value.siVal"}[value_type]
        assert field(console, f"nvml.{name}", member) == [0, value_type, value], name


def test_fields_fail_one_by_one(machine, console):
    """An unknown or failing field does not affect the other fields of the same call."""
    machine.fail_field(82, 0, 999)
    console("entries = nvml.nvmlDeviceGetFieldValues(gpu, [91, 9999, 82, 230])")
    assert console("[e.nvmlReturn for e in entries]") == [0, 3, 999, 0]
    assert console("[e.fieldId for e in entries]") == [91, 9999, 82, 230]
    assert abs(console("entries[0].timestamp") - time.time() * 1e6) < 5e6
    machine.fail_field(82, 0, 0)
    assert field(console, 82, "v.value.uiVal") == [0, 1, 42]


def test_ecc_totals_are_not_supported_while_ecc_is_off(machine, console):
    """If ECC is off, the error totals are not supported, but the mode can be read."""
    machine.gpu(0).ecc_enabled = 0
    assert [field(console, number)[0] for number in (3, 4, 5, 6)] == [3, 3, 3, 3]
    assert field(console, 1, "v.value.uiVal") == [0, 1, 0]


# -- samples ---------------------------------------------------------------------------------------


def test_a_square_wave_averages_to_its_duty(machine, console):
    """The samples of a square wave with a duty of 0.25 average to 25% in every process."""
    machine.square_wave(0, duty=0.25, period_seconds=2)
    machine.gpu(0).sample_period_microseconds = 250_000
    machine.stop_clock(realtime_seconds=1_000_000.0)
    values = console(SAMPLES.format(0))
    assert len(values) == 100
    assert values[-1] == [1_000_000_000_000, 0]
    assert [value for _, value in values[-8:]] == [100, 100, 0, 0, 0, 0, 0, 0]
    assert sum(value for _, value in values[-96:]) / 96 == 25
    with Console(machine) as other:
        other("nvml.nvmlInit(); gpu = nvml.nvmlDeviceGetHandleByIndex(0)")
        assert other(SAMPLES.format(0)) == values


def test_samples_after_a_time_stamp_come_once(machine, console):
    """Only samples after the given time stamp are returned; without a newer one, NOT_FOUND."""
    machine.gpu(0).sample_period_microseconds = 100_000
    machine.constant_load(0, 37)
    machine.stop_clock(realtime_seconds=500.0)
    newest = console(SAMPLES.format(0))[-1]
    assert newest == [500_000_000, 37]
    assert console.code_of(SAMPLES.format(500_000_000)) == 6
    machine.advance(0.25)
    assert console(SAMPLES.format(500_000_000)) == [[500_100_000, 37], [500_200_000, 37]]


def test_the_buffer_forgets_what_does_not_fit(machine, console):
    """A reader that comes late gets the last four samples from a buffer of depth 4."""
    machine.gpu(0).sample_depth = 4
    machine.gpu(0).sample_period_microseconds = 1_000_000
    machine.stop_clock(realtime_seconds=1000.0)
    stamps = [stamp for stamp, _ in console(SAMPLES.format(900_000_000))]
    assert stamps == [997_000_000, 998_000_000, 999_000_000, 1_000_000_000]


def test_an_idle_gpu_leaves_no_samples(machine, console):
    """An idle GPU returns NOT_FOUND for its samples and a utilization of 0."""
    machine.idle(0)
    assert console.code_of(SAMPLES.format(0)) == 6
    assert console("nvml.nvmlDeviceGetUtilizationRates(gpu).gpu") == 0


def test_a_load_may_change_from_now_on(machine, console):
    """A change of load affects later samples; the sample across the change is the mean of both."""
    gpu = machine.gpu(0)
    gpu.sample_period_microseconds = 1_000_000
    gpu.constant_load(10)
    machine.stop_clock(realtime_seconds=100.5)
    gpu.constant_load(90, from_now=True)
    machine.advance(1.5)
    assert console(SAMPLES.format(98_000_000)) == [
        [99_000_000, 10],
        [100_000_000, 10],
        [101_000_000, 50],
        [102_000_000, 90],
    ]


def test_power_and_memory_have_samples_too(machine, console):
    """Samples of power and memory utilization exist, with time stamps of the device's clock."""
    machine.gpu(0).memory_utilization = 12
    machine.gpu(0).power_milliwatts = 350_000
    last = "nvml.nvmlDeviceGetSamples(gpu, {}, 0)[1][-1].sampleValue.uiVal"
    assert console(last.format("nvml.NVML_TOTAL_POWER_SAMPLES")) == 350_000
    assert console(last.format("nvml.NVML_MEMORY_UTILIZATION_SAMPLES")) == 12
    assert abs(console(SAMPLES.format(0))[-1][0] - time.time() * 1e6) < 2e6
    machine.gpu(0).sample_clock_is_boottime = 1
    boottime = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert abs(console(SAMPLES.format(0))[-1][0] - boottime * 1e6) < 2e6


# -- the driver comes and goes ---------------------------------------------------------------------

PROBE = "nvml.nvmlDeviceGetTemperature(gpu, 0)"


def test_before_the_first_start_all_is_uninitialized(machine):
    """Calls fail before `nvmlInit`, and each `nvmlShutdown` undoes one `nvmlInit`."""
    with Console(machine) as console:
        assert console.code_of("nvml._LoadNvmlLibrary(); nvml.nvmlDeviceGetCount()") == 1
        console("nvml.nvmlInit(); nvml.nvmlInit(); nvml.nvmlShutdown()")
        assert console("nvml.nvmlDeviceGetCount()") == 2
        console("nvml.nvmlShutdown()")
        assert console.code_of("nvml.nvmlDeviceGetCount()") == 1
        assert console.code_of("nvml.nvmlShutdown()") == 1


def test_without_a_scenario_there_is_no_driver(machine):
    """Without the file of a fake machine, `nvmlInit` fails as without a kernel module."""
    for path in ("", "/nowhere/accelerators"):
        with Console(machine, {**machine.environment(), "FAKE_ACCELERATORS": path}) as console:
            assert console.code_of("nvml.nvmlInit()") == 9


def test_an_unloaded_driver_needs_a_new_start(machine, console):
    """After a reload of the driver, a process must initialise NVML again."""
    machine.gpu(0).energy_millijoules = 12_000_000
    machine.unload_driver()
    assert console.code_of(PROBE) == 1
    assert console.code_of("nvml.nvmlInit()") == 9
    machine.load_driver()
    assert console.code_of(PROBE) == 1
    console("nvml.nvmlShutdown(); nvml.nvmlInit()")
    assert console(PROBE) == 34
    assert console("nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)") < 1_000_000


def test_an_unloaded_driver_may_say_so(machine, console):
    """The error code of calls after the driver was unloaded can be chosen."""
    machine.unload_driver(code=9)
    assert console.code_of(PROBE) == 9


def test_a_driver_upgrade_shuts_out_those_who_hold_the_old_library(machine, console, open_console):
    """After a driver upgrade, running processes get a version mismatch, and new processes work."""
    machine.mismatch(version="580.65.06")
    assert console.code_of(PROBE) == 18
    console("nvml.nvmlShutdown()")
    assert console.code_of("nvml.nvmlInit()") == 18
    fresh = open_console()
    assert fresh("nvml.nvmlSystemGetDriverVersion()") == "580.65.06"


def test_a_driver_without_its_library_shuts_out_everyone(machine, console):
    """A driver that does not match the library on disk makes `nvmlInit` fail in every process."""
    machine.mismatch(library_on_disk=False)
    with Console(machine) as fresh:
        assert fresh.code_of("nvml.nvmlInit()") == 18
        machine.load_driver()
        assert fresh("nvml.nvmlInit(); nvml.nvmlDeviceGetCount()") is None
        assert fresh("nvml.nvmlDeviceGetCount()") == 2


# -- devices come and go ---------------------------------------------------------------------------


def test_a_lost_gpu_is_lost_to_every_call(machine, console, open_console):
    """Every call for a lost GPU fails; the GPU is still counted, and the other GPU works."""
    machine.lose(0)
    fresh = "nvml.nvmlDeviceGetHandleByIndex(0)"
    for call in (PROBE, "nvml.nvmlDeviceGetUUID(gpu)", fresh):
        assert console.code_of(call) == 15
    assert console("nvml.nvmlDeviceGetCount()") == 2
    assert console("nvml.nvmlDeviceGetTemperature(nvml.nvmlDeviceGetHandleByIndex(1), 0)") == 34
    machine.restore(0)
    assert console(PROBE) == 34


def test_a_lost_gpu_may_leave_the_count(machine, console):
    """A hidden lost GPU is counted by running processes, but not by new processes."""
    machine.lose(0, hidden=True)
    assert console("nvml.nvmlDeviceGetCount()") == 2
    with Console(machine) as fresh:
        fresh("nvml.nvmlInit()")
        assert fresh("nvml.nvmlDeviceGetCount()") == 1
        assert fresh("nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByIndex(0))") == 1


def test_an_added_gpu_is_seen_after_a_new_start(machine, console):
    """An added GPU is counted after a new `nvmlInit`, or at once if so configured."""
    added = machine.add_gpu()
    assert console("nvml.nvmlDeviceGetCount()") == 2
    console("nvml.nvmlShutdown(); nvml.nvmlInit()")
    assert console("nvml.nvmlDeviceGetCount()") == 3
    assert console("nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(2))") == added.uuid
    machine.see_added_at_once()
    machine.add_gpu()
    assert console("nvml.nvmlDeviceGetCount()") == 4


def test_a_removed_gpu_is_lost_and_then_not_counted(machine, console):
    """The handle of a removed GPU stays invalid even if another GPU takes its place."""
    machine.remove_gpu(0)
    assert console.code_of(PROBE) == 15
    assert console("nvml.nvmlDeviceGetCount()") == 2
    machine.add_gpu()
    assert console.code_of(PROBE) == 15
    console("nvml.nvmlShutdown(); nvml.nvmlInit()")
    assert console("nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(0))") == (
        "GPU-00000002-5e1f-4d3a-9c07-0000a0000002"
    )


# -- hangs, delays and failures --------------------------------------------------------------------


def test_a_hung_call_blocks_until_it_is_freed(machine, console, open_console):
    """A hang blocks one function of one GPU until it ends; all other calls return."""
    machine.hang("nvmlDeviceGetTemperature", device=0)
    console.begin(PROBE)
    other = open_console()
    assert other("nvml.nvmlDeviceGetTemperature(nvml.nvmlDeviceGetHandleByIndex(1), 0)") == 34
    assert other("nvml.nvmlDeviceGetPowerUsage(gpu)") == 70_000
    time.sleep(0.05)
    machine.gpu(0).temperature = 55
    machine.unhang("nvmlDeviceGetTemperature", device=0)
    assert console.end() == 55


def test_a_call_can_hang_for_a_while(machine, console):
    """A call can hang for a given time and then return."""
    machine.hang("nvml*", device=0, milliseconds=60)
    begin = time.monotonic()
    assert console(PROBE) == 34
    assert 0.06 <= time.monotonic() - begin < 30


def test_the_start_can_hang(machine):
    """A process hangs in `nvmlInit` until the fake machine is closed."""
    machine.hang("nvmlInit")
    with Console(machine) as console:
        console.begin("nvml.nvmlInit()")
        while not machine.calls("nvmlInit"):
            time.sleep(0.01)
        machine.close()
        assert console.end() is None


def test_a_function_can_fail(machine, console):
    """A function can fail with a given error for one GPU, or without a device."""
    machine.fail("nvmlDeviceGetTemperature", 0, 999)
    machine.fail("nvmlDeviceGetCount", None, 4)
    assert console.code_of(PROBE) == 999
    assert console("nvml.nvmlDeviceGetTemperature(nvml.nvmlDeviceGetHandleByIndex(1), 0)") == 34
    assert console.code_of("nvml.nvmlDeviceGetCount()") == 4
    machine.heal()
    assert console(PROBE) == 34


@pytest.mark.parametrize("spin", [False, True])
def test_every_call_about_a_device_can_be_slowed(machine, console, spin):
    """A delay applies to every call for a device: 20 calls of 5 ms take at least 0.1 s."""
    machine.delay(5000, slot=0, spin=spin)
    begin = time.monotonic()
    console(f"[{PROBE} for _ in range(20)]")
    assert 0.1 <= time.monotonic() - begin < 30


def test_calls_are_counted(machine, console):
    """Calls are counted by function and device, including those that fail."""
    machine.reset_calls()
    console(f"[{PROBE} for _ in range(3)]")
    machine.lose(0)
    console.code_of(PROBE)
    console("nvml.nvmlDeviceGetCount()")
    assert machine.calls("nvmlDeviceGetTemperature") == 4
    assert machine.calls("nvmlDeviceGetTemperature", device=0) == 4
    assert machine.calls("nvmlDeviceGetTemperature", device=1) == 0
    assert machine.calls_by_function() == {
        "nvmlDeviceGetTemperature": 4,
        "nvmlDeviceGetCount_v2": 1,
    }


def test_a_call_costs_next_to_nothing(console):
    """A call takes less than 3 µs, so that benchmarks measure the exporter."""
    console("from ctypes import byref, c_uint; import time; out = byref(c_uint())")
    console("call = nvml.nvmlLib.nvmlDeviceGetPowerUsage")
    console(
        "def measure():\n"
        "    begin = time.process_time()\n"
        "    for _ in range(10000): call(gpu, out)\n"
        "    return (time.process_time() - begin) / 10000"
    )
    assert console("min(measure() for _ in range(5))") < 3e-6


# -- events ----------------------------------------------------------------------------------------


def test_an_xid_reaches_those_who_registered_once(machine, console):
    """A process receives each Xid of its registered GPU once, and then the wait times out."""
    machine.deliver_xid(0, 13)
    console("events = nvml.nvmlEventSetCreate()")
    console("nvml.nvmlDeviceRegisterEvents(gpu, nvml.nvmlEventTypeXidCriticalError, events)")
    machine.deliver_xid(1, 31)
    machine.deliver_xid(0, 79)
    machine.deliver_xid(0, 48)
    console("from ctypes import addressof")
    for code in (79, 48):
        console("event = nvml.nvmlEventSetWait(events, 1000)")
        assert console("[event.eventType, event.eventData]") == [8, code]
        assert console("event.gpuInstanceId") == 0xFFFFFFFF
        assert console("addressof(event.device.contents) == addressof(gpu.contents)") is True
    assert console.code_of("nvml.nvmlEventSetWait(events, 10)") == 10
    console("nvml.nvmlEventSetFree(events)")


@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # machine load only adds time
def test_a_waiting_call_is_woken(machine, console):
    """A waiting call returns before its timeout if an event arrives, a GPU is lost or the driver unloads."""
    console("events = nvml.nvmlEventSetCreate()")
    console("nvml.nvmlDeviceRegisterEvents(gpu, 8, events)")
    wait = "nvml.nvmlEventSetWait(events, 60000).eventData"
    console.begin(wait)
    time.sleep(0.03)
    machine.deliver_xid(0, 63)
    assert console.end() == 63
    begin = time.monotonic()
    machine.lose(0)
    assert console.code_of(wait) == 15
    assert console.code_of(wait) == 15
    machine.restore(0)
    console.begin(wait)
    time.sleep(0.03)
    machine.unload_driver()
    assert console.end_code() == 1
    assert time.monotonic() - begin < 0.9


def test_unknown_types_of_event_are_refused(console):
    """Registering an event type that the device does not support fails."""
    assert console("nvml.nvmlDeviceGetSupportedEventTypes(gpu)") == 0x1F
    console("events = nvml.nvmlEventSetCreate()")
    assert console.code_of("nvml.nvmlDeviceRegisterEvents(gpu, 0x4000, events)") == 3
