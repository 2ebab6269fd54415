"""Implements the command `trainvitals plot`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import FINE, say
from trainvitals.errors import ConfigurationError

if TYPE_CHECKING:  # other modules are imported when the command runs
    import argparse

_EXAMPLES = """\
Examples:
  trainvitals plot resource_logs/epoch_1.csv
  trainvitals plot resource_logs/epoch_*.csv --output run.png
  trainvitals plot /var/log/vitals.jsonl*         a recording, with its rotated files
  trainvitals plot run.csv --size 1200x1600       higher panels, where there are many

Exit codes: 0 it was drawn, 2 it cannot be drawn.
"""
_SIZE = re.compile(r"(\d{3,4})x(\d{3,4})")


def add_plot(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals plot`."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=Path,
        help="a file of ResourceMonitorCallback or `trainvitals record`, as CSV or JSON lines, also "
        "compressed by gzip; several files are shown in sequence",
    )
    parser.add_argument(
        "--output",
        metavar="PNG",
        type=Path,
        default=Path("resource_timeline.png"),
        help="the file to write (default resource_timeline.png)",
    )
    parser.add_argument(
        "--size",
        metavar="WIDTHxHEIGHT",
        default="1200x800",
        help="its size in pixels, each from 100 to 9999 (default 1200x800)",
    )
    parser.set_defaults(run=_plot)


def _plot(options: argparse.Namespace) -> int:
    from trainvitals.views.plot import plot  # noqa: PLC0415 - only this command needs it

    size = _SIZE.fullmatch(options.size)
    if size is None:
        raise ConfigurationError(
            f"--size={options.size}: write WIDTHxHEIGHT in pixels, each from 100 to 9999"
        )
    plot(options.files, options.output, size=(int(size[1]), int(size[2])))
    say(f"wrote {options.output}")
    return FINE
