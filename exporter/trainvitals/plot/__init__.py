"""The resource timeline: a picture of what a run or a machine used, from what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path

from trainvitals.errors import ConfigurationError
from trainvitals.plot.picture import PATTERNS, draw
from trainvitals.plot.timeline import read_part

__all__ = ["plot"]


def plot(paths: Sequence[Path], output: Path) -> None:
    """Write the resource timeline of some files as a PNG, 1200 pixels wide and 400 for each row.

    Args:
        paths: CSV files or JSON lines in any order; what they have is shown in the order of its
            time.
        output: Where the picture goes; a file that is there is replaced.

    Raises:
        ConfigurationError: A file cannot be read or has nothing to show, the picture cannot be
            written, or matplotlib is missing.
    """
    if output.suffix.lower() != ".png":
        raise ConfigurationError(f"--output={output}: write a name that ends in .png")
    picture = BytesIO()
    draw([read_part(path, PATTERNS) for path in paths]).savefig(picture, format="png")
    part = output.with_name(f"{output.name}.part")
    try:
        # Where there is no room, the picture that was there stays.
        part.write_bytes(picture.getvalue())
        part.replace(output)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise ConfigurationError(
            f"cannot write {output}: {error.strerror}; choose another --output"
        ) from error
