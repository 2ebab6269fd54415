"""Job terminations that Slurm reports in the output of the job.

`slurmstepd` and `srun` write lines such as `*** JOB 7 ON node CANCELLED AT 2024-05-11T06:30:21 DUE
TO TIME LIMIT ***`; the line about a step contains `STEP 7.0` instead of `JOB 7`. A line without
`DUE TO` means that the job was cancelled, or is a consequence of the preceding line.
"""

from __future__ import annotations

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_ends import OF_SLURM
from trainvitals.verdicts.causes.log_matches import LogMatch
from trainvitals.verdicts.causes.notices import find_notice
from trainvitals.verdicts.causes.parsed_log import parse_log
from trainvitals.verdicts.causes.requested import advise_more_memory, advise_more_time
from trainvitals.verdicts.causes.signs import Sign, matches
from trainvitals.verdicts.causes.text_causes import notice, text_cause
from trainvitals.verdicts.causes.verdict import Cause, Finding

_OOM = matches(
    r"(?:Detected|detected) [0-9]{1,9} oom[-_]kill event"
    r"|srun: error: .{1,200}: Out Of Memory$"
    r"|(?:JOB|STEP|Job|Step|step|job)\b.{1,200}exceeded.{1,40}memory limit"
    r"|(?:JOB|STEP) [0-9._+a-z]{1,40} ON \S{1,80} CANCELLED AT \S{1,40} DUE TO (?:OUT OF )?MEMORY"
    r"|slurmstepd: error: .{0,80}memory limit .{0,80}being killed|oom-kill event\(s\) in step"
    r"|[Ee]xceeded (?:job|step|virtual) memory limit|\bOUT_OF_MEMORY\b.{0,40}(?:[Jj]ob|[Ss]lurm|state)"
    r"|(?:Job)?State ?[:=] ?OUT_OF_MEMORY|Job was held\. .{0,120}over memory limit"
)
_CANCELLED = matches(
    r"(?:JOB|STEP) [0-9._+a-z]{1,40} (?:ON \S{1,80} )?CANCELLED AT \S{1,40} (?:DUE to SIGNAL [\w ]{1,40})?\*\*\*"
    r"|(?:JOB|STEP) [0-9._+a-z]{1,40} STEPD TERMINATED ON \S{1,80} AT \S{1,40} DUE TO JOB NOT ENDING WITH SIGNALS"
    r"|(?:Job)?State ?[:=] ?CANCELLED|TERM_(?:OWNER|PREEMPT)|^scancel: Terminating job"
)

_FAILED = matches(
    r"srun: error: \S{1,80}: tasks? \S{1,80}: (?:Exited|Segmentation|Aborted|Bus|Floating|Illegal)"
)
# Slurm logs this message if SIGKILL did not end a job, regardless of the reason for the signal.
_STEPD = " STEPD TERMINATED ON "
# The final states of a job as `seff` and `scontrol show job` print them.
_STATES = {
    "TIME LIMIT": "TIMEOUT|DEADLINE",
    "PREEMPTION": "PREEMPTED",
    "JOB REQUEUE": "REQUEUED|SPECIAL_EXIT",
}


# Messages of submitit, which handles the signals that Slurm sends before the end.
_SUBMITIT = {
    "TIME LIMIT": r"submitit .{0,80}Job has timed out\b|this job is timed-out",
    "PREEMPTION": r"this job is preempted",
    "JOB REQUEUE": r"submitit .{0,80}Requeued job [0-9]",
}


def _due_to(why: str) -> Sign:
    return matches(
        rf"{_SUBMITIT[why]}|CANCELLED AT \S{{1,40}} DUE TO {why}|JOB .{{1,80}} DUE TO {why}|(?:Job)?State ?[:=] ?(?:{_STATES[why]})\b"
    )


def find_oom(case: Case) -> LogMatch | None:
    """Return the line in which Slurm reports a kill at the job's memory limit.

    The result is None if no line contains such a report.
    """
    return find_notice(case, _OOM, leave_out=OF_SLURM)


def detect_oom(case: Case) -> Finding | None:
    """Detect a job, or a task of a job, that the kernel killed at the job's memory limit."""
    match = find_oom(case)
    if match is None or not case.has_ended:
        return None
    return match.conclude(
        "oom-cgroup",
        "The Slurm job reached its memory limit, and the kernel killed a process of it.",
        (
            (
                f"{advise_more_memory(case, '#SBATCH --mem={}')}, or `--mem-per-cpu`; `sacct -j JOB"
                " --format=JobID,State,ReqMem,MaxRSS` shows what it used."
            ),
            "Reduce the data loader workers (`num_workers`) and `prefetch_factor`.",
            "Stream or map the data instead of loading it whole (`numpy.load(…, mmap_mode='r')`).",
        ),
    )


def _detect_cancelled(case: Case) -> Finding | None:
    match = find_notice(case, _CANCELLED, leave_out=OF_SLURM)
    if match is None or find_oom(case) is not None or _is_named(case, match):
        return None
    if not _has_job(case) and _has_failed(case, match.line):
        return None  # `srun` ends the other tasks of a step after one task has failed
    return match.cap("medium" if "STEP" in match.text and not _has_job(case) else "high").conclude(
        "slurm-cancelled",
        "The Slurm job was cancelled, as by `scancel`.",
        _CANCEL_STEPS,
    )


def _is_named(case: Case, match: LogMatch) -> bool:
    """Return whether an earlier report states the reason that Slurm's last report omits."""
    if _STEPD not in match.text:
        return False
    return any(find_notice(case, _due_to(why), leave_out=OF_SLURM) is not None for why in _STATES)


def _has_failed(case: Case, end: int) -> bool:
    if case.search(_FAILED) is not None:
        return True
    fatal = parse_log(case).fatal
    return fatal is not None and fatal.start < end


def _has_job(case: Case) -> bool:
    return any(
        ("CANCELLED AT" in line and ("JOB " in line or "forcing job termination" in line))
        or _STEPD in line
        for line in case.lines
    )


_CANCEL_STEPS = (
    (
        "Find who cancelled it: `sacct -j JOB --format=JobID,State,End,Comment`; `CANCELLED by UID` names"
        " the user."
    ),
    "Submit it again from the last checkpoint: `sbatch`.",
)
_RESUME = "Save checkpoints regularly and resume: `#SBATCH --signal=B:USR1@300` announces the end 5 min before."

_REJECTED = matches(
    r"(?:sbatch|srun|salloc): error: (?:Batch job submission failed|Unable to (?:allocate resources|create step)"
    r"|Unable to confirm allocation|Job submit/allocate failed|lua: |.{0,80}(?:Invalid|invalid) (?:account|partition|qos|generic resource)|(?:QOS|Assoc)[A-Z])",
    r"Requested node configuration is not available|violates accounting/QOS policy|Invalid account or account/partition",
    r"Invalid generic resource \(gres\) specification|Requested (?:time limit|partition) .{0,40}(?:invalid|not available)",
)
_NODE_FAILED = matches(
    r"DUE TO NODE FAILURE|error: Node failure on|DUE TO NODE FAIL|(?:Job)?State ?[:=] ?(?:NODE|BOOT)_FAIL\b"
    r"|(?:Prolog|Epilog) failure on node|launch failed requeued held"
    r"|Communication connection failure.{0,60}node|unable to contact slurm node"
)

CAUSES: tuple[Cause, ...] = (
    text_cause(
        "slurm-rejected",
        "Slurm did not take the job",
        "The log contains `sbatch: error: Batch job submission failed` or `srun: error: Unable to create step`.",
        "No node can satisfy the request, or the account, partition or QOS does not allow it.",
        (
            "Compare the request with what there is: `sinfo -o '%P %l %G %c %m'`, `scontrol show partition`.",
            "Ask for the limits of the account: `sacctmgr show assoc user=$USER format=account,qos,grptres`.",
        ),
        summary="Slurm refused the job or one of its steps, so that it never ran.",
        lines=notice(_REJECTED, leave_out=OF_SLURM),
    ),
    text_cause(
        "slurm-time-limit",
        "Slurm's time limit",
        "The log contains `CANCELLED AT … DUE TO TIME LIMIT`, or submitit's `this job is timed-out`.",
        "The job ran longer than its `--time`, or than its partition allows.",
        ("Request more time: `#SBATCH --time=D-HH:MM:SS`.", _RESUME),
        summary="Slurm ended the job at its time limit.",
        advise=lambda case: (
            f"{advise_more_time(case, '#SBATCH --time={}')}; `sinfo -o '%P %l'` shows the partitions' limits.",
            _RESUME,
        ),
        lines=notice(_due_to("TIME LIMIT"), leave_out=OF_SLURM),
    ),
    text_cause(
        "slurm-preempted",
        "Preempted by Slurm",
        "The log contains `CANCELLED AT … DUE TO PREEMPTION`, or submitit's `this job is preempted`.",
        "A job of higher priority, or the owner of the node, took its place.",
        (
            "Let it be queued again: `#SBATCH --requeue`, and resume from the last checkpoint.",
            "Use a partition or a QOS that is not preempted: `scontrol show partition`.",
        ),
        summary="Slurm ended the job for another one of higher priority.",
        lines=notice(_due_to("PREEMPTION"), leave_out=OF_SLURM),
    ),
    text_cause(
        "slurm-requeued",
        "Slurm put the job back into the queue",
        "The log contains `CANCELLED AT … DUE TO JOB REQUEUE`, or submitit's `Requeued job`.",
        "`scontrol requeue`, a launcher such as submitit, or Slurm itself after a failure of the node.",
        (
            "It starts again by itself: `squeue -j JOB`; it should resume from the last checkpoint.",
            "To prevent it: `#SBATCH --no-requeue`.",
        ),
        summary="The Slurm job was put back into the queue while it ran.",
        lines=notice(_due_to("JOB REQUEUE"), leave_out=OF_SLURM),
    ),
    text_cause(
        "slurm-node-fail",
        "Slurm lost the node",
        "The log contains `DUE TO NODE FAILURE` or `srun: error: Node failure on`.",
        "The node stopped answering: it crashed, was rebooted, or its spot instance was taken back.",
        (
            "Ask for the node's state: `scontrol show node NODE`, `sinfo -R`.",
            "Submit it again without that node: `sbatch --exclude=NODE`.",
        ),
        summary="Slurm declared a node of the job failed and ended it.",
        lines=notice(_NODE_FAILED, leave_out=OF_SLURM),
    ),
    Cause(
        "slurm-cancelled",
        "Cancelled in Slurm",
        "The log contains `*** JOB 7 ON node CANCELLED AT … ***` without a reason.",
        "`scancel`, by its user or an administrator.",
        _CANCEL_STEPS,
        "high",
        _detect_cancelled,
    ),
)
