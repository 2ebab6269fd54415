"""Logs that are empty although the program wrote to them."""

from __future__ import annotations

from pathlib import PurePosixPath

from trainvitals.causes.case import Case, name_signal
from trainvitals.causes.evidence import Settings
from trainvitals.causes.verdict import Cause, Finding

_PROGRAMS = ("python", "torchrun", "accelerate", "deepspeed", "jupyter")


def _is_python(settings: Settings) -> bool:
    words = [word for part in settings.command for word in part.split()]
    return any(PurePosixPath(word).name.startswith(_PROGRAMS) for word in words)


def _look_lost(case: Case) -> Finding | None:
    settings, log = case.evidence.settings, case.evidence.log
    if log is None or any(line.strip() for line in log) or settings is None:
        return None
    # At an end of its own Python writes what it holds, so that an empty log was meant.
    if case.signal is None or settings.is_unbuffered or settings.has_tty:
        return None
    if not case.has_ended or not _is_python(settings):
        return None
    service = case.evidence.compose_service
    where = f"`environment` of the service `{service}`" if service else "the image (`ENV`)"
    return Finding(
        "log-lost",
        "Its log is empty because Python held its last lines back and could not write them.",
        "high",
        (
            f"The log is empty, it is Python, and it ended by {name_signal(case.signal)}.",
            "`PYTHONUNBUFFERED` is not set and the command has no `-u`.",
        ),
        ("A program that writes nothing at all looks the same.",),
        (f"Set `PYTHONUNBUFFERED=1` in {where}, or run `python -u`.",),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        "log-lost",
        "Last lines lost",
        "an empty log, Python, an end by a signal, and no `PYTHONUNBUFFERED`; told beside the cause",
        "Python writes to a pipe only when 8 KiB have gathered; a signal throws them away. The log"
        " driver has nothing to do with it.",
        ("Set `PYTHONUNBUFFERED=1`, or run `python -u`.",),
        "high",
        _look_lost,
    ),
)
