"""Checkpoints and data files that are truncated or in another format.

HDF5, zip, tar and pickle raise the same errors for checkpoints and for data files. The frames of
the traceback show which kind of file the program was reading.
"""

from __future__ import annotations

import re
from typing import Literal

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import LogMatch, find_match
from trainvitals.verdicts.causes.parsed_log import parse_log
from trainvitals.verdicts.causes.signs import contains, matches

_CHECKPOINT = contains(
    "PytorchStreamReader failed",
    "not a ZIP archive",
    "failed finding central directory",
    "Error while deserializing header",
    "MetadataIncompleteBuffer",
    "HeaderTooLarge",
    "pickle data was truncated",
    "invalid load key",
    "Unsupported operand",
    "Ran out of input",
    "Unable to open file (truncated file",
    "Unable to synchronously open file (truncated file",
    "file signature not found",
    "The file might be corrupted",
    "storage has wrong size",
    "not an sstable (bad magic number)",
    "InvalidHeaderDeserialization",
    "IncompleteMetadata",
    "checkpoint is corrupt",
    "orrupted checkpoint",
    "Unexpected end of archive",
    "UnpicklingError: unpickling stack underflow",
)
# `torch.load` raises only these errors if a file is empty or truncated within its index.
_BARE_LOAD_ERRORS = matches(r"^\s*(?:OSError: \[Errno 22\] Invalid argument|EOFError)")
_DATA = matches(
    r"UnidentifiedImageError|cannot identify image file|image file is truncated|broken data stream when reading image",
    r"zlib\.error: |Error -[35] while (?:decompressing|preparing)|incorrect header check|Not a gzipped file",
    r"Compressed file ended before the end-of-stream|CRC check failed|Bad CRC-32|BadZipFile|File is not a zip file",
    r"not a (?:TIFF|PNG|GIF|BMP|WebP|JPEG2000|PPM) file|Truncated File Read|no element found: line|Checksum mismatch for|"
    r"Corrupt input data|tarfile\.ReadError|not a valid (?:tar|gzip|zip|parquet) (?:file|archive)|unexpected end of data",
    r"MDB_(?:CORRUPTED|INVALID|PAGE_NOTFOUND|BAD_TXN)|lmdb\.(?:Corrupted|Invalid)Error",
    r"Parquet magic bytes not found|Parquet file size is 0 bytes|ArrowInvalid: .{0,120}(?:[Ii]nvalid|[Nn]ot an? |truncated|[Cc]orrupt|footer)",
    r"Couldn't deserialize thrift|Not an Arrow file|Expected to be able to read [0-9]{1,20} bytes",
    r"corrupted record at [0-9]|truncated record at [0-9]|DataLossError|invalid RecordIO|Invalid magic number",
    r"NonMatching(?:Checksum|SplitsSizes)Error|Checksums didn't match|ChecksumVerificationError|(?:hash|checksum|sha256|md5) mismatch",
    r"Unable to (?:synchronously )?open file \((?:truncated file|file signature not found|bad object)",
    r"!_src\.empty\(\)|!ssize\.empty\(\)|moov atom not found|Invalid data found when processing input",
    r"Error opening .{1,200}: (?:Format not recognised|File contains data in an unknown format)",
    r"JSONDecodeError: (?:Expecting value|Extra data|Unterminated string)|Error tokenizing data|JSON parse error",
    r"Invalid (?:JPEG|PNG|image) (?:data|file)|jpeg::Uncompress failed|Unknown image file format|cv2\.imread\w* .{0,60}None",
    r"mmap length is greater than file size|cannot mmap an empty file|buffer size must be a multiple of element size",
)
_READS_DATA = re.compile(
    r"\bDataLoader worker\b|torch/utils/data/_utils/(?:worker|fetch)\.py"
    r"|site-packages/(?:datasets|webdataset|wids|torchdata|litdata|streaming|ffcv|nvidia/dali)/"
    r"|(?<!numpy/lib/)\b(?!npyio|_npyio|safetensors)\w{1,80}\.py\", line [0-9]{1,7}, in __getitems?__"
    r"|, in _?(?:load|read|get|open|parse|decode)_(?:data|dataset|sample|image|audio|video|item|example|feature|record|shard|batch)"
)
_LOADS_CHECKPOINT = re.compile(
    r", in \w{0,60}(?:checkpoint|ckpt|state_dict|pretrained|load_weights|load_model|load_state|restore|resume|trainer_state)\w{0,60}"
    r"|\b(?:load_checkpoint|load_state_dict|load_weights|load_model|from_pretrained|restore_from|load_from_checkpoint)\(",
    re.IGNORECASE,
)


def find_broken_checkpoint(case: Case) -> LogMatch | None:
    """Return the log line that reports a broken checkpoint; None if no line does.

    A checkpoint is broken if the file is truncated or is not a checkpoint.
    """
    match = find_match(case, _CHECKPOINT) or _find_bare(case)
    if match is not None:
        return None if _find_read(case, match) == "data" else match
    match = find_match(case, _DATA)
    return match if match is not None and _find_read(case, match) == "checkpoint" else None


def find_broken_data(case: Case) -> LogMatch | None:
    """Return the log line that reports a broken data file; None if no line does.

    A data file is broken if the file is truncated or in another format.
    """
    match = find_match(case, _DATA)
    if match is not None:
        return None if _find_read(case, match) == "checkpoint" else match
    match = find_match(case, _CHECKPOINT) or _find_bare(case)
    return match if match is not None and _find_read(case, match) == "data" else None


def _find_read(case: Case, match: LogMatch) -> Literal["data", "checkpoint"] | None:
    """Return the kind of file that the program was reading, according to the traceback.

    The result is None if the matched line is not part of a traceback, or if the frames do not show
    the kind of file.
    """
    tracebacks = (
        each for each in parse_log(case).tracebacks if each.start <= match.line <= each.end
    )
    found = next(tracebacks, None)
    frames = () if found is None else case.lines[found.start : match.line + 1]
    if any(_READS_DATA.search(line) for line in frames):
        return "data"
    return "checkpoint" if any(_LOADS_CHECKPOINT.search(line) for line in frames) else None


def _find_bare(case: Case) -> LogMatch | None:
    fatal = parse_log(case).fatal
    if fatal is None:
        return None
    frames = case.lines[fatal.start : fatal.end + 1]
    if not any("torch/serialization.py" in line for line in frames):
        return None
    return find_match(case, _BARE_LOAD_ERRORS)
