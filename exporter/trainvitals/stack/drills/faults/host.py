"""Simulated faults of the host, its containers and its monitoring."""

from __future__ import annotations

from trainvitals.stack.drills.fault import (
    Fault,
    Series,
    after,
    constant,
    instant,
    rate,
    recent,
    slope,
    turn,
)

_DISK = {"mountpoint": "/data"}
_SIZE = constant("host_filesystem_size_bytes", 1e12, **_DISK)
_SHM = {"mountpoint": "/dev/shm"}  # noqa: S108 - a label
_NIC = {"device": "eth0", "direction": "receive"}
_FULL = {"resource": "memory", "level": "full"}
_AVAIL = "host_filesystem_avail_bytes"
_CONTAINER = {"name": "drill"}
_RUNNING = constant("container_state", 1, **_CONTAINER, state="running")
_UP = (constant("host_load1", 1),)
_CHANNEL = {"integration": "slack"}
_QUEUE = {"remote_name": "drill", "url": "http://drill.invalid"}


def _death(reason: str, signal: str, exit_code: float) -> tuple[Series, ...]:
    return (
        instant("container_last_death_timestamp_seconds", 0, **_CONTAINER),
        constant(
            "container_last_death_info",
            1,
            **_CONTAINER,
            reason=reason,
            signal=signal,
            confidence="high",
        ),
        constant("container_last_exit_code", exit_code, **_CONTAINER),
    )


HOST_FAULTS = (
    turn(
        "HostHighMemoryUsage",
        "97 % of the memory are used",
        "memory_available_bytes",
        64e9,
        4e9,
        constant("memory_total_bytes", 128e9),
    ),
    Fault(
        "HostMemoryPressure",
        "everything waits for memory a third of the time",
        (rate("host_pressure_stalled_seconds_total", 0, **_FULL),),
        (rate("host_pressure_stalled_seconds_total", 0.3, **_FULL),),
    ),
    Fault(
        "HostSwapping",
        "the machine swaps 20 MB in and out each second",
        (rate("host_swap_in_bytes_total", 0), rate("host_swap_out_bytes_total", 0)),
        (rate("host_swap_in_bytes_total", 2e7), rate("host_swap_out_bytes_total", 2e7)),
    ),
    turn("HostOOMKill", "the kernel kills a process for memory", "host_oom_kills_total", 0, 1),
    turn("HostDiskFull", "a disk has 100 MB left", _AVAIL, 500e9, 100e6, _SIZE, **_DISK),
    Fault(
        "HostDiskWillFill",
        "a disk fills quickly",
        (_SIZE, slope(_AVAIL, 150e9, 0, **_DISK)),
        (_SIZE, slope(_AVAIL, 150e9, -3e7, **_DISK)),
    ),
    turn("HostDiskSpaceLow", "a disk has 5 GB left", _AVAIL, 500e9, 5e9, _SIZE, **_DISK),
    turn(
        "HostInodesLow",
        "a disk has 1 % of its inodes left",
        "host_filesystem_files_free",
        9e6,
        1e5,
        constant("host_filesystem_files", 1e7, **_DISK),
        **_DISK,
    ),
    turn(
        "HostSharedMemoryLow",
        "/dev/shm is nearly full",  # noqa: S108 - a story
        _AVAIL,
        60e9,
        1e9,
        constant("host_filesystem_size_bytes", 64e9, **_SHM),
        **_SHM,
    ),
    turn("HostIOBottleneck", "60 % of the time is I/O wait", "host_io_wait_ratio", 0.05, 0.6),
    after(
        900,
        turn(
            "HostFilesystemReadOnly",
            "a file system turns read-only",
            "host_filesystem_readonly",
            0,
            1,
            **_DISK,
        ),
    ),
    turn(
        "HostFilesystemNotResponding",
        "a file server does not answer",
        "host_filesystem_responding",
        1,
        0,
        **_DISK,
    ),
    Fault(
        "HostNetworkErrors",
        "one packet in ten is damaged",
        (
            rate("host_network_errors_total", 0, **_NIC),
            rate("host_network_packets_total", 1000, **_NIC),
        ),
        (
            rate("host_network_errors_total", 100, **_NIC),
            rate("host_network_packets_total", 900, **_NIC),
        ),
    ),
    Fault(
        "HostClockSkew",
        "the clock is wrong by a minute or more",
        (recent("host_time_seconds", 0),),
        (recent("host_time_seconds", 3600),),
    ),
    Fault(
        "HostRebooted",
        "the machine has just been started",
        (recent("host_time_seconds", 0), recent("host_boot_time_seconds", 86400)),
        (recent("host_time_seconds", 0), recent("host_boot_time_seconds", 60)),
    ),
)

CONTAINER_FAULTS = (
    Fault(
        "ContainerOOMKilled",
        "a container is killed for want of memory",
        (_RUNNING,),
        _death("oom-cgroup", "SIGKILL", 137),
    ),
    Fault("ContainerDied", "a container crashes", (_RUNNING,), _death("segfault", "SIGSEGV", 139)),
    turn(
        "ContainerRestartLoop",
        "a container has been restarted 5 times",
        "container_restarts_total",
        1,
        6,
        **_CONTAINER,
    ),
    turn(
        "ContainerMemoryNearLimit",
        "a container uses 97 % of its memory",
        "container_memory_working_set_bytes",
        4e9,
        9.7e9,
        constant("container_spec_memory_limit_bytes", 10e9, **_CONTAINER),
        **_CONTAINER,
    ),
    turn(
        "ContainerUnhealthy",
        "a container fails its health check",
        "container_health",
        0,
        1,
        _RUNNING,
        **_CONTAINER,
        status="unhealthy",
    ),
)

MONITORING_FAULTS = (
    Fault("ExporterDown", "the machine no longer answers", _UP, (), is_silent=True),
    Fault("ExporterJobDown", "no machine answers any more", _UP, (), is_silent=True, machines=3),
    Fault("ExporterCollectorFailed", "a collector fails", _UP, _UP, is_failing=True),
    Fault(
        "PrometheusRuleFailures",
        "rules cannot be evaluated",
        (rate("prometheus_rule_evaluation_failures_total", 0, rule_group="drill"),),
        (rate("prometheus_rule_evaluation_failures_total", 1, rule_group="drill"),),
    ),
    turn(
        "PrometheusNotConnectedToAlertmanager",
        "a Prometheus finds no Alertmanager",
        "prometheus_notifications_alertmanagers_discovered",
        1,
        0,
    ),
    turn(
        "ConfigReloadFailed",
        "a Prometheus runs with an old configuration",
        "prometheus_config_last_reload_successful",
        1,
        0,
    ),
    Fault(
        "AlertmanagerNotificationsFailing",
        "half of the messages cannot be delivered",
        (
            rate("alertmanager_notifications_failed_total", 0, **_CHANNEL),
            rate("alertmanager_notifications_total", 2, **_CHANNEL),
        ),
        (
            rate("alertmanager_notifications_failed_total", 1, **_CHANNEL),
            rate("alertmanager_notifications_total", 2, **_CHANNEL),
        ),
    ),
    turn(
        "RemoteWriteBehind",
        "remote write is 10 minutes behind",
        "prometheus_remote_storage_queue_highest_sent_timestamp_seconds",
        1000,
        400,
        constant("prometheus_remote_storage_queue_highest_timestamp_seconds", 1000, **_QUEUE),
        **_QUEUE,
    ),
)
