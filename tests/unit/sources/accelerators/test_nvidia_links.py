"""The errors of a GPU's NVLinks are counted once, whichever field values the GPU supports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.machine import FakeMachine
from trainvitals.sources.accelerators.nvidia import NvidiaSession, open_nvidia
from trainvitals.sources.accelerators.nvidia_links import Links
from trainvitals.sources.accelerators.row import LINK_ERRORS

TOTALS, LINKS_OF_TOTALS, DATA_LINKS, RECOVERIES = range(4)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[FakeMachine]:
    """A machine with a GPU with 18 links, whose fake library is loaded into the test process."""
    with FakeMachine(tmp_path, gpus=1) as machine:
        machine.attach()
        yield machine


@pytest.fixture
def session(machine) -> NvidiaSession:
    """An open session of the NVIDIA driver."""
    return open_nvidia()


@pytest.fixture
def links(session) -> Links:
    """The links of the GPU, which have not been bound to fields yet."""
    return Links(session._library, session.devices[0].handle)


def set_errors(machine: FakeMachine, **errors: int) -> None:
    """Set the number of link errors of each kind, spread over the GPU's links."""
    for kind, number in errors.items():
        setattr(machine.gpu(0), f"nvlink_{kind}_errors", number)


def read(links: Links) -> dict[str, float]:
    """Read the links without a cached result and return the number of errors by kind."""
    links._read_at = float("-inf")
    _, errors = links.read()
    return {kind: n for kind, n in zip(LINK_ERRORS, errors, strict=True) if n is not None}


ALL_KINDS = {"crc_flit": 1, "crc_data": 40, "replay": 23, "recovery": 99}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (TOTALS, ALL_KINDS),
        (LINKS_OF_TOTALS, ALL_KINDS),
        (DATA_LINKS, {"crc": 41, "replay": 23, "recovery": 99}),
        (RECOVERIES, {"recovery": 99}),
    ],
)
def test_the_errors_of_all_links_are_counted_once(machine, links, fields, expected):
    """Link errors are read as a total of the GPU, or as the sum of the errors of each link."""
    machine.gpu(0).nvlink_error_fields = fields
    set_errors(machine, **ALL_KINDS)
    links.bind()
    assert read(links) == expected
    set_errors(machine, **{kind: number + 1 for kind, number in ALL_KINDS.items()})
    more = {kind: number + 1 + (kind == "crc") for kind, number in expected.items()}
    assert read(links) == more


def test_a_card_without_links_has_no_errors(machine, links):
    """A GPU without links has no link metrics and is not queried again."""
    machine.gpu(0).nvlink_count = 0
    links.bind()
    machine.reset_calls()
    assert links.read() == (None, (None,) * len(LINK_ERRORS))
    assert machine.calls_by_function() == {}


@pytest.mark.parametrize("code", [3, 10, 999])
def test_errors_never_become_less_while_one_field_does_not_answer(machine, links, code):
    """The counters stay unchanged if one field fails, since a lower sum looks like a reset."""
    for fields, field in ((LINKS_OF_TOTALS, 52), (DATA_LINKS, 161)):
        machine.gpu(0).nvlink_error_fields = fields
        set_errors(machine, **ALL_KINDS)
        links.bind()
        whole = read(links)
        machine.fail_field(field, 0, code)
        assert read(links) == whole
        machine.fail_field(field, 0, 0)
        assert read(links) == whole


def test_links_that_fall_are_seen_within_five_seconds(machine, links):
    """The states of the links are read at most every five seconds, since each takes a call."""
    links.bind()
    assert links.read()[0] == 18
    machine.gpu(0).nvlink_down_mask = 0b11
    assert links.read()[0] == 18
    links._read_at -= 5.1
    assert links.read()[0] == 16


def test_a_link_that_sleeps_is_up(machine, links):
    """A sleeping link, for which newer drivers have a separate state, counts as active."""
    machine.gpu(0).nvlink_sleep_mask = 0x3FFFF
    links.bind()
    assert links.read()[0] == 18


class OneLink:
    """A library in which the query of one link returns an error code.

    Args:
        library: The library.
        link: The number of the link.
        code: The error code; 0 means that the query succeeds.
    """

    def __init__(self, library: object, link: int, code: int = 0) -> None:
        self._library, self._link = library, link
        self.code = code

    def __getattr__(self, name: str) -> object:
        return getattr(self._library, name)

    def nvmlDeviceGetNvLinkState(  # noqa: N802 - the driver's name
        self, handle: object, link: object, state: object
    ) -> int:
        """Return the error code for the one link, and the library's answer for the others."""
        if self.code and link.value == self._link:
            return self.code
        return self._library.nvmlDeviceGetNvLinkState(handle, link, state)


@pytest.mark.parametrize("code", [2, 3, 10, 999])
def test_a_link_that_does_not_answer_hides_no_other(machine, session, code):
    """A link that does not exist is not counted; a temporary error does not change the count."""
    library = OneLink(session._library, 3, code)
    links = Links(library, session.devices[0].handle)
    links.bind()
    assert links.read()[0] == 17
    library.code = 0
    links.bind()
    assert links.read()[0] == 18
    library.code = code
    links._read_at -= 5.1
    assert links.read()[0] == (17 if code in (2, 3) else 18)
