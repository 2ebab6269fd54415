"""NaN and infinite losses, and words that resemble `nan`."""

from __future__ import annotations

import pytest

from tests.support.deaths import reasons_of
from tests.unit.verdicts.causes.evidences import death
from trainvitals.verdicts.causes.judge import judge

STEPS = tuple(f"step {step} loss {3 - step / 1000:.3f}" for step in range(0, 500, 10))


@pytest.mark.parametrize(
    "line",
    [
        "step 120 lr=3e-4 step_loss=nan",
        "Epoch 1: 3/10, train_loss=nan.0",
        "{'loss': nan, 'grad_norm': nan, 'epoch': 0.4}",
        '{"step": 7, "loss": NaN}',
        "loss: tensor(nan, device='cuda:0')",
        "iter 900 Loss nan",
    ],
)
def test_a_loss_of_nan_is_seen(line):
    """A NaN loss is recognised in many formats, with medium confidence since it ends no run."""
    verdict = judge(death(1, log=(*STEPS, line)))
    assert (verdict.reason, verdict.finding.confidence) == ("nan-loss", "medium")


@pytest.mark.parametrize(
    "line",
    [
        "loss = torch.nan_to_num(loss)",
        "loss nan_to_num is on",
        "class banana has loss 0.3",
        "the loss of finance: nanoseconds",
        "floss: banana",
        "loss nano",
    ],
)
def test_other_words_are_no_nan(line):
    """`nan` within a longer word does not match."""
    assert "nan-loss" not in reasons_of(judge(death(1, log=(*STEPS, line))))


def overflow(scale):
    """Return the line that apex prints if it reduces its loss scale."""
    return f"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {scale}"


def test_the_first_overflows_are_normal():
    """Gradient overflows at the start, while the loss scale is adjusted, are not `nan-loss`."""
    log = tuple(overflow(65536.0 / 2**number) for number in range(1, 5))
    assert "nan-loss" not in reasons_of(judge(death(1, log=(*log, *STEPS))))
    assert "nan-loss" not in reasons_of(judge(death(1, log=log)))


@pytest.mark.parametrize("scales", [[32768.0] * 30, [2.0 / 2**number for number in range(1, 9)]])
def test_overflows_now_and_then_are_normal(scales):
    """Many overflows at a high loss scale, or a few at a low one, are not `nan-loss`."""
    log = tuple(map(overflow, scales))
    assert "nan-loss" not in reasons_of(judge(death(1, log=(*STEPS, *log))))


def test_a_scale_that_falls_to_nothing_is_the_death():
    """A row of overflows down to a loss scale below 1 is `nan-loss`."""
    log = tuple(overflow(65536.0 / 2**number) for number in range(1, 20))
    verdict = judge(death(1, log=(*STEPS, *log)))
    assert (verdict.reason, verdict.finding.confidence) == ("nan-loss", "high")


def test_a_number_that_is_none_does_no_harm():
    """An invalid loss scale causes no error."""
    log = tuple("OVERFLOW! reducing to 1e+-.." for _ in range(20))
    assert judge(death(1, log=log)).reason == "unknown"
