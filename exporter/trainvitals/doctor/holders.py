"""Whether accelerators are free, and who holds them."""

from __future__ import annotations

import pwd

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, approve, complain, pass_over
from trainvitals.doctor.quantities import write_bytes
from trainvitals.sources.accelerators.reading import AcceleratorReading
from trainvitals.sources.processes import read_process_name

# Less is what a display server or a monitoring agent holds.
_HELD_RATIO = 0.05
_MOST_TOLD = 3
_OPEN = "sudo fuser -v /dev/nvidia*"


def _list_visible(facts: Facts) -> list[AcceleratorReading]:
    """List the GPUs that a run would see."""
    chosen = facts.world.environ.get("CUDA_VISIBLE_DEVICES")
    read = facts.list_read("gpu")
    if chosen is None:
        return read
    names = [name.strip() for name in chosen.split(",")]
    return [
        each
        for each in read
        if str(each.identity.index) in names
        or any(name and each.identity.uuid.startswith(name) for name in names)
    ]


def _examine_strangers(facts: Facts) -> Finding:
    seen = [*_list_visible(facts), *facts.list_read("hpu")]
    read = [each for each in seen if each.measurements is not None]
    if not read:
        return pass_over("no accelerator answers")
    held = [each for each in read if _find_held_ratio(each) > _HELD_RATIO]
    if not held:
        return approve(f"{len(read)} of {len(read)} are free")
    told = "; ".join(_tell_holders(each, facts) for each in held)
    mend, advice = _make_room(held, read, facts)
    return complain(told, mend, advice=advice)


def _find_held_ratio(reading: AcceleratorReading) -> float:
    numbers = reading.measurements
    if numbers is None or not numbers.memory_total_bytes or numbers.memory_used_bytes is None:
        return 0.0
    return numbers.memory_used_bytes / numbers.memory_total_bytes


def _tell_holders(reading: AcceleratorReading, facts: Facts) -> str:
    numbers = reading.measurements
    used = write_bytes(numbers.memory_used_bytes or 0) if numbers else ""
    total = write_bytes(numbers.memory_total_bytes or 0) if numbers else ""
    holders = ", ".join(_name_process(each.pid, facts) for each in reading.processes[:_MOST_TOLD])
    who = f"by {holders}" if holders else "by processes that are not seen from here"
    identity = reading.identity
    return f"{identity.kind} {identity.index}: {used} of {total} held {who}"


def _name_process(pid: int, facts: Facts) -> str:
    name = read_process_name(pid, facts.world.roots)
    user = _find_owner(pid, facts)
    if name is None or user is None:
        return f"pid {pid}"
    return f"{name} (pid {pid}, user {_name_user(user)})"


def _find_owner(pid: int, facts: Facts) -> int | None:
    try:
        return (facts.world.roots.procfs / str(pid)).stat().st_uid
    except OSError:  # it ended, or is in another container
        return None


def _name_user(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _make_room(
    held: list[AcceleratorReading], read: list[AcceleratorReading], facts: Facts
) -> tuple[str, str]:
    """Tell the command that makes room, and what else there is to do."""
    free = [each for each in read if each not in held and each.identity.kind == "gpu"]
    pids = [holder.pid for each in held for holder in each.processes]
    own = " ".join(str(pid) for pid in pids if _find_owner(pid, facts) == facts.world.user)
    look = f"ps -o pid,user,etime,comm -p {','.join(map(str, pids))}" if pids else _OPEN
    if free:
        indices = ",".join(str(each.identity.index) for each in free)
        advice = f"or end what holds the others: `{f'kill {own}' if own else look}`"
        return f"export CUDA_VISIBLE_DEVICES={indices}", advice
    if own:
        return f"kill {own}", "if it is what is left of an earlier run"
    return look, "ask whose it is"


CHECKS = (
    Check(
        "free-accelerators",
        "accelerators",
        "memory that other processes hold, or what an earlier run left; among the GPUs of "
        "`CUDA_VISIBLE_DEVICES` where that is set",
        "the run dies with CUDA out of memory, or shares a GPU and is slow",
        _examine_strangers,
    ),
)
