"""Tests for the readings of pressure stall information (PSI)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trainvitals.errors import SourceError
from trainvitals.sources.files import Roots
from trainvitals.sources.host.pressure import PressureReading, PressureSource, Stall


def test_the_fake_machine_is_read_in_seconds(roots: Roots):
    """Microseconds are converted to seconds, and the `full` value of the CPU is left out.

    The time in which all tasks waited for the CPU at once is not meaningful. Interrupts stop all
    tasks of a core, so `irq` has no `some` value.
    """
    assert PressureSource(roots=roots).read() == PressureReading(
        (
            Stall("cpu", 8.520977, None),
            Stall("io", 7.3903, 7.154271),
            Stall("irq", None, 0.487083),
            Stall("memory", 1.5, 0.25),
        )
    )


def test_a_kernel_without_pressure_has_no_stalls(tmp_path: Path):
    """A missing `pressure` folder is no error and yields no stalls."""
    assert PressureSource(roots=Roots(procfs=tmp_path)).read() == PressureReading(())


def test_a_kernel_with_pressure_switched_off_has_no_stalls(
    roots: Roots, monkeypatch: pytest.MonkeyPatch
):
    """If the kernel was started with `psi=0`, opening the files fails, and there are no stalls."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "open", refuse)
    assert PressureSource(roots=roots).read() == PressureReading(())


def test_a_kernel_without_a_file_has_the_others(roots: Roots):
    """The other files are read if there is no `irq` file, as before Linux 6.1."""
    (roots.procfs / "pressure/irq").unlink()
    stalls = PressureSource(roots=roots).read().stalls
    assert [stall.resource for stall in stalls] == ["cpu", "io", "memory"]


@pytest.mark.parametrize(
    "text", ["", "some total=many\n", "some total=-1\n", "all total=1\n", "some avg10=0.00\n"]
)
def test_a_file_of_another_kind_costs_itself_alone(roots: Roots, text: str):
    """An invalid file is left out; if no file is valid, the error names a file."""
    (roots.procfs / "pressure/irq").write_text(text)
    stalls = PressureSource(roots=roots).read().stalls
    assert [stall.resource for stall in stalls] == ["cpu", "io", "memory"]
    for resource in ("cpu", "io", "memory"):
        (roots.procfs / "pressure" / resource).write_text(text)
    with pytest.raises(SourceError, match="pressure/cpu"):
        PressureSource(roots=roots).read()
