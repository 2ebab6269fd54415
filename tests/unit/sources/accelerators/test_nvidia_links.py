"""The NVLinks of a GPU: each error is counted once, whichever field values the card has."""

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
    """A GPU with 18 links, of which this process has just loaded the library."""
    with FakeMachine(tmp_path, gpus=1) as machine:
        machine.attach()
        yield machine


@pytest.fixture
def session(machine) -> NvidiaSession:
    """The open driver."""
    return open_nvidia()


@pytest.fixture
def links(session) -> Links:
    """The links of its GPU, before the driver was asked."""
    return Links(session._library, session.devices[0].handle)


def set_errors(machine: FakeMachine, **errors: int) -> None:
    """Let the GPU have had so many errors of each kind, spread over its links."""
    for kind, number in errors.items():
        setattr(machine.gpu(0), f"nvlink_{kind}_errors", number)


def read(links: Links) -> dict[str, float]:
    """Read again; give the errors that are counted."""
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
    """As a total of the GPU, or as the sum of what the driver counts by link."""
    machine.gpu(0).nvlink_error_fields = fields
    set_errors(machine, **ALL_KINDS)
    links.bind()
    assert read(links) == expected
    set_errors(machine, **{kind: number + 1 for kind, number in ALL_KINDS.items()})
    more = {kind: number + 1 + (kind == "crc") for kind, number in expected.items()}
    assert read(links) == more


def test_a_card_without_links_has_no_errors(machine, links):
    """Nor any link that is up."""
    machine.gpu(0).nvlink_count = 0
    links.bind()
    machine.reset_calls()
    assert links.read() == (None, (None,) * len(LINK_ERRORS))
    assert machine.calls_by_function() == {}


@pytest.mark.parametrize("code", [3, 10, 999])
def test_errors_never_become_less_while_one_field_does_not_answer(machine, links, code):
    """A sum without it would look like a counter that was reset."""
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
    """They are not asked in every scrape, since each takes a call."""
    links.bind()
    assert links.read()[0] == 18
    machine.gpu(0).nvlink_down_mask = 0b11
    assert links.read()[0] == 18
    links._read_at -= 5.1
    assert links.read()[0] == 16


def test_a_link_that_sleeps_is_up(machine, links):
    """Newer drivers tell it from an active one by another number."""
    machine.gpu(0).nvlink_sleep_mask = 0x3FFFF
    links.bind()
    assert links.read()[0] == 18


class OneLink:
    """A library in which one link answers another code.

    Args:
        library: The library.
        link: Which.
        code: The code; 0 ends it.
    """

    def __init__(self, library: object, link: int, code: int = 0) -> None:
        self._library, self._link = library, link
        self.code = code

    def __getattr__(self, name: str) -> object:
        return getattr(self._library, name)

    def nvmlDeviceGetNvLinkState(  # noqa: N802 - the driver's name
        self, handle: object, link: object, state: object
    ) -> int:
        """Answer as the library does but for one link."""
        if self.code and link.value == self._link:
            return self.code
        return self._library.nvmlDeviceGetNvLinkState(handle, link, state)


@pytest.mark.parametrize("code", [2, 3, 10, 999])
def test_a_link_that_does_not_answer_hides_no_other(machine, session, code):
    """One that is not there is not counted; one that fails for the moment stays what it was."""
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
