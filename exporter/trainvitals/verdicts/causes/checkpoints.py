"""Checkpoints that cannot be loaded because they are damaged or belong to another model."""

from __future__ import annotations

import re

from trainvitals.verdicts.causes.broken_files import find_broken_checkpoint
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.frameworks import find_framework
from trainvitals.verdicts.causes.log_matches import find_match
from trainvitals.verdicts.causes.paths import find_loaded
from trainvitals.verdicts.causes.signs import Sign, matches
from trainvitals.verdicts.causes.verdict import Cause, Finding

_OTHER_KEYS = matches(
    r"shape mismatch for loaded \(|Restoring from checkpoint failed|Assign requires shapes of both tensors to match|(?:Missing|Unexpected) key\(s\) in state_dict|doesn't match the size of optimizer's group"
    r"|different number of parameter groups|Unable to load weights from (?:pytorch )?checkpoint|KeyError: .{0,3}(?:optimizer|scheduler|epoch|lr_scheduler)_?state|Key \S{1,200} not found in checkpoint"
    r"|KeyError: '(?:state_dict|model_state_dict|optimizer_state_dict|module\.[\w.]{1,120})'$"
)
# A line must name an exception as well as a difference and saved data, because libraries also warn
# about weights that they do not load.
_RAISED = re.compile(
    r"(?:\[rank[0-9]{1,6}\]: )?(?:[\w.]{1,120}\.)?[A-Z]\w{0,80}(?:Error|Exception)\b"
).match
_DIFFERS = Sign(
    re.compile(
        r"\bmis-?match|\b(?:do(?:es)?(?: not|n't)|must) match\b|\bnot (?:compatible|present) (?:with|in)\b|\bincompatible (?:with|shape)"
        r"|\bbut (?:the )?(?:received|got|found|current|saved|model|checkpoint)\b|\binto a model with\b"
        r"|\bobjects could not be loaded|\b(?:[Mm]issing|[Uu]nknown) field",
        re.IGNORECASE,
    ),
    without=(
        "size mismatch for ",
        "Some weights",
        "newly initialized",
        "hash",
        "checksum",
        "Warning",
    ),
    near=re.compile(
        r"\bcheckpoint\b|\bckpt\b|state[_ ]?dict|\bweights? (?:file|from file)|\bsaved (?:weights?|layers?|states?)"
        r"|\bon-disk\b|\brestor(?:e|ing)\b|\bduring loading\b|\bloading weights\b|\bobjects could not be loaded",
        re.IGNORECASE,
    ),
)


def detect_ckpt_corrupt(case: Case) -> Finding | None:
    """Detect a checkpoint that cannot be loaded because it is truncated or not a checkpoint."""
    match = find_broken_checkpoint(case)
    if match is None:
        return None
    path = find_loaded(case, match.text, match.line)
    named = f" `{path}`" if path else ""
    died = bool(case.evidence.earlier_deaths)
    return match.conclude(
        "ckpt-corrupt",
        f"The checkpoint{named} cannot be loaded: it is truncated or not a checkpoint.",
        (
            (
                f"Resume from the previous checkpoint, and rename this one: `mv {path or 'CHECKPOINT'}"
                f" {path or 'CHECKPOINT'}.broken`."
            ),
            (
                f"Check the file: `ls -l {path or 'CHECKPOINT'}`, `unzip -t {path or 'CHECKPOINT'}`;"
                " if it is a few hundred bytes of text, it is a Git LFS pointer or an error page, so"
                " download it again."
            ),
            (
                "Write checkpoints to a temporary name and rename them at the end (`os.replace`), so that"
                " a kill or a full disk leaves no partial file."
            ),
        ),
        speaks_for=("An earlier death may have interrupted the writing of this file.",) * died,
    )


def detect_ckpt_mismatch(case: Case) -> Finding | None:
    """Detect an intact checkpoint whose parameters do not match those of the model."""
    match = find_match(case, _OTHER_KEYS) or find_match(case, _DIFFERS)
    if match is None or not (_OTHER_KEYS(match.text) or _RAISED(match.text)):
        return None
    steps: tuple[str, ...] = (
        _COMPARE_TORCH if find_framework(case, match.text) == "torch" else _COMPARE
    )
    if "world size" in match.text:
        steps = _SAME_WORLD
    return match.conclude(
        "ckpt-mismatch", "The checkpoint's parameters are not those of the model.", steps
    )


_COMPARE_TORCH = (
    (
        "Compare the keys: `print(list(torch.load(PATH, map_location='cpu'))[:5])` and"
        " `print(list(model.state_dict())[:5])`."
    ),
    (
        "Remove the prefix of DataParallel: `{k.removeprefix('module.'): v for k, v in state.items()}`,"
        " or load into `model.module`."
    ),
    "Load with `strict=False` only where the missing layers are meant to be trained from scratch.",
)
_COMPARE = (
    (
        "Compare the model's configuration with that of the checkpoint: the number of classes and layers,"
        " the sizes; the message names the parameter."
    ),
    "Train in an empty directory where an old checkpoint of another model is picked up: `ls -la DIRECTORY`.",
    "Restore only the parameters that match where the others are meant to be trained from scratch.",
)
_SAME_WORLD = (
    "Resume with as many processes as the checkpoint was saved with.",
    (
        "Or convert it: DeepSpeed's `ds_to_universal.py` with `load_universal`, or `zero_to_fp32.py` for the"
        " weights alone."
    ),
)

CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="ckpt-corrupt",
        title="The checkpoint cannot be loaded",
        signs="The log contains `PytorchStreamReader failed`, `failed finding central directory`,"
        " `Error while deserializing header`, `invalid load key` or `pickle data was truncated`.",
        meaning="A kill or a full disk interrupted the writing of the file, or a download returned"
        " another file.",
        steps=(
            "Resume from the previous checkpoint.",
            "Write checkpoints to a temporary name and rename them with `os.replace`.",
        ),
        confidence="high",
        detect=detect_ckpt_corrupt,
    ),
    Cause(
        reason="ckpt-mismatch",
        title="The checkpoint is of another model",
        signs="The log contains `Missing key(s) in state_dict` or `Restoring from checkpoint failed`, or reports"
        " that the structure, the shapes or the world size of what was saved does not match.",
        meaning="The file is whole, but its parameters are not those of the model: another configuration or"
        " version, or the prefix `module.` of DataParallel.",
        steps=_COMPARE_TORCH,
        confidence="high",
        detect=detect_ckpt_mismatch,
    ),
)
