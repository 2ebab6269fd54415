"""Tests for the rate limiter, which merges repetitions and bursts and counts lost messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.alerting.message import Message
from trainvitals.alerting.ratelimit import RateLimit, RateLimiter, TokenBucket

LIMIT = RateLimit(repeat_seconds=100.0, burst=3, refill_seconds=10.0)


class Clock:
    """A clock that the test controls."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        """Return the time."""
        return self.now


@pytest.fixture
def clock():
    """Return a clock that the test controls."""
    return Clock()


@pytest.fixture
def limiter(clock):
    """Return a rate limiter that uses the controlled clock."""
    return RateLimiter(LIMIT, clock=clock)


def make(key="hot", text="", severity="warning", *, is_over=False):
    """Return a message whose title is its key."""
    return Message(key, text, severity, key, is_over=is_over)


def take_all(limiter):
    """Take all messages that are due now."""
    return list(iter(limiter.take, None))


def test_repetitions_are_sent_once_and_counted_afterwards(limiter, clock):
    """Repeated messages are counted, and the last of them is sent after the repeat interval."""
    for text in ("90", "91", "92"):
        limiter.put(make(text=text))
    assert [each.text for each in take_all(limiter)] == ["90"]
    assert limiter.wait_seconds == 100.0
    clock.now += 99.0
    assert take_all(limiter) == []
    clock.now += 1.0
    assert [each.text for each in take_all(limiter)] == ["92\n(2 more like this)"]
    clock.now += 100.0
    limiter.put(make(text="93"))
    assert [each.text for each in take_all(limiter)] == ["93"]


def test_the_end_is_sent_at_once(limiter, clock):
    """The first end of an alert is sent at once, and later changes only after the interval."""
    limiter.put(make(text="90"))
    limiter.put(make(text="70", is_over=True))
    told = take_all(limiter)
    assert [each.is_over for each in told] == [False, True]
    clock.now += 1.0
    for is_over in (False, True, False):
        limiter.put(make(text="again", is_over=is_over))
    assert take_all(limiter) == []
    clock.now += 99.0
    (last,) = take_all(limiter)
    assert (last.is_over, last.text) == (False, "again\n(3 more like this)")


def test_a_higher_severity_is_sent_at_once(limiter):
    """A warning does not delay a critical message, but a critical message delays a warning."""
    limiter.put(make())
    limiter.put(make(severity="critical"))
    limiter.put(make(severity="warning"))
    assert [each.severity for each in take_all(limiter)] == ["warning", "critical"]


def test_a_burst_is_gathered_into_its_last_message(limiter, clock):
    """The last token sends all waiting messages as one; then each refill allows one message."""
    for number in range(12):
        limiter.put(make(f"k{number}", severity="critical" if number == 11 else "warning"))
    first, second, rest = take_all(limiter)
    assert (first.title, second.title, rest.title) == ("k0", "k1", "10 messages")
    assert rest.severity == "critical"
    assert rest.text.splitlines()[0] == "- k2"
    limiter.put(make("late"))
    assert limiter.take() is None
    assert limiter.wait_seconds == pytest.approx(10.0)
    clock.now += 10.0
    assert [each.title for each in take_all(limiter)] == ["late"]


def test_the_next_message_counts_what_was_lost(limiter):
    """The next message states the number of messages that were lost before it."""
    limiter.count_lost(7)
    limiter.put(make(text="90"))
    assert take_all(limiter)[0].text == "90\n(7 messages before this one were lost)"
    limiter.put(make("other"))
    assert take_all(limiter)[0].text == ""


def test_what_comes_back_is_the_next_and_says_that_it_is_late(limiter, clock):
    """A message that is put back is sent again, and late messages state their delay."""
    limiter.put(make("first"))
    limiter.put(make("second"))
    limiter.put_back(limiter.take())
    clock.now += 300.0
    assert [each.text for each in take_all(limiter)] == ["(sent 5m late)", "(sent 5m late)"]


def test_at_the_end_all_that_waits_is_one_message(limiter):
    """At the end, all waiting messages are sent as one message, whatever the limits."""
    assert limiter.take_rest() is None
    for key in ("a", "a", "b", "c", "d"):
        limiter.put(make(key))
    take_all(limiter)
    assert limiter.take_rest().text == "(1 more like this)"
    assert limiter.take_rest() is None


def test_what_was_held_back_is_older_than_the_news(limiter, clock):
    """A message that is sent at once states the number of older waiting messages and drops them."""
    limiter.put(make())
    limiter.put(make())
    limiter.put(make(is_over=True))
    assert [each.text for each in take_all(limiter)] == ["", "(1 more like this)"]
    clock.now += 1000.0
    assert take_all(limiter) == []


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
    """For any arrivals, the burst and refill limits hold, and the last state of a key is sent."""
    clock = Clock()
    limiter = RateLimiter(LIMIT, clock=clock)
    sent = []
    last = {}
    for seconds, key, is_over, severity in arrivals:
        clock.now += seconds
        limiter.put(make(key, severity=severity, is_over=is_over))
        last[key] = is_over
        sent += [(clock.now, each) for each in take_all(limiter)]
    while limiter.wait_seconds is not None:
        clock.now += limiter.wait_seconds + 0.001
        sent += [(clock.now, each) for each in take_all(limiter)]
    times = [at for at, _ in sent]
    assert all(later - times[i] >= 9.9 for i, later in enumerate(times[4:]))
    told = {each.key: each.is_over for _, each in sent if each.key != "several"}
    for key, is_over in last.items():
        named = any(key in each.text for _, each in sent if each.key == "several")
        assert named or told[key] == is_over


def test_a_bucket_is_never_fuller_than_its_burst():
    """A token bucket holds at most `burst` tokens, even after a long pause."""
    bucket = TokenBucket(2, 10.0, now=0.0)
    assert [bucket.take(1e6) for _ in range(3)] == [True, True, False]
    assert bucket.wait_seconds(1e6) == pytest.approx(10.0)
