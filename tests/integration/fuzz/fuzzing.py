"""A round of damaged inputs at one door, under the same promises at each.

    fuzz("logs", Mutations(corpus), read)

No call takes over a second, none raises what it does not document or logs a traceback, no text that
it returns has what lies outside, and the memory stays flat. `FUZZ_SECONDS` is how long a round lasts;
`FUZZ_SEED` repeats one, and a failure names it.
"""

from __future__ import annotations

import base64
import gc
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from random import Random, SystemRandom

import psutil
import pytest

from tests.support.mutations import Mutations
from trainvitals.errors import TrainvitalsError

CANARY = "canary-8c1f0b52"
# A call that coverage traces takes several times as long.
MOST_SECONDS = 1.0 if sys.gettrace() is None else 4.0
SECONDS_OF_A_DOOR, SECONDS_OF_A_LONG_ROUND = 20, 3600
_DEFAULT_SECONDS = (
    SECONDS_OF_A_LONG_ROUND if os.environ.get("TRAINVITALS_TEST_LONG") else SECONDS_OF_A_DOOR
)
SECONDS = float(os.environ.get("FUZZ_SECONDS", _DEFAULT_SECONDS))
# What runs with each change meets the same inputs each time; a longer round meets new ones.
_NEW_SEED = SystemRandom().randrange(1 << 32) if SECONDS > SECONDS_OF_A_DOOR else 1
SEED = int(os.environ.get("FUZZ_SEED", _NEW_SEED))
TIMEOUT = pytest.mark.timeout(240 + 3 * SECONDS)
_WARM_UP = 0.4
# This process keeps what its tests have seen; a server does not.
_MOST_GROWTH_BYTES = 24 << 20
_MOST_GROWTH_OF_A_SERVER_BYTES = 8 << 20
_SHOWN = 3000
_TRIES = 3

Take = Callable[[bytes], str]


class Complaints(logging.Handler):
    """Keeps the tracebacks that the package logs."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        if record.exc_info:
            self.found.append(f"{record.getMessage()}\n{record.exc_info}")


def fuzz(
    door: str,
    mutations: Mutations,
    take: Take,
    *,
    clock: Callable[[], float] = time.thread_time,
    memory: psutil.Process | None = None,
) -> int:
    """Hand in one input after the other until the time is over; return how many.

    Args:
        door: What is tried, for messages.
        mutations: The inputs.
        take: Hands one in, and returns what is shown of it.
        clock: Measures a call; the processor time of this thread, for a call that waits the time.
        memory: The process that is to stay flat; this one when None.

    Raises:
        AssertionError: A promise was broken; the message has the seed, the number and the input.
    """
    process = memory or psutil.Process()
    complaints = Complaints()
    logger = logging.getLogger("trainvitals")
    logger.addHandler(complaints)
    logger.propagate = False  # pytest would keep each line
    began = time.monotonic()
    number, warm_bytes = 0, 0
    try:
        while (spent := time.monotonic() - began) < SECONDS or not number:
            if not warm_bytes and spent > _WARM_UP * SECONDS:
                warm_bytes = _measure(process)
            data = mutations.draw(Random(f"{SEED}/{number}"))
            broken = _try(take, data, clock, complaints)
            assert broken is None, _tell(door, number, data, str(broken))
            number += 1
    finally:
        logger.removeHandler(complaints)
        logger.propagate = True
    grown = _measure(process) - (warm_bytes or _measure(process))
    most_bytes = _MOST_GROWTH_OF_A_SERVER_BYTES if memory else _MOST_GROWTH_BYTES
    assert grown < most_bytes, f"{door}: {grown} bytes grown by {number} inputs, seed {SEED}"
    print(f"{door}: {number} inputs, seed {SEED}, {grown / (1 << 20):.1f} MiB grown")
    return number


def _try(take: Take, data: bytes, clock: Callable[[], float], complaints: Complaints) -> str | None:
    """Return which promise an input breaks; None if all are kept."""
    began = clock()
    try:
        shown = take(data)
    except Exception:  # noqa: BLE001 - whatever it is, the input is to be named
        return traceback.format_exc()
    seconds = clock() - began
    for _ in range(_TRIES):
        if seconds < MOST_SECONDS:
            break
        began = clock()
        take(data)
        seconds = min(seconds, clock() - began)
    if seconds >= MOST_SECONDS:
        return f"it took {seconds:.2f} s"
    if complaints.found:
        return complaints.found.pop()
    return f"what lies outside is shown:\n{shown[:_SHOWN]}" if CANARY in shown else None


def refusal(error: TrainvitalsError) -> str:
    """Return what a refusal says, which is one line."""
    message = str(error)
    assert "\n" not in message, ascii(message[:_SHOWN])
    return message


def _tell(door: str, number: int, data: bytes, broken: str) -> str:
    shown = base64.b64encode(data[:_SHOWN]).decode()
    return (
        f"{door}, FUZZ_SEED={SEED}, input {number}: {broken}\n{data[:300]!r}\n{len(data)}: {shown}"
    )


def _measure(process: psutil.Process) -> int:
    """Return the resident bytes of a process."""
    if process.pid == os.getpid():
        gc.collect()
    return int(process.memory_info().rss)
