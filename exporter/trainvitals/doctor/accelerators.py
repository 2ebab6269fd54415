"""Checks whether the machine's accelerators respond and are free."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, fail, ok, skip, warn
from trainvitals.doctor.machine import name_user
from trainvitals.sources.accelerators.pci import count_ports
from trainvitals.sources.accelerators.reading import AcceleratorReading, AcceleratorsReading
from trainvitals.sources.host.processes import read_process_name
from trainvitals.units import format_bytes, format_bytes_of, format_limited
from trainvitals.verdicts.accelerators import (
    find_temperature_limit,
    is_held,
    is_lost,
    name_device,
)

_SHOW_KERNEL_LOG = "sudo dmesg | grep -iE 'nvrm|xid|habanalabs' | tail"
_MOST_SHOWN = 3
_SHOW_OPEN_FILES = "sudo fuser -v /dev/nvidia*"


def _check_states(facts: Facts) -> Finding:
    reading = facts.accelerators()
    devices = sorted(reading.devices, key=lambda each: (each.identity.kind, each.identity.index))
    details = tuple(_describe_card(each, reading, facts) for each in devices)
    return replace(_judge_states(reading, facts), details=details)


def _judge_states(reading: AcceleratorsReading, facts: Facts) -> Finding:
    plugged = [device for device in facts.pci() if device.is_gpu or device.is_hpu]
    if not reading.devices:
        return _explain_silence(reading.complaint, len(plugged))
    lost = [each for each in reading.devices if is_lost(each)]
    if lost:
        return _describe_lost(lost, len(reading.devices))
    read = [each for each in reading.devices if each.state == "ok"]
    names = sorted({each.identity.model for each in read})
    what = f"{len(read)} respond: {', '.join(names)}"
    if len(read) < len(reading.devices):
        return warn(f"{what}; the driver does not support the others")
    if len(plugged) > len(reading.devices) and not facts.is_in_container:
        return fail(
            f"{what}; {len(plugged)} are plugged in",
            _SHOW_KERNEL_LOG,
            advice="the kernel log shows why the others are missing",
        )
    return warn(f"{what}; {reading.complaint}") if reading.complaint else ok(what)


def _describe_card(device: AcceleratorReading, reading: AcceleratorsReading, facts: Facts) -> str:
    name, numbers = name_device(device.identity), device.measurements
    if numbers is None:
        return f"{name}: {device.state}"
    used = format_bytes_of(numbers.memory_used_bytes, numbers.memory_total_bytes)
    most = find_temperature_limit(numbers, reading.temperature_limit_celsius)
    celsius = format_limited(numbers.temperature_core_celsius, most, "°C")
    words = [f"memory {used}", f"temperature {celsius}"]
    if numbers.links_active is not None:
        words.append(f"links {numbers.links_active} of {numbers.links_expected} up")
    if ports := count_ports(facts.machine.roots.sysfs, device.identity.bus_id):
        words.append(f"ports {ports.up} of {ports.count} up")
    return f"{name}: {', '.join(words)}"


def _explain_silence(complaint: str | None, plugged: int) -> Finding:
    if complaint:
        return fail(
            f"none responds: {complaint}", _SHOW_KERNEL_LOG, advice="see the checks of the driver"
        )
    if plugged:
        return fail(
            f"none of {plugged} responds", _SHOW_KERNEL_LOG, advice="see the checks of the driver"
        )
    return skip("no accelerator here")


def _describe_lost(lost: list[AcceleratorReading], count: int) -> Finding:
    states = ", ".join(f"{name_device(each.identity)} {each.state}" for each in lost)
    first = lost[0].identity
    return fail(
        f"{count - len(lost)} of {count} respond: {states}",
        f"sudo nvidia-smi --gpu-reset -i {first.index}"
        if first.kind == "gpu"
        else _SHOW_KERNEL_LOG,
        advice="if the reset is refused or does not help: `sudo reboot`",
    )


def _list_visible(facts: Facts) -> list[AcceleratorReading]:
    """Return the readings of the GPUs that a run in this environment can use."""
    chosen = facts.machine.environ.get("CUDA_VISIBLE_DEVICES")
    read = facts.list_accelerators("gpu")
    if chosen is None:
        return read
    names = [name.strip() for name in chosen.split(",")]
    return [
        each
        for each in read
        if str(each.identity.index) in names
        or any(name and each.identity.uuid.startswith(name) for name in names)
    ]


def _check_free(facts: Facts) -> Finding:
    seen = [*_list_visible(facts), *facts.list_accelerators("hpu")]
    read = [each for each in seen if each.measurements is not None]
    if not read:
        return skip("no accelerator can be read")
    thresholds = facts.thresholds()
    held = [
        each
        for each in read
        if each.measurements is not None and is_held(each.measurements, thresholds)
    ]
    if not held:
        return ok(f"{len(read)} of {len(read)} are free")
    command, advice = _make_room(held, read, facts)
    what = "; ".join(_describe_held(each, facts) for each in held)
    return fail(what, command, advice=advice)


def _describe_held(reading: AcceleratorReading, facts: Facts) -> str:
    numbers = reading.measurements
    used = format_bytes(numbers.memory_used_bytes or 0) if numbers else ""
    total = format_bytes(numbers.memory_total_bytes or 0) if numbers else ""
    holders = ", ".join(_name_process(each.pid, facts) for each in reading.processes[:_MOST_SHOWN])
    who = f"by {holders}" if holders else "by processes that cannot be seen from here"
    return f"{name_device(reading.identity)}: {used} of {total} held {who}"


def _name_process(pid: int, facts: Facts) -> str:
    name = read_process_name(pid, facts.machine.roots)
    user = _find_owner(pid, facts)
    if name is None or user is None:
        return f"pid {pid}"
    return f"{name} (pid {pid}, user {name_user(user)})"


def _find_owner(pid: int, facts: Facts) -> int | None:
    try:
        return (facts.machine.roots.procfs / str(pid)).stat().st_uid
    except OSError:  # the process has ended, or is in another PID namespace
        return None


def _make_room(
    held: list[AcceleratorReading], read: list[AcceleratorReading], facts: Facts
) -> tuple[str, str]:
    """Return a shell command that selects or frees accelerators, and further advice."""
    free = [each for each in read if each not in held and each.identity.kind == "gpu"]
    pids = [holder.pid for each in held for holder in each.processes]
    own = " ".join(str(pid) for pid in pids if _find_owner(pid, facts) == facts.machine.user)
    show = f"ps -o pid,user,etime,comm -p {','.join(map(str, pids))}" if pids else _SHOW_OPEN_FILES
    if free:
        indices = ",".join(str(each.identity.index) for each in free)
        advice = f"or end the processes on the others: `{f'kill {own}' if own else show}`"
        return f"export CUDA_VISIBLE_DEVICES={indices}", advice
    if own:
        return f"kill {own}", "if these are left over from an earlier run"
    return show, "ask the owner of these processes"


CHECKS = (
    Check(
        "accelerator-states",
        "accelerators",
        "an accelerator that is plugged in and does not respond, is lost, hangs or needs a reset; "
        "for each its memory, temperature, links and network ports",
        "a run on it fails at its start, or hangs in its first collective",
        _check_states,
        alerts=("AcceleratorLost",),
        is_quick=True,
        on_timeout="problem",
    ),
    Check(
        "free-accelerators",
        "accelerators",
        "memory held by other processes or left over from an earlier run, on the GPUs of "
        "`CUDA_VISIBLE_DEVICES` if that is set",
        "the run fails with CUDA out of memory, or shares a GPU and is slow",
        _check_free,
    ),
)
