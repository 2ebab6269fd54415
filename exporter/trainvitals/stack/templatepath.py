"""The template that Debian's Alertmanager reads from a fixed path.

It ends at once where `/usr/share/prometheus/alertmanager/default.tmpl` is missing. An Alertmanager
that was unpacked rather than installed has the file elsewhere, and gets a private view of the path.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.stack import privateview
from trainvitals.stack.privateview import SHARE
from trainvitals.stack.writing import make_private

_TEMPLATE = Path("prometheus/alertmanager/default.tmpl")
_PATIENCE_SECONDS = 20.0


def prefix_command(
    program: Path, hold: Path, *, share: Path = SHARE, python: str = sys.executable
) -> tuple[str, ...]:
    """Give what must precede an Alertmanager's command so that it finds its template.

    Args:
        program: The Alertmanager.
        hold: Where the private view may keep the real `/usr/share`; made when it is needed.
        share: Where the template is looked for.
        python: Runs the private view.

    Returns:
        Nothing for a program that is installed, or on a machine that has the template.

    Raises:
        StackError: It needs a private view, and this machine gives none.
    """
    unpacked = program.parent.parent / "share"
    if unpacked == share or (share / _TEMPLATE).exists() or not (unpacked / _TEMPLATE).exists():
        return ()
    make_private(hold)
    view = (str(hold), _TEMPLATE.parts[0], str(unpacked / _TEMPLATE.parts[0]))
    # It needs nothing but Python, and is there the sooner.
    prefix = (python, "-I", str(Path(privateview.__file__)), *view)
    _try(prefix, program)
    return prefix


def _try(prefix: tuple[str, ...], program: Path) -> None:
    try:
        tried = subprocess.run(
            (*prefix, str(program), "--version"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(f"it finds no {SHARE / _TEMPLATE}: {error}") from error
    if tried.returncode:
        words = tried.stderr.strip().splitlines() or ["no message"]
        raise StackError(
            f"it finds no {SHARE / _TEMPLATE} ({words[-1]}): install prometheus-alertmanager"
        )
