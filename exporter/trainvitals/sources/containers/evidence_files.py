"""Read a single evidence file: a log, a kernel log, a pod description or an inspection."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_files import explain_refusal, open_named
from trainvitals.sources.containers.assembly import Pieces, assemble, fill
from trainvitals.sources.containers.evidence import Evidence
from trainvitals.sources.containers.evidence_folder import add_kernel, parse_log, read_inspection
from trainvitals.sources.containers.evidence_kinds import recognise
from trainvitals.sources.containers.pod import parse_pod

STANDARD_INPUT = Path("-")

_MOST_BYTES = 32 << 20
_CHUNK_BYTES = 1 << 20


def read_files(
    path: Path | None, kernel_log: Path | None = None, *, clock: Callable[[], float] = time.time
) -> Evidence:
    """Read evidence from a single file, from a kernel log, or from both.

    Args:
        path: The path of a log, of a kernel log, or of the output of `kubectl describe pod`,
            `kubectl get pod` or `docker inspect`; `-` for standard input.
        kernel_log: The path of a kernel log; `-` for standard input.
        clock: A function that returns the current time, which determines the date of kernel log
            lines without a full date.

    Raises:
        ConfigurationError: A file cannot be read, the files are empty, or both paths are `-`.
    """
    if path == kernel_log == STANDARD_INPUT:
        raise ConfigurationError("standard input can be the log or the kernel log, not both")
    kernel = None if kernel_log is None else read_text(kernel_log)
    text = "" if path is None else read_text(path)
    if path is not None and not text.strip() and not kernel:
        raise ConfigurationError(f"{path} is empty; there is nothing to examine")
    kind = None if path is None else recognise(text)
    if kernel is None and kind == "kernel":
        kernel = text
    elif kind == "kernel":
        kind = "log"
    log = parse_log(text) if kind == "log" else None
    pod = parse_pod(text) if kind == "pod" else None
    named = path or kernel_log
    name = "standard input" if named == STANDARD_INPUT else named.name if named else ""
    inspection = read_inspection(text) if kind == "inspection" else None
    pieces = Pieces(name=name, inspection=inspection, log=log)
    pieces = add_kernel(pieces, kernel, now=clock())
    return assemble(pieces) if pod is None else fill(pod, assemble(pieces))


def read_text(path: Path) -> str:
    """Return the last 32 MiB of a file, or of standard input if the path is `-`.

    Raises:
        ConfigurationError: The file cannot be read.
    """
    try:
        if path == STANDARD_INPUT:
            data = _read_tail(sys.stdin.buffer)
        else:
            with open_named(path) as file:
                data = _read_tail(file)
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"cannot read {path}: {error.strerror}; name a file that exists"
        ) from error
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {explain_refusal(error)}") from error
    return data.decode(errors="replace").removeprefix("\ufeff")


def _read_tail(file: BinaryIO) -> bytes:
    if file.seekable():
        file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_BYTES))
    data = bytearray()
    while chunk := file.read(_CHUNK_BYTES):
        data += chunk
        if len(data) > 2 * _MOST_BYTES:
            del data[:-_MOST_BYTES]
    return bytes(data[-_MOST_BYTES:])
