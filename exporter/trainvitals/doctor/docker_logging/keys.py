"""The dockerd options in `daemon.json`, and the options of the log driver json-file.

The names and types are those of the options in all Docker releases from 20.10 to 29.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

Kind = Literal["true or false", "a string", "a whole number", "a list", "an object"]

_NAMES: Mapping[Kind, str] = {
    "true or false": """
        allow-direct-routing cri-containerd debug disable-legacy-registry experimental icc init
        ip-forward ip-forward-no-drop ip-masq ip6tables iptables ipv6 live-restore
        no-new-privileges raw-logs rootless selinux-enabled tls tlsverify userland-proxy
    """,
    "a string": """
        api-cors-header bip bip6 bridge bridge-accept-fwmark cgroup-parent cluster-advertise
        cluster-store containerd containerd-namespace containerd-plugin-namespace data-root
        default-cgroupns-mode default-gateway default-gateway-v6 default-init default-ipc-mode
        default-runtime deprecated-key-path exec-root firewall-backend fixed-cidr fixed-cidr-v6
        graph group host-gateway-ip http-proxy https-proxy init-path ip log-driver log-format
        log-level metrics-addr no-proxy pidfile resolv-conf seccomp-profile storage-driver
        swarm-default-advertise-addr tlscacert tlscert tlskey userland-proxy-path userns-remap
    """,
    "a whole number": """
        cpu-rt-period cpu-rt-runtime max-concurrent-downloads max-concurrent-uploads
        max-download-attempts mtu network-control-plane-mtu network-diagnostic-port
        oom-score-adjust shutdown-timeout swarm-raft-election-tick swarm-raft-heartbeat-tick
    """,
    "a list": """
        allow-nondistributable-artifacts authorization-plugins cdi-spec-dirs
        default-address-pools dns dns-opts dns-search exec-opts host-gateway-ips hosts
        insecure-registries labels node-generic-resources registry-mirrors storage-opts
    """,
    "an object": """
        builder cluster-store-opts default-network-opts default-ulimits features log-opts nri-opts
        proxies runtimes
    """,
}

# The value of these options is a number, or a string with a unit.
_UNTYPED = frozenset({"default-shm-size"})

KINDS: Mapping[str, Kind] = {name: kind for kind, text in _NAMES.items() for name in text.split()}
KEYS = frozenset(KINDS) | _UNTYPED

JSON_FILE = "json-file"
_DRIVERS = """
    awslogs etwlogs fluentd gcplogs gelf journald json-file local logentries none splunk syslog
"""
DRIVERS = frozenset(_DRIVERS.split())

# These options are accepted with every log driver, because the engine itself reads them.
_COMMON = "cache-compress cache-disabled cache-max-file cache-max-size max-buffer-size mode"
LOCAL_LOG_OPTIONS = frozenset(_COMMON.split()) | {"compress", "max-file", "max-size"}
JSON_FILE_LOG_OPTIONS = LOCAL_LOG_OPTIONS | {"env", "env-regex", "labels", "labels-regex", "tag"}

_LETTERS: Mapping[str, str] = {
    "D": "debug",
    "G": "group",
    "H": "hosts",
    "b": "bridge",
    "g": "data-root",
    "l": "log-level",
    "p": "pidfile",
    "s": "storage-driver",
}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d*)?) ?([kmgtp])?i?b?", re.IGNORECASE | re.ASCII)
_POWERS = " kmgtp"
_THOUSAND = 1000


def name_option(flag: str) -> str | None:
    """Return the `daemon.json` option for a dockerd flag; None if the flag has no such option."""
    if not flag.startswith("--"):
        return _LETTERS.get(flag[1:2]) if flag.startswith("-") else None
    name = flag[2:].partition("=")[0].removeprefix("add-")
    # A repeatable flag has a singular name, and the corresponding option has a plural name.
    return next((option for option in (name, f"{name}s") if option in KEYS), None)


def read_size(text: str) -> int | None:
    """Return the size in bytes of a value in Docker's log options; None if the value is invalid.

    Units are decimal: `100m`, `100mb` and `100MiB` are a hundred million bytes.
    """
    found = _SIZE.fullmatch(text)
    if not found:
        return None
    size = int(float(found[1]) * _THOUSAND ** _POWERS.index((found[2] or " ").lower()))
    return size if size > 0 else None
