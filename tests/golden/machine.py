"""The machine of the golden scrape, which has an example of every metric of every collector.

The host's files are `tests/fixtures/machine`. The accelerators are the fake libraries of
`tests/fakes` with stopped clocks, read by real child processes. A page is the same on every machine
and at any time, except for the values that `PLACEHOLDERS` replaces.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.fakes.machine import FakeMachine
from tests.golden.containers import GoldenContainers
from tests.golden.runs import UPTIME_SECONDS, GoldenRuns
from trainvitals.metrics.collectors import COLLECTORS, Parts
from trainvitals.metrics.collectors.collector import Collector
from trainvitals.metrics.collectors.container import ContainerCollector
from trainvitals.metrics.collectors.cpu import CpuCollector
from trainvitals.metrics.collectors.filesystem import FilesystemCollector
from trainvitals.metrics.collectors.kernel import KernelCollector
from trainvitals.metrics.collectors.kernel_log import KernelLogCollector
from trainvitals.metrics.collectors.process import ProcessCollector
from trainvitals.metrics.collectors.training import TrainingCollector
from trainvitals.metrics.exposition import Exposition
from trainvitals.metrics.runner import REUSE_SECONDS, Runner, Snapshot
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.accelerators.vendors import VENDORS
from trainvitals.sources.files import Roots
from trainvitals.sources.host.kernel import ClockState
from trainvitals.sources.runs.machine_state import MachineState
from trainvitals.sources.runs.source import TrainingSource

HERE = Path(__file__).parent
HOST = HERE.parent / "fixtures/machine"
NOON = 1_700_049_600.0
GIB = 1 << 30
XID = 94

# The kernel's log during the test. The first of the two OOM kills has no line `oom-kill:`, as the
# kernel omits some of these lines if there are many.
KERNEL_LOG = """\
3,2150,49601000000,-;Memory cgroup out of memory: Killed process 5123 (python) total-vm:67804kB, \
anon-rss:65000kB, file-rss:1520kB, shmem-rss:0kB, UID:0 pgtables:168kB oom_score_adj:0
6,2151,49601500000,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,\
global_oom,task_memcg=/user.slice/user-1000.slice/session-2.scope,task=python,pid=5210,uid=1000
3,2152,49601500040,-;Out of memory: Killed process 5210 (python) total-vm:2858424kB, \
anon-rss:2843064kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:5620kB oom_score_adj:0
4,2153,49602000000,-;NVRM: Xid (PCI:0000:1b:00): 94, pid=4242, name=python, Contained: SM (0x1).
"""

# A held device without activity is idle from the first scrape on.
THRESHOLDS = """\
groups:
- name: thresholds
  rules:
  - {record: 'threshold:accelerator_held_idle:reason_seconds', expr: vector(0)}
"""

# The values that differ between runs of the test, and their replacements.
PLACEHOLDERS = (
    (r"^(trainvitals_build_info)\{.*\}", r'\1{python="PYTHON",version="VERSION"}'),
    (r"^(trainvitals_collector_duration_seconds\{.*\}) .*", r"\1 0.001"),
    (r"^(trainvitals_collector_last_success_timestamp_seconds\{.*\}) .*", r"\1 1.7e+09"),
    (r"^(accelerator_last_seen_timestamp_seconds\{.*\}) .*", r"\1 1.7e+09"),
    (r"^(accelerator_xid_last_timestamp_seconds\{.*\}) .*", r"\1 1.7e+09"),
    (r"^(process_max_fds) .*", r"\1 2048.0"),
    (r'host_pid="\d+"', 'host_pid="4242"'),
    (r'^(accelerator_process_info\{.*user=)"[^"]+"', r'\1"ada"'),
    (r"did not answer within [0-9.]+ s", "did not answer within 0.4 s"),
    (r"cannot understand \S+/host/proc", "cannot understand /proc"),
)


class GoldenMachine:
    """A machine that is scraped in the process of the test.

    Args:
        directory: An empty directory for the machine's files.
        gpus: The number of GPUs.
        hpus: The number of Gaudi cards.
    """

    def __init__(self, directory: Path, *, gpus: int, hpus: int) -> None:
        self.fake = FakeMachine(directory, gpus=gpus, hpus=hpus)
        self.fake.stop_clock(NOON)
        for accelerator in [*map(self.fake.gpu, range(gpus)), *map(self.fake.hpu, range(hpus))]:
            accelerator.forget()
        shutil.copytree(HOST, directory / "host")
        self.host = directory / "host"
        self.roots = Roots(procfs=self.host / "proc", sysfs=self.host / "sys")
        self.runs = GoldenRuns(directory, self.roots.procfs, NOON)
        self.now = NOON
        self._heal = threading.Event()
        self._hung: set[bytes] = set()
        self._clock_hangs = False
        self._counts = {"gpu": gpus, "hpu": hpus}
        self.runner: Runner

    def start(self) -> None:
        """Open the drivers and create the collectors."""
        environ = {**os.environ, **self.fake.environment()}
        environ["PATH"] = f"{self.fake.hl_smi_directory()}:{environ['PATH']}"
        accelerators = AcceleratorSource(
            vendors=[
                replace(vendor, is_installed=lambda: True)
                for vendor in VENDORS
                if self._counts[vendor.kind]
            ],
            expected={kind: count for kind, count in self._counts.items() if count},  # type: ignore[misc]
            memory_limit_bytes=72 * GIB,
            temperature_limit_celsius=80.0,
            roots=self.roots,
            is_isolated=True,
            environ=environ,
        )
        thresholds = self.host / "thresholds.yml"
        thresholds.write_text(THRESHOLDS, encoding="utf-8")
        self._parts = Parts(self.roots, accelerators, self.runs.options, thresholds=thresholds)
        self._parts.latest["container"] = GoldenContainers().read
        built = [self._replaced().get(entry.name, entry.build) for entry in COLLECTORS]
        self.runner = Runner([build(self._parts) for build in built])

    def _replaced(self) -> dict[str, Callable[[Parts], Collector[Any]]]:
        """Return collectors that do not read this machine's clock, file systems or processes."""
        return {
            "container": lambda _: ContainerCollector(GoldenContainers()),
            "cpu": lambda parts: CpuCollector(roots=parts.roots, clock=lambda: self.now),
            "filesystem": lambda parts: FilesystemCollector(roots=parts.roots, statvfs=self._ask),
            "kernel": lambda parts: KernelCollector(
                roots=parts.roots,
                clock=lambda: self.now,
                uptime=lambda: 49_600.0,
                adjtimex=self._ask_clock,
            ),
            "kernel_log": lambda parts: KernelLogCollector(
                roots=replace(parts.roots, rootfs=self.host),
                clock=lambda: self.now,
                monotonic=lambda: UPTIME_SECONDS + self.now - NOON,
            ),
            "process": lambda parts: ProcessCollector(
                procfs=parts.roots.procfs, children=lambda: (4300,)
            ),
            "training": lambda parts: TrainingCollector(
                TrainingSource(
                    parts.training,
                    roots=parts.roots,
                    machine=MachineState(parts.accelerators, roots=parts.roots),
                    clock=lambda: self.now,
                    monotonic_ns=lambda: int((UPTIME_SECONDS + self.now - NOON) * 1e9),
                )
            ),
        }

    def scrape(self, names: Sequence[str] | None = None) -> Snapshot:
        """Run all collectors, or the named ones, again."""
        time.sleep(1.5 * REUSE_SECONDS)
        return self.runner.snapshot(names, seconds=20.0)

    def advance(self, seconds: float) -> None:
        """Advance the clocks of the host and of the accelerators."""
        self.now += seconds
        self.fake.advance(seconds)

    def hang_mount(self, mountpoint: str) -> None:
        """Make calls about a file system hang."""
        self._hung.add(os.fsencode(mountpoint))

    def hang_clock(self) -> None:
        """Make the call that reads the error of the kernel's clock hang."""
        self._clock_hangs = True

    def close(self) -> None:
        """Close the machine and end its processes."""
        self._heal.set()
        self.fake.close()
        self.runner.close()
        self.runs.close()
        self._parts.accelerators.close()

    def _ask(self, path: bytes) -> os.statvfs_result:
        if path in self._hung:
            self._heal.wait()
        # 2.5 million blocks of 4096 bytes, half of them for users; 65536 files, 60000 free
        flags = os.ST_RDONLY if path == b"/datasets" else 0
        return os.statvfs_result(
            (4096, 4096, 2_500_000, 1_300_000, 1_250_000, 65_536, 60_000, 60_000, flags, 255)
        )

    def _ask_clock(self) -> ClockState:
        if self._clock_hangs:
            self._heal.wait()
        return ClockState(offset_seconds=-0.000125, synchronized=True)


@contextmanager
def whole_machine(directory: Path) -> Iterator[GoldenMachine]:
    """Yield a machine with every metric, on two GPUs of different generations and a Gaudi card."""
    machine = GoldenMachine(directory, gpus=2, hpus=1)
    _load_h100(machine.fake)
    _load_turing(machine.fake)
    _load_gaudi(machine.fake)
    machine.start()
    try:
        machine.scrape()
        machine.advance(2.5)
        _spend_cpu_time(machine.roots.procfs / "stat")
        with (machine.host / "dev/kmsg").open("a", encoding="ascii") as log:
            log.write(KERNEL_LOG)
        _wait_until(lambda: machine.fake.calls("nvmlEventSetWait_v2") >= 2)
        machine.fake.deliver_xid(0, XID)
        _wait_until(lambda: b"accelerator_xid_errors_total{" in _write(machine.scrape()))
        for _ in range(3):  # a straggler is reported after three windows
            machine.runs.train(40)
            machine.scrape(["training"])
        yield machine
    finally:
        machine.close()


@contextmanager
def failing_machine(directory: Path) -> Iterator[GoldenMachine]:
    """Yield a machine with failures, such as a lost GPU, a hung GPU and a hung file system."""
    machine = GoldenMachine(directory, gpus=3, hpus=0)
    machine.start()
    try:
        machine.scrape()
        machine.fake.lose(1)
        machine.fake.hang("nvmlDeviceGetTemperature", device=2)
        machine.hang_mount("/datasets")
        machine.hang_clock()
        (machine.roots.procfs / "meminfo").write_text("MemTotal: many kB\n", encoding="ascii")
        yield machine
    finally:
        machine.close()


def fill_in_placeholders(page: str) -> str:
    """Return the page with replacements for the values that differ between runs of the test."""
    for pattern, replacement in PLACEHOLDERS:
        page = re.sub(pattern, replacement, page, flags=re.MULTILINE)
    return page


def write_text(snapshot: Snapshot) -> str:
    """Return the page in the text format, with a comment where each collector begins.

    Without the comments, the page is the response of `/metrics`.
    """
    exposition = Exposition()
    subjects = {entry.name: entry.subject for entry in COLLECTORS}
    subjects["trainvitals"] = "the collectors themselves"
    parts = []
    begun = None
    for block in snapshot.blocks:
        collector = block.shape[0]  # type: ignore[index]  # every shape begins with its collector
        if collector != begun:
            parts.append(f"# Collector {collector}: {subjects[collector]}\n")
            begun = collector
        parts.append(exposition.write([block]).decode())
    return fill_in_placeholders("".join(parts))


def write_openmetrics(snapshot: Snapshot) -> str:
    """Return the page in the OpenMetrics format."""
    return fill_in_placeholders(Exposition(openmetrics=True).write(snapshot.blocks).decode())


def _load_h100(fake: FakeMachine) -> None:
    gpu = fake.gpu(0)
    gpu.square_wave(duty=0.25, period_seconds=2.0)
    gpu.memory_utilization = 41
    gpu.memory_used_bytes = 61 * GIB
    gpu.temperature, gpu.memory_temperature = 64, 78
    gpu.power_milliwatts = 512_340
    gpu.energy_millijoules = 98_765_432_100
    gpu.throttle_reasons = 0x4  # software power cap
    gpu.power_cap_nanoseconds = 12_500_000_000
    gpu.hardware_thermal_nanoseconds = 250_000_000
    gpu.corrected_volatile_errors, gpu.uncorrected_volatile_errors = 3, 1
    gpu.corrected_remapped_rows, gpu.uncorrected_remapped_rows = 2, 1
    gpu.remapping_pending = 1
    gpu.recovery_action = 1
    gpu.pcie_replays = 7
    gpu.nvlink_transmit_kib, gpu.nvlink_receive_kib = 4_000_000, 5_000_000
    gpu.nvlink_error_fields = 2  # the fields 161 to 163, one set for each link
    gpu.nvlink_crc_flit_errors, gpu.nvlink_replay_errors = 5, 2
    gpu.set_processes([(4242, 40 * GIB), (4243, 21 * GIB), (4244, -1)])


def _load_turing(fake: FakeMachine) -> None:
    """Make the second GPU an older model with a fan, retired pages and two NVLinks."""
    gpu = fake.gpu(1)
    gpu.configure(
        {
            "name": "Quadro RTX 6000",
            "vbios_version": "90.02.2E.00.0C",
            "memory_total_bytes": 24 * GIB,
            "memory_temperature": None,
            "slowdown_threshold": 91,
            "slowdown_margin": None,
            "shutdown_margin": None,
            "memory_maximum_margin": None,
            "maximum_operating_margin": None,
            "target_temperature": None,
            "power_limit_milliwatts": 260_000,
            "power_milliwatts": 55_000,
            "pcie_generation": 1,
            "maximum_pcie_generation": 3,
            "fan_count": 1,
            "fan_percent": 34,
            "encoder_utilization": 12,
            "decoder_utilization": 8,
            "performance_state": 8,
            "corrected_retired_pages": 2,
            "uncorrected_retired_pages": 1,
            "retirement_pending": 0,
            "corrected_remapped_rows": None,
            "uncorrected_remapped_rows": None,
            "remapping_pending": None,
            "remapping_failed": None,
            "nvlink_count": 2,
            "nvlink_transmit_kib": None,
            "nvlink_receive_kib": None,
            "nvlink_crc_data_errors": 1,
        }
    )
    gpu.set_processes([(4300, 2 * GIB)])


def _load_gaudi(fake: FakeMachine) -> None:
    hpu = fake.hpu(0)
    hpu.constant_load(87)
    hpu.memory_used_bytes = 96 * GIB
    hpu.temperature = 58
    hpu.power_milliwatts = 640_000
    hpu.energy_millijoules = 12_345_678_000
    hpu.thermal_nanoseconds = 1_500_000_000
    hpu.corrected_volatile_errors, hpu.uncorrected_volatile_errors = 4, 0


def _spend_cpu_time(stat: Path) -> None:
    """Add 2 s of 4 cores to `/proc/stat`: of 800 ticks, 400 are busy and 80 wait for I/O."""
    before = "cpu  40000 1000 15000 900000 7000 0 500 100 200 0"
    after = "cpu  40300 1000 15100 900320 7080 0 500 100 200 0"
    text = stat.read_text(encoding="ascii")
    assert before in text
    stat.write_text(text.replace(before, after), encoding="ascii")


def _write(snapshot: Snapshot) -> bytes:
    return Exposition().write(snapshot.blocks)


def _wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until a condition that depends on another process holds."""
    until = time.monotonic() + 20.0
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)
