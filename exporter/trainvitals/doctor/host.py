"""Memory, swap and the clock."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, approve, complain, pass_over, warn
from trainvitals.doctor.quantities import write_bytes
from trainvitals.sources.files import read_small
from trainvitals.sources.kernel import KernelSource
from trainvitals.sources.memory import MemoryReading, MemorySource

_GIB = 1 << 30
_LEAST_BYTES, _GOOD_RATIO = 2 * _GIB, 0.15
_SWAPPED_RATIO, _FULL_RATIO = 0.25, 0.9
_WRONG_SECONDS, _OFF_SECONDS = 86_400.0, 0.5
_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
_USES = ("memory.current", "memory/memory.usage_in_bytes")


def _read_memory(facts: Facts) -> MemoryReading:
    with closing(MemorySource(roots=facts.world.roots)) as source:
        return source.read()


def _examine_memory(facts: Facts) -> Finding:
    reading = _read_memory(facts)
    free, total = reading.available_bytes, reading.total_bytes
    where = ""
    limit = _read_group(facts, _LIMITS)
    if facts.is_in_container and limit is not None and limit < total:
        total, where = limit, " of this container"
        free = min(free, max(limit - (_read_group(facts, _USES) or 0), 0))
    what = f"{write_bytes(free)} of {write_bytes(total)}{where} available"
    mend = "ps -eo pid,user,rss,comm --sort=-rss | head"
    if free < _LEAST_BYTES:
        return complain(what, mend, advice="end what is not needed, or raise the limit")
    if free < total * _GOOD_RATIO:
        return warn(what, mend, advice="end what is not needed")
    return approve(what)


def _read_group(facts: Facts, names: tuple[str, ...]) -> int | None:
    base = facts.world.roots.sysfs / "fs/cgroup"
    for name in names:
        text = (read_small(base / name) or "").strip()
        if text.isascii() and text.isdecimal():
            return int(text)
    return None


def _examine_swap(facts: Facts) -> Finding:
    reading = _read_memory(facts)
    total, used = reading.swap_total_bytes, reading.swap_used_bytes
    if not total:
        return approve("none: a run that needs more than the memory is killed at once")
    what = f"{write_bytes(used)} of {write_bytes(total)} used"
    mend = "sudo swapoff -a && sudo swapon -a"
    advice = "while enough memory is free to take it back"
    if used > total * _FULL_RATIO:
        return complain(what, mend, advice=advice)
    if used > total * _SWAPPED_RATIO:
        return warn(what, mend, advice=advice)
    return approve(what)


def _examine_clock(facts: Facts) -> Finding:
    with closing(
        KernelSource(
            roots=facts.world.roots, clock=facts.world.clock, adjtimex=facts.world.adjtimex
        )
    ) as source:
        reading = source.read()
    has_systemd = (facts.world.roots.rootfs / "run/systemd/system").exists()
    start = "sudo timedatectl set-ntp true"
    mend = start if has_systemd else "sudo apt-get install -y chrony && sudo service chrony start"
    installed = Path(__file__).stat().st_mtime
    if reading.time_seconds < installed - _WRONG_SECONDS:
        return complain("the clock shows a time before this program was installed", mend)
    if reading.clock is None:
        return pass_over("asking the kernel is not permitted")
    offset = reading.clock.offset_seconds
    if not reading.clock.synchronized:
        return warn(
            "nothing keeps the clock right",
            mend,
            advice="a virtual machine or container may have the time of its host, which then must be right",
        )
    if abs(offset) > _OFF_SECONDS:
        return warn(f"the clock is {abs(offset):.1f} s off", "sudo chronyc makestep")
    return approve(f"kept right, {abs(offset) * 1000:.1f} ms off")


_SUBJECT = "host"
CHECKS = (
    Check(
        "memory",
        _SUBJECT,
        "less than 2 GiB available, of the container's limit in a container; a warning below 15 %",
        "the kernel kills the run, or its DataLoader workers one by one",
        _examine_memory,
    ),
    Check(
        "swap",
        _SUBJECT,
        "more than 90 % of it used; a warning from a quarter on",
        "what is swapped out is read back in the middle of a step, and steps stall",
        _examine_swap,
    ),
    Check(
        "clock",
        _SUBJECT,
        "a clock that is before the day this program was installed; a warning where no time daemon "
        "keeps it right",
        "certificates and tokens are refused, and logs of several machines do not fit together",
        _examine_clock,
    ),
)
