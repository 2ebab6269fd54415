"""Field values of one NVIDIA GPU; NVML returns many field values in one call.

Each field value has an ID and a scope. For some IDs, the scope is a link number. The header nvml.h
lists the IDs and their meanings.
"""

from __future__ import annotations

import ctypes
import math
import struct

from trainvitals.sources.accelerators.nvml import LASTING, SUCCESS, Library, check

TYPE_CHECKING = False
if TYPE_CHECKING:  # imports at run time would cost memory in every reader process
    from collections.abc import Sequence

    Answer = tuple[int, "int | float | None"]

_ENTRY = struct.Struct("=IIqqIIQ")  # id, scope, time, latency, value type, return code, value
_UNSIGNED_MASKS = {1: 0xFFFFFFFF, 2: 0xFFFFFFFFFFFFFFFF, 3: 0xFFFFFFFFFFFFFFFF, 6: 0xFFFF}


class FieldRequest:
    """A reusable request for several field values.

    Args:
        library: The initialized NVML library.
        handle: NVML's handle for the GPU.
        wanted: The ID and the scope of each field value.
    """

    def __init__(
        self, library: Library, handle: ctypes.c_void_p, wanted: Sequence[tuple[int, int]]
    ) -> None:
        self._library = library
        self._handle = handle
        self._wanted = tuple(wanted)
        # One additional entry: some drivers write past the array in NVLink queries.
        self._buffer = ctypes.create_string_buffer(_ENTRY.size * (len(self._wanted) + 1))
        for at, (field, scope) in enumerate(self._wanted):
            struct.pack_into("=II", self._buffer, at * _ENTRY.size, field, scope)

    def ask(self) -> list[Answer]:
        """Return NVML's return code and the number for each field value.

        An unknown number is None.

        Raises:
            DeviceError: The GPU cannot be read.
            DriverGoneError: The driver was unloaded, restarted or replaced.
        """
        count = len(self._wanted)
        if not count:
            return []
        code = self._library.nvmlDeviceGetFieldValues(self._handle, count, self._buffer)
        if code != SUCCESS:
            return self._ask_one_by_one(code)
        entries = _ENTRY.iter_unpack(memoryview(self._buffer)[: count * _ENTRY.size])
        return [
            (entry[5], decode_field(entry[4], entry[6]) if entry[5] == SUCCESS else None)
            for entry in entries
        ]

    def _ask_one_by_one(self, code: int) -> list[Answer]:
        """Request each field value separately, because the driver refused the whole request.

        Some drivers refuse a request if they do not support one of the requested field values.
        """
        check(code)
        if code not in LASTING or len(self._wanted) == 1:
            return [(code, None)] * len(self._wanted)
        requests = [FieldRequest(self._library, self._handle, (field,)) for field in self._wanted]
        return [answer for request in requests for answer in request.ask()]


def decode_field(value_type: int, value: int) -> int | float | None:
    """Return a field value's number; None if the number is unavailable or not finite.

    Args:
        value_type: The type of the number: 0 double, 1 uint, 2 ulong, 3 ull, 4 sll, 5 int,
            6 ushort. For other types, the result is None.
        value: The bits of NVML's union for the number.
    """
    mask = _UNSIGNED_MASKS.get(value_type)
    if mask is not None:
        number = value & mask
        return None if number == mask else number
    packed = value.to_bytes(8, "little")
    if value_type == 0:
        real = float(struct.unpack("<d", packed)[0])
        return real if math.isfinite(real) else None
    if value_type in (4, 5):
        return int.from_bytes(packed[: 8 if value_type == 4 else 4], "little", signed=True)  # noqa: PLR2004 - as listed
    return None
