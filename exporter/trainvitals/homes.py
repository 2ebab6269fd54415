"""Paths that begin with somebody's home directory."""

from __future__ import annotations

from pathlib import Path

from trainvitals.errors import ConfigurationError


def expand_home(path: Path, name: str) -> Path:
    """Put the home directory in the place of `~` or `~user`.

    Args:
        path: As it was written.
        name: What it was written as: a flag or a variable.

    Raises:
        ConfigurationError: Nobody knows that home directory.
    """
    try:
        return path.expanduser()
    except RuntimeError as error:  # $HOME is not set and the user has no entry, or is not there
        raise ConfigurationError(
            f"{name}={path}: nobody knows where this home directory is; write the whole path, "
            "or set HOME"
        ) from error
