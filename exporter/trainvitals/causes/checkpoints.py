"""Deaths because a checkpoint cannot be read."""

from __future__ import annotations

from trainvitals.causes.account import read_account
from trainvitals.causes.case import Case
from trainvitals.causes.paths import find_loaded
from trainvitals.causes.signs import Sign, find, has
from trainvitals.causes.verdict import Cause, Finding

_BROKEN_CHECKPOINT = has(
    "PytorchStreamReader failed",
    "not a ZIP archive",
    "failed finding central directory",
    "Error while deserializing header",
    "MetadataIncompleteBuffer",
    "HeaderTooLarge",
    "pickle data was truncated",
    "invalid load key",
    "Unsupported operand",
    "Ran out of input",
    "Unable to open file (truncated file",
)
# A file that is cut where its index should be, or empty, says only this, from within torch.load.
_BARE_LOAD_ERRORS = ("OSError: [Errno 22] Invalid argument", "EOFError")


def look_ckpt_corrupt(case: Case) -> Finding | None:
    """Look for a checkpoint that cannot be read because it is cut off or no checkpoint."""
    sign = find(case, _BROKEN_CHECKPOINT) or _find_bare_load_error(case)
    if sign is None:
        return None
    path = find_loaded(case, sign.text, sign.line)
    named = f" `{path}`" if path else ""
    died = bool(case.evidence.earlier_deaths)
    return sign.conclude(
        "ckpt-corrupt",
        f"The checkpoint{named} cannot be read: it is cut off or no checkpoint.",
        (
            (
                f"Resume from the one before it, and set this one aside: `mv {path or 'CHECKPOINT'}"
                f" {path or 'CHECKPOINT'}.broken`."
            ),
            (
                f"See whether it is one: `ls -l {path or 'CHECKPOINT'}`, `unzip -t"
                f" {path or 'CHECKPOINT'}`; a few hundred bytes of text are a Git LFS pointer or an"
                " error page, so download it again."
            ),
            (
                "Write to a temporary name and rename at the end (`os.replace`), so that a kill or a"
                " full disk leaves no half file under the good name."
            ),
        ),
        speaks_for=("It died before; that may have been while it wrote this file.",) * died,
    )


def _find_bare_load_error(case: Case) -> Sign | None:
    fatal = read_account(case).fatal
    if fatal is None:
        return None
    frames = case.lines[fatal.start : fatal.end + 1]
    if not any("torch/serialization.py" in line for line in frames):
        return None
    return find(case, lambda text: text.strip().startswith(_BARE_LOAD_ERRORS))


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="ckpt-corrupt",
        title="The checkpoint is broken",
        signs="The log says `PytorchStreamReader failed`, `failed finding central directory`,"
        " `Error while deserializing header`, `invalid load key` or `pickle data was truncated`.",
        meaning="The file is half-written after a kill or a full disk, or it is a download that"
        " brought something else.",
        steps=(
            "Resume from the checkpoint before it.",
            "Write checkpoints to a temporary name and rename them with `os.replace`.",
        ),
        confidence="high",
        look=look_ckpt_corrupt,
    ),
)
