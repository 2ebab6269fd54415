"""Fixtures of the training tests: run directories, and an exporter that reads one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.exporter_process import ExporterProcess


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the run directory of a training in this process, on the CPU with one thread."""
    torch = pytest.importorskip("torch")
    directory = tmp_path / "runs"
    monkeypatch.setenv("TRAINVITALS_RUN_DIR", str(directory))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield directory
    torch.set_num_threads(threads)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return the run directory of trainings in other processes."""
    return tmp_path / "runs"


@pytest.fixture
def exporter(tmp_path: Path, runs: Path) -> Iterator[ExporterProcess]:
    """Start an exporter that reads the run directory."""
    with ExporterProcess(tmp_path, arguments=(f"--run-dir={runs}",)) as exporter:
        yield exporter
