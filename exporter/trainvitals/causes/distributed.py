"""Deaths of a rank that torchrun tells of, and of jobs that want the same port."""

from __future__ import annotations

import re

from trainvitals.causes.account import read_account
from trainvitals.causes.case import Case, name_signal
from trainvitals.causes.ranks import RootCause
from trainvitals.causes.signs import Sign, find, has, weigh_report
from trainvitals.causes.verdict import Cause, Finding

_PORT = re.compile(r"(?:port: |port=|[Pp]ort |\]:|[\w.]:)(\d{2,5})\b")
_MASTER_PORT = re.compile(
    r"--?(?:master[-_]port|rdzv[-_]endpoint|main[-_]process[-_]port)[= ](\S{1,80})"
)
_TAKEN = (
    "address already in use",
    "Address already in use",
    "EADDRINUSE",
    "port is already allocated",
)


def look_torchrun_child(case: Case) -> Finding | None:
    """Look for a rank that failed and left nothing to tell why but its exit code."""
    account = read_account(case)
    sign = find(case, has("ChildFailedError", "ProcessExitedException"))
    root = account.root
    if sign is None and root is None:
        return None
    fatal = account.fatal
    if fatal is not None and not fatal.is_launcher and not fatal.is_consequence:
        return None
    if root is not None:
        sign = weigh_report(case, Sign(root.line, case.lines[root.line], "high"))
    return None if sign is None else _conclude_child(case, sign, root)


def _conclude_child(case: Case, sign: Sign, root: RootCause | None) -> Finding:
    code = root.exit_code if root is not None else None
    rank = "A rank" if root is None or root.rank is None else f"Rank {root.rank}"
    told: tuple[str, ...] = ()
    if root is not None:
        pid = f", process {root.pid} in {root.host}" if root.pid else ""
        told = (f"torchrun saw {rank.lower()} fail first, with exit code {code}{pid}.",)
    how = "failed" if code is None else f"ended with exit code {code}"
    if code is not None and code < 0:
        how = f"was ended by {name_signal(-code)}"
    return sign.cap("medium").conclude(
        "torchrun-child",
        f"{rank} {how}, and torchrun ended the others.",
        (*_advise_signal(code), *_advise_log(case)),
        speaks_for=told,
    )


def _advise_signal(code: int | None) -> tuple[str, ...]:
    steps = {
        -9: "SIGKILL is mostly the OOM killer: `sudo dmesg -T | grep -i 'killed process'`.",
        -11: "SIGSEGV is a crash in native code: run it with `PYTHONFAULTHANDLER=1`.",
        -6: "SIGABRT is an abort in native code: look for `what():` above, and set `NCCL_DEBUG=INFO`.",
        -7: "SIGBUS is mostly /dev/shm: `docker run --shm-size=8g`, or `--ipc=host`.",
        -15: "SIGTERM came from outside or from the launcher: see whether somebody stopped the job.",
    }
    return (steps[code],) if code in steps else ()


def _advise_log(case: Case) -> tuple[str, ...]:
    return (
        (
            f"Read the log above torchrun's report: `{case.program} logs --tail 1000"
            f" {case.evidence.name}`; or give each rank a file of its own with"
            " `torchrun --log-dir logs --redirects 3 --tee 3`."
            if case.is_container
            else "Give each rank a file of its own: `torchrun --log-dir logs --redirects 3 --tee 3`."
        ),
        (
            "Put `@record` (`torch.distributed.elastic.multiprocessing.errors`) over `main()`:"
            " torchrun then prints the rank's traceback."
        ),
    )


def look_port_in_use(case: Case) -> Finding | None:
    """Look for an address that another program listens at."""
    error = case.evidence.state.error if case.evidence.state is not None else ""
    if case.was_never_started and any(text in error for text in _TAKEN):
        sign = Sign(0, error, "high", speaks_for=(f"The engine says `{error[:240]}`.",))
    else:
        found = find(case, has(*_TAKEN, "[Errno 98]"))
        if found is None:
            return None
        sign = found
    port = _find_port(case, sign.text)
    asked = port or "PORT"
    following = int(port) + 1 if port else 29501
    apart = (
        f"Or publish it at another one of the host: `-p {following}:{asked}`."
        if case.was_never_started
        else f"Or give each job its own: `--master-port {following}`, or torchrun's choice:"
        " `torchrun --rdzv-backend c10d --rdzv-endpoint localhost:0`."
    )
    return sign.conclude(
        "port-in-use",
        f"Another program listens at the port{f' {port}' if port else ''}.",
        (
            (
                f"See which: `sudo ss -ltnp 'sport = :{asked}'`, `{case.program} ps --filter"
                f" publish={asked}`; mostly the same job from before, or a second one on this host."
            ),
            apart,
        ),
    )


def _find_port(case: Case, text: str) -> str:
    found = _PORT.search(text)
    if found is not None:
        return found[1]
    command = " ".join(case.evidence.settings.command) if case.evidence.settings else ""
    master = _MASTER_PORT.search(command)
    port = master[1].rpartition(":")[2] if master else ""
    return port if port.isascii() and port.isdigit() and len(port) <= 5 else ""  # noqa: PLR2004


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="port-in-use",
        title="The port is taken",
        signs="The log says `Address already in use` (`Errno 98`, `EADDRINUSE`); the engine says `port"
        " is already allocated`.",
        meaning="A second job uses the same master port, or the old one still lives.",
        steps=(
            "Find who listens: `sudo ss -ltnp`.",
            "Let torchrun choose: `--rdzv-endpoint localhost:0`, or set another `--master-port`.",
        ),
        confidence="high",
        look=look_port_in_use,
    ),
)

CHILD = Cause(
    reason="torchrun-child",
    title="A rank failed",
    signs="The log ends with torchrun's `ChildFailedError`; the exit code is 1 whatever the cause.",
    meaning="What `Root Cause (first observed failure)` says of rank and exit code; where that"
    " rank left a traceback, that is the cause.",
    steps=(
        (
            "Read the log above torchrun's report, or give each rank a file: `torchrun --log-dir logs"
            " --redirects 3`."
        ),
        "-9: look for an OOM kill with `dmesg -T`; -11: set `PYTHONFAULTHANDLER=1`.",
    ),
    confidence="medium",
    look=look_torchrun_child,
)
