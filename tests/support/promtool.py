"""promtool in tests, with a limit on its CPU time.

A limit on wall-clock time would fail on a busy machine: at a load of ten on two cores, the same
work takes five times as long.
"""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

CPU_SECONDS = 240


def run_promtool(
    promtool: str | Path, *arguments: str | Path, cpu_seconds: int = CPU_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run promtool and return its exit status and output.

    promtool is killed after `cpu_seconds` of CPU time; version 3 needs twice as much as 2.42. If
    promtool hangs without using CPU time, the time limit of the test applies.
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
