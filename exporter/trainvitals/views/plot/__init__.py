"""The resource timeline: an image of a run's or machine's resource usage, from recorded files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path

from trainvitals.errors import ConfigurationError
from trainvitals.views.plot.picture import PATTERNS, USUAL_SIZE, draw
from trainvitals.views.plot.timeline import read_part

__all__ = ["USUAL_SIZE", "plot"]


def plot(paths: Sequence[Path], output: Path, *, size: tuple[int, int] = USUAL_SIZE) -> None:
    """Draw the resource timeline of recorded files, and write it as a PNG image.

    Args:
        paths: CSV or JSON Lines files, in any order; the content is ordered by time.
        output: The path of the image; an existing file is replaced.
        size: The width and height of the image in pixels.

    Raises:
        ConfigurationError: A file cannot be read or contains no values, the image cannot be
            written, or matplotlib is missing.
    """
    if output.suffix.lower() != ".png":
        raise ConfigurationError(f"--output={output}: write a name that ends in .png")
    picture = BytesIO()
    draw([read_part(path, PATTERNS) for path in paths], size).savefig(picture, format="png")
    part = output.with_name(f"{output.name}.part")
    try:
        # If no disk space is left, the existing image remains.
        part.write_bytes(picture.getvalue())
        part.replace(output)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise ConfigurationError(
            f"cannot write {output}: {error.strerror}; choose another --output"
        ) from error
