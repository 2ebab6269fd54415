"""What the logs of containers are to be like."""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.dockerlogging.sizes import read_size
from trainvitals.errors import ConfigurationError

JSON_FILE = "json-file"
_LEAST_FILES = 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """The settings that `--apply` writes; as they are, 500 MB for each container.

    Attributes:
        max_size: How large a log file grows before the next one is begun, as Docker writes sizes.
        max_file: How many files a container keeps; all but the one written to are compressed.
        has_live_restore: Whether containers are to outlive a stop of the daemon.
        insists: Whether json-file takes the place of another driver.
    """

    max_size: str = "100m"
    max_file: int = 5
    has_live_restore: bool = True
    insists: bool = False

    def __post_init__(self) -> None:
        if read_size(self.max_size) is None:
            raise ConfigurationError(
                f"--max-size={self.max_size}: write a size as Docker does, as in 100m or 1g"
            )
        if self.max_file < _LEAST_FILES:
            raise ConfigurationError(
                f"--max-file={self.max_file}: at least {_LEAST_FILES}, for the file that is "
                "written to is not compressed"
            )

    @property
    def log_options(self) -> dict[str, str]:
        """The options of the driver json-file, all of them strings, as Docker wants them."""
        return {"max-size": self.max_size, "max-file": str(self.max_file), "compress": "true"}

    @property
    def most_bytes(self) -> int:
        """What the log of one container takes at most."""
        return (read_size(self.max_size) or 0) * self.max_file
