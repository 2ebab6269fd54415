"""Downloads large files and resumes interrupted downloads."""

from __future__ import annotations

import hashlib
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError

from trainvitals.errors import StackError
from trainvitals.sources.http_client import build_opener
from trainvitals.units import format_bytes_of, format_duration

Report = Callable[[str], None]

_PARTIAL_CONTENT, _BEYOND_THE_END = 206, 416
_PIECE_BYTES = 1 << 18
_REPORTED_PARTS = 10
_LIMIT_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file on a server, with a known size and checksum.

    Attributes:
        url: The URL of the file.
        size: The size of the file in bytes.
        algorithm: The checksum algorithm, such as `sha256`.
        checksum: The checksum of the file as hexadecimal digits.
    """

    url: str
    size: int
    algorithm: str
    checksum: str


def download_file(
    file: RemoteFile, path: Path, *, report: Report, timeout_seconds: float = 10.0
) -> None:
    """Download a file to a path and verify the file's checksum; an existing file is kept.

    The data received before an interruption is kept in the same directory, in a file whose name
    ends in `.partial`. The next call resumes the download from this file.

    Args:
        file: The file to download.
        path: The path of the downloaded file.
        report: Called with a line of progress after each tenth of the file.
        timeout_seconds: The maximum time without data from the server, in seconds.

    Raises:
        StackError: The server does not respond, the file has a wrong checksum, or the file cannot
            be written.
    """
    if path.exists():
        return
    partial = path.with_name(f"{path.name}.partial")
    is_continued = _measure(partial) > 0
    _complete(file, partial, report, timeout_seconds)
    if is_continued and not _matches(partial, file):
        partial.unlink()
        _complete(file, partial, report, timeout_seconds)
    if not _matches(partial, file):
        partial.unlink()
        raise StackError(f"{file.url} does not have the checksum of its index, and is not used")
    partial.replace(path)


def _complete(file: RemoteFile, partial: Path, report: Report, timeout_seconds: float) -> None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while (held := _measure(partial)) < file.size:
        end = _receive(file, partial, deadline, report, timeout_seconds)
        # After a lost connection, the download is resumed immediately, unless the server has sent
        # no data.
        if _measure(partial) <= held or time.monotonic() > deadline:
            raise StackError(f"cannot download {file.url}: {end}")


def _measure(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _receive(
    file: RemoteFile, partial: Path, deadline: float, report: Report, timeout_seconds: float
) -> str:
    """Receive the remaining bytes, and return why the connection or the download ended.

    Raises:
        StackError: The file cannot be written.
    """
    held = _measure(partial)
    request = urllib.request.Request(file.url)  # noqa: S310 - the URL is from apt's index
    if held:
        request.add_header("Range", f"bytes={held}-")
    opener = build_opener(uses_proxy=True, follows_redirects=True)
    try:
        with opener.open(request, timeout=timeout_seconds) as response:
            if held and response.status != _PARTIAL_CONTENT:
                partial.unlink()  # The server sends the whole file.
                held = 0
            while held < file.size and time.monotonic() < deadline:
                piece = response.read1(min(_PIECE_BYTES, file.size - held))
                if not piece:
                    return "the connection was closed"
                _append(partial, piece)
                _report_part(file, held, held + len(piece), report)
                held += len(piece)
    except HTTPError as error:
        if error.code == _BEYOND_THE_END:
            partial.unlink()
        return f"the server responds with status {error.code}"
    except (OSError, HTTPException) as error:
        return _explain(error)
    return f"it takes longer than {format_duration(_LIMIT_SECONDS)}"


def _append(path: Path, piece: bytes) -> None:
    try:
        with path.open("ab") as output:
            output.write(piece)
    except OSError as error:
        raise StackError(f"cannot write {path}: {error.strerror}") from error


def _report_part(file: RemoteFile, before: int, after: int, report: Report) -> None:
    part_bytes = max(file.size // _REPORTED_PARTS, 1)
    if before // part_bytes != after // part_bytes:
        name = file.url.rpartition("/")[2]
        report(f"{name}: {format_bytes_of(after, file.size)}")


def _explain(error: Exception) -> str:
    """Return why a request failed, without the text that urllib adds to the message."""
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, TimeoutError):
        return "the server does not respond"
    return (reason.strerror if isinstance(reason, OSError) else None) or str(reason) or repr(error)


def _matches(path: Path, file: RemoteFile) -> bool:
    digest = hashlib.new(file.algorithm)
    with path.open("rb") as content:
        while piece := content.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest() == file.checksum
