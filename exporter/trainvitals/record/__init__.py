"""`trainvitals record`: snapshots of the machine, written to a file at regular intervals."""

from trainvitals.record.formats import make_format, name_format
from trainvitals.record.logfile import Console, LogFile
from trainvitals.record.recording import RecordOptions, record
from trainvitals.record.watcher import Watcher, leave_out_the_rest

__all__ = [
    "Console",
    "LogFile",
    "RecordOptions",
    "Watcher",
    "leave_out_the_rest",
    "make_format",
    "name_format",
    "record",
]
