"""The file systems on the host dashboard: use, and the expected time until they are full."""

from __future__ import annotations

from typing import Final

from grafana.build.fields import Steps
from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import BYTES, CRITICAL, INFORMATION, OK, RATIO, SECONDS, WARNING, State
from grafana.build.panels import About, Panel, state_timeline, timeseries
from grafana.build.queries import over_time
from grafana.build.tables import Column, Key, table

WRITABLE: Final = State(1, "writable", OK)
READ_ONLY: Final = State(2, "read-only", INFORMATION)
TURNED: Final = State(3, "turned read-only", CRITICAL)
HANGS: Final = State(4, "does not answer", CRITICAL)

_PLACE: Final = "job, instance, mountpoint"
_NO_DISK: Final = "No disk that runs can fill, or no answer"
_FULL: Final[Steps] = ((None, OK), (1 - limit("host_disk_space_low:avail_ratio"), WARNING))
_FEW_INODES: Final[Steps] = ((None, OK), (1 - limit("host_inodes_low:free_ratio"), WARNING))

# Disks that runs can fill, and shared memory, to which the same limit applies.
_USED: Final = f"""
    1 - (
      instance:disk_avail:bytes{{@host}} / on ({_PLACE}) (instance:disk_size:bytes{{@host}} > 0)
      or on ({_PLACE})
      host_filesystem_avail_bytes{{@host, mountpoint="/dev/shm"}}
        / on ({_PLACE}) (host_filesystem_size_bytes{{@host, mountpoint="/dev/shm"}} > 0)
    )
"""
_INODES: Final = f"""
    1 - host_filesystem_files_free{{@host}} / on ({_PLACE}) (host_filesystem_files{{@host}} > 0)
      unless on ({_PLACE}) host_filesystem_readonly{{@host}} == 1
"""


def find_time_left() -> str:
    """Return a query for the seconds until each disk that has been filling for 2 hours is full."""
    return f"""
        instance:disk_avail:bytes{{@host}}
          / on ({_PLACE}) abs(deriv(instance:disk_avail:bytes{{@host}}[2h]) < 0)
        and on ({_PLACE}) deriv(instance:disk_avail:bytes{{@host}}[30m]) < 0
        and on ({_PLACE}) instance:disk_avail:bytes{{@host}} offset 30m
    """


def _list_file_systems() -> Panel:
    state = f"""
        {HANGS.number} + max by ({_PLACE}) (host_filesystem_responding{{@host}} == 0)
        or {TURNED.number} * max by ({_PLACE}) (host_filesystem_readonly{{@host}}
          > min_over_time(host_filesystem_readonly{{@host}}[1d:5m]))
        or {READ_ONLY.number} * max by ({_PLACE}) (host_filesystem_readonly{{@host}} == 1)
        or {WRITABLE.number} + max by ({_PLACE}) (host_filesystem_readonly{{@host}} == 0)
    """
    info = "on (job, instance, mountpoint) group_left (device, fstype) host_filesystem_info{@host}"
    return table(
        "File systems",
        About(
            "Where data lie, and how much room is left there.",
            "writable, but for data sets that are meant to be read-only, and below the limit that "
            "colours the bar.",
            "delete old checkpoints and caches; one that does not answer hangs whoever touches it, so "
            "look at its server; where files are too many, pack or delete small ones.",
            alerts=("HostInodesLow",),
        ),
        keys=(
            Key("mountpoint", "Mounted at"),
            Key("device", "Device"),
            Key("fstype", "Type", width=80),
        ),
        columns=(
            Column(
                "State",
                f"max by (mountpoint, device, fstype) (({state}) * {info})",
                states=(WRITABLE, READ_ONLY, TURNED, HANGS),
                look="color-text",
                width=130,
            ),
            Column("Used", f"max by (mountpoint) ({_USED})", RATIO, _FULL, "gauge", decimals=0),
            Column(
                "Left",
                "min by (mountpoint) (host_filesystem_avail_bytes{@host})",
                BYTES,
                ((None, CRITICAL), (limit("host_disk_full:avail_bytes"), OK)),
                width=110,
            ),
            Column(
                "Full in",
                f"min by (mountpoint) ({find_time_left()})",
                SECONDS,
                decimals=1,
                width=110,
            ),
            Column(
                "Inodes used",
                f"max by (mountpoint) ({_INODES})",
                RATIO,
                _FEW_INODES,
                "gauge",
                decimals=0,
            ),
        ),
        sort_by="Used",
        empty="The host does not answer, or its file systems cannot be asked",
        height=11,
    )


def draw_used() -> Panel:
    """Return the graph of file system use."""
    return timeseries(
        "File systems, used",
        About(
            "Share of each file system that is used, the ten fullest.",
            "below the line; for small ones and shared memory the line is the only limit.",
            "delete old checkpoints, dataset caches or unused container images.",
            alerts=("HostDiskSpaceLow",),
        ),
        over_time(f"topk(10, {_USED})", "{{mountpoint}}"),
        unit=RATIO,
        steps=_FULL,
        least=0,
        most=1,
        empty="unknown",
    )


def write_file_systems() -> Row:
    """Return the collapsed row on file systems."""
    panels = (_list_file_systems(), _draw_left(), _draw_forecast(), _show_states())
    return Row("File systems", panels, is_collapsed=True)


def _draw_left() -> Panel:
    return timeseries(
        "Left",
        About(
            "What can still be written, where the least is left.",
            "above both lines; the upper one counts only for disks of "
            f"{limit('host_disk_space_low:large_size_bytes') / 1e9:g} GB and more.",
            "below the lower line nothing is saved any more: make room now.",
            alerts=("HostDiskFull", "HostDiskSpaceLow"),
        ),
        over_time("bottomk(10, instance:disk_avail:bytes{@host})", "{{mountpoint}}"),
        unit=BYTES,
        steps=(
            (None, OK),
            (limit("host_disk_full:avail_bytes"), CRITICAL),
            (limit("host_disk_space_low:avail_bytes"), WARNING),
        ),
        is_logarithmic=True,
        calcs=("lastNotNull", "min"),
        empty=_NO_DISK,
        width=12,
    )


def _draw_forecast() -> Panel:
    hours = limit("host_disk_will_fill:horizon_window_seconds") / 3600
    return timeseries(
        f"Left in {hours:g} hours at the pace of 2",
        About(
            f"Which share of each disk will be left in {hours:g} hours if it goes on as in the last 2; the "
            "alert looks only at disks of which less than the line is left now.",
            "above 0 %, which is full.",
            "find what grows (du -x --max-depth=2), keep fewer checkpoints, or move data away.",
            alerts=("HostDiskWillFill",),
        ),
        over_time(
            f"""
            bottomk(10,
              clamp(predict_linear(instance:disk_avail:bytes{{@host}}[2h],
                scalar(threshold:host_disk_will_fill:horizon_window_seconds{{}}))
              / on ({_PLACE}) (instance:disk_size:bytes{{@host}} > 0), 0, 1))
            """,
            "{{mountpoint}}",
        ),
        unit=RATIO,
        steps=((None, OK), (limit("host_disk_will_fill:avail_ratio"), CRITICAL)),
        least=0,
        most=1,
        calcs=("lastNotNull", "min"),
        empty=_NO_DISK,
        width=12,
    )


def _show_states() -> Panel:
    return state_timeline(
        "State",
        About(
            "Whether each file system answers and can be written.",
            "the same all the time: what was always read-only is meant to be.",
            "one that turned read-only has a failing disk: read journalctl -k before you mount it again.",
            alerts=("HostFilesystemReadOnly", "HostFilesystemNotResponding"),
        ),
        over_time(
            f"""
            topk(20, {HANGS.number} + max by ({_PLACE}) (host_filesystem_responding{{@host}} == 0)
            or {READ_ONLY.number} * max by ({_PLACE}) (host_filesystem_readonly{{@host}} == 1)
            or {WRITABLE.number} + max by ({_PLACE}) (host_filesystem_readonly{{@host}} == 0))
            """,
            "{{mountpoint}}",
        ),
        states=(WRITABLE, READ_ONLY, HANGS),
        empty="No file system answers",
        height=11,
    )
