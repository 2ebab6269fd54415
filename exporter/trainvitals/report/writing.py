"""Writing a report to a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from trainvitals.errors import ConfigurationError


def write_file(path: Path, text: str) -> None:
    """Write a file that its owner alone may read, whole or not at all.

    Raises:
        ConfigurationError: It cannot be written.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe or /dev/stdout stays what it is
            path.write_text(text, encoding="utf-8")
            return
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        draft = Path(name)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--output={path}: cannot be written: {error.strerror}") from error
