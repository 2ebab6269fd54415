"""The packages that the native stack takes its programs from.

Grafana's packages are signed with the key of the fingerprint below. Grafana Labs publishes it at
https://apt.grafana.com, and pull request 336 of voxpupuli/puppet-grafana quotes that page.
`keys/grafana.asc` is that key as of 2025-08-22, when its expiry was moved to 2027-08-22; a newer copy
is at https://apt.grafana.com/gpg.key.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainvitals.sources.external_program import Version

_KEYS = Path(__file__).parent / "keys"


@dataclass(frozen=True, slots=True)
class Repository:
    """An APT repository that is not one of the system's.

    Attributes:
        url: Its address.
        fingerprint: The fingerprint of the key that signs its index.
        keys: The directory with that key, in a file that ends in `.asc`.
        suite: Its suite.
        component: Its component.
    """

    url: str
    fingerprint: str
    keys: Path = _KEYS
    suite: str = "stable"
    component: str = "main"


@dataclass(frozen=True, slots=True)
class Package:
    """A package in Debian's format, and the programs in it.

    Attributes:
        name: Its name.
        programs: Its programs: the one that the stack runs, then its tools.
        aliases: Other names of the first program; upstream's, where Debian renames it.
        folder: The directory of the programs in the package.
        places: Where its installation puts programs besides the directories in PATH, without the
            leading `/`.
        is_better_installed: Whether root installs it rather than unpacks it.
        oldest: The first version that the stack can use; None if any.
        downloaded: The first version that is downloaded, and the first that no longer is; None if
            the system's repositories choose the version.
        repository: Where it is downloaded from; None for the system's repositories.
        linker: The system's package with the dynamic linker that its programs may need.
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
# Unpacked, it needs a mount namespace to find its template, see `debian.prefix_command`.
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
    # The first whose own packages know all that the boards name, but for how tooltips treat zeros,
    # the colour of a changed percentage, and what is loaded ahead.
    oldest=(10, 4),
    # The boards were seen in 12.4. In 13 the data source is a plug-in that Grafana wants to update.
    downloaded=((12, 4), (13, 0)),
    repository=Repository("https://apt.grafana.com", "B53AE77BADB630A683046005963FA27710458545"),
    linker="musl",
)
PACKAGES = (PROMETHEUS, ALERTMANAGER, GRAFANA)
