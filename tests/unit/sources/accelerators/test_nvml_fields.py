"""Each NVML field value is decoded separately from the other values of the same request."""

from __future__ import annotations

import ctypes
import math
import struct

from hypothesis import example, given
from hypothesis import strategies as st

from trainvitals.sources.accelerators.nvml import Library
from trainvitals.sources.accelerators.nvml_fields import FieldRequest, decode_field

FORMATS = {0: "<d", 1: "<I", 2: "<Q", 3: "<Q", 4: "<q", 5: "<i", 6: "<H"}
NOT_AVAILABLE = {1: 2**32 - 1, 2: 2**64 - 1, 3: 2**64 - 1, 6: 2**16 - 1}


@given(st.integers(0, 2**64 - 1))
@example(2**64 - 1)
@example(2**32 - 1)
@example(0x7FF << 52)
def test_a_value_is_read_by_its_type(value):
    """A value is decoded by its type as in the C union, and invalid numbers are unknown."""
    packed = struct.pack("<Q", value)
    for value_type, layout in FORMATS.items():
        (number,) = struct.unpack(layout, packed[: struct.calcsize(layout)])
        is_known = math.isfinite(number) and number != NOT_AVAILABLE.get(value_type)
        assert decode_field(value_type, value) == (number if is_known else None)
    assert decode_field(7, value) is None


class Picky:
    """A library that refuses a whole request if one field is unknown.

    Args:
        known: The values of the known fields.
        code: The return code of a refused request.
    """

    def __init__(self, known: dict[int, int], code: int) -> None:
        self._known, self._code = known, code
        self.calls = 0

    def nvmlDeviceGetFieldValues(  # noqa: N802 - the driver's name
        self, _: object, count: int, buffer: ctypes.Array[ctypes.c_char]
    ) -> int:
        """Write the value of each field, or refuse the request."""
        self.calls += 1
        places = range(0, count * 40, 40)
        asked = [struct.unpack_from("=I", buffer, at)[0] for at in places]
        if not set(asked) <= set(self._known):
            return self._code
        for at, field in zip(places, asked, strict=True):
            struct.pack_into("=IIQ", buffer, at + 24, 3, 0, self._known[field])
        return 0


def test_a_field_that_a_driver_refuses_with_all_others_costs_itself():
    """After a refused request, each field is requested separately."""
    library = Picky({82: 44, 94: 3}, code=2)
    fields = FieldRequest(Library(library), ctypes.c_void_p(1), [(82, 0), (9999, 0), (94, 0)])
    assert fields.ask() == [(0, 44), (2, None), (0, 3)]


def test_a_request_that_fails_for_the_moment_is_not_taken_apart():
    """After an unknown error, the fields are not requested separately."""
    library = Picky({}, code=999)
    fields = FieldRequest(Library(library), ctypes.c_void_p(1), [(82, 0), (94, 0)])
    assert fields.ask() == [(999, None), (999, None)]
    assert library.calls == 1
