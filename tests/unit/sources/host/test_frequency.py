"""Tests for the source that reads the frequencies of the cores."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil
import pytest

from trainvitals.sources.files import Roots
from trainvitals.sources.host.frequency import Frequencies, FrequencySource

GHZ = 1_000_000_000
X86 = "processor\t: {at}\ncpu family\t: 6\ncpu MHz\t\t: {mhz}\nclflush size\t: 64\n\n"
S390 = "cpu number      : {at}\nversion         : 00\ncpu MHz dynamic : {mhz}\ncpu MHz static  : 9000\n\n"
POWER = "processor\t: {at}\ncpu\t\t: POWER9\nclock\t\t: {mhz}.000000MHz\nrevision\t: 2.2\n\n"


class SlowClock:
    """A clock that advances with each call, as if the read in between had taken that long."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        """Return the time."""
        self.now += self.step
        return self.now


class Cores:
    """The folders of a machine's cores.

    Args:
        folder: An empty folder.
        pattern: The path of a core's folder, with the core's number replaced by `{}`.
        name: The name of the file with the core's frequency.
    """

    def __init__(
        self,
        folder: Path,
        pattern: str = "cpufreq/policy{}",
        name: str = "scaling_cur_freq",
    ) -> None:
        self.roots = Roots(procfs=folder / "proc", sysfs=folder / "sys")
        self.cpuinfo = self.roots.procfs / "cpuinfo"
        self.cpuinfo.parent.mkdir()
        self._cpus = self.roots.sysfs / "devices/system/cpu"
        self._cpus.mkdir(parents=True)
        self._pattern = pattern
        self._name = name

    def set(self, core: int, kilohertz: object) -> Path:
        """Write the frequency of a core in kHz, and return the file's path."""
        file = self._cpus / self._pattern.format(core) / self._name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{kilohertz}\n")
        return file

    def link(self, core: int, folder: Path) -> None:
        """Let a core have the files in a folder; a link takes less time than a folder."""
        path = self._cpus / self._pattern.format(core)
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(folder)

    def read(self) -> Frequencies | None:
        """Return the frequencies from a first reading."""
        return FrequencySource(roots=self.roots).read()


def test_kilohertz_become_hertz(roots: Roots):
    """Frequencies in kHz are converted to Hz; the fake cores run at 1.2 to 3.5 GHz."""
    assert FrequencySource(roots=roots).read() == Frequencies(
        2_300_000_000.0, 1_200_000_000, 3_500_000_000
    )


def test_the_slowest_core_of_a_large_machine_is_seen_wherever_it_is(tmp_path: Path):
    """A single throttled core among 256 cores is found, whatever its number."""
    cores = Cores(tmp_path)
    for core in range(256):
        cores.set(core, 3_000_000)
    source = FrequencySource(roots=cores.roots, budget_seconds=60.0)
    for core in (0, 31, 32, 128, 255):
        cores.set(core, 800_000)
        found = source.read()
        assert found is not None
        assert found.min_hertz == 0.8 * GHZ
        assert found.mean_hertz == (255 * 3 * GHZ + 0.8 * GHZ) / 256
        cores.set(core, 3_000_000)


SOCKETS = {
    "one after the other": lambda core, cores: core < cores // 2,
    "in turns": lambda core, _: core % 2 == 0,
    "with the second threads behind": lambda core, cores: core // (cores // 4) % 2 == 0,
}


@pytest.mark.parametrize("layout", SOCKETS)
@pytest.mark.parametrize("count", [4, 16, 64, 96, 112, 128, 192, 224, 256, 384, 512])
def test_a_throttled_socket_is_seen_where_each_read_is_slow(
    tmp_path: Path, layout: str, count: int
):
    """If a reading has time for one core only, five readings show that one socket is throttled."""
    cores = Cores(tmp_path)
    fast, slow = cores.set(0, 3_000_000).parent, cores.set(1, 800_000).parent
    fast, slow = fast.rename(tmp_path / "fast"), slow.rename(tmp_path / "slow")
    for core in range(count):
        cores.link(core, slow if SOCKETS[layout](core, count) else fast)
    clock = SlowClock(0.010)
    source = FrequencySource(roots=cores.roots, clock=clock)
    for _ in range(3):
        for _ in range(5):
            found = source.read()
        assert found is not None
        assert (found.min_hertz, found.max_hertz) == (0.8 * GHZ, 3 * GHZ)
        clock.now += 60  # the earlier values are now too old to count


def test_slow_reads_stop_when_the_time_is_spent_and_go_on_from_there(roots: Roots):
    """With 10 ms per core and a budget of 15 ms, each reading covers the next two cores."""
    source = FrequencySource(roots=roots, clock=SlowClock(0.010), budget_seconds=0.015)
    assert source.read() == Frequencies(1_600_000_000.0, 1_200_000_000, 2_000_000_000)
    assert source.read() == Frequencies(2_300_000_000.0, 1_200_000_000, 3_500_000_000)


def test_what_was_read_long_ago_does_not_count(roots: Roots):
    """If each reading takes 30 s, only the last two values count."""
    source = FrequencySource(roots=roots, clock=SlowClock(10.0), budget_seconds=0.0)
    found = [source.read() for _ in range(4)]
    means = [None if one is None else one.mean_hertz / GHZ for one in found]
    assert means == [2.0, 1.6, 1.85, 3.0]


def test_a_core_that_cannot_tell_is_left_out(roots: Roots):
    """A core with an unknown frequency and a core that was switched off are left out."""
    source = FrequencySource(roots=roots)
    source.read()
    policies = roots.sysfs / "devices/system/cpu/cpufreq"
    (policies / "policy3/scaling_cur_freq").write_text("<unknown>\n")
    (policies / "policy2/scaling_cur_freq").unlink()
    assert source.read() == Frequencies(2_750_000_000.0, 2_000_000_000, 3_500_000_000)


def test_without_policies_each_core_has_its_own_folder(tmp_path: Path):
    """Without policies, as before Linux 4.3, each core's own folder is read."""
    cores = Cores(tmp_path, "cpu{}/cpufreq")
    for core in range(12):
        cores.set(core, 1_000_000 + core)
    (cores.roots.sysfs / "devices/system/cpu/cpufreq").mkdir()
    (cores.roots.sysfs / "devices/system/cpu/cpuidle").mkdir()
    assert cores.read() == Frequencies(1_000_005_500.0, 1_000_000_000, 1_000_011_000)


def test_a_driver_without_the_first_file_may_have_the_second(tmp_path: Path):
    """If `scaling_cur_freq` is missing, as on RHEL 7, `cpuinfo_cur_freq` is read."""
    cores = Cores(tmp_path, name="cpuinfo_cur_freq")
    cores.set(0, 1_200_000)
    assert cores.read() == Frequencies(1.2 * GHZ, 1_200_000_000, 1_200_000_000)


@pytest.mark.parametrize("form", [X86, S390, POWER])
def test_without_any_file_the_list_of_processors_counts(tmp_path: Path, form: str):
    """Without frequency files, as in most virtual machines, `/proc/cpuinfo` is read."""
    cores = Cores(tmp_path)
    cores.cpuinfo.write_text("".join(form.format(at=at, mhz=2600 + at) for at in range(3)))
    assert cores.read() == Frequencies(2.601 * GHZ, 2_600_000_000, 2_602_000_000)


def test_without_any_frequency_the_list_of_processors_counts(tmp_path: Path):
    """If no file has a valid frequency, `/proc/cpuinfo` is read, without cores of 0 MHz."""
    cores = Cores(tmp_path)
    cores.set(0, "<unknown>")
    cores.set(1, "0")
    cores.cpuinfo.write_text(X86.format(at=0, mhz="2600.002") + X86.format(at=1, mhz="0.000"))
    assert cores.read() == Frequencies(2_600_002_000.0, 2_600_002_000, 2_600_002_000)


@pytest.mark.parametrize("text", ["", "processor\t: 0\nBogoMIPS\t: 50.00\n", "cpu MHz : x\n"])
def test_a_machine_that_reports_none_has_none(tmp_path: Path, text: str):
    """If no file has a frequency, as on most ARM machines without policies, the result is None."""
    cores = Cores(tmp_path)
    assert cores.read() is None
    cores.cpuinfo.write_text(text)
    assert cores.read() is None


def test_the_list_of_processors_is_read_now_and_then(tmp_path: Path):
    """The file `/proc/cpuinfo`, which is large, is read again only after 15 s."""
    cores = Cores(tmp_path)
    times = iter([0.0, 0.0, 0.0, 14.0, 14.0, 14.0, 15.0, 15.0, 15.0])
    source = FrequencySource(roots=cores.roots, clock=lambda: next(times))
    found = []
    for mhz in (1000, 2000, 3000):
        cores.cpuinfo.write_text(X86.format(at=0, mhz=mhz))
        found.append(source.read())
    assert [None if one is None else one.mean_hertz for one in found] == [GHZ, GHZ, 3 * GHZ]


def test_a_core_that_comes_is_read_after_forgetting(tmp_path: Path):
    """The list of cores is kept until `forget` is called, for example when cores come or go."""
    cores = Cores(tmp_path)
    cores.set(0, 1_000_000)
    source = FrequencySource(roots=cores.roots)
    source.read()
    shutil.rmtree(cores.set(0, 1_000_000).parent)
    cores.set(1, 2_000_000)
    source.forget()
    assert source.read() == Frequencies(2.0 * GHZ, 2 * GHZ, 2 * GHZ)


def test_this_machine_agrees_with_psutil():
    """If psutil finds frequencies, the source finds similar ones; otherwise it finds none."""
    theirs, ours = psutil.cpu_freq(), FrequencySource(budget_seconds=5.0).read()
    assert (theirs is None) == (ours is None)
    if theirs is not None and ours is not None:
        assert ours.mean_hertz == pytest.approx(1e6 * theirs.current, rel=0.8)
