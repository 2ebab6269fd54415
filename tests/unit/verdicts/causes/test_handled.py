"""Errors that a program survived, and verdicts on a log alone."""

import time

import pytest

from trainvitals.sources.containers.evidence import Evidence, OomKill, XidError
from trainvitals.verdicts.causes.handled import drop_handled
from trainvitals.verdicts.causes.judge import judge
from trainvitals.verdicts.causes.log_ends import goes_on

STEPS = tuple(f"step {number} loss 2.{number}" for number in range(10, 16))
OOM = (
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 80, in <module>',
    "    loss.backward()",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
)
LOST = (
    "12:21:40,551 - distributed.worker - ERROR - Failed to communicate with scheduler during heartbeat.",
    "Traceback (most recent call last):",
    '  File "/opt/conda/lib/python3.11/site-packages/distributed/comm/tcp.py", line 225, in read',
    "    frames_nosplit_nbytes_bin = await stream.read_bytes(fmt_size)",
    "tornado.iostream.StreamClosedError: Stream is closed",
)
SURVIVED = {
    "a skipped batch": (*STEPS, "WARNING: CUDA out of memory in batch 7, skipping it"),
    "a retried batch": (*STEPS, "WARNING batch failed, retrying with half of it", *OOM),
    "a record behind the message": (*STEPS, *OOM, "[10:02:11] INFO skipping this batch"),
    "a traceback and more steps": (STEPS[0], *OOM, *STEPS[1:]),
    "a traceback and the next step": (*STEPS[:3], *OOM, STEPS[3]),
    "an end that was expected": ("drill: rank 1 has exit code -7, Bus error (expected -7)",),
    "an end as expected": ("drill: rank 1 got a Bus error, as expected",),
    "a batch skipped in Chinese": (*STEPS, "[警告] CUDA out of memory. 跳过该批次"),
    "a batch skipped in Japanese": (*STEPS, "CUDA out of memory. このバッチをスキップします"),
    "a file skipped in German": (*STEPS, "x.npz: BadZipFile: File is not a zip file, übersprungen"),
    "a file skipped in Russian": (
        *STEPS,
        "файл 3: OSError: [Errno 5] Input/output error, пропускаем",
    ),
    "a batch skipped in Spanish": (*STEPS, "CUDA out of memory, se omite el lote 3"),
    "a batch skipped in French": (*STEPS, "CUDA out of memory, lot ignoré"),
    "a connection that is lost in the shutdown": (
        *STEPS,
        "best iteration 391, model.ubj saved",
        *LOST,
        "2026-01-28 12:21:41,002 - distributed.nanny - INFO - Worker closed",
    ),
    "connections that are lost after the outcome, and nothing more": (
        *STEPS,
        "[INFO] booster saved to /out/model.ubj",
        *LOST,
        *LOST,
    ),
    "another port": ("Address already in use (errno: 98), trying port 29501", "server is up"),
    "a complaint at exit": (
        *STEPS,
        "Training completed in 3 h",
        "[W] destroy_process_group() was not called, NCCL may report errors",
    ),
    "a preemption, a restart and the next steps": (
        *STEPS[:3],
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-01-30T10:32:44 DUE TO PREEMPTION ***",
        "Restored all states from the checkpoint at /ckpt/3.pt",
        *STEPS[3:5],
    ),
    "a lost actor and a success without an error": (
        STEPS[0],
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "[FailurePolicy] restarting the workers from checkpoint 1",
        "Training finished: Result(metrics={'acc': 0.7}, error=None)",
    ),
    "a request to end that was followed": (
        *STEPS,
        "received SIGTERM, will stop after this step",
        "exiting cleanly",
    ),
    "a trial of a study that did not fit": (
        "Trial 2 finished with value: 0.81 and parameters: {'width': 512}.",
        "Trial 3 failed with parameters: {'width': 8192} because of the following error:",
        *OOM,
        "Trial 4 finished with value: 0.84 and parameters: {'width': 640}. Best is trial 4.",
    ),
    "signals that were planned": (
        "all workers received SIGTERM from the parent, as planned",
        "evaluated 5000 of 5000",
    ),
    "an evaluation": ("NCCL WARN Call to connect failed", "epoch 3 val_error: 0.12 step 900"),
}
ENDED = {
    "an end other than expected": (*STEPS, "exit code 1 (expected 0): CUDA out of memory"),
    "a traceback at the end": (*STEPS, *OOM),
    "a bar drawn again": (
        " 8%| 45/562 [1:00<2:00, 1.5s/it]",
        *OOM,
        " 8%| 45/562 [1:01<2:00, 1.5s/it]",
    ),
    "items that were left out before": (
        "ignoring corrupt label of 1.jpg: class 15 exceeds the count",
        "ignoring corrupt label of 2.jpg: class 15 exceeds the count",
        *OOM,
    ),
    "the last attempt": (*STEPS, "attempt 10 of 10 to load the batch failed", *OOM),
    "a retry that failed as well": (*STEPS, "retrying with half the batch", STEPS[2], *OOM),
}


def judge_log(lines, **known):
    """Return the verdict on a process of which only this log is known."""
    return judge(Evidence(subject="process", name="train", log=lines, **known))


@pytest.mark.parametrize("lines", SURVIVED.values(), ids=SURVIVED)
def test_what_the_program_survived_only_contributes(lines):
    """An error that was skipped, retried or followed by more steps is not the cause."""
    verdict = judge_log(lines)
    assert verdict.reason in {"unknown", "finished"}
    assert {each.confidence for each in verdict.contributing} <= {"low"}


@pytest.mark.parametrize("lines", ENDED.values(), ids=ENDED)
def test_what_a_log_ends_with_is_the_cause(lines):
    """The last error is the cause, despite a redrawn progress bar or an earlier retry."""
    assert (judge_log(lines).reason, judge_log(lines).confidence) == ("cuda-oom", "high")


def test_a_connection_that_is_lost_without_an_outcome_is_an_error():
    """A lost connection without a reported result is an exception of medium confidence."""
    verdict = judge_log((*STEPS, *LOST, "distributed.nanny - INFO - Worker closed"))
    assert (verdict.reason, verdict.confidence) == ("exception", "medium")


REPORT = (
    "# LSBATCH: User input",
    "python train.py",
    "{}",
    "Exited with exit code 143.",
    "The output (if any) follows:",
)


@pytest.mark.parametrize("steps", [STEPS[:1], STEPS * 4])
@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("oom-cgroup", "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit."),
        ("time-limit", "TERM_RUNLIMIT: job killed after reaching LSF run time limit."),
    ],
)
def test_a_report_before_the_output_is_the_end(reason, line, steps):
    """LSF's report of a killed job is the cause, although the job's output follows it."""
    log = (*(each.format(line) for each in REPORT), *steps)
    assert judge_log(log).reason == reason


def test_a_success_after_the_report_of_a_good_end_is_one():
    """LSF's report of a successful job before its output is not a failure."""
    log = ("Successfully completed.", "The output (if any) follows:", *STEPS)
    assert judge_log(log).reason in {"finished", "unknown"}


@pytest.mark.parametrize("part", ["Training image download completed.", "data download finished"])
@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("segfault", "Error for Training job x: Failed. Reason: AlgorithmError: Exit Code: 139"),
        ("illegal-instr", "Training job failed. Reason: AlgorithmError: , exit code: 132"),
    ],
)
def test_a_download_that_is_complete_is_no_success_of_the_run(part, reason, line):
    """A completed download is not a success if a failure report of the service follows."""
    assert judge_log((part, "loading", line)).reason == reason


def test_a_log_alone_is_never_called_running():
    """A log alone is never called running unless the caller says that the run has not ended."""
    assert judge_log(STEPS).reason == "unknown"
    assert judge_log(STEPS, is_ended=False).reason == "running"
    assert judge_log((*STEPS, *OOM), is_ended=False).reason == "running"


def test_an_exception_without_an_exit_code_is_one_sign():
    """An unknown exception has medium confidence, and high confidence with exit code 1."""
    lines = (*STEPS, *OOM[:3], "acme.ShardError: shard 7 has no index")
    assert (judge_log(lines).reason, judge_log(lines).confidence) == ("exception", "medium")
    assert judge_log(lines, exit_code=1).confidence == "high"


def test_other_lines_stay_where_they_were():
    """Dropped lines are replaced by empty ones, so that line numbers stay those of the log."""
    lines = (STEPS[0], "", "WARNING: download failed, retrying in 5 s", *OOM)
    assert drop_handled(lines) == (STEPS[0], "", "", *[""] * len(OOM))
    assert drop_handled((*STEPS, *OOM)) == (*STEPS, *OOM)


def test_a_gradient_scaler_is_not_taken_for_a_retry():
    """A step that a gradient scaler skips is not dropped as a retry."""
    line = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1"
    assert drop_handled((line,)) == (line,)


def test_a_loss_that_is_no_number_is_no_progress():
    """A step with a NaN loss is not progress."""
    assert goes_on(STEPS)
    assert not goes_on((*STEPS, "step 17 loss nan"))


def test_an_exit_code_of_zero_is_surer_than_a_doubtful_line():
    """Exit code 0 or a success outweighs a doubtful line of the shell or of Slurm."""
    ended = "./run.sh: line 31:  4120 Terminated              tensorboard --logdir out"
    slurm = "slurmstepd: error: Exceeded step memory limit at some point."
    for line in (ended, slurm):
        assert judge_log((*STEPS, "done", line), exit_code=0).reason == "finished"
    assert judge_log((*STEPS, "Training completed", slurm)).reason == "finished"


def test_what_is_counted_is_no_value():
    """Megatron's count of NaN iterations is not read as a NaN loss."""
    line = " iteration {} | lm loss: 8.1 | grad norm: 4.0 | number of nan iterations:   0 |"
    log = tuple(line.format(number) for number in range(10, 14))
    assert judge_log(("gpu3 NCCL WARN Connect failed, retrying", *log)).reason == "unknown"
    assert judge_log((*log, " iteration 14 | lm loss: nan | grad norm: nan |")).reason == "nan-loss"


@pytest.mark.parametrize(
    "lines",
    [
        (*STEPS, "Segmentation fault (core dumped)", *STEPS, *STEPS, "Training completed"),
        (*STEPS, "raylet: 2 workers killed due to memory pressure (OOM)", *STEPS, "training done"),
        (*STEPS, "train_runtime 3.1", "[W] resolving logs.example.org: no such host"),
    ],
    ids=["a worker's crash", "retried tasks", "a complaint at exit"],
)
def test_the_users_report_of_an_end_makes_no_success_a_failure(lines):
    """The user's report that a run has ended does not change a finished verdict."""
    alone, ended = judge_log(lines), judge_log(lines, is_ended=True)
    assert (ended.reason, ended.confidence) == (alone.reason, alone.confidence)
    assert ended.reason == "finished"
    assert judge_log(lines, is_ended=False).reason == "running"


@pytest.mark.parametrize(
    "crash",
    ["Segmentation fault (core dumped)", "double free or corruption (out)", "Bus error"],
)
def test_a_crash_that_training_went_on_after_is_not_the_end(crash):
    """A crash message followed by more steps is not the cause, but one at the end of the log is."""
    verdict = judge_log((crash, *STEPS, *STEPS, "bye"), is_ended=True)
    assert verdict.reason == "unknown"
    assert {each.confidence for each in verdict.contributing} <= {"low"}
    assert judge_log((*STEPS, *STEPS, crash), is_ended=True).reason != "unknown"


def test_what_follows_a_success_with_exit_code_0_is_of_no_weight():
    """An error after a success with exit code 0 contributes with low confidence at most."""
    lines = (*STEPS, "Training completed", "cannot open /scratch/a: Permission denied")
    verdict = judge_log(lines, exit_code=0)
    assert (verdict.reason, verdict.confidence) == ("finished", "high")
    assert all(each.confidence == "low" for each in verdict.contributing)
    assert not verdict.finding.speaks_against


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            {"oom_kills": (OomKill(1.0, "CONSTRAINT_NONE", None, "/a", "sh", 7),)},
            "OOM kill of `sh`",
        ),
        ({"xids": (XidError(1.0, "0000:3b:00", 43),)}, "Xid 43 of GPU 0000:3b:00"),
    ],
)
def test_the_report_says_why_a_success_is_not_certain(more, why):
    """The report names the OOM kill or Xid that makes a success uncertain."""
    verdict = judge_log((*STEPS, "Training completed"), cgroup="/b", **more)
    assert verdict.reason == "unknown"
    assert "`Training completed`" in verdict.finding.speaks_for[0]
    assert why in verdict.finding.speaks_for[0]


def test_disk_noise_of_the_host_leaves_a_success_as_it_is():
    """Disk errors in the kernel log do not change a success in the program's log."""
    noise = ("I/O error, dev sdd, sector 0", "nfs: server n1 not responding, still trying")
    verdict = judge_log((*STEPS, "Training completed"), kernel_lines=noise)
    assert verdict.reason == "finished"


def test_a_traceback_that_the_log_goes_on_after_did_not_end_the_process():
    """The report does not state that an exception ended the process if the log continues."""
    lines = ("NCCL WARN Call to connect failed", *OOM[:-1], "KeyError: 'a'", *STEPS, "bye")
    verdict = judge_log(lines, is_ended=True)
    said = " ".join(
        " ".join((each.summary, *each.speaks_against))
        for each in (verdict.finding, *verdict.contributing)
    )
    assert "ended with `KeyError" not in said


def test_many_tracebacks_take_linear_time():
    """Four times as many tracebacks take far less than 16 times as long."""

    def measure(count: int) -> float:
        block = (
            'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: x\n' + "\n" * 4
        )
        lines = tuple((block * count).split("\n"))
        start = time.thread_time()
        drop_handled(lines)
        return time.thread_time() - start

    short = min(measure(250) for _ in range(3))
    assert min(measure(1000) for _ in range(3)) < 9 * short + 0.05
