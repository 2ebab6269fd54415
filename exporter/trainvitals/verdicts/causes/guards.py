"""Deaths caused by a low-memory service of the host, such as earlyoom, or by a shutdown."""

from __future__ import annotations

from trainvitals.verdicts.causes import pods
from trainvitals.verdicts.causes.advice import advise_less_memory
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import (
    quote,
)
from trainvitals.verdicts.causes.signs import Sign, matches
from trainvitals.verdicts.causes.verdict import Cause, Finding

_GUARD = matches(
    r"earlyoom(?:\[[0-9]+\])?: (?:sending|Killing|kill)|systemd-oomd(?:\[[0-9]+\])?: (?:Killed|Marked|Considered)"
    r"|systemd-oomd killed [0-9]+ process|low memory! at or below SIG(?:TERM|KILL) limits"
    r"|oomd(?:\[[0-9]+\])?: .{0,80}(?:[Kk]illed|Killing)|nohang(?:\[[0-9]+\])?: .{0,80}(?:SIGTERM|SIGKILL)"
)
_SHUTDOWN = matches(
    r"System is (?:powering down|rebooting|halting)|Powering [Oo]ff\.\.\.|Power key pressed"
    r"|The system (?:will|is going to|is) (?:power|reboot|halt|down)|reboot: (?:Restarting|Power down)"
    r"|systemd-shutdown(?:\[[0-9]+\])?: |Rebooting\.\.\.|Instance .{0,60}(?:preempted|terminated by)"
    r"|systemd\[1\]: Shutting down\.|[Ss]pot (?:instance )?interruption (?:notice|warning)|reclaimed by the (?:cloud|provider)"
    r"|runner has received a shutdown signal|going through a maintenance event|host maintenance event|EC2 [Ss]pot [Ii]nst"
    r"|[Ss]pot (?:instance )?(?:has been|was|is being) (?:interrupted|reclaimed|terminated)"
    r"|\b(?:VM|[Ii]nstance|[Nn]ode|TPU|[Cc]luster|[Ww]orker|[Mm]achine|[Jj]ob)\b.{0,60}\b(?:was|been|being|is|got) preempted"
    r"|\b(?:state|status)\W{1,4}PREEMPTED\b|instance-action|SpotInstanceInterruption|lost communication with the server"
    r"|reboot: System halted|Reached target .{0,20}(?:Shutdown|Power-Off|Reboot)",
    without=("submitit ",),  # These messages concern the job, not the machine.
)

_LAST_LINES = 100


def _find(case: Case, sign: Sign) -> str | None:
    if not case.has_ended or case.exit_code == 0 or case.success:
        return None
    candidates = (
        at for at in sign.list_candidates(case.lines) if at >= len(case.lines) - _LAST_LINES
    )
    lines = (*(case.lines[at] for at in candidates), *reversed(case.evidence.kernel_lines))
    return next(filter(sign, lines), None)


def _detect_guard(case: Case) -> Finding | None:
    line = _find(case, _GUARD)
    if line is None:
        return None
    name = "systemd-oomd" if "oomd" in line else "nohang" if "nohang" in line else "earlyoom"
    return Finding(
        "oom-guard",
        f"{name}, not the kernel, ended {case.subject} because the host's memory was nearly used up.",
        "high" if case.evidence.log is None or case.signal is not None else "medium",
        (f"The host's log contains {quote(line)}.",),
        (),
        (
            *advise_less_memory(case),
            (
                f"Read its decisions: `journalctl -u {name} --since -1h`; limit the job itself, so that it"
                " alone is ended: `systemd-run --user -p MemoryMax=48G`."
            ),
        ),
    )


def _detect_shutdown(case: Case) -> Finding | None:
    line = _find(case, _SHUTDOWN)
    if line is None:
        return pods.detect_shutdown(case)
    return Finding(
        "host-shutdown",
        "The machine was shut down, rebooted or taken back by the cloud while it ran.",
        "medium",
        (f"The host's log contains {quote(line)}.",),
        (),
        _SHUTDOWN_STEPS,
    )


_SHUTDOWN_STEPS = (
    (
        "Find who ordered it: `journalctl -b -1 -e`, `last -x shutdown reboot`; a spot instance is announced"
        " by the cloud's metadata service."
    ),
    "Save a checkpoint on SIGTERM and resume: `signal.signal(signal.SIGTERM, …)`.",
)

CAUSES: tuple[Cause, ...] = (
    Cause(
        "oom-guard",
        "A guard ended it for memory",
        "The host's log contains `systemd-oomd: Killed …` or `earlyoom: sending SIGTERM to process`.",
        "A guard in user space ends the biggest process before the kernel's OOM killer has to.",
        (
            "Reduce the job's memory: `num_workers`, the batch size, streaming of the data.",
            "Read its decisions: `journalctl -u systemd-oomd -u earlyoom --since -1h`.",
        ),
        "high",
        _detect_guard,
    ),
    Cause(
        "host-shutdown",
        "The machine was shut down",
        "The host's log contains `System is powering down`, `Power key pressed` or similar.",
        "An administrator, an update, or the cloud that took a spot instance back.",
        _SHUTDOWN_STEPS,
        "medium",
        _detect_shutdown,
    ),
)
