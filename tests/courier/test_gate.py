"""A person is told of each thing once, never of too much, and nothing is kept from them silently."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.courier.gate import Gate, Limits, TokenBucket
from trainvitals.courier.message import Message

LIMITS = Limits(repeat_seconds=100.0, burst=3, refill_seconds=10.0)


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        """Tell the time."""
        return self.now


@pytest.fixture
def clock():
    """Give a clock that the test moves."""
    return Clock()


@pytest.fixture
def gate(clock):
    """Give a gate on that clock."""
    return Gate(LIMITS, clock=clock)


def make(key="hot", text="", severity="warning", *, is_over=False):
    """Make a message whose title is its key."""
    return Message(key, text, severity, key, is_over=is_over)


def take_all(gate):
    """Take what is due now."""
    return list(iter(gate.take, None))


def test_the_same_is_told_once_and_its_number_afterwards(gate, clock):
    """What comes again within the time is counted, and the last of it told when the time is over."""
    for text in ("90", "91", "92"):
        gate.enter(make(text=text))
    assert [each.text for each in take_all(gate)] == ["90"]
    assert gate.wait_seconds == 100.0
    clock.now += 99.0
    assert take_all(gate) == []
    clock.now += 1.0
    assert [each.text for each in take_all(gate)] == ["92\n(2 more like this)"]
    clock.now += 100.0
    gate.enter(make(text="93"))
    assert [each.text for each in take_all(gate)] == ["93"]


def test_that_it_is_over_is_told_at_once(gate, clock):
    """An alert that wavers is told, told to be over, and then only how it stands after the time."""
    gate.enter(make(text="90"))
    gate.enter(make(text="70", is_over=True))
    told = take_all(gate)
    assert [each.is_over for each in told] == [False, True]
    clock.now += 1.0
    for is_over in (False, True, False):
        gate.enter(make(text="again", is_over=is_over))
    assert take_all(gate) == []
    clock.now += 99.0
    (last,) = take_all(gate)
    assert (last.is_over, last.text) == (False, "again\n(3 more like this)")


def test_what_is_worse_is_told_at_once(gate):
    """A warning does not keep back what is critical, but the critical one the warning."""
    gate.enter(make())
    gate.enter(make(severity="critical"))
    gate.enter(make(severity="warning"))
    assert [each.severity for each in take_all(gate)] == ["warning", "critical"]


def test_a_burst_is_gathered_into_its_last_message(gate, clock):
    """With the last token goes all that waits; then one message comes in each refill."""
    for number in range(12):
        gate.enter(make(f"k{number}", severity="critical" if number == 11 else "warning"))
    first, second, rest = take_all(gate)
    assert (first.title, second.title, rest.title) == ("k0", "k1", "10 more messages")
    assert rest.severity == "critical"
    assert rest.text.splitlines()[0] == "- k2"
    gate.enter(make("late"))
    assert gate.take() is None
    assert gate.wait_seconds == pytest.approx(10.0)
    clock.now += 10.0
    assert [each.title for each in take_all(gate)] == ["late"]


def test_what_was_lost_is_told_with_the_next_message(gate):
    """Messages that found no room are counted."""
    gate.count_lost(7)
    gate.enter(make(text="90"))
    assert take_all(gate)[0].text == "90\n(7 messages before this one were lost)"
    gate.enter(make("other"))
    assert take_all(gate)[0].text == ""


def test_what_comes_back_is_the_next_and_says_that_it_is_late(gate, clock):
    """A message that could not be sent goes before those that came after it."""
    gate.enter(make("first"))
    gate.enter(make("second"))
    gate.give_back(gate.take())
    clock.now += 300.0
    assert [each.text for each in take_all(gate)] == ["(told 5 min late)", "(told 5 min late)"]


def test_at_the_end_all_that_waits_is_one_message(gate):
    """What was held back is told too, whatever the limits say."""
    assert gate.take_rest() is None
    for key in ("a", "a", "b", "c", "d"):
        gate.enter(make(key))
    take_all(gate)
    assert gate.take_rest().text == "(1 more like this)"
    assert gate.take_rest() is None


def test_what_was_held_back_is_older_than_the_news(gate, clock):
    """News tells how many waited, and they are not told after it."""
    gate.enter(make())
    gate.enter(make())
    gate.enter(make(is_over=True))
    assert [each.text for each in take_all(gate)] == ["", "(1 more like this)"]
    clock.now += 1000.0
    assert take_all(gate) == []


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 50.0),
            st.sampled_from("abcdef"),
            st.booleans(),
            st.sampled_from(("info", "warning", "critical")),
        ),
        max_size=200,
    )
)
def test_no_more_is_sent_than_the_limits_allow(arrivals):
    """Whatever comes whenever: within any 100 s at most burst and refills, and the last state is told."""
    clock = Clock()
    gate = Gate(LIMITS, clock=clock)
    sent = []
    last = {}
    for seconds, key, is_over, severity in arrivals:
        clock.now += seconds
        gate.enter(make(key, severity=severity, is_over=is_over))
        last[key] = is_over
        sent += [(clock.now, each) for each in take_all(gate)]
    while gate.wait_seconds is not None:
        clock.now += gate.wait_seconds + 0.001
        sent += [(clock.now, each) for each in take_all(gate)]
    times = [at for at, _ in sent]
    assert all(later - times[i] >= 9.9 for i, later in enumerate(times[4:]))
    told = {each.key: each.is_over for _, each in sent if each.key != "several"}
    for key, is_over in last.items():
        named = any(key in each.text for _, each in sent if each.key == "several")
        assert named or told[key] == is_over


def test_a_bucket_is_never_fuller_than_its_burst():
    """A long silence does not save up more."""
    bucket = TokenBucket(2, 10.0, now=0.0)
    assert [bucket.take(1e6) for _ in range(3)] == [True, True, False]
    assert bucket.wait_seconds(1e6) == pytest.approx(10.0)
