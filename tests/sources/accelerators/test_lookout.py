"""When a fresh look is due."""

from __future__ import annotations

from itertools import pairwise

from trainvitals.sources.accelerators.lookout import Lookout


def looks(lookout: Lookout, moments: range, *, is_missing: bool) -> list[int]:
    """Scrape every second; give the moments at which a look was begun."""
    begun = []
    for now in moments:
        lookout.note_missing(now, is_missing=is_missing)
        if lookout.is_due(now):
            lookout.note_look(now)
            begun.append(now)
    return begun


def test_without_a_reason_nobody_looks():
    """However often it is asked."""
    assert looks(Lookout(), range(1000), is_missing=False) == []


def test_a_change_is_looked_at_at_once_and_for_half_a_minute():
    """Then the driver has had the time it needs."""
    lookout = Lookout()
    lookout.note_change(100)
    assert lookout.has_change
    assert looks(lookout, range(100, 200), is_missing=False) == [100, 105, 110, 115, 120, 125]
    assert not lookout.has_change


def test_changes_all_the_time_are_looked_at_every_five_seconds():
    """A driver that always shows something else does not start a reader in each scrape."""
    lookout = Lookout()
    begun = []
    for now in range(100, 120):
        lookout.note_change(now)
        if lookout.is_due(now):
            lookout.note_look(now)
            begun.append(now)
    assert begun == [100, 105, 110, 115]


def test_a_missing_device_is_looked_for_more_and_more_rarely():
    """Every 5 s at first, every 15 s after five minutes, once a minute after twenty."""
    begun = looks(Lookout(), range(4000), is_missing=True)
    assert begun[:4] == [5, 10, 15, 20]
    gaps = {now: after - now for now, after in pairwise(begun)}
    assert {gap for now, gap in gaps.items() if 290 < now < 300} <= {15, 16}
    assert {gap for now, gap in gaps.items() if now > 1300} == {60}


def test_a_device_that_returned_is_no_longer_looked_for():
    """And when it is missed again, the first look comes soon again."""
    lookout = Lookout()
    looks(lookout, range(2000), is_missing=True)
    assert looks(lookout, range(2000, 3000), is_missing=False) == []
    assert looks(lookout, range(3000, 3012), is_missing=True) == [3005, 3010]
