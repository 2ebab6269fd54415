"""Field values are understood one by one, whatever the driver says of their neighbours."""

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
    """As the C union would, whatever the upper bytes hold; what is no number is not known."""
    packed = struct.pack("<Q", value)
    for value_type, layout in FORMATS.items():
        (number,) = struct.unpack(layout, packed[: struct.calcsize(layout)])
        is_known = math.isfinite(number) and number != NOT_AVAILABLE.get(value_type)
        assert decode_field(value_type, value) == (number if is_known else None)
    assert decode_field(7, value) is None


class Picky:
    """A library that refuses a whole request for one field that it does not know.

    Args:
        known: The fields that it knows, with their values.
        code: What it answers then.
    """

    def __init__(self, known: dict[int, int], code: int) -> None:
        self._known, self._code = known, code
        self.calls = 0

    def nvmlDeviceGetFieldValues(  # noqa: N802 - the driver's name
        self, _: object, count: int, buffer: ctypes.Array[ctypes.c_char]
    ) -> int:
        """Answer for each entry, or refuse."""
        self.calls += 1
        places = range(0, count * 40, 40)
        asked = [struct.unpack_from("=I", buffer, at)[0] for at in places]
        if not set(asked) <= set(self._known):
            return self._code
        for at, field in zip(places, asked, strict=True):
            struct.pack_into("=IIQ", buffer, at + 24, 3, 0, self._known[field])
        return 0


def test_a_field_that_a_driver_refuses_with_all_others_costs_itself():
    """Each is asked for alone then."""
    library = Picky({82: 44, 94: 3}, code=2)
    fields = FieldRequest(Library(library), ctypes.c_void_p(1), [(82, 0), (9999, 0), (94, 0)])
    assert fields.ask() == [(0, 44), (2, None), (0, 3)]


def test_a_request_that_fails_for_the_moment_is_not_taken_apart():
    """The next reading asks for all again."""
    library = Picky({}, code=999)
    fields = FieldRequest(Library(library), ctypes.c_void_p(1), [(82, 0), (94, 0)])
    assert fields.ask() == [(999, None), (999, None)]
    assert library.calls == 1
