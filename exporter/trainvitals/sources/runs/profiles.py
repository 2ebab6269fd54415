"""Built-in patterns for the log lines of common frameworks and conventions."""

from __future__ import annotations

import re
from dataclasses import replace

from trainvitals.sources.runs.patterns import Pattern


def _write(name: str, regex: str, *contains: str) -> Pattern:
    return Pattern(name, re.compile(regex), contains)


_COUNT = r"(?P<epoch_step>\d{1,12})/(?P<epoch_steps>\d{1,12})"
_TIMES = r"\[[^,\]]{0,40}, *(?:(?P<steps_per_second>[\d.]{1,20})it/s|(?P<step_seconds>[\d.]{1,20})s/it|\?it/s)"
_BAR = rf"\d{{1,3}}%\|[^|]*\| *{_COUNT} {_TIMES}"

_FINISHED = (
    _write("Lightning's end", r"`Trainer\.fit` stopped", "`Trainer.fit` stopped"),
    _write("Hugging Face's end", r"\{'train_runtime'", "{'train_runtime'"),
    _write("Megatron's end", r"\[after training is done\]", "[after training is done]"),
    _write("torchtitan's end", r"Training completed", "[titan]", "Training completed"),
)
_EVALUATED = _write(
    "Lightning's evaluation", r"^Validation DataLoader \d+: 100%", "Validation Data"
)

_BARS = (
    _write("bar of an evaluation", r"(?i)^\W*(?:val|eval|test|sanity|predict)[^|]*%\|", "%|"),
    _write(
        "bar of an epoch of some",
        rf"[Ee]poch:? *\[?(?P<epoch>\d+)/(?P<total_epochs>\d+)\]?\W*{_BAR}(?:, (?P<pairs>.*)|\])",
        "%|",
        "poch",
    ),
    # Lightning counts epochs from 0.
    replace(
        _write(
            "bar of an epoch",
            rf"[Ee]poch:? *(?P<epoch>\d+)\W*{_BAR}(?:, (?P<pairs>.*)|\])",
            "%|",
            "poch",
        ),
        first_epoch=0,
    ),
    _write("bar with numbers", rf"{_BAR}, (?P<pairs>.*)", "%|"),
    _write(
        "bar without an end",
        rf"(?<!\d)(?P<epoch_step>\d{{1,12}})it {_TIMES}, (?P<pairs>.*)",
        "it [",
    ),
    # The step bar of the Hugging Face Trainer; it counts once the run has logged a loss.
    _write(
        "bare bar",
        rf"^\s*\d{{1,3}}%\|[^|]*\| *(?P<bar_step>\d+)/(?P<bar_steps>\d+) {_TIMES}\]\s*$",
        "%|",
    ),
)

_LINES = (
    _write("Hugging Face", r"\{(?P<pairs>'[^{}]*)\}", "{'", "'epoch': "),
    _write(
        "Megatron",
        r"iteration +(?P<step>\d+)/ *(?P<total_steps>\d+) *\|(?P<pairs>.*)",
        "iteration ",
        " | ",
    ),
    replace(
        _write(
            "Megatron's evaluation",
            r"validation loss at iteration (?P<step>\d{1,12})(?!\d)[^|]{0,200}\|(?P<pairs>.*)",
            "validation loss at iteration ",
        ),
        split="validation",
    ),
    replace(
        _write(
            "torchtitan's evaluation",
            r"validate step: *(?P<step>\d+) +(?P<pairs>loss: .*)",
            "validate step: ",
        ),
        split="validation",
    ),
    _write("torchtitan", r"\bstep: *(?P<step>\d+) +(?P<pairs>loss: .*)", "step:", "loss:"),
    _write(
        "Keras",
        rf"^{_COUNT} .*?(?:(?P<step_milliseconds>\d{{1,12}})ms|(?P<step_seconds>\d{{1,12}})s)/step(?P<pairs>.*)",
        "s/step",
    ),
    _write("Keras' epoch", r"^Epoch (?P<epoch>\d+)/(?P<total_epochs>\d+)\s*$", "Epoch "),
    # `Epoch 1: val_loss: 0.9 | val_iou: 0.1`, `Epoch [1/10], Step [100/600], Loss: 0.5`,
    # `Train Epoch: 1 [640/60000 (1%)] Loss: 2.3`.
    _write(
        "epoch",
        r"\b[Ee]poch:? *\[?(?P<epoch>\d+)(?: */ *(?P<total_epochs>\d+))?\]?[\s:|,-]+"
        rf"(?:[A-Z][a-z]+ \[?{_COUNT}\]?[\s:|,-]+)?(?P<pairs>.*)",
        "poch",
    ),
)

# The built-in patterns, in the order in which they are tried.
PROFILES: tuple[Pattern, ...] = (
    *(replace(pattern, marks="finished") for pattern in _FINISHED),
    replace(_EVALUATED, marks="evaluation"),
    *(replace(pattern, repeats=True) for pattern in _BARS),
    *_LINES,
)
