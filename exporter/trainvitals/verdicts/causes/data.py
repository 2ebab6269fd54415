"""Data files that cannot be read because they are damaged or locked by another process."""

from __future__ import annotations

from trainvitals.verdicts.causes.broken_files import find_broken_data
from trainvitals.verdicts.causes.signs import matches
from trainvitals.verdicts.causes.text_causes import text_cause
from trainvitals.verdicts.causes.verdict import Cause

CAUSES: tuple[Cause, ...] = (
    text_cause(
        "data-corrupt",
        "A file of the data is broken",
        "The log contains `cannot identify image file`, `image file is truncated`, `Parquet magic bytes not"
        " found`, `CRC check failed`, `MDB_CORRUPTED` or similar.",
        "The file is truncated, empty, or not what its name says: a download or a copy was interrupted, or an"
        " error page was saved in its place.",
        (
            (
                "Find all such files before the next start: read every sample once with `num_workers=0`, and list"
                " those that fail; compare checksums with the source."
            ),
            (
                "Download or copy them again: `rsync --checksum`, `hf download --force-download`; delete a broken"
                " cache."
            ),
            "Skip samples that cannot be read in `Dataset.__getitem__`, and count them.",
        ),
        summary="A file of the data is broken: truncated, empty, or of another format.",
        lines=find_broken_data,
    ),
    text_cause(
        "file-lock",
        "A file is locked by another process",
        "The log contains `unable to lock file` or `database is locked`.",
        "Another process has it open for writing, or a file system such as NFS or Lustre has no working locks.",
        (
            "Find the process: `fuser -v FILE`, `lsof FILE`; a rank or worker of the same run may hold it.",
            "For HDF5 without locks: `HDF5_USE_FILE_LOCKING=FALSE`, and open it read-only in each worker.",
            "Keep SQLite databases and their studies on a local disk, or use a server.",
        ),
        summary="A file is locked by another process, or its file system has no working locks.",
        lines=matches(
            r"unable to lock file|database is locked|Unable to acquire lock|[Cc]ould ?n[o']t (?:acquire|get|obtain) (?:a |the )?(?:file )?lock",
            r"MDB_READERS_FULL|filelock\.\w{0,20}Timeout|The file lock .{1,200} could not be acquired|No locks available",
        ),
    ),
)
