"""promtool in tests, bounded by the CPU time that it takes.

A bound of time on the clock would fail where the machine is busy with something else: at a load of
ten on two cores everything takes five times as long, and no more work.
"""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

CPU_SECONDS = 240


def run_promtool(
    promtool: str | Path, *arguments: str | Path, cpu_seconds: int = CPU_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run promtool and return what it said, whatever its exit status.

    It is killed after so many seconds of CPU time; version 3 takes twice as many as 2.42. What hangs
    without taking any is left to the limit of the test.
    """
    with subprocess.Popen(
        (promtool, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
            said, complaints = process.communicate()
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, said, complaints)
