"""A table of NVIDIA's Xid codes with the meaning and the remedy of each code.

The severity is `critical` (the device requires a reset or replacement, and its work is lost),
`warning` (the device should be monitored), `app` (a program caused the error, and the device is
healthy) or `info` (the error is a consequence of another event). A code that is not in the table is
a `warning` with an unknown meaning. The source of the table is NVIDIA's Xid catalog. The severities
follow the practice of operators of large fleets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Xid:
    """One Xid code with its meaning and remedy.

    Attributes:
        code: The Xid code, as in the driver's message.
        meaning: The meaning of the error, in a few words.
        severity: The severity of the error, as described in the module's docstring.
        action: The remedy, as a phrase that completes the sentence "the GPU needs".
    """

    code: int
    meaning: str
    severity: Literal["critical", "warning", "app", "info"]
    action: str


XIDS: tuple[Xid, ...] = (
    Xid(13, "graphics engine exception", "app", "restart of the program"),
    Xid(31, "memory page fault", "app", "restart of the program"),
    Xid(32, "corrupted push buffer stream", "app", "restart of the program"),
    Xid(43, "stopped processing", "app", "restart of the program"),
    Xid(45, "preemptive cleanup", "info", "nothing by itself"),
    Xid(46, "GPU timeout", "critical", "reset"),
    Xid(48, "double-bit ECC error", "critical", "reset"),
    Xid(54, "auxiliary power missing", "critical", "check of its power cables"),
    Xid(62, "internal microcontroller halt", "critical", "reset"),
    Xid(63, "memory row remapped or page retired", "warning", "reset at a quiet moment"),
    Xid(64, "memory row could not be remapped", "critical", "reset"),
    Xid(68, "video decoder exception", "app", "restart of the program"),
    Xid(69, "graphics engine class error", "app", "restart of the program"),
    Xid(74, "NVLink error", "critical", "check of its NVLink and a reset"),
    Xid(79, "fell off the bus", "critical", "reboot of the machine"),
    Xid(92, "high rate of single-bit errors", "warning", "watching"),
    Xid(94, "contained memory error", "warning", "restart of the program"),
    Xid(95, "uncontained memory error", "critical", "reset"),
    Xid(109, "context switch timeout", "warning", "reset"),
    Xid(110, "security fault", "critical", "reset"),
    Xid(119, "GSP remote call timeout", "critical", "reset"),
    Xid(120, "GSP error", "critical", "reset"),
    Xid(136, "link training failed", "critical", "reset"),
    Xid(140, "unrecovered ECC error", "critical", "reset"),
    Xid(143, "initialisation failed", "critical", "reset"),
    Xid(144, "NVLink error: SAW MVB", "critical", "check of its NVLink and a reset"),
    Xid(145, "NVLink error: RLW", "critical", "check of its NVLink and a reset"),
    Xid(146, "NVLink error: TLW", "critical", "check of its NVLink and a reset"),
    Xid(147, "NVLink error: TREX", "critical", "check of its NVLink and a reset"),
    Xid(148, "NVLink error: NVLPW control", "critical", "check of its NVLink and a reset"),
    Xid(149, "NVLink error: NETIR", "critical", "check of its NVLink and a reset"),
    Xid(150, "NVLink error: MSE", "critical", "check of its NVLink and a reset"),
    Xid(151, "key rotation error", "critical", "restart of the virtual machine"),
    Xid(154, "recovery action changed", "info", "the recovery action that it now reports"),
    Xid(155, "NVLink software error", "critical", "reset"),
    Xid(156, "memory retirement event", "critical", "reset"),
    Xid(158, "fatal timeout", "critical", "reset"),
)

_BY_CODE = {xid.code: xid for xid in XIDS}


def explain_xid(code: int) -> Xid:
    """Return the table entry for a code; an unknown code is a warning with an unknown meaning."""
    return _BY_CODE.get(code) or Xid(code, "unknown", "warning", "a look at the kernel log")
