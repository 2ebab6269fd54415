"""The Debian packages that contain the native stack's programs.

Grafana's packages are signed with the key that has the fingerprint below. Grafana Labs publishes
the fingerprint at https://apt.grafana.com, and pull request 336 of voxpupuli/puppet-grafana quotes
that page. `keys/grafana.asc` contains the key as of 2025-08-22. On that day, the key's expiry date
was changed to 2027-08-22. The current key is at https://apt.grafana.com/gpg.key.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainvitals.sources.external_program import Version

_KEYS = Path(__file__).parent / "keys"


@dataclass(frozen=True, slots=True)
class Repository:
    """An APT repository that is not configured on the system.

    Attributes:
        url: The URL of the APT repository.
        fingerprint: The fingerprint of the key that signs the repository's index.
        keys: The directory that contains the repository's key, in a file whose name ends in `.asc`.
        suite: The suite in the APT repository.
        component: The component in the APT repository.
    """

    url: str
    fingerprint: str
    keys: Path = _KEYS
    suite: str = "stable"
    component: str = "main"


@dataclass(frozen=True, slots=True)
class Package:
    """A Debian package and the programs that it contains.

    Attributes:
        name: The name of the Debian package.
        programs: The name of the program that the stack runs, followed by the names of the
            program's tools.
        aliases: Other names of the first program, such as the upstream name if Debian renames the
            program.
        folder: The directory in the package that contains the programs.
        places: The directories besides those in PATH to which an installation writes programs,
            without the leading `/`.
        is_better_installed: Whether root installs the package instead of unpacking it.
        oldest: The first version that the stack can use; None if the stack can use any version.
        downloaded: The range of versions to download: the first version in the range, and the first
            version after it; None for the version that the system's repositories offer.
        repository: The repository that provides the package; None for the system's repositories.
        linker: The name of the system's package with a dynamic linker that the programs may need;
            None if no such package is needed.
    """

    name: str
    programs: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    folder: str = "usr/bin"
    places: tuple[str, ...] = ()
    is_better_installed: bool = False
    oldest: Version | None = None
    downloaded: tuple[Version, Version] | None = None
    repository: Repository | None = None
    linker: str | None = None


PROMETHEUS = Package("prometheus", ("prometheus", "promtool"))
# An unpacked Alertmanager needs a mount namespace to find its template; see
# `debian.prefix_command`.
ALERTMANAGER = Package(
    "prometheus-alertmanager",
    ("prometheus-alertmanager", "amtool"),
    aliases=("alertmanager",),
    is_better_installed=True,
)
GRAFANA = Package(
    "grafana",
    ("grafana",),
    aliases=("grafana-server",),
    folder="usr/share/grafana/bin",
    places=("usr/sbin", "usr/share/grafana/bin"),
    # The first version whose own packages support all settings of the dashboards, except for the
    # treatment of zeros in tooltips, the color of a changed percentage, and preloading.
    oldest=(10, 4),
    # The dashboards were checked with version 12.4. In version 13, the data source is a
    # plug-in that Grafana tries to update.
    downloaded=((12, 4), (13, 0)),
    repository=Repository("https://apt.grafana.com", "B53AE77BADB630A683046005963FA27710458545"),
    linker="musl",
)
PACKAGES = (PROMETHEUS, ALERTMANAGER, GRAFANA)
