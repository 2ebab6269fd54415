"""Each Xid error is counted once, whether the driver, the kernel log or both report it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainvitals.sources.accelerators.reading import XidCount
from trainvitals.sources.accelerators.xid_counts import XidCounts


def counts(errors: XidCounts) -> dict[int, int]:
    """Return the number of errors by Xid code."""
    return {xid.xid: xid.count for xid in errors.read()}


def test_errors_are_counted_by_code_up_to_a_bound():
    """The first 16 codes are counted separately, and all others together under code -1."""
    errors = XidCounts()
    for number, code in enumerate([*range(1, 19), 1]):
        errors.count(code, float(number))
    found = {xid.xid: xid for xid in errors.read()}
    assert len(found) == 17
    assert found[1] == XidCount(1, 2, 18.0)
    assert found[16] == XidCount(16, 1, 15.0)
    assert found[-1] == XidCount(-1, 2, 17.0)
    errors.witness(99, 20.0)  # may be one of the errors counted under code -1
    assert counts(errors)[-1] == 2


def test_the_kernel_log_alone_is_enough():
    """Lines of the kernel log within seconds are one error, and a later line is another error."""
    errors = XidCounts()
    for at in (100.0, 100.2, 103.0):
        errors.witness(79, at)
    assert counts(errors) == {79: 1}
    errors.witness(79, 400.0)
    assert errors.read() == (XidCount(79, 2, 400.0),)


def test_the_driver_may_report_late_what_the_kernel_log_had():
    """A driver's event up to a minute after a log line is the same error; a later event is not."""
    errors = XidCounts()
    errors.witness(79, 100.0)
    errors.count(79, 158.0)
    assert counts(errors) == {79: 1}
    errors.count(79, 159.0)
    assert counts(errors) == {79: 2}
    errors.witness(31, 100.0)
    errors.count(31, 500.0)
    assert counts(errors)[31] == 2


def test_the_log_of_a_long_time_is_compared_with_every_event_in_it():
    """Each of many log lines is matched with an earlier event of the driver."""
    errors = XidCounts()
    times = [100.0 + 15 * number for number in range(60)]
    for at in times:
        errors.count(43, at)
    for at in times:
        errors.witness(43, at)
    assert counts(errors) == {43: 60}


@given(st.data())
def test_the_order_in_which_the_witnesses_are_read_does_not_matter(data):
    """The counts do not depend on the order in which events and log lines are read."""
    told = data.draw(st.lists(st.sampled_from(["driver", "log", "both"]), max_size=12))
    errors = XidCounts()
    for number, witness in enumerate(told):
        at = 1000.0 + 90 * number
        tells = []
        if witness != "log":
            delay = data.draw(st.floats(0, 5))
            tells.append((errors.count, at + delay))
        if witness != "driver":
            tells += [(errors.witness, at + data.draw(st.floats(0, 3))) for _ in range(2)]
        for tell, time in data.draw(st.permutations(tells)):
            tell(31, time)
    assert counts(errors) == ({31: len(told)} if told else {})
