"""Expands paths that begin with `~`."""

from __future__ import annotations

from pathlib import Path

from trainvitals.errors import ConfigurationError


def expand_home(path: Path, name: str) -> Path:
    """Return a path in which `~` or `~user` is replaced by the home directory.

    Args:
        path: The path to expand.
        name: The name of the flag or environment variable, for the error message.

    Raises:
        ConfigurationError: The home directory of the user is unknown.
    """
    try:
        return path.expanduser()
    except (
        RuntimeError
    ) as error:  # HOME is not set and the user has no entry, or there is no such user
        raise ConfigurationError(
            f"{name}={path}: there is no such home directory; write an absolute path, or set HOME"
        ) from error
