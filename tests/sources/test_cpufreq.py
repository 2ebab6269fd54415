"""How fast the cores run."""

from __future__ import annotations

from trainvitals.sources.cpufreq import Frequencies, FrequencySource
from trainvitals.sources.files import Roots


class SlowClock:
    """A clock that moves at each look, as if the read between had taken that long."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        """Give the time."""
        self.now += self.step
        return self.now


def test_kilohertz_become_hertz(roots: Roots):
    """The fake machine's cores run at 2.0, 3.5, 2.5 and 1.2 GHz."""
    assert FrequencySource(roots=roots).read() == Frequencies(
        2_300_000_000.0, 1_200_000_000, 3_500_000_000
    )


def test_slow_reads_stop_when_the_time_is_spent_and_go_on_from_there(roots: Roots):
    """With 10 ms a read and 15 ms to spend, two cores are asked each time, in turns."""
    source = FrequencySource(roots=roots, clock=SlowClock(0.010), budget_seconds=0.015)
    assert source.read() == Frequencies(2_750_000_000.0, 2_000_000_000, 3_500_000_000)
    assert source.read() == Frequencies(1_850_000_000.0, 1_200_000_000, 2_500_000_000)
    assert source.read() == Frequencies(2_750_000_000.0, 2_000_000_000, 3_500_000_000)


def test_no_more_policies_than_the_limit_are_asked(roots: Roots):
    """With a limit of one, only the first policy counts."""
    assert FrequencySource(roots=roots, limit=1).read() == Frequencies(
        2_000_000_000.0, 2_000_000_000, 2_000_000_000
    )


def test_a_core_that_cannot_tell_is_left_out(roots: Roots):
    """A driver that answers <unknown> leaves the others."""
    (roots.sysfs / "devices/system/cpu/cpufreq/policy3/scaling_cur_freq").write_text("<unknown>\n")
    (roots.sysfs / "devices/system/cpu/cpufreq/policy2/scaling_cur_freq").unlink()
    assert FrequencySource(roots=roots).read() == Frequencies(
        2_750_000_000.0, 2_000_000_000, 3_500_000_000
    )
