"""Causes found in a whole log: misleading lines, malicious lines and search time."""

from __future__ import annotations

import dataclasses
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.deaths import reasons_of
from tests.unit.verdicts.causes.evidences import death
from trainvitals.sources.containers.evidence import Settings, State
from trainvitals.verdicts.causes.case import open_case
from trainvitals.verdicts.causes.judge import BY_LOG, judge

PIECES = (
    "Traceback (most recent call last):",
    '  File "/app/a.py", line 1, in f',
    "During handling of the above exception, another exception occurred:",
    "Original Traceback (most recent call last):",
    "Exception ignored in: <x>",
    "[rank0]: ",
    "[rank1]:[E1120 ] [Rank 1] Watchdog caught collective operation timeout: SeqNum=1, OpType=A",
    "Root Cause (first observed failure):",
    "  rank      : 1 (local_rank: 1)",
    "  exitcode  : -6 (pid: 12)  (SIGABRT)",
    "  exitcode  : 1 (pid: 12) ",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 2.00 GiB total capacity;",
    "Process 1 has 2.00 GiB memory in use",
    "OSError: [Errno 28] No space left on device: '/a'",
    "OSError: [Errno 98] Address already in use",
    "huggingface_hub.errors.GatedRepoError: 401 Client Error.",
    "OSError: x/y is not a local folder and is not a valid model identifier",
    "RuntimeError: PytorchStreamReader failed",
    "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 7 bytes",
    "PermissionError: [Errno 13] Permission denied: 'a'",
    "ModuleNotFoundError: No module named ''",
    "FileNotFoundError: [Errno 2] No such file or directory: ''",
    "RuntimeError: CUDA error: no kernel image is available: sm_120 is not compatible with the current",
    "Gradient overflow. reducing loss scale to 1",
    "step 1 loss nan",
    "train.py: error: unrecognized arguments: --x",
    "Device acquire failed.",
    "ncclSystemError: x",
    "Failed to initialize NVML: Unknown Error",
    "",
)
LOGS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=30)), max_size=14)


@settings(max_examples=100)
@given(LOGS, st.sampled_from((0, 1, 2, 134, 137, 139, 143, None)))
@example(["Traceback (most recent call last):"], 1)
@example(["Root Cause (first observed failure):"], 1)
def test_no_lines_raise(log, code):
    """For any log, every cause returns a finding with its own reason, or None."""
    case = open_case(death(code, log=tuple(log), ended=None if code is None else 5.0))
    for cause in BY_LOG:
        finding = cause.detect(case)
        if finding is not None:
            assert finding.reason == cause.reason
            assert finding.summary
            assert finding.steps


@pytest.mark.parametrize(
    "piece", [*(piece for piece in PIECES if piece), "loss ", "a/", "(pid=1) ", "1."]
)
def test_a_hostile_line_costs_little(piece):
    """64 KiB of text that almost matches are searched in linear time."""
    line = (piece * (65536 // len(piece) + 1))[:65536]
    evidence = death(
        1, log=("Traceback (most recent call last):", '  File "a", line 1, in f', line)
    )
    case = open_case(evidence)
    began = time.process_time()
    for cause in BY_LOG:
        cause.detect(case)
    assert time.process_time() - began < 2.0  # a pattern that is not linear takes minutes


def test_a_rate_limit_is_not_taken_for_the_network():
    """A rate limit is the cause, although the last line suggests a connection problem."""
    log = (
        "Traceback (most recent call last):",
        '  File "/app/a.py", line 1, in f',
        "huggingface_hub.errors.HfHubHTTPError: 429 Too Many Requests for url: https://huggingface.co/x",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        '  File "/app/a.py", line 2, in g',
        "huggingface_hub.errors.LocalEntryNotFoundError: Please check your connection and try again.",
    )
    verdict = judge(death(1, log=log))
    assert verdict.reason == "hf-rate"
    assert "net-dns" not in reasons_of(verdict)


def test_the_shape_of_a_path_and_of_a_port_is_found():
    """The summary names the port of torchrun's message, and no port if the message has none."""
    log = (
        (
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network"
            " address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
        ),
    )
    finding = judge(death(1, log=log)).finding
    assert finding.summary == "Another program already listens on port 29500."
    finding = judge(death(1, log=("OSError: [Errno 98] Address already in use",))).finding
    assert finding.summary == "Another program already listens on the port."


def test_a_refused_thread_names_the_limit():
    """The summary names the process limit of the container, and the advice raises it."""
    finding = judge(
        death(1, log=("RuntimeError: can't start new thread",), settings=Settings(pids_limit=2000))
    ).finding
    assert finding.summary == "The limit of processes and threads (2000) was reached."
    assert "--pids-limit 8000" in finding.steps[0]


def test_a_gpus_memory_is_not_the_hosts():
    """`OutOfMemoryError` of torch is not read as Python's `MemoryError`."""
    log = (
        "Traceback (most recent call last):",
        '  File "a", line 1, in f',
        "torch.OutOfMemoryError: CUDA out",
    )
    assert "cpu-alloc" not in reasons_of(judge(death(1, log=log)))


def test_a_container_without_gpus_is_the_cause():
    """If no GPU was requested, the container's settings are the cause, otherwise the driver is."""
    log = (
        "Traceback (most recent call last):",
        "  f()",
        "RuntimeError: No CUDA GPUs are available",
    )
    without = judge(death(1, log=log, settings=Settings())).finding
    assert without.summary == "The container was started without GPUs."
    with_gpus = judge(death(1, log=log, settings=Settings(wants_gpus=True))).finding
    assert "nvidia-smi" in with_gpus.steps[0]


def test_a_port_that_is_taken_keeps_a_container_from_starting():
    """Without a log, the port is read from the error of the container's state."""
    state = State("created", 128, error="Bind for 0.0.0.0:6006 failed: port is already allocated")
    evidence = death(128, state=state, started=None, ended=None)
    assert "6006" in judge(dataclasses.replace(evidence, events=(), exit_code=None)).finding.summary


@pytest.mark.parametrize("name", ["KeyboardInterrupt", "SystemExit"])
def test_an_end_that_was_asked_for_is_no_exception(name):
    """KeyboardInterrupt and SystemExit are not reported as an exception."""
    log = ("Traceback (most recent call last):", '  File "/app/a.py", line 1, in f', name)
    assert "exception" not in reasons_of(judge(death(1, log=log)))
