"""SIGKILLs of containers near their memory limit, which must not be reported as OOM kills."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.integration.engine.conftest import Watch
from tests.integration.engine.stage import Stage
from tests.support.exporter_process import Page

ROUNDS = 20 if os.environ.get("TRAINVITALS_TEST_LONG") == "1" else 2

# The program holds 52 MiB and, by its file, reaches a peak of 64 MiB: the kernel drops the pages
# of the file, and kills nothing.
_LIMIT = "--memory=64m"
_FULL = """
import time
held = [b"x" * (1 << 20) for _ in range(46)]
with open("/big", "wb") as file:
    for _ in range(48):
        file.write(bytes(1 << 20))
print("ready", flush=True)
time.sleep(600)
"""


def _kill(stage: Stage) -> None:
    stage.docker("kill", stage.name)


def _stop(stage: Stage) -> None:
    stage.docker("stop", "--time=1", stage.name)


def _kill_from_host(stage: Stage) -> None:
    os.kill(stage.pid, signal.SIGKILL)


_ENDINGS = {
    "kill-operator": _kill,
    "stop-timeout": _stop,
    "kill-outside": _kill_from_host,
}


def test_no_kill_is_taken_for_an_oom(watch: Watch, make_stage: Callable[..., Stage]):
    """`docker kill`, a stop timeout and `kill -9` near the memory limit get their own reasons."""
    expected = {f"{reason}-{n}": reason for n in range(ROUNDS) for reason in _ENDINGS}
    stages = {title: make_stage(title) for title in expected}

    def end(title: str) -> None:
        stage = stages[title]
        assert not stage.run((_LIMIT,), ("python3", "-c", _FULL))
        stage.wait_for("ready")
        assert stage.peak_bytes >= 60 << 20
        _ENDINGS[expected[title]](stage)
        stage.wait_for_end()

    def reason_of(page: Page, title: str) -> str | None:
        found = page.find("container_last_death_info", name=stages[title].name)
        return found[0].labels["reason"] if found else None

    def diagnose(title: str) -> str:
        reason: str = watch.diagnose(stages[title].name)["reason"]
        return reason

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(end, stages))
        page = watch.exporter.scrape_until(
            lambda page: all(reason_of(page, title) for title in stages), "container"
        )
        explained = dict(zip(stages, pool.map(diagnose, stages), strict=True))
    assert {title: reason_of(page, title) for title in stages} == expected
    assert explained == expected
    for stage in stages.values():
        for source in ("event", "kernel"):
            kills = page.value("container_oom_kills_total", name=stage.name, source=source)
            assert kills in {0, None}
