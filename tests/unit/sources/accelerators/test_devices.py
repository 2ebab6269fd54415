"""Every device of a driver keeps its history under any reader and any index."""

from __future__ import annotations

from trainvitals.sources.accelerators.devices import Devices
from trainvitals.sources.accelerators.reader import Answer, Reader, XidEvent
from trainvitals.sources.accelerators.reading import Identity, State
from trainvitals.sources.accelerators.row import EMPTY_ROW, MOST_DEVICES


class ReaderOf(Reader):
    """A reader that lists the given devices.

    Args:
        open_: The UUIDs of the open devices, by device index.
        closed: The states of the devices that could not be opened, by device index.
    """

    opened = True

    def __init__(self, open_: dict[int, str], closed: dict[int, State] | None = None) -> None:
        super().__init__()
        self._identities = [identity(index, uuid) for index, uuid in open_.items()]
        self._unreadable = [
            (identity(index, f"unknown-{index}"), state) for index, state in (closed or {}).items()
        ]

    def wait_until_opened(self, until: float) -> None:
        """Return at once, since this reader is always open."""

    def ask(self, patience: float, since: object) -> None:
        """Do nothing, since this reader does not read."""

    def take_answer(self, until: float) -> None:
        """Return no answer, since this reader does not read."""

    def take_xids(self) -> list[XidEvent]:
        """Return no Xid event."""
        return []

    def end(self) -> None:
        """Do nothing, since this reader holds no resources."""

    def reap(self) -> bool:
        """Return true, since this reader holds no resources."""
        return True


def identity(index: int, uuid: str) -> Identity:
    """Return the identity of a GPU."""
    return Identity("gpu", index, uuid, "model", "bus", "1.0")


def answer(*uuids: str, states: list[tuple[str, State]] | None = None) -> Answer:
    """Return an answer in which the given devices were read."""
    rows = [(uuid, list(EMPTY_ROW), (7, 1.0, 0.0), []) for uuid in uuids]
    return Answer(rows, states or [], is_current=True, troubles=[])


def shown(devices: Devices) -> list[tuple[int, str, str]]:
    """Return the index, UUID and state of each device."""
    return [
        (reading.identity.index, reading.identity.uuid, reading.state) for reading in devices.read()
    ]


def enter(devices: Devices, reader: Reader, *uuids: str, **states: State) -> None:
    """Register a reader's devices and record a reading of the given devices."""
    devices.register(reader)
    devices.enter(answer(*uuids, states=list(states.items())), reader.unreadable)


def test_devices_are_told_in_the_order_of_their_indices():
    """Devices are listed in the order of their indices, not in the order of an answer."""
    devices = Devices()
    enter(devices, ReaderOf({1: "b", 0: "a"}), "b", "a")
    assert shown(devices) == [(0, "a", "ok"), (1, "b", "ok")]
    assert devices.since == {"a": 7, "b": 7}


def test_a_device_that_is_not_in_an_answer_is_lost():
    """A device that is missing from an answer is lost, unless the answer reports another state."""
    devices = Devices()
    enter(devices, ReaderOf({0: "a", 1: "b", 2: "c"}), "a", b="hung")
    assert shown(devices) == [(0, "a", "ok"), (1, "b", "hung"), (2, "c", "lost")]
    assert [who.uuid for who in devices.hung] == ["b"]


def test_a_device_without_a_name_stands_for_the_one_that_had_its_index():
    """A device without a UUID stands for the missing device that had the same index."""
    devices = Devices()
    enter(devices, ReaderOf({0: "a", 1: "b"}), "a", "b")
    reader = ReaderOf({0: "a"}, {1: "resetting"})
    enter(devices, reader, "a")
    assert shown(devices) == [(0, "a", "ok"), (1, "b", "resetting")]
    assert devices.are_missing(reader)


def test_a_device_without_a_name_is_shown_until_it_has_one():
    """The placeholder of a device without a UUID is removed when the UUID is read."""
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
    """A device keeps its history under a new index, and a lost device keeps its old index."""
    devices = Devices()
    enter(devices, ReaderOf({0: "a", 1: "b", 2: "c"}), "a", "b", "c")
    devices.count([XidEvent("c", 13, 1.0)])
    enter(devices, ReaderOf({0: "a", 1: "c"}), "a", "c")
    assert shown(devices) == [(0, "a", "ok"), (1, "b", "lost"), (1, "c", "ok")]
    assert [xid.xid for reading in devices.read() for xid in reading.xids] == [13]


def test_what_will_not_open_for_good_is_not_looked_for():
    """No new reader is needed for a device that the driver does not support."""
    devices = Devices()
    reader = ReaderOf({0: "a"}, {1: "unsupported"})
    enter(devices, reader, "a")
    assert shown(devices)[1] == (1, "unknown-1", "unsupported")
    assert not devices.are_missing(reader)


def test_a_hung_device_that_is_open_is_not_looked_for():
    """A hung device counts as readable by the reader that has it open; no new reader is needed."""
    devices = Devices()
    reader = ReaderOf({0: "a", 1: "b", 2: "c"})
    enter(devices, reader, "a", b="hung")
    assert devices.readable(reader) == {"a", "b"}
    devices.miss_all("hung")
    assert not devices.are_missing(reader)


def test_sample_buffers_go_on_unless_the_driver_went():
    """Sample timestamps are kept if only the reader died, and reset if the driver was unloaded."""
    devices = Devices()
    enter(devices, ReaderOf({0: "a"}), "a")
    devices.miss_all("no_driver", keep_samples=True)
    assert devices.since == {"a": 7}
    devices.miss_all("no_driver")
    assert devices.since == {"a": None}


def test_errors_that_were_counted_already_are_left_out():
    """Xid errors of unknown devices, and of devices that were already counted, are ignored."""
    devices = Devices()
    enter(devices, ReaderOf({0: "a", 1: "b"}), "a", "b")
    events = [XidEvent("a", 13, 1.0), XidEvent("b", 31, 1.0), XidEvent("x", 79, 1.0)]
    devices.count(events, but_of={"a"})
    assert [[xid.xid for xid in reading.xids] for reading in devices.read()] == [[], [31]]


def test_devices_are_bounded():
    """At most 64 devices are kept, so a driver that invents UUIDs cannot fill the memory."""
    devices = Devices()
    for number in range(MOST_DEVICES + 10):
        devices.register(ReaderOf({0: f"uuid-{number}"}))
    assert len(devices) == 64
