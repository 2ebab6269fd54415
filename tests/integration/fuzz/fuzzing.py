"""A round of damaged inputs to one entry point, with the same guarantees for each.

    fuzz("logs", Mutations(corpus), read)

No call takes more than a second, raises an undocumented exception or logs a traceback; no returned
text contains the content of files outside the allowed directories; and the memory does not grow.
`FUZZ_SECONDS` sets how long a round lasts. `FUZZ_SEED` repeats a round; a failure prints its seed.
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
from tests.support.pumping import measure_slowness
from trainvitals.errors import TrainvitalsError

CANARY = "canary-8c1f0b52"
# The limit holds for the reference machine at rest; a call takes several times as long while
# coverage traces it.
MOST_SECONDS = 1.0 if sys.gettrace() is None else 4.0
SECONDS_OF_A_DOOR, SECONDS_OF_A_LONG_ROUND = 30, 3600
_DEFAULT_SECONDS = (
    SECONDS_OF_A_LONG_ROUND if os.environ.get("TRAINVITALS_TEST_LONG") else SECONDS_OF_A_DOOR
)
SECONDS = float(os.environ.get("FUZZ_SECONDS", _DEFAULT_SECONDS))
# A short round, which runs for each change, repeats its inputs; a longer round has new inputs.
_NEW_SEED = SystemRandom().randrange(1 << 32) if SECONDS > SECONDS_OF_A_DOOR else 1
SEED = int(os.environ.get("FUZZ_SEED", _NEW_SEED))
TIMEOUT = pytest.mark.timeout(240 + 3 * SECONDS)
_WARM_UP = 0.4
# The test process may grow more than a server, because it keeps data of the tests.
_MOST_GROWTH_BYTES = 24 << 20
_MOST_GROWTH_OF_A_SERVER_BYTES = 8 << 20
_SHOWN = 3000
_TRIES = 3

Take = Callable[[bytes], str]


class Complaints(logging.Handler):
    """A logging handler that keeps the tracebacks that the package logs."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record with a traceback."""
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
    """Try one input after another until the time is over, and return the number of inputs.

    Args:
        door: Name of the entry point, for messages.
        mutations: The inputs.
        take: Passes an input to the entry point and returns the text that users would see.
        clock: Clock for a call: this thread's processor time, or real time if a call waits.
        memory: The process whose memory must not grow; the test process if None.

    Raises:
        AssertionError: A guarantee was broken; the message has the seed, the number and the input.
    """
    process = memory or psutil.Process()
    complaints = Complaints()
    logger = logging.getLogger("trainvitals")
    logger.addHandler(complaints)
    logger.propagate = False  # pytest would keep every logged line in memory
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
    """Return which guarantee an input breaks, or None if it breaks none."""
    began = clock()
    try:
        shown = take(data)
    except Exception:  # noqa: BLE001 - any exception is reported together with the input
        return traceback.format_exc()
    seconds = clock() - began
    for _ in range(_TRIES):
        if seconds < MOST_SECONDS:
            break
        began = clock()
        take(data)
        seconds = min(seconds, clock() - began)
    if seconds >= MOST_SECONDS and seconds / measure_slowness(clock) >= MOST_SECONDS:
        return f"it took {seconds:.2f} s"
    if complaints.found:
        return complaints.found.pop()
    return f"what lies outside is shown:\n{shown[:_SHOWN]}" if CANARY in shown else None


def refusal(error: TrainvitalsError) -> str:
    """Return the message of a refusal, which must be one line."""
    message = str(error)
    assert "\n" not in message, ascii(message[:_SHOWN])
    return message


def _tell(door: str, number: int, data: bytes, broken: str) -> str:
    shown = base64.b64encode(data[:_SHOWN]).decode()
    return (
        f"{door}, FUZZ_SEED={SEED}, input {number}: {broken}\n{data[:300]!r}\n{len(data)}: {shown}"
    )


def _measure(process: psutil.Process) -> int:
    """Return the resident memory of a process in bytes."""
    if process.pid == os.getpid():
        gc.collect()
    return int(process.memory_info().rss)
