"""What a `daemon.json` may say: the options of dockerd and of its driver json-file.

The names and types are those of Docker 29 and of every release back to 20.10.
"""

from __future__ import annotations

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

# Of these it may be a number or a string with a unit.
_UNTYPED = frozenset({"default-shm-size"})

KINDS: Mapping[str, Kind] = {name: kind for kind, text in _NAMES.items() for name in text.split()}
KEYS = frozenset(KINDS) | _UNTYPED

DRIVERS = frozenset(
    {
        "awslogs",
        "etwlogs",
        "fluentd",
        "gcplogs",
        "gelf",
        "journald",
        "json-file",
        "local",
        "logentries",
        "none",
        "splunk",
        "syslog",
    }
)

# What the engine itself takes with every driver.
COMMON_LOG_OPTIONS = frozenset(
    {
        "cache-compress",
        "cache-disabled",
        "cache-max-file",
        "cache-max-size",
        "max-buffer-size",
        "mode",
    }
)
JSON_FILE_LOG_OPTIONS = COMMON_LOG_OPTIONS | frozenset(
    {"compress", "env", "env-regex", "labels", "labels-regex", "max-file", "max-size", "tag"}
)
LOCAL_LOG_OPTIONS = COMMON_LOG_OPTIONS | frozenset({"compress", "max-file", "max-size"})

# A flag that may be given again has the singular for a name, its option the plural.
_PLURALS: Mapping[str, str] = {
    "add-runtime": "runtimes",
    "allow-nondistributable-artifact": "allow-nondistributable-artifacts",
    "authorization-plugin": "authorization-plugins",
    "cdi-spec-dir": "cdi-spec-dirs",
    "default-address-pool": "default-address-pools",
    "default-network-opt": "default-network-opts",
    "default-ulimit": "default-ulimits",
    "dns-opt": "dns-opts",
    "exec-opt": "exec-opts",
    "feature": "features",
    "host": "hosts",
    "insecure-registry": "insecure-registries",
    "label": "labels",
    "log-opt": "log-opts",
    "node-generic-resource": "node-generic-resources",
    "registry-mirror": "registry-mirrors",
    "storage-opt": "storage-opts",
}
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


def name_option(flag: str) -> str | None:
    """Give the option of `daemon.json` that a flag of dockerd stands for; None for none."""
    if flag.startswith("--"):
        name = flag[2:].partition("=")[0]
        option = _PLURALS.get(name, name)
        return option if option in KEYS else None
    return _LETTERS.get(flag[1:2]) if flag.startswith("-") else None
