"""Implements the command `trainvitals postmortem`."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import (
    FINE,
    FOUND_A_PROBLEM,
    add_json,
    add_run_dir,
    say,
)

if TYPE_CHECKING:  # other modules are imported when the command runs
    import argparse

_EXAMPLES = """\
Examples:
  trainvitals postmortem                 the run that ended last
  trainvitals postmortem bert-large      a run by its name or a prefix of it
  trainvitals postmortem --json | jq -r .reason

Exit codes: 0 it finished or is running, 1 it failed, 2 there is no such run.
"""


def add_postmortem(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals postmortem`."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "name",
        metavar="RUN",
        nargs="?",
        help="the run's name or a prefix of it (default: the run that ended last)",
    )
    add_json(parser)
    add_run_dir(parser)
    parser.set_defaults(run=_postmortem)


def _postmortem(options: argparse.Namespace) -> int:
    from trainvitals.sources.containers.survey import read_kernel  # noqa: PLC0415
    from trainvitals.sources.runs.history import choose_run, read_run_history  # noqa: PLC0415
    from trainvitals.sources.runs.owners import read_users  # noqa: PLC0415
    from trainvitals.sources.runs.past_runs import is_well  # noqa: PLC0415
    from trainvitals.verdicts.causes.diagnosis import Postmortem  # noqa: PLC0415
    from trainvitals.views.death.run_document import format_json  # noqa: PLC0415
    from trainvitals.views.death.run_screen import format_screen  # noqa: PLC0415

    history = read_run_history(options.run_dir, users=read_users())
    run = choose_run(history, options.name)
    postmortem = Postmortem(history, run, *read_kernel())
    if options.json:
        say(format_json(postmortem))
    else:
        width = shutil.get_terminal_size().columns
        say(format_screen(postmortem, width=width, names_others=options.name is None))
    return FINE if is_well(run) else FOUND_A_PROBLEM
