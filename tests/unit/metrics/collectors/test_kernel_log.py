"""Tests for the kernel_log collector."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.metrics.collectors.kernel_log import KernelLogCollector
from trainvitals.sources.files import Roots

MACHINE = Path(__file__).parents[3] / "fixtures" / "machine"
NOON = 1_700_049_600.0
UPTIME = 49_600.0
GPU = 'bus_id="00000000:1B:00.0"'


@pytest.fixture
def collector(tmp_path: Path) -> KernelLogCollector:
    """Return a collector on the fake machine that starts at noon."""
    shutil.copytree(MACHINE / "dev", tmp_path / "dev")
    return KernelLogCollector(
        roots=Roots(rootfs=tmp_path), clock=lambda: NOON, monotonic=lambda: UPTIME
    )


def test_the_fake_machine_has_these_samples(collector: KernelLogCollector, samples, tmp_path: Path):
    """Errors before the start of the collector count as 0, and later errors are counted."""
    with (tmp_path / "dev/kmsg").open("a", encoding="ascii") as log:
        log.write("4,2103,49600000000,-;NVRM: Xid (PCI:0000:1b:00): 94, pid=7, Contained\n")
    reading = collector.read(0.0)
    assert samples(collector.express(reading)) == {
        'host_kernel_oom_kills_total{constraint="memcg"}': 0,
        'host_kernel_oom_kills_total{constraint="host"}': 0,
        'host_kernel_oom_kills_total{constraint="cpuset"}': 0,
        'host_kernel_oom_kills_total{constraint="memory_policy"}': 0,
        f'host_xid_errors_total{{{GPU},xid="63"}}': 0,
        f'host_xid_errors_total{{{GPU},xid="94"}}': 1,
        f'host_xid_last_timestamp_seconds{{{GPU},xid="63"}}': NOON - UPTIME + 31_207.654321,
        f'host_xid_last_timestamp_seconds{{{GPU},xid="94"}}': NOON,
    }
    assert collector.complaint(reading) is None
    assert collector.omitted(reading) == 0
    collector.close()


def test_a_machine_without_errors_of_gpus_has_only_kills(samples, tmp_path: Path):
    """The counters of OOM kills exist from 0, so that `increase` sees the first kill."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").touch()
    collector = KernelLogCollector(roots=Roots(rootfs=tmp_path))
    assert len(samples(collector.express(collector.read(0.0)))) == 4
    collector.close()


def test_a_log_that_may_not_be_read_is_quiet(samples, tmp_path: Path):
    """If the kernel log cannot be read, there are no samples and no complaint."""
    collector = KernelLogCollector(roots=Roots(rootfs=tmp_path))
    reading = collector.read(0.0)
    assert samples(collector.express(reading)) == {}
    assert collector.complaint(reading) is None
    collector.close()


def test_a_line_about_other_trouble_is_not_masked(tmp_path: Path):
    """The collector does not import the masking module, which would delay the start."""
    (tmp_path / "dev").mkdir()
    line = "3,1,1000,-;Buffer I/O error on dev sda1, logical block 7\n"
    (tmp_path / "dev/kmsg").write_text(line, encoding="ascii")
    program = (
        "import sys; from pathlib import Path; from trainvitals.sources.files import Roots;"
        "from trainvitals.metrics.collectors.kernel_log import KernelLogCollector;"
        f"reading = KernelLogCollector(roots=Roots(rootfs=Path({str(tmp_path)!r}))).read(0.0);"
        "print(reading.oom_kills is not None, 'trainvitals.masking' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, text=True
    )
    assert (ended.stdout, ended.stderr) == ("True False\n", "")
