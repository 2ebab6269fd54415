"""The files of a trace: `RUN-RANK-TIME/trace.json.gz` and `summary.txt`, both or none.

They are written into a hidden folder that then takes its name, and only their owner may read them.
`trace.json.gz` is Chrome's trace event format, as PyTorch writes it, for `chrome://tracing` or
Perfetto; `summary.txt` has tables of what took the most time and memory.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from trainvitals.training.torchtrace import TorchTrace, TraceError
from trainvitals.training.traceplace import TracePlace

TRACE, SUMMARY = "trace.json.gz", "summary.txt"
MOST_BYTES = 256 << 20
_TAIL_BYTES = 8192
_MOST_NAMES = 100
_PRIVATE = 0o600


def write_trace(trace: TorchTrace, place: TracePlace, head: Sequence[str]) -> Path:
    """Write the files of a trace that is over.

    Args:
        trace: The trace.
        place: Where to.
        head: The first lines of the summary.

    Returns:
        The folder.

    Raises:
        OSError: A file cannot be written.
        RuntimeError: PyTorch cannot write it.
        TraceError: It was written in part, or is too large.
    """
    place.directory.mkdir(parents=True, exist_ok=True)
    name = f"{place.stem}-{time.strftime('%Y%m%dT%H%M%S')}"
    partial = place.directory / f".{name}.{os.getpid()}.partial"
    partial.mkdir(mode=0o700)
    try:
        _write_events(trace, partial)
        text = "\n".join([*head, "", trace.write_tables()])
        with os.fdopen(_create(partial / SUMMARY), "wb") as file:
            file.write(text.encode(errors="replace"))
        return _name(partial, place.directory, name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_events(trace: TorchTrace, folder: Path) -> None:
    raw = folder / "trace.json"
    trace.export(raw)
    size = raw.stat().st_size
    if size > MOST_BYTES:
        raise TraceError(f"the trace has {size >> 20} MiB, and 256 is the most: trace fewer steps")
    if not _is_whole(raw, size):
        raise TraceError(
            f"the trace was cut off after {size} bytes: make room in {folder.parent}, or set "
            "TRAINVITALS_PROFILE_DIR"
        )
    with (
        raw.open("rb") as source,
        os.fdopen(_create(folder / TRACE), "wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=5) as packed,
    ):
        shutil.copyfileobj(source, packed, 1 << 20)
    raw.unlink()


def _is_whole(path: Path, size: int) -> bool:
    """Tell whether PyTorch wrote all of it: it does not say so when a disk is full."""
    with path.open("rb") as file:
        file.seek(max(0, size - _TAIL_BYTES))
        if b'"traceName"' in file.read():  # the last member
            return True
        file.seek(0)
        try:
            json.load(file)
        except ValueError:
            return False
    return True


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)


def _name(partial: Path, directory: Path, name: str) -> Path:
    for number in range(1, _MOST_NAMES):
        path = directory / (name if number == 1 else f"{name}-{number}")
        if not path.exists():
            return partial.rename(path)
    raise TraceError(f"{directory} has a hundred traces of this second")
