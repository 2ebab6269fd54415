"""Classifies the kernel functions in which threads wait, as shown in `/proc/PID/wchan`.

The function names are from Linux 4.18 to 6.18, accelerator drivers and file system drivers.
"""

from __future__ import annotations

from typing import Literal

Wait = Literal["driver", "disk", "network", "pipe", "terminal", "fork", "other", "unknown"]

# Parts of function names by the kind of wait; the first match counts.
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
# The kind of wait by the kind of file that a thread reads. The kind of a named pipe is `file`.
_KINDS: dict[str, Wait] = {
    "terminal": "terminal",
    "pipe": "pipe",
    "socket": "network",
    "device": "driver",
}


def classify(function: str | None, kind: str = "") -> Wait:
    """Return the kind of wait that a thread is in.

    Args:
        function: The kernel function in which the thread waits; None or an empty string if the
            function is unknown.
        kind: The kind of file that the thread reads; see `Activity.waits_on`.
    """
    if kind in _KINDS:
        return _KINDS[kind]
    if not function:
        return "unknown"
    return next(
        (wait for wait, parts in _PARTS if any(part in function for part in parts)), "other"
    )
