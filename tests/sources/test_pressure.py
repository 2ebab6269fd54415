"""How long tasks waited."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trainvitals.errors import SourceError
from trainvitals.sources.files import Roots
from trainvitals.sources.pressure import PressureReading, PressureSource, Stall


def test_the_fake_machine_is_read_in_seconds(roots: Roots):
    """Microseconds become seconds; that all tasks waited for the CPU at once means nothing."""
    assert PressureSource(roots=roots).read() == PressureReading(
        (
            Stall("cpu", 8.520977, None),
            Stall("io", 7.3903, 7.154271),
            Stall("memory", 1.5, 0.25),
        )
    )


def test_a_kernel_without_pressure_has_no_stalls(tmp_path: Path):
    """A missing folder is no error."""
    assert PressureSource(roots=Roots(procfs=tmp_path)).read() == PressureReading(())


def test_a_kernel_with_pressure_switched_off_has_no_stalls(
    roots: Roots, monkeypatch: pytest.MonkeyPatch
):
    """A kernel started with psi=0 shows the files and answers EOPNOTSUPP."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "open", refuse)
    assert PressureSource(roots=roots).read() == PressureReading(())


def test_a_file_of_another_kind_is_an_error(roots: Roots):
    """The error names the file."""
    (roots.procfs / "pressure/io").write_text("some total=many\n")
    with pytest.raises(SourceError, match="pressure/io"):
        PressureSource(roots=roots).read()
