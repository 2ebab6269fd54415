"""Definite causes, and the later tracebacks that they lead to."""

from __future__ import annotations

import pytest

from tests.unit.verdicts.causes.test_words import STEPS, judge_log

_HEAD = ("Traceback (most recent call last):", '  File "/srv/b/fit.py", line 31, in <module>')
_STATUS = ("== Status ==", "Memory usage on this node: 40.1/503.6 GiB")


def fail(*message):
    """Return the lines of a traceback."""
    return (*_HEAD, "    run()", *message)


_DEFINITE = (
    ("cuda-oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB"),
    ("cuda-ordinal", "RuntimeError: CUDA error: invalid device ordinal"),
    ("missing-module", "OSError: libnpp.so.12: cannot open shared object file: No such file"),
    ("ckpt-mismatch", "RuntimeError: Missing key(s) in state_dict: 'head.bias'"),
)
_WRAPPERS = (
    "ray.tune.error.TuneError: ('Trials did not complete', [fit_1_00000])",
    "RuntimeError: 1 of 4 workers failed",
    "ValueError: No trials are completed yet.",
)
_LATER = (
    "AttributeError: 'NoneType' object has no attribute 'close'",
    "RuntimeError: cannot schedule new futures after shutdown",
)


@pytest.mark.parametrize(("reason", "message"), _DEFINITE)
@pytest.mark.parametrize("later", _WRAPPERS)
def test_a_report_on_others_keeps_the_cause(reason, message, later):
    """A later exception that only reports other failures leaves the first one as the cause."""
    for between in ((), _STATUS):
        verdict = judge_log(*STEPS, *fail(message), *between, *fail(later), exit_code=1)
        assert (verdict.reason, verdict.confidence) == (reason, "high")


@pytest.mark.parametrize(("reason", "message"), _DEFINITE)
@pytest.mark.parametrize("later", _LATER)
def test_a_later_traceback_does_not_displace_a_definite_cause(reason, message, later):
    """A definite cause before an unrelated traceback has medium confidence."""
    verdict = judge_log(*STEPS, *fail(message), *_STATUS, *fail(later), exit_code=1)
    assert (verdict.reason, verdict.confidence) == (reason, "medium")
    assert "exception" not in {each.reason for each in verdict.contributing}


@pytest.mark.parametrize(("reason", "message"), _DEFINITE)
def test_an_error_that_training_went_on_after_accuses_no_more(reason, message):
    """If training continued after the first error, the last traceback is the cause."""
    verdict = judge_log(*fail(message), *STEPS, *fail(_LATER[0]), exit_code=1)
    assert (verdict.reason, verdict.confidence) == ("exception", "high")
    assert reason not in {each.reason for each in verdict.contributing if each.confidence != "low"}


def test_a_handled_error_right_before_does_not_accuse():
    """An error after which the program skips the batch is not the cause."""
    lines = (*fail(_DEFINITE[0][1]), "skipping this batch", *fail(_LATER[0]))
    assert judge_log(*STEPS, *lines, exit_code=1).reason == "exception"


def test_an_exception_after_another_is_less_certain():
    """If two different exceptions follow each other, the report names both at medium confidence."""
    first = fail("KeyError: 'labels'")
    verdict = judge_log(*STEPS, *first, *fail(_LATER[0]), exit_code=1)
    assert (verdict.reason, verdict.confidence) == ("exception", "medium")
    assert "KeyError: 'labels'" in " ".join(verdict.finding.speaks_against)
    assert judge_log(*STEPS, *first, *first, exit_code=1).confidence == "high"


def test_the_line_of_a_message_that_names_the_cause_is_shown():
    """The report quotes the line of a wrapper's message that names the cause."""
    lines = fail(
        "ray.exceptions.RayTaskError(RuntimeError): ray::fit() (pid=7)", "CUDA out of memory"
    )
    finding = judge_log(*STEPS, *lines, exit_code=1).finding
    assert "Its message contains `CUDA out of memory`." in finding.speaks_for


def accelerate(end):
    """Return the traceback of Accelerate's launcher after its program failed."""
    return (
        "Traceback (most recent call last):",
        '  File "/opt/venv/bin/accelerate", line 8, in <module>',
        "    sys.exit(main())",
        '  File "/opt/venv/lib/python3.11/site-packages/accelerate/commands/launch.py", line 763, in simple_launcher',
        "    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)",
        f"subprocess.CalledProcessError: Command '['/opt/venv/bin/python', 'fit.py']' {end}.",
    )


def test_the_launcher_of_accelerate_reports_the_end_of_its_program():
    """The traceback of Accelerate's launcher is not the cause, but its signal is used."""
    exited, killed = "returned non-zero exit status 1", "died with <Signals.SIGKILL: 9>"
    reason, message = _DEFINITE[0]
    verdict = judge_log(*STEPS, *fail(message), *accelerate(exited), exit_code=1)
    assert (verdict.reason, verdict.confidence) == (reason, "high")
    assert judge_log(*STEPS, *accelerate(killed), exit_code=1).reason == "kill-outside"


@pytest.mark.parametrize("name", ["EOFError", "BrokenPipeError: [Errno 32] Broken pipe"])
def test_a_lost_process_is_the_one_that_the_kernel_names(name):
    """A broken pipe of multiprocessing is explained by a segfault in the kernel log."""
    pipe = (
        *_HEAD,
        '  File "/usr/lib/python3.11/multiprocessing/connection.py", line 383, in _recv',
    )
    kernel = "python3[31244]: segfault at 18 ip 00007f3d sp 00007ffd error 4 in libsim.so[7f+8f]"
    lines = (*STEPS, *pipe, "    raise EOFError", name)
    verdict = judge_log(*lines, exit_code=1, kernel_lines=(kernel,))
    assert (verdict.reason, verdict.confidence) == ("segfault", "medium")
    alone = judge_log(*lines, exit_code=1)
    assert alone.reason == "exception"
    assert "The process at the other end of a pipe had ended." in alone.finding.speaks_for
    other = judge_log(*STEPS, *fail(name), exit_code=1, kernel_lines=(kernel,))
    assert other.reason == "exception"


def test_a_thread_s_exception_that_the_main_thread_raises_again_ended_it():
    """If a rank raises an exception of its thread again, the thread's exception is the cause."""
    lines = (
        *STEPS,
        "[rank6]: Traceback (most recent call last):",
        '[rank6]:   File "/usr/lib/python3.11/threading.py", line 1045, in _bootstrap_inner',
        "[rank6]: botocore.exceptions.ClientError: An error occurred (ExpiredToken) when calling GetObject",
        "[rank6]: ",
        "[rank6]: The above exception was the direct cause of the following exception:",
        "[rank6]: ",
        "[rank6]: Traceback (most recent call last):",
        '[rank6]:   File "/srv/fit.py", line 9, in <module>',
        "[rank6]: RuntimeError: Background thread failed. Check other traceback.",
        "ERROR:composer.cli.launcher:Rank 6 crashed with exit code 1.",
    )
    assert judge_log(*lines).reason == "credentials"


def test_an_exception_that_a_logger_wrote_as_a_warning_did_not_end_it():
    """A traceback without a module or thread frame, logged as a warning, is not the end."""
    logged = (
        "2025-03-04 16:44:37,866 - comm.tcp - WARNING - Closing a stream",
        "Traceback (most recent call last):",
        '  File "/opt/lib/python3.11/site-packages/comm/tcp.py", line 225, in read',
        "    data = await stream.read()",
        "comm.StreamClosedError: Stream is closed",
    )
    assert judge_log(*STEPS, *logged).reason != "exception"
    uncaught = (*logged[:2], '  File "/srv/fit.py", line 2, in <module>', *logged[2:])
    assert judge_log(*STEPS, *uncaught).reason == "exception"


_BUFFERED = tuple(f"{at}/125 - 2s 212ms/step - batch_cost: 0.21" for at in range(10, 60, 10))
_ENDED = "LAUNCH ERROR 2025-03-04 22:36:10,441 Container failed !!!"


def test_steps_after_an_error_are_buffered_output_if_a_launcher_reports_the_failure():
    """Steps after an error may be buffered output, so the confidence of the cause is medium."""
    error = fail(
        "MemoryError: ", "", "Out of memory error on GPU 2. Cannot allocate 1.1GB memory on GPU 2."
    )
    verdict = judge_log(*STEPS, *error, *_BUFFERED, _ENDED)
    assert (verdict.reason, verdict.confidence) == ("cuda-oom", "medium")
    assert judge_log(*STEPS, *error, *_BUFFERED).reason != "cuda-oom"


@pytest.mark.parametrize("label", ["[worker-{}] ", "[pod/fit-worker-{}/pytorch] "])
def test_the_labels_of_an_operator_s_pods_are_ranks(label):
    """In a log of several pods, the cause is the error of the first failed rank."""
    first = fail("tensorflow.python.framework.errors_impl.DataLossError: corrupted record at 180")
    other = fail(
        "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: x"
    )
    labelled = [
        label.format(rank) + line
        for rank, lines in ((0, STEPS), (2, first), (0, other), (1, other))
        for line in lines
    ]
    assert judge_log(*labelled).reason == "data-corrupt"


def test_a_refused_connection_between_ranks_is_not_a_server_that_cannot_be_reached():
    """A gRPC connection error after another rank's abort is not a network error."""
    details = (
        ':{"created":"@1","description":"Failed to pick subchannel","file":"client_channel.cc"}'
    )
    lost = "tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error:"
    verdict = judge_log(
        *STEPS,
        "[rank2]: F tensorflow/core/device_event_mgr.cc:223] Unexpected Event status: 1",
        "[rank2]: /bin/sh: line 1:     9 Aborted                 (core dumped) python fit.py",
        *(f"[rank1]: {line}" for line in (details, *fail(lost))),
        exit_code=134,
    )
    assert verdict.reason == "abort"


def test_a_wrapper_that_goes_on_after_the_training_was_killed_reports_no_success():
    """A shell script that ignores a killed training is a success only if the training restarts."""
    killed = "/entrypoint.sh: line 22:    61 Killed                  python fit.py --rows all"
    done = "[entrypoint] all stages finished, bye"
    assert judge_log(*STEPS, killed, "[entrypoint] exporting metrics", done).reason != "finished"
    assert judge_log(*STEPS, killed, *STEPS, done).reason == "finished"


def test_a_shape_that_differs_from_the_checkpoint_s_is_the_checkpoint_s():
    """Megatron's shape mismatch of a loaded tensor is a checkpoint mismatch."""
    error = (
        "megatron.core.dist_checkpointing.core.CheckpointingException: Global shape mismatch for loaded"
        " (torch.Size([128256, 4096])) and expected ((128512, 4096)) tensor for key embedding.weight"
    )
    assert judge_log(*fail(error)).reason == "ckpt-mismatch"


def test_the_other_services_of_compose_are_stopped_because_the_training_ended():
    """The SIGTERM of another Compose service is not the cause of the trainer's end."""
    error = fail(
        "RuntimeError: DataLoader worker (pid 412) is killed by signal: Bus error. It is possible that"
        " dataloader's workers are out of shared memory. Please try to raise your shared memory limit."
    )
    trainer = tuple(f"trainer-1  | {line}" for line in (*STEPS, *error))
    redis = ("redis-1    | 1:signal-handler (1707906661) Received SIGTERM scheduling shutdown...",)
    assert judge_log(*trainer, *redis).reason == "sigbus-shm"
    assert judge_log(*redis).reason == "term-outside"


def test_a_launcher_that_names_five_possible_causes_is_not_sure():
    """Open MPI's message about an unreachable host has medium confidence."""
    verdict = judge_log("ORTE was unable to reliably start one or more daemons.", "This usually is")
    assert (verdict.reason, verdict.confidence) == ("rendezvous-timeout", "medium")
