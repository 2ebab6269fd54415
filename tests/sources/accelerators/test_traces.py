"""Traces of drivers in `/proc` and `/sys`."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainvitals.sources.accelerators.traces import Traces
from trainvitals.sources.files import Roots


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """Roots that are empty yet."""
    return Roots(procfs=tmp_path / "proc", sysfs=tmp_path / "sys")


def test_what_comes_and_goes_is_noticed_once(roots):
    """A driver is loaded, a device is bound, it is unbound, the driver is unloaded."""
    traces = Traces(("proc/driver/nvidia/version", "sys/bus/pci/drivers/nvidia"), roots)
    assert not traces.have_changed()
    version = roots.procfs / "driver/nvidia/version"
    version.parent.mkdir(parents=True)
    assert not traces.have_changed()
    version.write_text("NVRM version: ...\n")
    devices = roots.sysfs / "bus/pci/drivers/nvidia"
    devices.mkdir(parents=True)
    assert traces.have_changed()
    assert not traces.have_changed()
    (devices / "0000:1b:00.0").touch()
    assert traces.have_changed()
    (devices / "0000:1b:00.0").unlink()
    assert traces.have_changed()
    version.unlink()
    assert traces.have_changed()
    assert not traces.have_changed()
