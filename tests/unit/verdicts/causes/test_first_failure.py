"""A rank's failure before another rank's timeout, and trouble words that are only values."""

import pytest

from trainvitals.sources.containers.evidence import EngineEvent, Evidence
from trainvitals.verdicts.causes.judge import judge

PREFIXES = ("[rank{}]: ", "[default{}]:", "[1,{}]<stderr>:", "(Worker pid=81{}, ip=10.0.0.2) ", "")
ERRORS = {
    "IndexError: pop from empty list": "exception",
    "RuntimeError: CUDA error: an illegal memory access was encountered": "cuda-illegal",
    "FileNotFoundError: [Errno 2] No such file or directory: '/set/part-7.bin'": "missing-file",
    "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. ": "oom-worker",
}
WAITED = (
    (
        "[E903 04:05:06 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout:"
        " WorkNCCL(SeqNum=5, OpType=BROADCAST, Timeout(ms)=600000) ran for 600020 milliseconds"
    ),
    "terminate called after throwing an instance of 'c10::DistBackendError'",
)


@pytest.mark.parametrize("code", [None, 134])
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("error", ERRORS)
def test_the_rank_that_failed_first_is_the_cause(error, prefix, code):
    """The rank that failed first is the cause, and the other rank's NCCL timeout contributes."""
    raised = (
        "Traceback (most recent call last):",
        '  File "/w/fit.py", line 4, in <module>',
        error,
    )
    log = [f"epoch 1 step {step} loss 1.{step}" for step in range(9)]
    log += [prefix.format(1) + line for line in raised]
    log += [prefix.format(0) + line for line in WAITED]
    verdict = judge(Evidence("run", "r", log=tuple(log), exit_code=code))
    assert verdict.reason == ERRORS[error]
    assert "nccl-timeout" in {each.reason for each in verdict.contributing}


@pytest.mark.parametrize(
    "error",
    [
        "KeyError: 'No space left on device'",
        "ValueError: unknown policy 'CUDA out of memory retry'",
        "AssertionError: 'Segmentation fault' is in the vocabulary",
        "argparse.ArgumentError: argument --on: invalid choice: 'NCCL error abort'",
        'ValueError: label "Bus error" is not in the list',
    ],
)
def test_the_words_of_a_value_are_not_a_cause(error):
    """An exception that quotes a value with the words of another cause is only an exception."""
    log = ("Traceback (most recent call last):", '  File "/w/fit.py", line 4, in <module>', error)
    assert judge(Evidence("run", "r", log=log)).reason == "exception"


def test_a_message_in_quotes_is_a_cause():
    """A KeyError with a library's quoted message is not a missing file."""
    error = "KeyError: \"filename 'storages' not found\""
    log = ("Traceback (most recent call last):", '  File "/w/fit.py", line 4, in <module>', error)
    assert judge(Evidence("run", "r", log=log)).reason != "missing-file"


@pytest.mark.parametrize(
    ("action", "reason"), [("create", "unknown"), ("attach", "unknown"), ("start", "running")]
)
def test_running_needs_a_sign_of_it(action, reason):
    """A container is called running only if a start event was recorded."""
    events = (EngineEvent(1.7e9, action),)
    assert judge(Evidence("container", "c", events=events)).reason == reason


def test_torchrun_may_name_the_rank_that_its_watchdog_aborted():
    """If torchrun names the rank that its watchdog aborted, another rank's error is the cause."""
    raised = ("Traceback (most recent call last):", '  File "/w/fit.py", line 4, in <module>')
    log = [f"[rank0] it {step} loss 1.{step}" for step in range(100, 109)]
    log += [f"[rank5]: {line}" for line in (*raised, "KeyError: 'news'")]
    log += ["[rank0] it 109 loss 1.1", *(f"[rank0]:{line}" for line in WAITED)]
    log += [
        (
            "[rank0]:[E903 04:05:07 ProcessGroupNCCL.cpp:684] [Rank 0] To avoid data inconsistency, we are"
            " taking the entire process down."
        ),
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "Root Cause (first observed failure):",
        "[0]:",
        "  rank      : 0 (local_rank: 0)",
        "  exitcode  : -6 (pid: 133)",
    ]
    assert judge(Evidence("run", "r", log=tuple(log), exit_code=1)).reason == "exception"


def test_an_assertion_may_speak_of_a_collective_operation():
    """Megatron's assertion about NaN gradients before a collective operation is `nan-loss`."""
    error = "AssertionError: Rank 3: found NaN in local grad norm before data-parallel communication collective"
    raised = (
        "Traceback (most recent call last):",
        '  File "/w/fit.py", line 4, in <module>',
        error,
    )
    log = [f"iteration {step}/ 900 | lm loss: 2.{step}" for step in range(100, 109)]
    log += [f"[rank3]: {line}" for line in raised] + [f"[rank0]:{line}" for line in WAITED]
    assert judge(Evidence("run", "r", log=tuple(log), exit_code=1)).reason == "nan-loss"


def test_a_coordination_service_that_is_gone_is_no_network():
    """If JAX's coordination service lost a task, that task is the cause, not the network."""
    log = [f"step {step} loss 2.{step}" for step in range(9)]
    log += [
        (
            "E0714 21:34:10.5 1409 coordination_service.cc:11] UNAVAILABLE: Task /job:w/task:5 heartbeat"
            " timeout. This indicates that the remote task has failed"
        ),
        (
            "E0714 21:34:10.6 1409 agent.cc:2] Failed to disconnect from coordination service with status:"
            " UNAVAILABLE: failed to connect to all addresses; last error: UNKNOWN"
        ),
    ]
    assert judge(Evidence("run", "r", log=tuple(log), exit_code=134)).reason == "torchrun-child"
