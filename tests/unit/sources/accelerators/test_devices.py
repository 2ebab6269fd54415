"""Every device of a driver keeps its account, whatever reader shows it and under which index."""

from __future__ import annotations

from trainvitals.sources.accelerators.devices import Devices
from trainvitals.sources.accelerators.reader import Answer, Reader, XidEvent
from trainvitals.sources.accelerators.reading import Identity, State
from trainvitals.sources.accelerators.row import EMPTY_ROW, MOST_DEVICES


class ReaderOf(Reader):
    """A reader that shows these devices.

    Args:
        open_: UUIDs of those it has open; each index is the place.
        closed: Index and state of those that would not open.
    """

    opened = True

    def __init__(self, open_: dict[int, str], closed: dict[int, State] | None = None) -> None:
        super().__init__()
        self._identities = [identity(index, uuid) for index, uuid in open_.items()]
        self._unreadable = [
            (identity(index, f"unknown-{index}"), state) for index, state in (closed or {}).items()
        ]

    def wait_until_opened(self, until: float) -> None:
        """It is."""

    def ask(self, patience: float, since: object) -> None:
        """It does not read."""

    def take_answer(self, until: float) -> None:
        """It does not read."""

    def take_xids(self) -> list[XidEvent]:
        """It hears of none."""
        return []

    def end(self) -> None:
        """It holds nothing."""

    def reap(self) -> bool:
        """It holds nothing."""
        return True


def identity(index: int, uuid: str) -> Identity:
    """Return a device."""
    return Identity("gpu", index, uuid, "model", "bus", "1.0")


def answer(*uuids: str, states: list[tuple[str, State]] | None = None) -> Answer:
    """Return an answer in which these were read."""
    rows = [(uuid, list(EMPTY_ROW), (7, 1.0, 0.0), []) for uuid in uuids]
    return Answer(rows, states or [], is_current=True, troubles=[])


def shown(devices: Devices) -> list[tuple[int, str, str]]:
    """Return index, UUID and state of each."""
    return [
        (reading.identity.index, reading.identity.uuid, reading.state) for reading in devices.read()
    ]


def enter(devices: Devices, reader: Reader, *uuids: str, **states: State) -> None:
    """Let a reader show its devices and read these."""
    devices.register(reader)
    devices.enter(answer(*uuids, states=list(states.items())), reader.unreadable)


def test_devices_are_told_in_the_order_of_their_indices():
    """Whatever the order they came in."""
    devices = Devices()
    enter(devices, ReaderOf({1: "b", 0: "a"}), "b", "a")
    assert shown(devices) == [(0, "a", "ok"), (1, "b", "ok")]
    assert devices.since == {"a": 7, "b": 7}


def test_a_device_that_is_not_in_an_answer_is_lost():
    """Unless the reader says what it is."""
    devices = Devices()
    enter(devices, ReaderOf({0: "a", 1: "b", 2: "c"}), "a", b="hung")
    assert shown(devices) == [(0, "a", "ok"), (1, "b", "hung"), (2, "c", "lost")]
    assert [who.uuid for who in devices.hung] == ["b"]


def test_a_device_without_a_name_stands_for_the_one_that_had_its_index():
    """A known device that is lost, hung or resetting does not become another."""
    devices = Devices()
    enter(devices, ReaderOf({0: "a", 1: "b"}), "a", "b")
    reader = ReaderOf({0: "a"}, {1: "resetting"})
    enter(devices, reader, "a")
    assert shown(devices) == [(0, "a", "ok"), (1, "b", "resetting")]
    assert devices.are_missing(reader)


def test_a_device_without_a_name_is_shown_until_it_has_one():
    """Its placeholder leaves when it says who it is."""
    devices = Devices()
    reader = ReaderOf({0: "a"}, {1: "hung"})
    enter(devices, reader, "a")
    assert shown(devices) == [(0, "a", "ok"), (1, "unknown-1", "hung")]
    assert devices.are_missing(reader)
    both = ReaderOf({0: "a", 1: "b"})
    enter(devices, both, "a", "b")
    assert shown(devices) == [(0, "a", "ok"), (1, "b", "ok")]
    assert not devices.are_missing(both)


def test_a_device_whose_index_moved_keeps_its_account():
    """The one that left keeps its old index."""
    devices = Devices()
    enter(devices, ReaderOf({0: "a", 1: "b", 2: "c"}), "a", "b", "c")
    devices.count([XidEvent("c", 13, 1.0)])
    enter(devices, ReaderOf({0: "a", 1: "c"}), "a", "c")
    assert shown(devices) == [(0, "a", "ok"), (1, "b", "lost"), (1, "c", "ok")]
    assert [xid.xid for reading in devices.read() for xid in reading.xids] == [13]


def test_what_will_not_open_for_good_is_not_looked_for():
    """A device that the driver refuses to show is no reason for fresh readers."""
    devices = Devices()
    reader = ReaderOf({0: "a"}, {1: "unsupported"})
    enter(devices, reader, "a")
    assert shown(devices)[1] == (1, "unknown-1", "unsupported")
    assert not devices.are_missing(reader)


def test_a_hung_device_that_is_open_is_not_looked_for():
    """It answers its own reader when it answers at all, and counts as readable."""
    devices = Devices()
    reader = ReaderOf({0: "a", 1: "b", 2: "c"})
    enter(devices, reader, "a", b="hung")
    assert devices.readable(reader) == {"a", "b"}
    devices.miss_all("hung")
    assert not devices.are_missing(reader)


def test_sample_buffers_go_on_unless_the_driver_went():
    """A reader that died has changed nothing in the driver."""
    devices = Devices()
    enter(devices, ReaderOf({0: "a"}), "a")
    devices.miss_all("no_driver", keep_samples=True)
    assert devices.since == {"a": 7}
    devices.miss_all("no_driver")
    assert devices.since == {"a": None}


def test_errors_that_were_counted_already_are_left_out():
    """And those of devices that nobody knows."""
    devices = Devices()
    enter(devices, ReaderOf({0: "a", 1: "b"}), "a", "b")
    events = [XidEvent("a", 13, 1.0), XidEvent("b", 31, 1.0), XidEvent("x", 79, 1.0)]
    devices.count(events, but_of={"a"})
    assert [[xid.xid for xid in reading.xids] for reading in devices.read()] == [[], [31]]


def test_devices_are_bounded():
    """A driver that invents UUIDs does not fill the memory."""
    devices = Devices()
    for number in range(MOST_DEVICES + 10):
        devices.register(ReaderOf({0: f"uuid-{number}"}))
    assert len(devices) == 64
