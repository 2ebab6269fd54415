"""The guard that keeps errors of a method away from its caller."""

import logging

import pytest

from trainvitals.training.guard import Errors, guard


class Guarded:
    """An object with a guarded method that raises a given error."""

    def __init__(self):
        self.is_off = False
        self.errors = Errors("the test", self.switch_off)

    def switch_off(self):
        """Mark the object as switched off."""
        self.is_off = True

    @guard
    def do(self, error=None):
        """Raise the given error, or return 7."""
        if error is not None:
            raise error
        return 7


def test_what_a_method_gives_is_given():
    """A guarded method returns its result, and no error is counted."""
    guarded = Guarded()
    assert guarded.do() == 7
    assert guarded.errors.count == 0


def test_errors_are_counted_and_the_first_is_told(caplog):
    """The first error is logged, and the tenth switches the object off and is logged as well."""
    guarded = Guarded()
    for number in range(12):
        assert guarded.is_off is (number >= 10)
        assert guarded.do(ValueError(f"number {number}")) is None
    assert guarded.errors.count == 12
    assert caplog.messages == [
        "the test: ValueError: number 0; training goes on",
        "the test switches itself off after 10 errors",
    ]


def test_interruptions_pass():
    """`KeyboardInterrupt`, `SystemExit` and `GeneratorExit` pass through and are not counted."""
    guarded = Guarded()
    for interruption in (KeyboardInterrupt, SystemExit, GeneratorExit):
        with pytest.raises(interruption):
            guarded.do(interruption())
    assert guarded.errors.count == 0


def test_a_log_that_raises_does_not_reach_the_caller():
    """Errors are counted and the tenth switches the object off, even if the log filter raises."""

    class Broken(logging.Filter):
        """A log filter of the program that always raises."""

        def filter(self, record):
            """Raise a KeyError."""
            raise KeyError(record.name)

    broken = Broken()
    log = logging.getLogger("trainvitals")
    log.addFilter(broken)
    try:
        guarded = Guarded()
        for _ in range(10):
            assert guarded.do(ValueError()) is None
    finally:
        log.removeFilter(broken)
    assert guarded.errors.count == 10
    assert guarded.is_off
