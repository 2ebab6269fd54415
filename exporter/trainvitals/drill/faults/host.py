"""Faults of the host."""

from __future__ import annotations

from trainvitals.drill.faults.fault import Fault, after, turn
from trainvitals.drill.series import constant, rate, recent, slope

_DISK = {"mountpoint": "/data"}
_SIZE = constant("host_filesystem_size_bytes", 1e12, **_DISK)
_SHM = {"mountpoint": "/dev/shm"}  # noqa: S108 - a label
_NIC = {"device": "eth0", "direction": "receive"}
_FULL = {"resource": "memory", "level": "full"}
_AVAIL = "host_filesystem_avail_bytes"

FAULTS = (
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
        (_SIZE, slope(_AVAIL, 150e9, -2e9, **_DISK)),
    ),
    turn("HostDiskSpaceLow", "a disk has 5 % left", _AVAIL, 500e9, 50e9, _SIZE, **_DISK),
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
