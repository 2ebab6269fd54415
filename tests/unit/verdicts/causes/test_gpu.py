"""Faults of GPUs, found in the log and in the Xids of the kernel log."""

from __future__ import annotations

import pytest

from tests.support.deaths import reasons_of
from tests.unit.verdicts.causes.evidences import DIED, death
from trainvitals.sources.containers.evidence import Settings, XidError
from trainvitals.verdicts.causes.judge import judge

LAUNCH = (
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 3, in main',
    "RuntimeError: CUDA error: unspecified launch failure",
)
GPUS = Settings(wants_gpus=True)


def xid(code, *, before=3.0):
    """Return an Xid at this many seconds before the end."""
    return XidError(DIED - before, "0000:3b:00", code)


@pytest.mark.parametrize(
    ("log", "code", "reason", "confidence"),
    [
        (LAUNCH, 79, "gpu-lost", "high"),
        (LAUNCH, 48, "gpu-ecc", "high"),
        (LAUNCH, 95, "gpu-ecc", "high"),
        (LAUNCH, 31, "cuda-illegal", "medium"),
        (("step 1",), 79, "gpu-lost", "medium"),
        (("step 1",), 31, "unknown", "low"),
        (("step 1",), 43, "unknown", "low"),
    ],
)
def test_an_xid_and_the_log_confirm_each_other(log, code, reason, confidence):
    """An Xid has high confidence only with a matching log, as it may be of another container."""
    verdict = judge(death(1, log=log, xids=(xid(code),), settings=GPUS))
    assert (verdict.reason, verdict.finding.confidence) == (reason, confidence)


@pytest.mark.parametrize(
    "more",
    [
        {"settings": GPUS, "xids": (xid(79, before=600.0),)},
        {"settings": Settings(), "xids": (xid(79),)},
    ],
)
def test_an_xid_of_long_ago_or_without_gpus_is_no_verdict(more):
    """An Xid minutes before the end, or in a container without GPUs, is not the verdict."""
    assert judge(death(1, log=("step 1",), started=DIED - 900, **more)).reason == "unknown"


def test_an_xid_beside_a_success_is_no_death():
    """A run with exit code 0 is finished despite an Xid."""
    verdict = judge(death(0, log=("step 1",), xids=(xid(79),), settings=GPUS))
    assert verdict.reason == "finished"


def test_an_xid_before_the_start_is_another_runs():
    """An Xid from before the start of the run is ignored."""
    verdict = judge(death(1, log=LAUNCH, xids=(xid(79, before=100.0),), settings=GPUS))
    assert "gpu-lost" not in reasons_of(verdict)
