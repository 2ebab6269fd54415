"""Terminations at a memory or time limit that schedulers other than Slurm report in a log.

These schedulers are PBS, LSF, Grid Engine, HTCondor, Kubernetes, systemd and cloud services. The
module `slurm` detects terminations by Slurm.
"""

from __future__ import annotations

from dataclasses import replace

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.notices import find_notice
from trainvitals.verdicts.causes.pods import detect_deadline
from trainvitals.verdicts.causes.requested import advise_more_memory, advise_more_time
from trainvitals.verdicts.causes.signs import matches
from trainvitals.verdicts.causes.text_causes import notice, text_cause
from trainvitals.verdicts.causes.verdict import Cause, Finding

_MEMORY = matches(
    r"PBS: job killed: (?:v|p)?mem |TERM_MEMLIMIT|job killed after reaching LSF memory usage limit",
    r"memory usage exceeded request_memory|Job exceeded memory|maxvmem.{0,80}exceed|exceeded (?:the )?h_vmem",
    r"A process of this unit has been killed by the OOM killer|Failed with result 'oom-kill'",
    r"exceeded (?:V?MEM|memory) usage (?:hard |soft )?limit|ran out-of-memory and exited|[Rr]eplicas? (?:is |are )?low on memory",
    r"Memory cgroup out of memory: [Kk]ill(?:ed)? (?:process|[0-9]{1,6} tasks?)",
    r"Your session crashed after using all available RAM|notebook tried to allocate more memory than is available",
)


def detect_oom(case: Case) -> Finding | None:
    """Detect a job or a systemd unit that was killed at its memory limit."""
    match = find_notice(case, _MEMORY)
    if match is None or not case.has_ended:
        return None
    return match.cap("medium").conclude(
        "oom-cgroup",
        "The job or its machine ran out of memory, and a process of it was killed.",
        (
            f"{advise_more_memory(case, _name_memory_option(match.text))}.",
            "Reduce the data loader workers (`num_workers`) and `prefetch_factor`.",
            "Stream or map the data instead of loading it whole (`numpy.load(…, mmap_mode='r')`).",
        ),
    )


def _name_memory_option(text: str) -> str:
    """Return the memory option of the scheduler that wrote a log line, with `{}` for the size."""
    named = (option for words, option in _MEMORY_OPTIONS if any(word in text for word in words))
    return next(named, "MemoryMax={}")


def _advise_time(case: Case) -> tuple[str, ...]:
    text = "\n".join(line for line in case.lines if _TIME(line))
    named = (option for words, option in _TIME_OPTIONS if any(word in text for word in words))
    first = advise_more_time(case, next(named, ""))
    return (f"{first}.", "Save checkpoints regularly and resume from the last one.")


_MEMORY_OPTIONS = (
    (("PBS",), "#PBS -l mem={}"),
    (("LSF", "TERM_"), "#BSUB -M {}"),
    (("h_vmem", "maxvmem"), "#$ -l h_vmem={}"),
    (("request_memory",), "request_memory={}"),
)
_TIME_OPTIONS = (
    (("PBS", "wall"), "#PBS -l walltime={}"),
    (("LSF", "TERM_"), "#BSUB -W {}"),
    (("h_rt", "h_cpu"), "#$ -l h_rt={}"),
    (("DeadlineExceeded", "deadline"), "activeDeadlineSeconds: {}"),
    (("MaxRuntime",), "max_runtime_in_seconds={}"),
    (("timeout:",), "timeout {}"),
)
_TIME = matches(
    r"hard limit h_(?:rt|cpu) exceeded|PBS: job killed: (?:walltime|cput)|TERM_RUNLIMIT|job killed after reaching LSF run time limit|TERM_CPULIMIT",
    r"\bDeadlineExceeded\b.{0,80}(?:[Jj]ob|[Pp]od|active)|active on the node longer than the specified deadline",
    r"active longer than specified deadline|MaxRuntimeExceeded|[Mm]ax(?:imum)? (?:run ?time|wall ?time|job duration) (?:limit )?(?:was |has been )?(?:exceeded|reached)",
    r"timeout: sending signal \w{1,8} to command|exceeded the maximum execution time|[Ww]all-?[Tt]ime limit (?:exceeded|reached)",
    r"[Jj]ob (?:has )?exceeded (?:its |the )?wall(?: ?-?clock|time) (?:time )?limit",
    r"has exceeded (?:its|the) (?:time|walltime|runtime) limit|hard[ _](?:cpu|run|wallclock) ?time(?: limit)?\b|DUE TO TIME LIMIT",
    without=("slurmstepd",),  # a separate cause
)

_TIME_LIMIT = text_cause(
    "time-limit",
    "A time limit was reached",
    "The log contains `PBS: job killed: walltime`, `TERM_RUNLIMIT`, `DeadlineExceeded` or `MaxRuntimeExceeded`.",
    "The job ran longer than the limit of its queue, of `activeDeadlineSeconds` or of the service.",
    (
        (
            "Request more: `#PBS -l walltime=HH:MM:SS`, `#BSUB -W HH:MM`, `activeDeadlineSeconds`,"
            " `max_runtime_in_seconds`."
        ),
        "Save checkpoints regularly and resume from the last one.",
    ),
    summary="The scheduler ended the job at its time limit.",
    lines=notice(_TIME),
    advise=_advise_time,
)


def is_at_limit(case: Case) -> bool:
    """Return whether a scheduler reports that the job was ended at a memory or time limit."""
    return case.search(_MEMORY) is not None or case.search(_TIME) is not None


def _detect_time_limit(case: Case) -> Finding | None:
    return detect_deadline(case) or _TIME_LIMIT.detect(case)


CAUSES: tuple[Cause, ...] = (replace(_TIME_LIMIT, detect=_detect_time_limit),)
