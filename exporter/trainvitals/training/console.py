"""What the training process prints about its resources, every so many batches.

    [Resources] Batch 50:
      GPU 0: 87.3% util, 8192/16384 MB (50%), 72°C
      CPU: 45.2% (process: 180.5%)
      Memory: 8192/16384 MB available (50%)
      I/O: Read 75.2 MB/s, Write 6.3 MB/s, Wait 5.3%

    [Resources] ⚠️ ALERTS:
      - GPU underutilized: 42.3% (threshold: 50%)

What could not be read is left out, a whole line where nothing of it could.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping

PREFIX = "[Resources]"
WARNING_SIGN = "⚠️"
_GPU_KEY = re.compile(r"gpu_(\d+)_")


class Console:
    """Where the blocks go: standard output, as long as it can be written.

    Args:
        write: Takes a text; `sys.stdout` as it is at that moment when None.
    """

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        self._write = write
        self._is_broken = False

    def show(self, text: str) -> None:
        """Write a text; signs that the terminal does not know become question marks."""
        if self._is_broken or not text:
            return
        if self._write is not None:
            self._write(text)
            return
        try:
            try:
                sys.stdout.write(text)
            except UnicodeEncodeError:
                sys.stdout.write(text.encode("ascii", "replace").decode())
            sys.stdout.flush()
        except (
            OSError,
            ValueError,
            AttributeError,
        ):  # closed, its reader is gone, or there is none
            self._is_broken = True


def write_block(batch: int, metrics: Mapping[str, float]) -> str:
    """Write a reading; of memory, the percentage is the share that is available."""
    lines = [f"{PREFIX} Batch {batch}:"]
    for gpu in sorted({int(match[1]) for key in metrics if (match := _GPU_KEY.match(key))}):
        lines += _write_line(f"GPU {gpu}", _write_gpu(f"gpu_{gpu}_", metrics))
    lines += _write_line("CPU", _write_cpu(metrics))
    lines += _write_line("Memory", _write_memory(metrics))
    lines += _write_line(
        "I/O",
        [
            *_write_value("Read {:.1f} MB/s", metrics.get("io_read_rate_mbps")),
            *_write_value("Write {:.1f} MB/s", metrics.get("io_write_rate_mbps")),
            *_write_value("Wait {:.1f}%", metrics.get("io_wait_pct")),
        ],
    )
    return "\n".join(lines) + "\n"


def write_alerts(texts: Iterable[str]) -> str:
    """Write the block of alerts that are new, below an empty line."""
    return f"\n{PREFIX} {WARNING_SIGN} ALERTS:\n" + "".join(f"  - {text}\n" for text in texts)


def write_cleared(texts: Iterable[str]) -> str:
    """Write a line for each alert that is over, with the value that ended it."""
    return "".join(f"{PREFIX} cleared: {text}\n" for text in texts)


def _write_gpu(prefix: str, metrics: Mapping[str, float]) -> list[str]:
    parts = _write_value("{:.1f}% util", metrics.get(f"{prefix}util"))
    used, total = metrics.get(f"{prefix}memory_used_mb"), metrics.get(f"{prefix}memory_total_mb")
    if used is not None and total:
        parts.append(f"{used:.0f}/{total:.0f} MB ({100 * used / total:.0f}%)")
    return parts + _write_value("{:.0f}°C", metrics.get(f"{prefix}temp_c"))


def _write_cpu(metrics: Mapping[str, float]) -> list[str]:
    machine, process = metrics.get("cpu_percent"), metrics.get("cpu_process_percent")
    if machine is None:
        return _write_value("process: {:.1f}%", process)
    return [f"{machine:.1f}%" + ("" if process is None else f" (process: {process:.1f}%)")]


def _write_memory(metrics: Mapping[str, float]) -> list[str]:
    available, total = metrics.get("memory_available_mb"), metrics.get("memory_system_mb")
    if available is None or not total:
        return []
    share = 100 * available / total
    return [f"{available:.0f}/{total:.0f} MB available ({share:.0f}%)"]


def _write_value(form: str, value: float | None) -> list[str]:
    return [] if value is None else [form.format(value)]


def _write_line(subject: str, parts: list[str]) -> list[str]:
    return [f"  {subject}: {', '.join(parts)}"] if parts else []
