"""Grafana: its settings, and the password of its administrator."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from trainvitals.stack.writing import make_private, told_clearly, write_private

HOW_TO_GET = (
    "Grafana is not installed: get it from https://grafana.com/grafana/download, "
    "then run `trainvitals up` again"
)
_PASSWORD = "secrets/grafana_admin_password"  # noqa: S105 - where it is, not what it is
_LENGTH_BYTES = 18


def keep_admin_password(
    state_dir: Path,
    variables: Mapping[str, str],
    *,
    report: Callable[[str], None],
    invent: Callable[[], str] = lambda: secrets.token_urlsafe(_LENGTH_BYTES),
) -> Path:
    """Give the file with the password of Grafana's user `admin`; make it where there is none.

    Grafana takes the password when it makes its database, and never again.

    Args:
        state_dir: The file goes to `secrets/grafana_admin_password` in it, for the owner alone.
        variables: `GRAFANA_ADMIN_PASSWORD` is written there when it is set.
        report: Told a password that was made up here, this once.
        invent: Makes a password up.

    Raises:
        StackError: The file cannot be written.
    """
    path = state_dir / _PASSWORD
    make_private(path.parent)
    given = variables.get("GRAFANA_ADMIN_PASSWORD")
    with told_clearly(path):
        written = path.read_text(encoding="utf-8") if path.exists() else ""
    if given and given != written:
        write_private(path, given)
    elif not written:
        made_up = invent()
        write_private(path, made_up)
        report(f"Grafana's user is admin, the password {made_up} (kept in {path})")
    return path
