"""`trainvitals record`: what the machine looked like, written down at an interval."""

from trainvitals.record.beat import Beat, Ending
from trainvitals.record.enginelog import EngineLog, find_engine_log
from trainvitals.record.formats import make_format, name_format
from trainvitals.record.logfile import Console, LogFile
from trainvitals.record.recording import RecordOptions, record
from trainvitals.record.snapshot import Snapshot
from trainvitals.record.text import write_text
from trainvitals.record.watcher import Watcher, leave_out_the_rest

__all__ = [
    "Beat",
    "Console",
    "Ending",
    "EngineLog",
    "LogFile",
    "RecordOptions",
    "Snapshot",
    "Watcher",
    "find_engine_log",
    "leave_out_the_rest",
    "make_format",
    "name_format",
    "record",
    "write_text",
]
