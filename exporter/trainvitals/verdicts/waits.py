"""The meaning of the kernel functions in which threads wait, as `/proc/PID/wchan` shows them.

The names are those of Linux 4.18 to 6.18 and of the drivers of accelerators and file systems.
"""

from __future__ import annotations

from typing import Literal

Wait = Literal["driver", "disk", "network", "pipe", "terminal", "fork", "other", "unknown"]

# Parts of the functions' names by their meaning; the first match counts.
_PARTS: tuple[tuple[Wait, tuple[str, ...]], ...] = (
    ("driver", ("nvidia", "nv_", "nvkms", "os_acquire", "uvm_", "habana", "hl_", "ioctl")),
    (
        "disk",
        (
            *("folio_", "wait_on_page", "io_schedule", "bit_wait_io", "filemap", "iomap", "blk"),
            *("submit_bio", "ext4", "xfs", "btrfs", "jbd2", "nfs", "rpc_", "netfs", "cifs", "smb"),
            *("fuse", "request_wait_answer", "ceph", "cl_sync", "ptlrpc"),
        ),
    ),
    ("terminal", ("n_tty", "tty_")),
    ("pipe", ("pipe_read", "wait_for_partner", "fifo_open")),
    ("network", ("wait_woken", "sk_wait", "tcp_", "inet_", "skb_", "unix_stream", "unix_dgram")),
    ("fork", ("kernel_clone", "do_fork")),
)
# By the kind of file that a thread reads; a named pipe is an ordinary file here.
_KINDS: dict[str, Wait] = {
    "terminal": "terminal",
    "pipe": "pipe",
    "socket": "network",
    "device": "driver",
}


def classify(function: str | None, kind: str = "") -> Wait:
    """Return what a thread waits for.

    Args:
        function: The kernel function in which the thread waits; None or empty if it is unknown.
        kind: The kind of file that the thread reads; see `Activity.waits_on`.
    """
    if kind in _KINDS:
        return _KINDS[kind]
    if not function:
        return "unknown"
    return next(
        (wait for wait, parts in _PARTS if any(part in function for part in parts)), "other"
    )
