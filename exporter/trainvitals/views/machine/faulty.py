"""Draws a view without the runs that make the view fail, and reports these runs as unknown."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from trainvitals.foreign_text import clean_text
from trainvitals.verdicts.trouble import Unknown
from trainvitals.views.machine.picture import Picture, Run
from trainvitals.workers import attempt_without_faulty

_MOST_CHARACTERS = 80

Drawn = TypeVar("Drawn")

_log = logging.getLogger(__name__)


def draw_runs(draw: Callable[[Picture], Drawn], picture: Picture) -> Drawn:
    """Return a view of the machine state, without the runs that make the view fail.

    Args:
        draw: A function that returns the view of a machine state.
        picture: The machine state to view.
    """

    def draw_some(runs: Sequence[Run]) -> Drawn:
        return draw(replace(picture, runs=tuple(runs)))

    drawn, faulty = attempt_without_faulty(draw_some, picture.runs)
    if not faulty:
        return drawn
    unknowns = explain_faulty((run.name, error) for run, error in faulty)
    left_out = {id(run) for run, _ in faulty}
    kept = tuple(run for run in picture.runs if id(run) not in left_out)
    return draw(replace(picture, runs=kept, unknowns=(*picture.unknowns, *unknowns)))


def explain_faulty(faulty: Iterable[tuple[str, Exception]]) -> list[Unknown]:
    """Return an `Unknown` for each run that cannot be shown, with the run's name and the error."""
    unknowns = []
    for name, error in faulty:
        shown = clean_text(str(name), most=_MOST_CHARACTERS)
        why = clean_text(f"{type(error).__name__}: {error}", most=_MOST_CHARACTERS)
        _log.debug("run %s cannot be shown", shown, exc_info=error)
        unknowns.append(Unknown("run", f"{shown} cannot be shown ({why}); report this as a bug"))
    return unknowns
