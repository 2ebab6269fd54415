"""Lines that quote trouble or report another program's, in contrast to real errors."""

import pytest

from trainvitals.sources.containers.evidence import Evidence
from trainvitals.verdicts.causes.judge import judge
from trainvitals.verdicts.causes.quoted import drop_quoted

STEPS = tuple(f"it {number} loss 0.{number} 310 tok/s" for number in range(20, 27))
DONE = "Training finished in 2 h"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB"
FULL = "OSError: [Errno 28] No space left on device"
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/srv/fit.py", line 12, in run',
    "    out = net(batch)",
    OOM,
)
LIMIT = "slurmstepd: error: *** JOB {} ON c07 CANCELLED AT {}T04:00:12 DUE TO TIME LIMIT ***"
INNOCENT = {
    "counted errors": (
        "total - success: 0.79 - count: 40000",
        "Most frequent errors:",
        "  <urlopen error [Errno -2] Name or service not known>: 720",
        "  HTTP Error 403: Forbidden: 118",
        "  [Errno 104] Connection reset by peer: 11",
    ),
    "numbered samples": (
        "Epoch: 9 | train loss 0.74",
        "highest scores of the test set:",
        "  #0  - 1131600000 n4 kernel: EXT4-fs error (device sda5): detected aborted journal",
        "  #1  - 1131600200 n7 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "  #2  - 1131600300 n7 kernel: Out of memory: Killed process 259 (fit)",
        "seconds: 312.4",
    ),
    "a diff": (
        *STEPS,
        DONE,
        "diff --git a/fit.py b/fit.py",
        "index 77aa01c..90bb12d 100644",
        "--- a/fit.py",
        "+++ b/fit.py",
        "@@ -3,2 +3,4 @@ def fit():",
        " try:",
        f"+    # {OOM}",
        "+Segmentation fault (core dumped)",
        "-    run()",
    ),
    "labelled samples": (
        *STEPS,
        DONE,
        "Prompt: how does it end?",
        "Output: with one word:",
        "Killed",
        "or with a sentence.",
        "Prompt: and on a cluster?",
        f"Output: {LIMIT.format(4, '2021-01-07')}",
    ),
    "labelled samples within a run": (*STEPS, "completion: it says", OOM, *STEPS, DONE),
    "a chat": (
        *STEPS,
        "<|im_start|>assistant",
        *TRACEBACK,
        "Segmentation fault (core dumped)<|im_end|>",
        *STEPS,
        DONE,
    ),
    "samples in JSON": (*STEPS, DONE, f'{{"id": 3, "completion": "{FULL}"}}'),
    "a citation": (*STEPS, DONE, f"> {OOM}"),
    "a listing": (
        "+ cat fit.py",
        "def save(path):",
        "    try:",
        "        write(path)",
        "    except OSError as error:",
        f"        # {FULL}",
        f'        raise SystemExit("{FULL}")',
        "+ cat fit.sh",
        "#SBATCH --time=4:00:00",
        "trap 'echo \"got SIGTERM\"; exit 143' TERM",
        *STEPS,
        DONE,
    ),
    "expected failures": (
        "=========== XFAILURES ===========",
        ">       net(batch)",
        f"E       {OOM}",
        "========= short test summary info =========",
        f"XFAIL test_fit.py::test_big - {OOM}",
        "====== 40 passed, 1 xfailed in 3.21s ======",
    ),
    "trials of a study": (
        *STEPS,
        f"[W 2025-02-01 10:00:00,1] Trial 8 failed with parameters: {{'w': 9}} because of: {OOM}",
        *TRACEBACK,
        "[W 2025-02-01 10:00:00,2] Trial 8 failed with value None.",
        "Best trial:",
        "  Value: 0.91",
    ),
    "trials of Ray Tune": (
        *STEPS,
        "ERROR tune_controller.py:1331 -- Trial task failed for trial fit_1a2b_00007",
        *TRACEBACK,
        "Best hyperparameters found were: {'lr': 0.01}",
    ),
    "helpers that a script ended": (
        *STEPS,
        DONE,
        "fit.sh: line 31: 2201 Killed                  nvidia-smi dmon > gpu.txt",
        "fit.sh: line 32: 2202 Terminated              tensorboard --logdir tb",
        "fit.sh: line 33: 2203 Segmentation fault      (core dumped) ./plot",
    ),
    "programs of an evaluation": (
        *STEPS,
        "MBPP/1: passed",
        "MBPP/2: failed: MemoryError",
        "/tmp/k2/prog: Segmentation fault (core dumped)",
        "sh: line 1: 911 Aborted                 (core dumped) ./prog",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "  what():  std::bad_alloc",
        "MBPP/3: failed: timed out",
        '{"pass@1": 0.41}',
    ),
    "a job of another day": (
        "2025-02-01 10:00:00 start",
        *STEPS,
        LIMIT.format(4, "2021-01-07"),
        DONE,
    ),
    "a job of another number": ("SLURM_JOB_ID=71", *STEPS, LIMIT.format(70, "2025-02-01"), DONE),
    "Slurm within a sentence": (*STEPS, f"the page says {LIMIT.format(4, '2025-02-01')}", DONE),
    "a tracker that could not send": (
        *STEPS,
        "wandb: ERROR Failed to upload file: dial tcp: lookup storage.example.org: no such host",
        "wandb: Find logs at: ./wandb/latest",
        DONE,
    ),
    "warnings of an exiting Python": (
        *STEPS,
        DONE,
        "resource_tracker.py:237: UserWarning: resource_tracker: '/mp-1': [Errno 2] No such file or directory",
    ),
    "indented text that the program goes on after": (
        "[10:00:01] item 1: 0/2",
        "  said by the sandbox:",
        "  Fatal Python error: Bus error",
        *(f"  {line}" for line in TRACEBACK),
        "[10:00:09] item 2: 2/2",
        "pass@1 = 0.5",
    ),
    "an indented answer": (
        *STEPS,
        "answer to 'ncclSystemError?':",
        "    ncclSystemError: System call failed, see NCCL WARN",
        "    Killed",
        "saved runs/7/adapter",
    ),
    "fields without a value": (
        *STEPS,
        '{"n": 4, "error": null, "oom_kills": 0, "killed": false, "nccl_timeouts": 0, "aborted": ""}',
        "n=5 oom_kills=0 nccl_timeouts=0 killed=false exception=none",
    ),
    "an error that later records repeat": tuple(
        f'{{"step": {number}, "last_error": "{FULL}", "spill": "off"}}' for number in range(4)
    ),
    "a drawn table": (
        f"│ b │ failed │ {OOM} │",
        "c: epoch 2 loss 0.4",
        "2 runs are well, 1 failed",
    ),
    "an epilog": (*STEPS, DONE, "epilog: rm: cannot remove '/tmp/x': Permission denied"),
}
DEATHS = {
    "a death after a sample": ((*STEPS, "Prompt: a", "Output: b", *TRACEBACK), "cuda-oom"),
    "a kill after a sample": ((*STEPS, "Prompt: a", "Output: b", "Killed"), "kill-outside"),
    "a death after a diff": (
        ("diff --git a/a b/a", "@@ -1 +1 @@", "-a", "+b", *STEPS, *TRACEBACK),
        "cuda-oom",
    ),
    "a death with code in its traceback": (
        (*STEPS, TRACEBACK[0], TRACEBACK[1], f'    raise OSError("{FULL}")', FULL),
        "disk-full",
    ),
    "a study that ended": (
        (
            *STEPS,
            f"[W 2025-02-01 10:00:00,1] Trial 8 failed with parameters: {{'w': 9}} because of: {OOM}",
            *TRACEBACK,
            "[W 2025-02-01 10:00:00,2] Trial 8 failed with value None.",
            *TRACEBACK,
        ),
        "cuda-oom",
    ),
    "a training that a shell reports": (
        (*STEPS, "fit.sh: line 31: 2201 Segmentation fault      (core dumped) python fit.py"),
        "segfault",
    ),
    "a program after a step": (
        ("stage 1 finished", *STEPS, "fit.sh: line 31: 2201 Segmentation fault      ./solver"),
        "segfault",
    ),
    "an indented traceback at the end": (
        (*STEPS, "run failed:", *(f"  {line}" for line in TRACEBACK)),
        "cuda-oom",
    ),
    "an indented traceback and a farewell": (
        (*STEPS, "run failed:", *(f"  {line}" for line in TRACEBACK), "wrote crash/dump.json"),
        "cuda-oom",
    ),
    "a failure while samples are generated": (
        (*STEPS, "error while generating samples:", f"  {OOM}", "leaving"),
        "cuda-oom",
    ),
    "fields with a value": (
        (*STEPS, f'{{"n": 4, "oom_kills": 0, "error": "{OOM}"}}'),
        "cuda-oom",
    ),
    "the last error of an end": (
        (*STEPS, f'{{"event": "end", "last_error": "{OOM}"}}'),
        "cuda-oom",
    ),
    "the own job": (
        ("SLURM_JOB_ID=71", "2025-02-01 10:00:00 start", *STEPS, LIMIT.format(71, "2025-02-04")),
        "slurm-time-limit",
    ),
    "failed tests": (
        (f"E       {OOM}", "=== short test summary info ===", "=== 1 failed, 2 passed in 1s ==="),
        "cuda-oom",
    ),
}


def judge_log(lines, **known):
    """Return the verdict on a process of which only this log is known."""
    return judge(Evidence(subject="process", name="fit", log=tuple(lines), **known))


@pytest.mark.parametrize("known", [{}, {"is_ended": True}, {"exit_code": 0}], ids=str)
@pytest.mark.parametrize("lines", INNOCENT.values(), ids=INNOCENT)
def test_a_quote_accuses_nothing(lines, known):
    """A quoted error is neither the cause nor a contributing cause."""
    verdict = judge_log(lines, **known)
    assert verdict.reason in {"finished", "unknown"}
    assert not [each.reason for each in verdict.contributing]


@pytest.mark.parametrize(("lines", "reason"), DEATHS.values(), ids=DEATHS)
def test_a_death_beside_a_quote_is_found(lines, reason):
    """A real error beside a quoted one is the cause, whether or not the end of the run is known."""
    assert judge_log(lines).reason == reason
    assert judge_log(lines, is_ended=True).reason == reason


def test_as_many_lines_of_a_diff_are_left_out_as_its_head_says():
    """A diff ends after the lines that its header counts, so a shell's `+` trace is kept."""
    lines = ("@@ -1 +1,2 @@", "-a", "+b", "+c", "+ python fit.py", "Killed")
    assert drop_quoted(lines) == ("", "", "", "", "+ python fit.py", "Killed")
