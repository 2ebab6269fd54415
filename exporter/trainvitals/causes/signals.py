"""Ends by a signal that the process brought on itself: crashes of native code."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainvitals.causes.case import Case, name_signal
from trainvitals.causes.figures import write_option, write_size
from trainvitals.causes.hints import advise_fewer_workers
from trainvitals.causes.requests import read_request
from trainvitals.causes.verdict import Cause, Confidence, Finding

_SIGILL, _SIGABRT, _SIGBUS, _SIGFPE, _SIGSEGV = 4, 6, 7, 8, 11
# torchrun writes 60 lines and more below the line that tells.
_LAST_LINES = 200
_LONGEST_QUOTE = 240
_USUAL_SHM_BYTES, _GOOD_SHM_BYTES = 64 * 1024**2, 8 * 1024**3
_BASH = r"(?:^|line \d+:\s+|:\s+|\d\s+)"

_ABORT = re.compile(
    r"terminate called (?:after throwing|without an active|recursively)"
    r"|Fatal Python error: Aborted|double free or corruption|double free detected"
    r"|free\(\): invalid|malloc\(\): |corrupted size vs\. prev_size|munmap_chunk\(\)"
    r"|\*\*\* stack smashing detected|\bCheck failed: |: Assertion [`'].* failed\.$"
    r"|killed by signal: Aborted|exitcode\s*: -6\b|" + _BASH + r"Aborted\b"
)
_WHAT = re.compile(r"^\s*what\(\):\s*(.*)")
_SEGFAULT = re.compile(
    r"Fatal Python error: Segmentation fault|Segmentation fault|exitcode\s*: -11\b"
    r"|\*\*\* Process received signal .*SIGSEGV|Signal: Segmentation fault"
)
_BUS = re.compile(
    r"unable to allocate shared memory\s?\(shm\)|unable to (?:write|mmap|open) .*</torch_"
    r"|[Uu]nexpected bus error|killed by signal: Bus error|Fatal Python error: Bus error"
    r"|exitcode\s*: -7\b|" + _BASH + r"Bus error\b"
)
_SHM = re.compile(r"shared memory|/torch_|insufficient shm", re.IGNORECASE)
_ILLEGAL = re.compile(
    r"Fatal Python error: Illegal instruction|killed by signal: Illegal instruction"
    r"|exitcode\s*: -4\b|" + _BASH + r"Illegal instruction\b"
)
_FPE = re.compile(
    r"Fatal Python error: Floating point exception|killed by signal: Floating point exception"
    r"|exitcode\s*: -8\b|" + _BASH + r"Floating point exception"
)


@dataclass(frozen=True, slots=True)
class _Crash:
    """How a crash was told.

    Attributes:
        is_by_code: Whether the exit code or the signal says so.
        said: The line of the log that says so; None where none does.
    """

    is_by_code: bool
    said: str | None

    @property
    def confidence(self) -> Confidence:
        return "high" if self.said is not None else "medium"


def _find(case: Case, pattern: re.Pattern[str]) -> str | None:
    for line in reversed(case.lines[-_LAST_LINES:]):
        if pattern.search(line):
            return line.strip()[:_LONGEST_QUOTE]
    return None


def _read_crash(case: Case, number: int, pattern: re.Pattern[str]) -> _Crash | None:
    if not case.has_ended or case.exit_code == 0 or read_request(case) is not None:
        return None
    is_by_code = case.signal == number
    if not is_by_code and case.signal is not None:
        return None
    said = _find(case, pattern)
    return _Crash(is_by_code, said) if is_by_code or said is not None else None


def _tell(case: Case, crash: _Crash, number: int) -> tuple[str, ...]:
    told = []
    if crash.is_by_code:
        told.append(_tell_code(case, number))
    if crash.said is not None:
        told.append(f"The log says `{crash.said}`.")
    return tuple(told)


def _tell_code(case: Case, number: int) -> str:
    if case.evidence.signal is not None:
        return f"It ended by signal {number} ({name_signal(number)})."
    return f"Exit code {128 + number} is {name_signal(number)} (128 + {number})."


def _look_abort(case: Case) -> Finding | None:
    crash = _read_crash(case, _SIGABRT, _ABORT)
    is_as_first = False
    if crash is None:
        crash = _read_crash(case, _SIGSEGV, _ABORT)
        if crash is None or crash.said is None:
            return None
        is_as_first = True
    told = list(_tell(case, crash, _SIGSEGV if is_as_first else _SIGABRT))
    if is_as_first:
        told.append("PID 1 of a container that aborts ends with 139 instead of 134.")
    what = _find(case, _WHAT)
    if what is not None:
        told.append(f"It threw `{what}`.")
    return Finding(
        "abort",
        "Native code gave up and aborted" + (f": {what}." if what else "."),
        "high",
        tuple(told),
        () if crash.said else ("The log does not say what was wrong.",),
        (
            *(
                ("Read the line `what():`, or the assertion: it names the fault.",)
                if crash.said
                else ()
            ),
            *_advise_init(case),
            "Set `PYTHONFAULTHANDLER=1`, so that the Python line is named the next time.",
        ),
    )


def _advise_init(case: Case) -> tuple[str, ...]:
    settings = case.evidence.settings
    if not case.is_container or (settings is not None and settings.has_init):
        return ()
    return (f"Use `{case.program} run --init` (`init: true`) to get the true exit code.",)


def _look_segfault(case: Case) -> Finding | None:
    crash = _read_crash(case, _SIGSEGV, _SEGFAULT)
    if crash is None or (crash.said is None and _find(case, _ABORT) is not None):
        return None
    settings = case.evidence.settings
    against: tuple[str, ...] = ()
    has_init = settings is not None and settings.has_init
    if crash.said is None and case.is_container and not has_init:
        against = ("139 alone is no proof: PID 1 that aborts ends with 139 too.",)
    return Finding(
        "segfault",
        "Native code crashed with a segmentation fault.",
        crash.confidence,
        _tell(case, crash, _SIGSEGV),
        against,
        (
            "Set `PYTHONFAULTHANDLER=1` (or `python -X faulthandler`): the next crash names its line.",
            *(() if crash.said else _advise_init(case)),
            (
                "Compare the versions of torch, CUDA and numpy: `python -m torch.utils.collect_env`,"
                " `pip check`; mixed builds are the most frequent reason."
            ),
            "Where it comes at random places, test memory and card: `memtester`, `dcgmi diag -r 3`.",
        ),
    )


def _look_bus(case: Case) -> Finding | None:
    crash = _read_crash(case, _SIGBUS, _BUS)
    if crash is None:
        return None
    settings = case.evidence.settings
    size = settings.shm_size_bytes if settings is not None else None
    is_small = size is not None and size <= _USUAL_SHM_BYTES
    is_named = crash.said is not None and _SHM.search(crash.said) is not None
    told = list(_tell(case, crash, _SIGBUS))
    if size is not None:
        told.append(f"Its /dev/shm holds {write_size(size)}.")
    against = () if is_named or is_small else ("A mapped file that was cut off looks the same.",)
    is_sure = crash.said is not None or is_small
    return Finding(
        "sigbus-shm",
        "Its shared memory (/dev/shm) was full"
        + (f": it has {write_size(size)}." if size is not None else "."),
        "high" if is_sure else "medium",
        tuple(told),
        against,
        (
            _advise_shm(case, size),
            advise_fewer_workers(case),
            "See how full it gets: `df -h /dev/shm`.",
        ),
    )


def _advise_shm(case: Case, size: int | None) -> str:
    if not case.is_container:
        return "Give it more: `mount -o remount,size=50% /dev/shm`."
    wanted = write_option(max(_GOOD_SHM_BYTES, 2 * (size or 0)))
    if service := case.evidence.compose_service:
        return f"Give it more: `shm_size: {wanted}` for the service `{service}`, or `ipc: host`."
    return f"Give it more: `{case.program} run --shm-size={wanted}`, or `--ipc=host`."


def _look_illegal(case: Case) -> Finding | None:
    crash = _read_crash(case, _SIGILL, _ILLEGAL)
    if crash is None:
        return None
    return Finding(
        "illegal-instr",
        "A library uses instructions that this CPU does not have.",
        "high",
        _tell(case, crash, _SIGILL),
        (),
        (
            "See what the CPU has: `lscpu | grep -oE 'avx[^ ]*|amx[^ ]*' | sort -u`.",
            (
                "Install a build for it: the plain wheel (`pip install --force-reinstall`), or build on"
                " this machine without `-march=native` of another."
            ),
            "A virtual machine hides instructions: give it the CPU type `host`.",
        ),
    )


def _look_fpe(case: Case) -> Finding | None:
    crash = _read_crash(case, _SIGFPE, _FPE)
    if crash is None:
        return None
    return Finding(
        "fpe",
        "Native code divided a whole number by zero.",
        crash.confidence,
        _tell(case, crash, _SIGFPE),
        (),
        (
            "Set `PYTHONFAULTHANDLER=1` (or `python -X faulthandler`): the next crash names its line.",
            (
                "Look for an empty batch, a group of 0 ranks or a shape with 0 in it: print"
                " `tensor.shape` before that line."
            ),
        ),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        "sigbus-shm",
        "Shared memory full",
        "135 (SIGBUS), or `Bus error` or `unable to allocate shared memory(shm)` in the log",
        "Shared memory, 64 MB unless asked for more, was full: data loader workers pass batches there.",
        ("`docker run --shm-size=8g` or `--ipc=host`.", "Fewer workers: `num_workers`."),
        "high",
        _look_bus,
    ),
    Cause(
        "illegal-instr",
        "Illegal instruction",
        "132 (SIGILL), or `Illegal instruction` in the log",
        "A binary needs AVX2, AVX-512 or the like, and this CPU has none.",
        ("`lscpu` shows what there is; install another build.",),
        "high",
        _look_illegal,
    ),
    Cause(
        "abort",
        "Aborted",
        "134 (SIGABRT), or 139 as PID 1 together with `terminate called after`, `double free`,"
        " `Check failed` or the like in the log",
        "An exception of C++ that nobody caught, a failed assertion, or a corrupted heap. Where the"
        " log says what was thrown and why, that cause goes before this.",
        ("Read the line `what():`.", "`docker run --init` gives the true exit code."),
        "high",
        _look_abort,
    ),
    Cause(
        "segfault",
        "Segmentation fault",
        "139 (SIGSEGV), or `Segmentation fault` or `exitcode  : -11` in the log",
        "A crash in native code: mixed builds of CUDA, torch and numpy, a bug of an extension, bad"
        " memory or a bad card.",
        (
            "Set `PYTHONFAULTHANDLER=1`.",
            "Pin versions: `python -m torch.utils.collect_env`, `pip check`.",
        ),
        "medium",
        _look_segfault,
    ),
    Cause(
        "fpe",
        "Arithmetic exception",
        "136 (SIGFPE), or `Floating point exception` in the log",
        "A division of a whole number by zero in native code.",
        ("Set `PYTHONFAULTHANDLER=1` and look at the shapes in that line.",),
        "medium",
        _look_fpe,
    ),
)
