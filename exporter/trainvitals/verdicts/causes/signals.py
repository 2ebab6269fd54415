"""Crashes of native code, which end a process by a signal that the process itself caused."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainvitals.sources.signals import describe_code, name_signal
from trainvitals.units import format_bytes
from trainvitals.verdicts.causes.advice import advise_fewer_workers, format_option
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.collectives import has_waited_for_failed
from trainvitals.verdicts.causes.crashes import weigh_crash
from trainvitals.verdicts.causes.distributed import PEER_LOST
from trainvitals.verdicts.causes.hardware import list_memory_errors
from trainvitals.verdicts.causes.parsed_log import parse_log
from trainvitals.verdicts.causes.requests import read_request
from trainvitals.verdicts.causes.signs import Sign, matches
from trainvitals.verdicts.causes.verdict import Cause, Confidence, Finding
from trainvitals.verdicts.causes.words import SEGFAULT

_SIGILL, _SIGABRT, _SIGBUS, _SIGFPE, _SIGSEGV = 4, 6, 7, 8, 11
_KERNEL_WORDS = {
    # The message about a fault in a program includes the address of the instruction. The message
    # about a fault in the kernel does not include the address.
    _SIGSEGV: matches(r"segfault at |general protection(?: fault)?,? ip:"),
    _SIGILL: matches(r"trap invalid opcode"),
    _SIGFPE: matches(r"trap divide error"),
}
# torchrun writes 60 or more lines after the line that names the crash.
_LAST_LINES = 200
_LONGEST_QUOTE = 240
_FAULTHANDLER = (
    "Set `PYTHONFAULTHANDLER=1` (or `python -X faulthandler`) for a Python traceback of the next"
    " crash."
)
_USUAL_SHM_BYTES, _GOOD_SHM_BYTES = 64 * 1024**2, 8 * 1024**3
# The messages in which zsh reports that a signal ended a command or a job.
_ZSH = r"(?:\bz?sh:|^\[\d{1,4}\] {1,4}[+-]? {0,4}\d{1,9}) "
_BASH = r"(?:^|line \d{1,6}:\s{1,8}|:\s{1,8}|\d\s{1,8})"


def _by_launcher(number: int, name: str) -> str:
    """Return a pattern that matches the messages in which launchers report a signal."""
    return (
        rf"|return code = -{number}\b|died with <Signals\.{name}: {number}>|exit ?code:? -{number}\b"
        rf"|terminated with signal {name}\b|exited on signal {number} \(|\({name}\) received by PID"
        rf"|{name}\(-{number}\)|\*\*\* {name} (?:received|\(@0x)|EXIT STRING: .{{0,40}}\(signal {number}\)"
        rf"|(?:[Ee]xit(?:ed)?|returned|completed|failed)(?: with)?(?: (?:a )?non-zero)?(?: exit)? (?:[Cc]ode|status):? {128 + number}\b"
        rf"|\] Error {128 + number}\b|Caught signal {number} \("
    )


_ABORT = matches(
    r"terminate called (?:after throwing|without an active|recursively)"
    r"|Fatal Python error: Aborted|double free or corruption|double free detected"
    r"|corrupted double-linked list|malloc_consolidate\(\)|realloc\(\): invalid|pure virtual method called|LLVM ERROR: "
    r"|free\(\): invalid|malloc\(\): |corrupted size vs\. prev_size|munmap_chunk\(\)"
    r"|OMP: Error #15: |Fatal Python error: init_|\*\*\* stack smashing detected|\bCheck failed: |: Assertion [`'][^`']{1,200}' failed\.$"
    r"|killed by signal: Aborted|exitcode\s{0,4}: -6\b|"
    + _ZSH
    + r"abort {2}|"
    + _BASH
    + r"Aborted\b(?!:)"  # `Aborted:` is a TensorFlow status.
    + _by_launcher(6, "SIGABRT")
)
_WHAT = matches(r"^\s*what\(\):")
_SEGFAULT = matches(
    rf"{'|'.join(SEGFAULT)}|{_ZSH}segmentation fault {{2}}|exit status: -11\b|exitcode\s{{0,4}}: -11\b"
    r"|\*\*\* Process received signal .{0,40}SIGSEGV|Signal: Segmentation fault"
    + _by_launcher(11, "SIGSEGV")
)
_BUS = matches(
    r"unable to allocate shared memory\s?\(shm\)|unable to (?:write|mmap|open) .{0,40}</torch_"
    r"|[Uu]nexpected bus error|Error while creating shared memory segment|failed to extend /dev/shm"
    r"|out of shared memory\. Please try|insufficient shared memory|shm_open.{0,60}No space left"
    r"|NCCL WARN Call to posix_fallocate failed|No space left on device.{0,40}'/dev/shm"
    r"|signal 7 \(Bus error|killed by signal: Bus error|Fatal Python error: Bus error"
    r"|exitcode\s{0,4}: -7\b|"
    + _ZSH
    + r"bus error {2}|"
    + _BASH
    + r"Bus error\b"
    + _by_launcher(7, "SIGBUS")
)
_NO_FILES = matches(r"[Tt]oo many open files|\[Errno 24\]|0 items of ancdata|EMFILE")
_SHM = re.compile(r"shared memory|/torch_|insufficient shm", re.IGNORECASE)
_ILLEGAL = matches(
    rf"{_ZSH}illegal hardware instruction {{2}}|"
    r"`Illegal instruction`|signal 4 \(Illegal|compiled to use \w{1,12} instructions, but these aren't"
    r"|built with baseline optimizations: .{1,80} your machine doesn't support"
    r"|Fatal Python error: Illegal instruction|killed by signal: Illegal instruction"
    r"|exitcode\s{0,4}: -4\b|" + _BASH + r"Illegal instruction\b" + _by_launcher(4, "SIGILL")
)
_FPE = matches(
    rf"{_ZSH}floating point exception {{2}}|"
    r"`Erroneous arithmetic operation`|signal 8 \(Floating"
    r"|Fatal Python error: Floating point exception|killed by signal: Floating point exception"
    r"|exitcode\s{0,4}: -8\b|" + _BASH + r"Floating point exception" + _by_launcher(8, "SIGFPE")
)


@dataclass(frozen=True, slots=True)
class _Crash:
    """The evidence that native code crashed.

    Attributes:
        is_by_code: Whether the exit code or the signal indicates the crash.
        log_line: The log line that indicates the crash; None if no line indicates the crash.
        is_of_process: Whether the log line is known to be about the process that is diagnosed.
    """

    is_by_code: bool
    log_line: str | None
    is_of_process: bool = True

    @property
    def confidence(self) -> Confidence:
        return "high" if self.log_line is not None and self.is_of_process else "medium"


def _find(case: Case, sign: Sign) -> str | None:
    for at in sign.list_candidates(case.lines):
        if at < len(case.lines) - _LAST_LINES:
            return None
        if sign(case.lines[at]):
            text = case.lines[at].strip()
            return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"
    return None


def _read_crash(case: Case, number: int, sign: Sign) -> _Crash | None:
    if not case.has_ended or case.exit_code == 0 or read_request(case) is not None:
        return None
    is_by_code = case.signal == number
    if not is_by_code and case.signal is not None:
        return None
    log_line = _find(case, sign)
    kernel_line = _find_kernel_line(case, number)
    # If a container ended by itself, the kernel log lines at that time are about other processes.
    is_alone = not (
        case.evidence.log
        or case.evidence.xids
        or case.evidence.oom_kills
        or (case.is_container and case.exit_code is not None)
    )
    fatal = parse_log(case).fatal
    has_lost_process = fatal is not None and fatal.is_of_lost_process
    if log_line is None and kernel_line is not None:
        if is_by_code or is_alone:
            log_line = kernel_line
        elif has_lost_process:
            return _Crash(is_by_code=False, log_line=kernel_line, is_of_process=False)
    return _Crash(is_by_code, log_line) if is_by_code or log_line is not None else None


def _find_kernel_line(case: Case, number: int) -> str | None:
    """Return the kernel log's last line about a crash with this signal; None if no line matches."""
    words = _KERNEL_WORDS.get(number)
    lines = [line for line in case.evidence.kernel_lines if words is not None and words(line)]
    return lines[-1] if lines else None


def _describe(case: Case, crash: _Crash, number: int) -> tuple[str, ...]:
    sentences = []
    if crash.is_by_code:
        sentences.append(_describe_code(case, number))
    if crash.log_line is not None:
        is_kernel = crash.log_line in case.evidence.kernel_lines
        sentences.append(f"The {'kernel ' * is_kernel}log contains `{crash.log_line}`.")
    kernel_line = _find_kernel_line(case, number)
    if kernel_line is not None and kernel_line != crash.log_line:
        sentences.append(f"The kernel log contains `{kernel_line}`.")
    return tuple(sentences)


def _describe_code(case: Case, number: int) -> str:
    if case.evidence.signal is not None:
        return f"Signal {number} ({name_signal(number)}) ended it."
    return f"Exit code {describe_code(case.exit_code or 0)}."


def _detect_abort(case: Case) -> Finding | None:
    if _find(case, PEER_LOST) is not None:  # an abort that other processes of the job reported
        return None
    crash = _read_crash(case, _SIGABRT, _ABORT)
    # The kernel ignores the default action of signals for PID 1 of a PID namespace. abort() then
    # falls back to an invalid instruction, whose SIGSEGV cannot be ignored.
    is_pid_1 = crash is None
    if crash is None:
        crash = _read_crash(case, _SIGSEGV, _ABORT)
        if crash is None or crash.log_line in {None, *case.evidence.kernel_lines}:
            return None
    sentences = list(_describe(case, crash, _SIGSEGV if is_pid_1 else _SIGABRT))
    if is_pid_1:
        sentences.append("A program that aborts as PID 1 ends with exit code 139 instead of 134.")
    what = _find_what(case)
    if what:
        sentences.append(f"The C++ exception is `{what}`.")
    return Finding(
        "abort",
        "Native code aborted the process" + (f": {what.rstrip('.')}." if what else "."),
        "low" if has_waited_for_failed(case) else "high",
        tuple(sentences),
        () if crash.log_line else ("The log does not contain the reason.",),
        (
            *(("Read the line `what():` or the failed assertion.",) if crash.log_line else ()),
            *_advise_init(case),
            "Set `PYTHONFAULTHANDLER=1` for a Python traceback of the next abort.",
        ),
    )


def _find_what(case: Case) -> str:
    line = _find(case, _WHAT)
    return "" if line is None else line.removeprefix("what():").strip()


def _advise_init(case: Case) -> tuple[str, ...]:
    settings = case.evidence.settings
    if not case.is_container or (settings is not None and settings.has_init):
        return ()
    return (f"Use `{case.program} run --init` (`init: true`) to get the original exit code.",)


def _detect_segfault(case: Case) -> Finding | None:
    crash = _read_crash(case, _SIGSEGV, _SEGFAULT)
    if crash is None or (crash.log_line is None and _find(case, _ABORT) is not None):
        return None
    settings = case.evidence.settings
    against: tuple[str, ...] = ()
    has_init = settings is not None and settings.has_init
    if crash.log_line is None and case.is_container and not has_init:
        against = ("Exit code 139 is not certain: a program that aborts as PID 1 has it too.",)
    return Finding(
        "segfault",
        "Native code crashed with a segmentation fault.",
        crash.confidence,
        _describe(case, crash, _SIGSEGV),
        against,
        (
            _FAULTHANDLER,
            *(() if crash.log_line else _advise_init(case)),
            (
                "Check that the builds of torch, CUDA and numpy match, the most frequent cause:"
                " `python -m torch.utils.collect_env`, `pip check`."
            ),
            "If it crashes at random places, test memory and GPU: `memtester`, `dcgmi diag -r 3`.",
        ),
    )


def _detect_bus(case: Case) -> Finding | None:
    if list_memory_errors(case):  # a separate cause
        return None
    crash = _read_crash(case, _SIGBUS, _BUS)
    # A storage also cannot be opened if the process has no free file descriptor.
    if crash is None or (not crash.is_by_code and _find(case, _NO_FILES) is not None):
        return None
    settings = case.evidence.settings
    size = settings.shm_size_bytes if settings is not None else None
    is_small = size is not None and size <= _USUAL_SHM_BYTES
    is_named = crash.log_line is not None and _SHM.search(crash.log_line) is not None
    sentences = list(_describe(case, crash, _SIGBUS))
    if size is not None:
        sentences.append(f"The size of /dev/shm is {format_bytes(size)}.")
    against = (
        () if is_named or is_small else ("A truncated memory-mapped file also causes SIGBUS.",)
    )
    is_sure = crash.log_line is not None or is_small
    return Finding(
        "sigbus-shm",
        "Shared memory (/dev/shm) was full"
        + (f"; its size is {format_bytes(size)}." if size is not None else "."),
        "high" if is_sure else "medium",
        tuple(sentences),
        against,
        (
            _advise_shm(case, size),
            advise_fewer_workers(case),
            "Check its usage while the job runs: `df -h /dev/shm`.",
        ),
    )


def _advise_shm(case: Case, size: int | None) -> str:
    if not case.is_container:
        return "Enlarge it: `mount -o remount,size=50% /dev/shm`."
    wanted = format_option(max(_GOOD_SHM_BYTES, 2 * (size or 0)))
    if service := case.evidence.compose_service:
        return f"Enlarge it: `shm_size: {wanted}` for the service `{service}`, or `ipc: host`."
    return f"Enlarge it: `{case.program} run --shm-size={wanted}`, or `--ipc=host`."


def _detect_illegal(case: Case) -> Finding | None:
    crash = _read_crash(case, _SIGILL, _ILLEGAL)
    if crash is None:
        return None
    return Finding(
        "illegal-instr",
        "A library uses instructions that this CPU does not support.",
        "high",
        _describe(case, crash, _SIGILL),
        (),
        (
            "List the CPU's extensions: `lscpu | grep -oE 'avx[^ ]*|amx[^ ]*' | sort -u`.",
            (
                "Install a build for this CPU: the generic wheel (`pip install --force-reinstall`), or a"
                " local build instead of one with `-march=native` from another machine."
            ),
            "In a virtual machine, set the CPU type `host`; other types hide instructions.",
        ),
    )


def _detect_fpe(case: Case) -> Finding | None:
    crash = _read_crash(case, _SIGFPE, _FPE)
    if crash is None:
        return None
    return Finding(
        "fpe",
        "Native code divided an integer by zero.",
        crash.confidence,
        _describe(case, crash, _SIGFPE),
        (),
        (
            _FAULTHANDLER,
            (
                "Check for an empty batch, a group of 0 ranks or a tensor with a dimension of 0: print"
                " `tensor.shape` before that line."
            ),
        ),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        "sigbus-shm",
        "Shared memory full",
        "Exit code 135 (SIGBUS), or `Bus error` or `unable to allocate shared memory(shm)` in the log.",
        "Data loader workers pass batches through /dev/shm, which has 64 MiB in a container unless"
        " `--shm-size` is set.",
        (
            "Enlarge it: `docker run --shm-size=8g` or `--ipc=host`.",
            "Reduce the data loader workers: `num_workers`.",
        ),
        "high",
        weigh_crash(_detect_bus, _SIGBUS, _BUS),
    ),
    Cause(
        "illegal-instr",
        "Illegal instruction",
        "Exit code 132 (SIGILL), or `Illegal instruction` in the log.",
        "A binary needs AVX2, AVX-512 or a similar extension that this CPU lacks.",
        ("List the CPU's extensions with `lscpu`, and install a matching build.",),
        "high",
        weigh_crash(_detect_illegal, _SIGILL, _ILLEGAL),
    ),
    Cause(
        "abort",
        "Aborted",
        "Exit code 134 (SIGABRT), or 139 as PID 1 together with `terminate called after`, `double"
        " free`, `Check failed` or similar in the log.",
        "An uncaught C++ exception, a failed assertion, or a corrupted heap. Where the log names the"
        " cause of the exception, that cause takes precedence.",
        (
            "Read the line `what():`.",
            "Use `docker run --init` to get the original exit code.",
        ),
        "high",
        weigh_crash(_detect_abort, _SIGABRT, _ABORT),
    ),
    Cause(
        "segfault",
        "Segmentation fault",
        "Exit code 139 (SIGSEGV), or `Segmentation fault` or `exitcode  : -11` in the log.",
        "A crash in native code: builds of CUDA, torch and numpy that do not match, a defect in an"
        " extension, or faulty memory or GPU.",
        (
            "Set `PYTHONFAULTHANDLER=1`.",
            "Check that builds match: `python -m torch.utils.collect_env`, `pip check`.",
        ),
        "medium",
        weigh_crash(_detect_segfault, _SIGSEGV, _SEGFAULT),
    ),
    Cause(
        "fpe",
        "Arithmetic exception",
        "Exit code 136 (SIGFPE), or `Floating point exception` in the log.",
        "An integer division by zero in native code.",
        ("Set `PYTHONFAULTHANDLER=1` and check the shapes in the reported line.",),
        "medium",
        weigh_crash(_detect_fpe, _SIGFPE, _FPE),
    ),
)
